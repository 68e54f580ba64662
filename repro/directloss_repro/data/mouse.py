"""Labelled video frames in DeepLabCut's layout: ``CollectedData*.csv`` and the images that it names.

The table has three heading rows (``scorer``, ``bodyparts``, ``coords``), then one row for each frame: the path of the
image, and x and y of each body part in pixels, both empty where the part is hidden.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from directloss._checks import fail
from directloss_repro.data.images import read_image
from directloss_repro.data.split import Part

HEADINGS = ("scorer", "bodyparts", "coords")
HOME = "The frames of a mouse seen from two sides are the mirror-mouse example of the Lightning Pose project."


class Frames(NamedTuple):
    """What the table says."""

    paths: list[Path]
    parts: list[str]
    points: Tensor
    """``(n, parts, 2)`` in pixels of the image; NaN where hidden."""


def find_table(root: Path) -> Path:
    """The table, in ``root`` or in one folder below it."""
    found = sorted([*root.glob("CollectedData*.csv"), *root.glob("*/CollectedData*.csv")])
    if len(found) != 1:
        what = f"{root}, with {len(found)} of them" if found else f"{root}, without one"
        fail("--data-root", "must be a folder with one table CollectedData.csv of DeepLabCut", what, HOME)
    return found[0]


def read_table(root: Path) -> Frames:
    """The checked table; each image that it names exists."""
    table = find_table(root)
    try:
        with table.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        fail(str(table), "must be a readable table", f"not ({error})")
    if tuple(row[0] for row in rows[:3]) != HEADINGS:
        fail(str(table), f"must begin with rows {', '.join(HEADINGS)}", f"{[row[0] for row in rows[:3]]}")
    names, axes = rows[1][1:], rows[2][1:]
    if len(names) < 2 or axes != ["x", "y"] * (len(names) // 2) or names[::2] != names[1::2]:
        fail(str(table), "must have an x and a y column for each body part", f"{len(names)} columns in another order")
    if len(rows) == 3:
        fail(str(table), "must have at least one frame", "without any")
    points = torch.tensor([_numbers(row, table, place, len(names)) for place, row in enumerate(rows[3:], 4)])
    paths = [table.parent / row[0] for row in rows[3:]]
    lost = [path for path in paths if not path.is_file()]
    if lost:
        fail(
            str(table), "must name images that are there", f"naming {lost[0].name}, which is missing ({len(lost)} are)"
        )
    return Frames(paths, names[::2], points.view(len(paths), -1, 2))


def _numbers(row: list[str], table: Path, line: int, count: int) -> list[float]:
    try:
        numbers = [float(cell) if cell.strip() else math.nan for cell in row[1:]]
    except ValueError:
        numbers = []
    if len(numbers) != count or any(math.isinf(number) for number in numbers):
        fail(f"line {line} of {table}", f"must have a path and {count} numbers or empty cells", f"{row[:3]} ...")
    return numbers


def read_frames(root: Path, size: int, shrinks: int, share: float) -> Part:
    """All frames as images ``(n, 3, size, size)`` from -0.5 to 0.5, with keypoints in pixels of the heatmaps.

    ``share`` is the radius within which a prediction is right, as a share of the image's longer side.
    """
    frames = read_table(root)
    images, targets = [], []
    for path, points in zip(frames.paths, frames.points, strict=True):
        pixels = read_image(path)
        image = torch.from_numpy(np.array(pixels)).permute(2, 0, 1)[None].float() / 255 - 0.5
        height, width = image.shape[-2:]
        images.append(F.interpolate(image, (size, size), mode="bilinear", antialias=True, align_corners=False)[0])
        side = size // shrinks
        # Each axis shrinks by its own factor; the radius is that of the mean, which differs by the frame's proportions.
        scale = torch.tensor([side / width, side / height])
        placed = (points + 0.5) * scale - 0.5
        radius = share * max(height, width) * float(scale.mean())
        hidden = placed.isnan().any(-1, keepdim=True)
        known = torch.where(hidden, 0.0, torch.full_like(placed[:, :1], radius))
        targets.append(torch.cat([placed.nan_to_num(0.0), known], -1))
    return Part(torch.stack(images), torch.stack(targets))
