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

The metric is called once for all problems, draws and signs. Among equal scores the item with the lower index is flipped
first. Among equally good outputs the cheapest wins, so the plain prediction stays unless something is better by more
than rounding errors.

Sides as in `compiled`: 0 for positives, 1 for negatives. A row is one problem of one draw, for one sign.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from directloss.kernels.compiled import kernel, order_by_side

POSITIVE, NEGATIVE = 0, 1
ROUNDING = 1e-14
"""More than the rounding errors of a loss of order one in float64: smaller differences are ignored."""
CELLS = 1 << 16
"""Pairs of numbers of flips to compare at a time."""


class FlipRequest(NamedTuple):
    """A request for a batch of problems."""

    loss: Callable[[Any], Any]
    """L of an array of counts ``(4, ...)``: true and false positives, false and true negatives."""
    line: str | None
    """``line`` of `directloss.tasks.CountTask`; the next is its ``monotone``."""
    monotone: bool
    epsilon: Any
    """One-dimensional; repeated over the problems."""
    automatic: bool
    """Whether epsilon still needs to be multiplied by `units`."""
    signs: tuple[int, ...]


class Rows(NamedTuple):
    """Plain decisions of several draws ``(d, b, n)`` for problems with these labels ``(b, n)``."""

    draws: Any
    chosen: Any
    positive: Any
    negative: Any
    counts: Any
    """Their confusion matrices, shape (4, r)."""

    def flips(self, direction: int) -> Flips:
        """Right decisions for +1: a yes of the positives, a no of the negatives. Wrong ones for -1."""
        n = self.draws.shape[-1]
        yes = self.chosen if direction > 0 else ~self.chosen
        able = np.where(self.positive & yes, np.int8(1), np.where(self.negative & ~yes, np.int8(0), np.int8(-1)))
        return Flips(*order_by_side(-np.abs(self.draws).reshape(-1, n), able.reshape(-1, n)))


class Flips(NamedTuple):
    """The possible flips of some rows, cheapest first."""

    sizes: Any
    """``-|score|``, descending, shape (r, 2, n)."""
    items: Any
    numbers: Any
    """Number of flips per side, shape (r, 2)."""


class Lines:
    """The search along lines."""

    def __init__(self, rows: Rows, sign: int, sloping: bool) -> None:
        self.sign, self.sloping, self.flips = sign, sloping, rows.flips(sign)
        numbers = self.flips.numbers
        lines = numbers[:, NEGATIVE] + 1 + (numbers[:, POSITIVE] if sloping else 0)
        self.starts = np.zeros(len(lines) + 1, np.int64)
        np.cumsum(lines, out=self.starts[1:])
        self.counts = np.empty((4, 2, self.starts[-1]))
        line_ends(numbers, self.starts, rows.counts, sign, sloping, self.counts)

    def add_best(self, losses: Any, unit: Any, factor: Any, slope: Any) -> None:
        totals = np.empty((2, slope.shape[1] + 1))
        sizes, items, numbers = self.flips
        values = losses.reshape(2, -1)
        take_best(sizes, items, numbers, self.starts, values, self.sign, self.sloping, unit, factor, totals, slope)


class Grid:
    """The search for any function of the confusion matrix, monotone or not: all numbers of flips within reach.

    A cell ``(k, m)`` has k more mistakes among the positives and m more among the negatives than the plain decisions,
    or fewer if they are negative.
    """

    def __init__(self, rows: Rows, sign: int, monotone: bool, loss: Callable[[Any], Any]) -> None:
        self.sign, self.loss, self.plain = sign, loss, rows.counts
        self.flips = {direction: rows.flips(direction) for direction in ((sign,) if monotone else (+1, -1))}
        self.counts = rows.counts[:, :0]
        if monotone:  # the loss with all flips limits what they may cost
            most = sign * self.flips[sign].numbers
            self.counts = np.stack((self.plain, _moved(self.plain, *most.T)), 1)

    def add_best(self, losses: Any, unit: Any, factor: Any, slope: Any) -> None:
        plain, extreme = losses.reshape(2, -1) if losses.size else (0.0, self.sign * np.inf)
        limits = np.broadcast_to(self.sign * (extreme - plain), self.plain.shape[1:])
        for row, limit in enumerate(limits):
            problem = row % len(unit)
            reach = [self._reach(row, side, unit[problem], limit) for side in (POSITIVE, NEGATIVE)]
            for side, more in enumerate(self._best(self.plain[:, row], *reach)):
                if more:
                    flipped = self.flips[1 if more > 0 else -1].items[row, side, : abs(more)]
                    slope[problem, flipped] += factor[problem] * self.sign * (1 if (more > 0) == side else -1)

    def _reach(self, row: int, side: int, unit: float, limit: float) -> tuple[Any, Any]:
        """Numbers of more mistakes that cost less than the limit, and their costs."""
        numbers, costs = [np.zeros(1, np.int64)], [np.zeros(1)]
        for direction, (sizes, _, most) in self.flips.items():
            with np.errstate(all="ignore"):
                cost = np.cumsum(sizes[row, side, : most[row, side]] / -unit)
                cost = cost[cost < limit]
            numbers.append(direction * np.arange(1, len(cost) + 1))
            costs.append(cost)
        return np.concatenate(numbers), np.concatenate(costs)

    def _best(self, plain: Any, positives: tuple[Any, Any], negatives: tuple[Any, Any]) -> tuple[int, int]:
        """The best cell; among equally good ones the cheapest, and among these the one with the fewest flips."""
        tops = []
        (ks, k_costs), (ms, m_costs) = positives, negatives
        together = max(1, CELLS // len(ms))
        for first in range(0, len(ks), together):
            some = slice(first, first + together)
            k, m = np.broadcast_arrays(ks[some, None], ms)
            cost = k_costs[some, None] + m_costs
            value = self.sign * self.loss(_moved(plain[:, None, None], k, m)) - cost
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


def solve(scores: Any, labels: Any, draws: Any, request: FlipRequest) -> tuple[Any, Any]:
    """Losses of scores ``(b, n)``, and the mean gradient over ``draws`` ``(d, b, n)`` and signs; None without draws.

    Labels, ``(b, n)`` as int8, are 1, 0, or -1 for padding.
    """
    positive, negative = labels == 1, labels == 0
    P, N = positive.sum(1), negative.sum(1)
    now = confusion(scores > 0, positive, negative, P, N)
    if draws is None:
        return request.loss(now), None
    d, b, _ = draws.shape
    chosen = draws > 0
    counts = confusion(chosen, positive, negative, P, N).reshape(4, -1)
    rows = Rows(draws, chosen, positive, negative, counts)
    searches = [_search(rows, sign, request) for sign in request.signs]
    # One call for everything, as the metric takes many operations.
    parts = [now, mistakes(P, N).reshape(4, -1), *(one.counts.reshape(4, -1) for one in searches)]
    values = request.loss(np.concatenate(parts, 1))
    losses, single, values = values[:b], values[b : 4 * b], values[4 * b :]
    steps = np.broadcast_to(request.epsilon, b) * (units(single.reshape(3, b), P + N) if request.automatic else 1.0)
    slope, most = np.zeros(labels.shape), np.finfo(draws.dtype).max
    with np.errstate(divide="ignore", over="ignore"):
        unit = steps * np.maximum(P + N, 1)
        factor = np.minimum(1 / unit, most) / (d * len(searches))
    for one in searches:
        size = one.counts[0].size
        one.add_best(values[:size], unit, factor, slope)
        values = values[size:]
    return losses, slope


def _search(rows: Rows, sign: int, request: FlipRequest) -> Any:
    """A search with the ``counts`` (4, ...) whose losses it needs to add the best flips to a gradient."""
    if request.line is None:
        return Grid(rows, sign, request.monotone, request.loss)
    return Lines(rows, sign, request.line == "predicted")


def confusion(chosen: Any, positive: Any, negative: Any, P: Any, N: Any) -> Any:
    """True and false positives, false and true negatives, shape (4, ...), in float64."""
    tp, fp = (chosen & positive).sum(-1), (chosen & negative).sum(-1)
    return np.stack((tp, fp, P - tp, N - fp)).astype(np.float64)


def mistakes(P: Any, N: Any) -> Any:
    """The confusion matrices of one miss, of one false alarm, and of no mistake; shape (4, 3, b)."""
    miss, alarm = np.minimum(P, 1), np.minimum(N, 1)
    none = np.zeros_like(P)
    return np.stack(((P - miss, P, P), (none, alarm, none), (miss, none, none), (N, N - alarm, N))).astype(np.float64)


def units(single: Any, items: Any) -> Any:
    """`directloss.tasks.CountTask.unit_epsilon`, from the losses of `mistakes`."""
    # If no single wrong decision changes the metric, treat all as equally important.
    stake = items * (np.maximum(single[0], single[1]) - single[2])
    return 1 / np.where(stake > 0, stake, 1.0)


@kernel
def line_ends(numbers, starts, counts, sign, sloping, ends):
    """The confusion matrices at the first and at the last step of every line.

    Shapes: numbers (r, 2), starts (r + 1,), counts (4, r), ends (4, 2, lines).
    """
    for row in range(len(numbers)):
        x, y = numbers[row, POSITIVE], numbers[row, NEGATIVE]
        for line in range(starts[row], starts[row + 1]):
            gap = line - starts[row] - (x if sloping else 0)
            for end in range(2):
                i = -gap if gap < 0 else 0
                if end == 1:
                    i = x if not sloping or x < y - gap else y - gap
                j = i + gap if sloping else gap
                ends[0, end, line] = counts[0, row] - sign * i
                ends[1, end, line] = counts[1, row] + sign * j
                ends[2, end, line] = counts[2, row] + sign * i
                ends[3, end, line] = counts[3, row] - sign * j


@kernel
def take_best(sizes, items, numbers, starts, values, sign, sloping, unit, factor, totals, slope):
    """Find the best step of every line and the best line, and add its flips to the gradient.

    Each step gains the slope of the line and costs more than the step before, so binary search finds the last one that
    pays off. Among equally good outputs the cheapest wins, and among these the one with the fewest flips. A flipped
    positive adds ``-factor``, a negative ``factor``, whatever the sign. ``sizes``, ``numbers`` and ``values`` are
    overwritten.

    Shapes: sizes and items (r, 2, n), values (2, lines), unit and factor (b,), totals (2, n + 1), slope (b, n).
    """
    for row in range(len(numbers)):
        problem, x, y = row % len(unit), numbers[row, POSITIVE], numbers[row, NEGATIVE]
        a, b = sizes[row, POSITIVE], sizes[row, NEGATIVE]
        zero = starts[row] + (x if sloping else 0)  # the line that starts at the plain decisions
        # No set of flips may cost more than all of them could gain.
        limit = sign * (values[1, zero + y - (x if sloping else 0)] - values[0, zero])
        for side in range(2):
            totals[side, 0], able = 0.0, 0
            for k in range(numbers[row, side]):
                sizes[row, side, k] /= -unit[problem]
                totals[side, k + 1] = totals[side, k] + sizes[row, side, k]
                if totals[side, k + 1] < limit:
                    able = k + 1
            numbers[row, side] = able
        most_a, most_b = numbers[row, POSITIVE], numbers[row, NEGATIVE]
        begin, end, best = zero - (most_a if sloping else 0), zero + most_b + 1, -np.inf
        for line in range(begin, end):
            gap = line - zero
            first = -gap if gap < 0 else 0
            span = (x if not sloping or x < y - gap else y - gap) - first
            base = sign * values[0, line]
            rise = sign * values[1, line] - base
            low, high = 0, (most_a if not sloping or most_a < most_b - gap else most_b - gap) - first
            while low < high:
                middle = (low + high + 1) // 2
                price = a[first + middle - 1]
                if sloping:
                    price += b[first + gap + middle - 1]
                if price * span < rise - ROUNDING:
                    low = middle
                else:
                    high = middle - 1
            i = first + low
            value = base - (totals[POSITIVE, i] + totals[NEGATIVE, i + gap if sloping else gap])
            if low > 0:
                value += rise * low / span
            if value > best:
                best = value
            values[0, line], values[1, line] = value, i
        cheapest, flipped, other = np.inf, 0, 0
        for line in range(begin, end):
            if values[0, line] >= best - 4 * ROUNDING:
                i = int(values[1, line])
                j = line - zero + (i if sloping else 0)
                cost = totals[POSITIVE, i] + totals[NEGATIVE, j]
                if cost < cheapest or (cost == cheapest and i + j < flipped + other):
                    cheapest, flipped, other = cost, i, j
        for k in range(flipped):
            slope[problem, items[row, POSITIVE, k]] -= factor[problem]
        for k in range(other):
            slope[problem, items[row, NEGATIVE, k]] += factor[problem]
