"""Step 1 of UniLoss, c = f(scores, target): what a metric compares. Liu, Wang, Deng (ECCV 2020), Sec. 3.3.

The scores of one problem are flattened to ``m`` numbers. A comparison is a differentiable function of them, and the
metric depends only on its sign, the binary. A user's refactoring may compare anything. Nearly all metrics compare two
scores, or a score with a constant, which is much faster: `Differences`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

Blocks = Iterator[tuple[slice, Tensor]]
"""Some comparisons at a time: which, and numbers ``(some, k)``, 1 where row k differs from given binaries."""
BLOCK = 1 << 18
"""How many binaries are compared at a time. A block stays in the processor's cache: comparing again costs less than
storing.
"""
BEYOND = 1e-3
"""How far a flipped comparison goes past zero, as a share of the spread of the scores."""


class Comparisons:
    """The ``l`` comparisons of one problem, as a differentiable function of its ``m`` flattened scores.

    Args:
        function: takes scores ``(m,)`` and returns comparisons ``(l,)``.
        count: how many it returns, ``l``.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], count: int) -> None:
        self.function, self.count = function, count

    def values(self, scores: Tensor) -> Tensor:
        """The comparisons, shape ``(m,)`` to ``(l,)``."""
        return self.function(scores)

    def differing(self, rows: Tensor, here: Tensor) -> Blocks:
        """Where the binaries of rows of scores ``(k, m)`` differ from the binaries ``here``, boolean ``(l,)``."""
        yield slice(None), torch.stack([(self.values(row) > 0) != here for row in rows], -1).to(rows.dtype)

    def pull(self, scores: Tensor, slopes: Tensor) -> Tensor:
        """The gradient ``(m,)`` with respect to the scores, from that with respect to the comparisons ``(l,)``."""
        with torch.enable_grad():
            free = scores.detach().requires_grad_()
            return torch.autograd.grad(self.values(free), free, slopes)[0]

    def flipped(self, rows: Tensor, which: Tensor) -> Tensor:
        """The rows ``(k, m)``, moved as little as possible to change the sign of comparison ``which[i]`` in row i."""
        return torch.stack([self._flipped_one(row, j) for row, j in zip(rows, which.tolist(), strict=True)])

    def _flipped_one(self, scores: Tensor, which: int) -> Tensor:
        """A step along the gradient of the comparison: to the zero of its linearisation, and a little past it."""
        with torch.enable_grad():
            free = scores.detach().requires_grad_()
            value = self.values(free)[which]
            (slope,) = torch.autograd.grad(value, free)
        square = slope.square().sum()
        if not bool(square > 0):
            return scores
        step = value.detach() / square
        beyond = BEYOND * spread(scores) / square.sqrt()
        return scores - (step + torch.where(step > 0, beyond, -beyond)) * slope

    def take(self, which: Tensor) -> Comparisons:
        """Only the comparisons ``which``, an index tensor."""
        return Comparisons(lambda scores: self.values(scores)[which], which.numel())

    def random(self, scores: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """Random rows ``(k, m)`` with the deviation of the scores; the second half mirrors the first."""
        half = torch.rand((k + 1) // 2, scores.numel(), generator=generator, dtype=scores.dtype)
        part = (2 * half - 1) * (math.sqrt(3) * spread(scores))
        return self.middle(scores) + torch.cat([part, -part])[:k]

    def middle(self, scores: Tensor) -> float:
        """The mean of random scores: that of the current ones, or of the constants that they are compared with."""
        return float(scores.double().mean())


class Differences(Comparisons):
    """Comparisons of two scores, or of a score with a constant: ``c = x[left] - x[right]``, x being both.

    Args:
        left: shape ``(l,)``, indices of the flattened scores.
        right: shape ``(l,)``, indices of the flattened scores, or ``items`` plus an index of the constants.
        items: how many scores there are.
        constants: shape ``(t,)``; they have no gradient.

    Examples:
        >>> both = Differences(torch.tensor([0, 1]), torch.tensor([1, 2]), 2, torch.tensor([0.5]))
        >>> both.values(torch.tensor([3.0, 1.0]))
        tensor([2.0000, 0.5000])
    """

    def __init__(self, left: Tensor, right: Tensor, items: int, constants: Tensor | None = None) -> None:
        self.left, self.right, self.items, self.count = left, right, items, left.numel()
        self.constants = torch.empty(0) if constants is None else constants

    @classmethod
    def of(cls, pairs: tuple[Tensor, Tensor], items: int, thresholds: Tensor) -> Differences:
        """Pairs ``(left, right)``, and each of the scores with each of the thresholds."""
        if not len(thresholds):
            return cls(*pairs, items)
        levels = torch.arange(items, items + len(thresholds)).repeat_interleave(items)
        every = torch.arange(items).repeat(len(thresholds))
        left, right = (torch.cat(parts) for parts in zip(pairs, (every, levels), strict=True))
        return cls(left, right, items, thresholds)

    def _with_constants(self, rows: Tensor) -> Tensor:
        """Scores ``(..., m)`` followed by the constants."""
        if not len(self.constants):
            return rows
        return torch.cat([rows, self.constants.to(rows.dtype).expand(*rows.shape[:-1], -1)], -1)

    def values(self, scores: Tensor) -> Tensor:
        both = self._with_constants(scores)
        return both.index_select(0, self.left) - both.index_select(0, self.right)

    def differing(self, rows: Tensor, here: Tensor) -> Blocks:
        from directloss.kernels import pairs  # imported lazily: numba is slow to import

        # Transposed, so that each score is one contiguous piece.
        columns = self._with_constants(rows).T.contiguous().numpy()
        left, right = (part.numpy().view(np.uint64) for part in (self.left, self.right))
        units, step = np.array([0, 1], columns.dtype), max(1, BLOCK // max(1, len(rows)))
        out = torch.empty(min(step, self.count), len(rows), dtype=rows.dtype)  # each block replaces the one before
        for start in range(0, self.count, step):
            some = slice(start, min(start + step, self.count))
            block = out[: some.stop - start]
            pairs.differing(columns, left, right, here.numpy(), start, units, block.numpy())
            yield some, block

    def pull(self, scores: Tensor, slopes: Tensor) -> Tensor:
        both = torch.zeros(self.items + len(self.constants), dtype=scores.dtype).index_add_(0, self.left, slopes)
        return both.index_add_(0, self.right, slopes, alpha=-1)[: self.items]

    def flipped(self, rows: Tensor, which: Tensor) -> Tensor:
        """Both scores move to their middle and a little past it; a score moves past its constant."""
        left, right, row = self.left[which], self.right[which], torch.arange(len(rows))
        alone, both = right >= self.items, self._with_constants(rows)
        now = both[row, left] - both[row, right]
        beyond = BEYOND * spread(rows)
        step = now + torch.where(now > 0, beyond, -beyond)
        both[row, left] -= torch.where(alone, step, step / 2)
        both[row, right] += step / 2
        return both[:, : self.items]

    def take(self, which: Tensor) -> Differences:
        return Differences(self.left[which], self.right[which], self.items, self.constants)

    def middle(self, scores: Tensor) -> float:
        return float(self.constants.double().mean()) if len(self.constants) else super().middle(scores)


# ---------------------------------------------------------------------- pairs


def ranked_pairs(lists: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of different relevance within each list, the more relevant score on the left.

    Args:
        lists: shape ``(b, n)``, indices of the flattened scores.
        relevance: shape ``(b, n)``; NaN for scores that do not count.

    Examples:
        >>> ranked_pairs(torch.tensor([[0, 1, 2]]), torch.tensor([[0.0, 1.0, 0.0]]))
        (tensor([1, 1]), tensor([0, 2]))
    """
    levels = torch.unique(relevance[~relevance.isnan()])
    if len(levels) < 2:
        return torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)
    if len(levels) == 2:  # without a table of n x n, which heatmaps cannot afford
        return _two_levels(lists, relevance == levels[1], relevance == levels[0])
    which, left, right = (relevance[:, :, None] > relevance[:, None]).nonzero(as_tuple=True)
    return lists[which, left], lists[which, right]


def all_pairs(lists: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs within each list."""
    left, right = torch.triu_indices(lists.shape[1], lists.shape[1], 1)
    return lists[:, left].flatten(), lists[:, right].flatten()


def _two_levels(lists: Tensor, high: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
    highs, lows = high.sum(-1), low.sum(-1)
    rivals = lows.repeat_interleave(highs)
    """How many lower scores each higher one meets."""
    ends = rivals.cumsum(0)
    # Add this to the number of a pair to get the place of its lower score.
    shift = (lows.cumsum(0) - lows).repeat_interleave(highs) - (ends - rivals)
    place = torch.arange(int(ends[-1])) + shift.repeat_interleave(rivals)
    return lists[high].repeat_interleave(rivals), lists[low][place]


# ---------------------------------------------------------------------- the scale of scores


def spread(scores: Tensor) -> Tensor:
    """A scale of the scores that is never zero: their standard deviation, or one if all are equal."""
    deviation = scores.double().std(correction=0).to(scores.dtype)  # squares of large scores need double precision
    return deviation if float(deviation) > 0 else torch.ones_like(deviation)
