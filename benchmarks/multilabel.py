"""Multi-label classification: is `DirectLoss("ap", dim=0)` on the mean AP of the classes better than cross-entropy?

    python -m benchmarks.multilabel --data-root DATA [--seeds 3] [--out results/multilabel] [--workers 1]
    python -m benchmarks.multilabel --data-root DATA --sets fashion-mnist --methods direct x-ent

MNIST and Fashion-MNIST, each class against the rest: 6,000 images for training, 2,000 for validation, 5,000 of the test
file for testing; a CNN with two convolutions. If DATA holds VOC2012 and ``alexnet/alexnet_features.pt``: its twenty
objects, images of ``train`` (a quarter for validation) and ``val``, one hidden layer on frozen convolutions of AlexNet.
An object that is only there as a difficult one counts as not there.

Adam, 12 epochs in batches of 128. The learning rate (of two) with the best validation mAP in a search run is used for
fresh seeds; every run takes the epoch with the best validation mAP. With noise, 20 % of the training and validation
images have the labels of another image; test labels are clean.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.data.idx import read_images
from directloss_repro.data.photographs import normalise, warp
from directloss_repro.data.voc import OBJECTS, Devkit, find_devkit
from directloss_repro.experiments.voc import convolutions_from
from directloss_repro.methods import cross_entropy, generalised_cross_entropy
from directloss_repro.records import Record
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import Schedule, steps_per_epoch, train
from torch import Tensor, nn

import directloss as dl
from benchmarks.study import from_command_line, gap_cell, mean_cell, rates, table, values

EPOCHS, BATCH, HIDDEN = 12, 128, 256
TRAIN, VAL, TEST = 6_000, 2_000, 5_000
RATES = (0.001, 0.003)
NOISES = (0.0, 0.2)
VOC, WEIGHTS = "VOC2012", Path("alexnet") / "alexnet_features.pt"
SETS = ("mnist", "fashion-mnist", VOC)
OURS, BASE = "direct", "x-ent"
Loss = Callable[[Tensor, Tensor], Tensor]
METHODS: dict[str, Callable[[int], Loss]] = {
    OURS: lambda seed: dl.DirectLoss("ap", dim=0, generator=generator("noise", seed)),
    "direct, likelihood 0": lambda seed: dl.DirectLoss("ap", dim=0, likelihood=0, generator=generator("noise", seed)),
    "direct, likelihood 1": lambda seed: dl.DirectLoss("ap", dim=0, likelihood=1, generator=generator("noise", seed)),
    BASE: lambda seed: lambda scores, target: cross_entropy(scores, target).mean(),
    "gce": lambda seed: lambda scores, target: generalised_cross_entropy(scores, target).mean(),
}


@lru_cache
def digits(root: Path, name: str) -> tuple[Part, Part]:
    """Images ``(n, 1, 28, 28)`` and labels ``(n, 10)`` of the training and of the test file."""
    found = [read_images(root / name, part) for part in ("train", "test")]
    one_hot = partial(nn.functional.one_hot, num_classes=10)
    return tuple(  # type: ignore[return-value]
        Part(torch.from_numpy(x)[:, None].float() / 255, one_hot(torch.from_numpy(y).long())) for x, y in found
    )


@lru_cache
def photographs(root: Path) -> tuple[Part, Part]:
    """Features ``(n, 9216)`` and labels ``(n, 20)`` of VOC's ``train`` and ``val``."""
    devkit, layers = find_devkit(root), convolutions_from(str(root / WEIGHTS))
    return _photographs(devkit, layers, "train"), _photographs(devkit, layers, "val")


@torch.no_grad()
def _photographs(devkit: Devkit, layers: Callable[[Tensor], Tensor], part: str) -> Part:
    names = devkit.image_set(part)
    found = [devkit.image_labels(of, part) for of in OBJECTS]
    features = []
    for name in names:
        pixels = devkit.image(name)
        crop = torch.from_numpy(warp(pixels, (0, 0, pixels.shape[1], pixels.shape[0]), context=0))
        features.append(nn.functional.adaptive_max_pool2d(layers(normalise(crop[None])), 6).flatten())
    return Part(torch.stack(features), torch.tensor([[int(labels[name] == 1) for labels in found] for name in names]))


def parts(root: Path, name: str, seed: int, noise: float) -> tuple[Part, Part, Part]:
    """Training, validation and test."""
    whole, test = photographs(root) if name == VOC else digits(root, name)
    count = len(whole) * 3 // 4 if name == VOC else TRAIN
    order = torch.randperm(len(whole), generator=generator("multilabel", seed))
    train, val = (
        with_others_labels(whole.take(chosen), noise, seed, place)
        for place, chosen in enumerate((order[:count], order[count:][:VAL]))
    )
    return train, val, test.first(TEST)


def with_others_labels(part: Part, share: float, *seed: object) -> Part:
    """A part in which a share of the items have the labels of another item."""
    chosen = torch.randperm(len(part), generator=generator("others", *seed))[: round(share * len(part))]
    y = part.y.clone()
    y[chosen] = y[chosen.roll(1)]
    return Part(part.x, y)


def network(x: Tensor, outputs: int) -> nn.Module:
    """A CNN for images, one hidden layer for features."""
    if x.dim() == 2:
        return nn.Sequential(nn.Linear(x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, outputs)),
    )


def mean_ap(model: nn.Module, part: Part) -> float:
    """The mean over the classes of their AP."""
    scores = torch.cat([model(piece.x) for piece in part.pieces(1000)])
    return dl.direct.mean_metric(scores, part.y, "ap", dim=0)


def train_cell(root: Path, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One training."""
    part, val, test = parts(root, str(cell.group), seed, cell.noise)
    model = seeded(lambda: network(part.x, part.y.shape[1]), "multilabel", seed)
    steps = steps_per_epoch(len(part), BATCH)
    schedule = Schedule(
        EPOCHS * steps, params["learning_rate"], evaluate_every=steps, batch_size=min(BATCH, len(part)), seed=seed
    )
    watch = lambda model: {"val": mean_ap(model, val), "test": mean_ap(model, test)}  # noqa: E731
    trained = train(model, METHODS[cell.method](seed), part, schedule, watch)
    best = trained.best("val")
    metrics = {"val": best["val"], "test": best["test"], "last": trained.last["test"]}
    return Outcome(metrics, trained.diverged_at, trained.curve)


def data(root: Path | None) -> tuple[str, ...]:
    """The data sets that the folder holds; all of them without a folder."""
    if root is None:
        return SETS
    names = tuple(name for name in SETS[:2] if (root / name).is_dir())
    devkits = any((root / place).is_dir() for place in (VOC, f"VOCdevkit/{VOC}"))
    return (*names, VOC) if devkits and (root / WEIGHTS).is_file() else names


def study(arguments: argparse.Namespace) -> Campaign:
    root = arguments.data_root
    cells = tuple(
        Cell(name, method, noise)
        for name in data(root)
        if name in arguments.sets
        for noise in NOISES
        for method in arguments.methods
    )
    trainer = partial(train_cell, root)
    return Campaign("multilabel", "1", cells, rates(*RATES), trainer, lambda cell: "val", arguments.seeds)


def show(records: list[Record]) -> str:
    """Test mAP of every loss in the epoch with the best validation mAP, the lead of ours, and the last epoch."""
    names = list(dict.fromkeys(str(record.group) for record in records))
    head = ["data", *METHODS, f"{OURS} - {BASE}"]
    titles = {"test": "Test mAP in the best epoch", "last": "Test mAP in the last epoch"}
    return "\n\n".join(f"**{title}**\n\n{table(head, _rows(records, names, n))}" for n, title in titles.items())


def _rows(records: list[Record], names: list[str], number: str) -> Iterator[list[str]]:
    for name in names:
        for noise in NOISES:
            found = {m: values(records, Cell(name, m, noise), number) for m in METHODS}
            best = max((mean(numbers) for numbers in found.values() if numbers), default=0.0)
            gap = gap_cell(found[OURS], found[BASE])
            yield [f"{name}, {noise:.0%} wrong", *(mean_cell(numbers, best) for numbers in found.values()), gap]


if __name__ == "__main__":
    choices = {"sets": list(SETS), "methods": list(METHODS)}
    from_command_line(__doc__, study, show, seeds=3, out="results/multilabel", data=True, parts=choices)
