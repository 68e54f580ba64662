"""Metrics of rankings with graded relevance: one definition of each.

    DCG = sum_i gain(grade_i) * d(rank_i)          d(r) = 1 / log2(1 + r) for r <= k, else 0
    NDCG = DCG / (DCG of the ideal ranking, by falling grade)

Items with equal scores share the mean discount of their ranks: the value does not depend on the order of the input and
is the mean over all ways to break the ties (as in scikit-learn).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from directloss._checks import check_choice, check_count, check_finite, fail, precise
from directloss.metrics.classification import checked
from directloss.metrics.ranking import DCGMetric

GAINS = ("exponential", "linear")


def graded_dcg(
    scores: Tensor, target: Tensor, k: int | None = None, gain: str = "exponential", mask: Tensor | None = None
) -> Tensor:
    """Discounted cumulative gain of each ranking of graded items, ``sum_i gain(grade_i) / log2(1 + rank_i)``.

    Args:
        scores: shape ``(..., n)``, a higher score is a better rank.
        target: shape ``(..., n)``, grades of at least 0, whole numbers or not.
        k: only the first k ranks count; all of them by default.
        gain: ``"exponential"`` for ``2^grade - 1`` (Burges et al. 2005), ``"linear"`` for the grade itself (Jarvelin
            and Kekalainen 2002).
        mask: shape ``(..., n)``, False for padding.

    Returns:
        Shape ``(...)``.

    Examples:
        >>> graded_dcg(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 2]))
        tensor(2.1309)
    """
    scores, target, mask = _prepare(scores, target, k, gain, mask)
    return _narrow((gains(target, gain) * shared_discounts(scores, mask, k)).sum(-1), scores)


def graded_ndcg(
    scores: Tensor, target: Tensor, k: int | None = None, gain: str = "exponential", mask: Tensor | None = None
) -> Tensor:
    """`graded_dcg` over its value for the ideal ranking; NaN where no grade is above 0. Arguments as `graded_dcg`.

    Examples:
        >>> graded_ndcg(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 2]))
        tensor(0.5869)
        >>> graded_ndcg(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 2]), k=2, gain="linear")
        tensor(0.2398)
    """
    scores, target, mask = _prepare(scores, target, k, gain, mask)
    relative = relative_gains(target, gain)
    value = (relative * shared_discounts(scores, mask, k)).sum(-1) / ideal(relative, k)
    return _narrow(torch.where(relative.amax(-1) > 0, value, torch.nan), scores)


def gains(target: Tensor, gain: str) -> Tensor:
    """The gain of each grade, float64; 0 for padding, whose grade is 0."""
    grades = precise(target)
    return grades if gain == "linear" else torch.expm1(grades * math.log(2))


def relative_gains(target: Tensor, gain: str) -> Tensor:
    """Gains over the largest gain of the list, in [0, 1], float64; 0 where all grades are 0, and for padding, which has
    grade 0.
    """
    grades = precise(target)
    if gain == "exponential":
        # (2^g - 1) / (2^m - 1) in a form that neither overflows for large grades nor loses small ones.
        grades = grades * math.log(2)
        largest = grades.amax(-1, keepdim=True)
        below = torch.where(largest > 0, torch.expm1(-largest), -1.0)
        return torch.exp(grades - largest) * torch.expm1(-grades) / below
    largest = grades.amax(-1, keepdim=True)
    return grades / torch.where(largest > 0, largest, 1.0)


def discounts(n: int, k: int | None, device: torch.device) -> Tensor:
    """d(1) ... d(n), float64."""
    rank = precise(torch.arange(1, n + 1, device=device))
    return DCGMetric(k).column(rank, rank, rank)


def ideal(gains: Tensor, k: int | None) -> Tensor:
    """The DCG of the best ranking of these gains; 1 instead of 0, as it is a divisor."""
    value = (gains.sort(-1, descending=True).values * discounts(gains.shape[-1], k, gains.device)).sum(-1)
    return torch.where(value > 0, value, 1.0)


def shared_discounts(scores: Tensor, mask: Tensor | None, k: int | None) -> Tensor:
    """The discount of each item, averaged over equal scores, float64; 0 for padding."""
    table = discounts(scores.shape[-1], k, scores.device)
    ordered, order = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).sort(-1, descending=True)
    group = torch.zeros_like(order)
    group[..., 1:] = (ordered[..., 1:] != ordered[..., :-1]).cumsum(-1)
    empty = torch.zeros(scores.shape, dtype=table.dtype, device=scores.device)
    total = empty.scatter_add(-1, group, table.expand_as(empty))
    members = empty.scatter_add(-1, group, torch.ones_like(empty))
    shared = (total / members.clamp(min=1)).gather(-1, group)
    result = empty.scatter(-1, order, shared)
    return result if mask is None else result * mask


def check_grades(target: Tensor) -> None:
    """Grades are finite numbers of at least 0."""
    good = torch.isfinite(target) & (target >= 0)
    if not bool(good.all()):
        where = (~good).nonzero()[0].tolist()
        value = f"{target[tuple(where)].item()} at index {where}"
        fail("target", "must hold grades of at least 0", value, "Leave items out with mask=target >= 0.")


def check_settings(k: object, gain: object) -> None:
    """A cutoff that is None or at least 1, and a known gain."""
    if k is not None:
        check_count("k", k)
    check_choice("gain", gain, GAINS)


def _prepare(
    scores: Tensor, target: Tensor, k: int | None, gain: str, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    check_settings(k, gain)
    scores, target, mask = checked(scores, target, mask, check_grades)
    check_finite(scores)
    return scores, target, mask


def _narrow(value: Tensor, scores: Tensor) -> Tensor:
    return value.to(torch.promote_types(scores.dtype, torch.float32))
