"""First derivatives only: with anchors that are held fixed, second ones would be those of something else."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._C import _functorch

from directloss._checks import DirectLossError

MESSAGE = (
    "UniLoss has first derivatives only: its anchors are drawn anew for all scores, so that a second derivative would "
    "be that of something else. Leave out create_graph=True, or take second derivatives of the rest of your loss alone."
)


class FirstOnly(torch.autograd.Function):
    """The same scores; whoever differentiates their gradient is told that this cannot be done."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        ctx.save_for_backward(scores)
        return scores.view_as(scores)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return only_first(gradient, *ctx.saved_tensors)


def only_first(gradient: Tensor, scores: Tensor) -> Tensor:
    """A gradient that belongs to scores, and refuses to be differentiated."""
    if not torch.is_grad_enabled():  # nobody keeps the graph of the backward pass
        return gradient
    result: Tensor = _Refused.apply(gradient.detach(), scores)  # type: ignore[no-untyped-call]
    return result


def refuse_second_of(scores: object) -> None:
    """Inside of two transforms of ``torch.func``, say that there are no second derivatives."""
    levels = 0
    while isinstance(scores, Tensor) and _functorch.is_gradtrackingtensor(scores):
        scores, levels = _functorch.get_unwrapped(scores), levels + 1
    if levels > 1:
        raise DirectLossError(MESSAGE)


class _Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, scores: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> NoReturn:
        raise DirectLossError(MESSAGE)
