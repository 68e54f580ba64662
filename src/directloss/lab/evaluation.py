"""What is measured: average precision, and the accuracy at the threshold that is best on the training data.

A scorer trained to rank has no natural threshold, so accuracy needs one. It is chosen on the training labels (flipped
ones included, since that is what the learner has) and used unchanged on the test data, for every method alike.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from directloss.lab.data import Split
from directloss.metrics.ranking import average_precision


def best_threshold(scores: Tensor, target: Tensor) -> float:
    """The threshold with the fewest errors when items above it are called positive; the highest such one.

    Between two neighbouring scores the middle is taken; below all scores minus infinity, above all plus infinity.

    Example:
        >>> best_threshold(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 1, 0]))
        1.5
    """
    ranked, order = scores.double().sort(descending=True, stable=True)
    gains = torch.where(target[order] > 0, 1, -1).cumsum(0)
    # Right answers when the first k are called positive, up to a constant; only where two scores differ can one cut.
    totals = torch.cat([gains.new_zeros(1), gains])
    possible = torch.ones_like(totals, dtype=torch.bool)
    possible[1:-1] = ranked[:-1] > ranked[1:]
    cut = int(torch.where(possible, totals, totals.min() - 1).argmax())
    if cut == 0:
        return float("inf")
    if cut == len(ranked):
        return float("-inf")
    return float((ranked[cut - 1] + ranked[cut]) / 2)


def accuracy(scores: Tensor, target: Tensor, threshold: float) -> float:
    """Share of items on the right side of the threshold."""
    return float(((scores.double() > threshold) == (target > 0)).double().mean())


@torch.no_grad()
def measure(model: nn.Module, split: Split, parts: Iterable[str], with_accuracy: bool = True) -> dict[str, float]:
    """``{part}_ap`` of each named part that exists, and ``test_accuracy`` where test is among them.

    A network whose scores are not all finite ranks nothing; it is judged as one that gives every item the same score.
    """
    named = split.parts()
    scores = {name: _finite(model(part.x)) for name, part in named.items() if name in {*parts, "train"}}
    numbers = {f"{name}_ap": float(average_precision(scores[name], named[name].y)) for name in parts if name in named}
    if with_accuracy and "test" in scores:
        threshold = best_threshold(scores["train"], named["train"].y)
        numbers["test_accuracy"] = accuracy(scores["test"], named["test"].y, threshold)
    return numbers


def _finite(scores: Tensor) -> Tensor:
    return scores if bool(torch.isfinite(scores).all()) else torch.zeros_like(scores)
