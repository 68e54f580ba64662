"""What TensorBoard finds: every step once, whatever happened to the run, and the results of every record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from directloss_repro import tensorboard
from directloss_repro.checkpoint import Checkpoint
from directloss_repro.cli import app
from directloss_repro.data import Part
from directloss_repro.schedule import Schedule
from directloss_repro.tensorboard import Board, Results
from directloss_repro.training import Trained, train
from torch import Tensor, nn
from typer.testing import CliRunner, Result

from tests.repro.tiny import OPTIONS, RUNS, stored

pytest.importorskip("tensorboard")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SMALL = [*OPTIONS, "--methods", "pos-ap,x-ent", "--workers", 1]
HPARAMS = "_hparams_/session_end_info"


def call(*words: object) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(word) for word in words])


def reader(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return found


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = reader(folder)
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


class Stop(Exception):
    """The power failed."""


def run(board: Board, folder: Path | None = None, stop_at: int | None = None, every: float = 0.0) -> Trained:
    torch.manual_seed(0)
    x = torch.randn(40, 3)
    part, model, steps = Part(x, (x[:, 0] > 0).long()), nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), []

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        if len(steps) == stop_at:
            raise Stop
        steps.append(0)
        return nn.functional.binary_cross_entropy_with_logits(scores, target.float())

    checkpoint = None if folder is None else Checkpoint(folder, "key", every)
    schedule = Schedule(30, 0.05, evaluate_every=7, batch_size=8, seed=4)
    watch = {"train_mean": lambda network: float(network(x).mean())}
    return train(
        model, loss, part, schedule, lambda network: {name: of(network) for name, of in watch.items()},
        checkpoint=checkpoint, board=board,
    )  # fmt: skip


def test_loss_and_curve_as_they_come(tmp_path: Path) -> None:
    trained = run(Board(tmp_path / "run", every=5))
    found = scalars(tmp_path / "run")
    assert [step for step, _ in found["train/loss"]] == [0, 5, 10, 15, 20, 25]
    steps, values = zip(*found["train/mean"], strict=True)
    assert list(steps) == trained.curve["iteration"]
    assert list(values) == pytest.approx(trained.curve["train_mean"])


@pytest.mark.parametrize("every", [0.0, 1e9], ids=["from a checkpoint", "from the start"])
def test_stopped_and_resumed_has_every_step_once(tmp_path: Path, every: float) -> None:
    run(Board(tmp_path / "whole"))
    with pytest.raises(Stop):
        run(Board(tmp_path / "parts"), tmp_path, stop_at=17, every=every)
    assert [step for step, _ in scalars(tmp_path / "parts")["train/loss"]] == list(range(17))
    run(Board(tmp_path / "parts"), tmp_path)
    assert scalars(tmp_path / "parts") == scalars(tmp_path / "whole")
    assert len(scalars(tmp_path / "whole")["train/loss"]) == 30


def test_killed_before_anything_was_closed(tmp_path: Path) -> None:
    """What was written before the last checkpoint is on disk, even if the process never comes to close the file."""
    board = Board(tmp_path / "run")
    board.begin(0)
    board.loss(0, 0.5)
    board.flush()
    assert scalars(tmp_path / "run") == {"train/loss": [(0, 0.5)]}
    board.close()


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board") / "run"
    result = call(*SMALL, "--out", folder, "--tensorboard")
    assert result.exit_code == 0, result.output
    return folder


def runs_of(folder: Path) -> dict[str, Path]:
    """The folder of each run, by the beginning of its key."""
    return {path.name.rpartition("_")[2]: path for path in (folder / "tensorboard").glob("*/*")}


def check_results(folder: Path) -> None:
    records, runs = stored(folder), runs_of(folder)
    assert {key[:8] for key in records} == set(runs)
    for key, record in records.items():
        found = scalars(runs[key[:8]])
        for name, value in record["metrics"].items():
            assert found[f"result/{name}"] == [(0, pytest.approx(value, abs=1e-6))]
        for name, values in record["curve"].items():
            if name != "iteration":
                tag = name.replace("_", "/", 1)
                assert [value for _, value in found[tag]] == pytest.approx(values, abs=1e-5)
        assert HPARAMS in reader(runs[key[:8]]).summary_metadata


def test_reproduce_writes_a_folder_for_each_run(reproduced: Path) -> None:
    assert len(runs_of(reproduced)) == RUNS // 2
    check_results(reproduced)
    some = scalars(next(iter(runs_of(reproduced).values())))
    assert [step for step, _ in some["train/loss"]] == [0, 1, 2, 3]
    assert not list((reproduced / "tensorboard").glob("tmp*"))


def test_results_that_are_missing_are_made_up_for_and_others_left_alone(reproduced: Path) -> None:
    files = sorted((reproduced / "tensorboard").rglob("*tfevents*"))
    lost = next(path for path in files if path.name.endswith(tensorboard.ENDED))
    times = {path: path.stat().st_mtime_ns for path in files}
    lost.unlink()
    result = call("reproduce", "robustness", "--out", reproduced, "--resume", "--workers", 1)  # remembers the option
    assert result.exit_code == 0, result.output
    check_results(reproduced)
    kept = {path: path.stat().st_mtime_ns for path in files if path != lost}
    assert kept == {path: time for path, time in times.items() if path != lost}


def test_asked_for_afterwards(tmp_path: Path, reproduced: Path) -> None:
    (tmp_path / "old").mkdir()
    for name in ("run.json", "records.jsonl", "search.db"):
        (tmp_path / "old" / name).write_bytes((reproduced / name).read_bytes())
    info = json.loads((tmp_path / "old" / "run.json").read_text())
    assert "--tensorboard" in info["command"]
    del info["tensorboard"]
    (tmp_path / "old" / "run.json").write_text(json.dumps(info))
    result = call("reproduce", "robustness", "--out", tmp_path / "old", "--resume", "--workers", 1, "--tensorboard")
    assert result.exit_code == 0, result.output
    check_results(tmp_path / "old")


def test_without_tensorboard_it_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    result = call(*SMALL, "--out", tmp_path / "run", "--tensorboard")
    assert result.exit_code != 0
    assert "--tensorboard needs the package tensorboard, but it is not installed" in result.output
    assert 'pip install "directloss[integrations]"' in result.output
    assert not (tmp_path / "run").exists()


def test_names_of_classes_make_folders(tmp_path: Path) -> None:
    record: dict[str, Any] = {
        "stage": "final", "method": "pos-ap", "noise": 0.0, "class": "potted/plant", "seed": 0, "key": "0123456789",
        "params": {"learning_rate": 0.1, "epsilon": "auto"}, "metrics": {"test_ap": 0.5}, "curve": {},
    }  # fmt: skip
    Results(tmp_path).add(record)
    Results(tmp_path).add(record)
    (folder,) = tmp_path.glob("*/*")
    assert folder.name == "pos-ap_potted-plant_seed-0_01234567"
    assert len(list(folder.iterdir())) == 1
