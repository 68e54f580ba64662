"""How much a predicted set and the true set overlap: segmentations, multi-label predictions, any yes or no per item.

Formulas and the meaning of 0/0 are in `directloss.metrics.confusion`: two empty sets overlap perfectly.
"""

from __future__ import annotations

from torch import Tensor

from directloss.metrics.classification import evaluate
from directloss.metrics.confusion import dice_of_counts, iou_of_counts


def iou(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Intersection over union (Jaccard index) of each problem.

    Args:
        scores: shape ``(..., n)``, an item belongs to the predicted set where its score is above 0.
        target: shape ``(..., n)``, 1 for members of the true set, else 0.
        mask: shape ``(..., n)``, False for padding.

    Examples:
        >>> import torch
        >>> iou(torch.tensor([2.0, 1.0, -1.0, 0.5]), torch.tensor([1, 0, 0, 1]))
        tensor(0.6667)
    """
    return evaluate(iou_of_counts, scores, target, mask)


def dice(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Dice coefficient of each problem, the same number as F1; arguments as `iou`.

    Examples:
        >>> import torch
        >>> dice(torch.tensor([2.0, 1.0, -1.0, 0.5]), torch.tensor([1, 0, 0, 1]))
        tensor(0.8000)
    """
    return evaluate(dice_of_counts, scores, target, mask)
