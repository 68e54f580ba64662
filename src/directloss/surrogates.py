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
from directloss._gradient import traced
from directloss._loss import TaskLoss, hosted, traced_loss
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
    if traced():
        return traced_loss(_hinge_module, (reduction, dim, check_values), task, scores, target, mask, weight, epsilon)
    return _hinge(
        scores, target, task, epsilon=epsilon, reduction=reduction, mask=mask, dim=dim, weight=weight,
        check_values=check_values,
    )  # fmt: skip


@hosted
def _hinge(
    scores: Tensor, target: Tensor, task: Any, *, epsilon: float | Tensor | str, reduction: str, mask: Tensor | None,
    dim: Dim | None, weight: Tensor | None, check_values: bool,
) -> Tensor:  # fmt: skip
    problem = prepare(
        scores, target, task, reduction=reduction, mask=mask, dim=dim, weight=weight, check_values=check_values
    )
    problem.check()
    given = check_epsilon(epsilon, problem.batch_shape, check_values)
    margin = epsilons.automatic(problem, noise=0.0) if given is None else given
    with torch.no_grad():
        worst = problem.task.augmented(problem.scores.detach(), problem.target, margin, +1)
        charge = problem.task.loss(worst, problem.target)
    losses = _above_truth(problem, worst) + margin * charge
    return problem.reduce(losses, reduction, problem.task.counted(problem.target), check_values)


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
    if traced():
        settings = (reduction, dim, check_values)
        return traced_loss(_perceptron_module, settings, task, scores, target, mask, weight)
    return _perceptron(
        scores, target, task, reduction=reduction, mask=mask, dim=dim, weight=weight, check_values=check_values
    )


@hosted
def _perceptron(
    scores: Tensor, target: Tensor, task: Any, *, reduction: str, mask: Tensor | None, dim: Dim | None,
    weight: Tensor | None, check_values: bool,
) -> Tensor:  # fmt: skip
    problem = prepare(
        scores, target, task, reduction=reduction, mask=mask, dim=dim, weight=weight, check_values=check_values
    )
    problem.check()
    with torch.no_grad():
        predicted = problem.task.infer(problem.scores.detach(), problem.target)
    return problem.reduce(
        _above_truth(problem, predicted), reduction, problem.task.counted(problem.target), check_values
    )


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

    def loss(
        self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, **changed: Any
    ) -> Tensor:
        """See `hinge_loss`."""
        return hinge_loss(scores, target, self.task, mask=mask, weight=weight, **{**self.options(), **changed})

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

    def loss(
        self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, **changed: Any
    ) -> Tensor:
        """See `perceptron_loss`."""
        return perceptron_loss(scores, target, self.task, mask=mask, weight=weight, **{**self.options(), **changed})

    def extra_repr(self) -> str:
        return f"{self.task!r}, reduction={self.reduction!r}"


def _hinge_module(task: Any, epsilon: Any, reduction: str, dim: Any, check_values: bool) -> HingeLoss:
    return HingeLoss(task, epsilon=epsilon, reduction=reduction, dim=dim, check_values=check_values)


def _perceptron_module(task: Any, epsilon: Any, reduction: str, dim: Any, check_values: bool) -> PerceptronLoss:
    return PerceptronLoss(task, reduction=reduction, dim=dim, check_values=check_values)
