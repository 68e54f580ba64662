"""Optional packages."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def needed(module: str, user: str, install: str) -> Any:
    """Import a module; raise one line with the install command if it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # Without the traceback of the import machinery, which does not help.
        raise ImportError(f"{user} needs {(error.name or module).split('.')[0]}: pip install {install}") from None
