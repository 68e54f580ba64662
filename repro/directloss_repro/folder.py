"""The output folder of a run: its files, and the lock of the process that writes to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from directloss._checks import fail
from directloss.tabular.files import whole_file

SCHEMA = 1
RUN_FILE = "run.json"
LOCK_FILE = ".lock"
RECORDS = "records.jsonl"
BEGINNINGS = (LOCK_FILE, RUN_FILE, f".{RUN_FILE}.part", "cache")
"""What a run writes before its first record: useful to the next run, or harmless."""


def read_info(folder: Path) -> dict[str, Any] | None:
    """The content of a folder's ``run.json``, or None if there is none."""
    path = folder / RUN_FILE
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        fail(str(path), "must be readable JSON", f"not ({error})")
    if not isinstance(info, dict):
        fail(str(path), "must be a JSON object", f"a {type(info).__name__}")
    return info


class Folder:
    """An output folder. Enter it before writing; only one process at a time can."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / LOCK_FILE, timeout=0)

    def stored(self) -> dict[str, Any] | None:
        """The content of ``run.json``, or None if there is none."""
        info = read_info(self.path)
        if info is not None and info.get("schema") != SCHEMA:
            rule = f"must describe a run of schema {SCHEMA}"
            fail(str(self.path / RUN_FILE), rule, "another file", "Choose another --out.")
        return info

    def check_new(self, experiment: str) -> None:
        """Raise unless the folder is empty, or left by a run of the experiment that ended before its first record."""
        if self.path.exists() and not self.path.is_dir():
            fail("--out", "must be a folder", f"the file {self.path}")
        if self.path.is_dir() and any(entry.name != LOCK_FILE for entry in self.path.iterdir()):
            if self._has_no_record(experiment):
                return
            hint = "Add --resume to continue the run in it, or choose another folder."
            fail("--out", "must be a new or empty folder", f"{self.path}, which is not empty", hint)

    def _has_no_record(self, experiment: str) -> bool:
        """Whether everything here was left by a run that ended before its first record."""
        kept = [entry for entry in self.path.iterdir() if entry.name not in BEGINNINGS]
        if any(entry.name != RECORDS or entry.stat().st_size for entry in kept):
            return False
        return (self.stored() or {}).get("experiment") == experiment

    def check_resumable(self, experiment: str) -> dict[str, Any]:
        """The stored description of a run of ``experiment``."""
        info = self.stored()
        if info is None:
            hint = "Leave --resume out to start a new run."
            fail("--resume", "needs an --out folder that holds a run", f"{self.path}, which has no {RUN_FILE}", hint)
        if info.get("experiment") != experiment:
            hint = "Choose another folder with --out."
            found = f"{self.path}, which holds {info.get('experiment')!r}"
            fail("--out", f"must hold a run of {experiment!r}", found, hint)
        return info

    def __enter__(self) -> Self:
        """Create the folder and lock it for this process; the system releases the lock when the process ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            fail("--out", "must not be in use by another run", str(self.path))
        except OSError as error:
            fail("--out", "must be a folder that can be created and written", f"{self.path} ({error.strerror})")
        return self

    def __exit__(self, *problem: object) -> None:
        """Release the lock."""
        self._lock.release()

    def write(self, info: Mapping[str, Any]) -> None:
        """Replace ``run.json`` atomically."""
        text = json.dumps({"schema": SCHEMA, **info}, indent=2, allow_nan=False) + "\n"
        with whole_file(self.path / RUN_FILE, state=True) as part:
            part.write_text(text, encoding="utf-8")


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()
