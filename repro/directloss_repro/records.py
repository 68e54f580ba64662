"""Records: one JSON object per line for each finished run. This is their only schema and their only reader.

Each line is written in one call, followed by fsync. A process killed in between leaves at most a truncated last line,
without its newline, which the next reader drops and reports. Each line carries a digest of its content, so that later
edits are detected. Lines of schema 1 have none and are still read. ``gzip records.jsonl`` packs them for archiving.
"""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import platform
import re
import subprocess
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator

from directloss._checks import fail
from directloss_repro import PAPER_METHODS
from directloss_repro.fields import Number, Whole, Word, parse
from directloss_repro.files import stable_hash
from directloss_repro.folder import RECORDS, RUN_FILE, read_info

SCHEMA = 2
WITHOUT_DIGEST = 1
"""The schema of older records, which have no digest."""
REPAIR = "Remove the line, then run the experiment again with --resume."

METHODS = ("direct-ap", *PAPER_METHODS)
"""The order of methods in tables; others follow by name."""

Params = dict[str, Any]
"""Hyper-parameters of one run, such as ``{"learning_rate": 0.01, "weight_decay": 0.0, "epsilon": "auto"}``."""


@dataclass(frozen=True)
class RunSpec:
    """What identifies a run within a config."""

    experiment: str
    stage: str
    """``"search"`` or ``"final"``."""
    method: str
    seed: int
    noise: float
    group: str | None
    """The class that is ranked against the rest, or another column of a table; None for a single problem."""
    params: Params

    def key(self, version: str) -> str:
        """Identical for the same run of the same config or study, on every machine."""
        named = asdict(self)
        named["label"] = named.pop("group")  # its name in stored keys
        return stable_hash([named, version])


# ---------------------------------------------------------------------- one record


def _measured(metrics: Any) -> Any:
    """Finite metrics only: a diverged training leaves NaN, infinity or null."""
    if not isinstance(metrics, dict):
        return metrics
    lost = {name for name, value in metrics.items() if isinstance(value, float) and not math.isfinite(value)}
    return {name: value for name, value in metrics.items() if value is not None and name not in lost}


def _points(curve: Any) -> Any:
    """Curves with NaN for null, without the empty lists of numbers that were never measured."""
    if not isinstance(curve, dict):
        return {} if curve is None else curve
    return {
        name: [math.nan if point is None else point for point in points] if isinstance(points, list) else points
        for name, points in curve.items()
        if points != []
    }


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Record(BaseModel):
    """One finished run, as stored and as reports read it."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    key: str = ""
    experiment: Word
    stage: Literal["search", "final"]
    method: Word
    seed: Whole
    noise: Number | None = None
    group: Annotated[Word | None, BeforeValidator(_text)] = Field(default=None, alias="class")
    """The class of a problem with one model for each class (``class`` in the file), else None."""
    params: dict[str, Any] = {}
    metrics: Annotated[dict[str, Number], BeforeValidator(_measured)]
    curve: Annotated[dict[str, tuple[Annotated[float, Strict()], ...]], BeforeValidator(_points)] = {}
    """``curve["iteration"]`` and a list of the same length for each measured number."""
    diverged_at: int | None = None
    """The iteration at which training stopped because a score was no longer finite."""
    seconds: Number = 0.0
    versions: dict[str, str] = {}
    commit: str | None = None
    shown: dict[str, Any] = {}
    """Plain data for drawings, if the run stored any."""

    @model_validator(mode="after")
    def _check_curve(self) -> Self:
        steps = len(self.curve.get("iteration", ()))
        for name, points in self.curve.items():
            if len(points) != steps:
                rule = f"must have as many values of {name!r} as iterations, {steps}"
                raise ValueError(f"curve {rule}, but it has {len(points)}.")
        return self

    @property
    def place(self) -> tuple[str, int, float | None, str | None]:
        """The cell of the experiment that this run fills."""
        return self.method, self.seed, self.noise, self.group

    def line(self) -> bytes:
        """Its line in the file, with the digest of its content."""
        without = {"shown"} if not self.shown else set()
        values = {"schema": SCHEMA, **self.model_dump(mode="json", by_alias=True, exclude=without)}
        return (json.dumps({**values, "digest": stable_hash(values)}, separators=(",", ":")) + "\n").encode()


def make_record(spec: RunSpec, version: str, *, metrics: Mapping[str, float], seconds: float, **others: Any) -> Record:
    """The record of a run that has just finished; ``others`` are fields of `Record`."""
    known = {"key": spec.key(version), **asdict(spec), "versions": versions(), "commit": commit()}
    return Record(**known, metrics=dict(metrics), seconds=round(seconds, 3), **others)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of the software that computed the results."""
    import numpy
    import torch

    import directloss

    found = {module.__name__: str(module.__version__) for module in (directloss, torch, numpy)}
    return {**found, "python": platform.python_version()}


@lru_cache(maxsize=1)
def commit() -> str | None:
    """The git commit of this package's source, with ``-dirty`` if it was edited; None for an installed package."""
    here = Path(__file__).resolve()
    if not any((parent / ".git").exists() for parent in here.parents):
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.check_output(
            command, cwd=here.parent, text=True, timeout=10, stderr=subprocess.DEVNULL
        ).strip()
    except (OSError, subprocess.SubprocessError):
        return None


# ---------------------------------------------------------------------- the reader


@dataclass(frozen=True)
class Contents:
    """The content of a file of records."""

    records: tuple[Record, ...]
    whole: int
    """Bytes up to the end of the last complete line."""
    notes: tuple[str, ...] = ()
    """Warnings about the state of the file."""


def read_records(path: Path) -> Contents:
    """All complete records of a file, plain or gzipped; errors name the line."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        end = data.rfind(b"\n") + 1
        lines = data[:end].decode().split("\n")
    except FileNotFoundError:
        hint = "Run the experiment first, or give the folder that holds its records."
        fail(str(path), "must exist", "missing", hint)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        fail(str(path), "must be a readable file of records", f"not ({error})")
    notes: tuple[str, ...] = ()
    if end < len(data):
        notes = (f"The last line of {path.name} is cut off (the run was killed while writing it) and is ignored.",)
    found = (_record(line, f"{path} line {number}") for number, line in enumerate(lines, 1) if line.strip())
    return Contents(tuple(found), end, notes)


def _record(line: str, where: str) -> Record:
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        fail(where, "must be one JSON object", f"broken at column {error.colno} ({error.msg})", REPAIR)
    if not isinstance(values, dict):
        fail(where, "must be one JSON object", f"a {type(values).__name__}", REPAIR)
    if values.get("schema") not in (WITHOUT_DIGEST, SCHEMA):
        hint = "The records were written by another version of the library."
        fail(f"{where}: schema", f"must be {WITHOUT_DIGEST} or {SCHEMA}", repr(values.get("schema")), hint)
    digest = values.pop("digest", None)
    if values.pop("schema") == SCHEMA and digest != stable_hash({"schema": SCHEMA, **values}):
        rule = f"must match its content (run {values.get('key')})"
        fail(f"{where}: digest", rule, "different: the line was changed after it was written", REPAIR)
    return parse(Record, values, f"{where}:")


def check_unpacked(folder: Path) -> None:
    """Raise for gzipped records, which can be read but not appended to."""
    packed = folder / f"{RECORDS}.gz"
    if packed.is_file() and not (folder / RECORDS).is_file():
        fail(str(packed), "must be unpacked before the run can continue", "packed", f"Run: gunzip {packed}")


def _stored(folder: Path) -> Path:
    """The file of records, plain or gzipped."""
    packed, plain = folder / f"{RECORDS}.gz", folder / RECORDS
    return packed if packed.is_file() and not plain.is_file() else plain


class RecordFile:
    """The records of an output folder: in memory by key, and appended to its file unless they are only read."""

    def __init__(self, folder: Path, read_only: bool = False) -> None:
        self.path = _stored(folder) if read_only else folder / RECORDS
        if not read_only:
            check_unpacked(folder)
        stored = read_records(self.path) if read_only or self.path.is_file() else Contents((), 0)
        self.by_key = {record.key: record for record in stored.records}
        self.notes = stored.notes
        if stored.notes and not read_only:
            os.truncate(self.path, stored.whole)

    def __contains__(self, key: str) -> bool:
        return key in self.by_key

    def __len__(self) -> int:
        return len(self.by_key)

    def append(self, record: Record) -> None:
        """Write one record, unless its key is already stored."""
        if record.key in self.by_key:
            return
        line = record.line()
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            before = os.fstat(handle).st_size
            try:
                if os.write(handle, line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, before)
                raise
        finally:
            os.close(handle)
        self.by_key[record.key] = record


# ---------------------------------------------------------------------- a folder of records


@dataclass(frozen=True)
class Run:
    """The content of one output folder."""

    folder: Path
    experiment: str
    final: tuple[Record, ...]
    search: tuple[Record, ...]
    info: Mapping[str, Any]
    """The content of ``run.json``."""
    notes: tuple[str, ...] = field(default=())
    """Warnings about the state of the files."""
    records: str = RECORDS
    """The name of the file with the records."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings; empty if they are unknown."""
        found = self.info.get("config")
        return found if isinstance(found, dict) else {}

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods with final records, in the order of the tables."""
        return tuple(sorted({record.method for record in self.final}, key=method_order))

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds with final records."""
        return tuple(sorted({record.seed for record in self.final}))

    @property
    def noises(self) -> tuple[float | None, ...]:
        """Noise levels with final records, ascending."""
        return tuple(
            sorted({record.noise for record in self.final}, key=lambda noise: (noise is not None, noise or 0.0))
        )

    @property
    def groups(self) -> tuple[str | None, ...]:
        """Classes with final records, or ``(None,)``."""
        return tuple(sorted({record.group for record in self.final}, key=group_order))


def method_order(method: str) -> tuple[int, str]:
    """Known methods first, in the order of the papers."""
    return (METHODS.index(method) if method in METHODS else len(METHODS), method)


def group_order(group: str | None) -> tuple[int, float, str]:
    """Numbers by value, then words alphabetically."""
    if group is None:
        return (0, 0.0, "")
    number = re.fullmatch(r"-?\d+", group)
    return (1, float(group), "") if number else (2, 0.0, group)


def load_run(folder: Path) -> Run:
    """Read and check a folder; errors name the file and the line."""
    path = _stored(folder)
    stored = read_records(path)
    if not stored.records:
        fail(str(path), "must hold at least one record", "empty", "Run the experiment first.")
    experiment, *others = dict.fromkeys(record.experiment for record in stored.records)
    if others:
        rule = f"must belong to one experiment, {experiment!r}"
        fail(str(path), rule, f"also of {others[0]!r}", "Use one output folder for each experiment.")
    info = read_info(folder) or {}
    if info.get("experiment", experiment) != experiment:
        rule = f"must name the experiment of the records, {experiment!r}"
        fail(str(folder / RUN_FILE), rule, repr(info["experiment"]))
    notes = list(stored.notes)
    if not info:
        notes.append(f"The folder has no {RUN_FILE}: command, settings and duration are unknown.")
    finals = [record for record in stored.records if record.stage == "final"]
    final = tuple({record.place: record for record in finals}.values())
    if repeated := len(finals) - len(final):
        notes.append(f"{repeated} finished runs are stored more than once; the last one counts.")
    search = tuple(record for record in stored.records if record.stage == "search")
    return Run(folder, experiment, final, search, info, tuple(notes), path.name)
