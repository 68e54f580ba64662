"""Segmentation of images: mean IoU of `AveragedLoss("iou")` and of the usual losses. `camvid` and `pets` are commands.

A U-Net with three levels and 16 to 64 channels, which computes in bfloat16; Adam with one cycle of the learning rate,
batches of 8, horizontal flips. The rate (of two) with the best validation mean IoU in a search run is used for fresh
seeds; every run takes the epoch with the best validation mean IoU out of eight. Mean IoU is over all pixels of a part.

``x-ent + dice`` adds one minus the mean over the classes of the soft Dice coefficient, ``lovasz`` is the
Lovász-softmax loss over the classes that are present (Berman et al. 2018), alone and with cross-entropy; both are
written from the formulas. Pixels of class c, in images with classes 0 to c - 1, are void: no loss and no metric counts
them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.data.photographs import Pixels
from directloss_repro.models.images import ImageNetwork
from directloss_repro.records import Record
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import Schedule, steps_per_epoch, train
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

import directloss as dl
from benchmarks.study import from_command_line, gap_cell, mean_cell, rates, table, values

BATCH, LOOKS, CHANNELS = 8, 8, (16, 32, 64)
RATES = (0.003, 0.01)
OURS, BASE = "iou", "x-ent"
Loss = Callable[[Tensor, Tensor], Tensor]

# ---------------------------------------------------------------------- the data


class Scenes(NamedTuple):
    """Images whose pixels have classes."""

    name: str
    classes: int
    part: Callable[[Path, str], Part]
    """Images ``(n, 3, h, w)`` and classes ``(n, h, w)`` of ``train``, ``val`` or ``test`` in the folder."""
    epochs: int


def images(pixels: list[Pixels], classes: list[Pixels], size: tuple[int, int]) -> Part:
    """Images reduced to ``size``, from -0.5 to 0.5; labels are those of the pixels in the middle."""
    x = [cv2.resize(image, size, interpolation=cv2.INTER_AREA) for image in pixels]
    y = [cv2.resize(labels, size, interpolation=cv2.INTER_NEAREST_EXACT) for labels in classes]
    batch = torch.from_numpy(np.stack(x)).movedim(-1, 1).float() / 255 - 0.5
    return Part(batch.contiguous(), torch.from_numpy(np.stack(y)).long())


def flipped(batch: Part, draw: torch.Generator) -> Part:
    """Half of the images, mirrored with their labels."""
    mirrored = (torch.rand(len(batch), generator=draw) < 0.5).reshape(-1, 1, 1)
    x = torch.where(mirrored.unsqueeze(1), batch.x.flip(-1), batch.x)
    return Part(x, torch.where(mirrored, batch.y.flip(-1), batch.y))


# ---------------------------------------------------------------------- the losses


def plain(scores: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(scores, target, ignore_index=scores.shape[1])


def dice(scores: Tensor, target: Tensor) -> Tensor:
    """One minus the mean of the soft Dice coefficients of the classes that are present."""
    likely, truth = _rows(scores, target)
    present = truth.sum(0) > 0
    share = 2 * (likely * truth).sum(0) / (likely.sum(0) + truth.sum(0))
    return 1 - share[present].mean()


def lovasz(scores: Tensor, target: Tensor) -> Tensor:
    """Lovász-softmax, mean over the classes that are present."""
    likely, truth = _rows(scores, target)
    likely, truth = likely[:, truth.any(0)], truth[:, truth.any(0)]
    errors, order = (truth - likely).abs().sort(0, descending=True)
    hits = truth.gather(0, order)
    left, union = hits.sum(0) - hits.cumsum(0), hits.sum(0) + (1 - hits).cumsum(0)
    jaccard = 1 - left / union
    return (errors * jaccard.diff(dim=0, prepend=torch.zeros_like(jaccard[:1]))).sum(0).mean()


def _rows(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities and truth ``(pixels, classes)``, without void."""
    classes = scores.shape[1]
    real = target != classes
    return scores.softmax(1).movedim(1, -1)[real], one_hot(target[real], classes).to(scores.dtype)


def ours(classes: int, draw: torch.Generator) -> Loss:
    return dl.AveragedLoss("iou", ignore_index=classes, generator=draw, check_values=False)


METHODS: dict[str, Loss] = {
    BASE: plain,
    "x-ent + dice": lambda scores, target: plain(scores, target) + dice(scores, target),
    "lovasz": lovasz,
    "x-ent + lovasz": lambda scores, target: plain(scores, target) + lovasz(scores, target),
}
"""The losses that `ours` is compared with."""
LOSSES = (OURS, *METHODS)


def loss_of(method: str, scenes: Scenes, seed: int) -> Loss:
    draw = generator(f"{scenes.name.lower()} noise", seed)
    return ours(scenes.classes, draw) if method == OURS else METHODS[method]


# ---------------------------------------------------------------------- a training


class UNet(ImageNetwork):
    """An encoder and a decoder with connections between their levels."""

    def __init__(self, channels: tuple[int, ...], classes: int) -> None:
        super().__init__(bfloat16=True)
        pairs = list(zip((3, *channels), channels, strict=False))
        self.down = nn.ModuleList(_block(*pair) for pair in pairs)
        self.up = nn.ModuleList(_block(high + low, low) for _, low, high in _levels(channels))
        self.last = nn.Conv2d(channels[0], classes, 1)

    def score(self, x: Tensor) -> Tensor:
        kept = []
        for place, block in enumerate(self.down):
            x = block(x if place == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for block, skipped in zip(self.up, reversed(kept[:-1]), strict=True):
            larger = nn.functional.interpolate(x, skipped.shape[-2:], mode="bilinear", align_corners=False)
            x = block(torch.cat((larger, skipped), 1))
        scores: Tensor = self.last(x)
        return scores


def _levels(channels: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """From the lowest level upwards: its number, the channels above it, and its own."""
    for level in range(len(channels) - 1, 0, -1):
        yield level, channels[level - 1], channels[level]


def _block(before: int, after: int) -> nn.Module:
    layers = []
    for inputs in (before, after):
        layers += [nn.Conv2d(inputs, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


def measures(model: nn.Module, data: Part, classes: int, name: str) -> dict[str, float]:
    """Mean IoU over all pixels, and the share of pixels with the right class."""
    chosen = torch.cat([model(piece.x).argmax(1) for piece in data.pieces(32)])
    real = data.y != classes
    counts = torch.bincount(data.y[real] * classes + chosen[real], minlength=classes**2).reshape(classes, classes)
    hits, rows, columns = counts.diagonal(), counts.sum(1), counts.sum(0)
    iou = hits / (rows + columns - hits).clamp(min=1)
    return {name: float(iou[rows > 0].mean()), f"{name} accuracy": float(hits.sum() / counts.sum())}


def train_cell(scenes: Scenes, root: Path, out: Path, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One training; the classes that the first seed chooses for three test images go to ``out/chosen``."""
    fitting, val, test = (scenes.part(root, name) for name in ("train", "val", "test"))
    model = seeded(lambda: UNet(CHANNELS, scenes.classes), scenes.name.lower(), seed)
    steps = scenes.epochs * steps_per_epoch(len(fitting), BATCH)
    schedule = Schedule(
        steps, params["learning_rate"], evaluate_every=steps // LOOKS, batch_size=BATCH, seed=seed, one_cycle=True
    )

    def watch(model: nn.Module) -> dict[str, float]:
        return measures(model, val, scenes.classes, "val") | measures(model, test, scenes.classes, "test")

    loss = loss_of(cell.method, scenes, seed)
    trained = train(model, loss, fitting, schedule, watch, augment=flipped, keep_by="val")
    if seed == 0 and trained.kept is not None:
        model.load_state_dict(trained.kept)
        with torch.no_grad():
            save(out / "chosen", cell.method, model(test.x[shown(test)]).argmax(1))
        save(out / "chosen", "truth", test.y[shown(test)])
        save(out / "chosen", "photographs", (test.x[shown(test)].movedim(1, -1) + 0.5) * 255)
    best = trained.best("val")
    return Outcome({name: best[name] for name in ("val", "test", "test accuracy")}, trained.diverged_at, trained.curve)


def shown(data: Part) -> list[int]:
    """The images of the picture: at a quarter, a half and three quarters of the part."""
    return [len(data) * quarter // 4 for quarter in (1, 2, 3)]


def save(folder: Path, name: str, pixels: Tensor) -> None:
    """Images ``(k, h, w, ...)``, one below the other."""
    folder.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(folder / f"{name.replace(' ', '')}.png"), torch.cat(list(pixels)).round().to(torch.uint8).numpy())


def study(scenes: Scenes, arguments: argparse.Namespace) -> Campaign:
    cells = tuple(Cell(scenes.name, method) for method in arguments.methods)
    trainer = partial(train_cell, scenes, arguments.data_root, Path(arguments.out))
    return Campaign(scenes.name.lower(), "1", cells, rates(*RATES), trainer, lambda cell: "val", arguments.seeds)


def show(scenes: Scenes, records: list[Record]) -> str:
    """Mean IoU and accuracy on the test images."""
    places = {method: Cell(scenes.name, method) for method in LOSSES}
    found = {m: {n: values(records, place, n) for n in ("test", "test accuracy")} for m, place in places.items()}
    best = {n: max((mean(f[n]) for f in found.values() if f[n]), default=0.0) for n in ("test", "test accuracy")}
    rows = [
        [m, *(mean_cell(f[n], best[n]) for n in f), gap_cell(found[OURS]["test"], f["test"])] for m, f in found.items()
    ]
    return table(["loss", "mean IoU", "accuracy", f"mean IoU of `{OURS}` minus this"], rows)


def command(doc: str | None, scenes: Scenes) -> None:
    """The command of the study on some images."""
    make, out = partial(study, scenes), f"results/{scenes.name.lower()}"
    parts = {"methods": list(LOSSES)}
    from_command_line(doc, make, partial(show, scenes), seeds=5, out=out, data=True, parts=parts)
