"""The search: the same answer after an interruption, shared by processes, and safe from hands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from optuna.trial import TrialState

from directloss import DirectLossError
from directloss.tabular import search as module
from directloss.tabular.search import Budget, Problem, Search


def problem(seed: int = 0) -> Problem:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(150, 4))
    y = (x[:, 0] + 0.5 * draw.normal(size=150) > 0.8).astype(np.int64)
    return Problem((x[:100], y[:100]), (x[100:], y[100:]), "ap", seed, epochs=10)


def run(address: str, trials: int, workers: int = 1) -> Search:
    search = Search(problem(), "fit-test", address)
    search.run(Budget(trials), workers, lambda loss, trial: None)
    return search


def told(search: Search) -> list[object]:
    return [[(t.params, t.value, t.state) for t in search.finished(loss)] for loss in search.studies]


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_an_interrupted_search_goes_on_as_it_would_have(tmp_path: Path, kind: str) -> None:
    def at(name: str) -> str:
        return str(tmp_path / name) if kind == "journal" else f"sqlite:///{tmp_path / name}.db"

    whole = run(at("whole"), 4)
    begun = run(at("part"), 2)
    begun.studies["x-ent"].ask()  # was running when the process was killed
    assert told(run(at("part"), 4)) == told(whole)
    assert [len(whole.finished(loss)) for loss in whole.studies] == [4, 4]
    best = whole.best("direct-ap")
    again = problem().train_with("direct-ap", best.params)
    assert max(again.validation_curve_.values()) == best.value


def test_a_trial_that_is_worse_than_the_median_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FREE", 1)
    search = run(str(tmp_path / "j"), 6)
    states = {trial.state for loss in search.studies for trial in search.finished(loss)}
    assert states == {TrialState.COMPLETE, TrialState.PRUNED}


def test_minutes_are_a_budget_and_every_loss_gets_its_turn(tmp_path: Path) -> None:
    search = Search(problem(), "fit-test", str(tmp_path / "j"))
    search.run(Budget(None, minutes=1e-9), 1, lambda loss, trial: None)
    assert [len(search.finished(loss)) for loss in search.studies] == [1, 1]


def test_a_value_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    search = run(str(path), 1)
    value = str(search.best("x-ent").value)
    text = path.read_text()
    assert f'"values":[{value}]' in text
    path.write_text(text.replace(f'"values":[{value}]', '"values":[0.999]'))
    with pytest.raises(
        DirectLossError, match=r"trial 0 of 'fit-test .*' must be as fit stored it, but it is changed in"
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
    small = Problem(problem().train, problem().held, "ap", 0)
    setting = {"hidden": "linear", "learning_rate": 0.1, "weight_decay": 0.01}
    estimator = small.estimator("direct-ap", setting)
    assert (estimator.batch_size, estimator.epochs) == (25, 250)
    assert (
        max(Problem(small.train, small.held, "ap", 0, 8).train_with("x-ent", setting).validation_curve_.values()) > 0.5
    )
