"""A devkit of scenes composed from real images: objects of MNIST or Fashion-MNIST on photographs, in VOC's layout.

Each scene is drawn from its own seed, so it is the same whatever was made before it. Images and annotations are
written whole or not at all, the lists come last: a devkit without lists is unfinished and can be gone on with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import numpy as np
from numpy.typing import NDArray

from directloss._checks import fail
from directloss_repro.data.idx import read_images
from directloss_repro.data.images import Pixels, read_image, vision
from directloss_repro.data.skipping import Skipped
from directloss_repro.data.voc.annotation import read_annotation
from directloss_repro.files import whole_file
from directloss_repro.seeding import derive

DIGITS = tuple(f"digit{k}" for k in range(10))
CLOTHES = (
    "tshirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot",
)  # fmt: skip
"""Class names for the labels 0 to 9 of MNIST and of Fashion-MNIST."""
PALETTE = ((240, 240, 240), (20, 20, 20), (214, 60, 50), (60, 110, 220), (60, 170, 80), (240, 200, 60))
DESCRIPTION = "make-voc.json"
OBJECTS_FOR_TRAINING = 6 / 7
"""Of the object images; MNIST's own division into 60,000 and 10,000."""
COVERED = 0.3
"""An object that others cover by more than this share is marked as difficult."""


@dataclass(frozen=True)
class Making:
    """What to make. Half of the images are for training, half for validation; the objects in both are different."""

    images: int = 200
    classes: tuple[str, ...] = DIGITS[:4]
    names: tuple[str, ...] = DIGITS
    """Class names of the labels 0 to 9."""
    width: int = 400
    height: int = 300
    most_objects: int = 4
    smallest: int = 48
    largest: int = 140
    """Sides of the squares that objects are scaled to, in pixels."""
    seed: int = 0


@dataclass(frozen=True)
class Placed:
    """An object in a scene, with its box at pixel edges."""

    name: str
    box: tuple[int, int, int, int]
    difficult: bool = False


def make_voc(
    root: Path,
    data_root: Path,
    making: Making,
    backgrounds: Sequence[Pixels],
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write ``root/VOCdevkit/VOC2012`` from the idx files in ``data_root``; return that folder."""
    check_making(making)
    shapes, labels = read_images(data_root)
    if shapes.shape[1:] != (28, 28) or labels.max() >= len(making.names):
        found = f"of shape {shapes.shape[1:]} with labels up to {labels.max()}"
        fail(str(data_root), f"must have images of 28 x 28 pixels and labels below {len(making.names)}", found)
    devkit = root / "VOCdevkit" / "VOC2012"
    _prepare(devkit, making, resume)
    names = [f"2012_{number:06d}" for number in range(1, making.images + 1)]
    half = (making.images + 1) // 2
    cut = round(len(shapes) * OBJECTS_FOR_TRAINING)
    pools = {True: (shapes[:cut], labels[:cut]), False: (shapes[cut:], labels[cut:])}
    for number, name in enumerate(names):
        if not _is_whole(devkit, name):
            _write_scene(devkit, name, making, *pools[number < half], backgrounds)
        if progress is not None:
            progress(number + 1, len(names))
    _write_lists(devkit, {"train": names[:half], "val": names[half:], "trainval": names}, making)
    return devkit


def check_making(making: Making) -> None:
    """Numbers that make sense, and classes that exist."""
    if making.images < 2:
        fail("--images", "must be at least 2, one to train and one to validate", making.images)
    unknown = [name for name in making.classes if name not in making.names]
    if unknown or not making.classes:
        fail("--classes", f"must be among {', '.join(making.names)}", ", ".join(unknown) or "empty")
    if not 8 <= making.smallest <= making.largest <= min(making.width, making.height):
        rule = "must be from 8 to the height of the image, the smallest first"
        fail("the sizes of objects", rule, f"{making.smallest} to {making.largest} in {making.width} x {making.height}")
    if making.most_objects < 1:
        fail("--objects", "must be at least 1", making.most_objects)


def sample_backgrounds() -> list[Pixels]:
    """The two photographs that come with scikit-learn."""
    from sklearn.datasets import load_sample_images

    return [np.asarray(image, np.uint8) for image in load_sample_images().images]


def folder_backgrounds(folder: Path, skipped: Skipped) -> list[Pixels]:
    """All JPEG and PNG files of a folder; broken ones are left out."""
    if not folder.is_dir():
        fail("--backgrounds", "must be a folder with photographs", folder)
    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in (".jpg", ".jpeg", ".png"):
            with skipped.catching():
                found.append(read_image(path))
    skipped.check_something_left(len(found), str(folder))
    return found


def compose(
    making: Making,
    name: str,
    shapes: NDArray[np.uint8],
    labels: NDArray[np.uint8],
    backgrounds: Sequence[Pixels],
) -> tuple[Pixels, list[Placed]]:
    """One scene: a piece of a photograph and one to ``most_objects`` objects, later ones before earlier ones."""
    draw = np.random.default_rng(derive("make-voc", making.seed, name))
    scene = _background(draw, making, backgrounds)
    wanted = [making.names.index(of) for of in making.classes]
    owner = np.full(scene.shape[:2], -1)
    placed: list[Placed] = []
    sizes: list[int] = []
    for _ in range(int(draw.integers(1, making.most_objects + 1))):
        label = int(draw.choice(wanted))
        choices = np.flatnonzero(labels == label)
        if len(choices) == 0:
            fail("the idx files", f"must have images of {making.names[label]!r}", "without one")
        shape = shapes[draw.choice(choices)]
        side = round(float(np.exp(draw.uniform(np.log(making.smallest), np.log(making.largest)))))
        left, top = (int(draw.integers(0, most - side + 1)) for most in (making.width, making.height))
        box = _paste(scene, owner, len(placed), shape, side, left, top, PALETTE[int(draw.integers(len(PALETTE)))])
        placed.append(Placed(making.names[label], box))
        sizes.append(int((owner == len(placed) - 1).sum()))
    seen = [int((owner == number).sum()) for number in range(len(placed))]
    marked = [
        Placed(thing.name, thing.box, now < (1 - COVERED) * first)
        for thing, now, first in zip(placed, seen, sizes, strict=True)
    ]
    return scene, marked


def _background(draw: np.random.Generator, making: Making, backgrounds: Sequence[Pixels]) -> Pixels:
    """A random piece of a random photograph, scaled to the size of a scene, mirrored half of the time."""
    photo = backgrounds[int(draw.integers(len(backgrounds)))]
    height, width = photo.shape[:2]
    largest = min(width / making.width, height / making.height)
    scale = largest * draw.uniform(0.5, 1.0)
    w, h = max(1, int(making.width * scale)), max(1, int(making.height * scale))
    x, y = int(draw.integers(0, width - w + 1)), int(draw.integers(0, height - h + 1))
    cv2 = vision("cv2")
    piece: Pixels = cv2.resize(photo[y : y + h, x : x + w], (making.width, making.height))
    return np.ascontiguousarray(piece[:, ::-1] if draw.random() < 0.5 else piece)


def _paste(
    scene: Pixels,
    owner: NDArray[np.int64],
    number: int,
    shape: NDArray[np.uint8],
    side: int,
    left: int,
    top: int,
    colour: tuple[int, int, int],
) -> tuple[int, int, int, int]:
    """Paint one object in its colour, as dense as its grey values; return the box around what is to be seen."""
    cv2 = vision("cv2")
    dense = cv2.resize(shape, (side, side), interpolation=cv2.INTER_LINEAR).astype(np.float32) / 255
    part = scene[top : top + side, left : left + side]
    # Grey values of clothes carry their folds: keep them as shades, but let nothing of the background through.
    cover = np.clip(3 * dense, 0, 1)[..., None]
    shade = (0.55 + 0.45 * dense)[..., None] * np.array(colour, np.float32)
    part[:] = np.round(cover * shade + (1 - cover) * part).astype(np.uint8)
    seen = dense > 0.2
    owner[top : top + side, left : left + side][seen] = number
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    if len(rows) == 0:
        return left, top, left + side, top + side
    return left + int(columns[0]), top + int(rows[0]), left + int(columns[-1]) + 1, top + int(rows[-1]) + 1


def _prepare(devkit: Path, making: Making, resume: bool) -> None:
    """New folders, or those of an unfinished devkit with the same settings."""
    settings = json.loads(json.dumps(asdict(making)))
    if devkit.exists() and any(devkit.iterdir()):
        description = devkit / DESCRIPTION
        known = json.loads(description.read_text(encoding="utf-8")) if description.is_file() else None
        if not resume:
            hint = "Add --resume to finish it, or choose another folder." if known else "Choose another folder."
            fail("--out", "must not hold a devkit yet", devkit, hint)
        if known != settings:
            hint = "Use the settings of its make-voc.json, or choose another folder."
            fail("--resume", "needs a devkit that was begun with the same settings", devkit, hint)
    for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (devkit / folder).mkdir(parents=True, exist_ok=True)
    _write(devkit / DESCRIPTION, (json.dumps(settings, indent=2) + "\n").encode())


def _is_whole(devkit: Path, name: str) -> bool:
    return (devkit / "Annotations" / f"{name}.xml").is_file() and (devkit / "JPEGImages" / f"{name}.jpg").is_file()


def _write_scene(
    devkit: Path,
    name: str,
    making: Making,
    shapes: NDArray[np.uint8],
    labels: NDArray[np.uint8],
    backgrounds: Sequence[Pixels],
) -> None:
    pixels, placed = compose(making, name, shapes, labels, backgrounds)
    image = vision("PIL.Image").fromarray(pixels)
    target = devkit / "JPEGImages" / f"{name}.jpg"
    with whole_file(target) as part:
        image.save(part, format="JPEG", quality=92)
    _write(devkit / "Annotations" / f"{name}.xml", annotation_xml(name, making, placed))


def annotation_xml(name: str, making: Making, placed: Sequence[Placed]) -> bytes:
    """An annotation as VOC writes it: pixels counted from 1, the last one included."""
    root = Element("annotation")
    SubElement(root, "folder").text = "VOC2012"
    SubElement(root, "filename").text = f"{name}.jpg"
    source = SubElement(root, "source")
    SubElement(source, "database").text = "composed by directloss data make-voc"
    size = SubElement(root, "size")
    for tag, value in (("width", making.width), ("height", making.height), ("depth", 3)):
        SubElement(size, tag).text = str(value)
    SubElement(root, "segmented").text = "0"
    for thing in placed:
        entry = SubElement(root, "object")
        for tag, text in (("name", thing.name), ("pose", "Unspecified"), ("truncated", "0")):
            SubElement(entry, tag).text = text
        SubElement(entry, "difficult").text = str(int(thing.difficult))
        box = SubElement(entry, "bndbox")
        left, top, right, bottom = thing.box
        for tag, value in (("xmin", left + 1), ("ymin", top + 1), ("xmax", right), ("ymax", bottom)):
            SubElement(box, tag).text = str(value)
    indent(root, "\t")
    written: bytes = tostring(root, encoding="utf-8")
    return written + b"\n"


def _write_lists(devkit: Path, sets: dict[str, list[str]], making: Making) -> None:
    found = {name: read_annotation(devkit / "Annotations" / f"{name}.xml").things for name in sets["trainval"]}
    main = devkit / "ImageSets" / "Main"
    for of in making.classes:
        for part, names in sets.items():
            lines = []
            for name in names:
                marks = [thing.difficult for thing in found[name] if thing.name == of]
                lines.append(f"{name} {-1 if not marks else 0 if all(marks) else 1:2d}\n")
            _write(main / f"{of}_{part}.txt", "".join(lines).encode())
    for part, names in sets.items():
        _write(main / f"{part}.txt", "".join(f"{name}\n" for name in names).encode())


def _write(path: Path, data: bytes) -> None:
    with whole_file(path) as part:
        part.write_bytes(data)
