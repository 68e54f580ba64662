"""How well does each interpolation follow the metric? The analysis of UniLoss's Table 5.

    python -m benchmarks.interpolation [--seeds 5] [--out results/interpolation]

A network is trained on scikit-learn's digits with UniLoss, keeping the scores of every tenth batch. In the
configuration of each, up to half of the binaries are flipped at random, and the interpolated metric is compared with
the true one: root mean square error, and Spearman's rank correlation. Writes ``quality.json``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import torch
from directloss_repro.ablations import decide
from directloss_repro.files import write_all
from directloss_repro.reports.stats import estimate
from directloss_repro.seeding import generator, seeded
from scipy.stats import spearmanr
from torch import Tensor, nn

import directloss as dl
from benchmarks.study import table
from benchmarks.tables import digits
from benchmarks.uniloss_study import BATCH
from directloss._uniloss.interpolation import Places
from directloss._uniloss.refactoring import Bound, by_name
from directloss.relaxation import DistanceSpline, Interpolation, InverseDistance

SURFACES: dict[str, Interpolation] = {
    "inverse distance (the paper's)": InverseDistance(),
    "inverse distance, power 4": InverseDistance(4.0),
    "distance spline": DistanceSpline(),
}
METRICS = {"accuracy": 10, "ap": 1}
DISTANCES = {0.0: "0", 1 / 512: "1/512", 1 / 128: "1/128", 1 / 32: "1/32", 1 / 8: "1/8", 1 / 2: "1/2"}
"""The distances of Table 5, as shares of all binaries."""
DRAWS = 32
"""Configurations per distance and batch."""


def met_in_training(metric: str, seed: int, steps: int = 150, every: int = 10) -> tuple[Tensor, Tensor]:
    """Scores and targets of batches during training."""
    x, y = digits()
    target = y if METRICS[metric] > 1 else (y == 8).long()
    layers = (nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, METRICS[metric]))
    model = seeded(lambda: nn.Sequential(*layers), "interpolation", seed)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    anchors = generator("interpolation anchors", seed)
    loss_fn = dl.UniLoss(metric, likelihood=0, interpolation="inverse-distance", generator=anchors)
    draw = generator("interpolation batches", seed)
    kept = []
    for step in range(steps):
        batch = torch.randperm(len(x), generator=draw)[:BATCH]
        scores = model(x[batch]) if METRICS[metric] > 1 else model(x[batch])[:, 0]
        if step % every == 0:
            kept.append((scores.detach(), target[batch]))
        optimizer.zero_grad()
        loss_fn(scores, target[batch]).backward()
        optimizer.step()
    return torch.stack([scores for scores, _ in kept]), torch.stack([labels for _, labels in kept])


class Quality(NamedTuple):
    """How well an interpolation follows the metric at one distance."""

    distance: float
    error: float
    """Root mean square of interpolated minus true metric (the paper's L2 distance)."""
    correlation: float
    """Spearman's rank correlation of the two; NaN if all true or all interpolated values are equal."""


def quality(
    scores: Tensor, target: Tensor, metric: str, surface: Interpolation, source: torch.Generator
) -> list[Quality]:
    """Interpolated against true metric at each distance from the configurations of ``scores`` ``(steps, ...)``."""
    refactored = by_name(metric)
    bound = [refactored.bind(row, labels) for row, labels in zip(scores, target, strict=True)]
    # (steps, distances, 2, draws)
    values = torch.stack([values_around(problem, metric, surface, source) for problem in bound if problem is not None])
    return [summary(distance, torch.cat([*values[:, k]], -1)) for k, distance in enumerate(DISTANCES)]


def values_around(problem: Bound, metric: str, surface: Interpolation, source: torch.Generator) -> Tensor:
    """Interpolated and true values ``(distances, 2, draws)`` around the current configuration of one problem."""
    present = problem.comparisons.values(problem.scores) > 0
    anchors, found = dl.Anchoring().draw(problem, problem.comparisons, source), []
    for distance in DISTANCES:
        bits = flipped(present, round(distance * len(present)), source)
        # Comparisons so large that their sigmoid is 0 or 1.
        far = torch.where(bits, 1e3, -1e3).to(problem.scores.dtype)
        seen = [Places(row, anchors.differing, len(anchors.values)) for row in far]
        guess = [surface(places.squared, anchors.values.numpy(), seen[0].between)[0] for places in seen]
        found.append(torch.stack([torch.tensor(guess, dtype=torch.float64), decide(metric, problem.comparisons, bits)]))
    return torch.stack(found)


def flipped(present: Tensor, flips: int, source: torch.Generator) -> Tensor:
    """Copies of a configuration with ``flips`` binaries flipped at random."""
    bits = present.repeat(DRAWS, 1)
    for row in bits:
        where = torch.randperm(len(present), generator=source)[:flips]
        row[where] = ~row[where]
    return bits


def summary(distance: float, values: Tensor) -> Quality:
    guess, true = values
    error = (guess - true).square().mean().sqrt()
    level = bool((guess == guess[0]).all() or (true == true[0]).all())
    return Quality(distance, float(error), float("nan") if level else float(spearmanr(guess, true).statistic))


def study(seeds: int) -> dict[str, dict[str, dict[str, list[list[float]]]]]:
    """Metric -> surface -> "error" and "correlation" -> one list over distances for each seed."""
    found: dict[str, dict[str, dict[str, list[list[float]]]]] = {}
    for metric in METRICS:
        found[metric] = {name: {"error": [], "correlation": []} for name in SURFACES}
        for seed in range(seeds):
            scores, target = met_in_training(metric, seed)
            for name, surface in SURFACES.items():
                rows = quality(scores, target, metric, surface, generator("quality", seed))
                for kind in ("error", "correlation"):
                    found[metric][name][kind].append([round(getattr(row, kind), 6) for row in rows])
            print(f"{metric}, seed {seed}", flush=True)
    return found


def means(table: list[list[float]]) -> list[str]:
    """Mean and 95 % interval for each distance."""
    columns = [estimate(list(column)) for column in zip(*table, strict=True)]
    return [f"{column.mean:.3f} ± {column.half:.3f}" for column in columns]


def show(found: dict[str, dict[str, dict[str, list[list[float]]]]]) -> str:
    rows = [
        [metric, name, kind, *means(numbers)]
        for metric, surfaces in found.items()
        for name, kinds in surfaces.items()
        for kind, numbers in kinds.items()
    ]
    return table(["metric", "interpolation", "", *DISTANCES.values()], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/interpolation"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    stored = arguments.out / "quality.json"
    found = json.loads(stored.read_text()) if stored.exists() else study(arguments.seeds)
    write_all({stored: json.dumps(found).encode()})
    print(show(found))


if __name__ == "__main__":
    main()
