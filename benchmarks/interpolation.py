"""How well does each interpolation know the metric? The analysis of UniLoss's Table 5, with a figure.

    python -m benchmarks.interpolation [--seeds 5] [--out results/interpolation]

A network is trained on scikit-learn's digits with UniLoss; every tenth batch's scores are kept. From the configuration
of each, binaries are flipped at random, up to half of them, and the interpolated metric is compared with the true one:
root mean square error, and Spearman's rank correlation. Writes ``quality.json`` and ``quality.png`` and ``.svg``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from directloss_repro.reports.stats import estimate
from directloss_repro.seeding import generator, seeded
from torch import Tensor, nn

import directloss as dl
from benchmarks.uniloss_study import BATCH, digits
from directloss._uniloss.analysis import DISTANCES
from directloss.relaxation import DistanceSpline, Interpolation, InverseDistance, interpolation_quality

SURFACES: dict[str, Interpolation] = {
    "inverse distance (the paper's)": InverseDistance(),
    "inverse distance, power 4": InverseDistance(4.0),
    "distance spline": DistanceSpline(),
}
COLOURS = ("#3d444d", "#d55e00", "#0072b2")
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
    lines = ["| metric | interpolation | | " + " | ".join(NAMES[d] for d in DISTANCES) + " |", "|---" * 9 + "|"]
    for metric, surfaces in found.items():
        for name, kinds in surfaces.items():
            for kind, table in kinds.items():
                lines.append(f"| {metric} | {name} | {kind} | " + " | ".join(means(table)) + " |")
    return "\n".join(lines)


def draw(found: dict[str, dict[str, dict[str, list[list[float]]]]], out: Path) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True, layout="constrained")
    for column, (metric, surfaces) in enumerate(found.items()):
        for row, kind in enumerate(("error", "correlation")):
            place = axes[row, column]
            for colour, (name, kinds) in zip(COLOURS, surfaces.items(), strict=True):
                columns = [estimate(list(values)) for values in zip(*kinds[kind], strict=True)]
                middle = torch.tensor([value.mean for value in columns])
                half = torch.tensor([value.half for value in columns])
                place.plot(range(len(DISTANCES)), middle, color=colour, marker="o", markersize=4, label=name)
                place.fill_between(range(len(DISTANCES)), middle - half, middle + half, color=colour, alpha=0.2)
            place.set_xticks(range(len(DISTANCES)), [NAMES[d] for d in DISTANCES])
            place.spines[["top", "right"]].set_visible(False)
            place.set_ylabel("error of the metric" if kind == "error" else "rank correlation")
        axes[0, column].set_title(metric)
        axes[1, column].set_xlabel("share of binaries that differ from the present ones")
    axes[0, 0].legend(frameon=False)
    for kind in ("png", "svg"):
        figure.savefig(out / f"quality.{kind}", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/interpolation"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    stored = arguments.out / "quality.json"
    found = json.loads(stored.read_text()) if stored.exists() else study(arguments.seeds)
    temporary = stored.with_suffix(".tmp")
    temporary.write_text(json.dumps(found))
    temporary.replace(stored)
    draw(found, arguments.out)
    print(show(found))


if __name__ == "__main__":
    main()
