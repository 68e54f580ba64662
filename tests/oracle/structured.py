"""Structured outputs by brute force: every walk, every assignment, every labelling, every tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import combinations, pairwise, permutations, product

import numpy as np
import torch
from torch import Tensor

from directloss import tasks
from tests.oracle import Case, draw_scores

Pairs = Iterable[tuple[float, float]]
Edges = tuple[tuple[int, int], ...]


# ---------------------------------------------------------------------------------------------- walks


@lru_cache
def walks(edges: Edges, source: int, goal: int, most: int) -> tuple[tuple[int, ...], ...]:
    """All walks from source to goal of at most ``most`` edges, as tuples of edge numbers."""
    found, open_walks = [], [((), source)]
    for _ in range(most + 1):
        found += [walk for walk, node in open_walks if node == goal]
        open_walks = [
            ((*walk, number), head)
            for walk, node in open_walks
            for number, (tail, head) in enumerate(edges)
            if tail == node
        ]
    return tuple(found)


@lru_cache
def edge_counts(edges: Edges, source: int, goal: int, most: int) -> np.ndarray:
    table = [[walk.count(edge) for edge in range(len(edges))] for walk in walks(edges, source, goal, most)]
    return np.unique(np.array(table), axis=0)


def grid_edges(height: int, width: int, kind: str) -> Edges:
    """Steps of a king (8), of a rook by one cell (4), or right and down alone."""
    cells = list(product(range(height), range(width)))
    steps = []
    for (a, b), (c, d) in permutations(cells, 2):
        down, right = c - a, d - b
        near = max(abs(down), abs(right)) == 1
        straight = abs(down) + abs(right) == 1
        if {"8": near, "4": straight, "monotone": straight and down >= 0 and right >= 0}[kind]:
            steps.append((a * width + b, c * width + d))
    return tuple(steps)


@lru_cache
def visit_counts(height: int, width: int, kind: str, most: int) -> np.ndarray:
    edges = grid_edges(height, width, kind)
    table = []
    for walk in walks(edges, 0, height * width - 1, most):
        visited = [0] + [edges[step][1] for step in walk]
        table.append([visited.count(cell) for cell in range(height * width)])
    return np.unique(np.array(table), axis=0)


def linear(counts: np.ndarray, scores: Tensor, losses: np.ndarray) -> Pairs:
    """F is linear in how often each part is used."""
    return zip((counts @ scores.flatten().numpy()).tolist(), losses.tolist(), strict=True)


def true_path(counts: np.ndarray, generator: torch.Generator) -> Tensor:
    """The cheapest output for random positive costs: a simple path."""
    costs = 0.1 + torch.rand(counts.shape[1], generator=generator)
    return torch.from_numpy(counts[int(np.argmin(counts @ costs.numpy()))])


def walk_case(make: Callable[[], object], counts: np.ndarray, shape: tuple[int, ...], places: int) -> Case:
    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return draw_scores(shape, generator), true_path(counts, generator).reshape(shape)

    def outputs(scores: Tensor, target: Tensor) -> Pairs:
        return linear(counts, scores, counts @ (1 - target.flatten().numpy()) / places)

    return Case(draw, outputs, make)


def regret_case(make: Callable[[], object], counts: np.ndarray, shape: tuple[int, ...]) -> Case:
    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        # So cheap that no walk is dearer than 1: the contract wants losses of at most 1.
        costs = torch.rand(shape, generator=generator, dtype=torch.float64) / int(counts.sum(1).max())
        return draw_scores(shape, generator), costs

    def outputs(scores: Tensor, target: Tensor) -> Pairs:
        spent = counts @ target.flatten().numpy()
        return linear(counts, scores, spent - spent.min())

    return Case(draw, outputs, make)


# A graph with a circle 1 -> 2 -> 1, two edges from 0 to 1, a way through the goal and a dead end.
GRAPH: Edges = ((0, 1), (0, 1), (1, 2), (2, 1), (0, 2), (2, 3), (1, 3), (3, 1), (2, 4))


def graph_path() -> object:
    return tasks.ShortestPath(list(GRAPH), 0, 3)


def graph_path_by_regret() -> object:
    return tasks.ShortestPath(list(GRAPH), 0, 3, max_edges=3, loss="regret")


def rook_path() -> object:
    return tasks.GridPath(3, 3, 4)


def king_path() -> object:
    return tasks.GridPath(2, 3, 8)


def monotone_path() -> object:
    return tasks.GridPath(3, 4, "monotone")


# ---------------------------------------------------------------------------------------------- labels


def label_outputs(
    labellings: Callable[[Tensor], Iterable[Sequence[int]]],
    cost: Callable[[int, int], float] = lambda true, predicted: float(true != predicted),
    between: Callable[[int, int], float] = lambda left, right: 0.0,
) -> Callable[[Tensor, Tensor], Pairs]:
    """(F, L) of each labelling, both means over the positions."""

    def every(scores: Tensor, target: Tensor) -> Pairs:
        table, truth = scores.tolist(), (target.argmax(-1) if target.dim() == 2 else target).tolist()
        size = len(truth)
        for labels in labellings(scores):
            f = sum(row[label] for row, label in zip(table, labels, strict=True))
            f += sum(between(left, right) for left, right in pairwise(labels))
            l = sum(cost(true, label) for true, label in zip(truth, labels, strict=True))
            yield f / size, l / size

    return every


def all_labellings(scores: Tensor) -> Iterable[Sequence[int]]:
    return product(range(scores.shape[1]), repeat=scores.shape[0])


def all_assignments(scores: Tensor) -> Iterable[Sequence[int]]:
    return permutations(range(scores.shape[1]), scores.shape[0])


LABELS = 3
TRANSITIONS = torch.tensor([[0.5, -1.0, 0.0], [0.25, 0.0, 2.0], [-0.5, 0.5, 0.0]], dtype=torch.float64)
COSTS = torch.tensor([[0.0, 0.5, 1.0], [0.25, 0.0, 0.75], [1.0, 0.5, 0.0]], dtype=torch.float64)


def draw_labels(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    size = int(torch.randint(1, 5, (), generator=generator))
    return draw_scores((size, LABELS), generator), torch.randint(LABELS, (size,), generator=generator)


def draw_assignment(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    rows = int(torch.randint(1, LABELS + 1, (), generator=generator))
    return draw_scores((rows, LABELS), generator), torch.randperm(LABELS, generator=generator)[:rows]


def cost_between(true: int, predicted: int) -> float:
    return float(COSTS[true, predicted])


def cost_table(target: Tensor) -> Tensor:
    return COSTS[target.clamp(min=0)]


def transition(left: int, right: int) -> float:
    return float(TRANSITIONS[left, right])


def chain_with_transitions() -> object:
    return tasks.Chain(TRANSITIONS)


def chain_with_costs() -> object:
    return tasks.Chain(TRANSITIONS, cost=COSTS)


def assignment_with_costs() -> object:
    return tasks.Assignment(cost=cost_table)


# ---------------------------------------------------------------------------------------------- solvers of a user


TRIANGLES: Edges = ((0, 1), (1, 2), (0, 2), (2, 3), (1, 3))  # undirected


def is_tree(chosen: Iterable[int]) -> bool:
    group = list(range(4))
    for edge in chosen:
        a, b = (group[node] for node in TRIANGLES[edge])
        if a == b:
            return False
        group = [b if label == a else label for label in group]
    return True


TREES = np.array(
    [
        [int(e in chosen) for e in range(len(TRIANGLES))]
        for chosen in combinations(range(len(TRIANGLES)), 3)
        if is_tree(chosen)
    ]
)
SETS = np.array(list(product((0, 1), repeat=4)))


def kruskal(scores: Tensor) -> np.ndarray:
    """The best spanning tree of one problem, in numpy, edge by edge."""
    chosen: list[int] = []
    for edge in np.argsort(-np.asarray(scores)).tolist():
        if is_tree([*chosen, edge]):
            chosen.append(edge)
    return np.isin(np.arange(len(TRIANGLES)), chosen).astype(float)


def positive_parts(scores: Tensor) -> Tensor:
    """The best subset, for a batch of 2 x 2 tables."""
    return (scores > 0).float()


def weighted_parts(target: Tensor) -> tuple[Tensor, Tensor]:
    """A loss of a user's own: a false part costs 1/8, a missed one 1/4."""
    return torch.where(target == 1, -0.25, 0.125), 0.25 * target.sum((-2, -1))


def tree_task() -> object:
    return tasks.SolverTask(kruskal, loss="missed", batched=False)


def set_task() -> object:
    return tasks.SolverTask(positive_parts, event_dims=2)


def weighted_set_task() -> object:
    return tasks.SolverTask(positive_parts, event_dims=2, loss=weighted_parts)


def part_case(
    make: Callable[[], object], counts: np.ndarray, shape: tuple[int, ...], miss: float, false: float
) -> Case:
    """L = miss * (missed parts) + false * (false parts); a negative ``miss`` means its share of the target's parts."""

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        truth = counts[int(torch.randint(len(counts), (), generator=generator))]
        return draw_scores(shape, generator), torch.from_numpy(truth).reshape(shape)

    def outputs(scores: Tensor, target: Tensor) -> Pairs:
        t = target.flatten().numpy()
        price = miss if miss > 0 else 1 / t.sum()
        return linear(counts, scores, price * ((1 - counts) * t).sum(1) + false * (counts * (1 - t)).sum(1))

    return Case(draw, outputs, make)


# ---------------------------------------------------------------------------------------------- decisions

WEIGHTS = np.array([[2, 3, 1, 4, 2], [1, 4, 3, 2, 2]])
ROOM = np.array([6, 6])
ALL_SETS = np.array(list(product((0, 1), repeat=5)))
FITTING = ALL_SETS[(ALL_SETS @ WEIGHTS.T <= ROOM).all(1)]
FITTING_ONE = ALL_SETS[ALL_SETS @ WEIGHTS[0] <= ROOM[0]]
LADDER: Edges = ((0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (0, 3), (3, 4), (2, 4))  # no circles


def matchings(rows: int, columns: int) -> np.ndarray:
    return np.array([np.eye(columns)[list(chosen)].ravel() for chosen in permutations(range(columns), rows)])


def knapsack() -> object:
    return tasks.Knapsack(WEIGHTS[0].tolist(), 6)


def knapsacks() -> object:
    return tasks.Knapsack(WEIGHTS.tolist(), [6.0, 6.0])


def knapsacks_by_marks() -> object:
    return tasks.Knapsack(WEIGHTS.tolist(), 6 * torch.ones(2), loss="hamming")


def choose() -> object:
    return tasks.Choose(2)


def choose_at_most() -> object:
    return tasks.Choose(2, at_most=True, loss="hamming")


def matching() -> object:
    return tasks.Matching()


def matching_by_values() -> object:
    return tasks.Matching(maximize=True)


def ladder_path() -> object:
    return tasks.ShortestPath(list(LADDER), 0, 4, loss="regret")


def values_case(make: Callable[[], object], counts: np.ndarray, shape: tuple[int, ...]) -> Case:
    """As `regret_case`, for values, of which the most is best."""
    costs = regret_case(make, counts, shape)

    def outputs(scores: Tensor, target: Tensor) -> Pairs:
        gained = counts @ target.flatten().numpy()
        return linear(counts, scores, gained.max() - gained)

    return Case(costs.draw, outputs, make)


CASES = {
    "shortest path: graph": walk_case(graph_path, edge_counts(GRAPH, 0, 3, 4), (len(GRAPH),), 4),
    "shortest path: regret": regret_case(graph_path_by_regret, edge_counts(GRAPH, 0, 3, 3), (len(GRAPH),)),
    "grid path: 3x3": walk_case(rook_path, visit_counts(3, 3, "4", 8), (3, 3), 9),
    "grid path: 2x3, 8 neighbours": walk_case(king_path, visit_counts(2, 3, "8", 5), (2, 3), 6),
    "grid path: 3x4, monotone": walk_case(monotone_path, visit_counts(3, 4, "monotone", 5), (3, 4), 6),
    "assignment": Case(draw_assignment, label_outputs(all_assignments)),
    "assignment: costs": Case(draw_assignment, label_outputs(all_assignments, cost_between), assignment_with_costs),
    "chain": Case(draw_labels, label_outputs(all_labellings)),
    "chain: transitions": Case(draw_labels, label_outputs(all_labellings, between=transition), chain_with_transitions),
    "chain: costs": Case(draw_labels, label_outputs(all_labellings, cost_between, transition), chain_with_costs),
    "solver: spanning trees": part_case(tree_task, TREES, (len(TRIANGLES),), -1, 0.0),
    "solver: subsets": part_case(set_task, SETS, (2, 2), 0.25, 0.25),
    "solver: weighted subsets": part_case(weighted_set_task, SETS, (2, 2), 0.25, 0.125),
    "shortest path: no circles": regret_case(ladder_path, edge_counts(LADDER, 0, 4, 4), (len(LADDER),)),
    "knapsack: one budget": values_case(knapsack, FITTING_ONE, (5,)),
    "knapsack: two budgets": values_case(knapsacks, FITTING, (5,)),
    "knapsack: marks": part_case(knapsacks_by_marks, FITTING, (5,), 0.2, 0.2),
    "choose": values_case(choose, ALL_SETS[ALL_SETS.sum(1) == 2], (5,)),
    "choose: at most": part_case(choose_at_most, ALL_SETS[ALL_SETS.sum(1) <= 2], (5,), 0.2, 0.2),
    "matching": regret_case(matching, matchings(2, 3), (2, 3)),
    "matching: values": values_case(matching_by_values, matchings(3, 3), (3, 3)),
}
