"""Segmentation of street scenes: mean IoU of `AveragedLoss("iou")` and of the usual losses.

    python -m benchmarks.camvid --data-root DATA [--seeds 3] [--out results/camvid] [--workers 1]

CamVid with 11 classes (Brostow et al. 2009; the parts of SegNet: 367 / 101 / 233 images): ``train/NAME.png`` holds the
image and ``trainannot/NAME.png`` the class of each pixel, 11 for void, which is ignored; so for ``val`` and ``test``.
Images are reduced to 96 x 72 pixels; labels are those of the pixels in the middle. Mean IoU is over all pixels of a
part.

A U-Net with three levels and 16 to 64 channels, which computes in bfloat16; Adam with one cycle of the learning rate,
batches of 8, 24 epochs, horizontal flips. The rate (of two) with the best validation mean IoU in a search run is used
for fresh seeds; every run takes the epoch with the best validation mean IoU out of eight.

``x-ent + dice`` adds one minus the mean over the classes of the soft Dice coefficient, ``lovasz`` is the
Lovász-softmax loss over the classes that are present (Berman et al. 2018), alone and with cross-entropy; both are
written from the formulas.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

import cv2
import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.models.images import ImageNetwork
from directloss_repro.records import Record
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import Schedule, steps_per_epoch, train
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

import directloss as dl
from benchmarks.study import from_command_line, gap_cell, mean_cell, rates, table, values

NAMES = (
    "sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian", "cyclist"
)  # fmt: skip
CLASSES, VOID = len(NAMES), len(NAMES)
SIZE = (96, 72)
"""Width and height."""
BATCH, EPOCHS, LOOKS, CHANNELS = 8, 24, 8, (16, 32, 64)
RATES = (0.003, 0.01)
OURS, BASE = "iou", "x-ent"
Loss = Callable[[Tensor, Tensor], Tensor]

# ---------------------------------------------------------------------- the data


@lru_cache
def part(root: Path, name: str) -> Part:
    """Images ``(n, 3, h, w)`` from -0.5 to 0.5, and classes ``(n, h, w)``."""
    images, classes = [], []
    for path in sorted((root / name).glob("*.png")):
        image, labels = cv2.imread(str(path)), cv2.imread(str(root / f"{name}annot" / path.name), cv2.IMREAD_UNCHANGED)
        if image is None or labels is None:
            raise SystemExit(f"{path} or its labels cannot be read")
        images.append(torch.from_numpy(cv2.resize(image, SIZE, interpolation=cv2.INTER_AREA)).permute(2, 0, 1))
        classes.append(torch.from_numpy(cv2.resize(labels, SIZE, interpolation=cv2.INTER_NEAREST_EXACT)))
    if not images:
        raise SystemExit(f"{root / name} holds no images: --data-root is the folder with train, trainannot, val, ...")
    return Part(torch.stack(images).float() / 255 - 0.5, torch.stack(classes).long())


def flipped(batch: Part, draw: torch.Generator) -> Part:
    """Half of the images, mirrored with their labels."""
    mirrored = (torch.rand(len(batch), generator=draw) < 0.5).reshape(-1, 1, 1)
    x = torch.where(mirrored.unsqueeze(1), batch.x.flip(-1), batch.x)
    return Part(x, torch.where(mirrored, batch.y.flip(-1), batch.y))


# ---------------------------------------------------------------------- the losses


def plain(scores: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(scores, target, ignore_index=VOID)


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
    real = target != VOID
    return scores.softmax(1).movedim(1, -1)[real], one_hot(target[real], CLASSES).to(scores.dtype)


def ours(seed: int) -> Loss:
    return dl.AveragedLoss("iou", ignore_index=VOID, generator=generator("camvid noise", seed), check_values=False)


METHODS: dict[str, Callable[[int], Loss]] = {
    OURS: ours,
    BASE: lambda seed: plain,
    "x-ent + dice": lambda seed: lambda scores, target: plain(scores, target) + dice(scores, target),
    "lovasz": lambda seed: lovasz,
    "x-ent + lovasz": lambda seed: lambda scores, target: plain(scores, target) + lovasz(scores, target),
}

# ---------------------------------------------------------------------- a training


class UNet(ImageNetwork):
    """An encoder and a decoder with connections between their levels."""

    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__(bfloat16=True)
        pairs = list(zip((3, *channels), channels, strict=False))
        self.down = nn.ModuleList(_block(*pair) for pair in pairs)
        self.up = nn.ModuleList(_block(high + low, low) for _, low, high in _levels(channels))
        self.last = nn.Conv2d(channels[0], CLASSES, 1)

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


def measures(model: nn.Module, data: Part, name: str) -> dict[str, float]:
    """Mean IoU over all pixels, and the share of pixels with the right class."""
    chosen = torch.cat([model(piece.x).argmax(1) for piece in data.pieces(32)])
    real = data.y != VOID
    counts = torch.bincount(data.y[real] * CLASSES + chosen[real], minlength=CLASSES**2).reshape(CLASSES, CLASSES)
    hits, rows, columns = counts.diagonal(), counts.sum(1), counts.sum(0)
    iou = hits / (rows + columns - hits).clamp(min=1)
    return {name: float(iou[rows > 0].mean()), f"{name} accuracy": float(hits.sum() / counts.sum())}


def train_cell(root: Path, out: Path, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One training; the classes that the first seed chooses for three test images go to ``out/chosen``."""
    fitting, val, test = (part(root, name) for name in ("train", "val", "test"))
    model = seeded(lambda: UNet(CHANNELS), "camvid", seed)
    steps = EPOCHS * steps_per_epoch(len(fitting), BATCH)
    schedule = Schedule(
        steps, params["learning_rate"], evaluate_every=steps // LOOKS, batch_size=BATCH, seed=seed, one_cycle=True
    )
    watch = lambda model: measures(model, val, "val") | measures(model, test, "test")  # noqa: E731
    trained = train(model, METHODS[cell.method](seed), fitting, schedule, watch, augment=flipped, keep_by="val")
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


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(Cell("CamVid", method) for method in arguments.methods)
    trainer = partial(train_cell, arguments.data_root, Path(arguments.out))
    return Campaign("camvid", "1", cells, rates(*RATES), trainer, lambda cell: "val", arguments.seeds)


def show(records: list[Record]) -> str:
    """Mean IoU and accuracy on the test images."""
    found = {m: {n: values(records, Cell("CamVid", m), n) for n in ("test", "test accuracy")} for m in METHODS}
    best = {n: max((mean(f[n]) for f in found.values() if f[n]), default=0.0) for n in ("test", "test accuracy")}
    rows = [
        [m, *(mean_cell(f[n], best[n]) for n in f), gap_cell(found[OURS]["test"], f["test"])] for m, f in found.items()
    ]
    return table(["loss", "mean IoU", "accuracy", f"mean IoU of `{OURS}` minus this"], rows)


if __name__ == "__main__":
    from_command_line(__doc__, study, show, seeds=3, out="results/camvid", data=True, parts={"methods": list(METHODS)})
