"""The slow twin of compiled rankings: all of it in tensor operations, with the same results to the last bit.

`directloss.kernels` has the formulas. The way for convex weights has no loop over items: it refines all problems
together, level by level, log2(N) times. The table of choices takes one step per relevant item, each of them a running
maximum over all irrelevant items at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from directloss import kernels
from directloss.kernels import LEAST, Asked, PositionWeights, Rankings, bounded, dense
from directloss.kernels.dense import normaliser

BACKENDS = ("compiled", "twin")


@contextmanager
def use(backend: str) -> Iterator[None]:
    """Inside of the block, rankings are solved by the compiled loops or by this module."""
    with pytest.MonkeyPatch.context() as patch:
        if backend == "twin":
            patch.setattr(kernels, "_solve_compiled", solve)
        yield


def solve(scores: Tensor, target: Tensor, asked: Asked) -> Rankings:
    """As `kernels.solve_rankings`."""
    solved = kernels._solve_tensor(scores, target, asked)
    batch, shape = scores.shape[:-1], scores.shape
    rows, labels = scores.reshape(-1, shape[-1]), target.reshape(-1, shape[-1])
    steps = torch.as_tensor(asked.epsilon, dtype=torch.float64, device=scores.device).expand(batch).reshape(-1)
    if asked.automatic:
        steps = steps * dense.unit_epsilon(asked.weights, *solved.counts.reshape(-1, 2).unbind(1))
    slope, direct = None, None
    if asked.above == "augmented":
        direct = augment(predict(rows, labels), asked.weights, steps, asked.signs[0]).reshape(shape)
    if asked.gradient:
        draws = rows[None] if asked.noisy is None else asked.noisy.reshape(-1, *rows.shape)
        kind = solved.loss.dtype
        found = [gradient(one, labels, asked.weights, steps, sign, kind) for one in draws for sign in asked.signs]
        slope = (torch.stack(found) / len(found)).sum(0).reshape(shape)
    return solved._replace(gradient=slope, above_augmented=direct)


class Predicted(NamedTuple):
    """Rankings sorted by score; first dimension: problems, P and N their largest counts."""

    above: Tensor
    """(b, n) in the order of the input: items of the other class above each item; 0 for padding."""
    relevant: Tensor
    """(b,) number of relevant items."""
    irrelevant: Tensor
    a: Tensor
    """(b, P) scores of the relevant items, descending, scaled, 0 behind the last."""
    b: Tensor
    item_a: Tensor
    """(b, P) where they stand in the input; n behind the last."""
    item_b: Tensor
    n_w: Tensor
    """(b, P) irrelevant items above each relevant one."""
    p_w: Tensor
    """(b, N) relevant items above each irrelevant one."""
    scale: Tensor
    """(b,) factor between the scores of the input and ``a``, ``b``; 0 where all are equal."""


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


def _unit_range(values: Tensor, size: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Scores scaled by a power of two, which rounds nothing, to a range of about 1; by 0 where all are equal."""
    low = values.gather(1, (size - 1).clamp(min=0)[:, None])
    reach = 0.5 * values[:, :1] - 0.5 * low
    exponent = torch.frexp(reach).exponent.clamp(-1000, 1000)
    scale = torch.where(reach > 0, torch.exp2(-exponent.double()), 0.0)
    return torch.where(real, values * scale, 0.0), scale[:, 0]


def _compact(values: Tensor, place: Tensor, width: int, fill: float) -> Tensor:
    """Scatter into ``width`` places; what goes to place ``width`` is dropped."""
    return values.new_full((values.shape[0], width + 1), fill).scatter_(1, place, values)[:, :width]


def gradient(
    scores: Tensor, target: Tensor, weights: PositionWeights, epsilon: Tensor, sign: int, kind: torch.dtype
) -> Tensor:
    """``sign / epsilon * (dF(y_direct) - dF(y_w))`` of lists (b, n), epsilon of shape (b,); in the type ``kind``."""
    predicted = predict(scores, target)
    change = augment(predicted, weights, epsilon, sign) - predicted.above
    pairs = (predicted.relevant * predicted.irrelevant).clamp(min=1)
    unit = -2.0 * sign / (epsilon * pairs).clamp(min=LEAST)
    return bounded(unit[:, None] * change + 0.0, kind)  # and not -0.0


def augment(predicted: Predicted, weights: PositionWeights, epsilon: Tensor, sign: int) -> Tensor:
    """Who stands above whom in the loss-augmented ranking, shape (b, n)."""
    P, N = predicted.a.shape[1], predicted.b.shape[1]
    if P == 0 or N == 0:
        return predicted.above
    relevant, irrelevant = predicted.relevant, predicted.irrelevant
    width = predicted.scale * epsilon * (relevant * irrelevant / (2.0 * normaliser(weights, relevant, irrelevant)))
    width = torch.where(predicted.scale > 0, width, 1.0).clamp(LEAST, 1 / LEAST)
    if weights.monotone(sign):
        p = _positions_first(predicted, weights, width, sign)
        n = torch.searchsorted(p.contiguous(), torch.arange(1, P + 1, device=p.device).expand(len(p), P).contiguous())
        n = torch.minimum(n, irrelevant[:, None])
    else:
        n = _table_of_choices(predicted, weights, width, sign)
        behind = torch.arange(P, device=n.device) >= relevant[:, None]
        counted = torch.where(behind, N + 1, n).contiguous()
        p = torch.searchsorted(counted, torch.arange(1, N + 1, device=n.device).expand(len(n), N).contiguous())
    size = predicted.above.shape[1]
    out = predicted.above.new_zeros(len(predicted.above), size + 1)
    out.scatter_(1, predicted.item_a, n).scatter_(1, predicted.item_b, p)
    degenerate = (relevant == 0) | (irrelevant == 0)
    return torch.where(degenerate[:, None], predicted.above, out[:, :size])


def _positions_first(predicted: Predicted, weights: PositionWeights, width: Tensor, sign: int) -> Tensor:
    """The best p_j of each irrelevant item alone, from coarse to fine; see `compiled`."""
    N = predicted.b.shape[1]
    last = predicted.relevant[:, None]
    # Column j of `p` is item j, counted from 1; columns 0 and beyond the last item are the bounds of the search.
    p = torch.cat((torch.zeros_like(last), last.expand(-1, N + 1)), 1).clone()
    step = 1 << (N.bit_length() - 1)
    while step >= 1:
        j = torch.arange(step, N + 1, 2 * step, device=p.device)
        low, high = p[:, j - step], p[:, (j + step).clamp(max=N + 1)]
        real = j <= predicted.irrelevant[:, None]
        bound = torch.where(real, predicted.p_w[:, j - 1], last)
        low, high = (low, torch.minimum(high, bound)) if sign > 0 else (torch.maximum(low, bound), high)
        found = _best_in_ranges(predicted, weights, width, sign, j, low, torch.where(real, high, low))
        p[:, j] = torch.where(real, found, last)
        step //= 2
    return p[:, 1 : N + 1]


def _best_in_ranges(
    predicted: Predicted, weights: PositionWeights, width: Tensor, sign: int, j: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """The best p of each range [low, high], shapes (b, len(j)), from the end next to the prediction to the other."""
    problem = torch.arange(len(low), device=low.device)[:, None].expand_as(low).flatten()
    column = j.expand_as(low).flatten()
    at = (high if sign > 0 else low).flatten()
    length = (high - low).flatten()
    start, best, total = at.clone(), *torch.zeros(2, len(at), dtype=torch.float64, device=at.device)
    going, done, wide = (length > 0).nonzero()[:, 0], 0, 16
    # Most ranges are short: the first steps of all of them, then twice as many of those that go on, and so on.
    while len(going):
        steps = torch.arange(done, done + wide, device=at.device)
        inside = steps < length[going, None]
        i = torch.where(inside, start[going, None] - sign * steps + (sign < 0), 1)
        here, above = problem[going, None], column[going, None]
        cost = sign * (predicted.a[here, i - 1] - predicted.b[here, above - 1])
        change = torch.where(inside, _gain(predicted, weights, width, here, i, above) - cost, -torch.inf)
        path = torch.cat((total[going, None], change), 1).cumsum(1)[:, 1:]
        top, place = path.max(1)
        better = top > best[going]
        found = going[better]
        best[found], at[found] = top[better], start[found] - sign * (done + 1 + place[better])
        total[going] = path[:, -1]
        done, wide = done + wide, 2 * wide
        going = going[length[going] > done]
    return at.reshape(low.shape)


def _gain(
    predicted: Predicted, weights: PositionWeights, width: Tensor, problem: Tensor, i: Tensor, j: Tensor
) -> Tensor:
    """What an exchange of relevant item i and irrelevant item j changes in the metric, in units of scores."""
    if weights.stride == 0:
        inside = weights.max_fpr * predicted.irrelevant[problem].double() - (j - 1)
        return width[problem] * inside.clamp(0.0, 1.0)
    if weights.first:
        return torch.where(i == 1, width[problem] * weights.drop[1 + j], 0.0)
    return width[problem] * (i if weights.rising else 1) * weights.drop[i + j]


def _table_of_choices(predicted: Predicted, weights: PositionWeights, width: Tensor, sign: int) -> Tensor:
    """The best n_i in order, row by row, and back along the choices; see `compiled`."""
    (count, P), N = predicted.a.shape, predicted.b.shape[1]
    device = width.device
    # Column k is the cell m = k for sign +1, m = N - k for sign -1: rows start at the prediction and go to the right.
    m = torch.arange(N + 1, device=device) if sign > 0 else torch.arange(N, -1, -1, device=device)
    b = predicted.b if sign > 0 else predicted.b.flip(1)
    n_w = predicted.n_w if sign > 0 else N - predicted.n_w
    table = tables(weights, predicted.irrelevant)
    u = row_weights(weights, P, device)
    far = torch.full_like(predicted.irrelevant, N)
    if sign > 0:
        far = predicted.irrelevant if weights.cutoff == 0 else predicted.irrelevant.clamp(max=weights.cutoff)
    earning = P if sign > 0 else 1 if weights.first else min(P, weights.cutoff or P)
    k = torch.arange(N + 1, device=device)
    best = b.new_zeros(count, N + 1)
    order = list(range(P)) if sign > 0 else list(range(earning - 1, -1, -1))
    choices = []
    for i in order:
        low = n_w[:, i, None]
        window = (k >= low) & (k <= far[:, None])
        at = (weights.base + weights.stride * (i + 1) + m).clamp(max=table.shape[1] - 1)
        worth = table[:, at]
        gain = (width * u[i])[:, None] * (sign * (worth.gather(1, low) - worth))
        price = torch.where(k[:-1] >= low, sign * (predicted.a[:, i, None] - b), 0.0)
        value = torch.where(window, best + (gain - torch.nn.functional.pad(price.cumsum(1), (1, 0))), -torch.inf)
        top = value.cummax(1).values
        taken = window & (value > torch.nn.functional.pad(top[:, :-1], (1, 0), value=-torch.inf))
        choices.append(torch.where(taken, k, -1).cummax(1).values.int())
        # Rows that a problem does not have, or that stand behind the last cell already, change nothing.
        best = torch.where(((i < predicted.relevant)[:, None]) & window, top, best)
    n = predicted.n_w.clone()
    at = far
    for i, chosen in zip(reversed(order), reversed(choices), strict=True):
        moves = (i < predicted.relevant) & (n_w[:, i] <= far)
        at = torch.where(moves, chosen.gather(1, at[:, None])[:, 0].long(), at)
        n[:, i] = torch.where(moves, at if sign > 0 else N - at, n[:, i])
    return n
