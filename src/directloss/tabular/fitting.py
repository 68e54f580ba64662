"""From a request ("fit this, for that metric") to a finished folder: read, check, search, compare, save."""

from __future__ import annotations

import hashlib
import itertools
import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

import directloss
from directloss._checks import check_count, fail, near
from directloss.integrations._cut import Calibration
from directloss.tabular.columns import TITLES, Column, Values, find_column, labels_of, series_of, some, suspicions
from directloss.tabular.comparison import Comparison, compare
from directloss.tabular.encoding import Encoder
from directloss.tabular.files import csv_bytes, write_file
from directloss.tabular.measures import Measure, get_measure
from directloss.tabular.methods import (
    CROSS_ENTROPY,
    Data,
    Method,
    Network,
    Scores,
    described,
    networks,
    parse_baselines,
)
from directloss.tabular.model import Model
from directloss.tabular.reading import NO_HEADER, Sample, Table, check_columns, open_table, read_sample
from directloss.tabular.target import Rows, Target, read_target, split

RUN, TRIALS, MODEL, PREDICTIONS = "run.json", "trials.json", "model.safetensors", "predictions.csv"
MANY = 500
"""From this many columns on, looking at them takes seconds."""
QUIET = 10
"""Seconds between two lines of progress."""
BLOCK = 2**16
"""Rows of predictions that are written at once."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class FitRequest:
    """What the user asked for."""

    data: Path
    metric: str
    target: str | None = None
    positive: str | None = None
    group: str | None = None
    flips: str = ""
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    rows: int | None = None
    test_share: float = 0.2
    seed: int = 0
    epochs: int | None = None
    trials: int = 8
    baselines: str = "all"
    out: Path | None = None
    resume: bool = False
    no_header: bool = False

    @cached_property
    def folder(self) -> Path:
        """The folder for the results: a new one, unless one is named or resumed."""
        return self.out or usual_folder(self.data.name.split(".")[0], self.resume)

    def command(self, resume: bool = False) -> str:
        """The command that makes this request."""
        words = ["directloss", "fit", str(self.data), "--metric", self.metric]
        for option in fields(self):
            value = getattr(self, option.name)
            if value != option.default and option.name not in ("data", "metric", "out", "resume"):
                text = ",".join(value) if isinstance(value, tuple) else str(value)
                words += [f"--{option.name.replace('_', '-')}", *([text] if value is not True else [])]
        return shlex.join([*words, "--out", str(self.folder), *(["--resume"] if resume else [])])

    def check(self) -> None:
        """Check the numbers of the request."""
        for option in ("trials", "epochs", "rows"):
            if (value := getattr(self, option)) is not None:
                check_count(f"--{option}", value)
        if not 0.05 <= self.test_share <= 0.5:
            fail("--test-share", "must be a share from 0.05 to 0.5", self.test_share)
        if not 0 <= self.seed < 2**31:
            fail("--seed", "must be a whole number from 0 to 2147483647", self.seed)


def usual_folder(name: str, resume: bool) -> Path:
    """``runs/fit-NAME``, numbered if that is taken; to resume, the last one that exists."""
    last = None
    for number in itertools.count(1):
        folder = Path("runs") / f"fit-{name}{f'-{number}' if number > 1 else ''}"
        if not folder.exists():
            break
        last = folder
    return last if resume and last is not None else folder


@dataclass(frozen=True)
class FitPlan:
    """A checked request and the rows it is about; nothing is written yet."""

    request: FitRequest
    measure: Measure
    table: Table
    rows: Rows = field(repr=False)
    """The index of each row in the file."""
    total: int
    """Number of rows in the file."""
    target: Target = field(repr=False)
    columns: tuple[Column, ...]
    frame: dict[str, Values] = field(repr=False)
    left_out: dict[str, str]
    """Columns that are not used, and why."""
    parts: dict[str, Rows] = field(repr=False)
    groups: Rows | None = field(repr=False)
    """The group index of each row."""
    methods: tuple[Method, ...]
    notes: list[str]
    config: dict[str, Any]
    """Everything that a trial depends on."""

    @property
    def too_few(self) -> str:
        """Which label has too few test rows to compare methods; empty if none has."""
        return self.target.too_few(self.parts["test"])


# ---------------------------------------------------------------------- checks


def make_plan(request: FitRequest, say: Say = lambda line: None) -> FitPlan:
    """Check everything that can be checked before the first trial; write nothing."""
    request.check()
    measure, baselines = get_measure(request.metric, request.flips), parse_baselines(request.baselines)
    table = open_table(request.data, not request.no_header)
    name = _check_columns(request, table)
    _check_folder(request.folder, request.resume)
    sample = read_sample(table, request.rows, request.seed, _progress(say, f"Reading {request.data.name}"))
    if len(table.names) > MANY:
        say(f"Looking at {len(table.names):,} columns ...")
    target = read_target(series_of(sample.columns[name]), name, request.positive, measure)
    measure = replace(measure, classes=len(target.labels))
    if measure.classes > 2 and any(measure.flips):
        fail("--flips", "must be left out for more than two classes", request.flips, "Choose one with --positive.")
    group = request.group
    groups = None if group is None else labels_of(series_of(sample.columns[group], text=True), group)[0]
    parts = split(target.y, request.test_share, request.seed, groups)
    measure.check_rows({part: len(own) for part, own in parts.items()})
    columns, frame, left_out = _read_columns(request, table, sample, name)
    config: dict[str, Any] = {"sha256": _digest(request.data), "target": name, "positive": target.positive}
    config["metric"] = measure.name
    config |= {key: getattr(request, key) for key in ("group", "flips", "rows", "test_share", "seed", "epochs")}
    config |= {key: sorted(getattr(request, key)) for key in ("drop", "categorical")}
    if request.resume:
        _check_same(request.folder / RUN, config)
    known = np.sort(np.concatenate(list(parts.values())))
    seen = {own: values.iloc[known].reset_index(drop=True) for own, values in frame.items()}
    notes = [*table.notes, *_row_notes(sample, target, parts), *suspicions(seen, target.y[known], target.labels)]
    methods = *networks(measure, request.trials, request.seed), *baselines
    found = sample.rows, sample.total, target, columns, frame, left_out
    return FitPlan(request, measure, table, *found, parts, groups, methods, notes, config)


def _progress(say: Say, what: str) -> Callable[[int], None]:
    last = time.monotonic()

    def tell(rows: int) -> None:
        nonlocal last
        if time.monotonic() - last >= QUIET:
            last = time.monotonic()
            say(f"{what}: {rows:,} rows")

    return tell


def _check_columns(request: FitRequest, table: Table) -> str:
    """Check all columns that the request names; returns the target."""
    name, shown = request.target, f"Columns: {some(table.names, 12)}."
    if name is None:
        fail("--target", "must name the column to predict", "not given", shown)
    if name not in table.names:
        hint = f"{near(name, table.names) or shown} {NO_HEADER if table.format == 'csv' else ''}"
        fail("--target", f"must be a column of {table.path.name}", repr(name), hint.strip())
    group = () if request.group is None else (request.group,)
    for option, own in (("--drop", request.drop), ("--group", group), ("--categorical", request.categorical)):
        check_columns(option, own, table.names)
        if name in own:
            fail(option, "must not name the target", repr(name))
    return name


def _read_columns(
    request: FitRequest, table: Table, sample: Sample, target: str
) -> tuple[tuple[Column, ...], dict[str, Values], dict[str, str]]:
    """The columns to learn from, their values, and the columns that are left out."""
    left_out = dict.fromkeys(request.drop, "left out by --drop")
    if request.group is not None:
        left_out[request.group] = "group: its rows stay together"
    columns, frame = [], {}
    for name in table.names:
        if name == target or name in left_out:
            continue
        text = name in request.categorical
        column, values = find_column(series_of(sample.columns[name], text), name, text, table.decimal_comma)
        if values.notna().any():
            columns.append(column)
            frame[name] = values
        else:
            left_out[name] = "left out: it has no values"
    if not columns:
        given = ", ".join(request.drop) or "a table without one"
        fail("--drop", "must leave a column with values to learn from", given)
    return tuple(columns), frame, left_out


def _row_notes(sample: Sample, target: Target, parts: dict[str, Rows]) -> list[str]:
    """Notes about rows that are left out, and about labels with too few test rows."""
    notes, unknown = [], int((target.y < 0).sum())
    if len(sample.rows) < sample.total:
        drawn = f"{len(sample.rows):,} of {sample.total:,} rows, drawn at random, to limit memory; --rows changes it"
        notes.append(f"Everything below is about {drawn}.")
    if unknown:
        notes.append(f"{unknown:,} of {len(target.y):,} rows have no {target.name!r} and are left out.")
    if few := target.too_few(parts["test"]):
        notes.append(f"Too few test rows to tell methods apart: {few}.")
    return notes


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_folder(folder: Path, resume: bool) -> None:
    if folder.exists() and not folder.is_dir():
        fail("--out", "must be a folder", f"the file {folder}")
    if resume and not (folder / RUN).is_file():
        fail("--resume", "needs an --out folder that holds a fit", f"{folder}, which holds none", "Leave it out.")
    if not resume and folder.is_dir() and any(folder.iterdir()):
        hint = "Add --resume to continue the fit in it, or choose another folder."
        fail("--out", "must be a new or empty folder", f"{folder}, which is not empty", hint)


def _check_same(path: Path, config: dict[str, Any]) -> None:
    """Check that a resumed fit has the same rows and options, except for its budget."""
    hint = "Choose another --out for another fit."
    try:
        before = json.loads(path.read_text(encoding="utf-8"))["config"]
        changed = [key for key in config if config[key] != before[key]]
    except (ValueError, LookupError, TypeError) as error:
        fail(str(path), "must describe a fit of this version", f"another file or damaged ({error!r:.60})", hint)
    if "sha256" in changed:
        fail("DATA", f"must be the table of the fit in {path.parent}", "another table", hint)
    for key in changed:
        rule = f"must be {json.dumps(before[key])}, as in the fit in {path.parent}"
        fail(f"--{key.replace('_', '-')}", rule, json.dumps(config[key]), hint)


def introduce(plan: FitPlan, say: Say) -> None:
    """Say what was found in the file, before the work begins."""
    kinds = [column.kind for column in plan.columns]
    counts = ", ".join(f"{kinds.count(kind)} {title}" for kind, title in TITLES.items() if kind in kinds)
    say(f"{plan.request.data.name}: {plan.total:,} rows, {len(kinds)} columns ({counts}).")
    target, sizes = plan.target, {part: f"{len(own):,} {part}" for part, own in plan.parts.items()}
    shares = target.counts(np.concatenate(list(plan.parts.values()))) / sum(map(len, plan.parts.values()))
    if target.positive is None:
        most, least = shares.argmax(), shares.argmin()
        ends = f"{target.labels[most]!r} {shares[most]:.1%} of the rows, {target.labels[least]!r} {shares[least]:.1%}"
        say(f"Target {target.name!r}: {len(shares)} classes, {ends}.")
    else:
        say(f"Target {target.name!r}: {target.positive!r} is positive ({target.why}), {shares[1]:.1%} of the rows.")
        sizes = {part: f"{sizes[part]} ({target.counts(own)[1]:,} positive)" for part, own in plan.parts.items()}
    say(f"Split: {', '.join(sizes.values())} rows.")
    for note in plan.notes:
        say(f"Note: {note}")


# ---------------------------------------------------------------------- work


@dataclass(frozen=True)
class Result:
    """A method with the setting that the validation rows chose."""

    name: str
    title: str
    setting: str
    validation: float
    test: Scores = field(repr=False)
    """Scores of the test rows, positive above 0, or one per class."""
    seconds: float
    """Time to choose the settings and to train."""
    trained: Any = field(repr=False)
    cut: float
    """The threshold, already subtracted from ``test``."""


@dataclass(frozen=True)
class Outcome:
    """Everything that the report needs."""

    plan: FitPlan
    encoder: Encoder
    results: dict[str, Result]
    saved: str
    probabilities: Scores = field(repr=False)
    """Probabilities of the labels of the test rows, by the saved model."""
    comparison: Comparison
    seconds: float


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes from working in the same folder; the lock file stays, because removing it is a race."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        hint = "Wait for it, or choose another --out."
        fail("--out", "must be a folder in which no other fit is running", f"{folder}, in which one is", hint)


def carry_out(plan: FitPlan, say: Say) -> Outcome:
    """Search, train, compare, and write the model and the predictions; can be resumed if it is interrupted."""
    began, folder = time.monotonic(), plan.request.folder
    write_file(folder / RUN, _run_text(plan, {"finished": None}))
    data, encoder, test = _encode(plan)
    stored = read_trials(folder / TRIALS)
    results = {method.name: _choose(plan, method, data, test, stored, say) for method in plan.methods}
    # The validation rows choose; the test rows only judge. Trees cannot be stored as plain numbers.
    storable = [result for result in results.values() if isinstance(result.trained, Network)]
    saved = max(storable, key=lambda result: result.validation)
    model = _model(plan, encoder, data, saved)
    scores = {name: torch.from_numpy(result.test) for name, result in results.items()}
    y, groups = plan.target.y[plan.parts["test"]], None if plan.groups is None else plan.groups[plan.parts["test"]]
    pair = plan.methods[0].name, CROSS_ENTROPY
    comparison = compare(plan.measure, scores, torch.from_numpy(y), saved.name, plan.request.seed, groups, pair)
    shares = model.calibration(saved.test)
    outcome = Outcome(plan, encoder, results, saved.name, shares, comparison, time.monotonic() - began)
    model.save(folder / MODEL)
    write_file(folder / PREDICTIONS, _predictions(plan, list(results.values())))
    write_file(folder / RUN, _run_text(plan, _summary(outcome)))
    return outcome


def _encode(plan: FitPlan) -> tuple[Data, Encoder, Any]:
    def part(name: str) -> dict[str, Values]:
        return {own: values.iloc[plan.parts[name]] for own, values in plan.frame.items()}

    encoder = Encoder.learn(plan.columns, part("training"))
    rows = {name: (encoder.encode(part(name)), plan.target.y[own]) for name, own in plan.parts.items()}
    data = Data(rows["training"], rows["validation"], plan.measure, plan.request.seed, plan.request.epochs)
    return data, encoder, rows["test"][0]


def read_trials(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The finished trials of each method, as an earlier process stored them."""
    try:
        trials = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for own in itertools.chain(*trials.values()):
            _ = own["setting"], float(own["value"]), float(own["seconds"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        fail(str(path), "must list the trials of a fit", f"damaged ({error!r:.60})", "Delete it to start again.")
    return dict(trials)


def _choose(plan: FitPlan, method: Method, data: Data, test: Any, stored: dict[str, Any], say: Say) -> Result:
    """Try the settings of a method, except those that were tried before; each is stored when it is finished."""
    trials: list[dict[str, Any]] = []
    trained: dict[int, Any] = {}
    say(f"{method.name} ({method.title}): trying {len(method.settings)} settings ...")
    for place, setting in enumerate(method.settings):
        trial = next((own for own in stored.get(method.name, []) if own["setting"] == setting), None)
        if trial is None:
            began, own = time.monotonic(), method.train(data, setting)
            trial = {"setting": setting, "value": data.judge(own)[0], "seconds": round(time.monotonic() - began, 2)}
            if all(trial["value"] > other["value"] for other in trials):
                trained = {place: own}
            stored.setdefault(method.name, []).append(trial)
            write_file(plan.request.folder / TRIALS, (json.dumps(stored, indent=1) + "\n").encode())
            said = f"validation {plan.measure.title}: {trial['value']:.4f} ({described(setting)})"
            say(f"[{method.name} {place + 1} of {len(method.settings)}] {said}")
        trials.append(trial)
    best = max(range(len(trials)), key=lambda place: trials[place]["value"])
    setting = method.settings[best]
    # A winner that an earlier process found is trained again; the same setting always gives the same model.
    winner = trained[best] if best in trained else method.train(data, setting)
    (value, cut), seconds = data.judge(winner), sum(own["seconds"] for own in trials)
    scores = winner.decision_function(test) - cut
    return Result(method.name, method.title, described(setting), value, scores, seconds, winner, cut)


def _model(plan: FitPlan, encoder: Encoder, data: Data, saved: Result) -> Model:
    assert isinstance(saved.trained, Network)
    calibration = Calibration.of(saved.trained.decision_function(data.held[0]) - saved.cut, data.held[1])
    about = {"method": saved.name, "trained": saved.title, "data": plan.request.data.name}
    return Model(
        encoder, saved.trained, saved.cut, calibration, plan.target.labels, plan.target.name, plan.measure.name, **about
    )


def _predictions(plan: FitPlan, results: list[Result]) -> Iterator[bytes]:
    """The test rows with their label and each method's score or class; rows count from 1, without the header."""
    for start in range(0, len(plan.parts["test"]), BLOCK):
        some_rows = slice(start, start + BLOCK)
        test = plan.parts["test"][some_rows]
        columns: dict[str, list[Any]] = {
            "row": (plan.rows[test] + 1).tolist(),
            plan.target.name: [plan.target.labels[label] for label in plan.target.y[test]],
        }
        for result in results:
            scores = result.test[some_rows]
            if scores.ndim == 2:
                columns[f"decision {result.name}"] = [plan.target.labels[place] for place in scores.argmax(1)]
            else:
                columns[f"score {result.name}"] = [float(f"{value:.8g}") for value in scores]
        yield csv_bytes(columns, head=not start)


def _summary(outcome: Outcome) -> dict[str, Any]:
    test, methods = outcome.comparison.test, {}
    for name, own in outcome.results.items():
        about = {"settings": own.setting, "seconds": round(own.seconds, 1), "validation": own.validation}
        methods[name] = about | {"test": asdict(test[name])}
    return {
        "finished": datetime.now(UTC).replace(microsecond=0).isoformat(),
        "seconds": round(outcome.seconds, 1),
        "saved": outcome.saved,
        "methods": methods,
        "ahead_of_saved": {name: asdict(ahead) for name, ahead in outcome.comparison.ahead.items()},
    }


def _run_text(plan: FitPlan, more: dict[str, Any]) -> bytes:
    about = {"command": plan.request.command(), "config": plan.config, "versions": versions()}
    return (json.dumps(about | more, indent=2, allow_nan=False) + "\n").encode()


def versions() -> dict[str, str]:
    """The versions that produced the numbers."""
    names = ("numpy", "torch", "scikit-learn", "skrub")
    return {"directloss": directloss.__version__, **{name: version(name) for name in names}}
