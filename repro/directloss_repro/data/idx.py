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
FILES = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
)  # fmt: skip
"""The names of the files, the same for MNIST, Fashion-MNIST and KMNIST."""
PARTS = {"train": FILES[:2], "test": FILES[2:]}


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


def find_idx(root: Path) -> tuple[dict[str, Path], list[str]]:
    """The files in a folder by name, packed or not; and the names of missing ones."""
    places = {name: [path for path in (root / f"{name}.gz", root / name) if path.is_file()] for name in FILES}
    return {name: paths[0] for name, paths in places.items() if paths}, [name for name in FILES if not places[name]]


def read_images(root: Path, part: str, name: str = "mnist") -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images ``(n, height, width)`` and labels ``(n,)`` of the ``train`` or ``test`` files of a folder."""
    files, missing = find_idx(root)
    if missing:
        fail(
            "--data-root",
            f"must be a folder with the four {'MNIST' if name == 'mnist' else name} files, as .gz or unpacked",
            f"{root}, which lacks {', '.join(file + '.gz' for file in missing)}",
            HOMES[name],
        )
    image_name, label_name = PARTS[part]
    images, labels = read_idx(files[image_name], IMAGES), read_idx(files[label_name], LABELS)
    if len(images) != len(labels):
        fail(label_name, f"must have a label for each of the {len(images)} images", f"{len(labels)} labels long")
    if len(labels) and int(labels.max()) > MOST:
        fail(label_name, f"must have labels from 0 to {MOST}", f"a file with label {int(labels.max())}")
    return images, labels
