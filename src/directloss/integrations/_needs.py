"""Optional packages."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def needed(module: str, user: str, install: str) -> Any:
    """Import a module; raise one line with the install command if it is missing.

    Examples:
        >>> needed("no_such_package", "this example", "no-such-package")
        Traceback (most recent call last):
        ImportError: this example needs no_such_package: pip install no-such-package
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # Without the traceback of the import machinery, which does not help.
        raise ImportError(f"{user} needs {error.name}: pip install {install}") from None
