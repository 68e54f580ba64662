"""Metrics of a ranking of relevant (1) and irrelevant (0) items: each is defined here, and only here.

All are position metrics: with ``n_i`` irrelevant items above the i-th relevant one (which then stands at rank ``i + n_i``),

    M = 1/z * sum_i m_i(n_i)

Training and evaluation use the same weights ``m`` and the same rule for ties (see `directloss.kernels`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from directloss._checks import (
    IGNORE,
    check_count,
    check_finite,
    check_labels,
    check_mask,
    check_positive,
    check_same_shape,
    check_scores,
    fail,
)
from directloss.kernels import PositionWeights, solve_rankings


@dataclass(frozen=True)
class PositionMetric:
    """A metric ``1/z * sum_i m_i(n_i)`` with weights ``m_i(n)`` that never grow with n."""

    needs_irrelevant: bool = field(default=False, init=False, repr=False)

    def weights(self, relevant: Tensor, irrelevant: Tensor) -> PositionWeights:
        """The weights m for problems with these numbers of items, shape ``(b,)`` each."""
        raise TypeError(f"{type(self).__name__} must define weights")

    def z(self, relevant: Tensor, irrelevant: Tensor) -> Tensor:
        """The normaliser, float64, shape ``(b,)``, never 0."""
        return relevant.clamp(min=1).double()

    def best(self, relevant: Tensor, irrelevant: Tensor) -> Tensor:
        """The loss is ``best - M``: 1, unless the metric has another scale."""
        return torch.ones_like(relevant, dtype=torch.float64)


@lru_cache(maxsize=64)
def _tables(kind: str, cutoff: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Weights of the ranks 0 ... size - 1 (rank 0 does not exist) and their sums; zero beyond the cutoff."""
    rank = torch.arange(size, dtype=torch.float64, device=device)
    if kind == "reciprocal":
        table = 1 / rank.clamp(min=1)
    elif kind == "discount":
        table = 1 / torch.log2(1 + rank.clamp(min=1))
    else:
        table = torch.ones_like(rank)
    table[0] = 0
    if cutoff:
        table[cutoff + 1 :] = 0
    return table[None], table.cumsum(0)[None]


def _rank_tables(kind: str, cutoff: int, relevant: Tensor, irrelevant: Tensor) -> tuple[Tensor, Tensor]:
    """Tables long enough for the longest list. Lengths are powers of two, so that few are ever built."""
    longest = int((relevant + irrelevant).max())
    return _tables(kind, cutoff, 1 << (longest + 2).bit_length(), relevant.device)


@dataclass(frozen=True)
class AveragePrecisionMetric(PositionMetric):
    """``m_i(n) = i / (i + n)``, z = P: the mean precision at the ranks of the relevant items; 001, Eq. (4)."""

    def weights(self, relevant: Tensor, irrelevant: Tensor) -> PositionWeights:
        return PositionWeights(*_rank_tables("reciprocal", 0, relevant, irrelevant), alpha=0.0, beta=1.0, convex=True)


@dataclass(frozen=True)
class DCGMetric(PositionMetric):
    """``m_i(n) = 1 / log2(1 + i + n)`` for ranks up to k, z = 1. The loss is the ideal value minus the value."""

    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None:
            check_count("k", self.k)

    def weights(self, relevant: Tensor, irrelevant: Tensor) -> PositionWeights:
        longest = int((relevant + irrelevant).max())
        cutoff = 0 if self.k is None or self.k >= longest else self.k
        tables = _rank_tables("discount", cutoff, relevant, irrelevant)
        return PositionWeights(*tables, cutoff=cutoff, convex=cutoff == 0)

    def ideal(self, relevant: Tensor) -> Tensor:
        """The value of the perfect ranking."""
        _, sums = _rank_tables("discount", 0, relevant, torch.zeros_like(relevant))
        return sums[0, relevant if self.k is None else relevant.clamp(max=self.k)]

    def z(self, relevant: Tensor, irrelevant: Tensor) -> Tensor:
        return torch.ones_like(relevant, dtype=torch.float64)

    def best(self, relevant: Tensor, irrelevant: Tensor) -> Tensor:
        return self.ideal(relevant)


@dataclass(frozen=True)
class NDCGMetric(DCGMetric):
    """DCG with binary gains over its value for the perfect ranking."""

    def z(self, relevant: Tensor, irrelevant: Tensor) -> Tensor:
        return self.ideal(relevant.clamp(min=1))

    def best(self, relevant: Tensor, irrelevant: Tensor) -> Tensor:
        return PositionMetric.best(self, relevant, irrelevant)


@dataclass(frozen=True)
class PrecisionAtKMetric(PositionMetric):
    """``m_i(n) = [i + n <= k]``, z = k: the share of relevant items among the first k."""

    k: int = 10

    def __post_init__(self) -> None:
        check_count("k", self.k)

    def weights(self, relevant: Tensor, irrelevant: Tensor) -> PositionWeights:
        longest = int((relevant + irrelevant).max())
        cutoff = min(self.k, longest)
        return PositionWeights(*_rank_tables("one", cutoff, relevant, irrelevant), cutoff=cutoff)

    def z(self, relevant: Tensor, irrelevant: Tensor) -> Tensor:
        return torch.full_like(relevant, self.k, dtype=torch.float64)


@dataclass(frozen=True)
class RecallAtKMetric(PrecisionAtKMetric):
    """``m_i(n) = [i + n <= k]``, z = P: the share of the relevant items that are among the first k."""

    def z(self, relevant: Tensor, irrelevant: Tensor) -> Tensor:
        return PositionMetric.z(self, relevant, irrelevant)


@dataclass(frozen=True)
class ReciprocalRankMetric(PositionMetric):
    """``m_1(n) = 1 / (1 + n)``, z = 1: one over the rank of the first relevant item."""

    def weights(self, relevant: Tensor, irrelevant: Tensor) -> PositionWeights:
        return PositionWeights(*_rank_tables("reciprocal", 0, relevant, irrelevant), first=True, convex=True)

    def z(self, relevant: Tensor, irrelevant: Tensor) -> Tensor:
        return torch.ones_like(relevant, dtype=torch.float64)


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

    def weights(self, relevant: Tensor, irrelevant: Tensor) -> PositionWeights:
        n = torch.arange(int(irrelevant.max()) + 2, dtype=torch.float64, device=irrelevant.device)
        table = (self.max_fpr * irrelevant[:, None].double() - n).clamp(min=0)
        return PositionWeights(table, table, stride=0, convex=True, linear=self.max_fpr == 1)

    def z(self, relevant: Tensor, irrelevant: Tensor) -> Tensor:
        return self.max_fpr * (relevant * irrelevant).clamp(min=1).double()


@dataclass(frozen=True)
class CustomMetric(PositionMetric):
    """Any ``m(i, n)`` that a user writes, not growing with n; z is its sum over the perfect ranking.

    ``weight`` is called once per batch with ``i`` of shape ``(P, 1)`` from 1 and ``n`` of shape ``(1, N + 1)`` from 0,
    both float64. Time and memory are those of a table of P (N + 1) numbers.
    """

    weight: Callable[[Tensor, Tensor], Tensor] = field(default=lambda i, n: i / (i + n))

    def _table(self, relevant: Tensor, irrelevant: Tensor) -> Tensor:
        P, N = max(int(relevant.max()), 1), int(irrelevant.max())
        i = torch.arange(1, P + 1, dtype=torch.float64, device=relevant.device)[:, None]
        n = torch.arange(N + 1, dtype=torch.float64, device=relevant.device)[None]
        table = torch.as_tensor(self.weight(i, n), dtype=torch.float64, device=relevant.device)
        try:
            table = table.expand(P, N + 1)
        except RuntimeError:
            fail("weight(i, n)", f"must have shape {(P, N + 1)} here", f"of shape {tuple(table.shape)}")
        check_finite(table, "weight(i, n)")
        if bool((table[:, 1:] > table[:, :-1]).any()):
            row, column = (table[:, 1:] > table[:, :-1]).nonzero()[0].tolist()
            fail("weight(i, n)", "must not grow with n", f"growing from n = {column} to {column + 1} at i = {row + 1}")
        return table

    def weights(self, relevant: Tensor, irrelevant: Tensor) -> PositionWeights:
        table = self._table(relevant, irrelevant)
        flat = table.reshape(1, -1).contiguous()
        return PositionWeights(flat, flat, stride=table.shape[1], base=-table.shape[1])

    def z(self, relevant: Tensor, irrelevant: Tensor) -> Tensor:
        ideal = self._table(relevant, torch.zeros_like(irrelevant))[:, 0].cumsum(0)
        total = ideal[(relevant - 1).clamp(min=0)]
        if bool((total <= 0).any()):
            fail("weight(i, n)", "must have a positive sum over the perfect ranking", total.min().item())
        return total


def counts(target: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of relevant and irrelevant items over the last dimension; padding is neither."""
    return (target == 1).sum(-1), (target == 0).sum(-1)


def evaluate(metric: PositionMetric, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """The metric of each ranking, shape ``b``; NaN where it is not defined (nothing relevant, or no pairs for AUC)."""
    scores = check_scores(scores, 1, "(..., n)").detach()
    target = check_same_shape(target, scores)
    check_labels(target)
    if mask is not None:
        mask = check_mask(mask, target.shape, "target")
        scores = torch.where(mask, scores, 0.0)
        target = torch.where(mask, target.to(torch.int8), IGNORE)
    check_finite(scores)
    n = scores.shape[-1]
    flat = target.reshape(-1, n).to(torch.int8)
    relevant, irrelevant = counts(flat)
    best = metric.best(relevant, irrelevant)
    solved = solve_rankings(
        scores.reshape(-1, n), flat, metric.weights(relevant, irrelevant), metric.z(relevant, irrelevant), best
    )
    undefined = relevant == 0
    if metric.needs_irrelevant:
        undefined |= irrelevant == 0
    value = torch.where(undefined, torch.nan, best - solved.loss)
    return value.reshape(scores.shape[:-1]).to(torch.promote_types(scores.dtype, torch.float32))


def average_precision(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Average precision of each ranking: mean over the relevant items of the precision at their rank; 001, Eq. (4).

    Args:
        scores: shape ``(..., n)``, a higher score is a better rank.
        target: shape ``(..., n)``, 1 relevant and 0 irrelevant.
        mask: shape ``(..., n)``, False for padding.

    Example:
        >>> average_precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 1]))
        tensor(0.8333)
    """
    return evaluate(AveragePrecisionMetric(), scores, target, mask)


def dcg(scores: Tensor, target: Tensor, k: int | None = None, mask: Tensor | None = None) -> Tensor:
    """Discounted cumulative gain with binary gains, over the first ``k`` ranks; arguments as `average_precision`.

    Example:
        >>> dcg(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 1]))
        tensor(1.5000)
    """
    return evaluate(DCGMetric(k), scores, target, mask)


def ndcg(scores: Tensor, target: Tensor, k: int | None = None, mask: Tensor | None = None) -> Tensor:
    """DCG with binary gains over that of the perfect ranking; arguments as `average_precision`.

    Example:
        >>> ndcg(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 1]), k=2)
        tensor(0.3869)
    """
    return evaluate(NDCGMetric(k), scores, target, mask)


def precision_at_k(scores: Tensor, target: Tensor, k: int = 10, mask: Tensor | None = None) -> Tensor:
    """Share of relevant items among the first ``k``; arguments as `average_precision`.

    Example:
        >>> precision_at_k(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 1]), k=2)
        tensor(0.5000)
    """
    return evaluate(PrecisionAtKMetric(k), scores, target, mask)


def recall_at_k(scores: Tensor, target: Tensor, k: int = 10, mask: Tensor | None = None) -> Tensor:
    """Share of the relevant items that stand among the first ``k``; arguments as `average_precision`.

    Example:
        >>> recall_at_k(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 1]), k=1)
        tensor(0.5000)
    """
    return evaluate(RecallAtKMetric(k), scores, target, mask)


def reciprocal_rank(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """One over the rank of the first relevant item; arguments as `average_precision`.

    Example:
        >>> reciprocal_rank(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 1]))
        tensor(0.5000)
    """
    return evaluate(ReciprocalRankMetric(), scores, target, mask)


def auc(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Area under the ROC curve: the share of pairs in the right order; arguments as `average_precision`.

    Example:
        >>> auc(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 1]))
        tensor(0.5000)
    """
    return evaluate(PartialAUCMetric(), scores, target, mask)


def partial_auc(scores: Tensor, target: Tensor, max_fpr: float = 0.1, mask: Tensor | None = None) -> Tensor:
    """Area under the ROC curve up to the false positive rate ``max_fpr``, divided by it; arguments as `average_precision`.

    Example:
        >>> partial_auc(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([1, 0, 1, 0]), max_fpr=0.5)
        tensor(0.5000)
    """
    return evaluate(PartialAUCMetric(max_fpr), scores, target, mask)
