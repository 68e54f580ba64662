"""UniLoss: a metric as a loss, relaxed by a sigmoid and by interpolation between anchors. Eq. (5) of the paper.

scores  ->  comparisons c = f(scores, target)  ->  u = sigmoid(c)  ->  interpolation of the metric at u

Value and gradient are computed on the CPU, without autograd, and handed to it at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from directloss._checks import (
    DirectLossError,
    blank,
    check_choice,
    check_count,
    check_finite,
    check_generator,
    check_mask,
    check_no_column,
    check_not_negative,
    check_scores,
    check_weight,
    fail,
    warn_once,
)
from directloss._dynamo import transformed
from directloss._gradient import attach_first, fetch
from directloss._loss import LossModule, named_places
from directloss._problem import UNRANKED, Dim, arrange, reduce, weigh
from directloss._uniloss.anchors import Anchoring, as_anchoring
from directloss._uniloss.interpolation import Interpolation, Places, as_interpolation
from directloss._uniloss.refactoring import Automatic, Bound, Refactored, as_refactored, flat_best
from directloss._uniloss.target import likelihood_slope
from directloss.distributed import Gather

Metric = Callable[[Tensor, Tensor], Tensor]
BestScores = Callable[[Tensor, Tensor], Tensor]
VALUES = ("metric", "interpolated")
WITHOUT_LOSS = f"{UNRANKED}; for a metric function: it returns NaN, so give 0 / 0 a value if it should count"
NO_TRANSFORM = (
    "UniLoss cannot be transformed by torch.func (grad, vmap, jacrev): it calls a metric that torch does not see. Use "
    "loss.backward() or torch.autograd.grad; for one loss per problem use reduction='none'."
)
TOLERANCE = 1e-6
"""By how much equally good metrics may differ."""
SHARE = 1.0
"""``likelihood="auto"``, chosen with the interpolation by ``python -m benchmarks.interpolation_study``."""
INTERPOLATION = "inverse-distance"


Problem = tuple[Tensor, Tensor, Tensor | None, bool]
"""Scores, target and mask of one problem, on the CPU and without gradients; and whether it has a weight."""


class UniLoss(LossModule):
    """The loss of a metric, with the gradient of the relaxed metric.

    The value is ``1 - metric`` of the scores, or the metric itself if lower is better. The gradient is that of an
    interpolation of the metric between anchors, Eq. (5) of the paper, plus a share of the likelihood's. A problem
    with nothing to compare, or whose metric is NaN, has loss 0 and gradient 0, does not count in the mean, and logs a
    warning.

    Scores are the outputs of the network; logits, not probabilities, because a sigmoid is applied to their
    differences. The target is the second argument of the metric.

    Args:
        metric: ``metric(scores, target) -> scalar``, a `Refactoring`, or a name: ``"ap"``, ``"accuracy"``, ``"pckh"``,
            ``"f1"``, ``"ndcg@10"`` and the other names of `directloss.tasks` with a metric.
        maximize: False for a metric where lower is better.
        likelihood: how much of the gradient of the mean cross-entropy is added, if the target holds binary labels in
            the shape of the scores, or class indices; in units of the metric's range over the anchors. 0 for none.
        anchors: how many of each kind (good, nearby, bad), or an `Anchoring`.
        interpolation: ``"inverse-distance"``, the paper's, ``"distance-spline"``, or an `Interpolation`.
        fraction: the share of the comparisons relaxed in each step, chosen at random.
        generator: the source of all random choices, on the CPU; torch's global one by default.
        value: ``"metric"``, or ``"interpolated"`` for the value of the interpolation.
        best_scores: ``best_scores(scores, target)`` returns scores with the best possible metric; needed only for
            targets that are neither labels in the shape of the scores nor class indices.
        batch_dims: how many leading dimensions of ``scores`` and ``target`` number separate problems, for a metric
            function whose problem has several dimensions; otherwise use ``dim``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` over the problems.
        dim: the dimension (or dimensions) of ``scores`` that hold the items of one problem. By default the last one for
            a named metric of items, and all of them for a metric function.
        check_values: whether to check for NaN and wrong labels.
        gather: True joins the batches of all processes; see `DirectLoss`.

    References:
        Liu, Wang, Deng: UniLoss: Unified Surrogate Loss by Adaptive Interpolation, ECCV 2020, Sec. 3.

    Examples:
        >>> loss_fn = UniLoss("accuracy", generator=torch.Generator().manual_seed(0))
        >>> scores = torch.randn(8, 3, requires_grad=True)
        >>> loss_fn(scores, torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])).backward()
    """

    def __init__(
        self,
        metric: str | Metric | Refactored,
        *,
        maximize: bool = True,
        likelihood: float | str = "auto",
        anchors: int | Anchoring = 16,
        interpolation: str | Interpolation = INTERPOLATION,
        fraction: float = 1.0,
        generator: torch.Generator | None = None,
        value: str = "metric",
        best_scores: BestScores | None = None,
        batch_dims: int = 0,
        reduction: str = "mean",
        dim: Dim | None = None,
        check_values: bool = True,
        gather: Gather = False,
    ) -> None:
        super().__init__(reduction, dim, check_values, gather)
        self.refactored = as_refactored(metric)
        if not isinstance(maximize, bool):
            fail("maximize", "must be True or False", repr(maximize))
        self.maximize = maximize
        self.likelihood = _check_likelihood(likelihood)
        self.anchoring = as_anchoring(anchors, self.refactored.unit)
        self.interpolation = as_interpolation(interpolation)
        self.fraction = _check_fraction(fraction)
        self.generator = check_generator(generator)
        self.value: str = check_choice("value", value, VALUES)
        if best_scores is not None and not callable(best_scores):
            fail("best_scores", "must be a function of scores and target", f"a {type(best_scores).__name__}")
        self.best_scores = best_scores
        self.batch_dims = check_count("batch_dims", batch_dims, least=0)
        if dim is not None and batch_dims:
            fail("batch_dims", "must be 0 if dim is given, which tells the problems apart", batch_dims)

    def loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        """See `uniloss`."""
        if transformed():
            raise DirectLossError(NO_TRANSFORM)
        scores, weight, problems = self._problems(scores, target, mask, weight)
        needed = scores.requires_grad and torch.is_grad_enabled()
        values, slopes, counts = [], [], []
        for one, labels, real, shown in problems:
            solved = self._solve(one, labels, real, needed) if shown else None
            value, slope = (0.0, torch.zeros_like(one)) if solved is None else solved
            values.append(value)
            slopes.append(slope)
            counts.append(solved is not None or not shown)
        shape = scores.shape[: scores.dim() - problems[0][0].dim()]
        losses = scores.detach().new_tensor(values).reshape(shape)
        if needed:
            losses = attach_first(losses, scores, torch.stack(slopes).reshape(scores.shape).to(scores.device))
        counted = None if all(counts) else torch.tensor(counts, device=losses.device).reshape(shape)
        return reduce(losses, self.reduction, weight, counted, self.refactored, WITHOUT_LOSS)

    def places(self, dims: int) -> tuple[int, ...]:
        return named_places(self.dim, self._event_dims(dims), dims)

    def _source(self, scores: Tensor) -> torch.Generator:
        """Anchors are drawn on the CPU, wherever the scores are."""
        return self.generator if self.generator is not None else torch.default_generator

    @torch.no_grad()
    def explain(self, scores: Tensor, target: Tensor) -> str:
        """What the metric compares, in words, for the first problem."""
        _, _, problems = self._problems(scores, target)
        problem = self.refactored.bind(*problems[0][:2])
        return f"{self.refactored!r}: nothing to compare." if problem is None else problem.words

    def extra_repr(self) -> str:
        """The settings, without those left at their defaults."""
        usual = {"maximize": True, "fraction": 1, "value": "metric", "batch_dims": 0, "dim": None, "reduction": "mean"}
        changed = [f"{name}={getattr(self, name)!r}" for name, value in usual.items() if getattr(self, name) != value]
        shown = [repr(self.refactored), f"likelihood={self.likelihood}", str(self.anchoring), str(self.interpolation)]
        return ", ".join([*shown, *changed])

    # ------------------------------------------------------------------ from a batch to problems

    def _problems(
        self, scores: Tensor, target: Tensor, mask: Tensor | None = None, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, list[Problem]]:
        """Scores with the dimensions of one problem last, the weights of the problems, and the problems."""
        metric = self.refactored
        if isinstance(metric, Automatic):
            check_no_column(scores, target)
        events = self._event_dims(check_scores(scores, metric.least_dims, metric.shape_words).dim())
        scores, target, mask, weight = arrange(metric, events, scores, target, mask, weight, self.dim)
        lead = scores.dim() - events
        shape = scores.shape[:lead]
        shown = torch.ones(shape, dtype=torch.bool)
        if target.shape[:lead] != shape:
            fail("target", f"must begin with the batch dimensions {tuple(shape)}", tuple(target.shape))
        if weight is not None:
            scores, weight, shown = weigh(scores, check_weight(weight, shape, "problem"), events)
        if mask is not None:
            mask = check_mask(mask, target.shape, "target")
            if mask.shape == scores.shape[: mask.dim()]:
                scores, target = blank(scores, target, mask)
        if self.check_values:
            _check_size(scores)
            metric.check(scores, target)
        if scores.dtype in (torch.float16, torch.bfloat16):
            scores = scores.float()
        given = [scores.detach(), target, shown, *([] if mask is None else [mask])]
        ones, labels, marks, *masks = (part.reshape(shape.numel(), *part.shape[lead:]) for part in fetch(given))
        real = masks[0] if masks else [None] * len(ones)
        return scores, weight, list(zip(ones, labels, real, marks.tolist(), strict=True))

    def _event_dims(self, dims: int) -> int:
        """How many of the last dimensions of the scores hold one problem, once ``dim`` is moved there."""
        known = self.refactored.event_dims
        if known is None:
            if self.batch_dims > dims:
                fail("batch_dims", f"must be at most {dims}, the dimensions of scores", self.batch_dims)
            return dims - self.batch_dims if self.dim is None else self.refactored.least_dims
        if self.batch_dims not in (0, dims - known):
            rule = f"must be 0, because a problem of {self.refactored!r} always has {known} dimensions"
            fail("batch_dims", rule, self.batch_dims)
        return known

    # ------------------------------------------------------------------ one problem

    @torch.no_grad()
    def _solve(self, scores: Tensor, target: Tensor, mask: Tensor | None, needed: bool) -> tuple[float, Tensor] | None:
        """The loss of one problem, and its gradient if that is needed; None if it has none."""
        kept = None if self.refactored.padded else mask
        shown, labels = (scores, target) if kept is None else self.refactored.hide(scores, target, kept)
        problem = self.refactored.bind(shown, labels, mask if kept is None else None) if shown.numel() else None
        if problem is None:
            return None
        if self.best_scores is not None:
            problem = replace(problem, best_scores=flat_best(self.best_scores, shown, labels))
        if not problem.comparisons.count or (not needed and self.value == "metric"):
            return self._as_loss(problem.now), torch.zeros_like(scores)
        value, gradient, unit = self._relaxed(problem)
        slope = (-gradient if self.maximize else gradient).reshape(shown.shape)
        likely = likelihood_slope(shown, labels) if self.likelihood and self.refactored.likely else None
        if likely is not None:
            slope = slope + self.likelihood * unit * likely
        if kept is not None:
            whole = torch.zeros_like(scores)
            (whole if kept.shape == scores.shape[: kept.dim()] else whole.movedim(1, -1))[kept] = slope
            slope = whole
        return self._as_loss(problem.now if self.value == "metric" else value), slope

    def _as_loss(self, metric: float) -> float:
        return 1 - metric if self.maximize else metric

    def _relaxed(self, problem: Bound) -> tuple[float, Tensor, float]:
        """The interpolated metric, its gradient in the flattened scores, and its range over the anchors."""
        generator, comparisons = self._source(problem.scores), problem.comparisons
        if self.fraction < 1:
            count = max(1, round(self.fraction * comparisons.count))
            comparisons = comparisons.take(torch.randperm(comparisons.count, generator=generator)[:count])
        anchors = self.anchoring.draw(problem, comparisons, generator)
        self._check_best(anchors.best, problem.now)
        low, high = (float(end) for end in torch.aminmax(anchors.values))
        if low == high and problem.now != (1 if self.maximize else 0):
            warn_once(
                "flat",
                f"{self.refactored!r} is {problem.now:g} at the current scores and {low:g} at all "
                f"{len(anchors.values)} anchors, so this problem has no gradient. If other scores have a better "
                "value, pass best_scores=function(scores, target) that returns them, or more anchors (anchors=64); "
                "otherwise there is nothing to learn.",
            )
        places = Places(comparisons.values(problem.scores), anchors.differing, len(anchors.values))
        value, slopes = self.interpolation(places.squared, anchors.values.numpy(), places.between)
        return value, comparisons.pull(problem.scores, places.pull(slopes)), high - low

    def _check_best(self, best: float | None, now: float) -> None:
        """Check that the best scores are not worse than the current ones."""
        if best is not None and (now - best if self.maximize else best - now) > TOLERANCE:
            fail(
                "best_scores",
                f"must have a metric at least as good as that of the current scores, {now:g}",
                f"scores with the metric {best:g}",
                f"Pass maximize={not self.maximize} if {'lower' if self.maximize else 'higher'} is better; otherwise "
                "pass best_scores=function(scores, target), because the target does not tell what is best.",
            )


def _check_likelihood(likelihood: object) -> float:
    if isinstance(likelihood, str) and likelihood != "auto":
        fail("likelihood", 'must be a number of at least 0 or "auto"', repr(likelihood))
    return SHARE if isinstance(likelihood, str) else check_not_negative("likelihood", likelihood)


def _check_size(scores: Tensor) -> None:
    """Check that scores are finite, and so small that their differences, and those of anchors, are."""
    most = min(torch.finfo(torch.promote_types(scores.dtype, torch.float32)).max / 1024, 1e150)
    low, high = (float(end) for end in torch.aminmax(scores.detach()))
    if not -most <= low <= high <= most:  # NaN fails as well
        check_finite(scores)
        rule = f"must be at most {most:.0e}, so that their differences are finite"
        hint = "A sigmoid of such differences has no gradient: divide the scores by a constant."
        fail("scores", rule, f"up to {max(-low, high):g}", hint)


def _check_fraction(fraction: object) -> float:
    if isinstance(fraction, bool) or not isinstance(fraction, Real) or not 0 < float(fraction) <= 1:
        fail("fraction", "must be a share of the comparisons, above 0 and at most 1", repr(fraction))
    return float(fraction)


def uniloss(
    scores: Tensor,
    target: Tensor,
    metric: str | Metric | Refactored,
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """`UniLoss` as a function.

    Args:
        scores: the outputs of the network; logits, not probabilities.
        target: the second argument of the metric.
        metric: as `UniLoss` takes it.
        mask: True for real entries, False for padding; in the shape of ``target``.
        weight: the weight of each problem, in the shape of the unreduced losses.
        options: the other arguments of `UniLoss`, such as ``maximize``, ``likelihood``, ``dim`` or ``reduction``.

    Returns:
        A scalar, or one loss per problem for ``reduction="none"``.

    Examples:
        >>> scores = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
        >>> loss = uniloss(scores, torch.tensor([0, 1, 0]), "ap", generator=torch.Generator().manual_seed(0))
        >>> loss.item()
        0.5
        >>> loss.backward()
        >>> scores.grad[1] < 0  # the relevant item should rise
        tensor(True)
    """
    loss: Tensor = UniLoss(metric, **options)(scores, target, mask, weight)
    return loss
