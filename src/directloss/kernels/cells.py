"""The best flips if L is not linear along lines: a search over a grid. `directloss.kernels.flips` states the problem.

A cell ``(k, m)`` has k more mistakes among the positives and m more among the negatives than the plain decisions, or
fewer if they are negative. A line is one k of one row. The search visits all cells, unless the metric is a product
``f(tp) h(fp)``, like the G-mean. Then the mixed difference ``(f_{k+1} - f_k) (h_{m+1} - h_m)`` of L has one sign, so
the best cells of the lines form a staircase. Lines are solved from coarse to fine, each between the best cells of its
neighbours, which takes O(n log n).

Among equally good cells the cheapest wins, and among these the one with the fewest flips.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from directloss.kernels.compiled import kernel
from directloss.kernels.flips import NEGATIVE, POSITIVE, ROUNDING, Flips, Rows

CELLS = 1 << 15
"""Cells of the grid to evaluate at a time, unless a line has more: they fit into the cache."""


class Staircase:
    """The search for a product, whose factors follow from two borders of the grid."""

    def __init__(self, rows: Rows, sign: int) -> None:
        self.sign, self.flips = sign, rows.flips(sign)
        numbers = self.flips.numbers[:, :, None]
        steps = np.minimum(np.arange(rows.draws.shape[-1] + 1), numbers)
        # The borders meet where the metric is highest, so that it can serve as divisor.
        corner = 0 * numbers if sign > 0 else numbers
        k = np.stack(np.broadcast_arrays(steps[:, POSITIVE], corner[:, POSITIVE]), 1)
        m = np.stack(np.broadcast_arrays(corner[:, NEGATIVE], steps[:, NEGATIVE]), 1)
        self.counts = moved(rows.counts[:, :, None, None], sign * k, sign * m)

    def add_best(self, losses: Any, unit: Any, factor: Any, slope: Any) -> None:
        f, h = np.moveaxis((1 - losses).reshape(len(self.flips.numbers), 2, -1), 1, 0)
        highest = f[:, :1] if self.sign > 0 else f[:, -1:]
        h = h / np.where(highest > 0, highest, 1.0)
        limit = np.abs(f[:, 0] * h[:, 0] - f[:, -1] * h[:, -1])  # between the plain decisions and all flips
        cells = Cells.within(unit, limit, {self.sign: self.flips})
        place, tops = np.empty(f.shape[1] + 2, np.int64), np.empty((3, len(cells.k)))
        climb(f, h, cells.cost, cells.low, cells.high, cells.starts, self.sign, place, tops)
        take_best(tops, cells.starts, cells.k, cells.items, self.sign, factor, slope)


class Grid:
    """The search for any function of the confusion matrix, monotone or not."""

    def __init__(self, rows: Rows, sign: int, monotone: bool, loss: Callable[[Any], Any]) -> None:
        self.sign, self.loss, self.plain = sign, loss, rows.counts
        self.flips = {way: rows.flips(way) for way in ((sign,) if monotone else (+1, -1))}
        self.counts = rows.counts[:, :0]
        if monotone:
            most = sign * self.flips[sign].numbers
            self.counts = np.stack((self.plain, moved(self.plain, *most.T)), 1)

    def add_best(self, losses: Any, unit: Any, factor: Any, slope: Any) -> None:
        plain, extreme = losses.reshape(2, -1) if losses.size else (0.0, self.sign * np.inf)
        cells = Cells.within(unit, self.sign * (extreme - plain), self.flips)
        tops = np.empty((3, len(cells.k)))
        ends = (cells.high - cells.low + 1)[cells.owner, NEGATIVE].cumsum()
        first = 0
        while first < len(ends):
            before = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + CELLS, "right")))
            some = slice(first, last)
            lines = (cells.owner[some], cells.k[some], cells.low, cells.high)
            counts = np.empty((4, ends[last - 1] - before))
            fill(*lines, self.plain, counts)
            compare(*lines, cells.cost, self.loss(counts), self.sign, tops[:, some])
            first = last
        take_best(tops, cells.starts, cells.k, cells.items, self.sign, factor, slope)


def moved(counts: Any, k: Any, m: Any) -> Any:
    """Confusion matrices with k more mistakes among the positives and m more among the negatives."""
    tp, fp, fn, tn = counts
    return np.stack((tp - k, fp + m, fn + k, tn - m))


class Cells(NamedTuple):
    """The cells of all rows."""

    cost: Any
    """Of k more mistakes of each row and side at place n + k, shape (r, 2, 2 n + 1)."""
    items: Any
    """The items to flip: those between place n and place n + k, shape (r, 2, 2 n)."""
    low: Any
    high: Any
    """The smallest and largest k and m of each row, shape (r, 2)."""
    starts: Any
    """Where the lines of each row begin, shape (r + 1,)."""
    owner: Any
    k: Any
    """The row and the k of each line."""

    @staticmethod
    def within(unit: Any, limit: Any, flips: dict[int, Flips]) -> Cells:
        """Cells below a cost limit per row; ``unit`` is the score that costs 1, per problem.

        ``flips`` are the right decisions (+1), the wrong ones (-1) or both.
        """
        some = next(iter(flips.values()))
        r, _, n = some.sizes.shape
        totals, reach = {}, {-1: np.zeros((r, 2), np.int64), +1: np.zeros((r, 2), np.int64)}
        for way, (sizes, _, numbers) in flips.items():
            with np.errstate(all="ignore"):  # entries after the last flip of a row are arbitrary
                totals[way] = np.cumsum(sizes / -np.resize(unit, (r, 1, 1)), 2)
                able = (totals[way] < np.reshape(limit, (-1, 1, 1))) & (np.arange(n) < numbers[:, :, None])
            reach[way] = able.sum(2)
        wrong, right = (way if way in flips else -way for way in (-1, +1))  # cells out of reach are arbitrary
        cost = np.concatenate((totals[wrong][:, :, ::-1], np.zeros((r, 2, 1)), totals[right]), 2)
        items = np.concatenate((flips[wrong].items[:, :, ::-1], flips[right].items), 2)
        low, high = -reach[-1], reach[+1]
        heights = (high - low)[:, POSITIVE] + 1
        starts, owner = np.append(0, heights.cumsum()), np.repeat(np.arange(r), heights)
        k = np.arange(len(owner)) - starts[owner] + low[owner, POSITIVE]
        return Cells(cost, items, low, high, starts, owner, k)


@kernel
def fill(owner, k, low, high, plain, counts):
    """The confusion matrices of all cells of some lines."""
    at = 0
    for line in range(len(owner)):
        row, missed = owner[line], k[line]
        for m in range(low[row, NEGATIVE], high[row, NEGATIVE] + 1):
            counts[0, at] = plain[0, row] - missed
            counts[1, at] = plain[1, row] + m
            counts[2, at] = plain[2, row] + missed
            counts[3, at] = plain[3, row] - m
            at += 1


@kernel
def compare(owner, k, low, high, cost, losses, sign, tops):
    """The best cell of some lines: its value, its cost and its m."""
    n, at = cost.shape[2] // 2, 0
    for line in range(len(owner)):
        row, best, cheapest, found = owner[line], -np.inf, np.inf, 0
        first, last, own = low[row, NEGATIVE], high[row, NEGATIVE], cost[row, POSITIVE, n + k[line]]
        for m in range(first, last + 1):
            value = sign * losses[at + m - first] - (own + cost[row, NEGATIVE, n + m])
            if value > best:
                best = value
        for m in range(first, last + 1):
            price = own + cost[row, NEGATIVE, n + m]
            value = sign * losses[at + m - first] - price
            if value >= best - 4 * ROUNDING and (price < cheapest or (price == cheapest and abs(m) < abs(found))):
                cheapest, found = price, m
                tops[0, line], tops[1, line], tops[2, line] = value, price, m
        at += last + 1 - first


@kernel
def climb(f, h, cost, low, high, starts, sign, place, tops):
    """Like `compare`, for all lines of a product ``f_i h_j``, where i and j are the numbers of flips.

    ``place`` is scratch for the best j of each i and a bound on both sides. For sign +1 it decreases with i, so it is
    counted from the other end.
    """
    n = cost.shape[2] // 2
    for row in range(len(f)):
        height = starts[row + 1] - starts[row]
        most = high[row, NEGATIVE] - low[row, NEGATIVE]
        place[0], place[height + 1] = 0, most
        step = 1
        while 2 * step <= height:
            step *= 2
        while step > 0:
            for at in range(step, height + 1, 2 * step):
                i, best = at - 1, -np.inf
                end = at + step if at + step <= height else height + 1
                for spot in range(place[at - step], place[end] + 1):
                    j = most - spot if sign > 0 else spot
                    value = -sign * f[row, i] * h[row, j] - cost[row, NEGATIVE, n + sign * j]
                    if value > best or (value == best and sign > 0):  # ties go to fewer flips
                        best, place[at] = value, spot
            step //= 2
        for i in range(height):
            line = starts[row] + i if sign > 0 else starts[row + 1] - 1 - i
            j = most - place[i + 1] if sign > 0 else place[i + 1]
            price = cost[row, POSITIVE, n + sign * i] + cost[row, NEGATIVE, n + sign * j]
            value = -sign * f[row, i] * h[row, j] - price
            if i == 0 and -sign * f[row, 0] * h[row, 0] >= value - 4 * ROUNDING:
                j, price, value = 0, 0.0, -sign * f[row, 0] * h[row, 0]
            tops[0, line], tops[1, line], tops[2, line] = value, price, sign * j


@kernel
def take_best(tops, starts, k, items, sign, factor, slope):
    """Find the best line of each row, and add the flips of its best cell to the gradient."""
    n = items.shape[2] // 2
    for row in range(len(starts) - 1):
        best, cheapest, fewest, found, problem = -np.inf, np.inf, 0, -1, row % len(slope)
        for line in range(starts[row], starts[row + 1]):
            if tops[0, line] > best:
                best = tops[0, line]
        for line in range(starts[row], starts[row + 1]):
            price, number = tops[1, line], abs(k[line]) + abs(int(tops[2, line]))
            if tops[0, line] >= best - 4 * ROUNDING and (price < cheapest or (price == cheapest and number < fewest)):
                cheapest, fewest, found = price, number, line
        for side in range(2):
            more = k[found] if side == POSITIVE else int(tops[2, found])
            first, last = (n, n + more) if more > 0 else (n + more, n)
            way = sign if (more > 0) == (side == NEGATIVE) else -sign
            for at in range(first, last):
                slope[problem, items[row, side, at]] += way * factor[problem]
