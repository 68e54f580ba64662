"""How far loss-augmented inference looks: the one rule of ``epsilon="auto"``.

    epsilon = REACH * unit * (the task's unit_epsilon)

where ``unit`` is the scale of the noise; if there is none, the noise that the task asks for or else the standard
deviation of the scores. The task defines its unit: the epsilon for which its most important exchange or flip bridges a
score difference of 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
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
    step = reach(problem, noise) * problem.task.unit_epsilon(problem.scores.detach(), problem.target)
    if not isinstance(step, Tensor):
        return step
    return step.clamp(max=torch.finfo(step.dtype).max)  # of huge scores, too, it is a number


def reach(problem: Problem, noise: float | Tensor) -> float | Tensor:
    """The epsilon of each problem in the task's unit."""
    if isinstance(noise, Tensor) or noise > 0:
        return REACH * noise
    own = problem.task.noise_scale(problem.scores.detach())
    return REACH * (spread(problem) if own is None else own)


def spread(problem: Problem) -> float | Tensor:
    """The standard deviation of the scores inside the problems of a call, in float32 or wider; 1 if all are equal."""
    task, scores = problem.task, problem.scores.detach()
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if scores.device.type == "cpu" and problem.shown is None and not (problem.padded or task.padding_label):
        square = _mean_square(scores.numpy(), problem.batch_shape.numel() if task.event_dims else 1)
        if torch.finfo(scores.dtype).tiny < square < math.inf:
            return math.sqrt(square)
    inside = tuple(range(-task.event_dims, 0)) or tuple(range(scores.dim()))
    problem.check()  # what is looked at below
    real = torch.ones_like(scores, dtype=torch.bool)
    if problem.shown is not None:
        real &= problem.shown.reshape(*problem.shown.shape, *(1,) * task.event_dims)
    if task.maskable:
        known = problem.target != IGNORE
        real &= known.reshape(*known.shape, *(1,) * (scores.dim() - known.dim()))
    # Powers of two keep the squares of huge scores finite.
    power = (torch.frexp(scores.abs().amax()).exponent - 30).clamp(min=0)
    values = torch.where(real, torch.ldexp(scores, -power), 0.0)
    centre = values.sum(inside, keepdim=True) / real.sum(inside, keepdim=True).clamp(min=1)
    squares = torch.where(real, values - centre, 0.0).square().sum() / real.sum().clamp(min=1)
    deviation = torch.ldexp(squares.sqrt(), power)
    # Below this floor 1 / epsilon would overflow the gradient's type.
    return torch.where(deviation > torch.finfo(deviation.dtype).tiny ** 0.5, deviation, torch.ones_like(deviation))


def _mean_square(scores: np.ndarray[Any, Any], problems: int) -> float:
    """The variance inside of problems of the same size. Numpy's operations take a fraction of the time of PyTorch's."""
    rows = scores.reshape(problems, -1)
    with np.errstate(all="ignore"):  # squares may overflow, and there may be NaN
        apart = rows - np.add.reduce(rows, 1, keepdims=True) / rows.shape[1]
        return float(np.vdot(apart, apart)) / rows.size
