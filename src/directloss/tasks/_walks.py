"""Best walks in directed graphs, for many problems at once, in pure tensor operations.

    best_m(v) = max( best_{m-1}(v), max over edges u -> v of best_{m-1}(u) + score(u -> v) )        m = 1 ... max_edges

is Bellman and Ford's recursion, one round for all nodes of all problems. It stops early when a round changes nothing.
Which edge won in which round is kept, so the walk is traced back exactly, circles included. Time O(rounds * nodes *
largest in-degree) and memory O(rounds * nodes) for each problem.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from directloss._checks import check_count, fail


@dataclass(frozen=True)
class Graph:
    """A directed graph, prepared for rounds in which every node looks at all edges that enter it."""

    tail: Tensor
    """Where each edge starts, shape ``(edges + 1,)``; the last one is no edge but stands for padding."""
    head: Tensor
    """Where each edge ends, shape ``(edges + 1,)``."""
    into: Tensor
    """The edges that enter each node, shape ``(nodes, largest in-degree)``, padded with ``edges``."""

    @staticmethod
    def of(edges: Tensor, nodes: int) -> Graph:
        """From pairs (tail, head)."""
        tail, head = torch.cat([edges, edges.new_zeros(1, 2)]).unbind(1)
        order = head[:-1].argsort(stable=True)
        degree = torch.bincount(head[:-1], minlength=nodes)
        first = degree.cumsum(0) - degree
        into = torch.full((nodes, max(int(degree.max()), 1)), len(edges))
        into[head[order], torch.arange(len(edges)) - first[head[order]]] = order
        return Graph(tail, head, into)

    def to(self, device: torch.device) -> Graph:
        """The same graph on another device."""
        if self.tail.device == device:
            return self
        return replace(self, tail=self.tail.to(device), head=self.head.to(device), into=self.into.to(device))


@dataclass(frozen=True)
class Fast:
    """A directed graph for compiled code: the edges of each node stand together."""

    tail: Any
    head: Any
    into: Any
    """Edges in the order of their heads; those of node v are ``into[into_first[v] : into_first[v + 1]]``."""
    into_first: Any
    out: Any
    out_first: Any
    order: Any
    """The nodes in topological order; None if the graph has a circle."""
    longest: int
    """The most edges that a simple path can have, or more."""

    @staticmethod
    def of(edges: Tensor, nodes: int) -> Fast:
        """From pairs (tail, head)."""
        tail, head = (np.ascontiguousarray(ends) for ends in edges.numpy().T)
        into, into_first = _grouped(head, nodes)
        out, out_first = _grouped(tail, nodes)
        waiting = np.bincount(head, minlength=nodes)
        order = [node for node in range(nodes) if not waiting[node]]
        depth = np.zeros(nodes, np.int64)
        for node in order:
            for edge in out[out_first[node] : out_first[node + 1]]:
                depth[head[edge]] = max(depth[head[edge]], depth[node] + 1)
                waiting[head[edge]] -= 1
                if not waiting[head[edge]]:
                    order.append(int(head[edge]))
        if len(order) < nodes:
            return Fast(tail, head, into, into_first, out, out_first, None, nodes - 1)
        return Fast(tail, head, into, into_first, out, out_first, np.array(order), int(depth.max()))


def _grouped(ends: Any, nodes: int) -> tuple[Any, Any]:
    """The edges sorted by one of their ends, and where those of each node begin."""
    return np.argsort(ends, kind="stable"), np.append(0, np.bincount(ends, minlength=nodes).cumsum())


def best_walk(graph: Graph, scores: Tensor, source: int, goal: int, max_edges: int) -> tuple[Tensor, Tensor]:
    """The best walk of at most ``max_edges`` edges for edge scores ``(b, edges)``, and its score (-inf: there is none).

    The walk is a table of edges ``(b, rounds)``; the number of edges stands for "no step in this round". Of equally
    good walks the one found in an earlier round wins (fewer edges), and then the one whose last edges come first.
    """
    none = scores.shape[1]
    gains = torch.cat([scores, scores.new_full((len(scores), 1), -torch.inf)], 1)[:, graph.into]
    before = graph.tail[graph.into]
    best = scores.new_full((len(scores), len(graph.into)), -torch.inf)
    best[:, source] = 0
    # One byte for each node and round is enough for all but the densest graphs.
    small = torch.int8 if graph.into.shape[1] < 127 else torch.int32
    rounds: list[Tensor] = []
    for _ in range(max_edges):
        candidate, slot = (best[:, before] + gains).max(-1)
        better = candidate > best
        if not bool(better.any()):
            break
        best = torch.where(better, candidate, best)
        rounds.append(torch.where(better, slot, -1).to(small))
    node = torch.full((len(scores), 1), goal, device=scores.device)
    walk = torch.full((len(scores), len(rounds)), none, device=scores.device)
    for place in reversed(range(len(rounds))):
        slot = rounds[place].gather(1, node).long()
        edge = graph.into[node, slot.clamp(min=0)]
        walk[:, place] = torch.where(slot >= 0, edge, none)[:, 0]
        node = torch.where(slot >= 0, graph.tail[edge], node)
    return walk, best[:, goal]


def counts(places: Tensor, size: int, like: Tensor) -> Tensor:
    """How often each place occurs in each row."""
    ones = torch.ones_like(places, dtype=like.dtype)
    return torch.zeros(len(places), size, dtype=like.dtype, device=places.device).scatter_add_(1, places, ones)


_STRAIGHT = [(0, 1), (1, 0), (0, -1), (-1, 0)]
STEPS = {
    "4": _STRAIGHT,
    "8": [*_STRAIGHT, (1, 1), (1, -1), (-1, 1), (-1, -1)],
    "monotone": [(0, 1), (1, 0)],
}
"""What each connectivity allows: steps (rows down, columns right)."""


def grid_edges(height: int, width: int, steps: list[tuple[int, int]]) -> Tensor:
    """All allowed steps between cells, as pairs of cell numbers; cells are numbered row by row."""
    row, column = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    found = [torch.empty(0, 2, dtype=torch.long)]
    for down, right in steps:
        inside = (row + down >= 0) & (row + down < height) & (column + right >= 0) & (column + right < width)
        cell = (row * width + column)[inside]
        found.append(torch.stack([cell, cell + down * width + right], 1))
    return torch.cat(found)


def edge_pairs(edges: object, num_nodes: int | None) -> tuple[Tensor, int]:
    """Edges as a long tensor of pairs, and how many nodes there are."""
    try:
        pairs = torch.as_tensor(edges)
    except (TypeError, ValueError, RuntimeError):
        fail("edges", "must be pairs (tail, head) of node numbers", f"a {type(edges).__name__} that is no table")
    if pairs.dim() != 2 or pairs.shape[1] != 2 or len(pairs) == 0:
        fail("edges", "must be pairs (tail, head), shape (edges, 2), at least one", f"of shape {tuple(pairs.shape)}")
    if pairs.is_floating_point() or pairs.is_complex() or pairs.dtype == torch.bool:
        fail("edges", "must hold whole node numbers", pairs.dtype)
    pairs = pairs.long().cpu()
    least, most = int(pairs.min()), int(pairs.max())
    nodes = most + 1 if num_nodes is None else check_count("num_nodes", num_nodes)
    if least < 0 or most >= nodes:
        fail("edges", f"must hold node numbers from 0 to {nodes - 1}", f"{least if least < 0 else most} somewhere")
    return pairs, nodes
