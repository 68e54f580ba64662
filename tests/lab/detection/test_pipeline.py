"""Detection end to end: a small devkit, real selective search, a tiny network, AP."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

pytest.importorskip("cv2")

from PIL import Image

import directloss as dl
from directloss.lab.data.images import read_image
from directloss.lab.data.skipping import Skipped
from directloss.lab.data.voc import Devkit, find_devkit
from directloss.lab.detection import DetectionConfig, Found, Search, View, detect, propose_all, read_proposals
from tests.lab.voc.devkits import Item, Scene, write_devkit

COLOURS = {"dog": (220, 40, 40), "cat": (40, 60, 220)}
SEARCH = Search(width=0, least=10)
VIEW = View(size=32, context=2)


def scenes(count: int, offset: int = 0) -> list[Scene]:
    draw = np.random.default_rng(offset)
    found = []
    for k in range(count):
        x, y, w, h = (int(draw.integers(low, high)) for low, high in ((2, 8), (2, 8), (18, 26), (18, 30)))
        dog, cat = Item("dog", (x, y, x + w, y + h)), Item("cat", (x + 38, y + 4, x + 38 + w, y + 4 + h))
        found.append(Scene(f"2009_{offset + k:06d}", [dog, cat], colours=COLOURS))
    return found


@pytest.fixture
def devkit(tmp_path: Path) -> Devkit:
    return find_devkit(write_devkit(tmp_path, {"train": scenes(8), "val": scenes(5, 100)}))


def tiny() -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 16), nn.Tanh(), nn.Linear(16, 1), nn.Flatten(0))


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))


CONFIG = DetectionConfig(classes=("dog", "cat"), steps=60, batch_size=64, learning_rate=0.5, momentum=0.9)


def run(devkit: Devkit, tmp_path: Path, loss: object, **change: object) -> Found:
    given = {"config": CONFIG, "cache": tmp_path / "cache", "view": VIEW, "search": SEARCH, **change}
    return detect(devkit, tiny, loss, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", [dl.DirectLoss("ap"), dl.HingeLoss("ap"), cross_entropy], ids=["pos", "hinge", "xent"])
def test_detects(devkit: Devkit, tmp_path: Path, loss: object) -> None:
    stages: list[str] = []
    found = run(
        devkit, tmp_path, loss, drawings=tmp_path / "drawn", drawn=2, say=lambda stage, *_: stages.append(stage)
    )
    assert list(found.ap) == ["dog", "cat"]
    # Red and blue on grey: easy, and far above the 0.1 or so of an untrained network.
    assert found.mean_ap > 0.5
    assert found.recall == {"dog": 1.0, "cat": 1.0}
    assert all(len(values) == 60 for values in found.losses.values())
    assert not found.skipped.reasons
    assert {"selective search, train", "training", "scoring"} <= set(stages)
    assert [path.name for path in found.drawings] == ["2009_000100.png", "2009_000101.png"]
    with Image.open(found.drawings[0]) as drawn:
        assert drawn.size == (80, 60)
    plain = devkit.image("2009_000100")
    assert (read_image(found.drawings[0]) != plain).any()


def test_threshold_does_not_depend_on_the_offset_of_the_scores(devkit: Devkit, tmp_path: Path) -> None:
    """A ranking loss is blind to a constant added to all scores; what is drawn must be, too."""

    class Shifted(nn.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.inner, self.by = tiny(), by

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.inner(x) + self.by
            return scores

    drawn = []
    for by in (0.0, 64.0):
        found = detect(
            devkit,
            lambda by=by: Shifted(by),
            dl.DirectLoss("ap", epsilon=1.0),
            CONFIG,
            tmp_path / "cache",
            VIEW,
            SEARCH,
        )
        drawn.append([sum(s > found.thresholds[of] for s in found.detections[of].scores) for of in CONFIG.classes])
        assert all(0 < count < len(found.detections[of]) for of, count in zip(CONFIG.classes, drawn[-1], strict=True))
    assert drawn[0] == drawn[1]


def test_untrained_is_bad_and_runs_repeat(devkit: Devkit, tmp_path: Path) -> None:
    config = DetectionConfig(classes=("dog",), steps=3, batch_size=64, learning_rate=1e-9)
    first = run(devkit, tmp_path, dl.DirectLoss("ap"), config=config)
    again = run(devkit, tmp_path, dl.DirectLoss("ap"), config=config)
    assert first.ap == again.ap
    assert first.ap["dog"] < 0.5
    assert first.losses == again.losses


def test_hard_negatives_and_noise(devkit: Devkit, tmp_path: Path) -> None:
    config = DetectionConfig(**{**vars(CONFIG), "hard_rounds": 1, "noise": 0.2})
    found = run(devkit, tmp_path, cross_entropy, config=config)
    assert all(len(values) == 120 for values in found.losses.values())
    clean = run(devkit, tmp_path, cross_entropy)
    assert np.mean(found.losses["dog"][:60]) > np.mean(clean.losses["dog"])


def test_features_are_computed_once(devkit: Devkit, tmp_path: Path) -> None:
    calls: list[int] = []

    def embed(crops: Tensor) -> Tensor:
        calls.append(len(crops))
        return F.avg_pool2d(crops, 8).flatten(1)

    def head() -> nn.Module:
        return nn.Sequential(nn.Linear(48, 16), nn.Tanh(), nn.Linear(16, 1), nn.Flatten(0))

    view = View(size=32, context=2, embed=embed, name="pooled")
    first = detect(devkit, head, dl.DirectLoss("ap"), CONFIG, tmp_path / "cache", view, SEARCH)
    seen = len(calls)
    assert seen > 0
    again = detect(devkit, head, dl.DirectLoss("ap"), CONFIG, tmp_path / "cache", view, SEARCH)
    assert len(calls) == seen
    assert again.ap == first.ap
    assert first.mean_ap > 0.5


def test_bad_files_and_empty_classes_are_left_out(devkit: Devkit, tmp_path: Path) -> None:
    devkit.image_path("2009_000001").unlink()
    devkit.annotation_path("2009_000101").write_text("<annotation>")
    path = devkit.image_path("2009_000002")
    path.write_bytes(path.read_bytes()[:400])
    config = DetectionConfig(**{**vars(CONFIG), "classes": ("dog", "horse"), "steps": 5})
    found = run(devkit, tmp_path, dl.DirectLoss("ap"), config=config)
    assert list(found.ap) == ["dog"]
    text = " ".join(found.skipped.reasons)
    for name in ("2009_000001.jpg", "2009_000002.jpg", "2009_000101.xml", "'horse'"):
        assert text.count(name) == 1
    with pytest.raises(dl.DirectLossError, match=r"2009_000001\.jpg"):
        run(devkit, tmp_path, dl.DirectLoss("ap"), skipped=Skipped(strict=True))
    nothing = DetectionConfig(**{**vars(CONFIG), "classes": ("horse",)})
    with pytest.raises(dl.DirectLossError, match="the classes must have at least one usable"):
        run(devkit, tmp_path, dl.DirectLoss("ap"), config=nothing)


def test_class_that_is_in_the_test_images_alone(tmp_path: Path) -> None:
    lone = [Scene(f"2009_{k:06d}", [Item("dog", (5, 5, 30, 30))]) for k in range(3)]
    devkit = find_devkit(write_devkit(tmp_path, {"train": lone, "val": scenes(2, 100)}))
    found = run(devkit, tmp_path, dl.DirectLoss("ap"), config=DetectionConfig(**{**vars(CONFIG), "steps": 2}))
    assert list(found.ap) == ["dog"]
    assert "'cat' has no object in the images of 'train'" in found.skipped.reasons[0]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_search_is_kept_and_goes_on(devkit: Devkit, tmp_path: Path, workers: int) -> None:
    paths = [devkit.image_path(name) for name in devkit.image_set("val")]
    cache, skipped, seen = tmp_path / "boxes", Skipped(), list[tuple[int, int]]()
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no image")
    count = propose_all([*paths, broken], cache, SEARCH, workers, skipped, lambda *step: seen.append(step))
    assert (count, len(skipped.reasons), seen[-1]) == (5, 1, (6, 6))
    files = sorted(cache.iterdir())
    assert len(files) == 5
    first = {file.name: file.read_bytes() for file in files}
    files[0].write_bytes(first[files[0].name][:50])
    files[1].unlink()
    assert propose_all(paths, cache, SEARCH) == 2
    pixels = read_image(paths[0])
    assert propose_all(paths, cache, Search(width=0, least=11), 1) == 5
    boxes = read_proposals(paths[0], cache, pixels, SEARCH)
    assert boxes.shape[1] == 4
    assert len(boxes) > 3
    assert (boxes[:, 2:] - boxes[:, :2] >= 10).all()
    assert (boxes >= 0).all()
    assert (boxes <= [80, 60, 80, 60]).all()
    assert not list(cache.glob("*.part"))


def test_search_gives_the_same_boxes_and_no_more_than_asked(devkit: Devkit, tmp_path: Path) -> None:
    path = devkit.image_path("2009_000000")
    pixels = read_image(path)
    first = read_proposals(path, tmp_path / "a", pixels, SEARCH)
    assert np.array_equal(read_proposals(path, tmp_path / "b", pixels, SEARCH), first)
    few = read_proposals(path, tmp_path / "c", pixels, Search(width=0, least=10, most=3))
    assert len(few) == 3
    assert {tuple(box) for box in few.tolist()} <= {tuple(box) for box in first.tolist()}
    torch.manual_seed(5)
    assert np.array_equal(read_proposals(path, tmp_path / "d", pixels, Search(width=0, least=10, most=3)), few)
