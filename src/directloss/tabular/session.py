"""From a plan to a finished folder: search, model, baselines, comparison, predictions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import directloss
from directloss.integrations._cut import decided
from directloss.integrations.sklearn import DirectLossClassifier
from directloss.tabular.baselines import BASELINES, fit_baseline
from directloss.tabular.comparison import Comparison, Method, compare, described
from directloss.tabular.encoding import Encoder
from directloss.tabular.files import csv_bytes, write_file
from directloss.tabular.measures import CROSS_ENTROPY, Measure
from directloss.tabular.model import Model
from directloss.tabular.planning import RUN, Plan, Progress, Say
from directloss.tabular.reading import BATCH_ROWS
from directloss.tabular.search import Problem, Search
from directloss.tabular.store import Store, StoredRows

MODEL, PREDICTIONS = "model.json", "predictions.csv"
ROWS = "rows.tmp"
"""The file for the rows of a large table during the fit."""


@dataclass(frozen=True)
class Outcome:
    """Everything that the report needs."""

    plan: Plan
    encoder: Encoder
    methods: list[Method]
    saved: str
    probabilities: npt.NDArray[np.float64] = field(repr=False)
    """Probabilities of the labels of the test rows, by the saved network."""
    comparison: Comparison
    trials: dict[str, int]
    tried: int | None
    """Number of training rows per trial, if it is a sample."""
    seconds: float


def begin(plan: Plan) -> None:
    """Create the folder and its run.json; from here on the fit can be resumed."""
    write_file(plan.request.folder / RUN, _run_text(plan, {"finished": None}))


def carry_out(plan: Plan, say: Say) -> Outcome:
    """Search, train, compare, and write the model and the predictions."""
    path = plan.request.folder / ROWS
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _carry_out(plan, path, say)
    finally:
        path.unlink(missing_ok=True)


def _encode(plan: Plan, path: Path, say: Say) -> tuple[Encoder, dict[str, tuple[StoredRows, npt.NDArray[np.int64]]]]:
    """Read the file for the second time: store the rows in compact form and learn the encoder."""
    progress = Progress(say, "Storing rows", plan.survey.rows)
    store = Store.of(progress.over(plan.table.batches()), plan.survey, plan.kinds, path)
    gaps = [name for name in plan.kinds if plan.survey.columns[name].gaps]
    encoder = store.learn(plan.parts["training"], gaps)
    return encoder, {
        part: (StoredRows(store, encoder, which), plan.target.y[which]) for part, which in plan.parts.items()
    }


def _carry_out(plan: Plan, path: Path, say: Say) -> Outcome:
    began = time.monotonic()
    encoder, encoded = _encode(plan, path, say)
    train, held, (rows, y) = encoded["training"], encoded["validation"], encoded["test"]
    problem = Problem(train, held, plan.measure, plan.request.seed, plan.request.epochs)
    search = _search(plan, problem, say)
    methods, models = [], {}
    for loss in problem.losses:
        start = time.monotonic()
        network = _train(problem, search, loss, say)
        seconds = search.seconds(loss) + time.monotonic() - start
        models[loss] = model = _model(plan, network, encoder, loss)
        about = _title(loss, plan.measure), described(search.best(loss).params), max(network.validation_curve_.values())
        methods.append(Method(loss, *about, model.scores(rows), seconds, ours=True))
    # The validation rows choose; the test rows only judge.
    saved = max(methods, key=lambda method: method.validation)
    if plan.baselines:
        say("Training the baselines; --baselines leaves out some or all of them.")
    for name in plan.baselines:
        progress = Progress(say, f"Training {BASELINES[name].title}")
        say(f"{progress.what}, {len(BASELINES[name].settings)} settings ...")
        methods.append(fit_baseline(name, plan.measure, train, held, rows, plan.request.seed, progress.tell))
    probabilities = models[saved.name].probabilities(saved.test)
    scores = {method.name: torch.from_numpy(method.test) for method in methods}
    groups = None if plan.groups is None else plan.groups[plan.parts["test"]]
    comparison = compare(plan.measure, scores, torch.from_numpy(y), saved.name, plan.request.seed, groups)
    trials = {loss: len(search.finished(loss)) for loss in problem.losses}
    seconds = time.monotonic() - began
    outcome = Outcome(plan, encoder, methods, saved.name, probabilities, comparison, trials, problem.tried, seconds)
    models[saved.name].save(plan.request.folder / MODEL)
    write_file(plan.request.folder / PREDICTIONS, _predictions(plan, methods))
    write_file(plan.request.folder / RUN, _run_text(plan, _results(outcome)))
    return outcome


def _search(plan: Plan, problem: Problem, say: Say) -> Search:
    """Search settings for both losses."""
    most, measure = plan.request.most_trials, plan.measure
    each = "" if most is None else f", {most} {'trial' if most == 1 else 'trials'} each"
    say(f"Searching settings for {' and '.join(f'{loss} ({_title(loss, measure)})' for loss in problem.losses)}{each}.")
    if problem.tried is not None:
        say(f"Each trial uses a sample of {problem.tried:,} of the {len(problem.train[1]):,} training rows.")
    search = Search(problem, plan.name, plan.request.address, plan.owner)

    def observe(loss: str, trial: Any) -> None:
        done = f"{len(search.finished(loss))}{'' if most is None else f' of {most}'}"
        reached = [] if trial.value is None else [f"{trial.value:.4f}"]
        stopped = ["stopped early"] if trial.state.name == "PRUNED" else []
        value = ", ".join(reached + stopped)
        say(f"[{loss} {done}] validation {measure.title}: {value} ({described(trial.params)})")

    search.run(most, plan.request.minutes, plan.request.workers, observe)
    return search


def _train(problem: Problem, search: Search, loss: str, say: Say) -> DirectLossClassifier:
    """Train the network with the best settings on all training rows."""
    progress = Progress(say, f"Training {loss}")
    return problem.train_with(
        loss, search.best(loss).params, lambda epoch, value: progress.tell(f"epoch {epoch}, validation {value:.4f}")
    )


def _title(loss: str, measure: Measure) -> str:
    return f"network trained {'with cross-entropy' if loss == CROSS_ENTROPY else f'on {measure.title}'}"


def _model(plan: Plan, network: DirectLossClassifier, encoder: Encoder, loss: str) -> Model:
    notes = {"data": plan.request.data.name, "epoch": network.best_epoch_, "versions": versions()}
    about = {"metric": plan.measure.name, "method": loss, "target": plan.target.name, "labels": plan.target.labels}
    return Model.of(network, encoder, **about, sparse=plan.table.sparse, notes=notes)


def _predictions(plan: Plan, methods: list[Method]) -> Iterator[bytes]:
    """The test rows with their label and each method's score or class; rows count from 1, without the header."""
    for start in range(0, len(plan.parts["test"]), BATCH_ROWS):
        some = slice(start, start + BATCH_ROWS)
        test = plan.parts["test"][some]
        columns: dict[str, list[Any]] = {
            "row": (test + 1).tolist(),
            plan.target.name: [plan.target.labels[label] for label in plan.target.y[test]],
        }
        for method in methods:
            if plan.target.positive is None:
                columns[f"decision {method.name}"] = [plan.target.labels[place] for place in decided(method.test[some])]
            else:
                columns[f"score {method.name}"] = [float(f"{value:.8g}") for value in method.test[some]]
        yield csv_bytes(columns, head=not start)


def _results(outcome: Outcome) -> dict[str, Any]:
    test = outcome.comparison.test
    return {
        "finished": datetime.now(UTC).replace(microsecond=0).isoformat(),
        "seconds": round(outcome.seconds, 1),
        "saved": outcome.saved,
        "trials": outcome.trials,
        "methods": {
            method.name: {
                "settings": method.setting,
                **({} if method.sampled is None else {"training_rows": method.sampled}),
                "seconds": round(method.seconds, 1),
                "validation": method.validation,
                "test": asdict(test[method.name]),
            }
            for method in outcome.methods
        },
        "ahead_of_saved": {name: asdict(ahead) for name, ahead in outcome.comparison.ahead.items()},
    }


def _run_text(plan: Plan, more: dict[str, Any]) -> bytes:
    about = {"command": plan.request.command(), "config": plan.config, "owner": plan.owner, "versions": versions()}
    return (json.dumps(about | more, indent=2, allow_nan=False) + "\n").encode()


def versions() -> dict[str, str]:
    """The versions that produced the numbers."""
    from importlib.metadata import version

    names = ("numpy", "torch", "scikit-learn", "optuna")
    return {"directloss": directloss.__version__, **{name: version(name) for name in names}}
