"""Round trips: the travelling salesman."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from torch import Tensor

from directloss._checks import check_count
from directloss.tasks.decomposable import Decomposable, GivenCosts, by_kernel, name_of, refuse_truth


class Tour(Decomposable):
    """The best round trip through n nodes, with a score per pair of nodes (score = -cost).

    ``F = sum_e score_e * y_e`` over the n edges of the tour. The pairs are in the order of `edges`: ``(0, 1), (0, 2),
    ... (n - 2, n - 1)``. With ``loss="regret"`` the target holds the true costs of the pairs.

    Exact, by branch and bound with the Held-Karp bound: less than a tenth of a millisecond for 20 nodes, half a
    millisecond for 30, and longer if many tours are equally good. For many more nodes, pass your own solver to
    `SolverTask`.

    Args:
        num_nodes: at least 3.
        loss: ``"regret"``, ``"missed"``, ``"hamming"`` (see `SolverTask`) or a function.
        truth: computes the true tour from the target, for your own loss.

    Shapes:
        scores ``(..., n (n - 1) / 2)``; target the same, the true costs, or 1 for the edges of the true tour.

    References:
        Held, Karp 1971; Volgenant, Jonker 1982.

    Examples:
        >>> import torch
        >>> task = Tour(4)
        >>> task.edges
        [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
        >>> task.predict(-torch.tensor([1.0, 5.0, 1.0, 1.0, 5.0, 1.0]))
        tensor([1., 0., 1., 1., 0., 1.])
    """

    def __init__(
        self,
        num_nodes: int,
        *,
        loss: str | GivenCosts = "regret",
        truth: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(loss, truth)
        self.num_nodes = check_count("num_nodes", num_nodes, least=3)
        self.edges = list(combinations(range(num_nodes), 2))
        """The pair of nodes of each part."""
        self.problem_shape = (len(self.edges),)
        self.shape_words = f"(..., {len(self.edges)}), one score for each pair of {num_nodes} nodes"

    def solve(self, scores: Tensor) -> Tensor:
        from directloss.kernels.tours import tours  # numba is slow to import

        return by_kernel(tours, scores, self.num_nodes)

    def check_truth(self, target: Tensor) -> None:
        """Each node has two edges, and one round trip visits all nodes."""
        for problem, marks in enumerate(target.reshape(-1, len(self.edges)).tolist()):
            beside: list[list[int]] = [[] for _ in range(self.num_nodes)]
            for (a, b), used in zip(self.edges, marks, strict=True):
                if used:
                    beside[a].append(b)
                    beside[b].append(a)
            seen, at = [0], 0
            while all(len(near) == 2 for near in beside) and (onward := [v for v in beside[at] if v not in seen]):
                at = onward[0]
                seen.append(at)
            if len(seen) < self.num_nodes:
                rule = f"must mark a round trip over {self.num_nodes} nodes"
                refuse_truth(rule, f"none in problem {problem}", "tour")

    def __repr__(self) -> str:
        return f"Tour({self.num_nodes}, loss={name_of(self.criterion)})"
