"""The idx files of MNIST and its relatives, plain or gzipped.

An idx file is: two zero bytes, a byte for the type (8 is unsigned byte), a byte for the number of dimensions, the
dimensions as big-endian 32-bit numbers, the values.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from directloss._checks import fail

IMAGES, LABELS = 3, 1
"""Number of dimensions of image and label files: magic numbers 2051 and 2049."""

MOST = 9
"""The highest label of these data sets."""
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
"""Names of the four files, the same for MNIST, Fashion-MNIST and KMNIST."""


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The values of one file of unsigned bytes; its magic number and its size are checked."""
    try:
        raw = path.read_bytes()
        data = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        fail(str(path), "must be a readable idx file, plain or gzipped", f"not ({error})", "Download it again.")
    header = 4 + 4 * dimensions
    magic = (8 << 8) | dimensions
    found = struct.unpack(">I", data[:4])[0] if len(data) >= header else None
    if found != magic:
        what = "too short to have a header" if found is None else f"a file with magic number {found}"
        fail(str(path), f"must be an idx file with magic number {magic}", what)
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    if 0 in shape[1:]:
        fail(str(path), "must hold images with pixels", f"of shape {shape}")
    if len(data) - header != math.prod(shape):
        fail(str(path), f"must hold {math.prod(shape)} values for shape {shape}", f"{len(data) - header} values long")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape).copy()


HOMES = {
    "mnist": "They are the original files of the MNIST database (yann.lecun.com/exdb/mnist and its mirrors).",
    "fashion-mnist": "They are the original files of Fashion-MNIST (github.com/zalandoresearch/fashion-mnist).",
}


def read_images(root: Path, part: str, name: str = "mnist") -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images ``(n, height, width)`` and labels ``(n,)`` of the ``train`` or ``test`` files of a folder."""
    if missing := _missing(root):
        fail(
            "--data-root",
            f"must be a folder with the four {'MNIST' if name == 'mnist' else name} files, as .gz or unpacked",
            f"{root}, which lacks {', '.join(file + '.gz' for file in missing)}",
            HOMES[name],
        )
    image_name, label_name = FILES[part]
    images = read_idx(_find(root, image_name) or root, IMAGES)
    labels = read_idx(_find(root, label_name) or root, LABELS)
    if len(images) != len(labels):
        fail(label_name, f"must have a label for each of the {len(images)} images", f"{len(labels)} labels long")
    if len(labels) and int(labels.max()) > MOST:
        fail(label_name, f"must have labels from 0 to {MOST}", f"a file with label {int(labels.max())}")
    return images, labels


def holds_idx(root: Path) -> bool:
    """Whether a folder has the four files."""
    return not _missing(root)


def _missing(root: Path) -> list[str]:
    return [file for pair in FILES.values() for file in pair if _find(root, file) is None]


def _find(root: Path, name: str) -> Path | None:
    return next((path for path in (root / f"{name}.gz", root / name) if path.is_file()), None)
