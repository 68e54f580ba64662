"""Known values with known gradients: the one place where autograd meets what was computed without it.

A loss of this library knows its value (the task loss) and its gradient (two inferences) separately. Here they are put
together: in eager mode (`attach`, `with_value`), computed only if asked for (`deferred`), and inside the transforms of
``torch.func`` (`transformable`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, NoReturn, ParamSpec

import torch
from torch import Tensor
from torch._C import _functorch

from directloss._checks import DirectLossError, fail

Arguments = ParamSpec("Arguments")


def attach(value: Tensor, scores: Tensor, slope: Tensor) -> Tensor:
    """Losses ``value`` of shape ``b`` whose gradient with respect to ``scores`` is ``slope``."""
    return with_value(carrier(scores, slope, value.dim()), value)


def carrier(scores: Tensor, slope: Tensor, batch_dims: int) -> Tensor:
    """One number per problem with the gradient ``slope``, in the type of the slope; its own value means nothing.

    Slopes that the type of the scores cannot hold are cut to its largest number. What the backward pass makes of them
    is not: a scaled loss may overflow, and a ``GradScaler`` waits for that.
    """
    wide = scores.to(slope.dtype)  # half precision only at the very end, where backward undoes this
    if scores.dtype != slope.dtype:
        most = largest_slope(scores.dtype)
        slope = slope.clamp(-most, most)
    if wide.dim() == 1 and batch_dims == 0:
        return torch.dot(wide, slope)
    product = wide * slope
    inside = tuple(range(batch_dims, product.dim()))
    return product.sum(inside) if inside else product


@lru_cache
def largest_slope(kind: torch.dtype) -> float:
    """The largest gradient that scores of this type are given: in half precision the largest number there is, else
    some room is left for sums.
    """
    return torch.finfo(kind).max / (1 if kind.itemsize == 2 else 1024)


def with_value(carrier: Tensor, value: Tensor) -> Tensor:
    """The gradient of ``carrier`` with another value, whatever (infinity included) its own may be.

    The value is written where autograd does not look: sums and products do not need their results to be differentiated.
    An ``autograd.Function`` would do the same, and call Python from every backward pass.
    """
    carrier.detach().copy_(value)
    return carrier


def with_gradient_times(values: Tensor, factor: float) -> Tensor:
    """The same values, with a gradient that is ``factor`` times as large."""
    return with_value(values * factor, values)


def deferred(value: Tensor, scores: Tensor, slope: Callable[[], Tensor]) -> Tensor:
    """A scalar whose gradient ``slope()`` is computed when, and only when, it is asked for; first derivatives only."""
    result: Tensor = _Deferred.apply(scores, value, slope)  # type: ignore[no-untyped-call]
    return result


class _Deferred(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, slope: Callable[[], Tensor]) -> Tensor:
        ctx.save_for_backward(scores)
        ctx.slope = slope
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        return _only_first(upstream * ctx.slope(), *ctx.saved_tensors), None, None


# ---------------------------------------------------------------------- no second derivatives

NO_SECOND = (
    "UniLoss has first derivatives only: its anchors are held fixed, and a second derivative would ignore how they "
    "move. Leave out create_graph=True, or take second derivatives of the rest of your loss alone."
)


def first_only(scores: Tensor) -> Tensor:
    """The same scores; differentiating their gradient raises `DirectLossError`."""
    result: Tensor = _FirstOnly.apply(scores)  # type: ignore[no-untyped-call]
    return result


class _FirstOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        ctx.save_for_backward(scores)
        return scores.view_as(scores)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _only_first(gradient, *ctx.saved_tensors)


def _only_first(gradient: Tensor, scores: Tensor) -> Tensor:
    """A gradient that belongs to scores, and refuses to be differentiated."""
    if not torch.is_grad_enabled():  # nobody keeps the graph of the backward pass
        return gradient
    result: Tensor = _Refused.apply(gradient.detach(), scores)  # type: ignore[no-untyped-call]
    return result


class _Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, scores: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> NoReturn:
        raise DirectLossError(NO_SECOND)


def refuse_second_of(scores: object) -> None:
    """Raise `DirectLossError` inside two nested transforms of ``torch.func``."""
    levels = 0
    while isinstance(scores, Tensor) and _functorch.is_gradtrackingtensor(scores):
        scores, levels = _functorch.get_unwrapped(scores), levels + 1
    if levels > 1:
        raise DirectLossError(NO_SECOND)


# ---------------------------------------------------------------------- torch.func


def transformable(loss: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
    """Make a loss whose first argument is the scores work inside ``torch.func.grad`` and its kind; `vmap` is refused.

    Inside a transform tensors are wrapped, while inference reads values. So value and gradient are computed outside,
    from what is inside the wrappers, and handed to the transform as an expression that it can differentiate. The
    private names used here are those that PyTorch itself uses for ``autograd.Function``.
    """

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
        return loss(**options)  # which raises the right error
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
    """A task's own tensors are not differentiated here, and a gradient of zero would be wrong."""
    for name, part in getattr(task, "__dict__", {}).items():
        if isinstance(part, Tensor) and _functorch.is_functorch_wrapped_tensor(part):
            fail(
                "task",
                "must hold ordinary tensors inside torch.func's transforms, which differentiate the scores alone",
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
