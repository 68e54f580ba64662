"""Checkpoints of a long training: written atomically, and verified when they are read.

The file is one line that names the format, one line with the SHA-256 of the rest, and what `torch.save` writes. It is
read with ``weights_only=True``, so that an untrusted file cannot run code.
"""

from __future__ import annotations

import hashlib
import io
import time
from pathlib import Path
from typing import Any, NoReturn

import torch

from directloss._checks import fail
from directloss.tabular.files import whole_file

FORMAT = b"directloss checkpoint 1\n"
EVERY = 60.0
"""Seconds between two checkpoints, the most work that can be lost."""

State = dict[str, Any]


class Checkpoint:
    """The checkpoint of the run ``key``, in ``folder``."""

    def __init__(self, folder: Path, key: str, every: float | None = None) -> None:
        self.path, self.key = folder / f"{key}.pt", key
        self.every = EVERY if every is None else every
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for the next one."""
        return time.monotonic() - self._last >= self.every

    def save(self, state: State) -> None:
        """Replace the file atomically: a process killed at any moment leaves the old one or the new one."""
        buffer = io.BytesIO()
        torch.save({"key": self.key, "state": state}, buffer)
        content = buffer.getvalue()
        with whole_file(self.path, state=True) as part:
            part.write_bytes(FORMAT + hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
        self._last = time.monotonic()

    def load(self) -> State | None:
        """The last saved state, or None; raises if the file is damaged or belongs to another run."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if not raw.startswith(FORMAT):
            self.refuse("must be a checkpoint of this library", "another file, or one of another version")
        digest, _, content = raw[len(FORMAT) :].partition(b"\n")
        if hashlib.sha256(content).hexdigest().encode() != digest:
            self.refuse("must be a whole checkpoint", "damaged or cut off (its checksum does not match)")
        try:
            stored = torch.load(io.BytesIO(content), weights_only=True)
        except Exception as error:  # the type of error differs between versions of torch
            self.refuse("must hold tensors and numbers only", f"something else ({type(error).__name__})")
        found = stored.get("key") if isinstance(stored, dict) else None
        if found != self.key or not isinstance(stored.get("state"), dict):
            self.refuse(f"must belong to the run {self.key}", f"a checkpoint of the run {found}")
        state: State = stored["state"]
        return state

    def refuse(self, rule: str, value: str) -> NoReturn:
        """Raise an error that says what is wrong with the file and what to do."""
        fail(str(self.path), rule, value, "Delete the file to start this run from the beginning.")
