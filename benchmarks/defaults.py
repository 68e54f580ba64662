"""Are the defaults good? `DirectLoss(metric)` with nothing set, against cross-entropy and other losses.

    python -m benchmarks.defaults --data-root DATA [--seeds 5] [--out results/defaults] [--workers 2]
    python -m benchmarks.unseen   the same on data sets that were not used to choose the defaults

A column is a data set, a model (linear, or one hidden layer of 64) and a metric. Every method trains with Adam for 600
steps on batches of 256 (or on all rows where there are fewer) at four learning rates. The rate with the best validation
metric in a search run is used for fresh seeds; every run takes the best of ten evaluations on validation data.
With noise, 20 % of the labels are wrong in the training and in the validation part; test labels are clean.

Where the metric judges decisions, ``x-ent`` decides at the threshold that is best on the validation part, as a careful
user would; the others decide at 0. If the validation labels are wrong, so is that threshold: ``x-ent, threshold 0``
does without.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.records import Record
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import Schedule, train
from torch import Tensor, nn

import directloss as dl
from benchmarks import tables
from benchmarks.peers import Loss, cross_entropy, focal, skipping_empty, smooth_ap
from benchmarks.study import from_command_line, gap_cell, mean_cell, rates, table, values

STEPS, BATCH, HIDDEN, LOOKS = 600, 256, 64, 10
RATES = (0.001, 0.003, 0.01, 0.03)
NOISES = (0.0, 0.2)
MODELS = ("linear", "mlp")
KEEL = ("yeast1", "vehicle1", "page-blocks0", "yeast3", "car-good")
UNSEEN_KEEL = ("pima", "segment0", "vowel0", "flare-F", "abalone9-18", "wisconsin", "kr-vs-k-three_vs_eleven")
UNSEEN = ("Fashion-MNIST, 4", "MNIST, 9", *UNSEEN_KEEL)
OURS, HALF, BASE, SPLINE = "direct", "direct, noise 0.5", "x-ent", "uniloss, spline"
AT_ZERO = "x-ent, threshold 0"

METHODS: dict[str, Callable[[str, int], Loss]] = {
    OURS: lambda metric, seed: dl.DirectLoss(metric, generator=generator("noise", seed)),
    HALF: lambda metric, seed: dl.DirectLoss(metric, noise=0.5, generator=generator("noise", seed)),
    **dict.fromkeys((BASE, AT_ZERO), lambda metric, seed: cross_entropy),
    "focal": lambda metric, seed: partial(focal, gamma=2.0),
    "hinge": lambda metric, seed: dl.HingeLoss(metric),
    "pos": lambda metric, seed: dl.DirectLoss(metric, noise=0, sign=+1, warm_up=0),
    "smooth-ap 0.01": lambda metric, seed: partial(smooth_ap, temperature=0.01),
    "smooth-ap 1": lambda metric, seed: partial(smooth_ap, temperature=1.0),
    "uniloss": lambda metric, seed: dl.UniLoss(metric, generator=generator("anchors", seed)),
    SPLINE: lambda metric, seed: dl.UniLoss(
        metric, interpolation="distance-spline", generator=generator("anchors", seed)
    ),
}
"""Each loss with its defaults, for a metric and a seed, so that each run has its own random draws."""
COMPARED = {
    "ap": tuple(method for method in METHODS if method != AT_ZERO),
    "f1": (OURS, BASE, AT_ZERO, "hinge", "uniloss"),
    "ndcg": (OURS, HALF, BASE, "pos"),
    "accuracy": (OURS, BASE, "hinge", "uniloss", SPLINE),
}


Sets = dict[str, tuple[str, ...]]
"""Metric -> names of data sets or of methods."""


def data(root: Path) -> dict[str, Callable[[], tables.Table]]:
    return {
        "Fashion-MNIST, 6": partial(tables.image_class, root, "fashion-mnist", 6, 8_000),
        "Fashion-MNIST, 2, few": partial(tables.image_class, root, "fashion-mnist", 2, 4_000),
        "MNIST, 8": partial(tables.image_class, root, "mnist", 8, 8_000),
        "MNIST, 5, few": partial(tables.image_class, root, "mnist", 5, 4_000),
        "census-income": partial(tables.census_sample, root, 16_000),
        "digits, 8": partial(tables.digit, 8),
        **{name: partial(tables.keel, name) for name in KEEL + UNSEEN_KEEL},
        "digits, all": tables.digits,
        "Fashion-MNIST, 4": partial(tables.image_class, root, "fashion-mnist", 4, 8_000),
        "MNIST, 9": partial(tables.image_class, root, "mnist", 9, 8_000),
    }


JUDGED = {
    "ap": (
        "Fashion-MNIST, 6", "Fashion-MNIST, 2, few", "MNIST, 8", "MNIST, 5, few", "census-income", "digits, 8", *KEEL,
    ),
    "f1": ("census-income", "digits, 8", "page-blocks0", "yeast3"),
    "ndcg": ("Fashion-MNIST, 2, few", "digits, 8"),
    "accuracy": ("digits, all",),
}  # fmt: skip
"""The data sets of each metric."""


def network(model: str, inputs: int, outputs: int) -> nn.Module:
    last = nn.Flatten(0) if outputs == 1 else nn.Identity()
    if model == "linear":
        return nn.Sequential(nn.Linear(inputs, outputs), last)
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs), last)


def train_cell(root: Path, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One training."""
    name, model, metric = str(cell.group).split(" / ")
    part, val, test = tables.split(data(root)[name](), seed, cell.noise)
    loss = METHODS[cell.method](metric, seed)
    outputs = int(part.y.max()) + 1 if metric == "accuracy" else 1
    scorer = seeded(lambda: network(model, part.x.shape[1], outputs), "defaults", model, seed)
    schedule = Schedule(STEPS, params["learning_rate"], evaluate_every=STEPS // LOOKS, batch_size=BATCH, seed=seed)
    watch = partial(_looked, val=val, test=test, metric=metric, tuned=cell.method == BASE)
    trained = train(scorer, skipping_empty(loss), part, schedule, watch)
    best = trained.best("val")
    return Outcome({"val": best["val"], "test": best["test"]}, trained.diverged_at)


def _looked(model: nn.Module, val: Part, test: Part, metric: str, tuned: bool) -> dict[str, float]:
    """The metric on validation and test rows; F1 of a ``tuned`` method at the best validation threshold."""
    known, new = (torch.nan_to_num(model(part.x)) for part in (val, test))
    if metric == "f1" and tuned:
        cut = _best_cut(known, val.y)
        known, new = known - cut, new - cut
    return {"val": dl.direct.mean_metric(known, val.y, metric), "test": dl.direct.mean_metric(new, test.y, metric)}


def _best_cut(scores: Tensor, target: Tensor) -> Tensor:
    """The threshold with the best F1, halfway between two scores."""
    ranked, order = scores.sort(descending=True)
    hits = (target[order] == 1).cumsum(0)
    f1 = 2 * hits / (torch.arange(1, len(hits) + 1) + hits[-1])
    last = int(f1.argmax())
    return (ranked[last] + ranked[min(last + 1, len(ranked) - 1)]) / 2


def study(
    arguments: argparse.Namespace, judged: Sets = JUDGED, compared: Sets = COMPARED, name: str = "defaults"
) -> Campaign:
    cells = tuple(
        Cell(f"{data} / {model} / {metric}", method, noise)
        for metric, sets in judged.items()
        for noise in NOISES
        for data in sets
        for model in MODELS
        for method in compared[metric]
    )
    trainer = partial(train_cell, arguments.data_root)
    return Campaign(name, "2", cells, rates(*RATES), trainer, lambda cell: "val", arguments.seeds)


def show(records: list[Record], judged: Sets = JUDGED, compared: Sets = COMPARED) -> str:
    """For each metric, model and noise: the test metric of every data set; the lead over cross-entropy; mean ranks."""
    parts = [
        f"**{metric.upper()}, {model}, {noise:.0%} wrong labels**\n\n"
        + _one(records, [f"{data} / {model} / {metric}" for data in sets], compared[metric], noise)
        for metric, sets in judged.items()
        for model in MODELS
        for noise in NOISES
    ]
    return "\n\n".join(parts)


def _one(records: list[Record], columns: list[str], methods: tuple[str, ...], noise: float) -> str:
    found = {(c, m): values(records, Cell(c, m, noise), "test") for c in columns for m in methods}
    whole = [c for c in columns if all(found[c, m] for m in methods)]
    return table(["data", *methods, f"{OURS} - {BASE}"], _rows(whole, methods, found))


def _rows(columns: list[str], methods: tuple[str, ...], found: dict[Any, list[float]]) -> Iterator[list[str]]:
    means = {key: mean(numbers) for key, numbers in found.items() if numbers}
    for column in columns:
        best = max(means[column, m] for m in methods)
        cells = [mean_cell(found[column, m], best) for m in methods]
        yield [column.split(" / ")[0], *cells, gap_cell(found[column, OURS], found[column, BASE])]
    if columns:
        leads = {m: mean(means[c, m] - means[c, BASE] for c in columns) for m in methods}
        best = mean(max(means[c, m] for m in methods) - means[c, BASE] for c in columns)
        hindsight = f"the best of each row: {100 * best:+.1f}"
        yield ["mean lead over " + BASE, *(f"{100 * leads[m]:+.1f}" for m in methods), hindsight]
        ranks = {m: mean(1 + sum(means[c, o] > means[c, m] for o in methods) for c in columns) for m in methods}
        yield ["mean rank", *(f"{ranks[m]:.1f}" for m in methods), ""]


if __name__ == "__main__":
    from_command_line(__doc__, study, show, seeds=5, out="results/defaults", data=True)
