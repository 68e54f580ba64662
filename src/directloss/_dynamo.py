"""Graphs and transforms: whether a call is inside of one, and how to keep compiled kernels out of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.autograd.forward_ad import unpack_dual

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


def traced() -> bool:
    """Whether ``torch.compile`` or ``torch.export`` traces this call, or ``torch.func`` transforms it."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def transformed() -> bool:
    """Whether ``torch.func`` transforms this call."""
    return torch._C._are_functorch_transforms_active()


def differentiated(tensor: Tensor) -> bool:
    """Whether autograd follows the tensor, backwards or, inside of a transform, forwards."""
    return tensor.requires_grad or (transformed() and unpack_dual(tensor).tangent is not None)  # type: ignore[no-untyped-call]
