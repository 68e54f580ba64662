"""The library's error and warning classes and the format of its messages. Imports nothing slow."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import NoReturn


class DirectLossError(ValueError):
    """Invalid input. The message names the argument, the rule and the value."""


class DirectLossWarning(UserWarning):
    """A value that follows a convention the user should know about."""


# Tracebacks and pickles show the name that users import.
DirectLossError.__module__ = DirectLossWarning.__module__ = "directloss"


def fail(argument: str, rule: str, value: object, hint: str = "") -> NoReturn:
    """Raise `DirectLossError` with a message in the library's format."""
    raise DirectLossError(f"{argument} {rule}, but it is {value}." + (f" {hint}" if hint else ""))


def near(word: object, known: Iterable[str] | Mapping[str, str], most: int = 3) -> str:
    """A "did you mean" sentence, or "". A mapping gives the suggestion for each word."""
    word = str(word).lower()
    close = difflib.get_close_matches(word, list(known), n=most, cutoff=0.5)
    if isinstance(known, Mapping):
        close = [known[word]] if word in known else list(dict.fromkeys(known[match] for match in close))
    return f"Did you mean {' or '.join(repr(name) for name in close)}?" if close else ""
