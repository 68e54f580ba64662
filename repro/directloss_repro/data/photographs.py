"""Photographs: reading, cropping boxes, normalisation for a network, and a cache of features.

Boxes are ``(left, top, right, bottom)`` in pixels, measured at the edges of pixels: the box of a whole image is
``(0, 0, width, height)``, and ``right - left`` is a width.
"""

from __future__ import annotations

import hashlib
import json
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from directloss._checks import fail
from directloss.tabular.files import whole_file

Pixels = NDArray[np.uint8]
"""An image ``(height, width, 3)``, red first."""
Box = tuple[float, float, float, float]
Arrays = dict[str, NDArray[Any]]

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
"""Mean and deviation of ImageNet's colours, from 0 to 1, which the AlexNet weights expect."""
MEAN_COLOUR = tuple(round(255 * value) for value in MEAN)

CROP = 227
CONTEXT = 16
"""R-CNN's input: boxes are warped to 227 x 227 pixels, of which 16 on each side show what is around the box."""


def read_image(path: Path) -> Pixels:
    """The pixels of a JPEG or PNG file in three colours. Raises if the file is missing, broken or truncated."""
    if not path.is_file():
        fail(str(path), "must be an image file", "missing")
    try:
        # A warning about a huge image is an error here: nobody would notice it among thousands of files.
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                return np.asarray(image.convert("RGB"))
    except UnidentifiedImageError:
        fail(str(path), "must be a complete image", "not (no image format is recognised)")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Warning) as error:
        fail(str(path), "must be a complete image", f"not ({str(error).splitlines()[0] if str(error) else error!r})")


def warp(pixels: Pixels, box: Box, size: int = CROP, context: int = CONTEXT) -> Pixels:
    """A box with ``context`` pixels of its surroundings, warped to ``size`` x ``size``; the mean colour outside.

    The context is measured in the result, where the box fills ``size - 2 * context`` pixels, whatever its original size
    and shape. Girshick et al. 2014, Appendix A, column D.
    """
    left, top, right, bottom = _with_context(box, size / (size - 2 * context))
    height, width = pixels.shape[:2]
    inside = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
    result: Pixels = np.full((size, size, 3), MEAN_COLOUR, np.uint8)
    if inside[0] >= inside[2] or inside[1] >= inside[3]:
        return result
    scale_x, scale_y = size / (right - left), size / (bottom - top)
    x0, x1 = _span((inside[0] - left) * scale_x, (inside[2] - left) * scale_x, size)
    y0, y1 = _span((inside[1] - top) * scale_y, (inside[3] - top) * scale_y, size)
    piece = pixels[inside[1] : inside[3], inside[0] : inside[2]]
    result[y0:y1, x0:x1] = cv2.resize(piece, (x1 - x0, y1 - y0), interpolation=cv2.INTER_LINEAR)
    return result


def _with_context(box: Box, scale: float) -> tuple[int, int, int, int]:
    """The box scaled about its centre, in whole pixels, at least one wide and high."""
    left, top, right, bottom = box
    middle_x, middle_y = (left + right) / 2, (top + bottom) / 2
    half_x, half_y = (right - left) / 2 * scale, (bottom - top) / 2 * scale
    x0, y0 = round(middle_x - half_x), round(middle_y - half_y)
    return x0, y0, max(x0 + 1, round(middle_x + half_x)), max(y0 + 1, round(middle_y + half_y))


def _span(start: float, end: float, size: int) -> tuple[int, int]:
    """Whole pixels of the result, at least one."""
    first = min(round(start), size - 1)
    return first, min(size, max(first + 1, round(end)))


def normalise(pixels: Tensor) -> Tensor:
    """What the network sees: bytes ``(b, h, w, 3)`` to numbers ``(b, 3, h, w)``, mean subtracted, unit deviation.

    Example:
        >>> normalise(torch.zeros(2, 4, 4, 3, dtype=torch.uint8)).shape
        torch.Size([2, 3, 4, 4])
    """
    mean = torch.tensor(MEAN, device=pixels.device)
    scale = 1 / (255 * torch.tensor(DEVIATION, device=pixels.device))
    values = (pixels.to(torch.float32) - 255 * mean) * scale
    return values.permute(0, 3, 1, 2).contiguous()


def clip(box: Box, width: float, height: float) -> Box:
    """The part of a box inside an image; empty (right <= left or bottom <= top) if there is none."""
    left, top, right, bottom = box
    return max(left, 0.0), max(top, 0.0), min(right, width), min(bottom, height)


# ---------------------------------------------------------------------- the cache


def cached(path: Path, compute: Callable[[], Arrays]) -> Arrays:
    """The arrays in ``path``; computed and stored there if it is missing or damaged."""
    with suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return load(path)
    arrays = compute()
    with whole_file(path) as part, part.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return arrays


def load(path: Path) -> Arrays:
    """The arrays of a stored file, a zip archive whose checksums are verified on reading."""
    # Opened here, because np.load leaves a broken file open.
    with path.open("rb") as file:
        return dict(np.load(file, allow_pickle=False))


def cache_name(photograph: Path, *settings: object) -> str:
    """A file name that is unique to the photograph, its pixels and the settings."""
    try:
        digest = hashlib.blake2b(photograph.read_bytes(), digest_size=8)
    except OSError as error:
        fail(str(photograph), "must be a readable image", f"not ({error.strerror})", "Unpack the data set again.")
    digest.update(json.dumps(settings).encode())
    return f"{photograph.stem}-{digest.hexdigest()}.npz"
