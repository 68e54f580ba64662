"""Keeps functions that cannot be traced, such as compiled kernels, out of ``torch.compile`` graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch._compile import _disable_dynamo

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def outside_graphs(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Like ``torch.compiler.disable``, but free when nothing is being compiled.

    It does not import ``torch._dynamo``, which takes longer to import than this whole library, and a call does not
    switch the interpreter's frame evaluation.
    """
    shielded: Callable[Arguments, Result] = _disable_dynamo(function)

    @wraps(function)
    def either(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return (shielded if torch.compiler.is_compiling() else function)(*args, **kwargs)

    return either
