"""Step 1 of UniLoss, c = f(scores, target): what a metric compares. Liu, Wang, Deng (ECCV 2020), Sec. 3.3.

The scores of one problem are flattened to ``m`` numbers. A comparison is a differentiable function of them, and the
metric depends only on its sign, the binary. Nearly all metrics compare two scores, or a score with a constant:
`Differences`. A user's refactoring may compare anything: `General`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Blocks = Iterator[tuple[slice, Tensor]]
"""Binaries of some comparisons at a time: where they are, and boolean ``(some, k)`` for ``k`` rows of scores."""
BLOCK = 1 << 22
"""How many binaries are compared at a time."""
BEYOND = 1e-3
"""How far a flipped comparison goes past zero, as a share of the spread of the scores."""


class Comparisons(ABC):
    """The ``l`` comparisons of one problem, as a function of its ``m`` flattened scores."""

    count: int
    """How many there are: ``l``."""

    @abstractmethod
    def values(self, scores: Tensor) -> Tensor:
        """The comparisons, shape ``(m,)`` to ``(l,)``."""

    @abstractmethod
    def blocks(self, rows: Tensor) -> Blocks:
        """The binaries of rows of scores ``(k, m)``, block by block."""

    @abstractmethod
    def pull(self, scores: Tensor, slopes: Tensor) -> Tensor:
        """The gradient ``(m,)`` with respect to the scores, from that with respect to the comparisons ``(l,)``."""

    @abstractmethod
    def flipped(self, rows: Tensor, which: Tensor) -> Tensor:
        """The rows ``(k, m)``, moved as little as possible to change the sign of comparison ``which[i]`` in row i."""

    @abstractmethod
    def take(self, which: Tensor) -> Comparisons:
        """Only the comparisons ``which``, an index tensor."""

    def random(self, scores: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """Random rows ``(k, m)`` with the mean and the deviation of the scores.

        The second half mirrors the first, which cancels some of the randomness.
        """
        half = torch.rand((k + 1) // 2, scores.numel(), generator=generator, dtype=scores.dtype)
        part = (2 * half - 1) * (math.sqrt(3) * spread(scores))
        return middle(scores) + torch.cat([part, -part])[:k]


class Differences(Comparisons):
    """Comparisons ``c = scores[left] - scores[right] + offset``; the second term is missing where ``right`` is -1.

    Args:
        left: shape ``(l,)``, indices of the flattened scores.
        right: shape ``(l,)``, indices of the flattened scores, or -1 for a comparison with a constant.
        offset: shape ``(l,)``, or None for zero everywhere.

    Examples:
        >>> both = Differences(torch.tensor([0, 1]), torch.tensor([1, -1]), torch.tensor([0.0, -0.5]))
        >>> both.values(torch.tensor([3.0, 1.0]))
        tensor([2.0000, 0.5000])
    """

    def __init__(self, left: Tensor, right: Tensor, offset: Tensor | None = None) -> None:
        self.left, self.right, self.offset = left, right, offset
        self.count = left.numel()
        self.alone = bool((right < 0).any())

    @classmethod
    def of(cls, pairs: tuple[Tensor, Tensor], thresholds: Tensor, items: int) -> Differences:
        """Pairs ``(left, right)``, and each of the scores with each of the thresholds."""
        (left, right), constants = pairs, len(thresholds)
        if not constants:
            return cls(left, right)
        every = torch.arange(items).repeat(constants)
        offset = torch.cat([torch.zeros(len(left), dtype=thresholds.dtype), -thresholds.repeat_interleave(items)])
        return cls(torch.cat([left, every]), torch.cat([right, torch.full_like(every, -1)]), offset)

    def values(self, scores: Tensor) -> Tensor:
        """See `Comparisons.values`."""
        return self._of(scores, slice(None))

    def blocks(self, rows: Tensor) -> Blocks:
        """See `Comparisons.blocks`; rows are transposed, so that each score is one contiguous copy."""
        columns = rows.T.contiguous()
        step = max(1, BLOCK // max(1, len(rows)))
        for start in range(0, self.count, step):
            some = slice(start, start + step)
            if self.alone or self.offset is not None:
                yield some, self._of(columns, some) > 0
            else:
                yield some, columns.index_select(0, self.left[some]) > columns.index_select(0, self.right[some])

    def _of(self, columns: Tensor, some: slice) -> Tensor:
        """Some comparisons of scores ``(m, ...)``."""
        left, right = self.left[some], self.right[some]
        wide = (-1,) + (1,) * (columns.dim() - 1)
        partner = columns.index_select(0, right.clamp(min=0))
        if self.alone:
            partner = torch.where((right < 0).reshape(wide), 0.0, partner)
        found = columns.index_select(0, left) - partner
        return found if self.offset is None else found + self.offset[some].to(columns.dtype).reshape(wide)

    def pull(self, scores: Tensor, slopes: Tensor) -> Tensor:
        """See `Comparisons.pull`."""
        gradient = torch.zeros_like(scores).index_add_(0, self.left, slopes)
        against = torch.where(self.right < 0, 0.0, slopes) if self.alone else slopes
        return gradient.index_add_(0, self.right.clamp(min=0), against, alpha=-1)

    def flipped(self, rows: Tensor, which: Tensor) -> Tensor:
        """Both scores move to their middle and a little past it; a lone score moves past its threshold."""
        if not len(rows):
            return rows
        left, right = self.left[which].long(), self.right[which].long()
        alone, partner, row = right < 0, right.clamp(min=0), torch.arange(len(rows))
        now = rows[row, left] - torch.where(alone, 0.0, rows[row, partner])
        if self.offset is not None:
            now = now + self.offset[which].to(rows.dtype)
        beyond = BEYOND * spread(rows)
        step = now + torch.where(now > 0, beyond, -beyond)
        moved = rows.clone()
        moved[row, left] -= torch.where(alone, step, step / 2)
        moved[row, partner] += torch.where(alone, 0.0, step / 2)
        return moved

    def take(self, which: Tensor) -> Differences:
        """See `Comparisons.take`."""
        return Differences(self.left[which], self.right[which], None if self.offset is None else self.offset[which])

    def random(self, scores: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """Random rows; scores with thresholds are centred on the mean of those."""
        drawn = super().random(scores, k, generator)
        if not self.alone or self.offset is None:
            return drawn
        lone = self.right < 0
        where, level = self.left[lone], -self.offset[lone].to(scores.dtype)
        total = torch.zeros_like(scores).index_add_(0, where, level)
        number = torch.zeros_like(scores).index_add_(0, where, torch.ones_like(level))
        return drawn + torch.where(number > 0, total / number.clamp(min=1) - middle(scores), 0.0)


class General(Comparisons):
    """Comparisons of any form, given by a differentiable function of the flattened scores.

    Args:
        function: takes scores ``(m,)`` and returns comparisons ``(l,)``.
        count: how many it returns.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], count: int) -> None:
        self.function, self.count = function, count

    def values(self, scores: Tensor) -> Tensor:
        """See `Comparisons.values`."""
        return self.function(scores)

    def blocks(self, rows: Tensor) -> Blocks:
        """See `Comparisons.blocks`; calls the function once per row."""
        yield slice(None), torch.stack([self.function(row) > 0 for row in rows], -1)

    def pull(self, scores: Tensor, slopes: Tensor) -> Tensor:
        """See `Comparisons.pull`."""
        with torch.enable_grad():
            free = scores.detach().requires_grad_()
            return torch.autograd.grad(self.function(free), free, slopes)[0]

    def flipped(self, rows: Tensor, which: Tensor) -> Tensor:
        """A step along the gradient of the comparison: to the zero of its linearisation, and a little past it."""
        return torch.stack([self._step(row, j) for row, j in zip(rows, which.tolist(), strict=True)])

    def _step(self, scores: Tensor, which: int) -> Tensor:
        with torch.enable_grad():
            free = scores.detach().requires_grad_()
            value = self.function(free)[which]
            (slope,) = torch.autograd.grad(value, free)
        square = slope.square().sum()
        if not bool(square > 0):
            return scores
        step = value.detach() / square
        beyond = BEYOND * spread(scores) / square.sqrt()
        return scores - (step + torch.where(step > 0, beyond, -beyond)) * slope

    def take(self, which: Tensor) -> General:
        """See `Comparisons.take`."""
        return General(lambda scores: self.function(scores)[which], which.numel())


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
    if len(levels) <= 2:  # without a table of n x n, which heatmaps cannot afford
        return _two_levels(lists, relevance == levels[-1], relevance == levels[0]) if len(levels) == 2 else _no_pairs()
    found = [(row > row[:, None]).T.nonzero(as_tuple=True) for row in relevance]
    pairs = [(index[left], index[right]) for index, (left, right) in zip(lists, found, strict=True)]
    left, right = (torch.cat(part) for part in zip(*pairs, strict=True))
    return left, right


def all_pairs(lists: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs within each list."""
    left, right = torch.triu_indices(lists.shape[1], lists.shape[1], 1)
    return lists[:, left].flatten(), lists[:, right].flatten()


def _no_pairs() -> tuple[Tensor, Tensor]:
    return torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)


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
    deviation = scores.std(correction=0)
    if not math.isfinite(float(deviation)):  # the squares of very large scores overflow
        peak = scores.abs().amax()
        return spread(scores / peak) * peak
    return deviation if float(deviation) > 0 else torch.ones_like(deviation)


def middle(scores: Tensor) -> Tensor:
    """The mean, even if the sum of very large scores overflows."""
    mean = scores.mean()
    return mean if math.isfinite(float(mean)) else (scores / scores.numel()).sum()
