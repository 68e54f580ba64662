"""The best flips of decisions in a few tensor operations, for accelerators: no synchronisation, fixed shapes.

`directloss.kernels.flips` states the problem: flip the cheapest ``i`` positives and ``j`` negatives, for the highest
``sign * L(i, j) - X_i - Y_j``. If L is linear at a fixed number of predicted positives, that is, along each line
``j - i = gap``, one more step on a line gains its slope and costs ``x_i + y_j``, which grows: the maximum of the line
is where the cost exceeds the slope. It is found by counting, with all steps of all lines in one matrix, in pieces of
`CELLS`. For IoU, where j is fixed on a line, a search replaces the matrix. Both signs are processed together.

Dimensions: class (negatives, positives), sign, draw, the problems ``b``, and items or lines.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from directloss.task import Solve, Solved

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""L as a function of tp, fp, fn, tn."""

CELLS = 1 << 25
"""Steps to process at once, at five bytes each."""
LONGEST = 8192
"""Longer lists go to the host: the matrix grows with the square of the list."""
SMALLEST = 1e-25
"""The smallest price that float32 can tell from zero, with room for sums."""
ROUNDING = 16
"""Differences of losses below this multiple of the machine epsilon are ignored."""


def solve(scores: Tensor, target: Tensor, loss: Loss, line: str, how: Solve) -> Solved:
    """Losses of the scores ``(b, n)``, and the gradient averaged over the draws ``(draws, b, n)``, if any."""
    noisy, ones = how.noisy, (1,) * target.dim()
    both = torch.arange(2, device=target.device)
    members = target == both.reshape(2, *ones)
    lists = scores.unsqueeze(0) if noisy is None else torch.cat((scores.to(noisy.dtype).unsqueeze(0), noisy))
    kind, chosen = torch.promote_types(lists.dtype, torch.float32), lists > 0
    yes = (members.unsqueeze(1) & chosen).sum(-1, dtype=kind)
    size = members.sum(-1, dtype=kind)
    no = size.unsqueeze(1) - yes
    counted = size.sum(0) > 0 if how.padded else None
    if noisy is None:
        return Solved(_loss(loss, yes[:, 0], no[:, 0]), None, counted)
    # Sign +1 flips right decisions: a yes of the positives, a no of the negatives. Sign -1 flips wrong ones.
    signs = both if len(how.signs) == 2 else both[:1] if how.signs[0] > 0 else both[1:]
    wanted = both.reshape(2, 1, 1, *ones) != signs.reshape(-1, 1, *ones)
    able = members[:, None, None] & (chosen[1:] == wanted)
    price, places = torch.where(able, noisy.abs(), torch.inf).sort(dim=-1, stable=True)
    yes, first_yes = yes[:, None, 1:, ..., None], yes[:, 0]
    no, first_no = no[:, None, 1:, ..., None], no[:, 0]
    n, sloping = target.shape[-1], line == "predicted"
    # Lines are numbered by j - i, or by j.
    lines = torch.arange(-n if sloping else 0, n + 1, device=target.device)
    ends = _ends(torch.where(wanted, yes, no), lines, sloping)
    way = 1 - 2 * wanted
    # One call for the scores, epsilon and both ends of all lines, as the metric takes many operations.
    moved = ends * way.unsqueeze(1)
    # One false alarm, one miss, none.
    mistakes = both.unsqueeze(1) == torch.arange(3, device=target.device)
    wrong = torch.minimum(size.unsqueeze(1), mistakes.reshape(2, 3, *ones[1:]))
    right = size.unsqueeze(1) - wrong
    known_yes, known_no = torch.stack((wrong[0], right[1])), torch.stack((right[0], wrong[1]))
    parts_yes = (first_yes, known_yes, yes.unsqueeze(1) + moved)
    parts_no = (first_no, known_no, no.unsqueeze(1) - moved)
    values = _loss(loss, *(torch.cat([one.reshape(2, -1) for one in parts], 1) for parts in (parts_yes, parts_no)))
    count = first_yes[0].numel()
    clean, known, values = values[:count], values[count : 4 * count], values[4 * count :]
    unit = _unit(how, known.reshape(3, *size.shape[1:]), size)
    # No flip is free, so the plain decisions stay unless something is better.
    price = (price * unit.unsqueeze(-1)).clamp_(min=SMALLEST)
    number = _flips(values.reshape(moved.shape[1:]) * way[0], ends, lines, price, sloping)
    done = lines[-n - 1 : -1] < number
    flips = done.scatter(-1, places, done).sum((1, 2))
    slope = (flips[0] - flips[1]) * (unit / (len(how.signs) * len(noisy))).unsqueeze(-1)
    return Solved(clean.reshape(size.shape[1:]), slope, counted)


def _loss(loss: Loss, yes: Tensor, no: Tensor) -> Tensor:
    (fp, tp), (tn, fn) = yes, no
    return loss(tp, fp, fn, tn)


def _unit(how: Solve, known: Tensor, size: Tensor) -> Tensor:
    """``1 / (items * epsilon)``, the price of a score of 1, shape ``b``."""
    items = size.sum(0).clamp(min=1)
    if not how.automatic:
        return 1 / (items * how.epsilon).to(items.dtype).clamp(SMALLEST, 1 / SMALLEST)
    # As in CountTask.unit_epsilon; the number of items cancels.
    stake = known.amax(0) - known[2]
    return torch.where(stake > 0, stake, 1 / items) / how.epsilon


def _ends(moves: Tensor, lines: Tensor, sloping: bool) -> Tensor:
    """How many of each class are flipped at the first and the last step of each line; shape (2, 2, ..., lines)."""
    negatives, positives = moves
    first = (-lines).clamp(min=0)
    last = torch.minimum(positives, negatives - lines).maximum(first) if sloping else positives + first
    steps = torch.stack((first.expand_as(last), last))
    return torch.minimum(torch.stack((_of_negatives(steps, lines, sloping), steps)), moves.unsqueeze(1))


def _of_negatives(steps: Tensor, lines: Tensor, sloping: bool) -> Tensor:
    """How many negatives are flipped along with this many positives."""
    return steps + lines if sloping else lines.expand_as(steps)


def _flips(values: Tensor, ends: Tensor, lines: Tensor, price: Tensor, sloping: bool) -> Tensor:
    """How many of each class to flip, shape (2, ..., 1), given the losses at the ends of the lines."""
    rounding = ROUNDING * torch.finfo(values.dtype).eps
    (at_first, at_last), (first, last) = values, ends[1]
    slope = (at_last - at_first - rounding) / (last - first).clamp(min=1)
    steps = _steps_below(price, slope) if sloping else torch.searchsorted(price[1], slope)
    number = torch.stack((_of_negatives(steps, lines, sloping), steps)).clamp(0, price.shape[-1])
    cost = pad(price.cumsum(-1), (1, 0)).gather(-1, number).sum(0)
    value = at_first + slope * (steps - first) - cost
    # Among equally good outputs, the cheapest.
    worse = value < value.amax(-1, keepdim=True) - rounding
    best = cost.masked_fill(worse, torch.inf).argmin(-1, keepdim=True)
    return number.gather(-1, best.expand(2, *best.shape))


def _steps_below(price: Tensor, level: Tensor) -> Tensor:
    """How many steps of each line cost less than its level."""
    n = price.shape[-1]
    negatives = pad(pad(price[0], (n, 0), value=-torch.inf), (0, n), value=torch.inf).unfold(-1, n, 1)
    positives, level = price[1].unsqueeze(-2), level.unsqueeze(-1)
    width = max(1, CELLS // price[1].numel())
    pieces = [slice(start, start + width) for start in range(0, level.shape[-2], width)]
    found = [(positives + negatives[..., some, :] < level[..., some, :]).sum(-1) for some in pieces]
    return found[0] if len(found) == 1 else torch.cat(found, -1)
