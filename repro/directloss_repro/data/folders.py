"""Photographs in folders that are named after their classes: ``root/train/NORMAL/*.jpeg``, ``root/test/...``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from directloss._checks import fail
from directloss_repro.data.images import CROP, Pixels, read_image, warp

ENDINGS = (".jpg", ".jpeg", ".png")
PARTS = ("train", "val", "test")
PATIENT = re.compile(r"(person\d+|IM-\d+)")
"""How the names of chest X-ray images begin, or go on, for images of one patient."""


@dataclass(frozen=True)
class Photos:
    """Files and labels 0 or 1 ``(n,)``; files of one group (a patient) must stay in one part of the data."""

    paths: tuple[Path, ...]
    labels: Tensor
    groups: tuple[str, ...]
    classes: tuple[str, str]
    """The names of the classes 0 and 1."""

    def __len__(self) -> int:
        return len(self.paths)


def read_folders(root: Path, positive: str | None = "PNEUMONIA") -> Photos:
    """All images below ``root/train``, ``root/val`` and ``root/test`` that exist, or below ``root`` itself.

    The published division is given up: the experiment divides all images anew, from a seed. ``positive`` names the
    class 1; without it, that is the second in the alphabet.
    """
    tops = [root / part for part in PARTS if (root / part).is_dir()] or [root]
    if not root.is_dir():
        fail(str(root), "must be a folder with a folder of images for each class", "missing")
    found = sorted(
        path
        for top in tops
        for folder in sorted(top.iterdir())
        if folder.is_dir()
        for path in folder.iterdir()
        if path.suffix.lower() in ENDINGS and not path.name.startswith(".")
    )
    names = sorted({path.parent.name for path in found})
    if len(names) != 2:
        rule = "must have images in folders of two classes"
        fail(str(root), rule, f"with {', '.join(names) or 'no such folder'}")
    positive = names[1] if positive is None else positive
    if positive not in names:
        fail("positive", f"must be {names[0]!r} or {names[1]!r}", repr(positive))
    negative = next(name for name in names if name != positive)
    labels = torch.tensor([int(path.parent.name == positive) for path in found])
    return Photos(tuple(found), labels, tuple(_group(path) for path in found), (negative, positive))


def _group(path: Path) -> str:
    patient = PATIENT.search(path.stem)
    return f"{path.parent.name} {patient[0] if patient else path.stem}"


def whole_image(path: Path, size: int = CROP) -> Pixels:
    """An image warped to ``size`` x ``size``, without context: there is nothing around it."""
    pixels = read_image(path)
    return warp(pixels, (0, 0, pixels.shape[1], pixels.shape[0]), size, context=0)
