"""Does UniLoss improve the metric it is given? Real data, equal budgets, and a control without the metric.

    python -m benchmarks.uniloss_study [--seeds 10] [--out results/uniloss] [--workers 2]

Each column is a data set and a metric. Every method gets the same network, batches, epochs and four learning rates; the
learning rate with the highest validation metric (mean of three search seeds) is used for fresh seeds, and the test
metric of those is reported. Methods:

    x-ent     cross-entropy
    uniloss   UniLoss with the column's metric (by hand if it has a name, otherwise found by probing it)
    control   the same, with constants instead of the metric's values at the anchors: good 1, nearby the current value,
              bad 0. Only what beats it shows that the metric's values matter.
    direct    direct loss minimisation, if there is exact inference for the metric: sign +1 for rankings, otherwise -1
    both      the same with sign "both"

Metrics of decisions are measured at the threshold 0 and, in a separate column, at the threshold that is best on
validation data. A finished run is a line in ``records.jsonl``; an interrupted command continues.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from directloss_repro.ablations import Ablation
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.records import Record
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import Schedule, train
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torchmetrics.functional import classification, retrieval

import directloss as dl
from benchmarks import tables
from benchmarks.peers import cross_entropy
from benchmarks.study import from_command_line, gap_cell, mean_cell, rates, table, values

Metric = Callable[[Tensor, Tensor], Tensor]
LEARNING_RATES = (0.001, 0.003, 0.01, 0.03)
SEARCH_SEEDS = 3
EPOCHS, BATCH, HIDDEN = 40, 128, 64
VERSION = "1"
"""Part of every key: change it when the study's numbers change."""


@dataclass(frozen=True)
class Column:
    """Data, metric, and how each method sees it."""

    data: Callable[[], tuple[Tensor, Tensor]]
    metric: Metric
    uniloss: str | Metric
    task: str | dl.Task | None = None
    sign: int = +1
    classes: int = 1
    thresholded: bool = False


def digits_with_rare_classes() -> tuple[Tensor, Tensor]:
    """Classes 5 to 9 keep one image in eight."""
    x, y = tables.digits()
    kept = (y < 5) | (torch.rand(len(y), generator=generator("rare classes")) < 1 / 8)
    return x[kept], y[kept]


def one_digit(digit: int, share: float = 1.0) -> tuple[Tensor, Tensor]:
    """One digit against the rest, optionally with only a share of its images."""
    x, y = tables.digits()
    kept = (y != digit) | (torch.rand(len(y), generator=generator("rare digit")) < share)
    return x[kept], (y[kept] == digit).long()


def breast_cancer() -> tuple[Tensor, Tensor]:
    """Standardised features; malignant is positive."""
    data = load_breast_cancer()
    x = torch.from_numpy(data.data).float()
    return (x - x.mean(0)) / x.std(0), 1 - torch.from_numpy(data.target).long()


def _binary(metric: Callable[..., Tensor], **options: object) -> Metric:
    """A torchmetrics function of logits."""
    return partial(_called, metric, options)


def _called(metric: Callable[..., Tensor], options: dict[str, object], scores: Tensor, target: Tensor) -> Tensor:
    return metric(scores, target, **options)


MACRO_F1 = _binary(classification.multiclass_f1_score, num_classes=10, average="macro")
F1 = _binary(classification.binary_f1_score)
F4 = _binary(classification.binary_fbeta_score, beta=4.0)
NDCG = _binary(retrieval.retrieval_normalized_dcg, top_k=10)

COLUMNS: dict[str, Column] = {
    "accuracy, digits": Column(tables.digits, dl.metrics.accuracy, "accuracy", "accuracy", sign=-1, classes=10),
    "macro-F1, digits, 5-9 rare": Column(digits_with_rare_classes, MACRO_F1, MACRO_F1, classes=10),
    "AP, digit 0": Column(partial(one_digit, 0), dl.metrics.average_precision, "ap", "ap"),
    "AP, digit 8, rare": Column(partial(one_digit, 8, 0.25), dl.metrics.average_precision, "ap", "ap"),
    "NDCG@10, digit 8, rare": Column(partial(one_digit, 8, 0.25), NDCG, NDCG, "ndcg@10"),
    "F1, breast cancer": Column(breast_cancer, F1, F1, "f1", sign=-1, thresholded=True),
    "F4, digit 8, rare": Column(
        partial(one_digit, 8, 0.25),
        F4,
        F4,
        dl.tasks.FBeta(4.0),
        sign=-1,
        thresholded=True,
    ),
}
METHODS = ("x-ent", "uniloss", "control", "direct", "both")
RIVALS = ("x-ent", "control")


def loss_of(column: Column, method: str, seed: int) -> Callable[[Tensor, Tensor], Tensor]:
    if method == "x-ent":
        return cross_entropy
    if method in ("direct", "both"):
        return dl.DirectLoss(column.task, sign="both" if method == "both" else column.sign, noise=0)
    anchors = Ablation(control=method == "control")
    return dl.UniLoss(
        column.uniloss,
        likelihood=0,
        interpolation="inverse-distance",
        anchors=anchors,
        generator=generator("anchors", seed),
    )


def measured(model: nn.Module, column: Column, val: Part, test: Part) -> dict[str, float]:
    """Validation and test metric; for metrics of decisions also at the best threshold of the validation data."""
    scores = {"val": model(val.x), "test": model(test.x)}
    numbers = {"val_metric": column.metric(scores["val"], val.y), "test_metric": column.metric(scores["test"], test.y)}
    if column.thresholded:
        cuts = scores["val"].unique()
        values = torch.stack([column.metric(scores["val"] - cut, val.y) for cut in cuts])
        best = cuts[values.argmax()]
        numbers |= {"val_tuned": values.max(), "test_tuned": column.metric(scores["test"] - best, test.y)}
    return {name: float(value) for name, value in numbers.items()}


def train_cell(cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One training."""
    column = COLUMNS[cell.group]
    part, val, test = tables.split(column.data(), seed, name="study")
    outputs = column.classes

    def build() -> nn.Module:
        layers = [nn.Linear(part.x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs)]
        return nn.Sequential(*layers, *([] if outputs > 1 else [nn.Flatten(0)]))

    model = seeded(build, "study weights", seed)
    schedule = Schedule(EPOCHS * (len(part) // BATCH), params["learning_rate"], batch_size=BATCH, seed=seed)
    trained = train(
        model, loss_of(column, cell.method, seed), part, schedule, lambda network: measured(network, column, val, test)
    )
    return Outcome(trained.last, trained.diverged_at)


def cells() -> Iterator[Cell]:
    for name, column in COLUMNS.items():
        for method in METHODS:
            if method not in ("direct", "both") or column.task is not None:
                yield Cell(name, method)


def judged_by(cell: Cell) -> str:
    """The metric that selects settings: at the tuned threshold, if there is one."""
    return "val_tuned" if COLUMNS[cell.group].thresholded else "val_metric"


def study(arguments: argparse.Namespace) -> Campaign:
    seeds, settings = arguments.seeds, rates(*LEARNING_RATES)
    return Campaign("uniloss-study", VERSION, tuple(cells()), settings, train_cell, judged_by, seeds, SEARCH_SEEDS)


def show(records: list[Record]) -> str:
    """Test metric in points, and differences on the same seeds."""
    return table(["metric and data", *METHODS, *(f"uniloss minus {rival}" for rival in RIVALS)], rows(records))


def rows(records: list[Record]) -> Iterator[list[str]]:
    for name, column in COLUMNS.items():
        kinds = {"test_metric": name}
        if column.thresholded:
            kinds = {"test_metric": f"{name}, threshold 0", "test_tuned": f"{name}, tuned threshold"}
        for kind, title in kinds.items():
            found = {method: values(records, Cell(name, method), kind) for method in METHODS}
            best = max(sum(v) / len(v) for v in found.values() if v)
            means = [mean_cell(found[method], best) for method in METHODS]
            yield [title, *means, *(gap_cell(found["uniloss"], found[rival]) for rival in RIVALS)]


if __name__ == "__main__":
    from_command_line(__doc__, study, show, seeds=10, out="results/uniloss")
