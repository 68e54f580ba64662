"""Rankings on the CPU, compiled by numba; the package docstring has the formulas.

A block of lists passes through a sequence of small kernels:

    pack          maps scores to integers of the same order, sorted by numpy, or by `radix` for long lists
                  (`refine` finishes the order of float64 scores)
    split         splits them by side and counts who ranks above whom in the prediction; `spread_ties` corrects the
                  counts of equal scores
    judge         the loss, and the scales for the next steps
    advance       the gradient of the expected metric, by moving each item (`directloss.moves`)
    lower_each    the augmented ranking for sign +1, if the best positions can be found one by one
    narrow, choose_in_order      the augmented ranking otherwise
    fill_other_side              the counts of one side from those of the other
    slopes, scatter              the gradient, or the counts themselves, in input order

Numba spends most of its compile time on what a kernel refers to: helpers, new arrays, ``min`` and ``max``. So the
kernels use none of these, and a first call only compiles the kernels it needs. Each is cached on disk in its own file,
so processes that compile at the same time cannot mix them up.

Shapes: a block has ``r`` lists of ``n`` items; arrays with both sides are ``(r, 2, n)``. The side of an item is 0 if it
is relevant and 1 if not; its place is ``item << 1 | side``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the garbage collector, which would scan the many objects that numba creates: a tenth of a first call."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


with uncollected():
    from numba import njit

# Nothing here divides by zero, and loops are faster without the check.
OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
# Without reference counting and rewrites, numba compiles in three quarters of the time.
LEAN = {"_nrt": False, "no_rewrites": True}

_njit: Any = njit  # its type hints cover only some of its options


def kernel(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function that allocates no arrays; cache the result on disk if that is writable."""
    options = {**OPTIONS, **LEAN, **options}
    try:
        compiled: Any = _njit(cache=True, **options)(function)
    except RuntimeError:
        compiled = _njit(**options)(function)
    compiled._compile_for_args = uncollected()(compiled._compile_for_args)  # called for new argument types
    compiled._cache._guard_against_spurious_io_errors = partial(_spare, compiled._cache)  # around loading and saving
    return compiled  # type: ignore[no-any-return]


@contextmanager
def _spare(cache: Any) -> Iterator[None]:
    """Compile anew if a cached file is damaged, and do without the cache if the disk is full."""
    try:
        yield
    except Exception:  # unpickling a truncated file raises almost anything
        with suppress(OSError):
            cache.flush()


def allocating(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like `kernel`, for functions that allocate arrays and the helpers they call. Keep these in the same file: numba
    only drops a cached function when its own file changes.
    """
    return kernel(function, _nrt=True, no_rewrites=False)


FINE, NOT_FINITE, NO_LABEL = 0, -1, -2
"""Status of scores and labels: fine, a score is not finite, or a label is not allowed."""
RELEVANT, IRRELEVANT = 0, 1
SCALE, WIDTH, UNIT = 0, 1, 2
"""Columns of the factors of a list: the multiplier of its scores, the maximal cost of an exchange, and the multiplier
of a change of the counts in the gradient."""
LONGEST = 1 << 29
"""Maximal length of a list, a power of two: the place of an item is twice its index."""
BLOCK = 1 << 14
"""Items that fit into the CPU cache together with all intermediate results."""
SHORT = 1024
"""ListBatch up to this length are sorted by numpy, which is as fast there and needs no compilation."""
DIGITS, PASSES = 11, 3
"""Bits per pass and passes of the radix sort of longer lists, for 32 bits in total."""
PADDING = (1 << 63) - (1 << 31)
"""The packed word of padding: larger than all others, at place 0."""
PLACE = (1 << 31) - 1
"""The bits of a packed item that hold its place; the others hold its score."""
MOVES = 8
"""Average distance that `refine` may move an item; beyond it numpy sorts."""
MOST = 1000
"""Scores are scaled by at most two to this power, or its inverse."""
SAFE = 1 + 1e-6
"""Safety factor against rounding for calling an exchange out of reach."""


LEAST = 2.0**-960
"""The smallest effective epsilon (times the number of pairs, or over the range of the scores): its inverse times any
count is still finite."""
EQUAL_GAINS = np.ones((1, 1))


class Weights(NamedTuple):
    """``m_i(n) = u[:, i] * worth[:, base + stride * i + n]``. Each array has one row, or one per list of the block."""

    worth: Any
    drop: Any
    """The decrease of ``worth`` from the entry before."""
    u: Any
    z: Any
    """Indexed by the number of relevant items, as is ``best``."""
    best: Any
    base: int
    stride: int


@dataclass
class ListBatch:
    """Lists ``(b, n)`` to solve, and the results that were requested."""

    scores: Any
    """float32 or float64."""
    labels: Any
    """Any dtype, ``(any, n)``: 1 relevant, 0 irrelevant; repeated over the lists."""
    mask: Any
    """True for real items, ``(any, n)``; repeated over the lists."""
    tables: Any
    """`directloss.kernels.PositionTables`."""
    check: bool = False
    """Whether labels must be 0 or 1; otherwise items with other labels are padding."""
    sign: int = 1
    epsilon: Any = None
    """One-dimensional; repeated over the lists."""
    draws: int = 1
    """The divisor of gradients of augmented rankings."""
    noisy: Any = None
    """Perturbed scores ``(draws, b, n)``, if the gradient is that of the expected metric."""
    width: float = 0.0
    """The half-width of their noise."""
    gains: Any = None
    """What the place of each item counts, ``(b, n)``, for lists of relevant items alone."""
    slopes: bool = False
    """Whether the gradient is requested."""
    above: str = ""
    """"predicted" or "augmented", if these counts are requested."""

    def __post_init__(self) -> None:
        shape, dtype = self.scores.shape, self.scores.dtype
        self.loss, self.numbers = np.empty(len(self.scores), dtype), np.empty((len(self.scores), 2), np.int64)
        # Padding keeps the zeros.
        self.gradient: Any = np.zeros(shape, dtype) if self.slopes else None
        self.counts: Any = np.zeros(shape, np.int64) if self.above else None

    def solve(self, first: int, last: int) -> int:
        """Fill the results of the lists ``first`` to ``last - 1``.

        Returns how many of them lack relevant or irrelevant items, or a negative status if the input is invalid.
        """
        if self.gains is not None:
            return self._move_graded(slice(first, last))
        n = self.scores.shape[1]
        augments = (self.slopes and self.noisy is None) or self.above == "augmented"
        together = max(1, min(last - first, BLOCK // n))
        values, factors = np.empty((together, 2, n)), np.empty((together, 3))
        items, predicted = np.empty((together, 2, n), np.int32), np.empty((together, 2, n), np.int32)
        augmented = np.empty((together, 2, n), np.int32) if augments else predicted
        largest, lacking = np.finfo(self.scores.dtype).max, 0
        for start in range(first, last, together):
            some = slice(start, min(start + together, last))
            numbers = self.numbers[some]
            places, sizes, wrong = _ordered(self.scores[some], self.labels, self.mask, start, self.check)
            if wrong != FINE:
                return wrong
            factors[: len(sizes), SCALE] = _scales(self.scores[some], places, sizes)
            if split(self.scores[some], factors, places, sizes, values, items, predicted, numbers):
                spread_ties(values, predicted, numbers)
            weights = self.tables.arrays(numbers)
            lacking += judge(predicted, numbers, weights, self.epsilon, self.sign, start, factors, self.loss)
            if augments:
                self._augment(weights, values, predicted, numbers, factors, augmented)
            if self.counts is not None:
                scatter(augmented if augments else predicted, items, numbers, self.counts[some])
            if self.noisy is not None:
                self._move(some, places, sizes, weights)
            elif self.slopes:
                slopes(predicted, augmented, items, numbers, factors, self.draws, largest, self.gradient[some])
        return lacking

    def _move(self, some: slice, places: Any, sizes: Any, weights: Weights) -> None:
        """Add the gradient of the expected loss for each draw; ``places`` are those of the scores without noise."""
        scores, width = self.scores[some], self.scores.dtype.type(self.width)
        n, gains = scores.shape[1], EQUAL_GAINS if self.gains is None else self.gains[some]
        sums, starts, relevant = np.empty((4, n + 1)), np.empty(n), np.empty(n + 1, np.int32)
        # By descending score, without noise and with it. Words hold float32 scores: no need to read them in that order.
        ordered = np.empty((2, n), scores.dtype)
        bits = ordered.view(np.int32) if scores.dtype == np.float32 else np.empty((2, 0), np.int32)
        for noisy in self.noisy[:, some]:
            order, _, wrong = _ordered(noisy, self.labels, self.mask, some.start)
            if wrong != FINE:  # noise made a huge score infinite, or there is NaN that nobody checks
                finite = np.nan_to_num(noisy, nan=np.finfo(noisy.dtype).max)
                order, _, _ = _ordered(finite, self.labels, self.mask, some.start)
            advance(
                scores, noisy, width, places, order, sizes, self.numbers[some], gains, weights, len(self.noisy), sums,
                starts, relevant, ordered, bits, self.gradient[some],
            )  # fmt: skip

    def _move_graded(self, some: slice) -> int:
        """Add the gradient of the expected loss of items that all count, each by its gain."""
        places, sizes, _ = _ordered(self.scores[some], self.labels, self.mask, some.start)
        self.numbers[some, RELEVANT], self.numbers[some, IRRELEVANT] = sizes, 0
        self._move(some, places, sizes, self.tables.arrays(self.numbers[some]))
        return 0

    def _augment(
        self, weights: Weights, values: Any, predicted: Any, numbers: Any, factors: Any, augmented: Any
    ) -> None:
        """Fill ``augmented`` with the counts of the augmented ranking."""
        one_by_one = self.tables.convex and self.sign > 0
        if one_by_one:
            lower_each(values, predicted, numbers, factors, weights.drop, weights.u, weights.stride, augmented)
        else:
            self._choose(weights, values, predicted, numbers, factors, augmented)
        fill_other_side(augmented, numbers, IRRELEVANT if one_by_one else RELEVANT)

    def _choose(
        self, weights: Weights, values: Any, predicted: Any, numbers: Any, factors: Any, augmented: Any
    ) -> None:
        """The relevant side of the augmented ranking, by a table of choices."""
        r, n, cutoff = len(numbers), values.shape[2], self.tables.cutoff or values.shape[2]
        start, ends = predicted[:r, RELEVANT], np.zeros((r, n), np.int64)
        if self.sign > 0:  # rows with nothing more to lose stay where they are
            far = np.minimum(numbers[:, IRRELEVANT], cutoff)
            rows = ((start < far[:, None]) & (np.arange(n) < numbers[:, :1])).sum(1)
            ends += far[:, None]
        else:  # only rows that still earn something gain by moving up
            rows = np.minimum(numbers[:, RELEVANT], self.tables.earning or cutoff)
        if self.sign < 0 and self.tables.convex:
            words = narrow(
                values, predicted, factors, weights.worth, weights.u, weights.base, weights.stride, rows, ends
            )  # fmt: skip
        else:
            words = (((np.abs(ends - start) >> 6) + 1) * (np.arange(n) < rows[:, None])).sum(1).max()
        bits, starts, best = np.empty(words, np.int64), np.empty(n + 1, np.int64), np.empty(n + 2)
        augmented[:r, RELEVANT] = start
        choose_in_order(
            values, predicted, factors, weights.worth, weights.u, weights.base, weights.stride, self.sign, rows, ends,
            bits, starts, best, augmented,
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------- sorting


def order_by_side(scores: Any, labels: Any, mask: Any) -> tuple[Any, Any, Any]:
    """Finite scores by side, descending, ``(r, 2, n)`` in float64; their items; and their numbers, ``(r, 2)``."""
    r, n = scores.shape
    places, sizes, _ = _ordered(scores, labels, mask, 0)
    values, numbers = np.empty((r, 2, n)), np.empty((r, 2), np.int64)
    items, above = np.empty((r, 2, n), np.int32), np.empty((r, 2, n), np.int32)
    split(scores, np.ones((r, 1)), places, sizes, values, items, above, numbers)
    return values, items, numbers


def _ordered(scores: Any, labels: Any, mask: Any, first: int, check: bool = False) -> tuple[Any, Any, int]:
    """The real items of some lists by descending score, their numbers, and the status; sorted only if it is `FINE`.

    ``first`` is the index of the first list. The lower bits (`PLACE`) hold the places.
    """
    wide = scores.dtype == np.float64
    rounded = _rounded(scores) if wide else scores
    places, sizes = np.empty(scores.shape, np.int64), np.empty(len(scores), np.int64)
    wrong = pack(rounded.view(np.int32), labels, mask, first, check, places, sizes)
    if wrong != FINE:
        return places, sizes, wrong
    if scores.shape[1] <= SHORT:
        places.sort()
    else:
        radix(places, sizes, np.empty((2, scores.shape[1]), np.int64), np.empty((PASSES, 1 << DIGITS), np.int32))
    if wide and not refine(scores, places, sizes, MOVES):
        for row, size in enumerate(sizes):
            real = places[row, :size] & PLACE
            places[row, :size] = real[np.argsort(-scores[row, real >> 1], kind="stable")]
    return places, sizes, FINE


def _scales(scores: Any, places: Any, sizes: Any) -> Any:
    """Multipliers with which sorted scores can safely be subtracted and summed in float64: for float64, the power of
    two that gives a range of about 1, or 0 if all scores are equal.
    """
    if scores.dtype == np.float32:
        return 1.0
    row = np.arange(len(sizes))
    top, bottom = (scores[row, (places[row, at] & PLACE) >> 1] for at in (0 * sizes, np.maximum(sizes - 1, 0)))
    reach = 0.5 * top - 0.5 * bottom
    return np.where(reach > 0, np.ldexp(1.0, -np.frexp(reach)[1].clip(-MOST, MOST)), 0.0)


def _rounded(scores: Any) -> Any:
    """Float64 scores as float32; finite scores stay finite."""
    most = np.finfo(np.float32).max
    return np.where(np.isfinite(scores), scores.clip(-most, most), np.nan).astype(np.float32)


@kernel
def pack(bits, labels, mask, first, check, words, sizes):
    """Words that increase as scores decrease, with the place in the lower bits; padding gets the largest word.

    ``bits`` are those of float32 scores. Returns the status of scores and labels.

    Shapes: bits and words (r, n), labels and mask (any, n), sizes (r,).
    """
    for row in range(len(sizes)):
        size, own, real = 0, labels[(first + row) % len(labels)], mask[(first + row) % len(mask)]
        for item in range(len(own)):
            key, label = np.int64(bits[row, item]), own[item]
            if (label != 0 and label != 1) or real[item] == 0:
                if check and label != 0 and label != 1:
                    return NO_LABEL
                words[row, item] = PADDING
                continue
            if key & 0x7F800000 == 0x7F800000:
                return NOT_FINITE
            if key < 0:  # negative floats have reversed order; -0.0 equals 0.0
                key = (key ^ 0x7FFFFFFF) + (key == -0x80000000)
            words[row, item] = 0x7FFFFFFF - key << 31 | item << 1 | (label == 0)
            size += 1
        sizes[row] = size
    return FINE


@kernel
def radix(words, sizes, scratch, counts):
    """Sort packed items by score: a stable radix sort.

    Shapes: words (r, n), sizes (r,), scratch (2, n), counts (passes, buckets).
    """
    mask = counts.shape[1] - 1
    for row in range(len(sizes)):
        for turn in range(PASSES):
            for bucket in range(mask + 1):
                counts[turn, bucket] = 0
        size, here = 0, 0
        for item in range(words.shape[1]):
            word = words[row, item]
            if word != PADDING:
                scratch[0, size] = word
                size += 1
                for turn in range(PASSES):
                    counts[turn, (word >> (31 + turn * DIGITS)) & mask] += 1
        for turn in range(PASSES):
            shift, start = 31 + turn * DIGITS, 0
            if counts[turn, (scratch[here, 0] >> shift) & mask] == size:  # all share this digit
                continue
            for bucket in range(mask + 1):
                number = counts[turn, bucket]
                counts[turn, bucket] = start
                start += number
            for k in range(size):
                word = scratch[here, k]
                digit = (word >> shift) & mask
                scratch[1 - here, counts[turn, digit]] = word
                counts[turn, digit] += 1
            here = 1 - here
        for k in range(size):
            words[row, k] = scratch[here, k]


@kernel
def refine(scores, places, sizes, moves):
    """Finish an order that is right up to rounding, by insertion sort. Returns False if that takes too long."""
    for row in range(len(sizes)):
        left = moves * sizes[row]
        for k in range(1, sizes[row]):
            place, at = places[row, k], k
            value = scores[row, (place & PLACE) >> 1]
            while at > 0 and scores[row, (places[row, at - 1] & PLACE) >> 1] < value:
                places[row, at] = places[row, at - 1]
                at -= 1
            places[row, at] = place
            left -= k - at
            if left < 0:
                return False
    return True


# ---------------------------------------------------------------------------------------------- the prediction


@kernel
def split(scores, factors, places, sizes, values, items, predicted, numbers):
    """Split sorted lists by side: scaled scores, items, and how many of the other side rank above each.

    Returns how many scores equal the one before. If there are any, the counts still need `spread_ties`.

    Shapes: scores and places (r, n), factors (r, any), sizes (r,), numbers (r, 2), the others (r, 2, n).
    """
    ties = 0
    for row in range(len(sizes)):
        numbers[row, RELEVANT] = numbers[row, IRRELEVANT] = 0
        before, scale = np.inf, factors[row, SCALE]
        for k in range(sizes[row]):
            item, side = (places[row, k] & PLACE) >> 1, places[row, k] & 1
            score, at = scores[row, item], numbers[row, side]
            values[row, side, at], items[row, side, at] = score * scale, item
            predicted[row, side, at], numbers[row, side] = numbers[row, 1 - side], at + 1
            ties += score == before
            before = score
    return ties


@kernel
def spread_ties(values, predicted, numbers):
    """Correct the counts: the k-th of r relevant items ranks below ceil(k q / r) of the q equal irrelevant ones."""
    for row in range(len(numbers)):
        P, N, i, j = numbers[row, RELEVANT], numbers[row, IRRELEVANT], 0, 0
        while i < P and j < N:
            value, r, q = values[row, RELEVANT, i], 0, 0
            if value > values[row, IRRELEVANT, j]:
                i += 1
                continue
            while i + r < P and values[row, RELEVANT, i + r] == values[row, IRRELEVANT, j]:
                r += 1
            if r == 0:
                j += 1
                continue
            while j + q < N and values[row, IRRELEVANT, j + q] == value:
                q += 1
            for k in range(r):
                predicted[row, RELEVANT, i + k] = j + ((k + 1) * q + r - 1) // r
            for k in range(q):
                predicted[row, IRRELEVANT, j + k] = i + k * r // q
            i, j = i + r, j + q


@kernel
def judge(predicted, numbers, weights, epsilons, sign, first, factors, loss):
    """Fill the loss, ``best - 1/z sum_i m_i(n_i)`` or 0 where nothing is relevant, and the factors of each list.
    Returns how many lists lack relevant or irrelevant items.
    """
    worth, _, u, zs, best, base, stride = weights
    lacking = 0
    for row in range(len(numbers)):
        P, mine, total = numbers[row, RELEVANT], row % len(worth), 0.0
        pairs, z, rows = P * numbers[row, IRRELEVANT], zs[row % len(zs), P], u[row % len(u)]
        for i in range(P):
            total += rows[i + 1] * worth[mine, base + stride * (i + 1) + predicted[row, RELEVANT, i]]
        loss[first + row] = best[row % len(best), P] - total / z
        if pairs == 0:  # no move changes anything
            lacking += 1
            pairs = 1
            if P == 0:
                loss[first + row] = 0.0
        epsilon, scale = epsilons[(first + row) % len(epsilons)], factors[row, SCALE]
        width = (scale * epsilon) * (pairs / (2.0 * z))
        if width < LEAST:
            width = LEAST if scale > 0 else 1.0
        factors[row, WIDTH] = width if width < 1 / LEAST else 1 / LEAST
        size = epsilon * pairs
        factors[row, UNIT] = -2.0 * sign / (size if size > LEAST else LEAST)
    return lacking


# ---------------------------------------------------------------------------------------------- moves


@kernel
def advance(
    scores, noisy, h, places, order, sizes, numbers, gains, weights, draws, sums, starts, relevant, ordered, bits,
    gradient,
):  # fmt: skip
    """Add ``-1 / (2 h z draws)`` times the metric's change as each item moves from ``s - h`` to ``s + h``.

    `directloss.moves` has the formula. Items are visited by descending score, so both ends of the window only ever
    move down the list of perturbed scores: two merges. ``gains`` (r, n) are what the places of the items count; (1, 1)
    for relevant items that all count 1.

    Shapes: scores, noisy, places, order and gradient (r, n), sizes (r,), sums (4, n + 1), starts (n,), relevant
    (n + 1,), ordered (2, n), bits (2, n) or (2, 0).
    """
    worth, _, u, zs, _, base, stride = weights
    clean, values = ordered[0], ordered[1]
    for row in range(len(sizes)):
        P = numbers[row, RELEVANT]
        graded = gains.shape[1] > 1
        if P == 0 or (numbers[row, IRRELEVANT] == 0 and not graded):
            continue
        table, rows, C = worth[row % len(worth)], u[row % len(u)], 0
        for way in range(4):
            sums[way, 0] = 0.0
        relevant[0] = 0
        for k in range(sizes[row]):
            place = order[row, k] & PLACE
            item = place >> 1
            if bits.shape[1] > 0:
                key = 0x7FFFFFFF - (order[row, k] >> 31)
                bits[1, k] = key if key >= 0 else key ^ 0x7FFFFFFF
                key = 0x7FFFFFFF - (places[row, k] >> 31)
                bits[0, k] = key if key >= 0 else key ^ 0x7FFFFFFF
            else:
                values[k], clean[k] = noisy[row, item], scores[row, (places[row, k] & PLACE) >> 1]
            up, up_other, down, down_other = 0.0, 0.0, 0.0, 0.0
            if place & 1 == RELEVANT:
                C += 1
                N, at = k + 1 - C, base + stride * C + k + 1 - C
                gain = gains[row, item] if graded else 1.0
                here = rows[C] * table[at]
                up_other = gain * (rows[C] * table[at + 1] - here)
                if C < P:
                    up = gain * (rows[C + 1] * table[at + stride] - here)
                if C > 1:
                    down = gain * (here - rows[C - 1] * table[at - stride])
                if N > 0:
                    down_other = gain * (here - rows[C] * table[at - 1])
            relevant[k + 1] = C
            sums[0, k + 1], sums[1, k + 1] = sums[0, k] + up, sums[1, k] + up_other
            sums[2, k + 1], sums[3, k + 1] = sums[2, k] + down, sums[3, k] + down_other
            starts[item] = sums[place & 1, k] - sums[2 + (place & 1), k + 1]
        a, b, size, unit = 0, 0, sizes[row], -0.5 / (h * zs[row % len(zs), P] * draws)
        for place in range(size):
            item, side = (places[row, place] & PLACE) >> 1, places[row, place] & 1
            high, low = clean[place] + h, clean[place] - h
            while a < size and values[a] > high:
                a += 1
            while b < size and values[b] >= low:
                b += 1
            change = starts[item] - sums[side, a] + sums[2 + side, b]
            if side == RELEVANT:
                gain = gains[row, item] if graded else 1.0
                C, at = relevant[a] + 1, base + stride * (relevant[a] + 1) + a - relevant[a]
                change += gain * rows[C] * table[at]
                C, at = relevant[b], base + stride * relevant[b] + b - relevant[b]
                change -= gain * rows[C] * table[at]
            gradient[row, item] += unit * change


# ---------------------------------------------------------------------------------------------- one by one


@kernel
def lower_each(values, predicted, numbers, factors, drop, u, stride, above):
    """The best p_j of each irrelevant item alone, from coarse to fine, in O(P log N + N) exchanges.

    Each item starts at the bound next to its predicted place and moves up, past one relevant item at a time.
    """
    for row in range(len(numbers)):
        N, width, mine, step = numbers[row, IRRELEVANT], factors[row, WIDTH], row % len(drop), LONGEST
        rows = u[row % len(u)]
        while step > 0:
            for j in range(step - 1, N, 2 * step):
                low, at, b = 0, predicted[row, IRRELEVANT, j], values[row, IRRELEVANT, j]
                if j >= step:
                    low = above[row, IRRELEVANT, j - step]
                if j + step < N and above[row, IRRELEVANT, j + step] < at:
                    at = above[row, IRRELEVANT, j + step]
                total, best = 0.0, 0.0
                for i in range(at, low, -1):
                    total += width * rows[i] * drop[mine, stride * i + j + 1] - (values[row, RELEVANT, i - 1] - b)
                    if total > best:
                        best, at = total, i - 1
                above[row, IRRELEVANT, j] = at
            step //= 2


@kernel
def fill_other_side(above, numbers, known):
    """n_i = #{j : p_j < i} and p_j = #{i : n_i < j}: the counts of one side from those of the other."""
    for row in range(len(numbers)):
        k = 0
        for place in range(numbers[row, 1 - known]):
            while k < numbers[row, known] and above[row, known, k] <= place:
                k += 1
            above[row, 1 - known, place] = k


# ---------------------------------------------------------------------------------------------- in order


@kernel
def narrow(values, predicted, factors, worth, u, base, stride, rows, ends):
    """How far up each relevant item can move for sign -1 and convex ``m_i``.

    Suppose row i and some rows after it rank below fewer than c items. If they all ranked below c instead, each step
    would save at least ``b_c - a_i`` and lose at most the steepest mean slope, ``width * (m_i(0) - m_i(c)) / c``, which
    does not increase with i. So where the first exceeds the second, no optimum is below c. Returns the maximal number
    of words for the bits of a list.

    Shapes: rows (r,) with the number of items that can move, ends (r, n).
    """
    most = 0
    for row in range(len(rows)):
        least, words, table, heights = 0, 0, worth[row % len(worth)], u[row % len(u)]
        for i in range(rows[row]):
            gain, end = SAFE * factors[row, WIDTH] * heights[i + 1], predicted[row, RELEVANT, i]
            at = base + stride * (i + 1)
            while end > least:
                cost = end * (values[row, IRRELEVANT, end - 1] - values[row, RELEVANT, i])
                if cost >= gain * (table[at] - table[at + end]):
                    break
                end -= 1
            ends[row, i] = least = end
            words += (predicted[row, RELEVANT, i] - end >> 6) + 1
        most = words if words > most else most
    return most


@kernel
def choose_in_order(
    values, predicted, factors, worth, u, base, stride, sign, changing, ends, bits, starts, best, above
):  # fmt: skip
    """The best n_i in order, by a table of one bit per cell: for each relevant item the cells from its predicted n_i to
    its end, which are all that an optimum can use.

    Rows are processed in the order in which their windows shrink: downwards for sign +1, upwards for sign -1.

    Shapes: changing (r,) with the number of rows that can change, ends (r, n), bits (words,), starts (n + 1,), best
    (n + 2,), above as predicted at first.
    """
    shift = 0 if sign > 0 else -1
    for problem in range(len(changing)):
        width = factors[problem, WIDTH]
        a, b, n_w = values[problem, RELEVANT], values[problem, IRRELEVANT], predicted[problem, RELEVANT]
        table, chosen, heights = worth[problem % len(worth)], above[problem, RELEVANT], u[problem % len(u)]
        for n in range(len(best)):
            best[n] = 0.0
        rows = changing[problem]
        starts[0] = 0
        top, end = 0.0, ends[problem, rows - 1] if rows > 0 else 0
        for row in range(rows):
            i = row if sign > 0 else rows - 1 - row
            m, score, gain, offset = n_w[i], a[i], width * heights[i + 1], base + stride * (i + 1)
            # Where the row before has no cells, its best is the one at its end.
            for n in range(ends[problem, i], m + 1 if m + 1 < end else end):
                best[n] = top
            end = ends[problem, i]
            left = sign * (end - m) + 1
            starts[row + 1] = starts[row] + (left + 63 >> 6)
            here, cost, top = table[offset + m], 0.0, -np.inf
            for at in range(starts[row], starts[row + 1]):
                word, flag = 0, 1
                for _ in range(left if left < 64 else 64):
                    value = best[m] + (gain * (sign * (here - table[offset + m])) - cost)
                    if value > top:
                        top = value
                        word |= flag
                    best[m] = top
                    flag <<= 1
                    cost += sign * (score - b[m + shift])  # of the next cell; unused after the last one
                    m += sign
                bits[at] = word
                left -= 64
        m = end
        for row in range(rows - 1, -1, -1):
            i = row if sign > 0 else rows - 1 - row
            if sign < 0 and ends[problem, i] > m:
                m = ends[problem, i]
            k = sign * (m - n_w[i])
            while not (bits[starts[row] + (k >> 6)] >> (k & 63)) & 1:
                k -= 1
            m = n_w[i] + sign * k
            chosen[i] = m


# ---------------------------------------------------------------------------------------------- in input order


@kernel
def slopes(predicted, augmented, items, numbers, factors, draws, largest, gradient):
    """``sign / epsilon * (dF(y_direct) - dF(y_w)) / draws``, clamped to ``largest``."""
    for row in range(len(numbers)):
        for side in range(2):
            for k in range(numbers[row, side]):
                slope = (
                    factors[row, UNIT] * (augmented[row, side, k] - predicted[row, side, k]) + 0.0
                )  # turns -0.0 into 0.0
                slope = largest if slope > largest else -largest if slope < -largest else slope
                gradient[row, items[row, side, k]] = slope / draws


@kernel
def scatter(above, items, numbers, counts):
    """For each item, how many of the other side rank above it."""
    for row in range(len(numbers)):
        for side in range(2):
            for k in range(numbers[row, side]):
                counts[row, items[row, side, k]] = above[row, side, k]
