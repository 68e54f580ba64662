"""Which data lies at ``--data-root``, so that no run goes on with other data and no report claims what is not so."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple


class Seen(NamedTuple):
    """Data, known by its content."""

    digest: str
    published: str | None = None
    """The name of the data set, where the content is what was published under it."""


def see_file(path: Path) -> Seen:
    """Data that one file describes."""
    with path.open("rb") as file:
        return Seen(hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest())
