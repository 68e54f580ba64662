"""Operations that make something discrete out of scores, each as questions and a choice that follows from the answers.

`elementwise` and `listwise` fill the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from directloss._uniloss.tracing.run import Run

Handler = Callable[["Run", Any, tuple[Any, ...], dict[str, Any]], Any]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Enter a handler into the table."""

    def enter(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return enter


def name_of(func: Any) -> str:
    """The name of an operation, the same for its version in place."""
    name: str = func._schema.name.split("::")[1]
    return name.rstrip("_") if not name.startswith("_") else name
