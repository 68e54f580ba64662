"""Who wins on the test rows, and how much of it may be chance: the bootstrap of Efron (1979), paired.

Test rows, or whole groups of them, are drawn again with replacement, and every method is measured on the same draws.
The intervals cover the chance of the test rows. They do not cover that of the split and of the training.
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
"""Rows drawn in all, about: for large test data, whose intervals are narrow anyway, fewer resamples are enough."""
BLOCK = 1_000_000
"""Rows drawn at once."""
DRAWN = 250_000
"""Rows of a draw at most. From more test rows fewer are drawn, and the spread is scaled (Bickel et al., 1997)."""


@dataclass(frozen=True)
class Estimate:
    """A number with its interval of 95 %."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, drawn: Tensor, scale: float = 1.0) -> Estimate:
        """The middle 95 % of what was drawn; with a scale, of its spread around the value."""
        if scale != 1.0:
            drawn = value + scale * (drawn - drawn.mean())
        low, high = torch.quantile(drawn.double(), torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        return cls(value, low, high)

    @property
    def certain(self) -> bool:
        """Whether 0 is outside of the interval."""
        return self.low > 0 or self.high < 0

    def __neg__(self) -> Estimate:
        return Estimate(-self.value, -self.high, -self.low)


@dataclass(frozen=True)
class Method:
    """A network or a baseline, with the settings that the validation rows chose."""

    name: str
    title: str
    setting: str
    validation: float
    test: npt.NDArray[np.float64] = field(repr=False)
    """Scores of the test rows, above 0 for yes, or of each class."""
    seconds: float
    """To choose its settings and to train it."""
    ours: bool = False
    sampled: int | None = None
    """Training rows, if it had not all of them."""


def described(setting: Mapping[str, Any]) -> str:
    """``learning_rate=0.05, max_iter=200``."""
    told = (f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}" for key, value in setting.items())
    return ", ".join(told) or "default settings"


@dataclass(frozen=True)
class Comparison:
    """The metric of each method on the test rows, and how far each is ahead of the saved model."""

    test: dict[str, Estimate]
    ahead: dict[str, Estimate]
    """Of every other method: its metric minus that of the saved model."""


def compare(
    measure: Measure,
    scores: Mapping[str, Tensor],
    target: Tensor,
    saved: str,
    seed: int,
    groups: Sequence[str] | npt.NDArray[np.int64] | None = None,
) -> Comparison:
    """Measure all methods; scores ``(n,)`` are positive above 0 where decisions count."""
    drawn: dict[str, list[Tensor]] = {name: [] for name in scores}
    # The first k of fewer rows are not what the first k of all rows are, and groups have their own sizes.
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


def draws(
    target: Tensor,
    seed: int,
    groups: Sequence[str] | npt.NDArray[np.int64] | None = None,
    size: int | None = None,
) -> Iterator[Tensor]:
    """Row numbers ``(b, size)``, block by block; with groups one draw at a time, as their sizes differ."""
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
    """A resample without positives has no AP: it gets one, which errs less than to leave the resample out."""
    for label in (0, 1):
        lacking = ~(target[rows] == label).any(1)
        rows[lacking, label] = (target == label).nonzero()[0, 0]
    return rows
