"""One file of ``Annotations``: what is to be seen in an image, and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from directloss._checks import DirectLossError, fail
from directloss_repro.data.images import Box, clip

EDGES = ("xmin", "ymin", "xmax", "ymax")
SLACK = 1.0
"""VOC itself has boxes that go one pixel too far; such are clipped silently."""
MOST_BYTES = 5_000_000
"""The largest annotation of VOC2012 has about 30,000."""


@dataclass(frozen=True)
class Thing:
    """An annotated object. ``fault`` says why it cannot be used; it keeps its place, because lists count objects."""

    name: str
    box: Box
    difficult: bool = False
    truncated: bool = False
    actions: dict[str, bool] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Annotation:
    """The objects of one image. ``width`` and ``height`` are 0 where the file does not say them."""

    path: Path
    filename: str
    folder: str
    width: int
    height: int
    things: tuple[Thing, ...]
    notes: tuple[str, ...] = ()
    """What was wrong with single objects, in sentences that begin with the name of the file."""

    @property
    def usable(self) -> tuple[Thing, ...]:
        """The objects without a fault."""
        return tuple(thing for thing in self.things if not thing.fault)


def read_annotation(path: Path) -> Annotation:
    """Read one annotation. VOC counts pixels from 1 and includes the last; here boxes are measured at pixel edges."""
    root = _read_xml(path)
    if root.tag != "annotation":
        fail(str(path), "must be an annotation of VOC", f"XML with the root <{root.tag}>")
    size = root.find("size")
    width = int(_number(size, "width", path)) if size is not None else 0
    height = int(_number(size, "height", path)) if size is not None else 0
    found = [_thing(element, width, height, path) for element in root.findall("object")]
    if not found:
        fail(str(path), "must have at least one <object>", "an annotation without any")
    things = tuple(thing for thing, _ in found)
    notes = tuple(
        f"{path}: object {number} ({thing.name}) {note}" for number, (thing, note) in enumerate(found, 1) if note
    )
    if all(thing.fault for thing in things):
        fail(str(path), "must have at least one usable <object>", "without one", " ".join(notes))
    return Annotation(path, _text(root, "filename"), _text(root, "folder"), width, height, things, notes)


def _thing(element: Element, width: int, height: int, path: Path) -> tuple[Thing, str]:
    """One object and what there is to say about it."""
    name = _text(element, "name") or "?"
    try:
        box = _box(element.find("bndbox"), path)
    except DirectLossError as error:
        return Thing(name, (0.0, 0.0, 0.0, 0.0), fault=str(error)), f"is left out: {error}"
    inside = clip(box, width or box[2], height or box[3])
    fault = ""
    if box[0] >= box[2] or box[1] >= box[3]:
        fault = f"has a box without area, {_as_written(box)}"
    elif inside[0] >= inside[2] or inside[1] >= inside[3]:
        fault = f"has a box outside of the image of {width} x {height} pixels, {_as_written(box)}"
    thing = Thing(
        name, inside, _flag(element, "difficult"), _flag(element, "truncated"), _actions(element.find("actions")), fault
    )
    if fault:
        return thing, f"{fault}; it is left out."
    far = max(abs(given - kept) for given, kept in zip(box, inside, strict=True))
    note = f"has a box that leaves the image of {width} x {height} pixels, {_as_written(box)}; it is clipped."
    return thing, note if far > SLACK else ""


def _box(element: Element | None, path: Path) -> Box:
    if element is None:
        fail(str(path), "must have a <bndbox> in each <object>", "without one")
    # A few boxes of VOC2012 have decimals.
    left, top, right, bottom = (_number(element, edge, path) for edge in EDGES)
    return left - 1, top - 1, right, bottom


def _as_written(box: Box) -> str:
    values = (box[0] + 1, box[1] + 1, box[2], box[3])
    return ", ".join(f"{edge} {value:g}" for edge, value in zip(EDGES, values, strict=True))


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


def _flag(element: Element, tag: str) -> bool:
    return _text(element, tag) in ("1", "true", "True")


def _actions(element: Element | None) -> dict[str, bool]:
    return {} if element is None else {child.tag: (child.text or "").strip() == "1" for child in element}


# ---------------------------------------------------------------------- XML without document types


class _DocumentTypeError(Exception):
    pass


def _read_xml(path: Path) -> Element:
    """The root element. No entities: a document type declaration is refused before the parser sees what it declares."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            fail(str(path), f"must be an annotation of at most {MOST_BYTES:,} bytes", f"{size:,} bytes long")
        return _parse(path.read_bytes())
    except _DocumentTypeError:
        hint = "Annotations of VOC have none; entities are never expanded."
        fail(str(path), "must be XML without a document type declaration", "one with <!DOCTYPE ...>", hint)
    except FileNotFoundError:
        fail(str(path), "must be an XML file", "missing")
    except (OSError, expat.ExpatError, ValueError, LookupError) as error:
        fail(str(path), "must be readable XML", f"not ({error})" if path.stat().st_size else "empty")


def _parse(data: bytes) -> Element:
    # The parser itself, because that of xml.etree has no way to refuse document types.
    builder, parser = TreeBuilder(), expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _refuse
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.Parse(data, True)
    return builder.close()


def _refuse(*_declared: object) -> NoReturn:
    raise _DocumentTypeError
