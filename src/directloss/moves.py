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

All of this is tensor operations of fixed shapes, for any device and compiler. Faster twins for the CPU are
`directloss.kernels.compiled.advance` for rankings and `directloss.kernels.decisions` for decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from directloss.kernels import spread_evenly
from directloss.metrics.confusion import count

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
    """How the loss, ``-M``, changes as each item moves, averaged over draws, ``(..., n)``."""

    value: Tensor
    """The metric without noise, ``(..., 1)``; equal scores are spread evenly (if all items have the same size)."""
    slope: Tensor
    """The gradient of the expected loss."""
    curvature: Tensor | None = None
    """The second difference ``-[M(s_d + h) - 2 M(s_d) + M(s_d - h)] / h^2``."""


def move_items(
    lists: Lists, scores: Tensor, noisy: Tensor, width: float, mask: Tensor | None = None, curvature: bool = False
) -> Moved:
    """The metric of ranked lists, and the gradient of the expected loss.

    Args:
        lists: the lists ``(..., n)`` and their metric.
        scores: without noise, ``(..., n)``.
        noisy: the perturbed scores, ``(draws, ..., n)``, not farther than ``width`` from the scores.
        width: the half-width h of the noise.
        mask: True for real items, ``(..., n)``; the others go below all real ones.
        curvature: whether to compute the second difference as well.
    """
    # The first draw has no noise. Its window is a point, and the ends are those of the items with the same score.
    negated = -torch.cat((scores.unsqueeze(0), noisy))
    negated = negated if mask is None else torch.where(mask, negated, torch.inf)
    ordered, order = negated.sort(dim=-1)
    centre = negated[:1].expand_as(order).gather(-1, order)
    top, bottom = (torch.cat((centre[:1], centre[1:] + shift)) for shift in (-width, width))
    # How many items are above each end of the window; above the lower one, that includes the item itself.
    ends = [torch.searchsorted(ordered, top), torch.searchsorted(ordered, bottom, right=True)]
    if curvature:  # the place of the score without noise, if it is above the item's own place, and if it is below
        middle, own = torch.searchsorted(ordered, centre), torch.arange(order.shape[-1], device=order.device)
        ends = [ends[0], middle.minimum(own), ends[1], middle.maximum(own + 1)]
    sizes = lists.sizes.unsqueeze(1).expand(2, *order.shape).gather(-1, order.expand(2, *order.shape))
    gain = sizes[0] if lists.gain is None else lists.gain.expand_as(order).gather(-1, order)
    here, up, down = _heights(lists, gain, sizes, torch.unflatten(torch.stack(ends), 0, (2, -1)))
    moved = [(down[0] - up[0], 2 * width)]
    if curvature:
        moved.append((2 * (up[1] + down[1] - here) - up[0] - down[0], width**2))
    # Back to the order of the input, which overwrites every entry.
    parts = (negated.scatter(-1, order, part.to(negated.dtype))[1:].mean(0) / (by * lists.z) for part, by in moved)
    return Moved(here[0].sum(-1, keepdim=True) / lists.z, *parts)


def _heights(lists: Lists, gain: Tensor, sizes: Tensor, ends: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``gain * m`` of each item of sorted lists; and how much higher, up to a constant of the item, the sum over all
    items is with the item at the ends above its own place and at those below it.
    """
    here, heights = _heights_for(lists, gain, sizes, ends, lists.weights[0])
    for weight in lists.weights[1:]:
        heights = torch.where(sizes.sum(0) == weight, _heights_for(lists, gain, sizes, ends, weight)[1], heights)
    return here, heights[0], heights[1]


def _heights_for(lists: Lists, gain: Tensor, sizes: Tensor, ends: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    """`_heights` for the items of size ``weight``; for others the result is meaningless.

    Shapes: gain (draws, ..., n), sizes (2, draws, ..., n), ends (2, any, draws, ..., n).
    """
    counts = pad(sizes.cumsum(-1), (1, 0))
    above = counts[:, None, None].expand(2, *ends.shape[:2], *counts.shape[1:]).gather(-1, ends.expand(2, *ends.shape))
    (C, N), (more, less) = counts[..., 1:], (counts[..., 1:] + weight, counts[..., 1:] - weight)
    spread = torch.cat((spread_evenly(C[0], above[:, :, 0, 0]).unsqueeze(0), N[1:]))
    # With one more item above, relevant or irrelevant; as it is; with one less; and the item itself at its ends.
    top, bottom = above[:, 0] + sizes.unsqueeze(1), above[:, 1]
    Cs = more[0], C, C, C, less[0], C, *top[0], *bottom[0]
    Ns = N, more[1], spread, N, N, less[1], *top[1], *bottom[1]
    C, N = torch.unflatten(torch.stack(Cs + Ns), 0, (2, -1))
    # Counts out of range are not used, but 0 * m must not be 0 * infinity.
    worths = gain * lists.worth(C.clamp(min=lists.weights[0]), N.clamp(min=0))
    # What passing each item changes: on the way up (two classes of passing items), then on the way down.
    sums = torch.unflatten(pad((worths[:4] - worths[2:6]).cumsum(-1), (1, 0)), 0, (2, 1, 2))
    start = torch.stack((sums[0, ..., :-1], sums[1, ..., 1:]))
    index = ends.unsqueeze(2).expand(-1, -1, 2, *ends.shape[2:])
    passed = start - sums.expand(*index.shape[:-1], -1).gather(-1, index)
    return worths[2], torch.unflatten(worths[6:], 0, ends.shape[:2]) + torch.where(
        sizes[0] > 0, passed[:, :, 0], passed[:, :, 1]
    )


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
    likely = torch.sigmoid(divided(scores, noise))
    # The first are the decisions without noise.
    yes = torch.cat(((scores > 0).unsqueeze(0), uniform < likely))
    values, gains = _gains_of_yes(metric, yes, members, weight)
    return values[0], gains[1:].to(scores.dtype).mean(0) * divided(likely * (1 - likely), noise)


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
    counts = count(yes, members.unsqueeze(1), weight).unsqueeze(-1)
    values = flipped(metric, counts, 1.0 if weight is None else weight)
    gains = values[:4] - values[2:]
    said_no, said_yes = torch.where(members[0], gains[::2], gains[1::2])
    return values[2, ..., 0], torch.where(yes, said_yes, said_no)


def flipped(metric: Metric, counts: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """The metric of counts ``(4, ...)``, with one item of this weight changed: with one more yes to a positive item, to
    a negative item; as they are, twice; with one yes less to a positive item, to a negative item. ``(6, ...)``.

    So ``values[:4] - values[2:]`` is what a yes gains: to a positive or a negative item that said no, or that said yes.
    """
    more, less = counts + weight, (counts - weight).clamp(min=0)
    tp, fp, fn, tn = counts.expand_as(more)
    tables = (
        (more[0], tp, tp, tp, less[0], tp),
        (fp, more[1], fp, fp, fp, less[1]),
        (less[2], fn, fn, fn, more[2], fn),
        (tn, less[3], tn, tn, tn, more[3]),
    )
    return metric(*torch.unflatten(torch.stack([one for table in tables for one in table]), 0, (4, 6)))


def divided(values: Tensor, noise: float) -> Tensor:
    """Values over the scale of the noise, which is usually 1; finite."""
    if noise == 1:
        return values
    most = torch.finfo(values.dtype).max
    return values / noise if noise > 1 else (values / noise).clamp(-most, most)


def expected_cost_slope(scores: Tensor, costs: Tensor, noise: float) -> Tensor:
    """The gradient of ``sum_c softmax(s / noise)_c * cost_c``, shape ``(..., c)``."""
    likely = torch.softmax(divided(scores, noise), -1)
    return divided(likely * (costs - (likely * costs).sum(-1, keepdim=True)), noise)
