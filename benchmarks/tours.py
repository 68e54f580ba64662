"""Round trips, by a solver of our own: a `SolverTask` around compiled branch and bound with the bound of Held and Karp.

A tour of 20 nodes takes less than a tenth of a millisecond, of 30 half a millisecond, and longer if many are equally
good.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from directloss.tasks import SolverTask

allocating: Any = numba.njit(cache=True)
vectorised: Any = numba.njit(cache=True, fastmath={"reassoc", "nsz", "nnan"})
"""For SIMD loops that find a minimum. There must be no NaN."""

FREE, IN, OUT = 0, 1, 2
ASCENTS = 30
"""Steps of the first ascent; a branch starts where the one before ended and takes a third of them."""
REACH, FADE = 0.5, 0.92
"""Length of the first step, as a fraction of the distance to the wanted bound, and its decay."""
FAR = 1e300


class Tree(NamedTuple):
    """A 1-tree: a spanning tree of the nodes from 1 on, and two edges at node 0."""

    above: Any
    """The parent of each node from 2 on."""
    two: Any
    """The neighbours of node 0."""
    degree: Any
    """The number of edges of each node."""


def tour_task(nodes: int) -> SolverTask:
    """The best round trip through all nodes, judged by its true cost."""
    return SolverTask(partial(best_tours, nodes=nodes), loss="regret")


def best_tours(scores: Tensor, nodes: int) -> Tensor:
    """The pairs of nodes that the best tours use, for scores ``(b, pairs)``."""
    used = torch.zeros(scores.shape, dtype=torch.float64)
    tours(scores.double().contiguous().numpy(), nodes, used.numpy())
    return used


@allocating
def tours(scores: Any, nodes: int, used: Any) -> Any:
    """Best round trips through all nodes, with a score for each pair of nodes ``(0, 1), (0, 2) ... (n - 2, n - 1)``.

    Branch and bound with the bound of Held and Karp (1971): a best 1-tree (a spanning tree of all nodes but the first,
    and two edges at the first) under node prices, which an ascent moves until every node has two edges. Edges that
    would lift the bound above the best tour are excluded, those whose absence would are required (Benchimol et al.
    2012). Branching follows Volgenant and Jonker (1982): of two free edges of a node with more than two, the first is
    out, or the first is in and the second out, or both are in.
    """
    cost = np.zeros((nodes, nodes))
    tour, price = np.empty(nodes, np.int64), np.empty(nodes)
    for problem in range(len(scores)):
        place = 0
        for i in range(nodes):
            for j in range(i + 1, nodes):
                cost[i, j] = cost[j, i] = -scores[problem, place]
                place += 1
        largest = np.abs(cost).max()
        if largest == 0:
            largest = 1.0
        cost /= largest  # tolerances must not depend on the unit of the costs
        price[:] = 0.0
        _nearest(cost, price, 0, tour)
        _shorten(cost, tour, price)
        for at in range(nodes):
            i, j = min(tour[at - 1], tour[at]), max(tour[at - 1], tour[at])
            used[problem, i * nodes - i * (i + 1) // 2 + j - i - 1] = 1.0


@allocating
def _shorten(cost: Any, best: Any, price: Any) -> None:
    """Replace a tour by the shortest one; the ascent starts at ``price`` and overwrites it."""
    nodes = len(cost)
    if nodes <= 3:
        return
    length = _length(cost, best)
    slack = 1e-10 * (1.0 + nodes)
    tree = Tree(np.zeros(nodes, np.int64), np.zeros(2, np.int64), np.zeros(nodes, np.int64))
    weight, tour = np.empty((nodes, nodes)), np.empty(nodes, np.int64)
    states, prices, bounds = [np.zeros((nodes, nodes), np.int8)], [price], [-np.inf]
    steps = ASCENTS
    while len(states):
        state, here, bound = states.pop(), prices.pop(), bounds.pop()
        if bound >= length - slack:
            continue
        _weigh(cost, state, weight)
        bound = _ascend(cost, weight, here, length - slack, steps, tree)
        if bound < length - slack and _off(tree) == 0:
            _walk(tree, best)
            length = _length(cost, best)
            continue
        if steps == ASCENTS:  # once, with good prices
            for start in (0, nodes // 2):
                _nearest(cost, here, start, tour)
                _exchange(cost, tour)
                if _length(cost, tour) < length:
                    best[:] = tour
                    length = _length(cost, tour)
        steps = ASCENTS // 3
        if bound < length - slack:
            _decide(weight, here, tree, length - slack - bound, state)
            if _settled(state):
                _branch(state, here, bound, tree, states, prices, bounds)


@allocating
def _length(cost: Any, tour: Any) -> float:
    total = 0.0
    for at in range(len(tour)):
        total += cost[tour[at - 1], tour[at]]
    return total


@allocating
def _nearest(cost: Any, price: Any, start: int, tour: Any) -> None:
    """A nearest-neighbour tour."""
    nodes = len(tour)
    rest = np.arange(nodes)
    v, rest[start] = start, nodes - 1
    tour[0] = v
    for left in range(nodes - 1, 0, -1):
        nearest, least = 0, np.inf
        for place in range(left):
            there = cost[v, rest[place]] + price[rest[place]]
            if there < least:
                nearest, least = place, there
        v = rest[nearest]
        rest[nearest] = rest[left - 1]
        tour[nodes - left] = v


@allocating
def _exchange(cost: Any, tour: Any) -> None:
    """Local search: reverse parts of a tour (2-opt) as long as that helps."""
    nodes, slack = len(tour), 1e-12
    better = True
    while better:
        better = False
        for i in range(nodes - 1):
            for j in range(i + 2, nodes - (i == 0)):
                a, b, c, d = tour[i], tour[i + 1], tour[j], tour[(j + 1) % nodes]
                if cost[a, c] + cost[b, d] < cost[a, b] + cost[c, d] - slack:
                    tour[i + 1 : j + 1] = tour[i + 1 : j + 1][::-1].copy()
                    better = True


@allocating
def _weigh(cost: Any, state: Any, weight: Any) -> None:
    """Costs under which a cheapest tree takes all required edges and no excluded ones."""
    nodes = len(cost)
    for i in range(nodes):
        for j in range(nodes):
            weight[i, j] = cost[i, j]
            if state[i, j] == OUT:
                weight[i, j] = np.inf
            elif state[i, j] == IN:
                weight[i, j] -= 1e6


@allocating
def _off(tree: Any) -> int:
    """How far a 1-tree is from a tour: the sum of ``(degree - 2)^2``."""
    total = 0
    for degree in tree.degree:
        total += (degree - 2) * (degree - 2)
    return total


@allocating
def _ascend(cost: Any, weight: Any, price: Any, wanted: float, steps: int, tree: Any) -> Any:
    """Move the prices towards the bound ``wanted``; return the highest bound reached, and leave its prices and tree."""
    nodes = len(price)
    kept, still = price.copy(), np.zeros(nodes)
    near, ahead = np.empty(nodes), np.empty(nodes)
    highest, reach = -np.inf, REACH
    for _ in range(steps):
        bound = _one_tree(cost, weight, price, tree, near, ahead)
        if bound > highest:
            highest = bound
            kept[:] = price
        off = _off(tree)
        if bound >= wanted or off == 0:
            return bound
        stride = reach * (wanted - bound) / off
        for v in range(nodes):
            price[v] += stride * (0.7 * (tree.degree[v] - 2) + 0.3 * still[v])
            still[v] = tree.degree[v] - 2
        reach *= FADE
    price[:] = kept
    return _one_tree(cost, weight, price, tree, near, ahead)


@vectorised
def _one_tree(cost: Any, weight: Any, price: Any, tree: Any, near: Any, ahead: Any) -> Any:
    """The cost of the cheapest 1-tree under ``weight`` and node prices, by Prim's algorithm; infinite if there is
    none.
    """
    nodes, above, degree = len(price), tree.above, tree.degree
    for u in range(nodes):
        near[u], ahead[u], degree[u] = FAR, price[u], 0
    ahead[0] = ahead[1] = np.inf
    v, total = 1, 0.0
    for _ in range(nodes - 2):
        row, own, least = weight[v], price[v], FAR
        for u in range(nodes):  # branch-free, so that it vectorises
            there = row[u] + ahead[u] + own
            closer = there < near[u]
            near[u] = there if closer else near[u]
            above[u] = v if closer else above[u]
            least = min(least, near[u])
        if least == FAR:
            return np.inf
        v = 0
        while near[v] != least:
            v += 1
        near[v], ahead[v] = FAR, np.inf
        total += cost[v, above[v]] + price[v] + price[above[v]]
        degree[v] += 1
        degree[above[v]] += 1
    one, other, first, second = 0, 0, np.inf, np.inf
    for u in range(1, nodes):
        there = weight[0, u] + price[u]
        if there < first:
            one, other, first, second = u, one, there, first
        elif there < second:
            other, second = u, there
    if second == np.inf:
        return np.inf
    tree.two[0], tree.two[1] = one, other
    degree[0] = 2
    degree[one] += 1
    degree[other] += 1
    total += cost[0, one] + cost[0, other] + price[one] + price[other]
    for v in range(1, nodes):
        total -= 2 * price[v]
    return total


@allocating
def _walk(tree: Any, tour: Any) -> None:
    """The tour of a 1-tree in which every node has two edges."""
    nodes = len(tour)
    beside = np.full((nodes, 2), -1)
    for v in range(2, nodes):
        for a, b in ((v, tree.above[v]), (tree.above[v], v)):
            beside[a, 0 if beside[a, 0] < 0 else 1] = b
    for u in tree.two:
        beside[0, 0 if beside[0, 0] < 0 else 1] = u
        beside[u, 0 if beside[u, 0] < 0 else 1] = 0
    before, at = -1, 0
    for place in range(nodes):
        tour[place] = at
        onward = beside[at, 0] if beside[at, 0] != before else beside[at, 1]
        before, at = at, onward


@allocating
def _decide(weight: Any, price: Any, tree: Any, gap: float, state: Any) -> None:
    """Exclude free edges with which the best 1-tree costs ``gap`` more; require those without which it does."""
    nodes, above = len(price), tree.above
    depth, instead = np.zeros(nodes, np.int64), np.full(nodes, np.inf)
    own = np.zeros(nodes)
    for v in range(2, nodes):
        own[v] = weight[v, above[v]] + price[v] + price[above[v]]
        at = v
        while at != 1:
            at = above[at]
            depth[v] += 1
    for i in range(1, nodes):
        for j in range(i + 1, nodes):
            if state[i, j] == OUT or _joins(above, i, j):
                continue
            there = weight[i, j] + price[i] + price[j]
            a, b, dearest = i, j, -np.inf
            while a != b:  # the cycle that the edge would close
                if depth[a] < depth[b]:
                    a, b = b, a
                dearest = max(dearest, own[a])
                instead[a] = min(instead[a], there)
                a = above[a]
            if state[i, j] == FREE and there - dearest > gap:
                _fix(state, i, j, OUT)
    third = np.inf
    last = weight[0, tree.two[1]] + price[tree.two[1]]
    for u in range(1, nodes):
        if u != tree.two[0] and u != tree.two[1]:
            there = weight[0, u] + price[u]
            third = min(third, there)
            if state[0, u] == FREE and there - last > gap:
                _fix(state, 0, u, OUT)
    for v in range(2, nodes):
        if state[v, above[v]] == FREE and instead[v] - own[v] > gap:
            _fix(state, v, above[v], IN)
    for u in tree.two:
        if state[0, u] == FREE and third - weight[0, u] - price[u] > gap:
            _fix(state, 0, u, IN)


@allocating
def _joins(above: Any, i: int, j: int) -> bool:
    """Whether an edge between two nodes from 1 on is in the tree."""
    return (i > 1 and above[i] == j) or (j > 1 and above[j] == i)


@allocating
def _branch(state: Any, price: Any, bound: float, tree: Any, states: Any, prices: Any, bounds: Any) -> None:
    """Branch on two free edges of the 1-tree at a node with too many: out; in and out; both in."""
    node = np.argmax(tree.degree)
    found, a, b = 0, -1, -1
    for u in range(len(price)):
        if u == node or state[node, u] != FREE or found == 2:
            continue
        if u == 0 or node == 0:
            joined = max(u, node) == tree.two[0] or max(u, node) == tree.two[1]
        else:
            joined = _joins(tree.above, node, u)
        if joined:
            a, b, found = u, a, found + 1
    for case in range(found + 1):  # without a free edge, an edge of the tree has been excluded
        child = state.copy()
        if found:
            _fix(child, node, a, OUT if case == found else IN)
        if found == 2 and case < 2:
            _fix(child, node, b, IN if case == 0 else OUT)
        if _settled(child):
            states.append(child)
            prices.append(price.copy())
            bounds.append(bound)


@allocating
def _fix(state: Any, i: int, j: int, fixed: int) -> None:
    state[i, j] = state[j, i] = fixed


@allocating
def _settled(state: Any) -> bool:
    """Propagate: a node with two required edges has no others, one with two edges left needs both. Returns False if a
    node has three edges, or too few.
    """
    nodes = len(state)
    changed = True
    while changed:
        changed = False
        for v in range(nodes):
            inside, free = 0, 0
            for u in range(nodes):
                if u != v:
                    inside += state[v, u] == IN
                    free += state[v, u] == FREE
            if inside > 2 or inside + free < 2:
                return False
            if free and (inside == 2 or inside + free == 2):
                for u in range(nodes):
                    if u != v and state[v, u] == FREE:
                        _fix(state, v, u, OUT if inside == 2 else IN)
                changed = True
    return True
