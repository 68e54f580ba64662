"""What each column holds, its values as numbers, categories or dates, and what looks suspicious about it.

A column of text is cleaned by `skrub.Cleaner`, which is given each distinct value once: it finds missing values and
recognises numbers and dates in any usual format. What it finds is stored as plain data, and new rows are read the same
way, strictly.
"""

from __future__ import annotations

import hashlib
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyarrow import compute

from directloss._checks import fail

NUMBER, CATEGORY, DATE = "number", "category", "date"
TITLES = {NUMBER: "numeric", CATEGORY: "categorical", DATE: "date"}
MOSTLY = 0.9
"""A text column with at least this share of numbers is taken for numbers with mistakes in them."""
LARGEST = 1e30
"""Larger numbers are usually sentinels, and too large for the networks, which compute in float32."""
ID_ROWS, ID_SHARE = 20, 0.95
"""From this many rows on, a column with this share of distinct values looks like an identifier."""
LEAK_VALUES = 30
"""A column with at most this many values, each with one label only, gives the target away."""
GAPS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "?"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "none", "null", "..."),
)
"""Words for a missing value, the same as in skrub."""
DECIMAL_COMMA = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"
TRUTH = {"true": "True", "TRUE": "True", "false": "False", "FALSE": "False"}
"""Other spellings of what Python writes as True and False."""

Values = pd.Series  # type: ignore[type-arg]
"""float64 for numbers, categories of str for categories, datetime64 without time zone for dates."""


@dataclass(frozen=True)
class Column:
    """Name and kind of a column; ``format`` is that of its dates, empty if the file stores them as such."""

    name: str
    kind: str
    format: str = ""


# ---------------------------------------------------------------------- values


def words_of(array: pa.Array, decimal_comma: bool = False) -> tuple[npt.NDArray[np.int32], Values]:
    """The index of each row's word, -1 where it is missing, and the distinct words."""
    array = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    words = compute.utf8_trim_whitespace(array.dictionary.cast(pa.string()))
    if decimal_comma:
        points = compute.replace_substring(words, ",", ".")
        words = compute.if_else(compute.match_substring_regex(words, DECIMAL_COMMA), points, words)
    gap = compute.is_in(words, pa.array(GAPS))
    words = compute.if_else(gap, pa.scalar(None, pa.string()), words).dictionary_encode()
    codes = words.indices.take(array.indices).fill_null(-1).to_numpy(zero_copy_only=False)
    texts = words.dictionary.to_pylist()
    return codes.astype(np.int32), pd.Series([TRUTH.get(text, text) for text in texts], dtype="str")


def text_of(value: float) -> str:
    """A number as a word; 1 and 1.0 are the same.

    Examples:
        >>> text_of(1.0), text_of(0.5)
        ('1', '0.5')
    """
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def labels_of(array: pa.Array, name: str) -> tuple[npt.NDArray[np.int32], list[str]]:
    """The index of each row's label and the labels, with 1, 1.0 and 01 the same if all labels are numbers."""
    values = _plain(array, name)
    if isinstance(values, pa.Array):
        codes, words = words_of(values)
        numbers = pd.to_numeric(words, errors="coerce")
        texts = [text_of(number) for number in numbers] if len(words) and np.isfinite(numbers).all() else list(words)
    else:
        codes, distinct = pd.factorize(values)
        texts = [text_of(value) if isinstance(value, float) else str(value) for value in distinct]
    labels = list(dict.fromkeys(texts))
    places = np.array([labels.index(text) for text in texts] + [-1], dtype=np.int32) if len(labels) < 10**4 else None
    return (codes.astype(np.int32), texts) if places is None else (places[codes], labels)


def _plain(array: pa.Array, name: str) -> pa.Array | Values:
    """Text as an arrow array; numbers as float64 and times as datetime64, both with gaps."""
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array
    if pa.types.is_null(kind):
        return pd.Series(np.full(len(array), np.nan))
    if pa.types.is_boolean(kind):
        return compute.if_else(array, "True", "False")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        return pd.Series(plain.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).copy())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pd.Series(array.cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False))
    hint = f"Leave it out with --drop {shlex.quote(name)}, or turn it into numbers first."
    fail(f"column {name!r}", "must hold numbers, words or dates", f"of type {kind}", hint)


def find_column(
    array: pa.Array, name: str, categorical: bool = False, decimal_comma: bool = False
) -> tuple[Column, Values]:
    """The kind of a column, and its values."""
    values = _plain(array, name)
    if not isinstance(values, pa.Array):
        kind = DATE if values.dtype.kind == "M" else CATEGORY if categorical else NUMBER
        return Column(name, kind), _as(values, Column(name, kind))
    codes, words = words_of(values, decimal_comma)
    column = Column(name, CATEGORY) if categorical else _recognised(name, words)
    if column.kind == CATEGORY and not categorical:
        _check_mixture(name, codes, words)
    return column, _as((codes, words), column)


def read_column(array: pa.Array, column: Column, decimal_comma: bool = False) -> Values:
    """The values of a column whose kind is known; raises if they are of another kind."""
    values = _plain(array, column.name)
    return _as(words_of(values, decimal_comma) if isinstance(values, pa.Array) else values, column)


def _recognised(name: str, words: Values) -> Column:
    """What skrub takes a column with these words for."""
    if not len(words) or np.isfinite(pd.to_numeric(words, errors="coerce")).all():
        return Column(name, NUMBER)
    if pd.to_numeric(words, errors="coerce").isna().mean() < MOSTLY:  # some numbers, so no dates
        return Column(name, NUMBER if pd.to_numeric(words, errors="coerce").notna().all() else CATEGORY)
    from skrub import Cleaner

    cleaner = Cleaner()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dates that could be day first or month first; the report names the format
        cleaned = cleaner.fit_transform(pd.DataFrame({"x": words}))
    if cleaned["x"].dtype.kind != "M" or cleaned["x"].isna().any():
        return Column(name, CATEGORY)
    steps = cleaner.all_processing_steps_["x"]
    return Column(name, DATE, next(str(step.format_) for step in steps if hasattr(step, "format_")))


def _check_mixture(name: str, codes: npt.NDArray[np.int32], words: Values) -> None:
    """A column of numbers with a few words in it is a mistake in the file, not a column of categories."""
    numeric = np.append(pd.to_numeric(words, errors="coerce").notna(), False)[codes[codes >= 0]]
    if numeric.mean() >= MOSTLY:
        odd = words[pd.to_numeric(words, errors="coerce").isna()]
        typed, shown = shlex.quote(name), ", ".join(repr(word) for word in odd[:3])
        hint = f"Fix the values (an empty cell is a missing number), or add --categorical {typed} or --drop {typed}."
        found = f"a column in which {(~numeric).sum()} of {len(numeric)} values are not: {shown}"
        fail(f"column {name!r}", "must hold numbers throughout", found, hint)


def _as(values: Values | tuple[npt.NDArray[np.int32], Values], column: Column) -> Values:
    """Values as the column's kind; raises if that is impossible."""
    name, kind = column.name, column.kind
    if isinstance(values, tuple):
        codes, words = values
        if kind == CATEGORY:
            return pd.Series(pd.Categorical.from_codes(codes, pd.Index(words, dtype=object)))
        if kind == DATE:
            distinct = pd.to_datetime(words, format=column.format or "ISO8601", utc=True, errors="coerce")
            distinct = distinct.dt.tz_localize(None)
        else:
            distinct = pd.to_numeric(words, errors="coerce").astype(np.float64)
        if (wrong := distinct.isna() & words.notna()).any():
            fail(f"column {name!r}", f"must hold {kind}s, as in training", f"a column with {words[wrong].iloc[0]!r}")
        values = distinct.reindex(codes).reset_index(drop=True)  # -1 is no word, and gives a gap
    elif kind == CATEGORY and values.dtype.kind == "f":
        codes, distinct = pd.factorize(values)
        values = pd.Series(pd.Categorical.from_codes(codes, pd.Index([text_of(value) for value in distinct], dtype=object)))
    elif kind == CATEGORY:
        values = values.astype("str").astype("category")
    elif (values.dtype.kind == "M") != (kind == DATE) and values.notna().any():
        fail(f"column {name!r}", f"must hold {kind}s, as in training", "a column of other values")
    elif kind == DATE and values.dtype.kind != "M":
        values = pd.Series(pd.NaT, index=values.index, dtype="datetime64[us]")
    if kind == NUMBER and (large := int((values.abs() >= LARGEST).sum())):
        rule = f"must have finite numbers of at most {LARGEST:.0e}"
        fail(f"column {name!r}", rule, f"a column with infinite or larger ones in {rows(large)}", "Replace these values.")
    return values


# ---------------------------------------------------------------------- suspicions


def suspicions(frame: Mapping[str, Values], y: npt.NDArray[np.int64], labels: Sequence[str]) -> list[str]:
    """Sentences about columns that are useless or too good to be true; nothing is changed."""
    told, constant, marks = [], [], dict[bytes, str]()
    for name, values in frame.items():
        codes, distinct = pd.factorize(values)
        count, drop = len(distinct), f"leave it out with --drop {shlex.quote(name)}"
        if count + (codes < 0).any() == 1:
            constant.append(name)
            continue
        if leak := _leak(values, codes, count, y, labels):
            told.append(f"Column {name!r} gives the target away: {leak}. If it is not known in advance, {drop}.")
        if _looks_like_id(name, values, count):
            told.append(f"Column {name!r} looks like an identifier of the rows; if so, {drop}.")
        mark = hashlib.blake2b(codes.tobytes() + repr(list(distinct[:50])).encode()).digest()
        if (other := marks.setdefault(mark, name)) != name:
            told.append(f"Column {name!r} is the same as {other!r}.")
    if constant:
        subject = "Column {} has" if len(constant) == 1 else "Columns {} have"
        told.append(f"{subject.format(some_names(constant))} the same value in every row.")
    return told


def _leak(
    values: Values, codes: npt.NDArray[Any], count: int, y: npt.NDArray[np.int64], labels: Sequence[str]
) -> str:
    """How a column tells the label of every row; empty if it does not."""
    if count <= LEAK_VALUES:
        table = np.zeros((count + 1, len(labels)), np.int64)
        np.add.at(table, (codes, y), 1)
        used = table[table.any(1)]
        if ((used > 0).sum(1) == 1).all() and (used.any(0)).all():
            copy = len(used) == len(labels)
            return "it is a copy of it, or a recoding" if copy else f"each of its {len(used)} values has one label only"
    if values.dtype.kind == "f" and len(labels) == 2 and not values.isna().any():
        no, yes = (values.to_numpy()[y == label] for label in (0, 1))
        if yes.min() > no.max() or yes.max() < no.min():
            return f"one threshold separates {labels[1]!r} from {labels[0]!r} without an error"
    return ""


def _looks_like_id(name: str, values: Values, count: int) -> bool:
    if len(values) < ID_ROWS or count < ID_SHARE * len(values) or values.dtype.kind == "M":
        return False
    if values.dtype.kind != "f":
        return True
    numbers = values.to_numpy()
    whole = bool((numbers == np.floor(numbers)).all())
    named = name.lower().replace("_", " ").split()[-1:] in (["id"], ["index"], ["key"], ["nr"])
    return whole and (named or bool((np.diff(numbers) > 0).all() and np.ptp(numbers) < 2 * len(numbers)))


def rows(count: int) -> str:
    """``1 row``, ``12 rows``."""
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def some(words: Sequence[str], most: int = 10) -> str:
    """``a, b and 3 more``."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def some_names(names: Sequence[str]) -> str:
    """``'a', 'b' and 3 more``."""
    return some([repr(name) for name in names])
