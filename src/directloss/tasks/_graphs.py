"""Directed graphs in the form that the path kernels read, and the edges of grids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from directloss._checks import check_count, fail


@dataclass(frozen=True)
class Graph:
    """A directed graph with edges grouped by node."""

    tail: Any
    head: Any
    into: Any
    """Edges sorted by head; those of node v are ``into[into_first[v] : into_first[v + 1]]``."""
    into_first: Any
    out: Any
    out_first: Any
    order: Any
    """The nodes in topological order; None if the graph has a cycle."""
    longest: int
    """An upper bound on the edges of a simple path."""

    @staticmethod
    def of(edges: Tensor, nodes: int) -> Graph:
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
            return Graph(tail, head, into, into_first, out, out_first, None, nodes - 1)
        return Graph(tail, head, into, into_first, out, out_first, np.array(order), int(depth.max()))

    def steps(self, source: int, goal: int) -> float:
        """Number of edges of the shortest walk; infinite if there is none."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra  # slow to import

        nodes = len(self.out_first) - 1
        ends = (self.tail.astype(np.int32), self.head.astype(np.int32))  # older versions of dijkstra need int32
        table = csr_array((np.ones(len(self.tail)), ends), shape=(nodes, nodes))
        return float(dijkstra(table, indices=source, unweighted=True)[goal])


def _grouped(ends: Any, nodes: int) -> tuple[Any, Any]:
    """The edges sorted by one of their ends, and the start of each node's edges."""
    return np.argsort(ends, kind="stable"), np.append(0, np.bincount(ends, minlength=nodes).cumsum())


_STRAIGHT = [(0, 1), (1, 0), (0, -1), (-1, 0)]
STEPS = {
    "4": _STRAIGHT,
    "8": [*_STRAIGHT, (1, 1), (1, -1), (-1, 1), (-1, -1)],
    "monotone": [(0, 1), (1, 0)],
}
"""The steps (rows down, columns right) of each connectivity."""


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
    """Edges as a long tensor of pairs, and the number of nodes."""
    try:
        pairs = torch.as_tensor(edges)
    except (TypeError, ValueError, RuntimeError):
        fail("edges", "must be pairs (tail, head) of node numbers", f"a {type(edges).__name__} that is not a table")
    if pairs.dim() != 2 or pairs.shape[1] != 2 or len(pairs) == 0:
        fail("edges", "must be at least one pair (tail, head), shape (edges, 2)", f"of shape {tuple(pairs.shape)}")
    if pairs.is_floating_point() or pairs.is_complex() or pairs.dtype == torch.bool:
        fail("edges", "must hold whole node numbers", pairs.dtype)
    pairs = pairs.long().cpu()
    least, most = int(pairs.min()), int(pairs.max())
    nodes = most + 1 if num_nodes is None else check_count("num_nodes", num_nodes)
    if least < 0 or most >= nodes:
        fail("edges", f"must hold node numbers from 0 to {nodes - 1}", f"{least if least < 0 else most} somewhere")
    return pairs, nodes
