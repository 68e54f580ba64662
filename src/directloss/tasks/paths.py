"""Best paths: in directed graphs with a score per edge, and in grids with a score per cell.

A higher score is a better edge: score = -cost. Loss-augmented scores can be positive, so that cycles pay off. To have a
best output for scores of *any* sign, outputs are the walks from source to goal with at most ``max_edges`` edges, a
finite set, and found by the recursion of Bellman and Ford. For non-positive scores the best walk is the shortest simple
path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from directloss._checks import check_choice, check_count, fail, name_of
from directloss.tasks.decomposable import TRIALS, Decomposable, GivenCosts, by_kernel, refuse_truth

_STRAIGHT = [(0, 1), (1, 0), (0, -1), (-1, 0)]
STEPS = {
    "4": _STRAIGHT,
    "8": [*_STRAIGHT, (1, 1), (1, -1), (-1, 1), (-1, -1)],
    "monotone": [(0, 1), (1, 0)],
}
"""The steps (rows down, columns right) of each connectivity."""


class ShortestPath(Decomposable):
    """The best path from a source to a goal in a directed graph, with a score per edge.

    ``F = sum_e score_e * y_e``, where ``y_e`` is how often the walk takes edge e. The default loss, ``"off-path"``, is
    the number of steps off the true path, over ``max_edges``: in [0, 1], and 0 only for the true path (the edges of a
    simple path lead nowhere else). Missed edges need no cost of their own, because a walk that misses one takes steps
    off the path.

    ``loss="regret"`` takes the true costs of the edges as target: L is the true cost of the walk minus that of the
    cheapest. A function ``loss(target) -> (costs, constant)`` defines any other loss that is a sum over steps.

    Let the network predict minus a positive cost, ``-softplus(z)``: for non-positive scores the best walk is a simple
    path. The same holds for augmented scores with sign -1 and the default loss, so this is ``sign="auto"`` here; sign
    +1 with a large epsilon rewards cycles. Only ratios of costs matter, so divide them by their mean: otherwise sign -1
    lets all costs shrink and sign +1 lets them grow (``examples/shortest_path.py``).

    Args:
        edges: pairs (tail, head) of node numbers, shape ``(edges, 2)``.
        source: where paths start.
        goal: where paths end.
        num_nodes: number of nodes; by default one more than the largest node number in ``edges``.
        max_edges: maximal length of a walk, ``num_nodes - 1`` by default.
        loss: ``"off-path"``, ``"regret"`` or a function.
        truth: computes the true walk from the target, for your own loss.

    Shapes:
        scores ``(..., edges)``; target ``(..., edges)`` with 1 for the edges of the true path, or the true costs.

    References:
        Bellman 1958, Ford 1956 for the recursion; Song et al., ICML 2016, Sec. 3 for the loss-augmented problem.

    Examples:
        >>> task = ShortestPath([(0, 1), (1, 3), (0, 2), (2, 3)], source=0, goal=3)
        >>> scores, target = -torch.tensor([1.0, 1.0, 2.0, 2.0]), torch.tensor([0, 0, 1, 1])
        >>> task.predict(scores)
        tensor([1., 1., 0., 0.])
        >>> task.loss(task.predict(scores), target)
        tensor(0.6667)
        >>> task.augmented(scores, target, epsilon=6.0, sign=-1)
        tensor([0., 0., 1., 1.])
    """

    def __init__(
        self,
        edges: Tensor | Sequence[tuple[int, int]],
        source: int,
        goal: int,
        num_nodes: int | None = None,
        max_edges: int | None = None,
        *,
        loss: str | GivenCosts = "off-path",
        truth: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        pairs, nodes = edge_pairs(edges, num_nodes)
        for name, node in (("source", source), ("goal", goal)):
            if not (type(node) is int and 0 <= node < nodes):
                fail(name, f"must be a node number from 0 to {nodes - 1}", repr(node))
        self.source, self.goal, self.num_nodes = source, goal, nodes
        self.max_edges = max(nodes - 1, 1) if max_edges is None else check_count("max_edges", max_edges)
        super().__init__(loss, truth, {"off-path": self._off_path})
        if self._named is not None:  # see above: moving away from worse walks may run into cycles
            self.defaults = replace(self.defaults, sign=-1)
        self.num_edges = len(pairs)
        self.problem_shape = (self.num_edges,)
        self.shape_words = f"(..., {self.num_edges}), one score for each edge"
        self.tail, self.head = pairs.unbind(1)
        head = self.head.numpy()
        # Sorted by head: the edges into node v are entering[first[v] : first[v + 1]].
        self._entering, self._first = (
            np.argsort(head, kind="stable"),
            np.append(0, np.bincount(head, minlength=nodes).cumsum()),
        )
        if source != goal and not self._used(-torch.ones(1, self.num_edges)).any():
            rule = f"must lead from source {source} to goal {goal} in at most {self.max_edges} steps"
            fail("edges", rule, "a graph without such a walk")

    @property
    def places(self) -> int:
        """The maximal number of parts that a walk can use."""
        return self.max_edges

    def _off_path(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Steps off the true path, over the maximal number of steps."""
        return 1 - t, t.new_zeros(()), t.new_full((), self.places)

    def solve(self, scores: Tensor) -> Tensor:
        return self._used(scores.reshape(-1, self.num_edges)).reshape(scores.shape)

    def _used(self, edges: Tensor) -> Tensor:
        """How often the best walks take each edge, for edge scores ``(b, edges)``."""
        from directloss.kernels.decisions import walks  # numba is slow to import

        graph = self._first, self._entering, self.tail.numpy()
        return by_kernel(walks, edges, *graph, self.source, self.goal, self.max_edges)

    def trial_outputs(self, shape: tuple[int, ...]) -> Tensor:
        scores = torch.randn(TRIALS, *shape, generator=torch.Generator().manual_seed(0))
        forward = acyclic(torch.stack((self.tail, self.head), 1), self.num_nodes)
        return self.solve(scores if forward else -scores.abs())  # no walks in circles

    def check_truth(self, target: Tensor) -> None:
        """As many edges leave each node as enter it, except one more at the source and one less at the goal."""
        flow = target.reshape(-1, self.num_edges).float().cpu()
        balance = flow.new_zeros(len(flow), self.num_nodes)
        balance.index_add_(1, self.tail, flow).index_add_(1, self.head, -flow)
        balance[:, self.source] -= 1
        balance[:, self.goal] += 1
        if bool(balance.any()):
            problem, node = balance.nonzero()[0].tolist()
            rule = f"must mark a path from {self.source} to {self.goal}"
            refuse_truth(rule, f"broken at node {node} in problem {problem}", "path")

    def __repr__(self) -> str:
        return (
            f"ShortestPath({self.num_edges} edges, source={self.source}, goal={self.goal}, "
            f"max_edges={self.max_edges}, loss={name_of(self.criterion)})"
        )


class GridPath(ShortestPath):
    """The best path through a grid, by default from the top left to the bottom right, with a score per cell.

    ``F = sum_v score_v * y_v``, where ``y_v`` is how often the walk visits cell v, the start included (score = -cost of
    entering the cell). The default loss, ``"off-path"``, is the number of visits to cells off the true path, over the
    maximal number of visits, ``max_edges + 1``; in [0, 1]. With ``"monotone"`` steps it is the share of wrong cells,
    and 0 only for the true path. Otherwise it is 0 for every walk on the true cells, even one that steps back and
    forth, which is never the best for non-positive scores. Your own losses, ``"regret"`` and the advice about signs
    are as in `ShortestPath`.

    Args:
        height: rows of the grid.
        width: columns of the grid.
        connectivity: 4 or 8 neighbours, or ``"monotone"``: one step right or one step down.
        start: row and column of the first cell.
        goal: row and column of the last cell, by default the bottom right.
        max_edges: maximal length of a walk; by default ``height * width - 1``, or that of a monotone path.
        loss: ``"off-path"``, ``"regret"`` or a function.
        truth: computes the true walk from the target, for your own loss.

    Shapes:
        scores ``(..., height, width)``; target the same with 1 for the cells of the true path, or the true costs.

    Examples:
        >>> task = GridPath(2, 3, "monotone")
        >>> task.predict(-torch.tensor([[1.0, 9.0, 9.0], [1.0, 1.0, 1.0]]))
        tensor([[1., 0., 0.],
                [1., 1., 1.]])
        >>> GridPath(3, 3, 8).predict(-torch.ones(3, 3))
        tensor([[1., 0., 0.],
                [0., 1., 0.],
                [0., 0., 1.]])
    """

    event_dims = target_dims = 2

    def __init__(
        self,
        height: int,
        width: int,
        connectivity: int | str = 4,
        *,
        start: Sequence[int] = (0, 0),
        goal: Sequence[int] | None = None,
        max_edges: int | None = None,
        loss: str | GivenCosts = "off-path",
        truth: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.height, self.width = check_count("height", height), check_count("width", width)
        if height * width < 2:
            fail("height * width", "must be at least 2: a path needs a step", height * width)
        check_choice("connectivity", str(connectivity), STEPS)
        self.connectivity = connectivity
        ends = {"start": start, "goal": (height - 1, width - 1) if goal is None else goal}
        for name, cell in ends.items():
            if not (len(cell) == 2 and 0 <= cell[0] < height and 0 <= cell[1] < width):
                fail(name, f"must be a row and a column of the {height} x {width} grid", cell)
        (top, left), (bottom, right) = ends["start"], ends["goal"]
        if max_edges is None and connectivity == "monotone":
            max_edges = max(bottom - top + right - left, 1)
        source, sink = top * width + left, bottom * width + right
        edges = grid_edges(height, width, STEPS[str(connectivity)])
        super().__init__(edges, source, sink, height * width, max_edges, loss=loss, truth=truth)
        self.problem_shape = (height, width)
        self.shape_words = f"(..., {height}, {width})"

    @property
    def places(self) -> int:
        return self.max_edges + 1

    def solve(self, scores: Tensor) -> Tensor:
        cells = scores.reshape(-1, self.num_nodes)
        entered = self.head.to(cells.device)
        visits = torch.zeros_like(cells).index_add_(1, entered, self._used(cells[:, entered]))
        visits[:, self.source] += 1
        return visits.reshape(scores.shape)

    def check_truth(self, target: Tensor) -> None:
        """Start and goal are marked, and each marked cell has a marked predecessor and successor."""
        cells = target.reshape(-1, self.num_nodes).float().cpu()
        joined = cells[:, self.tail] * cells[:, self.head]
        entered = torch.zeros_like(cells).index_add_(1, self.head, joined)
        left = torch.zeros_like(cells).index_add_(1, self.tail, joined)
        entered[:, self.source] += 1
        left[:, self.goal] += 1
        broken = (cells > 0) & ((entered == 0) | (left == 0))
        broken[:, [self.source, self.goal]] |= cells[:, [self.source, self.goal]] == 0
        if bool(broken.any()):
            problem, cell = broken.nonzero()[0].tolist()
            gap = f"broken at cell {divmod(cell, self.width)} in problem {problem}"
            refuse_truth("must mark the cells of a path from start to goal", gap, "path")

    def __repr__(self) -> str:
        return (
            f"GridPath({self.height}, {self.width}, {self.connectivity!r}, "
            f"max_edges={self.max_edges}, loss={name_of(self.criterion)})"
        )


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
