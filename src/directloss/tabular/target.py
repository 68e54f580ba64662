"""The column to predict: found by name, checked, and turned into labels 0 and 1."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from directloss._checks import fail, near
from directloss.tabular.reading import FIRST_TARGET, Table

LEAST = 5
"""Rows of each label that are needed: some for training, validation and test each."""
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


def text_of(value: Any) -> str:
    """A label or a category as text; 1 and 1.0 are the same.

    Examples:
        >>> text_of(1.0), text_of(0.5), text_of(np.True_), text_of(" yes")
        ('1', '0.5', 'True', 'yes')
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating):
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    return str(value).strip()


def texts(column: pd.Series[Any]) -> list[str]:
    """Each value of a column as text."""
    known = {value: text_of(value) for value in column.unique()}
    return [known[value] for value in column]


def find_target(table: Table, name: str | None) -> str:
    """The name of the target column; formats with a usual one need not be told."""
    name = name if name is not None else FIRST_TARGET.get(table.kind)
    if name is None:
        fail("--target", "must name the column to predict", "not given", f"Columns: {_listed(table.data)}.")
    if name not in table.data.columns:
        hint = near(name, [str(c) for c in table.data.columns]) or f"Columns: {_listed(table.data)}."
        fail("--target", f"must be a column of {table.path.name}", repr(name), hint)
    if len(table.data.columns) < 2:
        fail("DATA", "must have columns besides the target", f"{table.path} with {name!r} alone")
    return name


def read_target(table: Table, name: str, positive: str | None) -> Target:
    """The target as labels 0 and 1."""
    column = table.data[name]
    missing = int(column.isna().sum())
    if missing:
        rows = f"missing in {missing} of {len(column)} rows"
        fail(f"target {name!r}", "must be known in every row", rows, "Take those rows out of the file.")
    words = texts(column)
    counts = Counter(words)
    if len(counts) != 2 and (positive is None or len(counts) == 1):
        _wrong_number(name, counts)
    chosen, why = _positive(counts, positive)
    # Of several values, all others together are the other label.
    negative = next(word for word in counts if word != chosen) if len(counts) == 2 else f"not {chosen}"
    y = np.array([word == chosen for word in words], dtype=np.int64)
    sizes = {negative: len(y) - int(y.sum()), chosen: int(y.sum())}
    rare = min(sizes, key=lambda word: sizes[word])
    if sizes[rare] < LEAST:
        rows = f"{sizes[rare]} of {len(words)} rows"
        fail(f"target {name!r}", f"must have at least {LEAST} rows of each label", f"{rare!r} in {rows}")
    return Target(name, (negative, chosen), y, why)


def _wrong_number(name: str, counts: Counter[str]) -> None:
    if len(counts) == 1:
        fail(f"target {name!r}", "must have two values", f"{next(iter(counts))!r} in every row")
    shown = ", ".join(repr(word) for word, _ in counts.most_common(4)) + (", ..." if len(counts) > 4 else "")
    hint = "Add --positive VALUE to tell one value from all others, or make it yes or no first, by a limit."
    fail(f"target {name!r}", "must have two values for this metric", f"a column with {len(counts)}: {shown}", hint)


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


def _listed(frame: pd.DataFrame, most: int = 12) -> str:
    names = [str(name) for name in frame.columns]
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")
