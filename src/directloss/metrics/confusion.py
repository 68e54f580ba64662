"""Metrics as functions of the confusion matrix: one definition of each, for training and evaluation.

Every function takes four tensors of counts that broadcast against each other - ``tp`` true positives, ``fp`` false
positives, ``fn`` false negatives, ``tn`` true negatives - and returns the metric in their common shape.

Conventions for 0/0:

- Precision, recall, F-beta, IoU, Dice: 1 if nothing is positive and nothing was predicted, otherwise 0. So precision is
  0 if there are positives and none was predicted, and recall is 0 if there are none and some were predicted.
- Matthews: 0. Kappa: 1, because its 0/0 only happens if every decision is right. Accuracy of no items: 1.
- Balanced accuracy and G-mean skip a class without items; without any items they are 1.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from directloss._checks import precise


class Counts(NamedTuple):
    """The confusion matrix of one problem or of many."""

    tp: Tensor
    fp: Tensor
    fn: Tensor
    tn: Tensor


def members(target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Which items are positive, labelled 1, and which are negative, labelled 0, ``(2, ..., n)``; padding is neither.

    Examples:
        >>> members(torch.tensor([1, 0, 0]), mask=torch.tensor([True, True, False]))
        tensor([[ True, False, False],
                [False,  True, False]])
    """
    both = torch.stack((target == 1, target == 0))
    return both if mask is None else both & mask


def count(yes: Tensor, members: Tensor, weight: Tensor | None = None) -> Tensor:
    """`Counts` of decisions ``(..., n)`` as one tensor ``(4, ...)``, in float64 where the device has it.

    Examples:
        >>> count(torch.tensor([True, False, True]), members(torch.tensor([1, 1, 0])))
        tensor([1., 1., 1., 0.], dtype=torch.float64)
    """
    cells = torch.stack((yes, ~yes)).unsqueeze(1) & members
    return precise((cells if weight is None else cells * weight).sum(-1)).flatten(0, 1)


def _ratio(part: Tensor, whole: Tensor, otherwise: Tensor | float) -> Tensor:
    """``part / whole``, or ``otherwise`` where both are zero."""
    return torch.where(whole == 0, otherwise, part / whole)


def _share(part: Tensor, whole: Tensor, fp: Tensor, fn: Tensor) -> Tensor:
    """``part / whole``; 0/0 is 1 if nothing is positive and nothing was predicted, otherwise 0."""
    return _ratio(part, whole, fp + fn == 0)


def _rates(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> tuple[Tensor, Tensor]:
    """Recall of the positives and of the negatives; an absent class gets that of the other."""
    positives, negatives = tp + fn, tn + fp
    of_negatives = _ratio(tn, negatives, _ratio(tp, positives, 1.0))
    return _ratio(tp, positives, of_negatives), of_negatives


def precision_of_counts(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    """Precision ``tp / (tp + fp)``: the share of the predicted positives that are right."""
    return _share(tp, tp + fp, fp, fn)


def recall_of_counts(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    """Recall ``tp / (tp + fn)``: the share of the positives that are found."""
    return _share(tp, tp + fn, fp, fn)


def f_beta_of_counts(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor, beta: float = 1.0) -> Tensor:
    """``(1 + beta^2) tp / ((1 + beta^2) tp + beta^2 fn + fp)``: recall weighs ``beta`` times as much as precision.

    van Rijsbergen: Information Retrieval, 1979, Ch. 7.
    """
    # Divided by 1 + beta^2, so that no beta, huge or tiny, overflows.
    weight = beta * beta / (1 + beta * beta) if beta < 1 else 1 / (1 + 1 / (beta * beta))
    return _share(tp, tp + torch.lerp(fp, fn, weight), fp, fn)


def iou_of_counts(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    """Intersection over union ``tp / (tp + fp + fn)``, the Jaccard index."""
    return _share(tp, tp + (fp + fn), fp, fn)


def dice_of_counts(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    """Dice coefficient ``2 tp / (2 tp + fp + fn)``; the same number as F1."""
    return f_beta_of_counts(tp, fp, fn, tn)


def matthews_of_counts(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    """Matthews' correlation ``(tp tn - fp fn) / sqrt((tp+fp) (tp+fn) (tn+fp) (tn+fn))``, from -1 to 1.

    Matthews: Comparison of the predicted and observed secondary structure of T4 phage lysozyme, 1975.
    """
    # Two roots of two factors each: the product of all four would overflow float32 for some billion items.
    return _ratio(tp * tn - fp * fn, ((tp + fp) * (tn + fn)).sqrt() * ((tp + fn) * (tn + fp)).sqrt(), 0.0)


def kappa_of_counts(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    """Cohen's kappa: ``2 (tp tn - fp fn) / ((tp+fp) (fp+tn) + (tp+fn) (fn+tn))``, agreement beyond chance, -1 to 1.

    Cohen: A coefficient of agreement for nominal scales, 1960.
    """
    return _ratio(2 * (tp * tn - fp * fn), (tp + fp) * (fp + tn) + (tp + fn) * (fn + tn), 1.0)


def balanced_accuracy_of_counts(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    """The mean of ``tp / (tp + fn)`` and ``tn / (tn + fp)``: both classes weigh the same, however rare."""
    of_positives, of_negatives = _rates(tp, fp, fn, tn)
    return (of_positives + of_negatives) / 2


def g_mean_of_counts(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    """The geometric mean of ``tp / (tp + fn)`` and ``tn / (tn + fp)``: zero if one class is never found.

    Kubat, Matwin: Addressing the curse of imbalanced training sets, 1997.
    """
    of_positives, of_negatives = _rates(tp, fp, fn, tn)
    return (of_positives * of_negatives).sqrt()


def accuracy_of_counts(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    """The share of right decisions ``(tp + tn) / (tp + fp + fn + tn)``."""
    return _ratio(tp + tn, (tp + tn) + (fp + fn), 1.0)
