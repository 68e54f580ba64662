"""The study of learning to rank runs on files of LETOR's format, and measures what it says."""

from __future__ import annotations

import importlib.util
import lzma
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from directloss_repro.campaign import Cell

from benchmarks import letor

FAST = [
    *((model, loss) for model in letor.MODELS for loss in letor.LOSSES),
    *((letor.TREE_GROUP, method) for method in letor.METHODS[letor.TREE_GROUP]),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Five parts, one of them packed; the first feature tells the grade."""
    folder, draw = tmp_path / "mq2008", np.random.default_rng(0)
    folder.mkdir()
    for part in range(letor.FOLDS):
        lines = []
        for query in range(11 if part else 12):
            for place in range(int(draw.integers(3, 13))):
                grade = int(draw.integers(3)) if query else 0  # the first query has nothing relevant
                values = [grade / 2 + 0.1 * draw.random(), *draw.random(letor.FEATURES - 1)]
                features = " ".join(f"{number}:{value:.6f}" for number, value in enumerate(values, 1))
                lines.append(f"{grade} qid:{100 * part + query} {features} #docid = {place}\n")
        text = "".join(lines).encode()
        if part:
            (folder / f"S{part + 1}.txt").write_bytes(text)
        else:
            (folder / "S1.txt.xz").write_bytes(lzma.compress(text))
    return tmp_path


@pytest.mark.parametrize(("group", "method"), FAST)
@pytest.mark.filterwarnings("ignore:.*lists have nothing to rank")
def test_a_run_learns(group: str, method: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if method.startswith("CatBoost") and importlib.util.find_spec("catboost") is None:
        pytest.skip("catboost is not installed")
    for name, value in (("BATCH", 8), ("STEPS", 40), ("ROUNDS", 10), ("FIRST", 5)):
        monkeypatch.setattr(letor, name, value)
    monkeypatch.setitem(letor.TREES["catboost"], "iterations", 10)
    found = letor.train_cell(root, 1, Cell(group, method, 0.0), {}, 0).metrics
    assert set(found) == {*letor.METRICS, *(f"{name} {fold}-0" for name in letor.METRICS for fold in range(1, 6))}
    assert all(0.7 < found[name] <= 1 for name in letor.METRICS)  # one query of eleven counts as 0


def test_folds_are_the_official_ones() -> None:
    assert [letor.split(fold) for fold in (0, 1, 4)] == [
        ([0, 1, 2], [3], [4]),
        ([1, 2, 3], [4], [0]),
        ([4, 0, 1], [2], [3]),
    ]


def test_noise_leaves_the_test_part_alone(root: Path) -> None:
    data = letor.queries(root)
    changed = letor.noisy_grades(data, 1, 0.5, 0) != data.grades
    assert not changed[data.documents([0])].any()
    assert all(changed[data.documents([part])].any() for part in (1, 2, 3, 4))
    assert not (letor.noisy_grades(data, 1, 0.0, 0) != data.grades).any()


def test_metrics_count_every_query() -> None:
    grades = torch.tensor([[0, 2, 1], [0, 0, 0], [1, 0, 0]])
    mask = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])  # the last is no query
    found = letor.measured(torch.tensor([[1.0, 3.0, 2.0]] * 3), grades, mask)
    assert {name: value.item() for name, value in found.items()} == {"ndcg": 0.5, "map": 0.5}


def test_approximate_ndcg_of_clear_scores_is_ndcg() -> None:
    draw = torch.Generator().manual_seed(0)
    grades = torch.randint(3, (2, 4, 60), generator=draw)
    lengths = torch.tensor([5, 16, 40, 60])
    mask = (torch.arange(60) < lengths[:, None]).expand(2, 4, 60)
    scores = torch.randn(2, 4, 60, generator=draw)
    exact = letor.dl.metrics.graded_ndcg(scores, grades, mask=mask).mean()
    torch.testing.assert_close(1 - letor.approximate_ndcg(1e6 * scores, grades, mask), exact)


def test_catboost_is_left_out_with_a_message(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    cells = letor.study(Namespace(data_root=root, seeds=1, show=False)).cells
    assert cells
    assert not any(cell.method.startswith("CatBoost") for cell in cells)
    assert letor.NO_CATBOOST in capsys.readouterr().err
    cells = letor.study(Namespace(data_root=root, seeds=1, show=True)).cells
    assert any(cell.method.startswith("CatBoost") for cell in cells)
