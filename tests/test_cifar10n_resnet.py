"""The study of a ResNet on CIFAR-10N runs on files of its format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from directloss_repro.campaign import Cell
from directloss_repro.models import ResNet20

from benchmarks import cifar10n_resnet as study


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Images whose colour tells the class; one answer in five is random."""
    folder, draw = tmp_path / "cifar-10-batches-bin", np.random.default_rng(0)
    folder.mkdir()
    classes = np.arange(600, dtype=np.uint8) % study.CLASSES
    colours = draw.integers(256, size=(study.CLASSES, 3), dtype=np.uint8)
    pixels = colours[classes].repeat(32 * 32, 1)
    records = np.concatenate([classes[:, None], pixels], 1)
    for place, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        records[100 * place : 100 * (place + 1)].tofile(folder / f"{name}.bin")
    (tmp_path / "cifar-10n").mkdir()
    answers = np.where(draw.random(500) < 0.2, draw.integers(study.CLASSES, size=500), classes[:500])
    np.savez(tmp_path / "cifar-10n" / "labels.npz", worse_label=answers)
    return tmp_path


@pytest.mark.parametrize("method", study.METHODS)
def test_a_run_learns(method: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FITTING": 400, "HELD": 100, "BATCH": 20, "EPOCHS": 3, "LOOKS": 3, "COMPILED": False}.items():
        monkeypatch.setattr(study, name, value)
    monkeypatch.setattr(study, "ResNet20", lambda *sizes, bfloat16: ResNet20(*sizes, width=4))
    study.parts.cache_clear()
    data = study.parts(root, "worse_label")
    assert [len(data[name]) for name in ("train", "val", "test")] == [400, 100, 100]
    assert abs(float(data["train"].x.mean())) < 1e-4
    found = study.train_cell(root, Cell("worse_label", method), {"learning_rate": 0.01}, 0)
    study.parts.cache_clear()
    assert set(found.metrics) == {"val", "test"}
    assert found.metrics["test"] > 0.4
    assert len(found.curve["test"]) == 4
