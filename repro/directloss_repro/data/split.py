"""Data in parts (train, test, and sometimes validation): splitting, and flipping labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from directloss._checks import fail
from directloss_repro.seeding import generator


class Lazy:
    """Items that are read on indexing; see `lazy`."""

    def __init__(self, index: Tensor, shape: tuple[int, ...], read: Callable[[Tensor], Tensor]) -> None:
        self.index, self.read = index, read
        self.shape = torch.Size((len(index), *shape))

    def __getitem__(self, index: Tensor | slice) -> Any:
        if isinstance(index, slice):
            return Lazy(self.index[index], self.shape[1:], self.read)
        return self.read(self.index[index])


def lazy(index: Tensor, shape: tuple[int, ...], read: Callable[[Tensor], Tensor]) -> Tensor:
    """Items ``(n, *shape)`` that do not fit into memory. ``read`` takes item numbers; ``index`` lists them in order.

    Examples:
        >>> items = lazy(torch.arange(1000), (2,), lambda index: torch.stack([index, -index], 1))
        >>> items.shape, items[10:20][torch.tensor([3])]
        (torch.Size([1000, 2]), tensor([[ 13, -13]]))
    """
    return cast(Tensor, Lazy(index, shape, read))


@dataclass(frozen=True)
class Part:
    """Inputs ``(n, d)`` and labels 0 or 1 ``(n,)``; or images, classes, keypoints: items come first."""

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

    def pieces(self, size: int | None) -> Iterator[Part]:
        """The items in order, at most ``size`` at a time; all at once if None."""
        for index in torch.split(torch.arange(len(self)), size or max(1, len(self))):
            yield self.take(index)


@dataclass(frozen=True)
class Split:
    """The parts of one problem. ``test`` is not used before the end."""

    train: Part
    test: Part
    val: Part | None = None

    def parts(self) -> dict[str, Part]:
        """The parts that exist, by name."""
        named = {"train": self.train, "val": self.val, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}


def flip_labels(labels: Tensor, share: float, *seed: object) -> Tensor:
    """Flip exactly ``round(share * n)`` labels, chosen at random.

    For one seed, the labels flipped at 10 % are among those flipped at 20 %: levels differ only in the amount of noise.

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
    """Move ``share`` of the training part, flipped labels included, to a validation part."""
    order = torch.randperm(len(split.train), generator=generator("hold out", *seed))
    count = round(share * len(split.train))
    return dataclasses.replace(split, train=split.train.take(order[count:]), val=split.train.take(order[:count]))


def thirds(x: Tensor, y: Tensor, *seed: object) -> Split:
    """Three equal parts at random: train, validation, test. At most two items are left over."""
    order = torch.randperm(len(y), generator=generator("thirds", *seed))
    size = len(y) // 3
    train, val, test = (Part(x, y).take(order[k * size : (k + 1) * size]) for k in range(3))
    return Split(train=train, val=val, test=test)


def thirds_by_group(groups: Sequence[str], *seed: object) -> dict[str, Tensor]:
    """Indices of ``train``, ``val`` and ``test``: random thirds, equal up to the size of a group.

    Persons of one photograph stay together. Otherwise training could leak test photographs.

    Example:
        >>> parts = thirds_by_group(["a", "a", "b", "b", "c", "c"], "seed")
        >>> [len(part) for part in parts.values()]
        [2, 2, 2]
    """
    names = list(dict.fromkeys(groups))
    if len(names) < 3:
        fail("groups", "must be at least 3, one for each part", len(names))
    order = torch.randperm(len(names), generator=generator("thirds by group", *seed))
    place = {names[k]: rank for rank, k in enumerate(order.tolist())}
    ranks = torch.tensor([place[group] for group in groups])
    ordered = ranks.argsort(stable=True)
    cuts = [end_of_group(ranks[ordered].tolist(), round(len(groups) * share / 3)) for share in (1, 2)]
    parts = ordered[: cuts[0]], ordered[cuts[0] : cuts[1]], ordered[cuts[1] :]
    return {name: part.sort().values for name, part in zip(("train", "val", "test"), parts, strict=True)}


def end_of_group(groups: Sequence[object], cut: int) -> int:
    """The cut, moved to the end of the group that it falls into; groups must be contiguous."""
    while 0 < cut < len(groups) and groups[cut] == groups[cut - 1]:
        cut += 1
    return cut


def check_both_labels(part: Part, name: str) -> None:
    """Raise if a part has only one label: a ranking needs both."""
    positives = int(part.y.sum())
    if not 0 < positives < len(part):
        fail(f"the {name} data", "must have items of both labels", f"{positives} positives among {len(part)} items")
