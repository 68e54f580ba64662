"""Who wins on the test rows, and how much of it may be chance: a paired bootstrap (Efron, 1979).

Test rows, or whole groups of them, are resampled with replacement, and every method is measured on the same resamples.
The intervals cover the choice of test rows, but neither the split nor the training, and are not corrected for choosing
the best of several methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from directloss.tabular.measures import Measure

RESAMPLES, FEWEST = 1_000, 200
WORK = 5_000_000
"""About how many rows are drawn in total; large test sets have narrow intervals and need fewer resamples."""
BLOCK = 1_000_000
"""Rows drawn at once."""
DRAWN = 250_000
"""The largest resample. Larger test sets are subsampled and the spread is rescaled (Bickel et al., 1997)."""
Groups = Sequence[str] | npt.NDArray[np.int64] | None


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, drawn: Tensor, scale: float = 1.0) -> Estimate:
        """The interval between the 2.5 % and 97.5 % quantiles; ``scale`` rescales the spread around the value."""
        if scale != 1.0:
            drawn = value + scale * (drawn - drawn.mean())
        low, high = torch.quantile(drawn.double(), torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        return cls(value, low, high)

    @property
    def certain(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    def __neg__(self) -> Estimate:
        return Estimate(-self.value, -self.high, -self.low)


@dataclass(frozen=True)
class Method:
    """A network or a baseline with the settings chosen on the validation rows."""

    name: str
    title: str
    setting: str
    validation: float
    test: npt.NDArray[np.float64] = field(repr=False)
    """Scores of the test rows, positive above 0, or one per class."""
    seconds: float
    """Time to choose the settings and to train."""
    ours: bool = False
    sampled: int | None = None
    """Number of training rows, if it was trained on a sample."""


def described(setting: Mapping[str, Any]) -> str:
    """``learning_rate=0.05, max_iter=200``."""
    told = (f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}" for key, value in setting.items())
    return ", ".join(told) or "default settings"


@dataclass(frozen=True)
class Comparison:
    """The test metric of each method, and its lead over the saved model."""

    test: dict[str, Estimate]
    ahead: dict[str, Estimate]
    """For each other method, its metric minus that of the saved model."""


def compare(
    measure: Measure, scores: Mapping[str, Tensor], target: Tensor, saved: str, seed: int, groups: Groups = None
) -> Comparison:
    """Measure all methods. Where the metric judges decisions, scores ``(n,)`` are positive above 0."""
    drawn: dict[str, list[Tensor]] = {name: [] for name in scores}
    # A smaller resample changes what the first k rows are, and groups have their own sizes.
    size = len(target) if groups is not None or measure.of_first else min(len(target), DRAWN)
    scale = (size / len(target)) ** 0.5
    for rows in draws(target, seed, groups, size):
        for name, own in scores.items():
            drawn[name].append(measure.value(own[rows], target[rows]).double())
    spread = {name: torch.cat(values) for name, values in drawn.items()}
    values = {name: float(measure.value(own, target)) for name, own in scores.items()}
    test = {name: Estimate.of(values[name], spread[name], scale) for name in scores}
    others = [name for name in scores if name != saved]
    ahead = {name: Estimate.of(values[name] - values[saved], spread[name] - spread[saved], scale) for name in others}
    return Comparison(test, ahead)


def draws(target: Tensor, seed: int, groups: Groups = None, size: int | None = None) -> Iterator[Tensor]:
    """Row indices ``(b, size)`` in blocks; with groups, one resample at a time, because their sizes differ."""
    n, draw = len(target), np.random.default_rng(seed)
    size = size or n
    count = max(FEWEST, min(RESAMPLES, WORK // size))
    if groups is not None:
        names, owner = np.unique(np.asarray(groups), return_inverse=True)
        members = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
        for _ in range(count):
            own = np.concatenate([members[k] for k in draw.integers(len(names), size=len(names))])
            yield _both_labels(torch.from_numpy(own)[None], target)
        return
    block = max(1, min(count, BLOCK // size))
    for start in range(0, count, block):
        yield _both_labels(torch.from_numpy(draw.integers(n, size=(min(block, count - start), size))), target)


def _both_labels(rows: Tensor, target: Tensor) -> Tensor:
    """Put a row of a missing label into a resample: AP needs both, and skipping the resample would bias more."""
    for label in (0, 1):
        lacking = ~(target[rows] == label).any(1)
        rows[lacking, label] = (target == label).nonzero()[0, 0]
    return rows
