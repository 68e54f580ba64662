"""Random scale and rotation of square images together with their keypoints."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from directloss_repro.data.split import Part

SCALE, ANGLE = 0.25, 30.0
"""Sizes from 0.75 to 1.25, turns of up to 30 degrees: those of Newell et al. 2016, Sec. 3.1."""
SHRINKS = 4
"""Keypoints are in pixels of heatmaps, which are four times smaller than the images."""


def turn_and_scale(batch: Part, draw: torch.Generator) -> Part:
    """Each image by an angle and a factor of its own; keypoints that leave the image become unknown."""
    n, side = len(batch), batch.x.shape[-1] // SHRINKS
    angle = (2 * torch.rand(n, generator=draw) - 1) * math.radians(ANGLE)
    # Sampling from a place `factor` times further out makes things smaller by that factor.
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
