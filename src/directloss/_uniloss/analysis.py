"""How well does an interpolation follow the metric away from its anchors? The analysis of Table 5 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from directloss._checks import check_count, check_finite, check_scores, check_tensor, fail
from directloss._uniloss.anchors import Anchoring, as_anchoring, sample
from directloss._uniloss.interpolation import Interpolation, as_interpolation
from directloss._uniloss.loss import Metric, as_refactored
from directloss._uniloss.refactoring import Bound, Refactored

DISTANCES = (0.0, 1 / 512, 1 / 128, 1 / 32, 1 / 8, 1 / 2)
"""Those of Table 5, as shares of all binaries."""


@dataclass(frozen=True)
class InterpolationQuality:
    """One row for each distance: how far interpolated and true values are apart, and whether they agree in order."""

    distance: float
    """Share of binaries that differ from the present configuration."""
    error: float
    """Root mean square of interpolated minus true metric (the paper's L2 distance), in units of the metric."""
    correlation: float
    """Spearman's rank correlation of interpolated and true metric; NaN where all true values are equal."""


def interpolation_quality(
    scores: Tensor,
    target: Tensor,
    metric: str | Metric | Refactored,
    *,
    interpolation: str | Interpolation = "inverse-distance",
    anchors: int | Anchoring = 16,
    distances: Sequence[float] = DISTANCES,
    draws: int = 64,
    generator: torch.Generator | None = None,
) -> list[InterpolationQuality]:
    """Interpolated against true metric on configurations at given Hamming distances from those of training.

    Args:
        scores: problems met during training, ``(steps, ...)``: one configuration for each step.
        target: their targets, ``(steps, ...)``.
        metric: as for `uniloss`; its value of configurations must be known.
        interpolation: as for `uniloss`.
        anchors: as for `uniloss`.
        distances: shares of all binaries that are flipped.
        draws: how many configurations at each distance, for each step.
        generator: the source of all random choices.

    References:
        Liu, Wang, Deng, ECCV 2020, appendix B and Table 5.

    Examples:
        >>> scores, target = torch.randn(2, 20, generator=torch.Generator().manual_seed(0)), torch.zeros(2, 20).long()
        >>> target[:, :5] = 1
        >>> [row.distance for row in interpolation_quality(scores, target, "ap", draws=8)][:3]
        [0.0, 0.001953125, 0.0078125]
    """
    check_count("draws", draws)
    for distance in distances:
        if not 0 <= distance <= 1:
            fail("distances", "must be shares of all binaries, from 0 to 1", distance)
    scores, target = check_scores(scores, 1, "(steps, ...)").detach(), check_tensor("target", target)
    if target.dim() == 0 or len(target) != len(scores):
        rule = f"must hold one target for each of the {len(scores)} steps"
        fail("target", rule, f"of shape {tuple(target.shape)}", "Stack the steps in front, also for one: scores[None].")
    check_finite(scores)
    refactored, how = as_refactored(metric), as_anchoring(anchors)
    surface = as_interpolation(interpolation)
    generator = generator if generator is not None else torch.default_generator
    pairs: dict[float, list[Tensor]] = {distance: [] for distance in distances}
    for row, labels in zip(scores, target, strict=True):
        refactored.check(row, labels)
        problem = refactored.bind(row, labels)
        if problem is not None:
            for distance, found in _of_step(problem, surface, how, distances, draws, generator).items():
                pairs[distance].append(found)
    return [_summary(distance, torch.cat(found, -1)) for distance, found in pairs.items() if found]


def _of_step(
    problem: Bound,
    surface: Interpolation,
    how: Anchoring,
    distances: Sequence[float],
    draws: int,
    generator: torch.Generator,
) -> dict[float, Tensor]:
    """For each distance the interpolated and the true values, ``(2, draws)``."""
    if problem.decide is None:
        fail("metric", "must have a known value for every configuration", "one that has none")
    present = problem.comparisons.bits(problem.scores)
    anchors = sample(problem, problem.comparisons, replace(how, control=False), present, generator)
    between = anchors.configurations.between()
    found = {}
    for distance in distances:
        bits = _flipped(present, round(distance * len(present)), draws, generator)
        squared = torch.stack([anchors.configurations.squared_distances(row.to(problem.scores.dtype)) for row in bits])
        guess = surface(squared, anchors.values.to(squared.dtype), lambda: between)
        found[distance] = torch.stack([guess.double(), problem.decide(bits).double()])
    return found


def _flipped(present: Tensor, flips: int, draws: int, generator: torch.Generator) -> Tensor:
    """Copies of a configuration with so many binaries flipped, at random."""
    bits = present.repeat(draws, 1)
    for row in bits:
        where = torch.randperm(len(present), generator=generator)[:flips].to(present.device)
        row[where] = ~row[where]
    return bits


def _summary(distance: float, values: Tensor) -> InterpolationQuality:
    from scipy.stats import spearmanr  # takes a second to import

    guess, true = values.cpu()
    error = (guess - true).square().mean().sqrt()
    level = bool((guess == guess[0]).all() or (true == true[0]).all())
    correlation = float("nan") if level else float(spearmanr(guess, true).statistic)
    return InterpolationQuality(distance, float(error), correlation)
