"""One decision per problem by brute force: both answers, every class, every set of k classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

import torch
from torch import Tensor

from directloss import tasks
from tests.oracle import Case, draw_scores

CLASSES = 5
COSTS = [
    [0.0, 1.0, 0.5, 2.0, 0.25],
    [4.0, 0.0, 0.5, 0.5, 1.0],
    [1.0, 0.125, 0.25, 3.0, 1.0],  # here another class is cheaper than the right one
    [1.0, 1.0, 1.0, 0.0, 0.0],  # and here as cheap
    [0.5, 2.0, 0.0, 1.0, 0.0],
]


def draw_item(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return draw_scores((), generator), torch.randint(2, (), generator=generator)


def both_answers(scores: Tensor, target: Tensor) -> Iterable[tuple[float, float]]:
    return [(float(scores) * y, float(y != int(target))) for y in (0, 1)]


def draw_classes(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return draw_scores((CLASSES,), generator), torch.randint(CLASSES, (), generator=generator)


def every_class(scores: Tensor, target: Tensor) -> Iterable[tuple[float, float]]:
    return [(score, float(c != int(target))) for c, score in enumerate(scores.tolist())]


def every_cost(scores: Tensor, target: Tensor) -> Iterable[tuple[float, float]]:
    return [(score, COSTS[int(target)][c]) for c, score in enumerate(scores.tolist())]


def every_set(k: int) -> Callable[[Tensor, Tensor], Iterable[tuple[float, float]]]:
    def outputs(scores: Tensor, target: Tensor) -> Iterable[tuple[float, float]]:
        for chosen in combinations(range(len(scores)), k):
            yield sum(float(scores[c]) for c in chosen), float(int(target) not in chosen)

    return outputs


CASES = {
    "error": Case(draw_item, both_answers),
    "accuracy": Case(draw_classes, every_class),
    "topk": Case(draw_classes, every_set(CLASSES)),
    "topk@1": Case(draw_classes, every_class),
    "topk@2": Case(draw_classes, every_set(2)),
    "topk@4": Case(draw_classes, every_set(4)),
    "costs: some": Case(draw_classes, every_cost, lambda: tasks.CostMatrix(COSTS)),
}
