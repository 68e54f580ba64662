"""``directloss doctor``: see `directloss.doctor`."""

from __future__ import annotations

import typer

from directloss.cli.app import app


@app.command("doctor")
def doctor() -> None:
    """Show versions, whether the losses work here, and how to install what is missing."""
    from directloss.doctor import main

    raise typer.Exit(main())
