"""The folders of a devkit and the lists in ``ImageSets``.

VOC2012/Annotations/2008_000008.xml            objects of an image
VOC2012/JPEGImages/2008_000008.jpg             the image
VOC2012/ImageSets/Main/train.txt               names of images, one per line
VOC2012/ImageSets/Main/horse_train.txt         name and 1 (there), -1 (not there) or 0 (only difficult ones)
VOC2012/ImageSets/Action/trainval.txt          names of images, one per line
VOC2012/ImageSets/Action/jumping_trainval.txt  name, number of the person among the objects, from 1, and 1, -1 or 0
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
NAME, LABEL = r"[\w-]+(?:\.[\w-]+)*", r"(?:0|[-+]?1)"
LINES = {
    "a name": re.compile(NAME),
    "a name and 1, 0 or -1": re.compile(rf"{NAME}\s+{LABEL}"),
    "a name, the number of an object, from 1, and 1, 0 or -1": re.compile(rf"{NAME}\s+[1-9][0-9]*\s+{LABEL}"),
}
"""What the lines of the lists hold, in words and as a pattern."""


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
        if skipped is not None:
            skipped.notes += found.notes
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
        return list(dict.fromkeys(row[0] for row in self._rows(kind, name, "a name")))

    def image_labels(self, of: str, name: str) -> dict[str, int]:
        """1, 0 or -1 of each image for an object class, from ``Main``."""
        return {row[0]: int(row[1]) for row in self._rows("Main", f"{of}_{name}", "a name and 1, 0 or -1")}

    def action_labels(self, action: str, name: str) -> dict[tuple[str, int], int]:
        """1, 0 or -1 of each person, an image and the number of an object in it, for an action class."""
        rows = self._rows("Action", f"{action}_{name}", "a name, the number of an object, from 1, and 1, 0 or -1")
        return {(row[0], int(row[1])): int(row[2]) for row in rows}

    def list_path(self, kind: str, name: str) -> Path:
        """Where a list of ``ImageSets`` lies."""
        return self.path / "ImageSets" / kind / f"{name}.txt"

    def _rows(self, kind: str, name: str, what: str) -> list[list[str]]:
        path = self.list_path(kind, name)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            there = sorted(found.stem for found in path.parent.glob("*.txt")) if path.parent.is_dir() else []
            hint = f"The folder has {', '.join(there[:6])} ..." if there else f"{path.parent} has no lists at all."
            fail(str(path), "must be a list of the devkit", "missing", hint)
        except (OSError, UnicodeDecodeError) as error:
            fail(str(path), "must be a readable list", f"not ({error})")
        for number, line in enumerate(lines, 1):
            if line.strip() and not LINES[what].fullmatch(line.strip()):
                fail(str(path), f"must have {what} in each line", f"{line!r} in line {number}")
        rows = [line.split() for line in lines if line.strip()]
        if not rows:
            fail(str(path), "must name at least one image", "empty")
        return rows


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
