"""How far loss-augmented inference looks: the rule of ``epsilon="auto"``, one number for each problem.

    epsilon = REACH * unit * (the task's unit_epsilon)

where ``unit`` is the scale of the noise; without noise, that of the automatic noise. The task's unit is the epsilon at
which its most important exchange or flip bridges a score difference of 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from directloss._problem import Problem

REACH = 5.0
"""The largest score difference, in units of the noise, that a single exchange or flip can bridge. If much smaller,
most draws change nothing (variance); if much larger, inference reaches distant outputs (bias). A factor of two or three
hardly matters."""


def automatic(problem: Problem, noise: float | Tensor) -> float | Tensor:
    """The epsilon of each problem: a number, or a tensor of shape ``b``."""
    task, scores = problem.task, problem.scores.detach()
    if not isinstance(noise, Tensor) and noise == 0:
        own = task.noise_scale(scores)
        noise = task.defaults.noise if own is None else own
    step = REACH * noise * task.unit_epsilon(scores, problem.target, **problem.padding)
    # Finite even for huge scores.
    return step.clamp(max=torch.finfo(step.dtype).max) if isinstance(step, Tensor) else step
