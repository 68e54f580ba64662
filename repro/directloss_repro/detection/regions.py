"""Photographs with candidate boxes, and the features of the boxes: one convolution pass per photograph, then pooling.

The boxes come from selective search (Uijlings et al. 2013) in OpenCV's fast mode. Their features are pooled from those
of the whole photograph, as in SPPnet (He et al. 2014) and Fast R-CNN (Girshick 2015), so that a thousand boxes cost
little more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from directloss._checks import DirectLossError
from directloss_repro.data.photographs import Arrays, Pixels, cache_name, cached, load
from directloss_repro.data.split import lazy
from directloss_repro.data.voc import Annotation, Devkit, Skipped
from directloss_repro.detection.average_precision import Detection
from directloss_repro.detection.boxes import Boxes, Truth, as_boxes, nms, overlaps
from directloss_repro.seeding import generator

STRIDE = 16
"""The convolutions see every 16th pixel."""
LEAST = 63
"""The shorter side of the smallest photograph that the convolutions do not reduce to nothing."""
POINTS = 3
"""The feature of a cell is the largest of 3 x 3 points in it."""
HELD = 4_000_000_000
"""Above this many bytes, features are read from the cache on demand."""


class Trunk(NamedTuple):
    """The convolutions of a network."""

    name: str
    """Stands for the network and its weights in names of cached files."""
    embed: Callable[[Pixels], Tensor]
    """Maps photographs ``(1, h, w, 3)`` to features ``(1, c, h', w')``."""
    first: float
    """How many pixels the centre of the first feature is from the edge."""


@dataclass(frozen=True)
class Search:
    """Settings of selective search, as in R-CNN; the last three are those of OpenCV's fast mode."""

    width: int = 500
    least: int = 20
    most: int = 2500
    base: int = 150
    step: int = 150
    sigma: float = 0.8


def propose(pixels: Pixels, search: Search, name: str = "") -> Boxes:
    """Boxes ``(n, 4)`` that may contain an object, without duplicates, in a fixed order."""
    height, width = pixels.shape[:2]
    scale = search.width / width if search.width else 1.0
    scaled = cv2.resize(pixels, (max(1, round(width * scale)), max(1, round(height * scale))))
    finder = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
    finder.setBaseImage(np.ascontiguousarray(scaled[:, :, ::-1]))
    finder.switchToSelectiveSearchFast(search.base, search.step, search.sigma)
    found = np.asarray(finder.process(), np.float64).reshape(-1, 4)
    boxes = np.concatenate([found[:, :2], found[:, :2] + found[:, 2:]], axis=1) / scale
    boxes = np.clip(boxes, 0, [width, height, width, height])
    boxes = boxes[(boxes[:, 2:] - boxes[:, :2]).min(axis=1) >= min(search.least, width, height)]
    # OpenCV orders them with the C library's random numbers; sorted, they are the same in every run.
    boxes = np.unique(boxes.round(2), axis=0)
    if len(boxes) > search.most:
        chosen = torch.randperm(len(boxes), generator=generator("proposals", name))[: search.most]
        boxes = boxes[np.sort(chosen.numpy())]
    return boxes


@dataclass(frozen=True)
class Scene:
    """A photograph with its candidate boxes. In training photographs the objects themselves come first."""

    name: str
    annotation: Annotation
    boxes: Boxes
    file: Path
    """The file with the features of the boxes."""
    first: int
    """The row of the first box in it."""

    def truth(self, of: str) -> Truth:
        """The objects of a class."""
        things = [thing for thing in self.annotation.usable if thing.name == of]
        return Truth(as_boxes([thing.box for thing in things]), np.array([thing.difficult for thing in things], bool))

    def features(self) -> NDArray[np.float16]:
        """The features of the boxes ``(n, d)``."""
        return load(self.file)["features"][self.first :]


@dataclass(frozen=True)
class Reader:
    """Searches photographs for boxes, computes their features, and caches both."""

    devkit: Devkit
    search: Search
    size: int
    """The longer side of the network's input."""
    cells: int
    """Cells of a box in each direction."""
    trunk: Trunk
    cache: Path

    def scenes(
        self,
        names: Sequence[str],
        with_objects: bool,
        skipped: Skipped,
        workers: int = 1,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Scene]:
        """The usable photographs; computes what is not cached."""
        found = []
        # Threads suffice: selective search and convolutions both release Python's lock.
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
        """Read one photograph. Returns errors, so that work on the others continues."""
        try:
            annotation, path = self.devkit.annotation(name), self.devkit.image_path(name)
            objects = as_boxes([thing.box for thing in annotation.usable])
            settings = (*astuple(self.search), self.size, self.cells, self.trunk.name, objects.tolist())
            file = self.cache / "regions" / cache_name(path, *settings)
            stored = cached(file, lambda: self._compute(path, self.devkit.image(name, annotation), objects))
        except DirectLossError as error:
            return error
        first = 0 if with_objects else len(objects)
        return Scene(name, annotation, stored["boxes"][first:], file, first)

    def _compute(self, path: Path, pixels: Pixels, objects: Boxes) -> Arrays:
        height, width = pixels.shape[:2]
        scale = max(self.size / max(height, width), LEAST / min(height, width))
        resized = np.asarray(cv2.resize(pixels, (round(width * scale), round(height * scale))), np.uint8)
        # Stored apart from the features: the search takes most of the time, and other networks can use its boxes.
        file = self.cache / "boxes" / cache_name(path, *astuple(self.search))
        proposed = cached(file, lambda: {"boxes": propose(pixels, self.search, path.stem)})["boxes"]
        boxes = np.concatenate([objects, proposed])
        with torch.no_grad():
            features = pool_boxes(self.trunk.embed(resized[None]), boxes * scale, self.cells, self.trunk.first)
        return {"boxes": boxes, "features": features.half().numpy()}


def pool_boxes(features: Tensor, boxes: Boxes, cells: int, first: float) -> Tensor:
    """Features ``(n, c * cells * cells)`` of boxes in pixels, from those of the whole photograph ``(1, c, h', w')``.

    Each cell takes the maximum over evenly spaced points in it, with bilinear interpolation of the features, as in
    RoIAlign (He et al. 2017).
    """
    last = torch.tensor([features.shape[3], features.shape[2]]) - 1
    edges = ((torch.from_numpy(boxes) - first) / STRIDE).float()
    steps = (torch.arange(cells * POINTS) + 0.5) / (cells * POINTS)
    places = edges[:, None, :2] + steps[:, None] * (edges[:, None, 2:] - edges[:, None, :2])
    x, y = (2 * places / last.clamp(min=1) - 1).unbind(-1)  # (n, steps) each, from -1 to 1
    grid = torch.stack([x[:, None, :].expand(-1, len(steps), -1), y[:, :, None].expand(-1, -1, len(steps))], -1)
    values = F.grid_sample(features, grid.flatten(0, 1)[None], align_corners=True, padding_mode="border")[0]
    values = values.reshape(len(values), len(boxes), len(steps), len(steps)).transpose(0, 1)
    return F.max_pool2d(values, POINTS).flatten(1)


def features_of(scenes: Sequence[Scene]) -> Tensor:
    """The features of all boxes of all scenes, concatenated ``(n, d)``; in memory if they fit."""
    counts = torch.tensor([len(scene.boxes) for scene in scenes])
    width = scenes[0].features().shape[1]
    rows = torch.arange(int(counts.sum()))
    if 2 * width * len(rows) <= HELD:
        held = torch.empty(len(rows), width, dtype=torch.float16)
        for part, scene in zip(torch.split(held, counts.tolist()), scenes, strict=True):
            part.copy_(torch.from_numpy(scene.features()))
        return lazy(rows, (width,), lambda index: held[index].float())
    ends = counts.cumsum(0)

    def read(index: Tensor) -> Tensor:
        images, found = torch.searchsorted(ends, index, right=True), torch.empty(len(index), width)
        for image in sorted(set(images.tolist())):
            mine = images == image
            inside = index[mine] - (ends[image] - counts[image])
            found[mine] = torch.from_numpy(scenes[image].features()[inside.numpy()]).float()
        return found

    return lazy(rows, (width,), read)


def recall(of: str, testing: Sequence[Scene]) -> float:
    """The share of a class's objects that some box overlaps by at least half."""
    covered = []
    for scene in testing:
        truth = scene.truth(of)
        if len(truth.boxes):
            covered.append((overlaps(scene.boxes, truth.boxes).max(axis=0) >= 0.5)[~truth.difficult])
    return float(np.concatenate(covered).mean())


def suppressed(
    scenes: Sequence[Scene], scores: NDArray[Any], threshold: float = 0.3, keep: int = 100
) -> list[Detection]:
    """The boxes of all scenes after non-maximum suppression, at most ``keep`` per image."""
    found, start = [], 0
    for scene in scenes:
        mine = scores[start : start + len(scene.boxes)]
        start += len(scene.boxes)
        for place in nms(scene.boxes, mine, threshold)[:keep]:
            found.append(Detection(scene.name, tuple(scene.boxes[place].tolist()), float(mine[place])))
    return found
