"""The commands under torchrun: the same records, also when a process is killed on the way."""

from __future__ import annotations

import json
import os
import pickle
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import directloss
from directloss._checks import DirectLossError
from directloss.lab import torchrun
from directloss.lab.cli import main
from directloss.lab.folder import Folder
from directloss.lab.records import RunSpec
from directloss.lab.session import open_pool, workers_of
from directloss.lab.torchrun import LAUNCH, Crew, CrewPool
from tests.lab.tables import FAST, call, write
from tests.lab.tiny import OPTIONS, RUNS, stored

TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "--max-restarts",
    "1",
]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}

# The command, with a helper that stops at its third checkpoint, and tells; later, whoever goes on from there tells.
STOPPING = """
import os, signal
from directloss.lab import checkpoint
from directloss.lab.cli import main

restarted, helper = os.environ["TORCHELASTIC_RESTART_COUNT"] != "0", os.environ["RANK"] == "1"
save, load, saved = checkpoint.Checkpoint.save, checkpoint.Checkpoint.load, []

def stop_at_third(self, state):
    save(self, state)
    saved.append(state)
    if len(saved) == 3:
        os.write(1, f"process {os.getpid()} is at work\\n".encode())
        signal.pause()

def tell(self):
    if (state := load(self)) is not None:
        os.write(1, f"on from iteration {state['iteration']}\\n".encode())
    return state

if restarted:
    checkpoint.Checkpoint.load = tell
elif helper:
    checkpoint.EVERY, checkpoint.Checkpoint.save = 0.0, stop_at_third

if __name__ == "__main__":
    main()
"""


def until(lines: Iterator[str], *conditions: Callable[[str], object]) -> list[str]:
    """Read on until each condition was met by some line; those lines."""
    met: dict[int, str] = {}
    seen = []
    for line in lines:
        seen.append(line)
        met |= {place: line for place, condition in enumerate(conditions) if condition(line)}
        if len(met) == len(conditions):
            return [met[place] for place in range(len(conditions))]
    raise AssertionError("the output ended early:\n" + "".join(seen))


@pytest.mark.slow
def test_a_killed_process_is_replaced_and_the_records_are_those_of_an_undisturbed_run(tmp_path: Path) -> None:
    script, folder, whole = tmp_path / "stopping.py", tmp_path / "run", tmp_path / "whole"
    script.write_text(STOPPING)
    with subprocess.Popen(
        [*TORCHRUN, str(script), *OPTIONS, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdout is not None
        at_work, _ = until(process.stdout, lambda line: "is at work" in line, lambda line: line.startswith("[3/"))
        os.kill(int(at_work.split()[1]), signal.SIGKILL)
        rest = process.stdout.read()
    assert process.returncode == 0, rest
    assert "on from iteration 2\n" in rest
    assert f"of {RUNS} runs to do" in rest  # the restarted run says how many are left
    assert f"{RUNS} of {RUNS} runs to do" not in rest
    assert call(*OPTIONS, "--workers", 1, "--out", whole).exit_code == 0
    assert stored(folder) == stored(whole)
    assert not list(folder.glob("checkpoints/*"))
    assert json.loads((folder / "run.json").read_text())["finished"] is not None
    assert (folder / "report.html").is_file()


def test_fit_under_torchrun_is_fit(tmp_path: Path) -> None:
    data = write(tmp_path, "rows.csv")
    words = ["fit", data, "--target", "outcome", "--metric", "ap", *FAST]
    assert call(*words, "--out", tmp_path / "alone").exit_code == 0
    result = subprocess.run(
        [*TORCHRUN, "-m", "directloss", *map(str, words), "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "Note: --workers 1 is not used: the 2 processes of torchrun train." in result.stdout
    assert result.stdout.count("6 of 6 runs to do") == 1  # one process speaks
    assert stored(tmp_path / "run") == stored(tmp_path / "alone")
    for name in ("model.pt", "predictions.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


# ---------------------------------------------------------------------- the parts, in one process


PLUS = RunSpec("sums", "final", "plus", 0, 0.0, None, {})


@dataclass(frozen=True)
class Sum:
    """A job that adds, or fails in the way that is asked for."""

    a: int
    b: int
    problem: Exception | None = None
    key: str = "sum"
    spec: RunSpec = PLUS

    def run(self) -> dict[str, Any]:
        if self.problem is not None:
            raise self.problem
        return {"sum": self.a + self.b, "process": threading.current_thread().name}


@pytest.fixture
def together() -> Iterator[tuple[Crew, threading.Thread]]:
    """The first of two processes, and the other as a thread."""
    store = dist.HashStore()  # type: ignore[attr-defined]
    first, second = Crew(store, 0, 2), Crew(store, 1, 2)
    helper = threading.Thread(target=second.serve, name="helper", daemon=True)
    helper.start()
    yield first, helper
    first.dismiss()
    helper.join(60)
    assert not helper.is_alive()


def test_a_helper_does_jobs_one_after_the_other(together: tuple[Crew, threading.Thread]) -> None:
    pool = CrewPool(together[0])
    for number in range(3):
        job = Sum(number, 1)
        assert pool.free == 2
        pool.submit(job)
        assert pool.free == 1
        assert pool.collect() == [(job, {"sum": number + 1, "process": "helper"})]
    pool.stop()


def test_what_goes_wrong_at_a_helper_is_raised_here(together: tuple[Crew, threading.Thread]) -> None:
    pool = CrewPool(together[0])
    for problem, kind, words in [
        (DirectLossError("no such data"), DirectLossError, "^no such data$"),
        (PermissionError(13, "no access"), PermissionError, "no access"),
        (KeyError("a bug"), RuntimeError, "(?s)A run failed.*Traceback.*KeyError: 'a bug'"),
    ]:
        pool.submit(Sum(1, 1, problem))
        with pytest.raises(kind, match=words):
            pool.collect()
        together[0].helpers[0].job = None
        pool = CrewPool(together[0])


def test_a_store_that_is_gone_is_said_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(dist.HashStore(), 0, 2)  # type: ignore[attr-defined]
    pool = CrewPool(crew)
    pool.submit(Sum(1, 1))

    def lost() -> bool:
        raise dist.DistNetworkError("connection reset")

    monkeypatch.setattr(crew.helpers[0], "ready", lost)
    with pytest.raises(DirectLossError, match=r"store of torchrun is gone \(connection reset\).*go on with --resume"):
        pool.collect()
    helper = Crew(dist.HashStore(), 1, 2)  # type: ignore[attr-defined]
    monkeypatch.setattr(helper, "_work", lost)
    helper.serve()  # ends, and says nothing


def test_nothing_is_left_in_the_store(together: tuple[Crew, threading.Thread]) -> None:
    crew = together[0]
    pool = CrewPool(crew)
    before = crew.store.num_keys()
    pool.submit(Sum(1, 1))
    pool.collect()
    assert crew.store.num_keys() == before


def restarted(monkeypatch: pytest.MonkeyPatch, times: int = 1, run: str = "this") -> None:
    monkeypatch.setattr(torchrun, "crew", lambda: Crew(dist.HashStore(), 0, 2))  # type: ignore[attr-defined]
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(times))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", run)


def test_only_a_run_of_this_torchrun_is_resumed_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a folder that was refused as not empty would be taken over after the restart."""
    folder = Folder(tmp_path)
    restarted(monkeypatch, 0)
    mine = torchrun.launch()
    for launch, times, expected in [
        (mine, 1, True),
        (mine, 2, True),
        (mine, 0, False),
        (None, 1, False),
        ("x", 1, False),
    ]:
        restarted(monkeypatch, times)
        folder.write({LAUNCH: launch})
        assert torchrun.began_before(folder) is expected
    restarted(monkeypatch, 1, "another")
    folder.write({LAUNCH: mine})
    assert not torchrun.began_before(folder)
    (tmp_path / "run.json").unlink()
    assert not torchrun.began_before(folder)


def test_without_torchrun_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert torchrun.crew() is None
    assert torchrun.launch() is None
    assert workers_of(3) == 3
    assert type(open_pool(1)) is not CrewPool
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    Folder(tmp_path).write({LAUNCH: None})
    assert not torchrun.began_before(Folder(tmp_path))


# ---------------------------------------------------------------------- python -m directloss


def test_python_dash_m(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["directloss", "--version"])
    for module in ("directloss", "directloss.lab"):
        with pytest.raises(SystemExit) as end:
            runpy.run_module(module, run_name="__main__")
        assert end.value.code == 0
        assert capsys.readouterr().out == f"directloss {directloss.__version__}\n"


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("directloss.lab.cli")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"needs typer, which is missing: pip install 'directloss\[lab\]'"):
        runpy.run_module("directloss", run_name="__main__")


def test_the_first_process_lets_the_others_go_only_if_all_went_well(monkeypatch: pytest.MonkeyPatch) -> None:
    for words, code, gone in [(["--version"], 0, True), (["reproduce", "no-such"], 2, False)]:
        crew = Crew(dist.HashStore(), 0, 2)  # type: ignore[attr-defined]
        monkeypatch.setattr("directloss.lab.cli.crew", lambda crew=crew: crew)
        monkeypatch.setattr(sys, "argv", ["directloss", *words])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == code
        assert crew.store.check(["job/1/0"]) is gone
        assert not gone or pickle.loads(crew.store.get("job/1/0")) is None
