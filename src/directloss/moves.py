"""The gradient of the expected metric, exactly: move one item at a time.

Every score is perturbed, ``x = s + z``. If the noise of item d is uniform on ``(-h, h)``, its share of the gradient is

    d/ds_d E[ M(s + z) ]  =  E over the others [ M(d at s_d + h) - M(d at s_d - h) ] / (2 h)                   (moves)

because the derivative of an average over a window is the difference at its ends. One draw of the noise gives an
unbiased estimate for all items at once. There is no epsilon, no sign, and no loss-augmented inference.

*Rankings.* ``M = 1/z * sum of gain * m(C, N)`` over the items, where C and N are how many relevant and irrelevant items
(or how much of their weight) rank at or above an item. Sort the perturbed scores once. On its way up, item d overtakes
the items between its place and the place ``a`` of ``s_d + h``; on its way down, those between its place and the
place ``b`` of ``s_d - h`` overtake it. Each of them is worth ``m`` with d above it, or ``m`` without:

    up    = sum over a .. d-1  of  gain * (m(C + w, N) - m(C, N))       if d is relevant, with weight w (usually 1)
    down  = sum over d+1 .. b  of  gain * (m(C, N) - m(C - w, N))       an irrelevant d moves N instead of C
    own   = gain of d * (m at place a  -  m at place b)
    gradient of M = (own + up + down) / (2 h z)

which takes prefix sums, O(n log n) in all.

*Decisions.* Item d says yes with probability ``p = sigmoid(s_d / noise)``. Draw all decisions and count them; then

    gradient of M = E[ M(counts, d says yes) - M(counts, d says no) ] * p (1 - p) / noise

*Classes.* The expected loss has a closed form, ``sum_c softmax(s / noise)_c * cost_c``. A mean over classes of a metric
of decisions moves one row at a time from class to class (`choose_classes`).

All of this is tensor operations of fixed shapes, for any device and compiler; `directloss.kernels.compiled.advance` is
a faster twin of the ranking part for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from directloss._checks import precise

Worth = Callable[[Tensor, Tensor], Tensor]
"""``m(C, N)``, in the shape of its arguments."""
Metric = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A function of true positives, false positives, false negatives and true negatives."""


class Lists(NamedTuple):
    """Ranked lists ``(..., n)`` as a metric sees them; float64 where the device has it."""

    sizes: Tensor
    """How much each item adds to C (row 0) and to N (row 1): its weight, or 0, as for padding. ``(2, ..., n)``."""
    worth: Worth
    z: Tensor
    """The normaliser, ``(..., 1)``."""
    gain: Tensor | None = None
    """What the place of an item counts, ``(..., n)``; None if that is what it adds to C."""
    weights: tuple[float, ...] = (1.0,)
    """The distinct sizes of items, ascending."""


class Moved(NamedTuple):
    """How the metric changes as each item moves, averaged over draws, ``(..., n)``."""

    slope: Tensor
    """The gradient of the expected metric."""
    curvature: Tensor | None = None
    """The second difference ``[M(s_d + h) - 2 M(s_d) + M(s_d - h)] / h^2``."""


def move_items(lists: Lists, scores: Tensor, noisy: Tensor, width: float, curvature: bool = False) -> Moved:
    """The gradient of the expected metric of ranked lists.

    Args:
        lists: the lists ``(..., n)`` and their metric.
        scores: without noise, ``(..., n)``.
        noisy: the perturbed scores, ``(draws, ..., n)``; padding is minus infinity.
        width: the half-width h of the noise.
        curvature: whether to compute the second difference as well.
    """
    ordered, order = (-noisy).sort(dim=-1)
    centre = -scores.expand_as(noisy).gather(-1, order)
    # How many items are above each end of the window; below its own place, that includes the item itself.
    up, down = torch.searchsorted(ordered, centre - width), torch.searchsorted(ordered, centre + width, right=True)
    sizes = lists.sizes.unsqueeze(1).expand(2, *noisy.shape).gather(-1, order.expand(2, *order.shape))
    gain = sizes[0] if lists.gain is None else lists.gain.expand_as(noisy).gather(-1, order)
    moved = [_between(lists, gain, sizes, up, down) / (2 * width * lists.z)]
    if curvature:
        middle = torch.searchsorted(ordered, centre)
        upper, lower = _between(lists, gain, sizes, up, middle), _between(lists, gain, sizes, middle, down)
        moved.append((upper - lower) / (width**2 * lists.z))
    return Moved(*(torch.zeros_like(part).scatter(-1, order, part).mean(0) for part in moved))


def _between(lists: Lists, gain: Tensor, sizes: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """How much higher the sum of ``gain * m`` is with each item at place ``up`` than at ``down``; lists are sorted."""
    ends, (least, *heavier) = torch.stack((up, down)), lists.weights
    values = _between_for(lists.worth, gain, sizes, ends, least, least)
    for weight in heavier:
        others = _between_for(lists.worth, gain, sizes, ends, weight, least)
        values = torch.where(sizes.sum(0) == weight, others, values)
    return values


def _between_for(worth: Worth, gain: Tensor, sizes: Tensor, ends: Tensor, weight: float, least: float) -> Tensor:
    """`_between` for the items of size ``weight``; for others the result is meaningless."""
    counts = pad(sizes.cumsum(-1), (1, 0))
    n, both = sizes.shape[-1], ends.expand(2, *ends.shape)
    below = ends > torch.arange(n, device=ends.device)  # its own place: it is counted among the items above
    own = counts.unsqueeze(1).expand(-1, 2, *counts.shape[1:]).gather(-1, both)
    own = torch.where(below, own, own + sizes.unsqueeze(1))
    # All items as they are; with one more, relevant or irrelevant, above them; with one less.
    step = weight * torch.eye(2, dtype=sizes.dtype, device=sizes.device)
    steps = torch.cat((0 * step[:, :1], step, -step), 1).reshape(2, 5, *(1,) * (sizes.dim() - 1))
    C, N = torch.cat((counts[..., 1:].unsqueeze(1) + steps, own), 1)
    # Counts out of range are not used, but 0 * m must not be 0 * infinity.
    worths = gain * worth(C.clamp(min=least), N.clamp(min=0))
    here, more, less = worths[:1], worths[1:3], worths[3:5]
    # Passed by an item that comes from below, or by one that is counted above. Prefix sums: (class of item, 2, ..., n).
    sums = pad(torch.stack((more - here, here - less), 1).cumsum(-1), (1, 0))
    offset = (sums[:, 0, ..., :-1] - sums[:, 1, ..., 1:]).unsqueeze(1)
    sums = sums.movedim(1, -2).flatten(-2).unsqueeze(1)
    passed = (
        sums.expand(2, 2, *sums.shape[2:]).gather(-1, (ends + (n + 1) * below).expand(2, *ends.shape)) + offset * below
    )
    passed = passed[:, 1] - passed[:, 0]
    return worths[5] - worths[6] + torch.where(sizes[0] > 0, passed[0], passed[1])


def flip_decisions(
    metric: Metric, scores: Tensor, members: Tensor, uniform: Tensor, noise: float, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The metric of decisions, shape ``(...)``, and the gradient of the expected metric, ``(..., n)``.

    Args:
        metric: a function of the counts.
        scores: shape ``(..., n)``.
        members: which items are positive and which are negative, ``(2, ..., n)``; padding is neither.
        uniform: random numbers between 0 and 1, ``(draws, ..., n)``.
        noise: the scale of the logistic noise.
        weight: how much each item counts, ``(..., n)``; None for 1.
    """
    likely = torch.sigmoid(scores / noise)
    # The first are the decisions without noise.
    yes = torch.cat(((scores > 0).unsqueeze(0), uniform < likely))
    values, gains = _gains_of_yes(metric, yes, members, weight)
    slope = gains[1:].to(scores.dtype).mean(0) * (likely * (1 - likely) / noise)
    return values[0], slope * members.any(0)


def choose_classes(
    metric: Metric, scores: Tensor, chosen: Tensor, members: Tensor, share: Tensor, noise: float
) -> Tensor:
    """The gradient of the expected mean over classes of a metric of decisions, shape ``(..., t, c)``.

    With all other rows where they are, a row that moves from its class to class k changes the counts of these two
    alone: it gains what one more yes is worth to class k, ``g_k``. So with ``p = softmax(scores / noise)`` the gradient
    is ``p_k (g_k - sum_j p_j g_j) / noise``.

    Args:
        metric: a function of the counts.
        scores: shape ``(..., t, c)``.
        chosen: the classes drawn for the rows, ``(draws, ..., t)``.
        members: which rows belong to a class, and which to another, ``(2, ..., c, t)``.
        share: how much each class counts, ``(..., c)``.
        noise: the scale of the Gumbel noise.
    """
    yes = chosen.unsqueeze(-2) == torch.arange(scores.shape[-1], device=scores.device)[:, None]
    gains = _gains_of_yes(metric, yes, members)[1].mean(0) * share.unsqueeze(-1)
    return expected_cost_slope(
        scores, gains.transpose(-1, -2).to(scores.dtype) * members.any(0).transpose(-1, -2), noise
    )


def _gains_of_yes(metric: Metric, yes: Tensor, members: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The metric of decisions ``(draws, ..., n)``, and how much better it is if each item says yes, not no."""
    counts = confusion(yes, members, weight).unsqueeze(-1)
    # One step for the positives and one for the negatives; with weights, one for each item.
    steps = torch.eye(2, dtype=counts.dtype, device=counts.device) if weight is None else members * weight
    # One more yes is one no less.
    shift = torch.cat((steps, -steps)).reshape(4, 1, *(1,) * (counts.dim() - steps.dim()), *steps.shape[1:])
    values = metric(*(counts.unsqueeze(1) + torch.cat((shift, 0 * shift, -shift), 1)).clamp(min=0))
    gains = values[:2] - values[1:]  # where the item said no, and where it said yes
    if weight is None:
        gains = torch.where(members[0], gains[..., :1], gains[..., 1:])
    return values[1, ..., 0], torch.where(yes, gains[1], gains[0])


def confusion(yes: Tensor, members: Tensor, weight: Tensor | None = None) -> Tensor:
    """True and false positives, false and true negatives of decisions ``(draws, ..., n)``: ``(4, draws, ...)``, float64
    where there is one.
    """
    members = members if weight is None else precise(members) * weight
    chosen, whole = (precise(one.sum(-1)) for one in (yes * members.unsqueeze(1), members))
    return torch.cat((chosen, whole.unsqueeze(1) - chosen))


def expected_cost_slope(scores: Tensor, costs: Tensor, noise: float) -> Tensor:
    """The gradient of ``sum_c softmax(s / noise)_c * cost_c``, shape ``(..., c)``."""
    likely = torch.softmax(scores / noise, -1)
    return likely * (costs - (likely * costs).sum(-1, keepdim=True)) / noise
