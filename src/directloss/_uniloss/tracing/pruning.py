"""Which pairs of scores do not matter: those inside groups of equal relevance, if the metric does not depend on them.

If exchanging scores inside such groups never changes the metric, it depends only on comparisons between groups. For
average precision this leaves relevant against irrelevant items, P x N pairs; for accuracy the right class against the
others, n (c - 1): the sets that Liu, Wang, Deng (Sec. 3.2, 4.2) chose by hand.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from directloss._checks import DirectLossError
from directloss._uniloss.best import class_dims, right_class
from directloss._uniloss.tracing.calls import value_of
from directloss._uniloss.tracing.layout import lists_of, rows
from directloss._uniloss.tracing.trace import Trace

DRAWS = 6
"""How many random exchanges must leave the metric unchanged."""


def relevance(shape: torch.Size, target: Tensor, place: int | None) -> Tensor:
    """The relevance of each score, shape ``(m,)``.

    Args:
        shape: of the scores.
        target: labels in the shape of the scores, or class indices.
        place: the dimension of the classes; None for labels.
    """
    return (target if place is None else right_class(shape, target, place)).reshape(-1)


def exchanged(scores: Tensor, group: Tensor, generator: torch.Generator) -> Tensor:
    """Scores in random order inside each group."""
    shuffled = torch.randperm(scores.numel(), generator=generator).to(scores.device)
    places, sources = group.argsort(stable=True), shuffled[group[shuffled].argsort(stable=True)]
    out = torch.empty_like(scores).reshape(-1)
    out[places] = scores.reshape(-1)[sources]
    return out.reshape(scores.shape)


def variation(scores: Tensor, generator: torch.Generator, tied: bool = False) -> Tensor:
    """Other scores that a metric accepts if it accepts these: exchanged along the last dimension, with noise."""
    dim = scores.dim() - 1
    moved = exchanged(scores, rows(scores.shape, dim if dim > 0 else None, scores.device), generator)
    if float(scores.min()) >= 0:
        return moved
    spread = float(scores.std(correction=0)) or 1.0
    noise = torch.randn(scores.shape, generator=generator, dtype=scores.dtype).to(scores.device)
    moved = moved + spread * noise
    return (moved / spread * 2).round() / 2 * spread if tied else moved


def invariant(trace: Trace, label: Tensor, dim: int | None, generator: torch.Generator) -> bool:
    """Whether exchanging scores inside groups of equal relevance leaves the metric unchanged."""
    kinds = torch.unique(label, return_inverse=True)[1]
    group = rows(trace.scores.shape, dim, trace.scores.device) * (int(kinds.max()) + 1) + kinds
    for draw in range(DRAWS):
        before = trace.scores if draw == 0 else variation(trace.scores, generator)
        try:
            pair = (before, exchanged(before, group, generator))
            values = [value_of(trace.metric, scores, trace.target) for scores in pair]
        except DirectLossError:
            return False
        if not torch.allclose(values[0], values[1], rtol=1e-5, atol=1e-6, equal_nan=True):
            return False
    return True


class Rule(NamedTuple):
    """Drop pairs of equal relevance."""

    place: int | None
    """The dimension of the classes, or None for labels."""
    exact: bool = True
    """Whether the metric does not depend on those pairs; if it does, they keep their signs."""


def find_rule(trace: Trace, prune: bool | str, generator: torch.Generator) -> Rule | None:
    """The rule by which pairs of equal relevance can be dropped; None if they cannot.

    Pairs of two wrong classes are dropped even if the metric depends on them, as macro-F1 does: the target does not
    tell their order, so relaxing them only adds noise to every distance.
    """
    if prune is False or trace.variables.pairs.numel() == 0:
        return None
    dim = lists_of(trace.variables.pairs, trace.scores.shape)
    shape = trace.scores.shape
    possible = [None] if trace.target.shape == shape else class_dims(shape, trace.target)
    for place in possible:
        if invariant(trace, relevance(shape, trace.target, place), dim, generator):
            return Rule(place)
    return next((Rule(place, exact=False) for place in possible if prune is True or place is not None), None)


def pruned(trace: Trace, rule: Rule | None) -> Trace:
    """The record without pairs of equal relevance; in those kept the more relevant score comes first."""
    if rule is None:
        return trace
    label = relevance(trace.scores.shape, trace.target, rule.place)
    differences, pairs = trace.variables.differences, trace.variables.pairs.numel()
    a, b = label[differences.left[:pairs]], label[differences.right[:pairs]]
    kept = (a != b).nonzero()[:, 0]
    turn = torch.where(a[kept] > b[kept], 1, -1)
    rest = torch.arange(pairs, trace.variables.count, device=kept.device)
    kept, turn = torch.cat((kept, rest)), torch.cat((turn, torch.ones_like(rest)))
    return replace(trace, kept=kept, turn=turn, exact=rule.exact)
