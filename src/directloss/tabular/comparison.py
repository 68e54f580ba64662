"""Who wins on the test rows, and how much of it may be chance: a paired bootstrap (Efron, 1979).

Test rows, or whole groups of them, are resampled with replacement, and every method is measured on the same resamples.
The intervals cover the choice of test rows, but neither the split nor the training, and are not corrected for choosing
the best of several methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from directloss.tabular.measures import Measure

RESAMPLES, FEWEST = 1_000, 200
WORK = 20_000_000
"""About how many rows are drawn in total; large test sets have narrow intervals and need fewer resamples."""
BLOCK = 1_000_000
"""Rows drawn at once."""


@dataclass(frozen=True)
class IntervalEstimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, drawn: Tensor) -> IntervalEstimate:
        """The interval between the 2.5 % and 97.5 % quantiles."""
        low, high = torch.quantile(drawn.double(), torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        return cls(value, low, high)

    def __neg__(self) -> IntervalEstimate:
        return IntervalEstimate(-self.value, -self.high, -self.low)


@dataclass(frozen=True)
class Comparison:
    """The test metric of each method, and its lead over the saved one."""

    test: dict[str, IntervalEstimate]
    ahead: dict[str, IntervalEstimate]
    """For each other method, its metric minus that of the saved one."""
    effect: IntervalEstimate | None = None
    """The metric of the network trained on it minus that of the network trained with cross-entropy."""


def compare(
    measure: Measure,
    scores: Mapping[str, Tensor],
    target: Tensor,
    saved: str,
    seed: int,
    groups: npt.NDArray[np.int64] | None = None,
    pair: tuple[str, str] | None = None,
) -> Comparison:
    """Measure all methods; ``pair`` names two of them to be compared as well."""
    drawn: dict[str, list[Tensor]] = {name: [] for name in scores}
    for rows in draws(target, seed, groups):
        for name, own in scores.items():
            drawn[name].append(measure.value(own[rows], target[rows]).double())
    spread = {name: torch.cat(values) for name, values in drawn.items()}
    values = {name: float(measure.value(own, target)) for name, own in scores.items()}

    def gap(name: str, other: str) -> IntervalEstimate:
        return IntervalEstimate.of(values[name] - values[other], spread[name] - spread[other])

    test = {name: IntervalEstimate.of(values[name], spread[name]) for name in scores}
    return Comparison(test, {name: gap(name, saved) for name in scores if name != saved}, gap(*pair) if pair else None)


def draws(target: Tensor, seed: int, groups: npt.NDArray[np.int64] | None = None) -> Iterator[Tensor]:
    """Row indices ``(b, n)`` in blocks; with groups, one resample at a time, because their sizes differ."""
    n, draw = len(target), np.random.default_rng(seed)
    count = max(FEWEST, min(RESAMPLES, WORK // n))
    if groups is not None:
        _, owner = np.unique(groups, return_inverse=True)
        members = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
        for _ in range(count):
            own = np.concatenate([members[k] for k in draw.integers(len(members), size=len(members))])
            yield _both_labels(torch.from_numpy(own)[None], target)
        return
    block = max(1, min(count, BLOCK // n))
    for start in range(0, count, block):
        yield _both_labels(torch.from_numpy(draw.integers(n, size=(min(block, count - start), n))), target)


def _both_labels(rows: Tensor, target: Tensor) -> Tensor:
    """Put a row of a missing label into a resample: AP needs both, and skipping the resample would bias more."""
    for label in (0, 1):
        lacking = ~(target[rows] == label).any(1)
        rows[lacking, label] = (target == label).nonzero()[0, 0]
    return rows
