"""The ``directloss`` command. One module per group of commands; each adds its own to `app`."""

from __future__ import annotations

from directloss.lab.cli import bench, data, fit, listing, report, reproduce
from directloss.lab.cli.app import app
from directloss.lab.torchrun import crew

__all__ = ["app", "bench", "data", "fit", "listing", "main", "report", "reproduce"]


def main() -> None:
    """The entry point of the command line. Under torchrun, the first process runs it and the others help."""
    together = crew()
    if together is None:
        app(prog_name="directloss")
    elif together.rank > 0:
        together.serve()
    else:
        try:
            app(prog_name="directloss")
        except SystemExit as end:
            if not end.code:  # otherwise torchrun ends the others, and perhaps starts all of us again
                together.dismiss()
            raise
