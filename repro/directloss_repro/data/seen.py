"""Which data lies at ``--data-root``, so that no run goes on with other data and no report claims what is not so."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from directloss_repro.files import content_name


class Seen(NamedTuple):
    """Data, known by its content."""

    digest: str
    published: str | None = None
    """The name of the data set, where the content is what was published under it."""
    checkable: bool = False
    """Whether we know what was published under the name that the user gave."""


def see_file(path: Path) -> Seen:
    """Data that one file describes."""
    return Seen(content_name("--data-root", path))
