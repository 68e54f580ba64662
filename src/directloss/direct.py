"""The engine: the general loss gradient theorem, Theorem 1 of Song et al. (ICML 2016).

    grad E[L(y, y_w)]  =  lim_{epsilon -> 0}  sign / epsilon * E[ grad F(y_direct) - grad F(y_w) ]          Eq. (2)
    y_w      = argmax_y F(y)                                                                                Eq. (3)
    y_direct = argmax_y F(y) + sign * epsilon * L(target, y)                                                Eq. (3)

With ``sign="both"`` the gradient is the mean of the two, ``(grad F(y_+) - grad F(y_-)) / (2 epsilon)``: a central
difference in place of a one-sided one.

The engine knows no concrete task. It asks for the two inferences and differentiates F, or takes both from the task in
one go where the task knows a faster way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from directloss._checks import check_epsilon, check_sign, warn_once
from directloss._dynamo import outside_graphs
from directloss._functorch import transformable
from directloss._module import LossModule
from directloss._problem import Dim, Problem, prepare
from directloss.distributed import Gather
from directloss.task import Solved, Task


@outside_graphs
@transformable
def direct_loss(
    scores: Tensor,
    target: Tensor,
    task: str | Task | Any,
    *,
    epsilon: float | Tensor | str = "auto",
    sign: int | str = +1,
    reduction: str = "mean",
    mask: Tensor | None = None,
    dim: Dim | None = None,
    weight: Tensor | None = None,
    check_values: bool = True,
) -> Tensor:
    """The task loss itself, with the gradient of Theorem 1.

    The value is the true loss of the batch (``1 - AP`` for ``"ap"``). The gradient with respect to the scores is
    ``sign / epsilon * (dF(y_direct) - dF(y_w))``, and the chain rule carries it into the network.

    Args:
        scores: what the network says, shape ``(..., n)`` for rankings and sets, ``(..., c)`` for classes; see the task.
        target: the labels, in the shape that the task asks for.
        task: a name (``directloss.tasks.names()`` lists them) or an object with the methods of `Task`.
        epsilon: how far the augmented inference looks, a positive number (or one for each problem); ``"auto"``
            follows the scores.
        sign: +1 moves away from worse outputs, -1 towards better ones, ``"both"`` takes the mean of the two. For
            rankings +1 is enough; for decisions (``"accuracy"``, ``"f1"`` and their kind) take ``"both"``, since +1
            alone sees only what is right already.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` over the problems of the batch.
        mask: True for real entries, False for padding; in the shape of ``target``.
        dim: the dimension (or dimensions) of ``scores`` that hold the items of one problem; the last by default.
        weight: how much each problem counts, in the shape of the unreduced losses; or, for ``"auc"``, how much each
            item counts, in the shape of ``target``.
        check_values: whether to look for NaN and wrong labels, which costs a synchronisation on a GPU.

    Returns:
        A scalar, or one loss per problem for ``reduction="none"``.

    References:
        Song, Schwing, Zemel, Urtasun: Training Deep Neural Networks via Direct Loss Minimization, ICML 2016, Theorem 1.

    Example:
        >>> scores = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
        >>> loss = direct_loss(scores, torch.tensor([0, 1, 0]), "ap", epsilon=3.0, sign=-1)
        >>> loss.item()
        0.5
        >>> loss.backward()
        >>> scores.grad
        tensor([ 0.3333, -0.3333,  0.0000])
    """
    signs = check_sign(sign)
    problem = prepare(
        scores, target, task, reduction=reduction, mask=mask, dim=dim, weight=weight, check_values=check_values
    )
    given = check_epsilon(epsilon, problem.batch_shape)
    wanted = torch.is_grad_enabled() and scores.requires_grad
    if wanted and given is None and len(signs) > 1:
        problem = problem._replace(scores=_steadied(problem))
    solved = _fused(problem, given, signs if wanted else signs[:1], wanted)
    if solved is None:
        problem.check()
        losses, counted = _theorem(problem, problem.epsilon(given), signs), problem.task.counted(problem.target)
    else:
        if wanted and given is None and check_values:
            _warn_of_standstill(problem, solved, signs)
        losses, counted = _attach(problem.scores, solved), solved.counted
    return problem.reduce(losses, reduction, counted)


def mean_metric(
    scores: Tensor, target: Tensor, task: str | Task | Any, *, mask: Tensor | None = None, dim: Dim | None = None
) -> float:
    """The metric of a task, a mean over the problems that count; NaN where none does, because 1 would be a lie."""
    options = {"reduction": "none", "mask": mask, "dim": dim, "weight": None, "check_values": True}
    problem = prepare(scores.detach(), target, task, **options)  # type: ignore[arg-type]
    solved = _fused(problem, None, (1,), gradient=False)
    if solved is None:
        problem.check()
        with torch.no_grad():
            losses = problem.task.loss(problem.task.infer(problem.scores, problem.target), problem.target)
        solved = Solved(losses, None, problem.task.counted(problem.target))
    values = problem.task.value(solved.loss, problem.target)
    shown = torch.ones_like(values, dtype=torch.bool) if problem.shown is None else problem.shown
    return float(values[shown if solved.counted is None else shown & solved.counted].double().mean())


def _fused(problem: Problem, given: float | Tensor | None, signs: tuple[int, ...], gradient: bool) -> Solved | None:
    """Losses and gradients as the task itself knows them, if it does; the mean of both signs."""
    task, scores, target = problem.task, problem.scores.detach(), problem.target
    solved = task.fused(scores, target, given, signs[0], gradient=gradient, check_values=problem.check_values)
    if solved is None or solved.gradient is None or len(signs) == 1:
        return solved
    other = task.fused(scores, target, given, signs[1], gradient=True, check_values=False)
    if other is None or other.gradient is None:
        return None
    return Solved(solved.loss, solved.gradient / 2 + other.gradient / 2, solved.counted)


def _warn_of_standstill(problem: Problem, solved: Solved, signs: tuple[int, ...]) -> None:
    """With sign +1 decisions may have a loss and no gradient at all, for example where all of them are wrong."""
    if signs != (1,) or problem.task.advised_sign != "both" or solved.gradient is None:
        return
    if not bool(solved.gradient.any()) and bool(solved.loss.any()):
        warn_once(
            f"standstill {problem.task!r}",
            f"{problem.task!r} has a loss of {float(solved.loss.mean()):.3g} but no gradient with sign=+1: no worse "
            'output is within reach, to move away from. Use sign="both", which is the advice for this task. Said once.',
        )


def _steadied(problem: Problem) -> Tensor:
    """The scores, with a gradient that goes through `Task.steadied` on its way back."""
    scores, fixed = problem.scores.view_as(problem.scores), problem.scores.detach()  # 0 where a problem has no weight
    scores.register_hook(lambda gradient: problem.task.steadied(gradient, fixed))  # type: ignore[no-untyped-call]
    return scores


def _theorem(problem: Problem, epsilon: float | Tensor, signs: tuple[int, ...]) -> Tensor:
    """Eq. (2) through the five methods of the task; autograd differentiates F, whatever F is made of."""
    task, scores, target = problem.task, problem.scores, problem.target
    with torch.no_grad():
        fixed = scores.detach()
        predicted = task.infer(fixed, target)
        # The type that the gradient of F is carried in, too: as precise as the scores, if not more.
        losses = task.loss(predicted, target).to(torch.promote_types(fixed.dtype, torch.float32))
    problem.check_one_each(losses, "task.loss")
    if not torch.is_grad_enabled():
        return losses
    with torch.no_grad():
        direct = [task.augmented(fixed, target, epsilon, sign) for sign in signs]
    # Away from y_+, or towards y_-, from where we are; with both signs, from the one to the other.
    towards = predicted if len(signs) == 1 else direct[1]
    gap = task.score(scores, direct[0]) - task.score(scores, towards)
    problem.check_one_each(gap, "task.score")
    return _worth((gap * _factor(epsilon, signs, scores.dtype)).to(losses.dtype), losses)


def _factor(epsilon: float | Tensor, signs: tuple[int, ...], kind: torch.dtype) -> float | Tensor:
    """``sign / epsilon``, or ``1 / (2 epsilon)`` for both signs, but finite.

    An epsilon whose inverse overflows must not make 0 * infinity.
    Nor infinity minus infinity, where the gradients of the two scores meet in half precision.
    """
    sign = signs[0] / len(signs)
    most = torch.finfo(kind).max / (4 if kind == torch.float16 else 1024)
    if not isinstance(epsilon, Tensor):
        return sign * min(1 / epsilon, most)
    most = min(most, torch.finfo(epsilon.dtype).max)
    return (sign / epsilon).clamp(-most, most)


def _attach(scores: Tensor, solved: Solved) -> Tensor:
    """The known losses together with their known gradient."""
    if solved.gradient is None:
        return solved.loss
    wide = scores.to(solved.gradient.dtype)  # half precision only at the very end, where backward undoes this
    if wide.dim() == 1 and solved.loss.dim() == 0:
        return _worth(torch.dot(wide, solved.gradient), solved.loss)
    product = wide * solved.gradient
    inside = tuple(range(solved.loss.dim(), product.dim()))
    return _worth(product.sum(inside) if inside else product, solved.loss)


def _worth(carrier: Tensor, value: Tensor) -> Tensor:
    """The gradient of ``carrier`` with another value, whatever (infinity included) its own may be.

    The value is written where autograd does not look: sums and products do not need their results to be differentiated.
    An ``autograd.Function`` would do the same, and call Python from every backward pass.
    """
    carrier.detach().copy_(value)
    return carrier


def _shown(sign: int | str) -> str:
    return repr(sign) if isinstance(sign, str) else f"{sign:+d}"


class DirectLoss(LossModule):
    """`direct_loss` as a module, with the same arguments.

    With ``gather=True`` the batch is that of all processes of ``torch.distributed``, joined along the first dimension;
    value and parameter gradients under DDP or FSDP are those of one process with the whole batch. Every process has to
    call it. A process group instead of True joins the processes of that group.

    Example:
        >>> loss_fn = DirectLoss("ap")
        >>> loss_fn
        DirectLoss(AveragePrecision(), epsilon='auto', sign=+1, reduction='mean')
        >>> loss_fn(torch.tensor([2.0, 1.0, 0.0]), torch.tensor([1, 0, 1]))
        tensor(0.1667)
    """

    def __init__(
        self,
        task: str | Task | Any,
        *,
        epsilon: float | Tensor | str = "auto",
        sign: int | str = +1,
        reduction: str = "mean",
        dim: Dim | None = None,
        check_values: bool = True,
        gather: Gather = False,
    ) -> None:
        super().__init__(task, reduction, dim, check_values, epsilon, gather)
        signs = check_sign(sign)
        self.sign: int | str = signs[0] if len(signs) == 1 else "both"

    def forward(
        self, scores: Tensor, target: Tensor, mask: Tensor | None = None, weight: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch; see `direct_loss`."""
        if self.gather is not False:
            scores, target, mask, weight = self.joined(scores, target, mask, weight)
        return direct_loss(scores, target, self.task, sign=self.sign, mask=mask, weight=weight, **self.options())

    def extra_repr(self) -> str:
        return f"{self.task!r}, epsilon={self.epsilon!r}, sign={_shown(self.sign)}, reduction={self.reduction!r}"
