"""Whether any scores have given binaries, for anchors in bit space."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from directloss._uniloss.comparisons import Comparisons, Differences, Pairs


def consistent(comparisons: Comparisons, bits: Tensor) -> Tensor:
    """Which configurations ``(k, l)`` are those of some scores, boolean ``(k,)``."""
    if isinstance(comparisons, Pairs):
        return torch.stack([consistent_pairs(table) for table in comparisons.tables(bits)]).all(0)
    return consistent_differences(comparisons, bits)


def consistent_pairs(bits: Tensor) -> Tensor:
    """For relevant against irrelevant scores: the sets of beaten irrelevant scores must form a chain.

    Args:
        bits: boolean ``(..., p, n)``, whether relevant score p is above irrelevant score n.

    Returns:
        Boolean ``(...)``.

    Examples:
        >>> consistent_pairs(torch.tensor([[[True, True], [True, False]], [[True, False], [False, True]]]))
        tensor([ True, False])
    """
    beaten = bits.sum(-1)
    order = torch.argsort(beaten, dim=-1, descending=True, stable=True)
    ranked = bits.gather(-2, order.unsqueeze(-1).expand(bits.shape))
    more, less = ranked[..., :-1, :], ranked[..., 1:, :]
    return ~(less & ~more).flatten(-2).any(-1)


def consistent_differences(comparisons: Comparisons, bits: Tensor) -> Tensor:
    """For any comparisons of two scores, or of a score with a constant: "above" must have no cycle.

    "Left above right" is a strict edge, its negation a reverse edge that allows a tie. The binaries contradict
    themselves if a strict edge lies on a cycle. Comparisons of any other form count as consistent.

    Args:
        comparisons: those of one problem.
        bits: boolean ``(k, l)``.

    Returns:
        Boolean ``(k,)``.
    """
    if not isinstance(comparisons, Differences) or _shifted(*comparisons.all_parts):
        return torch.ones(len(bits), dtype=torch.bool, device=bits.device)
    nodes = _Nodes(*comparisons.all_parts)
    return torch.tensor([nodes.consistent(row) for row in bits.cpu().numpy()], device=bits.device)


def _shifted(left: Tensor, right: Tensor, offset: Tensor | None) -> bool:
    """Whether two scores are compared with an offset."""
    return offset is not None and bool((offset[right >= 0] != 0).any())


class _Nodes:
    """Scores and constants as nodes of a graph; constants are linked in order of size."""

    def __init__(self, left: Tensor, right: Tensor, offset: Tensor | None) -> None:
        self.left, self.right = left.cpu().numpy(), right.cpu().numpy().copy()
        self.count = int(max(self.left.max(initial=0), self.right.max(initial=0))) + 1
        alone = self.right < 0
        level = np.zeros(len(self.left)) if offset is None else -offset.cpu().double().numpy()
        constants, place = np.unique(level[alone], return_inverse=True)
        self.right[alone] = self.count + place
        self.constants = np.arange(self.count, self.count + len(constants))
        self.count += len(constants)

    def consistent(self, bits: NDArray[np.bool_]) -> bool:
        from scipy.sparse import coo_matrix  # imported lazily: slow to import
        from scipy.sparse.csgraph import connected_components

        above = np.concatenate([np.where(bits, self.left, self.right), self.constants[1:]])
        below = np.concatenate([np.where(bits, self.right, self.left), self.constants[:-1]])
        strict = np.concatenate([bits, np.ones(max(0, len(self.constants) - 1), dtype=bool)])
        graph = coo_matrix((np.ones(len(above), dtype=np.int8), (above, below)), shape=(self.count, self.count))
        circle = connected_components(graph, connection="strong")[1]
        return not bool((strict & (circle[above] == circle[below])).any())
