"""Detection from a devkit to VOC's average precision.

Song et al. 2016, Sec. 4.3, after R-CNN: selective search proposes boxes; a network with one output is trained for each
class on minibatches, with the AP of the minibatch as the loss; all boxes of the test images are scored; non-maximum
suppression; AP. Box regression is left out, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from directloss._checks import DirectLossError
from directloss.lab.data import flip_labels
from directloss.lab.data.skipping import Skipped
from directloss.lab.data.voc import Devkit
from directloss.lab.detection.boxes import nms
from directloss.lab.detection.drawing import draw_detections
from directloss.lab.detection.evaluation import Detections, voc_ap
from directloss.lab.detection.proposals import Search
from directloss.lab.detection.sampling import HARD, draw_sample, hardest_negatives, label_boxes
from directloss.lab.detection.scenes import Gallery, Say, Scene, recall
from directloss.lab.detection.views import View
from directloss.lab.evaluation import best_threshold
from directloss.lab.seeding import generator, seeded

Loss = Callable[[Tensor, Tensor], Tensor]
"""Scores and labels of a minibatch to a scalar."""


@dataclass(frozen=True)
class DetectionConfig:
    """The paper's minibatches, learning rate and weight decay. ``noise`` is the share of flipped training labels."""

    classes: tuple[str, ...]
    train_set: str = "train"
    test_set: str = "val"
    steps: int = 300
    batch_size: int = 512
    learning_rate: float = 0.1
    weight_decay: float = 1e-7
    momentum: float = 0.0
    per_positive: float = 3.0
    """Negatives for each positive in the training sample."""
    most: int = 20_000
    """Boxes of the training sample of a class."""
    hard_rounds: int = 0
    """How often the hardest negatives are added and training goes on."""
    noise: float = 0.0
    suppression: float = 0.3
    keep: int = 100
    """Detections of a class in an image, after suppression."""
    seed: int = 0
    workers: int = 1


@dataclass(frozen=True)
class Found:
    """What came of it. AP by class, for those classes that could be trained and judged; and what was left out."""

    ap: dict[str, float]
    ap_11_point: dict[str, float]
    detections: dict[str, Detections]
    losses: dict[str, list[float]]
    """The loss of each minibatch."""
    thresholds: dict[str, float]
    """Scores above which detections are drawn: a scorer trained to rank has no zero of its own, so the threshold is the
    one with the fewest errors on the training sample."""
    recall: dict[str, float]
    """Share of the test objects that some proposal covers by half: no network can do better."""
    skipped: Skipped
    drawings: tuple[Path, ...] = ()

    @property
    def mean_ap(self) -> float:
        """The mean over the classes."""
        return sum(self.ap.values()) / len(self.ap)


@dataclass
class _Work:
    """Everything that all classes share."""

    config: DetectionConfig
    gallery: Gallery
    skipped: Skipped
    say: Say

    def scenes(self, image_set: str, with_objects: bool) -> list[Scene]:
        """Images with usable files and their boxes."""
        self.gallery.propose(image_set, self.config.workers, self.say)
        return self.gallery.scenes(image_set, with_objects, self.skipped)


def detect(
    devkit: Devkit,
    make_model: Callable[[], nn.Module],
    loss: Loss,
    config: DetectionConfig,
    cache: Path,
    view: View | None = None,
    search: Search | None = None,
    skipped: Skipped | None = None,
    say: Say | None = None,
    drawings: Path | None = None,
    drawn: int = 8,
) -> Found:
    """Train a detector for each class, judge it, and draw what it finds in the first ``drawn`` test images.

    ``make_model`` builds a network from what ``view`` shows to scores ``(b,)``; ``loss`` is that of a minibatch. A
    class that cannot be trained or judged (no object of it) is left out and told in ``skipped``.
    """
    gallery = Gallery(devkit, search or Search(), view or View(), cache)
    work = _Work(config, gallery, skipped or Skipped(), say or (lambda *_: None))
    training, testing = work.scenes(config.train_set, True), work.scenes(config.test_set, False)
    models, losses, thresholds = {}, {}, {}
    for number, of in enumerate(config.classes):
        with work.skipped.catching():
            _check_judged(of, testing, config.test_set)
            models[of], losses[of], thresholds[of] = _train(of, training, make_model, loss, work)
        work.say("training", number + 1, len(config.classes))
    work.skipped.check_something_left(len(models), "the classes")
    detections = _score(testing, models, work)
    truths = {of: {scene.name: scene.truth(of) for scene in testing} for of in models}
    found = Found(
        ap={of: voc_ap(detections[of], truths[of]) for of in models},
        ap_11_point={of: voc_ap(detections[of], truths[of], "11-point") for of in models},
        detections=detections,
        losses=losses,
        thresholds=thresholds,
        recall={of: recall(of, testing) for of in models},
        skipped=work.skipped,
        drawings=() if drawings is None else tuple(drawings / f"{scene.name}.png" for scene in testing[:drawn]),
    )
    for scene, path in zip(testing, found.drawings, strict=False):
        shown = {
            of: [item for item in found.detections[of].of(scene.name) if item[1] > thresholds[of]] for of in models
        }
        draw_detections(devkit.image(scene.name), shown, path, {of: scene.truth(of) for of in models})
    return found


def _check_judged(of: str, testing: Sequence[Scene], image_set: str) -> None:
    if not any((~scene.truth(of).difficult).any() for scene in testing):
        raise DirectLossError(f"The class {of!r} has no object in the images of {image_set!r}; it is left out.")


def _train(
    of: str, training: Sequence[Scene], make_model: Callable[[], nn.Module], loss: Loss, work: _Work
) -> tuple[nn.Module, list[float], float]:
    """The detector of a class, its losses, and the threshold between its positives and negatives."""
    config = work.config
    labels = [label_boxes(scene.boxes, scene.truth(of)) for scene in training]
    if not any((part == 1).any() for part in labels):
        raise DirectLossError(f"The class {of!r} has no object in the images of {config.train_set!r}; it is left out.")
    sample = draw_sample(labels, config.per_positive, config.most, of, config.seed)
    inputs = work.gallery.gather(training, sample)
    target = flip_labels(sample.labels, config.noise, "detection", of, config.seed)
    model = seeded(make_model, "detector", of, config.seed)
    values = _fit(model, inputs, target, loss, work, of, 0)
    for number in range(1, config.hard_rounds + 1):
        hard = _hard(of, training, model, len(sample) // 2, work)
        inputs, target = np.concatenate([inputs, hard]), torch.cat([target, torch.zeros(len(hard), dtype=torch.long)])
        values += _fit(model, inputs, target, loss, work, of, number)
    scores = torch.from_numpy(_scores(model, inputs, work))
    return model, values, best_threshold(scores, target)


def _fit(
    model: nn.Module, inputs: NDArray[np.generic], target: Tensor, loss: Loss, work: _Work, of: str, number: int
) -> list[float]:
    """Stochastic gradient descent on minibatches without replacement, epoch after epoch."""
    config = work.config
    optimizer = torch.optim.SGD(
        model.parameters(), config.learning_rate, momentum=config.momentum, weight_decay=config.weight_decay
    )
    draw = generator("minibatches", of, number, config.seed)
    size = min(config.batch_size, len(target))
    order = torch.randperm(len(target), generator=draw)
    values = []
    model.train()
    for _ in range(config.steps):
        if len(order) < size:
            order = torch.randperm(len(target), generator=draw)
        chosen, order = order[:size], order[size:]
        scores = model(work.gallery.view.numbers(inputs[chosen.numpy()]))
        value = loss(scores, target[chosen])
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        values.append(float(value.detach()))
    return values


def _hard(of: str, training: Sequence[Scene], model: nn.Module, most: int, work: _Work) -> NDArray[np.generic]:
    """The rows of the highest-scored negatives of all training images."""
    best: list[tuple[float, NDArray[np.generic]]] = []
    for scene in training:
        labels = label_boxes(scene.boxes, scene.truth(of), negative_below=HARD)
        rows = work.gallery.rows(scene)
        scores = _scores(model, rows, work)
        chosen = hardest_negatives(scores, labels, most)
        best += [(float(scores[index]), rows[index]) for index in chosen]
        best = sorted(best, key=lambda item: -item[0])[:most]
    return np.stack([row for _, row in best])


def _scores(model: nn.Module, rows: NDArray[np.generic], work: _Work) -> NDArray[np.float64]:
    model.eval()
    with torch.no_grad():
        parts = [model(work.gallery.view.numbers(rows[start : start + 512])) for start in range(0, len(rows), 512)]
    scores: NDArray[np.float64] = torch.cat(parts).double().numpy()
    return scores


def _score(testing: Sequence[Scene], models: dict[str, nn.Module], work: _Work) -> dict[str, Detections]:
    """All boxes of all test images by all detectors, without those that a better one of the same class covers."""
    found = {of: Detections() for of in models}
    for done, scene in enumerate(testing, 1):
        rows = work.gallery.rows(scene)
        for of, model in models.items():
            scores = _scores(model, rows, work)
            kept = nms(scene.boxes, scores, work.config.suppression)[: work.config.keep]
            found[of].add(scene.name, scene.boxes[kept], scores[kept])
        work.say("scoring", done, len(testing))
    return found
