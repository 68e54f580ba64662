"""Images with classes (CIFAR, MNIST and Fashion-MNIST): identification, splits, normalisation, augmentation."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from directloss._checks import fail
from directloss_repro.data.cifar import CIFAR, find_cifar, read_cifar
from directloss_repro.data.idx import find_idx, read_images
from directloss_repro.data.split import Part, Split
from directloss_repro.files import DataIdentity
from directloss_repro.seeding import generator

CLASSES = {"cifar10": 10, "cifar100": 100, "fashion-mnist": 10, "mnist": 10}
"""The data sets and their numbers of classes."""
PUBLISHED = {"1c1c7f95c6823626": "mnist", "928921cb49538bb6": "fashion-mnist", "e158f52d467e096c": "cifar10"}
"""Digests of the published data, compressed or not."""
CROP_PADDING = 4
Bytes = tuple[NDArray[np.uint8], NDArray[np.uint8]]


def recognise(root: str) -> str | None:
    """The name of the data set in a folder, by its files; None if they are not those of a published one."""
    for name in CIFAR:
        if not find_cifar(Path(root), name)[1]:
            return name
    return PUBLISHED.get(_digest("mnist", root)) if not find_idx(Path(root))[1] else None


def identify(name: str, root: str) -> DataIdentity:
    """Check the files and identify them; raises for those of another known data set."""
    digest = _digest(name, root)
    found = DataIdentity(digest, PUBLISHED.get(digest), checkable=name in PUBLISHED.values())
    if found.published not in (None, name):
        fail("--data-root", f"must hold the files of {name}", f"{root}, with those of {found.published}")
    return found


@lru_cache(maxsize=1)
def _digest(name: str, root: str) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for images, labels in _read(name, root):
        digest.update(str(images.shape).encode() + np.ascontiguousarray(images).tobytes() + labels.tobytes())
    return digest.hexdigest()


def _read(name: str, root: str) -> tuple[Bytes, Bytes]:
    """Raw images ``(n, channels, h, w)`` and labels of the training and test files."""
    if name in CIFAR:
        return read_cifar(Path(root), name)
    train, test = (read_images(Path(root), part, name) for part in ("train", "test"))
    return (train[0][:, None], train[1]), (test[0][:, None], test[1])


@lru_cache(maxsize=1)
def split_classes(name: str, root: str, validation: int, points: int) -> Split:
    """``validation`` images of the training files for validation, all of the test files for test.

    The split is the same for every seed, as in the papers: seeds differ in initial weights, order, augmentation and
    anchors. Trains on ``points`` of the rest, or all if 0. Per-pixel normalisation (He et al. 2016, Sec. 4.2): subtract
    the mean image of the training part, then divide by the standard deviation over all pixels.
    """
    train, val, test = _parts(name, root, validation, points)
    mean = train.x.mean(0)
    deviation = (train.x - mean).square().mean().sqrt().clamp(min=1e-6)
    train, val, test = (Part((part.x - mean) / deviation, part.y) for part in (train, val, test))
    return Split(train=train, val=val, test=test)


def crop_and_flip(batch: Part, draw: torch.Generator) -> Part:
    """Pad each image by 4 zeros on each side, crop it at a random place, and mirror it with probability 1/2."""
    n, channels, height, width = batch.x.shape
    padded = F.pad(batch.x, (CROP_PADDING,) * 4)
    top, left = torch.randint(0, 2 * CROP_PADDING + 1, (2, n, 1), generator=draw)
    rows = top + torch.arange(height)
    columns = left + torch.arange(width)
    mirrored = torch.rand(n, 1, generator=draw) < 0.5
    columns = torch.where(mirrored, columns.flip(-1), columns)
    items, colours = torch.arange(n)[:, None, None, None], torch.arange(channels)[None, :, None, None]
    return Part(padded[items, colours, rows[:, None, :, None], columns[:, None, None, :]], batch.y)


@lru_cache(maxsize=1)
def zeros_against_rest(name: str, root: str, validation: int, points: int) -> Split:
    """One class, the first, against all others; images as vectors from 0 to 1."""
    parts = _parts(name, root, validation, points)
    train, val, test = (Part(part.x.flatten(1), (part.y == 0).long()) for part in parts)
    return Split(train=train, val=val, test=test)


def _parts(name: str, root: str, validation: int, points: int) -> tuple[Part, Part, Part]:
    """Images from 0 to 1, with their classes."""
    everything, test = (
        Part(torch.from_numpy(np.ascontiguousarray(images)).float() / 255, torch.from_numpy(labels.astype(np.int64)))
        for images, labels in _read(name, root)
    )
    order = torch.randperm(len(everything), generator=generator("split", name))
    chosen = order[validation : validation + points] if points else order[validation:]
    if len(chosen) == 0:
        rule = f"must have more than the {validation} images of the validation part"
        fail(f"the training data of {name}", rule, f"{len(everything)} images")
    return everything.take(chosen), everything.take(order[:validation]), test
