"""Rankings in few tensor operations, for accelerators: no synchronisation, and no shape that depends on the data.

For sign +1 and weights that are convex in the rank the best place of each irrelevant item does not depend on the others
(see the package's docstring), so that the augmented ranking is one arg max for each row of a dense matrix: row j holds
what irrelevant item j gains, less what it costs, when it moves up past 1, 2, ... relevant items, summed from its
predicted place outwards. The matrix is n x n, because P and N are known to the device alone; it is worked on in pieces
of `CELLS`. Everything is in the type of the scores, float32 or wider.

Lists are ascending here, and irrelevant and relevant items stand at the end of their rows, so that place c of n is item
``n - c`` from the top. What is in front of them has the score minus infinity.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from directloss.kernels import PositionWeights, largest
from directloss.kernels.tensor import normaliser

CELLS = 1 << 23
"""How many cells of the matrix are looked at in one go."""
LONGEST = 8192
"""Longer lists go to the host: the matrix grows as the square of the list."""
SMALLEST = 1e-25
"""The smallest gain, relative to scores, that float32 tells apart from none."""


def solve(
    scores: Tensor,
    noisy: Tensor | None,
    target: Tensor,
    weights: PositionWeights,
    epsilon: float | Tensor = 1.0,
    automatic: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Losses of ``scores`` ``(b, n)``; the mean over the draws ``noisy`` ``(draws, b, n)`` of the gradients,
    ``(dF(y_direct) - dF(y_w)) / epsilon``; and which lists have relevant and irrelevant items, ``b``.

    With ``automatic``, epsilon is in units of ``2 z / (P N peak)``.
    """
    target = target.flip(-1)  # of equal scores the first stands on top
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
    loss = torch.take(weights.best, relevant) - _total(weights, n_w[0], irrelevant, top) / z
    loss = loss.masked_fill(relevant == 0, 0.0)
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
    """n_i of the prediction, ties spread evenly; n for places without an item."""
    n = a.shape[-1]
    above, among = torch.searchsorted(b, a, right=True), torch.searchsorted(a, a, right=True)
    tied_b, tied_a = above - torch.searchsorted(b, a), among - torch.searchsorted(a, a)
    rank = among - place
    # ceil(rank * tied_b / tied_a) of the tied ones stand above as well.
    tied = (rank * tied_b - 1).div(tied_a, rounding_mode="floor")
    return (tied - above + (n + 1)).masked_fill(a == -torch.inf, n)


def _count_below(numbers: Tensor, places: Tensor) -> Tensor:
    """How many of the numbers, which descend, are less than each place from the top: p from n, and n from p."""
    return numbers.shape[-1] - torch.searchsorted(-numbers, places, right=True)


def _total(weights: PositionWeights, n_w: Tensor, irrelevant: Tensor, top: Tensor) -> Tensor:
    """``sum_i m_i(n_i)``, where n_i = n stands for no item."""
    n = n_w.shape[-1]
    if weights.max_fpr:
        worth = weights.max_fpr * irrelevant.unsqueeze(-1) - n_w
        worth = worth if weights.linear else worth.clamp(min=0)
        return worth.masked_fill(n_w == n, 0.0).sum(-1)
    if weights.first:
        return torch.take(weights.table, n_w[..., -1] + 1)
    worth = torch.take(weights.table, (n_w + top).masked_fill(n_w == n, 0))  # rank 0 has no weight
    return _weighed(worth, weights, top).sum(-1)


def _weighed(worth: Tensor, weights: PositionWeights, top: Tensor) -> Tensor:
    """Times u_i."""
    if weights.first:
        return worth * (top == 1)
    return worth * top if weights.rising else worth


def _best_places(
    a: Tensor, b: Tensor, p_w: Tensor, weights: PositionWeights, width: Tensor, irrelevant: Tensor, top: Tensor
) -> Tensor:
    """The best p of each irrelevant item, descending as the places ascend."""
    n = a.shape[-1]
    gains, width = None, width.unsqueeze(-1)
    if weights.linear:  # every exchange gains the same
        b = b + width
    elif weights.stride == 0:  # the gain is that of the row
        b = b + width * (weights.max_fpr * irrelevant.unsqueeze(-1) - (top - 1)).clamp(0.0, 1.0)
    else:
        gains = _weighed(pad(weights.drop[: n + 1], (0, n)).flip(0).unfold(0, n, 1)[:n], weights, top)
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
    # Rounding must not put two items in the wrong order.
    return torch.where(best > 0, n - 1 - at, p_w).cummin(-1).values
