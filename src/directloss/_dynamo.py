"""How functions that cannot be traced, such as compiled kernels, are kept out of the graphs of ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch._compile import _disable_dynamo

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def outside_graphs(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """As ``torch.compiler.disable``, but free of charge where nothing is being compiled.

    That is, ``torch._dynamo``, which takes longer to import than all of ours, is not imported, and a call costs no
    switch of the interpreter's mode.
    """
    shielded: Callable[Arguments, Result] = _disable_dynamo(function)

    @wraps(function)
    def either(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return (shielded if torch.compiler.is_compiling() else function)(*args, **kwargs)

    return either
