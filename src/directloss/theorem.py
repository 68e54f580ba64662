"""The general loss gradient theorem, Theorem 1 of Song et al. (ICML 2016), with noise or without.

    grad E[L(y, y_w)]  =  lim_{epsilon -> 0}  sign / epsilon * E[ grad F(y_direct) - grad F(y_w) ]          Eq. (2)
    y_w      = argmax_y F(y)                                                                                Eq. (3)
    y_direct = argmax_y F(y) + sign * epsilon * L(target, y)                                                Eq. (3)

With ``sign="both"`` the gradient is the mean of the two, ``(grad F(y_+) - grad F(y_-)) / (2 epsilon)``: a central
difference instead of a one-sided one. With noise on the scores, it is averaged over draws; the value is the loss of the
scores without noise.

The theorem knows no concrete task. It calls the two inferences and differentiates F, unless the task has a fused
implementation of both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from directloss import epsilon as epsilons
from directloss._checks import fail, warn_once
from directloss._gradient import carrier, largest_slope
from directloss._problem import Problem, result_type
from directloss.noise import Noise
from directloss.task import Solve, moving


class Inferred(NamedTuple):
    """The results of inference for a batch."""

    losses: Tensor
    """Shape ``b``; in draws ``(draws, *b)``."""
    counted: Tensor | None
    surrogate: Tensor | None = None
    """Only its gradient is used, which is that of the loss; shape ``b``."""
    learns: bool = False
    """Whether F has parameters of its own, which need gradients even if the scores do not."""


def estimate(problem: Problem, epsilon: float | Tensor | None, signs: tuple[int, ...], noise: Noise) -> Inferred:
    """Losses, with the gradient of Theorem 1 if one is needed; epsilon is automatic if it is None."""
    problem.refuse_item_weight()
    draws = cache(lambda: noise.perturb(problem.scores, problem.task.defaults.density))  # at most once
    return _fused(problem, epsilon, signs, noise, draws) or _by_methods(problem, epsilon, signs, noise, draws)


def _fused(
    problem: Problem, given: float | Tensor | None, signs: tuple[int, ...], noise: Noise, draws: Callable[[], Tensor]
) -> Inferred | None:
    """Losses and gradients from a task's `fused` implementation; None without one."""
    scores, target, fused = problem.scores, problem.target, getattr(problem.task, "fused", None)
    if fused is None:
        return None
    fixed, moves = scores.detach(), torch.is_grad_enabled() and scores.requires_grad
    request = Solve(1.0, signs, gradient=False, mask=problem.mask, check_values=problem.check_values)
    if not moves:
        solved = fused(fixed, target, request)
        return Inferred(solved.loss.to(result_type(scores)), solved.counted)
    noisy = None if noise.silent else draws().detach()
    step = epsilons.automatic(problem, noise.scale) if given is None else given
    request = request._replace(epsilon=step, gradient=True, noisy=noisy)
    solved = fused(fixed, target, request)
    assert solved.gradient is not None
    if noise.silent and problem.check_values:
        _warn_of_standstill(problem, solved.loss, solved.gradient, signs)
    surrogate = carrier(scores, solved.gradient, tuple(range(solved.loss.dim(), scores.dim())))
    return Inferred(solved.loss.to(result_type(scores)), solved.counted, surrogate)


def _by_methods(
    problem: Problem, given: float | Tensor | None, signs: tuple[int, ...], noise: Noise, draws: Callable[[], Tensor]
) -> Inferred:
    """Losses and gradients through the five abstract methods of a task."""
    problem.check()
    step = epsilons.automatic(problem, noise.scale) if given is None else given
    if noise.silent and torch.is_grad_enabled() and problem.scores.requires_grad:
        return _theorem(problem, step, signs, gradient=True, value=True)
    clean = _theorem(problem, 1.0, signs, gradient=False, value=True)
    if not torch.is_grad_enabled() or not (problem.scores.requires_grad or clean.learns):
        return clean
    noisy = _theorem(problem.repeated(draws()), step, signs, gradient=True, value=False)
    return clean._replace(surrogate=None if noisy.surrogate is None else noisy.surrogate.mean(0))


def _theorem(
    problem: Problem, epsilon: float | Tensor, signs: tuple[int, ...], gradient: bool, value: bool
) -> Inferred:
    """Eq. (2) through the five methods of the task; autograd differentiates F."""
    task, scores, target, padding = problem.task, problem.scores, problem.target, problem.padding
    # Also the dtype of the gradient of F: at least as precise as the scores.
    dtype = torch.promote_types(scores.dtype, torch.float32)
    losses, predicted = torch.zeros(problem.batch_shape, dtype=dtype, device=scores.device), None
    with torch.no_grad():
        fixed = scores.detach()
        if value or len(signs) == 1:  # a difference of both signs needs no third inference
            predicted = task.infer(fixed, target, **padding)
        if value:
            losses = task.loss(predicted, target, **padding).to(dtype)
    problem.check_one_each(losses, "task.loss")
    counted = task.counted(target, **padding)
    if not gradient:
        learns = torch.is_grad_enabled() and not scores.requires_grad and task.score(scores, predicted).requires_grad
        return Inferred(losses, counted, learns=learns)
    with torch.no_grad():
        direct = [task.augmented(fixed, target, epsilon, sign, **padding) for sign in signs]
    # Half-precision gradients are summed in float32 and rounded once.
    scores = scores.to(losses.dtype)
    # Away from y_+ or towards y_-, starting at y_w; with both signs, from y_+ to y_-.
    towards = predicted if len(signs) == 1 else direct[1]
    gap = task.score(scores, direct[0]) - task.score(scores, towards)
    problem.check_one_each(gap, "task.score")
    if value and problem.check_values:
        _warn_of_standstill(problem, losses, gap.detach(), signs)
    if scores.requires_grad and not gap.requires_grad:
        fail("task.score", "must be differentiable in scores", "a tensor without gradient", "Do not detach the scores.")
    return Inferred(losses, counted, (gap * _factor(epsilon, signs, problem.dtype)).to(losses.dtype))


def _factor(epsilon: float | Tensor, signs: tuple[int, ...], dtype: torch.dtype) -> float | Tensor:
    """``sign / epsilon``, or ``1 / (2 epsilon)`` for both signs, but no more than scores of this type can hold.

    An epsilon whose inverse overflows must not make 0 * infinity, nor infinity minus infinity.
    """
    sign = signs[0] / len(signs)
    most = largest_slope(dtype)
    if not isinstance(epsilon, Tensor):
        return max(-most, min(sign / epsilon, most))
    most = min(most, torch.finfo(epsilon.dtype).max)
    return (sign / epsilon).clamp(-most, most)


def _warn_of_standstill(problem: Problem, losses: Tensor, change: Tensor, signs: tuple[int, ...]) -> None:
    """Without noise and with sign +1, decisions can have a loss but no gradient, for example if all are wrong."""
    if signs != (1,) or problem.task.defaults.sign != "both" or moving(problem.task) is None:
        return
    if not bool(change.any()) and bool(losses.any()):
        warn_once(
            "standstill",
            f"{problem.task!r} has a loss of {float(losses.mean()):.3g} but no gradient with sign=+1 and no "
            "noise: no worse output is within reach to move away from. Leave out sign, or set noise.",
        )
