"""Keypoints ``(..., joints, 3)``, each ``(x, y, radius)`` in pixels of the heatmap: targets, augmentation, pictures.

A prediction within ``radius`` of ``(x, y)`` is right. An unknown keypoint has radius 0.
"""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from directloss.metrics.pose import within_radius
from directloss.tabular.files import whole_file
from directloss_repro.data.split import Part

SCALE, ANGLE = 0.25, 30.0
"""Scaling by 0.75 to 1.25 and rotation by up to 30 degrees, as in Newell et al. 2016, Sec. 3.1."""
SHRINKS = 4
"""Keypoints are in pixels of heatmaps, which are four times smaller than the images."""
SHOWN = 3
"""How many test images are shown: always the first ones."""
FILE = "frames.npz"
REACH = 3.0
"""Bumps are cut off after three widths, as in stacked hourglasses: 7 x 7 pixels for a width of 1."""


def visible(target: Tensor) -> Tensor:
    """Which keypoints are known, ``(..., joints)``."""
    return target[..., 2] > 0


def pixel_labels(target: Tensor, size: torch.Size | tuple[int, int]) -> Tensor:
    """1 for right pixels, 0 for wrong ones.

    Example:
        >>> pixel_labels(torch.tensor([[0.0, 0.0, 1.0]]), (1, 3))
        tensor([[[1, 1, 0]]])
    """
    height, width = size
    return within_radius(target[..., :2], target[..., 2], (int(height), int(width)))


def pixel_mask(target: Tensor, size: torch.Size | tuple[int, int]) -> Tensor:
    """True for all pixels of a known keypoint."""
    return visible(target)[..., None, None].expand(*target.shape[:-1], *size)


def bumps(target: Tensor, width: float, size: torch.Size | tuple[int, int]) -> Tensor:
    """Gaussian bumps of height 1 around the pixel of each keypoint: the regression targets of heatmaps.

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


def turn_and_scale(batch: Part, draw: torch.Generator) -> Part:
    """Rotate and scale each image at random; keypoints that leave the image become unknown."""
    n, side = len(batch), batch.x.shape[-1] // SHRINKS
    angle = (2 * torch.rand(n, generator=draw) - 1) * math.radians(ANGLE)
    # Sampling `factor` times further out shrinks the image by that factor.
    factor = 1 / (1 + (2 * torch.rand(n, generator=draw) - 1) * SCALE)
    cos, sin = factor * angle.cos(), factor * angle.sin()
    matrix = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
    grid = F.affine_grid(F.pad(matrix, (0, 1)), list(batch.x.shape), align_corners=False)
    x = F.grid_sample(batch.x, grid, align_corners=False)
    centred = (2 * batch.y[..., :2] + 1) / side - 1
    moved = ((torch.linalg.solve(matrix, centred.mT).mT + 1) * side - 1) / 2
    inside = ((moved >= -0.5) & (moved < side - 0.5)).all(-1) & (batch.y[..., 2] > 0)
    radius = torch.where(inside, batch.y[..., 2] / factor[:, None], 0.0)
    return Part(x, torch.cat([moved, radius[..., None]], -1))


def highest_pixels(heatmaps: Tensor) -> Tensor:
    """Column and row of the highest pixel of each heatmap, ``(..., 2)``.

    Example:
        >>> highest_pixels(torch.tensor([[[0.0, 2.0], [1.0, 0.0]]]))
        tensor([[1, 0]])
    """
    best, width = heatmaps.flatten(-2).argmax(-1), heatmaps.shape[-1]
    return torch.stack([best % width, best // width], -1)


def store_frames(folder: Path, part: Part, bones: tuple[tuple[int, int], ...]) -> None:
    """Write the first images, with pixels from -0.5 to 0.5, their keypoints, and which of these are connected."""
    few = next(part.pieces(SHOWN))
    images = ((few.x + 0.5).clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, images=images, keypoints=few.y.double().numpy(), shrinks=np.array(float(SHRINKS)), bones=np.array(bones)
    )
    with whole_file(folder / FILE) as unfinished:
        unfinished.write_bytes(buffer.getvalue())
