"""Average precision as PASCAL VOC measures it.

Detections of all images are sorted by score. Each is assigned to the object of its image that it overlaps most. If the
overlap is at least 0.5 the detection is right, but only the first of each object: further ones are false positives.
Detections of difficult objects count neither way, and difficult objects need not be found.

From 2010 on, AP is the area under the curve of precision over recall, made monotone from the right; before, the mean of
that curve at recall 0, 0.1, ..., 1. Everingham et al. 2010, Sec. 4.2; VOC2012 development kit, Sec. 3.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from directloss._checks import check_choice, fail
from directloss_repro.detection.boxes import Boxes, Truth, overlaps

RULES = ("area", "11-point")


@dataclass
class Detections:
    """What was found of one class, in all images: row k is box k in image k with score k."""

    images: list[str] = field(default_factory=list)
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def add(self, image: str, boxes: Boxes, scores: Sequence[float] | NDArray[np.floating]) -> None:
        """The detections of one more image."""
        for box, score in zip(boxes.tolist(), scores, strict=True):
            self.images.append(image)
            self.boxes.append((box[0], box[1], box[2], box[3]))
            self.scores.append(float(score))

    def __len__(self) -> int:
        return len(self.scores)

    def of(self, image: str) -> list[tuple[tuple[float, float, float, float], float]]:
        """Boxes and scores in one image."""
        return [
            (box, score) for name, box, score in zip(self.images, self.boxes, self.scores, strict=True) if name == image
        ]


def voc_ap(found: Detections, truth: Mapping[str, Truth], rule: str = "area", overlap: float = 0.5) -> float:
    """AP of one class over the images of ``truth``; detections in other images are false positives."""
    check_choice("rule", rule, RULES)
    objects = sum(int((~image.difficult).sum()) for image in truth.values())
    if objects == 0:
        fail("truth", "must have at least one object that is not difficult", "without one", "AP is not defined then.")
    if not np.isfinite(found.scores).all():
        fail("scores", "must be finite", "NaN or infinite somewhere")
    hits = judge(found, truth, overlap)
    right = np.cumsum(hits)
    precision = right / np.arange(1, len(hits) + 1)
    ceiling = np.maximum.accumulate(precision[::-1])[::-1]  # the best precision at this recall or more
    if rule == "area":
        # Recall grows by 1 / objects at each hit and nowhere else.
        return float(ceiling[hits].sum() / objects)
    # Whole numbers: 3 of 10 found is a recall of at least 0.3, whatever floating point thinks.
    reached = [np.flatnonzero(10 * right >= tenth * objects) for tenth in range(11)]
    return float(sum(ceiling[places[0]] for places in reached if len(places)) / 11)


def judge(found: Detections, truth: Mapping[str, Truth], overlap: float = 0.5) -> NDArray[np.bool_]:
    """Right or wrong for each detection, best score first; those of difficult objects are left out."""
    taken = {image: np.zeros(len(objects.boxes), bool) for image, objects in truth.items()}
    hits = []
    for row in np.argsort(-np.asarray(found.scores), kind="stable"):
        image = found.images[row]
        objects = truth.get(image)
        if objects is None or len(objects.boxes) == 0:
            hits.append(False)
            continue
        shared = overlaps(np.array([found.boxes[row]]), objects.boxes)[0]
        nearest = int(shared.argmax())
        if shared[nearest] < overlap:
            hits.append(False)
        elif not objects.difficult[nearest]:
            hits.append(not taken[image][nearest])
            taken[image][nearest] = True
    return np.array(hits, bool)
