"""Replacing files together, digests of their content, and the identity of data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from directloss._checks import DirectLossError, fail
from directloss.tabular.files import whole_file


def write_all(files: Mapping[Path, bytes]) -> None:
    """Write all files or, if one cannot be written, replace none: a full disk leaves the old ones."""
    path = Path()
    try:
        with ExitStack() as stack:
            for path, content in files.items():
                stack.enter_context(whole_file(path)).write_bytes(content)
    except OSError as error:
        raise DirectLossError(f"{path} cannot be written: {error.strerror or error}. Nothing was replaced.") from error


def stable_hash(values: object) -> str:
    """Sixteen hexadecimal digits that depend only on the values."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def file_digest(argument: str, path: Path) -> str:
    """Hexadecimal digits that depend on the content of a file, or of all files in a folder."""
    if path.is_dir():
        return stable_hash([file_digest(argument, file) for file in sorted(path.glob("*")) if file.is_file()])
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=6)).hexdigest()
    except OSError as error:
        fail(argument, "must be a file that can be read", f"{path} ({error.strerror})")


class DataIdentity(NamedTuple):
    """The data at ``--data-root``: a run does not resume with other data, and a report names only verified data."""

    digest: str
    published: str | None = None
    """The name of the data set, if the content is as published."""
    checkable: bool = False
    """Whether the published digest of the data set that the user named is known."""
