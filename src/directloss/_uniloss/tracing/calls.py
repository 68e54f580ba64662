"""Calling the user's metric, with every way it can go wrong turned into a clear message."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from directloss._checks import DirectLossError, fail

CHECKING = "validate_args"


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
    except TypeError as error:
        _check_signature(metric, error)
        raise DirectLossError(_failed(metric, scores, target, error)) from error
    except Exception as error:
        raise DirectLossError(_failed(metric, scores, target, error)) from error


def _failed(metric: Any, scores: Tensor, target: Tensor, error: Exception) -> str:
    return (
        f"metric must accept scores of shape {tuple(scores.shape)} and target of shape {tuple(target.shape)}, but "
        f"{name_of(metric)} raised {type(error).__name__}: {error}"
    )


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
