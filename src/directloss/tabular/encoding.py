"""Columns as standardised numbers, with parameters that are plain data.

The parameters are plain because a model file must not run code. A fitted `skrub.TableVectorizer` can only be stored as
Python objects (by skops, 8 columns take 8 MB, and 24 of skrub's own types and functions must be trusted). It takes a
word among the numbers of new rows for a missing number, where `columns.read_column` raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from directloss._checks import fail
from directloss.tabular.columns import CATEGORY, NUMBER, TITLES, Column, Values, some_names

RARE, MOST = 5, 40
"""The fewest rows of a category with a column of its own, and the most such categories per column."""
ENCODED = 6 * 10**7
"""The most numbers that all rows become; more rows get fewer categories per column."""
PARTS = ("days", "month", "day", "weekday", "hour")
"""The numbers a date becomes; days count from 1970."""
GAP = ""
"""The category of a missing value."""
SHOWN = 3
"""Number of unseen categories that a warning names, per column."""

Floats = npt.NDArray[np.float64]
Frame = Mapping[str, Values]
"""The values of each column."""


@dataclass(frozen=True)
class Encoding:
    """How one column becomes numbers."""

    column: Column
    fill: tuple[float, ...] = ()
    """Medians, which replace missing numbers: one, or one per part of a date."""
    marked: bool = False
    """Whether one more number tells the gaps from the others."""
    words: tuple[str, ...] = ()
    """Categories with a number of their own; all others are zeros."""

    @property
    def width(self) -> int:
        """How many numbers."""
        return len(self.words) if self.column.kind == CATEGORY else len(self.fill) + self.marked

    @property
    def story(self) -> str:
        """In words."""
        gaps = "; gaps are filled with the median and marked" if self.marked else ""
        if self.column.kind == CATEGORY:
            return f"category, {len(self.words)} of them: {some_names([word or '(missing)' for word in self.words])}"
        read = f" (read as {self.column.format})" if self.column.format else ""
        return f"number{gaps}" if self.column.kind == NUMBER else f"date{read}, as {', '.join(PARTS)}{gaps}"

    def encode(self, values: Values) -> Floats:
        """Numbers ``(n, width)``."""
        if self.column.kind == CATEGORY:
            codes = _codes(values, self.words)
            return np.asarray(codes[:, None] == np.arange(len(self.words)), dtype=np.float64)
        numbers = _numbers(values, self.column.kind)
        gap = np.isnan(numbers[:, :1])
        filled = np.where(np.isnan(numbers), np.array(self.fill), numbers)
        return np.hstack([filled, gap]) if self.marked else filled

    def unseen(self, values: Values) -> Values:
        """The values that training did not have, or too rarely."""
        if self.column.kind != CATEGORY or not self.words:
            return values[:0]
        return values[(_codes(values, self.words) < 0) & values.notna()]


def _codes(values: Values, words: tuple[str, ...]) -> npt.NDArray[np.int64]:
    places = {word: place for place, word in enumerate(words)}
    own = [places.get(str(word), -1) for word in values.cat.categories] + [places.get(GAP, -1)]
    return np.asarray(np.array(own)[values.cat.codes])  # -1 is the last


def _numbers(values: Values, kind: str) -> Floats:
    if kind == NUMBER:
        return np.asarray(values, dtype=np.float64)[:, None]
    dates = values.dt
    days = (values - pd.Timestamp(0)) / pd.Timedelta(days=1)
    parts = (np.floor(days), dates.month, dates.day, dates.day_of_week, dates.hour + dates.minute / 60)
    return np.column_stack([np.asarray(part, dtype=np.float64) for part in parts])


def _learn(column: Column, values: Values, most: int) -> Encoding:
    if column.kind == CATEGORY:
        counts = values.astype(object).fillna(GAP).value_counts()
        frequent = counts[counts >= RARE].index[:most]
        return Encoding(column, words=tuple(sorted(str(word) for word in frequent)))
    numbers = _numbers(values, column.kind)
    known = ~np.isnan(numbers[:, 0])
    fill = np.median(numbers[known], axis=0) if known.any() else np.zeros(numbers.shape[1])
    return Encoding(column, tuple(fill.tolist()), marked=bool(not known.all()))


@dataclass(frozen=True)
class Encoder:
    """How a table becomes an array."""

    encodings: tuple[Encoding, ...]
    mean: Floats
    factor: Floats
    """One over the standard deviation; 0 for a column that is constant in training."""

    @classmethod
    def learn(cls, columns: tuple[Column, ...], frame: Frame) -> Encoder:
        """From training rows."""
        count, wide = len(next(iter(frame.values()))), sum(column.kind == CATEGORY for column in columns)
        most = int(np.clip(ENCODED / count / max(1, wide), 4, MOST))
        encodings = tuple(_learn(column, frame[column.name], most) for column in columns)
        mean, factor = [np.empty(0)], [np.empty(0)]
        for encoding in encodings:
            numbers = encoding.encode(frame[encoding.column.name])
            spread = numbers.std(0)
            flat = ~(spread > 1e-9 * np.abs(numbers).max(0))  # what rounding leaves of a constant
            mean.append(numbers.mean(0))
            factor.append(np.where(flat, 0.0, 1 / np.where(flat, 1.0, spread)))
        return cls(encodings, np.concatenate(mean), np.concatenate(factor))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns in order."""
        return tuple(encoding.column for encoding in self.encodings)

    def encode(self, frame: Frame) -> npt.NDArray[np.float32]:
        """Rows ``(n, width)``, standardised."""
        encoded = np.empty((len(next(iter(frame.values()))), len(self.mean)), np.float32)
        start = 0
        for encoding in self.encodings:
            some = slice(start, start + encoding.width)
            numbers = encoding.encode(frame[encoding.column.name])
            # Far from anything in training, a number must still be one that float32 can square.
            encoded[:, some] = np.clip((numbers - self.mean[some]) * self.factor[some], -1e15, 1e15)
            start = some.stop
        return encoded

    def to_list(self) -> list[dict[str, Any]]:
        """The encodings as plain data."""
        return [asdict(own) for own in self.encodings]

    @classmethod
    def from_list(cls, content: Any, mean: Floats, factor: Floats) -> Encoder:
        """From `to_list` and the scaling; raises if something does not fit."""
        encodings = tuple(
            Encoding(Column(**own["column"]), tuple(own["fill"]), own["marked"], tuple(own["words"])) for own in content
        )
        names, width = {own.column.name for own in encodings}, sum(own.width for own in encodings)
        if len(names) < len(encodings) or not all(isinstance(name, str) for name in names):
            fail("columns", "must have different names", "a list with one twice, or without a name")
        if not all(own.column.kind in TITLES and np.isfinite(own.fill).all() for own in encodings):
            fail("columns", f"must each be one of {', '.join(TITLES)}, with finite medians", "of another kind")
        if (width,) != mean.shape or mean.shape != factor.shape:
            fail("columns", "must have one mean and one factor for each number", f"{width}, {mean.shape}")
        return cls(encodings, mean, factor)
