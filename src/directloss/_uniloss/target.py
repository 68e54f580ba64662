"""What a target says about the scores: which are the best ones, which should be above which, and their likelihood.

A target of a known form holds labels in the shape of the scores, or class indices.
"""

from __future__ import annotations

import torch
from torch import Tensor


def ideal_scores(scores: Tensor, target: Tensor) -> Tensor | None:
    """The scores, moved until they satisfy every label; None for a target of unknown form.

    The paper uses the configuration of the ground truth (Sec. 3.4). Here the current scores move towards the target,
    so that the order among equal labels stays the same.

    Known forms: labels in the shape of the scores (0 down, 1 up, higher grades further up, negative ones ignored);
    class indices in the shape of the scores without dimension 1, or without the last one (the right class up, the
    others down).

    Args:
        scores: any shape.
        target: labels or class indices.

    Examples:
        >>> ideal_scores(torch.tensor([0.5, -0.5]), torch.tensor([0, 1]))
        tensor([-1.5000,  1.5000])
    """
    labels = relevance_of(scores, target)
    if labels is None:
        return None
    if target.shape == scores.shape and bool((labels != labels.round()).any()):
        # Probabilities or a regression: only the order is known.
        labels = torch.unique(labels, return_inverse=True)[1].reshape(labels.shape).double()
    fixed = scores.detach()
    direction = torch.where(labels == 0, -1.0, labels.clamp(min=0)).nan_to_num(0.0).to(fixed.dtype)
    peak = float(fixed.abs().amax())
    reach = peak * (2 * float(direction.abs().amax()) + 1)
    # Very large scores keep their order on a smaller scale, so that the ideal ones do not overflow.
    shrink = min(1.0, torch.finfo(fixed.dtype).max / 4 / reach) if reach else 1.0
    return shrink * fixed + (2 * shrink * peak + 1) * direction


def relevance_of(scores: Tensor, target: Tensor) -> Tensor | None:
    """Which scores should be above which: labels, or 1 for the right class and 0 for the others, NaN where the class
    index is negative. Float64 in the shape of the scores; None for a target of unknown form.
    """
    if target.shape == scores.shape:
        return target.double()
    place = class_dim(scores.shape, target)
    if place is None:
        return None
    known = target.unsqueeze(place)
    right = torch.zeros(scores.shape, dtype=torch.float64).scatter_(place, known.clamp(min=0).long(), 1.0)
    return torch.where(known < 0, torch.nan, right)


def likelihood_slope(scores: Tensor, target: Tensor) -> Tensor | None:
    """The gradient of the mean cross-entropy of binary labels in the shape of the scores, or of class indices; None if
    the target is neither.
    """
    if target.shape == scores.shape:
        binary = bool(((target == 0) | (target == 1)).all())
        return (torch.sigmoid(scores) - target.to(scores.dtype)) / scores.numel() if binary else None
    place, labels = class_dim(scores.shape, target), relevance_of(scores, target)
    if place is None or labels is None:
        return None
    away = (torch.softmax(scores, place) - labels.to(scores.dtype)).nan_to_num(0.0)
    return away / (target >= 0).sum().clamp(min=1)


def class_dim(shape: torch.Size, target: Tensor) -> int | None:
    """The dimension of scores that class indices refer to, the second or the last; None if there is none."""
    if target.is_floating_point() or target.dtype == torch.bool or len(shape) < 2:
        return None
    most = int(target.max()) if target.numel() else -1
    places = (1, len(shape) - 1)
    fits = (place for place in places if target.shape == shape[:place] + shape[place + 1 :] and most < shape[place])
    return next(fits, None)
