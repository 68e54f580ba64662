"""Selective search (Uijlings et al. 2013) in OpenCV's fast mode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from directloss_repro.data.images import Pixels, vision
from directloss_repro.detection.boxes import Boxes
from directloss_repro.seeding import generator


@dataclass(frozen=True)
class Search:
    """Settings of the search. Defaults: OpenCV's fast mode on images of 500 pixels' width, as in R-CNN."""

    width: int = 500
    """Images are scaled to this width for the search; 0 leaves them as they are."""
    least: int = 20
    """Shortest side of a box, in pixels of the image."""
    most: int = 2500
    """Of more boxes than this a random part is kept."""
    base: int = 150
    step: int = 150
    sigma: float = 0.8


def propose(pixels: Pixels, search: Search, name: str = "") -> Boxes:
    """Boxes ``(n, 4)`` in which an object may lie, each once, in a fixed order."""
    cv2 = vision("cv2")
    height, width = pixels.shape[:2]
    scale = search.width / width if search.width else 1.0
    scaled = cv2.resize(pixels, (max(1, round(width * scale)), max(1, round(height * scale))))
    finder = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
    finder.setBaseImage(np.ascontiguousarray(scaled[:, :, ::-1]))
    finder.switchToSelectiveSearchFast(search.base, search.step, search.sigma)
    found = np.asarray(finder.process(), np.float64).reshape(-1, 4)
    boxes = np.concatenate([found[:, :2], found[:, :2] + found[:, 2:]], axis=1) / scale
    boxes = np.clip(boxes, 0, [width, height, width, height])
    boxes = boxes[(boxes[:, 2:] - boxes[:, :2]).min(axis=1) >= min(search.least, width, height)]
    # OpenCV orders them with the random numbers of the C library; sorted, they are the same in every run.
    boxes = np.unique(boxes.round(2), axis=0)
    if len(boxes) > search.most:
        chosen = torch.randperm(len(boxes), generator=generator("proposals", name))[: search.most]
        boxes = boxes[np.sort(chosen.numpy())]
    return boxes
