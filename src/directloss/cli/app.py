"""The frame of the command: help, and errors without a traceback.

Exit codes: 0 success, 1 a bug in directloss, 2 bad input, 130 interrupted with Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from directloss._errors import DirectLossError

BAD_INPUT, INTERRUPTED = 2, 130


@contextmanager
def resumable(command: str) -> Iterator[None]:
    """Tell the user how to resume work that was stopped."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Stopped. Finished work is saved; to continue:\n  {command}") from None
    except OSError as error:
        error.add_note(f"Finished work is saved; once the problem is solved, continue with:\n  {command}")
        raise


class Commands(TyperGroup):
    """The group of all commands: errors that users can cause become a message and an exit code."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, if it is installed."""
        command = super().get_command(ctx, cmd_name)
        if command is None and cmd_name in ("list", "reproduce", "report"):
            _stop(f"directloss {cmd_name} belongs to the papers' experiments: pip install ./repro in a checkout")
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DirectLossError as error:
            _stop(str(error))
        except BrokenPipeError:
            # The reader of our output, such as `head`, is gone; nothing is wrong.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("directloss"):
                raise
            _stop(f"this command needs {error.name}, which is not installed: pip install '.[fit]' in a checkout")
        except OSError as error:
            told = f"{error.filename or 'A file'} cannot be read or written: {error.strerror or error}."
            _stop("\n".join([told, *getattr(error, "__notes__", [])]))
        except KeyboardInterrupt as stop:
            _stop(str(stop) or "Stopped.", INTERRUPTED)


def _stop(message: str, code: int = BAD_INPUT) -> NoReturn:
    typer.echo(typer.style("Error: ", fg="red", bold=True) * (code == BAD_INPUT) + message, err=True)
    raise typer.Exit(code) from None


HELP = """Train networks on the metric they are judged by, and reproduce the papers behind it.

Your own table: **directloss fit DATA --target COLUMN --metric ap**

The papers, in a clone of the repository: **pip install ./repro**, then **directloss list**
"""
app = typer.Typer(
    name="directloss",
    cls=Commands,
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
