"""Whole experiments: complete, fair, and the same after any interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from directloss_repro.campaign import Campaign
from directloss_repro.config import SEARCH_SEED, Config
from directloss_repro.experiments import EXPERIMENTS, Source
from directloss_repro.pool import Pool
from directloss_repro.records import RecordFile, RunSpec
from directloss_repro.runner import Job, execute, prepare
from directloss_repro.search import close_storage, open_storage

from directloss import DirectLossError
from tests.repro.tiny import OPTIONS, RUNS, SETTINGS, stored

CONFIG = EXPERIMENTS["robustness"].config("quick").changed({**SETTINGS, "noise": [0.2], "seeds": 2})


def conduct(folder: Path, config: Config = CONFIG, experiment: str = "robustness") -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    seen: list[dict[str, Any]] = []
    storage = open_storage(f"journal:{folder}/search.log")  # faster than SQLite, which the test of SIGKILL uses
    try:
        campaign = Campaign(experiment, config, storage, RecordFile(folder), observe=seen.append)
        assert campaign.total == RUNS or config is not CONFIG
        campaign.run(Pool(1))
    finally:
        close_storage(storage)
    return seen


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    assert len(conduct(folder)) == RUNS
    return folder


def test_every_method_gets_the_same_budget_and_the_same_seeds(whole: Path) -> None:
    for method in CONFIG.methods:
        runs = [record for record in stored(whole).values() if record["method"] == method]
        assert sorted(run["seed"] for run in runs if run["stage"] == "search") == [SEARCH_SEED] * 2
        assert sorted(run["seed"] for run in runs if run["stage"] == "final") == [0, 1]


def test_final_runs_use_the_best_setting_of_the_search(whole: Path) -> None:
    for method in CONFIG.methods:
        runs = [record for record in stored(whole).values() if record["method"] == method]
        best = max((run for run in runs if run["stage"] == "search"), key=lambda run: run["metrics"]["train_ap"])
        assert all(run["params"] == best["params"] for run in runs if run["stage"] == "final")


def test_searches_never_see_test_data(whole: Path) -> None:
    for record in stored(whole).values():
        if record["stage"] == "search":
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


def test_a_complete_folder_has_nothing_left_to_do(whole: Path) -> None:
    before = (whole / "records.jsonl").read_bytes()
    assert conduct(whole) == []
    assert (whole / "records.jsonl").read_bytes() == before


class Crash(Exception):
    pass


@pytest.mark.parametrize("after_writing", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 5, RUNS - 1])
def test_a_crash_at_any_moment_changes_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, after_writing: bool
) -> None:
    append = RecordFile.append

    def failing(self: RecordFile, record: dict[str, Any]) -> None:
        if len(self) == count and not after_writing:
            raise Crash
        append(self, record)
        if len(self) == count + 1:
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(RecordFile, "append", failing)
        with pytest.raises(Crash):
            conduct(tmp_path)
    assert len(stored(tmp_path)) == count + after_writing if count or after_writing else True
    conduct(tmp_path)
    assert stored(tmp_path) == stored(whole)


@pytest.mark.parametrize("lost", ["search.log", "records.jsonl"])
def test_either_file_alone_is_enough_to_go_on(whole: Path, tmp_path: Path, lost: str) -> None:
    for name in {"search.log", "records.jsonl"} - {lost}:
        (tmp_path / name).write_bytes((whole / name).read_bytes())
    conduct(tmp_path)
    assert stored(tmp_path) == stored(whole)


def test_more_seeds_and_methods_extend_a_run(whole: Path, tmp_path: Path) -> None:
    for name in ("search.log", "records.jsonl"):
        (tmp_path / name).write_bytes((whole / name).read_bytes())
    more = CONFIG.changed({"seeds": 3, "methods": [*CONFIG.methods, "per-ap"]})
    new = conduct(tmp_path, more)
    assert [record["method"] for record in new if record["method"] != "per-ap"] == list(CONFIG.methods)
    assert len(new) == 4 + 2 + 3
    assert stored(whole).items() <= stored(tmp_path).items()


def test_classes_and_validation_thirds(tmp_path: Path) -> None:
    tiny = {key: SETTINGS[key] for key in ("iterations", "evaluate_every", "hidden", "direct", "hinge", "plain")}
    config = EXPERIMENTS["digits-noise"].config("quick")
    config = config.changed({**tiny, "methods": ["x-ent"], "noise": [0.1], "seeds": 1, "points": 90})
    conduct(tmp_path, config, "digits-noise")
    records = stored(tmp_path).values()
    assert sorted({record["class"] for record in records}) == ["3", "8"]
    assert len(records) == 2 * (2 + 1)
    assert all({"train_ap", "val_ap"} == set(r["metrics"]) for r in records if r["stage"] == "search")
    assert all("test_ap" in r["metrics"] for r in records if r["stage"] == "final")


# ---------------------------------------------------------------------- one run


def job(stage: str = "final", select: str = "train", method: str = "pos-ap", seed: int = 0) -> Job:
    params: dict[str, float | str] = {"learning_rate": 0.01, "weight_decay": 0.0, "epsilon": "auto"}
    spec = RunSpec("robustness", stage, method, seed, 0.2, None, params)
    return Job(spec, CONFIG.changed({"select_on": select}))


def test_a_run_depends_on_its_description_alone() -> None:
    first = execute(job())
    execute(job(seed=1))
    prepare.cache_clear()
    again = execute(job())
    assert {**first, "seconds": 0} == {**again, "seconds": 0}
    assert first["key"] == job().key


def test_selection_on_held_out_data() -> None:
    search = execute(job("search", "val"))
    assert set(search["metrics"]) == {"train_ap", "val_ap"}
    assert search["key"] != execute(job("search", "train"))["key"]
    split = prepare("robustness", job("search", "val").config, 0.2, Source(0, stage="search"))
    everything = prepare("robustness", job("search", "val").config, 0.2, Source(0, stage="final"))
    assert split.val is not None
    assert everything.val is None
    assert len(split.val) + len(split.train) == len(everything.train)
    assert len(split.val) == round(len(everything.train) / 3)


def test_labels_are_flipped_in_training_data_only() -> None:
    clean = EXPERIMENTS["robustness"].config("quick")
    noisy = prepare("robustness", clean, 0.2, Source(0, stage="final"))
    without = prepare("robustness", clean, 0.0, Source(0, stage="final"))
    assert int((noisy.train.y != without.train.y).sum()) == round(0.2 * len(without.train))
    assert bool((noisy.test.y == without.test.y).all())
    both = prepare("linear-noisy", EXPERIMENTS["linear-noisy"].config("quick"), 0.2, Source(0, stage="final"))
    for part in both.parts().values():
        assert int((part.y != (part.x.sum(1) > 0)).sum()) == 2_000


# ---------------------------------------------------------------------- processes


def test_errors_of_workers_reach_the_user() -> None:
    pool = Pool(2)
    try:
        bad = job()
        pool.submit(Job(RunSpec("no-such", "final", "pos-ap", 0, 0.2, None, bad.spec.params), bad.config))
        with pytest.raises(DirectLossError, match="experiment must be a known one, but it is 'no-such'"):
            pool.collect()
    finally:
        pool.stop()


def test_a_worker_that_dies_is_noticed() -> None:
    pool = Pool(2)
    try:
        pool.submit(Job(job().spec, CONFIG.changed({"iterations": 10**9})))
        os.kill(pool._busy[0].process.pid or 0, signal.SIGKILL)
        with pytest.raises(DirectLossError, match=r"A worker process died \(exit code -9\)"):
            pool.collect()
    finally:
        pool.stop()


def test_killed_with_sigkill_and_resumed_equals_uninterrupted(whole: Path, tmp_path: Path) -> None:
    """Two worker processes, SIGKILL after the fifth run, a torn line, and on: the records are those of one process."""
    command = [sys.executable, "-m", "directloss_repro"]
    folder = tmp_path / "run"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, *OPTIONS, "--workers", "2", "--out", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
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
    resumed = subprocess.run(
        [*command, "reproduce", "robustness", "--out", str(folder), "--resume", "--workers", "2"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert f"{RUNS - done} of {RUNS} runs to do" in resumed.stdout
    assert stored(folder) == stored(whole)
    assert (folder / "report.html").is_file()
