"""Images of a devkit with their candidate boxes, and what a network sees of these boxes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from directloss_repro.data.images import Pixels
from directloss_repro.data.skipping import Skipped
from directloss_repro.data.voc import Annotation, Devkit
from directloss_repro.detection.boxes import Boxes, as_boxes, nms, overlaps
from directloss_repro.detection.evaluation import Detections, Truth
from directloss_repro.detection.proposals import Search, propose_all, read_proposals
from directloss_repro.detection.sampling import Sample
from directloss_repro.detection.views import View

Say = Callable[[str, int, int], None]
"""Told which stage is under way, and how many of how many steps are done."""


@dataclass(frozen=True)
class Scene:
    """An image with its candidate boxes. In training images the objects themselves come first."""

    name: str
    annotation: Annotation
    boxes: Boxes
    key: str
    """A short text that differs for other pixels or boxes."""

    def truth(self, of: str) -> Truth:
        """The objects of a class."""
        things = [thing for thing in self.annotation.usable if thing.name == of]
        return Truth(as_boxes([thing.box for thing in things]), np.array([thing.difficult for thing in things], bool))


@dataclass(frozen=True)
class Gallery:
    """A devkit, how its images are searched for boxes, how boxes are seen, and where all this is kept."""

    devkit: Devkit
    search: Search
    view: View
    cache: Path

    def propose(self, image_set: str, workers: int, say: Say) -> None:
        """Search the images of a list that have not been searched yet; broken ones are left to `scenes`."""
        paths = [self.devkit.image_path(name) for name in self.devkit.image_set(image_set)]
        stage = f"selective search, {image_set}"
        propose_all(
            [path for path in paths if path.is_file()],
            self.cache / "proposals",
            self.search,
            workers,
            Skipped(),
            lambda done, total: say(stage, done, total),
        )

    def scenes(self, image_set: str, with_objects: bool, skipped: Skipped) -> list[Scene]:
        """Images with usable files and their boxes."""
        found = []
        for name in self.devkit.image_set(image_set):
            with skipped.catching():
                annotation = self.devkit.annotation(name, skipped)
                pixels = self.devkit.image(name, annotation)
                boxes = read_proposals(self.devkit.image_path(name), self.cache / "proposals", pixels, self.search)
                if with_objects:
                    boxes = np.concatenate([as_boxes([thing.box for thing in annotation.usable]), boxes])
                if len(boxes):
                    found.append(Scene(name, annotation, boxes, _key(pixels, boxes)))
        skipped.check_something_left(len(found), str(self.devkit.list_path("Main", image_set)))
        return found

    def rows(self, scene: Scene) -> NDArray[Any]:
        """Crops or features of all boxes of an image."""
        folder = f"{self.view.name}-{self.view.size}-{self.view.context}"
        file = self.cache / "features" / folder / f"{scene.name}-{scene.key}.npy"
        return self.view.rows(lambda: self.devkit.image(scene.name), scene.boxes, file)

    def _some(self, scene: Scene, chosen: NDArray[np.int64]) -> NDArray[Any]:
        # Crops are cut out anew each time, so no more of them than needed; features are stored for all boxes.
        if self.view.embed is None:
            return self.view.rows(lambda: self.devkit.image(scene.name), scene.boxes[chosen])
        some: NDArray[Any] = self.rows(scene)[chosen]
        return some

    def gather(self, scenes: Sequence[Scene], sample: Sample) -> NDArray[Any]:
        """The rows of a sample, image by image, so that each image is read once."""
        parts: dict[int, NDArray[Any]] = {}
        for image in sorted(set(sample.images.tolist())):
            mine = (sample.images == image).nonzero()[:, 0]
            parts.update(zip(mine.tolist(), self._some(scenes[image], sample.rows[mine].numpy()), strict=True))
        return np.stack([parts[index] for index in range(len(sample))])


def _key(pixels: Pixels, boxes: Boxes) -> str:
    digest = hashlib.blake2b(np.ascontiguousarray(pixels).tobytes(), digest_size=8)
    digest.update(np.ascontiguousarray(boxes).tobytes())
    return digest.hexdigest()


class BoxInputs:
    """Boxes of scenes as if they were one tensor of what the network sees; each is read when it is indexed.

    Box ``rows[k]`` of scene ``images[k]`` is item ``k``. Items that are asked for together should lie in few images.
    """

    def __init__(self, gallery: Gallery, scenes: Sequence[Scene], images: Tensor, rows: Tensor) -> None:
        self.gallery, self.scenes, self.images, self.rows = gallery, scenes, images, rows
        start = torch.zeros(1, dtype=torch.long)
        first = gallery.view.numbers(gallery.gather(scenes, Sample(start, start, start)))
        self.shape = torch.Size((len(rows), *first.shape[1:]))

    def __getitem__(self, index: Tensor | slice) -> Any:
        if isinstance(index, slice):
            return BoxInputs(self.gallery, self.scenes, self.images[index], self.rows[index])
        sample = Sample(self.images[index], self.rows[index], torch.zeros(len(index), dtype=torch.long))
        return self.gallery.view.numbers(self.gallery.gather(self.scenes, sample))


def recall(of: str, testing: Sequence[Scene]) -> float:
    """Share of the objects of a class that some box covers by half."""
    covered = []
    for scene in testing:
        truth = scene.truth(of)
        if len(truth.boxes):
            covered.append((overlaps(scene.boxes, truth.boxes).max(axis=0) >= 0.5)[~truth.difficult])
    return float(np.concatenate(covered).mean())


def suppressed(scenes: Sequence[Scene], scores: NDArray[Any], threshold: float = 0.3, keep: int = 100) -> Detections:
    """What is left of the scores of all boxes of all scenes, one after the other: at most ``keep`` in each image."""
    found = Detections()
    start = 0
    for scene in scenes:
        mine = scores[start : start + len(scene.boxes)]
        start += len(scene.boxes)
        kept = nms(scene.boxes, mine, threshold)[:keep]
        found.add(scene.name, scene.boxes[kept], mine[kept])
    return found
