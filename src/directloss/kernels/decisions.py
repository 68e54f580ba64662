"""Optimal decisions on the CPU, compiled by numba: paths, trees, knapsacks and tours, one problem at a time.

Every kernel takes float64 scores ``(b, parts)`` of any sign and fills a table of the same shape with the parts that the
best output uses. Compiled code is cached on disk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from directloss.kernels.compiled import allocating, vectorised

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


# ---------------------------------------------------------------------- spanning trees


@allocating
def spanning_trees(scores: Any, tail: Any, head: Any, nodes: int, used: Any) -> None:
    """Kruskal's algorithm: the best edges first, unless they close a cycle. Ties go to the first edge."""
    group = np.empty(nodes, np.int64)
    for problem in range(len(scores)):
        group[:] = np.arange(nodes)
        missing = nodes - 1
        for edge in np.argsort(-scores[problem], kind="mergesort"):
            a, b = _root(group, tail[edge]), _root(group, head[edge])
            if a != b:
                group[a] = b
                used[problem, edge] = 1.0
                missing -= 1
                if not missing:
                    break


@allocating
def _root(group: Any, node: int) -> int:
    while group[node] != node:
        group[node] = group[group[node]]
        node = group[node]
    return node


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


STEP, TURNS, PATIENCE = 3.0, 40, 1
"""First step of the budgets' prices, in units of the overspending; maximal steps; and how many may bring no gain."""


@allocating
def knapsacks(scores: Any, weights: Any, capacity: Any, used: Any) -> None:
    """Any weights ``(budgets, items)``: branch and bound, depth first.

    Prices combine all budgets into one: the cost of an item at these prices is its size. The bound is the best
    fractional filling of that budget with the items that still fit into every budget.
    """
    by_item = np.ascontiguousarray(weights.T)
    for problem in range(len(scores)):
        _pack(scores[problem], by_item, capacity, used[problem])


@allocating
def _pack(scores: Any, weights: Any, capacity: Any, used: Any) -> None:
    budgets, room = len(capacity), capacity * (1 + 1e-12)
    worth = np.array([item for item in range(len(scores)) if scores[item] > 0 and _fits(weights[item], room)])
    count = len(worth)
    if not count:
        return
    value, weight = scores[worth], weights[worth]
    order, price, size = np.arange(count), np.empty(budgets), np.empty(count)
    _price(value, weight, capacity, order, price, size)
    worth, value, weight, size = worth[order], value[order], weight[order], size[order]
    slack = 1e-12 * value.sum()
    # Remaining budget and gain at each depth of the search: nothing is added back, so nothing drifts.
    left, spare, total = np.empty((count + 1, budgets)), np.empty(count + 1), np.empty(count + 1)
    left[0], spare[0], total[0] = room, (price * room).sum(), 0.0
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
def _price(value: Any, weight: Any, capacity: Any, order: Any, best_price: Any, size: Any) -> None:
    """Prices of the budgets that give a low bound at the root, and the sizes of items and their ``order`` by density.

    A budget that the bound's filling overspends becomes more expensive, others become cheaper.
    """
    budgets = len(capacity)
    price, spent = np.empty(budgets), np.empty(budgets)
    for d in range(budgets):
        price[d] = 1 / capacity[d] if capacity[d] > 0 else 0.0
    best_price[:] = price
    least, step, in_vain = np.inf, STEP, 0
    for _ in range(TURNS if budgets > 1 else 1):
        _by_density(value, weight, price, size, order)
        spent[:], free, bound = 0.0, (price * capacity).sum(), 0.0
        for item in order:
            part = 1.0 if size[item] <= free else free / size[item]
            bound += part * value[item]
            for d in range(budgets):
                spent[d] += part * weight[item, d]
            if part < 1:
                break
            free -= size[item]
        in_vain = 0 if bound < least * (1 - 1e-3) else in_vain + 1
        if in_vain > PATIENCE:
            break
        if bound < least:
            least = bound
            best_price[:] = price
        else:
            step /= 2
        for d in range(budgets):
            if capacity[d] > 0:
                price[d] = best_price[d] * np.exp(step * (spent[d] / capacity[d] - 1))
    _by_density(value, weight, best_price, size, order)


@allocating
def _by_density(value: Any, weight: Any, price: Any, size: Any, order: Any) -> None:
    """The size of each item and the order by falling density; insertion sort, as prices change little between turns."""
    for item in range(len(size)):
        size[item] = 0.0
        for d in range(len(price)):
            size[item] += price[d] * weight[item, d]
    for at in range(1, len(order)):
        item, place = order[at], at
        while place and value[order[place - 1]] * size[item] < value[item] * size[order[place - 1]]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = item


@allocating
def _fits(weight: Any, left: Any) -> bool:
    for d in range(len(left)):  # noqa: SIM110 - numba has no generators
        if weight[d] > left[d]:
            return False
    return True


# ---------------------------------------------------------------------- tours

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
def _fix(state: Any, i: int, j: int, how: int) -> None:
    state[i, j] = state[j, i] = how


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
