"""Relaxed comparisons of relevant with irrelevant scores, compiled: the hot loops of UniLoss for its usual anchors.

Each list has relevant scores ``a_i`` and irrelevant scores ``b_j``, any number of each, compared pair by pair,
``u = sigmoid(a_i - b_j)``. The anchors:

    good    every pair right, but one
    nearby  the present pairs, after one relevant score, one irrelevant score, or one of each have moved
    bad     the pairs of random scores

Squared distances from u are sums over the pairs: `relax` has those of the present and of the best pairs, `compare`
those of random scores, and `flip` what good and nearby anchors change. `carry_back` and `flip_back` carry weights of
the squared distances back to the scores. None of them stores bits: a bit is a comparison away.

Lists lie one after another: list ``t`` has the relevant scores ``a[ups[t]:ups[t + 1]]``, the irrelevant scores
``b[downs[t]:downs[t + 1]]``, and the pairs ``u[starts[t]:starts[t + 1]]``, relevant score by relevant score. An inner
loop runs over a slice from its beginning, because only then numba knows that no index is negative, and vectorises it.
"""

from __future__ import annotations

from directloss.kernels.compiled import kernel, reordering


@reordering
def relax(a, b, ups, downs, starts, inverse, powers, u, sums, lost):
    """Fill u with ``1 / (1 + inverse_i * powers_j)``, and ``lost`` with how many rivals each a_i does not beat.

    Adds to ``sums`` the squared distances of u from 0, from 1 and from the present bits, and how many pairs are equal.

    Shapes: a, inverse and lost (p,), b and powers (n,), u (pairs,), sums (4,).
    """
    for t in range(len(ups) - 1):
        rivals, factors = b[downs[t] : downs[t + 1]], powers[downs[t] : downs[t + 1]]
        for i in range(ups[t], ups[t + 1]):
            first, mine, factor = starts[t] + (i - ups[t]) * len(rivals), a[i], inverse[i]
            row = u[first : first + len(rivals)]
            square, to_best, to_now, below, ties = 0.0, 0.0, 0.0, 0, 0
            for j in range(len(rivals)):
                s = 1.0 / (1.0 + factor * factors[j])
                rest = 1.0 - s
                least = s if s < rest else rest
                row[j] = s
                square += s * s
                to_best += rest * rest
                to_now += least * least
                below += mine <= rivals[j]
                ties += mine == rivals[j]
            sums[0] += square
            sums[1] += to_best
            sums[2] += to_now
            sums[3] += ties
            lost[i] = below


@reordering
def compare(random_a, random_b, ups, downs, starts, u, units, change, lost):
    """For pairs of random scores, what they add to the squared distance of u from 0, and how many each a_i loses.

    Shapes: random_a and lost (k, p), random_b (k, n), u (pairs,), change (k,); units are 0 and 1 in the type of u.
    """
    none, one = units[0], units[1]
    for t in range(len(ups) - 1):
        for k in range(len(change)):
            rivals = random_b[k, downs[t] : downs[t + 1]]
            for i in range(ups[t], ups[t + 1]):
                first, mine, beaten, total = starts[t] + (i - ups[t]) * len(rivals), random_a[k, i], none, none
                row = u[first : first + len(rivals)]
                for j in range(len(rivals)):
                    won = mine > rivals[j]
                    beaten += one if won else none
                    total += row[j] if won else none
                change[k] += beaten - 2.0 * total
                lost[k, i] = len(rivals) - beaten


@kernel
def flip(a, b, ups, downs, starts, good, moves, moved, beyond, u, flips, squared, lost):
    """The pairs in which good anchors differ from the best pairs, and nearby ones from the present: one pair, and those
    whose order changes when scores move. If ``beyond`` is not 0, the two scores of a move meet in the middle and go
    this far beyond.

    Adds them to ``squared`` and ``lost`` of the anchors, and writes number of the anchor, pair, a_i, b_j and the new
    bit into ``flips``. Returns how many there are.

    Shapes: moves (k, 3) with the list, the relevant and the irrelevant score that move (-1 for none), ``good`` anchors
    first; moved (k, 2) where these two go; squared (k,), lost (k, p); flips (5, any number that is large enough).
    """
    count = 0
    for m in range(len(moves)):
        t, i, j = moves[m, 0], moves[m, 1], moves[m, 2]
        n = downs[t + 1] - downs[t]
        if beyond > 0:
            step = a[i] - b[j]
            step += beyond if step > 0 else -beyond
            moved[m, 0], moved[m, 1] = a[i] - step / 2, b[j] + step / 2
        begin, end = 0, n + ups[t + 1] - ups[t]
        if m < good:
            begin, end = j - downs[t], j - downs[t] + 1
        for other in range(begin, end):  # all pairs of a_i, then all others of b_j
            high = i if other < n else ups[t] + other - n
            low = downs[t] + other if other < n else j
            if high < 0 or low < 0 or (other >= n and high == i):
                continue
            after = (moved[m, 0] if high == i else a[high]) > (moved[m, 1] if low == j else b[low])
            before = a[high] > b[low]
            if m < good:
                after, before = False, True
            if after != before:
                pair = starts[t] + (high - ups[t]) * n + low - downs[t]
                flips[0, count], flips[1, count], flips[2, count] = m, pair, high
                flips[3, count], flips[4, count] = low, after
                squared[m] += 1.0 - 2.0 * u[pair] if after else 2.0 * u[pair] - 1.0
                lost[m, high] += 1 if before else -1
                count += 1
    return count


@kernel
def flip_back(flips, count, weight, u, grad_a, grad_b):
    """Add the gradient of what `flip` adds to the squared distances, which have these weights."""
    for place in range(count):
        s, push = u[flips[1, place]], 2.0 * weight[flips[0, place]]
        slope = (-push if flips[4, place] else push) * s * (1.0 - s)
        grad_a[flips[2, place]] += slope
        grad_b[flips[3, place]] -= slope


@reordering
def carry_back(a, b, ups, downs, starts, random_a, random_b, u, shares, weights, mixed, grad_a, grad_b):
    """Add to ``grad_a`` and ``grad_b`` the gradient of the squared distances, but for the pairs that `flip` found.

    Shapes: shares (4,) with 0 and the weights of all, of the good and of the nearby anchors, weights (k,) of the bad
    ones, both in the type of u; mixed (n,) is scratch in this type; the others as above.
    """
    none, whole, good, nearby = shares[0], shares[1], shares[2], shares[3]
    for t in range(len(ups) - 1):
        rivals, slopes = b[downs[t] : downs[t + 1]], grad_b[downs[t] : downs[t + 1]]
        for i in range(ups[t], ups[t + 1]):
            first, mine, total = starts[t] + (i - ups[t]) * len(rivals), a[i], 0.0
            row = u[first : first + len(rivals)]
            for j in range(len(rivals)):
                mixed[j] = good + (nearby if mine > rivals[j] else none)
            for k in range(len(weights)):
                weight, high, his = weights[k], random_a[k, i], random_b[k, downs[t] : downs[t + 1]]
                for j in range(len(rivals)):
                    mixed[j] += weight if high > his[j] else none
            for j in range(len(rivals)):
                s = row[j]
                slope = 2.0 * (whole * s - mixed[j]) * s * (1.0 - s)
                total += slope
                slopes[j] -= slope
            grad_a[i] += total
