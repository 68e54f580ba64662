"""How well does each interpolation know the metric? The analysis of UniLoss's Table 5.

    python -m benchmarks.interpolation [--seeds 5] [--out results/interpolation]

A network is trained on scikit-learn's digits with UniLoss; every tenth batch's scores are kept. From the configuration
of each, binaries are flipped at random, up to half of them, and the interpolated metric is compared with the true one:
root mean square error, and Spearman's rank correlation. Writes ``quality.json``; `benchmarks.figures` draws it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from directloss_repro.files import write_all
from directloss_repro.reports.stats import estimate
from directloss_repro.seeding import generator, seeded
from torch import Tensor, nn

import directloss as dl
from benchmarks.study import table
from benchmarks.tables import digits
from benchmarks.uniloss_study import BATCH
from directloss._uniloss.analysis import DISTANCES
from directloss.relaxation import DistanceSpline, Interpolation, InverseDistance, interpolation_quality

SURFACES: dict[str, Interpolation] = {
    "inverse distance (the paper's)": InverseDistance(),
    "inverse distance, power 4": InverseDistance(4.0),
    "distance spline": DistanceSpline(),
}
METRICS = {"accuracy": 10, "ap": 1}
NAMES = {0.0: "0", 1 / 512: "1/512", 1 / 128: "1/128", 1 / 32: "1/32", 1 / 8: "1/8", 1 / 2: "1/2"}


def met_in_training(metric: str, seed: int, steps: int = 150, every: int = 10) -> tuple[Tensor, Tensor]:
    """Scores and targets of batches on the way."""
    x, y = digits()
    target = y if METRICS[metric] > 1 else (y == 8).long()
    layers = (nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, METRICS[metric]))
    model = seeded(lambda: nn.Sequential(*layers), "interpolation", seed)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    loss_fn = dl.UniLoss(metric, generator=generator("interpolation anchors", seed))
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


def study(seeds: int) -> dict[str, dict[str, dict[str, list[list[float]]]]]:
    """Metric -> surface -> "error" and "correlation" -> one list over distances for each seed."""
    found: dict[str, dict[str, dict[str, list[list[float]]]]] = {}
    for metric in METRICS:
        found[metric] = {name: {"error": [], "correlation": []} for name in SURFACES}
        for seed in range(seeds):
            scores, target = met_in_training(metric, seed)
            for name, surface in SURFACES.items():
                rows = interpolation_quality(
                    scores, target, metric, interpolation=surface, generator=generator("quality", seed), draws=32
                )
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
    return table(["metric", "interpolation", "", *(NAMES[d] for d in DISTANCES)], rows)


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
