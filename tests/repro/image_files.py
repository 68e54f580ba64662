"""Small files in the original formats: idx, CIFAR's two versions, the annotations of MPII and Leeds."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
from directloss_repro.data.cifar import CIFAR


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.astype(np.uint8).tobytes()


def write_idx(folder: Path, train: int = 120, test: int = 40, side: int = 28) -> Path:
    """MNIST or Fashion-MNIST: each class is a bright bar at a place of its own, in noise."""
    folder.mkdir(exist_ok=True)
    draw = np.random.default_rng(0)
    for prefix, count in (("train", train), ("t10k", test)):
        labels = np.arange(count) % 10
        images = draw.integers(0, 80, (count, side, side))
        for image, label in zip(images, labels, strict=True):
            image[2 * label + 2 : 2 * label + 5] += 150
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    return folder


def write_cifar(folder: Path, name: str, per_file: int = 20, pickled: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """All images, training files first, and their fine labels; in the Python version if ``pickled``."""
    ten = name == "cifar10"
    inner = folder / CIFAR[name].folders[pickled]
    inner.mkdir(parents=True, exist_ok=True)
    files = [file if pickled else f"{file}.bin" for file in CIFAR[name].files]
    draw = np.random.default_rng(1)
    images = draw.integers(0, 256, (len(files) * per_file, 3, 32, 32)).astype(np.uint8)
    labels = draw.integers(0, CIFAR[name].classes, len(images)).astype(np.uint8)
    for file, some, of in zip(files, np.split(images, len(files)), np.split(labels, len(files)), strict=True):
        rows = some.reshape(per_file, -1)
        if pickled:
            content = {b"data": rows, CIFAR[name].labels: of.tolist(), b"batch_label": b"a batch"}
            (inner / file).write_bytes(pickle.dumps(content, protocol=2))  # as Python 2 wrote them
        else:
            columns = [of] if ten else [of // 5, of]
            (inner / file).write_bytes(np.concatenate([*(c[:, None] for c in columns), rows], axis=1).tobytes())
    return images, labels


def write_leeds(folder: Path, persons: int = 12, size: tuple[int, int] = (60, 50)) -> np.ndarray:
    """Persons with a bright pixel at each joint, hidden ankles in every second image, hidden neck in the last."""
    from PIL import Image
    from scipy.io import savemat

    (folder / "images").mkdir(parents=True)
    draw = np.random.default_rng(2)
    joints = np.concatenate([draw.integers(5, 45, (14, 2, persons)) + 0.25, np.ones((14, 1, persons))], axis=1)
    joints[12, :2], joints[13, :2] = [[25.0], [20.0]], [[25.0], [8.0]]
    joints[0, :, ::2], joints[12, :, -1] = 0, 0
    for k in range(persons):
        pixels = draw.integers(0, 60, (*size, 3)).astype(np.uint8)
        for x, y, visible in joints[:, :, k]:
            if visible:
                pixels[int(y), int(x)] = 255
        Image.fromarray(pixels).save(folder / "images" / f"im{k + 1:05d}.jpg")
    savemat(folder / "joints.mat", {"joints": joints})
    return joints


def _objects(values: list[Any]) -> np.ndarray:
    """A list of dicts as MATLAB's array of structs."""
    names = list(values[0])
    array = np.zeros((1, len(values)), dtype=[(name, object) for name in names])
    for place, value in enumerate(values):
        for name in names:
            array[0, place][name] = value[name]
    return array


def write_mpii(folder: Path, images: int = 10) -> None:
    """Two persons in every image, of which the second has no joints; every fifth image is one of the test set."""
    from PIL import Image
    from scipy.io import savemat

    (folder / "images").mkdir(parents=True)
    annotations, marks = [], []
    for k in range(images):
        name, test = f"{k:09d}.jpg", k % 5 == 4
        Image.fromarray(np.full((120, 160, 3), 10 * k, np.uint8)).save(folder / "images" / name)
        empty = np.zeros((0, 0))
        joints = [
            {"x": 80.0, "y": 40.0 + k, "id": 9, "is_visible": 1},
            {"x": 78.5, "y": 52.0, "id": 8, "is_visible": 1},
        ]
        joints.append({"x": 90.0, "y": 100.0, "id": 0, "is_visible": 0})
        box = {"x1": 70, "y1": 40, "x2": 90, "y2": 55, "scale": 0.5, "objpos": {"x": 80.0, "y": 60.0}}
        person = {**box, "annopoints": {"point": _objects(joints)}}
        other = dict.fromkeys(person, empty)
        rects = _objects([{key: empty if test else value for key, value in one.items()} for one in (person, other)])
        annotations.append({"image": {"name": name}, "annorect": rects})
        marks.append(0 if test else 1)
    release = {"annolist": _objects(annotations), "img_train": np.array([marks])}
    savemat(folder / "mpii_human_pose_v1_u12_1.mat", {"RELEASE": release})
