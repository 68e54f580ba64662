"""The engine: the general loss gradient theorem, Theorem 1 of Song et al. (ICML 2016), under noise.

    grad E[L(y, y_w)]  =  lim_{epsilon -> 0}  sign / epsilon * E[ grad F(y_direct) - grad F(y_w) ]          Eq. (2)
    y_w      = argmax_y F(y)                                                                                Eq. (3)
    y_direct = argmax_y F(y) + sign * epsilon * L(target, y)                                                Eq. (3)

With ``sign="both"`` the gradient is the mean of the two, ``(grad F(y_+) - grad F(y_-)) / (2 epsilon)``: a central
difference instead of a one-sided one. The expectation is over noise on the scores (`directloss.noise`); the value is
the loss of the scores without noise.

The engine knows no concrete task. It calls the two inferences and differentiates F, unless the task has a fused
implementation of both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from directloss import epsilon as epsilons
from directloss._checks import check_count, check_epsilon, check_sign, fail, warn_of_probabilities, warn_once
from directloss._gradient import carrier, largest_slope, traced, with_value
from directloss._loss import TaskLoss, hosted, traced_loss
from directloss._problem import Dim, Problem, prepare, result_type
from directloss.distributed import Gather
from directloss.kernels import way
from directloss.noise import Noise, check_noise
from directloss.task import Solve, Solved, Task

WARM_UP = 300
"""The number of initial training steps in which a `DirectLoss` follows the likelihood, which learns from any start."""


NO_LOGITS = (
    "All scores lie between 0 and 1, but the warm-up and the noise are made for logits. If the scores are "
    "probabilities, pass what sigmoid or softmax was applied to. If they are similarities, set noise, such as 0.1, and "
    "warm_up=0."
)


def direct_loss(
    scores: Tensor,
    target: Tensor,
    task: str | Task | Any,
    *,
    epsilon: float | Tensor | str = "auto",
    sign: int | str = "auto",
    noise: float | str | None = "auto",
    samples: int | str = "auto",
    generator: torch.Generator | None = None,
    reduction: str = "mean",
    mask: Tensor | None = None,
    dim: Dim | None = None,
    weight: Tensor | None = None,
    check_values: bool = True,
) -> Tensor:
    """Compute the task loss, with the gradient of Theorem 1.

    The value is the true loss of the batch (``1 - AP`` for ``"ap"``). The gradient estimates that of the expected loss
    under noise on the scores: the mean over draws of ``sign / epsilon * (dF(y_direct) - dF(y_w))``, with the same noise
    in both inferences. ``noise=0`` gives the paper's update.

    Args:
        scores: the outputs of the network, shape ``(..., n)`` for rankings and sets, ``(..., c)`` for classes; see the
            task.
        target: the labels, in the shape that the task documents.
        task: a name (``directloss.tasks.names()`` lists them) or an object with the methods of `Task`.
        epsilon: how far loss-augmented inference looks, a positive number or one for each problem; ``"auto"``
            follows the noise and the task (`directloss.epsilon`).
        sign: +1 moves away from worse outputs, -1 towards better ones, ``"both"`` is the mean of the two; ``"auto"``
            is the task's choice: +1 for rankings without a cutoff, ``"both"`` for most other tasks.
        noise: the scale of the noise; ``"auto"`` is 1 for rankings and 0.5 for everything else, in logits, and a tenth
            of the scores' standard deviation for decisions by costs. 0 or None adds none.
        samples: how many draws are averaged; ``"auto"`` draws 4,096 perturbed scores in all, at least one per score,
            and is 1 for decisions by costs.
        generator: the generator of the noise; by default the global one of the scores' device.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` over the problems of the batch.
        mask: True for real entries, False for padding; in the shape of ``target``.
        dim: the dimension (or dimensions) of ``scores`` that hold the items of one problem; the last by default.
        weight: how much each problem counts, in the shape of the unreduced losses; or, for ``"auc"``, how much each
            item counts, in the shape of ``target``.
        check_values: whether to check for NaN and wrong labels, which synchronises with a GPU.

    Returns:
        A scalar, or one loss per problem for ``reduction="none"``.

    References:
        Song, Schwing, Zemel, Urtasun: Training Deep Neural Networks via Direct Loss Minimization, ICML 2016, Theorem 1.

    Examples:
        >>> scores = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
        >>> loss = direct_loss(scores, torch.tensor([0, 1, 0]), "ap", noise=0, epsilon=3.0, sign=-1)
        >>> loss.item()
        0.5
        >>> loss.backward()
        >>> scores.grad
        tensor([ 0.3333, -0.3333,  0.0000])
    """
    options: dict[str, Any] = {
        "sign": sign, "noise": noise, "samples": samples, "generator": generator, "reduction": reduction, "dim": dim,
        "check_values": check_values,
    }  # fmt: skip
    if traced():
        return traced_loss(DirectLoss, task, scores, target, mask, weight, epsilon, warm_up=0, **options)
    return _loss(scores, target, task, epsilon=epsilon, warm=False, mask=mask, weight=weight, **options)


@hosted
def _loss(
    scores: Tensor, target: Tensor, task: Any, *, epsilon: float | Tensor | str, sign: int | str,
    noise: float | str | None, samples: int | str, generator: torch.Generator | None, warm: bool, reduction: str,
    mask: Tensor | None, dim: Dim | None, weight: Tensor | None, check_values: bool,
) -> Tensor:  # fmt: skip
    """`direct_loss`; if ``warm``, with the gradient of the task's likelihood, if the task has one."""
    problem = prepare(
        scores, target, task, reduction=reduction, mask=mask, dim=dim, weight=weight, check_values=check_values
    )
    source = check_noise(noise, samples, generator, problem.task.advised_noise)
    signs = check_sign(sign, problem.task.advised_sign)
    given = check_epsilon(epsilon, problem.batch_shape, check_values)
    if isinstance(noise, str) and (own := problem.task.noise_scale(problem.scores.detach())) is not None:
        # One draw: a solver costs more than a sort, and epsilon reaches five times as far as the noise anyway.
        source = source._replace(scale=own, samples=source.samples or 1)
    items = problem.scores.shape[-1] if problem.task.event_dims == 1 else 1
    dense = way(scores.device, lambda: problem.task.advised_way(items, signs)) == "dense"
    found = _at_once(problem, given, signs, source, warm, dense) or _in_turn(problem, given, signs, source, warm)
    return problem.reduce(_attached(found), reduction, found.counted, warn=check_values)


def _at_once(
    problem: Problem, given: float | Tensor | None, signs: tuple[int, ...], source: Noise, warm: bool, dense: bool
) -> Found | None:
    """Losses and gradients from a task's `fused` (or, on accelerators, `dense`) implementation; None without one."""
    task, scores, target = problem.task, problem.scores, problem.target
    solve, fixed = (task.dense if dense else task.fused), scores.detach()
    if getattr(solve, "__func__", None) is Task.fused:
        return None
    moves = torch.is_grad_enabled() and scores.requires_grad
    how = Solve(1.0, signs, gradient=False, padded=problem.padded, check_values=problem.check_values)
    if dense:
        problem.check()
    if warm or not moves:
        solved = solve(fixed, target, how)
        if solved is None:
            return None
        clean = Found(solved.loss.to(result_type(scores)), solved.counted)
        likelihood = task.likelihood(scores, target) if moves else None
        if not moves or likelihood is not None:
            return clean._replace(gap=likelihood)
        how = how._replace(check_values=False)
    noisy = None if source.silent and not dense else source.perturb(fixed, task.density)
    scores, step = epsilons.reach(problem, source.scale) if given is None else (scores, given)
    solved = solve(fixed, target, how._replace(epsilon=step, gradient=True, noisy=noisy, automatic=given is None))
    if solved is None or solved.gradient is None:
        return None
    if source.silent and problem.check_values:
        _warn_of_standstill(problem, solved, signs)
    gap = carrier(scores, solved.gradient, tuple(range(solved.loss.dim(), scores.dim())))
    return Found(solved.loss.to(result_type(scores)), solved.counted, gap)


def _in_turn(
    problem: Problem, given: float | Tensor | None, signs: tuple[int, ...], source: Noise, warm: bool
) -> Found:
    """Losses and gradients through the five abstract methods of a task."""
    problem.check()
    silent = source.silent and not warm and torch.is_grad_enabled() and problem.scores.requires_grad
    if silent:
        scores, step = epsilons.automatic(problem, 0.0) if given is None else (problem.scores, given)
        return _theorem(problem._replace(scores=scores), step, signs, gradient=True, value=True)
    clean = _theorem(problem, 1.0, signs, gradient=False, value=True)
    if not torch.is_grad_enabled() or not (problem.scores.requires_grad or clean.learns):
        return clean
    likelihood = problem.task.likelihood(problem.scores, problem.target) if warm else None
    if likelihood is not None and likelihood.requires_grad:
        problem.check_one_each(likelihood, "task.likelihood")
        return clean._replace(gap=likelihood)
    scores, step = epsilons.automatic(problem, source.scale) if given is None else (problem.scores, given)
    draws = problem.repeated(source.perturb(scores, problem.task.density))
    noisy = _theorem(draws, step, signs, gradient=True, value=False)
    return clean._replace(gap=None if noisy.gap is None else noisy.gap.mean(0))


class Found(NamedTuple):
    """The results of inference for a batch."""

    losses: Tensor
    """Shape ``b``; in draws ``(draws, *b)``."""
    counted: Tensor | None
    gap: Tensor | None = None
    """A number per problem whose gradient is that of the loss; its value means nothing."""
    learns: bool = False
    """Whether F has parameters of its own, which need gradients even if the scores do not."""


def _theorem(problem: Problem, epsilon: float | Tensor, signs: tuple[int, ...], gradient: bool, value: bool) -> Found:
    """Eq. (2) through the five methods of the task; autograd differentiates F."""
    task, scores, target = problem.task, problem.scores, problem.target
    # Also the dtype of the gradient of F: at least as precise as the scores.
    kind = torch.promote_types(scores.dtype, torch.float32)
    losses, predicted = torch.zeros(problem.batch_shape, dtype=kind, device=scores.device), None
    with torch.no_grad():
        fixed = scores.detach()
        if value or len(signs) == 1:  # a difference of both signs needs no third inference
            predicted = task.infer(fixed, target)
        if value:
            losses = task.loss(predicted, target).to(kind)
    problem.check_one_each(losses, "task.loss")
    counted = task.counted(target)
    if not gradient:
        learns = torch.is_grad_enabled() and not scores.requires_grad and task.score(scores, predicted).requires_grad
        return Found(losses, counted, learns=learns)
    with torch.no_grad():
        direct = [task.augmented(fixed, target, epsilon, sign) for sign in signs]
    # Half-precision gradients are summed in float32 and rounded once.
    scores = scores.to(losses.dtype)
    # Away from y_+ or towards y_-, starting at y_w; with both signs, from y_+ to y_-.
    towards = predicted if len(signs) == 1 else direct[1]
    gap = task.score(scores, direct[0]) - task.score(scores, towards)
    problem.check_one_each(gap, "task.score")
    if scores.requires_grad and not gap.requires_grad:
        fail("task.score", "must be differentiable in scores", "a tensor without gradient", "Do not detach the scores.")
    return Found(losses, counted, gap=(gap * _factor(epsilon, signs, problem.kind)).to(losses.dtype))


def _factor(epsilon: float | Tensor, signs: tuple[int, ...], kind: torch.dtype) -> float | Tensor:
    """``sign / epsilon``, or ``1 / (2 epsilon)`` for both signs, but no more than scores of this type can hold.

    An epsilon whose inverse overflows must not make 0 * infinity, nor infinity minus infinity.
    """
    sign = signs[0] / len(signs)
    most = largest_slope(kind)
    if not isinstance(epsilon, Tensor):
        return max(-most, min(sign / epsilon, most))
    most = min(most, torch.finfo(epsilon.dtype).max)
    return (sign / epsilon).clamp(-most, most)


def _attached(found: Found) -> Tensor:
    """The losses, with their gradient if there is one."""
    return found.losses if found.gap is None else with_value(found.gap, found.losses.to(found.gap.dtype))


def _warn_of_standstill(problem: Problem, solved: Solved, signs: tuple[int, ...]) -> None:
    """Without noise and with sign +1, decisions can have a loss but no gradient, for example if all are wrong."""
    if signs != (1,) or problem.task.advised_sign != "both" or solved.gradient is None:
        return
    if not bool(solved.gradient.any()) and bool(solved.loss.any()):
        warn_once(
            "standstill",
            f"{problem.task!r} has a loss of {float(solved.loss.mean()):.3g} but no gradient with sign=+1 and "
            'noise=0: no worse output is within reach to move away from. Leave sign and noise at "auto".',
        )


def mean_metric(
    scores: Tensor, target: Tensor, task: str | Task | Any, *, mask: Tensor | None = None, dim: Dim | None = None
) -> float:
    """The metric of a task, averaged over the problems that count; NaN if none does."""
    fixed = scores.detach()
    problem = prepare(fixed, target, task, reduction="none", mask=mask, dim=dim, weight=None, check_values=True)
    with torch.no_grad():
        source = check_noise(0, 1, None)
        found = _at_once(problem, 1.0, (1,), source, False, False) or _in_turn(problem, 1.0, (1,), source, False)
    values = problem.task.value(found.losses, problem.target)
    shown = torch.ones_like(values, dtype=torch.bool) if problem.shown is None else problem.shown
    return float(values[shown if found.counted is None else shown & found.counted].double().mean())


class DirectLoss(TaskLoss):
    """`direct_loss` as a module, with the same arguments and two more.

    Args:
        warm_up: for how many training steps the gradient is that of the task's likelihood (cross-entropy) instead;
            ``"auto"`` is 300, 0 is none. The value is the task loss from the first step on. If you know the length of
            the training, use half of it. The step count is part of the ``state_dict``.
        gather: True joins the batches of all processes of ``torch.distributed`` along the first dimension; value and
            parameter gradients under DDP or FSDP are those of one process with the whole batch, and the noise comes
            from the first process. Every process must call the loss. Pass a process group to join only its processes.

    Examples:
        >>> loss_fn = DirectLoss("ap")
        >>> loss_fn
        DirectLoss(AveragePrecision())
        >>> loss_fn(torch.tensor([2.0, 1.0, 0.0]), torch.tensor([1, 0, 1]))
        tensor(0.1667)
    """

    def __init__(
        self,
        task: str | Task | Any,
        *,
        epsilon: float | Tensor | str = "auto",
        sign: int | str = "auto",
        noise: float | str | None = "auto",
        samples: int | str = "auto",
        generator: torch.Generator | None = None,
        warm_up: int | str = "auto",
        reduction: str = "mean",
        dim: Dim | None = None,
        check_values: bool = True,
        gather: Gather = False,
    ) -> None:
        super().__init__(task, reduction, dim, check_values, epsilon, gather)
        check_sign(sign)
        check_noise(noise, samples, generator)
        self.sign, self.noise, self.samples, self.generator = sign, noise, samples, generator
        self.warm_up = warm_up if warm_up == "auto" else check_count("warm_up", warm_up, least=0)
        self.steps = 0

    def loss(
        self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, **changed: Any
    ) -> Tensor:
        """See `direct_loss`; in training mode each call is a step."""
        most = WARM_UP if isinstance(self.warm_up, str) else self.warm_up
        warm = self.steps < most
        if warm and self.training and torch.is_grad_enabled():
            self.steps += 1
            # Rankings only: decisions are checked by their tasks. By now logits have spread, probabilities have not.
            if self.steps == most and self.check_values and self.noise == "auto" and self.task.advised_noise == 1:
                warn_of_probabilities(scores, "scores", NO_LOGITS)
        return _loss(
            scores, target, self.task, sign=self.sign, noise=self.noise, samples=self.samples,
            generator=self.generator, warm=warm, mask=mask, weight=weight, **{**self.options(), **changed},
        )  # fmt: skip

    def get_extra_state(self) -> Tensor:
        """The number of warm-up steps taken so far."""
        return torch.tensor(self.steps)

    def set_extra_state(self, state: Any) -> None:
        """Restore the number of warm-up steps."""
        self.steps = int(state)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        # A checkpoint without this number comes from a version without warm-up: training continues without one.
        state_dict.setdefault(f"{prefix}_extra_state", torch.tensor(WARM_UP))
        super()._load_from_state_dict(state_dict, prefix, *more)

    def extra_repr(self) -> str:
        """The task and the settings that differ from the defaults."""
        names = ("epsilon", "sign", "noise", "samples", "warm_up")
        chosen = [(name, getattr(self, name)) for name in names]
        changed = [f"{name}={value!r}" for name, value in chosen if not (isinstance(value, str) and value == "auto")]
        changed += [] if self.reduction == "mean" else [f"reduction={self.reduction!r}"]
        return ", ".join([repr(self.task), *changed])
