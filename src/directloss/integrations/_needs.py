"""Packages that only some users have."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def needed(module: str, user: str, install: str) -> Any:
    """The module, imported now; where it is missing, one line with the command that installs it.

    Examples:
        >>> needed("no_such_package", "this example", "no-such-package")
        Traceback (most recent call last):
        ImportError: this example needs no_such_package: pip install no-such-package
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # Without the traceback of the import machinery: the line is what helps.
        raise ImportError(f"{user} needs {error.name}: pip install {install}") from None
