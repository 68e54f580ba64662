"""Chance on the test data: the bootstrap of Efron (1979), with the same resampled rows for every loss.

The rows of the test data are drawn again with replacement, and each loss is measured on the same draws; the interval of
a difference is then that of the paired differences. It covers the chance of the test rows. It does not cover that
of the split and the training.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from directloss_repro.seeding import generator
from directloss_repro.tabular.measures import Measure

RESAMPLES, FEWEST = 1_000, 300
WORK = 20_000_000
"""Rows drawn in all, about: for large test data, whose interval is narrow anyway, fewer resamples are enough."""
BLOCK = 2_000_000
"""Rows drawn at once."""


def bootstrap(measure: Measure, scores: Tensor, target: Tensor, seed: int) -> Tensor:
    """The metric on each resample; the same rows are drawn for the same labels and seed, whatever the scores."""
    return torch.cat([measure.value(scores[rows], target[rows]).double() for rows in _draws(target, seed)])


def interval(values: Tensor) -> tuple[float, float]:
    """The middle 95 % of the resamples.

    Example:
        >>> interval(torch.arange(1001.0))
        (25.0, 975.0)
    """
    low, high = torch.quantile(values, torch.tensor([0.025, 0.975], dtype=values.dtype)).tolist()
    return low, high


def _draws(target: Tensor, seed: int) -> Iterator[Tensor]:
    """Row numbers ``(b, n)``, block by block."""
    n = len(target)
    count = max(FEWEST, min(RESAMPLES, WORK // n))
    block = max(1, min(count, BLOCK // n))
    draw = generator("bootstrap", seed)
    positives, negatives = (target == 1).nonzero().squeeze(1), (target == 0).nonzero().squeeze(1)
    for start in range(0, count, block):
        size = min(block, count - start)
        rows = torch.randint(n, (size, n), generator=draw)
        # A resample without one of the labels has no AP or AUC. With very few positives that happens now and then; one
        # row of the missing label is then put in, which errs by less than leaving the resample out.
        for members in (positives, negatives):
            lacking = ~torch.isin(rows, members).any(1)
            rows[lacking, 0] = members[0]
        yield rows
