"""Every decision task learns with all settings left alone, on data without noise.

A linear model cannot represent the values, which are positive and of degree 4 in the features. The default must be far
better than one decision for all problems, and about as good as the structured hinge in the unit of the costs (SPO+).
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import directloss as dl
from directloss.tasks import Choose, GridPath, Knapsack, Matching, ShortestPath, SolverTask

ROWS, STEPS, BATCH = 320, 200, 32
CLAUSES = torch.tensor([[1.0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 0], [1, 0, 0, 0, 1, 1]])
OUTPUTS = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 6)
COVERS = OUTPUTS[(OUTPUTS @ CLAUSES.T >= 1).all(1)]


def best_cover(scores: Tensor) -> Tensor:
    """A user's solver, which may choose any number of parts: at least one of each clause."""
    return COVERS.to(scores)[(scores @ COVERS.T.to(scores)).argmax(-1)]


GRID = [(v, v + 1) for v in range(16) if v % 4 < 3] + [(v, v + 4) for v in range(12)]
PAIRS = list(combinations(range(6), 2))
WEIGHTS = torch.tensor([3.0, 8, 5, 6, 4, 7, 3, 5, 8, 6, 4, 5])
TASKS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "ShortestPath": (ShortestPath(GRID, 0, 15, loss="regret"), (24,)),
    "GridPath": (GridPath(4, 4, loss="regret"), (4, 4)),
    "Knapsack": (Knapsack(WEIGHTS, 25), (12,)),
    "Knapsack, 2 budgets": (Knapsack(torch.stack([WEIGHTS, WEIGHTS.flip(0)]) + 0.5, [25, 22]), (12,)),
    "Choose": (Choose(3), (12,)),
    "Choose at most": (Choose(3, at_most=True), (12,)),
    "Matching": (Matching(), (4, 4)),
    "SolverTask": (SolverTask(best_cover, loss="regret"), (6,)),
}


def trained(task: Any, shape: tuple[int, ...], x: Tensor, costs: Tensor, loss_fn: nn.Module) -> float:
    """The mean regret of a linear model on its training data."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, torch.Size(shape).numel()), nn.Unflatten(1, shape))
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    sign = 1 if task.maximize else -1
    for step in range(STEPS):
        rows = torch.arange(BATCH * step, BATCH * (step + 1)) % ROWS
        optimizer.zero_grad()
        loss_fn(sign * model(x[rows]), costs[rows]).backward()
        optimizer.step()
    return task.loss(task.predict(sign * model(x)), costs).mean().item()


@pytest.mark.parametrize("centred", [False, True], ids=["positive", "centred"])
@pytest.mark.parametrize("name", TASKS)
def test_the_default_learns_from_costs(name: str, centred: bool) -> None:
    task, shape = TASKS[name]
    if centred and not name.startswith(("Knapsack", "Choose at most", "SolverTask")):
        pytest.skip("all outputs use equally many parts, or costs must be positive")
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, 5, generator=generator)
    mix = (torch.rand(5, torch.Size(shape).numel(), generator=generator) < 0.5).float()
    costs = 5 * (((x @ mix / 5**0.5 + 3) / 3.5) ** 4 + 1)
    costs = (costs - costs.mean() * centred).reshape(ROWS, *shape)
    same = task.predict((1 if task.maximize else -1) * costs.mean(0)).expand_as(costs)
    fixed = task.loss(same, costs).mean().item()
    hinge = trained(task, shape, x, costs, dl.HingeLoss(task, epsilon=0.5))
    direct = trained(task, shape, x, costs, dl.DirectLoss(task, generator=generator))
    assert direct < 0.1 * fixed
    assert direct < 1.5 * hinge + 0.005 * fixed, f"{direct:.4f}, hinge {hinge:.4f}, one decision {fixed:.4f}"


MARKED: dict[str, tuple[Any, tuple[int, ...]]] = {
    "Knapsack": (Knapsack(WEIGHTS, 25, loss="hamming"), (12,)),
    "Choose": (Choose(3, loss="missed"), (12,)),
    "Matching": (Matching(loss="missed"), (4, 4)),
    "SolverTask": (SolverTask(best_cover), (6,)),
}


@pytest.mark.parametrize("name", MARKED)
def test_the_default_learns_from_true_outputs(name: str) -> None:
    task, shape = MARKED[name]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, 5, generator=generator)
    scores = x @ torch.randn(5, torch.Size(shape).numel(), generator=generator)
    target = task.predict(scores.reshape(ROWS, *shape))
    same = task.predict(target.mean(0)).expand_as(target)
    fixed = task.loss(same, target).mean().item()
    losses = []
    for loss_fn in (dl.HingeLoss(task), dl.DirectLoss(task, generator=generator)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, torch.Size(shape).numel()), nn.Unflatten(1, shape))
        optimizer = torch.optim.Adam(model.parameters(), 0.03)
        for step in range(STEPS):
            rows = torch.arange(BATCH * step, BATCH * (step + 1)) % ROWS
            optimizer.zero_grad()
            loss_fn(model(x[rows]), target[rows]).backward()
            optimizer.step()
        losses.append(task.loss(task.predict(model(x)), target).mean().item())
    hinge, direct = losses
    assert direct < 0.1 * fixed
    assert direct < 1.5 * hinge + 0.01 * fixed, f"{direct:.4f}, hinge {hinge:.4f}, one output {fixed:.4f}"
