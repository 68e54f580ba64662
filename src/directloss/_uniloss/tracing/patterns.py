"""The regular form of a metric's comparisons, so that a new batch needs index arithmetic and no new record."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from directloss._uniloss.comparisons import Differences, Pairs
from directloss._uniloss.tracing.layout import MOST, all_pairs, lists_along, lists_of
from directloss._uniloss.tracing.pruning import Rule, between, relevance
from directloss._uniloss.tracing.trace import Trace


@dataclass(frozen=True)
class Pattern:
    """All pairs inside lists along a dimension, and every score with the same thresholds."""

    shape: torch.Size
    words: str
    left: Tensor
    right: Tensor
    """All pairs, in the order of their codes."""
    lists: Tensor | None
    """The lists that they are the pairs of, shape ``(b, n)``."""
    places: Tensor
    offset: Tensor
    """The scores that are compared with constants, and minus these; float64."""
    rule: Rule | None

    def comparisons(self, target: Tensor) -> Differences:
        """The comparisons for a target."""
        left, right = self.left, self.right
        if self.rule is not None and left.numel():
            label = relevance(self.shape, target, self.rule.place)
            pairs = self._in_two(label)
            if pairs is not None:
                return pairs
            kept, turn = between(label, left, right)
            left, right, swap = left[kept], right[kept], turn < 0
            left, right = torch.where(swap, right, left), torch.where(swap, left, right)
        if self.places.numel() == 0:
            return Differences(left, right)
        offset = torch.cat((self.offset.new_zeros(left.numel()), self.offset))
        return Differences(torch.cat((left, self.places)), torch.cat((right, torch.full_like(self.places, -1))), offset)

    def _in_two(self, label: Tensor) -> Pairs | None:
        """The pairs in their compact form, for labels of two kinds."""
        if self.places.numel() or self.lists is None:
            return None
        high = label if label.dtype == torch.bool else label == 1
        if label.dtype != torch.bool and not bool((high | (label == 0)).all()):
            return None
        high = high[self.lists]
        return Pairs.of(self.lists, high, ~high)

    def explains(self, trace: Trace) -> bool:
        """Whether these are exactly the comparisons of a record."""
        mine, theirs = replace(self, lists=None).comparisons(trace.target), trace.comparisons
        if not isinstance(theirs, Differences) or mine.count != theirs.count:
            return False
        same = torch.equal(mine.left, theirs.left) and torch.equal(mine.right, theirs.right)
        if mine.offset is None or theirs.offset is None:
            return same and (mine.offset is None) == (theirs.offset is None)
        return same and torch.allclose(mine.offset, theirs.offset, rtol=1e-9, atol=1e-9)


def learn(trace: Trace, rule: Rule | None) -> Pattern | None:
    """The pattern of a record (after pruning by ``rule``), if it has one."""
    variables, shape = trace.variables, trace.scores.shape
    if variables.marks.numel():
        return None
    levels = len(variables.ticks)
    if variables.places.numel() not in (0, variables.m * levels):
        return None
    some = trace.kept is None or trace.kept.numel() > variables.places.numel()
    dim = lists_of(variables.pairs, shape) if some and variables.pairs.numel() else -1
    lists = lists_along(shape, dim, trace.scores.device)
    left, right = all_pairs(lists, shape.numel())
    if left.numel() > MOST:
        return None
    offset = variables.offset()
    none = torch.zeros(0, dtype=torch.float64, device=left.device)
    offset = none if offset is None else offset[variables.pairs.numel() :]
    at = variables.places // max(levels, 1)
    found = Pattern(shape, _words(dim, shape, levels, rule), left, right, lists, at, offset, rule)
    return found if found.explains(trace) else None


def _words(dim: int | None, shape: torch.Size, levels: int, rule: Rule | None) -> str:
    parts = []
    if dim is None or dim >= 0:
        pairs = "all pairs of scores" if dim is None or len(shape) == 1 else f"all pairs along dimension {dim}"
        parts.append(pairs + (" of different relevance" if rule is not None else ""))
    if levels:
        parts.append(f"each score with {levels} constant{'s' * (levels > 1)}")
    return " and ".join(parts)
