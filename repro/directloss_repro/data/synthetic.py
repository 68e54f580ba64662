"""The papers' drawn data: a network's scores, two shells, a half-space."""

from __future__ import annotations

import torch
from torch import Tensor

from directloss._checks import fail
from directloss_repro.data.split import Part
from directloss_repro.seeding import generator


def teacher(points: int, dimensions: int, hidden: tuple[int, ...], positive_share: float, *seed: object) -> Part:
    """Points of a standard normal, labelled by a random ReLU network: the highest-scored share is positive.

    All weights and biases of the network are standard normal. Such a network is now and then dead (constant on most of
    the inputs), so that the cut would fall among equal scores and labels would mean nothing; then it is drawn again.
    """
    x = torch.randn(points, dimensions, generator=generator("teacher inputs", *seed))
    count = round(positive_share * points)
    attempts = (_random_network(x, hidden, generator("teacher", attempt, *seed)) for attempt in range(100))
    ranked = (scores.sort(descending=True, stable=True) for scores in attempts)
    alive = next((order for scores, order in ranked if scores[count - 1] > scores[count]), None)
    if alive is None:
        fail("hidden", "must give a network that is not dead on its inputs", hidden, "Make the layers wider.")
    labels = torch.zeros(points, dtype=torch.long)
    labels[alive[:count]] = 1
    return Part(x, labels)


def _random_network(x: Tensor, hidden: tuple[int, ...], draw: torch.Generator) -> Tensor:
    """Scores in float64: layers of variance-one weights grow quickly, and a tie at the cut would be an artefact."""
    values = x.double()
    for width in (*hidden, 1):
        weight = torch.randn(values.shape[1], width, generator=draw, dtype=torch.float64)
        bias = torch.randn(width, generator=draw, dtype=torch.float64)
        values = values @ weight + bias
        if width != 1:
            values = values.relu()
    return values[:, 0]


def shells(points: int, dimensions: int, deviation: float, inner: float, outer: float, *seed: object) -> Part:
    """Gaussian points far out (squared norm above ``outer``) are positive, those near (below ``inner``) negative.

    Points between are left out, so fewer than ``points`` come back. The inputs are divided by ``deviation``.
    """
    x = deviation * torch.randn(points, dimensions, generator=generator("shells", *seed))
    norm = x.square().sum(1)
    kept = (norm > outer) | (norm < inner)
    return Part(x[kept] / deviation, (norm[kept] > outer).long())


def half_space(points: int, dimensions: int, *seed: object) -> Part:
    """Standard normal points, positive where the sum of their coordinates is above 0."""
    x = torch.randn(points, dimensions, generator=generator("half-space", *seed))
    return Part(x, (x.sum(1) > 0).long())
