"""The action task: persons in still images, each with ten labels (Song et al. 2016, Sec. 4.2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from directloss._checks import fail
from directloss_repro.data.images import Box
from directloss_repro.data.skipping import Skipped
from directloss_repro.data.voc.annotation import Annotation
from directloss_repro.data.voc.devkit import Devkit

ACTIONS = (
    "jumping", "phoning", "playinginstrument", "reading", "ridingbike", "ridinghorse", "running", "takingphoto",
    "usingcomputer", "walking",
)  # fmt: skip
"""The ten classes, in the order of the papers' tables. "other" is a label of the annotations, but not a class."""

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
    """Persons, ordered by image, and their labels ``(n, actions)``: 1, -1, or 0 where it is not known."""

    persons: tuple[Person, ...]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.persons)


def read_people(devkit: Devkit, image_set: str = "trainval", skipped: Skipped | None = None) -> People:
    """The persons that the lists of the ten actions name; those with unusable files are left out.

    Annotations without ``<actions>`` are left out as well: the lists count the objects of the original files, and a
    file written anew may count them differently.
    """
    skipped = Skipped() if skipped is None else skipped
    given = [devkit.action_labels(action, image_set) for action in ACTIONS]
    named = sorted({person for labels in given for person in labels})
    annotations: dict[str, Annotation | None] = {}
    silent: list[Annotation] = []
    persons = []
    for image, number in named:
        if image not in annotations:
            annotations[image] = None
            with skipped.catching():
                annotations[image] = devkit.annotation(image, skipped)
        annotation = annotations[image]
        if annotation is None:
            continue
        if not any(thing.actions for thing in annotation.things):
            silent.append(annotation)
            continue
        with skipped.catching():
            persons.append(_person(annotation, image, number))
    if silent:
        skipped.reasons.append(
            f"{silent[0].path} and others have no <actions>, as the original annotations have: {len(silent):,} of "
            f"{len(named):,} persons are left out."
        )
    skipped.check_something_left(len(persons), str(devkit.path))
    rows = [[labels.get((person.image, person.number), UNKNOWN) for labels in given] for person in persons]
    return People(tuple(persons), torch.tensor(rows))


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
