"""Attaches known gradients to known values: the only place that hands results to autograd.

A loss computes its value (the task loss) and its gradient separately; `carrier` and `with_value` combine them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from directloss._checks import DirectLossError
from directloss._dynamo import traced


def carrier(scores: Tensor, slope: Tensor, inside: tuple[int, ...]) -> Tensor:
    """Sums over the dimensions ``inside`` with gradient ``slope``, in its dtype; their own value is meaningless."""
    if slope.dtype != scores.dtype:
        slope = fitting(slope, scores.dtype)
        scores = scores.to(slope.dtype)  # back to half precision only at the end of the backward pass
    if scores.dim() == 1 and inside:
        return torch.dot(scores, slope)
    product = scores * slope
    return product.sum(inside) if inside else product


def fitting(slope: Tensor, dtype: torch.dtype) -> Tensor:
    """A slope clamped to the range of scores of this dtype.

    The result of the backward pass is not clamped: a scaled loss may overflow, which ``GradScaler`` relies on.
    """
    if slope.dtype == dtype:
        return slope
    most = largest_slope(dtype)
    return slope.clamp(-most, most)


def largest_slope(dtype: torch.dtype) -> float:
    """The largest gradient for scores of this dtype: the largest number in half precision, otherwise less, to leave
    room for sums.
    """
    return torch.finfo(dtype).max / (1 if dtype.itemsize == 2 else 1024)


def with_value(carrier: Tensor, value: Tensor | float) -> Tensor:
    """Replace the value of ``carrier``, which may even be infinite, and keep its gradient.

    The value is written behind autograd's back, which is safe: the derivatives of sums and products do not use their
    results. An ``autograd.Function`` would do the same, but call Python in every backward pass. Graphs and transforms
    need plain operations.
    """
    if traced():
        return value + (carrier - carrier.detach())
    if isinstance(value, Tensor):
        carrier.detach().copy_(value)
    else:
        carrier.detach().fill_(value)
    return carrier


def with_gradient_times(values: Tensor, factor: float) -> Tensor:
    """The same values, with their gradient multiplied by ``factor``."""
    return with_value(values * factor, values)


# ---------------------------------------------------------------------- on the host


def on_host(loss: Callable[[Any], Tensor], problem: Any) -> Tensor:
    """The loss of a named tuple of tensors with ``scores`` among them, computed on the CPU.

    All tensors are moved at once; the value and the gradient of the scores come back.
    """
    scores = problem.scores
    needed = torch.is_grad_enabled() and scores.requires_grad
    names = [name for name, part in problem._asdict().items() if isinstance(part, Tensor)]
    moved = dict(zip(names, fetch([getattr(problem, name).detach() for name in names]), strict=True))
    leaf = moved["scores"].to(torch.promote_types(scores.dtype, torch.float32)).requires_grad_(needed)
    value = loss(problem._replace(**{**moved, "scores": leaf}))
    if not needed:
        return value.to(scores.device, non_blocking=True)
    (slope,) = torch.autograd.grad(value.sum(), leaf)
    value, slope = (part.detach().to(scores.device, non_blocking=True) for part in (value, slope))
    return with_value(carrier(scores, slope, tuple(range(value.dim(), scores.dim()))), value)


def fetch(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors on the CPU, with a single synchronisation."""
    copies = [one.to("cpu", non_blocking=True) for one in tensors]  # into pinned memory
    for device in {one.device for one in tensors if one.device.type != "cpu"}:
        wait_for(device)
    return copies


def wait_for(device: torch.device) -> None:
    """Block until the device has finished its queued work."""
    module = torch.get_device_module(device)
    if hasattr(module, "current_stream"):
        module.current_stream().synchronize()
    else:
        module.synchronize()


# ---------------------------------------------------------------------- no second derivatives

NO_SECOND = (
    "UniLoss has first derivatives only: its anchors are held fixed, so a second derivative would ignore how they "
    "move. Leave out create_graph=True, or take second derivatives only of the rest of your loss."
)


def attach_first(value: Tensor, scores: Tensor, slope: Tensor) -> Tensor:
    """Losses ``value`` of shape ``b`` whose gradient with respect to ``scores`` is ``slope``; differentiating that
    gradient raises `DirectLossError`.
    """
    result = with_value(carrier(scores, slope, tuple(range(value.dim(), scores.dim()))), value)

    def refuse(upstream: tuple[Tensor, ...]) -> tuple[Tensor] | None:
        # Without create_graph nothing can differentiate the gradient; None leaves it unchanged.
        if not torch.is_grad_enabled():
            return None
        return (_Refused.apply(upstream[0].detach(), scores),)  # type: ignore[no-untyped-call]

    assert result.grad_fn is not None
    result.grad_fn.register_prehook(refuse)
    return result


class _Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, scores: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> NoReturn:
        raise DirectLossError(NO_SECOND)
