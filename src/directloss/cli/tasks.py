"""``directloss tasks`` and ``directloss doctor``: the metrics to train on, and a check of the installation."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from directloss.cli.app import app


@app.command("tasks")
def tasks() -> None:
    """List the metrics that a network can be trained on, one line each."""
    from directloss.tasks import summaries

    table = Table("name", "description", box=None, pad_edge=False)
    for name, summary in summaries().items():
        table.add_row(name, summary)
    Console(highlight=False).print(table)


@app.command("doctor")
def doctor() -> None:
    """Check the installation: versions, whether the losses work, and how to install what is missing."""
    from directloss.doctor import main

    raise typer.Exit(main())
