"""The area under the ROC curve, also of weighted items: O(n log n), exact for both signs."""

from __future__ import annotations

from torch import Tensor

from directloss.kernels import weighted
from directloss.metrics.ranking import PartialAUCMetric
from directloss.task import Solve, Solved
from directloss.tasks.ranking import ListTask, Ranking, RankingTask


class AUC(RankingTask):
    """Area under the ROC curve: the share of pairs in the right order.

    With item weights (``weight`` in the shape of the target) a pair counts as the product of its two weights, in F and
    in the loss; see `directloss.kernels.weighted`.

    Examples:
        >>> AUC()
        AUC()
    """

    def __init__(self) -> None:
        super().__init__(PartialAUCMetric())

    def weighted(self, weight: Tensor) -> WeightedAUC:
        return WeightedAUC(weight)

    def __repr__(self) -> str:
        return "AUC()"


class WeightedAUC(AUC):
    """`AUC` of lists with item weights ``(..., n)``; created per call from its ``weight``.

    Examples:
        >>> import torch
        >>> task = WeightedAUC(torch.tensor([1.0, 3.0, 2.0]))
        >>> task.loss(task.predict(torch.tensor([3.0, 2.0, 1.0])), torch.tensor([0, 0, 1]))
        tensor(1., dtype=torch.float64)
        >>> task.loss(task.predict(torch.tensor([3.0, 1.0, 2.0])), torch.tensor([0, 0, 1]))
        tensor(0.2500, dtype=torch.float64)
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    def infer(self, scores: Tensor, target: Tensor) -> Ranking:
        items = weighted.weigh(scores.detach(), target, self.weight)
        return _weighted_ranking(items, weighted.predicted_above(items))

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Ranking:
        items = weighted.weigh(scores.detach(), target, self.weight)
        return _weighted_ranking(items, weighted.augmented_above(items, epsilon, sign))

    def truth(self, target: Tensor) -> Ranking:
        items = weighted.weigh(target, target, self.weight)
        return _weighted_ranking(items, weighted.true_above(items))

    def loss(self, output: Tensor | Ranking, target: Tensor) -> Tensor:
        ranking = output if isinstance(output, Ranking) else self.infer(-output, target)
        return weighted.pair_loss(weighted.weigh(target, target, self.weight), ranking.above)

    def counted(self, target: Tensor) -> Tensor | None:
        """Lists in which both classes have a positive weight."""
        relevant, irrelevant = weighted.weigh(target, target, self.weight).mass
        return (relevant > 0) & (irrelevant > 0)

    def unit_epsilon(self, scores: Tensor, target: Tensor) -> float:
        """2, as without weights: a pair has the same weight in F and in the loss."""
        return 2.0

    def fused(self, scores: Tensor, target: Tensor, request: Solve) -> Solved:
        return ListTask.fused(self, scores, target, request)

    def __repr__(self) -> str:
        return "AUC() with weights of items"


def _weighted_ranking(items: weighted.WeightedItems, above: Tensor) -> Ranking:
    return Ranking(above, weighted.coefficients(items, above))
