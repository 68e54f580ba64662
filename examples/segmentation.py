"""Multi-class segmentation: IoU as the loss against cross-entropy, with the same network, steps and learning rate.

Images of 24 x 24 pixels contain scikit-learn's scanned digits. The network labels the pixels of 0, 3 and 7, from the
most to the least frequent. Test images contain unseen digits.

python examples/segmentation.py [--quick] [--seeds 2] [--out segmentation.png]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor, nn

import directloss as dl

CLASSES = {0: 1, 3: 2, 7: 3}
SHARES = {0: 0.6, 3: 0.25, 7: 0.15}  # of the digits in the images
SIDE, DIGIT, BATCH = 24, 8, 16
COLOURS = ["#f2f2f2", "#0072b2", "#e69f00", "#009e73"]


def scenes(count: int, first: int, last: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 24, 24), each with three of the digits first to last, and their masks (count, 24, 24)."""
    draw = np.random.default_rng(seed)
    digits, names = (values[first:last] for values in load_digits(return_X_y=True))
    images = draw.normal(0, 0.15, (count, SIDE, SIDE))
    masks = np.zeros((count, SIDE, SIDE), dtype=np.int64)
    for image, mask in zip(images, masks, strict=True):
        for name in draw.choice(list(SHARES), size=3, p=list(SHARES.values())):
            shape = digits[draw.choice(np.flatnonzero(names == name))].reshape(DIGIT, DIGIT) / 16
            top, left = draw.integers(SIDE - DIGIT + 1, size=2)
            place = np.s_[top : top + DIGIT, left : left + DIGIT]
            image[place] = np.where(shape > 0.3, shape, image[place])
            mask[place] = np.where(shape > 0.3, CLASSES[name], mask[place])
    return torch.tensor(images, dtype=torch.float32).unsqueeze(1), torch.tensor(masks)


def network() -> nn.Module:
    """Four convolutions with a receptive field of 15 x 15 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 24, 5, padding=2), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 24, 3, padding=2, dilation=2), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 24, 3, padding=3, dilation=3), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 1 + len(CLASSES), 1),
    )  # fmt: skip


def train(
    loss_fn: Callable[[Tensor, Tensor], Tensor], images: Tensor, masks: Tensor, steps: int, seed: int
) -> nn.Module:
    """Return a trained network; the seed determines its initialisation and batches."""
    torch.manual_seed(seed)
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    for _ in range(steps):
        chosen = torch.randint(len(images), (BATCH,))
        optimizer.zero_grad()
        loss_fn(net(images[chosen]), masks[chosen]).backward()
        optimizer.step()
        rate.step()
    return net


def measure(scores: Tensor, masks: Tensor) -> list[float]:
    """Mean IoU over classes, mean IoU over the classes of each image, and pixel accuracy."""
    overall, each = (dl.AveragedLoss("iou", average=name)(scores, masks) for name in ("macro", "samples_macro"))
    return [1 - float(overall), 1 - float(each), float((scores.argmax(1) == masks).double().mean())]


def draw(path: Path, images: Tensor, masks: Tensor, predictions: dict[str, Tensor]) -> None:
    """Draw four test images: input, truth and the prediction of each network."""
    rows = {"image": images[:, 0], "truth": masks, **predictions}
    figure = Figure(figsize=(5.2, 1.25 * len(rows)), layout="constrained")
    for axes, (name, values) in zip(figure.subplots(len(rows), 4), rows.items(), strict=True):
        for ax, value in zip(axes, values, strict=False):
            colours = {"cmap": "gray_r"} if name == "image" else {"cmap": ListedColormap(COLOURS), "vmin": 0, "vmax": 3}
            ax.imshow(value.numpy(), interpolation="nearest", **colours)
            ax.set(xticks=[], yticks=[])
        axes[0].set_ylabel(name, fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Train with each loss, print the table, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run with one seed, to see that it works")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("segmentation.png"))
    options = parser.parse_args()
    steps, seeds, tests = (60, 1, 40) if options.quick else (300, options.seeds, 200)

    images, masks = scenes(4 * tests, 0, 1200, seed=0)
    new, truth = scenes(tests, 1200, 1797, seed=1)
    losses = {
        "cross-entropy": lambda: nn.CrossEntropyLoss(),
        "IoU of the batch": lambda: dl.AveragedLoss("iou", average="macro"),
        "IoU per image": lambda: dl.AveragedLoss("iou", average="samples_macro"),
    }
    print(f"{'loss':18} mean IoU  per image  pixels right   ({seeds} seeds, {steps} steps)")
    results, predictions = {}, {}
    for name, make in losses.items():
        found = []
        for seed in range(seeds):
            net = train(make(), images, masks, steps, seed)
            with torch.no_grad():
                scores = net.eval()(new)
            found.append(measure(scores, truth))
            predictions.setdefault(name, scores.argmax(1))
        results[name] = np.mean(found, axis=0)
        print(f"{name:18} {results[name][0]:8.3f}  {results[name][1]:9.3f}  {results[name][2]:12.3f}")
    base, *ours = results.values()
    for column, name in enumerate(("mean IoU", "IoU per image")):
        print(f"{name}: the loss that trains on it minus cross-entropy is {ours[column][column] - base[column]:+.3f}")
    draw(options.out, new, truth, predictions)


if __name__ == "__main__":
    main()
