"""Rankings of relevant and irrelevant items: one task for every metric of positions.

The output is a ranking, scored by F = 1/(PN) sum over pairs of y_ij (a_i - b_j) (Yue et al.; 001, Sec. 3), with the
loss ``1 - M`` (for DCG: ideal value minus value). Inference is a sort. Loss-augmented inference is exact for both
signs: O(n log n) for AP, NDCG, reciprocal rank, partial AUC (sign +1) and AUC (both signs), else a table that is
limited to the cells an optimum can reach; `directloss.kernels` has the formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from directloss._checks import DirectLossError, check_finite, check_labels, check_same_shape, fail
from directloss.kernels import BINARY, Rankings, auto_epsilon, solve_rankings
from directloss.kernels.tensor import position_loss
from directloss.metrics.ranking import (
    AveragePrecisionMetric,
    CustomMetric,
    DCGMetric,
    NDCGMetric,
    PartialAUCMetric,
    PositionMetric,
    PrecisionAtKMetric,
    RecallAtKMetric,
    ReciprocalRankMetric,
    counts,
)
from directloss.task import Solved, Task


class Ranking(NamedTuple):
    """A ranking as F sees it: only pairs of a relevant and an irrelevant item."""

    above: Tensor
    """For each item, how many items of the other class stand above it; 0 for padding. Shape ``(..., n)``."""
    coefficients: Tensor
    """dF/dscores: for each item (others - 2 above) / (PN). Shape ``(..., n)``, float64."""


class RankingTask(Task):
    """Rank relevant items above irrelevant ones, judged by a metric of their positions.

    Scores and target have shape ``(..., n)``; each list of n items is one problem. A list without a relevant or without
    an irrelevant item cannot be ranked wrong: it has loss 0, gradient 0, and does not count in the mean.
    """

    def __init__(self, metric: PositionMetric) -> None:
        self.metric = metric

    def predict(self, scores: Tensor) -> Tensor:
        """Rank of each item, 1 for the highest score; equal scores share the mean of their ranks."""
        negated = -scores.detach().to(torch.promote_types(scores.dtype, torch.float32)).contiguous()
        ordered = negated.sort(dim=-1).values
        above = torch.searchsorted(ordered, negated, side="left")
        not_below = torch.searchsorted(ordered, negated, side="right")
        return (above + not_below + 1).to(negated.dtype) / 2

    def infer(self, scores: Tensor, target: Tensor) -> Ranking:
        """The ranking as F sees it: pairs of a relevant and an irrelevant item alone, ties spread evenly."""
        lists = _Lists(self.metric, target)
        return lists.ranking(lists.solve(scores, above="predicted").above_predicted)

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Ranking:
        lists = _Lists(self.metric, target)
        return lists.ranking(lists.solve(scores, epsilon, sign, above="augmented").above_augmented)

    def truth(self, target: Tensor) -> Ranking:
        relevant, _ = counts(target)
        return _Lists(self.metric, target).ranking(torch.where(target == 0, relevant[..., None], 0))

    def loss(self, output: Tensor | Ranking, target: Tensor) -> Tensor:
        """The loss of a ranking, also of one that is given by plain ranks as `predict` returns them; in float64."""
        ranking = output if isinstance(output, Ranking) else self.infer(-output, target)
        return _Lists(self.metric, target).loss(ranking.above)

    def score(self, scores: Tensor, output: Ranking) -> Tensor:
        if not isinstance(output, Ranking):
            fail(
                "output", "must know which items are relevant before it has a score F", "a plain ranking",
                "Use task.infer(scores, target) instead of task.predict(scores).",
            )  # fmt: skip
        kind = torch.promote_types(scores.dtype, torch.float32)
        return (scores.to(kind) * output.coefficients.to(kind)).sum(-1)

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        check_same_shape(target, scores)
        if check_values:
            check_finite(scores)
            check_labels(target, hint=BINARY)

    def counted(self, target: Tensor) -> Tensor | None:
        relevant, irrelevant = counts(target)
        return (relevant > 0) & (irrelevant > 0)

    def auto_epsilon(self, scores: Tensor, target: Tensor) -> Tensor:
        """See `directloss.kernels.auto_epsilon`."""
        lists = _Lists(self.metric, target)
        flat = scores.detach().reshape(lists.target.shape)
        return auto_epsilon(flat, lists.target, lists.weights).reshape(target.shape[:-1])

    def fused(
        self,
        scores: Tensor,
        target: Tensor,
        epsilon: float | Tensor | None,
        sign: int,
        *,
        gradient: bool,
        check_values: bool,
    ) -> Solved:
        check_same_shape(target, scores)
        try:
            solved = _Lists(self.metric, target).solve(
                scores, epsilon, sign, gradient=gradient, check_values=check_values
            )
        except DirectLossError:
            # The kernel saw flattened lists; said again, the message has the index in the user's shape.
            self.check(scores, target, check_values=True)
            raise
        shape = scores.shape[:-1]
        return Solved(
            solved.loss.reshape(shape),
            None if solved.gradient is None else solved.gradient.reshape(scores.shape),
            None if solved.complete else (solved.counts > 0).all(1).reshape(shape),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._arguments()})"

    def _arguments(self) -> str:
        return ""


class _Lists:
    """A batch of lists laid out as the kernels want it: two dimensions."""

    def __init__(self, metric: PositionMetric, target: Tensor) -> None:
        self.shape = target.shape
        self.target = target.reshape(-1, target.shape[-1])
        self.weights = metric.weights(self.target)

    def solve(
        self,
        scores: Tensor,
        epsilon: float | Tensor | None = None,
        sign: int = +1,
        *,
        gradient: bool = False,
        above: str = "",
        check_values: bool = False,
    ) -> Rankings:
        """Run the kernel. Values are checked at the door for labels without padding."""
        flat = scores.detach().reshape(self.target.shape)
        return solve_rankings(
            flat, self.target, self.weights, epsilon=epsilon, sign=sign,
            gradient=gradient, above=above, check_values=check_values, padding=not check_values,
        )  # fmt: skip

    def loss(self, above: Tensor) -> Tensor:
        """The loss of rankings that are given by their counts."""
        flat = above.reshape(self.target.shape)
        n = torch.where(self.target == 1, flat, self.shape[-1]).sort(dim=1).values
        return position_loss(n, *counts(self.target), self.weights).reshape(self.shape[:-1])

    def ranking(self, above: Tensor | None) -> Ranking:
        """Counts together with the coefficients of F that follow from them."""
        if above is None:
            raise TypeError("the kernel returned no counts")
        flat = above.reshape(self.target.shape)
        relevant, irrelevant = (count[:, None] for count in counts(self.target))
        others = torch.where(self.target == 1, irrelevant, relevant)
        real = (self.target >= 0) & (irrelevant > 0) & (relevant > 0)
        coefficients = torch.where(real, (others - 2 * flat) / (relevant * irrelevant).clamp(min=1).double(), 0.0)
        return Ranking(flat.reshape(self.shape), coefficients.reshape(self.shape))


class AveragePrecision(RankingTask):
    """Average precision, the metric of the papers' experiments; 001, Eq. (4) and Sec. 3.

    ``L = 1 - 1/P sum_i i / (i + n_i)``. Sign +1 takes O(n log n), sign -1 a table of the misordered pairs.

    Example:
        >>> AveragePrecision().loss(AveragePrecision().predict(torch.tensor([3.0, 2.0, 1.0])), torch.tensor([1, 0, 1]))
        tensor(0.1667, dtype=torch.float64)
    """

    def __init__(self) -> None:
        super().__init__(AveragePrecisionMetric())


class _AtK(RankingTask):
    """Tasks with an optional cutoff."""

    def __init__(self, metric: PositionMetric, k: int | None) -> None:
        super().__init__(metric)
        self.k = k

    def _arguments(self) -> str:
        return "" if self.k is None else str(self.k)


class NDCG(_AtK):
    """Normalised discounted cumulative gain with binary gains, over the first ``k`` ranks (all by default).

    Example:
        >>> NDCG(10)
        NDCG(10)
    """

    def __init__(self, k: int | None = None) -> None:
        super().__init__(NDCGMetric(k), k)


class DCG(_AtK):
    """Discounted cumulative gain with binary gains; the loss is the ideal value minus the value.

    Example:
        >>> DCG(5)
        DCG(5)
    """

    def __init__(self, k: int | None = None) -> None:
        super().__init__(DCGMetric(k), k)


class PrecisionAtK(_AtK):
    """The share of relevant items among the first ``k``.

    Example:
        >>> PrecisionAtK(5)
        PrecisionAtK(5)
    """

    def __init__(self, k: int = 10) -> None:
        super().__init__(PrecisionAtKMetric(k), k)


class RecallAtK(_AtK):
    """The share of the relevant items that stand among the first ``k``.

    Example:
        >>> RecallAtK(5)
        RecallAtK(5)
    """

    def __init__(self, k: int = 10) -> None:
        super().__init__(RecallAtKMetric(k), k)


class ReciprocalRank(RankingTask):
    """One over the rank of the first relevant item; its mean over queries is MRR.

    Example:
        >>> ReciprocalRank()
        ReciprocalRank()
    """

    def __init__(self) -> None:
        super().__init__(ReciprocalRankMetric())


class AUC(RankingTask):
    """Area under the ROC curve: the share of pairs in the right order.

    Example:
        >>> AUC()
        AUC()
    """

    def __init__(self) -> None:
        super().__init__(PartialAUCMetric())


class PartialAUC(RankingTask):
    """Area under the ROC curve up to the false positive rate ``max_fpr``, divided by it.

    Example:
        >>> PartialAUC(0.1)
        PartialAUC(0.1)
    """

    def __init__(self, max_fpr: float = 0.1) -> None:
        super().__init__(PartialAUCMetric(max_fpr))
        self.max_fpr = max_fpr

    def _arguments(self) -> str:
        return str(self.max_fpr)


class PositionTask(RankingTask):
    """Your own position metric: ``M = sum_i m(i, n_i) / sum_i m(i, 0)``.

    ``m(i, n)`` is the worth of the i-th relevant item when n irrelevant ones stand above it. It gets two float64
    tensors that broadcast against each other and must not grow with n.

    Example:
        >>> PositionTask(lambda i, n: 0.9 ** (i + n))
        PositionTask(<lambda>)
    """

    def __init__(self, weight: Callable[[Tensor, Tensor], Tensor]) -> None:
        if not callable(weight):
            fail("weight", "must be a function m(i, n) of two tensors", repr(weight))
        super().__init__(CustomMetric(weight))

    def _arguments(self) -> str:
        weight = self.metric.weight  # type: ignore[attr-defined]
        return str(getattr(weight, "__name__", repr(weight)))
