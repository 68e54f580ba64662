"""How many decisions to flip when the metric is a product, ``M = f(tp) h(fp)``, as the G-mean is: O(n log n) as well.

Of ``sign * L(i, j) - X_i - Y_j`` (see `directloss.tasks._flips`) only L mixes the two numbers of flips, and its mixed
difference ``(f_{i+1} - f_i) (h_{j+1} - h_j)`` has one sign: right decisions lower both factors, wrong ones raise both.
So the best j of a row i never rises with i for sign +1 and never falls for sign -1: the best cells form a staircase.
Rows are settled from coarse to fine, each between the best cells of its neighbours above and below, which leaves
O(rows + columns) cells for each of the log(rows) levels. All problems go together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from directloss.metrics.confusion import Counts
from directloss.tasks._search import Loss, Moves, cheapest, count_real


class Grid:
    """The objective at any cells of any problems."""

    def __init__(self, now: Counts, loss: Loss, sign: int, positives: Moves, negatives: Moves) -> None:
        self.now, self.loss, self.sign = Counts(*(part[:, 0] for part in now)), loss, sign
        self.X, self.Y = positives.total(), negatives.total()
        self.rows, self.columns = count_real(positives.price)[:, 0], count_real(negatives.price)[:, 0]

    def cost(self, problem: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.X[problem, i] + self.Y[problem, j]

    def value(self, problem: Tensor, i: Tensor, j: Tensor) -> Tensor:
        tp, fp, fn, tn = (part[problem] for part in self.now)
        more_i, more_j = self.sign * i.double(), self.sign * j.double()
        return self.sign * self.loss(tp - more_i, fp + more_j, fn + more_i, tn - more_j) - self.cost(problem, i, j)


def search_staircase(
    now: Counts, loss: Loss, sign: int, positives: Moves, negatives: Moves
) -> list[tuple[Moves, Tensor]]:
    """The best cell of every row, then the best of these."""
    grid = Grid(now, loss, sign, positives, negatives)
    best_j = _best_of_rows(grid)
    problems, height = best_j.shape
    problem = torch.arange(problems, device=best_j.device)[:, None].expand(-1, height + 1)
    # The plain prediction once more: it stays unless something is better by more than rounding errors.
    i = torch.arange(-1, height, device=best_j.device).clamp(min=0).expand(problems, -1)
    j = torch.cat((torch.zeros_like(best_j[:, :1]), best_j), 1)
    cost = grid.cost(problem, i, j)
    value = torch.where(cost < torch.inf, grid.value(problem, torch.minimum(i, grid.rows[:, None]), j), -torch.inf)
    best = cheapest(value, cost)
    return [(positives, i.gather(-1, best)), (negatives, j.gather(-1, best))]


def _best_of_rows(grid: Grid) -> Tensor:
    """The best j of each row i, shape ``(b, rows)``. Rows that a problem does not have get any j."""
    height, last = grid.X.shape[1], grid.columns[:, None]
    # Places count from the end that makes them rise from row to row. Row i is column i + 1 of `place`; its first and
    # its last columns are the bounds of the search.
    place = torch.cat((torch.zeros_like(last), last.expand(-1, height + 1)), 1).clone()
    step = 1 << (height.bit_length() - 1)
    while step:
        at = torch.arange(step, height + 1, 2 * step, device=place.device)
        low, high = place[:, at - step], place[:, (at + step).clamp(max=height + 1)]
        real = at - 1 <= grid.rows[:, None]
        place[:, at] = torch.where(real, _best_between(grid, at - 1, low, torch.where(real, high, low)), last)
        step //= 2
    found = place[:, 1:-1]
    return last - found if grid.sign > 0 else found


def _best_between(grid: Grid, row: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The best place of some rows, between bounds of shape ``(b, rows)``; all ranges lie one after the other."""
    length = (high - low + 1).flatten()
    cell = torch.repeat_interleave(length)
    place = low.flatten()[cell] + torch.arange(len(cell), device=cell.device) - (length.cumsum(0) - length)[cell]
    problem = cell.div(len(row), rounding_mode="floor")
    i = torch.minimum(row[cell % len(row)], grid.rows[problem])
    value = grid.value(problem, i, grid.columns[problem] - place if grid.sign > 0 else place)
    best = value.new_full((len(length),), -torch.inf).scatter_reduce_(0, cell, value, "amax")
    # Of equally good cells the one with the fewest flips.
    hit = value == best[cell]
    if grid.sign > 0:
        chosen = place.new_full((len(length),), -1).scatter_reduce_(0, cell, torch.where(hit, place, -1), "amax")
    else:
        far = grid.Y.shape[1]
        chosen = place.new_full((len(length),), far).scatter_reduce_(0, cell, torch.where(hit, place, far), "amin")
    return chosen.reshape(low.shape)
