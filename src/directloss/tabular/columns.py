"""What each column holds, and what is wrong or suspicious about it, collected one batch of rows at a time."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from directloss._checks import fail, near

NUMBER, CATEGORY, DATE = "number", "category", "date"
KINDS = {NUMBER: "numeric", CATEGORY: "categorical", DATE: "date"}
MOSTLY = 0.9
"""A text column with at least this share of numbers is taken for numbers with mistakes in them."""
SOME = 0.05
"""From this share of numbers on, a column of categories gets a note."""
LARGEST = 1e30
"""Larger numbers are usually sentinels, and too large for the networks, which compute in float32."""
ID_ROWS, ID_SHARE = 20, 0.95
"""From this many rows on, a column with this share of distinct values looks like an identifier."""
COUNTED = 200_000
"""Distinct values are counted in this many leading rows."""
GAPS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""Words for a missing value in any format, the same as in `pandas.read_csv`."""
ISO_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?"
OTHER_DATE = r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}(?: .*)?"
WHOLE = r"[+-]?\d+"
PARTS = ("days", "month", "day", "weekday", "hour")
"""The numbers a date becomes; days count from 1970."""
YES_NO = {word: float(word.lower() == "true") for word in ("True", "TRUE", "true", "False", "FALSE", "false")}

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.intp]


# ---------------------------------------------------------------------- values of a batch


def text_of(value: Any) -> str:
    """A label or a category as text; 1 and 1.0 give the same text.

    Examples:
        >>> text_of(1.0), text_of(0.5), text_of(np.True_), text_of(" yes")
        ('1', '0.5', 'True', 'yes')
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating):
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    return str(value).strip()


def number_text(word: str) -> str:
    """Text normalised like `text_of` if it is a number, unchanged otherwise.

    Examples:
        >>> number_text("01.50"), number_text("7"), number_text("TRUE"), number_text("x")
        ('1.5', '7', 'True', 'x')
    """
    word = word.strip()
    if word in YES_NO:
        return str(bool(YES_NO[word]))
    for read in (int, float):
        try:
            return text_of(read(word))
        except (ValueError, OverflowError):
            continue
    return word


def is_words(column: pd.Series[Any]) -> bool:
    """Whether it holds text, or Python objects to be read as text, rather than numbers or times."""
    kind = column.dtype
    return isinstance(kind, pd.CategoricalDtype) or pd.api.types.is_string_dtype(kind) or kind == np.dtype(object)


def without_gap_words(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with the words of `GAPS` replaced by missing values."""
    found = {}
    for name, column in frame.items():
        if isinstance(column.dtype, pd.CategoricalDtype):
            gaps = column.cat.categories[column.cat.categories.isin(GAPS)]
            found[name] = column.cat.remove_categories(gaps) if len(gaps) else column
        else:
            found[name] = column.mask(column.isin(GAPS)) if is_words(column) else column
    return pd.DataFrame(found, copy=False)


def values_of(column: pd.Series[Any]) -> tuple[Codes, npt.NDArray[np.object_]]:
    """The index of each row's value, -1 where it is missing, and the distinct values."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy().astype(np.intp), np.asarray(column.cat.categories, dtype=object)
    codes, values = pd.factorize(column)
    return codes, np.asarray(values, dtype=object)


def words_of(column: pd.Series[Any], numeric: bool = False) -> tuple[Codes, list[str]]:
    """`values_of` with values as text, which may repeat. With ``numeric``, 01.0 and 1 are the same."""
    codes, values = values_of(column)
    return codes, [number_text(value) if numeric and isinstance(value, str) else text_of(value) for value in values]


def _read_numbers(values: npt.NDArray[np.object_]) -> Floats:
    """Text as numbers; NaN if it is not a number."""
    import pyarrow as pa
    from pyarrow import compute

    texts = [str(value) for value in values]
    try:
        # Fast, but raises at the first value that is not a number.
        return np.array(compute.cast(pa.array(texts, pa.string()), pa.float64()), dtype=np.float64)
    except pa.ArrowInvalid:
        return np.array(pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce"), dtype=np.float64)


def dates_of(column: pd.Series[Any]) -> pd.DatetimeIndex:
    """Dates and times without time zone; NaT if it is not a date."""
    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        codes, words = words_of(column)
        found = pd.DatetimeIndex(_read_dates(words)).append(pd.DatetimeIndex([pd.NaT]))
        return pd.DatetimeIndex(found[codes])  # -1 is the last
    return pd.DatetimeIndex(pd.to_datetime(column, utc=True)).tz_localize(None)


def _read_dates(words: Sequence[str]) -> pd.DatetimeIndex:
    texts = pd.Series(words, dtype="string")
    return pd.DatetimeIndex(pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")).tz_localize(None)


def numbers_of(column: pd.Series[Any], kind: str) -> Floats:
    """A column as numbers ``(n, k)``, NaN where missing; k is 1, or the number of parts of a date."""
    if kind == DATE:
        dates = dates_of(column)
        days = (dates - pd.Timestamp(0)) / pd.Timedelta(days=1)
        parts = (np.floor(days), dates.month, dates.day, dates.day_of_week, dates.hour + dates.minute / 60)
        return np.column_stack([np.asarray(part, dtype=np.float64) for part in parts])
    if not is_words(column):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)[:, None]
    codes, values = values_of(column)
    numbers = _read_numbers(values)
    for place in np.flatnonzero(np.isnan(numbers)):
        numbers[place] = YES_NO.get(str(values[place]).strip(), np.nan)
    return np.append(numbers, np.nan)[codes][:, None]


# ---------------------------------------------------------------------- a column over all batches


@dataclass
class Column:
    """What is known about a column after some batches."""

    name: str
    rows: int = 0
    gaps: int = 0
    type: str = ""
    """Type of the values: numbers, dates or words."""
    numbers: int = 0
    """Number of values that can be read as numbers."""
    large: int = 0
    """Number of values that are infinite or larger than `LARGEST`."""
    odd: list[str] = field(default_factory=list)
    """A few values that cannot be read as numbers."""
    iso_dates: bool = True
    other_dates: bool = True
    yes_no: bool = True
    whole: bool = True
    """Whole numbers only, without gaps."""
    counting: bool = True
    """Each number is one more than the last."""
    in_float32: bool = True
    """Whether 32 bits store every number exactly."""
    constant: bool = True
    _values: set[Any] = field(default_factory=set)
    """The only value while the column is constant; None stands for a gap."""
    _last: float = np.nan
    _marks: list[npt.NDArray[np.uint64]] = field(default_factory=list)
    """Hashes of the distinct values in the first rows, per batch."""

    def add(self, column: pd.Series[Any]) -> None:
        """Take in one more batch."""
        kind, gaps = _type(column, self.name), int(column.isna().sum())
        self.type = self.type or kind
        if kind == "words":
            self._add_words(*values_of(column))
        elif kind == "numbers":
            self._add_numbers(column.to_numpy(dtype=np.float64, na_value=np.nan), 1)
        self.whole &= gaps == 0 and (kind == "words" or pd.api.types.is_integer_dtype(column.dtype))
        self._count(column, gaps)
        self.rows += len(column)
        self.gaps += gaps

    @property
    def present(self) -> int:
        """Number of rows with a value."""
        return self.rows - self.gaps

    @property
    def share_of_numbers(self) -> float:
        """The share of the present values that can be read as numbers."""
        return self.numbers / max(1, self.present)

    @property
    def numeric(self) -> bool:
        """Whether all present values are numbers, or all are true and false, in any notation."""
        return self.type == "numbers" or (self.type == "words" and (self.numbers == self.present or self.yes_no))

    @property
    def different(self) -> int:
        """Number of distinct values in the first rows."""
        return len(np.unique(np.concatenate(self._marks))) if self._marks else 0

    def _add_words(self, codes: Codes, values: npt.NDArray[np.object_]) -> None:
        counts = np.bincount(codes[codes >= 0], minlength=len(values))
        values, counts = values[counts > 0], counts[counts > 0]
        numbers = _read_numbers(values)
        known = ~np.isnan(numbers)
        self.numbers += int(counts[known].sum())
        self._add_numbers(numbers[known], counts[known])
        if not known.all():
            words = pd.Series([str(value).strip() for value in values[~known]], dtype="string")
            dated = words.str.fullmatch(ISO_DATE).to_numpy(bool) & np.asarray(_read_dates(list(words)).notna())
            first = list(words[~dated][:1]) if self.iso_dates else []  # why this is not a column of dates
            self.odd = list(dict.fromkeys([*first, *self.odd, *words]))[:3]
            self.yes_no &= bool(words.isin(YES_NO).all())
            self.iso_dates &= bool(dated.all())
            self.other_dates &= bool(words.str.fullmatch(OTHER_DATE).all())
            self.whole = False
        if known.any():
            self.yes_no = self.iso_dates = self.other_dates = False
            self.whole &= bool(pd.Series(values[known], dtype=object).astype("string").str.fullmatch(WHOLE).all())

    def _add_numbers(self, numbers: Floats, counts: Any) -> None:
        self.large += int(((np.abs(numbers) >= LARGEST) * counts).sum())
        with np.errstate(over="ignore"):
            self.in_float32 &= bool((numbers.astype(np.float32) == numbers)[~np.isnan(numbers)].all())

    def _count(self, column: pd.Series[Any], gaps: int) -> None:
        """Update what depends on the order of the rows: constant, counting, distinct values."""
        present = column[column.notna()] if gaps else column
        if self.constant:
            self._values |= {*present.unique()[:2], *([None] if gaps else [])}
            self.constant = len(self._values) < 2
        if self.whole and self.counting:
            numbers = np.append(self._last if self.rows else [], numbers_of(column, NUMBER).ravel())
            self.counting = bool((np.diff(numbers) == 1).all())
            self._last = float(numbers[-1])
        if self.rows < COUNTED:
            self._marks.append(np.unique(pd.util.hash_pandas_object(present[: COUNTED - self.rows], index=False)))


def _type(column: pd.Series[Any], name: str) -> str:
    kind = column.dtype
    if pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind):
        return "numbers"
    if pd.api.types.is_datetime64_any_dtype(kind):
        return "dates"
    if not is_words(column) or any(isinstance(value, list | dict | np.ndarray | bytes) for value in column.head(100)):
        hint = f"Leave it out with --drop {shlex.quote(name)}, or turn it into numbers first."
        fail(f"column {name!r}", "must hold numbers, words or dates", f"of type {kind}", hint)
    return "words"


@dataclass
class Survey:
    """What is known about a table after some of its batches."""

    columns: dict[str, Column]
    twins: dict[str, str] = field(default_factory=dict)
    """Columns that so far have the same content as an earlier one."""

    @classmethod
    def of(cls, batches: Iterable[pd.DataFrame], names: Sequence[str]) -> Survey:
        """Survey all batches."""
        survey = cls({name: Column(name) for name in names})
        for batch in batches:
            survey.add(batch)
        return survey

    @property
    def rows(self) -> int:
        """Number of rows."""
        return next(iter(self.columns.values())).rows

    def add(self, batch: pd.DataFrame) -> None:
        """Take in one more batch."""
        first = not self.rows
        for name, column in self.columns.items():
            column.add(batch[name])
        looked = self.columns if first else dict.fromkeys([*self.twins, *self.twins.values()])
        marks = {name: _mark(batch[name]) for name in looked}
        if first:
            earlier: dict[bytes, str] = {}
            self.twins = {name: found for name in marks if (found := earlier.setdefault(marks[name], name)) != name}
        else:
            self.twins = {name: other for name, other in self.twins.items() if marks[name] == marks[other]}


def _mark(column: pd.Series[Any]) -> bytes:
    return hashlib.blake2b(pd.util.hash_pandas_object(column, index=False).to_numpy().tobytes()).digest()


# ---------------------------------------------------------------------- conclusions


def choose(survey: Survey, target: str, drop: Sequence[str], group: str | None) -> list[str]:
    """The columns to learn from, in file order, without empty ones."""
    others = [name for name in survey.columns if name not in (target, group) and name not in drop]
    left = [name for name in others if survey.columns[name].present]
    if not left:
        fail("--drop", "must leave a column with values to learn from", ", ".join(drop) or "a table without one")
    return left


def check_known(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Check that every name is a column."""
    for name in names:
        if name not in known:
            hint = near(name, known) or f"Columns: {', '.join(known)}."
            fail(option, "must name columns of the data", repr(name), hint)


def kinds_of(survey: Survey, names: Sequence[str], categorical: Sequence[str]) -> dict[str, str]:
    """``number``, ``category`` or ``date`` for each column."""
    return {name: CATEGORY if name in categorical else _kind(survey.columns[name]) for name in names}


def _kind(column: Column) -> str:
    """A column of numbers with a few words in it is a mistake in the file, not a column of categories."""
    if column.numeric:
        return NUMBER
    if column.type == "dates":
        return DATE
    if column.share_of_numbers >= MOSTLY:
        name, shown = column.name, ", ".join(repr(word) for word in column.odd)
        typed = shlex.quote(name)
        hint = f"Fix the values (an empty cell is a missing number), or add --categorical {typed} or --drop {typed}."
        rows = f"{column.present - column.numbers} of {column.present} values are not: {shown}"
        fail(f"column {name!r}", "must hold numbers throughout", f"a column in which {rows}", hint)
    return DATE if column.iso_dates else CATEGORY


def check_kind(column: Column, kind: str) -> None:
    """Check that a column of new rows holds numbers or dates where training had them."""
    dates = column.type == "dates" or (column.type == "words" and column.iso_dates)
    if column.present and not {NUMBER: column.numeric, DATE: dates, CATEGORY: True}[kind]:
        found = f"a column with {column.odd[0]!r}" if column.odd else "a column of other values"
        fail(f"column {column.name!r}", f"must hold {kind}s, as in training", found)


def check_finite(survey: Survey, kinds: Mapping[str, str]) -> None:
    """Check that numbers are finite and their squares do not overflow."""
    found = {name: survey.columns[name].large for name, kind in kinds.items() if kind == NUMBER}
    if found := {name: count for name, count in found.items() if count}:
        rule = f"must have finite numbers of at most {LARGEST:.0e}"
        fail("DATA", rule, f"a table with infinite or larger ones in {listed(found)}", "Replace these values.")


def listed(counts: Mapping[str, int]) -> str:
    """``age (12 rows), height (1 row)``."""
    return some([f"{name} ({count} {'row' if count == 1 else 'rows'})" for name, count in counts.items()])


def some(words: Sequence[str], most: int = 10) -> str:
    """``a, b and 3 more``."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def some_names(names: Sequence[str]) -> str:
    """``'a', 'b' and 3 more``."""
    return some([repr(name) for name in names])


def suspicions(survey: Survey, kinds: Mapping[str, str]) -> list[str]:
    """Sentences about columns that are useless or too good to be true; nothing is changed."""
    columns = [survey.columns[name] for name in kinds]
    words = [column for column in columns if kinds[column.name] == CATEGORY and column.type == "words"]
    found = [
        f"Column {column.name!r} mixes words with {column.share_of_numbers:.0%} numbers; it is read as categories."
        for column in words
        if SOME <= column.share_of_numbers < 1
    ]
    dates = [column for column in words if column.other_dates]
    found += [
        f"Column {column.name!r} looks like dates, but is read as categories. Write dates as 2024-12-31."
        for column in dates
    ]
    if constant := [column.name for column in columns if column.constant]:
        subject = "Column {} has" if len(constant) == 1 else "Columns {} have"
        found.append(f"{subject.format(some_names(constant))} the same value in every row.")
    found += [
        f"Column {column.name!r} looks like an identifier of the rows; if so, "
        f"leave it out with --drop {shlex.quote(column.name)}."
        for column in columns
        if _looks_like_id(column, kinds[column.name]) and column not in dates
    ]
    return found + [
        f"Column {name!r} is the same as {other!r}."
        for name, other in survey.twins.items()
        if name in kinds and other in kinds and not survey.columns[name].constant
    ]


def _looks_like_id(column: Column, kind: str) -> bool:
    if column.rows < ID_ROWS or column.different < ID_SHARE * min(column.rows, COUNTED):
        return False
    if kind == CATEGORY:
        return True
    words = column.name.lower().replace("_", " ").split()[-1:]
    return column.whole and (column.counting or words in (["id"], ["index"], ["key"], ["nr"]))
