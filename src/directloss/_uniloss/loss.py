"""UniLoss: a metric as a loss, relaxed by a sigmoid and by interpolation between anchors. Eq. (5) of the paper.

scores  ->  comparisons c = f(scores, target)  ->  u = sigmoid(c)  ->  interpolation of the metric at u
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from directloss import kernels
from directloss._checks import (
    check_choice,
    check_count,
    check_finite,
    check_generator,
    check_mask,
    check_scores,
    fail,
    warn_once,
)
from directloss._gradient import attach_first, first_only, with_value
from directloss._loss import LossModule, named_places
from directloss._problem import UNRANKED, Dim, arrange, blank, reduce, weigh
from directloss._uniloss import compiled
from directloss._uniloss.anchors import Anchoring, Anchors, all_equal, as_anchoring, sample
from directloss._uniloss.byhand import PairRefactoring
from directloss._uniloss.comparisons import General
from directloss._uniloss.compiled import Interpolated
from directloss._uniloss.interpolation import Interpolation, as_interpolation
from directloss._uniloss.lists import Layout
from directloss._uniloss.names import automatic, by_name
from directloss._uniloss.refactoring import Bound, Refactored, in_words, shape_of
from directloss.distributed import Gather
from directloss.kernels import largest

Metric = Callable[[Tensor, Tensor], Tensor]
BestScores = Callable[[Tensor, Tensor], Tensor]
VALUES = ("metric", "interpolated")
WITHOUT_LOSS = f"{UNRANKED}; for a metric function: it returns NaN, so give 0 / 0 a value if it should count"
TOLERANCE = 1e-6
"""By how much equally good metrics may differ."""


def uniloss(
    scores: Tensor,
    target: Tensor,
    metric: str | Metric | Refactored,
    *,
    maximize: bool = True,
    anchors: int | Anchoring = 16,
    interpolation: str | Interpolation = "inverse-distance",
    fraction: float = 1.0,
    generator: torch.Generator | None = None,
    value: str = "metric",
    best_scores: BestScores | None = None,
    batch_dims: int = 0,
    reduction: str = "mean",
    mask: Tensor | None = None,
    dim: Dim | None = None,
    weight: Tensor | None = None,
    check_values: bool = True,
) -> Tensor:
    """The loss of a metric, with the gradient of the relaxed metric.

    The value is ``1 - metric`` of the scores, or the metric itself if lower is better. The gradient is that of an
    interpolation of the metric between anchors, Eq. (5) of the paper. A problem with nothing to compare, or whose
    metric is NaN, has loss 0 and gradient 0, does not count in the mean, and logs a warning.

    Each call traces a metric function again; in a training loop use `UniLoss`, which traces it once.

    Args:
        scores: the outputs of the network; logits, not probabilities, because a sigmoid is applied to their
            differences.
        target: the second argument of the metric.
        metric: ``metric(scores, target) -> scalar``, a `Refactoring`, or a name: ``"ap"``, ``"accuracy"``, ``"pckh"``,
            ``"f1"``, ``"ndcg@10"`` and the other names of `directloss.tasks` with a metric.
        maximize: False for a metric where lower is better.
        anchors: how many of each kind (good, nearby, bad), or an `Anchoring`.
        interpolation: ``"inverse-distance"``, the paper's, ``"distance-spline"``, or an `Interpolation`.
        fraction: the share of the comparisons relaxed in each step, chosen at random.
        generator: the source of all random choices; torch's global one by default.
        value: ``"metric"``, or ``"interpolated"`` for the value of the interpolation, whose gradient this is.
        best_scores: ``best_scores(scores, target)`` returns scores with the best possible metric; needed only for
            targets that are neither labels in the shape of the scores nor class indices.
        batch_dims: how many leading dimensions of ``scores`` and ``target`` number separate problems, for a metric
            function whose problem has several dimensions; otherwise use ``dim``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` over the problems.
        mask: True for real entries, False for padding; in the shape of ``target``.
        dim: the dimension (or dimensions) of ``scores`` that hold the items of one problem. By default the last one for
            a named metric of items, and all of them for a metric function.
        weight: the weight of each problem, in the shape of the unreduced losses.
        check_values: whether to check for NaN and wrong labels.

    Returns:
        A scalar, or one loss per problem for ``reduction="none"``.

    References:
        Liu, Wang, Deng: UniLoss: Unified Surrogate Loss by Adaptive Interpolation, ECCV 2020, Sec. 3.

    Examples:
        >>> scores = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
        >>> loss = uniloss(scores, torch.tensor([0, 1, 0]), "ap", generator=torch.Generator().manual_seed(0))
        >>> loss.item()
        0.5
        >>> loss.backward()
        >>> scores.grad[1] < 0  # the relevant item should rise
        tensor(True)
    """
    loss_fn = UniLoss(
        metric, maximize=maximize, anchors=anchors, interpolation=interpolation,
        fraction=fraction, generator=generator, value=value, best_scores=best_scores, batch_dims=batch_dims,
        reduction=reduction, dim=dim, check_values=check_values,
    )  # fmt: skip
    result: Tensor = loss_fn(scores, target, mask, weight)
    return result


@dataclass(frozen=True)
class Relaxed:
    """One relaxed problem: what its loss is made of."""

    value: Tensor
    """The interpolated metric, a scalar."""
    metric: Tensor
    """The true metric."""
    anchors: Anchors
    comparisons: int
    """How many comparisons were relaxed."""


class Batch(NamedTuple):
    """The problems of a batch, with the dimensions of one problem last."""

    scores: Tensor
    target: Tensor
    mask: Tensor | None
    weight: Tensor | None
    shape: torch.Size
    """The shape of the losses."""
    shown: list[bool]
    """Which problems have a weight."""
    quick: bool
    """Whether compiled loops do everything; they check the scores as they go."""
    checks: bool

    def problems(self, scores: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Scores (those given), target and mask of each problem."""
        lead, count = len(self.shape), self.shape.numel()
        scores, target = (part.reshape(count, *part.shape[lead:]) for part in (scores, self.target))
        masks = [None] * count if self.mask is None else self.mask.reshape(count, *self.mask.shape[lead:])
        return zip(scores, target, masks, strict=True)


class UniLoss(LossModule):
    """`uniloss` as a module, with the same arguments, and ``gather`` as in `DirectLoss`. It traces a metric function
    once and keeps the result.

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
        anchors: int | Anchoring = 16,
        interpolation: str | Interpolation = "inverse-distance",
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
        self.maximize = _check_maximize(maximize)
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
        self._best_is_known = False
        self._usual = fraction == 1 and best_scores is None and compiled.usual(self.anchoring)
        # For metrics by hand the default best scores are known to be the best.
        self._quick = self._usual and self.maximize and isinstance(self.refactored, PairRefactoring)

    def loss(
        self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, **changed: Any
    ) -> Tensor:
        """See `uniloss`."""
        if torch.is_inference_mode_enabled():  # tracing the metric's code needs ordinary tensors
            with torch.inference_mode(False), torch.no_grad():
                copies = [part.clone() if isinstance(part, Tensor) else part for part in (scores, target, mask, weight)]
                return self.loss(*copies, **changed)  # type: ignore[arg-type]
        batch = self._batch(scores, target, mask, weight, changed.get("check_values", self.check_values), self._quick)
        losses, counted = (self._by_hand if batch.quick else self._one_by_one)(batch)
        return reduce(losses, self.reduction, batch.weight, counted, self.refactored, WITHOUT_LOSS)

    def places(self, dims: int) -> tuple[int, ...]:
        return named_places(self.dim, self._event_dims(dims), dims)

    def _source(self, scores: Tensor) -> torch.Generator:
        """Anchors are drawn on the CPU, wherever the scores are."""
        return self.generator if self.generator is not None else torch.default_generator

    def relax(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> list[Relaxed | None]:
        """The relaxation of each problem, for inspection; None for a problem without a loss."""
        batch = self._batch(scores, target, mask, None, self.check_values)
        bound = [self._bind(*self._shown(*problem)) for problem in batch.problems(batch.scores)]
        return [None if problem is None else self._relaxed(problem) for problem in bound]

    def explain(self, scores: Tensor, target: Tensor) -> str:
        """A description of what was found in the metric's code, for the first problem."""
        batch = self._batch(scores, target, None, None, self.check_values)
        first, of_first, _ = next(batch.problems(batch.scores))
        return str(self.refactored.explain(first, of_first))

    def extra_repr(self) -> str:
        """The settings, without those left at their defaults."""
        usual = {"maximize": True, "fraction": 1, "value": "metric", "batch_dims": 0, "dim": None, "reduction": "mean"}
        changed = [f"{name}={getattr(self, name)!r}" for name, value in usual.items() if getattr(self, name) != value]
        return ", ".join([repr(self.refactored), str(self.anchoring), str(self.interpolation), *changed])

    # ------------------------------------------------------------------ from a batch to problems

    def _batch(
        self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, checks: bool,
        quick: bool = False,
    ) -> Batch:  # fmt: skip
        metric = self.refactored
        events = self._event_dims(check_scores(scores, metric.least_dims, metric.shape_words).dim())
        scores, target, mask, weight = arrange(metric, events, scores, target, mask, weight, self.dim)
        lead = scores.dim() - events
        shape, shown = scores.shape[:lead], None
        if target.shape[:lead] != shape:
            fail("target", f"must begin with the batch dimensions {tuple(shape)}", tuple(target.shape))
        if weight is not None:
            scores, weight, shown = weigh(scores, weight, events)
        if mask is not None:
            mask = check_mask(mask, target.shape, "target")
            if mask.shape == scores.shape[: mask.dim()]:
                scores, target = blank(scores, target, mask)
        quick = quick and kernels.compiles(scores)
        if checks and not quick:
            _check_size(scores)
        if checks and not (quick and metric.layout_checks):
            metric.check(scores, target)
        if scores.dtype in (torch.float16, torch.bfloat16):
            scores = scores.float()
        marks = [True] * shape.numel() if shown is None else shown.flatten().tolist()
        return Batch(scores, target, mask, weight, shape, marks, quick, checks)

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

    # ------------------------------------------------------------------ metrics by hand, in compiled loops

    def _by_hand(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The losses of a batch, and which problems have one (None for all of them)."""
        needed = batch.scores.requires_grad and torch.is_grad_enabled()
        fixed = batch.scores.detach()
        refuse = partial(self._refuse, fixed, batch.target) if batch.checks else None
        if not batch.shape and needed and all(batch.shown):
            only = self._interpolate(fixed, batch.target, batch.mask, needed, refuse)
            if only is not None:
                return attach_first(self._value(only), batch.scores, only.gradient), None
        problems = zip(batch.problems(fixed), batch.shown, strict=True)
        found = [self._interpolate(*problem, needed, refuse) if shown else None for problem, shown in problems]
        values = [0.0 if one is None else self._value(one) for one in found]
        losses = fixed.new_tensor(values).reshape(batch.shape)
        if needed:
            nothing = fixed.new_zeros(fixed.shape[len(batch.shape) :])
            slopes = torch.stack([nothing if one is None else one.gradient for one in found])
            losses = attach_first(losses, batch.scores, slopes.reshape(fixed.shape))
        return losses, _counted(found, batch)

    def _interpolate(
        self, scores: Tensor, target: Tensor, mask: Tensor | None, needed: bool, refuse: Callable[[], object] | None
    ) -> Interpolated | None:
        """The result of one problem; None if it has nothing to compare."""
        assert isinstance(self.refactored, PairRefactoring)
        shown, target = self._shown(scores, target, mask)
        lists = self.refactored.layout(shown, target, refuse)
        if lists is None:
            return None
        bind, counting = partial(self._bind, shown, target), self.refactored.counting
        found = self._in_loops(shown, lists, counting, bind, needed, refuse)
        if found is None:  # all anchors have the same value: the general path knows others
            free = shown.clone().requires_grad_(needed)
            with torch.enable_grad():
                problem = self._bind(free, target)
                relaxed = None if problem is None else self._relaxed(problem)
            assert relaxed is not None
            gradient = torch.autograd.grad(-relaxed.value, free)[0] if needed else shown
            found = Interpolated(relaxed.value.item(), relaxed.metric.item(), gradient)
        if not needed or (mask is None and shown.dim() == 1):
            return found
        slope = found.gradient.reshape(shown.shape)
        if mask is not None and shown.shape != scores.shape:
            whole = torch.zeros_like(scores)
            whole[mask] = slope
            slope = whole
        return found._replace(gradient=slope)

    def _refuse(self, scores: Tensor, target: Tensor) -> None:
        """Raise an error that names what is wrong."""
        _check_size(scores)
        self.refactored.check(scores, target)

    def _in_loops(
        self, scores: Tensor, lists: Layout, counting: str | None, bind: Callable[[], Bound | None], needed: bool,
        refuse: Callable[[], object] | None = None,
    ) -> Interpolated | None:  # fmt: skip
        """The metric and the gradient of the loss in compiled loops; None, with nothing drawn, if they cannot tell."""
        scale = (-1.0 if self.maximize else 1.0) if needed else 0.0
        flat = scores.detach().reshape(-1) if scores.dim() > 1 or scores.requires_grad else scores
        return compiled.interpolate(
            flat, lists, counting, bind, self.anchoring, self.interpolation, self._source(scores), scale, refuse
        )

    def _value(self, found: Interpolated) -> float:
        metric = found.value if self.value == "interpolated" else found.now
        return 1 - metric if self.maximize else metric

    # ------------------------------------------------------------------ one problem

    def _shown(self, scores: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """A problem without its padding."""
        return (scores, target) if mask is None else self.refactored.hide(scores, target, mask)

    def _one_by_one(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """As `_by_hand`, for any metric."""
        problems = zip(batch.problems(batch.scores), batch.shown, strict=True)
        found = [self._loss(*self._shown(*problem)) if shown else None for problem, shown in problems]
        nothing = batch.scores.flatten()[:0].sum()  # with a gradient of zeros
        losses = torch.stack([nothing if loss is None else loss.to(nothing.dtype) for loss in found])
        return losses.reshape(batch.shape), _counted(found, batch)

    def _loss(self, scores: Tensor, target: Tensor) -> Tensor | None:
        """The loss of one problem; None if it has none."""
        problem = self._bind(scores, target)
        if problem is None:
            return None
        lists = compiled.lists_of(problem, self.anchoring) if self._usual else None
        if lists is not None:
            bound, needed = problem, scores.requires_grad and torch.is_grad_enabled()
            found = self._in_loops(scores, lists, problem.counting, lambda: bound, needed)
            if found is not None and math.isnan(found.now):
                return None
            if found is not None:
                value = torch.tensor(self._value(found), dtype=scores.dtype)
                return attach_first(value, scores, found.gradient.reshape(scores.shape)) if needed else value
        if problem.scores.requires_grad:
            problem = replace(problem, scores=first_only(problem.scores))
        relaxed = self._relaxed(problem)
        if relaxed is None:
            return None
        loss, true = (1 - value if self.maximize else value.clone() for value in (relaxed.value, relaxed.metric))
        return loss if self.value == "interpolated" else with_value(loss, true)

    def _bind(self, scores: Tensor, target: Tensor) -> Bound | None:
        problem = self.refactored.bind(scores, target) if scores.numel() else None
        if problem is None:
            return None
        problem = self._with_best(problem, scores, target)
        if not self._best_is_known:
            self._best_is_known = self._check_best(problem)
        return problem

    def _check_best(self, problem: Bound) -> bool:
        """Check that the best scores are not worse than the current ones; return whether that could be decided."""
        if problem.best_scores is None:
            return True
        best, now = problem.measure(torch.stack([problem.best_scores, problem.scores.detach()])).tolist()
        if (best < now - TOLERANCE) if self.maximize else (best > now + TOLERANCE):
            fail(
                "best_scores",
                f"must have a metric at least as good as that of the current scores, {now:g}",
                f"scores with the metric {best:g}",
                f"Pass maximize={not self.maximize} if {'lower' if self.maximize else 'higher'} is better; otherwise "
                "pass best_scores=function(scores, target), because the target does not tell what is best.",
            )
        return not math.isnan(now)

    def _relaxed(self, problem: Bound) -> Relaxed | None:
        """The relaxed problem; None if the metric is NaN."""
        metric = problem.measure(problem.scores.detach()[None])[0]
        if bool(torch.isnan(metric)):
            return None
        generator = self._source(problem.scores)
        comparisons, subset = problem.comparisons, None
        if self.fraction < 1:
            count = max(1, round(self.fraction * comparisons.count))
            subset = torch.randperm(comparisons.count, generator=generator)[:count].clone().to(problem.scores.device)
            comparisons = comparisons.take(subset)
        values = comparisons.values(problem.scores)
        if isinstance(comparisons, General) and bool(torch.isnan(values.detach()).any()):
            unknown = torch.isnan(values.detach())
            fail(
                "comparisons",
                "must be numbers",
                f"NaN {int(unknown.sum())} times, first number {int(unknown.nonzero()[0])}",
                "Look for 0 / 0 or the root of a negative number in what is compared.",
            )
        anchors = sample(problem, comparisons, self.anchoring, generator, subset)
        places = anchors.configurations
        squared = places.squared_distances(torch.sigmoid(values))
        interpolated = self.interpolation(squared, anchors.values.to(squared.dtype), places.between)
        if interpolated.requires_grad and all_equal(anchors.values) and not self.anchoring.control:
            self._warn_of_flatness(anchors.values, float(metric))
        return Relaxed(interpolated, metric, anchors, comparisons.count)

    def _with_best(self, problem: Bound, scores: Tensor, target: Tensor) -> Bound:
        """The problem with the user's best scores, if given."""
        if self.best_scores is None:
            return problem
        best = self.best_scores(scores.detach(), target)
        if shape_of(best) != scores.shape:
            rule = f"must return scores of shape {tuple(scores.shape)}"
            fail("best_scores(scores, target)", rule, in_words(best))
        return replace(problem, best_scores=best.detach().to(scores.dtype).flatten())

    def _warn_of_flatness(self, values: Tensor, now: float) -> None:
        """Warn that all anchors have the same value, unless nothing is left to learn."""
        if now != (1 if self.maximize else 0):
            warn_once(
                "flat",
                f"{self.refactored!r} is {now:g} at the current scores and {float(values[0]):g} at all {len(values)} "
                "anchors, so this problem has no gradient. If other scores have a better value, pass "
                "best_scores=function(scores, target) that returns them, or more anchors (anchors=64); otherwise "
                "there is nothing to learn.",
            )


def _counted(found: Sequence[object], batch: Batch) -> Tensor | None:
    """Which problems have a loss, or no weight; None if all do."""
    counts = [one is not None or not shown for one, shown in zip(found, batch.shown, strict=True)]
    return None if all(counts) else torch.tensor(counts, device=batch.scores.device).reshape(batch.shape)


def as_refactored(metric: str | Metric | Refactored) -> Refactored:
    """The refactoring of a name, a refactoring as it is, or the one found in a function's code."""
    if isinstance(metric, Refactored):
        return metric
    return by_name(metric) if isinstance(metric, str) else automatic(metric)


def _check_maximize(maximize: object) -> bool:
    if not isinstance(maximize, bool):
        fail("maximize", "must be True or False", repr(maximize))
    return maximize


def _check_size(scores: Tensor) -> None:
    """Check that scores are finite, and so small that their differences, and those of anchors, are."""
    most = largest(torch.promote_types(scores.dtype, torch.float32)) / 1024
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
