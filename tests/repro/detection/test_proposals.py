"""Real selective search on a small image."""

from __future__ import annotations

import numpy as np
import torch
from directloss_repro.detection.boxes import as_boxes, overlaps
from directloss_repro.detection.regions import Search, propose


def test_search_finds_objects_and_gives_the_same_boxes() -> None:
    pixels = np.random.default_rng(0).integers(90, 110, (60, 80, 3), dtype=np.uint8)
    objects = as_boxes([[5, 5, 30, 32], [44, 8, 70, 40]])
    pixels[5:32, 5:30], pixels[8:40, 44:70] = (220, 40, 40), (40, 60, 220)
    boxes = propose(pixels, Search(0, 10))
    assert (overlaps(boxes, objects).max(axis=0) > 0.8).all()
    assert (boxes[:, 2:] - boxes[:, :2] >= 10).all()
    assert (boxes >= 0).all()
    assert (boxes <= [80, 60, 80, 60]).all()
    torch.manual_seed(5)
    assert np.array_equal(propose(pixels, Search(0, 10)), boxes)
    few = propose(pixels, Search(0, 10, most=3), "name")
    assert len(few) == 3
    assert {tuple(box) for box in few.tolist()} <= {tuple(box) for box in boxes.tolist()}
    assert np.array_equal(propose(pixels, Search(0, 10, most=3), "name"), few)
    assert propose(pixels, Search(160, 10)).max() <= 80  # searched larger, told in pixels of the image
