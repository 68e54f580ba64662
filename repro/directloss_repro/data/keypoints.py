"""Keypoints as the lab stores them: ``(..., joints, 3)``, each ``(x, y, radius)`` in pixels of the heatmap.

A prediction within ``radius`` of ``(x, y)`` is right. A keypoint whose place is not known has radius 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from directloss.metrics.pose import within_radius

UNKNOWN = -1
"""The label of pixels that do not count."""
REACH = 3.0
"""Bumps end after so many widths, as in stacked hourglasses: a width of 1 makes a bump of 7 x 7 pixels."""


def visible(target: Tensor) -> Tensor:
    """Which keypoints are known, ``(..., joints)``."""
    return target[..., 2] > 0


def pixel_labels(target: Tensor, size: torch.Size | tuple[int, int]) -> Tensor:
    """1 for pixels that are right, 0 for those that are wrong, -1 for all pixels of an unknown keypoint.

    Example:
        >>> pixel_labels(torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]), (1, 3))
        tensor([[[ 1,  1,  1]],
                [[-1, -1, -1]]])
    """
    height, width = size
    labels = within_radius(target[..., :2], target[..., 2], (int(height), int(width)))
    return torch.where(visible(target)[..., None, None], labels, UNKNOWN)


def bumps(target: Tensor, width: float, size: torch.Size | tuple[int, int]) -> Tensor:
    """Gaussian bumps of height 1 around the pixel of each keypoint: what heatmaps are regressed to.

    Reference: Newell, Yang, Deng, Stacked Hourglass Networks (ECCV 2016), Sec. 3.1; the sweep over the width is that
    of UniLoss, Table 1.

    Example:
        >>> bumps(torch.tensor([[1.2, 0.0, 1.0]]), 1.0, (1, 3))
        tensor([[[0.6065, 1.0000, 0.6065]]])
    """
    height, breadth = size
    x, y = target[..., :2].round().unbind(-1)
    rows = torch.arange(int(height), device=target.device) - y[..., None]
    columns = torch.arange(int(breadth), device=target.device) - x[..., None]
    squared = rows.square()[..., :, None] + columns.square()[..., None, :]
    near = (rows.abs() <= REACH * width)[..., :, None] & (columns.abs() <= REACH * width)[..., None, :]
    return torch.exp(-squared / (2 * width**2)) * near
