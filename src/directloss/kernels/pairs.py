"""Relaxed comparisons of relevant with irrelevant scores, compiled: a step of UniLoss with its default anchors.

Each list has relevant scores ``a_i`` and irrelevant scores ``b_j``, any number of each, compared pair by pair. The
comparisons are relaxed, ``u_ij = sigmoid(a_i - b_j)``, and the metric is interpolated between its values ``v_k`` at
anchors, which lie at distances ``d_k`` from u. An anchor is a configuration of bits, one per pair:

    good      every pair right except one
    nearby    the current pairs, after one relevant score, one irrelevant score, or one of each has moved
    bad       the pairs of random scores, then the opposite of those pairs (the last may be left out)

A step calls small kernels in this order:

    relax         the scores of both sides, u, and its squared distances from the best and from the current pairs
    compare       the squared distances from all anchors
    weigh         the interpolated value and its derivatives with respect to the squared distances
    carry_back    the gradient with respect to the scores
    flips, differ for interpolations that need the distances among anchors

None of them stores bits: a bit is a comparison away. They also count how many pairs each relevant score loses in each
anchor, from which the metric follows.

The i-th relevant score has ``widths[i]`` rivals, from ``b[lows[i]]`` on, and as many pairs, from ``u[firsts[i]]`` on.
Anchor m moves a_i to ``to_a[m]`` and b_j to ``to_b[m]``, where ``i = ups[m]`` and ``j = downs[m]``; an index beyond all
others means none. The first ``good`` of these are the wrong pairs of the good anchors.

Numba vectorises an inner loop only if no index can be negative, so all indices are unsigned; and best if all numbers
have the type of u, so ``units`` holds 0 and 1 in that type.
"""

from __future__ import annotations

from math import exp

from directloss.kernels.compiled import kernel, reordering


@reordering
def relax(
    scores, relevant, irrelevant, lows, widths, firsts, far, a, b, inverse, powers, facts, u, units, sums, lost
):  # fmt: skip
    """Fill a and b, u, and ``lost`` with how many rivals each a_i does not beat.

    The ``facts`` are the lowest score, the highest, and the variance, which is NaN if any score is. Adds to ``sums``
    the squared distances of u from 0, from 1 and from the current bits, and the number of ties. Exponentials of
    differences are products of two, so u is not filled if scores are ``far`` apart or farther.

    Shapes: scores (m,), relevant, a, inverse and lost (p,), irrelevant, b and powers (n,), facts (3,), u (pairs,), sums
    (4,).
    """
    low, high, base, total, square = scores[0], scores[0], 1.0 * scores[0], 0.0, 0.0
    for k in range(len(scores)):
        apart = scores[k] - base
        low = scores[k] if scores[k] < low else low
        high = scores[k] if scores[k] > high else high
        total += apart
        square += apart * apart
    mean = total / len(scores)
    facts[0], facts[1], facts[2] = low, high, square / len(scores) - mean * mean
    centre = 0.5 * low + 0.5 * high
    for i in range(len(a)):
        a[i] = scores[relevant[i]]
        inverse[i] = exp(centre - a[i])
    for j in range(len(b)):
        b[j] = scores[irrelevant[j]]
        powers[j] = exp(b[j] - centre)
    if high - low >= far:
        return
    none, one = units[0], units[1]
    for i in range(len(a)):
        mine, factor, low, first = a[i], inverse[i], lows[i], firsts[i]
        from_zero, from_best, from_now, below, ties = none, none, none, none, none
        for j in range(widths[i]):
            u[first + j] = factor * powers[low + j]  # may be infinite in this type
            s = one / (one + u[first + j])
            rest = one - s
            least = s if s < rest else rest
            u[first + j] = s
            from_zero += s * s
            from_best += rest * rest
            from_now += least * least
            below += one if mine <= b[low + j] else none
            ties += one if mine == b[low + j] else none
        sums[0] += from_zero
        sums[1] += from_best
        sums[2] += from_now
        sums[3] += ties
        lost[i] = below


@reordering
def compare(
    a, b, relevant, irrelevant, lows, widths, firsts, good, ups, downs, to_a, to_b, beyond, drawn, powers, tops, rivals,
    u, units, sums, squared, lost
):  # fmt: skip
    """Fill ``squared`` with the squared distances of u from the anchors, ``lost`` with how many pairs each a_i loses.

    If ``beyond`` is not 0, a_i and b_j of a nearby anchor move to their middle and this far past it.

    Random scores are ``drawn`` times the powers, modulo 2^32; they are stored in ``tops`` and ``rivals``.

    Shapes: ups, downs, to_a, to_b (few,), for good and nearby anchors; drawn (m,), powers (k,), tops (k, p), rivals
    (k, n); squared (few + 2 k,), or one less; lost (one more, p), initially zeros except for the last row, which is
    that of the current pairs; sums as in `relax`.
    """
    none, one, few = units[0], units[1], len(ups)
    for m in range(good):
        squared[m] = sums[1] + 2.0 * u[firsts[ups[m]] + downs[m] - lows[ups[m]]] - 1.0
        lost[m, ups[m]] = 1
    for m in range(good, few):
        if beyond > 0:
            step = a[ups[m]] - b[downs[m]]
            step += beyond if step > 0 else -beyond
            to_a[m] = a[ups[m]] - step / 2
            to_b[m] = b[downs[m]] + step / 2
        squared[m] = sums[2]
        for i in range(len(a)):
            mine, low, first, place, beaten, total = a[i], lows[i], firsts[i], downs[m] - lows[i], none, none
            if i == ups[m]:
                moved = to_a[m]
                for j in range(widths[i]):
                    change = (one if moved > b[low + j] else none) - (one if mine > b[low + j] else none)
                    beaten += change
                    total += change * (one - u[first + j] - u[first + j])
                mine = moved
            if place < widths[i]:
                change = (one if mine > to_b[m] else none) - (one if mine > b[downs[m]] else none)
                beaten += change
                total += change * (one - u[first + place] - u[first + place])
            squared[m] += total
            lost[m, i] = lost[-1, i] - beaten
    for k in range(len(powers)):
        squared[few + k] = sums[0]
        for j in range(len(b)):
            rivals[k, j] = drawn[irrelevant[j]] * powers[k]
    for i in range(len(a)):
        low, first = lows[i], firsts[i]
        for k in range(len(powers)):
            tops[k, i] = drawn[relevant[i]] * powers[k]
            mine, beaten, total = tops[k, i], none, none
            for j in range(widths[i]):
                won = mine > rivals[k, low + j]
                beaten += one if won else none
                total += u[first + j] if won else none
            squared[few + k] += beaten - 2.0 * total
            lost[few + k, i] = widths[i] - beaten
    for k in range(few + len(powers), len(squared)):  # the opposite pairs
        squared[k] = sums[0] + sums[1] - squared[k - len(powers)]
        for i in range(len(a)):
            lost[k, i] = widths[i] - lost[k - len(powers), i]


@kernel
def average_precision(lost, values):
    """The average precision of one list at each anchor, from the sorted lost pairs: rank k has precision
    ``k / (k + lost)``.

    Shapes: lost (k, p), values (k,), initially zeros.
    """
    for k in range(len(values)):
        one = lost[k]
        for i in range(len(one)):
            values[k] += (i + 1.0) / (i + 1.0 + one[i])
        values[k] /= len(one)


@kernel
def weigh(squared, values, half, slopes):
    """Return the interpolated value, Eq. (10) of the paper with 1 / d = squared^-half, and fill ``slopes`` with its
    derivatives with respect to the squared distances; NaN at an anchor.

    Shapes: squared, values and slopes (k,).
    """
    nearest, whole, total = squared[0], 0.0, 0.0
    for k in range(len(squared)):
        nearest = squared[k] if squared[k] < nearest else nearest
    for k in range(len(squared)):  # relative to the nearest, so that powers do not underflow
        slopes[k] = (nearest / squared[k]) ** half
        whole, total = whole + slopes[k], total + slopes[k] * values[k]
    for k in range(len(squared)):
        slopes[k] *= (total / whole - values[k]) * half / whole / squared[k]
    return total / whole


@reordering
def carry_back(
    a, b, relevant, irrelevant, lows, widths, firsts, good, ups, downs, to_a, to_b, tops, rivals, u, units, weights,
    mixed, grads, gradient
):  # fmt: skip
    """Fill ``gradient`` with that of the weighted squared distances:

        d |u - v|^2 = 2 (u - v) u (1 - u) d(a - b)

    Shapes: weights (k,), changed in place; mixed, of the type of u, and grads (n,), gradient (m,), the last two
    initially zeros.
    """
    none, one, whole, right, current = units[0], units[1], units[0], units[0], units[0]
    for k in range(len(weights)):
        whole += weights[k]
        if k < good:
            right += weights[k]
        elif k < len(ups):
            current += weights[k]
        elif k >= len(ups) + len(tops):  # the opposite of random pairs: all pairs except these
            right += weights[k]
            weights[k - len(tops)] -= weights[k]
    for i in range(len(a)):
        mine, low, first, width, total = a[i], lows[i], firsts[i], widths[i], none
        for j in range(width):
            mixed[j] = right + (current if mine > b[low + j] else none)
        for k in range(len(tops)):
            weight, best = weights[len(ups) + k], tops[k, i]
            for j in range(width):
                mixed[j] += weight if best > rivals[k, low + j] else none
        for m in range(len(ups)):
            weight, moved, place = weights[m], mine, downs[m] - low
            if m < good:
                if i == ups[m]:
                    mixed[place] -= weight
            else:
                if i == ups[m]:
                    moved = to_a[m]
                    for j in range(width):
                        mixed[j] += (weight if moved > b[low + j] else none) - (weight if mine > b[low + j] else none)
                if place < width:
                    mixed[place] += (weight if moved > to_b[m] else none) - (weight if moved > b[downs[m]] else none)
        for j in range(width):
            slope = (whole * u[first + j] - mixed[j]) * u[first + j] * (one - u[first + j])
            total += slope + slope
            grads[low + j] -= slope + slope
        gradient[relevant[i]] = total
    for j in range(len(b)):
        gradient[irrelevant[j]] = grads[j]


@kernel
def flips(a, b, lows, widths, firsts, ups, downs, to_a, to_b, who, pairs):
    """List which nearby anchor flips which of the current pairs, and return the number of flips.

    Shapes: ups, downs, to_a, to_b (nearby,), who and pairs (at least the number of flips,).
    """
    count = 0
    for m in range(len(ups)):
        for i in range(len(a)):
            low, place = lows[i], downs[m] - lows[i]
            if i == ups[m]:
                for j in range(widths[i]):
                    his = to_b[m] if j == place else b[low + j]
                    if (to_a[m] > his) != (a[i] > b[low + j]):
                        who[count] = m
                        pairs[count] = firsts[i] + j
                        count += 1
            elif place < widths[i] and (a[i] > to_b[m]) != (a[i] > b[low + place]):
                who[count] = m
                pairs[count] = firsts[i] + place
                count += 1
    return count


@reordering
def differ(a, b, lows, widths, firsts, apart):
    """Count the pairs in which rows of scores differ.

    Shapes: a (k, p), b (k, n), apart (k, k), initially zeros.
    """
    for k in range(len(a)):
        for other in range(k):
            for i in range(len(lows)):
                mine, his, low, count = a[k, i], a[other, i], lows[i], 0
                for j in range(widths[i]):
                    count += (mine > b[k, low + j]) != (his > b[other, low + j])
                apart[k, other] += count
            apart[other, k] = apart[k, other]
