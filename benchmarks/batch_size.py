"""Average precision on small batches: how biased is it, what does it cost, and what does `ScoreMemory` change?

    python -m benchmarks.batch_size --data-root DATA [--seeds 5] [--out results/batch-size] [--workers 2]

Census-Income, 6 % positive: 150,000 rows for training, 50,000 for choosing the learning rate (four values, one search
seed), 100,000 for testing. One hidden layer of 64, Adam, three epochs for every batch size, so that every run sees the
same number of rows. ``pos-ap+N`` ranks each batch among the last N scores.

The bias is the mean AP that the loss saw (of the batch, or of the batch in its memory) in the last tenth of training,
minus the AP of all training rows at the end.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.records import Record
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import Schedule, steps_per_epoch, train
from torch import Tensor

import directloss as dl
from benchmarks import tables
from benchmarks.peers import Loss, skipping_empty
from benchmarks.peers_study import Looking, loss_of, network
from benchmarks.study import from_command_line, mean_cell, rates, table, values

SIZES = (64, 256, 1024, 4096)
EPOCHS = 3
RATES = (0.001, 0.003, 0.01, 0.03)
METHODS = ("x-ent", "pos-ap", "pos-ap+1024", "pos-ap+4096", "pos-ap+16384", "smooth-ap", "libauc-ap")
PEERS_OWN = {"smooth-ap": 1.0, "libauc-ap": 0.9}
"""Their own parameters, as chosen by the study of other losses on these data with batches of 256."""


def parts(root: Path, seed: int) -> tuple[Part, Part, Part]:
    (x, y), (test_x, test_y) = tables.census(root)
    order = torch.randperm(len(y), generator=generator("census", seed))
    val, rest = order[: len(y) // 4], order[len(y) // 4 :]
    return Part(x[rest], y[rest]), Part(x[val], y[val]), Part(test_x, test_y)


class Seen:
    """A loss that records its values."""

    def __init__(self, loss: Loss) -> None:
        self.loss, self.values = loss, list[float]()

    def __call__(self, scores: Tensor, told: Tensor) -> Tensor:
        value = self.loss(scores, told)
        self.values.append(value.item())
        return value


def make_loss(method: str, rows: int, seed: int) -> Loss:
    name, plus, size = method.partition("+")
    if not plus:
        return loss_of(name, PEERS_OWN.get(name, 0.0), rows, seed)
    memory, loss_fn = dl.ScoreMemory(int(size)), dl.DirectLoss("ap", sign=+1)
    return lambda scores, told: loss_fn(*memory(scores, told[:, 0]))


def train_cell(root: Path, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One training."""
    part, val, test = parts(root, seed)
    size = int(cell.group)
    seen = Seen(skipping_empty(make_loss(cell.method, len(part), seed)))
    told = torch.stack((part.y, torch.arange(len(part))), 1)
    model = seeded(lambda: network(part.x.shape[1]), "batch size", seed)
    steps = EPOCHS * steps_per_epoch(len(part), size)
    schedule = Schedule(steps, params["learning_rate"], batch_size=size, seed=seed)
    looking = Looking({"train_ap": part, "val_ap": val, "test_ap": test})
    trained = train(model, seen, Part(part.x, told), schedule, looking)
    last = seen.values[-max(1, steps // 10) :]
    bias = {"bias": 1 - mean(last) - trained.last["train_ap"]} if cell.method.startswith("pos-ap") else {}
    return Outcome({**trained.last, **bias}, trained.diverged_at)


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(Cell(str(size), method) for size in SIZES for method in METHODS)
    trainer = partial(train_cell, arguments.data_root)
    return Campaign("batch-size", "1", cells, rates(*RATES), trainer, lambda cell: "val_ap", arguments.seeds)


def show(records: list[Record]) -> str:
    head = ["batch", *METHODS]
    parts = ["Test AP", table(head, _aps(records)), "Bias of the loss's AP, in points", table(head, _biases(records))]
    return "\n\n".join(parts)


def _aps(records: list[Record]) -> Iterator[list[str]]:
    for size in SIZES:
        found = [values(records, Cell(str(size), method), "test_ap") for method in METHODS]
        best = max((mean(numbers) for numbers in found if numbers), default=0.0)
        yield [f"{size:,}", *(mean_cell(numbers, best) for numbers in found)]


def _biases(records: list[Record]) -> Iterator[list[str]]:
    for size in SIZES:
        cells = [Cell(str(size), method) for method in METHODS]
        found = [values(records, cell, "bias") if cell.method.startswith("pos-ap") else [] for cell in cells]
        yield [f"{size:,}", *(mean_cell(numbers, float("inf")) for numbers in found)]


if __name__ == "__main__":
    from_command_line(__doc__, study, show, seeds=5, out="results/batch-size", data=True)
