"""Rankings on the CPU, compiled by numba. Same results as `tensor`; the package's docstring has the formulas.

One problem is solved at a time, from the raw scores to the gradient, in O(n) memory. Compiled code is cached on disk.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

# Nothing here divides by zero, and without the check for it loops are faster.
OPTIONS = {"nogil": True, "error_model": "numpy"}

_njit: Any = njit  # its types know only some of its options


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile; keep the result on disk, unless there is no place to write to.

    All kernels stand in one file, because numba drops a cached result only when the file of that function changes.
    """
    try:
        compiled: Callable[..., Any] = _njit(cache=True, **OPTIONS)(function)
    except RuntimeError:
        compiled = _njit(**OPTIONS)(function)
    return compiled


def helper(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile for other kernels only, whose stored result holds it: it cannot be called from Python, and has no entry
    of its own on disk, which halves the time of compiling it.
    """
    inner: Callable[..., Any] = _njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS, **options)(function)
    return inner


def reordering(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `helper`, where sums may be taken in any order, which lets a processor add several numbers at a time."""
    return helper(function, fastmath={"reassoc", "nsz"})


class Weights(NamedTuple):
    """`directloss.kernels.PositionWeights` as the kernels read it."""

    tables: Any
    base: int
    stride: int
    alpha: float
    beta: float
    first: bool
    cutoff: int
    max_fpr: float
    convex: bool


class Step(NamedTuple):
    """What is asked of the augmented inference."""

    epsilon: Any
    """One dimension; it is repeated over the problems."""
    sign: int
    least: float
    """`directloss.kernels.LEAST`."""
    largest: float
    """The largest gradient; what is larger is cut to it."""


class Results(NamedTuple):
    """Arrays to fill, one row for each problem; those without rows are not asked for."""

    loss: Any
    counts: Any
    """Numbers of relevant and irrelevant items."""
    gradient: Any
    above_predicted: Any
    above_augmented: Any


class Sides(NamedTuple):
    """The relevant and the irrelevant items of one list, both sorted; scratch that is as long as the list."""

    a: Any
    b: Any
    item_a: Any
    item_b: Any
    n: Any
    """Irrelevant items above each relevant one, as predicted."""
    p: Any


RADIX = 256
LOW31, LOW32, SIGN32 = np.uint64(0x7FFFFFFF), np.uint64(0xFFFFFFFF), np.uint64(0x80000000)
LOW, HIGH = (0, 1) if sys.byteorder == "little" else (1, 0)
"""Where the halves of a 64-bit word are, seen as two of 32."""
SAFE = 1 + 1e-6
"""How much more than needed an exchange has to cost to be out of reach, because of rounding."""
SHORT = 2048
"""Lists of so many items are sorted by their values, longer ones by their digits."""


# ---------------------------------------------------------------------------------------------- sorting


@helper
def _radix_pass(keys, payload, keys_out, payload_out, size, shift):
    """One stable counting pass over 8 bits; False (and nothing moved) when all keys agree in them."""
    counts = np.zeros(RADIX, dtype=np.int64)
    eight, mask = np.uint64(shift), np.uint64(RADIX - 1)
    for k in range(size):
        counts[(keys[k] >> eight) & mask] += 1
    if counts[(keys[0] >> eight) & mask] == size:
        return False
    place = 0
    for digit in range(RADIX):
        here = counts[digit]
        counts[digit] = place
        place += here
    for k in range(size):
        digit = (keys[k] >> eight) & mask
        keys_out[counts[digit]] = keys[k]
        payload_out[counts[digit]] = payload[k]
        counts[digit] += 1
    return True


@helper
def _sort_pairs(keys, payload, keys_spare, payload_spare, size):
    """Sort by 64-bit keys (float64 scores), payload along. Returns the two arrays that hold the result."""
    for shift in range(0, 64, 8):
        if _radix_pass(keys, payload, keys_spare, payload_spare, size, shift):
            keys, keys_spare = keys_spare, keys
            payload, payload_spare = payload_spare, payload
    return keys, payload


@helper
def _sort_words(words, spare, size, first):
    """Sort unsigned integers by the 32 bits from bit ``first`` on, three stable passes of 11 bits or four of 8."""
    shift = np.uint64(first)
    if size == 0:
        return words
    digits = 11 if size > SHORT else 8
    buckets = 1 << digits
    mask = np.uint64(buckets - 1)
    passes = 3 if digits == 11 else 4
    counts = np.zeros((passes, buckets), dtype=np.int32)
    for k in range(size):
        key = np.uint64(words[k]) >> shift
        for p in range(passes):
            counts[p, key & mask] += 1
            key >>= np.uint64(digits)
    for p in range(passes):
        row = counts[p]
        if row[(np.uint64(words[0]) >> shift) & mask] < size:
            place = 0
            for bucket in range(buckets):
                here = row[bucket]
                row[bucket] = place
                place += here
            for k in range(size):
                word = words[k]
                digit = (np.uint64(word) >> shift) & mask
                spare[row[digit]] = word
                row[digit] += 1
            words, spare = spare, words
        shift += np.uint64(digits)
    return words


@helper
def _key32(raw):
    """The bits of a finite float32 as an integer that falls where the number rises."""
    if raw == SIGN32:  # -0.0 equals 0.0
        raw = np.uint64(0)
    return raw if raw & SIGN32 else (raw ^ LOW32) & LOW31


@helper
def _finite32(raw):
    return raw & np.uint64(0x7F800000) != np.uint64(0x7F800000)


@helper
def _sorted32(bits, target, words, spare):
    """Valid items in descending order of float32 scores, as words of the score's bits and item << 1 | label, so that
    nothing has to be gathered after the sort. Returns how many, -1 if a score is not finite; and the words.
    """
    size = np.int64(0)  # a plain 0 is a type of its own, for which all that follows is compiled once more
    for item in range(target.shape[0]):
        label = target[item]
        if label >= 0:
            raw = np.uint64(bits[item])
            if not _finite32(raw):
                return -1, words
            words[size] = _key32(raw) << np.uint64(32) | np.uint64(item << 1 | label)
            size += 1
    if size <= SHORT:
        _turn(words, size)
        if _sorted_by_value(words, spare, size):
            return size, spare
        _turn(words, size)
    ordered = _sort_words(words, spare, size, 32)
    _turn(ordered, size)
    return size, ordered


@helper
def _turn(words, size):
    """Keys in the upper halves become the bits of floats, or these become keys."""
    for k in range(size):
        key = words[k] >> np.uint64(32)
        if not key & SIGN32:
            words[k] ^= LOW31 << np.uint64(32)


@helper
def _sorted_by_value(words, ordered, size):
    """Sort words with a float32 in the upper half, falling: into as many equal bins as there are words, then by
    insertion. Returns False if too many fall into the same bin.
    """
    values = words.view(np.float32)[HIGH::2]
    low, high = values[0], values[0]
    for k in range(1, size):
        low, high = min(low, values[k]), max(high, values[k])
    bins = 16
    while bins < size:
        bins *= 2
    top = np.float64(high)
    scale = (bins - 1) / (top - low) if high > low else 0.0
    starts = np.zeros(bins + 1, dtype=np.int32)
    bin_of = np.empty(size, dtype=np.int32)
    for k in range(size):
        bin_of[k] = (top - values[k]) * scale
        starts[bin_of[k] + 1] += 1
    for here in range(bins):
        starts[here + 1] += starts[here]
    for k in range(size):
        ordered[starts[bin_of[k]]] = words[k]
        starts[bin_of[k]] += 1
    values = ordered.view(np.float32)[HIGH::2]
    left = 8 * size
    for k in range(1, size):
        value = values[k]
        if values[k - 1] < value:
            word, place = ordered[k], k
            while place > 0 and values[place - 1] < value:
                ordered[place] = ordered[place - 1]
                place -= 1
            ordered[place] = word
            left -= k - place
            if left < 0:
                return False
    return True


@helper
def _sorted64(bits, target, keys, spare):
    """As `_sorted32`, for float64 scores: how many, and the scores and payloads in order."""
    size = np.int64(0)
    payload, payload_spare = np.empty(len(keys), dtype=np.int64), np.empty(len(keys), dtype=np.int64)
    top = np.uint64(1) << np.uint64(63)
    exponent = np.uint64(0x7FF) << np.uint64(52)
    for item in range(target.shape[0]):
        label = target[item]
        if label >= 0:
            raw = bits[item]
            if raw & exponent == exponent:
                return -1, keys, payload
            if raw == top:
                raw = np.uint64(0)
            keys[size] = raw if raw & top else (~raw) & ~top
            payload[size] = item << 1 | label
            size += 1
    if size == 0:
        return 0, keys, payload
    ordered, carried = _sort_pairs(keys, payload, spare, payload_spare, size)
    for k in range(size):
        key = ordered[k]
        ordered[k] = key if key & top else (~key) & ~top
    return size, ordered, carried


@helper
def _counted32(bits, target, words, spare, n):
    """As `_sorted32` and `_split`, where only n is asked for: each class is sorted alone, by keys of 32 bits, and no
    item need be remembered. Returns P and N, or -1 if a score is not finite.
    """
    keys, keys_spare = words.view(np.uint32), spare.view(np.uint32)
    width = target.shape[0]
    P, N = np.int64(0), np.int64(0)
    for item in range(width):
        label = target[item]
        if label >= 0:
            raw = np.uint64(bits[item])
            if not _finite32(raw):
                return -1, -1
            key = _key32(raw)
            if label:
                keys[P] = key
                P += 1
            else:
                keys[width + N] = key
                N += 1
    a = _sort_words(keys[:width], keys_spare[:width], P, 0)
    b = _sort_words(keys[width:], keys_spare[width:], N, 0)
    i, j = 0, 0
    while i < P:
        key, start, above = a[i], i, 0
        while j < N and b[j] < key:
            j += 1
        while i < P and a[i] == key:
            i += 1
        while j + above < N and b[j + above] == key:
            above += 1
        for k in range(i - start):
            n[start + k] = j + ((k + 1) * above + i - start - 1) // (i - start)
        j += above
    return P, N


@helper
def _split(values, payload, size, sides):
    """Split the sorted list into relevant and irrelevant items and count who stands above whom.

    Among equal scores the k-th of r tied relevant items stands behind ceil(k q / r) of the q tied irrelevant ones.
    Returns their numbers P and N, and the power of two that scales the range of the scores to about 1, or 0 if all
    are equal; without items, P is their number ``size``, 0 or less.
    """
    if size <= 0:
        return size, 0, 0.0
    reach = 0.5 * values[0] - 0.5 * values[size - 1]
    scale = 2.0 ** -min(max(math.frexp(reach)[1], -1000), 1000) if reach > 0 else 0.0
    P, N, start = 0, 0, 0
    while start < size:
        value, end, r, q = values[start], start, 0, 0
        place = value * scale
        while end < size and values[end] == value:
            if payload[end] & 1:
                sides.a[P + r], sides.item_a[P + r] = place, payload[end] >> 1
                r += 1
            else:
                sides.b[N + q], sides.item_b[N + q] = place, payload[end] >> 1
                q += 1
            end += 1
        for k in range(r):  # a division is slow
            sides.n[P + k] = N + ((k + 1) * q + r - 1) // r if q else N
        for k in range(q):
            sides.p[N + k] = P + (k * r) // q if r else P
        P, N, start = P + r, N + q, end
    return P, N, scale


# ---------------------------------------------------------------------------------------------- augmented inference


@helper
def _weight(weights, i):
    """u_i."""
    if weights.first:
        return 1.0 if i == 1 else 0.0
    return weights.alpha + weights.beta * i


@helper
def _positions_first(sides, P, N, p, weights, width, sign):
    """The best p_j of each irrelevant item alone, from coarse to fine: O(P log N + N) exchanges are looked at.

    Each item starts at the bound next to its predicted place and moves away from it, past one relevant item at a time.
    """
    a, b, p_w, drop = sides.a, sides.b, sides.p, weights.tables[1]
    alpha, beta = width * weights.alpha, width * weights.beta
    step = 1
    while 2 * step <= N:
        step *= 2
    while step >= 1:
        for j in range(step, N + 1, 2 * step):
            low = p[j - 1 - step] if j > step else 0
            high = p[j - 1 + step] if j + step <= N else P
            score = b[j - 1]
            total, best = 0.0, 0.0
            if sign < 0:  # only where all gains are equal
                low = max(low, p_w[j - 1])
                at = low
                for i in range(low + 1, high + 1):
                    total += width - (score - a[i - 1])
                    if total > best:
                        best, at = total, i
                p[j - 1] = at
                continue
            high = min(high, p_w[j - 1])
            at = high
            if weights.stride == 0:
                gain = width * min(max(weights.max_fpr * N - (j - 1), 0.0), 1.0)
                for i in range(high, low, -1):
                    total += gain - (a[i - 1] - score)
                    if total > best:
                        best, at = total, i - 1
            elif weights.first:
                for i in range(high, low, -1):
                    total += (width * drop[1 + j] if i == 1 else 0.0) - (a[i - 1] - score)
                    if total > best:
                        best, at = total, i - 1
            else:
                for i in range(high, low, -1):
                    total += (alpha + beta * i) * drop[i + j] - (a[i - 1] - score)
                    if total > best:
                        best, at = total, i - 1
            p[j - 1] = at
        step //= 2


@helper
def _within_reach(sides, rows, weights, width):
    """The least n_i of each row that an optimum for sign -1 can have, where ``m_i`` is convex; they ascend.

    Say that row i and some rows after it stand behind less than c. If they all stood behind c instead, each step would
    save ``b_c - a_i`` or more, and lose no more than the steepest mean slope, ``width * (m_i(0) - m_i(c)) / c``, which
    falls with i. So wherever the first exceeds the second, no optimum is below c.
    """
    a, b, n_w, table = sides.a, sides.b, sides.n, weights.tables[0]
    ends = np.empty(rows, dtype=np.int64)
    least = 0
    for i in range(rows):
        gain, place = SAFE * width * _weight(weights, i + 1), weights.base + weights.stride * (i + 1)
        c = n_w[i]
        while c > least and c * (b[c - 1] - a[i]) < gain * (table[place] - table[place + c]):
            c -= 1
        ends[i] = c
        least = c
    return ends


@helper
def _table_of_choices(sides, rows, ends, n, weights, table, width, sign):
    """The best n_i of the first rows in order, by a table of one bit per cell: from the predicted n_i to its end.

    Rows come in the order in which their windows shrink: downwards for sign +1, upwards for sign -1.
    """
    a, b, n_w = sides.a, sides.b, sides.n
    start = np.empty(rows + 1, dtype=np.int64)
    start[0] = 0
    for row in range(rows):
        i = row if sign > 0 else rows - 1 - row
        start[row + 1] = start[row] + abs(ends[i] - n_w[i]) // 64 + 1
    bits = np.empty(start[rows], dtype=np.uint64)
    best = np.zeros(max(ends[rows - 1], n_w[rows - 1]) + 1)
    shift = 0 if sign > 0 else -1
    end, top = ends[rows - 1], 0.0
    for row in range(rows):
        i = row if sign > 0 else rows - 1 - row
        score, m = a[i], n_w[i]
        # Where the row before had no cells, its best is that of its end.
        best[ends[i] : min(m + 1, end)] = top
        end = ends[i]
        gain = width * _weight(weights, i + 1)
        offset = weights.base + weights.stride * (i + 1)
        here = table[offset + m]
        cost = 0.0
        top = -np.inf
        left = abs(end - m) + 1
        for word_at in range(start[row], start[row + 1]):
            word = np.uint64(0)
            flag = np.uint64(1)
            for _ in range(min(64, left)):
                value = best[m] + (gain * (sign * (here - table[offset + m])) - cost)
                if value > top:
                    top = value
                    word |= flag
                best[m] = top
                flag <<= np.uint64(1)
                cost += sign * (score - b[m + shift])  # of the next cell; behind the last one it is not used
                m += sign
            bits[word_at] = word
            left -= 64
    m = end
    for row in range(rows - 1, -1, -1):
        i = row if sign > 0 else rows - 1 - row
        m = m if sign > 0 else max(m, ends[i])
        k = abs(m - n_w[i])
        while not (bits[start[row] + k // 64] >> np.uint64(k % 64)) & np.uint64(1):
            k -= 1
        m = n_w[i] + sign * k
        n[i] = m


@helper
def _above_relevant(p, n, P, N):
    """n_i = #{j : p_j < i}."""
    j = 0
    for i in range(P):
        while j < N and p[j] < i + 1:
            j += 1
        n[i] = j


@helper
def _above_irrelevant(n, p, P, N):
    """p_j = #{i : n_i < j}."""
    i = 0
    for j in range(N):
        while i < P and n[i] < j + 1:
            i += 1
        p[j] = i


@helper
def _augment(sides, P, N, n, p, weights, table, width, step, in_order):
    """Fill n and p with the loss-augmented ranking."""
    if in_order is None:
        _positions_first(sides, P, N, p, weights, width, step.sign)
        _above_relevant(p, n, P, N)
        return
    _copy(sides.n, n, P)
    cutoff = weights.cutoff
    if step.sign < 0:  # only rows that still earn something can gain by moving up, and they move up only
        rows = 1 if weights.first else (min(P, cutoff) if cutoff > 0 else P)
        far = 0
    else:  # beyond `far` nothing more can be lost, so rows that stand there already stay
        far = min(cutoff, N) if cutoff > 0 else N
        rows = 0
        while rows < P and sides.n[rows] < far:
            rows += 1
    if rows > 0:
        if step.sign < 0 and weights.convex and weights.stride == 1:
            ends = _within_reach(sides, rows, weights, width)
        else:
            ends = np.empty(rows, dtype=np.int64)
            for i in range(rows):
                ends[i] = far
        _table_of_choices(sides, rows, ends, n, weights, table, width, step.sign)
    _above_irrelevant(n, p, P, N)


# ---------------------------------------------------------------------------------------------- whole problems


@helper
def _false_positive_table(max_fpr, N):
    """m(n) = max(0, max_fpr N - n)."""
    table = np.empty(N + 2)
    for n in range(N + 2):
        table[n] = max(0.0, max_fpr * N - n)
    return table


@kernel
def read_labels(target, labels, padding):
    """Copy labels into int8. Returns a place where one is not 0 or 1 (or -1, where padding is allowed), or -1; such a
    label counts as padding.
    """
    strange = -1
    for k in range(target.shape[0]):
        value = target[k]
        if value == 0:
            labels[k] = 0
        elif value == 1:
            labels[k] = 1
        else:
            labels[k] = -1
            if not (padding and value == -1):
                strange = k
    return strange


@helper
def _copy(source, target, size):
    """As ``target[:size] = source[:size]``, which numba compiles with an error message for each shape."""
    for k in range(size):
        target[k] = source[k]


@helper
def _scatter(row, item_a, item_b, n, p, P, N):
    """Counts in the order of the input."""
    for i in range(P):
        row[item_a[i]] = n[i]
    for j in range(N):
        row[item_b[j]] = p[j]


@helper
def _solve(bits, target, weights, step, results, double, counting, in_order, first, last):
    """The problems from ``first`` to before ``last`` of a batch: the loss of each, its numbers of relevant and
    irrelevant items, and, as asked, gradient and counts. Returns how many of them lack relevant or irrelevant items, or
    -1 if a score is not finite.

    Args:
        bits: float32 or float64 scores as unsigned integers, (b, n).
        target: labels as int8, (any, n); they are repeated over the problems.
        weights: `Weights`.
        step: `Step`.
        results: `Results`.
        double: True if the scores are float64, else None, as for the next two: numba leaves out branches that a None
            excludes.
        counting: True if only loss and counts are asked for, of lists of float32 scores that are not `SHORT`.
        in_order: True if the best positions cannot be found one by one.
    """
    missing = 0
    width = target.shape[1]
    gradient, above_w, above_d = results.gradient, results.above_predicted, results.above_augmented
    augment = gradient.shape[0] > 0 or above_d.shape[0] > 0
    wide = width if counting is None else 0
    words, spare = np.empty(width, dtype=np.uint64), np.empty(width, dtype=np.uint64)
    sides = Sides(
        np.empty(wide), np.empty(wide), np.empty(wide, dtype=np.int32), np.empty(wide, dtype=np.int32),
        np.empty(width, dtype=np.int32), np.empty(wide, dtype=np.int32),
    )  # fmt: skip
    n, p = np.empty(wide, dtype=np.int32), np.empty(wide, dtype=np.int32)
    for row in range(first, last):
        labels = target[row % target.shape[0]]
        if gradient.shape[0] > 0:
            gradient[row] = 0.0
        scale = 0.0
        if double is not None:
            size, scores, payload = _sorted64(bits[row], labels, words, spare)
            P, N, scale = _split(scores.view(np.float64), payload, size, sides)
        elif counting is None:
            size, packed = _sorted32(bits[row], labels, words, spare)
            P, N, scale = _split(packed.view(np.float32)[HIGH::2], packed.view(np.uint32)[LOW::2], size, sides)
        else:
            P, N = _counted32(bits[row], labels, words, spare, sides.n)
        if P < 0:
            return -1
        results.counts[row, 0], results.counts[row, 1] = P, N
        missing += P == 0 or N == 0
        table, z = weights.tables[0], weights.tables[2, P]
        if weights.max_fpr > 0:
            table = _false_positive_table(weights.max_fpr, N)
            z *= weights.max_fpr * max(N, 1)
        total = 0.0
        for i in range(P):
            total += _weight(weights, i + 1) * table[weights.base + weights.stride * (i + 1) + sides.n[i]]
        results.loss[row] = weights.tables[3, P] - total / z if P > 0 else 0.0
        if above_w.shape[0] > 0:
            _scatter(above_w[row], sides.item_a, sides.item_b, sides.n, sides.p, P, N)
        if counting is not None or not augment:
            continue
        epsilon = step.epsilon[row % step.epsilon.shape[0]]
        if P > 0 and N > 0:
            reach = (scale * epsilon) * (P * N / (2.0 * z)) if scale > 0 else 1.0
            _augment(sides, P, N, n, p, weights, table, min(max(reach, step.least), 1 / step.least), step, in_order)
        else:
            _copy(sides.n, n, P)
            _copy(sides.p, p, N)
        if above_d.shape[0] > 0:
            _scatter(above_d[row], sides.item_a, sides.item_b, n, p, P, N)
        if gradient.shape[0] > 0 and P > 0 and N > 0:
            unit = -2.0 * step.sign / max(epsilon * (P * N), step.least)
            for i in range(P):
                slope = unit * (n[i] - sides.n[i]) + 0.0  # and not -0.0
                gradient[row, sides.item_a[i]] = min(max(slope, -step.largest), step.largest)
            for j in range(N):
                slope = unit * (p[j] - sides.p[j]) + 0.0
                gradient[row, sides.item_b[j]] = min(max(slope, -step.largest), step.largest)
    return missing


# One kernel for each kind of problem: the first call compiles what it needs and no more. Each has a name, and so a file
# in the cache, of its own: processes that compile different ones at the same time cannot mix them up.


@kernel
def count(bits, target, weights, step, results, first, last):
    """Loss and counts alone."""
    return _solve(bits, target, weights, step, results, None, True, None, first, last)


@kernel
def solve(bits, target, weights, step, results, first, last):
    """All that is asked for, of float32 scores; the best positions are found one by one."""
    return _solve(bits, target, weights, step, results, None, None, None, first, last)


@kernel
def solve_in_order(bits, target, weights, step, results, first, last):
    """As `solve`, where positions are found by a table of choices."""
    return _solve(bits, target, weights, step, results, None, None, True, first, last)


@kernel
def solve64(bits, target, weights, step, results, first, last):
    """As `solve`, of float64 scores."""
    return _solve(bits, target, weights, step, results, True, None, None, first, last)


@kernel
def solve64_in_order(bits, target, weights, step, results, first, last):
    """As `solve_in_order`, of float64 scores."""
    return _solve(bits, target, weights, step, results, True, None, True, first, last)


def solver(wide: bool, items: int, asked: bool, in_order: bool) -> Callable[..., int]:
    """The kernel for lists of this many items, by whether the scores are float64 (``wide``), more than loss and counts
    is asked for, and positions have to be found in order.
    """
    if wide:
        return solve64_in_order if in_order else solve64
    if items > SHORT and not asked:
        return count
    return solve_in_order if in_order else solve
