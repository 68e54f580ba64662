"""The ``directloss`` command.

Other distributions can add commands: an entry point in the group ``directloss.commands`` names a module that adds them
when it is imported.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

from directloss.cli import about, fit, predict
from directloss.cli.app import app

__all__ = ["about", "app", "fit", "main", "predict"]

OWN = (["fit"], ["predict"], ["tasks"], ["doctor"], ["--version"])


def main() -> None:
    """The entry point of the command line."""
    if sys.argv[1:2] not in OWN:  # our own commands do not wait for those of others
        for point in entry_points(group="directloss.commands"):
            point.load()
    app(prog_name="directloss")
