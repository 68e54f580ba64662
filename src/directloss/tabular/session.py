"""From a request ("fit this, for that metric") to a finished folder: search, model, baselines, comparison, report."""

from __future__ import annotations

import hashlib
import json
import shlex
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

import directloss
from directloss._checks import check_count, fail
from directloss.integrations.sklearn import DirectLossClassifier
from directloss.tabular.baselines import BASELINES, Fitted, described, fit_baseline, parse_baselines
from directloss.tabular.columns import (
    CATEGORY,
    DATE,
    Column,
    Survey,
    check_finite,
    check_known,
    choose,
    kinds_of,
    suspicions,
)
from directloss.tabular.comparison import Comparison, compare
from directloss.tabular.encoding import Encoder
from directloss.tabular.files import csv_bytes, write_file
from directloss.tabular.measures import Measure, get_measure
from directloss.tabular.model import Model
from directloss.tabular.reading import BATCH_ROWS, Table, open_table
from directloss.tabular.search import CROSS_ENTROPY, Budget, Problem, Search, Setting
from directloss.tabular.split import Rows, split_groups, split_rows
from directloss.tabular.store import Store, StoredRows
from directloss.tabular.target import Labels, Target, find_target, read_target

MODEL, PREDICTIONS, RUN, JOURNAL = "model.json", "predictions.csv", "run.json", "search.journal"
ROWS = "rows.tmp"
"""Where the rows of a large table are while the fit is under way."""
TRIALS = 8
QUIET = 10
"""Seconds of work without a line about it."""
Say = Callable[[str], None]


@dataclass
class Progress:
    """Lines about work that takes long; of quick work none."""

    say: Say
    what: str
    total: int | None = None
    _last: float = field(default_factory=time.monotonic)

    def tell(self, line: str) -> None:
        """Say it, unless something was said shortly before."""
        if time.monotonic() - self._last >= QUIET:
            self._last = time.monotonic()
            self.say(f"{self.what}: {line}")

    def at(self, rows: int) -> None:
        """So many rows are done."""
        self.tell(f"{rows:,} rows" + (f" ({rows / self.total:.0%})" if self.total else ""))

    def over(self, batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """The batches, with lines about them."""
        rows = 0
        for batch in batches:
            yield batch
            self.at(rows := rows + len(batch))


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    data: Path
    metric: str
    target: str | None = None
    positive: str | None = None
    group: str | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    test_share: float = 0.2
    seed: int = 0
    epochs: int | None = None
    trials: int | None = None
    minutes: float | None = None
    baselines: str = "all"
    storage: str | None = None
    workers: int = 1
    out: Path | None = None
    resume: bool = False

    @property
    def folder(self) -> Path:
        """Where the results go."""
        return self.out or Path("runs") / f"fit-{self.data.name.split('.')[0]}"

    @property
    def address(self) -> str:
        """Where the trials are kept."""
        return self.storage or str(self.folder / JOURNAL)

    @property
    def budget(self) -> Budget:
        """How long to search; minutes alone leave the number of trials open."""
        return Budget(self.trials if self.trials or self.minutes else TRIALS, self.minutes)

    def command(self, resume: bool = False) -> str:
        """The command that asks for exactly this."""
        words = ["directloss", "fit", str(self.data), "--metric", self.metric]
        for name in ("target", "positive", "group", "drop", "categorical", "test_share", "seed", "epochs", "trials",
                     "minutes", "baselines", "storage", "workers"):  # fmt: skip
            value, usual = getattr(self, name), getattr(type(self), name)
            if value != usual:
                text = ",".join(value) if isinstance(value, tuple) else str(value)
                words += [f"--{name.replace('_', '-')}", text]
        return shlex.join([*words, "--out", str(self.folder), *(["--resume"] if resume else [])])

    def check(self) -> None:
        """The numbers of the request."""
        for option, value in (("--trials", self.trials), ("--epochs", self.epochs), ("--workers", self.workers)):
            if value is not None:
                check_count(option, value)
        if not 0.05 <= self.test_share <= 0.5:
            fail("--test-share", "must be a share from 0.05 to 0.5", self.test_share)
        if not 0 <= self.seed < 2**31:
            fail("--seed", "must be a whole number from 0 to 2147483647", self.seed)
        if self.minutes is not None and not 0 < self.minutes < float("inf"):
            fail("--minutes", "must be a positive number", self.minutes)


@dataclass(frozen=True)
class Plan:
    """A checked request with the rows that it is about; nothing has been written."""

    request: Request
    measure: Measure
    target: Target
    table: Table
    survey: Survey
    kinds: dict[str, str]
    left_out: dict[str, str]
    """Columns that are not learnt from, and why."""
    parts: dict[str, Rows]
    groups: npt.NDArray[np.int64] | None
    """The number of each row's group."""
    baselines: tuple[str, ...]
    notes: list[str]
    config: dict[str, Any]
    """Everything that a trial depends on."""
    owner: str
    """The name of this fit among all that share its storage."""

    @property
    def name(self) -> str:
        """The name of the studies: only the same rows and settings share trials."""
        return "fit-" + hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Method:
    """One row of the result."""

    name: str
    title: str
    setting: str
    validation: float
    test: npt.NDArray[np.float64] = field(repr=False)
    """Scores of the test rows, above 0 for yes."""
    ours: bool = False
    sampled: int | None = None
    """Training rows, if it had not all of them."""


@dataclass(frozen=True)
class Outcome:
    """All that a report tells."""

    plan: Plan
    encoder: Encoder
    methods: list[Method]
    saved: str
    comparison: Comparison
    trials: dict[str, int]
    tried: int | None
    """Training rows of a trial, if it had not all of them."""
    seconds: float


def make_plan(request: Request, say: Say = lambda line: None) -> Plan:
    """Check everything that can be checked before the first trial, and write nothing."""
    request.check()
    measure = get_measure(request.metric)
    baselines = parse_baselines(request.baselines)
    _check_folder(request.folder, request.resume)
    table = open_table(request.data)
    name = find_target(table, request.target)
    _check_columns(request, table.names, name)
    survey, labels, groups = _look_at(table, name, request.group, say)
    target = read_target(survey.columns[name], labels, request.positive)
    names = choose(survey, name, request.drop, request.group)
    kinds = kinds_of(survey, names, request.categorical)
    check_finite(survey, kinds)
    if groups is None:
        parts = split_rows(target.y, request.test_share, request.seed)
    else:
        parts = split_groups(target.y, groups, request.test_share, request.seed)
    measure.check_rows({part: len(rows) for part, rows in parts.items()})
    config = {
        "sha256": _digest(request.data),
        "target": target.name,
        "positive": target.labels[1],
        "metric": measure.name,
        **{key: getattr(request, key) for key in ("group", "test_share", "seed", "epochs")},
        **{key: sorted(getattr(request, key)) for key in ("drop", "categorical")},
    }
    owner = _check_same(request.folder / RUN, config) if request.resume else uuid.uuid4().hex
    left_out = _left_out(table, request, target.name, names)
    notes = [*table.notes, *suspicions(survey, kinds)]
    return Plan(
        request, measure, target, table, survey, kinds, left_out, parts, groups, baselines, notes, config, owner
    )


def _check_columns(request: Request, names: list[str], target: str) -> None:
    group = () if request.group is None else (request.group,)
    for option, own in (("--drop", request.drop), ("--group", group), ("--categorical", request.categorical)):
        check_known(option, own, names)
        if target in own:
            fail(option, "must not name the target", repr(target))


def _look_at(
    table: Table, target: str, group: str | None, say: Say
) -> tuple[Survey, Labels, npt.NDArray[np.int64] | None]:
    """The first reading: what the columns hold, the target, and which rows belong together."""
    survey, labels, groups = Survey({name: Column(name) for name in table.names}), Labels(), Labels()
    progress = Progress(say, f"Reading {table.path.name}")
    for batch in progress.over(table.batches()):
        survey.add(batch)
        labels.add(batch[target])
        if group is not None:
            groups.add(batch[group])
    return survey, labels, None if group is None else groups.sorted_rows()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _left_out(table: Table, request: Request, target: str, names: list[str]) -> dict[str, str]:
    why = dict.fromkeys(request.drop, "left out by --drop")
    if request.group is not None:
        why[request.group] = "group: its rows stay together"
    others = [name for name in table.names if name != target and name not in names]
    return {name: why.get(name, "left out: it has no values") for name in others}


def _check_folder(folder: Path, resume: bool) -> None:
    if folder.exists() and not folder.is_dir():
        fail("--out", "must be a folder", f"the file {folder}")
    if resume and not (folder / RUN).is_file():
        fail("--resume", "needs an --out folder that holds a fit", f"{folder}, which holds none", "Leave it out.")
    if not resume and folder.is_dir() and any(folder.iterdir()):
        hint = "Add --resume to go on with the fit in it, or choose another folder."
        fail("--out", "must be a new or empty folder", f"{folder}, which is not empty", hint)


def _check_same(path: Path, config: dict[str, Any]) -> str:
    """A fit goes on with the same rows and the same questions; only the budget may change. Returns its owner."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        before, owner = {key: stored["config"][key] for key in config}, str(stored["owner"])
    except (ValueError, LookupError, TypeError) as error:
        hint = "Choose another --out to fit anew."
        fail(str(path), "must describe a fit of this version", f"another file or damaged ({error!r:.60})", hint)
    for key, value in config.items():
        if value != before[key]:
            name = "DATA" if key == "sha256" else f"--{key.replace('_', '-')}"
            told = "another table" if key == "sha256" else json.dumps(value)
            had = "began with" if key == "sha256" else f"has, {json.dumps(before[key])}"
            fail(name, f"must be what the fit in {path.parent} {had}", told, "Choose another --out for another fit.")
    return owner


def introduce(plan: Plan, say: Say) -> None:
    """What was found in the file, before the work begins."""
    counts = {kind: list(plan.kinds.values()).count(kind) for kind in (CATEGORY, DATE)}
    numbers = len(plan.kinds) - sum(counts.values())
    dates = f", {counts[DATE]} of dates" if counts[DATE] else ""
    say(
        f"{plan.request.data.name}: {plan.survey.rows} rows, {len(plan.kinds)} columns "
        f"({numbers} of numbers, {counts[CATEGORY]} of categories{dates})."
    )
    share, positive = plan.target.y.mean(), plan.target.labels[1]
    say(f"Target {plan.target.name!r}: {positive!r} is positive ({plan.target.why}), {share:.1%} of the rows.")
    sizes = [f"{len(rows)} {part} ({int(plan.target.y[rows].sum())} positive)" for part, rows in plan.parts.items()]
    say(f"Split: {', '.join(sizes)} rows.")
    for note in plan.notes:
        say(f"Note: {note}")


def begin(plan: Plan) -> None:
    """Make the folder and say in it what it is for; from here on the fit can be resumed."""
    write_file(plan.request.folder / RUN, _run_text(plan, {"finished": None}))


def carry_out(plan: Plan, say: Say) -> Outcome:
    """Search, train, compare, and write model and predictions."""
    path = plan.request.folder / ROWS
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _carry_out(plan, path, say)
    finally:
        path.unlink(missing_ok=True)


def _encode(plan: Plan, path: Path, say: Say) -> tuple[Encoder, dict[str, tuple[StoredRows, npt.NDArray[np.int64]]]]:
    """The second reading: the rows in compact form, and what to learn from them before a network can."""
    progress = Progress(say, "Storing rows", plan.survey.rows)
    store = Store.of(progress.over(plan.table.batches()), plan.survey, plan.kinds, path)
    gaps = [name for name in plan.kinds if plan.survey.columns[name].gaps]
    encoder = store.learn(plan.parts["training"], gaps)
    return encoder, {
        part: (StoredRows(store, encoder, which), plan.target.y[which]) for part, which in plan.parts.items()
    }


def _carry_out(plan: Plan, path: Path, say: Say) -> Outcome:
    began, measure = time.monotonic(), plan.measure
    encoder, encoded = _encode(plan, path, say)
    train, held = encoded["training"], encoded["validation"]
    problem = Problem(train, held, measure.name, plan.request.seed, plan.request.epochs)
    tried = len(problem.sample[1]) if problem.sample is not train else None
    if tried is not None:
        say(f"Trials use a sample of {tried} of the {len(train[1])} training rows.")
    search = Search(problem, plan.name, plan.request.address, plan.owner)
    search.run(plan.request.budget, plan.request.workers, lambda loss, trial: say(_told(search, loss, trial, measure)))
    networks = {loss: _final(problem, loss, search.best(loss).params, say) for loss in problem.losses}
    # Chosen by validation rows; test rows only judge.
    value = {loss: max(network.validation_curve_.values()) for loss, network in networks.items()}
    saved = max(problem.losses, key=lambda loss: value[loss])
    models = {loss: _model(plan, network, encoder, loss) for loss, network in networks.items()}
    methods = [
        Method(
            loss,
            _title(loss, measure),
            described(search.best(loss).params),
            value[loss],
            model.scores(encoded["test"][0]),
            ours=True,
        )
        for loss, model in models.items()
    ]
    for name in plan.baselines:
        say(f"Training {BASELINES[name].title} ...")
        fitted = fit_baseline(name, measure, train, held, plan.request.seed)
        methods.append(_method(name, fitted, encoded["test"][0]))
    groups = None if plan.groups is None else plan.groups[plan.parts["test"]]
    scores = {method.name: torch.from_numpy(method.test) for method in methods}
    comparison = compare(measure, scores, torch.from_numpy(encoded["test"][1]), saved, plan.request.seed, groups)
    trials = {loss: len(search.finished(loss)) for loss in problem.losses}
    outcome = Outcome(plan, encoder, methods, saved, comparison, trials, tried, time.monotonic() - began)
    models[saved].save(plan.request.folder / MODEL)
    write_file(plan.request.folder / PREDICTIONS, _predictions(plan, methods))
    write_file(plan.request.folder / RUN, _run_text(plan, _results(outcome)))
    return outcome


def _final(problem: Problem, loss: str, setting: Setting, say: Say) -> DirectLossClassifier:
    """The network with the settings that won, trained with all training rows."""
    progress = Progress(say, f"Training the network of {loss}")
    return problem.train_with(
        loss, setting, lambda epoch, value: progress.tell(f"epoch {epoch}, validation {value:.4f}")
    )


def _title(loss: str, measure: Measure) -> str:
    if loss == CROSS_ENTROPY:
        return "network trained by cross-entropy" + (" (threshold tuned)" if measure.decides else "")
    return f"network trained on {measure.title}"


def _told(search: Search, loss: str, trial: Any, measure: Measure) -> str:
    done = len(search.finished(loss))
    value = "stopped early" if trial.value is None or trial.state.name == "PRUNED" else f"{trial.value:.4f}"
    return f"[{loss} {done}] validation {measure.title}: {value} ({described(trial.params)})"


def _model(plan: Plan, network: DirectLossClassifier, encoder: Encoder, loss: str) -> Model:
    notes = {"data": plan.request.data.name, "epoch": network.best_epoch_, "versions": versions()}
    about = {"metric": plan.measure.name, "method": loss, "target": plan.target.name, "labels": plan.target.labels}
    return Model.of(network, encoder, **about, sparse=plan.table.sparse, notes=notes)


def _method(name: str, fitted: Fitted, rows: StoredRows) -> Method:
    setting, scores = described(fitted.setting), fitted.scores(rows)
    return Method(name, fitted.title, setting, fitted.validation, scores, sampled=fitted.sampled)


def _predictions(plan: Plan, methods: list[Method]) -> Iterator[bytes]:
    """The test rows with their label and the score of each method; rows are counted from 1, without the header."""
    for start in range(0, len(plan.parts["test"]), BATCH_ROWS):
        some = slice(start, start + BATCH_ROWS)
        test = plan.parts["test"][some]
        columns: dict[str, list[Any]] = {
            "row": (test + 1).tolist(),
            plan.target.name: [plan.target.labels[label] for label in plan.target.y[test]],
        }
        for method in methods:
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
    """What the numbers were made with."""
    from importlib.metadata import version

    names = ("numpy", "torch", "scikit-learn", "optuna")
    return {"directloss": directloss.__version__, **{name: version(name) for name in names}}
