"""The folders of a devkit and the lists in ``ImageSets``.

VOC2012/Annotations/2008_000008.xml            objects of an image
VOC2012/JPEGImages/2008_000008.jpg             the image
VOC2012/ImageSets/Main/train.txt               names of images, one per line
VOC2012/ImageSets/Main/horse_train.txt         name and 1 (there), -1 (not there) or 0 (only difficult ones)
VOC2012/ImageSets/Action/trainval.txt          name and number of the person among the objects, from 1
VOC2012/ImageSets/Action/jumping_trainval.txt  name, number of the person, and 1, -1 or 0
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from directloss._checks import DirectLossError, fail
from directloss_repro.data.images import Pixels, read_image
from directloss_repro.data.skipping import Skipped
from directloss_repro.data.voc.annotation import Annotation, read_annotation

OBJECTS = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
"""The twenty classes of the detection task, in the order of the papers' tables."""

FOLDERS = ("Annotations", "ImageSets", "JPEGImages")
NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")


@dataclass(frozen=True)
class Devkit:
    """A folder such as ``VOCdevkit/VOC2012``; see `find_devkit`."""

    path: Path

    def image_path(self, name: str) -> Path:
        """Where the image lies."""
        return self.path / "JPEGImages" / f"{name}.jpg"

    def annotation_path(self, name: str) -> Path:
        """Where its annotation lies."""
        return self.path / "Annotations" / f"{name}.xml"

    def annotation(self, name: str, skipped: Skipped | None = None) -> Annotation:
        """The objects of an image; what had to be repaired goes to ``skipped``."""
        found = read_annotation(self.annotation_path(name))
        for note in found.notes if skipped is not None else ():
            skipped.note(note)  # type: ignore[union-attr]
        return found

    def image(self, name: str, annotation: Annotation | None = None) -> Pixels:
        """The pixels of an image. With its annotation, the sizes of both must agree, or the boxes mean nothing."""
        pixels = read_image(self.image_path(name))
        height, width = pixels.shape[:2]
        if annotation is not None and annotation.width and (annotation.width, annotation.height) != (width, height):
            rule = f"must have the {annotation.width} x {annotation.height} pixels that its annotation says"
            fail(str(self.image_path(name)), rule, f"{width} x {height}")
        return pixels

    def image_set(self, name: str, kind: str = "Main") -> list[str]:
        """The images of a list such as ``train``, in its order and each once."""
        rows = self._rows(kind, name, (1, 2, 3))
        return list(dict.fromkeys(row[0] for row in rows))

    def image_labels(self, of: str, name: str) -> dict[str, int]:
        """1, 0 or -1 of each image for an object class, from ``Main``."""
        return {row[0]: int(row[1]) for row in self._rows("Main", f"{of}_{name}", (2,), labels=True)}

    def persons(self, name: str) -> list[tuple[str, int]]:
        """Image and number (from 1) of each person of a list of ``Action``."""
        return [(row[0], self._index(row, name)) for row in self._rows("Action", name, (2, 3))]

    def action_labels(self, action: str, name: str) -> dict[tuple[str, int], int]:
        """1, 0 or -1 of each person for an action class."""
        rows = self._rows("Action", f"{action}_{name}", (3,), labels=True)
        return {(row[0], self._index(row, f"{action}_{name}")): int(row[2]) for row in rows}

    def list_path(self, kind: str, name: str) -> Path:
        """Where a list of ``ImageSets`` lies."""
        return self.path / "ImageSets" / kind / f"{name}.txt"

    def _rows(self, kind: str, name: str, widths: tuple[int, ...], labels: bool = False) -> list[list[str]]:
        path = self.list_path(kind, name)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            there = sorted(found.stem for found in path.parent.glob("*.txt")) if path.parent.is_dir() else []
            hint = f"The folder has {', '.join(there[:6])} ..." if there else f"{path.parent} has no lists at all."
            fail(str(path), "must be a list of the devkit", "missing", hint)
        except (OSError, UnicodeDecodeError) as error:
            fail(str(path), "must be a readable list", f"not ({error})")
        rows = [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip()]
        for number, row in rows:
            bad_label = labels and row[-1] not in ("1", "0", "-1", "+1")
            if len(row) not in widths or bad_label or not NAME.fullmatch(row[0]):
                words = {(1, 2, 3): "a name", (2,): "a name and 1, 0 or -1", (2, 3): "a name and a number of an object"}
                rule = f"must have {words.get(widths, 'a name, a number of an object, and 1, 0 or -1')} in each line"
                fail(str(path), rule, f"{' '.join(row)!r} in line {number}")
        if not rows:
            fail(str(path), "must name at least one image", "empty")
        return [row for _, row in rows]

    def _index(self, row: list[str], name: str) -> int:
        if not row[1].isascii() or not row[1].isdigit() or row[1] == "0":
            path = self.list_path("Action", name)
            fail(str(path), "must have the number of an object, from 1, as second word", f"{' '.join(row)!r}")
        return int(row[1])


def find_devkit(root: Path, year: int | None = 2012) -> Devkit:
    """The devkit in ``root``: the folder ``VOC2012`` itself, or ``VOCdevkit``, or the folder that holds this one."""
    root = Path(root)
    if not root.is_dir():
        fail(str(root), "must be the folder of a VOC devkit", "missing" if not root.exists() else "a file")
    if all((root / folder).is_dir() for folder in FOLDERS):
        _check_year(root, year)
        return Devkit(root)
    here = sorted([*root.glob("VOC[0-9]*"), *root.glob("VOCdevkit/VOC[0-9]*")])
    complete = [path for path in here if all((path / folder).is_dir() for folder in FOLDERS)]
    wanted = [path for path in complete if year is None or path.name == f"VOC{year}"]
    if not wanted:
        _refuse(root, here, complete, year)
    return Devkit(wanted[-1])


def _refuse(root: Path, here: list[Path], complete: list[Path], year: int | None) -> NoReturn:
    """Say what is there instead."""
    if complete:
        others = ", ".join(path.name for path in complete)
        fail(str(root), f"must hold VOC{year}", f"a devkit with {others} only", f"Download the devkit of {year}.")
    if here:
        gone = [folder for folder in FOLDERS if not (here[-1] / folder).is_dir()]
        fail(str(here[-1]), f"must have the folders {', '.join(FOLDERS)}", f"without {' and '.join(gone)}")
    wanted = f"VOCdevkit/VOC{year or 'YEAR'}"
    fail(str(root), f"must be {wanted} or a folder that holds it", f"without {', '.join(FOLDERS)}")


def _check_year(path: Path, year: int | None) -> None:
    """By the name of the folder; if that says nothing, by the first annotation."""
    found = re.fullmatch(r"VOC(\d{4})", path.name)
    said = found[0] if found else None
    if said is None:
        said = next(_folders_said(path), None)
    if year is not None and said is not None and re.fullmatch(r"VOC\d{4}", said) and said != f"VOC{year}":
        fail(str(path), f"must hold VOC{year}", f"the devkit {said}", f"Download the devkit of {year}.")


def _folders_said(path: Path) -> Iterator[str]:
    """What the readable ones among the first annotations say."""
    for file in sorted((path / "Annotations").glob("*.xml"))[:20]:
        with suppress(DirectLossError):
            yield read_annotation(file).folder
