"""A few test images and what a network says about them, stored small, for reports to draw."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from directloss_repro.data.split import Part
from directloss_repro.files import whole_file

SHOWN = 3
"""How many test images: the first ones, whatever comes out."""
FILE = "frames.npz"


def highest_pixels(heatmaps: Tensor) -> list[Any]:
    """Column and row of the highest pixel of each heatmap, as nested lists.

    Example:
        >>> highest_pixels(torch.tensor([[[0.0, 2.0], [1.0, 0.0]]]))
        [[1, 0]]
    """
    best = heatmaps.flatten(-2).argmax(-1)
    width = heatmaps.shape[-1]
    pixels: list[Any] = torch.stack([best % width, best // width], -1).tolist()
    return pixels


def first_items(part: Part, count: int = SHOWN) -> Part:
    """The first items, read if they have to be."""
    return part.take(torch.arange(min(count, len(part))))


def store_frames(folder: Path, part: Part, shrinks: int) -> None:
    """Write the first images, whose pixels are from -0.5 to 0.5, with their keypoints; the file appears whole."""
    few = first_items(part)
    images = ((few.x + 0.5).clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, images=images, keypoints=few.y.double().numpy(), shrinks=np.array(float(shrinks)))
    with whole_file(folder / FILE) as unfinished:
        unfinished.write_bytes(buffer.getvalue())
