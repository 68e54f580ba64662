"""The ``directloss`` command.

Other distributions can add commands: an entry point in the group ``directloss.commands`` names a module that adds them
when it is imported.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

from directloss.cli import fit, predict, tasks  # in the order of the help
from directloss.cli.app import app

__all__ = ["app", "fit", "main", "predict", "tasks"]


def main() -> None:
    """The entry point of the command line."""
    if sys.argv[1:2] not in (["fit"], ["predict"]):  # these do not wait for the commands of others
        for point in entry_points(group="directloss.commands"):
            point.load()
    app(prog_name="directloss")
