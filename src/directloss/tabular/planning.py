"""From a request ("fit this, for that metric") to a plan: everything known and checked before the first trial."""

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
from directloss.tabular.columns import KINDS, Survey, check_finite, check_known, choose, kinds_of, suspicions
from directloss.tabular.measures import Measure, get_measure
from directloss.tabular.reading import Table, open_table
from directloss.tabular.split import Rows, split_groups, split_rows
from directloss.tabular.target import Labels, Target, check_few, find_target, read_target

RUN, JOURNAL = "run.json", "search.journal"
TRIALS = 8
QUIET = 10
"""Seconds between two lines of progress."""
Say = Callable[[str], None]


@dataclass
class Progress:
    """Lines about slow work; quick work prints none."""

    say: Say
    what: str
    total: int | None = None
    _last: float = field(default_factory=time.monotonic)

    def tell(self, line: str) -> None:
        """Print the line, unless one was printed shortly before."""
        if time.monotonic() - self._last >= QUIET:
            self._last = time.monotonic()
            self.say(f"{self.what}: {line}")

    def over(self, batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """The batches, with progress lines."""
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
        """The folder for the results: a new one, unless one is named or resumed."""
        return self.out or usual_folder(self.data.name.split(".")[0], self.resume)

    @property
    def address(self) -> str:
        """Where the trials are stored."""
        return self.storage or str(self.folder / JOURNAL)

    @property
    def most_trials(self) -> int | None:
        """Trials per loss; None if only ``--minutes`` limits them."""
        return self.trials if self.trials or self.minutes else TRIALS

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
    """``runs/fit-NAME``, numbered if that is taken; to resume, the last one that exists."""
    last = None
    for number in count(1):
        folder = Path("runs") / f"fit-{name}{f'-{number}' if number > 1 else ''}"
        if not folder.exists():
            break
        last = folder
    return last if resume and last is not None else folder


@dataclass(frozen=True)
class Plan:
    """A checked request and the rows it is about; nothing is written yet."""

    request: Request
    measure: Measure
    target: Target
    table: Table
    survey: Survey
    kinds: dict[str, str]
    left_out: dict[str, str]
    """Columns that are not used, and why."""
    parts: dict[str, Rows]
    groups: npt.NDArray[np.int64] | None
    """The group index of each row."""
    baselines: tuple[str, ...]
    notes: list[str]
    config: dict[str, Any]
    """Everything that a trial depends on."""
    owner: str
    """The name of this fit among all that share its storage."""

    @property
    def name(self) -> str:
        """The name of the studies; trials are shared only between equal rows and settings."""
        return "fit-" + hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def too_few(self) -> str:
        """Which label has too few test rows to compare methods; empty if none has."""
        return self.target.too_few(self.parts["test"])


def make_plan(request: Request, say: Say = lambda line: None) -> Plan:
    """Check everything that can be checked before the first trial; write nothing."""
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
    with request.data.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = {
        "sha256": digest,
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
    """Read the file for the first time: what the columns hold, the target, and the groups."""
    survey, labels, groups = Survey.of([], table.names), Labels(), Labels()
    progress = Progress(say, f"Reading {table.path.name}")
    for batch in progress.over(table.batches()):
        survey.add(batch)
        labels.add(batch[target])
        check_few(target, labels, measure)
        if group is not None:
            groups.add(batch[group])
    return survey, labels, None if group is None else groups.sorted_rows()


def _target_notes(target: Target, parts: dict[str, Rows]) -> list[str]:
    """Notes about rows without a target, and about labels with too few test rows."""
    notes = []
    if target.unknown:
        notes.append(f"{target.unknown} of {len(target.y)} rows have no {target.name!r} and are left out.")
    if few := target.too_few(parts["test"]):
        notes.append(f"Too few test rows to tell methods apart: {few}.")
    return notes


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
        hint = "Add --resume to continue the fit in it, or choose another folder."
        fail("--out", "must be a new or empty folder", f"{folder}, which is not empty", hint)


def _check_same(path: Path, config: dict[str, Any]) -> str:
    """Check that a resumed fit has the same rows and options, except for its budget. Returns its owner."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        before, owner = {key: stored["config"][key] for key in config}, str(stored["owner"])
    except (ValueError, LookupError, TypeError) as error:
        hint = "Choose another --out to start a new fit."
        fail(str(path), "must describe a fit of this version", f"another file or damaged ({error!r:.60})", hint)
    hint = "Choose another --out for another fit."
    for key, value in config.items():
        if key == "sha256" and value != before[key]:
            fail("DATA", f"must be the table of the fit in {path.parent}", "another table", hint)
        if value != before[key]:
            rule = f"must be {json.dumps(before[key])}, as in the fit in {path.parent}"
            fail(f"--{key.replace('_', '-')}", rule, json.dumps(value), hint)
    return owner


def introduce(plan: Plan, say: Say) -> None:
    """Say what was found in the file, before the work begins."""
    found = list(plan.kinds.values())
    counts = ", ".join(f"{found.count(kind)} {name}" for kind, name in KINDS.items() if kind in found)
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
