"""What is computed once for each photograph and kept: one file each, so that interrupted work goes on where it was."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from directloss._checks import fail
from directloss_repro.files import whole_file

Arrays = dict[str, NDArray[Any]]


def cached(path: Path, compute: Callable[[], Arrays]) -> Arrays:
    """The arrays in ``path``; where there are none, or damaged ones, those that ``compute`` returns, stored there."""
    with suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return load(path)
    arrays = compute()
    with whole_file(path) as part, part.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return arrays


def load(path: Path) -> Arrays:
    """The arrays of a stored file. It is a zip archive, whose checksums are verified as it is read."""
    # Opened here: np.load leaves a broken file open.
    with path.open("rb") as file:
        return dict(np.load(file, allow_pickle=False))


def cache_name(photograph: Path, *settings: object) -> str:
    """A file name that differs for another photograph, other pixels and other settings."""
    try:
        digest = hashlib.blake2b(photograph.read_bytes(), digest_size=8)
    except OSError as error:
        fail(str(photograph), "must be a readable image", f"not ({error.strerror})", "Unpack the data set again.")
    digest.update(json.dumps(settings).encode())
    return f"{photograph.stem}-{digest.hexdigest()}.npz"
