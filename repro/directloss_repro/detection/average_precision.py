"""Average precision as PASCAL VOC measures it.

Detections of all images are sorted by score. Each is assigned to the object of its image that it overlaps most. If the
overlap is at least 0.5 the detection is right, but only the first of each object: further ones are false positives.
Detections of difficult objects count neither way, and difficult objects need not be found.

From 2010 on, AP is the area under the curve of precision over recall, made monotone from the right; before, the mean of
that curve at recall 0, 0.1, ..., 1. See Everingham et al. 2010, Sec. 4.2; VOC2012 development kit, Sec. 3.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from directloss._checks import check_choice, fail
from directloss_repro.data.photographs import Box
from directloss_repro.detection.boxes import Truth, overlaps

RULES = ("area", "11-point")


class Detection(NamedTuple):
    """A box in an image, with its score for one class."""

    image: str
    box: Box
    score: float


def voc_ap(found: Sequence[Detection], truth: Mapping[str, Truth], rule: str = "area", overlap: float = 0.5) -> float:
    """AP of one class over the images of ``truth``; detections in other images are false positives."""
    check_choice("rule", rule, RULES)
    objects = sum(int((~image.difficult).sum()) for image in truth.values())
    if objects == 0:
        fail("truth", "must have at least one object that is not difficult", "without one", "AP is not defined then.")
    if not np.isfinite([one.score for one in found]).all():
        fail("scores", "must be finite", "NaN or infinite somewhere")
    hits = right_ones(found, truth, overlap)
    right = np.cumsum(hits)
    precision = right / np.arange(1, len(hits) + 1)
    ceiling = np.maximum.accumulate(precision[::-1])[::-1]  # the best precision at this recall or more
    if rule == "area":
        # Recall grows by 1 / objects at each hit and nowhere else.
        return float(ceiling[hits].sum() / objects)
    # Integers, so that 3 of 10 found is a recall of at least 0.3 despite rounding.
    reached = [np.flatnonzero(10 * right >= tenth * objects) for tenth in range(11)]
    return float(sum(ceiling[places[0]] for places in reached if len(places)) / 11)


def right_ones(found: Sequence[Detection], truth: Mapping[str, Truth], overlap: float = 0.5) -> NDArray[np.bool_]:
    """Whether each detection is right, best score first; those of difficult objects are left out."""
    taken = {image: np.zeros(len(objects.boxes), bool) for image, objects in truth.items()}
    hits = []
    for image, box, _ in sorted(found, key=lambda one: -one.score):
        objects = truth.get(image)
        if objects is None or len(objects.boxes) == 0:
            hits.append(False)
            continue
        shared = overlaps(np.array([box]), objects.boxes)[0]
        nearest = int(shared.argmax())
        if shared[nearest] < overlap:
            hits.append(False)
        elif not objects.difficult[nearest]:
            hits.append(not taken[image][nearest])
            taken[image][nearest] = True
    return np.array(hits, bool)
