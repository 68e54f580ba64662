"""Records: one JSON object per finished run, one line each, written so that a crash cannot spoil them.

A line goes to disk in one write followed by fsync. A process killed in the middle of that write leaves at most a torn
last line, without its newline, which the next start recognises and drops.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from directloss._checks import fail
from directloss_repro.config import Params, stable_hash
from directloss_repro.folder import RECORDS

SCHEMA = 1
FILE_NAME = RECORDS
Record = dict[str, Any]


@dataclass(frozen=True)
class RunSpec:
    """What identifies a run, besides the numbers of the config."""

    experiment: str
    stage: str
    """``"search"`` or ``"final"``."""
    method: str
    seed: int
    noise: float
    label: str | None
    """The class that is ranked against the rest, or None."""
    params: Params

    def key(self, digest: str) -> str:
        """The same for the same run of the same config, on every machine."""
        return stable_hash([asdict(self), digest])


def make_record(
    spec: RunSpec,
    digest: str,
    *,
    metrics: Mapping[str, float],
    curve: Mapping[str, list[float]],
    seconds: float,
    diverged_at: int | None,
    shown: Mapping[str, Any] | None = None,
) -> Record:
    """The record of a finished run. The commit is added where the record is written."""
    return {
        "schema": SCHEMA,
        "key": spec.key(digest),
        "experiment": spec.experiment,
        "stage": spec.stage,
        "method": spec.method,
        "seed": spec.seed,
        "noise": spec.noise,
        "class": spec.label,
        "params": spec.params,
        "metrics": dict(metrics),
        "curve": dict(curve),
        "diverged_at": diverged_at,
        "seconds": round(seconds, 3),
        "versions": versions(),
        **({} if shown is None else {"shown": dict(shown)}),
    }


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of what computed the numbers."""
    import numpy
    import torch

    import directloss

    return {
        "directloss": directloss.__version__,
        "torch": str(torch.__version__),
        "numpy": str(numpy.__version__),
        "python": platform.python_version(),
    }


@lru_cache(maxsize=1)
def commit() -> str | None:
    """The git commit of this package's source, with ``-dirty`` when it was edited; None for an installed package."""
    here = Path(__file__).resolve()
    if not any((parent / ".git").exists() for parent in here.parents):
        return None
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=here.parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def read_records(folder: Path) -> list[Record]:
    """Every whole record of an output folder. A torn last line is left out; a bad line elsewhere is an error."""
    return [record for record, _ in _lines(folder / FILE_NAME)]


def _lines(path: Path) -> Iterator[tuple[Record, int]]:
    """Each record with the position of its end."""
    if not path.is_file():
        return
    data = path.read_bytes()
    start = 0
    number = 0
    while (stop := data.find(b"\n", start)) >= 0:
        number += 1
        try:
            record = json.loads(data[start:stop])
            if not isinstance(record, dict) or record.get("schema") != SCHEMA:
                raise ValueError("not a record")
        except ValueError:
            fail(f"line {number} of {path}", f"must be a record of schema {SCHEMA}", repr(data[start:stop][:60]))
        start = stop + 1
        yield record, start


def check_unpacked(folder: Path) -> None:
    """Packed records can be read, but nothing can be added to them."""
    packed = folder / f"{FILE_NAME}.gz"
    if packed.is_file() and not (folder / FILE_NAME).is_file():
        fail(str(packed), "must be unpacked before the run can go on", "packed", f"Run: gunzip {packed}")


class RecordFile:
    """The records of an output folder, in memory by key, and on disk as they come."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self.by_key: dict[str, Record] = {}
        whole = 0
        check_unpacked(folder)
        for record, end in _lines(self.path):
            self.by_key[record["key"]] = record
            whole = end
        if self.path.is_file() and self.path.stat().st_size > whole:
            os.truncate(self.path, whole)

    def __contains__(self, key: str) -> bool:
        return key in self.by_key

    def __len__(self) -> int:
        return len(self.by_key)

    def append(self, record: Record) -> None:
        """Write one record; a key that is there already is not written again."""
        if record["key"] in self.by_key:
            return
        line = (json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n").encode()
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            before = os.fstat(handle).st_size
            try:
                written = os.write(handle, line)
                if written != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, before)
                raise
        finally:
            os.close(handle)
        self.by_key[record["key"]] = record
