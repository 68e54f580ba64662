"""Who wins on the test rows, and how much of it may be chance: a paired bootstrap (Efron, 1979).

Test rows, or whole groups of them, are resampled with replacement, and every method is measured on the same resamples.
The intervals cover the choice of test rows, but neither the split nor the training, and are not corrected for choosing
the best of several methods.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from directloss.tabular.columns import Codes
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


@dataclass(frozen=True)
class Comparison:
    """The test metric of each method, and its lead over the saved one."""

    test: dict[str, IntervalEstimate]
    ahead: dict[str, IntervalEstimate]
    """For each other method, its metric minus that of the saved one."""
    effect: IntervalEstimate
    """The metric of the first network, trained on it, minus that of the second, trained with cross-entropy."""


def compare(
    measure: Measure, scores: Mapping[str, Tensor], target: Tensor, saved: str, seed: int, groups: Codes | None = None
) -> Comparison:
    """Measure all methods on the rows and on the same resamples of them; the first two are the networks."""
    values: dict[str, list[float]] = {name: [] for name in scores}
    for rows in itertools.chain([torch.arange(len(target))[None]], draws(target, seed, groups)):
        for name, own in scores.items():
            values[name] += measure.value(own[rows], target[rows]).tolist()

    def estimate(name: str, other: str | None = None) -> IntervalEstimate:
        value, *drawn = np.subtract(values[name], 0 if other is None else values[other])
        return IntervalEstimate(float(value), *np.quantile(drawn, [0.025, 0.975]).tolist())

    ahead = {name: estimate(name, saved) for name in scores if name != saved}
    return Comparison({name: estimate(name) for name in scores}, ahead, estimate(*list(scores)[:2]))


def draws(target: Tensor, seed: int, groups: Codes | None = None) -> Iterator[Tensor]:
    """The row indices of resamples, some at a time ``(b, n)``; with groups one, because their sizes differ."""
    n, draw = len(target), np.random.default_rng(seed)
    count = max(FEWEST, min(RESAMPLES, WORK // n))
    members = [] if groups is None else list(pd.Series(groups).groupby(groups).indices.values())
    block = 1 if members else max(1, min(count, BLOCK // n))
    for _ in range(0, count, block):
        if members:
            rows = np.concatenate([members[place] for place in draw.integers(len(members), size=len(members))])[None]
        else:
            rows = draw.integers(n, size=(block, n))
        for label in (0, 1):  # AP needs both, and skipping a resample without one would bias more
            rows[~(target.numpy()[rows] == label).any(1), label] = int((target == label).nonzero()[0])
        yield torch.from_numpy(rows)
