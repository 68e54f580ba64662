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
    direction = _direction(scores, target)
    if direction is None:
        return None
    fixed = scores.detach()
    direction = direction.to(fixed.dtype)
    peak = fixed.abs().amax()
    most = torch.finfo(fixed.dtype).max
    if float(peak) > most**0.5:  # the ideal scores may overflow: keep the order on a smaller scale
        shrink = most / 4 / (float(peak) * (2 * float(direction.abs().amax()) + 1))
        fixed, peak = fixed * min(1.0, shrink), peak * min(1.0, shrink)
    return fixed + (2 * peak + 1) * direction


def _direction(scores: Tensor, target: Tensor) -> Tensor | None:
    """+1 where a score should rise, -1 where it should fall; grades above one rise further."""
    if target.shape == scores.shape:
        grades = target.double()
        if bool((grades != grades.round()).any()):  # probabilities or a regression: only the order is known
            grades = torch.unique(grades, return_inverse=True)[1].reshape(grades.shape).double()
        return torch.where(grades == 0, -1.0, grades.clamp(min=0))
    places = class_dims(scores.shape, target)
    if not places:
        return None
    right = right_class(scores.shape, target, places[0]).double()
    return torch.where((target < 0).unsqueeze(places[0]), 0.0, 2 * right - 1)


def relevance_of(scores: Tensor, target: Tensor) -> Tensor | None:
    """Which scores should be above which, float64 in the shape of the scores; None for a target of unknown form."""
    if target.shape == scores.shape:
        return target.double()
    places = class_dims(scores.shape, target)
    return right_class(scores.shape, target, places[0]).double() if places else None


def likelihood_slope(scores: Tensor, target: Tensor) -> Tensor | None:
    """The gradient of the mean cross-entropy: of binary labels in the shape of the scores, or of class indices.

    None if the target is neither.
    """
    if target.shape == scores.shape:
        labels = target.to(scores.dtype)
        if not bool(((labels == 0) | (labels == 1)).all()):
            return None
        return (torch.sigmoid(scores) - labels) / scores.numel()
    places = class_dims(scores.shape, target)
    if not places:
        return None
    known = target >= 0
    away = torch.softmax(scores, places[0]) - right_class(scores.shape, target, places[0]).to(scores.dtype)
    return torch.where(known.unsqueeze(places[0]), away, 0.0) / known.sum().clamp(min=1)


def class_dims(shape: torch.Size, target: Tensor) -> list[int]:
    """The dimensions of scores that class indices may refer to: the second or the last."""
    if target.is_floating_point() or target.dtype == torch.bool or len(shape) < 2:
        return []
    places = dict.fromkeys((1, len(shape) - 1))
    fits = [place for place in places if target.shape == shape[:place] + shape[place + 1 :]]
    return [place for place in fits if target.numel() == 0 or int(target.max()) < shape[place]]


def right_class(shape: torch.Size, target: Tensor, place: int) -> Tensor:
    """Which scores belong to the right class, boolean; none where the class index is negative."""
    right = torch.zeros(shape, dtype=torch.bool)
    known = target.unsqueeze(place)
    return right.scatter_(place, known.clamp(min=0).long(), known >= 0)
