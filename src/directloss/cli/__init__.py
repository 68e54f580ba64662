"""The ``directloss`` command.

Other distributions can add commands: an entry point in the group ``directloss.commands`` names a module that adds them
when it is imported.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import typer

from directloss.cli import fit, predict
from directloss.cli.app import app

__all__ = ["app", "fit", "main", "predict"]


@app.command("tasks")
def tasks() -> None:
    """List the metrics that a network can be trained on, one line each."""
    from directloss.tasks import summaries

    for name, summary in summaries().items():
        typer.echo(f"{name:<22}{summary}")


@app.command("doctor")
def doctor() -> None:
    """Check the installation: versions, whether the losses work, and how to install what is missing."""
    from directloss.doctor import main

    raise typer.Exit(main())


def main() -> None:
    """The entry point of the command line."""
    if sys.argv[1:2] not in (["fit"], ["predict"]):  # these do not wait for the commands of others
        for point in entry_points(group="directloss.commands"):
            point.load()
    app(prog_name="directloss")
