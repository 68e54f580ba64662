"""Do the defaults earn their place? `DirectLoss("ap")` with nothing set, against cross-entropy and the peers.

    python -m benchmarks.defaults --data-root DATA [--seeds 5] [--out results/defaults] [--workers 2]

Each column is a data set and a model: linear, or one hidden layer of 64. Every method trains with Adam for 600 steps on
batches of 256 (or on all rows where there are fewer) at four learning rates. The rate with the best validation AP (mean
of two search seeds) is used for fresh seeds; in every run the best of ten looks at the validation AP is taken. With
noise, 20 % of the labels are flipped in the training and in the validation part; test labels are clean.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from directloss_repro.data import Part
from directloss_repro.records import Record
from directloss_repro.schedule import Schedule
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import train
from torch import Tensor, nn

import directloss as dl
from benchmarks import tables
from benchmarks.peers import smooth_ap
from benchmarks.peers_study import Looking, cross_entropy, focal
from benchmarks.study import Cell, Outcome, Study, from_command_line, gap_cell, mean_cell, table, values

STEPS, BATCH, HIDDEN, LOOKS = 600, 256, 64, 10
RATES = (0.001, 0.003, 0.01, 0.03)
NOISES = (0.0, 0.2)
MODELS = ("linear", "mlp")
KEEL = ("yeast1", "vehicle1", "page-blocks0", "yeast3", "car-good")
Loss = Callable[[Tensor, Tensor], Tensor]
OURS, BASE = "direct-ap", "x-ent"

METHODS: dict[str, Callable[[int], Loss]] = {
    OURS: lambda seed: dl.DirectLoss("ap", generator=generator("noise", seed)),
    BASE: lambda seed: cross_entropy,
    "focal": lambda seed: partial(focal, gamma=2.0),
    "hinge-ap": lambda seed: dl.HingeLoss("ap"),
    "pos-ap": lambda seed: dl.DirectLoss("ap", noise=0, sign=+1, warm_up=0),
    "smooth-ap 0.01": lambda seed: partial(smooth_ap, temperature=0.01),
    "smooth-ap 1": lambda seed: partial(smooth_ap, temperature=1.0),
    "uniloss-ap": lambda seed: dl.UniLoss("ap", generator=generator("anchors", seed)),
}
"""Each with its defaults; by seed, so that random choices are the run's own."""


def data(root: Path) -> dict[str, Callable[[], tables.Table]]:
    return {
        "Fashion-MNIST, 6": partial(tables.image_class, root, "fashion-mnist", 6),
        "MNIST, 8": partial(tables.image_class, root, "mnist", 8),
        "MNIST, 8, few": partial(tables.image_class, root, "mnist", 8, 4_000),
        "census-income": partial(tables.census_sample, root, 40_000),
        "digits, 8": partial(tables.digit, 8),
        **{name: partial(tables.keel, name) for name in KEEL},
    }


def network(model: str, inputs: int) -> nn.Module:
    if model == "linear":
        return nn.Sequential(nn.Linear(inputs, 1), nn.Flatten(0))
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1), nn.Flatten(0))


class Trainer:
    """One training; it knows where the files are, and can be sent to another process."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
        name, model = cell.column.rsplit(" / ", 1)
        part, val, test = tables.split(data(self.root)[name](), seed, cell.noise)
        loss = METHODS[cell.method](seed)
        scorer = seeded(lambda: network(model, part.x.shape[1]), "defaults", model, seed)
        rate, every = params["learning_rate"], STEPS // LOOKS
        schedule = Schedule(STEPS, rate, evaluate_every=every, batch_size=BATCH, seed=seed)
        trained = train(
            scorer, skipping_empty(loss), Part(part.x, part.y), schedule, Looking({"val_ap": val, "test_ap": test})
        )
        best = trained.best("val_ap")
        return Outcome({name: best[name] for name in ("val_ap", "test_ap")}, trained.diverged_at)


def skipping_empty(loss: Loss) -> Loss:
    """Several peers divide by the number of positives."""
    return lambda scores, target: loss(scores, target) if bool(target.any()) else 0 * scores.sum()


def study(arguments: argparse.Namespace) -> Study:
    columns = [f"{name} / {model}" for name in data(arguments.data_root) for model in MODELS]
    cells = tuple(Cell(column, method, noise) for noise in NOISES for column in columns for method in METHODS)
    return Study(
        "defaults", "1", cells, lambda cell: [{"learning_rate": rate} for rate in RATES],
        Trainer(arguments.data_root), _by_validation, search_seeds=2,
    )  # fmt: skip


def _by_validation(cell: Cell) -> str:
    return "val_ap"


def show(records: list[Record]) -> str:
    """For each model and noise: the test AP of every data set; then the lead over cross-entropy, and mean ranks."""
    parts = [
        f"{model}, {noise:.0%} of the labels flipped\n\n{_one(records, model, noise)}"
        for model in MODELS
        for noise in NOISES
    ]
    return "\n\n".join(parts)


def _one(records: list[Record], model: str, noise: float) -> str:
    columns = [c for c in dict.fromkeys(r["class"] for r in records) if c.endswith(f" / {model}")]
    found = {(c, m): values(records, Cell(c, m, noise), "test_ap") for c in columns for m in METHODS}
    whole = [c for c in columns if all(found[c, m] for m in METHODS)]
    return table(["data", *METHODS, f"{OURS} - {BASE}"], _rows(whole, found))


def _rows(columns: list[str], found: dict[Any, list[float]]) -> Iterator[list[str]]:
    means = {key: mean(numbers) for key, numbers in found.items() if numbers}
    for column in columns:
        best = max(means[column, m] for m in METHODS)
        cells = [mean_cell(found[column, m], best) for m in METHODS]
        yield [column.rsplit(" / ", 1)[0], *cells, gap_cell(found[column, OURS], found[column, BASE])]
    if columns:
        leads = {m: mean(means[c, m] - means[c, BASE] for c in columns) for m in METHODS}
        yield ["mean lead over " + BASE, *(f"{100 * leads[m]:+.1f}" for m in METHODS), ""]
        ranks = {m: mean(1 + sum(means[c, o] > means[c, m] for o in METHODS) for c in columns) for m in METHODS}
        yield ["mean rank", *(f"{ranks[m]:.1f}" for m in METHODS), ""]


if __name__ == "__main__":
    from_command_line(__doc__, study, show, seeds=5, out="results/defaults", data=True)
