"""Concatenated lists of relevant and irrelevant scores, as compiled loops read them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np


class Layout(NamedTuple):
    """Lists for `directloss.kernels.pairs`, as integer arrays."""

    relevant: Any
    irrelevant: Any
    lows: Any
    """Where the rivals of each relevant score begin, among the irrelevant ones."""
    firsts: Any
    """Where its pairs begin."""
    spans: tuple[Any, Any, Any]
    """For the loops, unsigned: lows, the number of rivals of each relevant score, and firsts."""
    size: int
    """How many pairs there are."""
    ups: Any
    """Where the relevant scores of each list begin."""

    @classmethod
    def of(cls, relevant: Any, irrelevant: Any, ups: Any, downs: Any) -> Layout:
        """Lists with these numbers of relevant and irrelevant scores, all positive."""
        return cls(relevant, irrelevant, *(_block(*ups, *downs) if len(ups) == 1 else _blocks(ups, downs)))

    @property
    def sides(self) -> tuple[Any, Any]:
        """The indices of both sides, unsigned."""
        return unsigned(self.relevant), unsigned(self.irrelevant)

    def place(self, pairs: Any) -> tuple[Any, Any]:
        """The relevant and the irrelevant score of some pairs."""
        if len(self.ups) == 1:
            return np.divmod(pairs, len(self.irrelevant))
        up = self.firsts.searchsorted(pairs, "right") - 1
        return up, pairs - self.firsts[up] + self.lows[up]

    def find(self, items: Any, count: int) -> tuple[Any, Any]:
        """The places of some of ``count`` scores among the relevant and among the irrelevant ones; -1 if not there."""
        found = []
        for members in (self.relevant, self.irrelevant):
            place = np.full(count, -1)
            place[members] = np.arange(len(members))
            found.append(place[items])
        return found[0], found[1]


def unsigned(indices: Any) -> Any:
    """Indices as the loops read them: -1 becomes larger than any index."""
    return indices.view(np.uint64)


@lru_cache(maxsize=64)
def _block(p: int, n: int) -> tuple[Any, Any, tuple[Any, Any, Any], int, Any]:
    """The derived fields of a `Layout` with a single list."""
    return _blocks(np.array([p]), np.array([n]))


def _blocks(ups: Any, downs: Any) -> tuple[Any, Any, tuple[Any, Any, Any], int, Any]:
    widths, ends = downs.repeat(ups), downs.cumsum().repeat(ups)
    lows, firsts = ends - widths, widths.cumsum() - widths
    return lows, firsts, (unsigned(lows), unsigned(widths), unsigned(firsts)), int(widths.sum()), ups.cumsum() - ups


def of_labels(labels: Any) -> Layout | None:
    """The lists ``(b, n)`` of labels 1, 0 and -1 that have something to compare; None if no list has."""
    high, low = labels == 1, labels == 0
    ups, downs = high.sum(1), low.sum(1)
    kept = (ups > 0) & (downs > 0)
    if not kept.any():
        return None
    some = kept[:, None]
    return Layout.of((high & some).ravel().nonzero()[0], (low & some).ravel().nonzero()[0], ups[kept], downs[kept])
