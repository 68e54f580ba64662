"""CIFAR-10 and CIFAR-100 in their binary and Python versions.

A record of the binary version is one label byte (CIFAR-10) or a coarse and a fine label byte (CIFAR-100), then 3,072
bytes: 32 x 32 pixels of red, then of green, then of blue, row by row. A file of the Python version is a pickled
dictionary with the same bytes as rows of ``data``, and ``labels`` or ``fine_labels``. Pickles can run arbitrary code,
so our own reader builds only dictionaries, lists and arrays of bytes.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from directloss._checks import fail

PIXELS = 3 * 32 * 32
HOME = "cs.toronto.edu/~kriz/cifar.html"


class Cifar(NamedTuple):
    """One of the two data sets."""

    folders: tuple[str, str]
    """The folders that the archives of the binary and of the Python version unpack to."""
    files: tuple[str, ...]
    """The training files, then the test file; in the binary version with ``.bin``."""
    labels: bytes
    """Their key in the Python version."""
    label_bytes: int
    classes: int


CIFAR = {
    "cifar10": Cifar(
        ("cifar-10-batches-bin", "cifar-10-batches-py"),
        (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"),
        b"labels",
        1,
        10,
    ),
    "cifar100": Cifar(("cifar-100-binary", "cifar-100-python"), ("train", "test"), b"fine_labels", 2, 100),
}

Images = NDArray[np.uint8]
Labelled = tuple[Images, Images]


def find_cifar(root: Path, name: str) -> tuple[list[Path], list[str]]:
    """The files of the most complete version, the test file last; and the names of its missing files."""
    cifar = CIFAR[name]
    versions = zip(cifar.folders, (".bin", ""), strict=True)
    places = [(place, suffix) for folder, suffix in versions for place in (root, root / folder)]
    found = [[place / f"{file}{suffix}" for file in cifar.files] for place, suffix in places]
    missing = [[file.name for file in files if not file.is_file()] for files in found]
    best = min(range(len(found)), key=lambda k: len(missing[k]))
    return found[best], missing[best]


def read_cifar(root: Path, name: str) -> tuple[Labelled, Labelled]:
    """Training and test images ``(n, 3, 32, 32)`` with their (fine) labels ``(n,)``."""
    files, missing = find_cifar(root, name)
    if missing:
        hint = f"Download the binary or the Python version ({HOME}) and unpack it there."
        fail("--data-root", f"must be a folder with the files of {name}", f"{root}, without {missing[0]}", hint)
    *train, test = [(_read_binary if file.suffix else _read_python)(file, CIFAR[name]) for file in files]
    images, labels = zip(*train, strict=True)
    return (np.concatenate(images), np.concatenate(labels)), test


def _read_binary(path: Path, cifar: Cifar) -> Labelled:
    size = cifar.label_bytes + PIXELS
    data = np.fromfile(path, np.uint8)
    if len(data) == 0 or len(data) % size:
        fail(str(path), f"must hold whole records of {size} bytes", f"{len(data)} bytes long", "Download it again.")
    records = data.reshape(-1, size)
    labels = _check_labels(path, records[:, cifar.label_bytes - 1], cifar.classes)
    return records[:, cifar.label_bytes :].reshape(-1, 3, 32, 32), labels


def _read_python(path: Path, cifar: Cifar) -> Labelled:
    try:
        with path.open("rb") as file:
            content = _Plain(file, encoding="bytes").load()
        images, labels = np.asarray(content[b"data"], np.uint8), np.asarray(content[cifar.labels], np.int64)
        if images.shape != (len(labels), PIXELS) or len(labels) == 0 or labels.min() < 0:
            raise ValueError(f"images of shape {images.shape} and {len(labels)} labels")
    except Exception as error:  # a damaged or foreign pickle raises errors of many types
        what = f"not ({type(error).__name__}: {error})"
        fail(str(path), "must be a file of the Python version of CIFAR", what, "Download it again.")
    labels = _check_labels(path, labels, cifar.classes)
    return images.reshape(-1, 3, 32, 32), labels.astype(np.uint8)


class _Plain(pickle.Unpickler):
    """Builds arrays of numbers, and rejects everything else that a pickle may name."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]  # its home differs between versions of NumPy
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes for Python 2
            return lambda text, encoding: text.encode(encoding) if encoding == "latin1" else None
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _check_labels(path: Path, labels: NDArray[Any], classes: int) -> NDArray[Any]:
    if int(labels.max()) >= classes:
        value = f"a file with {labels.max()} in record {labels.argmax()}"
        fail(str(path), f"must have labels below {classes}", value, "Is it the file of that name?")
    return labels
