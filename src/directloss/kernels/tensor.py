"""The losses of rankings in plain tensor operations, which UniLoss can watch; the package's docstring has the formulas.

Same results as `compiled`, for any device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from directloss.kernels import PositionWeights


class Predicted(NamedTuple):
    """Who stands above whom in the ranking by score; first dimension: problems."""

    above: Tensor
    """(b, n) in the order of the input: items of the other class above each item; 0 for padding."""
    relevant: Tensor
    """(b,) number of relevant items."""
    irrelevant: Tensor
    n_w: Tensor
    """(b, P) irrelevant items above each relevant one; P the largest number of relevant items."""


def predict(scores: Tensor, target: Tensor) -> Predicted:
    """Sort each problem and count who stands above whom, ties spread evenly."""
    real = target >= 0
    values = scores.to(torch.promote_types(scores.dtype, torch.float32))
    values, order = torch.where(real, values, -torch.inf).sort(dim=1, descending=True, stable=True)
    values = torch.where(values > -torch.inf, values, 0.0).double()
    label = target.gather(1, order)
    is_a, is_b = label == 1, label == 0
    count_a, count_b = is_a.cumsum(1), is_b.cumsum(1)
    before_a, before_b, tied_a, tied_b = _tie_groups(values, label, count_a, count_b)
    rank_a, rank_b = count_a - before_a, count_b - before_b - 1
    spread_n = before_b + (rank_a * tied_b + tied_a - 1).div(tied_a.clamp(min=1), rounding_mode="floor")
    spread_p = before_a + (rank_b * tied_a).div(tied_b.clamp(min=1), rounding_mode="floor")
    counts = torch.where(is_a, spread_n, torch.where(is_b, spread_p, 0))
    P = int(count_a[:, -1].max())
    n_w = counts.new_zeros(len(counts), P + 1).scatter_(1, torch.where(is_a, count_a - 1, P), counts)[:, :P]
    return Predicted(torch.zeros_like(order).scatter_(1, order, counts), count_a[:, -1], count_b[:, -1], n_w)


def _tie_groups(
    values: Tensor, label: Tensor, count_a: Tensor, count_b: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each place in the sorted lists: the counts before its group of equal scores, and inside it."""
    fresh = torch.ones_like(label, dtype=torch.bool)
    # Padding stands at the end with score 0; it must not join a group of real zeros.
    fresh[:, 1:] = (values[:, 1:] != values[:, :-1]) | ((label[:, 1:] < 0) != (label[:, :-1] < 0))
    group = fresh.cumsum(1) - 1
    tied_a = torch.zeros_like(count_a).scatter_add_(1, group, (label == 1).long()).gather(1, group)
    tied_b = torch.zeros_like(count_b).scatter_add_(1, group, (label == 0).long()).gather(1, group)
    start = torch.where(fresh, torch.arange(values.shape[1], device=values.device), 0).cummax(1).values
    zero = count_a.new_zeros(count_a.shape[0], 1)
    before_a = torch.cat((zero, count_a[:, :-1]), 1).gather(1, start)
    before_b = torch.cat((zero, count_b[:, :-1]), 1).gather(1, start)
    return before_a, before_b, tied_a, tied_b


def row_weights(weights: PositionWeights, count: int, device: torch.device) -> Tensor:
    """u_1 ... u_count."""
    i = torch.arange(1, count + 1, device=device, dtype=torch.float64)
    return (i == 1).double() if weights.first else i if weights.rising else torch.ones_like(i)


def tables(weights: PositionWeights, irrelevant: Tensor) -> Tensor:
    """The table of each problem, shape (b, size)."""
    if weights.max_fpr == 0:
        return weights.table.expand(len(irrelevant), -1)
    n = torch.arange(int(irrelevant.max()) + 2, dtype=torch.float64, device=irrelevant.device)
    return (weights.max_fpr * irrelevant[:, None].double() - n).clamp(min=0)


def normaliser(weights: PositionWeights, relevant: Tensor, irrelevant: Tensor) -> Tensor:
    """z of each problem, shape (b,)."""
    z = torch.take(weights.z, relevant)  # and not weights.z[relevant], which waits for a single number
    return z * irrelevant.clamp(min=1) * weights.max_fpr if weights.max_fpr else z


def unit_epsilon(weights: PositionWeights, relevant: Tensor, irrelevant: Tensor) -> Tensor:
    """``2 z / (P N peak)`` of each problem, shape (b,): the unit of the automatic epsilon."""
    pairs = (relevant * irrelevant).clamp(min=1)
    return 2 * normaliser(weights, relevant, irrelevant) / (pairs * weights.peak)


def position_loss(n: Tensor, relevant: Tensor, irrelevant: Tensor, weights: PositionWeights) -> Tensor:
    """``best - 1/z sum_i m_i(n_i)``; 0 where nothing is relevant. ``n`` has shape (b, P), ascending."""
    P = n.shape[1]
    i = torch.arange(1, P + 1, device=n.device)
    table = tables(weights, irrelevant)
    at = (weights.base + weights.stride * i + n).clamp(max=table.shape[1] - 1)
    m = table.gather(1, at) * row_weights(weights, P, n.device)
    total = torch.where(i <= relevant[:, None], m, 0.0).sum(1)
    return torch.where(relevant > 0, weights.best[relevant] - total / normaliser(weights, relevant, irrelevant), 0.0)
