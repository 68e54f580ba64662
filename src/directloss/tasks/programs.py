"""(Mixed-)integer linear programmes, solved by HiGHS."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from directloss._checks import fail, name_of
from directloss.tasks.decomposable import GivenCosts
from directloss.tasks.solver import SolverTask

NEAR = 1e-5
"""Tolerance of HiGHS for whole numbers."""
LARGEST = 1e4
"""The largest score that HiGHS sees. It stops when the objective is within 1e-6 of the best, an absolute gap."""


class IntegerProgram(SolverTask):
    """The best whole numbers under linear constraints: schedules, coverings, routes; solved by HiGHS via scipy.

    Maximises ``F = sum_p score_p * y_p`` subject to ``lower <= matrix @ y <= upper`` and ``least <= y <= most``, to
    within a ten-billionth of the largest score. A problem takes milliseconds or more. The tasks for knapsacks and
    paths are a hundred times as fast.

    Args:
        matrix: the constraints, shape ``(constraints, parts)``, a tensor, an array or a sparse matrix.
        lower: lower bound of the constraints, a number or one per constraint; None for no bound.
        upper: upper bound of the constraints; None for no bound.
        least: lower bound of the parts, 0 by default.
        most: upper bound of the parts, 1 by default.
        whole: which parts are whole numbers: True for all, or one value per part.
        loss: ``"regret"``, ``"hamming"``, ``"missed"`` or a function, see `SolverTask`.
        timeout: seconds per problem; no limit by default.
        options: ``maximize`` and ``truth`` of `SolverTask`.

    Shapes:
        scores ``(..., parts)``; target ``(..., parts)``.

    References:
        Huangfu, Hall 2018 for HiGHS.

    Examples:
        >>> task = IntegerProgram([[1, 1, 0], [0, 1, 1]], lower=1)  # choose 0 or 1, and choose 1 or 2
        >>> task.predict(-torch.tensor([2.0, 3.0, 2.0]))
        tensor([0., 1., 0.])
    """

    def __init__(
        self,
        matrix: Any,
        *,
        lower: Any = None,
        upper: Any = None,
        least: Any = 0.0,
        most: Any = 1.0,
        whole: Any = True,
        loss: str | GivenCosts = "regret",
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        from scipy.sparse import csr_array, issparse

        try:
            given = matrix if issparse(matrix) else np.asarray(matrix, dtype=float)
        except (TypeError, ValueError) as error:
            fail("matrix", "must have shape (constraints, parts)", f"a {type(matrix).__name__}: {error}")
        if given.ndim != 2:  # scipy before 1.13 would turn a vector into a row
            fail("matrix", "must have shape (constraints, parts)", f"of shape {given.shape}")
        self.matrix = csr_array(given)
        rows, parts = self.matrix.shape
        self.lower = _filled("lower", -np.inf if lower is None else lower, rows)
        self.upper = _filled("upper", np.inf if upper is None else upper, rows)
        self.least, self.most = _filled("least", least, parts), _filled("most", most, parts)
        self.whole = _filled("whole", whole, parts).astype(bool)
        if not np.isfinite(self.matrix.data).all():
            fail("matrix", "must be finite", "NaN or infinite somewhere")
        for low, high in (("lower", "upper"), ("least", "most")):
            crossed = np.flatnonzero(getattr(self, low) > getattr(self, high))
            if len(crossed):
                there = f"{getattr(self, low)[crossed[0]]:g} and {getattr(self, high)[crossed[0]]:g} at {crossed[0]}"
                fail(low, f"must not be above {high}, or nothing is feasible", there)
        self.timeout = timeout
        zero_one = bool((self.whole & (self.least >= 0) & (self.most <= 1)).all())
        super().__init__(self._solve_one, loss=loss, batched=False, indicator=zero_one, **options)
        self._tried = True  # the solver is known to fit
        self.problem_shape = (parts,)
        self.shape_words = f"(..., {parts}), one score for each part"

    def _solve_one(self, scores: Tensor) -> Tensor:
        from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import

        costs = -scores.double().cpu().numpy()
        largest = np.abs(costs).max(initial=0.0)
        solution = milp(
            costs * (LARGEST / largest) if largest > 0 else costs,
            integrality=self.whole,
            bounds=Bounds(self.least, self.most),
            constraints=LinearConstraint(self.matrix, self.lower, self.upper),
            options={"mip_rel_gap": 0.0} | ({} if self.timeout is None else {"time_limit": self.timeout}),
        )
        if solution.status != 0:
            raise ArithmeticError(f"HiGHS found no best output: {solution.message}")
        y = torch.from_numpy(solution.x)
        whole = torch.from_numpy(self.whole)
        if bool(((y - y.round()).abs()[whole] > NEAR).any()):
            raise ArithmeticError("HiGHS returned parts that are not whole numbers")
        return torch.where(whole, y.round(), y)

    def __repr__(self) -> str:
        constraints, parts = self.matrix.shape
        return f"IntegerProgram({parts} parts, {constraints} constraints, loss={name_of(self.criterion)})"


def _filled(argument: str, value: Any, size: int) -> np.ndarray:
    """A vector of this size, from a number or one number per entry."""
    need = f"must be a number or one for each of {size}"
    try:
        table = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        fail(argument, need, f"a {type(value).__name__}")
    if table.shape not in ((), (size,)):
        fail(argument, need, f"of shape {table.shape}")
    if np.isnan(table).any():
        fail(argument, need, "NaN somewhere")
    return np.broadcast_to(table, (size,)).copy()
