"""The losses inside the transforms of ``torch.func``: `grad` and its kind work, `vmap` is refused in plain words.

Inside a transform tensors are wrapped, while inference reads values. So value and gradient are computed outside of it,
from what is inside the wrappers, and then handed to the transform as an expression that it can differentiate. The names
used here are those that PyTorch itself uses for ``autograd.Function`` and for higher-order operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import torch
from torch import Tensor
from torch._C import _functorch

from directloss._checks import fail

Arguments = ParamSpec("Arguments")


def transformable(loss: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
    """Make a loss whose first argument are the scores work inside transforms; elsewhere it is the same as before."""

    @wraps(loss)
    def either(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Tensor:
        if not torch._C._are_functorch_transforms_active():
            return loss(*args, **kwargs)
        return _transformed(loss, args, kwargs)

    return either


def _transformed(loss: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    given = dict(zip(("scores", "target", "task"), args, strict=False)) | kwargs
    scores = given.get("scores")
    options = {name: _inside(name, value) for name, value in given.items()}
    _refuse_wrapped_parts(given.get("task"))
    if not isinstance(scores, Tensor):
        return loss(**options)  # which says what is wrong
    with temporarily_clear_interpreter_stack(), torch.enable_grad():
        leaf = options["scores"].detach().requires_grad_()
        found = loss(**{**options, "scores": leaf})
        (slope,) = torch.autograd.grad(found.sum(), leaf)
        found = found.detach()
    # The scores minus themselves are 0, and their derivative is the gradient.
    moved: Tensor = slope * (scores - scores.detach())
    if found.dim() == 0:
        return found + moved.sum()
    if found.dim() == moved.dim():  # each score is a problem of its own
        return found + moved
    inside = options.get("dim")
    return found + moved.sum(tuple(range(found.dim(), moved.dim())) if inside is None else inside)


def _refuse_wrapped_parts(task: object) -> None:
    """A task's own tensors are not differentiated here, and a gradient of zero would be a lie."""
    for name, part in getattr(task, "__dict__", {}).items():
        if isinstance(part, Tensor) and _functorch.is_functorch_wrapped_tensor(part):
            fail(
                "task",
                "must hold ordinary tensors inside of torch.func's transforms, which differentiate the scores alone",
                f"{task!r} whose {name!r} is being differentiated",
                "Use loss.backward() or torch.autograd.grad for what a task has learned.",
            )


def _inside(argument: str, value: Any) -> Any:
    """What is inside the wrappers of the transforms, if it is a tensor."""
    while isinstance(value, Tensor) and _functorch.is_functorch_wrapped_tensor(value):
        if _functorch.is_batchedtensor(value):
            fail(
                argument,
                "must be an ordinary tensor",
                "mapped over by torch.vmap",
                'The losses take whole batches: give them leading dimensions, and reduction="none".',
            )
        value = _functorch.get_unwrapped(value)
    return value
