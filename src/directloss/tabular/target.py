"""The column to predict: checked, turned into label indices, and its rows split into three parts."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import StratifiedGroupKFold, train_test_split

from directloss._checks import fail, near
from directloss.integrations._cut import positive_class
from directloss.tabular.columns import Values, labels_of, some
from directloss.tabular.measures import Measure

LEAST = 5
"""The fewest rows of each label: training, validation and test need some."""
CLASSES = 30
"""A column with more distinct values is a quantity, not a label."""
FEW = 10
"""With fewer test rows of a label than this, a comparison is no better than chance."""
PARTS = ("training", "validation", "test")
OF_REST, ENOUGH = 0.25, 100_000
"""The validation share of the rows outside the test part, and the number of validation rows that is enough."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Target:
    """The index ``(n,)`` of each row's label in ``labels``; -1 where the file has none."""

    name: str
    labels: tuple[str, ...]
    """As written in the file: negative and positive, or all classes in order."""
    y: Rows
    why: str = ""
    """Why this label is the positive one."""

    @property
    def positive(self) -> str | None:
        """The positive label if there are two labels."""
        return self.labels[1] if len(self.labels) == 2 else None

    def counts(self, rows: Rows) -> Rows:
        """Number of these rows per label."""
        return np.bincount(self.y[rows], minlength=len(self.labels))

    def too_few(self, test: Rows) -> str:
        """Which label has too few test rows to compare methods; empty if none has."""
        counts = self.counts(test)
        if counts.min() >= FEW:
            return ""
        have = "has" if counts.min() == 1 else "have"
        return f"only {counts.min()} of {counts.sum()} test rows {have} {self.labels[counts.argmin()]!r}"


def read_target(column: Values, name: str, positive: str | None, metric: Measure) -> Target:
    """The target as label indices; more than two classes if the metric supports them."""
    codes, words = labels_of(column, name)
    sizes = np.bincount(codes[codes >= 0], minlength=len(words))
    counts = Counter({word: int(size) for word, size in zip(words, sizes, strict=True) if size})
    _check_number(name, counts, positive, metric)
    labels, why = _labels(counts, positive)
    places = [labels.index(word) if word in labels else 0 for word in words]
    y = np.array([*places, -1], dtype=np.int64)[codes]
    known = np.bincount(y[y >= 0], minlength=len(labels))
    if known.min() < LEAST:
        found = f"{labels[known.argmin()]!r} in {known.min()} of {known.sum()} rows"
        fail(f"target {name!r}", f"must have at least {LEAST} rows of each label", found)
    return Target(name, labels, y, why)


def _check_number(name: str, counts: Counter[str], positive: str | None, metric: Measure) -> None:
    """Check that there are as many labels as the metric can judge."""
    target, most = f"target {name!r}", CLASSES if metric.takes_classes else 2
    if len(counts) < 2:
        known = ", ".join(repr(word) for word in counts)
        fail(target, "must have two values", f"{known} in every row" if known else "missing in every row")
    if len(counts) <= most or positive is not None:
        return
    found = f"a column with {len(counts)}: {some([repr(word) for word, _ in counts.most_common(5)], 4)}"
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
    place = positive_class(words, [counts[word] for word in words], wanted)
    rarer = counts[words[place]] < counts[words[1 - place]]
    why = "as requested" if wanted else f"{'the rarer one' if rarer else 'by convention'}; --positive changes it"
    return (words[1 - place], words[place]), why


def _in_order(word: str) -> tuple[float, str]:
    """Sort key: numbers by size, then words."""
    try:
        return float(word), word
    except ValueError:
        return float("inf"), word


def split(y: Rows, test_share: float, seed: int, groups: Rows | None = None) -> dict[str, Rows]:
    """Sorted row indices per part, stratified by label; rows of a group stay together."""
    rest, test = _divide(np.flatnonzero(y >= 0), y, test_share, seed, groups)
    train, held = _divide(rest, y, min(OF_REST, ENOUGH / len(rest)), seed, groups)
    parts = dict(zip(PARTS, (train, held, test), strict=True))
    for part, rows in parts.items():
        if len(np.unique(y[rows])) <= y.max():
            option = "DATA" if groups is None else "--group"
            fail(option, "must allow rows of each label in each part", f"one that leaves the {part} rows without some")
    return parts


def _divide(rows: Rows, y: Rows, share: float, seed: int, groups: Rows | None) -> tuple[Rows, Rows]:
    if groups is None:
        # A part has at least one row of each label, however rare.
        size = max(len(np.unique(y[rows])), round(share * len(rows)))
        first, second = train_test_split(rows, test_size=size, stratify=y[rows], random_state=seed)
        return np.sort(first), np.sort(second)
    folds = round(1 / share)
    if len(np.unique(groups[rows])) < folds:
        rule = f"must have at least {folds} groups in the rows to be divided"
        fail("--group", rule, f"a column with {len(np.unique(groups[rows]))}", "Leave it out.")
    folded = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a label with fewer rows than folds: `split` checks what came out
        first, second = next(folded.split(rows, y[rows], groups[rows]))
    return rows[first], rows[second]
