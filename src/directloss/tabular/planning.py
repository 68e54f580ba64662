"""From a request ("fit this, for that metric") to a plan: all that can be known and checked before the first trial."""

from __future__ import annotations

import hashlib
import json
import shlex
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from directloss._checks import check_count, fail
from directloss.tabular.baselines import parse_baselines
from directloss.tabular.columns import (
    CATEGORY,
    DATE,
    NUMBER,
    Column,
    Survey,
    check_finite,
    check_known,
    choose,
    kinds_of,
    suspicions,
)
from directloss.tabular.measures import Measure, get_measure
from directloss.tabular.reading import Table, open_table
from directloss.tabular.split import Rows, split_groups, split_rows
from directloss.tabular.target import Labels, Target, check_few, find_target, read_target

RUN, JOURNAL = "run.json", "search.journal"
TRIALS = 8
FEW = 10
"""Test rows of each label below which a comparison is not more than chance."""
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

    def over(self, batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """The batches, with lines about them."""
        rows = 0
        for batch in batches:
            yield batch
            rows += len(batch)
            self.tell(f"{rows:,} rows" + (f" ({rows / self.total:.0%})" if self.total else ""))


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
    no_header: bool = False

    @cached_property
    def folder(self) -> Path:
        """Where the results go: a new folder, unless one is named or resumed."""
        return self.out or usual_folder(self.data.name.split(".")[0], self.resume)

    @property
    def address(self) -> str:
        """Where the trials are kept."""
        return self.storage or str(self.folder / JOURNAL)

    @property
    def most_trials(self) -> int | None:
        """Of each loss; minutes alone leave it open."""
        return self.trials if self.trials or self.minutes else TRIALS

    def command(self, resume: bool = False) -> str:
        """The command that asks for exactly this."""
        words = ["directloss", "fit", str(self.data), "--metric", self.metric]
        for option in fields(self):
            value = getattr(self, option.name)
            if value != option.default and option.name not in ("data", "metric", "out", "resume"):
                text = ",".join(value) if isinstance(value, tuple) else str(value)
                words += [f"--{option.name.replace('_', '-')}", *([text] if value is not True else [])]
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


def usual_folder(name: str, resume: bool) -> Path:
    """``runs/fit-NAME``, or with the first number that is free; to resume, the last one that is there."""
    last = None
    for number in count(1):
        folder = Path("runs") / f"fit-{name}{f'-{number}' if number > 1 else ''}"
        if not folder.exists():
            break
        last = folder
    return last if resume and last is not None else folder


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


def make_plan(request: Request, say: Say = lambda line: None) -> Plan:
    """Check everything that can be checked before the first trial, and write nothing."""
    request.check()
    measure = get_measure(request.metric)
    baselines = parse_baselines(request.baselines)
    table = open_table(request.data, not request.no_header)
    name = find_target(table, request.target)
    _check_columns(request, table.names, name)
    _check_folder(request.folder, request.resume)
    survey, labels, groups = _look_at(table, name, request.group, measure, say)
    target = read_target(survey.columns[name], labels, request.positive, measure)
    measure = replace(measure, classes=len(target.labels))
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
        "positive": target.positive,
        "metric": measure.name,
        **{key: getattr(request, key) for key in ("group", "test_share", "seed", "epochs")},
        **{key: sorted(getattr(request, key)) for key in ("drop", "categorical")},
        **({"no_header": True} if request.no_header else {}),
    }
    owner = _check_same(request.folder / RUN, config) if request.resume else uuid.uuid4().hex
    left_out = _left_out(table, request, target.name, names)
    notes = [*table.notes, *_target_notes(target, parts), *suspicions(survey, kinds)]
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
    table: Table, target: str, group: str | None, measure: Measure, say: Say
) -> tuple[Survey, Labels, npt.NDArray[np.int64] | None]:
    """The first reading: what the columns hold, the target, and which rows belong together."""
    survey, labels, groups = Survey({name: Column(name) for name in table.names}), Labels(), Labels()
    progress = Progress(say, f"Reading {table.path.name}")
    for batch in progress.over(table.batches()):
        survey.add(batch)
        labels.add(batch[target])
        check_few(target, labels, measure)
        if group is not None:
            groups.add(batch[group])
    return survey, labels, None if group is None else groups.sorted_rows()


def _target_notes(target: Target, parts: dict[str, Rows]) -> list[str]:
    """Rows that are left out, and what too few of them mean."""
    notes = []
    if target.unknown:
        notes.append(f"{target.unknown} of {len(target.y)} rows have no {target.name!r}: they are left out.")
    counts = target.counts(parts["test"])
    if counts.min() < FEW:
        rare = target.labels[counts.argmin()]
        have = "has" if counts.min() == 1 else "have"
        notes.append(f"Only {counts.min()} of the test rows {have} {rare!r}: too few to tell one method from another.")
    return notes


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
    found, names = list(plan.kinds.values()), {NUMBER: "numbers", CATEGORY: "categories", DATE: "dates"}
    counts = ", ".join(f"{found.count(kind)} of {name}" for kind, name in names.items() if kind in found)
    say(f"{plan.request.data.name}: {plan.survey.rows:,} rows, {len(found)} columns ({counts}).")
    target, sizes = plan.target, {part: f"{len(rows):,} {part}" for part, rows in plan.parts.items()}
    shares = target.counts(np.concatenate(list(plan.parts.values()))) / sum(map(len, plan.parts.values()))
    if target.positive is None:
        most, least = shares.argmax(), shares.argmin()
        ends = f"{target.labels[most]!r} {shares[most]:.1%} of the rows, {target.labels[least]!r} {shares[least]:.1%}"
        say(f"Target {target.name!r}: {len(shares)} classes, {ends}.")
    else:
        say(f"Target {target.name!r}: {target.positive!r} is positive ({target.why}), {shares[1]:.1%} of the rows.")
        sizes = {part: f"{sizes[part]} ({target.counts(rows)[1]:,} positive)" for part, rows in plan.parts.items()}
    say(f"Split: {', '.join(sizes.values())} rows.")
    for note in plan.notes:
        say(f"Note: {note}")
