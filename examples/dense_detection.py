"""Dense detection: average precision as the loss of a detection head, against cross-entropy and focal loss.

Images of 32 x 32 pixels contain scikit-learn's scanned digits, at most one per cell of a 4 x 4 grid. The head scores
all cells of an image; a cell is positive if it contains a 3, about one in thirty. All cells of a batch form one
ranking, as in the AP of a detector. Network, steps and learning rate are the same for all losses, and test images
contain unseen digits.

python examples/dense_detection.py [--quick] [--seeds 2] [--out dense_detection.png]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score, precision_recall_curve
from torch import Tensor, nn
from torch.nn import functional as F

import directloss as dl

GRID, CELL, DIGIT, BATCH = 4, 8, 8, 32
WANTED, FILLED = 3, 0.35  # the digit to find; the share of cells with a digit


def scenes(count: int, first: int, last: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 32, 32) of the digits first to last, and labels (count, 4, 4): 1 for the cells to find."""
    draw = np.random.default_rng(seed)
    digits, names = (values[first:last] for values in load_digits(return_X_y=True))
    images = np.zeros((count, GRID * CELL + 2, GRID * CELL + 2))
    cells = np.zeros((count, GRID, GRID), dtype=np.int64)
    for image, row, column in zip(*np.nonzero(draw.random(cells.shape) < FILLED), strict=True):
        chosen = draw.integers(len(digits))
        top, left = np.array([row, column]) * CELL + draw.integers(3, size=2)  # not exactly on the grid
        images[image, top : top + DIGIT, left : left + DIGIT] += digits[chosen].reshape(DIGIT, DIGIT) / 16
        cells[image, row, column] = names[chosen] == WANTED
    images = images[:, 1:-1, 1:-1] + draw.normal(0, 0.3, (count, GRID * CELL, GRID * CELL))
    return torch.tensor(images, dtype=torch.float32).unsqueeze(1), torch.tensor(cells)


def network() -> nn.Module:
    """Three strided convolutions and a head with one score per cell."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2, stride=2), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, stride=2), nn.ReLU(),
        nn.Conv2d(32, 1, 1), nn.Flatten(0, 1),
    )  # fmt: skip


def focal_loss(scores: Tensor, target: Tensor) -> Tensor:
    """Focal loss with the published gamma = 2 and alpha = 0.25."""
    each = F.binary_cross_entropy_with_logits(scores, target, reduction="none")
    weight = torch.where(target > 0, 0.25, 0.75)
    return (weight * (1 - torch.exp(-each)) ** 2 * each).sum() / target.sum().clamp(min=1)


def train(
    loss_fn: Callable[[Tensor, Tensor], Tensor], images: Tensor, cells: Tensor, steps: int, seed: int
) -> nn.Module:
    """Return a trained network; the seed determines its initialisation and batches."""
    torch.manual_seed(seed)
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    for _ in range(steps):
        chosen = torch.randint(len(images), (BATCH,))
        optimizer.zero_grad()
        loss_fn(net(images[chosen]).flatten(), cells[chosen].flatten()).backward()  # one list: all cells of the batch
        optimizer.step()
        rate.step()
    return net


def draw(path: Path, images: Tensor, cells: Tensor, scores: dict[str, Tensor]) -> None:
    """Draw a test image with the top cells of the AP loss, and precision-recall curves of all losses."""
    figure = Figure(figsize=(6.4, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    shown = int(cells.sum((1, 2)).argmax())
    left.imshow(images[shown, 0].numpy(), cmap="gray_r")
    found = scores["AP"][shown]
    for place in found.flatten().topk(int(cells[shown].sum())).indices.tolist():
        row, column = divmod(place, GRID)
        colour = "#009e73" if cells[shown, row, column] else "#d55e00"
        corner = (column * CELL - 0.5, row * CELL - 0.5)
        left.add_patch(Rectangle(corner, CELL, CELL, fill=False, edgecolor=colour, linewidth=2))
    left.set(xticks=[], yticks=[], title=f"highest cells by AP (green: a {WANTED})")
    for name, values in scores.items():
        precision, recall, _ = precision_recall_curve(cells.flatten(), values.flatten())
        right.plot(recall, precision, label=name, linewidth=1.5)
    right.set(xlabel="recall", ylabel="precision", ylim=(0, 1.03), title="test cells")
    right.legend(fontsize=8, loc="lower left")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Train with each loss, print the table, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run with one seed, to see that it works")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("dense_detection.png"))
    options = parser.parse_args()
    steps, seeds = (60, 1) if options.quick else (400, options.seeds)

    images, cells = scenes(800, 0, 1200, seed=0)
    new, truth = scenes(600, 1200, 1797, seed=1)
    losses = {
        "cross-entropy": lambda: lambda scores, target: F.binary_cross_entropy_with_logits(scores, target.float()),
        "focal loss": lambda: lambda scores, target: focal_loss(scores, target.float()),
        "AP": lambda: dl.DirectLoss("ap"),
    }
    share = float(truth.double().mean())
    print(f"{'loss':14} AP of the test cells   ({seeds} seeds, {steps} steps; a random ranking has {share:.3f})")
    scores, means = {}, {}
    for name, make in losses.items():
        found = []
        for seed in range(seeds):
            net = train(make(), images, cells, steps, seed)
            with torch.no_grad():
                scores[name] = net(new)
            found.append(average_precision_score(truth.flatten(), scores[name].flatten()))
        means[name] = np.mean(found)
        print(f"{name:14} {means[name]:.3f}   from {min(found):.3f} to {max(found):.3f}")
    ours = means.pop("AP")
    best = max(means, key=means.__getitem__)
    print(f"AP: the loss that trains on it minus the best other, {best}, is {ours - means[best]:+.3f}")
    draw(options.out, new, truth, scores)


if __name__ == "__main__":
    main()
