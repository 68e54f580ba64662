"""Rankings of relevant and irrelevant items: one task per position metric.

The loss is ``1 - M`` (for DCG: ideal value minus value). The gradient of the expected metric moves one item at a time
(`directloss.moves`), O(n log n).

For Theorem 1 a ranking is scored by F = 1/(PN) sum over pairs of y_ij (a_i - b_j) (Yue et al.; Song et al., Sec. 3).
Inference is a sort. Loss-augmented inference is exact for both signs: O(n log n) for AP, NDCG, reciprocal rank, partial
AUC (sign +1) and AUC (both signs), otherwise a table limited to the cells that an optimum can reach;
`directloss.kernels` has the formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from directloss._checks import check_finite, check_labels, check_same_shape, fail, name_of, precise, warn_once
from directloss._dynamo import traced
from directloss.kernels import BINARY, bounded, compiles, largest, solve_rankings
from directloss.metrics.confusion import members
from directloss.metrics.ranking import (
    AveragePrecisionMetric,
    CustomMetric,
    DCGMetric,
    NDCGMetric,
    PartialAUCMetric,
    PositionMetric,
    PrecisionAtKMetric,
    PrecisionAtRecallMetric,
    RecallAtFPRMetric,
    RecallAtKMetric,
    ReciprocalRankMetric,
    Relevance,
    losses_of,
    relevance,
    tensor_losses,
    weighted_losses,
)
from directloss.moves import Lists, move_items
from directloss.task import Defaults, Estimate, Expected, Mask, PaddedTask, Solve, Solved
from directloss.tasks._likelihood import of_decisions, wide


class Ranking(NamedTuple):
    """A ranking as F sees it: only pairs of a relevant and an irrelevant item."""

    above: Tensor
    """For each item, how many items of the other class (or how much of their weight) rank above it; 0 for padding.
    Shape ``(..., n)``.
    """
    coefficients: Tensor
    """dF/dscores: (others - 2 above) / (PN) for each item, if all weights are 1. Shape ``(..., n)``, float64."""


class ListTask(PaddedTask):
    """The base of tasks with ranked lists. Outputs, except those of `predict`, have the coefficients of F."""

    defaults = Defaults(
        noise=3.0,
        likelihood=0.1,
        sign=+1,
        density="uniform",
        no_flips="a metric of ranks has no exact correction, and hardly needs one: it is not moved by what all items "
        "share",
    )
    judged_by: str
    """What F depends on besides the ranks."""

    def likelihood_slope(self, scores: Tensor, target: Tensor, request: Estimate) -> Tensor | None:
        """The gradient of the negative log-likelihood, if it is needed."""
        return of_decisions(scores, target, request) if request.likelihood else None

    def predict(self, scores: Tensor) -> Tensor:
        """Rank of each item, 1 for the highest score; equal scores share their mean rank."""
        negated = -wide(scores.detach()).contiguous()
        ordered = negated.sort(dim=-1).values
        above = torch.searchsorted(ordered, negated, side="left")
        not_below = torch.searchsorted(ordered, negated, side="right")
        return (above + not_below + 1).to(negated.dtype) / 2

    def score(self, scores: Tensor, output: Any) -> Tensor:
        if isinstance(output, Tensor):
            hint = "Use task.infer(scores, target) instead of task.predict(scores)."
            fail("output", f"must know {self.judged_by} before it has a score F", "a plain ranking", hint)
        coefficients: Tensor = output.coefficients
        scores = wide(scores)
        return (scores * coefficients.to(scores)).sum(-1)


class RankingTask(ListTask):
    """Rank relevant items above irrelevant ones, judged by a metric of their positions.

    Scores and target have shape ``(..., n)``; each list of n items is one problem. A list without a relevant or without
    an irrelevant item cannot be ranked wrong: it has loss 0, gradient 0, and does not count in the mean.
    """

    judged_by = "which items are relevant"
    defaults = replace(
        ListTask.defaults,
        no_item_weights="there is no exact inference for ranks of weighted items. Leave out epsilon and sign, or "
        "repeat an item as often as its weight says",
    )

    def __init__(self, metric: PositionMetric) -> None:
        self.metric = metric

    def infer(self, scores: Tensor, target: Tensor, mask: Mask = None) -> Ranking:
        """The ranking as F sees it: only pairs of a relevant and an irrelevant item, with ties spread evenly."""
        tables = self.metric.tables(target, mask)
        solved = solve_rankings(scores.detach(), target, tables, mask=mask, above="predicted", check_values=False)
        return _ranking(solved.above, members(target, mask))

    def augmented(
        self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int, mask: Mask = None
    ) -> Ranking:
        solved = solve_rankings(
            scores.detach(), target, self.metric.tables(target, mask), mask=mask, epsilon=epsilon, signs=(sign,),
            above="augmented", check_values=False,
        )  # fmt: skip
        return _ranking(solved.above, members(target, mask))

    def truth(self, target: Tensor, mask: Mask = None) -> Ranking:
        sides = members(target, mask)
        return _ranking(sides[1] * sides[0].sum(-1, keepdim=True), sides)

    def loss(self, output: Tensor | Ranking, target: Tensor, mask: Mask = None) -> Tensor:
        """The loss of a ranking, or of plain ranks from `predict`; in float64."""
        ranking = output if isinstance(output, Ranking) else self.infer(-output, target, mask)
        n = torch.where(target == 1, ranking.above, target.shape[-1]).sort(dim=-1).values
        P, N = relevance(target, mask).totals
        i = torch.arange(1, n.shape[-1] + 1, dtype=P.dtype, device=n.device)
        worth = torch.where(i <= P, self.metric.worth(i.expand(n.shape), precise(n), P, N), 0.0).sum(-1, keepdim=True)
        losses = self.metric.best(P, N, n.shape[-1]) - worth / self.metric.normaliser(P, N, n.shape[-1])
        return torch.where(P > 0, losses, 0.0).squeeze(-1)

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        check_same_shape(target, scores)
        if check_values:
            check_finite(scores)
            check_labels(target, hint=BINARY)

    def counted(self, target: Tensor, mask: Mask = None) -> Tensor | None:
        return relevance(target, mask).counted

    def value(self, losses: Tensor, target: Tensor, mask: Mask = None) -> Tensor:
        """The best value for these labels, minus the loss."""
        P, N = relevance(target, mask).totals.squeeze(-1)
        return self.metric.best(P, N, target.shape[-1]).to(losses) - losses

    def unit_epsilon(self, scores: Tensor, target: Tensor, mask: Mask = None) -> float | Tensor:
        """``2 z / (P N peak)``: an exchange of two neighbours changes F by ``2 / (P N)`` times the difference of their
        scores, and the metric by at most ``peak / z``. For AP this is ``4 / N``.
        """
        P, N = relevance(target, mask).totals.squeeze(-1)
        z, peak = self.metric.normaliser(P, N, target.shape[-1]), self.metric.tables(target, mask).peak
        unit: Tensor = 2 * z / (P * N).clamp(min=1) / peak
        return unit

    def expected(self, scores: Tensor, target: Tensor, request: Estimate) -> Expected:
        check_same_shape(target, scores)
        values = (1.0,) if request.weight is None else _distinct(self, request.weight)
        weight = request.weight if len(values) > 1 else None  # equal weights change nothing
        if isinstance(self.metric, CustomMetric):
            self.check(scores, target, request.check_values)
            if request.check_values:
                self.metric.check(target)
        elif weight is None and compiles(scores) and not request.curvature:
            return self._compiled(scores, target, request)
        else:
            self.check(scores, target, request.check_values)
        labels = relevance(target, request.mask, weight)
        counted = labels.counted
        if weight is not None:
            losses = weighted_losses(self.metric, scores, labels, weight)
        elif not request.gradient:
            losses = tensor_losses(self.metric, scores, labels)
        if not request.gradient:
            return Expected(losses, counted=counted)
        # Where nobody checks, NaN is the largest score.
        clean = wide(torch.nan_to_num(scores, nan=largest(scores.dtype)))
        noisy, width = request.noise.perturb(clean, self.defaults.density), float(request.noise.scale)
        lists = position_lists(self.metric, labels, (1.0,) if weight is None else values)
        moved = move_items(lists, clean, noisy, width, request.mask, request.curvature)
        if weight is None:
            losses = losses_of(self.metric, moved.value, labels)
        shown = counted.unsqueeze(-1)
        bend = None if moved.curvature is None else moved.curvature * shown
        slope = bounded(moved.slope * shown, noisy.dtype)
        return Expected(losses, slope, self.likelihood_slope(scores, target, request), counted, bend)

    def _compiled(self, scores: Tensor, target: Tensor, request: Estimate) -> Expected:
        """The same, in compiled loops."""
        noise = request.noise
        noisy = noise.perturb(scores, self.defaults.density) if request.gradient else None
        solved = solve_rankings(
            scores, target, self.metric.tables(target), mask=request.mask, noisy=noisy,
            width=float(noise.scale) if request.gradient else 0.0, check_values=request.check_values,
        )  # fmt: skip
        return Expected(solved.loss, solved.gradient, self.likelihood_slope(scores, target, request), solved.counted)

    def fused(self, scores: Tensor, target: Tensor, request: Solve) -> Solved:
        check_same_shape(target, scores)
        solved = solve_rankings(
            scores, target, self.metric.tables(target, request.mask), mask=request.mask, epsilon=request.epsilon,
            noisy=request.noisy, signs=request.signs if request.gradient else (), check_values=request.check_values,
        )  # fmt: skip
        return Solved(solved.loss, solved.gradient, solved.counted)

    def __repr__(self) -> str:
        settings = (getattr(self.metric, one.name) for one in fields(self.metric) if one.init)
        return f"{type(self).__name__}({', '.join(name_of(value) for value in settings if value is not None)})"


def _ranking(above: Tensor, sides: Tensor) -> Ranking:
    """Counts with the resulting coefficients of F, for the relevant and the irrelevant items ``(2, ..., n)``."""
    pairs = sides.sum(-1, keepdim=True).prod(0).clamp(min=1).double()
    return Ranking(above, (_others(sides) - 2 * above) / pairs)


def _others(sides: Tensor) -> Tensor:
    """How many items of the other class there are, for each item; 0 for padding."""
    return (sides * sides.sum(-1, keepdim=True).flip(0)).sum(0)


CELLS = 1 << 26
"""The largest number of items times distinct weights: half a gigabyte for each table of float64."""


def _distinct(task: RankingTask, weight: Tensor) -> tuple[float, ...]:
    """The distinct weights of real items, ascending, if the metric is defined for them and they are few enough."""
    if not task.metric.weighable:
        hint = 'Weighted ranks are defined for "ap", "auc", "pauc" and "recall_at_fpr".'
        fail("weight", f"must hold one weight per problem of {task!r}", "one per item", hint)
    if traced():
        fail("weight", "must hold one weight per problem inside graphs and transforms", "one per item")
    values = tuple(torch.unique(weight[weight > 0]).tolist())
    if len(values) * weight.numel() > CELLS:
        hint = "Round the weights, or shorten the lists."
        rule = f"must have fewer distinct values: times {weight.numel():,} items they may be at most {CELLS:,}"
        fail("weight", rule, f"{len(values):,} distinct values", hint)
    return values


def position_lists(metric: PositionMetric, labels: Relevance, weights: tuple[float, ...] = (1.0,)) -> Lists:
    """Lists of relevant and irrelevant items, as moves see them."""
    P, N = labels.totals
    z = metric.normaliser(P, N, labels.sizes.shape[-1])
    return Lists(labels.sizes, partial(metric.worth, P=P, N=N), z, weights=weights)


class AveragePrecision(RankingTask):
    """Average precision, the metric of the papers' experiments; Song et al., Eq. (4) and Sec. 3.

    ``L = 1 - 1/P sum_i i / (i + n_i)``. Sign +1 takes O(n log n), sign -1 a table of the misordered pairs.

    Examples:
        >>> AveragePrecision().loss(AveragePrecision().predict(torch.tensor([3.0, 2.0, 1.0])), torch.tensor([1, 0, 1]))
        tensor(0.1667, dtype=torch.float64)
    """

    def __init__(self) -> None:
        super().__init__(AveragePrecisionMetric())


BOTH_SIGNS = replace(RankingTask.defaults, sign="both")


class _AtK(RankingTask):
    """Tasks with an optional cutoff."""

    def __init__(self, metric: PositionMetric, k: float | None) -> None:
        super().__init__(metric)
        self.k = k
        if k is not None:  # with nothing relevant above the cutoff, no ranking is worse
            self.defaults = BOTH_SIGNS


class NDCG(_AtK):
    """Normalised discounted cumulative gain with binary gains, over the first ``k`` ranks (all by default)."""

    k: int | None

    def __init__(self, k: int | None = None) -> None:
        super().__init__(NDCGMetric(k), k)


class DCG(_AtK):
    """Discounted cumulative gain with binary gains; the loss is the ideal value minus the value."""

    def __init__(self, k: int | None = None) -> None:
        super().__init__(DCGMetric(k), k)


class _AmongFirst(_AtK):
    """Tasks that only ask which items are among the first ``k``: an int, or a share of the list as a float."""

    def expected(self, scores: Tensor, target: Tensor, request: Estimate) -> Expected:
        self._warn_of_all(target, request)
        return super().expected(scores, target, request)

    def fused(self, scores: Tensor, target: Tensor, request: Solve) -> Solved:
        self._warn_of_all(target, request)
        return super().fused(scores, target, request)

    def _warn_of_all(self, target: Tensor, request: Estimate | Solve) -> None:
        """Warn once if every item of every list is among the first k."""
        if not request.gradient or traced():
            return
        n = target.shape[-1]
        if request.mask is not None and target.is_cpu:  # elsewhere, counting would wait for the device
            n = int(request.mask.sum(-1).max())
        if n and self.metric.structure(n)["cutoff"] == n:
            warn_once(
                f"all among the first {self!r}",
                f"All {n} items of a list are among the first k of {self!r}, so no ranking is better than another, and "
                "the metric has no gradient. k counts items of the list, which is the batch: use longer lists, a "
                'smaller k, or a share such as "precision@1%".',
            )


class PrecisionAtK(_AmongFirst):
    """The share of relevant items among the first ``k``, or in the first 1 % of the list for ``k=0.01``."""

    def __init__(self, k: float = 10) -> None:
        super().__init__(PrecisionAtKMetric(k), k)


class RecallAtK(_AmongFirst):
    """The share of the relevant items among the first ``k``, or in the first 1 % of the list for ``k=0.01``."""

    def __init__(self, k: float = 10) -> None:
        super().__init__(RecallAtKMetric(k), k)


class ReciprocalRank(RankingTask):
    """One over the rank of the first relevant item; its mean over queries is MRR."""

    def __init__(self) -> None:
        super().__init__(ReciprocalRankMetric())


class AUC(RankingTask):
    """Area under the ROC curve: the share of pairs in the right order.

    Examples:
        >>> AUC().loss(AUC().predict(torch.tensor([3.0, 1.0, 2.0])), torch.tensor([0, 0, 1]))
        tensor(0.5000, dtype=torch.float64)
    """

    fused = None  # type: ignore[assignment]  # which would not use the inference below

    def __init__(self) -> None:
        super().__init__(PartialAUCMetric())

    def augmented(
        self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int, mask: Mask = None
    ) -> Ranking:
        """Pairs decide alone: sign -1 is sign +1 for the list upside down, which finds its items one by one."""
        ranking = super().augmented(sign * scores, target, epsilon, +1, mask)
        sides = members(target, mask)
        return ranking if sign > 0 else _ranking(_others(sides) - ranking.above, sides)

    def __repr__(self) -> str:
        return "AUC()"


class PartialAUC(RankingTask):
    """Area under the ROC curve up to the false positive rate ``max_fpr``, divided by it."""

    defaults = BOTH_SIGNS

    def __init__(self, max_fpr: float = 0.1) -> None:
        super().__init__(PartialAUCMetric(max_fpr))
        self.max_fpr = max_fpr


class RecallAtFPR(RankingTask):
    """The highest recall with a false positive rate of at most ``max_fpr``: ``m(i, n) = [n <= max_fpr N]``."""

    defaults = BOTH_SIGNS

    def __init__(self, max_fpr: float = 0.01) -> None:
        super().__init__(RecallAtFPRMetric(max_fpr))


class PrecisionAtRecall(RankingTask):
    """The precision where the recall reaches ``recall``: ``m(i, n) = i / (i + n)`` for i = ceil(recall P) alone."""

    defaults = BOTH_SIGNS

    def __init__(self, recall: float = 0.9) -> None:
        super().__init__(PrecisionAtRecallMetric(recall))


class PositionTask(RankingTask):
    """Your own position metric: ``M = sum_i m(i, n_i) / sum_i m(i, 0)``.

    ``m(i, n)`` is the value of the i-th relevant item if n irrelevant ones rank above it. It gets two float64 tensors
    that broadcast against each other. For Theorem 1 (``epsilon``, ``sign``) it must not increase with n.
    """

    def __init__(self, weight: Callable[[Tensor, Tensor], Tensor]) -> None:
        if not callable(weight):
            fail("weight", "must be a function m(i, n) of two tensors", repr(weight))
        super().__init__(CustomMetric(weight))
