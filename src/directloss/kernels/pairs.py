"""Relaxed comparisons of relevant with irrelevant scores, compiled: the hot loops of UniLoss for its usual anchors.

Each list has relevant scores ``a_i`` and irrelevant scores ``b_j``, any number of each, compared pair by pair,
``u = sigmoid(a_i - b_j)``. The anchors:

    good    every pair right, but one
    nearby  the present pairs, after one relevant score, one irrelevant score, or one of each have moved
    bad     the pairs of random scores

The first loop returns squared distances from u and the metric of each anchor, both from what the pairs show; the second
carries weights of the squared distances back to the scores. Neither stores bits: a bit is a comparison away.

Lists lie one after another: list ``t`` has the relevant scores ``a[ups[t]:ups[t + 1]]``, the irrelevant scores
``b[downs[t]:downs[t + 1]]``, and the pairs ``u[starts[t]:starts[t + 1]]``, relevant score by relevant score.
"""

from __future__ import annotations

import numpy as np

from directloss.kernels.compiled import helper, kernel, reordering

FAR = 350.0
"""A distance of scores whose exponential, squared, is still a number."""
AVERAGE_PRECISION, HIT, ELSEWHERE = 0, 1, 2
"""How lost comparisons make a list's value: its average precision; whether some relevant score loses none; or it is
measured elsewhere, and zero here. A tie counts as lost, which is not what the metrics make of it.
"""


@helper
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
    total, place, n = 0.0, 0, 0
    while place < p:
        for _ in range(counts[n]):
            place += 1
            total += place / (place + n)
        counts[n] = 0
        n += 1
    return total / p


@reordering
def _relax_row(mine, inverse, rivals, powers, row):
    """Fill a row with ``sigmoid(mine - rivals)``. Returns the sums of its squares, of those of its distance from 1 and
    from the present bits, and how many rivals are not beaten, and equal.
    """
    square, to_best, to_now, below, ties = 0.0, 0.0, 0.0, 0, 0
    for j in range(len(rivals)):
        s = 1.0 / (1.0 + inverse * powers[j])
        rest = 1.0 - s
        e = s if s < rest else rest
        row[j] = s
        square += s * s
        to_best += rest * rest
        to_now += e * e
        below += mine <= rivals[j]
        ties += mine == rivals[j]
    return square, to_best, to_now, below, ties


@reordering
def _compared(mine, his, row):
    """How many of his are beaten, and the sum of the row over them."""
    beaten, total = 0, 0.0
    for j in range(len(his)):
        won = mine > his[j]
        beaten += won
        total += row[j] if won else 0.0
    return beaten, total


@helper
def _powers(scores, centre, powers):
    """``exp(scores - centre)``, or the largest power that is a number."""
    for j in range(len(scores)):
        powers[j] = np.exp(min(scores[j] - centre, 2 * FAR))


@helper
def _widest(bounds):
    widest = 0
    for t in range(len(bounds) - 1):
        widest = max(widest, bounds[t + 1] - bounds[t])
    return widest


@helper
def _place(pair, ups, downs, starts):
    """List, relevant score and irrelevant score of a pair."""
    t = np.searchsorted(starts, pair, side="right") - 1
    n = downs[t + 1] - downs[t]
    return t, ups[t] + (pair - starts[t]) // n, downs[t] + (pair - starts[t]) % n


@kernel
def relax(a, b, ups, downs, starts, good, moves, moved, random_a, random_b, rule, u):
    """Squared distances and values of the anchors, the present value, and the number of ties among the present pairs.

    Fills ``u`` with the relaxed pairs. Where there are ties, the values have to be measured elsewhere.

    Shapes: a (p,), b (n,), ups, downs and starts (lists + 1,), good (k,) indices of pairs, moves (k, 3) with the list,
    the relevant and the irrelevant score that move (-1 for none), moved (k, 2) where these two go, random_a (k, p),
    random_b (k, n), u (pairs,).
    """
    lists, bad = len(ups) - 1, len(random_a)
    most, widest = _widest(ups), _widest(downs)
    lost = np.zeros(len(a), dtype=np.int64)
    values_now = np.zeros(lists)
    square, to_best, to_now = 0.0, 0.0, 0.0
    ties = 0
    ones = np.zeros(bad)
    values_bad = np.zeros(bad)
    lost_bad = np.zeros((bad, most), dtype=np.int64)
    counts, powers = np.zeros(widest + 1, dtype=np.int64), np.empty(widest)
    for t in range(lists):
        rivals = b[downs[t] : downs[t + 1]]
        p, n = ups[t + 1] - ups[t], len(rivals)
        relevant = a[ups[t] : ups[t + 1]]
        low, high = min(relevant.min(), rivals.min()), max(relevant.max(), rivals.max())
        # Where the scores are not too far apart, exp(b - a) is a product of exponentials of single scores.
        near, centre = high - low < 2 * FAR, 0.5 * low + 0.5 * high
        if near:
            _powers(rivals, centre, powers)
        for i in range(p):
            mine = relevant[i]
            row = u[starts[t] + i * n : starts[t] + (i + 1) * n]
            if not near:
                centre = mine
                _powers(rivals, centre, powers)
            sums = _relax_row(mine, np.exp(centre - mine), rivals, powers, row)
            square, to_best, to_now = square + sums[0], to_best + sums[1], to_now + sums[2]
            lost[ups[t] + i] = sums[3]
            ties += sums[4]
            for k in range(bad):
                beaten, total = _compared(random_a[k, ups[t] + i], random_b[k, downs[t] : downs[t + 1]], row)
                ones[k] += beaten - 2.0 * total
                lost_bad[k, i] = n - beaten
        values_now[t] = _value(lost[ups[t] : ups[t + 1]], n, rule, counts)
        for k in range(bad):
            values_bad[k] += _value(lost_bad[k, :p], n, rule, counts)
    whole_now = values_now.sum()
    squared = np.empty(len(good) + len(moves) + bad)
    values = np.empty(len(squared))
    scratch = np.empty(most, dtype=np.int64)
    for k in range(len(good)):
        t, _, _ = _place(good[k], ups, downs, starts)
        s = u[good[k]]
        squared[k] = to_best + s * s - (1.0 - s) * (1.0 - s)
        one_lost = scratch[: ups[t + 1] - ups[t]]
        one_lost[:] = 0
        one_lost[0] = 1
        values[k] = (lists - 1 + _value(one_lost, downs[t + 1] - downs[t], rule, counts)) / lists
    for m in range(len(moves)):
        t = moves[m, 0]
        lost_now = scratch[: ups[t + 1] - ups[t]]
        for place in range(len(lost_now)):  # which compiles faster than a slice
            lost_now[place] = lost[ups[t] + place]
        change = _move(a, b, ups, downs, starts, moves[m], moved[m], u, lost_now)
        squared[len(good) + m] = to_now + change
        value = _value(lost_now, downs[t + 1] - downs[t], rule, counts)
        values[len(good) + m] = (whole_now - values_now[t] + value) / lists
    for m in range(bad):
        k = len(good) + len(moves) + m
        squared[k] = square + ones[m]
        values[k] = values_bad[m] / lists
    return np.maximum(squared, 0.0), values, whole_now / lists, ties


@helper
def _move(a, b, ups, downs, starts, which, to, u, lost):
    """What moving scores adds to the squared distance from the present pairs; brings ``lost`` up to date."""
    t, i, j = which
    n = downs[t + 1] - downs[t]
    change = 0.0
    if i >= 0:
        first = starts[t] + (i - ups[t]) * n
        for other in range(downs[t], downs[t + 1]):
            rival = to[1] if other == j else b[other]
            before, after = a[i] > b[other], to[0] > rival
            if before != after:
                change += _flip(u[first + other - downs[t]], after)
                lost[i - ups[t]] += 1 if before else -1
    if j >= 0:
        for other in range(ups[t], ups[t + 1]):
            if other != i:
                before, after = a[other] > b[j], a[other] > to[1]
                if before != after:
                    change += _flip(u[starts[t] + (other - ups[t]) * n + j - downs[t]], after)
                    lost[other - ups[t]] += 1 if before else -1
    return change


@helper
def _flip(s, after):
    """What a binary that becomes ``after`` adds to the squared distance."""
    return 1.0 - 2.0 * s if after else 2.0 * s - 1.0


@kernel
def carry_back(
    a, b, ups, downs, starts, good, moves, moved, random_a, random_b, u, weight, grad_a, grad_b
):  # fmt: skip
    """Add to ``grad_a`` and ``grad_b`` the gradient of ``sum_k weight_k * squared_k``; arguments as `relax`."""
    lists, bad = len(ups) - 1, len(random_a)
    first_bad = len(good) + len(moves)
    for_good, for_nearby, whole = weight[: len(good)].sum(), weight[len(good) : first_bad].sum(), weight.sum()
    mixed = np.empty(_widest(downs))
    for t in range(lists):
        rivals = b[downs[t] : downs[t + 1]]
        n = len(rivals)
        for i in range(ups[t], ups[t + 1]):
            mine = a[i]
            row = u[starts[t] + (i - ups[t]) * n : starts[t] + (i - ups[t] + 1) * n]
            for j in range(n):
                mixed[j] = for_good + (for_nearby if mine > rivals[j] else 0.0)
            for k in range(bad):
                w, high, his = weight[first_bad + k], random_a[k, i], random_b[k, downs[t] : downs[t + 1]]
                for j in range(n):
                    mixed[j] += w if high > his[j] else 0.0
            total = 0.0
            for j in range(n):
                s = row[j]
                slope = 2.0 * (whole * s - mixed[j]) * s * (1.0 - s)
                total += slope
                grad_b[downs[t] + j] -= slope
            grad_a[i] += total
    for k in range(len(good)):
        _, i, j = _place(good[k], ups, downs, starts)
        _give(good[k], i, j, 2.0 * weight[k], u, grad_a, grad_b)
    for m in range(len(moves)):
        push = 2.0 * weight[len(good) + m]
        _move_back(a, b, ups, downs, starts, moves[m], moved[m], push, u, grad_a, grad_b)


@helper
def _move_back(a, b, ups, downs, starts, which, to, push, u, grad_a, grad_b):
    """The gradient of what `_move` adds."""
    t, i, j = which
    n = downs[t + 1] - downs[t]
    if i >= 0:
        first = starts[t] + (i - ups[t]) * n
        for other in range(downs[t], downs[t + 1]):
            rival = to[1] if other == j else b[other]
            before, after = a[i] > b[other], to[0] > rival
            if before != after:
                _give(first + other - downs[t], i, other, -push if after else push, u, grad_a, grad_b)
    if j >= 0:
        for other in range(ups[t], ups[t + 1]):
            if other != i:
                before, after = a[other] > b[j], a[other] > to[1]
                if before != after:
                    pair = starts[t] + (other - ups[t]) * n + j - downs[t]
                    _give(pair, other, j, -push if after else push, u, grad_a, grad_b)


@helper
def _give(pair, i, j, push, u, grad_a, grad_b):
    """One pair's share of the gradient, through the sigmoid."""
    slope = push * u[pair] * (1.0 - u[pair])
    grad_a[i] += slope
    grad_b[j] -= slope
