"""Best decisions on the CPU, compiled by numba: paths, trees, knapsacks and tours, one problem after the other.

Every kernel takes scores ``(b, parts)`` in float64, which may have any sign, and fills a table of the same shape with
the parts that the best output uses. Compiled code is cached on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from directloss.kernels.compiled import allocating

# ---------------------------------------------------------------------- paths


@allocating
def dag_paths(scores: Any, order: Any, first: Any, entering: Any, tail: Any, source: int, goal: int, used: Any) -> None:
    """Best paths in a graph without circles, node by node in topological ``order``; O(edges) for each problem.

    The edges that enter node v are ``entering[first[v] : first[v + 1]]``. Of equally good paths the one with fewer
    edges wins, and then the one whose last edges come first.
    """
    nodes = len(order)
    best, steps, last = np.empty(nodes), np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    for problem in range(len(scores)):
        for v in order:
            best[v], steps[v], last[v] = -np.inf, 0, -1
            if v == source:
                best[v] = 0.0
                continue
            for place in range(first[v], first[v + 1]):
                edge = entering[place]
                u = tail[edge]
                if best[u] == -np.inf:
                    continue
                there = best[u] + scores[problem, edge]
                if there > best[v] or (there == best[v] and steps[u] + 1 < steps[v]):
                    best[v], steps[v], last[v] = there, steps[u] + 1, edge
        v = goal
        while last[v] >= 0:
            used[problem, last[v]] = 1.0
            v = tail[last[v]]


@allocating
def dijkstra_paths(
    scores: Any, first: Any, leaving: Any, tail: Any, head: Any, source: int, goal: int, used: Any
) -> Any:
    """Best paths for scores that are not positive, by Dijkstra's algorithm with a binary heap of edges.

    The edges that leave node v are ``leaving[first[v] : first[v + 1]]``.
    """
    nodes, edges = len(first) - 1, scores.shape[1]
    cost, last, done = np.empty(nodes), np.empty(nodes, np.int64), np.empty(nodes, np.bool_)
    keys, places = np.empty(edges + 1), np.empty(edges + 1, np.int64)
    for problem in range(len(scores)):
        cost[:], last[:], done[:] = np.inf, -1, False
        cost[source] = 0.0
        keys[0], places[0], size = 0.0, source, 1
        while size:
            v = places[0]
            size -= 1
            _sift_down(keys, places, size)
            if done[v]:
                continue
            done[v] = True
            if v == goal:
                break
            for place in range(first[v], first[v + 1]):
                edge = leaving[place]
                there = cost[v] - scores[problem, edge]
                if there < cost[head[edge]]:
                    cost[head[edge]], last[head[edge]] = there, edge
                    _sift_up(keys, places, size, there, head[edge])
                    size += 1
        v = goal
        while last[v] >= 0 and v != source:
            used[problem, last[v]] = 1.0
            v = tail[last[v]]


@allocating
def _sift_up(keys: Any, places: Any, at: int, key: float, place: int) -> None:
    """Insert into a heap of ``at`` entries."""
    while at and keys[(at - 1) // 2] > key:
        above = (at - 1) // 2
        keys[at], places[at] = keys[above], places[above]
        at = above
    keys[at], places[at] = key, place


@allocating
def _sift_down(keys: Any, places: Any, size: int) -> None:
    """Remove the least of ``size + 1`` entries."""
    key, place, at = keys[size], places[size], 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and keys[below + 1] < keys[below]:
            below += 1
        if keys[below] >= key:
            break
        keys[at], places[at] = keys[below], places[below]
        at = below
    keys[at], places[at] = key, place


# ---------------------------------------------------------------------- spanning trees


@allocating
def spanning_trees(scores: Any, tail: Any, head: Any, nodes: int, used: Any) -> None:
    """Kruskal's algorithm: the best edges first, unless they close a circle. Of equal edges the first."""
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
    """One budget and whole weights: dynamic programming over what is left, O(items * capacity) for each problem."""
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
"""How far the prices of the budgets move at first, in units of what is overspent; how often; and how often in vain."""


@allocating
def knapsacks(scores: Any, weights: Any, capacity: Any, used: Any) -> None:
    """Any weights ``(budgets, items)``: branch and bound, depth first.

    Prices make one budget of all: what an item costs at these prices is its size. The bound is the best fractional
    filling of that budget, where the last item counts in part, from those items that still fit into every budget.
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
    # What is left, and what was gained, at each depth of the search: nothing is added back, so that nothing drifts.
    left, spare, total = np.empty((count + 1, budgets)), np.empty(count + 1), np.empty(count + 1)
    left[0], spare[0], total[0] = room, (price * room).sum(), 0.0
    chosen, best_chosen = np.empty(count, np.int64), np.empty(count, np.int64)
    best, most, depth, place = 0.0, 0, 0, 0
    while True:
        # The next item that fits, and whether it and others can lift the total above the best.
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
        elif depth:  # then without the last one
            depth -= 1
            place = chosen[depth] + 1
        else:
            break
    for place in range(most):
        used[worth[best_chosen[place]]] = 1.0


@allocating
def _price(value: Any, weight: Any, capacity: Any, order: Any, best_price: Any, size: Any) -> None:
    """Prices of the budgets with a low bound at the root, and size and ``order``, from dense to light, of the items.

    A budget that the bound's filling overspends becomes dearer, one that it does not becomes cheaper.
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
    """The size of each item, and the order from dense to light; by insertion, as prices change little between turns."""
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
ASCENTS = 60
"""Steps of the first bound's ascent; a child begins where its parent ended, and takes a third of them."""


@allocating
def tours(scores: Any, nodes: int, used: Any) -> Any:
    """Best round trips over all nodes, with a score for each pair of nodes ``(0, 1), (0, 2) ... (n - 2, n - 1)``.

    Branch and bound with the bound of Held and Karp (1971): a best 1-tree (a spanning tree of all nodes but the first,
    and two edges at the first) under prices of the nodes, which an ascent moves until every node has two edges.
    Branches are those of Volgenant and Jonker (1982): two free edges of a node with more than two are out, in and out,
    or both in. A tour by insertion and exchanges is the first guess.
    """
    cost = np.zeros((nodes, nodes))
    for problem in range(len(scores)):
        place = 0
        for i in range(nodes):
            for j in range(i + 1, nodes):
                cost[i, j] = cost[j, i] = -scores[problem, place]
                place += 1
        largest = np.abs(cost).max()
        if largest > 0:  # what counts as equal must not depend on the unit of the costs
            cost /= largest
        tour = _best_tour(cost)
        for at in range(nodes):
            i, j = tour[at], tour[(at + 1) % nodes]
            if i > j:
                i, j = j, i
            used[problem, i * nodes - i * (i + 1) // 2 + j - i - 1] = 1.0


@allocating
def _length(cost: Any, tour: Any) -> float:
    total = 0.0
    for at in range(len(tour)):
        total += cost[tour[at - 1], tour[at]]
    return total


@allocating
def _improved(cost: Any, tour: Any) -> None:
    """Reverse parts of a tour, or move up to three nodes elsewhere, as long as that helps."""
    nodes = len(tour)
    slack = 1e-12 * (1.0 + np.abs(cost).max())
    better = True
    while better:
        better = False
        for i in range(nodes - 1):
            for j in range(i + 2, nodes):
                a, b, c, d = tour[i], tour[i + 1], tour[j], tour[(j + 1) % nodes]
                if a != d and cost[a, c] + cost[b, d] < cost[a, b] + cost[c, d] - slack:
                    tour[i + 1 : j + 1] = tour[i + 1 : j + 1][::-1].copy()
                    better = True
        for size in range(1, min(4, nodes - 2)):
            for i in range(nodes):
                ring = np.concatenate((tour[i:], tour[:i]))
                part, rest = ring[:size], ring[size:]
                gain = cost[rest[-1], part[0]] + cost[part[-1], rest[0]] - cost[rest[-1], rest[0]]
                for k in range(len(rest) - 1):
                    ends = cost[rest[k], rest[k + 1]]
                    along = cost[rest[k], part[0]] + cost[part[-1], rest[k + 1]] - ends
                    against = cost[rest[k], part[-1]] + cost[part[0], rest[k + 1]] - ends
                    if min(along, against) < gain - slack:
                        turned = part.copy() if along <= against else part[::-1].copy()
                        tour[:] = np.concatenate((rest[: k + 1], turned, rest[k + 1 :]))
                        better = True
                        break


@allocating
def _guess(cost: Any) -> Any:
    """The best of tours that go to the nearest node left, from several starts, after exchanges."""
    nodes = len(cost)
    best, best_length = np.arange(nodes), np.inf
    for start in range(0, nodes, max(1, nodes // 5)):
        tour, seen = np.empty(nodes, np.int64), np.zeros(nodes, np.bool_)
        tour[0], seen[start] = start, True
        for at in range(1, nodes):
            nearest, least = -1, np.inf
            for v in range(nodes):
                if not seen[v] and cost[tour[at - 1], v] < least:
                    nearest, least = v, cost[tour[at - 1], v]
            tour[at], seen[nearest] = nearest, True
        _improved(cost, tour)
        length = _length(cost, tour)
        if length < best_length:
            best, best_length = tour, length
    return best


@allocating
def _weighted(cost: Any, state: Any) -> Any:
    """Costs under which a cheapest tree takes every edge that is in, and none that is out if there is another."""
    nodes = len(cost)
    weight = cost.copy()
    huge = 1e6 * (1.0 + np.abs(cost).max())
    for i in range(nodes):
        for j in range(nodes):
            if state[i, j] == OUT:
                weight[i, j] = np.inf
            elif state[i, j] == IN:
                weight[i, j] -= huge
    return weight


@allocating
def _one_tree(cost: Any, weight: Any, price: Any, above: Any, degree: Any, two: Any) -> Any:
    """The cheapest 1-tree under ``weight`` and the prices of the nodes, by Prim's algorithm: its cost, infinite if
    there is none. ``above[v]`` is the other end of the edge of node v, ``two`` the neighbours of node 0.
    """
    nodes = len(cost)
    near = np.full(nodes, np.inf)
    rest = np.arange(2, nodes)
    degree[:] = 0
    v, total = 1, 0.0
    for left in range(nodes - 2, 0, -1):
        nearest, least = -1, np.inf
        for place in range(left):  # one pass: what v changes, and who is nearest then
            u = rest[place]
            there = weight[v, u] + price[u] + price[v]
            if there < near[u]:
                near[u], above[u] = there, v
            if near[u] < least:
                nearest, least = place, near[u]
        if nearest < 0:
            return np.inf
        v = rest[nearest]
        rest[nearest] = rest[left - 1]
        total += cost[v, above[v]] + price[v] + price[above[v]]
        degree[v] += 1
        degree[above[v]] += 1
    for time in range(2):
        nearest, least = -1, np.inf
        for u in range(1, nodes):
            there = weight[0, u] + price[u]
            if there < least and not (time and two[0] == u):
                nearest, least = u, there
        if nearest < 0:
            return np.inf
        two[time] = nearest
        total += cost[0, nearest] + price[0] + price[nearest]
        degree[0] += 1
        degree[nearest] += 1
    return total - 2 * price.sum()


@allocating
def _best_tour(cost: Any) -> Any:
    nodes = len(cost)
    best = _guess(cost)
    if nodes <= 3:
        return best
    length = _length(cost, best)
    slack = 1e-10 * (1.0 + np.abs(cost).max() * nodes)
    above, degree, two = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64), np.zeros(2, np.int64)
    states = [np.zeros((nodes, nodes), np.int8)]
    prices = [np.zeros(nodes)]
    first = True
    while len(states):
        state, price = states.pop(), prices.pop()
        weight = _weighted(cost, state)
        kept, highest = price.copy(), -np.inf
        still = np.zeros(nodes, np.int64)
        steps = ASCENTS if first else ASCENTS // 3
        reach = 1.0 if first else 0.5
        solved = False
        for _ in range(steps):
            bound = _one_tree(cost, weight, price, above, degree, two)
            if bound > highest:
                highest = bound
                kept[:] = price
            if highest >= length - slack:
                break
            off = degree - 2
            square = (off * off).sum()
            if square == 0:
                solved = True
                break
            stride = reach * (length - bound) / square
            price = price + stride * (0.7 * off + 0.3 * still)
            still = off
            reach *= 0.95
        first = False
        if highest >= length - slack:
            continue
        if not solved:  # back to the best prices, and branch there
            price = kept
            _one_tree(cost, weight, price, above, degree, two)
            solved = ((degree - 2) == 0).all()
        if solved:
            tour = _walked(above, two, nodes)
            there = _length(cost, tour)
            if there < length:
                best, length = tour, there
            if there <= highest + slack:
                continue
        _branch(state, price, above, degree, two, cost, states, prices)
    return best


@allocating
def _walked(above: Any, two: Any, nodes: int) -> Any:
    """The tour of a 1-tree in which every node has two edges."""
    beside = np.full((nodes, 2), -1)
    for v in range(2, nodes):
        for a, b in ((v, above[v]), (above[v], v)):
            beside[a, 0 if beside[a, 0] < 0 else 1] = b
    for u in two:
        beside[0, 0 if beside[0, 0] < 0 else 1] = u
        beside[u, 0 if beside[u, 0] < 0 else 1] = 0
    tour, before, at = np.empty(nodes, np.int64), -1, 0
    for place in range(nodes):
        tour[place] = at
        onward = beside[at, 0] if beside[at, 0] != before else beside[at, 1]
        before, at = at, onward
    return tour


@allocating
def _branch(state: Any, price: Any, above: Any, degree: Any, two: Any, cost: Any, states: Any, prices: Any) -> None:
    """Two free edges of the 1-tree at a node with too many: out; in and out; both in."""
    nodes = len(cost)
    node, most = -1, 2
    for v in range(nodes):
        if degree[v] > most:
            node, most = v, degree[v]
    if node < 0:
        return
    ends = np.full(2, -1)
    found = 0
    for u in range(nodes):
        joined = (u >= 2 and above[u] == node) or (node >= 2 and above[node] == u)
        joined = (
            joined or (node == 0 and (two[0] == u or two[1] == u)) or (u == 0 and (two[0] == node or two[1] == node))
        )
        if joined and state[node, u] == FREE and found < 2:
            ends[found] = u
            found += 1
    if not found:
        return
    a, b = ends
    for case in range(3 if found == 2 else 2):
        child = state.copy()
        if found == 2 and case == 0:
            _fix(child, node, a, IN)
            _fix(child, node, b, IN)
        elif case == found - 1:
            _fix(child, node, a, IN)
            if found == 2:
                _fix(child, node, b, OUT)
        else:
            _fix(child, node, a, OUT)
        if _settled(child):
            states.append(child)
            prices.append(price.copy())


@allocating
def _fix(state: Any, i: int, j: int, how: int) -> None:
    state[i, j] = state[j, i] = how


@allocating
def _settled(state: Any) -> bool:
    """Draw conclusions: a node with two edges in has no others, one with two edges left needs both. False if a node
    has three edges, or too few.
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
