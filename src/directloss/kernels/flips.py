"""Exact loss-augmented inference for any loss that is a function of the confusion matrix, on the CPU.

Plain inference says yes where the score is above 0. With F the mean over the items of ``score * yes``, any other output
is that one with some decisions flipped, and each flip costs ``|score| / n``. The loss counts items but does not
distinguish them, so within a class the cheapest are flipped first, which leaves two unknowns per problem:

    max over i, j  of  sign * L(i, j) - X_i - Y_j

where ``X_i`` and ``Y_j`` are the prices ``|score| / (n epsilon)`` of the i cheapest flips among the positives and the j
cheapest among the negatives. Measured from the threshold, sums never mix large scores with small ones.

Three facts keep the search small:

- A monotone loss (never smaller for one more wrong decision) only rises by flipping right decisions and only falls by
  flipping wrong ones, so sign +1 considers the right ones and sign -1 the wrong ones.
- No set of flips may cost more than it can possibly gain, which excludes items far from the threshold.
- Where L is linear along a line - for most metrics at a fixed number of predicted positives (``j - i`` fixed), for IoU
  at a fixed number of false positives (``j`` fixed) - the objective is concave along it: its maximum is where the price
  of one more step exceeds its slope, found by binary search per line, O(n log n). This only needs the values of L at
  the two ends of every line. For other losses, all pairs of i and j are compared, O(P N).

Among equal scores the item with the lower index is flipped
first. Among equally good outputs the cheapest wins, so the plain prediction stays unless something is better by more
than rounding errors.

Sides as in `compiled`: 0 for positives, 1 for negatives. A row is one problem of one draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from directloss.kernels.compiled import order_by_side

POSITIVE, NEGATIVE = 0, 1
ROUNDING = 1e-14
"""More than the rounding errors of a loss of order one in float64: smaller differences are ignored."""
CELLS = 1 << 16
"""Lines, or pairs of numbers of flips, to compare at a time."""


class Flips(NamedTuple):
    """The possible flips of some rows, cheapest first."""

    prices: Any
    """``|score| / (n epsilon)``, shape (r, 2, n); infinite beyond the last flip."""
    totals: Any
    """The prices of the first k flips together, shape (r, 2, n + 1)."""
    items: Any
    numbers: Any
    """Number of flips per side, shape (r, 2)."""


class Judge(NamedTuple):
    """A loss of counts, and the sign with which inference looks for more or for less of it."""

    loss: Callable[[Any], Any]
    """L of an array of counts ``(4, ...)``: true and false positives, false and true negatives."""
    line: str | None
    """``line`` of `directloss.tasks.CountTask`; the next is its ``monotone``."""
    monotone: bool
    sign: int


def best_flips(scores: Any, members: Any, counts: Any, epsilon: Any, judge: Judge) -> Any:
    """Which decisions of rows ``(r, n)`` to flip. ``members`` ``(2, r, n)`` are the positives and the negatives;
    padding is neither. ``counts`` ``(4, r)`` are those of plain inference; ``epsilon`` is ``(r,)``.
    """
    together = max(1, CELLS // scores.shape[1])
    parts = [slice(first, first + together) for first in range(0, len(scores), together)]
    with np.errstate(all="ignore"):
        flipped = [_flipped(scores[some], members[:, some], counts[:, some], epsilon[some], judge) for some in parts]
    return np.concatenate(flipped)


def _flipped(scores: Any, members: Any, counts: Any, epsilon: Any, judge: Judge) -> Any:
    unit = epsilon * np.maximum(counts.sum(0), 1)
    directions = (judge.sign,) if judge.monotone else (+1, -1)
    flips = {direction: _flips(scores, members, unit, direction) for direction in directions}
    if judge.line is not None:
        more = judge.sign * _along_lines(flips[judge.sign], counts, judge)
    else:
        more = _in_grid(flips, counts, judge)
    flipped = np.zeros(scores.shape, bool)
    for direction, (_, _, items, _) in flips.items():
        row, side, place = np.nonzero(np.arange(scores.shape[1]) < direction * more[..., None])
        flipped[row, items[row, side, place]] = True
    return flipped


def _flips(scores: Any, members: Any, unit: Any, direction: int) -> Flips:
    """Right decisions for +1: a yes of the positives, a no of the negatives. Wrong ones for -1."""
    yes = (scores > 0) if direction > 0 else (scores <= 0)
    able = members[0] & yes | members[1] & ~yes
    sizes, items, numbers = order_by_side(-np.abs(scores), members[0].view(np.int8), able.view(np.int8))
    prices = np.where(np.arange(scores.shape[1]) < numbers[..., None], sizes / -unit[:, None, None], np.inf)
    return Flips(prices, np.pad(prices.cumsum(2), ((0, 0), (0, 0), (1, 0))), items, numbers)


def _along_lines(flips: Flips, counts: Any, judge: Judge) -> Any:
    """The best numbers of flips ``(r, 2)``, on lines of fixed ``j - i`` (sloping) or fixed j.

    Each step along a line gains the slope of the line and costs more than the step before, so binary search finds the
    last one that pays off. Among equally good outputs the cheapest wins, and among these the one with the fewest flips.
    """
    prices, totals, _, numbers = flips
    sloping, n, sign = judge.line == "predicted", prices.shape[2], judge.sign

    def value(i: Any, j: Any) -> Any:
        """``sign`` times the loss after so many flips."""
        return sign * judge.loss(_moved(counts[:, :, None], sign * i, sign * j))

    def at(table: Any, side: int, place: Any) -> Any:
        return np.take_along_axis(table[:, side], np.clip(place, 0, table.shape[2] - 1), 1)

    x, y = numbers.T[:, :, None]
    plain, extreme = value(np.stack((0 * x, x)), np.stack((0 * y, y)))
    # No set of flips may cost more than all of them could gain.
    reach = np.maximum((totals < (extreme - plain)[..., None]).sum(2) - 1, 0)
    most_x, most_y = reach.T[:, :, None]
    gap = np.arange(-int(most_x.max()) * sloping, int(most_y.max()) + 1)[None]
    inside = (gap >= -most_x * sloping) & (gap <= most_y)
    # The first step of each line is (i, j) = (first, start); it has this many more, of which high are within reach.
    first = np.where(inside, np.maximum(-gap, 0), 0)
    start = np.where(inside, first + gap, 0)
    span = np.where(inside, (np.minimum(x, y - gap) if sloping else x) - first, 0)
    high = np.where(inside, (np.minimum(most_x, most_y - gap) if sloping else most_x) - first, 0)
    base, end = value(np.stack((first, first + span)), np.stack((start, start + span * sloping)))
    low, rise = np.zeros_like(span), end - base
    for _ in range(n.bit_length()):
        middle = (low + high + 1) // 2
        price = at(prices, POSITIVE, first + middle - 1)
        if sloping:
            price = price + at(prices, NEGATIVE, start + middle - 1)
        pays = (middle > low) & (price * span < rise - ROUNDING)
        low, high = np.where(pays, middle, low), np.where(pays, high, np.maximum(middle - 1, low))
    i, j = first + low, start + low * sloping
    cost = at(totals, POSITIVE, i) + at(totals, NEGATIVE, j)
    gained = np.where(inside, base - cost + np.where(low > 0, rise * low / np.maximum(span, 1), 0.0), -np.inf)
    near = gained >= gained.max(1, keepdims=True) - 4 * ROUNDING
    cost = np.where(near, cost, np.inf)
    fewest = np.where(cost == cost.min(1, keepdims=True), i + j, 2 * n + 1).argmin(1)[:, None]
    return np.concatenate([np.take_along_axis(one, fewest, 1) for one in (i, j)], 1)


def _in_grid(flips: dict[int, Flips], counts: Any, judge: Judge) -> Any:
    """The best numbers of more mistakes ``(r, 2)`` (fewer if negative), for any function of the confusion matrix."""
    rows = counts.shape[1]
    limits = np.full(rows, np.inf)
    if judge.monotone:  # the loss with all flips limits what they may cost
        most = judge.sign * flips[judge.sign].numbers
        limits = judge.sign * (judge.loss(_moved(counts, *most.T)) - judge.loss(counts))
    best = []
    for row, limit in enumerate(limits):
        reach = [_reach(flips, row, side, limit) for side in (POSITIVE, NEGATIVE)]
        best.append(_best_cell(counts[:, row], reach, judge))
    return np.array(best)


def _reach(flips: dict[int, Flips], row: int, side: int, limit: float) -> tuple[Any, Any]:
    """Numbers of more mistakes that cost less than the limit, and their costs."""
    numbers, costs = [np.zeros(1, np.int64)], [np.zeros(1)]
    for direction, (_, totals, _, most) in flips.items():
        cost = totals[row, side, 1 : most[row, side] + 1]
        cost = cost[cost < limit]
        numbers.append(direction * np.arange(1, len(cost) + 1))
        costs.append(cost)
    return np.concatenate(numbers), np.concatenate(costs)


def _best_cell(counts: Any, reach: list[tuple[Any, Any]], judge: Judge) -> tuple[int, int]:
    """The best cell; among equally good ones the cheapest, and among these the one with the fewest flips."""
    (ks, k_costs), (ms, m_costs) = reach
    tops = []
    together = max(1, CELLS // len(ms))
    for first in range(0, len(ks), together):
        some = slice(first, first + together)
        k, m = np.broadcast_arrays(ks[some, None], ms)
        cost = k_costs[some, None] + m_costs
        value = judge.sign * judge.loss(_moved(counts[:, None, None], k, m)) - cost
        near = np.nonzero(value >= value.max() - 4 * ROUNDING)
        place = np.lexsort((np.abs(k[near]) + np.abs(m[near]), cost[near]))[0]
        at = int(k[near][place]), int(m[near][place])
        tops.append((cost[near][place], abs(at[0]) + abs(at[1]), at, value[near][place]))
    best = max(top[-1] for top in tops)
    return min(top for top in tops if top[-1] >= best - 4 * ROUNDING)[2]


def _moved(counts: Any, k: Any, m: Any) -> Any:
    """Confusion matrices with k more mistakes among the positives and m more among the negatives."""
    tp, fp, fn, tn = counts
    return np.stack((tp - k, fp + m, fn + k, tn - m))
