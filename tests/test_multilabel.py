"""The study of multi-label classification runs on every kind of data that it knows."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from directloss_repro.campaign import Cell
from directloss_repro.data import Part
from directloss_repro.data.voc import OBJECTS
from directloss_repro.models.alexnet import AlexNet

from benchmarks import multilabel
from tests.repro.voc.devkits import Item, Scene, write_devkit


def write_images(folder: Path, count: int) -> None:
    """Files of MNIST with a bright row at a height that tells the class."""
    folder.mkdir()
    labels = np.arange(count) % 10
    images = np.zeros((count, 28, 28), np.uint8)
    images[np.arange(count), 2 * labels + 3] = 255
    for part in ("train", "t10k"):
        for name, values in (("images-idx3", images), ("labels-idx1", labels.astype(np.uint8))):
            head = struct.pack(f">I{values.ndim}I", 2048 + values.ndim, *values.shape)
            (folder / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(head + values.tobytes()))


@pytest.mark.parametrize("method", multilabel.METHODS)
def test_a_run_learns(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path / "mnist", 80)
    monkeypatch.setattr(multilabel, "TRAIN", 60)
    monkeypatch.setattr(multilabel, "EPOCHS", 40)
    assert multilabel.data(tmp_path) == ("mnist",)
    found = multilabel.train_cell(tmp_path, Cell("mnist", method), {"learning_rate": 0.01}, 0).metrics
    assert found["test"] > 0.6  # 0.17 at the start


def test_photographs(tmp_path: Path) -> None:
    scenes = [Scene(f"image{place}", [Item(name, (10, 10, 50, 50))]) for place, name in enumerate(OBJECTS)]
    write_devkit(tmp_path, {"train": scenes, "val": scenes[:3]})
    assert multilabel.data(tmp_path) == ()  # no weights
    (tmp_path / "alexnet").mkdir()
    torch.save(AlexNet(1).state_dict(), tmp_path / multilabel.WEIGHTS)
    assert multilabel.data(tmp_path) == (multilabel.VOC,)
    train, val, test = multilabel.parts(tmp_path, multilabel.VOC, 0, 0.0)
    assert (len(train), len(val), len(test)) == (15, 5, 3)
    assert train.x.shape[1] == 256 * 6 * 6
    assert torch.equal(test.y, torch.eye(20).long()[:3])


def test_others_labels_are_whole_rows() -> None:
    part = Part(torch.arange(100.0), torch.eye(100).long())
    changed = multilabel.with_others_labels(part, 0.2, 3)
    assert int((changed.y != part.y).any(1).sum()) == 20
    assert torch.equal(changed.y.sum(0), part.y.sum(0))
    assert torch.equal(multilabel.with_others_labels(part, 0.0).y, part.y)
