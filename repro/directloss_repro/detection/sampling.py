"""Which boxes train a class, after R-CNN (Girshick et al. 2014, Sec. 2.3 and Appendix B).

Positive: overlap of at least 0.5 with an object of the class, the objects themselves included. Negative: less than
that with all of them. Boxes on difficult objects train nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from directloss._checks import fail
from directloss_repro.detection.boxes import Boxes, overlaps
from directloss_repro.detection.evaluation import Truth
from directloss_repro.seeding import generator

POSITIVE, NEGATIVE, IGNORED = 1, 0, -1


def label_boxes(boxes: Boxes, truth: Truth, overlap: float = 0.5) -> NDArray[np.int64]:
    """1, 0 or -1 (ignored) for each box and one class."""
    labels = np.full(len(boxes), NEGATIVE, np.int64)
    if len(truth.boxes) == 0:
        return labels
    shared = overlaps(boxes, truth.boxes)
    labels[shared.max(axis=1) >= overlap] = IGNORED
    if not truth.difficult.all():
        easy = shared[:, ~truth.difficult]
        # A box that lies more on a difficult object than on any other is not taken as an example of either.
        mine = easy.max(axis=1) >= shared.max(axis=1)
        labels[(easy.max(axis=1) >= overlap) & mine] = POSITIVE
    return labels


def draw_sample(labels: Tensor, per_positive: float, most: int, *seed: object) -> tuple[Tensor, Tensor]:
    """Places and labels 0 or 1 of all positives and ``per_positive`` times as many negatives, ``most`` in all.

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
