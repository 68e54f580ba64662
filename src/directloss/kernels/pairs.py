"""Relaxed comparisons of relevant with irrelevant scores, compiled: a step of UniLoss with its usual anchors.

Each list has relevant scores ``a_i`` and irrelevant scores ``b_j``, any number of each, compared pair by pair. The
comparisons are relaxed, ``u_ij = sigmoid(a_i - b_j)``, and the metric is interpolated, Eq. (10) of the paper, between
its values ``v_k`` at anchors, which lie at the distances ``d_k`` from u:

    value = sum_k v_k / d_k  /  sum_k 1 / d_k

The anchors are configurations of bits, one for each pair:

    good    every pair right, but one
    nearby  the present pairs, after one relevant score, one irrelevant score, or one of each have moved
    bad     the pairs of random scores

A step goes through one small kernel after the other:

    relax         u, and its squared distances from the best and from the present pairs
    compare       the squared distances from the pairs of random scores
    flip          what good and nearby anchors change, pair by pair
    weigh         the interpolated value, and its derivatives by the squared distances
    carry_back    the gradient by the scores

None of them stores bits: a bit is a comparison away. The first three also count how many pairs each relevant score
loses in each anchor, of which the metric is made.

The i-th relevant score has the rivals ``b[lows[i]:highs[i]]`` and the pairs ``u[firsts[i]:]``, as many. An inner loop
runs over a slice from its beginning, because only then numba knows that no index is negative, and vectorises it.
"""

from __future__ import annotations

from directloss.kernels.compiled import kernel, reordering


@reordering
def relax(a, b, lows, highs, firsts, inverse, powers, u, sums, lost):
    """Fill u with ``1 / (1 + inverse_i * powers_j)``, and ``lost`` with how many rivals each a_i does not beat.

    Adds to ``sums`` the squared distances of u from 0, from 1 and from the present bits, and how many pairs are equal.

    Shapes: a, inverse and lost (p,), b and powers (n,), u (pairs,), sums (4,).
    """
    for i in range(len(a)):
        mine, factor, rivals, factors = a[i], inverse[i], b[lows[i] : highs[i]], powers[lows[i] : highs[i]]
        row = u[firsts[i] : firsts[i] + len(rivals)]
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
def compare(noise, relevant, irrelevant, lows, highs, firsts, u, units, rivals, squared, lost):
    """For pairs of random scores, what they add to the squared distance of u from 0, and how many each a_i loses.

    Shapes: noise (k, m), rivals (k, n) for those of the irrelevant scores, u (pairs,), squared (k,), lost (k, p); units
    are 0 and 1 in the type of u.
    """
    none, one = units[0], units[1]
    for k in range(len(squared)):
        for j in range(len(irrelevant)):
            rivals[k, j] = noise[k, irrelevant[j]]
        for i in range(len(relevant)):
            mine, his, beaten, total = noise[k, relevant[i]], rivals[k, lows[i] : highs[i]], none, none
            row = u[firsts[i] : firsts[i] + len(his)]
            for j in range(len(his)):
                won = mine > his[j]
                beaten += one if won else none
                total += row[j] if won else none
            squared[k] += beaten - 2.0 * total
            lost[k, i] = len(his) - beaten


@kernel
def flip(
    a, b, lows, highs, firsts, good, ups, downs, to_a, to_b, beyond, u, who, pairs, high, low, change, squared, lost
):
    """The pairs in which good anchors differ from the best pairs, and nearby ones from the present: one pair, and those
    whose order changes when a_i and b_j move, ``i = ups[m]`` and ``j = downs[m]``, -1 for none. They move to ``to_a``
    and ``to_b``; if ``beyond`` is not 0, they meet in the middle and go this far beyond.

    Adds them to ``squared`` and ``lost`` of the anchors, and lists them: who has flipped which pair, its two scores,
    and the change of the bit. Returns how many there are.

    Shapes: ups, downs, to_a, to_b (k,), ``good`` anchors first; squared (k,), lost (k, p); the list (any number that is
    large enough,).
    """
    count = 0
    for m in range(len(ups)):
        i, j, last = ups[m], downs[m], count
        if beyond > 0:
            step = a[i] - b[j]
            step += beyond if step > 0 else -beyond
            to_a[m], to_b[m] = a[i] - step / 2, b[j] + step / 2
        if m < good:
            high[count], low[count] = i, j
            count += 1
        else:
            if i >= 0:
                for other in range(lows[i], highs[i]):
                    if (a[i] > b[other]) != (to_a[m] > (to_b[m] if other == j else b[other])):
                        high[count], low[count] = i, other
                        count += 1
            if j >= 0:
                for other in range(len(a)):
                    if lows[other] <= j < highs[other] and other != i and (a[other] > b[j]) != (a[other] > to_b[m]):
                        high[count], low[count] = other, j
                        count += 1
        for place in range(last, count):
            i, j = high[place], low[place]
            who[place], pairs[place] = m, firsts[i] + j - lows[i]
            change[place] = -1.0 if m < good or a[i] > b[j] else 1.0
            squared[m] += change[place] * (1.0 - 2.0 * u[pairs[place]])
            lost[m, i] -= change[place]
    return count


@kernel
def average_precision(lost, values):
    """The average precision of one list in each anchor, from the lost pairs, sorted: place k has precision
    ``k / (k + lost)``.

    Shapes: lost (k, p), values (k,), zeros at first.
    """
    for k in range(len(values)):
        for i in range(lost.shape[1]):
            values[k] += (i + 1.0) / (i + 1.0 + lost[k, i]) / lost.shape[1]


@kernel
def weigh(squared, values, power, good, few, weights, shares):
    """The interpolated value, and its derivatives by the squared distances, the ``weights``; the first of ``shares`` is
    0, and added to the others are the weights of all, of the good and of the nearby anchors, of which ``few`` are.

    Shapes: squared, values and weights (k,), shares (4,).
    """
    nearest, whole, total = squared[0], 0.0, 0.0
    for k in range(len(squared)):
        nearest = squared[k] if squared[k] < nearest else nearest
    for k in range(len(squared)):
        near = (nearest / squared[k]) ** (power / 2)  # relative to the nearest, so that no power underflows
        whole, total = whole + near, total + near * values[k]
        weights[k] = near / squared[k]
    for k in range(len(squared)):
        weights[k] *= (total / whole - values[k]) * (power / 2) / whole
        shares[1] += weights[k]
        if k < few:
            shares[2 if k < good else 3] += weights[k]
    return total / whole


@reordering
def carry_back(
    a, b, relevant, irrelevant, lows, highs, firsts, noise, rivals, u, shares, weights, mixed, flipped, who, pairs,
    high, low, change, scale, grads, gradient
):  # fmt: skip
    """Fill ``gradient`` with ``scale`` times that of the squared distances, which have these weights:

        d |u - v|^2 = 2 (u - v) u (1 - u) d(a - b)

    Shapes: mixed and grads (n,), the latter and gradient (m,) zeros at first, weights and shares as in `weigh`; mixed,
    weights and shares have the type of u; the others as above.
    """
    none, whole, good, nearby, few = shares[0], shares[1], shares[2], shares[3], len(weights) - len(rivals)
    for i in range(len(a)):
        mine, lower, slopes, total = a[i], b[lows[i] : highs[i]], grads[lows[i] : highs[i]], 0.0
        row = u[firsts[i] : firsts[i] + len(lower)]
        for j in range(len(lower)):
            mixed[j] = good + (nearby if mine > lower[j] else none)
        for k in range(len(rivals)):
            weight, his, best = weights[few + k], rivals[k, lows[i] : highs[i]], noise[k, relevant[i]]
            for j in range(len(lower)):
                mixed[j] += weight if best > his[j] else none
        for j in range(len(lower)):
            s = row[j]
            slope = scale * 2.0 * (whole * s - mixed[j]) * s * (1.0 - s)
            total += slope
            slopes[j] -= slope
        gradient[relevant[i]] = total
    for j in range(len(b)):
        gradient[irrelevant[j]] = grads[j]
    for place in range(flipped):
        s = u[pairs[place]]
        slope = scale * 2.0 * change[place] * weights[who[place]] * s * (1.0 - s)
        gradient[relevant[high[place]]] -= slope
        gradient[irrelevant[low[place]]] += slope
