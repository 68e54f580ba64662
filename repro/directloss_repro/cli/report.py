"""``directloss report``: tables, figures and page again, from the records of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from directloss.cli.app import app


@app.command("report")
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The output folder of a run.", show_default=False)],
) -> None:
    """Draw tables, figures and report.html again, from the records in DIR alone."""
    show_report(folder, Console())


def show_report(folder: Path, console: Console) -> None:
    """Write the report, print its tables, and say where it is."""
    # Here, because they are slow to load and ``--help`` must answer at once.
    from directloss_repro.experiments import describe
    from directloss_repro.records import load_run
    from directloss_repro.reports.report import build, for_terminal, write

    run = load_run(folder)
    report = build(run, describe(run.experiment))
    page = write(report)
    console.print()
    console.print(for_terminal(report))
    console.print(f"Report: {page}", highlight=False, soft_wrap=True)
