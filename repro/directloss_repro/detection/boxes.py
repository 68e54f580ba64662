"""Boxes ``(n, 4)`` as left, top, right, bottom at the edges of pixels.

VOC counts pixels from 1, includes the last and adds 1 to widths; measured at edges both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from directloss._checks import fail

Boxes = NDArray[np.float64]


def as_boxes(values: Sequence[Any] | NDArray[Any]) -> Boxes:
    """An array ``(n, 4)``, also for no box at all."""
    boxes = np.asarray(values, np.float64).reshape(-1, 4) if len(values) == 0 else np.asarray(values, np.float64)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        fail("boxes", "must have shape (n, 4)", f"of shape {boxes.shape}")
    return boxes


def areas(boxes: Boxes) -> NDArray[np.float64]:
    """Widths times heights; 0 for boxes without area."""
    result: NDArray[np.float64] = np.clip(boxes[:, 2:] - boxes[:, :2], 0, None).prod(axis=1)
    return result


def overlaps(first: Boxes, second: Boxes) -> NDArray[np.float64]:
    """Intersection over union of each box of the first with each of the second ``(n, m)``; 0 for empty boxes.

    Example:
        >>> overlaps(as_boxes([[0, 0, 2, 2]]), as_boxes([[1, 0, 3, 2], [5, 5, 6, 6]])).round(3)
        array([[0.333, 0.   ]])
    """
    corner = np.maximum(first[:, None, :2], second[None, :, :2])
    other = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.clip(other - corner, 0, None).prod(axis=2)
    union = areas(first)[:, None] + areas(second)[None, :] - shared
    result: NDArray[np.float64] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return result


def nms(boxes: Boxes, scores: NDArray[Any], threshold: float = 0.3) -> NDArray[np.int64]:
    """Indices of the boxes that stay, best first: each removes all lower-scored ones that overlap it by more.

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
