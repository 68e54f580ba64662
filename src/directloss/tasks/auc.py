"""The area under the ROC curve, also of weighted items: O(n log n), exact for both signs."""

from __future__ import annotations

import torch
from torch import Tensor

from directloss.kernels import weighted as pairs
from directloss.metrics.ranking import PartialAUCMetric
from directloss.task import Solve, Solved
from directloss.tasks.ranking import ListTask, Ranking, RankingTask


class AUC(RankingTask):
    """Area under the ROC curve: the share of pairs in the right order.

    With item weights (``weight`` of the losses, in the shape of the target) a pair counts as the product of its two
    weights, in F and in the loss; see `directloss.kernels.weighted`.

    Examples:
        >>> AUC()
        AUC()
        >>> task = AUC().weighted(torch.tensor([1.0, 3.0, 2.0]))
        >>> task.loss(task.predict(torch.tensor([3.0, 1.0, 2.0])), torch.tensor([0, 0, 1]))
        tensor(0.2500, dtype=torch.float64)
    """

    def __init__(self) -> None:
        super().__init__(PartialAUCMetric())
        self.weight: Tensor | None = None

    def weighted(self, weight: Tensor) -> AUC:
        task = AUC()
        task.weight = weight
        return task

    def _items(self, scores: Tensor, target: Tensor) -> pairs.WeightedItems:
        return pairs.weigh(scores.detach(), target, torch.ones_like(target) if self.weight is None else self.weight)

    def infer(self, scores: Tensor, target: Tensor) -> Ranking:
        items = self._items(scores, target)
        return _ranking(items, pairs.predicted_above(items))

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Ranking:
        items = self._items(scores, target)
        return _ranking(items, pairs.augmented_above(items, epsilon, sign))

    def truth(self, target: Tensor) -> Ranking:
        items = self._items(target, target)
        return _ranking(items, pairs.true_above(items))

    def loss(self, output: Tensor | Ranking, target: Tensor) -> Tensor:
        ranking = output if isinstance(output, Ranking) else self.infer(-output, target)
        return pairs.pair_loss(self._items(target, target), ranking.above)

    def counted(self, target: Tensor) -> Tensor | None:
        """Lists in which both classes have a positive weight."""
        relevant, irrelevant = self._items(target, target).mass
        return (relevant > 0) & (irrelevant > 0)

    def unit_epsilon(self, scores: Tensor, target: Tensor) -> float:
        """2: a pair has the same weight in F and in the loss."""
        return 2.0

    def fused(self, scores: Tensor, target: Tensor, request: Solve) -> Solved:
        return ListTask.fused(self, scores, target, request)

    def __repr__(self) -> str:
        return "AUC()" if self.weight is None else "AUC() with weights of items"


def _ranking(items: pairs.WeightedItems, above: Tensor) -> Ranking:
    return Ranking(above, pairs.coefficients(items, above))
