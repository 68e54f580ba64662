"""Scores as lists, along a dimension or all as one, and the pairs inside lists."""

from __future__ import annotations

import torch
from torch import Tensor

MOST = 1 << 22
"""The most pairs that are listed."""


def rows(shape: torch.Size, dim: int | None, device: torch.device) -> Tensor:
    """The number of the list that each score is in, shape ``(m,)``: lists along ``dim``, or a single one for None."""
    if dim is None:
        return torch.zeros(shape.numel(), dtype=torch.long, device=device)
    sizes = [1 if d == dim else size for d, size in enumerate(shape)]
    return torch.arange(torch.Size(sizes).numel(), device=device).reshape(sizes).expand(shape).reshape(-1)


def lists_of(pairs: Tensor, shape: torch.Size) -> int | None:
    """The dimension along which all these pairs (codes) lie; None if there is none."""
    m = shape.numel()
    for dim in range(len(shape) - 1, -1, -1):
        row = rows(shape, dim, pairs.device)
        if bool((row[pairs // m] == row[pairs % m]).all()):
            return dim
    return None


def lists_along(shape: torch.Size, dim: int | None, device: torch.device) -> Tensor:
    """Lists ``(b, n)`` along ``dim``; a single one for None; none for -1."""
    index = torch.arange(shape.numel(), device=device)
    if dim is None:
        return index.reshape(1, -1)
    return index[:0].reshape(0, 1) if dim < 0 else index.reshape(shape).movedim(dim, -1).reshape(-1, shape[dim])


def all_pairs(lists: Tensor, m: int) -> Tensor | None:
    """The sorted codes ``i * m + j`` of all pairs ``i < j`` inside the lists; None for more than `MOST`."""
    b, n = lists.shape
    if b * n * (n - 1) // 2 > MOST:
        return None
    i, j = torch.triu_indices(n, n, 1, device=lists.device)
    return (lists[:, i] * m + lists[:, j]).reshape(-1).sort().values
