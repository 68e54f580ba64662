"""Knapsacks, choices, trees, matchings, programmes: what test_contract.py does not look at."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

import directloss as dl
from benchmarks.tours import best_tours
from directloss import epsilon
from directloss.tasks import Choose, IntegerProgram, Knapsack, Matching, ShortestPath, decomposable

DRAWS = np.random.default_rng(0)


def highs(scores: np.ndarray, weights: np.ndarray, capacity: np.ndarray) -> float:
    limits = LinearConstraint(weights, -np.inf, capacity)
    return -float(milp(-scores, integrality=np.ones(len(scores)), bounds=Bounds(0, 1), constraints=limits).fun)


@pytest.mark.parametrize("budgets", [1, 2, 3])
def test_knapsacks_of_many_items_are_as_good_as_highs_says(budgets: int) -> None:
    weights, capacity = DRAWS.uniform(1, 8, (budgets, 25)), np.full(budgets, 20.0)
    scores = torch.from_numpy(DRAWS.normal(1, 2, (2, 25)))
    found = Knapsack(torch.from_numpy(weights), capacity.tolist()).predict(scores)
    for row, chosen in zip(scores.numpy(), found.numpy(), strict=True):
        assert (weights @ chosen <= capacity + 1e-9).all()
        assert row @ chosen == pytest.approx(highs(row, weights, capacity), abs=1e-6)


def test_whole_weights_and_any_weights_agree() -> None:
    weights, scores = torch.tensor([3, 5, 2, 4, 1, 6, 2]), torch.from_numpy(DRAWS.normal(size=(50, 7)))
    table, bounded = Knapsack(weights, 9), Knapsack(weights.double() + 1e-9, 9 + 1e-6)
    torch.testing.assert_close((table.predict(scores) * scores).sum(-1), (bounded.predict(scores) * scores).sum(-1))


def test_knapsacks_with_budgets_of_all_kinds() -> None:
    """One budget that hardly counts, one that allows little, one of nothing."""
    weights = DRAWS.integers(300, 800, (3, 30)) / 100.0
    weights[2, 5:] = 0
    capacity = np.array([0.9, 0.2, 0.0]) * weights.sum(1)
    scores = torch.from_numpy(DRAWS.uniform(size=(3, 30)) * 3 + weights.mean(0))
    for row, chosen in zip(scores, Knapsack(weights.tolist(), capacity.tolist()).predict(scores), strict=True):
        assert (weights @ chosen.numpy() <= capacity + 1e-9).all()
        assert float(row @ chosen) == pytest.approx(highs(row.numpy(), weights, capacity), abs=1e-6)


UNITS: list[tuple[Any, int]] = [
    (Knapsack([[1.5, 1, 2, 1.25, 1], [1, 2, 1, 1, 1.5]], [3, 3]), 5),
    (IntegerProgram([[1.5, 1, 2, 1.25, 1], [1, 2, 1, 1, 1.5]], upper=3), 5),
]


@pytest.mark.parametrize("unit", [1e-30, 1e-9, 1e9])
@pytest.mark.parametrize(("task", "parts"), UNITS, ids=lambda value: type(value).__name__)
def test_the_best_output_does_not_depend_on_the_unit(task: Any, parts: int, unit: float) -> None:
    scores = torch.from_numpy(DRAWS.uniform(size=(20, parts)))
    assert torch.equal(task.predict(scores * unit), task.predict(scores))


def test_ties_do_not_depend_on_the_batch() -> None:
    task = ShortestPath([(0, 1), (1, 3), (0, 2), (2, 3), (2, 1), (1, 2)], 0, 3, loss="regret")
    scores = torch.tensor([[-1.0] * 6, [1.0] * 6])
    assert torch.equal(task.predict(scores)[0], task.predict(scores[0]))


def held_karp(cost: np.ndarray) -> float:
    """The recursion over sets of nodes, in plain Python."""
    nodes = len(cost)
    best = {(1 << v, v): cost[0, v] for v in range(1, nodes)}
    for size in range(2, nodes):
        for (seen, last), length in [entry for entry in best.items() if bin(entry[0][0]).count("1") == size - 1]:
            for v in range(1, nodes):
                if not seen >> v & 1:
                    key = seen | 1 << v, v
                    best[key] = min(best.get(key, np.inf), length + cost[last, v])
    return float(min(best[(1 << nodes) - 2, v] + cost[v, 0] for v in range(1, nodes)))


@pytest.mark.parametrize("kind", ["plain", "tied", "flat"])
def test_tours_are_as_short_as_the_recursion_over_sets_says(kind: str) -> None:
    scores = torch.from_numpy(DRAWS.normal(size=(10, 36)))
    scores = {"plain": scores, "tied": scores.round(), "flat": 0 * scores[:1]}[kind]
    for row, used in zip(scores, best_tours(scores, 9), strict=True):
        cost = np.zeros((9, 9))
        for (a, b), score in zip(combinations(range(9), 2), row.tolist(), strict=True):
            cost[a, b] = cost[b, a] = -score
        ends = np.array(list(combinations(range(9), 2)))[used.bool().numpy()]
        assert (np.bincount(ends.ravel()) == 2).all(), "two edges at each node"
        assert -float((row * used).sum()) == pytest.approx(held_karp(cost))


def test_a_programme_finds_what_the_knapsack_finds() -> None:
    weights, scores = [[2, 3, 1, 4], [1, 4, 3, 2]], torch.from_numpy(DRAWS.normal(1, 1, (3, 4)))
    programme = IntegerProgram(weights, upper=6, maximize=True)
    assert torch.equal(programme.predict(scores), Knapsack(weights, [6, 6]).predict(scores))
    losses = [task.loss(task.predict(-scores), scores) for task in (programme, Knapsack(weights, [6, 6]))]
    torch.testing.assert_close(*losses)


def test_a_programme_is_exact() -> None:
    outputs = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 8)
    for case in range(60):
        matrix = DRAWS.uniform(1, 8, (2, 8))
        upper = 0.4 * matrix.sum(1)
        # Values that hardly differ, values in proportion to the weights, and any.
        values = [DRAWS.uniform(1, 1.001, 8), matrix[0] * DRAWS.uniform(1, 1.001, 8), DRAWS.normal(size=8)][case % 3]
        scores = torch.from_numpy(values * 10.0 ** DRAWS.integers(-6, 7))
        best = (outputs @ scores)[torch.from_numpy((outputs.numpy() @ matrix.T <= upper).all(1))].max()
        reached = (IntegerProgram(matrix, upper=upper).predict(scores) * scores).sum()
        assert best - reached <= 1e-9 * scores.abs().max()


def test_a_programme_without_an_answer_names_the_problem() -> None:
    scores = torch.ones(2, 2)
    with pytest.raises(dl.DirectLossError, match=r"none for problem 0: it raised .*infeasible"):
        IntegerProgram([[1, 1]], lower=3).predict(scores)
    free = IntegerProgram([[1, -1]], upper=0, most=np.inf, whole=False)
    with pytest.raises(dl.DirectLossError, match=r"none for problem 1: it raised .*unbounded"):
        free.predict(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))


def test_regret_is_in_the_unit_of_the_problem() -> None:
    values = torch.tensor([[5.0, 9.0, 3.0]])
    assert dl.direct_loss(torch.tensor([[1.0, 0.0, 2.0]]), values, Choose(1)).item() == 6
    assert dl.direct_loss(torch.tensor([[1.0, 0.0, 2.0]]), values, Knapsack([1, 1, 1], 2)).item() == 6
    costs = torch.tensor([[[1.0, 2.0], [1.0, 5.0]]])
    assert dl.direct_loss(torch.eye(2)[None], costs, Matching()).item() == 3
    assert dl.direct_loss(torch.eye(2)[None], costs, Matching(maximize=True)).item() == 0
    assert dl.direct.mean_metric(torch.eye(2)[None], costs, Matching()) == -3


def test_the_least_costs_are_solved_for_once() -> None:
    calls = []

    class Counting(Choose):
        def solve(self, scores: Tensor) -> Tensor:
            calls.append(len(scores))
            return super().solve(scores)

    task, costs = Counting(1), torch.rand(4, 5)
    first = task.loss(task.predict(torch.rand(4, 5)), costs)
    assert calls == [4, 4]
    task.loss(task.predict(torch.rand(4, 5)), costs)
    assert calls == [4, 4, 4]
    assert (first >= 0).all()


def test_best_outputs_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decomposable, "REMEMBERED", 10_000)
    task = Choose(2)
    for _ in range(20):
        task.truth(torch.rand(50, 12))
    assert 3_000 < task._best.size <= 10_000


@pytest.mark.parametrize("unit", [0.01, 1.0, 1000.0])
def test_noise_and_epsilon_follow_the_unit_of_the_costs(unit: float) -> None:
    """The gradient of a regret in cents is that of one in euros."""
    predicted, true = torch.randn(40, 8), torch.randn(40, 8)

    def slope(scale: float) -> Tensor:
        scores = (scale * predicted).requires_grad_()
        source = torch.Generator().manual_seed(0)
        dl.direct_loss(scores, scale * true, Choose(3), generator=source).backward()
        assert scores.grad is not None
        return scores.grad

    assert slope(1.0).any()
    torch.testing.assert_close(slope(unit), slope(1.0), rtol=1e-3, atol=1e-5)


def test_a_perfect_prediction_is_left_alone() -> None:
    values = torch.randn(200, 8, generator=torch.Generator().manual_seed(3))
    scores = values.clone().requires_grad_()
    dl.direct_loss(scores, values, Choose(3), noise=0).backward()
    assert not scores.grad.any()  # type: ignore[union-attr]


@pytest.mark.parametrize("loss", ["regret", "hamming"])
def test_the_likelihood_is_a_hinge_with_the_automatic_epsilon_in_the_unit_of_the_loss(loss: str) -> None:
    task, scores = Choose(2, loss=loss), torch.randn(4, 6, requires_grad=True)
    target = torch.rand(4, 6) if loss == "regret" else Choose(2).predict(torch.randn(4, 6))
    step = 0.5 * task.unit(scores.detach()) * task.unit_epsilon(scores.detach(), target)
    likelihood = task.likelihood(scores, target)
    assert likelihood is not None
    hinge = dl.hinge_loss(scores, target, task, epsilon=step, reduction="none") / step
    worst = task.loss(task.augmented(scores, target, step, +1), target)
    torch.testing.assert_close(likelihood + worst, hinge)


def test_the_likelihood_has_the_epsilon_of_the_theorem() -> None:
    assert epsilon.REACH * decomposable.NOISE == decomposable.EPSILON


def test_the_likelihood_does_not_make_scores_grow() -> None:
    """The margin follows the scores, so only their direction may matter."""
    task, scores = Knapsack([3, 5, 2, 4, 1, 6], 9), torch.rand(20, 6, requires_grad=True)
    likelihood = task.likelihood(scores, torch.rand(20, 6))
    assert likelihood is not None
    (slope,) = torch.autograd.grad(likelihood.sum(), scores)
    assert bool(slope.any())
    torch.testing.assert_close((slope * scores).sum(-1), torch.zeros(20), atol=1e-4, rtol=0)


def potentials(task: Any, generator: torch.Generator) -> Tensor:
    """Scores that all outputs share."""
    if isinstance(task, Matching):
        return torch.randn(4, 1, generator=generator) + torch.randn(1, 4, generator=generator)
    if isinstance(task, ShortestPath):
        level = torch.randn(task.num_nodes, generator=generator)
        return level[task.tail] - level[task.head]
    return torch.randn(1, generator=generator)


SHARED: list[tuple[Any, tuple[int, ...]]] = [
    (Choose(3), (8,)),
    (Matching(), (4, 4)),
    (ShortestPath([(0, 1), (1, 3), (0, 2), (2, 3), (1, 2), (0, 3)], 0, 3, loss="regret"), (6,)),
    (IntegerProgram([[1, 1, 1, 1, 1]], lower=2, upper=2), (5,)),
]


@pytest.mark.parametrize(("task", "shape"), SHARED, ids=lambda value: type(value).__name__)
def test_the_unit_ignores_what_all_outputs_share(task: Any, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(7, *shape, generator=generator)
    unit = task.unit(scores)
    torch.testing.assert_close(task.unit(scores + 100 * potentials(task, generator)), unit, rtol=1e-3, atol=0)
    torch.testing.assert_close(task.unit(1000 * scores), 1000 * unit)
    size = scores.flatten(1).std(-1)
    assert bool(((unit > 0.3 * size) & (unit < 3 * size)).all())


def test_the_unit_of_a_knapsack_knows_the_level_of_values() -> None:
    task, values = Knapsack([3, 5, 2, 4, 1, 6], 9), torch.rand(5, 6)
    assert bool((task.unit(values + 100) > 50).all())


def test_scores_that_decide_nothing_have_a_unit() -> None:
    task = Choose(2)
    assert task.unit(torch.tensor([[5.0, 5.0, 5.0], [0.0, 0.0, 0.0], [1e30, -1e30, 0.0]]))[:2].tolist() == [5.0, 1.0]
    assert bool(task.unit(torch.tensor([1e30, -1e30, 0.0])).isfinite())
    only = Choose(3)  # of three: one output
    assert bool(only.unit(torch.randn(4, 3)).gt(0).all())


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Knapsack([1, -1], 3), "weights must be finite and not negative, but it is -1.0 somewhere"),
    (lambda: Knapsack([1, 1], float("nan")), "capacity must be finite and not negative, but it is nan"),
    (lambda: Knapsack([[[1]]], 3), "weights must have shape (items,) or (budgets, items)"),
    (lambda: Knapsack([1, 2], [3, 3]), "capacity must hold one number for each of the 1 budgets"),
    (lambda: Knapsack("heavy", 3), "weights must hold numbers, but it is a str"),
    (lambda: Choose(0), "k must be a whole number of at least 1"),
    (lambda: ShortestPath([(0, 5)], 0, 1, 3), "edges must hold node numbers from 0 to 2"),
    (lambda: IntegerProgram([1, 2]), "matrix must have shape (constraints, parts)"),
    (
        lambda: IntegerProgram([[1, 2]], upper=[1, 2]),
        "upper must be a number or one for each of 1, but it is of shape (2,)",
    ),
    (lambda: IntegerProgram([[1, 2]], upper="all"), "upper must be a number or one for each of 1, but it is a str"),
    (
        lambda: IntegerProgram([[1, 2]], lower=float("nan")),
        "lower must be a number or one for each of 1, but it is NaN",
    ),
    (lambda: IntegerProgram([[1, float("inf")]]), "matrix must be finite"),
    (
        lambda: IntegerProgram([[1, 2]], lower=3, upper=2),
        "lower must not be above upper, or nothing is feasible, but it is 3",
    ),
    (
        lambda: IntegerProgram([[1, 2]], least=[0, 2]),
        "least must not be above most, or nothing is feasible, but it is 2 and 1 at 1",
    ),
]


@pytest.mark.parametrize(("build", "message"), WRONG)
def test_wrong_settings(build: Callable[[], object], message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        build()
    assert message in str(caught.value)


NAN = torch.tensor([[float("nan"), 1.0, 2.0]])
WRONG_CALLS: list[tuple[Any, Tensor, Tensor, str]] = [
    (
        Knapsack([1, 2], 2),
        torch.ones(1, 3),
        torch.ones(1, 3),
        "scores must have shape (..., 2), one score for each item",
    ),
    (Knapsack([1, 2, 3], 2, loss="hamming"), torch.ones(1, 3), torch.ones(1, 3), "fit into the capacity 2"),
    (Choose(2, loss="hamming"), torch.ones(1, 3), torch.tensor([[1, 0, 0]]), "target must mark 2 items, but it is 1"),
    (Choose(4), torch.ones(1, 3), torch.ones(1, 3), "scores must have at least the 4 items"),
    (Choose(2), torch.ones(1, 3), NAN, "target must be finite"),
    (Choose(2), NAN, torch.ones(1, 3), "scores must be finite"),
    (Matching(), torch.ones(1, 3, 2), torch.ones(1, 3, 2), "must have at least as many columns as rows"),
    (Matching(loss="missed"), torch.ones(1, 2, 2), torch.tensor([[[1, 0], [1, 0]]]), "a different column"),
    (IntegerProgram([[1, 1]], upper=1), torch.ones(1, 3), torch.ones(1, 3), "one score for each part"),
]


@pytest.mark.parametrize(("task", "scores", "target", "message"), WRONG_CALLS)
def test_wrong_calls(task: Any, scores: Tensor, target: Tensor, message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        dl.direct_loss(scores, target, task)
    assert message in str(caught.value)


@pytest.mark.parametrize("task", [Knapsack([[1.5, 1, 1]], [2]), ShortestPath([(0, 1), (1, 2), (0, 2)], 0, 2)])
def test_unchecked_nan_does_not_hang(task: Any) -> None:
    with pytest.raises(dl.DirectLossError, match="scores must be finite, but it is not, in problem 0"):
        dl.direct_loss(NAN, torch.ones(1, 3), task, check_values=False)


def test_normalised_regret_refuses_other_shapes() -> None:
    with pytest.raises(dl.DirectLossError, match="best must have the shape of costs"):
        dl.metrics.normalised_regret(torch.ones(2, 3), torch.ones(3), torch.ones(2, 3))
