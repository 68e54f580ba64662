"""Columns as numbers: filled, split into parts, or one-hot, with parameters that are plain data.

What the training rows teach (medians, categories) is numbers and words that JSON can hold. The estimator scales the
columns. Categories that are rare in training, or new later, share one column; a missing category is a category too.

Encoding has two steps. `Column.read` turns a batch into a compact table of numbers and category indices, which
`directloss.tabular.store` keeps. `Encoder.spread` expands it into the columns of the network, a few rows at a time.
"""

from __future__ import annotations

from collections import Counter
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
"""Smaller numbers become zero, so that no column has a spread so small that scores overflow."""


@dataclass(frozen=True)
class NumberColumn:
    """A number, or the parts of a date. Gaps become ``fill``; with ``marks``, one more column marks them."""

    name: str
    kind: str
    fill: tuple[float, ...]
    marks: bool = False

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return len(self.fill) + self.marks

    @property
    def story(self) -> str:
        """How the column is encoded, for the report."""
        told = "number" if self.kind == NUMBER else f"date, split into {', '.join(PARTS)}"
        return told + ("; gaps are filled with the median and marked" if self.marks else "")

    def read(self, column: pd.Series[Any]) -> npt.NDArray[np.float64]:
        """The numbers ``(n, k)``, NaN for gaps."""
        return numbers_of(column, self.kind)

    def filled(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Numbers ``(n, k)`` as columns ``(n, width)`` without gaps."""
        missing = np.isnan(values[:, :1])
        numbers = np.where(missing, self.fill, np.where(np.abs(values) < SMALLEST, 0.0, values))
        return np.hstack([numbers, missing]) if self.marks else numbers


@dataclass(frozen=True)
class CategoryColumn:
    """One column of zeros and ones per category, and one for all others if training had rare ones."""

    kind: ClassVar[str] = CATEGORY
    name: str
    categories: tuple[str, ...]
    others: bool
    numeric: bool = False
    """Whether its words are numbers, so that 1.0 and 1 are the same."""

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return len(self.categories) + self.others

    @property
    def story(self) -> str:
        """How the column is encoded, for the report."""
        joined = ", plus one for rare and new ones" if self.others else ""
        return f"{len(self.categories)} categories, one column each{joined}"

    def read(self, column: pd.Series[Any]) -> npt.NDArray[np.int64]:
        """The index ``(n, 1)`` of each row's category."""
        codes, words = words_of(column, self.numeric)
        return self.places([*words, MISSING])[codes][:, None]  # -1 is the last

    def places(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """The index of each word; a new word has that of the others, or -1 if training had no others."""
        place = {word: k for k, word in enumerate(self.categories)}
        others = len(self.categories) if self.others else -1
        return np.array([place.get(word, others) for word in words], dtype=np.int64)

    def unseen(self, column: pd.Series[Any]) -> Counter[str]:
        """Number of rows per value that has no column of its own: new, or rare in training."""
        codes, words = words_of(column, self.numeric)
        words.append(MISSING)
        rows, known = np.bincount(codes % len(words), minlength=len(words)), set(self.categories)
        found: Counter[str] = Counter()
        for word, count in zip(words, rows.tolist(), strict=True):
            if count and word not in known:
                found[word] += count
        return found


Column = NumberColumn | CategoryColumn


@dataclass(frozen=True)
class Encoder:
    """All columns, in the order in which the network sees them."""

    columns: tuple[Column, ...]

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return sum(column.width for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns it needs."""
        return tuple(column.name for column in self.columns)

    def encode(self, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
        """The rows as numbers ``(n, width)``."""
        return self.spread([column.read(frame[column.name]) for column in self.columns])

    def spread(self, values: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        """What `Column.read` returned as numbers ``(n, width)``, one column per category."""
        return self.scaled(values, np.zeros(self.width), np.ones(self.width), np.float64)

    def scaled(
        self,
        values: Sequence[npt.NDArray[Any]],
        mean: npt.NDArray[np.float64],
        scale: npt.NDArray[np.float64],
        kind: type[np.floating[Any]] = np.float32,
    ) -> npt.NDArray[Any]:
        """``(spread(values) - mean) / scale``, fast: a one-hot column has only two values."""
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
        """How each column is encoded, for the report."""
        return {column.name: column.story for column in self.columns}

    def to_list(self) -> list[dict[str, Any]]:
        """Plain data, ready for JSON."""
        return [{"kind": column.kind, **asdict(column)} for column in self.columns]

    @classmethod
    def from_list(cls, columns: Sequence[Mapping[str, Any]]) -> Encoder:
        """The inverse of `to_list`; raises on invalid data."""
        return cls(tuple(_column_from_dict(column) for column in columns))


def learn_numbers(name: str, kind: str, values: npt.NDArray[np.float64], marks: bool) -> NumberColumn:
    """A column filled with the median of numbers ``(n, k)``."""
    known = values[~np.isnan(values[:, 0])]
    # A column without any value in these rows is kept and filled with zero.
    fill = np.median(known, axis=0) if len(known) else np.zeros(values.shape[1])
    return NumberColumn(name, kind, tuple(float(value) for value in fill), marks)


def learn_categories(name: str, counts: Mapping[str, int], numeric: bool) -> CategoryColumn:
    """The frequent categories by `sklearn.preprocessing.OneHotEncoder`'s rule, from the number of rows of each."""
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
