"""The action task: persons in still images, each with ten labels.

Song et al. 2016, Sec. 4.2: persons of "trainval", three equal parts, boxes cropped as in R-CNN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from directloss._checks import fail
from directloss_repro.data.grouping import thirds_by_group
from directloss_repro.data.images import CONTEXT, CROP, Box, warp
from directloss_repro.data.skipping import Skipped
from directloss_repro.data.voc.annotation import Annotation
from directloss_repro.data.voc.devkit import Devkit
from directloss_repro.files import whole_file

ACTIONS = (
    "jumping", "phoning", "playinginstrument", "reading", "ridingbike", "ridinghorse", "running", "takingphoto",
    "usingcomputer", "walking",
)  # fmt: skip
"""The ten classes, in the order of the papers' tables. "other" is a label of the annotations, but not a class."""

TITLES = dict(
    zip(
        ACTIONS,
        ["jumping", "phoning", "playing instrument", "reading", "riding bike", "riding horse", "running",
         "taking photo", "using computer", "walking"],
        strict=True,
    )
)  # fmt: skip

UNKNOWN = 0
"""A label that the lists leave open; such a person does not count for that action."""


@dataclass(frozen=True)
class Person:
    """One box of one image."""

    image: str
    number: int
    box: Box


@dataclass(frozen=True)
class People:
    """Persons and their labels ``(n, actions)``: 1, -1, or 0 where it is not known."""

    persons: tuple[Person, ...]
    labels: Tensor
    actions: tuple[str, ...] = ACTIONS

    def __len__(self) -> int:
        return len(self.persons)

    def take(self, index: Tensor) -> People:
        """The persons at ``index``."""
        return People(tuple(self.persons[k] for k in index.tolist()), self.labels[index], self.actions)

    def problem(self, action: str) -> tuple[Tensor, Tensor]:
        """Where the label for ``action`` is known, and the labels 0 or 1 there. Both must occur."""
        column = self.labels[:, self.actions.index(action)]
        known = (column != UNKNOWN).nonzero()[:, 0]
        target = (column[known] > 0).long()
        positives = int(target.sum())
        if not 0 < positives < len(target):
            rule = "must have persons who do it and persons who do not"
            fail(f"the class {action!r}", rule, f"{positives} positives among {len(target)} persons")
        return known, target


def read_people(
    devkit: Devkit,
    image_set: str = "trainval",
    actions: Sequence[str] = ACTIONS,
    skipped: Skipped | None = None,
) -> People:
    """The persons of a list of ``ImageSets/Action`` with their labels; those with broken files are left out."""
    skipped = Skipped() if skipped is None else skipped
    annotations: dict[str, Annotation | None] = {}
    persons = []
    for image, number in devkit.persons(image_set):
        if image not in annotations:
            annotations[image] = None
            with skipped.catching():
                annotations[image] = devkit.annotation(image, skipped)
        annotation = annotations[image]
        if annotation is not None:
            with skipped.catching():
                persons.append(_person(annotation, image, number))
    skipped.check_something_left(len(persons), str(devkit.path))
    labels = torch.zeros(len(persons), len(actions), dtype=torch.long)
    for column, action in enumerate(actions):
        given = devkit.action_labels(action, image_set)
        labels[:, column] = torch.tensor([given.get((person.image, person.number), UNKNOWN) for person in persons])
    return People(tuple(persons), labels, tuple(actions))


def _person(annotation: Annotation, image: str, number: int) -> Person:
    path, things = str(annotation.path), annotation.things
    if number > len(things):
        fail(path, f"must have the object {number} that the list of actions names", f"one with {len(things)} objects")
    thing = things[number - 1]
    if thing.name != "person":
        fail(path, f"must have a person as object {number}, as the list of actions says", f"a {thing.name}")
    if thing.fault:
        fail(path, f"must have a usable box of object {number}", f"one that {thing.fault}")
    return Person(image, number, thing.box)


def split_people(people: People, *seed: object) -> dict[str, Tensor]:
    """Indices of ``train``, ``val`` and ``test``: three parts, equal but for a few persons, drawn from a seed.

    Persons of one image stay together. Otherwise a test photograph could be known from training.
    """
    return thirds_by_group([person.image for person in people.persons], "voc action", *seed)


def crop_people(
    devkit: Devkit,
    people: People,
    path: Path,
    size: int = CROP,
    context: int = CONTEXT,
    skipped: Skipped | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[People, NDArray[np.uint8]]:
    """Crops ``(n, size, size, 3)`` of all persons, written to ``path`` and read from there as they are needed.

    Persons whose image is broken are left out, so the people that come back may be fewer.
    """
    skipped = Skipped() if skipped is None else skipped
    good: list[int] = []
    shape = (len(people), size, size, 3)
    by_image: dict[str, list[int]] = {}
    for index, person in enumerate(people.persons):
        by_image.setdefault(person.image, []).append(index)
    with whole_file(path) as part:
        crops = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint8, shape=shape)
        for done, (image, indices) in enumerate(by_image.items(), 1):
            with skipped.catching():
                pixels = devkit.image(image, devkit.annotation(image))
                for index in indices:
                    crops[len(good)] = warp(pixels, people.persons[index].box, size, context)
                    good.append(index)
            if progress is not None:
                progress(done, len(by_image))
        crops.flush()
        skipped.check_something_left(len(good), str(devkit.path))
    return people.take(torch.tensor(good)), np.load(path, mmap_mode="r")[: len(good)]
