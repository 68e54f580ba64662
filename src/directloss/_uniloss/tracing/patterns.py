"""The regular form of a metric's comparisons: a new batch then needs index arithmetic instead of a new record."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from directloss._uniloss.comparisons import Comparisons, Differences, Pairs
from directloss._uniloss.tracing.layout import all_pairs, lists_along, lists_of
from directloss._uniloss.tracing.pruning import Rule, pruned, relevance
from directloss._uniloss.tracing.trace import Trace


@dataclass(frozen=True)
class Pattern:
    """All pairs inside lists along a dimension, and every score with the same thresholds."""

    whole: Trace
    """A record with all of them as variables, before pruning."""
    lists: Tensor
    """The lists that the pairs come from, shape ``(b, n)``."""
    rule: Rule | None
    words: str

    def comparisons(self, target: Tensor) -> Comparisons:
        """The comparisons for a target."""
        pairs = self._in_two(target)
        return self._pruned(target) if pairs is None else pairs

    def _pruned(self, target: Tensor) -> Comparisons:
        return pruned(replace(self.whole, target=target), self.rule).comparisons

    def _in_two(self, target: Tensor) -> Pairs | None:
        """The pairs in compact form, for binary labels; None for others."""
        if self.rule is None or self.whole.variables.places.numel():
            return None
        label = relevance(self.whole.scores.shape, target, self.rule.place)
        high = label if label.dtype == torch.bool else label == 1
        if label.dtype != torch.bool and not bool((high | (label == 0)).all()):
            return None
        high = high[self.lists]
        return Pairs.of(self.lists, high, ~high)

    def explains(self, trace: Trace) -> bool:
        """Whether the comparisons of a record are exactly these."""
        mine, theirs = self._pruned(trace.target), trace.comparisons
        if not isinstance(mine, Differences) or not isinstance(theirs, Differences) or mine.count != theirs.count:
            return False
        same = torch.equal(mine.left, theirs.left) and torch.equal(mine.right, theirs.right)
        if mine.offset is None or theirs.offset is None:
            return same and (mine.offset is None) == (theirs.offset is None)
        return same and torch.allclose(mine.offset, theirs.offset, rtol=1e-9, atol=1e-9)


def learn(trace: Trace, rule: Rule | None) -> Pattern | None:
    """The pattern of a record pruned by ``rule``, or None."""
    variables, shape = trace.variables, trace.scores.shape
    if variables.marks.numel():
        return None
    levels = len(variables.levels)
    if variables.places.numel() not in (0, variables.m * levels):
        return None
    some = trace.kept is None or trace.kept.numel() > variables.places.numel()
    dim = lists_of(variables.pairs, shape) if some and variables.pairs.numel() else -1
    lists = lists_along(shape, dim, trace.scores.device)
    pairs = all_pairs(lists, shape.numel())
    if pairs is None:
        return None
    whole = replace(trace, variables=replace(variables, pairs=pairs), decisions=(), kept=None, turn=None)
    found = Pattern(whole, lists, rule, _words(dim, shape, levels, rule))
    return found if found.explains(trace) else None


def _words(dim: int | None, shape: torch.Size, levels: int, rule: Rule | None) -> str:
    parts = []
    if dim is None or dim >= 0:
        pairs = "all pairs of scores" if dim is None or len(shape) == 1 else f"all pairs along dimension {dim}"
        parts.append(pairs + (" of different relevance" if rule is not None else ""))
    if levels:
        parts.append(f"each score with {levels} constant{'s' * (levels > 1)}")
    return " and ".join(parts)
