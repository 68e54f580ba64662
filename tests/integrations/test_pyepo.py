"""PyEPO's models as tasks, by the function of the docs, and its losses beside ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import directloss as dl


def task_of(optmodel: Any) -> dl.Task:
    def solve(scores: Tensor) -> Any:
        optmodel.setObj(-scores.numpy())
        return np.asarray(optmodel.solve()[0])

    return dl.tasks.SolverTask(solve, loss="regret", batched=False)


def cheapest() -> Any:
    real = pytest.importorskip("pyepo.model.opt")

    class Cheapest(real.optModel):  # type: ignore[misc, name-defined]
        def _getModel(self) -> tuple[None, list[int]]:
            return None, [0, 1, 2]

        def setObj(self, c: Any) -> None:
            self.c = np.asarray(c)

        def solve(self) -> tuple[Any, float]:
            return np.eye(3)[self.c.argmin()], float(self.c.min())

    return Cheapest()


def test_scores_are_minus_the_costs() -> None:
    costs, task = torch.tensor([[3.0, 1.0, 2.0]]), task_of(cheapest())
    assert dl.direct_loss(-costs, costs, task).item() == 0
    assert dl.direct_loss(costs, costs, task).item() == 2


def test_losses_of_pyepo_are_ours() -> None:
    """SPO+ is twice the hinge, the central perturbation gradient direct loss without noise."""
    model, func = cheapest(), pytest.importorskip("pyepo.func")
    task, costs = task_of(model), torch.rand(20, 3)
    best = task.truth(costs)
    predicted = torch.rand(20, 3, requires_grad=True)
    pairs = [
        (func.SPOPlus(model)(predicted, costs, best, (costs * best).sum(1, keepdim=True)),
         2 * dl.hinge_loss(-predicted, costs, task, epsilon=0.5)),
        (func.perturbationGradient(model, sigma=0.3, two_sides=True)(predicted, costs),
         dl.direct_loss(-predicted, costs, task, noise=0, epsilon=0.3)),
        ((func.blackboxOpt(model, lambd=2.0)(predicted) * costs).sum(),
         dl.direct_loss(-predicted, costs, task, noise=0, epsilon=2.0, sign=-1, reduction="sum")),
    ]  # fmt: skip
    for theirs, ours in pairs:
        (wanted,), (found,) = (torch.autograd.grad(loss, predicted) for loss in (theirs, ours))
        assert wanted.any()
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)  # theirs divides by lambda + 1e-7
