"""UniLoss: a metric, relaxed by a sigmoid and by interpolation between anchors, as a loss. Eq. (5) of the paper.

scores  ->  comparisons c = f(scores, target)  ->  u = sigmoid(c)  ->  interpolation of the metric at u
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from directloss._gradient import deferred, first_only, keep, refuse_second_of, through_operator, with_value
from directloss._loss import LossModule, are_tensors, named_places, names_first
from directloss._problem import UNRANKED, Dim, arrange, blank, reduce, result_type, weigh
from directloss._uniloss import compiled
from directloss._uniloss.anchors import Anchoring, Anchors, all_equal, as_anchoring, sample
from directloss._uniloss.automatic import Automatic
from directloss._uniloss.byhand import PairRefactoring
from directloss._uniloss.comparisons import General
from directloss._uniloss.interpolation import Interpolation, InverseDistance, as_interpolation
from directloss._uniloss.names import by_name
from directloss._uniloss.refactoring import Bound, Refactored, in_words, shape_of
from directloss.distributed import Gather

Metric = Callable[[Tensor, Tensor], Tensor]
BestScores = Callable[[Tensor, Tensor], Tensor]
VALUES = ("metric", "interpolated")
WITHOUT_LOSS = f"{UNRANKED}; for a function of your own: it is NaN, so give 0 / 0 a value in it if that should count"
TOLERANCE = 1e-6
"""By how much metrics of the same quality may differ."""


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
    """The metric's loss, with the gradient of the relaxed metric.

    The value is ``1 - metric`` of the scores, or the metric itself where lower is better. The gradient is that of an
    interpolation of the metric between anchors, Eq. (5) of the paper. A problem for which the metric is NaN, or that
    has nothing to compare, has loss 0, gradient 0 and no part in the mean, and a warning is logged.

    Each call traces a metric function again; in a training loop use `UniLoss`, which traces it once.

    Args:
        scores: the outputs of the network; logits rather than probabilities, because a sigmoid is applied to their
            differences.
        target: the second argument of the metric.
        metric: ``metric(scores, target) -> scalar``, a `Refactoring`, or a name: ``"ap"``, ``"accuracy"``, ``"pckh"``,
            ``"f1"``, ``"ndcg@10"`` and the other names of `directloss.tasks` with a metric.
        maximize: False for a metric where lower is better.
        anchors: how many of each kind (good, nearby, bad), or an `Anchoring`.
        interpolation: ``"inverse-distance"``, the paper's, ``"distance-spline"``, or an `Interpolation`.
        fraction: the share of the comparisons that is relaxed in this step, chosen at random.
        generator: the source of all random choices; torch's global one by default.
        value: ``"metric"``, or ``"interpolated"`` for the value of the interpolation, to which the gradient belongs.
        best_scores: ``best_scores(scores, target)`` returns scores with the best possible metric; needed only for
            targets that are neither labels in the shape of the scores nor class indices.
        batch_dims: how many leading dimensions of ``scores`` and ``target`` are separate problems, for a metric
            function whose problem has several dimensions; otherwise use `dim`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` over the problems.
        mask: True for real entries, False for padding; in the shape of ``target``.
        dim: the dimension (or dimensions) of ``scores`` that hold the items of one problem. By default the last one for
            a metric of items with a name, and all of them for a metric function.
        weight: how much each problem counts, in the shape of the unreduced losses.
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
        >>> scores.grad[1] < 0  # the relevant item is to rise
        tensor(True)
    """
    settings = (
        metric, maximize, anchors, interpolation, fraction, generator, value, best_scores, batch_dims, reduction, dim,
        check_values,
    )  # fmt: skip
    if torch.compiler.is_compiling() and are_tensors(scores, target, mask, weight):
        return through_operator(keep(_as_module, *settings), scores, target, mask, weight, [])
    result: Tensor = _as_module(*settings)(scores, target, mask, weight)
    return result


def _as_module(
    metric: Any, maximize: bool, anchors: Any, interpolation: Any, fraction: float, generator: Any, value: str,
    best_scores: Any, batch_dims: int, reduction: str, dim: Any, check_values: bool,
) -> UniLoss:  # fmt: skip
    return UniLoss(
        metric, maximize=maximize, anchors=anchors, interpolation=interpolation, fraction=fraction, generator=generator,
        value=value, best_scores=best_scores, batch_dims=batch_dims, reduction=reduction, dim=dim,
        check_values=check_values,
    )  # fmt: skip


@dataclass(frozen=True)
class Relaxed:
    """One problem, relaxed: what the loss is made of."""

    value: Tensor
    """The interpolated metric, a scalar."""
    metric: Tensor
    """The true metric."""
    anchors: Anchors
    comparisons: int
    """How many were relaxed."""


class Batch(NamedTuple):
    """The problems of a batch, one by one, without padding."""

    problems: list[tuple[Tensor, Tensor]]
    shape: torch.Size
    weight: Tensor | None
    shown: list[bool]
    """Which problems have a weight."""


class UniLoss(LossModule):
    """`uniloss` as a module, with the same arguments and ``gather`` as in `DirectLoss`. It traces the code of a metric
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
        self.anchoring = _with_unit(anchors, self.refactored)
        self.interpolation = as_interpolation(interpolation)
        self.fraction = _check_fraction(fraction)
        self.generator = check_generator(generator)
        self.value: str = check_choice("value", value, VALUES)
        if best_scores is not None and not callable(best_scores):
            fail("best_scores", "must be a function of scores and target", f"a {type(best_scores).__name__}")
        self.best_scores = best_scores
        self.batch_dims = check_count("batch_dims", batch_dims, least=0)
        if dim is not None and batch_dims:
            fail("batch_dims", "must be left at 0, because dim tells the problems apart", batch_dims)
        self._best_is_known = False

    def loss(
        self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, **changed: Any
    ) -> Tensor:
        """See `uniloss`."""
        if torch.is_inference_mode_enabled():  # the metric's code is watched, which ordinary tensors allow only
            with torch.inference_mode(False), torch.no_grad():
                copies = [part.clone() if isinstance(part, Tensor) else part for part in (scores, target, mask, weight)]
                return self.loss(*copies, **changed)  # type: ignore[arg-type]
        checks = changed.get("check_values", self.check_values)
        return self._batch_loss(self._batch(scores, target, mask, weight, checks), scores)

    def _traced_loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        if not torch.compiler.is_compiling():
            refuse_second_of(scores)
        return super()._traced_loss(scores, target, mask, weight)

    def places(self, dims: int) -> tuple[int, ...]:
        return named_places(self.dim, self._event_dims(dims), dims)

    def joins_items(self, dims: int) -> bool:
        if self.dim is not None:
            return names_first(self.dim, dims)
        known = self.refactored.event_dims
        return self.batch_dims == 0 if known is None else dims <= known

    def _source(self, scores: Tensor) -> torch.Generator:
        """Anchors are drawn on the CPU, wherever the scores are."""
        return self.generator if self.generator is not None else torch.default_generator

    def _batch_loss(self, batch: Batch, scores: Tensor) -> Tensor:
        found = [
            self._loss(*problem) if shown else None for problem, shown in zip(batch.problems, batch.shown, strict=True)
        ]
        counted, kind = None, result_type(scores)
        if any(loss is None for loss in found):
            nothing = scores.flatten()[:0].sum(dtype=kind)  # with a gradient of zeros
            counts = [loss is not None or not shown for loss, shown in zip(found, batch.shown, strict=True)]
            counted = None if all(counts) else torch.tensor(counts, device=scores.device).reshape(batch.shape)
            found = [nothing if loss is None else loss for loss in found]
        losses = [loss.to(kind) for loss in found if loss is not None]
        joined = (torch.stack(losses) if len(losses) > 1 else losses[0]).reshape(batch.shape)
        return reduce(joined, self.reduction, batch.weight, counted, self.refactored, WITHOUT_LOSS)

    def relax(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> list[Relaxed | None]:
        """What the loss is made of, problem by problem: for those who want to look inside."""
        bound = [
            self._bind(*problem) for problem in self._batch(scores, target, mask, None, self.check_values).problems
        ]
        return [None if problem is None else self._relaxed(problem) for problem in bound]

    def explain(self, scores: Tensor, target: Tensor) -> str:
        """What was found in the metric's code, for one problem, in words."""
        problems = self._batch(scores, target, None, None, self.check_values).problems
        if isinstance(self.refactored, Automatic):
            return str(self.refactored.explain(*problems[0]))
        bound = [self.refactored.bind(*problem) for problem in problems]
        counts = [0 if one is None else one.comparisons.count for one in bound]
        return f"{self.refactored!r}, written by hand: {', '.join(f'{count:,}' for count in counts)} comparisons."

    def extra_repr(self) -> str:
        """The settings that matter."""
        usual = {"maximize": True, "fraction": 1, "value": "metric", "batch_dims": 0, "dim": None, "reduction": "mean"}
        changed = [f"{name}={getattr(self, name)!r}" for name, value in usual.items() if getattr(self, name) != value]
        return ", ".join([repr(self.refactored), str(self.anchoring), str(self.interpolation), *changed])

    # ------------------------------------------------------------------ from a batch to problems

    def _batch(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, checks: bool) -> Batch:
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
        if checks:
            _check_size(scores)
            metric.check(scores, target)
        if scores.dtype in (torch.float16, torch.bfloat16):
            scores = scores.float()
        rows = [part.reshape(-1, *part.shape[lead:]) for part in (scores, target)]
        problems = list(zip(*rows, strict=True))
        if mask is not None:
            marks = mask.reshape(-1, *mask.shape[lead:])
            problems = [metric.hide(s, t, keep) for (s, t), keep in zip(problems, marks, strict=True)]
        return Batch(problems, shape, weight, [True] * len(problems) if shown is None else shown.flatten().tolist())

    def _event_dims(self, dims: int) -> int:
        """How many of the last dimensions of the scores hold one problem, after ``dim`` is moved there."""
        known = self.refactored.event_dims
        if known is None:
            if self.batch_dims > dims:
                fail("batch_dims", f"must be at most {dims}, the dimensions of scores", self.batch_dims)
            return dims - self.batch_dims if self.dim is None else self.refactored.least_dims
        if self.batch_dims not in (0, dims - known):
            rule = f"must be left at 0, because {self.refactored!r} knows that a problem has {known} dimensions"
            fail("batch_dims", rule, self.batch_dims)
        return known

    # ------------------------------------------------------------------ one problem

    def _loss(self, scores: Tensor, target: Tensor) -> Tensor | None:
        """The loss of one problem; None if it has none."""
        quick, problem = self._in_loops(scores, target)
        if quick is not None:
            return self._as_loss(quick, scores)
        if problem is None:
            return None
        if problem.scores.requires_grad:
            problem = replace(problem, scores=first_only(problem.scores))
        relaxed = self._relaxed(problem)
        if relaxed is None:
            return None
        found = (relaxed.value, relaxed.metric)
        loss, true = (1 - value if self.maximize else value.clone() for value in found)
        return loss if self.value == "interpolated" else with_value(loss, true)

    def _as_loss(self, found: compiled.Interpolated, scores: Tensor) -> Tensor | None:
        """The loss of a problem that was interpolated in compiled loops."""
        if math.isnan(found.now):
            return None
        metric = found.value if self.value == "interpolated" else found.now

        def slope() -> Tensor:
            slope = found.gradient().reshape(scores.shape)
            return -slope if self.maximize else slope

        return deferred(torch.tensor(1 - metric if self.maximize else metric, dtype=scores.dtype), scores, slope)

    def _in_loops(self, scores: Tensor, target: Tensor) -> tuple[compiled.Interpolated | None, Bound | None]:
        """What the compiled loops make of a problem, if they know its anchors; else the problem, if it is one."""
        problem, lists, counting = None, None, None
        refactored, how, between = self.refactored, self.anchoring, self.interpolation
        if self.fraction < 1 or self.best_scores is not None or not compiled.usual(how, between):
            return None, self._bind(scores, target)
        by_hand = isinstance(refactored, PairRefactoring) and self._best_is_known and kernels.compiles(scores)
        if isinstance(refactored, PairRefactoring) and by_hand:
            lists, counting = compiled.of_labels(refactored.lists(scores, target).numpy()), refactored.counting
            if lists is None:
                return None, None
        else:
            problem = self._bind(scores, target)
            if problem is None or not compiled.applies(problem, problem.comparisons, how, between):
                return None, problem
            lists, counting = compiled.of_problem(problem), problem.counting

        def bind() -> Bound:
            bound = self._bind(scores, target) if problem is None else problem
            assert bound is not None
            return bound

        assert isinstance(between, InverseDistance)
        generator = self._source(scores)
        before = generator.get_state()
        found = compiled.interpolate(scores.flatten(), lists, counting, bind, how, between, generator)
        if found is None:
            generator.set_state(before)
            return None, bind()
        return found, None

    def _bind(self, scores: Tensor, target: Tensor) -> Bound | None:
        problem = self.refactored.bind(scores, target) if scores.numel() else None
        if problem is None:
            return None
        problem = self._with_best(problem, scores, target)
        if not self._best_is_known:
            self._best_is_known = self._check_best(problem)
        return problem

    def _check_best(self, problem: Bound) -> bool:
        """The best scores must not be worse than the present ones; whether that could be seen."""
        if problem.best_scores is None:
            return True
        best, now = problem.measure(torch.stack([problem.best_scores, problem.scores.detach()])).tolist()
        if (best < now - TOLERANCE) if self.maximize else (best > now + TOLERANCE):
            fail(
                "best_scores",
                f"must have a metric at least as good as that of the present scores, {now:g}",
                f"scores with the metric {best:g}",
                f"Pass maximize={not self.maximize} if {'less' if self.maximize else 'more'} of this metric is better; "
                "else pass best_scores=function(scores, target), because the target does not tell what is best.",
            )
        return not math.isnan(now)

    def _relaxed(self, problem: Bound) -> Relaxed | None:
        """None where the metric is not a number."""
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
                "Look for 0 / 0 or a root of something negative in what is compared.",
            )
        anchors = sample(problem, comparisons, self.anchoring, values.detach() > 0, generator, subset)
        places = anchors.configurations
        squared = places.squared_distances(torch.sigmoid(values))
        interpolated = self.interpolation(squared, anchors.values.to(squared.dtype), places.between)
        if interpolated.requires_grad and all_equal(anchors.values) and not self.anchoring.control:
            self._warn_of_flatness(anchors.values, float(metric))
        return Relaxed(interpolated, metric, anchors, comparisons.count)

    def _with_best(self, problem: Bound, scores: Tensor, target: Tensor) -> Bound:
        """The user's own best scores, where given."""
        if self.best_scores is None:
            return problem
        best = self.best_scores(scores.detach(), target)
        if shape_of(best) != scores.shape:
            rule = f"must return scores of shape {tuple(scores.shape)}"
            fail("best_scores(scores, target)", rule, in_words(best))
        return replace(problem, best_scores=best.detach().to(scores.dtype).flatten())

    def _warn_of_flatness(self, values: Tensor, now: float) -> None:
        """All anchors have one value. At the end of training, where nothing is left to learn, that is as it should."""
        if now != (1 if self.maximize else 0):
            warn_once(
                "flat",
                f"{self.refactored!r} is {now:g} at the present scores and {float(values[0]):g} at all {len(values)} "
                "anchors, so that this problem has no gradient. If other scores have a better value, pass "
                "best_scores=function(scores, target) that returns them, or more anchors (anchors=64); if none have, "
                "there is nothing to learn.",
            )


def as_refactored(metric: str | Metric | Refactored) -> Refactored:
    """A name's refactoring, a refactoring itself, or the one that is found in a function's code."""
    if isinstance(metric, Refactored):
        return metric
    if isinstance(metric, str):
        return by_name(metric)
    return Automatic(metric)


def _with_unit(anchors: int | Anchoring, refactored: Refactored) -> Anchoring:
    """A plain number leaves it to the metric what is flipped."""
    anchoring = as_anchoring(anchors)
    return anchoring if isinstance(anchors, Anchoring) else replace(anchoring, unit=refactored.unit)


def _check_maximize(maximize: object) -> bool:
    if not isinstance(maximize, bool):
        fail("maximize", "must be True or False", repr(maximize))
    return maximize


def _check_size(scores: Tensor) -> None:
    """Scores are finite, and so are their differences, and those of anchors that lie beyond them."""
    most = torch.finfo(torch.promote_types(scores.dtype, torch.float32)).max / 1024
    peak = float(scores.detach().abs().amax())
    if not peak <= most:  # NaN is not, either
        check_finite(scores)
        hint = "A sigmoid of such differences has no gradient: divide the scores by a constant."
        fail("scores", f"must be at most {most:.0e}, so that their differences are finite", f"up to {peak:g}", hint)


def _check_fraction(fraction: object) -> float:
    if isinstance(fraction, bool) or not isinstance(fraction, Real) or not 0 < float(fraction) <= 1:
        fail("fraction", "must be a share of the comparisons, above 0 and at most 1", repr(fraction))
    return float(fraction)
