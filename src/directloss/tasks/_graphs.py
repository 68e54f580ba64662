"""Graphs as lists of edges: those of grids, and checks of a user's."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from directloss._checks import check_count, fail

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
    edges = [torch.empty(0, 2, dtype=torch.long)]
    for down, right in steps:
        inside = (row + down >= 0) & (row + down < height) & (column + right >= 0) & (column + right < width)
        cell = (row * width + column)[inside]
        edges.append(torch.stack([cell, cell + down * width + right], 1))
    return torch.cat(edges)


def acyclic(edges: Tensor, nodes: int) -> bool:
    """Whether no walk along edges (tail, head) visits a node twice."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components  # slow to import

    tail, head = edges.numpy().astype(np.int32).T  # older versions of scipy need int32
    table = csr_array((np.ones(len(edges)), (tail, head)), shape=(nodes, nodes))
    parts: int = connected_components(table, connection="strong", return_labels=False)
    return parts == nodes and bool((tail != head).all())


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
