"""Photographs with candidate boxes, and the features of the boxes: one convolution pass per photograph, then pooling.

SPPnet (He et al. 2014) and Fast R-CNN (Girshick 2015) pool the features of a box from those of the whole photograph,
so that a thousand boxes cost little more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from directloss._checks import DirectLossError
from directloss_repro.data.cache import cache_name, cached
from directloss_repro.data.images import Pixels, normalise, vision
from directloss_repro.data.skipping import Skipped
from directloss_repro.data.voc import Annotation, Devkit
from directloss_repro.detection.boxes import Boxes, as_boxes, nms, overlaps
from directloss_repro.detection.evaluation import Detections, Truth
from directloss_repro.detection.proposals import Search, propose

STRIDE, FIRST = 16, 15.5
"""AlexNet's fifth convolution sees every 16th pixel; its first one is centred 15.5 pixels from the edge."""
POINTS = 3
"""The features of a cell are the largest of so many by so many points in it."""

Embed = Callable[[Tensor], Tensor]
"""A normalised photograph ``(1, 3, h, w)`` to the features of its convolutions ``(1, c, h', w')``."""


@dataclass(frozen=True)
class Scene:
    """A photograph with its candidate boxes. In training photographs the objects themselves come first."""

    name: str
    annotation: Annotation
    boxes: Boxes
    features: NDArray[np.float16]
    """Of the whole photograph, ``(c, h', w')``."""
    scale: float
    """By which the photograph was enlarged before the convolutions."""

    def truth(self, of: str) -> Truth:
        """The objects of a class."""
        things = [thing for thing in self.annotation.usable if thing.name == of]
        return Truth(as_boxes([thing.box for thing in things]), np.array([thing.difficult for thing in things], bool))


@dataclass(frozen=True)
class Reader:
    """Where photographs lie, how they are searched for boxes and seen by the network, and where all this is kept."""

    devkit: Devkit
    search: Search
    size: int
    """The longer side of what the network sees."""
    embed: Embed
    network: str
    """A name for the network and its weights."""
    cache: Path

    def scenes(
        self,
        names: Sequence[str],
        with_objects: bool,
        skipped: Skipped,
        workers: int = 1,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Scene]:
        """The photographs that can be used, searched and embedded now or before."""
        found = []
        # Threads will do: selective search and convolutions both leave Python's lock to others.
        with ThreadPoolExecutor(max(1, workers)) as pool:
            for done, scene in enumerate(pool.map(lambda name: self._scene(name, with_objects), names), 1):
                with skipped.catching():
                    if isinstance(scene, DirectLossError):
                        raise scene
                    skipped.notes += scene.annotation.notes
                    if len(scene.boxes):
                        found.append(scene)
                progress(done, len(names))
        skipped.check_something_left(len(found), str(self.devkit.path / "JPEGImages"))
        return found

    def _scene(self, name: str, with_objects: bool) -> Scene | DirectLossError:
        """Errors are returned, so that the other photographs go on."""
        try:
            annotation, path = self.devkit.annotation(name), self.devkit.image_path(name)
            file = self.cache / "regions" / cache_name(path, astuple(self.search), self.size, self.network)
            stored = cached(file, lambda: self._compute(self.devkit.image(name, annotation), name))
        except DirectLossError as error:
            return error
        boxes = stored["boxes"]
        if with_objects:
            boxes = np.concatenate([as_boxes([thing.box for thing in annotation.usable]), boxes])
        return Scene(name, annotation, boxes, stored["features"], float(stored["scale"]))

    def _compute(self, pixels: Pixels, name: str) -> dict[str, NDArray[Any]]:
        height, width = pixels.shape[:2]
        scale = self.size / max(height, width)
        resized = vision("cv2").resize(pixels, (max(63, round(width * scale)), max(63, round(height * scale))))
        with torch.no_grad():
            features = self.embed(normalise(torch.from_numpy(resized)[None]))[0].half().numpy()
        return {"boxes": propose(pixels, self.search, name), "features": features, "scale": np.array(scale)}


def pool_boxes(scene: Scene, boxes: Boxes, cells: int) -> Tensor:
    """Features ``(n, c * cells * cells)`` of boxes: the largest in each of ``cells`` by ``cells`` parts of a box.

    Points lie evenly in each cell, with bilinear interpolation between the features' places, as in RoIAlign (He et al.
    2017).
    """
    features = torch.from_numpy(scene.features).float()
    size = torch.tensor([features.shape[2], features.shape[1]])
    edges = ((torch.from_numpy(boxes) * scene.scale - FIRST) / STRIDE).float()
    steps = (torch.arange(cells * POINTS) + 0.5) / (cells * POINTS)
    places = edges[:, None, :2] + steps[:, None] * (edges[:, None, 2:] - edges[:, None, :2])  # (n, steps, 2)
    places = 2 * places / (size - 1).clamp(min=1) - 1
    x, y = places.unbind(-1)
    grid = torch.stack([x[:, None, :].expand(-1, len(steps), -1), y[:, :, None].expand(-1, -1, len(steps))], -1)
    values = F.grid_sample(features[None], grid.flatten(0, 1)[None], align_corners=True, padding_mode="border")[0]
    values = values.unflatten(1, (len(boxes), len(steps))).transpose(0, 1)
    return F.max_pool2d(values, POINTS).flatten(1)


class Regions:
    """Boxes of scenes as if they were one tensor ``(n, d)`` of features; each is pooled when it is indexed.

    Box ``rows[k]`` of scene ``images[k]`` is item ``k``. Items that are asked for together should lie in few images.
    """

    def __init__(self, scenes: Sequence[Scene], images: Tensor, rows: Tensor, cells: int) -> None:
        self.scenes, self.images, self.rows, self.cells = scenes, images, rows, cells
        self.shape = torch.Size((len(rows), scenes[0].features.shape[0] * cells**2))

    def __getitem__(self, index: Tensor | slice) -> Any:
        if isinstance(index, slice):
            return Regions(self.scenes, self.images[index], self.rows[index], self.cells)
        images, rows = self.images[index], self.rows[index]
        found = torch.empty(len(images), self.shape[1])
        for image in images.unique().tolist():
            mine, scene = images == image, self.scenes[image]
            found[mine] = pool_boxes(scene, scene.boxes[rows[mine].numpy()], self.cells)
        return found


class Held:
    """Features in half the memory, at full precision when they are indexed."""

    def __init__(self, values: Tensor) -> None:
        self.values, self.shape = values, values.shape

    def __getitem__(self, index: Tensor | slice) -> Any:
        return Held(self.values[index]) if isinstance(index, slice) else self.values[index].float()


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
