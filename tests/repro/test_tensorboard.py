"""What TensorBoard finds: every step once, whatever happened to the run, and the results of every record."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from directloss_repro.checkpoint import Checkpoint
from directloss_repro.data import Part
from directloss_repro.records import RunSpec
from directloss_repro.tensorboard import Board
from directloss_repro.training import Schedule, Trained, train
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn

from tests.repro.test_cli import call
from tests.repro.tiny import OPTIONS, RUNS, stored

SPEC = RunSpec("x", "final", "pos-ap", 0, 0.0, "potted/plant", {"learning_rate": 0.1, "epsilon": "auto"})


def reader(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return found


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = reader(folder)
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


class Stop(Exception):
    """The power failed."""


def run(board: Board, folder: Path, stop_at: int | None = None, every: float = 0.0) -> Trained:
    torch.manual_seed(0)
    x = torch.randn(40, 3)
    part, model, steps = Part(x, (x[:, 0] > 0).long()), nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), []

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        if len(steps) == stop_at:
            raise Stop
        steps.append(0)
        return nn.functional.binary_cross_entropy_with_logits(scores, target.float())

    schedule = Schedule(30, 0.05, evaluate_every=7, batch_size=8, seed=4)
    watch = {"train_mean": lambda network: float(network(x).mean())}
    return train(
        model, loss, part, schedule, lambda network: {name: of(network) for name, of in watch.items()},
        checkpoint=Checkpoint(folder, "key", every), report=board,
    )  # fmt: skip


@pytest.mark.parametrize("every", [0.0, 1e9], ids=["from a checkpoint", "from the start"])
def test_stopped_and_resumed_has_every_step_once(tmp_path: Path, every: float) -> None:
    with pytest.raises(Stop):
        run(Board(tmp_path, SPEC, "01234567"), tmp_path, stop_at=17, every=every)
    (folder,) = tmp_path.glob("final/*")
    assert folder.name == "pos-ap_potted-plant_seed-0_01234567"
    assert [step for step, _ in scalars(folder)["train/mean"]] == [0, 7, 14]
    trained = run(Board(tmp_path, SPEC, "01234567"), tmp_path)
    steps, values = zip(*scalars(folder)["train/mean"], strict=True)
    assert list(steps) == trained.curve["iteration"] == [0, 7, 14, 21, 28, 30]
    assert list(values) == pytest.approx(trained.curve["train_mean"])


def test_reproduce_writes_a_folder_for_each_run(tmp_path: Path) -> None:
    command = [*OPTIONS, "--methods", "pos-ap,x-ent", "--workers", 1, "--out", tmp_path, "--tensorboard"]
    assert call(*command).exit_code == 0
    runs = {path.name.rpartition("_")[2]: path for path in (tmp_path / "tensorboard").glob("*/*")}
    records = stored(tmp_path)
    assert len(runs) == RUNS // 2
    assert {key[:8] for key in records} == set(runs)
    for key, record in records.items():
        found = scalars(runs[key[:8]])
        for name, value in record["metrics"].items():
            assert found[f"result/{name}"] == [(0, pytest.approx(value, abs=1e-6))]
        for name, values in record["curve"].items():
            if name != "iteration":
                assert [value for _, value in found[name.replace("_", "/", 1)]] == pytest.approx(values, abs=1e-5)
        assert "_hparams_/session_end_info" in reader(runs[key[:8]]).summary_metadata
