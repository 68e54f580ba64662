"""Rows of lists of different lengths, as padded tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from directloss._checks import fail


@dataclass(frozen=True)
class QueryLists:
    """Which rows belong to which list.

    ``place`` is the row of each padded entry ``(q, n)``; ``mask`` is False for padding.
    """

    place: Tensor
    mask: Tensor
    rows: Tensor
    """The rows of these lists, one list after the other."""

    @classmethod
    def of(cls, count: int, group: Any = None, qid: Any = None) -> QueryLists:
        """The lists of ``count`` rows: by the sizes of consecutive lists, by a name per row, or one list of all.

        Examples:
            >>> QueryLists.of(5, qid=["b", "a", "b", "b", "a"]).place
            tensor([[1, 4, 0],
                    [0, 2, 3]])
        """
        if group is not None and qid is not None:
            fail("group", "must be left out if qid is given", "given as well")
        names = np.zeros(count, np.int64) if qid is None else np.asarray(qid)
        if group is not None:
            sizes = np.asarray(group)
            if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 1).any() or sizes.sum() != count:
                told = f", with {sizes.sum()} rows in total" if sizes.dtype.kind in "iu" else ""
                shown = np.array2string(sizes, threshold=6, separator=", ")
                fail("group", f"must hold the sizes of lists with {count} rows in total, each at least 1", shown + told)
            names = np.repeat(np.arange(len(sizes)), sizes)
        if names.shape != (count,):
            fail("qid", f"must have one entry for each of the {count} rows", f"of shape {names.shape}")
        if missing := int((names != names).sum()) + sum(name is None for name in names if names.dtype == object):
            fail("qid", "must name the list of each row", f"missing (NaN or None) in {missing} of {count} rows")
        _, owner, sizes = np.unique(names, return_inverse=True, return_counts=True)
        order = torch.from_numpy(np.argsort(owner, kind="stable"))
        return cls._padded(order, torch.from_numpy(sizes))

    @classmethod
    def _padded(cls, rows: Tensor, sizes: Tensor) -> QueryLists:
        mask = torch.arange(int(sizes.max())) < sizes.unsqueeze(1)
        place = torch.zeros(mask.shape, dtype=torch.long)
        place[mask] = rows
        return cls(place, mask, rows)

    def __len__(self) -> int:
        return len(self.mask)

    @property
    def longest(self) -> int:
        """Number of rows of the longest list."""
        return self.mask.shape[1]

    def pad(self, values: Tensor) -> Tensor:
        """One value per row ``(rows,)`` as ``(q, n)`` on the same device; 0 in padding."""
        return torch.where(self.mask.to(values.device), values[self.place.to(values.device)], 0)

    def take(self, which: Tensor) -> QueryLists:
        """Some of the lists, with rows renumbered in the order of ``rows``."""
        mask, place = self.mask[which], self.place[which]
        kept, sizes = place[mask], mask.sum(1)
        taken = QueryLists._padded(torch.arange(len(kept)), sizes)
        return QueryLists(taken.place, taken.mask, kept)
