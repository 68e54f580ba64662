"""UniLoss: a metric, relaxed by a sigmoid and by interpolation between anchors, as a loss. Eq. (5) of the paper.

scores  ->  comparisons c = f(scores, target)  ->  u = sigmoid(c)  ->  interpolation of the metric at u
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real

import torch
from torch import Tensor, nn

from directloss._checks import (
    REDUCTIONS,
    check_choice,
    check_count,
    check_finite,
    check_mask,
    check_scores,
    check_tensor,
    fail,
    warn_once,
)
from directloss._dynamo import outside_graphs
from directloss._gradient import first_only, refuse_second_of, transformable
from directloss.distributed import Gather, check_gather, drawing_from, exchange
from directloss._uniloss import compiled
from directloss._uniloss.anchors import Anchoring, Anchors, as_anchoring, sample
from directloss._uniloss.automatic import Automatic
from directloss._uniloss.comparisons import General
from directloss._uniloss.interpolation import Interpolation, InverseDistance, as_interpolation
from directloss._uniloss.names import by_name
from directloss._uniloss.refactoring import Bound, Refactored, in_words, shape_of

Metric = Callable[[Tensor, Tensor], Tensor]
BestScores = Callable[[Tensor, Tensor], Tensor]
VALUES = ("interpolated", "metric")
TOLERANCE = 1e-6
"""By how much metrics of the same quality may differ."""


@outside_graphs
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
    value: str = "interpolated",
    best_scores: BestScores | None = None,
    batch_dims: int = 0,
    reduction: str = "mean",
    mask: Tensor | None = None,
    check_values: bool = True,
) -> Tensor:
    """One minus the relaxed metric (or the relaxed metric itself, where lower is better).

    A metric that is a function is studied anew in each call; in a training loop use `UniLoss`, which remembers.

    Args:
        scores: what the network says; logits rather than probabilities, because a sigmoid of their differences is
            taken.
        target: whatever the metric compares them with.
        metric: ``metric(scores, target) -> scalar``, a `Refactoring`, or a name: ``"ap"``, ``"accuracy"``, ``"pckh"``,
            ``"f1"``, ``"ndcg@10"`` ..., see `directloss._uniloss.names`.
        maximize: False for a metric of which less is better.
        anchors: how many of each kind (good, nearby, bad), or an `Anchoring`.
        interpolation: ``"inverse-distance"``, the paper's, ``"distance-spline"``, or an `Interpolation`.
        fraction: the share of the comparisons that is relaxed in this step, chosen at random.
        generator: of the random choices; torch's global one by default.
        value: ``"interpolated"``, or ``"metric"`` for the true metric with the gradient of the interpolated one.
        best_scores: ``best_scores(scores, target)``, scores for which the metric is at its best; needed only where
            the target's form does not tell.
        batch_dims: how many leading dimensions of ``scores`` and ``target`` number separate problems, for metrics
            that see a single one. The named metrics know it by themselves.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` over the problems.
        mask: True for real entries, in the shape of ``target``.
        check_values: whether to look for NaN and wrong labels.

    Returns:
        A scalar, or one loss per problem for ``reduction="none"``.

    References:
        Liu, Wang, Deng: UniLoss: Unified Surrogate Loss by Adaptive Interpolation, ECCV 2020, Sec. 3.

    Example:
        >>> scores = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
        >>> loss = uniloss(scores, torch.tensor([0, 1, 0]), "ap", generator=torch.Generator().manual_seed(0))
        >>> loss.backward()
        >>> scores.grad[1] < 0  # the relevant item is to rise
        tensor(True)
    """
    loss_fn = UniLoss(
        metric,
        maximize=maximize,
        anchors=anchors,
        interpolation=interpolation,
        fraction=fraction,
        generator=generator,
        value=value,
        best_scores=best_scores,
        batch_dims=batch_dims,
        reduction=reduction,
        check_values=check_values,
    )
    result: Tensor = loss_fn(scores, target, mask)
    return result


@dataclass(frozen=True)
class Relaxed:
    """One problem, relaxed: what the loss is made of."""

    value: Tensor
    """The interpolated metric, a scalar."""
    metric: Tensor | None
    """The true metric, where it was asked for."""
    anchors: Anchors
    comparisons: int
    """How many were relaxed."""


class UniLoss(nn.Module):
    """`uniloss` as a module, with the same arguments. What is learned about a metric's code is kept.

    With ``gather=True`` the batch is that of all processes, as in `DirectLoss`; the random choices are those of the
    first process's generator, on all of them.

    Example:
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
        value: str = "interpolated",
        best_scores: BestScores | None = None,
        batch_dims: int = 0,
        reduction: str = "mean",
        check_values: bool = True,
        gather: Gather = False,
    ) -> None:
        super().__init__()
        self.refactored = as_refactored(metric)
        self.maximize = _check_maximize(maximize)
        self.anchoring = _with_unit(anchors, self.refactored)
        self.interpolation = as_interpolation(interpolation)
        self.fraction = _check_fraction(fraction)
        if generator is not None and not isinstance(generator, torch.Generator):
            fail("generator", "must be a torch.Generator", f"a {type(generator).__name__}")
        self.generator = generator
        self.value: str = check_choice("value", value, VALUES)
        if best_scores is not None and not callable(best_scores):
            fail("best_scores", "must be a function of scores and target", f"a {type(best_scores).__name__}")
        self.best_scores = best_scores
        self.batch_dims = check_count("batch_dims", batch_dims, least=0)
        self.reduction: str = check_choice("reduction", reduction, REDUCTIONS)
        self.check_values = check_values
        self.gather = check_gather(gather)
        self._best_is_known = False

    @outside_graphs
    def forward(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """The loss of scores and target; see `uniloss`."""
        if torch.is_inference_mode_enabled():  # the metric's code is watched, which ordinary tensors allow only
            with torch.inference_mode(False), torch.no_grad():
                copies = [part.clone() if isinstance(part, Tensor) else part for part in (scores, target, mask)]
                return self.forward(*copies)  # type: ignore[arg-type]
        if torch._C._are_functorch_transforms_active():
            refuse_second_of(scores)
            return transformable(self._outside)(scores=scores, target=target, mask=mask)
        return self._outside(scores, target, mask)

    def _outside(self, scores: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """The loss of tensors as they are, outside of transforms."""
        parts = {"scores": scores, "target": target, "mask": mask}
        shards = exchange(parts, self.gather, self._generator())
        if shards is None:
            return self._joined_loss(scores, target, mask)
        with drawing_from(self._generator(), shards.first_draws):
            return self._joined_loss(shards.join("scores"), shards.join("target"), shards.join_some("mask"))

    def _joined_loss(self, scores: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        problems, batch_shape = self._problems(scores, target, mask)
        relaxed = [self._interpolated(*problem) for problem in problems]
        dtype = torch.promote_types(scores.dtype, torch.float32)
        nothing = scores.flatten()[:0].sum(dtype=dtype)  # with a gradient of zeros
        losses = [nothing if one is None else self._loss(*one).to(dtype) for one in relaxed]
        counted = [one is not None for one in relaxed]
        if not all(counted):
            warn_once(
                f"uncounted uniloss {self.refactored!r}",
                f"{counted.count(False)} of {len(counted)} problems have nothing to compare (for a ranking: no "
                "relevant or no irrelevant item). They count as loss 0 with gradient 0, and not in the mean. Said "
                "once.",
            )
        if len(losses) == 1:  # its sum and its mean as well
            return losses[0].reshape(batch_shape if self.reduction == "none" else ())
        return _reduce(torch.stack(losses), batch_shape, counted, self.reduction)

    def relax(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> list[Relaxed | None]:
        """What the loss is made of, problem by problem: for those who want to look inside."""
        bound = [self._bind(*problem) for problem in self._problems(scores, target, mask)[0]]
        return [None if problem is None else self._relaxed(problem) for problem in bound]

    def explain(self, scores: Tensor, target: Tensor) -> str:
        """What was found in the metric's code, for one problem, in words."""
        problems, _ = self._problems(scores, target, None)
        if isinstance(self.refactored, Automatic):
            return str(self.refactored.explain(*problems[0]))
        bound = [self.refactored.bind(*problem) for problem in problems]
        counts = [0 if one is None else one.comparisons.count for one in bound]
        return f"{self.refactored!r}, written by hand: {', '.join(f'{count:,}' for count in counts)} comparisons."

    def extra_repr(self) -> str:
        """The settings that matter."""
        return f"{self.refactored!r}, {self.anchoring}, {self.interpolation}"

    # ------------------------------------------------------------------ from a batch to problems

    def _problems(
        self, scores: Tensor, target: Tensor, mask: Tensor | None
    ) -> tuple[list[tuple[Tensor, Tensor]], torch.Size]:
        dims = self.refactored.event_dims
        scores = check_scores(scores, dims or 1, "(..., n)" if dims == 1 else "that the metric expects")
        target = check_tensor("target", target).detach()
        real = None if mask is None else check_mask(mask, target.shape, "target")
        if real is not None:  # whatever stands in padding is not looked at
            wide = real
            while wide.dim() < scores.dim():
                wide = wide.unsqueeze(-1)
            if wide.shape[:-1] == scores.shape[:-1] or wide.shape == scores.shape:
                scores = torch.where(wide, scores, 0.0)
            target = torch.where(real, target, torch.zeros_like(target))
        if self.check_values:
            _check_size(scores)
            self.refactored.check(scores, target)
        if scores.dtype in (torch.float16, torch.bfloat16):
            scores = scores.float()
        lead = self.batch_dims if dims is None else scores.dim() - dims
        if lead > scores.dim():
            fail("batch_dims", f"must be at most {scores.dim()}, the dimensions of scores", lead)
        if self.batch_dims not in (0, lead):
            rule = f"must be left at 0, because {self.refactored!r} knows that a problem has {dims} dimensions"
            fail("batch_dims", rule, self.batch_dims)
        batch_shape = scores.shape[:lead]
        if target.shape[:lead] != batch_shape:
            fail("target", f"must begin with the batch dimensions {tuple(batch_shape)}", tuple(target.shape))
        rows = [part.reshape(-1, *part.shape[lead:]) for part in (scores, target)]
        marks = [None] * len(rows[0]) if real is None else list(real.reshape(-1, *real.shape[lead:]))
        problems = [
            (s, t) if keep is None else self.refactored.hide(s, t, keep)
            for s, t, keep in zip(*rows, marks, strict=True)
        ]
        return problems, batch_shape

    # ------------------------------------------------------------------ one problem

    def _interpolated(self, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """The interpolated metric and, where asked for, the true one."""
        problem = self._bind(scores, target)
        if problem is None:
            return None
        usual = self.fraction == 1 and self.best_scores is None
        if usual and compiled.applies(problem, problem.comparisons, self.anchoring, self.interpolation):
            assert isinstance(self.interpolation, InverseDistance)
            return compiled.interpolate(problem, self.anchoring, self.interpolation, self._generator())
        if problem.scores.requires_grad:
            problem = replace(problem, scores=first_only(problem.scores))
        relaxed = self._relaxed(problem)
        return relaxed.value, relaxed.metric

    def _bind(self, scores: Tensor, target: Tensor) -> Bound | None:
        problem = self.refactored.bind(scores, target) if scores.numel() else None
        if problem is None:
            return None
        problem = self._with_best(problem, scores, target)
        if not self._best_is_known:
            self._check_best(problem)
            self._best_is_known = True
        return problem

    def _check_best(self, problem: Bound) -> None:
        """The best scores must not be worse than the present ones: once, on first use."""
        if problem.best_scores is None:
            return
        best, now = problem.measure(torch.stack([problem.best_scores, problem.scores.detach()])).tolist()
        if (best < now - TOLERANCE) if self.maximize else (best > now + TOLERANCE):
            fail(
                "best_scores",
                f"must have a metric at least as good as that of the present scores, {now:g}",
                f"scores with the metric {best:g}",
                f"Pass maximize={not self.maximize} if {'less' if self.maximize else 'more'} of this metric is better; "
                "else pass best_scores=function(scores, target), because the target does not tell what is best.",
            )

    def _generator(self) -> torch.Generator:
        return self.generator if self.generator is not None else torch.default_generator

    def _relaxed(self, problem: Bound) -> Relaxed:
        generator = self._generator()
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
        metric = problem.measure(problem.scores.detach()[None])[0] if self.value == "metric" else None
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

    def _loss(self, value: Tensor, metric: Tensor | None) -> Tensor:
        if self.value == "metric" and metric is not None:
            value = metric.to(value.dtype) + (value - value.detach())
        return 1 - value if self.maximize else value


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


def _reduce(losses: Tensor, batch_shape: torch.Size, counted: list[bool], reduction: str) -> Tensor:
    if reduction == "none":
        return losses.reshape(batch_shape)
    return losses.sum() / max(1, sum(counted)) if reduction == "mean" else losses.sum()
