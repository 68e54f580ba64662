"""What each column of a table holds, and how it becomes standardised numbers.

A column is described by plain data, because a model file must not run code. New rows are read strictly: a word in a
column of numbers is an error, not a missing number.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import take
from pandas.tseries.api import guess_datetime_format

from directloss._checks import fail

NUMBER, CATEGORY, DATE = "number", "category", "date"
TITLES = {NUMBER: "numeric", CATEGORY: "categorical", DATE: "date"}
PARTS = ("days", "month", "day", "weekday", "hour")
"""The numbers a date becomes; days count from 1970."""
MOSTLY = 0.9
"""A text column with at least this share of numbers is taken for numbers with mistakes in them."""
LARGEST = 1e30
"""Larger numbers are usually sentinels, and too large for the networks, which compute in float32."""
HIGHEST = 1e15
"""The highest standardised number: far from anything in training, and float32 can still square it."""
RARE, MOST = 5, 40
"""The fewest rows of a category with a number of its own, and the most such categories per column."""
ENCODED = 6 * 10**7
"""The most numbers that all rows become; more rows get fewer categories per column."""
GAP = ""
"""The category of a missing value."""
GAPS = {
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "?"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "none", "null", "..."),
}
"""Words for a missing value."""
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
TRUTH = {"true": "True", "TRUE": "True", "false": "False", "FALSE": "False"}
"""Other spellings of what Python writes as True and False."""

Values = Any  # a pandas.Series, whose stubs would need a type for each kind
Frame = Mapping[str, Values]
"""The values of each column."""
Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


def tidy(values: Values, name: str, as_words: bool = False, decimal_comma: bool = False) -> Values:
    """A column as float64, as datetime64 without time zone, or, in any case with ``as_words``, as categories.

    Text that is all numbers becomes numbers. Categories are words without gaps.
    """
    if values.dtype.kind == "M" and not as_words:
        return pd.Series(pd.DatetimeIndex(pd.to_datetime(values.array, utc=True)).tz_localize(None))
    if values.dtype.kind in "iuf" and not as_words:
        return pd.Series(values.to_numpy(np.float64, na_value=np.nan))
    if isinstance(values.dtype, pd.CategoricalDtype) and not as_words:
        try:  # the usual case of a CSV file, and fast
            return by_category(values, lambda words: pd.to_numeric(words.astype(str)).astype(np.float64))
        except ValueError:
            pass  # at the first word that is not a number
    if any(isinstance(value, list | dict | tuple | bytes | np.ndarray | complex) for value in values[:100]):
        hint = f"Leave it out with --drop {shlex.quote(name)}, or turn it into numbers first."
        fail(f"column {name!r}", "must hold numbers, words or dates", f"of type {values.dtype}", hint)
    codes, distinct = pd.factorize(values)
    words = [word_of(value, decimal_comma) for value in distinct]
    known = pd.Index(dict.fromkeys(word for word in words if word not in GAPS), dtype=object)
    places = np.append(known.get_indexer(pd.Index(words, dtype=object)), -1)  # -1 is the last
    return pd.Series(pd.Categorical.from_codes(places[codes], known))


def word_of(value: Any, decimal_comma: bool = False) -> str:
    """A value as a word; 1 and 1.0 are the same.

    Examples:
        >>> word_of(1.0), word_of(0.5), word_of(" TRUE")
        ('1', '0.5', 'True')
    """
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(float(value))
    word = str(value).strip()
    if decimal_comma and DECIMAL_COMMA.fullmatch(word):
        return word.replace(",", ".")
    return TRUTH.get(word, word)


def by_category(values: Values, convert: Callable[[Any], Any]) -> Values:
    """Convert categories, each once; gaps stay gaps."""
    return pd.Series(take(np.asarray(convert(values.cat.categories)), values.cat.codes, allow_fill=True))


def numbers_of(values: Values) -> Values:
    """Categories as numbers; NaN if a word is none."""
    return by_category(values, lambda words: pd.to_numeric(words, errors="coerce").astype(np.float64))


@dataclass(frozen=True)
class Column:
    """Name and kind of a column, and how it becomes numbers.

    A number is one, a date the five of `PARTS`, and each of ``words`` one that is 1 in its rows and otherwise 0.
    """

    name: str
    kind: str
    format: str = ""
    """The format of dates; empty if the file stores them as such."""
    words: tuple[str, ...] = ()
    """Categories; also of numbers and dates, `GAP` if some are missing in training."""
    mean: tuple[float, ...] = ()
    """The mean of each number in training. It also stands for missing ones."""
    factor: tuple[float, ...] = ()
    """One over the standard deviation; 0 for what is constant in training."""

    def __post_init__(self) -> None:
        if self.kind not in TITLES or not all(isinstance(word, str) for word in (self.name, self.format, *self.words)):
            fail("columns", f"must each have a name and be one of {', '.join(TITLES)}", f"{self.name!r}, {self.kind!r}")
        if not np.isfinite((*self.mean, *self.factor)).all():
            fail("columns", "must have finite means and factors", f"{self.name!r}, without")

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return len(self.words) + {NUMBER: 1, CATEGORY: 0, DATE: len(PARTS)}[self.kind]

    def read(self, values: Values, decimal_comma: bool = False) -> Values:
        """The values of rows; raises if they are of another kind."""
        return self.convert(tidy(values, self.name, self.kind == CATEGORY, decimal_comma))

    def convert(self, values: Values) -> Values:
        """`read` of what `tidy` returned."""
        if self.kind == CATEGORY:
            return values
        if isinstance(values.dtype, pd.CategoricalDtype):
            dates = partial(_dates, format=self.format or "ISO8601")
            found = numbers_of(values) if self.kind == NUMBER else by_category(values, dates)
        elif (values.dtype.kind == "M") == (self.kind == DATE):
            found = values
        else:
            found = pd.Series(pd.NaT if self.kind == DATE else np.nan, index=values.index)
        if found is not values and len(odd := values[found.isna() & values.notna()]):
            fail(f"column {self.name!r}", f"must hold {self.kind}s, as in training", f"a column with {odd.iloc[0]!r}")
        if self.kind == NUMBER and (large := np.count_nonzero(np.abs(found.to_numpy()) >= LARGEST)):
            what = f"a column with infinite or larger ones, {large:,} of them"
            fail(f"column {self.name!r}", f"must have finite numbers of at most {LARGEST:.0e}", what, "Replace them.")
        return found

    def learn(self, values: Values, most: int) -> Column:
        """The column with words, mean and factor of training rows; at most ``most`` words."""
        if self.kind == CATEGORY:
            counts = values.astype(object).fillna(GAP).value_counts()
            words = sorted(str(word) for word in counts[counts >= RARE].index[:most])
        else:
            words = [GAP] if values.isna().any() else []
        column = replace(self, words=tuple(words))
        numbers = column._numbers(values)
        count = np.maximum(1, np.isfinite(numbers).sum(0))
        mean = np.nansum(numbers, 0) / count
        spread = np.sqrt(np.nansum((numbers - mean) ** 2, 0) / count)
        varied = spread > 1e-9 * np.abs(np.nan_to_num(numbers)).max(0)  # what rounding leaves of a constant is less
        factor = np.where(varied, 1 / np.where(varied, spread, 1.0), 0.0)
        return replace(column, mean=tuple(mean.tolist()), factor=tuple(factor.tolist()))

    def encode(self, values: Values) -> Floats:
        """Standardised numbers ``(n, width)``."""
        standardised = (self._numbers(values) - np.array(self.mean)) * np.array(self.factor)
        return np.asarray(np.nan_to_num(np.clip(standardised, -HIGHEST, HIGHEST)))

    def unseen(self, values: Values) -> Values:
        """The values that training did not have, or too rarely; of numbers and dates only missing ones count."""
        return values[self._places(values) == -1]

    def _numbers(self, values: Values) -> Floats:
        marks = self._places(values)[:, None] == np.arange(len(self.words))
        if self.kind == CATEGORY:
            return np.asarray(marks, np.float64)
        if self.kind == NUMBER:
            return np.column_stack([values, marks])
        days, dates = (values - pd.Timestamp(0)) / pd.Timedelta(days=1), values.dt
        hour = dates.hour + dates.minute / 60
        return np.column_stack([np.floor(days), dates.month, dates.day, dates.day_of_week, hour, marks])

    def _places(self, values: Values) -> Codes:
        """The place of each row's category in ``words``, -1 for another; -2 for a number or date."""
        gap = self.words.index(GAP) if GAP in self.words else -1
        if self.kind != CATEGORY:
            return np.where(values.isna(), gap, -2)
        places = pd.Index(self.words, dtype=object).get_indexer(values.cat.categories)
        return np.asarray(np.append(places, gap)[values.cat.codes])  # -1 is the last


def find_column(values: Values, name: str, as_words: bool, decimal_comma: bool) -> tuple[Column, Values]:
    """What a column holds, and its values. Few words among numbers are a mistake in the file, not categories."""
    values = tidy(values, name, as_words, decimal_comma)
    column = Column(name, {"M": DATE, "f": NUMBER}.get(values.dtype.kind, CATEGORY))
    if column.kind == CATEGORY and not as_words:
        present = values.notna()
        numeric = numbers_of(values).notna()[present]
        if numeric.all():
            column = Column(name, NUMBER)
        elif numeric.mean() >= MOSTLY:
            odd = values[present][~numeric]
            found = f"a column in which {len(odd)} of {len(numeric)} values are not: {some_names(odd.unique()[:3])}"
            hint = f"Fix the values (an empty cell is a missing number), or add --categorical {shlex.quote(name)}."
            fail(f"column {name!r}", "must hold numbers throughout", found, hint)
        elif not numeric.any() and (format := date_format(values.cat.categories)):
            column = Column(name, DATE, format)
    return column, column.convert(values)


def date_format(words: Sequence[str]) -> str:
    """The format of dates in which all words are written; empty if there is none. In doubt the month comes first."""
    for day_first in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of words in the other order
            format = guess_datetime_format(words[0], dayfirst=day_first)
        if format and _dates(words, format).notna().all():
            return str(format)
    return ""


def _dates(words: Sequence[str], format: str) -> Any:
    return pd.to_datetime(pd.Index(words), format=format, utc=True, errors="coerce").tz_localize(None)


def learn(columns: Sequence[Column], frame: Frame) -> list[Column]:
    """Columns that can `encode`, learned from training rows."""
    count, wide = len(next(iter(frame.values()))), sum(column.kind == CATEGORY for column in columns)
    most = int(np.clip(ENCODED / count / max(1, wide), 4, MOST))
    return [column.learn(frame[column.name], most) for column in columns]


def encode(columns: Sequence[Column], frame: Frame) -> npt.NDArray[np.float32]:
    """Rows ``(n, width)`` of standardised numbers."""
    ends = np.cumsum([column.width for column in columns])
    encoded = np.empty((len(next(iter(frame.values()))), ends[-1]), np.float32)
    for column, end in zip(columns, ends, strict=True):
        encoded[:, end - column.width : end] = column.encode(frame[column.name])
    return encoded


def words(text: str) -> list[str]:
    """``a, b`` as two words."""
    return [word.strip() for word in text.split(",") if word.strip()]


def some(words: Sequence[str], most: int = 10) -> str:
    """``a, b and 3 more``."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def some_names(names: Sequence[str]) -> str:
    """``'a', 'b' and 3 more``."""
    return some([repr(name) for name in names])
