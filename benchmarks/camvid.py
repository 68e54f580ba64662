"""Segmentation of street scenes, see `benchmarks.segmentation`.

    python -m benchmarks.camvid --data-root DATA [--seeds 5] [--out results/camvid] [--workers 1]

CamVid with 11 classes (Brostow et al. 2009; the parts of SegNet: 367 / 101 / 233 images): ``train/NAME.png`` holds the
image and ``trainannot/NAME.png`` the class of each pixel, 11 for void; so for ``val`` and ``test``. 96 x 72 pixels, 24
epochs.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import cv2
from directloss_repro.data import Part

from benchmarks.segmentation import Scenes, command, images

NAMES = (
    "sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian", "cyclist"
)  # fmt: skip
SIZE = (96, 72)
"""Width and height."""


@lru_cache
def part(root: Path, name: str) -> Part:
    """The images of ``train``, ``val`` or ``test``."""
    pixels, classes = [], []
    for path in sorted((root / name).glob("*.png")):
        image, labels = cv2.imread(str(path)), cv2.imread(str(root / f"{name}annot" / path.name), cv2.IMREAD_UNCHANGED)
        if image is None or labels is None:
            raise SystemExit(f"{path} or its labels cannot be read")
        pixels.append(image)
        classes.append(labels)
    if not pixels:
        raise SystemExit(f"{root / name} holds no images: --data-root is the folder with train, trainannot, val, ...")
    return images(pixels, classes, SIZE)


CAMVID = Scenes("CamVid", len(NAMES), part, epochs=24)

if __name__ == "__main__":
    command(__doc__, CAMVID)
