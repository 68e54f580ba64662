"""The search: the same answer after an interruption, shared by processes, and safe from hands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from optuna.storages.journal._storage import JournalOperation
from optuna.trial import TrialState

from directloss import DirectLossError
from directloss.tabular import search as module
from directloss.tabular.measures import Measure
from directloss.tabular.search import Problem, Search, open_storage


def problem(seed: int = 0) -> Problem:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(150, 4))
    y = (x[:, 0] + 0.5 * draw.normal(size=150) > 0.8).astype(np.int64)
    return Problem((x[:100], y[:100]), (x[100:], y[100:]), Measure("ap"), seed, epochs=10)


def run(address: str, trials: int, workers: int = 1) -> Search:
    search = Search(problem(), "fit-test", address)
    search.run(trials, None, workers, lambda loss, trial: None)
    return search


def told(search: Search) -> list[object]:
    return [[(t.params, t.value, t.state) for t in search.finished(loss)] for loss in search.studies]


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_an_interrupted_search_goes_on_as_it_would_have(tmp_path: Path, kind: str) -> None:
    def at(name: str) -> str:
        return str(tmp_path / name) if kind == "journal" else f"sqlite:///{tmp_path / name}.db"

    whole = run(at("whole"), 4)
    begun = run(at("part"), 2)
    begun._ask("x-ent")  # was running when the process was killed
    assert told(run(at("part"), 4)) == told(whole)
    assert [len(whole.finished(loss)) for loss in whole.studies] == [4, 4]
    best = whole.best("direct-ap")
    again = problem().train_with("direct-ap", best.params)
    assert max(again.validation_curve_.values()) == best.value


def kinds_of_lines(path: Path) -> dict[int, tuple[object, ...]]:
    """What each line of a journal says, and of which study and trial."""
    found: dict[int, tuple[object, ...]] = {}
    trials: list[tuple[int, int]] = []
    for number, line in enumerate(path.read_text().splitlines()):
        log = json.loads(line)
        if log["op_code"] == JournalOperation.CREATE_TRIAL:
            trials.append((log["study_id"], sum(study == log["study_id"] for study, _ in trials)))
        study, trial = trials[log["trial_id"]] if "trial_id" in log else (log.get("study_name"), None)
        found[number] = (log["op_code"], study, trial, log.get("state"), next(iter(log.get("user_attr", {})), None))
    return found


@pytest.mark.parametrize("torn", [False, True], ids=["between two lines", "in a line"])
def test_a_search_killed_anywhere_goes_on_as_it_would_have(
    tmp_path: Path, torn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, and in the middle of, the first line of each kind that each of the trials writes.

    Instead of a training there is a formula: it is the course of the search that counts.
    """

    def curve(
        _: Problem, loss: str, setting: module.Setting, report: Callable[[int, float], None], trial: bool
    ) -> None:
        assert trial
        for epoch in range(1, 8):
            report(
                epoch, 1 - epoch * abs(setting["learning_rate"] - 0.03) - setting["weight_decay"] * (loss == "x-ent")
            )

    monkeypatch.setattr(Problem, "train_with", curve)
    monkeypatch.setattr("os.fsync", lambda _: None)
    whole = run(str(tmp_path / "whole"), 4)
    places = {kind: number for number, kind in reversed(kinds_of_lines(tmp_path / "whole").items())}
    assert len(places) > 30
    assert len({trial.state for loss in whole.studies for trial in whole.finished(loss)}) == 2
    lines = (tmp_path / "whole").read_text().splitlines(keepends=True)
    for number in places.values():
        path = tmp_path / f"part {number}"
        path.write_text("".join(lines[:number]) + lines[number][: 9 * torn])
        assert told(run(str(path), 4)) == told(whole), f"killed before line {number + 1}"


def test_a_lock_that_a_kill_left_behind_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALE", 3)
    monkeypatch.chdir(tmp_path)  # a relative path: the lock is a link
    run("j", 1)
    open_storage("j")._backend._lock.acquire()  # type: ignore[attr-defined]
    assert told(run("j", 2)) == told(run(str(tmp_path / "whole"), 2))


def test_those_who_share_a_search_try_different_settings(tmp_path: Path) -> None:
    searches = [Search(problem(), "fit-test", str(tmp_path / "j"), owner) for owner in "ab"]
    tried = [search._ask("x-ent").params for search in searches] + [searches[0]._ask("x-ent").params]
    assert tried[0] == module.FIRST
    assert len({json.dumps(setting) for setting in tried}) == 3
    Search(problem(), "fit-test", str(tmp_path / "j"), "a")  # goes on after a kill: its own two are given up
    states = [trial.state for trial in searches[0].studies["x-ent"].get_trials()]
    assert states == [TrialState.FAIL, TrialState.RUNNING, TrialState.FAIL]


def test_a_trial_that_is_worse_than_the_median_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FREE", 1)
    search = run(str(tmp_path / "j"), 6)
    states = {trial.state for loss in search.studies for trial in search.finished(loss)}
    assert states == {TrialState.COMPLETE, TrialState.PRUNED}


def test_minutes_are_a_budget_and_every_loss_gets_its_turn(tmp_path: Path) -> None:
    search = Search(problem(), "fit-test", str(tmp_path / "j"))
    search.run(None, 1e-9, 1, lambda loss, trial: None)
    assert [len(search.finished(loss)) for loss in search.studies] == [1, 1]


def test_a_value_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    search = run(str(path), 1)
    value = str(search.best("x-ent").value)
    text = path.read_text()
    assert f'"values":[{value}]' in text
    path.write_text(text.replace(f'"values":[{value}]', '"values":[0.999]'))
    with pytest.raises(
        DirectLossError, match=r"trial 0 of 'fit-test .*' must be unchanged since fit stored it, but it is changed in"
    ):
        run(str(path), 1)


def test_a_damaged_storage_is_named_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "j"
    run(str(path), 1)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], lines[3][:9] + "\n", *lines[4:]]))
    with pytest.raises(DirectLossError, match=r"--storage must be a whole journal.*Remove it"):
        run(str(path), 1)
    for address in ("nosuchdb://x", f"sqlite:///{tmp_path}/no/such/folder/x.db"):
        with pytest.raises(DirectLossError, match="--storage must be a place that optuna can write to"):
            run(address, 1)


def test_processes_share_the_search(tmp_path: Path) -> None:
    search = run(str(tmp_path / "j"), 2, workers=2)
    assert [len(search.finished(loss)) for loss in search.studies] == [2, 2]
    Search(problem(), "fit-test", str(tmp_path / "j"))  # every digest is right


def test_large_tables_are_trained_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE", 90)
    monkeypatch.setattr(module, "BATCH", 25)
    small = Problem(problem().train, problem().held, Measure("ap"), 0)
    setting = {"hidden": "linear", "learning_rate": 0.1, "weight_decay": 0.01}
    estimator = small.estimator("direct-ap", setting, 100)
    assert (estimator.batch_size, estimator.epochs) == (25, 250)
    assert (
        max(
            Problem(small.train, small.held, Measure("ap"), 0, 8)
            .train_with("x-ent", setting)
            .validation_curve_.values()
        )
        > 0.5
    )
