"""The gradient of the expected metric, exactly: move one item at a time.

Every score is perturbed, ``x = s + z``. If the noise of item d is uniform on ``(-h, h)``, its share of the gradient is

    d/ds_d E[ M(s + z) ]  =  E over the others [ M(d at s_d + h) - M(d at s_d - h) ] / (2 h)                   (moves)

because the derivative of an average over a window is the difference at its ends. One draw of the noise gives an unbiased
estimate for all items at once. There is no epsilon, no sign, and no loss-augmented inference.

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

*Classes.* The expected loss has a closed form, ``sum_c softmax(s / noise)_c * cost_c``, which autograd differentiates.

All of this is tensor operations of fixed shapes, for any device and compiler; `directloss.kernels.moving` is a faster
twin of the ranking part for the CPU.
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
    """Ranked lists ``(..., n)`` as a metric sees them; all parts are float64 where the device has it."""

    gain: Tensor
    """What the place of an item counts, over z; 0 for items that do not count, such as padding. ``(..., n)``."""
    sizes: Tensor
    """How much each item adds to C (row 0) and to N (row 1): its weight, or 0. Padding adds nothing. ``(2, ..., n)``."""
    worth: Worth
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
    above = [torch.searchsorted(ordered, centre - width), torch.searchsorted(ordered, centre + width, right=True)]
    if curvature:
        above.append(torch.searchsorted(ordered, centre))
    gain = lists.gain.expand_as(noisy).gather(-1, order)
    sizes = lists.sizes.unsqueeze(1).expand(2, *noisy.shape).gather(-1, order.expand(2, *order.shape))
    least, *heavier = lists.weights
    values = _standing(lists.worth, gain, sizes, torch.stack(above), least, least)
    for weight in heavier:
        others = _standing(lists.worth, gain, sizes, torch.stack(above), weight, least)
        values = torch.where(sizes.sum(0) == weight, others, values)
    moved = [(values[0] - values[1]) / (2 * width)]
    if curvature:
        moved.append((values[0] + values[1] - 2 * values[2]) / width**2)
    return Moved(*(torch.zeros_like(part).scatter(-1, order, part).mean(0) for part in moved))


def _standing(worth: Worth, gain: Tensor, sizes: Tensor, above: Tensor, weight: float, least: float) -> Tensor:
    """The metric, up to a constant for each item, with the item at other places than its own.

    Lists are sorted. ``above`` ``(ends, ..., n)`` holds the places as a number of items above, with the item itself if
    the place is below its own. Only correct for items of size ``weight``.
    """
    counts = sizes.cumsum(-1)
    # Where nothing is relevant yet, nothing has a gain, but 0 * m must not be 0 * infinity.
    C, N = counts[0].clamp(min=least), counts[1]
    fewer = torch.where(weight < C, C - weight, C)
    moved = torch.stack((C, C + weight, C, fewer, C)), torch.stack((N, N, N + weight, N, (N - weight).clamp(min=0)))
    worths = gain * worth(*moved)
    # What each item gains if an item (relevant, irrelevant) stands above it: one from below it, one from above it.
    gains = torch.cat((worths[1:3] - worths[0], worths[0] - worths[3:5]))
    here = torch.arange(gain.shape[-1], device=gain.device)
    higher = above <= here
    sums, counts = pad(gains.cumsum(-1), (1, 0)), pad(counts, (1, 0))
    # Item d is below its own place among the items above it, but not above its own place.
    offset = sums[:2, ..., :-1] - sums[2:, ..., 1:]
    both = above.expand(2, *above.shape)
    sums, counts = (
        part.unsqueeze(-above.dim()).expand(*part.shape[:1], *above.shape[:-1], -1) for part in (sums, counts)
    )
    passed = torch.where(higher, sums[:2].gather(-1, both), sums[2:].gather(-1, both) + offset.unsqueeze(1))
    own = counts.gather(-1, both) + sizes.unsqueeze(1) * higher
    return gain * worth(own[0].clamp(min=least), own[1]) - torch.where(sizes[0] > 0, passed[0], passed[1])


def flip_decisions(
    metric: Metric, scores: Tensor, members: Tensor, uniform: Tensor, noise: float, weight: Tensor | None = None
) -> Tensor:
    """The gradient of the expected metric of decisions, shape ``(..., n)``, in the dtype of the scores.

    Args:
        metric: a function of the counts.
        scores: shape ``(..., n)``.
        members: which items are positive and which are negative, ``(2, ..., n)``; padding is neither.
        uniform: random numbers between 0 and 1, ``(draws, ..., n)``.
        noise: the scale of the logistic noise.
        weight: how much each item counts, ``(..., n)``; None for 1.
    """
    likely = torch.sigmoid(scores / noise)
    yes = uniform < likely
    counts = confusion(yes, members, weight).unsqueeze(-1)
    if weight is None:  # one step for the positives, one for the negatives
        steps = torch.eye(2, dtype=counts.dtype, device=counts.device)
    else:  # one for each item
        steps = members * weight
    # One more yes is one no less.
    shift = torch.cat((steps, -steps)).reshape(4, *(1,) * (counts.dim() - steps.dim()), *steps.shape[1:])
    moved = torch.stack((counts + shift, counts.expand((counts + shift).shape), counts - shift), 1).clamp(min=0)
    values = metric(*moved).to(scores.dtype)
    gains = values[:2] - values[1:]  # of a yes: for an item that said no, and for one that said yes
    if weight is None:
        gains = torch.where(members[0], gains[..., :1], gains[..., 1:])
    return torch.where(yes, gains[1], gains[0]).mean(0) * (likely * (1 - likely) / noise) * members.any(0)


def confusion(yes: Tensor, members: Tensor, weight: Tensor | None = None) -> Tensor:
    """True and false positives, false and true negatives, ``(4, ...)``, float64 where there is one."""
    if weight is None:
        chosen, whole = (precise(one.sum(-1)) for one in (yes & members.unsqueeze(1), members))
    else:
        chosen, whole = (precise(one * weight).sum(-1) for one in (yes & members.unsqueeze(1), members))
    return torch.cat((chosen, whole.unsqueeze(1) - chosen))


def expected_cost_slope(scores: Tensor, costs: Tensor, noise: float) -> Tensor:
    """The gradient of ``sum_c softmax(s / noise)_c * cost_c``, shape ``(..., c)``."""
    likely = torch.softmax(scores / noise, -1)
    return likely * (costs - (likely * costs).sum(-1, keepdim=True)) / noise
