"""A metric as a function of comparisons: e = g(h(f(scores, target))), Eq. (4) of Liu, Wang, Deng (ECCV 2020).

`Refactoring` is written by the user, `Automatic` is found by probing a metric function, and the paper's three metrics
are written here: pairs of scores in which the more relevant one should win.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from directloss._checks import (
    DirectLossError,
    check_labels,
    check_same_shape,
    check_tensor,
    fail,
    name_of,
    near,
    warn_once,
)
from directloss._registry import get, meant, measured, split_name
from directloss._uniloss.comparisons import Comparisons, Differences, all_pairs, ranked_pairs
from directloss._uniloss.metric import BoundMetric, check_metric, stateless
from directloss._uniloss.probing import Finding, Probe
from directloss._uniloss.target import class_dim, ideal_scores, relevance_of
from directloss.metrics.classification import check_class_problem
from directloss.metrics.confusion import members
from directloss.metrics.ranking import average_precision

NOTHING = Differences(torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long), 0)
MANY = 4_000_000
"""Above this many comparisons a step takes about a second."""


@dataclass(frozen=True)
class Bound:
    """A refactoring bound to one problem: all that anchors and the relaxation need."""

    scores: Tensor
    """The current scores, flattened to ``(m,)``."""
    comparisons: Comparisons
    measure: Callable[[Tensor], Tensor]
    """The metric of other scores of the same problem, ``(k, m)`` to float64 ``(k,)``."""
    now: float
    """The metric of the current scores."""
    best_scores: Tensor | None
    """Scores ``(m,)`` with the best metric, close to the current ones; None if unknown."""
    words: str = ""
    """What is compared, for `UniLoss.explain`."""


class Refactored(ABC):
    """A metric that can be bound to a problem. Tensors are on the CPU, without gradients."""

    event_dims: int | None = None
    """How many of the last dimensions of ``scores`` are one problem; None for all, unless the user says otherwise."""
    least_dims: int = 1
    """How many dimensions one problem must have."""
    target_dims: int = 1
    """How many dimensions the target of one problem has, see `directloss._problem.arrange`."""
    shape_words: str = "(..., n)"
    """The shape of ``scores`` in error messages."""
    unit: str = "comparison"
    """What nearby anchors flip by default; see `directloss.Anchoring`."""
    likely: bool = True
    """Whether labels or classes of the target have a likelihood under the scores."""
    padded: bool = False
    """Whether `bind` takes the mask of a problem; otherwise `hide` takes padding away."""

    @abstractmethod
    def bind(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Bound | None:
        """Bind to the scores and the target of one problem; None if it has no metric, or only one class."""

    def check(self, scores: Tensor, target: Tensor) -> None:  # noqa: B027 - optional
        """Raise an error if scores and target do not fit; called before they are split into problems."""

    def hide(self, scores: Tensor, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """One problem without its padding; ``mask``, in the shape of the target, is True for real entries."""
        if mask.shape == scores.shape[: mask.dim()]:
            return scores[mask], target[mask]
        return scores.movedim(1, -1)[mask], target[mask]


# ---------------------------------------------------------------------- written by the user


@dataclass(frozen=True)
class Refactoring(Refactored):
    """A refactoring written by hand.

    Args:
        comparisons: f, ``comparisons(scores, target) -> (l,)``: differentiable numbers; the metric depends only on
            their signs.
        value: g, ``value(binaries, target) -> scalar``: the metric of a boolean ``(l,)``.
        best_scores: ``best_scores(scores, target)`` returns scores with the best metric;
            `directloss.relaxation.ideal_scores` by default.

    Examples:
        >>> error_free = Refactoring(
        ...     comparisons=lambda scores, target: scores * (2 * target - 1),
        ...     value=lambda binaries, target: binaries.float().mean(),
        ... )
        >>> error_free(torch.tensor([0.5, -2.0]), torch.tensor([1, 1]))
        tensor(0.5000)
    """

    comparisons: Callable[[Tensor, Tensor], Tensor]
    value: Callable[[Tensor, Tensor], Tensor]
    best_scores: Callable[[Tensor, Tensor], Tensor | None] = ideal_scores

    def __post_init__(self) -> None:
        for name, of in (("comparisons", "scores"), ("value", "binaries"), ("best_scores", "scores")):
            given = getattr(self, name)
            if not callable(given):
                fail(name, f"must be a function of {of} and target", f"a {type(given).__name__}")

    def __call__(self, scores: Tensor, target: Tensor) -> Tensor:
        """The metric itself: g(h(f(scores, target)))."""
        with torch.no_grad():
            return self.value(self.comparisons(scores, target) > 0, target)

    def bind(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Bound:
        shape, count = scores.shape, self._count(scores, target)
        comparisons = Comparisons(lambda flat: self.comparisons(flat.reshape(shape), target), count)
        measure, best = BoundMetric(self, shape, target), flat_best(self.best_scores, scores, target)
        words = f"comparisons written by hand: {count:,}."
        return Bound(scores.flatten(), comparisons, measure, measure.one(scores), best, words)

    def _count(self, scores: Tensor, target: Tensor) -> int:
        """How many comparisons there are, after checking what the user returned."""
        what = "comparisons(scores, target)"
        with torch.enable_grad():
            first = check_tensor(what, self.comparisons(scores.detach().requires_grad_(), target))
        if first.dim() != 1 or first.numel() == 0:
            fail(what, "must return a tensor of shape (l,), not empty", f"of shape {tuple(first.shape)}")
        if not first.requires_grad:
            fail(
                what,
                "must be differentiable in scores",
                f"a tensor of {first.dtype} without gradient",
                "Return numbers such as differences of scores, not their signs: those are taken for you.",
            )
        unknown = first.isnan()
        if bool(unknown.any()):
            fail(
                "comparisons",
                "must be numbers",
                f"NaN {int(unknown.sum())} times, first number {int(unknown.nonzero()[0])}",
                "Look for 0 / 0 or the root of a negative number in what is compared.",
            )
        return first.numel()


def flat_best(best_scores: Callable[[Tensor, Tensor], Tensor | None], scores: Tensor, target: Tensor) -> Tensor | None:
    """The best scores of a problem, flattened; None if the function does not know them."""
    best = best_scores(scores, target)
    if best is None:
        return None
    if check_tensor("best_scores(scores, target)", best).shape != scores.shape:
        rule = f"must return scores of shape {tuple(scores.shape)}"
        fail("best_scores(scores, target)", rule, f"of shape {tuple(best.shape)}")
    return best.detach().to(scores.dtype).flatten()


# ---------------------------------------------------------------------- found in a metric


class Automatic(Refactored):
    """Any metric function, refactored by probing it; see `directloss._uniloss.probing`.

    The metric must be deterministic, return one number, and depend on scores only through comparisons. Scores should
    be logits. Pairs of equal relevance are dropped if the metric does not depend on them, and those of two wrong
    classes always.

    Args:
        metric: ``metric(scores, target)`` returns one number; or an object with ``reset``, ``update``, ``compute``.
        event_dims: how many of the last dimensions of scores are one problem; None for all.

    Examples:
        >>> correct = lambda scores, target: (scores.argmax(-1) == target).float().mean()
        >>> bound = Automatic(correct).bind(torch.tensor([[3.0, 1.0, 2.0], [0.0, 1.0, 2.0]]), torch.tensor([0, 1]))
        >>> bound.comparisons.values(bound.scores)
        tensor([ 2.,  1.,  1., -1.])
        >>> bound.now
        0.5
    """

    def __init__(self, metric: Any, event_dims: int | None = None) -> None:
        self.metric, self.event_dims = stateless(metric), event_dims
        check_metric(self.metric)
        self._tried_first: tuple[float, ...] = ()
        """Thresholds found before: only a guess, which saves the search if it passes the same tests."""

    def __repr__(self) -> str:
        return f"Automatic({name_of(self.metric)})"

    def bind(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Bound | None:
        name, scores = name_of(self.metric), scores.detach()
        measure = BoundMetric(self.metric, scores.shape, target)
        now = measure.one(scores)
        if now != now:
            return None
        best, relevance = ideal_scores(scores, target), relevance_of(scores, target)
        finding = self._find(measure, scores, best, relevance)
        if finding.constant and relevance is None:
            comparisons: Comparisons = NOTHING
        else:
            comparisons = _comparisons(finding, scores, target, relevance)
        if comparisons.count > MANY:
            warn_once(
                f"many comparisons {name}",
                f"{name} makes {comparisons.count:,} comparisons of {scores.numel():,} scores, about a second per "
                f"{MANY:,}. A smaller batch makes fewer; fraction=0.1 relaxes a tenth of them.",
            )
        words = finding.in_words(name, scores.dim(), comparisons.count)
        return Bound(scores.flatten(), comparisons, measure, now, None if best is None else best.flatten(), words)

    def hide(self, scores: Tensor, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Only lists of labels, or of items with one class each, can be padded."""
        if mask.dim() != 1:
            fail(
                "mask",
                "must have one dimension for a metric function, because dropping entries of several changes the shape",
                f"of shape {tuple(mask.shape)}",
                "Pass batch_dims to treat lists separately, or drop padding inside the metric.",
            )
        return super().hide(scores, target, mask)

    def _find(
        self, measure: Callable[[Tensor], Tensor], scores: Tensor, best: Tensor | None, relevance: Tensor | None
    ) -> Finding:
        name, probe = name_of(self.metric), Probe(measure, scores, best, relevance)
        if probe.bounded:
            warn_once(
                f"probabilities {name}",
                "All scores lie between 0 and 1. UniLoss takes logits: its anchors leave that range, and the metric "
                "may then treat them as logits. Pass the logits, before sigmoid or softmax.",
            )
        finding = probe.find(self._tried_first)
        if finding is None:
            raise DirectLossError(
                f"metric must depend on scores only through comparisons, but {name} also depends on their values: "
                "small changes of the scores change it. If it is differentiable, it needs no UniLoss; train on it "
                "directly."
            )
        if finding.order is None and not finding.constant:
            warn_once(
                f"unknown comparisons {name}",
                f"{name} depends neither on an order of scores nor on thresholds alone (it may compare probabilities "
                "of softmax across rows, or differences with a margin). UniLoss relaxes the pairs of scores that the "
                "target orders instead, with the metric's own values at the anchors.",
            )
        if finding.thresholds:
            self._tried_first = finding.thresholds
        return finding


def _comparisons(finding: Finding, scores: Tensor, target: Tensor, relevance: Tensor | None) -> Differences:
    """The comparisons of a finding; if that has no order, the pairs that the target orders."""
    order, labels = finding.order, target.shape == scores.shape
    if order is None:
        classes = None if labels else class_dim(scores.shape, target)
        order = tuple(range(scores.dim())) if classes is None else (classes,)
    lists = _lists(torch.arange(scores.numel()).reshape(scores.shape), order)
    # Pairs of two wrong classes are dropped even if the metric depends on them: they have no best sign.
    if order and relevance is not None and not (labels and finding.equals):
        left, right = ranked_pairs(lists, _lists(relevance, order))
    else:
        left, right = all_pairs(lists)
        if relevance is not None:  # the more relevant score on the left
            swap = relevance.flatten()[left] < relevance.flatten()[right]
            left, right = torch.where(swap, right, left), torch.where(swap, left, right)
    return Differences.of((left, right), scores.numel(), torch.tensor(finding.thresholds, dtype=torch.float64))


def _lists(values: Tensor, order: tuple[int, ...]) -> Tensor:
    """A tensor in the shape of the scores as lists ``(b, n)`` along some dimensions."""
    last = values.movedim(order, tuple(range(-len(order), 0)))
    return last.reshape(-1, last.shape[last.dim() - len(order) :].numel())


# ---------------------------------------------------------------------- the paper's metrics


class PaperMetric(Refactored):
    """A metric that compares each relevant score of a list, labelled 1, with each irrelevant one, labelled 0."""

    list_dims = 1
    """How many of the last dimensions of scores are a list."""

    @abstractmethod
    def metric(self, rows: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """The metric of scores ``(k, ...)`` for the target of one problem: shape ``(k,)``."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def bind(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Bound | None:
        flat, relevance = scores.flatten(), relevance_of(scores, target)
        assert relevance is not None
        known = Finding(tuple(range(scores.dim() - self.list_dims, scores.dim())))
        relevance = relevance if mask is None else relevance.masked_fill(~mask, torch.nan)
        comparisons = _comparisons(known, scores, target, relevance)
        if comparisons.count == 0:
            return None

        def measure(rows: Tensor) -> Tensor:
            return self.metric(rows.reshape(-1, *scores.shape), target, mask).double()

        words = f"{self!r}, written by hand: {comparisons.count:,} comparisons."
        best = flat_best(ideal_scores, scores, target)
        return Bound(flat, comparisons, measure, measure(flat[None]).item(), best, words)


class AccuracyPairs(PaperMetric):
    """Multi-class accuracy: the right class beats each other class, Eq. (8)."""

    event_dims = 2
    shape_words = "(..., n, c)"

    def check(self, scores: Tensor, target: Tensor) -> None:
        if scores.shape[-1] < 2:
            fail("scores", "must have at least two classes in the last dimension", f"of shape {tuple(scores.shape)}")
        check_class_problem(scores, target)

    def metric(self, rows: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        return (rows.argmax(-1) == target).to(rows.dtype).mean(-1)


class AveragePrecisionPairs(PaperMetric):
    """Average precision: relevant items above irrelevant ones, Sec. 4.2."""

    event_dims = 1

    def check(self, scores: Tensor, target: Tensor) -> None:
        check_same_shape(target, scores)
        check_labels(target, (0, 1), "Relevance is binary; for grades use metric='graded_ndcg'.")

    def metric(self, rows: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        return average_precision(rows, target.expand(len(rows), -1))


class KeypointPairs(PaperMetric):
    """PCKh: some pixel near the keypoint beats all other pixels, Sec. 4.3.

    Scores are heatmaps ``(..., h, w)``; the target, in their shape, is 1 within the radius around the true keypoint,
    and 0 outside. All heatmaps are one problem.
    """

    least_dims = list_dims = 2
    shape_words = "(..., h, w)"
    unit = "score"
    likely = False  # a heatmap has one keypoint, not one in each near pixel
    padded = True  # heatmaps keep their shape

    def check(self, scores: Tensor, target: Tensor) -> None:
        check_same_shape(target, scores)
        check_labels(target, (0, 1), "1 is near the keypoint, 0 is not; leave pixels out with mask.")

    def metric(self, rows: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """The share of heatmaps whose highest pixel is near, among those with pixels of both kinds."""
        near, far = members(target, mask).flatten(-2).reshape(2, -1, target.shape[-2:].numel())
        kept = near.any(-1) & far.any(-1)
        pixels = rows.reshape(len(rows), *near.shape)[:, kept]
        best = pixels.masked_fill(~(near | far)[kept], -torch.inf).argmax(-1)
        hit = near[kept].expand_as(pixels).gather(-1, best[..., None])[..., 0]
        share: Tensor = hit.to(rows.dtype).mean(-1)
        return share


BY_HAND: dict[str, Refactored] = {
    "accuracy": AccuracyPairs(),
    "ap": AveragePrecisionPairs(),
    "pckh": KeypointPairs(),
}


# ---------------------------------------------------------------------- from what the user gave


def as_refactored(metric: Any) -> Refactored:
    """The refactoring of a name, a refactoring as it is, or the one found in a function."""
    if isinstance(metric, Refactored):
        return metric
    return by_name(metric) if isinstance(metric, str) else Automatic(metric)


def by_name(name: str) -> Refactored:
    """The refactoring of a name such as ``"ap"``, ``"f1"`` or ``"ndcg@10"``.

    Examples:
        >>> by_name("ap"), by_name("ndcg@10")
        (AveragePrecisionPairs(), Automatic(ndcg))
    """
    (base, number), named = split_name("metric", name), measured()
    if base not in named and base not in BY_HAND:
        known = sorted({*BY_HAND, *named})
        fail(
            "metric",
            "must be a function, a Refactoring, or a known name",
            repr(name),
            f"{near(meant(base) or base, known)} Known: {', '.join(known)}; or pass the metric's function.".strip(),
        )
    if base in BY_HAND and number is None:
        return BY_HAND[base]
    found = named.get(base)
    if found is None or (number is not None and not found.number):
        fail("metric", f"takes no number: {base!r} stands alone", repr(name))
    get(name)  # fails here if the number is not allowed, rather than at the first call
    return Automatic(found.function(number), event_dims=found.event_dims)
