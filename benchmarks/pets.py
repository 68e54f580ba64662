"""Segmentation of cats and dogs, see `benchmarks.segmentation`.

    python -m benchmarks.pets --data-root DATA [--seeds 5] [--out results/pets] [--workers 1]

Oxford-IIIT Pet (Parkhi et al. 2012): DATA holds ``images/NAME.jpg``, ``annotations/trimaps/NAME.png`` and the lists
``annotations/trainval.txt`` and ``test.txt``. Of trainval, 800 photographs to train and 200 to validate, of test 1,000,
drawn with a fixed seed. Two classes, background and animal; the border between them, 3 in the trimaps, is void. 96 x 96
pixels, 8 epochs.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
import torch
from directloss_repro.data import Part
from directloss_repro.seeding import generator

from benchmarks.segmentation import Scenes, command, images

SIZE = (96, 96)
TRIMAP = np.array([2, 1, 0, 2], np.uint8)
"""The class of each value of a trimap: 1 is the animal, 2 the background, 3 the border."""
PARTS = {"train": ("trainval", slice(800)), "val": ("trainval", slice(800, 1000)), "test": ("test", slice(1000))}
"""The list of each part, and its share of the shuffled list."""


@lru_cache
def part(root: Path, name: str) -> Part:
    """The images of ``train``, ``val`` or ``test``."""
    listed, share = PARTS[name]
    lines = (root / "annotations" / f"{listed}.txt").read_text().splitlines()
    names = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    order = torch.randperm(len(names), generator=generator("pets", listed)).tolist()
    pixels, classes = [], []
    for place in order[share]:
        image = cv2.imread(str(root / "images" / f"{names[place]}.jpg"))
        trimap = cv2.imread(str(root / "annotations" / "trimaps" / f"{names[place]}.png"), cv2.IMREAD_UNCHANGED)
        if image is None or trimap is None:
            raise SystemExit(f"{names[place]} or its trimap in {root} cannot be read")
        pixels.append(image)
        classes.append(TRIMAP[trimap])
    return images(pixels, classes, SIZE)


PETS = Scenes("Pets", 2, part, epochs=8)

if __name__ == "__main__":
    command(__doc__, PETS)
