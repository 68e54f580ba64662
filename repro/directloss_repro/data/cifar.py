"""CIFAR-10 and CIFAR-100 in their binary version.

A record is one label byte (CIFAR-10) or a coarse and a fine label byte (CIFAR-100), then 3,072 bytes: 32 x 32 pixels of
red, then of green, then of blue, row by row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from directloss._checks import fail

PIXELS = 3 * 32 * 32
HOME = "cs.toronto.edu/~kriz/cifar.html"


class Cifar(NamedTuple):
    """One of the two data sets."""

    folder: str
    """The folder that the archive unpacks to."""
    files: tuple[str, ...]
    """The training files, then the test file."""
    label_bytes: int
    classes: int


CIFAR = {
    "cifar10": Cifar("cifar-10-batches-bin", (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"), 1, 10),
    "cifar100": Cifar("cifar-100-binary", ("train.bin", "test.bin"), 2, 100),
}

Images = NDArray[np.uint8]
Labelled = tuple[Images, Images]


def find_cifar(root: Path, name: str) -> tuple[list[Path], list[str]]:
    """The files, the test file last, in this folder or the one of the archive; and the names of the missing ones."""
    cifar = CIFAR[name]
    found = [[place / file for file in cifar.files] for place in (root, root / cifar.folder)]
    missing = [[file.name for file in files if not file.is_file()] for files in found]
    best = min(range(len(found)), key=lambda k: len(missing[k]))
    return found[best], missing[best]


def read_cifar(root: Path, name: str) -> tuple[Labelled, Labelled]:
    """Training and test images ``(n, 3, 32, 32)`` with their (fine) labels ``(n,)``."""
    files, missing = find_cifar(root, name)
    if missing:
        hint = f"Download the binary version ({HOME}) and unpack it there."
        fail("--data-root", f"must be a folder with the files of {name}", f"{root}, without {missing[0]}", hint)
    *train, test = [_read(file, CIFAR[name]) for file in files]
    images, labels = zip(*train, strict=True)
    return (np.concatenate(images), np.concatenate(labels)), test


def _read(path: Path, cifar: Cifar) -> Labelled:
    size = cifar.label_bytes + PIXELS
    data = np.fromfile(path, np.uint8)
    if len(data) == 0 or len(data) % size:
        fail(str(path), f"must hold whole records of {size} bytes", f"{len(data)} bytes long", "Download it again.")
    records = data.reshape(-1, size)
    labels = _check_labels(path, records[:, cifar.label_bytes - 1], cifar.classes)
    return records[:, cifar.label_bytes :].reshape(-1, 3, 32, 32), labels


def _check_labels(path: Path, labels: NDArray[Any], classes: int) -> NDArray[Any]:
    if int(labels.max()) >= classes:
        value = f"a file with {labels.max()} in record {labels.argmax()}"
        fail(str(path), f"must have labels below {classes}", value, "Is it the file of that name?")
    return labels
