"""The best anchor: scores with the best possible metric, close to the present ones.

The paper uses the configuration of the ground truth (Sec. 3.4). Here the present scores are moved in the direction of
the target, so that the order among equal labels stays the same.
"""

from __future__ import annotations

import torch
from torch import Tensor


def ideal_scores(scores: Tensor, target: Tensor) -> Tensor | None:
    """The scores, moved until every label is satisfied; None for a target of unknown form.

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
    if float(peak) > most**0.5:  # where the ideal scores may be no numbers any more: the same order on a smaller scale
        shrink = most / 4 / (float(peak) * (2 * float(direction.abs().amax()) + 1))
        fixed, peak = fixed * min(1.0, shrink), peak * min(1.0, shrink)
    return fixed + (2 * peak + 1) * direction


def _direction(scores: Tensor, target: Tensor) -> Tensor | None:
    """+1 where a score should rise, -1 where it should fall; grades above one rise further."""
    if target.shape == scores.shape:
        grades = target.double()
        if target.is_floating_point() and not bool(
            (grades == grades.round()).all()
        ):  # probabilities, or a regression: order is all that is known
            grades = torch.unique(grades, return_inverse=True)[1].reshape(grades.shape).double()
        return torch.where(grades == 0, -1.0, grades.clamp(min=0))
    if target.is_floating_point() or target.dtype == torch.bool:
        return None
    for place in (1, -1):
        if scores.dim() > 1 and target.shape == _without(scores, place) and _are_classes(target, scores.shape[place]):
            ignored = target < 0
            right = torch.zeros_like(scores, dtype=torch.double)
            right.scatter_(place, target.clamp(min=0).long().unsqueeze(place), 1.0)
            return torch.where(ignored.unsqueeze(place), torch.zeros_like(right), 2 * right - 1)
    return None


def _without(scores: Tensor, place: int) -> torch.Size:
    shape = list(scores.shape)
    del shape[place]
    return torch.Size(shape)


def _are_classes(target: Tensor, classes: int) -> bool:
    return target.numel() == 0 or int(target.max()) < classes
