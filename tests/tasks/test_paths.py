"""Best paths against scipy and against all walks. The contract is checked in test_contract.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

import directloss as dl
from directloss.tasks import GridPath, ShortestPath
from tests.oracle.structured import GRAPH, edge_counts, grid_edges, visit_counts

EDGES = list(GRAPH)
DIAMOND = [(0, 1), (1, 3), (0, 2), (2, 3)]


def scipy_cost(edges: list[tuple[int, int]], costs: np.ndarray, nodes: int, source: int, goal: int) -> float:
    tails, heads = zip(*edges, strict=True)
    return float(dijkstra(csr_matrix((costs, (tails, heads)), (nodes, nodes)), indices=source)[goal])


@pytest.mark.parametrize("connectivity", [4, 8, "monotone"])
def test_grid_path_is_as_cheap_as_dijkstra_says(connectivity: int | str) -> None:
    height, width = 7, 9
    edges = list(grid_edges(height, width, str(connectivity)))
    costs = 0.01 + torch.rand(4, height, width, dtype=torch.float64)
    task = GridPath(height, width, connectivity)
    found = task.predict(-costs)
    assert found.max() == 1, "positive costs never make it worth while to come back"
    for cells, path in zip(costs, found, strict=True):
        flat = cells.flatten().numpy()
        wanted = flat[0] + scipy_cost(edges, flat[[head for _, head in edges]], height * width, 0, height * width - 1)
        assert float((cells * path).sum()) == pytest.approx(wanted)


def test_path_on_a_random_graph_is_as_cheap_as_dijkstra_says() -> None:
    generator = torch.Generator().manual_seed(3)
    nodes = 40
    pairs = torch.randint(nodes, (300, 2), generator=generator).unique(dim=0)
    costs = 0.1 + torch.rand(5, len(pairs), generator=generator, dtype=torch.float64)
    found = ShortestPath(pairs, 0, 7, nodes).predict(-costs)
    for cost, path in zip(costs, found, strict=True):
        wanted = scipy_cost([tuple(pair) for pair in pairs.tolist()], cost.numpy(), nodes, 0, 7)
        assert float((cost * path).sum()) == pytest.approx(wanted)


def longest(edges: list[tuple[int, int]], scores: list[float], source: int, goal: int, most: int) -> float:
    """The recursion over (edges used, node) in plain Python."""
    best = {source: 0.0}
    for _ in range(most):
        step = dict(best)
        for (tail, head), score in zip(edges, scores, strict=True):
            if tail in best:
                step[head] = max(step.get(head, -math.inf), best[tail] + score)
        best = step
    return best[goal]


@pytest.mark.parametrize("most", [2, 7, 20])
def test_circles_are_counted_when_they_pay(most: int) -> None:
    generator = torch.Generator().manual_seed(most)
    scores = torch.randn(6, len(EDGES), generator=generator, dtype=torch.float64) + 0.3
    task = ShortestPath(EDGES, 0, 3, max_edges=most)
    found = task.predict(scores)
    assert found.sum(-1).max() <= most
    for row, walk in zip(scores, found, strict=True):
        assert float((row * walk).sum()) == pytest.approx(longest(EDGES, row.tolist(), 0, 3, most))
        leaving, entering = torch.zeros(5), torch.zeros(5)
        for (tail, head), count in zip(EDGES, walk.tolist(), strict=True):
            leaving[tail] += count
            entering[head] += count
        assert (leaving - entering).tolist() == [1, 0, 0, -1, 0], "a walk leaves the source and ends at the goal"


def test_off_path_loss_of_edges_is_zero_only_for_the_true_path() -> None:
    every = torch.from_numpy(edge_counts(GRAPH, 0, 3, 4)).double()
    task = ShortestPath(EDGES, 0, 3)
    simple = [walk for walk in every if torch.equal(walk, task.predict(100 * walk.clamp(max=1) - 100.01))]
    assert len(simple) >= 4
    for truth in simple:
        losses = task.loss(every, truth.expand_as(every))
        assert losses.min() >= 0
        assert losses.max() <= 1
        assert every[losses == 0].tolist() == [truth.tolist()]


def test_off_path_loss_of_cells() -> None:
    every = torch.from_numpy(visit_counts(3, 3, "monotone", 4)).double().reshape(-1, 3, 3)
    for truth in every:
        losses = GridPath(3, 3, "monotone").loss(every, truth.expand_as(every))
        share = 1 - (every * truth).flatten(1).sum(1) / 5
        torch.testing.assert_close(losses, share)
    # With four neighbours a walk can go back and forth on the true cells; that is not off the path.
    truth = torch.tensor([[1, 1, 1]])
    assert GridPath(1, 3).loss(torch.tensor([[2.0, 2.0, 1.0]]), truth) == 0


def test_regret_takes_true_costs() -> None:
    task = ShortestPath(DIAMOND, 0, 3, loss="regret")
    costs = torch.tensor([4.0, 4.0, 1.0, 2.0])
    scores = -torch.tensor([1.0, 1.0, 2.0, 2.0])
    assert float(dl.direct_loss(scores, costs, task)) == 8 - 3
    assert task.truth(costs).tolist() == [0, 0, 1, 1]
    assert float(dl.perceptron_loss(scores, costs, task)) == -2 - -4


def test_own_loss_of_steps() -> None:
    """Toll on two edges, whatever the target says."""
    task = ShortestPath(DIAMOND, 0, 3, loss=lambda toll: (toll, 0.0))
    scores, toll = -torch.tensor([1.0, 1.0, 2.0, 2.0]), torch.tensor([0.5, 0.0, 0.0, 0.0])
    assert float(dl.direct_loss(scores, toll, task)) == 0.5
    assert task.augmented(scores, toll, 8.0, -1).tolist() == [0, 0, 1, 1]


def test_start_and_goal_can_be_any_cells() -> None:
    task = GridPath(2, 3, 4, start=(1, 2), goal=(0, 0))
    found = task.predict(-torch.tensor([[1.0, 1.0, 9.0], [1.0, 1.0, 1.0]]))
    assert found.sum() == 4
    assert found[1, 2] == found[0, 0] == 1
    assert found[0, 2] == 0


def test_source_may_be_the_goal() -> None:
    task = ShortestPath([(0, 1), (1, 0)], 0, 0, max_edges=5)
    assert task.predict(torch.tensor([[-1.0, 0.5], [1.0, 0.5]])).tolist() == [[0, 0], [2, 2]]


def test_equal_walks_take_the_fewest_edges() -> None:
    task = ShortestPath([(0, 1), (1, 2), (0, 2)], 0, 2)
    assert task.predict(torch.zeros(3)).tolist() == [0, 0, 1]


def test_a_hub_with_many_edges() -> None:
    """More than 127 edges into one node, which a byte cannot number."""
    spokes = 200
    edges = [(0, spoke) for spoke in range(1, spokes + 1)] + [(spoke, spokes + 1) for spoke in range(1, spokes + 1)]
    scores = -torch.ones(2 * spokes)
    scores[[150, spokes + 150]] = -0.5
    found = ShortestPath(edges, 0, spokes + 1, max_edges=2).predict(scores)
    assert found.nonzero().flatten().tolist() == [150, spokes + 150]


def test_training_moves_scores_towards_the_true_path() -> None:
    costs = torch.rand(1, 5, 5) + 0.1
    task = GridPath(5, 5, 8)
    target = task.predict(-costs)
    guess = torch.zeros(1, 5, 5, requires_grad=True)
    optimiser = torch.optim.SGD([guess], lr=0.1)
    loss_fn = dl.DirectLoss(task, sign=-1)
    for _ in range(200):
        optimiser.zero_grad()
        loss = loss_fn(-torch.nn.functional.softplus(guess), target)
        if loss.item() == 0:
            break
        loss.backward()
        optimiser.step()
    assert loss.item() == 0


def test_sign_minus_one_never_circles() -> None:
    task = GridPath(4, 4, 4)
    costs = torch.rand(20, 4, 4)
    target = task.predict(-torch.rand(20, 4, 4))
    for epsilon in (0.1, 10.0, 1000.0):
        assert task.augmented(-costs, target, epsilon, -1).max() == 1
    assert task.augmented(-costs, target, 1000.0, +1).max() > 1, "sign +1 is paid for circles"


def test_the_unit_of_walks_ignores_circles() -> None:
    """With random scores of both signs, walks would go back and forth between two cells."""
    task, scores = GridPath(3, 3, 4), torch.randn(50, 3, 3)
    assert task.trial_outputs((3, 3)).max() == 1
    ratio = task.unit(scores) / scores.flatten(1).std(-1)
    assert 0.2 < ratio.min() < ratio.max() < 2


def test_repr() -> None:
    assert repr(ShortestPath(DIAMOND, 0, 3)) == "ShortestPath(4 edges, source=0, goal=3, max_edges=3, loss='off-path')"
    assert repr(GridPath(2, 3, "monotone")) == "GridPath(2, 3, 'monotone', max_edges=3, loss='off-path')"


WRONG_SETTINGS: list[tuple[Callable[[], object], str]] = [
    (lambda: ShortestPath([(1, 0)], 0, 1), "edges must lead from source 0 to goal 1 in at most 1 steps"),
    (lambda: ShortestPath(DIAMOND, 0, 3, max_edges=1), "edges must lead from source 0 to goal 3 in at most 1 steps"),
    (lambda: ShortestPath(DIAMOND, 0, 4), "goal must be a node number from 0 to 3, but it is 4"),
    (lambda: ShortestPath(DIAMOND, -1, 3), "source must be a node number from 0 to 3, but it is -1"),
    (lambda: ShortestPath(DIAMOND, True, 3), "source must be a node number from 0 to 3, but it is True"),
    (lambda: ShortestPath(DIAMOND, 0, 3, num_nodes=3), "edges must hold node numbers from 0 to 2, but it is 3"),
    (lambda: ShortestPath([(0, -1)], 0, 0), "edges must hold node numbers from 0 to 0, but it is -1"),
    (lambda: ShortestPath([], 0, 1), "edges must be at least one pair (tail, head), shape (edges, 2)"),
    (lambda: ShortestPath([(0, 1, 2)], 0, 1), "but it is of shape (1, 3)"),
    (lambda: ShortestPath([(0.0, 1.0)], 0, 1), "edges must hold whole node numbers, but it is torch.float32"),
    (lambda: ShortestPath("0-1", 0, 1), "edges must be pairs (tail, head) of node numbers, but it is a str"),
    (lambda: ShortestPath(DIAMOND, 0, 3, num_nodes=0), "num_nodes must be a whole number of at least 1"),
    (lambda: ShortestPath(DIAMOND, 0, 3, max_edges=0), "max_edges must be a whole number of at least 1"),
    (lambda: ShortestPath(DIAMOND, 0, 3, loss="of-path"), "Did you mean 'off-path'?"),
    (lambda: GridPath(0, 3), "height must be a whole number of at least 1"),
    (lambda: GridPath(3, 2.0), "width must be a whole number of at least 1, but it is 2.0"),
    (lambda: GridPath(1, 1), "height * width must be at least 2"),
    (lambda: GridPath(3, 3, 6), "connectivity must be one of '4', '8', 'monotone', but it is '6'"),
    (lambda: GridPath(3, 3, "monoton"), "Did you mean 'monotone'?"),
    (lambda: GridPath(3, 3, start=(0, 3)), "start must be a row and a column of the 3 x 3 grid, but it is (0, 3)"),
    (lambda: GridPath(3, 3, goal=(1,)), "goal must be a row and a column of the 3 x 3 grid, but it is (1,)"),
    (lambda: GridPath(3, 3, "monotone", start=(2, 2), goal=(0, 0)), "edges must lead from source 8 to goal 0"),
]


@pytest.mark.parametrize(("build", "message"), WRONG_SETTINGS)
def test_wrong_settings(build: Callable[[], object], message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        build()
    assert message in str(caught.value)


GRID_TRUTH = torch.tensor([[1, 1, 0], [0, 1, 1]])
WRONG_CALLS: list[tuple[object, Tensor, Any, str]] = [
    (
        ShortestPath(DIAMOND, 0, 3),
        torch.zeros(3),
        torch.zeros(3),
        "scores must have shape (..., 4), one score for each edge",
    ),
    (ShortestPath(DIAMOND, 0, 3), torch.zeros(4), torch.ones(3), "target must have the shape of scores, (4,)"),
    (
        ShortestPath(DIAMOND, 0, 3),
        torch.zeros(4),
        torch.tensor([1, 2, 0, 0]),
        "target must hold only 0 or 1, but it is 2",
    ),
    (
        ShortestPath(DIAMOND, 0, 3),
        torch.zeros(4),
        torch.tensor([1, 0, 0, 0]),
        "target must mark a path from 0 to 3, but it is broken at node 1",
    ),
    (ShortestPath(DIAMOND, 0, 3), torch.zeros(4), torch.ones(4), "broken at node 0 in problem 0"),
    (ShortestPath(DIAMOND, 0, 3), torch.zeros(4) / 0, torch.ones(4), "scores must be finite"),
    (
        ShortestPath(DIAMOND, 0, 3, loss="regret"),
        torch.zeros(4),
        torch.ones(4) / 0,
        "target must be finite, but it is inf",
    ),
    (GridPath(2, 3), torch.zeros(3, 2), GRID_TRUTH, "scores must have shape (..., 2, 3), but it is of shape (3, 2)"),
    (GridPath(2, 3), torch.zeros(3), GRID_TRUTH, "scores must have shape (..., 2, 3), but it is of shape (3,)"),
    (GridPath(2, 3), torch.zeros(2, 3), GRID_TRUTH.T, "target must have the shape of scores, (2, 3)"),
    (GridPath(2, 3), torch.zeros(2, 3), 0 * GRID_TRUTH, "broken at cell (0, 0) in problem 0"),
    (
        GridPath(2, 3),
        torch.zeros(2, 3),
        torch.tensor([[1, 0, 1], [0, 0, 1]]),
        "must mark the cells of a path from start to goal",
    ),
    (GridPath(2, 3, "monotone"), torch.zeros(2, 3), torch.tensor([[1, 1, 1], [1, 0, 1]]), "broken at cell (1, 0)"),
]


@pytest.mark.parametrize(("task", "scores", "target", "message"), WRONG_CALLS)
def test_wrong_calls(task: object, scores: Tensor, target: Any, message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        dl.direct_loss(scores, target, task)
    assert message in str(caught.value)
