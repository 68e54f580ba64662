"""Wrong labels that nobody simulated, on deep features: the answers of people to 5,000 images of CIFAR-10.

    python -m benchmarks.features --data-root DATA --weights FOLDER --sets cifar10        once
    python -m benchmarks.cifar10n --data-root DATA [--seeds 5] [--out results/cifar10n] [--workers 1]

CIFAR-10N (Wei et al. 2022): ``aggre_label`` is the majority of three answers (9 % wrong), ``random_label1`` one of them
(17 % wrong), ``worse_label`` a wrong one if there is one (40 % wrong). 5,000 training images, of which each seed keeps
a quarter to validate, with answers of the same kind; 2,000 test images with their true classes. 2,048 features of an
ImageNet ResNet-50, from images of 112 x 112 pixels.

Losses, models and metrics as in `benchmarks.labelme`: a linear model or one hidden layer of 64, Adam, batches of 256,
300 steps. For each seed, the validation metric chooses one of three learning rates and one of five looks.

Files in DATA: cifar-10-batches-bin, and cifar-10n/labels.npz with the names above, in the order of the training files.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.records import Params
from directloss_repro.seeding import generator

from benchmarks import features, labelme
from benchmarks.labelme import METHODS, MODELS
from benchmarks.study import from_command_line

VERSION, SETTINGS = "1", "third version"
CLASSES, BATCH, STEPS, LOOKS = 10, 256, 300, 5
RATES = (0.0003, 0.001, 0.003)
LABELS = ("aggre_label", "random_label1", "worse_label")
PEOPLE = ("random_label1", "random_label2", "random_label3")
"""The three answers to an image."""


@lru_cache(maxsize=1)
def read(root: Path) -> tuple[Part, Part, torch.Tensor]:
    """Training and test images with their true classes, and the rows of the training images in the original files."""
    x, found = features.load(root, "cifar10")
    known = x[~found.test]
    x = (x - known.mean(0)) / known.std(0).clamp(min=1e-6)
    assert found.rows is not None
    rows = found.rows[~found.test]
    return Part(x[~found.test], found.labels[~found.test]), Part(x[found.test], found.labels[found.test]), rows


def answers(root: Path, names: Iterable[str]) -> dict[str, torch.Tensor]:
    """The answers to the training images."""
    rows = read(root)[2].numpy()
    with np.load(root / "cifar-10n" / "labels.npz", allow_pickle=False) as stored:
        return {name: torch.from_numpy(stored[name][rows]).long() for name in names}


def parts(root: Path, labels: str, seeds: int) -> tuple[list[Part], list[Part], list[Part]]:
    """Training, validation and test images of each seed."""
    (whole, test, _), told = read(root), answers(root, [labels])[labels]
    fitting, held = [], []
    for seed in range(seeds):
        order = torch.randperm(len(whole), generator=generator("cifar10n", seed))
        labelled, cut = Part(whole.x, told), len(whole) * 3 // 4
        fitting.append(labelled.take(order[:cut]))
        held.append(labelled.take(order[cut:]))
    return fitting, held, [test] * seeds


def train_cell(root: Path, seeds: int, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    data = parts(root, str(cell.group).partition(" / ")[0], seeds)
    return labelme.train_on(data, cell, "cifar10n", CLASSES, BATCH, RATES, steps=STEPS, looks=LOOKS)


def settings(cell: Cell) -> list[Params]:
    """Records of ours say with which settings they were made."""
    return [{"settings": SETTINGS}] if cell.method.startswith(("direct", "averaged")) else [{}]


def study(arguments: argparse.Namespace) -> Campaign:
    cells = labelme.cells_of(arguments.labels, arguments.models, arguments.methods)
    trainer, version = partial(train_cell, arguments.data_root, arguments.seeds), f"{VERSION}, {arguments.seeds} seeds"
    return Campaign("cifar10n", version, cells, settings, trainer, lambda cell: "test", seeds=1)


if __name__ == "__main__":
    choices = {"labels": LABELS, "models": list(MODELS), "methods": list(METHODS)}
    show = partial(labelme.show, labels=LABELS)
    from_command_line(__doc__, study, show, seeds=5, out="results/cifar10n", data=True, parts=choices)
