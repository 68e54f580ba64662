"""Finds what a metric compares by calling it: f of Sec. 3.3 of Liu, Wang, Deng (ECCV 2020), without manual work.

A metric that compares scores along some dimensions keeps its value under any change of the scores that keeps their
order along those dimensions; one with thresholds, under any change that keeps each score between its thresholds. So:
redraw everything but the supposed comparisons, and see whether the value stays. Of all answers that pass, the one with
the fewest comparisons is taken.

Every call of the loss asks again, about 20 calls of the metric beside those at the anchors. Nothing is remembered but
thresholds to try first, which are tested like any other, so a metric may change whenever it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, cycle
from typing import Any

import numpy as np
import torch
from torch import Tensor

REACH = 6.0
"""Scores are redrawn within this distance from 0: within single precision's sigmoid, and beyond most thresholds."""
PROBABLE = (0.02, 0.98)
"""Where scores are redrawn that are probabilities."""
CLOSE = 1e-6
"""How close to its threshold a redrawn score may lie, relative to it; also by how much equal values may differ."""
FEW = 64
"""A problem of at most this many scores is tested on more draws: each draw tells less."""
MOST = 64
"""How many thresholds are searched for."""
USUAL = ((0.0,), (0.5,))
"""Thresholds that are tried before any search."""


@dataclass(frozen=True)
class Finding:
    """What a metric compares."""

    order: tuple[int, ...] | None
    """Pairs of scores that differ in these dimensions only; () for no pairs, None if unknown, or for a constant."""
    thresholds: tuple[float, ...] = ()
    equals: bool = False
    """Whether pairs of equal relevance matter."""
    constant: bool = False
    """Whether no change of the scores changed the value."""

    def in_words(self, name: str, dims: int, count: int) -> str:
        """One sentence about a metric with this name."""
        if self.order is None:
            why = "constant for all scores tried" if self.constant else "neither an order nor thresholds alone"
            return f"{name}: {why}; the {count:,} pairs that the target orders stand for its comparisons."
        parts = []
        if self.order:
            along = f"pairs along dimension ({', '.join(map(str, self.order))})"
            which = "all pairs of scores" if len(self.order) == dims else along
            parts.append(which + ("" if self.equals else " of different relevance"))
        if self.thresholds:
            levels = ", ".join(f"{level:g}" for level in self.thresholds[:4])
            parts.append(f"each score with {levels}" + (" ..." if len(self.thresholds) > 4 else ""))
        return f"{name} compares {' and '.join(parts)}: {count:,} comparisons relaxed. Tested on fresh scores."


class Probe:
    """The tests of one metric on one problem.

    Args:
        measure: the metric of rows ``(k, m)``, float64 ``(k,)``.
        scores: the current scores, in the shape of the problem.
        best: the best scores, if known: metrics such as an exact match are constant anywhere else.
        relevance: which scores should be above which, if known.
    """

    def __init__(
        self, measure: Callable[[Tensor], Tensor], scores: Tensor, best: Tensor | None, relevance: Tensor | None
    ) -> None:
        self.measure, self.shape, self.dtype = measure, scores.shape, scores.dtype
        self.size, self.every = scores.numel(), tuple(range(scores.dim()))
        self.draw = np.random.default_rng(0)  # every problem is tested with the same draws
        self.relevance = None if relevance is None else relevance.numpy().ravel()
        flat = scores.double().numpy().ravel()
        self.bounded = self.size > 1 and flat.min() >= 0 and flat.max() <= 1
        self.low, self.high = PROBABLE if self.bounded else (-REACH, REACH)
        self._start(flat, best)
        if self._level() and not self.bounded and np.abs(flat).max() > REACH:
            # Nothing happens near 0: look where the scores are.
            self.low, self.high = 1.5 * min(flat.min(), 0.0), 1.5 * max(flat.max(), 0.0)
            self._start(flat, best)

    def _start(self, flat: Any, best: Tensor | None) -> None:
        """Scores to start from: the current order, that of the best scores, and a random one."""
        middle = (self.low + self.high) / 2
        centre = 0.5 if self.bounded else 0.0
        centre = centre if self.low < centre < self.high else middle
        starts = [flat, *(self.draw.random(self.size) - 0.5 + centre for _ in range(1 if self.size > FEW else 3))]
        if best is not None:
            starts.append(best.double().numpy().ravel())
        self.bases = [self.redraw(row, self.groups(self.every), (centre,)) for row in starts]
        self.values = self.of(self.bases)

    def of(self, rows: Sequence[Any]) -> list[float]:
        """The metric of rows."""
        found: list[float] = self.measure(torch.from_numpy(np.stack(rows)).to(self.dtype)).tolist()
        return found

    def stays(self, rows: Sequence[Any]) -> bool:
        """Whether the value stays: rows are changed scores, of the first start, the second ..., and again."""
        return all(_same(*pair) for pair in zip(self.of(rows), cycle(self.values), strict=False))

    def _level(self) -> bool:
        """Whether the metric seems to be constant."""
        rows = [self.redraw(base, self.groups(()), ()) for base in self.bases]
        return all(_same(value, self.values[0]) for value in self.values) and self.stays(rows)

    # ------------------------------------------------------------------ redrawing

    def groups(self, order: tuple[int, ...]) -> Any:
        """A number for each score, equal for scores that are compared."""
        numbers = np.arange(self.size).reshape(self.shape)
        first = tuple(0 if dim in order else slice(None) for dim in range(len(self.shape)))
        kept = numbers[first].reshape([1 if dim in order else n for dim, n in enumerate(self.shape)])
        return np.broadcast_to(kept, self.shape).ravel()

    def redraw(self, row: Any, group: Any, thresholds: Sequence[float], tight: bool = False) -> Any:
        """Other scores with the same order within each group, on the same sides of the thresholds; ties stay.

        Scores are spread evenly with some jitter, so that rounding ties none. ``tight`` puts them next to thresholds.
        """
        levels = np.asarray(thresholds, np.float64)
        side = np.searchsorted(levels, row)
        cell = group * (len(levels) + 1) + side
        order = np.lexsort((row, cell))
        first = np.r_[True, np.diff(cell[order]) != 0]
        starts = first.nonzero()[0]
        counts = np.diff(np.r_[starts, self.size])
        place = np.arange(self.size) - np.repeat(starts, counts)
        share = (place + self.draw.uniform(0.1, 0.9, self.size)) / np.repeat(counts, counts)
        fresh = first | np.r_[True, np.diff(row[order]) != 0]
        share = share[np.maximum.accumulate(np.where(fresh, np.arange(self.size), 0))]
        low, high = self._window(side[order[starts]], counts, levels, tight)
        new = np.empty(self.size)
        new[order] = np.repeat(low, counts) + share * np.repeat(high - low, counts)
        return self._outside(new, side, len(levels))

    def _window(self, side: Any, counts: Any, levels: Any, tight: bool) -> tuple[Any, Any]:
        """Where the scores of each cell may lie: at random, within the thresholds around it."""
        width = self.high - self.low
        if not len(levels):
            share = self.draw.uniform(0.2, 0.6, len(side))
            low = self.low + width * (1 - share) * self.draw.random(len(side))
            return low, low + share * width
        ends = np.r_[min(self.low, levels[0] - width / 4), levels, max(self.high, levels[-1] + width / 4)]
        if self.bounded:
            ends[[0, -1]] = 0.0, 1.0
        near = CLOSE * np.maximum(1.0, np.abs(ends))
        low, high = ends[side] + near[side], ends[side + 1] - near[side + 1]
        if not tight:
            share = self.draw.uniform(0.1, 1.0, len(side))
            start = low + (high - low) * (1 - share) * self.draw.random(len(side))
            return start, start + share * (high - low)
        narrow = np.minimum(high - low, 4 * near[side] * counts)
        above = (side == len(levels)) | ((side > 0) & (self.draw.random(len(side)) < 0.5))
        return np.where(above, low, high - narrow), np.where(above, low + narrow, high)

    def _outside(self, row: Any, side: Any, levels: int) -> Any:
        """Metrics take scores for probabilities if all lie between 0 and 1: logits must not."""
        if self.bounded or row.min() < 0 or row.max() > 1:
            return row
        if not levels:
            return row + 1.5
        top, bottom = row.argmax(), row.argmin()
        if side[top] == levels:
            row[row == row[top]] = 1.5
        elif side[bottom] == 0:
            row[row == row[bottom]] = -0.5
        return row

    # ------------------------------------------------------------------ tests

    def holds(self, order: tuple[int, ...], thresholds: Sequence[float]) -> bool:
        """Whether the metric depends on nothing but this order and these thresholds."""
        group = self.groups(order)
        twice = (False, True) * (1 if self.size > FEW else 2) if thresholds else (False,) * 2
        return self.stays([self.redraw(base, group, thresholds, tight) for tight in twice for base in self.bases])

    def matters(self, threshold: float) -> bool:
        """Whether scores that cross the threshold, and nothing else, change the value, for some scores."""
        rows, step = [], 2 * CLOSE * max(1.0, abs(threshold))
        for base in self.bases:
            order, most = np.argsort(base), max(1, min(8, self.size // 8))
            place = int(self.draw.integers(self.size - most + 1))
            some = order[place : place + most]
            shifted = base + threshold - base[some].mean()
            for row, moved in ((base, [int(np.abs(base - threshold).argmin())]), (shifted, some)):
                for side in (-len(moved), 1):
                    across = row.copy()
                    across[moved] = threshold + step * (side + np.arange(len(moved)))
                    rows.append(across)
        values = self.of(rows)
        return not all(_same(*pair) for pair in zip(values[::2], values[1::2], strict=True))

    def is_smooth(self) -> bool:
        """Whether the value changes even where no order changes: then it is no metric of comparisons."""
        rows = []
        for base in self.bases * 2:
            gaps = np.diff(np.unique(base))
            rows.append(base + 0.4 * (gaps.min() if len(gaps) else 1e-3) * self.draw.random(self.size))
        return not any(_same(*pair, tolerance=0.0) for pair in zip(self.of(rows), self.values * 2, strict=True))

    def shifts_freely(self) -> bool:
        """Whether the value stays if all scores along some dimension move together: then it has no thresholds."""
        width = self.high - self.low
        for group in map(self.groups, self._orders()):
            if self.stays([base + width * self.draw.uniform(0.2, 1.0, self.size)[group] for base in self.bases]):
                return True
        return False

    def swaps_freely(self, order: tuple[int, ...]) -> bool:
        """Whether scores of equal relevance may be exchanged within their group."""
        if self.relevance is None:
            return False
        _, level = np.unique(self.relevance, return_inverse=True)
        cell = self.groups(order) * (int(level.max()) + 1) + level
        home = np.argsort(np.argsort(cell, kind="stable"))
        return self.stays([base[np.lexsort((self.draw.random(self.size), cell))][home] for base in self.bases])

    # ------------------------------------------------------------------ search

    def find(self, tried_first: tuple[float, ...]) -> Finding | None:
        """What the metric compares, after trying some thresholds first; None if it depends on the scores' values."""
        if self._level():
            return Finding(None, constant=True)
        if self.holds(self.every, ()):
            return self._finding(())
        for thresholds in dict.fromkeys((tried_first, *USUAL)):
            if thresholds and self.holds(self.every, thresholds) and all(map(self.matters, thresholds)):
                return self._finding(thresholds)
        if self.is_smooth():
            return None
        searched = None if self.shifts_freely() else self._search()
        return Finding(None) if searched is None else self._finding(searched)

    def _finding(self, thresholds: tuple[float, ...]) -> Finding:
        """The fewest pairs that suffice beside the thresholds."""
        orders: list[tuple[int, ...]] = [*([()] if thresholds else []), *self._orders()]
        order = next(order for order in orders if order == self.every or self.holds(order, thresholds))
        return Finding(order, thresholds, equals=bool(order) and not self.swaps_freely(order))

    def _orders(self) -> Iterator[tuple[int, ...]]:
        """Dimensions that may be compared, smallest groups first: single ones, the last two or three, all."""
        dims = [dim for dim, n in enumerate(self.shape) if n > 1]
        some = [
            part
            for size in range(1, len(dims))
            for part in combinations(dims, size)
            if size == 1 or part == tuple(dims[-size:])
        ]
        yield from sorted(some, key=lambda part: np.prod([self.shape[dim] for dim in part]))
        yield self.every

    def _search(self) -> tuple[float, ...] | None:
        """All thresholds, one by one; None if there are too many, or none that is the same everywhere."""
        found: list[float] = []
        while len(found) < MOST:
            ends = self._ends(found)
            if ends is None:
                return tuple(found)
            threshold = self._jump(*ends)
            if any(abs(threshold - known) <= 4 * CLOSE * max(1.0, abs(known)) for known in found):
                return None
            if not self.matters(threshold):
                return None
            found = sorted([*found, threshold])
        return None

    def _ends(self, thresholds: list[float]) -> tuple[Any, Any] | None:
        """Two rows with the same order, on the same sides of the thresholds, and different values."""
        for tight in (False, True, False, True):
            rows = [self.redraw(base, self.groups(self.every), thresholds, tight) for base in self.bases]
            for base, row, value, other in zip(self.bases, rows, self.values, self.of(rows), strict=True):
                if not _same(value, other):
                    return base, row
        return None

    def _jump(self, start: Any, end: Any) -> float:
        """Where on the way between two rows the value changes: the score that crosses something there."""
        value = self.of([start])[0]
        while np.abs(start - end).max() > 1e-5:
            middle = (start + end) / 2
            start, end = (middle, end) if _same(self.of([middle])[0], value) else (start, middle)
        low, high, place = 0, self.size, np.arange(self.size)
        while high - low > 1:  # the first of the scores that changes the value when it moves
            half = (low + high) // 2
            low, high = (half, high) if _same(self.of([np.where(place < half, end, start)])[0], value) else (low, half)
        row, left, right = np.where(place < low, end, start), start[low], end[low]
        for _ in range(30):
            row[low] = (left + right) / 2
            left, right = (row[low], right) if _same(self.of([row])[0], value) else (left, row[low])
        return float(0.0 if abs(row[low]) < CLOSE else row[low])


def _same(value: float, other: float, tolerance: float = CLOSE) -> bool:
    """Whether two values are equal up to rounding; NaN equals NaN."""
    return abs(value - other) <= tolerance * max(1.0, abs(value)) or (value != value and other != other)
