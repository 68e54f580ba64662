"""The column to predict: found by name, checked, and turned into labels 0 and 1; and groups of rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from directloss._checks import fail, near
from directloss.tabular.columns import Column, number_text, words_of
from directloss.tabular.reading import FIRST_TARGET, Table

LEAST = 5
"""Rows of each label that are needed: some for training, validation and test each."""
CLASSES = 20
"""More different values than these are a quantity rather than classes."""
TOO_MANY = 100_000
"""With more of them the rest of the file need not be read."""
USUAL_POSITIVES = {frozenset(("0", "1")): "1", frozenset(("False", "True")): "True", frozenset(("-1", "1")): "1"}
"""Pairs of labels that say themselves which one is positive."""


@dataclass(frozen=True)
class Target:
    """Labels 0 and 1 ``(n,)`` with the texts that they stand for."""

    name: str
    labels: tuple[str, str]
    """Negative and positive, as the file writes them."""
    y: npt.NDArray[np.int64]
    why: str
    """Why this label is the positive one."""


@dataclass
class Labels:
    """A word for each row, as the number of a word, batch by batch; ``gap`` stands for a missing one."""

    gap: str = ""
    words: dict[str, int] = field(default_factory=dict)
    _rows: list[npt.NDArray[np.int32]] = field(default_factory=list)

    def add(self, column: pd.Series[Any]) -> None:
        """One more batch."""
        codes, words = words_of(column)
        numbers = [self.words.setdefault(word, len(self.words)) for word in (*words, self.gap)]
        self._rows.append(np.array(numbers, dtype=np.int32)[codes])  # -1 takes the last

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        """The number of the word in each row."""
        if len(self._rows) > 1:
            self._rows = [np.concatenate(self._rows)]
        return self._rows[0]

    def sorted_rows(self) -> npt.NDArray[np.int64]:
        """The same, with numbers in the alphabetical order of the words."""
        places = np.empty(len(self.words), dtype=np.int64)
        places[[self.words[word] for word in sorted(self.words)]] = np.arange(len(self.words))
        return places[self.rows]


def check_few(name: str, labels: Labels) -> None:
    """Stop at once where the target is a quantity, before its values fill the memory."""
    if len(labels.words) > TOO_MANY:
        _wrong_number(name, Counter(list(labels.words)))


def find_target(table: Table, name: str | None) -> str:
    """The name of the target column; formats with a usual one need not be told."""
    name = name if name is not None else FIRST_TARGET.get(table.kind)
    if name is None:
        fail("--target", "must name the column to predict", "not given", f"Columns: {_listed(table.names)}.")
    if name not in table.names:
        hint = near(name, table.names) or f"Columns: {_listed(table.names)}."
        fail("--target", f"must be a column of {table.path.name}", repr(name), hint)
    if len(table.names) < 2:
        fail("DATA", "must have columns besides the target", f"{table.path} with {name!r} alone")
    return name


def read_target(column: Column, rows: Labels, positive: str | None) -> Target:
    """The target as labels 0 and 1."""
    name = column.name
    if column.gaps:
        missing = f"missing in {column.gaps} of {column.rows} rows"
        fail(f"target {name!r}", "must be known in every row", missing, "Take those rows out of the file.")
    words = {number: number_text(word) if column.numeric else word for word, number in rows.words.items()}
    sizes = np.bincount(rows.rows, minlength=len(words))
    counts: Counter[str] = Counter()
    for number in np.flatnonzero(sizes):
        counts[words[int(number)]] += int(sizes[number])
    if len(counts) != 2 and (positive is None or len(counts) == 1):
        _wrong_number(name, counts)
    chosen, why = _positive(counts, positive)
    # Of several values, all others together are the other label.
    negative = next(word for word in counts if word != chosen) if len(counts) == 2 else f"not {chosen}"
    y = np.array([words[number] == chosen for number in range(len(words))], dtype=np.int64)[rows.rows]
    both = {negative: len(y) - int(y.sum()), chosen: int(y.sum())}
    rare = min(both, key=lambda word: both[word])
    if both[rare] < LEAST:
        found = f"{rare!r} in {both[rare]} of {len(y)} rows"
        fail(f"target {name!r}", f"must have at least {LEAST} rows of each label", found)
    return Target(name, (negative, chosen), y, why)


def _wrong_number(name: str, counts: Counter[str]) -> None:
    if len(counts) == 1:
        fail(f"target {name!r}", "must have two values", f"{next(iter(counts))!r} in every row")
    shown = ", ".join(repr(word) for word, _ in counts.most_common(4)) + (", ..." if len(counts) > 4 else "")
    hint = "Add --positive VALUE to tell one value from all others."
    if len(counts) > CLASSES:
        hint += " If it is a quantity, make it yes or no first, by a limit."
    else:
        hint += " For all of them at once, use directloss.integrations.sklearn.DirectLossClassifier in Python."
    found = f"a column with {len(counts)}: {shown}"
    fail(f"target {name!r}", "must have two values, as fit has metrics of yes or no only", found, hint)


def _positive(counts: Counter[str], wanted: str | None) -> tuple[str, str]:
    words = sorted(counts)
    if wanted is not None:
        if wanted not in counts:
            known = " or ".join(repr(word) for word in words[:2]) if len(words) == 2 else "one of them"
            told = "" if len(words) == 2 else near(wanted, words) or f"Values: {', '.join(words[:12])}."
            fail("--positive", f"must be {known}, the values of the target", repr(wanted), told)
        return wanted, "as asked for"
    usual = USUAL_POSITIVES.get(frozenset(words))
    if usual is not None:
        return usual, "as usual; --positive chooses another"
    # Among equally frequent ones the later in the alphabet: yes rather than no.
    rare = min(reversed(words), key=lambda word: counts[word])
    return rare, "the rarer one; --positive chooses another"


def _listed(names: list[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")
