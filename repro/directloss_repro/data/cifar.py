"""CIFAR-10 and CIFAR-100 in their original binary version.

A record is one label byte (CIFAR-10) or a coarse and a fine label byte (CIFAR-100), then 3,072 bytes: 32 x 32 pixels
of red, then of green, then of blue, row by row. The Python version holds the same images as pickles, which can run any
code when they are read, so it is not read here.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from directloss._checks import fail

PIXELS = 3 * 32 * 32
COARSE = 20
"""Of CIFAR-100: how many groups its classes have."""
HOME = "cs.toronto.edu/~kriz/cifar.html"


class Version(NamedTuple):
    """The files of one of the two data sets."""

    folder: str
    archive: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    label_bytes: int
    classes: int
    pickled: tuple[str, ...]
    """Files of the Python version, by which it is recognised."""


CIFAR = {
    "cifar10": Version(
        "cifar-10-batches-bin",
        "cifar-10-binary.tar.gz",
        tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
        ("test_batch.bin",),
        1,
        10,
        ("data_batch_1", "test_batch"),
    ),
    "cifar100": Version(
        "cifar-100-binary", "cifar-100-binary.tar.gz", ("train.bin",), ("test.bin",), 2, 100, ("train", "test")
    ),
}

Images = NDArray[np.uint8]


def find_cifar(root: Path, name: str) -> Path:  # noqa: RET503 (fail never returns)
    """The folder with the files: ``root`` itself, or the folder inside it that the archive makes."""
    version = CIFAR[name]
    places = (root, root / version.folder)
    wanted = (*version.train, *version.test)
    begun = max(places, key=lambda place: sum((place / file).is_file() for file in wanted))
    missing = [file for file in wanted if not (begun / file).is_file()]
    if not missing:
        return begun
    hint = f"Download {version.archive} ({HOME}) and unpack it there."
    python = (root, root / "cifar-10-batches-py", root / "cifar-100-python")
    if any((place / file).is_file() for place in python for file in version.pickled):
        hint = f"This is the Python version, whose pickles could run any code. {hint}"
    fail("--data-root", f"must be a folder with the binary version of {name}", f"{root}, without {missing[0]}", hint)


def read_cifar(root: Path, name: str) -> tuple[tuple[Images, Images], tuple[Images, Images]]:
    """Training and test images ``(n, 3, 32, 32)`` with their (fine) labels ``(n,)``."""
    version, place = CIFAR[name], find_cifar(root, name)
    train, test = ([_read(place / file, version) for file in files] for files in (version.train, version.test))
    joined = [
        (np.concatenate([images for images, _ in part]), np.concatenate([labels for _, labels in part]))
        for part in (train, test)
    ]
    return joined[0], joined[1]


def _read(path: Path, version: Version) -> tuple[Images, Images]:
    size = version.label_bytes + PIXELS
    data = np.fromfile(path, np.uint8)
    if len(data) == 0 or len(data) % size:
        fail(str(path), f"must hold whole records of {size} bytes", f"{len(data)} bytes long", "Download it again.")
    records = data.reshape(-1, size)
    labels = records[:, version.label_bytes - 1]
    if int(labels.max()) >= version.classes:
        where = int((labels >= version.classes).argmax())
        rule = f"must have labels below {version.classes}"
        fail(str(path), rule, f"a file with label {labels[where]} in record {where}", "Is it the file of that name?")
    if version.label_bytes > 1 and int(records[:, 0].max()) >= COARSE:
        where = int((records[:, 0] >= COARSE).argmax())
        fail(str(path), f"must have coarse labels below {COARSE}", f"a file with {records[where, 0]} in record {where}")
    return records[:, version.label_bytes :].reshape(-1, 3, 32, 32), labels
