"""Data in parts: train, test and, where there is one, validation; and what is done to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from directloss._checks import fail
from directloss_repro.seeding import generator


@dataclass(frozen=True)
class Part:
    """Inputs ``(n, d)`` and labels 0 or 1 ``(n,)``; or images, classes, keypoints: the first dimension is the items.

    Inputs that do not fit into memory may be any object with a ``shape`` that reads items when it is indexed.
    """

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Tensor) -> Part:
        """The items at ``index``."""
        return Part(self.x[index], self.y[index])

    def first(self, count: int) -> Part:
        """The first items, without a copy."""
        return Part(self.x[:count], self.y[:count])


@dataclass(frozen=True)
class Split:
    """The parts of one problem. Only ``test`` is never looked at before the end."""

    train: Part
    test: Part
    val: Part | None = None

    def parts(self) -> dict[str, Part]:
        """The parts that exist, by name."""
        named = {"train": self.train, "val": self.val, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}


def flip_labels(labels: Tensor, share: float, *seed: object) -> Tensor:
    """Flip exactly ``round(share * n)`` labels, chosen at random.

    For one seed the labels flipped at 10 % are among those flipped at 20 %: levels differ in the amount of noise only.

    Example:
        >>> int((flip_labels(torch.zeros(10, dtype=torch.long), 0.3, "seed") == 1).sum())
        3
    """
    count = round(share * len(labels))
    chosen = torch.randperm(len(labels), generator=generator("flip", *seed))[:count]
    flipped = labels.clone()
    flipped[chosen] = 1 - flipped[chosen]
    return flipped


def with_noise(split: Split, share: float, parts: Iterable[str], *seed: object) -> Split:
    """The same split with labels flipped in the named parts; each part has its own draw."""
    changes = {
        name: Part(part.x, flip_labels(part.y, share, name, *seed))
        for name, part in split.parts().items()
        if name in tuple(parts)
    }
    return dataclasses.replace(split, **changes)


def hold_out(split: Split, share: float, *seed: object) -> Split:
    """Take ``share`` of the training part away as validation part, flipped labels and all."""
    order = torch.randperm(len(split.train), generator=generator("hold out", *seed))
    count = round(share * len(split.train))
    return dataclasses.replace(split, train=split.train.take(order[count:]), val=split.train.take(order[:count]))


def thirds(x: Tensor, y: Tensor, *seed: object) -> Split:
    """Three equal parts at random: train, validation, test. One or two items are left over at most."""
    order = torch.randperm(len(y), generator=generator("thirds", *seed))
    size = len(y) // 3
    train, val, test = (Part(x, y).take(order[k * size : (k + 1) * size]) for k in range(3))
    return Split(train=train, val=val, test=test)


def check_both_labels(part: Part, name: str) -> None:
    """A ranking needs something relevant and something irrelevant."""
    positives = int(part.y.sum())
    if not 0 < positives < len(part):
        fail(f"the {name} data", "must have items of both labels", f"{positives} positives among {len(part)} items")
