"""What each column holds, its values as numbers, categories or dates, and what looks suspicious about it.

`skrub.Cleaner` recognises dates, in any usual format. What it found is stored as plain data, and new rows are read
in the same way, strictly.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pandas.api import types
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
LEAK, LEAK_VALUES = "gives the target away", 30
"""A column with at most this many values, each with one label only, gives the target away."""
GAPS = {
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "?"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "none", "null", "..."),
}
"""Words for a missing value, the same as in skrub."""
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
TRUTH = {"true": "True", "TRUE": "True", "false": "False", "FALSE": "False"}
"""Other spellings of what Python writes as True and False."""

Values = Any  # a pandas.Series, whose stubs would need a type for each kind
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Column:
    """Name and kind of a column; ``format`` is that of its dates, empty if the file stores them as such."""

    name: str
    kind: str
    format: str = ""


# ---------------------------------------------------------------------- values


def series_of(array: pa.Array | pa.ChunkedArray, text: bool = False) -> Values:
    """A column of a file for `tidy`. Text that is all numbers is read at once, which is fast, unless ``text``."""
    if pa.types.is_dictionary(array.type) and not text:
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        words = array.dictionary
        try:
            numbers = compute.if_else(compute.equal(words, ""), pa.scalar(None, words.type), words).cast(pa.float64())
            return pd.Series(np.append(numbers, np.nan)[np.asarray(array.indices.fill_null(-1))])  # -1 is the last
        except pa.ArrowInvalid:
            pass  # at the first value that is not a number
    return array.to_pandas()


def tidy(values: Values, name: str, decimal_comma: bool = False) -> Values:
    """A column as float64, as datetime64 without time zone, or as categories of words without gaps."""
    if types.is_datetime64_any_dtype(values.dtype):
        return pd.Series(pd.DatetimeIndex(pd.to_datetime(values.array, utc=True)).tz_localize(None))
    if types.is_numeric_dtype(values.dtype) and values.dtype.kind in "iuf":
        return pd.Series(values.to_numpy(np.float64, na_value=np.nan))
    if any(isinstance(value, list | dict | tuple | bytes | np.ndarray | complex) for value in values[:100]):
        hint = f"Leave it out with --drop {shlex.quote(name)}, or turn it into numbers first."
        fail(f"column {name!r}", "must hold numbers, words or dates", f"of type {values.dtype}", hint)
    codes, distinct = pd.factorize(values)
    words = [_word(value, decimal_comma) for value in distinct]
    known = list(dict.fromkeys(word for word in words if word not in GAPS))
    places = {word: place for place, word in enumerate(known)}
    codes = np.array([*(places.get(word, -1) for word in words), -1])[codes]  # -1 is the last
    return pd.Series(pd.Categorical.from_codes(codes, pd.Index(known, dtype=object)))


def _word(value: Any, decimal_comma: bool) -> str:
    if isinstance(value, float):
        return text_of(value)
    word = str(value).strip()
    if decimal_comma and DECIMAL_COMMA.fullmatch(word):
        return word.replace(",", ".")
    return TRUTH.get(word, word)


def text_of(value: float) -> str:
    """A number as a word; 1 and 1.0 are the same.

    Examples:
        >>> text_of(1.0), text_of(0.5)
        ('1', '0.5')
    """
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def labels_of(values: Values, name: str) -> tuple[Codes, list[str]]:
    """The index of each row's label, -1 without one, and the labels; 1, 1.0 and 01 are the same if all are numbers."""
    values = tidy(values, name)
    if isinstance(values.dtype, pd.CategoricalDtype):
        numbers = _numbers(values)
        values = numbers if (np.isfinite(numbers) | values.isna()).all() else values
    codes, distinct = pd.factorize(values)
    return codes, [_word(value, False) for value in distinct]


def _numbers(values: Values) -> Values:
    """Categories as numbers; NaN if a word is none."""
    numbers = pd.to_numeric(pd.Series(values.cat.categories), errors="coerce").astype(np.float64)
    return pd.Series(np.append(numbers, np.nan)[values.cat.codes])  # -1 is the last


def find_column(values: Values, name: str, categorical: bool, decimal_comma: bool) -> tuple[Column, Values]:
    """The kind of a column, and its values."""
    values = tidy(values, name, decimal_comma)
    if types.is_datetime64_any_dtype(values.dtype):
        column = Column(name, DATE)
    elif categorical:
        column = Column(name, CATEGORY)
    else:
        column = Column(name, NUMBER) if values.dtype.kind == "f" else _recognised(name, values)
    return column, _as(values, column)


def _recognised(name: str, values: Values) -> Column:
    """What a column of words holds. Few words among numbers are a mistake in the file, not categories."""
    present = values.notna()
    numeric = _numbers(values).notna()[present]
    if numeric.all():
        return Column(name, NUMBER)
    if numeric.mean() >= MOSTLY:
        odd = values[present][~numeric]
        typed, shown = shlex.quote(name), ", ".join(repr(word) for word in odd.unique()[:3])
        hint = f"Fix the values (an empty cell is a missing number), or add --categorical {typed} or --drop {typed}."
        found = f"a column in which {len(odd)} of {len(numeric)} values are not: {shown}"
        fail(f"column {name!r}", "must hold numbers throughout", found, hint)
    if numeric.any():
        return Column(name, CATEGORY)
    from skrub import Cleaner

    cleaner = Cleaner()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dates that could be day first or month first; the report names the format
        cleaned = cleaner.fit_transform(pd.DataFrame({"x": values.cat.categories.astype("str")}))
    if cleaned["x"].dtype.kind != "M" or cleaned["x"].isna().any():
        return Column(name, CATEGORY)
    return Column(
        name, DATE, next(step.format_ for step in cleaner.all_processing_steps_["x"] if hasattr(step, "format_"))
    )


def read_column(values: Values, column: Column, decimal_comma: bool = False) -> Values:
    """The values of a column whose kind is known; raises if they are of another kind."""
    return _as(tidy(values, column.name, decimal_comma), column)


def _as(values: Values, column: Column) -> Values:
    name, kind = column.name, column.kind
    words = isinstance(values.dtype, pd.CategoricalDtype)
    if kind == CATEGORY:
        return values if words else tidy(values.astype(object), name)
    if kind == NUMBER:
        found = _numbers(values) if words else values
    elif words:
        format = column.format or "ISO8601"
        dates = pd.to_datetime(values.cat.categories, format=format, utc=True, errors="coerce").tz_localize(None)
        found = pd.Series(dates.append(pd.DatetimeIndex([pd.NaT]))[values.cat.codes])
    else:
        found = values if types.is_datetime64_any_dtype(values.dtype) else pd.Series(pd.NaT, index=values.index)
    if types.is_datetime64_any_dtype(found.dtype) != (kind == DATE) or (found.isna() & values.notna()).any():
        odd = values[found.isna() & values.notna()]
        shown = f"a column with {odd.iloc[0]!r}" if len(odd) else "a column of dates"
        fail(f"column {name!r}", f"must hold {kind}s, as in training", shown)
    if kind == NUMBER and (large := int((found.abs() >= LARGEST).sum())):
        rule = f"must have finite numbers of at most {LARGEST:.0e}"
        fail(f"column {name!r}", rule, f"a column with infinite or larger ones in {rows(large)}", "Replace them.")
    return found


# ---------------------------------------------------------------------- suspicions


def suspicions(frame: Mapping[str, Values], y: Codes, labels: Sequence[str]) -> list[str]:
    """Sentences about columns that are useless or too good to be true; nothing is changed."""
    told, constant, marks = [], [], dict[bytes, str]()
    for name, values in frame.items():
        codes, distinct = pd.factorize(values)
        drop = f"leave it out with --drop {shlex.quote(name)}"
        if len(distinct) + (codes < 0).any() == 1:
            constant.append(name)
            continue
        if leak := _leak(values, codes, y, labels):
            told.append(f"Column {name!r} {LEAK}: {leak}. If it is not known in advance, {drop}.")
        if _looks_like_id(name, values, len(distinct)):
            told.append(f"Column {name!r} looks like an identifier of the rows; if so, {drop}.")
        mark = hashlib.blake2b(codes.tobytes() + repr(list(distinct[:50])).encode()).digest()
        if (other := marks.setdefault(mark, name)) != name:
            told.append(f"Column {name!r} is the same as {other!r}.")
    if constant:
        subject = "Column {} has" if len(constant) == 1 else "Columns {} have"
        told.append(f"{subject.format(some_names(constant))} the same value in every row.")
    return told


def _leak(values: Values, codes: Codes, y: Codes, labels: Sequence[str]) -> str:
    """How a column tells the label of every row; empty if it does not."""
    if codes.max() < min(LEAK_VALUES, len(y) / 5):  # of values that hardly repeat, most have one label by chance
        table = np.zeros((codes.max() + 2, len(labels)), np.int64)  # the last is for gaps
        np.add.at(table, (codes, y), 1)
        used = table[table.any(1)]
        if ((used > 0).sum(1) == 1).all():
            copy = len(used) == len(labels)
            return "it is a copy of it, or a recoding" if copy else f"each of its {len(used)} values has one label only"
    if values.dtype.kind == "f" and len(labels) == 2 and values.notna().all():
        no, yes = (values.to_numpy()[y == label] for label in (0, 1))
        if yes.min() > no.max() or yes.max() < no.min():
            return f"one threshold separates {labels[1]!r} from {labels[0]!r} without an error"
    return ""


def _looks_like_id(name: str, values: Values, different: int) -> bool:
    if len(values) < ID_ROWS or different < ID_SHARE * len(values) or values.dtype.kind == "M":
        return False
    if values.dtype.kind != "f":
        return True
    numbers = values.to_numpy()
    named = name.lower().replace("_", " ").split()[-1:] in (["id"], ["index"], ["key"], ["nr"])
    return bool((numbers % 1 == 0).all()) and (named or bool((np.diff(numbers) > 0).all()))


def rows(count: int) -> str:
    """``1 row``, ``12 rows``."""
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def some(words: Sequence[str], most: int = 10) -> str:
    """``a, b and 3 more``."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def some_names(names: Sequence[str]) -> str:
    """``'a', 'b' and 3 more``."""
    return some([repr(name) for name in names])
