"""The studies of segmentation: their readers, and the losses that were written from formulas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from directloss_repro.campaign import Cell
from directloss_repro.data import Part

import directloss as dl

cv2 = pytest.importorskip("cv2")
from benchmarks import camvid, pets, segmentation  # noqa: E402

CLASSES = VOID = camvid.CAMVID.classes


@pytest.fixture
def scores_and_classes() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    target = torch.randint(0, 4, (2, 9, 12), generator=draw)
    target[0, 0] = VOID
    return torch.randn(2, CLASSES, 9, 12, generator=draw), target


def write_images(root: Path, part: str, count: int = 1) -> None:
    for folder, shape in ((part, (360, 480, 3)), (f"{part}annot", (360, 480))):
        (root / folder).mkdir()
        for number in range(count):
            pixels = np.full(shape, 255 if folder == part else 3, dtype=np.uint8)
            cv2.imwrite(str(root / folder / f"{number}.png"), pixels)


def test_images_and_labels_are_read(tmp_path: Path) -> None:
    write_images(tmp_path, "train")
    part = camvid.part(tmp_path, "train")
    assert part.x.shape == (1, 3, 72, 96)
    assert part.y.shape == (1, 72, 96)
    assert float(part.x.max()) == 0.5
    assert part.y.unique().tolist() == [3]
    with pytest.raises(SystemExit, match="holds no images"):
        camvid.part(tmp_path, "val")


def test_trimaps_are_classes_with_a_void_border(tmp_path: Path) -> None:
    for folder in ("images", "annotations/trimaps"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "annotations" / "test.txt").write_text("# a comment\ncat_1 1 1 1\n")
    cv2.imwrite(str(tmp_path / "images" / "cat_1.jpg"), np.zeros((192, 96, 3), np.uint8))
    trimap = np.repeat(np.array([[1, 2, 3]], np.uint8), 192, 0).repeat(32, 1)
    cv2.imwrite(str(tmp_path / "annotations" / "trimaps" / "cat_1.png"), trimap)
    part = pets.part(tmp_path, "test")
    assert part.x.shape == (1, 3, 96, 96)
    assert part.y[0, 0, ::32].tolist() == [1, 0, 2]


def test_lovasz_of_certain_pixels_is_one_minus_the_mean_iou(scores_and_classes: tuple[torch.Tensor, ...]) -> None:
    scores, target = scores_and_classes
    expected = dl.AveragedLoss("iou", ignore_index=VOID)(scores, target)
    certain = 1e4 * torch.nn.functional.one_hot(scores.argmax(1), CLASSES).movedim(-1, 1)
    torch.testing.assert_close(segmentation.lovasz(certain, target), expected)


@pytest.mark.parametrize("method", segmentation.LOSSES)
def test_void_has_no_gradient(method: str, scores_and_classes: tuple[torch.Tensor, ...]) -> None:
    scores, target = scores_and_classes
    scores.requires_grad_()
    segmentation.loss_of(method, camvid.CAMVID, 0)(scores, target).backward()
    assert scores.grad is not None
    assert not scores.grad[0, :, 0].any()
    assert scores.grad[0, :, 1].any()


def test_measures_are_those_of_the_library(scores_and_classes: tuple[torch.Tensor, ...]) -> None:
    scores, target = scores_and_classes
    found = segmentation.measures(torch.nn.Identity(), Part(scores, target), CLASSES, "test")
    value = 1 - dl.AveragedLoss("iou", ignore_index=VOID)(scores, target)
    assert found["test"] == pytest.approx(float(value), abs=1e-6)
    real = target != VOID
    assert found["test accuracy"] == pytest.approx(float((scores.argmax(1) == target)[real].float().mean()))


def test_images_turn_with_their_labels() -> None:
    x = torch.arange(24.0).reshape(2, 1, 3, 4).expand(40, 2, 1, 3, 4).reshape(80, 1, 3, 4)
    batch = segmentation.flipped(Part(x, x[:, 0].long()), torch.Generator().manual_seed(0))
    assert (batch.x[:, 0] == batch.y).all()
    turned = (batch.x != x).flatten(1).any(1)
    assert 20 < int(turned.sum()) < 60


def test_a_run_trains_and_keeps_its_pictures(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        write_images(tmp_path, part, 4)
    scenes = camvid.CAMVID._replace(epochs=8)
    cell = Cell("CamVid", "x-ent + dice")
    outcome = segmentation.train_cell(scenes, tmp_path, tmp_path / "out", cell, {"learning_rate": 0.01}, seed=0)
    assert outcome.metrics["test"] == 1.0
    chosen = cv2.imread(str(tmp_path / "out" / "chosen" / "x-ent+dice.png"), cv2.IMREAD_UNCHANGED)
    assert chosen.shape == (3 * 72, 96)
    assert (chosen == 3).all()
    truth, photographs = (
        cv2.imread(str(tmp_path / "out" / "chosen" / f"{name}.png"), cv2.IMREAD_UNCHANGED)
        for name in ("truth", "photographs")
    )
    assert (truth == 3).all()
    assert photographs.shape == (3 * 72, 96, 3)
    assert (photographs == 255).all()
