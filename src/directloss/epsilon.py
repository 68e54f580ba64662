"""How far loss-augmented inference looks: the rule of ``epsilon="auto"``, one number for each problem.

    epsilon = REACH * unit * (the task's unit_epsilon)

where ``unit`` is the scale of the noise. Without noise it is the task's `noise_scale`, or else the standard deviation
of the problem's scores: around their mean, or around 0 if that is what each is compared with. The task's unit is the
epsilon at which its most important exchange or flip bridges a score difference of 1.

An epsilon that follows the scores is a function of them, and its derivative belongs to the gradient. The loss is the
same for scores ``s`` and ``a * s``, so its gradient has no part that merely scales them. Without this term update and
epsilon would feed each other: with sign +1 the scores would grow without bound, with sign -1 they would collapse.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from directloss._gradient import with_value
from directloss._problem import Problem

REACH = 5.0
"""The largest score difference, in units of the noise, that a single exchange or flip can bridge. If much smaller,
most draws change nothing (variance); if much larger, inference reaches distant outputs (bias). A factor of two or three
hardly matters."""


def automatic(problem: Problem, noise: float | Tensor) -> tuple[Tensor, float | Tensor]:
    """The scores as `reach` returns them, and the epsilon of each problem: a number, or a tensor of shape ``b``."""
    scores, step = reach(problem, noise)
    step = step * problem.task.unit_epsilon(problem.scores.detach(), problem.target)
    if isinstance(step, Tensor):
        step = step.clamp(max=torch.finfo(step.dtype).max)  # finite even for huge scores
    return scores, step


def reach(problem: Problem, noise: float | Tensor) -> tuple[Tensor, float | Tensor]:
    """The scores, and the epsilon of each problem in the task's unit.

    If epsilon depends on the scores, the returned scores add its derivative to their gradient.
    """
    if isinstance(noise, Tensor) or noise > 0:
        return problem.scores, REACH * noise
    own = problem.task.noise_scale(problem.scores.detach())
    if own is not None:
        return problem.scores, REACH * own
    spread = spread_of(problem)
    return _scale_free(problem.scores, spread, _inside(problem)), REACH * spread.deviation


class Spread(NamedTuple):
    """The spread of the scores of each problem around their centre, in float32 or wider."""

    deviation: Tensor
    """The standard deviation, shape ``b``; 1 if all are equal, or if each score is a problem."""
    slope: Tensor
    """The gradient of its logarithm in the shape of the scores, times ``2 ** power``; 0 where the deviation is not that
    of the scores, and for padding."""
    power: Tensor
    """Scales huge scores down, so that their squares are finite; one for each problem, broadcast to the scores."""


def _scale_free(scores: Tensor, spread: Spread, inside: tuple[int, ...]) -> Tensor:
    """The scores, with the gradient ``g - <g, s> * dlog(deviation)/ds`` instead of g, for each problem.

    This is the gradient of ``(F(y_direct) - F(y_w)) / epsilon`` if F is linear in the scores and epsilon a multiple of
    the deviation.
    """
    if not (torch.is_grad_enabled() and scores.requires_grad):
        return scores
    wide = scores.to(spread.slope.dtype)  # half precision is restored at the end
    logarithm = (wide * spread.slope).sum(inside, keepdim=True)  # its gradient is that of the logarithm
    return with_value(wide - torch.ldexp(wide.detach(), -spread.power) * logarithm, wide.detach()).to(scores.dtype)


def spread_of(problem: Problem) -> Spread:
    """The spread of the scores, without padding.

    Two scores are left alone: only their difference matters, and without its scale nothing of a gradient would remain.
    """
    task, inside = problem.task, _inside(problem)
    scores = problem.scores.detach().to(torch.promote_types(problem.scores.dtype, torch.float32))
    if not inside:
        return Spread(torch.ones_like(scores), torch.zeros_like(scores), torch.zeros_like(scores, dtype=torch.int32))
    mask = torch.ones_like(scores, dtype=torch.bool) if problem.mask is None else problem.mask
    real = mask.reshape(*mask.shape, *(1,) * (scores.dim() - mask.dim())).expand(scores.shape)
    power = (torch.frexp(scores.abs().amax(inside, keepdim=True)).exponent - 30).clamp(min=0)
    values, items = torch.where(real, torch.ldexp(scores, -power), 0.0), real.sum(inside, keepdim=True).clamp(min=1)
    if task.defaults.density != "logistic":
        values = torch.where(real, values - values.sum(inside, keepdim=True) / items, 0.0)
    total = values.square().sum(inside, keepdim=True)
    deviation = torch.ldexp((total / items).sqrt(), power)
    # Below this floor 1 / epsilon would overflow the gradient's type.
    differ = deviation > torch.finfo(deviation.dtype).tiny ** 0.5
    slope = torch.where(differ & (items > 2), values / total, 0.0)
    return Spread(torch.where(differ, deviation, 1.0).reshape(problem.batch_shape), slope, power)


def _inside(problem: Problem) -> tuple[int, ...]:
    """The dimensions of one problem."""
    return tuple(range(-problem.task.event_dims, 0))
