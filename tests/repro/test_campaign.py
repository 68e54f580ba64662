"""Campaigns: complete, fair, and the same after any interruption, whoever does the runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import distributed
import pytest
from directloss_repro.campaign import Cell, Listener
from directloss_repro.cli import app
from directloss_repro.config import SEARCH_SEED
from directloss_repro.executors import cluster_workers, local_workers
from directloss_repro.experiments import get_experiment
from directloss_repro.experiments.base import Source
from directloss_repro.records import Record, RecordFile
from directloss_repro.runner import Training, campaign_of, split_of
from typer.testing import CliRunner

from directloss import DirectLossError
from tests.repro.tiny import OPTIONS, RUNS, SETTINGS, stored
from tests.repro.toy import METHODS, TOTAL, Toy, campaign
from tests.repro.toy import SETTINGS as RATES

CONFIG = get_experiment("robustness").config("quick").changed({**SETTINGS, "noise": [0.2], "seeds": 2})
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}


def conduct(folder: Path, which: Any = None) -> list[Record]:
    """Run a campaign in this process; what was new."""
    seen: list[Record] = []
    which = campaign() if which is None else which
    which.run(lambda: local_workers(1), RecordFile(folder), Listener(finished=seen.append))
    return seen


# ---------------------------------------------------------------------- any campaign


def test_every_cell_gets_the_same_budget_and_the_best_setting_gets_fresh_seeds(tmp_path: Path) -> None:
    records = conduct(tmp_path)
    assert len(records) == campaign().total == TOTAL
    for place, method in enumerate(METHODS):
        runs = [record for record in records if record.method == method]
        assert sorted(run.seed for run in runs if run.stage == "search") == [1000] * 3 + [1001] * 3
        assert [run.params for run in runs if run.stage == "final"] == [RATES[place]] * 2
    assert conduct(tmp_path) == []


def test_one_setting_needs_no_search(tmp_path: Path) -> None:
    records = conduct(tmp_path, campaign(settings=lambda cell: [{"rate": 0.1}]))
    assert [record.stage for record in records] == ["final"] * 6


def test_the_first_of_equals_is_chosen_and_a_run_without_a_number_never(tmp_path: Path) -> None:
    class Flat(Toy):
        def __call__(self, cell: Cell, params: dict[str, Any], seed: int) -> Any:
            from directloss_repro.campaign import Outcome

            return Outcome({} if params["rate"] == 0.1 else {"val_ap": 0.5, "test_ap": 0.5})

    records = conduct(tmp_path, campaign(Flat()))
    assert {record.params["rate"] for record in records if record.stage == "final"} == {0.2}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"settings": lambda cell: RATES[: 1 + (cell.method == "a")]}, "settings must be equally many for every cell"),
    ({"seeds": 0}, "seeds must be from 1 to 1000"),
    ({"seeds": 1001}, "seeds must be from 1 to 1000, where the seeds of the search begin, but it is 1001"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message for _, message in BAD])
def test_unfair_campaigns_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DirectLossError, match=message):
        campaign(**changes)


class Crash(Exception):
    pass


@pytest.mark.parametrize("after_writing", [False, True])
@pytest.mark.parametrize("count", [0, 1, 5, 7, TOTAL - 1])
def test_a_crash_at_any_moment_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, after_writing: bool
) -> None:
    append = RecordFile.append

    def failing(self: RecordFile, record: Record) -> None:
        if len(self) == count and not after_writing:
            raise Crash
        append(self, record)
        if len(self) == count + 1:
            raise Crash

    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
    conduct(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(RecordFile, "append", failing)
        with pytest.raises(Crash):
            conduct(tmp_path / "stopped")
    assert len(conduct(tmp_path / "stopped")) == TOTAL - count - after_writing
    assert stored(tmp_path / "stopped") == stored(tmp_path / "whole")


def test_a_record_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    conduct(tmp_path)
    path = tmp_path / "records.jsonl"
    path.write_text(path.read_text().replace('"val_ap":0.8', '"val_ap":0.9', 1))
    with pytest.raises(DirectLossError, match=r"records.jsonl line 5: digest must match its content \(run \w+\)"):
        conduct(tmp_path)


# ---------------------------------------------------------------------- any executor


def in_processes(folder: Path, train: Toy) -> list[str]:
    """Run a campaign in two processes; what was noted."""
    notes: list[str] = []
    campaign(train).run(lambda: local_workers(2), RecordFile(folder), Listener(note=notes.append))
    return notes


def test_any_executor_will_do(tmp_path: Path) -> None:
    for name in ("alone", "threads"):
        (tmp_path / name).mkdir()
    conduct(tmp_path / "alone")
    with ThreadPoolExecutor(3) as executor:
        campaign().run_on(executor, RecordFile(tmp_path / "threads"), lambda: 3)
    assert stored(tmp_path / "threads") == stored(tmp_path / "alone")


def test_a_worker_that_dies_is_replaced_once(tmp_path: Path) -> None:
    for name in ("alone", "dying"):
        (tmp_path / name).mkdir()
    conduct(tmp_path / "alone")
    (note,) = in_processes(tmp_path / "dying", Toy("b", str(tmp_path / "marker")))
    assert note.startswith("A worker process died during ")
    assert "final b, noise 0, seed 0" in note
    assert stored(tmp_path / "dying") == stored(tmp_path / "alone")


def test_a_run_that_kills_its_workers_is_named(tmp_path: Path) -> None:
    with pytest.raises(DirectLossError, match=r"A worker process died twice during .*final b, noise 0, seed 0"):
        in_processes(tmp_path, Toy("b"))
    # All searches are stored but the one that the other worker may have been at, in either of the two attempts.
    assert len(RecordFile(tmp_path)) >= 6 * 2 - 2


def test_errors_of_runs_reach_the_user(tmp_path: Path) -> None:
    wrong = Training("no-such", CONFIG)
    with pytest.raises(DirectLossError, match="experiment must be a known one, but it is 'no-such'"):
        campaign(wrong).run(lambda: local_workers(2), RecordFile(tmp_path))


class Broken(Executor):
    """Refuses everything."""

    def submit(self, *what: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(ZeroDivisionError("a bug"))
        return future


def test_a_bug_names_its_run(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="a bug") as caught:
        campaign().run_on(Broken(), RecordFile(tmp_path))
    assert "In the run: RunSpec(experiment='toy', stage='search', method='a', seed=1000" in caught.value.__notes__[0]


ENDLESS = """
import signal
from directloss_repro.executors import local_workers

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background starts us deaf to it

def endless():
    print("at work", flush=True)
    while True:
        pass

if __name__ == "__main__":
    with local_workers(2) as workers:
        workers.executor.submit(endless).result()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_in_the_middle_of_a_run_end_with_their_parent(tmp_path: Path, how: signal.Signals) -> None:
    """The worker holds the other end of our pipe: it is closed when, and only when, the worker is gone."""
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    command = [sys.executable, str(script)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        process.send_signal(how)
        assert process.stdout.read() == ""


# ---------------------------------------------------------------------- an experiment of the papers


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    assert len(conduct(folder, campaign_of(Training("robustness", CONFIG)))) == RUNS
    return folder


def test_searches_never_see_test_data(whole: Path) -> None:
    for record in stored(whole).values():
        if record["stage"] == "search":
            assert record["seed"] == SEARCH_SEED
            assert set(record["metrics"]) == {"train_ap"}
            assert record["curve"] == {}
        else:
            assert set(record["metrics"]) == {"train_ap", "test_ap", "test_accuracy"}
            assert record["curve"]["iteration"] == [0, 2, 4]
            assert record["curve"]["test_ap"][-1] == pytest.approx(record["metrics"]["test_ap"], abs=1e-6)


def test_all_methods_start_from_the_same_data_and_weights(whole: Path) -> None:
    finals = [record for record in stored(whole).values() if record["stage"] == "final"]
    for seed in (0, 1):
        assert len({record["curve"]["test_ap"][0] for record in finals if record["seed"] == seed}) == 1
    assert len({record["curve"]["test_ap"][0] for record in finals}) == 2


def test_more_seeds_and_methods_extend_a_run(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_bytes((whole / "records.jsonl").read_bytes())
    more = CONFIG.changed({"seeds": 3, "methods": [*CONFIG.methods, "per-ap"]})
    new = conduct(tmp_path, campaign_of(Training("robustness", more)))
    assert [record.method for record in new if record.method != "per-ap"] == list(CONFIG.methods)
    assert len(new) == 4 + 2 + 3
    assert stored(whole).items() <= stored(tmp_path).items()


def test_classes_and_validation_thirds(tmp_path: Path) -> None:
    tiny = {key: SETTINGS[key] for key in ("iterations", "evaluate_every", "hidden", "direct", "hinge", "plain")}
    config = get_experiment("digits-noise").config("quick")
    config = config.changed({**tiny, "methods": ["x-ent"], "noise": [0.1], "seeds": 1})
    records = conduct(tmp_path, campaign_of(Training("digits-noise", config)))
    assert [record.group for record in records] == ["3", "3", "3", "8", "8", "8"]
    assert all({"train_ap", "val_ap"} == set(r.metrics) for r in records if r.stage == "search")
    assert all("test_ap" in r.metrics for r in records if r.stage == "final")


def test_a_run_depends_on_its_description_alone() -> None:
    params = {"learning_rate": 0.01, "weight_decay": 0.0, "epsilon": "auto"}
    training, cell = Training("robustness", CONFIG), Cell(None, "pos-ap", 0.2)
    first = training(cell, params, 0)
    training(cell, params, 1)
    split_of.cache_clear()
    assert training(cell, params, 0) == first


@pytest.mark.slow  # the C++ compiler
@pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::DeprecationWarning:torch")  # about itself
def test_a_compiled_network_learns_the_same_up_to_rounding() -> None:
    cell, params = Cell(None, "x-ent", 0.2), {"learning_rate": 0.01, "weight_decay": 0.0}
    eager, compiled = (Training("robustness", CONFIG, compiled=compiled)(cell, params, 0) for compiled in (False, True))
    assert compiled.metrics == pytest.approx(eager.metrics, abs=1e-4)


def test_selection_on_held_out_data() -> None:
    config = CONFIG.changed({"select_on": "val"})
    split = split_of("robustness", config, 0.2, Source(0, stage="search"))
    everything = split_of("robustness", config, 0.2, Source(0, stage="final"))
    assert split.val is not None
    assert everything.val is None
    assert len(split.val) + len(split.train) == len(everything.train)
    assert len(split.val) == round(len(everything.train) / 3)


def test_labels_are_flipped_in_training_data_only() -> None:
    clean = get_experiment("robustness").config("quick")
    noisy = split_of("robustness", clean, 0.2, Source(0))
    without = split_of("robustness", clean, 0.0, Source(0))
    assert int((noisy.train.y != without.train.y).sum()) == round(0.2 * len(without.train))
    assert bool((noisy.test.y == without.test.y).all())
    both = split_of("linear-noisy", get_experiment("linear-noisy").config("quick"), 0.2, Source(0))
    for part in both.parts().values():
        assert int((part.y != (part.x.sum(1) > 0)).sum()) == 2_000


def test_killed_with_sigkill_and_resumed_equals_uninterrupted(whole: Path, tmp_path: Path) -> None:
    """Two worker processes, SIGKILL after the fifth run, a torn line, and on: the records are those of one process."""
    command = [sys.executable, "-m", "directloss"]
    folder = tmp_path / "run"
    with subprocess.Popen(
        [*command, *OPTIONS, "--workers", "2", "--out", str(folder)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:  # each line is printed after its record is on disk
            if line.startswith("[5/"):
                break
        process.kill()
    assert process.returncode == -signal.SIGKILL
    done = (folder / "records.jsonl").read_text().count("\n")
    assert 5 <= done < RUNS
    with (folder / "records.jsonl").open("a") as file:
        file.write('{"schema":1,"key":"torn')
    words = ["reproduce", "robustness", "--out", str(folder), "--resume", "--workers", "1"]
    resumed = CliRunner(env={"COLUMNS": "200"}).invoke(app, words)
    assert resumed.exit_code == 0, resumed.output
    assert "The last line of records.jsonl is cut off" in resumed.output
    assert f"{RUNS - done} of {RUNS} runs to do" in resumed.output
    assert stored(folder) == stored(whole)
    assert (folder / "report.html").is_file()


# ---------------------------------------------------------------------- a cluster


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A Dask cluster of two worker processes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Dask's own start and end
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as started:
            yield started


def test_a_cluster_that_loses_a_worker_gives_the_same_records(
    whole: Path, tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    victims = [worker.pid for worker in cluster.workers.values()]
    append = RecordFile.append

    def kill_one(self: RecordFile, record: Record) -> None:
        append(self, record)
        if victims:
            os.kill(victims.pop(), signal.SIGKILL)
            victims.clear()

    monkeypatch.setattr(RecordFile, "append", kill_one)
    words = [*OPTIONS, "--cluster", cluster.scheduler_address, "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert not victims
    assert stored(tmp_path / "run") == stored(whole)


def test_an_address_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("directloss_repro.executors.TIMEOUT", 0.2)
    with (
        pytest.raises(DirectLossError, match="--cluster must be the address of a Dask scheduler that answers"),
        cluster_workers("tcp://127.0.0.1:1"),
    ):
        pass
