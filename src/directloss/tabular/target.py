"""The column to predict: found by name, checked, and turned into label indices; and groups of rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pandas as pd

from directloss._checks import fail, near
from directloss.tabular.columns import Column, number_text, some, words_of
from directloss.tabular.measures import Measure
from directloss.tabular.reading import FIRST_TARGET, NO_HEADER, Table

LEAST = 5
"""The fewest rows of each label: training, validation and test need some."""
CLASSES = 30
"""A column with more distinct values is a quantity, not a label."""
TOO_MANY = 100_000
"""With more distinct values, the rest of the file need not be read."""
FEW = 10
"""With fewer test rows of a label than this, a comparison is no better than chance."""
USUAL_POSITIVES = {frozenset(("0", "1")): "1", frozenset(("False", "True")): "True", frozenset(("-1", "1")): "1"}
"""Pairs of labels with a conventional positive one."""
UNKNOWN = -1
GAP = ""


@dataclass(frozen=True)
class Target:
    """The index ``(n,)`` of each row's label in ``labels``; `UNKNOWN` where the file has none."""

    name: str
    labels: tuple[str, ...]
    """As written in the file: negative and positive, or all classes in order."""
    y: npt.NDArray[np.int64]
    why: str = ""
    """Why this label is the positive one."""

    @property
    def positive(self) -> str | None:
        """The positive label if there are two labels."""
        return self.labels[1] if len(self.labels) == 2 else None

    @property
    def unknown(self) -> int:
        """Number of rows without a label, which are left out."""
        return int((self.y == UNKNOWN).sum())

    def counts(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Number of these rows per label."""
        return np.bincount(self.y[rows], minlength=len(self.labels))

    def too_few(self, test: npt.NDArray[np.int64]) -> str:
        """Which label has too few test rows to compare methods; empty if none has."""
        counts = self.counts(test)
        if counts.min() >= FEW:
            return ""
        have = "has" if counts.min() == 1 else "have"
        return f"only {counts.min()} of {counts.sum()} test rows {have} {self.labels[counts.argmin()]!r}"


@dataclass
class Labels:
    """A word per row, stored as the index of the word, batch by batch; `GAP` stands for a missing one."""

    words: dict[str, int] = field(default_factory=dict)
    _rows: list[npt.NDArray[np.int32]] = field(default_factory=list)

    def add(self, column: pd.Series[Any]) -> None:
        """Take in one more batch."""
        codes, words = words_of(column)
        numbers = [self.words.setdefault(word, len(self.words)) for word in (*words, GAP)]
        self._rows.append(np.array(numbers, dtype=np.int32)[codes])  # -1 is the last

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        """The index of each row's word."""
        return np.concatenate(self._rows)

    def sorted_rows(self) -> npt.NDArray[np.int64]:
        """The same, with indices in alphabetical order of the words."""
        order = np.argsort(np.array([*self.words], dtype=object))
        return np.argsort(order)[self.rows]


def check_few(name: str, labels: Labels, metric: Measure) -> None:
    """Raise as soon as the target is clearly a quantity, before its values fill the memory."""
    if len(labels.words) > TOO_MANY:
        _wrong_number(name, Counter(list(labels.words)), metric)


def find_target(table: Table, name: str | None) -> str:
    """The name of the target column, which is optional for formats with a usual one."""
    name = name if name is not None else FIRST_TARGET.get(table.kind)
    if name is None:
        fail("--target", "must name the column to predict", "not given", f"Columns: {some(table.names, 12)}.")
    if name not in table.names:
        hint = near(name, table.names) or f"Columns: {some(table.names, 12)}."
        hint += f" {NO_HEADER}" if table.kind == "csv" else ""
        fail("--target", f"must be a column of {table.path.name}", repr(name), hint)
    if len(table.names) < 2:
        fail("DATA", "must have columns besides the target", f"{table.path} with {name!r} alone")
    return name


def read_target(column: Column, rows: Labels, positive: str | None, metric: Measure) -> Target:
    """The target as label indices; more than two classes if the metric supports them."""
    words, numbers = [number_text(word) if column.numeric else word for word in rows.words], rows.rows
    counts: Counter[str] = Counter()
    for word, size in zip(words, np.bincount(numbers, minlength=len(words)).tolist(), strict=True):
        counts[word] += size
    counts = +counts  # drop words that do not occur
    counts.pop(GAP, None)
    most = CLASSES if metric.takes_classes else 2
    if len(counts) < 2 or (len(counts) > most and positive is None):
        _wrong_number(column.name, counts, metric)
    labels, why = _labels(counts, positive)
    places = {word: labels.index(word) if word in labels else 0 for word in counts}
    y = np.array([places.get(word, UNKNOWN) for word in words], dtype=np.int64)[numbers]
    target = Target(column.name, labels, y, why)
    known = target.counts(np.flatnonzero(y != UNKNOWN))
    if known.min() < LEAST:
        found = f"{labels[known.argmin()]!r} in {known.min()} of {known.sum()} rows"
        fail(f"target {column.name!r}", f"must have at least {LEAST} rows of each label", found)
    return target


def _wrong_number(name: str, counts: Counter[str], metric: Measure) -> NoReturn:
    target = f"target {name!r}"
    if len(counts) < 2:
        known = ", ".join(repr(word) for word in counts)
        fail(target, "must have two values", f"{known} in every row" if known else "missing in every row")
    found = f"a column with {len(counts)}: {some([repr(word) for word, _ in counts.most_common()], 4)}"
    one = "--positive VALUE tells one value from all others."
    if len(counts) > CLASSES:
        hint = f"If it is a quantity, turn it into yes or no first, with a threshold. {one}"
        fail(target, f"must have at most {CLASSES} values, because fit predicts labels, not quantities", found, hint)
    hint = f"{one} For all classes at once: --metric accuracy."
    fail(target, f"must have two values for --metric {metric.name}", found, hint)


def _labels(counts: Counter[str], wanted: str | None) -> tuple[tuple[str, ...], str]:
    """Negative and positive label with the reason, or all classes."""
    words = sorted(counts, key=_in_order)
    if wanted is not None and wanted not in counts:
        known = " or ".join(repr(word) for word in words[:2]) if len(words) == 2 else "one of them"
        told = "" if len(words) == 2 else near(wanted, words) or f"Values: {some(words, 12)}."
        fail("--positive", f"must be {known}, the values of the target", repr(wanted), told)
    if len(words) > 2:
        # All other values together are the negative label.
        return (tuple(words), "") if wanted is None else ((f"not {wanted}", wanted), "as requested")
    usual = USUAL_POSITIVES.get(frozenset(words))
    # In a tie the alphabetically later one: yes rather than no.
    rare = min(reversed(words), key=lambda word: counts[word])
    positive = wanted or usual or rare
    why = "as requested" if wanted else f"{'by convention' if usual else 'the rarer one'}; --positive changes it"
    return (next(word for word in words if word != positive), positive), why


def _in_order(word: str) -> tuple[float, str]:
    """Sort key: numbers by size, then words."""
    try:
        return float(word), word
    except ValueError:
        return float("inf"), word
