"""PyEPO models as tasks, with a model of the shape that PyEPO gives them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

import directloss as dl
from directloss.integrations import pyepo

WEIGHTS = np.array([2.0, 3.0, 1.0, 4.0])


class Spec:
    def __init__(self, sense: int) -> None:
        self.sense = sense

    def build(self) -> Model:
        return Model(self.sense)


class Model:
    """Cheapest two of four items, or most valuable two, as an ``optModel`` has it."""

    def __init__(self, sense: int) -> None:
        self.modelSense = sense

    def setObj(self, c: Any) -> None:
        self.c = np.asarray(c)

    def solve(self) -> tuple[list[float], float]:
        chosen = np.argsort(self.modelSense * self.c)[:2]
        y = np.isin(np.arange(4), chosen).astype(float) + 1e-9
        return y.tolist(), float(y @ self.c)

    def to_spec(self) -> Spec:
        return Spec(self.modelSense)


@pytest.mark.parametrize("sense", [1, -1])
def test_scores_are_better_when_higher(sense: int) -> None:
    task = pyepo.task(Model(sense))
    costs = torch.tensor([[4.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]])
    truth = [[0, 1, 1, 0], [1, 1, 0, 0]] if sense == 1 else [[1, 0, 0, 1], [0, 0, 1, 1]]
    assert task.truth(costs).tolist() == truth
    assert dl.direct_loss(-sense * costs, costs, task).item() == 0
    assert dl.direct_loss(sense * costs, costs, task).item() == 4
    assert repr(task) == "SolverTask(Model, loss='regret')"


def test_a_model_is_built_anew_in_another_process() -> None:
    twin = pickle.loads(pickle.dumps(pyepo.task(Model(1))))
    assert twin.predict(-torch.tensor([[4.0, 1.0, 2.0, 3.0]])).tolist() == [[0, 1, 1, 0]]


def test_something_else_is_refused() -> None:
    with pytest.raises(dl.DirectLossError, match="optmodel must be an optModel of PyEPO, but it is a int"):
        pyepo.task(3)


def test_a_real_model() -> None:
    real = pytest.importorskip("pyepo.model.opt")

    class Cheapest(real.optModel):  # type: ignore[misc, name-defined]
        def _getModel(self) -> tuple[None, list[int]]:
            return None, [0, 1, 2]

        def setObj(self, c: Any) -> None:
            self.c = np.asarray(c)

        def solve(self) -> tuple[Any, float]:
            return np.eye(3)[self.c.argmin()], float(self.c.min())

    costs = torch.tensor([[3.0, 1.0, 2.0]])
    assert dl.direct_loss(-costs.flip(1), costs, pyepo.task(Cheapest())).item() == 0
    losses_of_pyepo_are_ours(Cheapest())


def losses_of_pyepo_are_ours(model: Any) -> None:
    """SPO+ is twice the hinge, the central perturbation gradient direct loss without noise."""
    func = pytest.importorskip("pyepo.func")
    task, costs = pyepo.task(model), torch.rand(20, 3)
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
