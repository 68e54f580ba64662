"""Small files in the original formats: idx, CIFAR's binary version, MPII's annotations, DeepLabCut's table."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np


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


def write_cifar(folder: Path, name: str, per_file: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """All images, training files first, and their fine labels."""
    inner = folder / ("cifar-10-batches-bin" if name == "cifar10" else "cifar-100-binary")
    inner.mkdir(parents=True, exist_ok=True)
    files = [f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"]
    files = files if name == "cifar10" else ["train.bin", "test.bin"]
    draw = np.random.default_rng(1)
    classes = 10 if name == "cifar10" else 100
    images = draw.integers(0, 256, (len(files) * per_file, 3, 32, 32)).astype(np.uint8)
    labels = draw.integers(0, classes, len(images)).astype(np.uint8)
    for place, file in enumerate(files):
        raw = b""
        for k in range(place * per_file, (place + 1) * per_file):
            coarse = b"" if name == "cifar10" else bytes([labels[k] // 5])
            raw += coarse + bytes([labels[k]]) + images[k].tobytes()
        (inner / file).write_bytes(raw)
    return images, labels


def write_mouse(folder: Path, frames: int = 12, parts: int = 17, size: tuple[int, int] = (40, 50)) -> np.ndarray:
    """Frames with one bright pixel for each part; the last part is hidden in every second frame. Places, NaN hidden."""
    from PIL import Image

    inner = folder / "mouse-example"
    (inner / "labeled-data").mkdir(parents=True)
    draw = np.random.default_rng(2)
    places = draw.integers(2, 38, (frames, parts, 2)) + 0.25
    places[::2, -1] = np.nan
    names = [f"part{k}" for k in range(parts) for _ in "xy"]
    lines = [["scorer", *["me"] * len(names)], ["bodyparts", *names], ["coords", *["x", "y"] * parts]]
    for k in range(frames):
        pixels = draw.integers(0, 60, size).astype(np.uint8)
        for x, y in places[k]:
            if x == x:
                pixels[int(y), int(x)] = 255
        Image.fromarray(pixels).save(inner / "labeled-data" / f"img{k:02d}.png")
        lines.append([f"labeled-data/img{k:02d}.png", *("" if v != v else str(v) for v in places[k].flatten())])
    (inner / "CollectedData.csv").write_text("".join(",".join(line) + "\n" for line in lines))
    return places


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
