"""The ``directloss`` command. One module per group of commands; each adds its own to `app`."""

from __future__ import annotations

from directloss.lab.cli import bench, data, fit, listing, report, reproduce
from directloss.lab.cli.app import app

__all__ = ["app", "bench", "data", "fit", "listing", "main", "report", "reproduce"]


def main() -> None:
    """The entry point of the command line."""
    app(prog_name="directloss")
