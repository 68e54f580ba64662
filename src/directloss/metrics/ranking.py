"""Metrics of rankings of relevant (1) and irrelevant (0) items: one definition of each.

All are position metrics: with ``n_i`` irrelevant items above the i-th relevant one (which is then at rank ``i + n_i``),

    M = 1/z * sum_i m(i, n_i)          m(i, n) = row(i) * column(i + n)          or row(i) * column(n)

Training and evaluation use the same functions ``row``, ``column`` and ``z``, and the same rule for ties (see
`directloss.kernels`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from directloss._checks import check_count, check_finite, check_positive, check_weight, fail, precise
from directloss.kernels import PositionTables, compiles, largest, solve_rankings, spread_evenly
from directloss.metrics.classification import checked
from directloss.metrics.confusion import members

ROUNDING = 1e-9
"""Slack for shares of counts: 0.7 * 10 must be 7."""


@dataclass(frozen=True)
class PositionMetric:
    """A metric ``1/z * sum_i m(i, n_i)`` with ``m`` that never rises with n. The loss is ``best - M``.

    The functions take float64 tensors that broadcast: ``i`` and ``n`` as above, and ``P`` and ``N``, the numbers of
    relevant and irrelevant items of the list (if `weighable`, all of them may be sums of weights instead).
    """

    by_rank: ClassVar[bool] = True
    """Whether `column` is a function of the rank ``i + n``; otherwise it is one of n."""
    by_list: ClassVar[bool] = False
    """Whether `row` or `column` depend on P or N."""
    weighable: ClassVar[bool] = False
    """Whether the metric is defined for items that weigh more than others, as in scikit-learn."""
    needs_irrelevant: ClassVar[bool] = False

    def row(self, i: Tensor, P: Tensor, N: Tensor) -> Tensor:
        """What the i-th relevant item counts."""
        return torch.ones_like(i)

    def column(self, k: Tensor, P: Tensor, N: Tensor) -> Tensor:
        """What rank k is worth, or a place below k irrelevant items."""
        raise TypeError(f"{type(self).__name__} must define column")

    def worth(self, i: Tensor, n: Tensor, P: Tensor, N: Tensor) -> Tensor:
        """``m(i, n)``."""
        column = self.column(i + n if self.by_rank else n, P, N)
        return column if type(self).row is PositionMetric.row else self.row(i, P, N) * column

    def normaliser(self, P: Tensor, N: Tensor, size: int) -> Tensor:
        """z, for lists of ``size`` items; never 0."""
        return torch.ones_like(P)

    def best(self, P: Tensor, N: Tensor, size: int) -> Tensor:
        """What the loss is measured from: the value of the perfect ranking."""
        return torch.ones_like(P)

    def tables(self, target: Tensor, mask: Tensor | None = None) -> PositionTables:
        """``m`` as compiled loops read it, for lists ``(b, n)``."""
        return PositionTables(self, target.shape[-1], **self.structure(target.shape[-1]))

    def structure(self, n: int) -> dict[str, Any]:
        """What loss-augmented inference needs to know of ``m`` in lists of n items; see `PositionTables`."""
        return {}


def _total_of_first(values: Tensor, P: Tensor) -> Tensor:
    """The sum of the first P values, at least of one: it is a divisor, and the first value is positive."""
    return values.cumsum(-1)[P.long().clamp(1, values.shape[-1]) - 1]


def _ranks(P: Tensor, size: int) -> Tensor:
    return torch.arange(1, size + 1, dtype=P.dtype, device=P.device)


@dataclass(frozen=True)
class AveragePrecisionMetric(PositionMetric):
    """``m(i, n) = i / (i + n)``, z = P: the mean precision at the ranks of the relevant items; Song et al., Eq. (4)."""

    weighable: ClassVar[bool] = True

    def row(self, i: Tensor, P: Tensor, N: Tensor) -> Tensor:
        return i

    def column(self, k: Tensor, P: Tensor, N: Tensor) -> Tensor:
        return k.reciprocal()

    def normaliser(self, P: Tensor, N: Tensor, size: int) -> Tensor:
        return P + (P == 0)

    def structure(self, n: int) -> dict[str, Any]:
        return {"convex": True, "peak": 0.5}


@dataclass(frozen=True)
class DCGMetric(PositionMetric):
    """``m(i, n) = 1 / log2(1 + i + n)`` for ranks up to k, z = 1; the loss is relative to the perfect ranking."""

    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None:
            check_count("k", self.k)

    def column(self, k: Tensor, P: Tensor, N: Tensor) -> Tensor:
        discount = torch.log2(1 + k).reciprocal()
        return discount if self.k is None else discount * (k <= self.k)

    def best(self, P: Tensor, N: Tensor, size: int) -> Tensor:
        return _total_of_first(self.column(_ranks(P, size), P, N), P)

    def structure(self, n: int) -> dict[str, Any]:
        cutoff = 0 if self.k is None or self.k >= n else self.k
        # From rank 1 to rank 2, or from the last rank that counts to the next.
        peak = max(1 - 1 / math.log2(3), 1 / math.log2(1 + cutoff) if cutoff else 0.0)
        return {"cutoff": cutoff, "convex": cutoff == 0, "peak": peak}


@dataclass(frozen=True)
class NDCGMetric(DCGMetric):
    """DCG with binary gains divided by that of the perfect ranking."""

    def normaliser(self, P: Tensor, N: Tensor, size: int) -> Tensor:
        return super().best(P, N, size)

    def best(self, P: Tensor, N: Tensor, size: int) -> Tensor:
        return torch.ones_like(P)


@dataclass(frozen=True)
class PrecisionAtKMetric(PositionMetric):
    """``m(i, n) = [i + n <= k]``, z = k: the share of relevant items among the first k.

    A float k is a share of the list, rounded up.
    """

    k: int | float = 10

    def __post_init__(self) -> None:
        if not self.by_list:
            check_count("k", self.k)

    @property
    def by_list(self) -> bool:  # type: ignore[override]
        """Whether k is a share."""
        return isinstance(self.k, float) and 0 < self.k <= 1

    def first(self, size: Tensor) -> Tensor | float:
        """The number of items that count, of lists of this size."""
        return ((self.k - ROUNDING) * size).ceil() if self.by_list else self.k

    def column(self, k: Tensor, P: Tensor, N: Tensor) -> Tensor:
        return (k <= self.first(P + N)).to(k.dtype)

    def normaliser(self, P: Tensor, N: Tensor, size: int) -> Tensor:
        return torch.ones_like(P) * self.first((P + N).clamp(min=1))

    def structure(self, n: int) -> dict[str, Any]:
        return {"cutoff": min(math.ceil(self.k * n) if self.by_list else int(self.k), n)}


@dataclass(frozen=True)
class RecallAtKMetric(PrecisionAtKMetric):
    """``m(i, n) = [i + n <= k]``, z = P: the share of the relevant items that are among the first k."""

    def normaliser(self, P: Tensor, N: Tensor, size: int) -> Tensor:
        return P + (P == 0)


@dataclass(frozen=True)
class ReciprocalRankMetric(PositionMetric):
    """``m(1, n) = 1 / (1 + n)``, z = 1: the reciprocal rank of the first relevant item."""

    def row(self, i: Tensor, P: Tensor, N: Tensor) -> Tensor:
        return (i == 1).to(i.dtype)

    def column(self, k: Tensor, P: Tensor, N: Tensor) -> Tensor:
        return k.reciprocal()

    def structure(self, n: int) -> dict[str, Any]:
        return {"convex": True, "earning": 1, "peak": 0.5}


@dataclass(frozen=True)
class FalsePositiveMetric(PositionMetric):
    """The base of metrics of the ROC curve up to the false positive rate x = ``max_fpr``."""

    max_fpr: float = 1.0
    by_rank: ClassVar[bool] = False
    by_list: ClassVar[bool] = True
    weighable: ClassVar[bool] = True
    needs_irrelevant: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_share("max_fpr", self.max_fpr)


@dataclass(frozen=True)
class PartialAUCMetric(FalsePositiveMetric):
    """``m(i, n) = max(0, x N - n)``, z = P x N: area under the ROC curve up to the false positive rate x, over x.

    x = 1 is the whole area: the share of pairs in the right order.
    """

    def column(self, k: Tensor, P: Tensor, N: Tensor) -> Tensor:
        return (self.max_fpr * N - k).clamp(min=0)

    def normaliser(self, P: Tensor, N: Tensor, size: int) -> Tensor:
        return torch.where((P > 0) & (N > 0), self.max_fpr * P * N, 1.0)

    def structure(self, n: int) -> dict[str, Any]:
        return {"convex": True}


@dataclass(frozen=True)
class RecallAtFPRMetric(FalsePositiveMetric):
    """``m(i, n) = [n <= x N]``, z = P: the recall at the lowest threshold with a false positive rate of at most x."""

    max_fpr: float = 0.01

    def column(self, k: Tensor, P: Tensor, N: Tensor) -> Tensor:
        return (k <= (self.max_fpr + ROUNDING) * N).to(k.dtype)

    def normaliser(self, P: Tensor, N: Tensor, size: int) -> Tensor:
        return P + (P == 0)


@dataclass(frozen=True)
class PrecisionAtRecallMetric(PositionMetric):
    """``m(i, n) = i / (i + n)`` for i = ceil(x P) alone, z = 1: the precision where the recall reaches x."""

    recall: float = 0.9
    by_list: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_share("recall", self.recall)

    def row(self, i: Tensor, P: Tensor, N: Tensor) -> Tensor:
        return i * (i == ((self.recall - ROUNDING) * P).ceil())

    def column(self, k: Tensor, P: Tensor, N: Tensor) -> Tensor:
        return k.reciprocal()

    def structure(self, n: int) -> dict[str, Any]:
        return {"peak": 0.5}


def _check_share(argument: str, value: float) -> None:
    if check_positive(argument, value) > 1:
        fail(argument, "must be at most 1", value)


@dataclass(frozen=True)
class CustomMetric(PositionMetric):
    """A user-defined ``m(i, n)``; z is its sum over the perfect ranking.

    ``weight`` gets two float64 tensors that broadcast against each other. Loss-augmented inference needs all its values
    in a table of P (N + 1) numbers, and that they do not increase with n.
    """

    weight: Callable[[Tensor, Tensor], Tensor] = field(default=lambda i, n: i / (i + n))

    def worth(self, i: Tensor, n: Tensor, P: Tensor, N: Tensor) -> Tensor:
        value = torch.as_tensor(self.weight(i, n), dtype=i.dtype, device=i.device)
        shape = (i + n).shape
        try:
            return value.expand(shape)
        except RuntimeError:
            fail("weight(i, n)", f"must have shape {tuple(shape)} here", f"of shape {tuple(value.shape)}")

    def normaliser(self, P: Tensor, N: Tensor, size: int) -> Tensor:
        i = _ranks(P, size)
        return _total_of_first(self.worth(i, torch.zeros_like(i), P, N), P)

    def check(self, target: Tensor) -> None:
        """Raise if ``m`` is not finite, or not positive in sum, for lists like these."""
        i = torch.arange(1, max(int((target == 1).sum(-1).max()), 1) + 1, dtype=torch.float64)
        n = torch.arange(target.shape[-1], dtype=torch.float64)
        perfect = self.worth(i, torch.zeros_like(i), i, n)
        check_finite(perfect, "weight(i, n)")
        check_finite(self.worth(i[:1], n, i, n), "weight(i, n)")
        if bool((perfect.cumsum(0) <= 0).any()):
            rule = "must have a positive sum over the perfect ranking"
            fail("weight(i, n)", rule, perfect.cumsum(0).min().item())

    def tables(self, target: Tensor, mask: Tensor | None = None) -> PositionTables:
        P, N = (int(most) for most in members(target, mask).sum(-1).reshape(2, -1).amax(1))
        i = torch.arange(1, max(P, 1) + 1, dtype=torch.float64)[:, None]
        table = self.worth(i, torch.arange(N + 1, dtype=torch.float64)[None], i, i)
        check_finite(table, "weight(i, n)")
        grows = table[:, 1:] > table[:, :-1]
        if bool(grows.any()):
            row, column = grows.nonzero()[0].tolist()
            rise = f"increasing from n = {column} to {column + 1} at i = {row + 1}"
            fail("weight(i, n)", "must not increase with n", rise, "Leave out epsilon and sign, which need that.")
        drop = float((table[:, :-1] - table[:, 1:]).amax()) if N else 0.0
        return PositionTables(self, target.shape[-1], peak=drop or 1.0, table=table)


def evaluate(metric: PositionMetric, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """The metric of each ranking, shape ``b``; NaN where undefined (nothing relevant, or no pairs for AUC)."""
    scores, target, mask = checked(scores, target, mask)
    check_finite(scores)
    if isinstance(metric, CustomMetric):
        metric.check(target)
    labels = relevance(target, mask)
    if compiles(scores) and not isinstance(metric, CustomMetric):
        losses = solve_rankings(scores, target, metric.tables(target), mask=mask, check_values=False).loss
    else:
        losses = tensor_losses(metric, scores, labels)
    defined = labels.counted if metric.needs_irrelevant else labels.present[0].squeeze(-1)
    P, N = labels.totals.squeeze(-1)
    best = metric.best(P, N, scores.shape[-1])
    return torch.where(defined, best - losses, torch.nan).to(torch.promote_types(scores.dtype, torch.float32))


class Relevance(NamedTuple):
    """The labels of lists ``(..., n)`` in float64, where the device has it."""

    sizes: Tensor
    """How much each relevant item (row 0) and each irrelevant item (row 1) counts; 0 for others. ``(2, ..., n)``."""
    totals: Tensor
    """P and N, their sums, ``(2, ..., 1)``."""

    present: Tensor
    """Whether they are positive."""

    @property
    def counted(self) -> Tensor:
        """Which lists have relevant and irrelevant items, shape ``(...)``."""
        return self.present.all(0).squeeze(-1)


def relevance(target: Tensor, mask: Tensor | None = None, weight: Tensor | None = None) -> Relevance:
    """Labels 1 and 0 as sizes: 1, or the weights of the items."""
    sizes = precise(members(target, mask))
    sizes = sizes if weight is None else sizes * weight
    totals = sizes.sum(-1, keepdim=True)
    return Relevance(sizes, totals, totals > 0)


def tensor_losses(metric: PositionMetric, scores: Tensor, labels: Relevance) -> Tensor:
    """``best - M`` of lists ``(..., n)`` in tensor operations of fixed shapes; 0 where nothing is relevant.

    Ties are spread evenly. Slow twin of the compiled loops, and all there is on other devices and in graphs.
    """
    ordered, order = (-torch.nan_to_num(scores, nan=largest(scores.dtype))).sort(dim=-1)
    sizes = labels.sizes.gather(-1, order.expand(labels.sizes.shape))
    sums = pad(sizes.cumsum(-1), (1, 0))
    ends = torch.stack([torch.searchsorted(ordered, ordered, right=right) for right in (False, True)])
    C = sums[0, ..., 1:]
    above = sums.unsqueeze(1).expand(2, *ends.shape[:-1], -1).gather(-1, ends.expand(2, *ends.shape))
    worth = metric.worth(C.clamp(min=1), spread_evenly(C, above), *labels.totals)
    z = metric.normaliser(labels.totals[0], labels.totals[1], scores.shape[-1])
    return losses_of(metric, (sizes[0] * worth).sum(-1, keepdim=True) / z, labels)


def weighted_losses(metric: PositionMetric, scores: Tensor, labels: Relevance, weight: Tensor) -> Tensor:
    """`tensor_losses` for items with weights.

    A tied relevant item, the heaviest first, ranks below its share of the tied irrelevant weight, rounded up to whole
    items as if these were equally heavy.
    """
    heaviest = weight.expand(scores.shape).argsort(dim=-1, descending=True, stable=True)
    negated = -torch.nan_to_num(scores, nan=largest(scores.dtype))
    ordered, order = negated.gather(-1, heaviest).sort(dim=-1, stable=True)
    sizes = labels.sizes.gather(-1, heaviest.gather(-1, order).expand(labels.sizes.shape))
    # The weight of relevant items, of irrelevant ones, and the number of irrelevant ones.
    sums = pad(torch.cat((sizes, precise(sizes[1:] > 0))).cumsum(-1), (1, 0))
    start, end = (
        sums.gather(-1, torch.searchsorted(ordered, ordered, right=right).expand(3, *ordered.shape))
        for right in (False, True)
    )
    C, (r, q, items) = sums[0, ..., 1:], end - start
    above = ((C - start[0]) / r * items - ROUNDING).ceil() / items.clamp(min=1)
    worth = torch.where(sizes[0] > 0, sizes[0] * metric.worth(C, start[1] + q * above, *labels.totals), 0.0)
    z = metric.normaliser(labels.totals[0], labels.totals[1], scores.shape[-1])
    return losses_of(metric, worth.sum(-1, keepdim=True) / z, labels)


def losses_of(metric: PositionMetric, value: Tensor, labels: Relevance) -> Tensor:
    """``best - M``, shape ``(...)``, for values ``(..., 1)``; 0 where nothing is relevant."""
    best = metric.best(labels.totals[0], labels.totals[1], labels.sizes.shape[-1])
    return ((best - value) * labels.present[0]).squeeze(-1)


def average_precision(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Average precision of each ranking: mean over the relevant items of the precision at their rank.

    NaN where nothing is relevant. Song et al. (ICML 2016), Eq. (4).

    Args:
        scores: shape ``(..., n)``, a higher score is a better rank.
        target: shape ``(..., n)``, 1 relevant and 0 irrelevant.
        mask: shape ``(..., n)``, False for padding.

    Examples:
        >>> average_precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 1]))
        tensor(0.8333)
    """
    return evaluate(AveragePrecisionMetric(), scores, target, mask)


def dcg(scores: Tensor, target: Tensor, k: int | None = None, mask: Tensor | None = None) -> Tensor:
    """Discounted cumulative gain with binary gains, over the first ``k`` ranks; arguments as `average_precision`.

    Examples:
        >>> dcg(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 1]))
        tensor(1.5000)
    """
    return evaluate(DCGMetric(k), scores, target, mask)


def ndcg(scores: Tensor, target: Tensor, k: int | None = None, mask: Tensor | None = None) -> Tensor:
    """DCG with binary gains over that of the perfect ranking; arguments as `average_precision`.

    Examples:
        >>> ndcg(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 1]), k=2)
        tensor(0.3869)
    """
    return evaluate(NDCGMetric(k), scores, target, mask)


def precision_at_k(scores: Tensor, target: Tensor, k: float = 10, mask: Tensor | None = None) -> Tensor:
    """Share of relevant items among the first ``k``, or the first 1 % for ``k=0.01``; arguments as `average_precision`.

    Examples:
        >>> precision_at_k(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 1]), k=2)
        tensor(0.5000)
    """
    return evaluate(PrecisionAtKMetric(k), scores, target, mask)


def recall_at_k(scores: Tensor, target: Tensor, k: float = 10, mask: Tensor | None = None) -> Tensor:
    """Share of the relevant items among the first ``k``, or the first 1 % for ``k=0.01``; arguments as
    `average_precision`.

    Examples:
        >>> recall_at_k(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 1]), k=1)
        tensor(0.5000)
    """
    return evaluate(RecallAtKMetric(k), scores, target, mask)


def reciprocal_rank(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """One over the rank of the first relevant item; arguments as `average_precision`.

    Examples:
        >>> reciprocal_rank(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 1]))
        tensor(0.5000)
    """
    return evaluate(ReciprocalRankMetric(), scores, target, mask)


def auc(scores: Tensor, target: Tensor, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
    """Area under the ROC curve: the share of pairs in the right order; arguments as `average_precision`.

    With ``weight``, shape ``(..., n)``, a pair counts as the product of the weights of its two items.

    Examples:
        >>> auc(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 1]))
        tensor(0.5000)
        >>> auc(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 1]), weight=torch.tensor([3.0, 1.0, 1.0]))
        tensor(0.7500)
    """
    if weight is None:
        return evaluate(PartialAUCMetric(), scores, target, mask)
    scores, target, mask = checked(scores, target, mask)
    check_finite(scores)
    weight = check_weight(weight, target.shape, "item")
    labels = relevance(target, mask, weight)
    value = torch.where(labels.counted, 1 - weighted_losses(PartialAUCMetric(), scores, labels, weight), torch.nan)
    return value.to(torch.promote_types(scores.dtype, torch.float32))


def partial_auc(scores: Tensor, target: Tensor, max_fpr: float = 0.1, mask: Tensor | None = None) -> Tensor:
    """Area under the ROC curve up to the false positive rate ``max_fpr``, divided by it; arguments as
    `average_precision`.

    Examples:
        >>> partial_auc(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([1, 0, 1, 0]), max_fpr=0.5)
        tensor(0.5000)
    """
    return evaluate(PartialAUCMetric(max_fpr), scores, target, mask)


def recall_at_fpr(scores: Tensor, target: Tensor, max_fpr: float = 0.01, mask: Tensor | None = None) -> Tensor:
    """The highest recall with a false positive rate of at most ``max_fpr``; arguments as `average_precision`.

    Examples:
        >>> recall_at_fpr(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([1, 0, 1, 0]), max_fpr=0.4)
        tensor(0.5000)
    """
    return evaluate(RecallAtFPRMetric(max_fpr), scores, target, mask)


def precision_at_recall(scores: Tensor, target: Tensor, recall: float = 0.9, mask: Tensor | None = None) -> Tensor:
    """The precision at the rank where the recall reaches ``recall``; arguments as `average_precision`.

    Examples:
        >>> precision_at_recall(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([1, 0, 1, 0]), recall=0.9)
        tensor(0.6667)
    """
    return evaluate(PrecisionAtRecallMetric(recall), scores, target, mask)
