"""Assignments: a different column for each row (the Hungarian problem), judged by labels or costs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from directloss._checks import check_tensor, fail, name_of
from directloss.task import Mask
from directloss.tasks._labels import Cost, LabelTask
from directloss.tasks.decomposable import Decomposable, GivenCosts, check_solvable


class Assignment(LabelTask):
    """Assign each row a different column, judged by the right columns: objects to tracks, keypoints to detections.

    ``F = 1/r * sum_i score[i, y_i]`` over the r real rows, with all ``y_i`` different. The loss is the share of rows
    that get a wrong column, or the mean of your own cost. Both inferences are linear sum assignments, exact in
    O(r^2 c) by `scipy.optimize.linear_sum_assignment`, one problem at a time on the CPU. If the true *costs* of all
    pairs are known, use `Matching`.

    Args:
        cost: None for 0-1, a matrix ``cost[true, predicted]`` of shape ``(c, c)``, or a function from the target
            ``(..., r)`` to costs ``(..., r, c)``.

    Shapes:
        scores ``(..., r, c)`` with r <= c; target ``(..., r)``, the column of each row. ``mask`` ``(..., r)`` is False
        for padded rows, which take no column.

    References:
        Kuhn 1955; Crouse 2016 for the algorithm; Song et al., ICML 2016, Sec. 3 for the loss-augmented problem.

    Examples:
        >>> scores = torch.tensor([[3.0, 2.0, 0.0], [3.0, 0.0, 0.0]])
        >>> task = Assignment()
        >>> task.predict(scores)
        tensor([1, 0])
        >>> task.loss(task.predict(scores), torch.tensor([1, 2]))
        tensor(0.5000)
        >>> task.augmented(scores, torch.tensor([1, 2]), epsilon=4.0, sign=-1).labels
        tensor([1, 2])
    """

    shape_words = "(..., r, c)"

    def __init__(self, *, cost: Cost = None) -> None:
        super().__init__(cost)

    def solve(self, scores: Tensor, mask: Mask) -> Tensor:
        from scipy.optimize import linear_sum_assignment  # slow to import, and only assignments need it

        rows, columns = scores.shape[-2:]
        table = scores.cpu().double().reshape(-1, rows, columns).numpy()
        output = torch.zeros(len(table), rows, dtype=torch.long)
        real = torch.ones_like(output) if mask is None else mask.reshape(-1, rows).cpu()
        for values, there, columns_of in zip(table, real.bool(), output, strict=True):
            columns_of[there] = torch.from_numpy(linear_sum_assignment(values[there.numpy()], maximize=True)[1])
        return output.reshape(scores.shape[:-1]).to(scores.device)

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        _check_width(scores)
        if check_tensor("target", target).shape == scores.shape:
            hint = 'Use Matching(loss="missed") for such tables.'
            fail("target", "must hold the column of each row", "a table in the shape of scores", hint)
        super().check(scores, target, check_values)

    def counted(self, target: Tensor, mask: Mask = None) -> Tensor | None:
        """Problems with at least one real row; the columns of the real rows must differ."""
        same = target[..., None] == target[..., None, :]
        twice = (same if mask is None else same & (mask[..., None] & mask[..., None, :])).sum(-1) > 1
        if bool(twice.any()):
            fail("target", "must give each row a different column", f"column {target[twice][0]} for more than one row")
        return super().counted(target, mask)

    def __repr__(self) -> str:
        return f"Assignment({'' if self.cost is None else 'cost=...'})"


class Matching(Decomposable):
    """Assign each row a different column, judged by costs or values: jobs to machines, riders to drivers.

    ``F = sum_ij score_ij * y_ij``, where y has a single 1 in each row and at most one in each column. With
    ``loss="regret"`` the target holds the true costs of all pairs (score = -cost), and L is the cost of the matching
    minus that of the cheapest. Exact by `scipy.optimize.linear_sum_assignment`, O(r^2 c), one problem at a time.

    Args:
        maximize: True if the target holds values to maximise (score = value).
        loss: ``"regret"``, ``"missed"``, ``"hamming"`` (see `SolverTask`) or a function.
        truth: computes the true matching from the target, for your own loss.

    Shapes:
        scores ``(..., r, c)`` with r <= c; target the same, the true costs, or 1 for the pairs of the true matching.

    References:
        Kuhn 1955; Crouse 2016.

    Examples:
        >>> costs = torch.tensor([[1.0, 2.0], [1.0, 5.0]])
        >>> Matching().predict(-costs)
        tensor([[0., 1.],
                [1., 0.]])
    """

    event_dims = target_dims = 2
    shape_words = "(..., r, c)"

    def __init__(
        self,
        *,
        maximize: bool = False,
        loss: str | GivenCosts = "regret",
        truth: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(loss, truth)
        self.maximize = maximize

    def solve(self, scores: Tensor) -> Tensor:
        from scipy.optimize import linear_sum_assignment  # slow to import, and only assignments need it

        tables = scores.detach().reshape(-1, *scores.shape[-2:]).cpu().double()
        check_solvable(tables.numpy())
        output = torch.zeros_like(tables)
        for values, marks in zip(tables.numpy(), output.numpy(), strict=True):
            marks[linear_sum_assignment(values, maximize=True)] = 1.0
        return output.to(scores).reshape(scores.shape)

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        _check_width(scores)
        super().check(scores, target, check_values)

    def check_truth(self, target: Tensor) -> None:
        marks = target.long().sum(-1)
        if bool((marks != 1).any()):
            where = (marks != 1).nonzero()[0].tolist()
            fail("target", "must have a single 1 in each row", f"of {int(marks[tuple(where)])} in row {where}")
        if bool((target.sum(-2) > 1).any()):
            fail("target", "must give each row a different column", "a column for more than one row")

    def __repr__(self) -> str:
        return f"Matching({'maximize=True, ' * self.maximize}loss={name_of(self.criterion)})"


def _check_width(scores: Tensor) -> None:
    rows, columns = scores.shape[-2:]
    if rows > columns:
        fail("scores", "must have at least as many columns as rows", f"of shape {tuple(scores.shape)}", "Transpose it.")
