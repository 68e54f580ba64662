"""Where in the metric's code something happens."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch

_TORCH = str(Path(torch.__file__).parent) + os.sep
_HERE = str(Path(__file__).parent) + os.sep
DEPTH = 4
"""How many frames tell two uses of one helper function apart."""


class Location(NamedTuple):
    """A place in the metric's code: the innermost line outside torch, and how it was reached."""

    file: str
    line: int
    path: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "the metric itself"


def here() -> Location:
    """The line of the metric's code that is running now."""
    frame: FrameType | None = sys._getframe(1)
    found: list[tuple[str, int, int]] = []
    entered = False
    while frame is not None and len(found) < DEPTH:
        name = frame.f_code.co_filename
        if name.startswith(_HERE):
            # The frame that called the metric: what stands above it is not the metric's.
            if entered and frame.f_code.co_name == "call_metric":
                break
        elif not name.startswith((_TORCH, "<")):
            found.append((name, frame.f_lineno, frame.f_lasti))
        entered = True
        frame = frame.f_back
    if not found:
        return Location("", 0, ())
    return Location(found[0][0], found[0][1], tuple((name, at) for name, _, at in found))
