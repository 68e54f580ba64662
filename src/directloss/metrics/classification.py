"""Metrics of decisions: yes or no per item (yes where the score is above 0), or the best class per item.

`directloss.metrics.confusion` has the formulas and their conventions for 0/0. A score of exactly 0 is a no. The best
class has the highest score; among equal scores it is the one with the lowest index.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from directloss._checks import (
    blank,
    check_classes,
    check_count,
    check_finite,
    check_labels,
    check_mask,
    check_positive,
    check_same_shape,
    check_scores,
    check_tensor,
    fail,
)
from directloss.metrics import confusion
from directloss.metrics.confusion import count, members


def checked(
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    check: Callable[[Tensor], None] = check_labels,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scores, labels and mask after their checks; scores and labels are 0 in padding, which may hold anything."""
    scores = check_scores(scores, 1, "(..., n)").detach()
    target = check_same_shape(target, scores)
    if mask is not None:
        mask = check_mask(mask, target.shape, "target")
        scores, target = blank(scores, target, mask)
    check(target)
    return scores, target, mask


def evaluate(function: Callable[..., Tensor], scores: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """A function of the four counts, per problem, in the dtype of the scores or float32 if that is wider."""
    scores, target, mask = checked(scores, target, mask)
    check_finite(scores)
    counts = count(scores > 0, members(target, mask))
    return function(*counts).to(torch.promote_types(scores.dtype, torch.float32))


def f_beta(scores: Tensor, target: Tensor, beta: float = 1.0, mask: Tensor | None = None) -> Tensor:
    """F-beta of each problem; recall counts ``beta`` times as much as precision.

    Args:
        scores: shape ``(..., n)``, positive above 0.
        target: shape ``(..., n)``, 1 or 0.
        beta: a positive number.
        mask: shape ``(..., n)``, False for padding.

    Examples:
        >>> f_beta(torch.tensor([2.0, 1.0, -1.0, 0.5]), torch.tensor([1, 0, 0, 1]))
        tensor(0.8000)
    """
    beta = check_positive("beta", beta)
    return evaluate(partial(confusion.f_beta_of_counts, beta=beta), scores, target, mask)


def precision(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """The share of the predicted positives that are right; arguments as `f_beta`.

    Examples:
        >>> precision(torch.tensor([2.0, 1.0, -1.0, 0.5]), torch.tensor([1, 0, 0, 1]))
        tensor(0.6667)
    """
    return evaluate(confusion.precision_of_counts, scores, target, mask)


def recall(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """The share of the positives that are found; arguments as `f_beta`.

    Examples:
        >>> recall(torch.tensor([2.0, 1.0, -1.0, -0.5]), torch.tensor([1, 0, 0, 1]))
        tensor(0.5000)
    """
    return evaluate(confusion.recall_of_counts, scores, target, mask)


def iou(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Intersection over union (Jaccard index) of the predicted and the true set; arguments as `f_beta`.

    Examples:
        >>> iou(torch.tensor([2.0, 1.0, -1.0, 0.5]), torch.tensor([1, 0, 0, 1]))
        tensor(0.6667)
    """
    return evaluate(confusion.iou_of_counts, scores, target, mask)


def dice(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Dice coefficient of the predicted and the true set, the same number as F1; arguments as `f_beta`.

    Examples:
        >>> dice(torch.tensor([2.0, 1.0, -1.0, 0.5]), torch.tensor([1, 0, 0, 1]))
        tensor(0.8000)
    """
    return evaluate(confusion.dice_of_counts, scores, target, mask)


def matthews(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Matthews' correlation coefficient, from -1 to 1; arguments as `f_beta`.

    Examples:
        >>> matthews(torch.tensor([2.0, 1.0, -1.0, 0.5]), torch.tensor([1, 0, 0, 1]))
        tensor(0.5774)
    """
    return evaluate(confusion.matthews_of_counts, scores, target, mask)


def kappa(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Cohen's kappa, from -1 to 1; arguments as `f_beta`.

    Examples:
        >>> kappa(torch.tensor([2.0, 1.0, -1.0, 0.5]), torch.tensor([1, 0, 0, 1]))
        tensor(0.5000)
    """
    return evaluate(confusion.kappa_of_counts, scores, target, mask)


def balanced_accuracy(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """The mean of the accuracies on positives and on negatives; arguments as `f_beta`.

    Examples:
        >>> balanced_accuracy(torch.tensor([2.0, 1.0, -1.0, 0.5]), torch.tensor([1, 0, 0, 1]))
        tensor(0.7500)
    """
    return evaluate(confusion.balanced_accuracy_of_counts, scores, target, mask)


def g_mean(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """The geometric mean of the accuracies on positives and on negatives; arguments as `f_beta`.

    Examples:
        >>> g_mean(torch.tensor([2.0, 1.0, -1.0, 0.5]), torch.tensor([1, 0, 0, 1]))
        tensor(0.7071)
    """
    return evaluate(confusion.g_mean_of_counts, scores, target, mask)


def binary_accuracy(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """The share of right decisions; arguments as `f_beta`.

    Examples:
        >>> binary_accuracy(torch.tensor([2.0, 1.0, -1.0, 0.5]), torch.tensor([1, 0, 0, 1]))
        tensor(0.7500)
    """
    return evaluate(confusion.accuracy_of_counts, scores, target, mask)


def error(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """The share of wrong decisions, ``1 - binary_accuracy``; arguments as `f_beta`.

    Examples:
        >>> error(torch.tensor([2.0, 1.0, -1.0, 0.5]), torch.tensor([1, 0, 0, 1]))
        tensor(0.2500)
    """
    return 1 - binary_accuracy(scores, target, mask)


# ---------------------------------------------------------------------------------------------- one class per item


def check_class_problem(scores: Tensor, target: object, check_values: bool = True) -> Tensor:
    """One class index per row of scores."""
    target = check_tensor("target", target)
    if target.shape != scores.shape[:-1]:
        rule = f"must hold one class index per row of scores, shape {tuple(scores.shape[:-1])}"
        hint = ""
        if target.shape == scores.shape or scores.shape == (*target.shape, 1):
            hint = 'For one-hot labels pass target.argmax(-1); for yes-or-no decisions use "error".'
        elif target.shape == scores.shape[:1] + scores.shape[2:]:
            hint = "Classes come last: pass dim=1 to the loss, or scores.movedim(1, -1)."
        fail("target", rule, f"of shape {tuple(target.shape)}", hint)
    if check_values:
        check_finite(scores)
        check_classes(target, scores.shape[-1])
    return target


def check_k(k: int, classes: int) -> None:
    """A set of k classes needs k classes to choose from."""
    if k > classes:
        fail("k", f"must be at most the number of classes, {classes}", k)


def top_k_members(scores: Tensor, k: int) -> Tensor:
    """The set of the k highest scores as a boolean tensor ``(..., c)``; ties go to the lower index.

    Examples:
        >>> top_k_members(torch.tensor([0.0, 2.0, 1.0, 1.0]), 2)
        tensor([False,  True,  True, False])
    """
    lowest = scores.topk(k, dim=-1, sorted=False).values.amin(-1, keepdim=True)
    above, equal = scores > lowest, scores == lowest
    room = k - above.sum(-1, keepdim=True)
    return above | (equal & (equal.cumsum(-1) <= room))


def mean_over_items(right: Tensor, mask: Tensor | None, scores: Tensor) -> Tensor:
    """The share of right items, padding ignored; 1 if there are none."""
    dtype = torch.promote_types(scores.dtype, torch.float32)
    if mask is None:
        return right.to(dtype).mean()
    real = mask.sum()
    return torch.where(real > 0, (right & mask).sum().to(dtype) / real.clamp(min=1), 1.0)


def _class_problem(scores: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Checked scores and class indices, both zero in padding."""
    scores = check_scores(scores, 1, "(..., c)").detach()
    if mask is not None:
        mask = check_mask(mask, scores.shape[:-1], "target")
        scores = torch.where(mask[..., None], scores, 0.0)
        target = check_tensor("target", target)
        if target.shape == mask.shape:
            target = torch.where(mask, target, torch.zeros_like(target))
    return scores, check_class_problem(scores, target)


def accuracy(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """The share of items whose best class is right, a scalar.

    Args:
        scores: shape ``(..., c)``, one row of class scores per item.
        target: shape ``(...)``, class indices.
        mask: shape ``(...)``, False for padding.

    Examples:
        >>> accuracy(torch.tensor([[1.0, 3.0, 0.0], [2.0, 1.0, 0.0]]), torch.tensor([1, 2]))
        tensor(0.5000)
    """
    scores, target = _class_problem(scores, target, mask)
    return mean_over_items(scores.argmax(-1) == target, mask, scores)


def top_k_accuracy(scores: Tensor, target: Tensor, k: int = 5, mask: Tensor | None = None) -> Tensor:
    """The share of items whose right class is among the ``k`` best, a scalar; other arguments as `accuracy`.

    Examples:
        >>> top_k_accuracy(torch.tensor([[1.0, 3.0, 0.0], [2.0, 1.0, 0.0]]), torch.tensor([0, 2]), k=2)
        tensor(0.5000)
    """
    scores, target = _class_problem(scores, target, mask)
    check_k(check_count("k", k), scores.shape[-1])
    right = top_k_members(scores, k).gather(-1, target.long()[..., None]).squeeze(-1)
    return mean_over_items(right, mask, scores)
