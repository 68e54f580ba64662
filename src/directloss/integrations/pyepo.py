"""PyEPO's optimisation models as tasks: `directloss` with the solver you already have.

task = directloss.integrations.pyepo.task(optmodel)
loss_fn = directloss.DirectLoss(task)
loss = loss_fn(-predicted_costs, true_costs)        # minus, because a higher score is better; not for MAXIMIZE
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from directloss._checks import fail
from directloss.tasks import SolverTask


class OptModelSolver:
    """Calls ``setObj`` and ``solve`` of a PyEPO model, which is rebuilt in other processes."""

    def __init__(self, optmodel: Any) -> None:
        for name in ("setObj", "solve", "modelSense"):
            if not hasattr(optmodel, name):
                fail("optmodel", "must be an optModel of PyEPO", f"a {type(optmodel).__name__} without {name}")
        self.model: Any = optmodel
        self.spec: Any = None
        self.maximizes = int(optmodel.modelSense) == -1
        self.__name__ = type(optmodel).__name__

    def __call__(self, scores: Tensor) -> Any:
        if self.model is None:
            self.model = self.spec.build()
        costs = scores.double().cpu().numpy()
        self.model.setObj(costs if self.maximizes else -costs)
        solution = np.asarray(self.model.solve()[0], dtype=float)
        near = solution.round()
        return near if np.abs(solution - near).max(initial=0.0) < 1e-5 else solution

    def __getstate__(self) -> dict[str, Any]:
        spec = self.spec if self.model is None else self.model.to_spec()
        return {**self.__dict__, "model": None, "spec": spec}


def task(optmodel: Any, **options: Any) -> SolverTask:
    """A task for an ``optModel`` of PyEPO, whatever solver is behind it.

    Args:
        optmodel: the model. Scores are minus the predicted costs, or the predicted values if the model maximises;
            the target holds the true costs (or values) as in PyEPO.
        options: options of `directloss.tasks.SolverTask`, such as another ``loss``.
    """
    solver = OptModelSolver(optmodel)
    return SolverTask(solver, **{"loss": "regret", "maximize": solver.maximizes, "batched": False, **options})
