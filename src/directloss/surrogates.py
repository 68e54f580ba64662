"""The two classic stand-ins, built from any task: the structured hinge and the structured perceptron.

    hinge       max_y [ F(y) + epsilon * L(y) ] - F(truth)        for AP: Yue et al. (2007), the paper's hinge-AP
    perceptron  max_y   F(y)                    - F(truth)        the paper's per-AP and per-01

Both are ordinary differentiable expressions once the maximiser is known, so autograd does the rest.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from directloss import epsilon as epsilons
from directloss._checks import check_epsilon
from directloss._gradient import transformable
from directloss._loss import TaskLoss
from directloss._problem import Dim, Problem, prepare
from directloss.distributed import Gather
from directloss.task import Task


@transformable
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
    problem.check()
    given = check_epsilon(epsilon, problem.batch_shape)
    margin = epsilons.automatic(problem, noise=0.0) if given is None else given
    with torch.no_grad():
        worst = problem.task.augmented(problem.scores.detach(), problem.target, margin, +1)
        charge = problem.task.loss(worst, problem.target)
    losses = _above_truth(problem, worst) + margin * charge
    return problem.reduce(losses, reduction, problem.task.counted(problem.target))


@transformable
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
    problem.check()
    with torch.no_grad():
        predicted = problem.task.infer(problem.scores.detach(), problem.target)
    return problem.reduce(_above_truth(problem, predicted), reduction, problem.task.counted(problem.target))


def _above_truth(problem: Problem, output: Any) -> Tensor:
    """F(output) - F(truth), differentiable."""
    task, scores = problem.task, problem.scores
    return task.score(scores, output) - task.score(scores, task.truth(problem.target))


class HingeLoss(TaskLoss):
    """`hinge_loss` as a module, with the same arguments; ``gather`` as in `DirectLoss`.

    Examples:
        >>> HingeLoss("ap", epsilon=2.0)
        HingeLoss(AveragePrecision(), epsilon=2.0, reduction='mean')
    """

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

    def loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        """See `hinge_loss`."""
        return hinge_loss(scores, target, self.task, mask=mask, weight=weight, **self.options())

    def extra_repr(self) -> str:
        return f"{self.task!r}, epsilon={self.epsilon!r}, reduction={self.reduction!r}"


class PerceptronLoss(TaskLoss):
    """`perceptron_loss` as a module, with the same arguments; ``gather`` as in `DirectLoss`.

    Examples:
        >>> PerceptronLoss("ap")
        PerceptronLoss(AveragePrecision(), reduction='mean')
    """

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

    def loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        """See `perceptron_loss`."""
        return perceptron_loss(scores, target, self.task, mask=mask, weight=weight, **self.options())

    def extra_repr(self) -> str:
        return f"{self.task!r}, reduction={self.reduction!r}"
