"""Columns to numbers: filled, taken apart, one-hot, with parameters that are plain data.

What is learnt from the training rows (medians, categories) is a list of numbers and words that JSON can hold. The
estimator scales the columns. Categories that are rare in training, and those that are new later, share one column; a
missing category is a category of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from directloss._checks import fail
from directloss.tabular.columns import CATEGORY, DATE, LARGEST, NUMBER, PARTS, numbers_of
from directloss.tabular.target import text_of

RARE = 5
"""A category with fewer training rows than this is joined with the other rare ones."""
MOST = 50
"""So many columns one column of categories may become."""
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

    def encode(self, column: pd.Series[Any]) -> npt.NDArray[np.float64]:
        """Shape ``(n, width)``."""
        values = numbers_of(column, self.kind)
        missing = np.isnan(values[:, :1])
        filled = np.where(missing, self.fill, np.where(np.abs(values) < SMALLEST, 0.0, values))
        return np.column_stack([filled, missing]) if self.marks else filled


@dataclass(frozen=True)
class CategoryColumn:
    """One column of zeros and ones for each category, and one for all others if training had rare ones."""

    name: str
    categories: tuple[str, ...]
    others: bool

    @property
    def width(self) -> int:
        """How many columns it becomes."""
        return len(self.categories) + self.others

    @property
    def story(self) -> str:
        """What became of it."""
        joined = ", and one for rare and new ones" if self.others else ""
        return f"{len(self.categories)} categories, one column each{joined}"

    def encode(self, column: pd.Series[Any]) -> npt.NDArray[np.float64]:
        """Shape ``(n, width)``. A new category is one of the others, or nothing where training had none."""
        place = {word: k for k, word in enumerate(self.categories)}
        others = len(self.categories) if self.others else -1
        where = np.array([place.get(word, others) for word in category_texts(column)])
        encoded: npt.NDArray[np.float64] = (where[:, None] == np.arange(self.width)).astype(np.float64)
        return encoded


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
        return np.concatenate([column.encode(frame[column.name]) for column in self.columns], axis=1)

    @property
    def story(self) -> dict[str, str]:
        """What became of each column."""
        return {column.name: column.story for column in self.columns}

    def to_list(self) -> list[dict[str, Any]]:
        """Plain data, ready for JSON."""
        return [_column_to_dict(column) for column in self.columns]

    @classmethod
    def from_list(cls, columns: Sequence[Mapping[str, Any]]) -> Encoder:
        """The inverse of `to_list`, strict about what it is given."""
        return cls(tuple(_column_from_dict(column) for column in columns))


def category_texts(column: pd.Series[Any]) -> list[str]:
    """Each value as text."""
    missing = column.isna()
    known = {value: text_of(value) for value in column[~missing].unique()}
    return [MISSING if gone else known[value] for value, gone in zip(column, missing, strict=True)]


def learn_encoder(frame: pd.DataFrame, kinds: Mapping[str, str], with_gaps: Sequence[str] = ()) -> Encoder:
    """Statistics of the training rows. ``with_gaps`` are the columns whose missing numbers are marked."""
    words = _learn_categories(frame, [name for name, kind in kinds.items() if kind == CATEGORY])
    return Encoder(
        tuple(
            words[name] if kind == CATEGORY else _learn_numbers(frame[name], name, kind, name in with_gaps)
            for name, kind in kinds.items()
        )
    )


def _learn_numbers(column: pd.Series[Any], name: str, kind: str, marks: bool) -> NumberColumn:
    values = numbers_of(column, kind)
    known = values[~np.isnan(values[:, 0])]
    # A column without any value in these rows keeps its place and is filled with zero.
    fill = np.median(known, axis=0) if len(known) else np.zeros(values.shape[1])
    return NumberColumn(name, kind, tuple(float(value) for value in fill), marks)


def _learn_categories(frame: pd.DataFrame, names: list[str]) -> dict[str, CategoryColumn]:
    from sklearn.preprocessing import OneHotEncoder

    if not names:
        return {}
    words = np.array([category_texts(frame[name]) for name in names], dtype=object).T
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=RARE, max_categories=MOST).fit(words)
    learnt = {}
    for name, all_words, rare in zip(names, encoder.categories_, encoder.infrequent_categories_, strict=True):
        joined = set() if rare is None else set(rare)
        kept = tuple(str(word) for word in all_words if word not in joined)
        learnt[name] = CategoryColumn(name, kept, bool(joined))
    return learnt


# ---------------------------------------------------------------------- plain data


def _column_to_dict(column: Column) -> dict[str, Any]:
    if isinstance(column, NumberColumn):
        return {"name": column.name, "kind": column.kind, "fill": list(column.fill), "marks": column.marks}
    return {"name": column.name, "kind": CATEGORY, "categories": list(column.categories), "others": column.others}


def _column_from_dict(raw: Mapping[str, Any]) -> Column:
    name, kind = str(raw["name"]), raw["kind"]
    if kind == CATEGORY:
        return CategoryColumn(name, tuple(str(word) for word in raw["categories"]), bool(raw["others"]))
    fill = tuple(float(value) for value in raw["fill"])
    if len(fill) != {NUMBER: 1, DATE: len(PARTS)}.get(kind) or not (np.abs(fill) <= LARGEST).all():
        fail(f"stored column {name!r}", f"must be a {NUMBER}, {DATE} or {CATEGORY} with finite numbers", str(dict(raw)))
    return NumberColumn(name, kind, fill, bool(raw["marks"]))
