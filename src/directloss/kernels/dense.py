"""Rankings in a few tensor operations, for accelerators: no synchronisation, no data-dependent shapes.

For sign +1 and weights that are convex in the rank, the best place of each irrelevant item does not depend on the
others (see the package docstring), so the augmented ranking is one argmax per row of a dense matrix: row j holds what
irrelevant item j gains, less what it costs, when it moves up past 1, 2, ... relevant items, summed outwards from its
predicted place. The matrix is n x n, because only the device knows P and N; it is processed in pieces of `CELLS`.
Everything has the dtype of the scores, float32 or wider.

`solve` sorts lists in ascending order, with the relevant and the irrelevant items at the end of their rows, so place c
of n is item ``n - c`` from the top. The places in front of them have score minus infinity.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from directloss.kernels import PositionWeights, largest

CELLS = 1 << 23
"""Cells of the matrix to process at once."""
LONGEST = 8192
"""Longer lists go to the host: the matrix grows with the square of the list."""
SMALLEST = 1e-25
"""The smallest gain, relative to the scores, that float32 can tell from zero."""


def solve(
    scores: Tensor,
    noisy: Tensor | None,
    target: Tensor,
    weights: PositionWeights,
    epsilon: float | Tensor = 1.0,
    automatic: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Losses of ``scores`` ``(b, n)``; the gradient ``(dF(y_direct) - dF(y_w)) / epsilon``, averaged over the draws
    ``noisy`` ``(draws, b, n)``; and which lists have relevant and irrelevant items, ``b``.

    With ``automatic``, epsilon is in units of ``2 z / (P N peak)``.
    """
    target = target.flip(-1)  # among equal scores the first is on top
    members = target == torch.arange(1, -1, -1, device=target.device).reshape(2, *(1,) * target.dim())
    relevant, irrelevant = members.sum(-1)
    pairs = relevant * irrelevant
    lists = scores.unsqueeze(0) if noisy is None else torch.cat((scores.to(noisy.dtype).unsqueeze(0), noisy))
    lists = torch.nan_to_num(lists, nan=largest(lists.dtype)).flip(-1)
    known = torch.where(members.unsqueeze(1), lists, -torch.inf).contiguous()
    ordered, items = known.sort(dim=-1, stable=True)
    a, b = ordered
    place = torch.arange(a.shape[-1], device=a.device)
    top = a.shape[-1] - place
    n_w = _above_relevant(a, b, place)
    weights = weights._replace(tables=weights.tables.to(lists.dtype))
    z = normaliser(weights, relevant, irrelevant)
    loss = position_loss(n_w[0].flip(-1), relevant, irrelevant, weights)
    if noisy is None:
        return loss, None, pairs > 0
    a, b, n_w = a[1:], b[1:], n_w[1:]
    places = (-top).expand_as(n_w).contiguous()
    p_w = _count_below(n_w, places)
    reach = (2 * epsilon / weights.peak * z if automatic else pairs * epsilon).to(a.dtype)
    p = _best_places(a, b, p_w, weights, _clamped(reach / (2 * z)), irrelevant, top)
    n = _count_below(p, places)
    unit = (-2 / len(noisy)) / _clamped(reach)
    change = torch.stack((n - n_w, p - p_w)) * unit.unsqueeze(-1)
    slope = change.scatter(-1, items[:, 1:], change).sum((0, 1)).flip(-1)
    return loss, slope, pairs > 0


def _clamped(size: Tensor) -> Tensor:
    return size.clamp(SMALLEST, 1 / SMALLEST)


def _above_relevant(a: Tensor, b: Tensor, place: Tensor) -> Tensor:
    """n_i of the prediction, with ties spread evenly; n for empty places."""
    n = a.shape[-1]
    above, among = torch.searchsorted(b, a, right=True), torch.searchsorted(a, a, right=True)
    tied_b, tied_a = above - torch.searchsorted(b, a), among - torch.searchsorted(a, a)
    rank = among - place
    # ceil(rank * tied_b / tied_a) of the tied items rank above as well.
    tied = (rank * tied_b - 1).div(tied_a, rounding_mode="floor")
    return (tied - above + (n + 1)).masked_fill(a == -torch.inf, n)


def _count_below(numbers: Tensor, places: Tensor) -> Tensor:
    """How many of the descending numbers are below each place from the top: p from n, and n from p."""
    return numbers.shape[-1] - torch.searchsorted(-numbers, places, right=True)


def _best_places(
    a: Tensor, b: Tensor, p_w: Tensor, weights: PositionWeights, width: Tensor, irrelevant: Tensor, top: Tensor
) -> Tensor:
    """The best p of each irrelevant item, descending as the places ascend."""
    n = a.shape[-1]
    gains, width = None, width.unsqueeze(-1)
    if weights.linear:  # every exchange has the same gain
        b = b + width
    elif weights.stride == 0:  # all exchanges of a row have the same gain
        b = b + width * (weights.max_fpr * irrelevant.unsqueeze(-1) - (top - 1)).clamp(0.0, 1.0)
    else:
        gains = _times_u(pad(weights.drop[: n + 1], (0, n)).flip(0).unfold(0, n, 1)[:n], weights, top)
    rows = max(1, CELLS // a.numel())
    found = []
    for start in range(0, n, rows):
        some = slice(start, start + rows)
        value = b[..., some, None] - a.unsqueeze(-2)
        if gains is not None:
            value = torch.addcmul(value, width.unsqueeze(-1), gains[some])
        value = value.masked_fill_(top > p_w[..., some, None], 0.0).cumsum(-1)
        found.append(value.max(-1))
    best, at = (torch.cat(parts, -1) if len(found) > 1 else parts[0] for parts in zip(*found, strict=True))
    # Rounding must not swap two items.
    return torch.where(best > 0, n - 1 - at, p_w).cummin(-1).values


def position_loss(n: Tensor, relevant: Tensor, irrelevant: Tensor, weights: PositionWeights) -> Tensor:
    """``best - 1/z sum_i m_i(n_i)``; 0 where nothing is relevant.

    ``n`` has shape ``(..., size)``, ascending; entries beyond the number of relevant items are ignored.
    """
    i = torch.arange(1, n.shape[-1] + 1, device=n.device)
    if weights.max_fpr:
        worth = (weights.max_fpr * irrelevant.to(weights.table).unsqueeze(-1) - n).clamp(min=0)
    else:
        at = weights.base + weights.stride * i + n
        worth = _times_u(torch.take(weights.table, at.clamp(max=len(weights.table) - 1)), weights, i)
    total = torch.where(i <= relevant.unsqueeze(-1), worth, 0.0).sum(-1)
    loss = torch.take(weights.best, relevant) - total / normaliser(weights, relevant, irrelevant)
    return loss.masked_fill(relevant == 0, 0.0)


def _times_u(worth: Tensor, weights: PositionWeights, i: Tensor) -> Tensor:
    """``u_i * worth``."""
    if weights.first:
        return worth * (i == 1)
    return worth * i if weights.rising else worth


def normaliser(weights: PositionWeights, relevant: Tensor, irrelevant: Tensor) -> Tensor:
    """z of each problem, shape ``b``."""
    z = torch.take(weights.z, relevant)  # weights.z[relevant] would synchronise for a single number
    return z * irrelevant.clamp(min=1) * weights.max_fpr if weights.max_fpr else z


def unit_epsilon(weights: PositionWeights, relevant: Tensor, irrelevant: Tensor) -> Tensor:
    """``2 z / (P N peak)`` of each problem, shape ``b``: the unit of the automatic epsilon."""
    pairs = (relevant * irrelevant).clamp(min=1)
    return 2 * normaliser(weights, relevant, irrelevant) / (pairs * weights.peak)
