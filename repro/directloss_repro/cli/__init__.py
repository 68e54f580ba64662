"""The papers' commands: importing this adds them to ``directloss``. One module per command.

Nothing slow is imported here: what a command needs, it imports when it is called, so that ``--help`` is quick.
"""

from __future__ import annotations

from directloss.cli.app import app
from directloss_repro.cli import listing, report, reproduce

__all__ = ["app", "listing", "report", "reproduce"]
