"""How functions that cannot be traced, such as compiled kernels, are kept out of the graphs of ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from torch._compile import _disable_dynamo

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def outside_graphs(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """As ``torch.compiler.disable``, but ``torch._dynamo`` is imported by the first call instead of by our import.

    That import takes longer than all of ours together. Building an optimizer triggers it too, so training never
    notices.
    """
    shielded: Callable[Arguments, Result] = _disable_dynamo(function)
    return shielded
