"""The study of LabelMe runs on files of its format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from directloss_repro.campaign import Cell

from benchmarks import labelme


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Photographs whose features tell the class; of three people one answers at random."""
    folder, draw = tmp_path / "labelme", np.random.default_rng(0)
    folder.mkdir()
    for part, count in (("train", 120), ("test", 40)):
        classes = np.arange(count) % labelme.CLASSES
        np.save(folder / f"LabelMe_VGG_avg_{part}.npy", np.eye(labelme.CLASSES, dtype=np.float32)[classes])
        np.savetxt(folder / f"LabelMe_Z_{part}.txt", classes, fmt="%d")
        if part == "train":
            answers = np.stack([classes, classes, draw.integers(labelme.CLASSES, size=count), np.full(count, -1)], 1)
            np.savetxt(folder / "answers.txt", answers, fmt="%d")
    return tmp_path


@pytest.mark.parametrize("method", labelme.METHODS)
def test_a_run_learns(method: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelme, "HELD", 40)
    monkeypatch.setattr(labelme, "STEPS", 40)
    labelme.parts.cache_clear()
    metric = "macro AP" if method.endswith(", softmax") else "accuracy"
    found = labelme.train_cell(root, 2, Cell(f"one answer / linear / {metric}", method), {}, 0).metrics
    assert set(found) == {"test", "test 0", "test 1"}
    assert found["test"] > 0.8


def test_labels_of_a_crowd() -> None:
    answers = torch.tensor([[2, 2, 5, -1], [-1, 3, -1, -1], [1, 4, -1, -1]]).repeat(200, 1)
    majority, one = (labelme.crowd_labels(answers, labels, 0).view(200, 3) for labels in labelme.LABELS[::-1])
    assert majority[:, 0].unique().tolist() == [2]
    assert one[:, 0].unique().tolist() == [2, 5]
    for drawn in (majority, one):
        assert drawn[:, 1].unique().tolist() == [3]
        assert drawn[:, 2].unique().tolist() == [1, 4]
