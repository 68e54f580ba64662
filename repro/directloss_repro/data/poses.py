"""Persons with joints: Leeds Sports Pose (extended) and MPII Human Pose, in their original formats.

Leeds: ``joints.mat`` holds ``joints`` ``(14, 3, n)``, x, y and whether a joint is visible; the images are
``images/im00001.jpg`` and so on, one person each.

MPII: ``mpii_human_pose_v1_u12_1.mat`` holds ``RELEASE`` with, for each image, its name, whether it belongs to the
training set (``img_train``), and rectangles of persons: the head box ``x1 y1 x2 y2``, ``scale`` (height / 200 pixels),
``objpos`` and ``annopoints``, joints with an id. Only training images have joints.

Images are read when they are indexed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from directloss._checks import fail
from directloss_repro.data.photographs import read_image
from directloss_repro.data.split import Part, lazy

Point = tuple[float, float]


@dataclass(frozen=True)
class Person:
    """One person, in pixels of the image."""

    image: str
    corner: Point
    """Left and top of the square around the person."""
    side: float
    head: float
    """The head's length, the unit of errors."""
    joints: tuple[Point | None, ...]
    """None where a joint is hidden or not annotated."""


@dataclass(frozen=True)
class Poses:
    """A data set of persons."""

    file: str
    home: str
    joints: tuple[str, ...]
    head: tuple[int, int]
    """The indices of neck and head top."""
    bones: tuple[tuple[int, int], ...]
    """Pairs of joints to connect in drawings."""
    read: Callable[[Any], Iterator[Person]]
    """Reads the content of the file."""

    def chosen(self, which: str) -> tuple[int, ...]:
        """The joints of ``head`` or of ``all``."""
        return self.head if which == "head" else tuple(range(len(self.joints)))

    def bones_between(self, chosen: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """The bones whose ends are both chosen, by their places in ``chosen``."""
        place = {joint: number for number, joint in enumerate(chosen)}
        return tuple((place[a], place[b]) for a, b in self.bones if a in place and b in place)


def recognise_poses(root: str) -> str | None:
    """The data set in a folder, by its file of annotations."""
    return next(iter(_annotations(Path(root))), None)


def _annotations(root: Path) -> dict[str, Path]:
    """The files of annotations in ``root``, or in one folder below it."""
    found = {name: sorted([*root.glob(poses.file), *root.glob(f"*/{poses.file}")]) for name, poses in POSES.items()}
    return {name: paths[0] for name, paths in found.items() if paths}


def find_poses(root: Path, name: str) -> Path:
    """The annotation file of a data set; its images must be in the same folder."""
    found = _annotations(root)
    if not found:
        wanted = " or ".join(f"{poses.file} ({name})" for name, poses in POSES.items())
        homes = " ".join(poses.home for poses in POSES.values())
        fail("--data-root", f"must be a folder with {wanted}", f"{root}, without either", homes)
    if name not in found:
        fail("--dataset", "must be the data set at --data-root", f"{name}, and that one is {next(iter(found))}")
    if not (root / "images").is_dir():
        fail("--data-root", "must have the images in a folder 'images'", f"{root}, without it", POSES[name].home)
    return found[name]


@lru_cache(maxsize=1)
def read_persons(name: str, path: Path) -> tuple[Person, ...]:
    """All persons of a data set that can be judged: with a head's length and at least one joint."""
    import scipy.io  # slow to import, and no other data needs it

    try:
        content = scipy.io.loadmat(path, struct_as_record=False, squeeze_me=True)
        persons = tuple(person for person in POSES[name].read(content) if any(person.joints) and person.head > 0)
    except Exception as error:  # a damaged .mat file raises errors of many types
        what = f"not ({type(error).__name__}: {error})"
        fail(str(path), f"must be the annotation file of {name}", what, "Download it again.")
    if not persons:
        fail(str(path), "must have persons with joints and a head", "without any")
    return persons


# ---------------------------------------------------------------------- Leeds

LEEDS_JOINTS = (
    "right ankle", "right knee", "right hip", "left hip", "left knee", "left ankle", "right wrist", "right elbow",
    "right shoulder", "left shoulder", "left elbow", "left wrist", "neck", "head top",
)  # fmt: skip
NECK, TOP = 12, 13
LEEDS_BONES = (
    (0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (6, 7), (7, 8), (8, 12), (12, 9), (9, 10), (10, 11), (12, 13),
)  # fmt: skip
AROUND = 1.25
"""Squares are this much larger than the extent of the visible joints, as in MPII."""
SMALLEST_HEAD = 5.0
"""In pixels; the few shorter heads are annotation errors."""


def _leeds(content: Any) -> Iterator[Person]:
    """Persons whose neck and head top are visible: the head's length is from one to the other."""
    joints = np.atleast_3d(content["joints"])
    if joints.shape[:2] != (len(LEEDS_JOINTS), 3):
        raise ValueError(f"joints of shape {joints.shape}, not (14, 3, n)")
    for number, person in enumerate(joints.transpose(2, 0, 1), 1):
        seen = person[:, 2] > 0
        head = math.dist(person[NECK, :2], person[TOP, :2]) if seen[NECK] and seen[TOP] else 0.0
        if head >= SMALLEST_HEAD:
            low, high = person[seen, :2].min(0), person[seen, :2].max(0)
            side = AROUND * float((high - low).max())
            left, top = ((low + high - side) / 2).tolist()
            points = [(float(x), float(y)) if visible else None for x, y, visible in person]
            yield Person(f"im{number:05d}.jpg", (left, top), side, head, tuple(points))


# ---------------------------------------------------------------------- MPII

MPII_JOINTS = (
    "right ankle", "right knee", "right hip", "left hip", "left knee", "left ankle", "pelvis", "thorax", "upper neck",
    "head top", "right wrist", "right elbow", "right shoulder", "left shoulder", "left elbow", "left wrist",
)  # fmt: skip
"""The joints in the order of their ids."""
MPII_BONES = (
    (0, 1), (1, 2), (2, 6), (6, 3), (3, 4), (4, 5), (6, 7), (7, 8), (8, 9), (10, 11), (11, 12), (12, 7), (7, 13),
    (13, 14), (14, 15),
)  # fmt: skip
HEAD_SHARE = 0.6
"""The head's length is this share of the diagonal of its box: the benchmark's convention for PCKh."""
BODY, MARGIN = 200.0, 1.25
"""A person of scale 1 is 200 pixels high; squares are a quarter wider, as in the hourglass paper."""


def _mpii(content: Any) -> Iterator[Person]:
    release = content["RELEASE"]
    annotations, used = np.atleast_1d(release.annolist), np.atleast_1d(release.img_train)
    if len(annotations) != len(used):
        raise ValueError(f"{len(annotations)} images, but {len(used)} marks")
    for annotation, mark in zip(annotations, used, strict=True):
        if int(mark) == 1:
            for rect in np.atleast_1d(annotation.annorect):
                yield from _mpii_person(str(annotation.image.name), rect)


def _mpii_person(image: str, rect: Any) -> Iterator[Person]:
    """Yields nothing for empty rectangles and persons without joints or head, which are common."""
    names = getattr(rect, "_fieldnames", ())
    if not {"x1", "y1", "x2", "y2", "scale", "objpos", "annopoints"} <= set(names):
        return
    points = getattr(rect.annopoints, "point", None)
    numbers = [rect.x1, rect.y1, rect.x2, rect.y2, rect.scale]
    if points is None or not hasattr(rect.objpos, "x") or any(np.size(number) != 1 for number in numbers):
        return
    joints = {int(point.id): (float(point.x), float(point.y)) for point in np.atleast_1d(points)}
    x1, y1, x2, y2, scale = map(float, numbers)
    if scale > 0:
        side = BODY * MARGIN * scale
        # The centre of the square lies a little below the annotated one, so that the feet are inside.
        left, top = float(rect.objpos.x) - side / 2, float(rect.objpos.y) + 15 * scale - side / 2
        head = HEAD_SHARE * math.hypot(x2 - x1, y2 - y1)
        yield Person(image, (left, top), side, head, tuple(joints.get(joint) for joint in range(len(MPII_JOINTS))))


POSES = {
    "leeds": Poses(
        "joints.mat",
        "Leeds Sports Pose Extended Training (lspet_dataset.zip) is at sam.johnson.io/research/lspet.html.",
        LEEDS_JOINTS,
        (NECK, TOP),
        LEEDS_BONES,
        _leeds,
    ),
    "mpii": Poses(
        "mpii_human_pose_v1_u12_1.mat",
        "MPII's annotations and images are at human-pose.mpi-inf.mpg.de (mpii_human_pose_v1_u12_2.zip, "
        "mpii_human_pose_v1.tar.gz).",
        MPII_JOINTS,
        (8, 9),
        MPII_BONES,
        _mpii,
    ),
}


# ---------------------------------------------------------------------- as a network sees them


def as_part(
    persons: Sequence[Person], chosen: Sequence[int], folder: Path, size: int, shrinks: int, share: float
) -> Part:
    """Crops ``(n, 3, size, size)`` and the chosen joints in pixels of the heatmaps, as `keypoints` describes them.

    A prediction is right within ``share`` of the head's length.
    """
    targets = torch.zeros(len(persons), len(chosen), 3)
    for row, person in zip(targets, persons, strict=True):
        scale = size / shrinks / person.side
        for place, number in enumerate(chosen):
            if (joint := person.joints[number]) is not None:
                x, y = ((edge - start) * scale - 0.5 for edge, start in zip(joint, person.corner, strict=True))
                if 0 <= x < size / shrinks and 0 <= y < size / shrinks:
                    row[place] = torch.tensor([x, y, share * person.head * scale])
    return Part(lazy(torch.arange(len(persons)), (3, size, size), partial(_crops, persons, folder, size)), targets)


def _crops(persons: Sequence[Person], folder: Path, size: int, index: Tensor) -> Tensor:
    return torch.stack([crop(folder / persons[k].image, persons[k], size) for k in index.tolist()])


def crop(path: Path, person: Person, size: int) -> Tensor:
    """The square around a person, ``(3, size, size)`` from -0.5 to 0.5; zeros outside the image."""
    pixels = torch.from_numpy(np.array(read_image(path))).permute(2, 0, 1)[None].float() / 255 - 0.5
    x0, y0, length = round(person.corner[0]), round(person.corner[1]), max(1, round(person.side))
    inside = pixels[..., max(0, y0) : max(0, y0 + length), max(0, x0) : max(0, x0 + length)]
    before = (max(0, -x0), max(0, -y0))
    pad = (before[0], length - before[0] - inside.shape[-1], before[1], length - before[1] - inside.shape[-2])
    if min(inside.shape[-2:]) == 0 or min(pad) < 0:
        return torch.zeros(3, size, size)
    return F.interpolate(F.pad(inside, pad), (size, size), mode="bilinear", antialias=True, align_corners=False)[0]
