"""Files that are written as a whole or not at all."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A cell that starts like this is a formula to a spreadsheet program."""


def write_file(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Replace a file at once; whoever reads it sees the old content or the new one."""
    pieces = [content] if isinstance(content, bytes) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def csv_bytes(columns: Mapping[str, Sequence[Any]], head: bool = True) -> bytes:
    """A CSV file, or more lines of one.

    Text that a spreadsheet program would run as a formula gets an apostrophe in front.

    Examples:
        >>> csv_bytes({"score": [-1.5], "name": ["=1+1"]})
        b"score,name\\n-1.5,'=1+1\\n"
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if head:
        writer.writerow(_harmless(columns))
    writer.writerows(zip(*(_harmless(column) for column in columns.values()), strict=True))
    return text.getvalue().encode()


def _harmless(values: Iterable[Any]) -> list[Any]:
    return [f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value for value in values]
