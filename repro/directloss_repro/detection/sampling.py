"""Which boxes train a class, after R-CNN (Girshick et al. 2014, Sec. 2.3 and Appendix B).

Positive: overlap of at least 0.5 with an object of the class, the objects themselves included. Negative: less than 0.5
with all of them for fine-tuning, less than 0.3 for hard negatives. Boxes on difficult objects train nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from directloss._checks import fail
from directloss_repro.detection.boxes import Boxes, overlaps
from directloss_repro.detection.evaluation import Truth
from directloss_repro.seeding import generator

POSITIVE, NEGATIVE, IGNORED = 1, 0, -1
FINE_TUNING, HARD = 0.5, 0.3
"""Below this overlap a box is a negative: for fine-tuning, and for hard negatives."""


def label_boxes(
    boxes: Boxes, truth: Truth, positive_from: float = 0.5, negative_below: float = FINE_TUNING
) -> NDArray[np.int64]:
    """1, 0 or -1 (ignored) for each box and one class."""
    labels = np.full(len(boxes), NEGATIVE, np.int64)
    if len(truth.boxes) == 0:
        return labels
    shared = overlaps(boxes, truth.boxes)
    labels[shared.max(axis=1) >= negative_below] = IGNORED
    if not truth.difficult.all():
        easy = shared[:, ~truth.difficult]
        # A box that lies more on a difficult object than on any other is not taken as an example of either.
        mine = easy.max(axis=1) >= shared.max(axis=1)
        labels[(easy.max(axis=1) >= positive_from) & mine] = POSITIVE
    return labels


@dataclass(frozen=True)
class Sample:
    """Boxes that train one class: box ``rows[k]`` of image ``images[k]``, with labels 0 or 1."""

    images: Tensor
    rows: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


def draw_sample(labels: Sequence[NDArray[np.int64]], per_positive: float, most: int, *seed: object) -> Sample:
    """All positives and ``per_positive`` times as many negatives, at most ``most`` boxes; drawn from a seed.

    ``labels`` holds one array of `label_boxes` for each image. R-CNN takes three negatives for each positive.
    """
    images = torch.cat([torch.full((len(part),), index) for index, part in enumerate(labels)])
    rows = torch.cat([torch.arange(len(part)) for part in labels])
    every = torch.cat([torch.from_numpy(part) for part in labels])
    positives, negatives = (every == POSITIVE).nonzero()[:, 0], (every == NEGATIVE).nonzero()[:, 0]
    if len(positives) == 0 or len(negatives) == 0:
        found = f"{len(positives)} positives and {len(negatives)} negatives"
        fail("the boxes of a class", "must have positives and negatives", found)
    draw = generator("detection sample", *seed)
    share = 1 / (1 + per_positive)
    wanted = min(len(positives), max(1, round(most * share)))
    positives = positives[torch.randperm(len(positives), generator=draw)[:wanted]]
    wanted = min(len(negatives), max(1, round(len(positives) * per_positive)))
    negatives = negatives[torch.randperm(len(negatives), generator=draw)[:wanted]]
    chosen = torch.cat([positives, negatives])
    return Sample(images[chosen], rows[chosen], (every[chosen] == POSITIVE).long())


def hardest_negatives(scores: NDArray[np.floating], labels: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Indices of the negatives with the highest scores; use labels made with ``negative_below=HARD``."""
    negatives = np.flatnonzero(labels == NEGATIVE)
    return negatives[np.argsort(-scores[negatives], kind="stable")[:most]]
