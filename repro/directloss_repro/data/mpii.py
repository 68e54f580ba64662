"""MPII Human Pose: the original annotation file and its images, one person at a time.

``mpii_human_pose_v1_u12_1.mat`` holds ``RELEASE`` with, for each image, its name, whether it belongs to the training
set (``img_train``), and rectangles of persons: the head box ``x1 y1 x2 y2``, ``scale`` (height / 200 pixels),
``objpos`` and ``annopoints``, joints with an id. Only training images have joints. Images are read when asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from directloss._checks import fail
from directloss_repro.data.images import read_image
from directloss_repro.data.split import Part

FILE = "mpii_human_pose_v1_u12_1.mat"
HOME = (
    "Annotations and images are at human-pose.mpi-inf.mpg.de (mpii_human_pose_v1_u12_2.zip, mpii_human_pose_v1.tar.gz)."
)
HEAD = (8, 9)
"""Ids of the head's joints: upper neck and head top, those of UniLoss's experiment."""
HEAD_SHARE = 0.6
"""The head's length is this share of the diagonal of its box: the benchmark's convention for PCKh."""
BODY, MARGIN = 200.0, 1.25
"""A person of scale 1 is 200 pixels high; crops are a quarter wider, as in the hourglass paper."""


@dataclass(frozen=True)
class Person:
    """One annotated person of a training image, in pixels of the image."""

    image: str
    centre: tuple[float, float]
    scale: float
    head: float
    joints: dict[int, tuple[float, float]]


def find_annotations(root: Path) -> Path:
    """The annotation file, in ``root`` or in one folder below it; the folder ``images`` must be in ``root``."""
    found = sorted([*root.glob(FILE), *root.glob(f"*/{FILE}")])
    if not found:
        fail("--data-root", f"must be a folder with {FILE} of MPII", f"{root}, without it", HOME)
    if not (root / "images").is_dir():
        fail("--data-root", "must have the MPII images in a folder 'images'", f"{root}, without it", HOME)
    return found[0]


@lru_cache(maxsize=1)
def read_persons(path: Path) -> tuple[Person, ...]:
    """Every person of a training image that has a head box, a place, a scale, and at least one joint of the head."""
    import scipy.io  # here, because reading it is slow and no other data needs it

    try:
        release = scipy.io.loadmat(path, struct_as_record=False, squeeze_me=True)["RELEASE"]
        annotations, used = np.atleast_1d(release.annolist), np.atleast_1d(release.img_train)
        if len(annotations) != len(used):
            raise ValueError(f"{len(annotations)} images, but {len(used)} marks")
        persons = tuple(
            person
            for annotation, mark in zip(annotations, used, strict=True)
            if int(mark) == 1
            for person in _persons(annotation)
        )
    except Exception as error:  # a damaged .mat file ends in errors of many kinds
        fail(
            str(path), "must be MPII's annotation file", f"not ({type(error).__name__}: {error})", "Download it again."
        )
    if not persons:
        fail(str(path), "must have persons with joints of the head", "without any")
    return persons


def _persons(annotation: Any) -> Iterator[Person]:
    for rect in np.atleast_1d(annotation.annorect):
        # Empty rectangles and persons without joints or head are common, and are no fault.
        names = getattr(rect, "_fieldnames", ())
        if not {"x1", "y1", "x2", "y2", "scale", "objpos", "annopoints"} <= set(names):
            continue
        points = getattr(rect.annopoints, "point", None)
        numbers = [rect.x1, rect.y1, rect.x2, rect.y2, rect.scale]
        if points is None or not hasattr(rect.objpos, "x") or any(np.size(number) != 1 for number in numbers):
            continue
        joints = {int(point.id): (float(point.x), float(point.y)) for point in np.atleast_1d(points)}
        x1, y1, x2, y2, scale = map(float, numbers)
        head = HEAD_SHARE * math.hypot(x2 - x1, y2 - y1)
        if head > 0 and scale > 0 and joints.keys() & set(HEAD):
            centre = float(rect.objpos.x), float(rect.objpos.y)
            yield Person(str(annotation.image.name), centre, scale, head, joints)


class Crops:
    """The images of persons as if they were one tensor ``(n, 3, size, size)``; each is read when it is indexed."""

    def __init__(self, folder: Path, persons: Sequence[Person], size: int) -> None:
        self.folder, self.persons = folder, persons
        self.shape = torch.Size((len(persons), 3, size, size))

    def __getitem__(self, index: Tensor | slice) -> Any:
        size = self.shape[-1]
        if isinstance(index, slice):
            return Crops(self.folder, self.persons[index], size)
        return torch.stack([crop(self.folder / self.persons[i].image, self.persons[i], size) for i in index.tolist()])


def crop(path: Path, person: Person, size: int) -> Tensor:
    """The square around a person, ``(3, size, size)`` from -0.5 to 0.5; zeros beyond the border of the image."""
    pixels = torch.from_numpy(np.array(read_image(path))).permute(2, 0, 1)[None].float() / 255 - 0.5
    left, top, side = square(person)
    x0, y0, length = round(left), round(top), max(1, round(side))
    inside = pixels[..., max(0, y0) : max(0, y0 + length), max(0, x0) : max(0, x0 + length)]
    before = (max(0, -x0), max(0, -y0))
    pad = (before[0], length - before[0] - inside.shape[-1], before[1], length - before[1] - inside.shape[-2])
    if min(inside.shape[-2:]) == 0 or min(pad) < 0:
        return torch.zeros(3, size, size)
    whole = F.pad(inside, pad)
    return F.interpolate(whole, (size, size), mode="bilinear", antialias=True, align_corners=False)[0]


def square(person: Person) -> tuple[float, float, float]:
    """Left, top and side of the crop. The centre lies a little below the annotated one, so that the feet are inside."""
    side = BODY * MARGIN * person.scale
    x, y = person.centre[0], person.centre[1] + 15 * person.scale
    return x - side / 2, y - side / 2, side


def heads(persons: Sequence[Person], folder: Path, size: int, shrinks: int, share: float) -> Part:
    """Crops and the head's keypoints in pixels of the heatmaps; right within ``share`` of the head's length."""
    targets = torch.zeros(len(persons), len(HEAD), 3)
    for row, person in zip(targets, persons, strict=True):
        left, top, side = square(person)
        scale = size / shrinks / side
        for place, joint in enumerate(HEAD):
            if joint in person.joints:
                x, y = person.joints[joint]
                x, y = (x - left) * scale - 0.5, (y - top) * scale - 0.5
                if 0 <= x < size / shrinks and 0 <= y < size / shrinks:
                    row[place] = torch.tensor([x, y, share * person.head * scale])
    # It behaves as the tensor of all crops wherever the lab touches inputs: it is indexed, and it has a shape.
    return Part(cast(Tensor, Crops(folder, persons, size)), targets)
