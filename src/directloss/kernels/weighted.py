"""Rankings of weighted items, judged by the weighted share of pairs in the wrong order; for all devices.

    F = 1/(V W) sum_ij v_i w_j y_ij (a_i - b_j)        L = 1/(V W) sum_ij v_i w_j [b_j above a_i]

with weights ``v`` of the relevant and ``w`` of the irrelevant items, V and W their sums. A pair has the same weight in
F and L, so each pair decides alone: in the best ``F + sign * epsilon * L`` it is in the wrong order where ``a_i - b_j <
sign * epsilon / 2``. That is the order of the scores with the irrelevant ones raised by ``sign * epsilon / 2``: a sort.
A pair exactly at the threshold stays as predicted.

A ranking is described by ``above``: for each item, the weight of the items of the other class above it, a cumulative
sum along the order. It gives the loss and the gradient,

    L = 1/(V W) sum_i v_i above_i      dF/da_i = v_i (W - 2 above_i) / (V W)      dF/db_j = w_j (V - 2 above_j) / (V W)

Ties: equal scores are spread evenly by weight. Among the tied items of each class, heaviest first, relevant item k
ranks below those irrelevant ones before which a smaller share of the irrelevant weight has passed than of the
relevant weight up to and including k. For equal weights this is the rule of the package, ``ceil(k q / r)``; with
many light items every tied pair is half right.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


class WeightedItems(NamedTuple):
    """Lists of items, each of shape ``(..., n)``."""

    values: Tensor
    """Scores in float64, minus infinity for padding."""
    relevant: Tensor
    irrelevant: Tensor
    weight: Tensor
    """In float64, 0 for padding, and 1 for the heaviest item of each class, so that equal weights sum exactly."""

    @property
    def mass(self) -> tuple[Tensor, Tensor]:
        """V and W, the weights of all relevant and of all irrelevant items, each of shape ``(...)``."""
        return (self.weight * self.relevant).sum(-1), (self.weight * self.irrelevant).sum(-1)


def weigh(scores: Tensor, target: Tensor, weight: Tensor) -> WeightedItems:
    """Lists from scores, labels (1 relevant, 0 irrelevant, -1 padding) and finite, non-negative weights.

    Labels and weights broadcast over draws of scores.
    """
    classes = target == 1, target == 0
    own = torch.stack([torch.where(kind, weight.double(), 0.0) for kind in classes])
    scaled = (own / _positive(own.amax(-1, keepdim=True))).sum(0)
    relevant, irrelevant, scaled = (part.expand(scores.shape) for part in (*classes, scaled))
    # Where nobody checks, NaN is the largest score.
    values = torch.where(scores.isnan(), torch.finfo(torch.float64).max, scores.double())
    return WeightedItems(torch.where(relevant | irrelevant, values, -torch.inf), relevant, irrelevant, scaled)


def predicted_above(items: WeightedItems) -> Tensor:
    """The ranking by score, ties spread evenly by weight."""
    return _above(items, predicted_order(items))


def predicted_order(items: WeightedItems) -> Tensor:
    """The items by falling score, ties spread evenly by weight, padding last."""
    # Among equal scores: relevant before irrelevant before padding, and the heaviest of each first.
    kind = torch.where(items.relevant, -2.0, torch.where(items.irrelevant, 0.0, 2.0))
    order = _resort((kind - items.weight).argsort(dim=-1, stable=True), -items.values)
    values = items.values.gather(-1, order)
    fresh = torch.ones_like(values, dtype=torch.bool)
    fresh[..., 1:] = values[..., 1:] != values[..., :-1]
    if not bool(fresh.all()):
        group = fresh.cumsum(-1) - 1
        passed = _back(_share_passed(items, order, group, fresh), order)
        order = _resort(_resort(order, passed), _back(group, order))
    return order


def _share_passed(items: WeightedItems, order: Tensor, group: Tensor, fresh: Tensor) -> Tensor:
    """The share of its class's weight that has passed inside a group of equal scores: including a relevant item, before
    an irrelevant one.
    """

    def share(kind: Tensor, inclusive: bool) -> Tensor:
        weight = (items.weight * kind).gather(-1, order)
        before = pad(weight.cumsum(-1), (1, 0))[..., :-1]
        whole = torch.zeros_like(weight).scatter_add_(-1, group, weight).gather(-1, group)
        passed = weight.cumsum(-1) if inclusive else before
        return (passed - _at_start(before, fresh)) / _positive(whole)

    return torch.where(items.relevant.gather(-1, order), share(items.relevant, True), share(items.irrelevant, False))


def augmented_above(items: WeightedItems, epsilon: float | Tensor, sign: int) -> Tensor:
    """The ranking with the highest ``F + sign * epsilon * L``; epsilon is a number, or one per list."""
    half = 0.5 * torch.as_tensor(epsilon, dtype=torch.float64, device=items.values.device)[..., None]
    # However small epsilon is, it must break ties: move at least to the next number.
    beyond = torch.nextafter(items.values, torch.full_like(items.values, sign * torch.inf))
    raised = items.values + sign * half
    raised = torch.maximum(raised, beyond) if sign > 0 else torch.minimum(raised, beyond)
    values = torch.where(items.irrelevant, raised, items.values)
    # A pair at the threshold stays as predicted: for sign +1 it was right, for sign -1 wrong.
    first = items.irrelevant if sign < 0 else items.relevant
    return _above(items, _resort((~first).argsort(dim=-1, stable=True), -values))


def true_above(items: WeightedItems) -> Tensor:
    """The ranking with every relevant item above every irrelevant one."""
    return torch.where(items.irrelevant, items.mass[0][..., None], 0.0)


def pair_loss(items: WeightedItems, above: Tensor) -> Tensor:
    """L of a ranking, shape ``(...)``; 0 where a class has no weight."""
    V, W = items.mass
    total = torch.where(items.relevant, items.weight * above, 0.0).sum(-1)
    return torch.where((V > 0) & (W > 0), total / _positive(V * W), 0.0).clamp(max=1)


def coefficients(items: WeightedItems, above: Tensor) -> Tensor:
    """dF/dscores of a ranking, shape ``(..., n)``; 0 where a class has no weight."""
    V, W = (mass[..., None] for mass in items.mass)
    others = torch.where(items.relevant, W, V)
    slope = items.weight * (others - 2 * above) / _positive(V * W)
    return torch.where((V > 0) & (W > 0), slope, 0.0)


def _resort(order: Tensor, key: Tensor) -> Tensor:
    """An order stably sorted by the key of each item, ascending."""
    return order.gather(-1, key.gather(-1, order).argsort(dim=-1, stable=True))


def _back(values: Tensor, order: Tensor) -> Tensor:
    """From the order of the ranking to that of the input."""
    return torch.zeros_like(values).scatter_(-1, order, values)


def _above(items: WeightedItems, order: Tensor) -> Tensor:
    """For each item, the weight of the items of the other class above it in an order; 0 for padding."""
    relevant, irrelevant, weight = (part.gather(-1, order) for part in (items.relevant, items.irrelevant, items.weight))
    over_relevant, over_irrelevant = (weight * irrelevant).cumsum(-1), (weight * relevant).cumsum(-1)
    above = torch.where(relevant, over_relevant, torch.where(irrelevant, over_irrelevant, 0.0))
    return _back(above, order)


def _at_start(values: Tensor, fresh: Tensor) -> Tensor:
    """For each place, the value at the start of its group."""
    places = torch.arange(values.shape[-1], device=values.device)
    return values.gather(-1, torch.where(fresh, places, 0).cummax(-1).values)


def _positive(values: Tensor) -> Tensor:
    return torch.where(values > 0, values, 1.0)
