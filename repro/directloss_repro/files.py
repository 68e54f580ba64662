"""Files that are whole or absent (written under a temporary name, then renamed), and names of their content."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from directloss._checks import DirectLossError, fail


@contextmanager
def whole_file(path: Path, *, state: bool = False) -> Iterator[Path]:
    """A temporary name to write to; it becomes ``path`` if the block ends well, and is gone if it does not.

    ``state`` is for the files that a long run goes on from. They are on the disk before they count, and as one process
    alone writes them, the temporary name is always the same: one that was killed leaves a single file behind. Other
    files may be made by several processes at once.
    """
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


def content_name(argument: str, path: Path) -> str:
    """The content of a file in short; what is computed with another file has another name."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=6)).hexdigest()
    except OSError as error:
        fail(argument, "must be a file that can be read", f"{path} ({error.strerror})")


def stable_hash(values: object) -> str:
    """Sixteen hexadecimal digits that depend only on the values."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def write_all(files: Mapping[Path, bytes]) -> None:
    """Write every file, or, if one of them cannot be written, change none of those that are there.

    All temporary files are complete before the first rename, so that a full disk leaves the old report as it was.
    """
    waiting: dict[Path, Path] = {}
    path = Path()
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            waiting[path] = _temporary(path)
            _fill(waiting[path], content)
        for path in list(waiting):
            waiting[path].replace(path)
            del waiting[path]
    except OSError as error:
        raise DirectLossError(
            f"{path} could not be written: {error.strerror or error}. Nothing was replaced."
        ) from error
    finally:
        for temporary in waiting.values():
            temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    # In the same folder, because a rename is atomic only inside one file system.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    return Path(name)


def _fill(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    # mkstemp makes files that only the owner may read; a report is meant to be passed on.
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)
