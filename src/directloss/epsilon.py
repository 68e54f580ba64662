"""How far loss-augmented inference looks: the one rule of ``epsilon="auto"``.

    epsilon = REACH * unit * (the task's unit_epsilon)

where ``unit`` is the scale of the noise; if there is none, the noise that the task asks for or else the standard
deviation of the scores. The task defines its unit: the epsilon for which its most important exchange or flip bridges a
score difference of 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from directloss._checks import IGNORE
from directloss._problem import Problem

REACH = 5.0
"""The largest score difference, in units of the noise, that a single exchange or flip can bridge. Far less, and most
draws change nothing (variance); far more, and inference reaches distant outputs (bias). A factor of
two or three hardly matters."""


def automatic(problem: Problem, noise: float | Tensor) -> float | Tensor:
    """The epsilon of each problem: a number, or a tensor of shape ``b``."""
    scores = problem.scores.detach()
    if isinstance(noise, Tensor) or noise > 0:
        return REACH * noise * problem.task.unit_epsilon(scores, problem.target)
    own = problem.task.noise_scale(scores)
    unit = spread(problem) if own is None else own
    step = unit * (REACH * problem.task.unit_epsilon(scores, problem.target))
    return step.clamp(max=torch.finfo(step.dtype).max)  # of huge scores, too, it is a number


def spread(problem: Problem) -> Tensor:
    """The standard deviation of the scores inside the problems of a call, in float32 or wider; 1 if all are equal."""
    task, scores = problem.task, problem.scores.detach()
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    real = torch.ones_like(scores, dtype=torch.bool)
    if problem.shown is not None:
        real &= problem.shown.reshape(*problem.shown.shape, *(1,) * task.event_dims)
    if task.maskable:
        known = problem.target != IGNORE
        real &= known.reshape(*known.shape, *(1,) * (scores.dim() - known.dim()))
    # Powers of two keep the squares of huge scores finite.
    power = (torch.frexp(scores.abs().amax()).exponent - 30).clamp(min=0)
    values = torch.where(real, torch.ldexp(scores, -power), 0.0)
    inside = tuple(range(-task.event_dims, 0)) or tuple(range(scores.dim()))
    centre = values.sum(inside, keepdim=True) / real.sum(inside, keepdim=True).clamp(min=1)
    square = torch.where(real, values - centre, 0.0).square().sum() / real.sum().clamp(min=1)
    deviation = torch.ldexp(square.sqrt(), power)
    # Below this floor 1 / epsilon would overflow the gradient's type.
    return torch.where(deviation > torch.finfo(deviation.dtype).tiny ** 0.5, deviation, torch.ones_like(deviation))
