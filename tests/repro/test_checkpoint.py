"""Stopped at any moment and resumed is the same as never stopped; files that are not ours are refused."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from directloss_repro.checkpoint import FORMAT, Checkpoint
from directloss_repro.data import Part
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import Schedule, Trained, train
from torch import Tensor, nn

from directloss import DirectLossError

KEY = "0123456789abcdef"


class Net(nn.Module):
    """With everything that has a memory of its own: batch norm and dropout."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        layers = [nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, 1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layers(x).squeeze(-1)
        return scores


def jitter(batch: Part, draw: torch.Generator) -> Part:
    return Part(batch.x + 0.1 * torch.randn(batch.x.shape, generator=draw), batch.y)


class Stop(Exception):
    """The power failed."""


def run(
    folder: Path | None,
    optimizer: str = "sgd",
    stop_at: int | None = None,
    every: float = 0.0,
    seen: list[int] | None = None,
) -> tuple[Trained, dict[str, Tensor]]:
    """Ten epochs of a noisy training, perhaps stopped in the middle of an iteration."""
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    part = Part(x, (x[:, 0] > 0).long())
    model = seeded(Net, "weights")
    draw = generator("loss")
    steps: list[int] = seen if seen is not None else []

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        if len(steps) == stop_at:
            raise Stop
        steps.append(len(steps))
        noise = 0.1 * torch.randn(scores.shape, generator=draw)
        return nn.functional.binary_cross_entropy_with_logits(scores + noise, target.float())

    schedule = Schedule(60, 0.05, 0.01, optimizer, evaluate_every=7, batch_size=8, seed=4, drops=(20, 45), factor=0.5)
    trained = train(
        model,
        loss,
        part,
        schedule,
        lambda network: {"mean": float(network(part.x).mean())},
        augment=jitter,
        draws={"loss": draw},
        checkpoint=Checkpoint(folder, KEY, every) if folder is not None else None,
    )
    return trained, {name: value.clone() for name, value in model.state_dict().items()}


def check_same(left: tuple[Trained, dict[str, Tensor]], right: tuple[Trained, dict[str, Tensor]]) -> None:
    assert left[0].curve == right[0].curve
    assert left[1].keys() == right[1].keys()
    for name, value in left[1].items():
        assert torch.equal(value, right[1][name]), name


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop"])
@pytest.mark.parametrize("stop_at", [1, 13, 20, 59])
def test_stopped_and_resumed_is_bit_identical(tmp_path: Path, optimizer: str, stop_at: int) -> None:
    whole = run(None, optimizer)
    with pytest.raises(Stop):
        run(tmp_path, optimizer, stop_at)
    seen: list[int] = []
    check_same(run(tmp_path, optimizer, seen=seen), whole)
    assert len(seen) == 60 - stop_at  # it did go on, and did not start again


def test_stopped_many_times(tmp_path: Path) -> None:
    whole = run(None)
    for _ in range(20):
        with pytest.raises(Stop):
            run(tmp_path, stop_at=2)
    check_same(run(tmp_path), whole)


def test_a_training_without_checkpoints_and_one_with_are_the_same(tmp_path: Path) -> None:
    check_same(run(tmp_path), run(None))


def test_checkpoints_come_after_a_while_only(tmp_path: Path) -> None:
    run(tmp_path, every=3600.0)
    assert list(tmp_path.iterdir()) == []


def test_time_spent_is_remembered(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        run(tmp_path, stop_at=30)
    assert run(tmp_path)[0].seconds_before > 0


CHILD = """
import sys
from pathlib import Path
from tests.repro.test_checkpoint import run

class Loud(list):
    def append(self, step):
        super().append(step)
        print(step, flush=True)

run(Path(sys.argv[1]), seen=Loud())
"""


def test_killed_with_sigkill_and_resumed_is_bit_identical(tmp_path: Path) -> None:
    lines = 31  # of 60 iterations, each announced by a line
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=root) as process:
        assert process.stdout is not None
        for _ in range(lines):
            assert process.stdout.readline()
        process.kill()
    assert process.returncode == -signal.SIGKILL
    seen: list[int] = []
    check_same(run(tmp_path, seen=seen), run(None))
    assert 0 < len(seen) <= 60 - lines + 1


# ---------------------------------------------------------------------- files


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A folder with the checkpoint of a stopped run."""
    with pytest.raises(Stop):
        run(tmp_path, stop_at=10)
    return tmp_path / f"{KEY}.pt"


def packed(content: bytes) -> bytes:
    return FORMAT + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def saved(values: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(values, buffer)
    return packed(buffer.getvalue())


class Evil:
    def __reduce__(self) -> Any:
        return (os.mkdir, ("should-not-exist",))


def flipped(raw: bytes) -> bytes:
    return raw[:-200] + bytes([raw[-200] ^ 1]) + raw[-199:]


BAD: list[tuple[Any, str]] = [
    (lambda raw: b"", "must be a checkpoint of this library"),
    (lambda raw: b"directloss checkpoint 9\n" + raw, "must be a checkpoint of this library"),
    (lambda raw: raw[:40], "must be a whole checkpoint, but it is damaged or cut off"),
    (lambda raw: raw[:-1], "must be a whole checkpoint, but it is damaged or cut off"),
    (flipped, "must be a whole checkpoint, but it is damaged or cut off"),
    (lambda raw: packed(pickle.dumps(Evil())), "must hold tensors and numbers only"),
    (lambda raw: saved(Evil()), "must hold tensors and numbers only"),
    (lambda raw: saved({"key": "another", "state": {}}), f"must belong to the run {KEY}, but it is a checkpoint of"),
    (lambda raw: saved([1]), f"must belong to the run {KEY}"),
    (lambda raw: saved({"key": KEY, "state": {}}), "must fit the network and the optimizer of this run"),
    (
        lambda raw: saved({"key": KEY, "state": {"model": Net(7).state_dict()}}),
        "must fit the network and the optimizer of this run",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_files_are_refused(stored: Path, change: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stored.parent)
    stored.write_bytes(change(stored.read_bytes()))
    with pytest.raises(DirectLossError) as caught:
        run(stored.parent)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(stored))
    assert str(caught.value).endswith("Delete the file to start this run from the beginning.")
    assert not Path("should-not-exist").exists()


def test_a_write_that_fails_leaves_the_old_checkpoint(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored.read_bytes()

    def no_room(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(OSError, match="No space left"):
        run(stored.parent)
    assert stored.read_bytes() == before
    assert [path.name for path in stored.parent.iterdir()] == [stored.name]
