"""The two classic surrogates, built from any task: the structured hinge and the structured perceptron.

    hinge       max_y [ F(y) + epsilon * L(y) ] - F(truth)        for AP: Yue et al. (2007), the paper's hinge-AP
    perceptron  max_y   F(y)                    - F(truth)        the paper's per-AP and per-01

Given the maximiser, both are ordinary differentiable expressions, so autograd does the rest.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from directloss import epsilon as epsilons
from directloss._checks import check_epsilon, fail
from directloss._loss import TaskLoss, hosted
from directloss._problem import Dim, Problem, prepare
from directloss.distributed import Gather
from directloss.task import Task


def hinge_loss(
    scores: Tensor,
    target: Tensor,
    task: str | Task | Any,
    *,
    epsilon: float | Tensor | str = 1.0,
    reduction: str = "mean",
    mask: Tensor | None = None,
    dim: Dim | None = None,
    weight: Tensor | None = None,
    check_values: bool = True,
) -> Tensor:
    """Structured hinge loss with margin rescaling, an upper bound of ``epsilon`` times the task loss.

    ``max_y [F(y) + epsilon * L(y)] - F(truth)``. For ``"ap"`` this is the structural SVM of Yue et al. (2007). Here
    ``epsilon`` is the size of the margin in units of the scores; the classic choice is 1. All other arguments are
    those of `direct_loss`.

    Examples:
        >>> hinge_loss(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]), "error", reduction="none")
        tensor([0., 0.])
    """
    problem = prepare(
        scores, target, task, reduction=reduction, mask=mask, dim=dim, weight=weight, check_values=check_values
    )
    if epsilon is None:
        fail("epsilon", 'must be a positive number or "auto"', None)
    return hosted(_loss)(problem, epsilon, reduction, check_values)


def perceptron_loss(
    scores: Tensor,
    target: Tensor,
    task: str | Task | Any,
    *,
    reduction: str = "mean",
    mask: Tensor | None = None,
    dim: Dim | None = None,
    weight: Tensor | None = None,
    check_values: bool = True,
) -> Tensor:
    """Structured perceptron loss: how much higher the prediction scores than the truth.

    ``F(y_w) - F(truth)``; it depends on the task's outputs but not on its loss. Arguments are those of `direct_loss`.

    Examples:
        >>> perceptron_loss(torch.tensor([[1.0, 3.0, 0.0]]), torch.tensor([0]), "accuracy")
        tensor(2.)
    """
    problem = prepare(
        scores, target, task, reduction=reduction, mask=mask, dim=dim, weight=weight, check_values=check_values
    )
    return hosted(_loss)(problem, None, reduction, check_values)


def _loss(problem: Problem, epsilon: float | Tensor | str | None, reduction: str, check_values: bool) -> Tensor:
    """The hinge or, without epsilon, the perceptron."""
    problem.refuse_item_weight()
    problem.check()
    task, scores, target, padding = problem.task, problem.scores, problem.target, problem.padding
    charge: float | Tensor = 0.0
    with torch.no_grad():
        if epsilon is None:
            output = task.infer(scores.detach(), target, **padding)
        else:
            given = check_epsilon(epsilon, problem.batch_shape, check_values)
            margin = epsilons.automatic(problem, noise=0.0) if given is None else given
            output = task.augmented(scores.detach(), target, margin, +1, **padding)
            charge = margin * task.loss(output, target, **padding)
    losses = task.score(scores, output) - task.score(scores, task.truth(target, **padding)) + charge
    return problem.reduce(losses, reduction, task.counted(target, **padding), check_values)


class HingeLoss(TaskLoss):
    """`hinge_loss` as a module, with the same arguments; ``gather`` as in `DirectLoss`.

    Examples:
        >>> HingeLoss("ap", epsilon=2.0)
        HingeLoss(AveragePrecision(), epsilon=2.0, reduction='mean')
    """

    function = staticmethod(hinge_loss)

    def __init__(
        self,
        task: str | Task | Any,
        *,
        epsilon: float | Tensor | str = 1.0,
        reduction: str = "mean",
        dim: Dim | None = None,
        check_values: bool = True,
        gather: Gather = False,
    ) -> None:
        super().__init__(task, reduction, dim, check_values, epsilon, gather)


class PerceptronLoss(TaskLoss):
    """`perceptron_loss` as a module, with the same arguments; ``gather`` as in `DirectLoss`.

    Examples:
        >>> PerceptronLoss("ap")
        PerceptronLoss(AveragePrecision(), reduction='mean')
    """

    function = staticmethod(perceptron_loss)

    def __init__(
        self,
        task: str | Task | Any,
        *,
        reduction: str = "mean",
        dim: Dim | None = None,
        check_values: bool = True,
        gather: Gather = False,
    ) -> None:
        super().__init__(task, reduction, dim, check_values, gather=gather)
