"""Spanning trees: the best edges that connect all nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from directloss._checks import fail
from directloss.tasks._graphs import edge_pairs
from directloss.tasks.decomposable import Decomposable, GivenCosts, by_kernel, name_of, refuse_truth


class SpanningTree(Decomposable):
    """The best spanning tree of an undirected graph, with a score per edge (score = -cost).

    ``F = sum_e score_e * y_e`` over the ``num_nodes - 1`` edges of the tree. With ``loss="regret"`` the target holds
    the true costs of the edges; L is the cost of the tree minus that of the cheapest. Exact by Kruskal's algorithm,
    O(edges log edges).

    Args:
        edges: pairs of node numbers, shape ``(edges, 2)``.
        num_nodes: number of nodes; by default one more than the largest node number in ``edges``.
        loss: ``"regret"``, ``"missed"``, ``"hamming"`` (see `SolverTask`) or a function.
        truth: computes the true tree from the target, for your own loss.

    Shapes:
        scores ``(..., edges)``; target ``(..., edges)``, the true costs, or 1 for the edges of the true tree.

    References:
        Kruskal 1956.

    Examples:
        >>> task = SpanningTree([(0, 1), (1, 2), (0, 2)])
        >>> task.predict(-torch.tensor([1.0, 5.0, 2.0]))
        tensor([1., 0., 1.])
    """

    def __init__(
        self,
        edges: Tensor | Sequence[tuple[int, int]],
        num_nodes: int | None = None,
        *,
        loss: str | GivenCosts = "regret",
        truth: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(loss, truth)
        self.edges, self.num_nodes = edge_pairs(edges, num_nodes)
        self.num_edges = len(self.edges)
        self.problem_shape = (self.num_edges,)
        self.shape_words = f"(..., {self.num_edges}), one score for each edge"
        if int(self.solve(torch.zeros(self.num_edges)).sum()) != self.num_nodes - 1:
            fail("edges", f"must connect all {self.num_nodes} nodes", "a graph in several pieces")

    def solve(self, scores: Tensor) -> Tensor:
        from directloss.kernels.decisions import spanning_trees  # numba is slow to import

        tail, head = self.edges.numpy().T
        return by_kernel(spanning_trees, scores, tail.copy(), head.copy(), self.num_nodes)

    def check_truth(self, target: Tensor) -> None:
        """The true tree has the right size and is the best one with its own marks as scores."""
        truth = target.double()
        broken = (truth.sum(-1) != self.num_nodes - 1) | (self.solve(truth) != truth).any(-1)
        if bool(broken.any()):
            value = f"none in problem {int(broken.flatten().nonzero()[0])}"
            refuse_truth(f"must mark a spanning tree of {self.num_nodes - 1} edges", value, "tree")

    def __repr__(self) -> str:
        return f"SpanningTree({self.num_edges} edges, num_nodes={self.num_nodes}, loss={name_of(self.criterion)})"
