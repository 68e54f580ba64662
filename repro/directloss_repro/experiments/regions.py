"""Boxes of photographs as data: samples to train a class on, and detections, judged as VOC does and drawn."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from directloss._checks import DirectLossError, check_choice, fail
from directloss_repro.config import SEARCH_SEED
from directloss_repro.data import Part, Split
from directloss_repro.data.skipping import Skipped
from directloss_repro.data.voc import OBJECTS, find_devkit
from directloss_repro.detection.drawing import draw_detections
from directloss_repro.detection.evaluation import voc_ap
from directloss_repro.detection.proposals import Search
from directloss_repro.detection.sampling import HARD, POSITIVE, Sample, draw_sample, hardest_negatives, label_boxes
from directloss_repro.detection.scenes import BoxInputs, Gallery, Scene, recall, suppressed
from directloss_repro.detection.views import View
from directloss_repro.experiments.base import Judged, Ready, Say, Source
from directloss_repro.experiments.photos import PhotoConfig, make_embed, notes_on_weights
from directloss_repro.files import whole_file
from directloss_repro.records import Record
from directloss_repro.seeding import generator
from directloss_repro.validation import AboveZero, Count, CountOrZero, Overlap

YEAR = 2012
HELD_OUT = 1 / 3
"""Share of the training images that is held out while settings are chosen."""
DRAWN, MOST_DRAWN = 4, 8
"""How many test images are drawn, and how many detections of a class in each."""
DRAWINGS = "drawings"


class RegionConfig(PhotoConfig):
    """Which images, which boxes, and how detections are judged."""

    dataset: str = "voc"
    train_set: str = "train"
    test_set: str = "val"
    per_positive: AboveZero = 3.0
    """Negatives for each positive in the training sample."""
    most: Count = 20_000
    """Boxes of the training sample of a class."""
    search_width: CountOrZero = 500
    """Images are scaled to this width for selective search; 0 leaves them as they are."""
    search_least: Count = 20
    """Shortest side of a box, in pixels of the image."""
    search_most: Count = 2_500
    """Of more boxes than this a random part is kept."""
    suppression: Overlap = 0.3
    keep: Count = 100
    """Detections of a class in an image, after suppression."""

    datasets: ClassVar[tuple[str, ...]] = ("voc", "make-voc")

    def check(self) -> None:
        super().check()
        check_choice("dataset", self.dataset, self.datasets)
        if not self.classes:
            fail("classes", "must name at least one class", "empty")
        for name in self.classes if self.dataset == "voc" else ():
            check_choice("classes", name, OBJECTS)


@dataclass(frozen=True, eq=False)
class _Images:
    """What all runs share."""

    gallery: Gallery
    training: list[Scene]
    testing: list[Scene]
    skipped: Skipped


def _gallery(config: RegionConfig, files: Source) -> Gallery:
    if files.root is None or files.cache is None:
        fail("the source", "must name the folder of the devkit and a cache", "without one of them")
    embed = make_embed(config, files.weights) if config.layers == "head" else None
    name = f"alexnet{config.pool or ''}-{config.weights or 'random'}"
    view = View(config.size, config.context, embed, name)
    search = Search(config.search_width, config.search_least, config.search_most)
    return Gallery(find_devkit(Path(files.root), YEAR), search, view, Path(files.cache))


def _read(config: RegionConfig, files: Source) -> _Images:
    gallery, skipped = _gallery(config, files), Skipped()
    training = gallery.scenes(config.train_set, True, skipped)
    return _Images(gallery, training, gallery.scenes(config.test_set, False, skipped), skipped)


@lru_cache(maxsize=1)
def _images(config: RegionConfig, files: Source) -> _Images:
    return _read(config, files)


def shared_images(config: RegionConfig, source: Source) -> _Images:
    """The images with their boxes. Every run has the same ones, so they are read once."""
    return _images(config, Source(0, None, source.root, source.weights, source.cache))


# ---------------------------------------------------------------------- data


def data(config: RegionConfig, source: Source) -> Split:
    """A sample of boxes to train a class on, one to choose by where that is needed, and all boxes of test images."""
    images = shared_images(config, source)
    of = _class_of(config, source)
    labels = [label_boxes(scene.boxes, scene.truth(of)) for scene in images.training]
    parts = {
        name: _part(config, images, labels, chosen, of, name, source.seed)
        for name, chosen in _division(config, len(labels), source).items()
    }
    return Split(train=parts["train"], val=parts.get("val"), test=_test(images, of))


def _class_of(config: RegionConfig, source: Source) -> str:
    return source.label if source.label is not None else config.classes[0]


def _division(config: RegionConfig, count: int, source: Source) -> dict[str, list[int]]:
    """All training images; or, where something is chosen, two thirds to train on and a third to choose by."""
    if source.stage != "search" and not config.early:
        return {"train": list(range(count))}
    order = torch.randperm(count, generator=generator("held-out images", source.seed)).tolist()
    cut = max(1, round(count * HELD_OUT))
    return {"train": sorted(order[cut:]), "val": sorted(order[:cut])}


def _part(
    config: RegionConfig,
    images: _Images,
    labels: list[NDArray[np.int64]],
    chosen: list[int],
    of: str,
    name: str,
    seed: int,
) -> Part:
    """A sample of the boxes of some training images."""
    scenes = [images.training[place] for place in chosen]
    sample = draw_sample([labels[place] for place in chosen], config.per_positive, config.most, of, name, seed)
    if config.layers == "head":
        return Part(images.gallery.view.numbers(images.gallery.gather(scenes, sample)), sample.labels)
    # It behaves as the tensor of all crops wherever the lab touches inputs: it is indexed, and it has a shape.
    return Part(cast(Tensor, BoxInputs(images.gallery, scenes, sample.images, sample.rows)), sample.labels)


def harder(config: RegionConfig, source: Source, train: Part, score: Callable[[Part], Tensor]) -> Part:
    """The training data and half as many more: the negatives of its images with the highest scores, as in R-CNN."""
    images, of = shared_images(config, source), _class_of(config, source)
    scenes = [images.training[place] for place in _division(config, len(images.training), source)["train"]]
    most = max(1, len(train) // 2)
    best: list[tuple[float, int, int]] = []
    for place, scene in enumerate(scenes):
        rows = torch.arange(len(scene.boxes))
        inputs = BoxInputs(images.gallery, scenes, torch.full_like(rows, place), rows)
        scores = score(Part(cast(Tensor, inputs), torch.zeros_like(rows))).double().numpy()
        labels = label_boxes(scene.boxes, scene.truth(of), negative_below=HARD)
        best += [(float(scores[row]), place, int(row)) for row in hardest_negatives(scores, labels, most)]
        best = sorted(best, key=lambda item: (-item[0], *item[1:]))[:most]
    places, rows = (torch.tensor([item[k] for item in best]) for k in (1, 2))
    target = torch.cat([train.y, torch.zeros(len(best), dtype=train.y.dtype)])
    if config.layers == "head":
        hard = images.gallery.view.numbers(images.gallery.gather(scenes, Sample(places, rows, rows)))
        return Part(torch.cat([train.x, hard]), target)
    known = cast(BoxInputs, train.x)
    more = BoxInputs(images.gallery, scenes, torch.cat([known.images, places]), torch.cat([known.rows, rows]))
    return Part(cast(Tensor, more), target)


def _test(images: _Images, of: str) -> Part:
    """All boxes of all test images."""
    scenes = images.testing
    places = torch.cat([torch.full((len(scene.boxes),), place) for place, scene in enumerate(scenes)])
    rows = torch.cat([torch.arange(len(scene.boxes)) for scene in scenes])
    positive = [label_boxes(scene.boxes, scene.truth(of)) == POSITIVE for scene in scenes]
    inputs = BoxInputs(images.gallery, scenes, places, rows)
    return Part(cast(Tensor, inputs), torch.from_numpy(np.concatenate(positive)).long())


# ---------------------------------------------------------------------- before the runs


def look(config: RegionConfig, root: str) -> None:
    """Whether the devkit has the lists that are needed."""
    devkit = find_devkit(Path(root), YEAR)
    for name in (config.train_set, config.test_set):
        devkit.image_set(name)
    for of in config.classes:
        devkit.image_labels(of, config.train_set)


def ready(config: RegionConfig, source: Source, workers: int, say: Say) -> Ready:
    """Search all images for boxes, compute their features, and see which classes can be trained and judged."""
    torch.set_num_threads(workers)
    gallery = _gallery(config, source)
    for name in (config.train_set, config.test_set):
        gallery.propose(name, workers, say)
    images = _read(config, source)
    if config.layers == "head":
        scenes = [*images.training, *images.testing]
        for done, scene in enumerate(scenes, 1):
            images.gallery.rows(scene)
            say("features of boxes", done, len(scenes))
    skipped = Skipped(reasons=[*images.skipped.reasons, *images.skipped.notes])
    classes = []
    for of in config.classes:
        with skipped.catching():
            _check_class(config, source, images, of)
            classes.append(of)
    skipped.check_something_left(len(classes), "the classes")
    return Ready(tuple(classes), tuple(skipped.reasons), notes_on_weights(config, source.weights))


def _check_class(config: RegionConfig, source: Source, images: _Images, of: str) -> None:
    """Something to learn from and something to find; otherwise the class is left out before the first run."""
    if not any((~scene.truth(of).difficult).any() for scene in images.testing):
        raise DirectLossError(f"The class {of!r} is left out: it has no object in the images of {config.test_set!r}.")
    there = [bool((label_boxes(s.boxes, s.truth(of)) == POSITIVE).any()) for s in images.training]
    if not any(there):
        raise DirectLossError(f"The class {of!r} is left out: it has no object in the images of {config.train_set!r}.")
    searched = range(SEARCH_SEED, SEARCH_SEED + config.search_seeds) if len(config.direct) > 1 else ()
    runs = [("final", seed) for seed in range(config.seeds)] + [("search", seed) for seed in searched]
    for stage, seed in runs:
        one = dataclasses.replace(source, seed=seed, stage=stage)
        for name, chosen in _division(config, len(there), one).items():
            if not any(there[place] for place in chosen):
                raise DirectLossError(
                    f"The class {of!r} is left out: it has too few objects in the images of {config.train_set!r} to "
                    f"hold some out ({name}, seed {seed})."
                )


# ---------------------------------------------------------------------- after training


def judge(config: RegionConfig, source: Source, scores: Tensor, threshold: float) -> Judged:
    """VOC's AP of the detections by both rules; for the first seed, what is drawn."""
    images, of = shared_images(config, source), _class_of(config, source)
    found = suppressed(images.testing, scores.double().numpy(), config.suppression, config.keep)
    truth = {scene.name: scene.truth(of) for scene in images.testing}
    metrics = {
        "test_ap": voc_ap(found, truth),
        "test_ap_11_point": voc_ap(found, truth, "11-point"),
        "proposal_recall": recall(of, images.testing),
    }
    if source.seed != 0:
        return Judged(metrics)
    shown = {}
    for scene in images.testing[:DRAWN]:
        best = sorted((item for item in found.of(scene.name) if item[1] > threshold), key=lambda item: -item[1])
        shown[scene.name] = [[*(round(edge, 1) for edge in box), round(score, 4)] for box, score in best[:MOST_DRAWN]]
    return Judged(metrics, shown)


def draw(config: RegionConfig, source: Source, records: list[Record], folder: Path) -> None:
    """Pictures of the first test images, one for each method and noise level, and a list of them for the report."""
    images = shared_images(config, source)
    drawn: dict[tuple[str, float, str], dict[str, list[Any]]] = {}
    for record in records:
        for name, boxes in record.shown.items():
            drawn.setdefault((name, record.noise or 0.0, record.method), {})[str(record.group)] = boxes
    scenes = {scene.name: scene for scene in images.testing}
    listed = []
    for (name, noise, method), found in sorted(drawn.items(), key=lambda item: _place(config, item[0])):
        if name in scenes:
            file = f"{name}-{method}-{round(100 * noise)}.jpg"
            classes = [of for of in config.classes if of in found]
            draw_detections(
                images.gallery.devkit.image(name),
                {of: [(tuple(box[:4]), box[4]) for box in found[of]] for of in classes},
                folder / DRAWINGS / file,
                {of: scenes[name].truth(of) for of in classes},
            )
            listed.append({"file": file, "image": name, "method": method, "noise": noise})
    if listed:
        path = folder / DRAWINGS / "index.json"
        with whole_file(path) as part:
            part.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")


def _place(config: RegionConfig, key: tuple[str, float, str]) -> tuple[str, float, int]:
    name, noise, method = key
    return name, noise, config.methods.index(method) if method in config.methods else len(config.methods)
