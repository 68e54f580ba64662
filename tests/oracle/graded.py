"""Graded rankings by brute force: every order of the items, equal places included.

The library gives items with equal scores the mean discount of their places, so the outputs are all weak orders: lists
of groups. A weak order is the mean of the orders that break its ties, in F and in L.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from itertools import combinations

import torch
from torch import Tensor

from directloss import tasks
from tests.oracle import Case, draw_scores

Order = tuple[tuple[int, ...], ...]


@lru_cache
def weak_orders(items: tuple[int, ...]) -> tuple[Order, ...]:
    """All ways to put items into groups, first group on top."""
    if not items:
        return ((),)
    found: list[Order] = []
    for size in range(1, len(items) + 1):
        for top in combinations(items, size):
            rest = tuple(item for item in items if item not in top)
            found += [(top, *order) for order in weak_orders(rest)]
    return tuple(found)


def discount(rank: int, k: int) -> float:
    return 1 / math.log2(1 + rank) if rank <= k else 0.0


def shared(order: Order, k: int) -> dict[int, float]:
    """The mean discount of its group, for each item."""
    found, above = {}, 0
    for group in order:
        mean = sum(discount(above + place, k) for place in range(1, len(group) + 1)) / len(group)
        found |= dict.fromkeys(group, mean)
        above += len(group)
    return found


def outputs(gain: Callable[[float], float], k: int) -> Callable[[Tensor, Tensor], Iterable[tuple[float, float]]]:
    def every(scores: Tensor, target: Tensor) -> Iterable[tuple[float, float]]:
        gains = [gain(grade) for grade in target.tolist()]
        best = sum(g * discount(rank, k) for rank, g in enumerate(sorted(gains, reverse=True), start=1))
        for order in weak_orders(tuple(range(len(gains)))):
            d = shared(order, k)
            f = sum(score * d[item] for item, score in enumerate(scores.tolist())) * max(gains) / best
            yield f, 1 - sum(g * d[item] for item, g in enumerate(gains)) / best

    return every


def exponential(grade: float) -> float:
    return 2.0**grade - 1


def linear(grade: float) -> float:
    return grade


def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    n = int(torch.randint(2, 6, (), generator=generator))
    grades = torch.randint(0, 4, (n,), generator=generator)
    grades[0] = grades[1] + 1
    return draw_scores((n,), generator), grades[torch.randperm(n, generator=generator)]


def draw_fractions(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    scores, grades = draw(generator)
    return scores, grades.double() / 2


CASES = {
    "graded_ndcg": Case(draw, outputs(exponential, 99)),
    "graded_ndcg: first two": Case(draw, outputs(exponential, 2), partial(tasks.GradedNDCG, 2)),
    "graded_ndcg: linear": Case(draw_fractions, outputs(linear, 99), partial(tasks.GradedNDCG, gain="linear")),
    "graded_ndcg: linear, first three": Case(draw, outputs(linear, 3), partial(tasks.GradedNDCG, 3, "linear")),
}
