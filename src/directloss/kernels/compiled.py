"""Rankings on the CPU, compiled by numba. Same results as `tensor`; the package's docstring has the formulas.

One problem is solved at a time, from the raw scores to the gradient, in O(n) memory. Compiled code is cached on disk.
All arithmetic is in float64; scores are centred and scaled to unit range first, which changes no ranking and keeps
sums of huge or tiny scores exact enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile; keep the result on disk, unless there is no place to write to.

    All kernels stand in one file, because numba drops a cached result only when the file of that function changes.
    """
    return _compiled(function, {})


def reordering(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, where sums may be taken in any order, which lets a processor add several numbers at a time."""
    return _compiled(function, {"fastmath": {"reassoc", "nsz"}})


def _compiled(function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    # Nothing here divides by zero, and without the check for it loops are faster.
    try:
        compiled: Callable[..., Any] = njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    except RuntimeError:
        compiled = njit(nogil=True, error_model="numpy", **options)(function)
    return compiled


RADIX = 256
LOW32 = np.uint64(0xFFFFFFFF)


@kernel
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


@kernel
def _sort_pairs(keys, payload, keys_spare, payload_spare, size):
    """Sort by 64-bit keys (float64 scores), payload along. Returns the two arrays that hold the result."""
    for shift in range(0, 64, 8):
        if _radix_pass(keys, payload, keys_spare, payload_spare, size, shift):
            keys, keys_spare = keys_spare, keys
            payload, payload_spare = payload_spare, payload
    return keys, payload


@kernel
def _sort_packed(packed, spare, size):
    """Sort 64-bit words by their upper 32 bits (float32 scores), three stable passes of 11 bits or four of 8."""
    digits = 11 if size > 2048 else 8
    buckets = 1 << digits
    mask = np.uint64(buckets - 1)
    passes = 3 if digits == 11 else 4
    counts = np.zeros((passes, buckets), dtype=np.int64)
    for k in range(size):
        word = packed[k] >> np.uint64(32)
        for p in range(passes):
            counts[p, word & mask] += 1
            word >>= np.uint64(digits)
    for p in range(passes):
        shift = np.uint64(32 + digits * p)
        row = counts[p]
        if row[(packed[0] >> shift) & mask] == size:
            continue
        place = 0
        for digit in range(buckets):
            here = row[digit]
            row[digit] = place
            place += here
        for k in range(size):
            word = packed[k]
            digit = (word >> shift) & mask
            spare[row[digit]] = word
            row[digit] += 1
        packed, spare = spare, packed
    return packed


@kernel
def _sorted32(bits, target, values, payload, packed, spare):
    """Valid items in descending order of float32 scores: values, and payload = item << 1 | label. Returns how many.

    Key, item and label travel in one 64-bit word, so that nothing has to be gathered after the sort. Returns -1 if a
    score is not finite.
    """
    size = 0
    for item in range(target.shape[0]):
        label = target[item]
        if label >= 0:
            raw = np.uint64(bits[item])
            if raw & np.uint64(0x7F800000) == np.uint64(0x7F800000):
                return -1
            if raw == np.uint64(0x80000000):  # -0.0 equals 0.0
                raw = np.uint64(0)
            key = raw if raw >> np.uint64(31) else (raw ^ LOW32) & np.uint64(0x7FFFFFFF)
            packed[size] = key << np.uint64(32) | np.uint64(item << 1 | label)
            size += 1
    if size == 0:
        return 0
    ordered = _sort_packed(packed, spare, size)
    decoded = np.empty(size, dtype=np.uint32)
    for k in range(size):
        key = ordered[k] >> np.uint64(32)
        decoded[k] = np.uint32(key if key >> np.uint64(31) else (key ^ LOW32) & np.uint64(0x7FFFFFFF))
        payload[k] = np.int64(ordered[k] & LOW32)
    floats = decoded.view(np.float32)
    for k in range(size):
        values[k] = floats[k]
    return size


@kernel
def _sorted64(bits, target, values, payload, keys, spare):
    """As `_sorted32`, for float64 scores."""
    size = 0
    top = np.uint64(1) << np.uint64(63)
    exponent = np.uint64(0x7FF) << np.uint64(52)
    for item in range(target.shape[0]):
        label = target[item]
        if label >= 0:
            raw = bits[item]
            if raw & exponent == exponent:
                return -1
            if raw == top:
                raw = np.uint64(0)
            keys[size] = raw if raw & top else (~raw) & ~top
            payload[size] = item << 1 | label
            size += 1
    if size == 0:
        return 0
    ordered, carried = _sort_pairs(keys, payload.copy(), spare, np.empty_like(payload), size)
    decoded = np.empty(size, dtype=np.uint64)
    for k in range(size):
        key = ordered[k]
        decoded[k] = key if key & top else (~key) & ~top
        payload[k] = carried[k]
    floats = decoded.view(np.float64)
    for k in range(size):
        values[k] = floats[k]
    return size


@kernel
def _split(values, payload, size, a, b, item_a, item_b, n, p):
    """Split the sorted list into relevant (a) and irrelevant (b) items and count who stands above whom.

    n[i] irrelevant items stand above the i-th relevant one, p[j] relevant ones above the j-th irrelevant one. Among
    equal scores the k-th of r tied relevant items stands behind ceil(k q / r) of the q tied irrelevant ones.
    """
    high, low = values[0], values[size - 1]
    centre = 0.5 * high + 0.5 * low
    reach = 0.5 * high - 0.5 * low
    # A power of two, so that scaling rounds nothing and equally good rankings stay equally good.
    scale = 2.0 ** -math.frexp(max(reach, 1e-300))[1]
    P, N, start = 0, 0, 0
    while start < size:
        value, end, r, q = values[start], start, 0, 0
        place = (value - centre) * scale
        while end < size and values[end] == value:
            if payload[end] & 1:
                a[P + r], item_a[P + r] = place, payload[end] >> 1
                r += 1
            else:
                b[N + q], item_b[N + q] = place, payload[end] >> 1
                q += 1
            end += 1
        for k in range(r):
            n[P + k] = N + ((k + 1) * q + r - 1) // r
        for k in range(q):
            p[N + k] = P + (k * r) // q
        P, N, start = P + r, N + q, end
    return P, N, scale


@kernel
def _weight(i, alpha, beta, first):
    if first:
        return 1.0 if i == 1 else 0.0
    return alpha + beta * i


@kernel
def _positions_first(A, b, P, N, p_w, p, table, prefix, stride, alpha, beta, first, c, sign):
    """argmax over p of G_j(p) = A_p - p b_j + sign c T_j(p) for each j: G is totally monotone, so the p_j are monotone.

    Divide and conquer from coarse to fine: O(P log N + N) evaluations. Equally good: the one nearest to the prediction.
    """
    step = 1
    while 2 * step <= N:
        step *= 2
    while step >= 1:
        for j in range(step, N + 1, 2 * step):
            low = p[j - 1 - step] if j > step else 0
            high = p[j - 1 + step] if j + step <= N else P
            if sign > 0:
                high = min(high, p_w[j - 1])
            else:
                low = max(low, p_w[j - 1])
            score = b[j - 1]
            best, at = -np.inf, high if sign > 0 else low
            if stride == 0:
                drop = c * (table[j - 1] - table[j])
                for p_here in range(low, high + 1):
                    value = A[p_here] - p_here * score - sign * drop * p_here
                    if value > best or (value == best and sign > 0):
                        best, at = value, p_here
            elif first:
                drop = c * (table[j] - table[j + 1])
                for p_here in range(low, high + 1):
                    value = A[p_here] - p_here * score - (sign * drop if p_here > 0 else 0.0)
                    if value > best or (value == best and sign > 0):
                        best, at = value, p_here
            else:
                ca, cb = sign * c * alpha, sign * c * beta
                for p_here in range(low, high + 1):
                    k = p_here + j
                    value = A[p_here] - p_here * score + (ca + cb * (p_here + 1)) * table[k] - cb * prefix[k]
                    if value > best or (value == best and sign > 0):
                        best, at = value, p_here
            p[j - 1] = at
        step //= 2


@kernel
def _table_of_choices(a, B, n_w, n, low, high, rows, table, base, stride, alpha, beta, first, c, sign):
    """best_i(m) = max(best_i(m - 1), best_{i-1}(m) + f_i(m)) over the windows low[i] <= m <= high[i]; one bit per
    cell.
    """
    start = np.empty(rows + 1, dtype=np.int64)
    start[0] = 0
    for i in range(rows):
        start[i + 1] = start[i] + (high[i] - low[i]) // 64 + 1
    bits = np.empty(start[rows], dtype=np.uint64)
    best = np.zeros(high[rows - 1] + 1)
    for i in range(rows):
        if i > 0:
            for m in range(high[i - 1] + 1, high[i] + 1):
                best[m] = best[high[i - 1]]
        score = a[i]
        charge = sign * c * _weight(i + 1, alpha, beta, first)
        offset = base + stride * (i + 1)
        top = -np.inf
        m = low[i]
        for word_at in range(start[i], start[i + 1]):
            word = np.uint64(0)
            flag = np.uint64(1)
            for m_here in range(m, min(m + 64, high[i] + 1)):
                value = best[m_here] + (B[m_here] - m_here * score) - charge * table[offset + m_here]
                # Equally good: the one nearest to the prediction, that is the smallest for +1, the largest for -1.
                if value > top or (value == top and sign < 0):
                    top = value
                    word |= flag
                best[m_here] = top
                flag <<= np.uint64(1)
            bits[word_at] = word
            m += 64
    m = high[rows - 1]
    for i in range(rows - 1, -1, -1):
        m = min(m, high[i])
        while not (bits[start[i] + (m - low[i]) // 64] >> np.uint64((m - low[i]) % 64)) & np.uint64(1):
            m -= 1
        n[i] = m


@kernel
def _above_relevant(p, n, P, N):
    """n_i = #{j : p_j < i}."""
    j = 0
    for i in range(P):
        while j < N and p[j] < i + 1:
            j += 1
        n[i] = j


@kernel
def _above_irrelevant(n, p, P, N):
    """p_j = #{i : n_i < j}."""
    i = 0
    for j in range(N):
        while i < P and n[i] < j + 1:
            i += 1
        p[j] = i


@kernel
def _augment(a, b, P, N, n_w, p_w, n, p, table, prefix, base, stride, alpha, beta, first, cutoff, monotone, c, sign):
    """Fill n and p with the loss-augmented ranking."""
    if monotone:
        A = np.empty(P + 1)
        A[0] = 0.0
        for i in range(P):
            A[i + 1] = A[i] + a[i]
        _positions_first(A, b, P, N, p_w, p, table, prefix, stride, alpha, beta, first, c, sign)
        _above_relevant(p, n, P, N)
        return
    B = np.empty(N + 1)
    B[0] = 0.0
    for j in range(N):
        B[j + 1] = B[j] + b[j]
    n[:P] = n_w[:P]
    reach = min(cutoff, N) if cutoff > 0 else N
    rows = P
    if sign < 0:  # only rows that still earn something can gain by moving up, and they move up only
        rows = 1 if first else (min(P, cutoff) if cutoff > 0 else P)
        low, high = np.zeros(rows, dtype=np.int64), n_w[:rows]
    else:  # beyond `reach` nothing more can be lost, so rows that stand there already stay
        rows = 0
        while rows < P and n_w[rows] < reach:
            rows += 1
        low, high = n_w[:rows], np.full(rows, reach, dtype=np.int64)
    if rows > 0:
        _table_of_choices(a, B, n_w, n, low, high, rows, table, base, stride, alpha, beta, first, c, sign)
    _above_irrelevant(n, p, P, N)


@kernel
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


@kernel
def solve(
    bits, target, narrow, tables, base, stride, alpha, beta, first, cutoff, max_fpr, monotone,
    epsilon, sign, least_unit, largest,
    loss, gradient, above_w, above_d, size_of,
):  # fmt: skip
    """Every problem of a batch: its loss, its numbers of relevant and irrelevant items, and, as asked, gradient and
    counts.

    Arrays without rows are not asked for. Gradients are finite, ``largest`` at most. Returns the number of problems
    that lack relevant or irrelevant items, or -1 if a score is not finite.
    """
    table, prefix, z_of, best_of = tables[0], tables[1], tables[2], tables[3]
    missing = 0
    width = target.shape[1]
    augment = gradient.shape[0] > 0 or above_d.shape[0] > 0
    values, payload = np.empty(width), np.empty(width, dtype=np.int64)
    keys, spare = np.empty(width, dtype=np.uint64), np.empty(width, dtype=np.uint64)
    a, b = np.empty(width), np.empty(width)
    item_a, item_b = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    n_w, p_w = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    n, p = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    for row in range(target.shape[0]):
        loss[row] = 0.0
        size_of[row, 0] = size_of[row, 1] = 0
        if narrow:
            size = _sorted32(bits[row], target[row], values, payload, keys, spare)
        else:
            size = _sorted64(bits[row], target[row], values, payload, keys, spare)
        if size < 0:
            return -1
        if size == 0:
            missing += 1
            continue
        P, N, scale = _split(values, payload, size, a, b, item_a, item_b, n_w, p_w)
        size_of[row, 0], size_of[row, 1] = P, N
        missing += P == 0 or N == 0
        weights = _false_positive_table(max_fpr, N) if max_fpr > 0 else table
        z = z_of[P]
        if max_fpr > 0:
            z *= max_fpr * max(N, 1)
        total = 0.0
        if P > 0:
            for i in range(P):
                total += _weight(i + 1, alpha, beta, first) * weights[base + stride * (i + 1) + n_w[i]]
            loss[row] = best_of[P] - total / z
        if above_w.shape[0] > 0:
            for i in range(P):
                above_w[row, item_a[i]] = n_w[i]
            for j in range(N):
                above_w[row, item_b[j]] = p_w[j]
        if not augment:
            continue
        step = epsilon[row % epsilon.shape[0]]
        if P > 0 and N > 0:
            c = 0.5 * scale * step * P * N / z
            _augment(
                a, b, P, N, n_w, p_w, n, p, weights, prefix, base, stride, alpha, beta, first, cutoff, monotone, c, sign
            )  # fmt: skip
        else:
            n[:P], p[:N] = n_w[:P], p_w[:N]
        if above_d.shape[0] > 0:
            for i in range(P):
                above_d[row, item_a[i]] = n[i]
            for j in range(N):
                above_d[row, item_b[j]] = p[j]
        if gradient.shape[0] > 0:
            for k in range(width):
                gradient[row, k] = 0.0
            unit = -2.0 * sign / max(step * P * N, least_unit) if P > 0 and N > 0 else 0.0
            for i in range(P):
                slope = unit * (n[i] - n_w[i]) + 0.0  # and not -0.0
                gradient[row, item_a[i]] = min(max(slope, -largest), largest)
            for j in range(N):
                slope = unit * (p[j] - p_w[j]) + 0.0
                gradient[row, item_b[j]] = min(max(slope, -largest), largest)
    return missing
