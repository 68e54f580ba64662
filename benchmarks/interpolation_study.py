"""Which interpolation, and how much likelihood, should UniLoss have by default? The paper's three tasks and a profit.

    python -m benchmarks.interpolation_study --data-root DATA [--seeds 3] [--out results/interpolation-study]

DATA holds the folders ``mnist`` and ``fashion-mnist`` with the four original files each. Columns:

    AP, zeros        MNIST: zeros against the rest, an MLP (paper, Sec. 4.2)
    accuracy         Fashion-MNIST: ten classes, an MLP (paper, Sec. 4.4)
    PCK              an MNIST digit of class 8 beside another digit on a noisy canvas; where is it? A small
                     convolutional network, heatmaps of 16 x 16, right within 1.5 pixels (paper, Sec. 4.3)
    profit           Fashion-MNIST, shirts (class 6) against the rest: +7 for a shirt that is accepted, -3 for anything
                     else, accepted where sigmoid(score) > 0.3; as a share of the highest possible profit

All methods train on 4,000 images for 400 steps of 128 (PCK: 1,500 images, 300 steps of 32) with Adam; the learning rate
is the best of three on validation data, mean of two search seeds; test results are those of fresh seeds. ``inverse``
and ``spline`` are the interpolations, the number after them is ``likelihood``. ``x-ent`` is cross-entropy, for PCK
the squared error against bumps of width 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.data.idx import read_images
from directloss_repro.records import Record
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import Schedule, train
from torch import Tensor, nn

import directloss as dl
from benchmarks.peers import cross_entropy
from benchmarks.study import from_command_line, gap_cell, mean_cell, rates, table, values

Metric = Callable[[Tensor, Tensor], Tensor]
VERSION = "1"
RATES = (0.001, 0.003, 0.01)
NAMES = {"inverse": "inverse-distance", "spline": "distance-spline"}
SHARES = ("0", "0.1", "0.3", "1")
METHODS = ("x-ent", *(f"{name} {share}" for name in NAMES for share in SHARES))
HEATMAP, RADIUS = 16, 1.5


def profit(scores: Tensor, target: Tensor) -> Tensor:
    """Profit of accepting where the probability is above 0.3, as a share of the highest possible one."""
    accepted = scores.sigmoid() > 0.3
    return (accepted * (10 * target - 3)).sum() / (7 * target.sum()).clamp(min=1)


@lru_cache
def images(root: Path, folder: str, part: str, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Some images and their classes."""
    x, y = (torch.from_numpy(array) for array in read_images(root / folder, part))
    chosen = torch.randperm(len(y), generator=generator("interpolation study", part, seed))[:count]
    return x[chosen].float() / 255, y[chosen].long()


def rows(root: Path, folder: str, which: int | None, seed: int) -> tuple[Part, Part, Part]:
    """Training, validation and test images as rows; one class against the rest, or all classes."""
    x, y = images(root, folder, "train", 6_000, seed)
    test_x, test_y = images(root, folder, "test", 10_000, 0)
    if which is not None:
        y, test_y = (y == which).long(), (test_y == which).long()
    x, test_x = x.flatten(1), test_x.flatten(1)
    return Part(x[:4000], y[:4000]), Part(x[4000:], y[4000:]), Part(test_x, test_y)


def canvases(root: Path, seed: int) -> tuple[Part, Part, Part]:
    """Two digits on each canvas; the target is where the 8 is, as pixel labels of a heatmap."""
    return (
        _canvases(root, "train", 1_500, seed),
        _canvases(root, "train", 500, seed + 1_000_000),
        _canvases(root, "test", 1_000, 0),
    )


def _canvases(root: Path, part: str, count: int, seed: int) -> Part:
    x, y = images(root, "mnist", part, 10_000, seed)
    x = nn.functional.avg_pool2d(x[:, None], 2)[:, 0]
    draw = generator("canvases", part, seed)
    eights, others = x[y == 8], x[y != 8]
    field = 0.3 * torch.rand(count, 2 * HEATMAP + 14, 2 * HEATMAP + 14, generator=draw)
    corners = torch.randint(2 * HEATMAP, (count, 2, 2), generator=draw)
    for k, (mine, other) in enumerate(corners.tolist()):
        for digits, (top, left) in ((others, other), (eights, mine)):
            which = int(torch.randint(len(digits), (), generator=draw))
            field[k, top : top + 14, left : left + 14] += digits[which]
    centre = corners[:, 0].float().flip(-1) / 2  # (x, y) in pixels of the heatmap
    labels = dl.metrics.within_radius(centre[:, None], RADIUS, (HEATMAP, HEATMAP))[:, 0]
    return Part(field[:, None], labels.long())


def pck(heatmaps: Tensor, target: Tensor) -> Tensor:
    return target.flatten(1).gather(1, heatmaps.flatten(1).argmax(1, keepdim=True)).float().mean()


def bumps(heatmaps: Tensor, target: Tensor) -> Tensor:
    """Squared error against a bump around the middle of the right pixels."""
    places = torch.stack(torch.meshgrid(*[torch.arange(HEATMAP, dtype=torch.float32)] * 2, indexing="ij"), -1)
    middle = (target[..., None] * places).sum((1, 2)) / target.sum((1, 2))[:, None]
    wanted = torch.exp(-(places - middle[:, None, None]).square().sum(-1) / 2)
    return (heatmaps - wanted).square().mean()


def mlp(outputs: int) -> nn.Module:
    layers = [nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, outputs)]
    return nn.Sequential(*layers, *([] if outputs > 1 else [nn.Flatten(0)]))


def locator() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 5), nn.ReLU(), nn.Conv2d(16, 1, 2),
        nn.Upsample((HEATMAP, HEATMAP), mode="bilinear", align_corners=True), nn.Flatten(0, 1),
    )  # fmt: skip


@dataclass(frozen=True)
class Column:
    """Data, network and metric."""

    data: Callable[..., tuple[Part, Part, Part]]
    network: Callable[[], nn.Module]
    metric: Metric
    uniloss: str | Metric
    baseline: Callable[[Tensor, Tensor], Tensor] = cross_entropy
    steps: int = 400
    batch: int = 128


COLUMNS = {
    "AP, zeros": Column(partial(rows, folder="mnist", which=0), partial(mlp, 1), dl.metrics.average_precision, "ap"),
    "accuracy": Column(
        partial(rows, folder="fashion-mnist", which=None), partial(mlp, 10), dl.metrics.accuracy, "accuracy"
    ),
    "PCK": Column(canvases, locator, pck, "pckh", bumps, 300, 32),
    "profit": Column(partial(rows, folder="fashion-mnist", which=6), partial(mlp, 1), profit, profit),
}


def loss_of(column: Column, method: str, seed: int) -> Callable[[Tensor, Tensor], Tensor]:
    if method == "x-ent":
        return column.baseline
    name, share = method.split()
    return dl.UniLoss(
        column.uniloss,
        interpolation=NAMES[name],
        likelihood=float(share),
        generator=generator("anchors", seed),
    )


def train_cell(root: Path, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One training."""
    column = COLUMNS[cell.group or ""]
    part, val, test = column.data(root, seed=seed)
    model = seeded(column.network, "interpolation study", seed)

    def measured(network: nn.Module) -> dict[str, float]:
        return {f"{name}_metric": float(column.metric(network(p.x), p.y)) for name, p in (("val", val), ("test", test))}

    schedule = Schedule(column.steps, params["learning_rate"], batch_size=column.batch, seed=seed)
    trained = train(model, loss_of(column, cell.method, seed), part, schedule, measured)
    return Outcome(trained.last, trained.diverged_at)


def cells() -> Iterator[Cell]:
    """PCK has no likelihood, so one share is enough."""
    for name in COLUMNS:
        for method in METHODS:
            if name != "PCK" or method == "x-ent" or method.endswith(" 0"):
                yield Cell(name, method)


def study(arguments: argparse.Namespace) -> Campaign:
    run = partial(train_cell, arguments.data_root)
    judged: Callable[[Cell], str] = lambda cell: "val_metric"  # noqa: E731
    return Campaign("interpolation-study", VERSION, tuple(cells()), rates(*RATES), run, judged, arguments.seeds, 2)


def show(records: list[Record]) -> str:
    """Test metric in points, and differences to cross-entropy on the same seeds."""
    lines = []
    for method in METHODS:
        found = [values(records, Cell(name, method), "test_metric") for name in COLUMNS]
        base = [values(records, Cell(name, "x-ent"), "test_metric") for name in COLUMNS]
        lines.append([method, *(mean_cell(numbers, 2.0) for numbers in found), *map(gap_cell, found, base)])
    return table(["method", *COLUMNS, *(f"{name} minus x-ent" for name in COLUMNS)], lines)


if __name__ == "__main__":
    from_command_line(__doc__, study, show, seeds=3, out="results/interpolation-study", data=True)
