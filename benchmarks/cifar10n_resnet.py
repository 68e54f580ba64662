"""Wrong labels that nobody simulated, from pixels: a ResNet-20 learns from the answers of people to images of CIFAR-10.

    python -m benchmarks.cifar10n_resnet --data-root DATA [--seeds 3] [--out results/cifar10n-resnet] [--workers 1]

CIFAR-10N, see `benchmarks.cifar10n`, which trains heads on frozen features. 12,500 images to train and 2,500 to
validate, with answers of the same kind; the official 10,000 test images with their true classes.

Batches of 128, crops and flips, 12 epochs of Adam with one cycle of the learning rate; the network computes in
bfloat16. Of two rates, the one with the best validation accuracy in a search run is used for fresh seeds. Every run
takes one of six looks by its validation accuracy. ``direct-ap`` is ``DirectLoss("ap", dim=0)`` of one-hot labels with
``likelihood=1``, as advised for deep networks; its classes are compared by their scores.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.data.cifar import read_cifar
from directloss_repro.data.labelled_images import crop_and_flip
from directloss_repro.methods import CLASSIFICATION
from directloss_repro.models import ResNet20
from directloss_repro.records import Record
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import Schedule, steps_per_epoch, train
from torch import Tensor, nn
from torch.nn.functional import one_hot

import directloss as dl
from benchmarks.cifar10n import CLASSES, LABELS
from benchmarks.study import from_command_line, gap_cell, mean_cell, rates, table, values

FITTING, HELD, BATCH, EPOCHS, LOOKS = 12_500, 2_500, 128, 12, 6
RATES = (0.003, 0.01)
COMPILED = True
"""Whether `torch.compile` compiles the network, which makes it almost twice as fast."""
BASE, STANDARD = "x-ent", ("x-ent", "focal", "gce")
Loss = Callable[[Tensor, Tensor], Tensor]


def averaged_precision(draw: torch.Generator) -> Loss:
    loss = dl.DirectLoss("ap", dim=0, likelihood=1, generator=draw, check_values=False)
    return lambda scores, target: loss(scores, one_hot(target, scores.shape[1]))


OURS: dict[str, Callable[[torch.Generator], Loss]] = {
    "direct-accuracy": lambda draw: dl.DirectLoss("accuracy", generator=draw, check_values=False),
    "direct-ap": averaged_precision,
}
METHODS = (*STANDARD, *OURS)


def loss_of(method: str, seed: int) -> Loss:
    if method in OURS:
        return OURS[method](generator("cifar10n noise", seed))
    return lambda scores, target: CLASSIFICATION[method](scores, target).mean()


@lru_cache(maxsize=1)
def parts(root: Path, labels: str) -> dict[str, Part]:
    """Images, less the mean pixel and over the deviation of the training part; the same for every seed."""
    (pixels, _), (new, classes) = read_cifar(root, "cifar10")
    order = torch.randperm(len(pixels), generator=generator("cifar10n images"))[: FITTING + HELD]
    with np.load(root / "cifar-10n" / "labels.npz", allow_pickle=False) as stored:
        answers = torch.from_numpy(stored[labels]).long()[order]
    known = torch.from_numpy(pixels[order.numpy()]).float() / 255
    centre = known[:FITTING].mean(0)
    spread = (known[:FITTING] - centre).square().mean().sqrt()
    known, test = (known - centre) / spread, (torch.from_numpy(new).float() / 255 - centre) / spread
    fitting, held = Part(known[:FITTING], answers[:FITTING]), Part(known[FITTING:], answers[FITTING:])
    return {"train": fitting, "val": held, "test": Part(test, torch.from_numpy(classes).long())}


def accuracy(model: nn.Module, part: Part) -> float:
    """The share of images with the right class."""
    right = sum(int((model(piece.x).argmax(1) == piece.y).sum()) for piece in part.pieces(500))
    return right / len(part)


def train_cell(root: Path, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    data = parts(root, str(cell.group))
    model = seeded(lambda: ResNet20(3, CLASSES, bfloat16=True), "cifar10n", seed)
    if COMPILED:
        model.compile(dynamic=False)
    epoch = steps_per_epoch(len(data["train"]), BATCH)
    schedule = Schedule(
        EPOCHS * epoch, params["learning_rate"], evaluate_every=EPOCHS * epoch // LOOKS, batch_size=BATCH, seed=seed,
        one_cycle=True,
    )  # fmt: skip

    def watch(model: nn.Module) -> dict[str, float]:
        return {name: accuracy(model, data[name]) for name in ("val", "test")}

    trained = train(model, loss_of(cell.method, seed), data["train"], schedule, watch, augment=crop_and_flip)
    best = trained.best("val")
    return Outcome({name: best[name] for name in ("val", "test")}, trained.diverged_at, trained.curve)


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(Cell(labels, method) for labels in arguments.labels for method in arguments.methods)
    trainer = partial(train_cell, arguments.data_root)
    return Campaign("cifar10n-resnet", "1", cells, rates(*RATES), trainer, lambda cell: "val", arguments.seeds)


def show(records: list[Record]) -> str:
    """Test accuracy of every loss, and its lead over cross-entropy on the same seeds."""
    found = {(k, m): values(records, Cell(k, m), "test") for k in LABELS for m in METHODS}
    best = {k: max((mean(found[k, m]) for m in METHODS if found[k, m]), default=0.0) for k in LABELS}
    rows = [[m, *(mean_cell(found[k, m], best[k]) for k in LABELS)] for m in METHODS]
    leads = [[m, *(gap_cell(found[k, m], found[k, BASE]) for k in LABELS)] for m in METHODS if m != BASE]
    return f"{table(['accuracy', *LABELS], rows)}\n\n{table([f'lead over {BASE}', *LABELS], leads)}"


if __name__ == "__main__":
    choices = {"labels": LABELS, "methods": METHODS}
    from_command_line(__doc__, study, show, seeds=3, out="results/cifar10n-resnet", data=True, parts=choices)
