"""Direct loss: the true task loss as the value, the gradient of the expected metric as the gradient.

    task                                          gradient                                     module
    rankings, decisions, classes                  that of the expected metric, exactly         `directloss.moves`
    structured outputs; ``epsilon`` or ``sign``   Theorem 1 of Song et al. (ICML 2016)         `directloss.theorem`

A constant share of the gradient of the task's likelihood (cross-entropy) is added, which makes progress from any start.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from directloss import theorem
from directloss._checks import check_epsilon, check_flips, check_not_negative, check_sign, fail, warn_of_probabilities
from directloss._dynamo import differentiated, traced
from directloss._gradient import carrier, with_value
from directloss._loss import TaskLoss, hosted
from directloss._problem import Dim, Problem, prepare, result_type
from directloss.distributed import Gather
from directloss.noise import Noise, check_noise
from directloss.task import Estimate, Task, moving

NO_LOGITS = (
    "All scores lie between 0 and 1, but the noise and the likelihood are made for logits. If the scores are "
    "probabilities, pass what sigmoid or softmax was applied to. If they are similarities, multiply them by 20 or so, "
    "or set noise, such as 0.1, and likelihood=0."
)
EXPECTED = 1 << 20
"""How many perturbed scores `expected_metric` draws in all, and how many at once."""


class Settings(NamedTuple):
    """The validated settings of a direct loss, apart from shapes."""

    noise: float | str | None
    samples: int | str
    likelihood: float | str
    flips: tuple[float, float]
    epsilon: float | Tensor | str | None
    sign: int | str | None
    generator: torch.Generator | None

    @property
    def named(self) -> bool:
        """Whether Theorem 1 is asked for."""
        return self.epsilon is not None or self.sign is not None

    def noise_for(self, task: Task) -> Noise:
        """The noise; Theorem 1 has none unless it is named, or the only gradient of the task."""
        noise = 0.0 if self.named and isinstance(self.noise, str) else self.noise
        return check_noise(noise, self.samples, self.generator, task.defaults.noise)

    def share_for(self, task: Task) -> float:
        """The share of the likelihood's gradient."""
        if isinstance(self.likelihood, str):
            return 0.0 if self.named else task.defaults.likelihood
        return self.likelihood


def check_settings(
    noise: Any, samples: Any, likelihood: Any, flips: Any, epsilon: Any, sign: Any, generator: Any
) -> Settings:
    """The settings, or an error that names the wrong one."""
    check_noise(noise, samples, generator)
    if isinstance(likelihood, str) and likelihood != "auto":
        fail("likelihood", 'must be a number of at least 0 or "auto"', repr(likelihood))
    if epsilon is not None:
        check_epsilon(epsilon)
    if sign is not None:
        check_sign(sign)
    share = likelihood if isinstance(likelihood, str) else check_not_negative("likelihood", likelihood)
    settings = Settings(noise, samples, share, check_flips(flips), epsilon, sign, generator)
    if settings.named and any(settings.flips):
        what = "epsilon" if sign is None else "sign"
        fail(what, "must be left out together with flips, which Theorem 1 cannot correct for", getattr(settings, what))
    return settings


def direct_loss(
    scores: Tensor,
    target: Tensor,
    task: str | Task | Any,
    *,
    noise: float | str | None = "auto",
    samples: int | str = "auto",
    likelihood: float | str = "auto",
    flips: float | tuple[float, float] = 0.0,
    epsilon: float | Tensor | str | None = None,
    sign: int | str | None = None,
    generator: torch.Generator | None = None,
    reduction: str = "mean",
    mask: Tensor | None = None,
    dim: Dim | None = None,
    weight: Tensor | None = None,
    check_values: bool = True,
) -> Tensor:
    """Compute the task loss, with the gradient of the expected metric.

    The value is the true loss of the batch (``1 - AP`` for ``"ap"``). The gradient is an unbiased estimate of that of
    the expected metric under random noise on the scores, by moving one item at a time, plus a small share of the
    gradient of the likelihood. ``likelihood=0`` leaves the expected metric alone.

    Args:
        scores: the outputs of the network, shape ``(..., n)`` for rankings and sets, ``(..., c)`` for classes; see the
            task.
        target: the labels, in the shape that the task documents.
        task: a name (``directloss.tasks.names()`` lists them), an object with the methods of `Task`, or any function
            ``metric(scores, target)`` that returns one number.
        noise: how far the scores are perturbed; see `directloss.noise`.
        samples: how many draws of the noise are averaged; ``"auto"`` is ``512 // n`` for lists of n items, fewer if
            there are more than 8,192 scores in all, at least 1; and 1 for structured outputs.
        likelihood: how much of the gradient of the task's likelihood is added; ``"auto"`` is the task's constant.
        flips: the share of labels that are wrong, if known: one number, or one for the negatives and one for the
            positives. The value and the metric's gradient are then those of the right labels, in expectation, and the
            likelihood is corrected for them; for metrics of decisions.
        epsilon: asks for Theorem 1: how far loss-augmented inference looks, a positive number or one for each problem,
            or ``"auto"``. There is then no noise and no likelihood unless they are named.
        sign: asks for Theorem 1: +1 moves away from worse outputs, -1 towards better ones, ``"both"`` is the mean of
            the two.
        generator: the generator of the noise; by default the global one of the scores' device.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` over the problems of the batch.
        mask: True for real entries, False for padding; in the shape of ``target``.
        dim: the dimension (or dimensions) of ``scores`` that hold the items of one problem; the last by default.
        weight: how much each problem counts, in the shape of the unreduced losses; or how much each item counts, in the
            shape of ``target``, as ``sample_weight`` in scikit-learn.
        check_values: whether to check for NaN and wrong labels, which synchronises with a GPU.

    Returns:
        A scalar, or one loss per problem for ``reduction="none"``.

    References:
        Song, Schwing, Zemel, Urtasun: Training Deep Neural Networks via Direct Loss Minimization, ICML 2016, Theorem 1.

    Examples:
        >>> scores = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
        >>> loss = direct_loss(scores, torch.tensor([0, 1, 0]), "ap")
        >>> loss.item()
        0.5
        >>> loss.backward()
        >>> scores.grad[1] < 0  # the relevant item should rise
        tensor(True)

        Theorem 1 as in the paper:

        >>> scores = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
        >>> direct_loss(scores, torch.tensor([0, 1, 0]), "ap", epsilon=3.0, sign=-1).backward()
        >>> scores.grad
        tensor([ 0.3333, -0.3333,  0.0000])
    """
    settings = check_settings(noise, samples, likelihood, flips, epsilon, sign, generator)
    return _loss(scores, target, task, settings, reduction, mask, dim, weight, check_values)


def _loss(
    scores: Tensor, target: Tensor, task: Any, settings: Settings, reduction: str, mask: Tensor | None,
    dim: Dim | None, weight: Tensor | None, check_values: bool,
) -> Tensor:  # fmt: skip
    """`direct_loss` with validated settings."""
    check_values = check_values and not traced()
    problem = prepare(
        scores, target, task, reduction=reduction, mask=mask, dim=dim, weight=weight, check_values=check_values
    )
    moves = not settings.named and moving(problem.task) is not None
    if not moves or problem.task.defaults.no_flips:
        refuse_flips(problem.task, settings.flips)
    estimator = _moved if moves else hosted(_inferred)
    total: Tensor = estimator(problem, settings, reduction, check_values)
    return total


def _moved(problem: Problem, settings: Settings, reduction: str, check_values: bool) -> Tensor:
    """The loss with the gradient of the expected metric."""
    task, scores, target = problem.task, problem.scores, problem.target
    gradient = torch.is_grad_enabled() and differentiated(scores)
    noise = settings.noise_for(task)
    if gradient and noise.silent:
        fail("noise", "must be positive: without noise the metric has no gradient", 0, "Or pass epsilon and sign.")
    if gradient and check_values and isinstance(settings.noise, str) and task.defaults.density != "logistic":
        warn_of_probabilities(scores, "scores", NO_LOGITS)
    share = settings.share_for(task)
    request = Estimate(
        noise, gradient, share > 0, problem.item_weight, settings.flips, problem.mask, problem.check_values
    )
    mover = moving(task)
    assert mover is not None
    expected = mover.expected(scores.detach(), target, request)
    losses, slope = expected.loss.to(result_type(scores)), expected.slope
    if slope is None:
        return problem.reduce(losses, reduction, expected.counted, warn=check_values)
    if check_values:
        problem.warn_of_uncounted(expected.counted)
    own, every = problem.shares(reduction, expected.counted)
    slope = scaled(slope, own)
    if expected.likelihood is not None:  # it also counts where the metric is undefined
        slope = _plus(slope, expected.likelihood, share * every)
    if isinstance(own, Tensor):
        losses = scaled(losses, own)
    if reduction == "none":
        return with_value(carrier(scores, slope, tuple(range(losses.dim(), scores.dim()))), losses)
    alike = reduction == "mean" and not isinstance(own, Tensor)
    total = losses if not losses.dim() else losses.mean() if alike else losses.sum()
    return with_value(carrier(scores, slope, tuple(range(scores.dim()))), total)


def scaled(values: Tensor, factor: float | Tensor) -> Tensor:
    """Values ``(*b, ...)`` times one number, or one per problem."""
    if not isinstance(factor, Tensor):
        return values if factor == 1 else values * factor
    return values * factor.reshape(factor.shape + (1,) * (values.dim() - factor.dim()))


def _plus(slope: Tensor, more: Tensor, factor: float | Tensor) -> Tensor:
    """A slope plus another one, scaled."""
    return slope + scaled(more, factor) if isinstance(factor, Tensor) else torch.add(slope, more, alpha=factor)


def _inferred(problem: Problem, settings: Settings, reduction: str, check_values: bool) -> Tensor:
    """The loss with the gradient of Theorem 1."""
    task, noise = problem.task, settings.noise_for(problem.task)
    signs = check_sign("auto" if settings.sign is None else settings.sign, task.defaults.sign)
    step = "auto" if settings.epsilon is None else settings.epsilon
    epsilon = check_epsilon(step, problem.batch_shape, check_values)
    if isinstance(settings.noise, str) and not settings.named:
        own = task.noise_scale(problem.scores.detach())
        # One draw: a solver costs more than a sort.
        noise = noise._replace(scale=noise.scale if own is None else own, samples=noise.samples or 1)
    inferred = theorem.estimate(problem, epsilon, signs, noise)
    if check_values and not bool(inferred.losses.isfinite().all()):
        fail("task.loss", f"must return finite numbers, for {task!r}", str(inferred.losses.flatten()[:5].tolist()))
    if inferred.surrogate is None:
        return problem.reduce(inferred.losses, reduction, inferred.counted, warn=check_values)
    surrogate, share = inferred.surrogate, settings.share_for(task)
    if share:
        likelihood = task.likelihood(problem.scores, problem.target, **problem.padding)
        if likelihood is not None and likelihood.requires_grad:
            problem.check_one_each(likelihood, "task.likelihood")
            surrogate = surrogate + share * likelihood
    losses = with_value(surrogate, inferred.losses.to(surrogate.dtype))
    return problem.reduce(losses, reduction, inferred.counted, warn=check_values)


def expected_metric(
    scores: Tensor,
    target: Tensor,
    task: str | Task | Any,
    *,
    noise: float | str = "auto",
    samples: int | str = "auto",
    generator: torch.Generator | None = None,
    mask: Tensor | None = None,
    dim: Dim | None = None,
) -> Tensor:
    """The expected metric under noise on the scores, by Monte Carlo: the number whose gradient `direct_loss` follows.

    A scalar, the mean over the problems that count. Its gradient with respect to the scores is minus that of
    ``direct_loss(..., likelihood=0)``. It has no gradient itself. Arguments are those of `direct_loss`;
    ``samples="auto"`` draws about a million perturbed scores.

    Examples:
        >>> scores, labels = torch.tensor([2.0, 1.0, 0.0]), torch.tensor([0, 1, 0])
        >>> value = expected_metric(scores, labels, "ap", generator=torch.Generator().manual_seed(0))
        >>> round(value.item(), 1)
        0.6
    """
    problem = prepare(
        scores.detach(), target, task, reduction="none", mask=mask, dim=dim, weight=None, check_values=True
    )
    problem.check()
    fixed, given = problem.scores, problem.task
    source = check_noise(noise, samples, generator, given.defaults.noise)
    own = given.noise_scale(fixed) if isinstance(noise, str) else None
    source = source._replace(scale=source.scale if own is None else own)
    count = max(1, EXPECTED // fixed.numel()) if source.samples is None else source.samples
    count = 1 if source.silent else count
    total, together = torch.zeros((), dtype=torch.float64), max(1, min(count, EXPECTED // fixed.numel()))
    with torch.no_grad():
        for first in range(0, count, together):
            noisy = source._replace(samples=min(together, count - first)).perturb(fixed, given.defaults.density)
            values, counted = _values(problem.repeated(noisy))
            total = total + values.double().sum(0).cpu()
        shown = torch.ones(problem.batch_shape, dtype=torch.bool) if problem.shown is None else problem.shown.cpu()
        shown = shown if counted is None else shown & counted[0].cpu()
        return (total / count)[shown].mean().to(result_type(fixed))


def mean_metric(
    scores: Tensor, target: Tensor, task: str | Task | Any, *, mask: Tensor | None = None, dim: Dim | None = None
) -> float:
    """The metric of a task, averaged over the problems that count; NaN if none does."""
    fixed = scores.detach()
    problem = prepare(fixed, target, task, reduction="none", mask=mask, dim=dim, weight=None, check_values=True)
    with torch.no_grad():
        values, counted = _values(problem)
    shown = torch.ones_like(values, dtype=torch.bool) if problem.shown is None else problem.shown
    return float(values[shown if counted is None else shown & counted].double().mean())


def _values(problem: Problem) -> tuple[Tensor, Tensor | None]:
    """The metric of each problem, and which of them count."""
    losses, counted = losses_of(problem)
    return problem.task.value(losses, problem.target, **problem.padding), counted


def losses_of(problem: Problem) -> tuple[Tensor, Tensor | None]:
    """The loss of each problem, and which of them count."""
    request = Estimate(Noise(0.0, 1, None), gradient=False, mask=problem.mask, check_values=problem.check_values)
    mover = moving(problem.task)
    if mover is not None:
        losses, _, _, counted, _ = mover.expected(problem.scores, problem.target, request)
    else:
        losses, counted, *_ = theorem.estimate(problem, 1.0, (1,), Noise(0.0, 1, None))
    return losses, counted


class DirectLoss(TaskLoss):
    """`direct_loss` as a module, with the same arguments and one more. It has no state: same input and generator, same
    value and gradient.

    Args:
        gather: True joins the batches of all processes of ``torch.distributed`` along the first dimension; value and
            parameter gradients under DDP or FSDP are those of one process with the whole batch, and the noise comes
            from the first process. Every process must call the loss. Pass a process group to join only its processes.

    Examples:
        >>> loss_fn = DirectLoss("ap")
        >>> loss_fn
        DirectLoss(AveragePrecision(), likelihood=0.1)
        >>> loss_fn(torch.tensor([2.0, 1.0, 0.0]), torch.tensor([1, 0, 1]))
        tensor(0.1667)
    """

    def __init__(
        self,
        task: str | Task | Any,
        *,
        noise: float | str | None = "auto",
        samples: int | str = "auto",
        likelihood: float | str = "auto",
        flips: float | tuple[float, float] = 0.0,
        epsilon: float | Tensor | str | None = None,
        sign: int | str | None = None,
        generator: torch.Generator | None = None,
        reduction: str = "mean",
        dim: Dim | None = None,
        check_values: bool = True,
        gather: Gather = False,
        **gone: Any,
    ) -> None:
        refuse_gone("DirectLoss", gone)
        super().__init__(task, reduction, dim, check_values, epsilon, gather)
        settings = check_settings(noise, samples, likelihood, flips, epsilon, sign, generator)
        if self.task.defaults.no_flips:
            refuse_flips(self.task, settings.flips)
        self.noise, self.samples, self.likelihood, self.flips = noise, samples, settings.likelihood, settings.flips
        self.sign, self.generator = sign, generator

    @property
    def settings(self) -> Settings:
        """The settings as they are now: they may be changed during training."""
        known = isinstance(self.epsilon, Tensor)  # checked before; again would wait for the device
        epsilon = None if known else self.epsilon
        settings = check_settings(
            self.noise, self.samples, self.likelihood, self.flips, epsilon, self.sign, self.generator
        )
        return settings._replace(epsilon=self.epsilon) if known else settings

    @property
    def traceable(self) -> bool:
        return moving(self.task) is not None and self.task.defaults.graphs and not self.settings.named

    def loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        """See `direct_loss`."""
        return _loss(
            scores, target, self.task, self.settings, self.reduction, mask, self.dim, weight, self.check_values
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        state_dict.pop(f"{prefix}_extra_state", None)  # a counter of steps that earlier versions kept
        super()._load_from_state_dict(state_dict, prefix, *more)

    def extra_repr(self) -> str:
        """The task, the share of likelihood, and the settings that differ from the defaults."""
        shown: dict[str, Any] = {"likelihood": self.settings.share_for(self.task)}
        usual = {"noise": "auto", "samples": "auto", "flips": (0.0, 0.0), "epsilon": None, "sign": None, "dim": None}
        for name, value in usual.items():
            given = getattr(self, name)
            if isinstance(given, Tensor) or given != value:
                shown[name] = given[0] if name == "flips" and given[0] == given[1] else given
        if self.reduction != "mean":
            shown["reduction"] = self.reduction
        return ", ".join([repr(self.task), *(f"{name}={value!r}" for name, value in shown.items())])


def refuse_flips(task: Task, flips: tuple[float, float]) -> None:
    """Raise if a share of wrong labels is given."""
    if any(flips):
        fail("flips", f"must be 0 for {task!r}", flips, f"{task.defaults.no_flips}.".capitalize())


def refuse_gone(what: str, given: dict[str, Any]) -> None:
    """Raise for arguments that do not exist, or no longer."""
    if "warm_up" in given:
        fail(
            "warm_up",
            "must be left out: the loss is the same at every step",
            repr(given["warm_up"]),
            "To follow cross-entropy more or less closely, set likelihood, the constant share of its gradient.",
        )
    if given:
        raise TypeError(f"{what} got an unexpected keyword argument {next(iter(given))!r}")
