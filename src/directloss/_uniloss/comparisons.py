"""Step 1 of UniLoss, c = f(scores, target): what a metric compares. Liu, Wang, Deng (ECCV 2020), Sec. 3.3.

The scores of one problem are flattened to ``m`` numbers. A comparison is a differentiable function of them, and the
metric depends only on its sign. Most metrics compare two scores, or a score with a constant: `Differences`. Anything
else is `General`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

BEYOND = 1e-3
"""How far a flipped comparison goes past zero, as a share of the spread of the scores."""


class Comparisons(ABC):
    """The ``l`` comparisons of one problem, as a function of its ``m`` flattened scores."""

    count: int
    """How many there are: ``l``."""

    @abstractmethod
    def values(self, scores: Tensor) -> Tensor:
        """The comparisons, shape ``(..., m)`` to ``(..., l)``; differentiable."""

    def bits(self, scores: Tensor) -> Tensor:
        """The binaries ``(..., l)`` of detached scores ``(..., m)``; row by row, because values take more memory."""
        if scores.dim() == 1:
            return self.values(scores) > 0
        out = torch.empty(len(scores), self.count, dtype=torch.bool, device=scores.device)
        for row, these in zip(scores, out, strict=True):
            these.copy_(self.bits(row))
        return out

    @abstractmethod
    def flipped(self, scores: Tensor, which: Tensor) -> Tensor:
        """The scores ``(k, m)``, moved as little as possible to change the sign of comparison ``which[i]`` in row i."""

    @abstractmethod
    def take(self, which: Tensor) -> Comparisons:
        """Only the comparisons ``which``, an index tensor."""

    def of_score(self, scores: Tensor, item: int) -> Tensor:
        """Which comparisons depend on one score, boolean ``(l,)``."""
        with torch.enable_grad():
            free = scores.detach().requires_grad_()
            values = self.values(free)
            rows = [torch.autograd.grad(value, free, retain_graph=True)[0][item] for value in values]
        return torch.stack(rows) != 0

    def random(self, scores: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """Random scores ``(k, m)`` with the mean and the deviation of the current ones."""
        m = scores.numel()
        return as_wide(halves(words(half_of(m), generator), m), k, scores)


class Differences(Comparisons):
    """Comparisons ``c = scores[left] - scores[right] + offset``; the second term is missing where ``right`` is -1.

    Args:
        left: shape ``(l,)``, indices of the flattened scores.
        right: shape ``(l,)``, indices of the flattened scores, or -1 for a comparison with a constant.
        offset: shape ``(l,)``, or None for zero.

    Examples:
        >>> pair = Differences(torch.tensor([0, 1]), torch.tensor([1, -1]), torch.tensor([0.0, -0.5]))
        >>> pair.values(torch.tensor([3.0, 1.0]))
        tensor([2.0000, 0.5000])
    """

    def __init__(self, left: Tensor, right: Tensor, offset: Tensor | None = None) -> None:
        self.left, self.right, self.offset = left, right, offset
        self.count = left.numel()
        self.alone = right < 0
        self.any_alone = bool(self.alone.any())

    def values(self, scores: Tensor) -> Tensor:
        """The comparisons; see `Comparisons.values`."""
        left, right, offset = self.all_parts
        partner = scores[..., right]  # the last score where right is -1
        if self.any_alone:
            partner = torch.where(self.alone, torch.zeros_like(partner), partner)
        difference = scores[..., left] - partner
        return difference if offset is None else difference + offset.to(scores.dtype)

    def flipped(self, scores: Tensor, which: Tensor) -> Tensor:
        """Both scores move to their middle and a little past it; a lone score moves past its threshold."""
        if not len(scores):
            return scores
        left, right, offset = self.parts(which)
        alone, partner = right < 0, right.clamp(min=0)
        rows = torch.arange(len(scores), device=scores.device)
        now = scores[rows, left] - torch.where(alone, 0.0, scores[rows, partner])
        now = now if offset is None else now + offset.to(scores.dtype)
        beyond = BEYOND * spread(scores)
        step = now + torch.where(now > 0, beyond, -beyond)
        moved = scores.clone()
        moved[rows, left] -= torch.where(alone, step, step / 2)
        moved[rows, partner] += torch.where(alone, 0.0, step / 2)
        return moved

    def parts(self, which: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Left, right and offset of some comparisons."""
        return self.left[which], self.right[which], None if self.offset is None else self.offset[which]

    @property
    def all_parts(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Left, right and offset of all comparisons."""
        return self.left, self.right, self.offset

    def take(self, which: Tensor) -> Differences:
        """Only the comparisons ``which``."""
        return Differences(*self.parts(which))

    def of_score(self, scores: Tensor, item: int) -> Tensor:
        """The comparisons that have the score on either side."""
        left, right, _ = self.all_parts
        return (left == item) | (right == item)

    def random(self, scores: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """Random scores; those with thresholds are centred on them."""
        drawn = super().random(scores, k, generator)
        if not self.any_alone:
            return drawn
        threshold = torch.zeros_like(scores) if self.offset is None else self._thresholds(scores)
        alone = torch.zeros_like(scores, dtype=torch.bool)
        alone[self.left[self.alone]] = True
        return torch.where(alone, drawn - middle(scores) + threshold, drawn)

    def _thresholds(self, scores: Tensor) -> Tensor:
        """The mean of the thresholds of each score."""
        assert self.offset is not None
        where, at = self.left[self.alone], -self.offset[self.alone].to(scores.dtype)
        total = torch.zeros_like(scores).index_add_(0, where, at)
        count = torch.zeros_like(scores).index_add_(0, where, torch.ones_like(at))
        return total / count.clamp(min=1)


class General(Comparisons):
    """Comparisons of any form, given by a differentiable function of the flattened scores.

    Args:
        function: takes scores ``(m,)`` and returns comparisons ``(l,)``.
        count: how many it returns.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], count: int) -> None:
        self.function, self.count = function, count

    def values(self, scores: Tensor) -> Tensor:
        """The comparisons; calls the function once per row."""
        if scores.dim() > 1:
            return torch.stack([self.values(row) for row in scores])
        return self.function(scores)

    def flipped(self, scores: Tensor, which: Tensor) -> Tensor:
        """A step along the gradient of the comparison: to the zero of its linearisation, and a little past it."""
        return torch.stack([self._step(row, j) for row, j in zip(scores, which.tolist(), strict=True)])

    def _step(self, scores: Tensor, which: int) -> Tensor:
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

    def take(self, which: Tensor) -> General:
        """Only the comparisons ``which``."""
        return General(lambda scores: self.function(scores)[which], which.numel())


class Pairs(Differences):
    """Every relevant score of a list against every irrelevant one, for lists of any sizes.

    The pairs are not stored: a step in compiled loops needs only a few of them.

    Args:
        relevant: indices ``(p,)`` of the flattened scores, list after list.
        irrelevant: indices ``(n,)``, list after list.
        sizes: shape ``(lists, 2)``, how many relevant and irrelevant scores each list has; none has zero.

    Examples:
        >>> both = Pairs(torch.tensor([0, 2, 3]), torch.tensor([1, 4]), torch.tensor([[1, 1], [2, 1]]))
        >>> both.values(torch.tensor([3.0, 1.0, 0.0, 5.0, 4.0]))
        tensor([ 2., -4.,  1.])
    """

    def __init__(self, relevant: Tensor, irrelevant: Tensor, sizes: Tensor) -> None:
        self.relevant, self.irrelevant, self.sizes = relevant, irrelevant, sizes
        ups, downs = sizes.unbind(-1)
        each = downs.repeat_interleave(ups)
        self._ends = each.cumsum(0)
        """Where the pairs of each relevant score end."""
        # Add this to the index of a pair to get the index of its irrelevant score.
        self._shift = (downs.cumsum(0) - downs).repeat_interleave(ups) - (self._ends - each)
        self.count = int(self._ends[-1])
        self.any_alone, self.offset = False, None

    @classmethod
    def of(cls, lists: Tensor, high: Tensor, low: Tensor) -> Pairs | None:
        """The pairs of lists ``(b, n)`` of indices, given masks of relevant and irrelevant ones; None if empty."""
        sizes = torch.stack([high.sum(-1), low.sum(-1)], -1)
        kept = sizes.all(-1)
        if not bool(kept.any()):
            return None
        return cls(lists[high & kept[:, None]], lists[low & kept[:, None]], sizes[kept])

    def bits(self, scores: Tensor) -> Tensor:
        """The binaries. A single list is compared without differences, which is several times faster."""
        if scores.dim() > 1 or len(self.sizes) > 1:
            return super().bits(scores)
        return (scores[self.relevant][:, None] > scores[self.irrelevant]).flatten()

    def parts(self, which: Tensor) -> tuple[Tensor, Tensor, None]:
        """Left and right of some comparisons, found by a search among the relevant scores."""
        row = torch.searchsorted(self._ends, which.contiguous(), right=True)
        return self.relevant[row], self.irrelevant[which + self._shift[row]], None

    @cached_property
    def all_parts(self) -> tuple[Tensor, Tensor, None]:
        """See `parts`; cached, because the general path asks once per anchor."""
        return self.parts(torch.arange(self.count, device=self.sizes.device))

    def tables(self, bits: Tensor) -> list[Tensor]:
        """Binaries ``(k, l)`` as one table ``(k, p, n)`` per list."""
        sizes = self.sizes.tolist()
        pieces = torch.split(bits, [p * n for p, n in sizes], -1)
        return [piece.reshape(len(bits), p, n) for piece, (p, n) in zip(pieces, sizes, strict=True)]


MULTIPLIER = 747796405
"""The multiplier of a linear congruential generator modulo 2^32 (O'Neill, PCG, 2014)."""
WIDEST = 1 << 31


def words(count: int, generator: torch.Generator) -> Any:
    """Random 64-bit integers, the only thing that anchors draw. An array, because numpy converts it faster."""
    drawn = torch.empty(count, dtype=torch.int64).random_(-WIDEST * WIDEST * 2, None, generator=generator)
    return drawn.numpy().view(np.uint64)


def numbers(drawn: Any, among: int) -> Any:
    """`words` as integers below ``among``, which is far less than 2^64."""
    return (drawn % among).view(np.int64)


def half_of(m: int) -> int:
    """How many `words` hold ``m`` 32-bit numbers."""
    return (m + 1) // 2


def halves(drawn: Any, m: int) -> Any:
    """`words` as ``m`` 32-bit numbers."""
    return drawn.view(np.uint32)[:m]


@lru_cache
def powers(k: int) -> Any:
    """Factors that turn `halves`, modulo 2^32, into ``k / 2`` random numbers each.

    Drawing takes most of the time, so each number is drawn once and continued.
    """
    return np.multiply.accumulate(np.full((k + 1) // 2, MULTIPLIER, np.uint32), dtype=np.uint32)


def as_wide(drawn: Any, k: int, scores: Tensor) -> Tensor:
    """`halves` as random scores ``(k, m)`` with the mean and the deviation of the current ones.

    The second half mirrors the first, which cancels some of the randomness.
    """
    rows = (drawn * powers(k)[:, None]).view(np.int32)
    part = torch.from_numpy(rows).to(scores.device, scores.dtype) * (math.sqrt(3) / WIDEST)
    return middle(scores) + torch.cat([part, -part])[:k] * spread(scores)


def spread(scores: Tensor) -> Tensor:
    """A scale of the scores that is never zero: their standard deviation, or one if all are equal."""
    deviation = scores.detach().std(correction=0)
    known = float(deviation)
    if not math.isfinite(known):  # the squares of very large scores overflow
        peak = scores.detach().abs().amax()
        return spread(scores / peak) * peak
    return deviation if known > 0 else torch.ones_like(deviation)


def middle(scores: Tensor) -> Tensor:
    """The mean, even if the sum of very large scores overflows."""
    mean = scores.detach().mean()
    return mean if math.isfinite(float(mean)) else (scores.detach() / scores.numel()).sum()
