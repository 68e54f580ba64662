"""Rankings in tensor operations, for any device. Same results as `compiled`; the package's docstring has the formulas.

The way for convex weights has no loop over items: it refines all problems together, level by level, log2(N) times. The
table of choices takes one step per relevant item, each of them a running maximum over all irrelevant items at once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from directloss.kernels import PositionWeights


class Predicted(NamedTuple):
    """Rankings sorted by score; first dimension: problems, P and N their largest counts."""

    above: Tensor
    """(b, n) in the order of the input: items of the other class above each item; 0 for padding."""
    relevant: Tensor
    """(b,) number of relevant items."""
    irrelevant: Tensor
    a: Tensor
    """(b, P) scores of the relevant items, descending, centred and scaled, 0 behind the last."""
    b: Tensor
    item_a: Tensor
    """(b, P) where they stand in the input; n behind the last."""
    item_b: Tensor
    n_w: Tensor
    """(b, P) irrelevant items above each relevant one."""
    p_w: Tensor
    """(b, N) relevant items above each irrelevant one."""
    scale: Tensor
    """(b,) factor between the scores of the input and ``a``, ``b``."""


def predict(scores: Tensor, target: Tensor) -> Predicted:
    """Sort each problem and count who stands above whom, ties spread evenly."""
    size = scores.shape[1]
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
    relevant, irrelevant = count_a[:, -1], count_b[:, -1]
    unit, scale = _unit_range(values, (relevant + irrelevant), is_a | is_b)
    P, N = int(relevant.max()), int(irrelevant.max())
    place_a = torch.where(is_a, count_a - 1, P)
    place_b = torch.where(is_b, count_b - 1, N)
    return Predicted(
        torch.zeros_like(order).scatter_(1, order, counts),
        relevant,
        irrelevant,
        _compact(unit, place_a, P, 0.0),
        _compact(unit, place_b, N, 0.0),
        _compact(order, place_a, P, size),
        _compact(order, place_b, N, size),
        _compact(counts, place_a, P, 0),
        _compact(counts, place_b, N, 0),
        scale,
    )


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


def _unit_range(values: Tensor, size: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Scores centred and scaled to range 1, which changes no ranking and keeps sums of huge or tiny scores accurate."""
    high = values[:, :1]
    low = values.gather(1, (size - 1).clamp(min=0)[:, None])
    centre = 0.5 * high + 0.5 * low
    # A power of two, so that scaling rounds nothing and equally good rankings stay equally good.
    exponent = torch.frexp((0.5 * high - 0.5 * low).clamp(min=1e-300)).exponent
    scale = torch.exp2(-exponent.double())
    return torch.where(real, (values - centre) * scale, 0.0), scale[:, 0]


def _compact(values: Tensor, place: Tensor, width: int, fill: float) -> Tensor:
    """Scatter into ``width`` places; what goes to place ``width`` is dropped."""
    return values.new_full((values.shape[0], width + 1), fill).scatter_(1, place, values)[:, :width]


def row_weights(weights: PositionWeights, count: int, device: torch.device) -> Tensor:
    """u_1 ... u_count."""
    i = torch.arange(1, count + 1, device=device, dtype=torch.float64)
    return (i == 1).double() if weights.first else weights.alpha + weights.beta * i


def tables(weights: PositionWeights, irrelevant: Tensor) -> Tensor:
    """The table of each problem, shape (b, size)."""
    if weights.max_fpr == 0:
        return weights.table.expand(len(irrelevant), -1)
    n = torch.arange(int(irrelevant.max()) + 2, dtype=torch.float64, device=irrelevant.device)
    return (weights.max_fpr * irrelevant[:, None].double() - n).clamp(min=0)


def normaliser(weights: PositionWeights, relevant: Tensor, irrelevant: Tensor) -> Tensor:
    """z of each problem, shape (b,)."""
    z = weights.z[relevant]
    return z * weights.max_fpr * irrelevant.clamp(min=1) if weights.max_fpr else z


def position_loss(n: Tensor, relevant: Tensor, irrelevant: Tensor, weights: PositionWeights) -> Tensor:
    """``best - 1/z sum_i m_i(n_i)``; 0 where nothing is relevant. ``n`` has shape (b, P), ascending."""
    P = n.shape[1]
    i = torch.arange(1, P + 1, device=n.device)
    table = tables(weights, irrelevant)
    at = (weights.base + weights.stride * i + n).clamp(max=table.shape[1] - 1)
    m = table.gather(1, at) * row_weights(weights, P, n.device)
    total = torch.where(i <= relevant[:, None], m, 0.0).sum(1)
    return torch.where(relevant > 0, weights.best[relevant] - total / normaliser(weights, relevant, irrelevant), 0.0)


def augment(predicted: Predicted, weights: PositionWeights, epsilon: Tensor, sign: int) -> Tensor:
    """Who stands above whom in the loss-augmented ranking, shape (b, n)."""
    P, N = predicted.a.shape[1], predicted.b.shape[1]
    if P == 0 or N == 0:
        return predicted.above
    relevant, irrelevant = predicted.relevant, predicted.irrelevant
    c = 0.5 * predicted.scale * epsilon * (relevant * irrelevant) / normaliser(weights, relevant, irrelevant)
    if weights.monotone(sign):
        p = _positions_first(predicted, weights, c, sign)
        n = torch.searchsorted(p.contiguous(), torch.arange(1, P + 1, device=p.device).expand(len(p), P).contiguous())
        n = torch.minimum(n, irrelevant[:, None])
    else:
        n = _table_of_choices(predicted, weights, c, sign)
        behind = torch.arange(P, device=n.device) >= relevant[:, None]
        counted = torch.where(behind, N + 1, n).contiguous()
        p = torch.searchsorted(counted, torch.arange(1, N + 1, device=n.device).expand(len(n), N).contiguous())
    width = predicted.above.shape[1]
    out = predicted.above.new_zeros(len(predicted.above), width + 1)
    out.scatter_(1, predicted.item_a, n).scatter_(1, predicted.item_b, p)
    degenerate = (relevant == 0) | (irrelevant == 0)
    return torch.where(degenerate[:, None], predicted.above, out[:, :width])


def _positions_first(predicted: Predicted, weights: PositionWeights, c: Tensor, sign: int) -> Tensor:
    """argmax over p of ``G_j(p) = A_p - p b_j + sign c T_j(p)`` for each j, from coarse to fine; see `compiled`."""
    N = predicted.b.shape[1]
    A = torch.nn.functional.pad(predicted.a.cumsum(1), (1, 0))
    table = tables(weights, predicted.irrelevant)
    last = predicted.relevant[:, None]
    # Column j of `p` is item j, counted from 1; columns 0 and beyond the last item are the bounds of the search.
    p = torch.cat((torch.zeros_like(last), last.expand(-1, N + 1)), 1).clone()
    step = 1 << (N.bit_length() - 1)
    while step >= 1:
        j = torch.arange(step, N + 1, 2 * step, device=p.device)
        low, high = p[:, j - step], p[:, (j + step).clamp(max=N + 1)]
        bound = torch.where(j <= predicted.irrelevant[:, None], predicted.p_w[:, j - 1], last)
        low, high = (low, torch.minimum(high, bound)) if sign > 0 else (torch.maximum(low, bound), high)
        found = _best_in_ranges(predicted, weights, table, A, c, sign, j, low, high)
        p[:, j] = torch.where(j <= predicted.irrelevant[:, None], found, last)
        step //= 2
    return p[:, 1 : N + 1]


def _best_in_ranges(
    predicted: Predicted, weights: PositionWeights, table: Tensor, A: Tensor, c: Tensor, sign: int,
    j: Tensor, low: Tensor, high: Tensor,
) -> Tensor:  # fmt: skip
    """The best p of each range [low, high]; all ranges of all problems laid end to end."""
    length = (high - low + 1).clamp(min=1).flatten()
    cell = torch.repeat_interleave(length)
    inside = torch.arange(len(cell), device=cell.device) - (length.cumsum(0) - length)[cell]
    p = low.flatten()[cell] + inside
    problem, column = cell.div(len(j), rounding_mode="floor"), cell % len(j)
    j_here = j[column]
    score = predicted.b[problem, j_here - 1]
    gain = _gain(weights, table, problem, p, j_here)
    value = A[problem, p] - p * score + sign * c[problem] * gain
    best = value.new_full((len(length),), -torch.inf).scatter_reduce_(0, cell, value, "amax")
    hit = value == best[cell]
    if sign > 0:
        nearest = p.new_full((len(length),), -1).scatter_reduce_(0, cell, torch.where(hit, p, -1), "amax")
    else:
        far = A.shape[1]
        nearest = p.new_full((len(length),), far).scatter_reduce_(0, cell, torch.where(hit, p, far), "amin")
    return nearest.reshape(low.shape)


def _gain(weights: PositionWeights, table: Tensor, row: Tensor, p: Tensor, j: Tensor) -> Tensor:
    """T_j(p) = sum over i > p of m_i(j - 1) - m_i(j), up to a term that does not depend on p."""
    if weights.stride == 0:
        return -p * (table[row, j - 1] - table[row, j])
    if weights.first:
        return torch.where(p > 0, table[row, j + 1] - table[row, j], 0.0)
    k = (p + j).clamp(max=table.shape[1] - 1)
    return (weights.alpha + weights.beta * (p + 1)) * table[row, k] - weights.beta * weights.prefix[k]


def _table_of_choices(predicted: Predicted, weights: PositionWeights, c: Tensor, sign: int) -> Tensor:
    """``best_i(m) = max(best_i(m - 1), best_{i-1}(m) + f_i(m))`` row by row, and back along the choices."""
    (count, P), N = predicted.a.shape, predicted.b.shape[1]
    device = c.device
    m = torch.arange(N + 1, device=device)
    B = torch.nn.functional.pad(predicted.b.cumsum(1), (1, 0))
    table = tables(weights, predicted.irrelevant)
    u = row_weights(weights, P, device)
    reach = predicted.irrelevant if weights.cutoff == 0 else predicted.irrelevant.clamp(max=weights.cutoff)
    best = B.new_zeros(count, N + 1)
    choices = []
    for i in range(P):
        row = predicted.n_w[:, i, None]
        # The window of an optimum. Among equally good cells the one nearest to the prediction is taken.
        window = (m >= row) & (m <= torch.maximum(row, reach[:, None])) if sign > 0 else m <= row
        at = (weights.base + weights.stride * (i + 1) + m).clamp(max=table.shape[1] - 1)
        f = B - m * predicted.a[:, i, None] - (sign * c * u[i])[:, None] * table[:, at]
        value = torch.where(window, best + f, -torch.inf)
        best = value.cummax(1).values
        strict = torch.nn.functional.pad(best[:, :-1], (1, 0), value=-torch.inf)
        taken = window & ((value > strict) if sign > 0 else (value >= strict))
        choices.append(torch.where(taken, m, -1).cummax(1).values.int())
        # Rows behind a problem's last relevant item change nothing.
        best = torch.where((i < predicted.relevant)[:, None], best, 0.0)
    n = predicted.n_w.clone()
    at = predicted.irrelevant
    for i in reversed(range(P)):
        real = i < predicted.relevant
        top = predicted.n_w[:, i] if sign < 0 else torch.maximum(predicted.n_w[:, i], reach)
        inside = torch.minimum(at, top)
        chosen = choices[i].gather(1, inside[:, None])[:, 0].long()
        at = torch.where(real, chosen, at)
        n[:, i] = torch.where(real, chosen, n[:, i])
    return n
