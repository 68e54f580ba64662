"""Atomic file writes: a file is complete or absent."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from directloss._errors import fail


@contextmanager
def whole_file(path: Path, *, state: bool = False) -> Iterator[Path]:
    """A temporary path to write to. It replaces ``path`` when the block succeeds and is removed when it fails.

    ``state`` is for files that a run is resumed from. They are flushed to disk before they count. Only one process
    writes them, so the temporary name is fixed and a killed process leaves at most one behind. Other files may be
    written by several processes at once.
    """
    if path.exists() and not path.is_file():
        fail("file", "must be a regular file, because it is replaced as a whole", f"{path}, which is another kind")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part" if state else f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        if state:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Replace a file atomically: readers see the old content or the new."""
    with whole_file(path) as part, part.open("wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())
