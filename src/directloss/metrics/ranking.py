"""Metrics of rankings of relevant (1) and irrelevant (0) items: one definition of each.

All are position metrics: with ``n_i`` irrelevant items above the i-th relevant one (which is then at rank ``i +
n_i``),

    M = 1/z * sum_i m_i(n_i)

Training and evaluation use the same weights ``m`` and the same rule for ties (see `directloss.kernels`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from directloss._checks import check_count, check_finite, check_positive, check_weight, fail, precise
from directloss.kernels import PositionWeights, solve_rankings, weighted
from directloss.metrics.classification import checked


@dataclass(frozen=True)
class PositionMetric:
    """A metric ``1/z * sum_i m_i(n_i)`` with weights ``m_i(n)`` that never rise with n. The loss is ``best - M``."""

    needs_irrelevant: bool = field(default=False, init=False, repr=False)

    def weights(self, target: Tensor) -> PositionWeights:
        """The weights m, z and best for lists ``(b, n)``. Most metrics only use their length."""
        raise TypeError(f"{type(self).__name__} must define weights")


@lru_cache(maxsize=64)
def _tables(kind: str, cutoff: int, z: str, best: str, size: int, device: torch.device) -> Tensor:
    """Weights of the ranks 0 ... size - 1 (rank 0 is unused), their decrease from the rank before, and z and best for
    each P.
    """
    rank = torch.arange(size, dtype=torch.float64)
    count = rank.clamp(min=1)
    one = torch.ones_like(rank)
    weight = {"reciprocal": 1 / count, "discount": 1 / torch.log2(1 + count), "one": one.clone()}[kind]
    weight[0] = 0
    before = (count - 1).clamp(min=1)
    drop = {
        "reciprocal": 1 / (count * before),
        "discount": torch.log1p(1 / count) / (math.log(2) * torch.log2(1 + count) * torch.log2(1 + before)),
        "one": torch.zeros_like(rank),
    }[kind]
    if cutoff:
        weight[cutoff + 1 :] = 0
    # The sums stop growing at the cutoff, so they are the values of the perfect ranking for every P.
    ideal = weight.cumsum(0)
    scale = {"one": one, "relevant": count, "cutoff": one * max(cutoff, 1), "ideal": torch.where(ideal > 0, ideal, 1.0)}
    # Computed on the CPU: not every device has float64.
    return precise(torch.stack((weight, drop, scale[z], {"one": one, "ideal": ideal}[best])), device)


def _tables_for(target: Tensor, kind: str, *, z: str, best: str = "one", cutoff: int = 0) -> Tensor:
    """Tables long enough for these lists. Lengths are powers of two, so only few are ever built."""
    return _tables(kind, cutoff, z, best, 1 << (max(target.shape[-1], cutoff) + 2).bit_length(), target.device)


@dataclass(frozen=True)
class AveragePrecisionMetric(PositionMetric):
    """``m_i(n) = i / (i + n)``, z = P: the mean precision at the ranks of the relevant items; Song et al., Eq. (4)."""

    def weights(self, target: Tensor) -> PositionWeights:
        return PositionWeights(_tables_for(target, "reciprocal", z="relevant"), rising=True, convex=True, peak=0.5)


@dataclass(frozen=True)
class DCGMetric(PositionMetric):
    """``m_i(n) = 1 / log2(1 + i + n)`` for ranks up to k, z = 1; the loss is relative to the perfect ranking."""

    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None:
            check_count("k", self.k)

    def weights(self, target: Tensor, z: str = "one", best: str = "ideal") -> PositionWeights:
        cutoff = 0 if self.k is None or self.k >= target.shape[-1] else self.k
        tables = _tables_for(target, "discount", z=z, best=best, cutoff=cutoff)
        # From rank 1 to rank 2, or from the last rank that counts to the next.
        peak = max(1 - 1 / math.log2(3), 1 / math.log2(1 + cutoff) if cutoff else 0.0)
        return PositionWeights(tables, cutoff=cutoff, convex=cutoff == 0, peak=peak)


@dataclass(frozen=True)
class NDCGMetric(DCGMetric):
    """DCG with binary gains divided by that of the perfect ranking."""

    def weights(self, target: Tensor, z: str = "ideal", best: str = "one") -> PositionWeights:
        return super().weights(target, z, best)


@dataclass(frozen=True)
class PrecisionAtKMetric(PositionMetric):
    """``m_i(n) = [i + n <= k]``, z = k: the share of relevant items among the first k."""

    k: int = 10

    def __post_init__(self) -> None:
        check_count("k", self.k)

    def weights(self, target: Tensor, z: str = "cutoff") -> PositionWeights:
        return PositionWeights(_tables_for(target, "one", z=z, cutoff=self.k), cutoff=self.k)


@dataclass(frozen=True)
class RecallAtKMetric(PrecisionAtKMetric):
    """``m_i(n) = [i + n <= k]``, z = P: the share of the relevant items that are among the first k."""

    def weights(self, target: Tensor, z: str = "relevant") -> PositionWeights:
        return super().weights(target, z)


@dataclass(frozen=True)
class ReciprocalRankMetric(PositionMetric):
    """``m_1(n) = 1 / (1 + n)``, z = 1: the reciprocal rank of the first relevant item."""

    def weights(self, target: Tensor) -> PositionWeights:
        return PositionWeights(_tables_for(target, "reciprocal", z="one"), first=True, convex=True, peak=0.5)


@dataclass(frozen=True)
class PartialAUCMetric(PositionMetric):
    """``m_i(n) = max(0, x N - n)``, z = P x N: area under the ROC curve up to the false positive rate x, over x.

    x = 1 is the whole area: the share of pairs in the right order.
    """

    max_fpr: float = 1.0
    needs_irrelevant: bool = field(default=True, init=False, repr=False)

    def __post_init__(self) -> None:
        if check_positive("max_fpr", self.max_fpr) > 1:
            fail("max_fpr", "must be at most 1", self.max_fpr)

    def weights(self, target: Tensor) -> PositionWeights:
        tables = _tables_for(target, "one", z="relevant")
        return PositionWeights(tables, stride=0, max_fpr=float(self.max_fpr), convex=True, linear=self.max_fpr == 1)


@dataclass(frozen=True)
class CustomMetric(PositionMetric):
    """A user-defined ``m(i, n)``, not increasing with n; z is its sum over the perfect ranking.

    ``weight`` is called once per batch with ``i`` of shape ``(P, 1)`` from 1 and ``n`` of shape ``(1, N + 1)`` from 0,
    both float64. It takes the time and memory of a table of P (N + 1) numbers.
    """

    weight: Callable[[Tensor, Tensor], Tensor] = field(default=lambda i, n: i / (i + n))

    def weights(self, target: Tensor) -> PositionWeights:
        relevant, irrelevant = counts(target)
        table = self._table(max(int(relevant.max()), 1), int(irrelevant.max()), target.device)
        ideal = table[:, 0].cumsum(0)
        if bool((ideal <= 0).any()):
            fail("weight(i, n)", "must have a positive sum over the perfect ranking", ideal.min().item())
        P, wide = table.shape
        tables = table.new_ones(4, max(P * wide, P + 1))
        tables[0, : P * wide] = table.flatten()
        tables[2, 1 : P + 1] = ideal
        drop = float((table[:, :-1] - table[:, 1:]).amax()) if wide > 1 else 0.0
        return PositionWeights(tables, stride=wide, base=-wide, peak=drop or 1.0)

    def _table(self, P: int, N: int, device: torch.device) -> Tensor:
        i = torch.arange(1, P + 1, dtype=torch.float64, device=device)[:, None]
        n = torch.arange(N + 1, dtype=torch.float64, device=device)[None]
        table = torch.as_tensor(self.weight(i, n), dtype=torch.float64, device=device)
        try:
            table = table.expand(P, N + 1)
        except RuntimeError:
            fail("weight(i, n)", f"must have shape {(P, N + 1)} here", f"of shape {tuple(table.shape)}")
        check_finite(table, "weight(i, n)")
        grows = table[:, 1:] > table[:, :-1]
        if bool(grows.any()):
            row, column = grows.nonzero()[0].tolist()
            found = f"increasing from n = {column} to {column + 1} at i = {row + 1}"
            fail("weight(i, n)", "must not increase with n", found)
        return table


def counts(target: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of relevant and irrelevant items along the last dimension, without padding."""
    return (target == 1).sum(-1), (target == 0).sum(-1)


def evaluate(metric: PositionMetric, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """The metric of each ranking, shape ``b``; NaN where undefined (nothing relevant, or no pairs for AUC)."""
    scores, target = checked(scores, target, mask)
    weights = metric.weights(target)
    solved = solve_rankings(scores, target, weights)
    relevant, irrelevant = solved.counts.unbind(-1)
    undefined = relevant == 0
    if metric.needs_irrelevant:
        undefined |= irrelevant == 0
    value = torch.where(undefined, torch.nan, weights.best[relevant] - solved.loss)
    return value.to(torch.promote_types(scores.dtype, torch.float32))


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


def precision_at_k(scores: Tensor, target: Tensor, k: int = 10, mask: Tensor | None = None) -> Tensor:
    """Share of relevant items among the first ``k``; arguments as `average_precision`.

    Examples:
        >>> precision_at_k(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 1]), k=2)
        tensor(0.5000)
    """
    return evaluate(PrecisionAtKMetric(k), scores, target, mask)


def recall_at_k(scores: Tensor, target: Tensor, k: int = 10, mask: Tensor | None = None) -> Tensor:
    """Share of the relevant items that are among the first ``k``; arguments as `average_precision`.

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
    scores, target = checked(scores, target, mask)
    check_finite(scores)
    weight = check_weight(weight, target.shape, "item")
    items = weighted.weigh(scores, target, weight)
    relevant, irrelevant = items.mass
    value = 1 - weighted.pair_loss(items, weighted.predicted_above(items))
    value = torch.where((relevant > 0) & (irrelevant > 0), value, torch.nan)
    return value.to(torch.promote_types(scores.dtype, torch.float32))


def partial_auc(scores: Tensor, target: Tensor, max_fpr: float = 0.1, mask: Tensor | None = None) -> Tensor:
    """Area under the ROC curve up to the false positive rate ``max_fpr``, divided by it; arguments as
    `average_precision`.

    Examples:
        >>> partial_auc(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([1, 0, 1, 0]), max_fpr=0.5)
        tensor(0.5000)
    """
    return evaluate(PartialAUCMetric(max_fpr), scores, target, mask)
