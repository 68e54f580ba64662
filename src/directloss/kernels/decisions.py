"""Decisions on the CPU, compiled by numba: yes or no for each item (`directloss.moves`); and the best paths and
knapsacks, one problem at a time.

Every kernel of the second kind takes float64 scores ``(b, parts)`` of any sign and fills a table of the same shape with
the parts that the best output uses. Compiled code is cached on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from directloss.kernels.compiled import allocating, kernel

# ---------------------------------------------------------------------- yes or no


@kernel
def count_yes(scores: Any, labels: Any, likely: Any, uniform: Any, counts: Any) -> int:
    """Fill ``counts`` with true and false positives, false and true negatives: without noise, then for each draw.

    Returns how many scores are not finite, or have a label that is neither 0 nor 1, which is not counted.

    Shapes: scores and likely (r, n), labels (any, n), uniform (draws, r, n), counts (4, draws + 1, r).
    """
    wrong = 0
    for row in range(len(scores)):
        own, P, N, tp, fp = labels[row % len(labels)], 0, 0, 0, 0
        for item in range(len(own)):
            score, positive, negative = scores[row, item], own[item] == 1, own[item] == 0
            wrong += (score - score != 0) | (positive == negative)
            P += positive
            N += negative
            tp += positive & (score > 0)
            fp += negative & (score > 0)
        for draw in range(len(uniform) + 1):
            if draw > 0:
                tp, fp = 0, 0
                for item in range(len(own)):
                    yes = uniform[draw - 1, row, item] < likely[row, item]
                    tp += yes & (own[item] == 1)
                    fp += yes & (own[item] == 0)
            counts[0, draw, row], counts[1, draw, row] = tp, fp
            counts[2, draw, row], counts[3, draw, row] = P - tp, N - fp
    return wrong


@kernel
def weigh_flips(labels: Any, likely: Any, uniform: Any, gains: Any, noise: float, slope: Any) -> None:
    """Fill ``slope`` with ``p (1 - p) / noise`` times the mean gain of a yes; 0 for padding.

    Shapes: as above; gains (4, draws + 1, r) of a positive and of a negative item that said no, and that said yes.
    """
    draws = len(uniform)
    for row in range(len(slope)):
        own = labels[row % len(labels)]
        for item in range(len(own)):
            p, total = likely[row, item], 0.0
            if own[item] == 1 or own[item] == 0:
                side = 0 if own[item] == 1 else 1
                for draw in range(draws):
                    total += gains[side + 2 * (uniform[draw, row, item] < p), draw + 1, row]
            slope[row, item] = total * p * (1 - p) / (noise * draws)


# ---------------------------------------------------------------------- paths


@allocating
def walks(scores: Any, first: Any, entering: Any, tail: Any, source: int, goal: int, most: int, used: Any) -> None:
    """Best walks of at most ``most`` edges, cycles included, for scores of any sign; how often they use each edge.

        best_m(v) = max( best_{m-1}(v), max over edges u -> v of best_{m-1}(u) + score(u -> v) )        m = 1 ... most

    is the Bellman-Ford recursion, one round for all nodes. It stops when a round changes nothing. The winning edge of
    each round is stored, so the walk is traced back exactly. Among equally good walks the one found in an earlier
    round wins (fewer edges), and then the one whose last edges come first.

    The edges into node v are ``entering[first[v] : first[v + 1]]``.
    """
    nodes = len(first) - 1
    best, further, chosen = np.empty(nodes), np.empty(nodes), np.empty((most, nodes), np.int32)
    for problem in range(len(scores)):
        best[:] = -np.inf
        best[source] = 0.0
        rounds, better = 0, True
        while better and rounds < most:
            better = False
            for v in range(nodes):
                further[v], chosen[rounds, v] = best[v], -1
                for place in range(first[v], first[v + 1]):
                    there = best[tail[entering[place]]] + scores[problem, entering[place]]
                    if there > further[v]:
                        further[v], chosen[rounds, v], better = there, entering[place], True
            best[:] = further
            rounds += 1
        v = goal
        for turn in range(rounds - 1, -1, -1):
            if chosen[turn, v] >= 0:
                used[problem, chosen[turn, v]] += 1.0
                v = tail[chosen[turn, v]]


# ---------------------------------------------------------------------- knapsacks


@allocating
def whole_knapsacks(scores: Any, weights: Any, capacity: int, used: Any) -> None:
    """One budget and integer weights: dynamic programming over the budget left, O(items * capacity) per problem."""
    items = scores.shape[1]
    best, taken = np.empty(capacity + 1), np.empty((items, capacity + 1), np.bool_)
    for problem in range(len(scores)):
        best[:] = 0.0
        for item in range(items):
            weight, score = weights[item], scores[problem, item]
            taken[item] = False
            if score > 0:
                for left in range(capacity, weight - 1, -1):
                    there = best[left - weight] + score
                    if there > best[left]:
                        best[left], taken[item, left] = there, True
        left = capacity
        for item in range(items - 1, -1, -1):
            if taken[item, left]:
                used[problem, item] = 1.0
                left -= weights[item]


TURNS = 12
"""How often the prices of several budgets are adjusted."""


@allocating
def knapsacks(scores: Any, weights: Any, capacity: Any, used: Any) -> None:
    """Any weights ``(items, budgets)``: branch and bound, depth first.

    Prices combine all budgets into one: the cost of an item at these prices is its size. The bound is the best
    fractional filling of that budget with the items that still fit into every budget.
    """
    room = capacity * (1 + 1e-12)
    for problem in range(len(scores)):
        worth = np.array(
            [item for item in range(len(weights)) if scores[problem, item] > 0 and _fits(weights[item], room)]
        )
        if len(worth):
            value, weight = scores[problem][worth], weights[worth]
            price = _price(value, weight, capacity)
            size = (weight * price).sum(1)
            order = np.argsort(-value / (size + 1e-300), kind="mergesort")
            _pack(value[order], weight[order], size[order], room, (price * room).sum(), worth[order], used[problem])


@allocating
def _price(value: Any, weight: Any, capacity: Any) -> Any:
    """Prices of the budgets that give a low bound: one that the bound's filling overspends becomes more expensive."""
    price, best, least, step = 1 / np.maximum(capacity, 1e-300), 1 / np.maximum(capacity, 1e-300), np.inf, 2.0
    for _ in range(TURNS if len(capacity) > 1 else 0):
        size = (weight * price).sum(1)
        spent, bound, free = np.zeros(len(capacity)), 0.0, (price * capacity).sum()
        for item in np.argsort(-value / (size + 1e-300)):
            part = 1.0 if size[item] <= free else free / size[item]
            bound += part * value[item]
            spent += part * weight[item]
            free -= size[item]
            if part < 1:
                break
        if bound < least:
            least = bound
            best[:] = price
        else:
            step /= 2
        price = best * np.exp(step * (spent / np.maximum(capacity, 1e-300) - 1))
    return best


@allocating
def _pack(value: Any, weight: Any, size: Any, room: Any, budget: float, worth: Any, used: Any) -> None:
    """Mark the best of the items ``worth``, which are sorted by density."""
    count, budgets, slack = len(value), len(room), 1e-12 * value.sum()
    # Remaining budget and gain at each depth of the search: nothing is added back, so nothing drifts.
    left, spare, total = np.empty((count + 1, budgets)), np.empty(count + 1), np.empty(count + 1)
    left[0], spare[0], total[0] = room, budget, 0.0
    chosen, best_chosen = np.empty(count, np.int64), np.empty(count, np.int64)
    best, most, depth, place = 0.0, 0, 0, 0
    while True:
        # The next item that fits, and whether it and later items can lift the total above the best.
        first, need, gain, free = -1, best + slack - total[depth], 0.0, spare[depth]
        for at in range(place, count):
            if not _fits(weight[at], left[depth]):
                continue
            if first < 0:
                first = at
            if size[at] > free:
                gain += value[at] * free / size[at]
                break
            gain += value[at]
            free -= size[at]
            if gain > need:
                break
        if first >= 0 and gain > need:
            chosen[depth] = first
            for d in range(budgets):
                left[depth + 1, d] = left[depth, d] - weight[first, d]
            spare[depth + 1] = max(spare[depth] - size[first], 0.0)
            total[depth + 1] = total[depth] + value[first]
            depth, place = depth + 1, first + 1
            if total[depth] > best + slack:
                best, most = total[depth], depth
                best_chosen[:depth] = chosen[:depth]
        elif depth:  # backtrack: drop the last item
            depth -= 1
            place = chosen[depth] + 1
        else:
            break
    for place in range(most):
        used[worth[best_chosen[place]]] = 1.0


@allocating
def _fits(weight: Any, left: Any) -> bool:
    for d in range(len(left)):  # noqa: SIM110 - numba has no generators
        if weight[d] > left[d]:
            return False
    return True
