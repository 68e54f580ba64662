"""Calling the user's metric, with a clear message for every way it can fail, and locating lines of its code."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from directloss._checks import DirectLossError, fail

CHECKING = "validate_args"
_TORCH = str(Path(torch.__file__).parent) + os.sep
_HERE = str(Path(__file__).parent) + os.sep
DEPTH = 4
"""How many stack frames distinguish two uses of one helper function."""


def name_of(metric: Any) -> str:
    """The name of a metric, for messages."""
    inner = getattr(metric, "func", metric)
    return str(getattr(inner, "__name__", type(inner).__name__))


def without_checks(metric: Callable[..., Any]) -> Callable[..., Any]:
    """The metric without argument checks, for further calls like one that has passed them.

    Functions of torchmetrics skip them on request and change nothing else.
    """
    inner, given = getattr(metric, "func", metric), getattr(metric, "keywords", {})
    if not str(getattr(inner, "__module__", "")).startswith("torchmetrics.") or CHECKING in given:
        return metric
    known = inspect.signature(metric).parameters
    return partial(metric, **{CHECKING: False}) if CHECKING in known else metric


def call_metric(metric: Callable[..., Any], scores: Tensor, target: Tensor) -> Any:
    """The result of the metric; any exception becomes the cause of a `DirectLossError`."""
    try:
        return metric(scores, target)
    except DirectLossError:
        raise
    except Exception as error:
        mismatch = _mismatch(metric) if isinstance(error, TypeError) else None
        raise DirectLossError(
            mismatch
            or f"metric must accept scores of shape {tuple(scores.shape)} and target of shape {tuple(target.shape)}, "
            f"but {name_of(metric)} raised {type(error).__name__}: {error}"
        ) from error


def _mismatch(metric: Callable[..., Any]) -> str | None:
    """Why a metric cannot be called with scores and target; None if its signature allows it, or is unknown."""
    try:
        inspect.signature(metric).bind(None, None)
    except TypeError as problem:
        return (
            f"metric must be callable as metric(scores, target), but {name_of(metric)} is not ({problem}). Set its "
            f"other arguments with functools.partial({name_of(metric)}, ...)."
        )
    except ValueError:
        pass
    return None


def value_of(metric: Callable[..., Any], scores: Tensor, target: Tensor) -> Tensor:
    """The number that a metric returns; it gets a copy of the scores, so it may modify them."""
    return as_scalar(call_metric(metric, scores.clone(), target), scores)


def as_scalar(result: Any, scores: Tensor) -> Tensor:
    """The number that a metric returns, as a tensor without dimensions."""
    kind = torch.promote_types(scores.dtype, torch.float32)
    if isinstance(result, bool | int | float):
        return torch.tensor(float(result), dtype=kind, device=scores.device)
    if not isinstance(result, Tensor):
        fail("metric", "must return one number", f"a {type(result).__name__}", "Pick the number with a lambda.")
    if result.numel() != 1:
        hint = "Reduce it, for example with .mean()."
        fail("metric", "must return one number", f"a tensor of shape {tuple(result.shape)}", hint)
    if result.is_complex():
        fail("metric", "must return a real number", result.dtype)
    value: Tensor = result.detach().reshape(()).to(kind)
    return value


class Location(NamedTuple):
    """A place in the metric's code: the innermost line outside torch, and the call path to it."""

    file: str
    line: int
    path: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "the metric itself"


def here() -> Location:
    """The line of the metric's code that is running now."""
    frame: FrameType | None = sys._getframe(1)
    found: list[tuple[str, int, int]] = []
    entered = False
    while frame is not None and len(found) < DEPTH:
        name = frame.f_code.co_filename
        if name.startswith(_HERE):
            # The frame that called the metric: those above it are not the metric's.
            if entered and frame.f_code is call_metric.__code__:
                break
        elif not name.startswith((_TORCH, "<")):
            found.append((name, frame.f_lineno, frame.f_lasti))
        entered = True
        frame = frame.f_back
    if not found:
        return Location("", 0, ())
    return Location(found[0][0], found[0][1], tuple((name, at) for name, _, at in found))
