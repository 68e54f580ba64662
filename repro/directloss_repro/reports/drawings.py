"""Pictures that a run has left in its folder: ``drawings/index.json`` lists them, the page shows them.

The list has one object for each picture: ``file`` (a JPEG in the same folder), ``image``, ``method`` and ``noise``.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from directloss._checks import fail
from directloss_repro.reports.wording import noise_text

FOLDER = "drawings"
LARGEST = 1_000_000
"""Bytes of one picture; a page with larger ones would be slow to open."""


@dataclass(frozen=True)
class Drawing:
    """One picture, whole, so that the page needs no other file."""

    image: str
    caption: str
    alt: str
    source: str


def read_drawings(folder: Path) -> dict[str, list[Drawing]]:
    """The pictures of a run by the image that they were drawn on; empty without any."""
    path = folder / FOLDER / "index.json"
    if not path.is_file():
        return {}
    try:
        listed: Any = json.loads(path.read_text(encoding="utf-8"))
        rows = [(str(row["file"]), str(row["image"]), str(row["method"]), float(row["noise"])) for row in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(str(path), "must be a list of pictures", f"not ({error!r:.80})", "Delete it to leave them out.")
    found: dict[str, list[Drawing]] = {}
    for file, image, method, noise in rows:
        caption = f"{method}, {noise_text(noise)} of the labels flipped" if noise else method
        alt = f"Image {image} with the detections of {method}"
        found.setdefault(image, []).append(Drawing(image, caption, alt, _inline(path.parent, file)))
    return found


def _inline(folder: Path, name: str) -> str:
    if Path(name).name != name or not name.endswith(".jpg"):
        fail(str(folder / "index.json"), "must name JPEG files of its own folder", repr(name))
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        fail(str(folder / name), "must be a picture", f"not readable ({error.strerror})")
    if len(data) > LARGEST or not data.startswith(b"\xff\xd8"):
        fail(str(folder / name), f"must be a JPEG of at most {LARGEST:,} bytes", f"another file of {len(data):,} bytes")
    return "data:image/jpeg;base64," + base64.b64encode(data).decode()
