"""The frame of the command: help, version, and errors without a traceback.

Exit codes: 0 success, 1 a bug in directloss, 2 bad input, 130 interrupted with Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

import directloss
from directloss._errors import DirectLossError

BAD_INPUT, INTERRUPTED = 2, 130
ORDER = ("fit", "predict", "tasks", "doctor", "list", "reproduce", "report", "data")
"""Order of the commands in the help."""
PAPERS = ("list", "reproduce", "report", "data")
REMEDY = "In a clone of the repository: pip install ./repro"
TO_REPRODUCE = "**directloss list**, then **directloss reproduce robustness** (about two minutes)"


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


def say(line: str) -> None:
    """Print one line as it is: no colours for paths and numbers, no wrapping."""
    Console().print(line, highlight=False, markup=False, soft_wrap=True)


def say_error(message: str) -> None:
    """Print an error on standard error, in red if possible."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("Error: ", "bold red"), message))


class Commands(TyperGroup):
    """The group of all commands: errors that users can cause become a message and an exit code."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        papers = TO_REPRODUCE if "reproduce" in self.commands else f"not installed. {REMEDY}"
        self.help = f"{self.help}\n\nThe papers: {papers}"

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in the order of `ORDER`."""
        return sorted(super().list_commands(ctx), key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of a name; those of the papers are in a separate package."""
        if args and args[0] in PAPERS and args[0] not in self.commands:
            say_error(f"'directloss {args[0]}' belongs to the papers' experiments, which are not installed. {REMEDY}")
            raise typer.Exit(BAD_INPUT)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DirectLossError as error:
            say_error(str(error))
            raise typer.Exit(BAD_INPUT) from None
        except BrokenPipeError:
            # The reader of our output, such as `head`, is gone; nothing is wrong.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("directloss"):
                raise
            say_error(f"this command needs {error.name}, which is not installed: pip install '.[fit]' in a checkout")
            raise typer.Exit(BAD_INPUT) from None
        except OSError as error:
            told = f"{error.filename or 'A file'} cannot be read or written: {error.strerror or error}."
            say_error("\n".join([told, *getattr(error, "__notes__", [])]))
            raise typer.Exit(BAD_INPUT) from None
        except KeyboardInterrupt as stop:
            Console(stderr=True, highlight=False, soft_wrap=True).print(Text(str(stop) or "Stopped."))
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    name="directloss",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"directloss {directloss.__version__}")
        raise typer.Exit


@app.callback()
def frame(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train networks on the metric they are judged by, and reproduce the papers behind it.

    Your own table: **directloss fit DATA --target COLUMN --metric ap**
    """
