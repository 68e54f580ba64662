"""Boxes ``(n, 4)`` as left, top, right, bottom at the edges of pixels: overlap, suppression, and training samples.

VOC counts pixels from 1, includes the last and adds 1 to widths; measured at edges both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from directloss._checks import fail
from directloss_repro.seeding import generator

Boxes = NDArray[np.float64]
POSITIVE, NEGATIVE, IGNORED = 1, 0, -1


@dataclass(frozen=True)
class Truth:
    """The objects of one class in one image."""

    boxes: Boxes
    difficult: NDArray[np.bool_]


def as_boxes(values: Sequence[Any] | NDArray[Any]) -> Boxes:
    """An array ``(n, 4)``, even if there are no boxes."""
    return np.asarray(values, np.float64).reshape(len(values), 4)


def overlaps(first: Boxes, second: Boxes) -> NDArray[np.float64]:
    """Intersection over union of all pairs of boxes ``(n, m)``; 0 for empty boxes.

    Example:
        >>> overlaps(as_boxes([[0, 0, 2, 2]]), as_boxes([[1, 0, 3, 2], [5, 5, 6, 6]])).round(3)
        array([[0.333, 0.   ]])
    """
    corner = np.maximum(first[:, None, :2], second[None, :, :2])
    other = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.clip(other - corner, 0, None).prod(axis=2)
    areas = [np.clip(boxes[:, 2:] - boxes[:, :2], 0, None).prod(axis=1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None, :] - shared
    result: NDArray[np.float64] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return result


def nms(boxes: Boxes, scores: NDArray[Any], threshold: float = 0.3) -> NDArray[np.int64]:
    """Indices of the boxes to keep, best first: each removes all lower-scored ones that overlap it above the threshold.

    Example:
        >>> nms(as_boxes([[0, 0, 10, 10], [1, 0, 11, 10], [50, 50, 60, 60]]), np.array([0.5, 0.9, 0.1]))
        array([1, 2])
    """
    order = np.argsort(-np.asarray(scores), kind="stable")
    kept = []
    while len(order):
        best, rest = order[0], order[1:]
        kept.append(int(best))
        order = rest[overlaps(boxes[best : best + 1], boxes[rest])[0] <= threshold]
    return np.array(kept, np.int64)


# ---------------------------------------------------------------------- training samples


def label_boxes(boxes: Boxes, truth: Truth, overlap: float = 0.5) -> NDArray[np.int64]:
    """1, 0 or -1 (ignored) for each box and one class, after R-CNN (Girshick et al. 2014, Sec. 2.3 and Appendix B).

    Positive: overlap of at least 0.5 with an object of the class, the objects themselves included. Negative: less than
    that with all of them. Boxes on difficult objects train nothing.
    """
    labels = np.full(len(boxes), NEGATIVE, np.int64)
    if len(truth.boxes) == 0:
        return labels
    shared = overlaps(boxes, truth.boxes)
    labels[shared.max(axis=1) >= overlap] = IGNORED
    if not truth.difficult.all():
        easy = shared[:, ~truth.difficult]
        # A box that overlaps a difficult object more than any other is an example of neither.
        mine = easy.max(axis=1) >= shared.max(axis=1)
        labels[(easy.max(axis=1) >= overlap) & mine] = POSITIVE
    return labels


def draw_sample(labels: Tensor, per_positive: float, most: int, *seed: object) -> tuple[Tensor, Tensor]:
    """Indices and labels 0 or 1 of all positives and ``per_positive`` times as many negatives, at most ``most``.

    R-CNN takes three negatives for each positive.
    """
    positives, negatives = (labels == POSITIVE).nonzero()[:, 0], (labels == NEGATIVE).nonzero()[:, 0]
    if len(positives) == 0 or len(negatives) == 0:
        found = f"{len(positives)} positives and {len(negatives)} negatives"
        fail("the boxes of a class", "must have positives and negatives", found)
    draw = generator("detection sample", *seed)
    wanted = min(len(positives), max(1, round(most / (1 + per_positive))))
    positives = positives[torch.randperm(len(positives), generator=draw)[:wanted]]
    wanted = min(len(negatives), max(1, round(len(positives) * per_positive)))
    negatives = negatives[torch.randperm(len(negatives), generator=draw)[:wanted]]
    chosen = torch.cat([positives, negatives])
    return chosen, labels[chosen]
