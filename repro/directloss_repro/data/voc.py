"""PASCAL VOC 2012: the folders, lists and annotations of the devkit, as the challenge published them.

VOC2012/Annotations/2008_000008.xml            objects of an image
VOC2012/JPEGImages/2008_000008.jpg             the image
VOC2012/ImageSets/Main/train.txt               names of images, one per line
VOC2012/ImageSets/Main/horse_train.txt         name and 1 (there), -1 (not there) or 0 (only difficult ones)
VOC2012/ImageSets/Action/jumping_trainval.txt  name, number of the person among the objects, from 1, and 1, -1 or 0
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

import defusedxml.ElementTree
import torch
from defusedxml import DefusedXmlException
from torch import Tensor

from directloss._checks import DirectLossError, fail
from directloss_repro.data.photographs import Box, Pixels, clip, read_image

OBJECTS = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
"""The twenty classes of the detection task, in the order of the papers' tables."""
ACTIONS = (
    "jumping", "phoning", "playinginstrument", "reading", "ridingbike", "ridinghorse", "running", "takingphoto",
    "usingcomputer", "walking",
)  # fmt: skip
"""The ten classes of the action task, in the order of the papers' tables. "other" is a label, but not a class."""
UNKNOWN = 0
"""The label of persons whom the lists leave open for an action; they do not count for it."""

FOLDERS = ("Annotations", "ImageSets", "JPEGImages")
NAME, LABEL = r"[\w-]+(?:\.[\w-]+)*", r"(?:0|[-+]?1)"
LINES = {
    "a name": re.compile(NAME),
    "a name and 1, 0 or -1": re.compile(rf"{NAME}\s+{LABEL}"),
    "a name, the number of an object, from 1, and 1, 0 or -1": re.compile(rf"{NAME}\s+[1-9][0-9]*\s+{LABEL}"),
}
"""What the lines of the lists hold, in words and as a pattern."""
EDGES = ("xmin", "ymin", "xmax", "ymax")
SLACK = 1.0
"""VOC itself has boxes that extend one pixel too far; these are clipped without a note."""


@dataclass
class Skipped:
    """What could not be used, and why: one bad file must not stop the work on the others.

    Example:
        >>> skipped = Skipped()
        >>> for name in ["a.jpg", "b.jpg"]:
        ...     with skipped.catching():
        ...         if name == "b.jpg":
        ...             fail(name, "must be an image", "a text file")
        >>> skipped.reasons
        ['b.jpg must be an image, but it is a text file.']
    """

    reasons: list[str] = field(default_factory=list)
    """Why something was left out: one sentence each, beginning with the file name."""
    notes: list[str] = field(default_factory=list)
    """What was repaired, such as a box that was clipped to its image."""

    @contextmanager
    def catching(self, what: str = "") -> Iterator[None]:
        """Work on one file. If it cannot be used, the reason is kept, after ``what``, and the block ends."""
        try:
            yield
        except DirectLossError as error:
            self.reasons.append(f"{what}{error}")

    def check_something_left(self, left: int, what: str) -> None:
        """Raise if nothing is left, with the first reasons in the message."""
        if left == 0:
            reasons = " ".join(self.reasons[:3]) or "There were none to begin with."
            fail(what, "must have at least one usable file", f"without any ({len(self.reasons)} left out)", reasons)


# ---------------------------------------------------------------------- annotations


@dataclass(frozen=True)
class Thing:
    """An annotated object. One with a ``fault`` cannot be used; it keeps its place, because lists count objects."""

    name: str
    box: Box
    difficult: bool = False
    actions: dict[str, bool] = field(default_factory=dict)
    fault: str = ""
    repaired: str = ""


@dataclass(frozen=True)
class Annotation:
    """The objects of one image. ``width`` and ``height`` are 0 if the file does not give them."""

    path: Path
    width: int
    height: int
    things: tuple[Thing, ...]

    @property
    def usable(self) -> tuple[Thing, ...]:
        """The objects without a fault."""
        return tuple(thing for thing in self.things if not thing.fault)

    @property
    def notes(self) -> list[str]:
        """What was wrong with single objects."""
        told = ((number, thing, thing.fault or thing.repaired) for number, thing in enumerate(self.things, 1))
        return [f"{self.path}: object {number} ({thing.name}) {what}" for number, thing, what in told if what]


def read_annotation(path: Path) -> Annotation:
    """Read one annotation. VOC counts pixels from 1, inclusive; here, boxes are measured at pixel edges."""
    root = _read_xml(path)
    if root.tag != "annotation":
        fail(str(path), "must be an annotation of VOC", f"XML with the root <{root.tag}>")
    size = root.find("size")
    width, height = (0 if size is None else int(_number(size, tag, path)) for tag in ("width", "height"))
    found = Annotation(path, width, height, tuple(_thing(one, width, height, path) for one in root.findall("object")))
    if not found.usable:
        fail(str(path), "must have at least one usable <object>", "without one", " ".join(found.notes))
    return found


def _read_xml(path: Path) -> Element:
    """The root element. Annotations of VOC have no document type, and entities are never expanded."""
    try:
        root: Element = defusedxml.ElementTree.parse(path, forbid_dtd=True).getroot()
    except FileNotFoundError:
        fail(str(path), "must be an XML file", "missing")
    except DefusedXmlException:
        fail(str(path), "must be XML without a document type declaration", "one with <!DOCTYPE ...>")
    except (OSError, ParseError, ValueError, LookupError) as error:
        fail(str(path), "must be readable XML", f"not ({error})")
    return root


def _thing(element: Element, width: int, height: int, path: Path) -> Thing:
    name = _text(element, "name") or "?"
    try:
        box = _box(element.find("bndbox"), path)
    except DirectLossError as error:
        return Thing(name, (0.0, 0.0, 0.0, 0.0), fault=f"is left out: {error}")
    inside = clip(box, width or box[2], height or box[3])
    edges = zip(EDGES, (box[0] + 1, box[1] + 1, *box[2:]), strict=True)
    what = f"of {width} x {height} pixels ({', '.join(f'{edge} {value:g}' for edge, value in edges)})"
    fault = repaired = ""
    if box[0] >= box[2] or box[1] >= box[3]:
        fault = f"is left out: its box has no area in the image {what}."
    elif inside[0] >= inside[2] or inside[1] >= inside[3]:
        fault = f"is left out: its box lies outside the image {what}."
    elif max(abs(given - kept) for given, kept in zip(box, inside, strict=True)) > SLACK:
        repaired = f"is clipped: its box extends beyond the image {what}."
    actions = {} if (marks := element.find("actions")) is None else {one.tag: one.text == "1" for one in marks}
    return Thing(name, inside, _text(element, "difficult") == "1", actions, fault, repaired)


def _box(element: Element | None, path: Path) -> Box:
    if element is None:
        fail(str(path), "must have a <bndbox> in each <object>", "without one")
    # A few boxes of VOC2012 have decimals.
    left, top, right, bottom = (_number(element, edge, path) for edge in EDGES)
    return left - 1, top - 1, right, bottom


def _number(element: Element, tag: str, path: Path) -> float:
    text = _text(element, tag)
    try:
        value = float(text)
    except ValueError:
        fail(str(path), f"must have a number in <{tag}>", repr(text))
    if not abs(value) < 1e9:
        fail(str(path), f"must have a sensible number in <{tag}>", text)
    return value


def _text(element: Element, tag: str) -> str:
    return (element.findtext(tag) or "").strip()


# ---------------------------------------------------------------------- the devkit


@dataclass(frozen=True)
class Devkit:
    """A folder such as ``VOCdevkit/VOC2012``; see `find_devkit`."""

    path: Path

    def image_path(self, name: str) -> Path:
        """The file of an image."""
        return self.path / "JPEGImages" / f"{name}.jpg"

    def annotation_path(self, name: str) -> Path:
        """The file of its annotation."""
        return self.path / "Annotations" / f"{name}.xml"

    def list_path(self, kind: str, name: str) -> Path:
        """The file of a list of ``ImageSets``."""
        return self.path / "ImageSets" / kind / f"{name}.txt"

    def annotation(self, name: str) -> Annotation:
        """The objects of an image."""
        return read_annotation(self.annotation_path(name))

    def image(self, name: str, annotation: Annotation | None = None) -> Pixels:
        """The pixels of an image. With its annotation, the sizes of both must agree, or the boxes mean nothing."""
        pixels = read_image(self.image_path(name))
        height, width = pixels.shape[:2]
        if annotation is not None and annotation.width and (annotation.width, annotation.height) != (width, height):
            rule = f"must have the {annotation.width} x {annotation.height} pixels that its annotation says"
            fail(str(self.image_path(name)), rule, f"{width} x {height}")
        return pixels

    def image_set(self, name: str) -> list[str]:
        """The images of a list of ``Main`` such as ``train``, in its order and each once."""
        return list(dict.fromkeys(row[0] for row in self._rows("Main", name, "a name")))

    def image_labels(self, of: str, name: str) -> dict[str, int]:
        """The label 1, 0 or -1 of each image for an object class, from ``Main``."""
        return {row[0]: int(row[1]) for row in self._rows("Main", f"{of}_{name}", "a name and 1, 0 or -1")}

    def action_labels(self, action: str, name: str) -> dict[tuple[str, int], int]:
        """The label 1, 0 or -1 of each person (image, number of the object in it) for an action class."""
        rows = self._rows("Action", f"{action}_{name}", "a name, the number of an object, from 1, and 1, 0 or -1")
        return {(row[0], int(row[1])): int(row[2]) for row in rows}

    def _rows(self, kind: str, name: str, what: str) -> list[list[str]]:
        path = self.list_path(kind, name)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            fail(str(path), "must be a list of the devkit", "missing")
        except (OSError, UnicodeDecodeError) as error:
            fail(str(path), "must be a readable list", f"not ({error})")
        for number, line in enumerate(lines, 1):
            if line.strip() and not LINES[what].fullmatch(line.strip()):
                fail(str(path), f"must have {what} in each line", f"{line!r} in line {number}")
        rows = [line.split() for line in lines if line.strip()]
        if not rows:
            fail(str(path), "must name at least one image", "empty")
        return rows


def find_devkit(root: Path) -> Devkit:
    """The devkit in ``root``: the folder ``VOC2012`` itself, or ``VOCdevkit``, or the folder that holds this one."""
    if not root.is_dir():
        fail(str(root), "must be the folder of a VOC devkit", "missing" if not root.exists() else "a file")
    if re.fullmatch(r"VOC\d+", root.name) and root.name != "VOC2012":
        fail(str(root), "must hold VOC2012", f"the devkit {root.name}", "Download the devkit of 2012.")
    places = (root, root / "VOC2012", root / "VOCdevkit" / "VOC2012")
    missing = {place: [folder for folder in FOLDERS if not (place / folder).is_dir()] for place in places}
    best = min(places, key=lambda place: len(missing[place]))
    if len(missing[best]) == len(FOLDERS):
        fail(str(root), "must be VOCdevkit/VOC2012 or a folder that holds it", f"without {', '.join(FOLDERS)}")
    if missing[best]:
        fail(str(best), f"must have the folders {', '.join(FOLDERS)}", f"without {' and '.join(missing[best])}")
    return Devkit(best)


# ---------------------------------------------------------------------- persons and their actions


@dataclass(frozen=True)
class PersonBox:
    """One box of one image."""

    image: str
    number: int
    box: Box


def read_people(devkit: Devkit, skipped: Skipped) -> tuple[list[PersonBox], Tensor]:
    """The persons that the lists of the ten actions name, by image, without those with unusable files.

    Also returns their labels ``(n, actions)``: 1, -1, or 0 if unknown.

    Annotations without ``<actions>`` are left out as well: the lists count the objects of the original files, and a
    rewritten file may count them differently.
    """
    given = [devkit.action_labels(action, "trainval") for action in ACTIONS]
    named = sorted({person for labels in given for person in labels})
    annotations: dict[str, Annotation] = {}
    for image in dict.fromkeys(image for image, _ in named):
        with skipped.catching():
            annotations[image] = devkit.annotation(image)
            skipped.notes += annotations[image].notes
    silent = {image for image, found in annotations.items() if not any(thing.actions for thing in found.things)}
    persons = []
    for image, number in named:
        if image in annotations and image not in silent:
            with skipped.catching():
                persons.append(_person(annotations[image], image, number))
    if silent:
        lost = sum(image in silent for image, _ in named)
        skipped.reasons.append(
            f"{annotations[min(silent)].path} and others have no <actions>, as the original annotations have: "
            f"{lost:,} of {len(named):,} persons are left out."
        )
    skipped.check_something_left(len(persons), str(devkit.path))
    rows = [[labels.get((person.image, person.number), UNKNOWN) for labels in given] for person in persons]
    return persons, torch.tensor(rows)


def _person(annotation: Annotation, image: str, number: int) -> PersonBox:
    path, things = str(annotation.path), annotation.things
    if number > len(things):
        fail(path, f"must have the object {number} that the list of actions names", f"one with {len(things)} objects")
    thing = things[number - 1]
    if thing.name != "person":
        fail(path, f"must have a person as object {number}, as the list of actions says", f"a {thing.name}")
    if thing.fault:
        fail(path, f"must have a usable box of object {number}", f"one that {thing.fault}")
    return PersonBox(image, number, thing.box)
