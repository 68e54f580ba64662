"""Columns to numbers: filled, taken apart, one-hot, with parameters that are plain data.

What is learnt from the training rows (medians, categories) is a list of numbers and words that JSON can hold. The
estimator scales the columns. Categories that are rare in training, and those that are new later, share one column; a
missing category is a category of its own.

Encoding has two steps. `Column.read` makes a compact table of a batch: a number, or the place of a category. That is
what `directloss.tabular.store` keeps. `Encoder.spread` makes the columns of the network of it, a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from directloss._checks import fail
from directloss.integrations._rows import MOST, RARE
from directloss.tabular.columns import CATEGORY, DATE, LARGEST, NUMBER, PARTS, numbers_of, words_of

MISSING = "(missing)"
SMALLEST = 1e-20
"""Smaller numbers are zero, so that no column has a spread that would make others' scores infinite."""


@dataclass(frozen=True)
class NumberColumn:
    """A number, or the parts of a date. What is missing becomes ``fill``; another column says so if ``marks``."""

    name: str
    kind: str
    fill: tuple[float, ...]
    marks: bool = False

    @property
    def width(self) -> int:
        """How many columns it becomes."""
        return len(self.fill) + self.marks

    @property
    def story(self) -> str:
        """What became of it."""
        told = "number" if self.kind == NUMBER else f"date, taken apart into {', '.join(PARTS)}"
        return told + ("; gaps are filled with the median and marked" if self.marks else "")

    def read(self, column: pd.Series[Any]) -> npt.NDArray[np.float64]:
        """The numbers ``(n, k)``, with NaN for gaps."""
        return numbers_of(column, self.kind)

    def filled(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Numbers ``(n, k)`` as columns ``(n, width)``, without gaps."""
        missing = np.isnan(values[:, :1])
        numbers = np.where(missing, self.fill, np.where(np.abs(values) < SMALLEST, 0.0, values))
        return np.hstack([numbers, missing]) if self.marks else numbers


@dataclass(frozen=True)
class CategoryColumn:
    """One column of zeros and ones for each category, and one for all others if training had rare ones."""

    kind: ClassVar[str] = CATEGORY
    name: str
    categories: tuple[str, ...]
    others: bool
    numeric: bool = False
    """Whether its words are numbers, of which 1.0 and 1 are the same."""

    @property
    def width(self) -> int:
        """How many columns it becomes."""
        return len(self.categories) + self.others

    @property
    def story(self) -> str:
        """What became of it."""
        joined = ", and one for rare and new ones" if self.others else ""
        return f"{len(self.categories)} categories, one column each{joined}"

    def read(self, column: pd.Series[Any]) -> npt.NDArray[np.int64]:
        """The place ``(n, 1)`` of each row's category."""
        codes, words = words_of(column, self.numeric)
        return self.places([*words, MISSING])[codes][:, None]  # -1 takes the last

    def places(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """A new category is one of the others, or nothing, -1, where training had none."""
        place = {word: k for k, word in enumerate(self.categories)}
        others = len(self.categories) if self.others else -1
        return np.array([place.get(word, others) for word in words], dtype=np.int64)


Column = NumberColumn | CategoryColumn


@dataclass(frozen=True)
class Encoder:
    """Every column, in the order in which the network sees them."""

    columns: tuple[Column, ...]

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return sum(column.width for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns it needs."""
        return tuple(column.name for column in self.columns)

    def encode(self, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
        """The rows as numbers, shape ``(n, width)``."""
        return self.spread([column.read(frame[column.name]) for column in self.columns])

    def spread(self, values: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        """What was read as numbers ``(n, width)``, one column for each category."""
        return self.scaled(values, np.zeros(self.width), np.ones(self.width), np.float64)

    def scaled(
        self,
        values: Sequence[npt.NDArray[Any]],
        mean: npt.NDArray[np.float64],
        scale: npt.NDArray[np.float64],
        kind: type[np.floating[Any]] = np.float32,
    ) -> npt.NDArray[Any]:
        """``(spread(values) - mean) / scale``: of zeros and ones, two numbers for each column are all there is."""
        zero, one = (((number - mean) / scale).astype(kind) for number in (0.0, 1.0))
        out, end = np.tile(zero, (len(values[0]), 1)), 0
        for column, own in zip(self.columns, values, strict=True):
            start, end = end, end + column.width
            if isinstance(column, CategoryColumn):
                rows = np.flatnonzero(own[:, 0] >= 0)
                places = start + own[rows, 0]
                out[rows, places] = one[places]
            else:
                out[:, start:end] = (column.filled(own) - mean[start:end]) / scale[start:end]
        return out

    @property
    def story(self) -> dict[str, str]:
        """What became of each column."""
        return {column.name: column.story for column in self.columns}

    def to_list(self) -> list[dict[str, Any]]:
        """Plain data, ready for JSON."""
        return [{"kind": column.kind, **asdict(column)} for column in self.columns]

    @classmethod
    def from_list(cls, columns: Sequence[Mapping[str, Any]]) -> Encoder:
        """The inverse of `to_list`, strict about what it is given."""
        return cls(tuple(_column_from_dict(column) for column in columns))


def learn_numbers(name: str, kind: str, values: npt.NDArray[np.float64], marks: bool) -> NumberColumn:
    """The median of numbers ``(n, k)``."""
    known = values[~np.isnan(values[:, 0])]
    # A column without any value in these rows keeps its place and is filled with zero.
    fill = np.median(known, axis=0) if len(known) else np.zeros(values.shape[1])
    return NumberColumn(name, kind, tuple(float(value) for value in fill), marks)


def learn_categories(name: str, counts: Mapping[str, int], numeric: bool) -> CategoryColumn:
    """The frequent ones, by how many rows each has: what `sklearn.preprocessing.OneHotEncoder` takes for frequent."""
    words = sorted(word for word, count in counts.items() if count)
    rows = np.array([counts[word] for word in words], dtype=np.int64)
    frequent = rows >= RARE
    if frequent.sum() + (not frequent.all()) > MOST:
        frequent[np.argsort(rows, kind="stable")[: -(MOST - 1)]] = False
    kept = tuple(word for word, often in zip(words, frequent, strict=True) if often)
    return CategoryColumn(name, kept, not frequent.all(), numeric)


# ---------------------------------------------------------------------- plain data


def _column_from_dict(raw: Mapping[str, Any]) -> Column:
    name, kind = str(raw["name"]), raw["kind"]
    if kind == CATEGORY:
        words = tuple(str(word) for word in raw["categories"])
        return CategoryColumn(name, words, bool(raw["others"]), bool(raw.get("numeric", False)))
    fill = tuple(float(value) for value in raw["fill"])
    if len(fill) != {NUMBER: 1, DATE: len(PARTS)}.get(kind) or not (np.abs(fill) <= LARGEST).all():
        fail(f"stored column {name!r}", f"must be a {NUMBER}, {DATE} or {CATEGORY} with finite numbers", str(dict(raw)))
    return NumberColumn(name, kind, fill, bool(raw["marks"]))
