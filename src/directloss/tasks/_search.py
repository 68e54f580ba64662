"""How many decisions to flip: the maximum of ``sign * L(i, j) - X_i - Y_j`` over the grid of all pairs.

`directloss.tasks._flips` says where this comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from directloss.metrics.confusion import Counts

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""L as a function of tp, fp, fn, tn."""
ROUNDING = 1e-14
"""More than the rounding errors of a loss of order one in float64: what is less than this is no difference."""
GRID_CELLS = 1 << 18
"""How many cells of the grid are evaluated at a time: some megabytes, which stay in the cache."""


class Moves(NamedTuple):
    """The decisions of one class that can be flipped in one direction, cheapest first; ``w`` of them at most."""

    step: int
    """+1 where a flip makes a no a yes, -1 where it makes a yes a no."""
    price: Tensor
    """Shape ``(b, w)``, ascending; infinite where a problem has fewer of them."""
    place: Tensor
    """Which item it is, shape ``(b, w)``; n where there is none."""

    def total(self) -> Tensor:
        """The price of the first 0, 1, ..., w flips together, shape ``(b, w + 1)``."""
        return pad(self.price.cumsum(-1), (1, 0))

    def cut(self, limit: Tensor) -> Moves:
        """Without the flips that even together with all cheaper ones cost too much."""
        width = int((self.price.cumsum(-1) < limit).sum(-1).max())
        return Moves(self.step, self.price[:, :width], self.place[:, :width])


def cheapest(value: Tensor, cost: Tensor) -> Tensor:
    """Where the highest value of the last dimension is; of several that are equal but for rounding the cheapest."""
    return cost.masked_fill(value < value.amax(-1, keepdim=True) - 4 * ROUNDING, torch.inf).argmin(-1, keepdim=True)


def count_real(price: Tensor) -> Tensor:
    """How many moves a problem has, shape ``(b, 1)``."""
    return (price < torch.inf).sum(-1, keepdim=True)


def search_grid(
    now: Counts, loss: Loss, sign: int, positives: list[Moves], negatives: list[Moves]
) -> list[tuple[Moves, Tensor]]:
    """The best cell of the whole grid, some problems at a time so that memory stays bounded."""
    rows, columns = _axis(positives), _axis(negatives)
    together = max(1, GRID_CELLS // columns.price.shape[1])
    found = []
    for start in range(0, len(rows.price), together):
        part = slice(start, start + together)
        here = Counts(*(counts[part] for counts in now))
        found.append(_best_cell(here, loss, sign, Axis(*(r[part] for r in rows)), Axis(*(c[part] for c in columns))))
    tp, fp = (torch.cat(changes) for changes in zip(*found, strict=True))
    flips = [(moves, tp) for moves in positives] + [(moves, fp) for moves in negatives]
    return [(moves, (moves.step * change).clamp(min=0)) for moves, change in flips]


class Axis(NamedTuple):
    """By how much a count can change, and what that costs in all, each of shape ``(b, w)``."""

    change: Tensor
    price: Tensor


def _axis(kinds: list[Moves]) -> Axis:
    """Moves of one or both directions in a row."""
    changes, prices = [], []
    for moves in kinds:
        prices.append(moves.total())
        # Beyond the last move of a problem the price is infinite; the count stays, so that L is always well defined.
        number = torch.arange(prices[-1].shape[1], device=prices[-1].device).minimum(count_real(moves.price))
        changes.append(moves.step * number)
    return Axis(torch.cat(changes, -1), torch.cat(prices, -1))


def _best_cell(now: Counts, loss: Loss, sign: int, rows: Axis, columns: Axis) -> tuple[Tensor, Tensor]:
    """How much the true and the false positives change in the best cell, each of shape ``(b, 1)``."""
    tp, fp, fn, tn = (part[:, :, None] for part in now)
    fp, tn = fp + columns.change[:, None, :], tn - columns.change[:, None, :]
    problems, width = columns.change.shape
    height = max(1, GRID_CELLS // (problems * width))
    tops = []
    for start in range(0, rows.change.shape[1], height):
        some, price = (part[:, start : start + height] for part in rows)
        more = some[:, :, None]
        cost = (price[:, :, None] + columns.price[:, None, :]).flatten(1)
        value = (sign * loss(tp + more, fp, fn - more, tn)).flatten(1) - cost
        cell = cheapest(value, cost)
        changes = some.gather(-1, cell // width), columns.change.gather(-1, cell % width)
        tops.append((value.gather(-1, cell), cost.gather(-1, cell), *changes))
    value, cost, change_tp, change_fp = (torch.cat(parts, -1) for parts in zip(*tops, strict=True))
    best = cheapest(value, cost)
    return change_tp.gather(-1, best), change_fp.gather(-1, best)
