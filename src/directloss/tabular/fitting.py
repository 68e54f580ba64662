"""From a request ("fit this, for that metric") to a finished folder: read, check, search, compare, save."""

from __future__ import annotations

import hashlib
import itertools
import json
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import sklearn
import torch

import directloss
from directloss._checks import fail
from directloss.integrations._cut import Calibration
from directloss.tabular.columns import (
    RARE,
    TITLES,
    Codes,
    Column,
    Floats,
    Values,
    encode,
    find_column,
    learn,
    tidy,
    words,
)
from directloss.tabular.comparison import Comparison, compare
from directloss.tabular.files import write_file
from directloss.tabular.measures import Measure, get_measure
from directloss.tabular.methods import Data, Method, Network, described, methods
from directloss.tabular.model import Model
from directloss.tabular.reading import Table, check_columns, csv_bytes, open_table, read_sample
from directloss.tabular.target import Target, read_target, split, suspicions

RUN, MODEL, PREDICTIONS = "run.json", "model.safetensors", "predictions.csv"
FEW = 10
"""With fewer test rows of a label than this, a comparison is no better than chance."""
SAME = ("target", "group", "flips", "drop", "categorical", "rows", "seed", "epochs")
"""Options that a resumed fit must share with the fit it continues."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class FitRequest:
    """What the user asked for."""

    data: Path
    metric: str
    target: str = ""
    positive: str = ""
    group: str = ""
    flips: str = ""
    drop: str = ""
    categorical: str = ""
    rows: int | None = None
    seed: int = 0
    epochs: int | None = None
    trials: int = 8
    out: Path | None = None
    resume: bool = False

    @cached_property
    def folder(self) -> Path:
        """The folder for the results; by default a new one, ``runs/fit-NAME``, or the last one to resume."""
        if self.out is not None:
            return self.out
        name = self.data.name.split(".")[0]
        last = folder = Path("runs") / f"fit-{name}"
        for number in itertools.count(2):
            if not folder.exists():
                break
            last, folder = folder, Path("runs") / f"fit-{name}-{number}"
        return last if self.resume else folder

    def command(self, *more: str) -> str:
        """The command that makes this request."""
        changed = [own.name for own in fields(self)[1:-2] if getattr(self, own.name) != own.default]
        options = [word for name in changed for word in (f"--{name}", str(getattr(self, name)))]
        return shlex.join(["directloss", "fit", str(self.data), *options, "--out", str(self.folder), *more])


@dataclass(frozen=True)
class FitPlan:
    """A checked request and the rows it is about; nothing is written yet."""

    request: FitRequest
    measure: Measure
    target: Target
    rows: Codes
    """The index of each row in the file."""
    parts: dict[str, Codes]
    """The rows for training, validation and test."""
    groups: Codes | None
    columns: list[Column]
    """Learned from the training rows."""
    frame: dict[str, Values]
    """The values of each column."""
    left_out: dict[str, str]
    """Columns that are not used, and why."""
    notes: list[str]
    run: dict[str, Any]
    """The content of run.json: what a trial depends on, finished trials, and in the end what came out."""

    def labels(self, part: str) -> Codes:
        """The label of each row of a part, 0 or 1."""
        return self.target.y[self.parts[part]]

    @property
    def too_few(self) -> str:
        """Which label has too few test rows to compare methods; empty if none has."""
        counts = np.bincount(self.labels("test"), minlength=2)
        label = self.target.labels[counts.argmin()]
        return f"{label!r} in only {counts.min()} of {counts.sum()} test rows" if counts.min() < FEW else ""


# ---------------------------------------------------------------------- checks


def make_plan(request: FitRequest, say: Say = lambda line: None) -> FitPlan:
    """Check everything that can be checked before the first trial, and say what was found; write nothing."""
    measure, table = get_measure(request.metric, request.flips), open_table(request.data)
    _check_names(request, table)
    _check_folder(request)
    say(f"Reading {request.data.name} ...")
    sample, rows, total = read_sample(table, request.rows, request.seed)
    target = read_target(sample[request.target].to_pandas(), request.target, request.positive)
    groups = None
    if request.group:
        groups = tidy(sample[request.group].to_pandas(), request.group, as_words=True).cat.codes.to_numpy()
    parts = split(target.y, request.seed, groups)
    measure.check_rows(min(map(len, parts.values())))
    found, frame, left_out = _read_columns(request, table, sample)
    columns = learn(found, {name: values.iloc[parts["training"]] for name, values in frame.items()})
    if not any(column.width for column in columns):
        rule = f"must have a column with numbers, or with a word in at least {RARE} training rows"
        fail("data", rule, "a table without one", "Are numbers written with units, or thousands with commas?")
    with request.data.open("rb") as file:
        config = {"data": hashlib.file_digest(file, "sha256").hexdigest()}
    config |= {"positive": target.labels[1], "metric": measure.name} | {key: getattr(request, key) for key in SAME}
    versions = {"directloss": directloss.__version__, "torch": torch.__version__, "sklearn": sklearn.__version__}
    trials = _read_trials(request.folder / RUN, config) if request.resume else {}
    run = {"command": request.command(), "versions": versions, "config": config, "trials": trials}
    plan = FitPlan(request, measure, target, rows, parts, groups, columns, frame, left_out, list(table.notes), run)
    _introduce(plan, total, say)
    return plan


def _introduce(plan: FitPlan, total: int, say: Say) -> None:
    """Say what was found in the file, and collect notes for the report."""
    target, kinds, known = plan.target, [column.kind for column in plan.columns], np.flatnonzero(plan.target.y >= 0)
    counts = ", ".join(f"{kinds.count(kind)} {title}" for kind, title in TITLES.items() if kind in kinds)
    say(f"{plan.request.data.name}: {total:,} rows, {len(kinds)} columns ({counts}).")
    hint = "" if plan.request.positive else " (--positive changes it)"
    share = f"{target.y[known].mean():.1%} of the rows"
    say(f"Target {target.name!r}: {target.labels[1]!r} is positive{hint}, {share}.")
    sizes = [f"{len(own):,} {part} ({plan.labels(part).sum():,} positive)" for part, own in plan.parts.items()]
    say(f"Split: {', '.join(sizes)} rows.")
    if len(plan.rows) < total:
        drawn = f"{len(plan.rows):,} of {total:,} rows, drawn at random, to limit memory; --rows changes it"
        plan.notes.append(f"Everything below is about {drawn}.")
    if unknown := len(plan.rows) - len(known):
        plan.notes.append(f"{unknown:,} of {len(plan.rows):,} rows have no {target.name!r} and are left out.")
    if plan.too_few:
        plan.notes.append(f"Too few test rows to tell methods apart: {plan.too_few}.")
    seen = {name: values.iloc[known].reset_index(drop=True) for name, values in plan.frame.items()}
    plan.notes.extend(suspicions(seen, target.y[known], target.labels))
    for note in plan.notes:
        say(f"Note: {note}")


def _check_names(request: FitRequest, table: Table) -> None:
    """Check all columns that the request names."""
    check_columns("--target", [request.target], table)
    named = {"--drop": words(request.drop), "--categorical": words(request.categorical)}
    named["--group"] = [request.group] if request.group else []
    for option, own in named.items():
        check_columns(option, own, table)
        if request.target in own:
            fail(option, "must not name the target", repr(request.target))


def _read_columns(
    request: FitRequest, table: Table, sample: pa.Table
) -> tuple[list[Column], dict[str, Values], dict[str, str]]:
    """The columns to learn from, their values, and the columns that are left out."""
    left_out = dict.fromkeys(words(request.drop), "left out by --drop")
    if request.group:
        left_out[request.group] = "group: its rows stay together"
    columns, frame = [], {}
    for name in table.names:
        if name == request.target or name in left_out:
            continue
        as_words = name in words(request.categorical)
        column, values = find_column(sample[name].to_pandas(), name, as_words, table.decimal_comma)
        if values.notna().any():
            columns.append(column)
            frame[name] = values
        else:
            left_out[name] = "left out: it has no values"
    if not columns:
        fail("--drop", "must leave a column with values to learn from", request.drop or "a table without one")
    return columns, frame, left_out


def _check_folder(request: FitRequest) -> None:
    folder = request.folder
    if folder.exists() and not folder.is_dir():
        fail("--out", "must be a folder", f"the file {folder}")
    if request.resume and not (folder / RUN).is_file():
        fail("--resume", "needs an --out folder that holds a fit", f"{folder}, which holds none", "Leave it out.")
    if not request.resume and folder.is_dir() and any(folder.iterdir()):
        hint = "Add --resume to continue the fit in it, or choose another folder."
        fail("--out", "must be a new or empty folder", f"{folder}, which is not empty", hint)


def _read_trials(path: Path, config: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """The finished trials of a fit with the same rows and options, except for the number of trials."""
    hint = "To continue another fit, name its folder with --out; for a new one, leave out --resume."
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        changed = [key for key in config if config[key] != stored["config"][key]]
        trials: dict[str, dict[str, list[float]]] = stored["trials"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        fail(str(path), "must describe a fit of this version", f"another file or damaged ({error!r:.60})", hint)
    if "data" in changed:
        fail("DATA", f"must be the table of the fit in {path.parent}", "another table", hint)
    for key in changed:
        rule = f"must be {json.dumps(stored['config'][key])}, as in the fit in {path.parent}"
        fail(f"--{key}", rule, json.dumps(config[key]), hint)
    return trials


# ---------------------------------------------------------------------- work


@dataclass(frozen=True)
class Result:
    """A method with the setting that the validation rows chose."""

    name: str
    title: str
    setting: str
    validation: float
    test: Floats = field(repr=False)
    """Scores of the test rows, positive above 0."""
    seconds: float
    """Time to choose the settings and to train."""
    network: Network | None = field(repr=False)
    """What a model file can store, with the same scores; not trees."""


@dataclass(frozen=True)
class Outcome:
    """Everything that the report needs."""

    plan: FitPlan
    results: dict[str, Result]
    saved: str
    model: Model
    comparison: Comparison

    @property
    def ranked(self) -> list[Result]:
        """The methods, the best on the test rows first."""
        return sorted(self.results.values(), key=lambda own: -self.comparison.test[own.name].value)


def carry_out(plan: FitPlan, say: Say) -> Outcome:
    """Search, train, compare, and write the model and the predictions; can be resumed if it is interrupted."""
    folder, request = plan.request.folder, plan.request
    _check_folder(request)  # again, because another fit may have begun in it
    _write_run(plan)

    def inputs(part: str) -> npt.NDArray[np.float32]:
        return encode(plan.columns, {own: values.iloc[plan.parts[part]] for own, values in plan.frame.items()})

    train, held = ((inputs(part), plan.labels(part)) for part in ("training", "validation"))
    data, test = Data(train, held, plan.measure, request.seed, request.epochs), inputs("test")
    tried = methods(plan.measure, request.trials, request.seed)
    results = {method.name: _choose(plan, method, data, test, say) for method in tried}
    # The validation rows choose; the test rows only judge.
    saved = max((own for own in results.values() if own.network), key=lambda own: own.validation)
    assert saved.network is not None
    calibration = Calibration.of(saved.network.decision_function(held[0]), held[1])
    about = plan.target.labels, plan.target.name, plan.measure.name, saved.title
    model = Model(plan.columns, saved.network, calibration, *about)
    comparison = compare(
        plan.measure, {name: torch.from_numpy(result.test) for name, result in results.items()},
        torch.from_numpy(plan.labels("test")), saved.name, request.seed,
        None if plan.groups is None else plan.groups[plan.parts["test"]],
    )  # fmt: skip
    model.save(folder / MODEL)
    write_file(folder / PREDICTIONS, csv_bytes(_predictions(plan, results)))
    chosen = {name: {"settings": own.setting, "validation": own.validation} for name, own in results.items()}
    plan.run.update({"saved": saved.name, "chosen": chosen} | asdict(comparison))
    _write_run(plan)
    return Outcome(plan, results, saved.name, model, comparison)


def _choose(plan: FitPlan, method: Method, data: Data, test: Any, say: Say) -> Result:
    """Try the settings of a method, except those that were tried before; each is stored when it is finished."""
    trials, trained = plan.run["trials"].setdefault(method.name, {}), {}
    settings = {described(setting): setting for setting in method.settings}
    say(f"{method.name} ({method.title}): trying {len(settings)} settings ...")
    for place, (told, setting) in enumerate(settings.items(), 1):
        if told not in trials:
            began, own = time.monotonic(), method.train(data, setting)
            value = data.judge(own)[0]
            if all(value > other for other, _ in trials.values()):
                trained = {told: own}
            trials[told] = [value, round(time.monotonic() - began, 2)]
            _write_run(plan)
            say(f"[{method.name} {place} of {len(settings)}] validation {plan.measure.title}: {value:.4f} ({told})")
    best = max(settings, key=lambda told: trials[told][0])
    # A winner that an earlier process found is trained again; the same setting always gives the same model.
    winner = trained[best] if best in trained else method.train(data, settings[best])
    (value, cut), seconds = data.judge(winner), sum(trials[told][1] for told in settings)
    network = winner.above(cut) if isinstance(winner, Network) else None
    return Result(method.name, method.title, best, value, winner.decision_function(test) - cut, seconds, network)


def _predictions(plan: FitPlan, results: dict[str, Result]) -> pd.DataFrame:
    """The test rows with their label and each method's score; rows count from 1, without the header."""
    labels = np.array(plan.target.labels, dtype=object)[plan.labels("test")]
    scores = {f"score {name}": result.test.astype(np.float32) for name, result in results.items()}
    return pd.DataFrame({"row": plan.rows[plan.parts["test"]] + 1, plan.target.name: labels} | scores)


def _write_run(plan: FitPlan) -> None:
    write_file(plan.request.folder / RUN, (json.dumps(plan.run, indent=2, allow_nan=False) + "\n").encode())
