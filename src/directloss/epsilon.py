"""How far loss-augmented inference looks: the rule of ``epsilon="auto"``.

    epsilon = REACH * unit * (the task's unit_epsilon)

where ``unit`` is the scale of the noise. Without noise it is the task's `noise_scale`, or else the standard deviation
of the scores: around the mean of their problem, or around 0 if that is what each is compared with. The task's unit is
the epsilon at which its most important exchange or flip bridges a score difference of 1.

An epsilon that follows the scores is a function of them, and its derivative belongs to the gradient. The loss is the
same for scores ``s`` and ``a * s``, so its gradient has no part that merely scales them. Without this term update and
epsilon would feed each other: with sign +1 the scores would grow without bound, with sign -1 they would collapse.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from directloss._checks import IGNORE
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
    return _scale_free(problem.scores, spread), REACH * spread.deviation


class Spread(NamedTuple):
    """The spread of the scores of a call around their centre, in float32 or wider."""

    deviation: float | Tensor
    """The standard deviation of the scores; 1 if all are equal."""
    slope: Tensor
    """The gradient of its logarithm, in the unit ``2 ** -power``; 0 for padding, and if all are equal."""
    power: Tensor | None = None
    """Scales huge scores down, so that their squares are finite."""


def _scale_free(scores: Tensor, spread: Spread) -> Tensor:
    """The scores, with the gradient ``g - <g, s> * dlog(deviation)/ds`` instead of g.

    This is the gradient of ``(F(y_direct) - F(y_w)) / epsilon`` if F is linear in the scores and epsilon a multiple of
    the deviation. Two scores are left alone: only their difference matters, and nothing of its gradient would remain.
    """
    if not (torch.is_grad_enabled() and scores.requires_grad) or scores.numel() <= 2:
        return scores
    wide = scores.to(spread.slope.dtype)  # half precision is restored at the end
    fixed = wide.detach() if spread.power is None else torch.ldexp(wide.detach(), -spread.power)
    logarithm = torch.dot(wide.flatten(), spread.slope.flatten())  # its gradient is that of the logarithm
    return with_value(torch.addcmul(wide, fixed, logarithm, value=-1).to(scores.dtype), scores.detach())


def spread_of(problem: Problem) -> Spread:
    """The spread over the problems that count: the others neither affect epsilon nor get a gradient."""
    task, scores, shown = problem.task, problem.scores.detach(), problem.shown
    around_mean = task.density != "logistic"
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if problem.batch_shape.numel() > 1:
        problem.check()  # before labels are read
        counted = task.counted(problem.target)
        shown = shown if counted is None else counted if shown is None else counted & shown
    if scores.device.type == "cpu" and not (problem.padded or task.padding_label) and (shown is None or shown.all()):
        apart, squares = _apart(scores.numpy(), problem.batch_shape.numel(), around_mean)
        if torch.finfo(scores.dtype).tiny < squares / apart.size < np.inf:
            apart /= squares
            return Spread(float(np.sqrt(squares / apart.size)), torch.from_numpy(apart).view_as(scores))
    problem.check()
    real = torch.ones_like(scores, dtype=torch.bool)
    if shown is not None:
        real &= shown.reshape(*shown.shape, *(1,) * task.event_dims)
    if task.maskable:
        known = problem.target != IGNORE
        real &= known.reshape(*known.shape, *(1,) * (scores.dim() - known.dim()))
    power = (torch.frexp(scores.abs().amax()).exponent - 30).clamp(min=0)
    values = torch.where(real, torch.ldexp(scores, -power), 0.0)
    if around_mean:
        inside = tuple(range(-task.event_dims, 0))
        centre = values.sum(inside, keepdim=True) / real.sum(inside, keepdim=True).clamp(min=1)
        values = torch.where(real, values - centre, 0.0)
    total = values.square().sum()
    deviation = torch.ldexp((total / real.sum().clamp(min=1)).sqrt(), power)
    # Below this floor 1 / epsilon would overflow the gradient's type.
    differ = deviation > torch.finfo(deviation.dtype).tiny ** 0.5
    return Spread(torch.where(differ, deviation, 1.0), torch.where(differ, values / total, 0.0), power)


def _apart(scores: np.ndarray[Any, Any], problems: int, around_mean: bool) -> tuple[np.ndarray[Any, Any], float]:
    """Scores minus their centre, for problems of equal size, and the sum of squares.

    On small arrays numpy takes a fraction of PyTorch's time.
    """
    rows = scores.reshape(problems, -1)
    with np.errstate(all="ignore"):  # squares may overflow, and there may be NaN
        apart = rows - np.add.reduce(rows, 1, keepdims=True) / rows.shape[1] if around_mean else rows.copy()
        return apart, float(np.vdot(apart, apart))
