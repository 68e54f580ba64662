"""What is measured: average precision, the accuracy of classes, or the share of keypoints that are found (PCK).

AP comes with the accuracy at the threshold that is best on the training labels (flipped ones included, since that is
what the learner has), for every method: a scorer trained to rank has no threshold of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from directloss._checks import check_choice
from directloss.integrations._cut import best_cut
from directloss.metrics import classification
from directloss.metrics.ranking import average_precision
from directloss.tasks import Error
from directloss_repro.data import Part, Split
from directloss_repro.data.keypoints import highest_pixels, visible


def best_threshold(scores: Tensor, target: Tensor) -> float:
    """The threshold with the fewest errors when items above it are called positive; the highest such one.

    It lies midway between two neighbouring scores, or is minus infinity below all scores and infinity above all.

    Example:
        >>> best_threshold(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 1, 0]))
        1.5
    """
    cut, high = best_cut(scores, (target > 0).long(), Error())[0], float(scores.max())
    return cut if float(scores.min()) < cut < high else math.copysign(math.inf, cut - high)


def accuracy(scores: Tensor, target: Tensor, threshold: float) -> float:
    """Share of items on the right side of the threshold."""
    return float(((scores.double() > threshold) == (target > 0)).double().mean())


@torch.no_grad()
def measure(
    model: nn.Module,
    split: Split,
    parts: Iterable[str],
    metric: str = "ap",
    batch: int | None = None,
) -> dict[str, float]:
    """``{part}_{metric}`` of each named part that exists; for AP also ``test_accuracy`` where test is among them.

    A network whose scores are not all finite is judged as one that gives every item the same score.
    ``batch`` is how many items the network sees at once; None for all.
    """
    check_choice("metric", metric, METRICS)
    named = split.parts()
    if metric != "ap":
        return {f"{name}_{metric}": _mean(model, named[name], MEANS[metric], batch) for name in parts if name in named}
    scores = {name: scores_of(model, part, batch) for name, part in named.items() if name in {*parts, "train"}}
    numbers = {f"{name}_ap": float(average_precision(scores[name], named[name].y)) for name in parts if name in named}
    if "test" in scores:
        threshold = best_threshold(scores["train"], named["train"].y)
        numbers["test_accuracy"] = accuracy(scores["test"], named["test"].y, threshold)
    return numbers


Weighted = tuple[float, int]
"""A mean and the number of its items."""


def _class_accuracy(scores: Tensor, target: Tensor) -> Weighted:
    return float(classification.accuracy(scores, target)), len(target)


def _pck(heatmaps: Tensor, target: Tensor) -> Weighted:
    """Keypoints as `directloss_repro.data.keypoints` describes them; the radius is the same for all of an image."""
    seen, radius = visible(target), target[..., 2].amax(-1, keepdim=True).double()
    # In float64 and squared, as in `directloss.metrics.within_radius`, so that both agree on the circle.
    offset = highest_pixels(heatmaps).double() - target[..., :2].double()
    right = offset.square().sum(-1) <= radius.square()
    return float(classification.mean_over_items(right, seen, heatmaps)), int(seen.sum())


MEANS: dict[str, Callable[[Tensor, Tensor], Weighted]] = {"accuracy": _class_accuracy, "pck": _pck}
"""Metrics that are a mean over items, so that they can be computed batch by batch."""
METRICS = ("ap", *MEANS)
"""The metrics that can judge an experiment."""


def _mean(model: nn.Module, part: Part, value: Callable[[Tensor, Tensor], Weighted], batch: int | None) -> float:
    found = [value(_finite(model(some.x)), some.y) for some in part.pieces(batch)]
    return sum(mean * weight for mean, weight in found) / max(1, sum(weight for _, weight in found))


@torch.no_grad()
def scores_of(model: nn.Module, part: Part, batch: int | None = None) -> Tensor:
    """The scores of all items, ``batch`` at a time; all zero if one of them is not finite."""
    return _finite(torch.cat([model(some.x) for some in part.pieces(batch)]))


def _finite(scores: Tensor) -> Tensor:
    return scores if bool(torch.isfinite(scores).all()) else torch.zeros_like(scores)
