"""Columns to numbers: scaled, one-hot, with scikit-learn's statistics kept as plain data.

What is learnt from the training rows (means, scales, medians, categories) is a list of numbers and words that JSON can
hold, so a stored model needs no pickled scikit-learn object. Categories that are rare in training, and those that are
new later, share one column; a missing category is a category of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from directloss._checks import fail
from directloss_repro.tabular.columns import CATEGORY, NUMBER
from directloss_repro.tabular.target import text_of

RARE = 5
"""A category with fewer training rows than this is joined with the other rare ones."""
MOST = 50
"""So many columns one column of categories may become."""
MISSING = "(missing)"


@dataclass(frozen=True)
class NumberColumn:
    """``(value - mean) / scale``; a missing value becomes ``fill``, and a second column says so if ``marks``."""

    name: str
    mean: float
    scale: float
    fill: float
    marks: bool = False

    @property
    def width(self) -> int:
        """How many columns it becomes."""
        return 2 if self.marks else 1

    def encode(self, column: pd.Series[Any]) -> np.ndarray:
        """Shape ``(n, width)``."""
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        missing = np.isnan(values)
        scaled = (np.where(missing, self.fill, values) - self.mean) / self.scale
        return np.column_stack([scaled, missing]) if self.marks else scaled[:, None]


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

    def encode(self, column: pd.Series[Any]) -> np.ndarray:
        """Shape ``(n, width)``. A new category is one of the others, or nothing where training had none."""
        place = {word: k for k, word in enumerate(self.categories)}
        others = len(self.categories) if self.others else -1
        where = np.array([place.get(word, others) for word in category_texts(column)])
        encoded: np.ndarray = (where[:, None] == np.arange(self.width)).astype(np.float64)
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

    def encode(self, frame: pd.DataFrame) -> Tensor:
        """The rows as float32, shape ``(n, width)``."""
        parts = [column.encode(frame[column.name]).astype(np.float32) for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, axis=1))

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


def learn_encoder(frame: pd.DataFrame, kinds: Mapping[str, str], with_missing: Sequence[str] = ()) -> Encoder:
    """Statistics of the training rows. ``with_missing`` are the columns of numbers whose gaps are marked."""
    numbers = [name for name, kind in kinds.items() if kind == NUMBER]
    words = [name for name, kind in kinds.items() if kind == CATEGORY]
    learnt: dict[str, Column] = {**_learn_numbers(frame, numbers, with_missing), **_learn_categories(frame, words)}
    return Encoder(tuple(learnt[name] for name in kinds))


def _learn_numbers(frame: pd.DataFrame, names: list[str], with_missing: Sequence[str]) -> dict[str, NumberColumn]:
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import StandardScaler

    if not names:
        return {}
    values = frame[names].to_numpy(dtype=np.float64, na_value=np.nan)
    # A column without any value in these rows keeps its place and is filled with zero.
    filler = SimpleImputer(strategy="median", keep_empty_features=True).fit(values)
    scaler = StandardScaler().fit(filler.transform(values))
    return {
        name: NumberColumn(name, float(mean), float(scale), float(fill), name in with_missing)
        for name, mean, scale, fill in zip(names, scaler.mean_, scaler.scale_, filler.statistics_, strict=True)
    }


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
        kept: dict[str, Any] = {"mean": column.mean, "scale": column.scale, "fill": column.fill, "marks": column.marks}
        return {"name": column.name, "kind": NUMBER, **kept}
    return {"name": column.name, "kind": CATEGORY, "categories": list(column.categories), "others": column.others}


def _column_from_dict(raw: Mapping[str, Any]) -> Column:
    name, kind = raw["name"], raw["kind"]
    if kind == NUMBER:
        column = NumberColumn(name, float(raw["mean"]), float(raw["scale"]), float(raw["fill"]), bool(raw["marks"]))
        if not (np.isfinite([column.mean, column.scale, column.fill]).all() and column.scale > 0):
            fail(f"stored column {name!r}", "must have finite numbers and a positive scale", str(column))
        return column
    if kind != CATEGORY:
        fail(f"stored column {name!r}", f"must be of kind {NUMBER} or {CATEGORY}", repr(kind))
    return CategoryColumn(name, tuple(str(word) for word in raw["categories"]), bool(raw["others"]))
