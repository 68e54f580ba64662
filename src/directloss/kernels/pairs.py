"""Relaxed comparisons of relevant with irrelevant scores, compiled: the hot loops of UniLoss for its usual anchors.

Lists of ``p`` relevant and ``n`` irrelevant scores are compared pair by pair, ``u = sigmoid(a_i - b_j)``. The anchors:

    good    every pair right, but one
    nearby  the present pairs, after the scores of one pair have met and passed each other
    bad     the pairs of random scores

The first loop returns squared distances from u and the metric of each anchor, both from what the pairs show; the second
carries weights of the squared distances back to the scores. Neither stores bits: a bit is a comparison away.
"""

from __future__ import annotations

import numpy as np

from directloss.kernels.compiled import kernel, reordering

AVERAGE_PRECISION, HIT, ELSEWHERE = 0, 1, 2
"""How lost comparisons make a list's value: its average precision; whether some relevant score loses none; or it is
measured elsewhere, and zero here.
"""


@kernel
def _value(lost, width, rule, counts):
    """The value of one list; ``counts`` is scratch of ``width + 1`` zeros, and is left so."""
    p = len(lost)
    if rule == ELSEWHERE:
        return 0.0
    if rule == HIT:
        for i in range(p):
            if lost[i] == 0:
                return 1.0
        return 0.0
    for i in range(p):
        counts[lost[i]] += 1
    total, place = 0.0, 0
    for n in range(width + 1):
        for _ in range(counts[n]):
            place += 1
            total += place / (place + n)
        counts[n] = 0
    return total / p


@kernel
def _met(up, down, beyond):
    """Where two scores stand after they have met in the middle and gone a little beyond."""
    step = up - down
    step += beyond if step > 0 else -beyond
    return up - step / 2, down + step / 2


@reordering
def _gain(mine, his, row):
    """What the ones of a random row add to its squared distance."""
    total = 0.0
    for j in range(len(his)):
        total += 1.0 - 2.0 * row[j] if mine > his[j] else 0.0
    return total


@reordering
def _beaten(mine, his):
    total = 0
    for j in range(len(his)):
        total += mine > his[j]
    return total


@kernel
def relax(a, b, good, nearby, random_a, random_b, beyond, rule, u):
    """Squared distances and values of the anchors; fills ``u`` with the relaxed pairs.

    Shapes: a (lists, p), b (lists, n), good (k,) and nearby (k,) indices of pairs, random_a (k, lists, p),
    random_b (k, lists, n), u (lists, p, n).
    """
    lists, p = a.shape
    n = b.shape[1]
    bad = len(random_a)
    lost = np.zeros((lists, p), dtype=np.int64)
    values_now = np.zeros(lists)
    square, to_best, to_now = 0.0, 0.0, 0.0
    ones = np.zeros(bad)
    values_bad = np.zeros(bad)
    lost_bad = np.zeros((bad, p), dtype=np.int64)
    counts = np.zeros(n + 1, dtype=np.int64)
    for t in range(lists):
        for i in range(p):
            row = u[t, i]
            for j in range(n):
                c = a[t, i] - b[t, j]
                s = 1.0 / (1.0 + np.exp(-c))
                row[j] = s
                square += s * s
                to_best += (1.0 - s) * (1.0 - s)
                e = min(s, 1.0 - s)
                to_now += e * e
                lost[t, i] += c <= 0
            for k in range(bad):
                mine, his = random_a[k, t, i], random_b[k, t]
                ones[k] += _gain(mine, his, row)
                lost_bad[k, i] = n - _beaten(mine, his)
        values_now[t] = _value(lost[t], n, rule, counts)
        for k in range(bad):
            values_bad[k] += _value(lost_bad[k], n, rule, counts)
    whole_now = values_now.sum()
    squared = np.empty(len(good) + len(nearby) + bad)
    values = np.empty(len(squared))
    one_lost = np.zeros(p, dtype=np.int64)
    one_lost[0] = 1
    one_wrong = (lists - 1 + _value(one_lost, n, rule, counts)) / lists
    for k in range(len(good)):
        pair = good[k]
        s = u[pair // (p * n), pair // n % p, pair % n]
        squared[k] = to_best + s * s - (1.0 - s) * (1.0 - s)
        values[k] = one_wrong
    scratch = np.empty(p, dtype=np.int64)
    for m in range(len(nearby)):
        k = len(good) + m
        t, i, j = nearby[m] // (p * n), nearby[m] // n % p, nearby[m] % n
        up, down = _met(a[t, i], b[t, j], beyond)
        scratch[:] = lost[t]
        change = 0.0
        for other in range(n):
            rival = down if other == j else b[t, other]
            before, after = a[t, i] > b[t, other], up > rival
            if before != after:
                change += _flip(u[t, i, other], after)
                scratch[i] += 1 if before else -1
        for other in range(p):
            if other != i:
                before, after = a[t, other] > b[t, j], a[t, other] > down
                if before != after:
                    change += _flip(u[t, other, j], after)
                    scratch[other] += 1 if before else -1
        squared[k] = to_now + change
        values[k] = (whole_now - values_now[t] + _value(scratch, n, rule, counts)) / lists
    for m in range(bad):
        k = len(good) + len(nearby) + m
        squared[k] = square + ones[m]
        values[k] = values_bad[m] / lists
    return np.maximum(squared, 0.0), values, whole_now / lists


@kernel
def _flip(s, after):
    """What a binary that becomes ``after`` adds to the squared distance."""
    return 1.0 - 2.0 * s if after else 2.0 * s - 1.0


@kernel
def carry_back(a, b, good, nearby, random_a, random_b, beyond, u, weight, grad_a, grad_b):
    """Add to ``grad_a`` and ``grad_b`` the gradient of ``sum_k weight_k * squared_k``; arguments as `relax`."""
    lists, p = a.shape
    n = b.shape[1]
    bad = len(random_a)
    for_good, for_nearby, whole = 0.0, 0.0, 0.0
    for k in range(len(good)):
        for_good += weight[k]
    for m in range(len(nearby)):
        for_nearby += weight[len(good) + m]
    first_bad = len(good) + len(nearby)
    for k in range(len(weight)):
        whole += weight[k]
    mixed = np.empty(n)
    for t in range(lists):
        for i in range(p):
            row = u[t, i]
            mine = a[t, i]
            for j in range(n):
                mixed[j] = for_good + (for_nearby if mine > b[t, j] else 0.0)
            for k in range(bad):
                w, high, his = weight[first_bad + k], random_a[k, t, i], random_b[k, t]
                for j in range(n):
                    mixed[j] += w if high > his[j] else 0.0
            total = 0.0
            for j in range(n):
                s = row[j]
                slope = 2.0 * (whole * s - mixed[j]) * s * (1.0 - s)
                total += slope
                grad_b[t, j] -= slope
            grad_a[t, i] += total
    for k in range(len(good)):
        pair = good[k]
        _give(pair // (p * n), pair // n % p, pair % n, 2.0 * weight[k], u, grad_a, grad_b)
    for m in range(len(nearby)):
        t, i, j = nearby[m] // (p * n), nearby[m] // n % p, nearby[m] % n
        up, down = _met(a[t, i], b[t, j], beyond)
        push = 2.0 * weight[len(good) + m]
        for other in range(n):
            rival = down if other == j else b[t, other]
            before, after = a[t, i] > b[t, other], up > rival
            if before != after:
                _give(t, i, other, -push if after else push, u, grad_a, grad_b)
        for other in range(p):
            if other != i:
                before, after = a[t, other] > b[t, j], a[t, other] > down
                if before != after:
                    _give(t, other, j, -push if after else push, u, grad_a, grad_b)


@kernel
def _give(t, i, j, push, u, grad_a, grad_b):
    """One pair's share of the gradient, through the sigmoid."""
    s = u[t, i, j]
    slope = push * s * (1.0 - s)
    grad_a[t, i] += slope
    grad_b[t, j] -= slope
