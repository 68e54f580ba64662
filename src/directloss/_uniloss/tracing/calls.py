"""The user's metric: calling it, with every way it can go wrong turned into a clear message, and lines of its code."""

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
"""How many frames tell two uses of one helper function apart."""


def name_of(metric: Any) -> str:
    """How to call a metric in messages."""
    inner = getattr(metric, "func", metric)
    return str(getattr(inner, "__name__", type(inner).__name__))


def without_checks(metric: Callable[..., Any]) -> Callable[..., Any]:
    """The metric without checks of its arguments, for more calls like one that has passed them.

    torchmetrics' functions leave them out on request, and do nothing else differently.
    """
    inner, given = getattr(metric, "func", metric), getattr(metric, "keywords", {})
    if not str(getattr(inner, "__module__", "")).startswith("torchmetrics.") or CHECKING in given:
        return metric
    known = inspect.signature(metric).parameters
    return partial(metric, **{CHECKING: False}) if CHECKING in known else metric


def call_metric(metric: Callable[..., Any], scores: Tensor, target: Tensor) -> Any:
    """The metric's own result; what it raises is passed on as the cause of a `DirectLossError`."""
    try:
        return metric(scores, target)
    except DirectLossError:
        raise
    except Exception as error:
        if isinstance(error, TypeError):
            _check_signature(metric, error)
        raise DirectLossError(
            f"metric must accept scores of shape {tuple(scores.shape)} and target of shape {tuple(target.shape)}, but "
            f"{name_of(metric)} raised {type(error).__name__}: {error}"
        ) from error


def _check_signature(metric: Callable[..., Any], error: TypeError) -> None:
    try:
        inspect.signature(metric).bind(None, None)
    except TypeError as problem:
        missing = f"{name_of(metric)}, which cannot be called so ({problem})"
        hint = f"Fix its other arguments with functools.partial({name_of(metric)}, ...)."
        try:
            fail("metric", "must be callable as metric(scores, target)", missing, hint)
        except DirectLossError as clear:
            raise clear from error
    except ValueError:  # a function without a signature
        return


def value_of(metric: Callable[..., Any], scores: Tensor, target: Tensor) -> Tensor:
    """The one number that a metric returns; it may write into its scores."""
    return as_scalar(call_metric(metric, scores.clone(), target), scores)


def as_scalar(result: Any, scores: Tensor) -> Tensor:
    """The one number that a metric returns, as a tensor without dimensions."""
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
    """A place in the metric's code: the innermost line outside torch, and how it was reached."""

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
            # The frame that called the metric: what stands above it is not the metric's.
            if entered and frame.f_code is call_metric.__code__:
                break
        elif not name.startswith((_TORCH, "<")):
            found.append((name, frame.f_lineno, frame.f_lasti))
        entered = True
        frame = frame.f_back
    if not found:
        return Location("", 0, ())
    return Location(found[0][0], found[0][1], tuple((name, at) for name, _, at in found))
