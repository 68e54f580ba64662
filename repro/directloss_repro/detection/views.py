"""What a network sees of the boxes of an image: warped crops, or features of them that are computed once and kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from directloss_repro.data.images import CONTEXT, CROP, Box, Pixels, normalise, warp
from directloss_repro.detection.boxes import Boxes
from directloss_repro.files import whole_file

Embed = Callable[[Tensor], Tensor]
"""Normalised crops ``(b, 3, size, size)`` to features ``(b, d)``."""
AT_ONCE = 64


@dataclass(frozen=True)
class View:
    """Crops of ``size`` pixels with ``context``; with ``embed``, a frozen network, its features instead.

    ``name`` names the features in the cache: give another name to another network.
    """

    size: int = CROP
    context: int = CONTEXT
    embed: Embed | None = None
    name: str = "crops"

    def rows(self, read: Callable[[], Pixels], boxes: Boxes, path: Path | None = None) -> NDArray[Any]:
        """One row for each box: bytes of crops, or half-precision features, kept in the file ``path`` if given.

        ``read`` gives the image; it is not asked for one whose features are stored.
        """
        if path is None or self.embed is None:
            return self._compute(read(), boxes)
        with suppress(OSError, ValueError, EOFError):
            stored: NDArray[Any] = np.load(path, mmap_mode="r")
            if len(stored) == len(boxes):
                return stored
        values = self._compute(read(), boxes)
        _write(path, values)
        return values

    def numbers(self, rows: NDArray[Any]) -> Tensor:
        """What the model gets: normalised crops ``(b, 3, size, size)`` or features ``(b, d)``."""
        values = torch.from_numpy(np.array(rows))
        return normalise(values) if self.embed is None else values.float()

    def _compute(self, pixels: Pixels, boxes: Boxes) -> NDArray[Any]:
        crops = np.stack([warp(pixels, _box(box), self.size, self.context) for box in boxes])
        if self.embed is None:
            return crops
        parts = []
        with torch.no_grad():
            for start in range(0, len(crops), AT_ONCE):
                parts.append(self.embed(normalise(torch.from_numpy(crops[start : start + AT_ONCE]))).half())
        features: NDArray[Any] = torch.cat(parts).numpy()
        return features


def _box(row: NDArray[np.float64]) -> Box:
    return float(row[0]), float(row[1]), float(row[2]), float(row[3])


def _write(path: Path, values: NDArray[Any]) -> None:
    with whole_file(path) as part, part.open("wb") as file:
        np.save(file, values)
