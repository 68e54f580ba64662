"""Reads what a run left behind: ``records.jsonl`` (one finished training per line) and ``run.json``.

Records that are kept for long may be packed: ``gzip records.jsonl``.

This is the only way into the reports. Nothing here knows how the records were made.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from directloss._checks import fail

SCHEMA = 1
RECORDS = "records.jsonl"
RUN = "run.json"

METHODS = ("direct-ap", "pos-ap", "neg-ap", "pos-01", "neg-01", "hinge-ap", "hinge-01", "per-ap", "per-01", "x-ent")
"""The order of methods in tables; others follow by name."""


@dataclass(frozen=True)
class Record:
    """One finished training."""

    experiment: str
    stage: str
    method: str
    seed: int
    noise: float | None
    group: str | None
    """The class of a problem with one model for each class (``class`` in the file), else None."""
    params: Mapping[str, Any]
    metrics: Mapping[str, float]
    curve: Mapping[str, tuple[float, ...]]
    seconds: float
    versions: Mapping[str, str]
    commit: str
    diverged: bool
    """Whether training stopped because a score was no longer finite (``diverged_at`` in the file)."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """Plain data for drawings, where the run left some."""

    @property
    def place(self) -> tuple[str, int, float | None, str | None]:
        """Which cell of the experiment this training fills."""
        return self.method, self.seed, self.noise, self.group


@dataclass(frozen=True)
class Run:
    """All that is known about one output folder."""

    folder: Path
    experiment: str
    final: tuple[Record, ...]
    search: tuple[Record, ...]
    info: Mapping[str, Any]
    notes: tuple[str, ...] = field(default=())
    """What a reader should know about the state of the files."""
    records: str = RECORDS
    """The name of the file that the records are in."""

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
        """Noise levels with final records, rising."""
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
    """Numbers by value, then words by letter."""
    if group is None:
        return (0, 0.0, "")
    number = re.fullmatch(r"-?\d+", group)
    return (1, float(group), "") if number else (2, 0.0, group)


def load_run(folder: Path) -> Run:
    """Read and check a folder; every complaint names the file and the line."""
    packed = folder / f"{RECORDS}.gz"
    plain = folder / RECORDS
    path = packed if packed.is_file() and not plain.is_file() else plain
    records, notes = _read_records(path)
    info = _read_info(folder / RUN)
    experiment = records[0].experiment
    named = info.get("experiment", experiment)
    if named != experiment:
        fail(str(folder / RUN), f"must name the experiment of the records, {experiment!r}", repr(named))
    if not info:
        notes.append(f"There is no {RUN} in the folder, so the command, the settings and the duration are not known.")
    final, repeated = _last_of_each(record for record in records if record.stage == "final")
    if repeated:
        notes.append(f"{repeated} finished runs are stored more than once; the last one counts.")
    search = tuple(record for record in records if record.stage == "search")
    return Run(folder, experiment, final, search, info, tuple(notes), path.name)


def _last_of_each(records: Iterable[Record]) -> tuple[tuple[Record, ...], int]:
    kept: dict[tuple[object, ...], Record] = {}
    repeated = 0
    for record in records:
        repeated += record.place in kept
        kept[record.place] = record
    return tuple(kept.values()), repeated


def _read_records(path: Path) -> tuple[list[Record], list[str]]:
    text = _read_text(path, "Run the experiment first, or give the folder that holds its records.")
    lines = text.removesuffix("\n").split("\n")
    records: list[Record] = []
    notes: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            raw = json.loads(line)
        except json.JSONDecodeError as error:
            # A killed process can leave a last line without its end; everything before it is whole.
            if number == len(lines) and not text.endswith("\n"):
                notes.append(
                    f"The last line of {path.name} is cut off (the run was killed while writing it) and was left out."
                )
                break
            fail(where, "must be one JSON object", f"broken at column {error.colno} ({error.msg})", _REPAIR)
        record = _record(raw, where)
        if records and record.experiment != records[0].experiment:
            rule = f"must belong to the experiment of the lines before, {records[0].experiment!r}"
            fail(where, rule, repr(record.experiment), "Use one output folder for each experiment.")
        records.append(record)
    if not records:
        fail(str(path), "must hold at least one record", "empty", "Run the experiment first.")
    return records, notes


_REPAIR = "Remove the line, then run the experiment again with --resume."


def _read_text(path: Path, hint: str) -> str:
    try:
        return (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
    except FileNotFoundError:
        fail(str(path), "must exist", "missing", hint)
    except UnicodeDecodeError as error:
        fail(str(path), "must be UTF-8 text", f"binary at byte {error.start}")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        fail(str(path), "must be a whole gzip file", f"not ({error})")
    except OSError as error:
        fail(str(path), "must be readable", f"not ({error.strerror})")


def _read_info(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        info = json.loads(_read_text(path, ""))
    except json.JSONDecodeError as error:
        fail(f"{path} line {error.lineno}", "must be JSON", f"broken at column {error.colno} ({error.msg})")
    if not isinstance(info, dict):
        fail(str(path), "must be a JSON object", f"a {type(info).__name__}")
    return info


def _record(raw: object, where: str) -> Record:
    if not isinstance(raw, dict):
        fail(where, "must be one JSON object", f"a {type(raw).__name__}", _REPAIR)
    if raw.get("schema") != SCHEMA:
        hint = "The records were written by another version of the library."
        fail(f"{where}: schema", f"must be {SCHEMA}", repr(raw.get("schema")), hint)

    def take(key: str, rule: str, good: Callable[[Any], bool], default: Any = ...) -> Any:
        value = raw.get(key, default)
        if value is ...:
            fail(f"{where}: {key}", f"must be {rule}", "missing")
        if not good(value):
            fail(f"{where}: {key}", f"must be {rule}", repr(value))
        return value

    stage = take("stage", "'search' or 'final'", lambda value: value in ("search", "final"))
    noise = take("noise", "a number or null", lambda value: value is None or _is_number(value), None)
    group = take(
        "class", "a word, a whole number or null", lambda value: value is None or isinstance(value, str | int), None
    )
    return Record(
        experiment=take("experiment", "a word", _is_word),
        stage=stage,
        method=take("method", "a word", _is_word),
        seed=take("seed", "a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
        noise=None if noise is None else float(noise),
        group=None if group is None else str(group),
        params=take("params", "an object", lambda value: isinstance(value, dict), {}),
        metrics=_numbers(take("metrics", "an object of numbers", _is_metrics)),
        curve=_curve(take("curve", "an object of lists of numbers or null", _is_curve, None), where),
        seconds=float(take("seconds", "a number", _is_number, 0.0)),
        versions={
            str(k): str(v) for k, v in take("versions", "an object", lambda value: isinstance(value, dict), {}).items()
        },
        commit=str(raw.get("commit") or ""),
        diverged=raw.get("diverged_at") is not None,
        shown=take("shown", "an object", lambda value: isinstance(value, dict), {}),
    )


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_measured(value: object) -> bool:
    """A number as a diverged training may leave it: NaN, infinite or null are allowed."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_metrics(value: object) -> bool:
    return isinstance(value, dict) and all(_is_measured(number) for number in value.values())


def _is_curve(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, dict) and all(
        isinstance(points, list) and all(_is_measured(point) for point in points) for points in value.values()
    )


def _numbers(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Only what was measured: a diverged training has no number."""
    return {key: float(value) for key, value in metrics.items() if value is not None and math.isfinite(value)}


def _curve(raw: Mapping[str, list[float | None]] | None, where: str) -> dict[str, tuple[float, ...]]:
    curve = {
        key: tuple(math.nan if point is None else float(point) for point in points)
        for key, points in (raw or {}).items()
    }
    curve = {key: points for key, points in curve.items() if points}
    steps = len(curve.get("iteration", ()))
    for key, points in curve.items():
        if len(points) != steps:
            fail(
                f"{where}: curve", f"must have as many values of {key!r} as iterations, {steps}", f"{len(points)} long"
            )
    return curve
