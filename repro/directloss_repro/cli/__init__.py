"""The papers' commands: importing this adds them to ``directloss``. One module per group of commands."""

from __future__ import annotations

from directloss.cli.app import app
from directloss_repro.cli import data, listing, report, reproduce

__all__ = ["app", "data", "listing", "report", "reproduce"]
