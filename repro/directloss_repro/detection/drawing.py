"""Detections drawn on images, to be looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from directloss_repro.data.images import Box, Pixels, vision
from directloss_repro.detection.evaluation import Truth
from directloss_repro.files import whole_file

COLOURS = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233))
"""Told apart by colour-blind people as well (Okabe and Ito)."""
TRUTH = (255, 255, 255)


def draw_detections(
    pixels: Pixels,
    found: Mapping[str, Sequence[tuple[Box, float]]],
    path: Path,
    truth: Mapping[str, Truth] | None = None,
    least: float | None = None,
    most: int = 10,
) -> None:
    """Write a picture with the best detections of each class, and the true boxes as thin white lines.

    It is a PNG, or a JPEG if ``path`` ends in ``.jpg``. ``found`` and ``truth`` go by class. Detections scored below
    ``least`` are not drawn, nor more than ``most``.
    """
    image_module, draw_module = vision("PIL.Image"), vision("PIL.ImageDraw")
    image = image_module.fromarray(pixels)
    pen = draw_module.Draw(image)
    for objects in (truth or {}).values():
        for left, top, right, bottom in objects.boxes.tolist():
            pen.rectangle((left, top, right - 1, bottom - 1), outline=TRUTH, width=1)
    for number, (name, detections) in enumerate(found.items()):
        colour = COLOURS[number % len(COLOURS)]
        best = sorted(detections, key=lambda item: -item[1])[:most]
        for (left, top, right, bottom), score in reversed(best):
            if least is None or score >= least:
                pen.rectangle((left, top, right - 1, bottom - 1), outline=colour, width=3)
                _label(pen, f"{name} {score:.2f}", left, top, colour)
    with whole_file(path) as part:
        image.save(part, **({"format": "JPEG", "quality": 88} if path.suffix == ".jpg" else {"format": "PNG"}))


def _label(pen: object, text: str, left: float, top: float, colour: tuple[int, int, int]) -> None:
    """White words on the colour of the box, above it where there is room."""
    width, height = pen.textbbox((0, 0), text)[2:]  # type: ignore[attr-defined]
    y = top - height - 3 if top >= height + 3 else top
    pen.rectangle((left, y, left + width + 4, y + height + 3), fill=colour)  # type: ignore[attr-defined]
    pen.text((left + 2, y + 1), text, fill=(255, 255, 255))  # type: ignore[attr-defined]
