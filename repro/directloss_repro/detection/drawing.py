"""Detections drawn on photographs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from directloss.tabular.files import whole_file
from directloss_repro.data.photographs import Box, Pixels
from directloss_repro.detection.boxes import Truth

COLOURS = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233))
"""Okabe and Ito's palette, which is safe for colour-blind readers."""
WHITE = (255, 255, 255)


def draw_detections(
    pixels: Pixels, found: Mapping[str, Sequence[tuple[Box, float]]], truth: Mapping[str, Truth], path: Path
) -> None:
    """Write a JPEG with the detections of each class, and the true boxes as thin white lines."""
    image = Image.fromarray(pixels)
    pen = ImageDraw.Draw(image)
    for objects in truth.values():
        for left, top, right, bottom in objects.boxes.tolist():
            pen.rectangle((left, top, right - 1, bottom - 1), outline=WHITE, width=1)
    for number, (name, detections) in enumerate(found.items()):
        colour = COLOURS[number % len(COLOURS)]
        for (left, top, right, bottom), score in sorted(detections, key=lambda item: item[1]):
            pen.rectangle((left, top, right - 1, bottom - 1), outline=colour, width=3)
            _label(pen, f"{name} {score:.2f}", left, top, colour)
    with whole_file(path) as part:
        image.save(part, format="JPEG", quality=88)


def _label(pen: ImageDraw.ImageDraw, text: str, left: float, top: float, colour: tuple[int, int, int]) -> None:
    """White text on the colour of the box, above it if there is room."""
    width, height = pen.textbbox((0, 0), text)[2:]
    y = top - height - 3 if top >= height + 3 else top
    pen.rectangle((left, y, left + width + 4, y + height + 3), fill=colour)
    pen.text((left + 2, y + 1), text, fill=WHITE)
