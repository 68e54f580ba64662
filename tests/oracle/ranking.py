"""Rankings by brute force: every order of the items, every pair of F, every metric from the sorted labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import permutations

import torch
from torch import Tensor

from directloss import tasks
from tests.oracle import Case, draw_scores

Value = Callable[[list[int]], float]


def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Up to 6 items, at least one of each kind."""
    n = int(torch.randint(2, 7, (), generator=generator))
    target = torch.randint(0, 2, (n,), generator=generator)
    target[0], target[1] = 1, 0
    return draw_scores((n,), generator), target[torch.randperm(n, generator=generator)]


def outputs(loss: Value) -> Callable[[Tensor, Tensor], Iterable[tuple[float, float]]]:
    """(F, L) of every order, with the loss computed from the labels from top to bottom."""

    def every(scores: Tensor, target: Tensor) -> Iterable[tuple[float, float]]:
        s, t = scores.tolist(), target.tolist()
        relevant, irrelevant = [i for i, y in enumerate(t) if y == 1], [i for i, y in enumerate(t) if y == 0]
        for order in permutations(range(len(s))):
            place = {item: rank for rank, item in enumerate(order)}
            pairs = [(s[i] - s[j]) * (1 if place[i] < place[j] else -1) for i in relevant for j in irrelevant]
            yield sum(pairs) / (len(relevant) * len(irrelevant)), loss([t[item] for item in order])

    return every


def ap(labels: list[int]) -> float:
    hits = [sum(labels[: k + 1]) / (k + 1) for k, y in enumerate(labels) if y]
    return 1 - sum(hits) / sum(labels)


def _dcg(labels: list[int], k: int) -> float:
    return sum(y / math.log2(rank + 2) for rank, y in enumerate(labels[:k]))


def dcg(k: int) -> Value:
    return lambda labels: _dcg(sorted(labels, reverse=True), k) - _dcg(labels, k)


def ndcg(k: int) -> Value:
    return lambda labels: 1 - _dcg(labels, k) / _dcg(sorted(labels, reverse=True), k)


def precision(k: int) -> Value:
    return lambda labels: 1 - sum(labels[:k]) / k


def recall(k: int) -> Value:
    return lambda labels: 1 - sum(labels[:k]) / sum(labels)


def reciprocal_rank(labels: list[int]) -> float:
    return 1 - 1 / (1 + labels.index(1))


def partial_auc(max_fpr: float) -> Value:
    """The area under the ROC curve as a sum over its steps to the right, the last one cut at ``max_fpr``."""

    def loss(labels: list[int]) -> float:
        relevant, irrelevant = sum(labels), len(labels) - sum(labels)
        area = tpr = fpr = 0.0
        for y in labels:
            if y:
                tpr += 1 / relevant
            else:
                step = min(1 / irrelevant, max(0.0, max_fpr - fpr))
                area += tpr * step
                fpr += 1 / irrelevant
        return 1 - area / max_fpr

    return loss


def recall_at_fpr(max_fpr: float) -> Value:
    """The recall of the longest list from the top with at most so many irrelevant items."""

    def loss(labels: list[int]) -> float:
        relevant, irrelevant = sum(labels), len(labels) - sum(labels)
        fits = [k for k in range(len(labels) + 1) if labels[:k].count(0) <= max_fpr * irrelevant]
        return 1 - sum(labels[: max(fits)]) / relevant

    return loss


def precision_at_recall(recall: float) -> Value:
    """The precision of the shortest list from the top that holds so much of the relevant items."""

    def loss(labels: list[int]) -> float:
        enough = next(k for k in range(1, len(labels) + 1) if sum(labels[:k]) >= recall * sum(labels))
        return 1 - sum(labels[:enough]) / enough

    return loss


def geometric(labels: list[int]) -> float:
    worth = [0.9 ** (rank + 1) for rank, y in enumerate(labels) if y]
    return 1 - sum(worth) / sum(0.9 ** (i + 1) for i in range(len(worth)))


def rank_biased(i: Tensor, n: Tensor) -> Tensor:
    """The position weight of `geometric`, as a user would write it."""
    return 0.9 ** (i + n)


CASES = {
    "ap": Case(draw, outputs(ap)),
    "ndcg": Case(draw, outputs(ndcg(10))),
    "ndcg@3": Case(draw, outputs(ndcg(3))),
    "dcg": Case(draw, outputs(dcg(10))),
    "dcg@2": Case(draw, outputs(dcg(2))),
    "precision@3": Case(draw, outputs(precision(3)), lambda: tasks.PrecisionAtK(3)),
    "precision@8": Case(draw, outputs(precision(8)), lambda: tasks.PrecisionAtK(8)),
    "recall@1": Case(draw, outputs(recall(1)), lambda: tasks.RecallAtK(1)),
    "recall@2": Case(draw, outputs(recall(2)), lambda: tasks.RecallAtK(2)),
    "precision@40%": Case(draw, outputs(lambda labels: precision(math.ceil(len(labels) * 2 / 5))(labels))),
    "recall@30%": Case(draw, outputs(lambda labels: recall(math.ceil(len(labels) * 3 / 10))(labels))),
    "mrr": Case(draw, outputs(reciprocal_rank)),
    "auc": Case(draw, outputs(partial_auc(1.0))),
    "pauc": Case(draw, outputs(partial_auc(0.1))),
    "pauc@0.6": Case(draw, outputs(partial_auc(0.6))),
    "recall_at_fpr@0.3": Case(draw, outputs(recall_at_fpr(0.3))),
    "precision_at_recall@0.6": Case(draw, outputs(precision_at_recall(0.6))),
    "position: rank-biased": Case(draw, outputs(geometric), lambda: tasks.PositionTask(rank_biased)),
}
