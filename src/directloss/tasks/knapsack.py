"""Choosing items: a fixed number, or as many as fit into one or several budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from directloss._checks import check_count, fail, name_of
from directloss.tasks.decomposable import Decomposable, GivenCosts, by_kernel, refuse_truth

LARGEST_TABLE = 100_000
"""The largest capacity to solve by dynamic programming."""


class Knapsack(Decomposable):
    """The best items that fit into one or several budgets, with a score per item.

    ``F = sum_i score_i * y_i`` over the chosen items, whose weights stay within every budget. With ``loss="regret"``
    the target holds the true *values* of the items, and L is the value of the best choice minus that of the chosen one.

    Exact: dynamic programming for one budget and integer weights, O(items * capacity); otherwise branch and bound,
    which takes microseconds for tens of items, but possibly exponential time for hundreds of equally good ones.

    Args:
        weights: shape ``(items,)`` for one budget or ``(budgets, items)``, non-negative.
        capacity: a number, or one per budget, non-negative.
        loss: ``"regret"``, ``"hamming"``, ``"missed"`` (see `SolverTask`) or a function.
        truth: computes the true choice from the target, for your own loss.

    Shapes:
        scores ``(..., items)``; target ``(..., items)``, the true values, or 1 for the items of the true choice.

    References:
        Bellman 1957 for the recursion; Kellerer, Pferschy, Pisinger 2004 for the bounds.

    Examples:
        >>> task = Knapsack([3, 4, 5], capacity=8)
        >>> scores = torch.tensor([1.0, 4.0, 6.0])
        >>> task.predict(scores)
        tensor([1., 0., 1.])
        >>> task.loss(task.predict(scores), torch.tensor([5.0, 9.0, 3.0]))
        tensor(6.)
    """

    maximize = True

    def __init__(
        self,
        weights: Tensor | Sequence[float] | Sequence[Sequence[float]],
        capacity: float | Sequence[float] | Tensor,
        *,
        loss: str | GivenCosts = "regret",
        truth: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(loss, truth)
        self.weights = _table("weights", weights)
        if self.weights.ndim == 1:
            self.weights = self.weights[None]
        if self.weights.ndim != 2 or not self.weights.size:
            fail("weights", "must have shape (items,) or (budgets, items)", f"of shape {self.weights.shape}")
        self.capacity = np.atleast_1d(_table("capacity", capacity))
        if self.capacity.shape != self.weights.shape[:1]:
            need = f"must hold one number for each of the {len(self.weights)} budgets"
            fail("capacity", need, f"of shape {self.capacity.shape}")
        self.problem_shape = self.weights.shape[1:]
        self.shape_words = f"(..., {self.weights.shape[1]}), one score for each item"
        whole = bool((self.weights % 1 == 0).all()) and bool((self.capacity % 1 == 0).all())
        self._table = len(self.weights) == 1 and whole and self.capacity[0] <= LARGEST_TABLE

    def solve(self, scores: Tensor) -> Tensor:
        from directloss.kernels import decisions  # numba is slow to import

        if self._table:
            weights = self.weights[0].astype(np.int64)
            return by_kernel(decisions.whole_knapsacks, scores, weights, int(self.capacity[0]))
        return by_kernel(decisions.knapsacks, scores, np.ascontiguousarray(self.weights.T), self.capacity)

    def check_truth(self, target: Tensor) -> None:
        """The true choice fits into the budgets."""
        spent = target.reshape(-1, target.shape[-1]).cpu().double().numpy() @ self.weights.T
        over = spent > self.capacity * (1 + 1e-9)
        if over.any():
            problem, budget = np.argwhere(over)[0]
            most = f"must mark items that fit into the capacity {self.capacity[budget]:g}"
            refuse_truth(most, f"{spent[problem, budget]:g} in problem {problem}", "choice", "values")

    def __repr__(self) -> str:
        budgets, items = self.weights.shape
        return f"Knapsack({items} items, {budgets} budget{'s' * (budgets > 1)}, loss={name_of(self.criterion)})"


class Choose(Decomposable):
    """The k best items, or at most k of them: advertisements, patients, machines to inspect.

    ``F = sum_i score_i * y_i``. With ``loss="regret"`` the target holds the true *values* of the items, and L is the
    value of the best k minus that of the chosen ones.

    Args:
        k: how many items to choose.
        at_most: whether fewer may be chosen: those with a score above 0.
        loss: ``"regret"``, ``"hamming"``, ``"missed"`` (see `SolverTask`) or a function.
        truth: computes the true choice from the target, for your own loss.

    Shapes:
        scores ``(..., items)``; target ``(..., items)``, the true values, or 1 for the items of the true choice.

    Examples:
        >>> task = Choose(2)
        >>> scores = torch.tensor([1.0, 4.0, 6.0])
        >>> task.predict(scores)
        tensor([0., 1., 1.])
        >>> task.loss(task.predict(scores), torch.tensor([5.0, 9.0, 3.0]))
        tensor(2.)
    """

    maximize = True
    shape_words = "(..., items)"

    def __init__(
        self,
        k: int,
        *,
        at_most: bool = False,
        loss: str | GivenCosts = "regret",
        truth: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(loss, truth)
        self.k, self.at_most = check_count("k", k), at_most

    def solve(self, scores: Tensor) -> Tensor:
        # Stable: ties go to the first item.
        chosen = scores.sort(dim=-1, descending=True, stable=True).indices[..., : self.k]
        output = torch.zeros_like(scores).scatter_(-1, chosen, 1.0)
        return output * (scores > 0) if self.at_most else output

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        if scores.shape[-1] < self.k:
            fail("scores", f"must have at least the {self.k} items to choose", f"of shape {tuple(scores.shape)}")
        super().check(scores, target, check_values)

    def check_truth(self, target: Tensor) -> None:
        sizes = target.sum(-1)
        wrong = (sizes > self.k) | ((sizes < self.k) & (not self.at_most))
        if bool(wrong.any()):
            words = f"must mark {'at most ' * self.at_most}{self.k} items"
            fail("target", words, f"{int(sizes[wrong][0])} in one problem", 'For true values use loss="regret".')

    def __repr__(self) -> str:
        return f"Choose({self.k}{', at_most=True' * self.at_most}, loss={name_of(self.criterion)})"


def _table(argument: str, values: object) -> np.ndarray:
    """Finite, non-negative numbers in float64."""
    try:
        table = torch.as_tensor(values).detach().cpu().double().numpy()
    except (TypeError, ValueError, RuntimeError):
        fail(argument, "must hold numbers", f"a {type(values).__name__}")
    if not np.isfinite(table).all() or (table < 0).any():
        fail(argument, "must be finite and not negative", f"{table[~(table >= 0) | ~np.isfinite(table)][0]} somewhere")
    return table
