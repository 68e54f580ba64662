"""Lists of relevant and irrelevant scores, one after another: pairs of lists of any sizes, and the compiled form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from directloss._uniloss.comparisons import Comparisons, Differences, Pairs


class Ragged(Differences):
    """Every relevant score of a list against every irrelevant one, for lists of any sizes, without storing the pairs.

    Args:
        relevant: indices ``(p,)`` of the flattened scores, list after list.
        irrelevant: indices ``(n,)``, list after list.
        sizes: shape ``(lists, 2)``, how many relevant and irrelevant scores each list has; none has zero.

    Examples:
        >>> both = Ragged(torch.tensor([0, 2, 3]), torch.tensor([1, 4]), torch.tensor([[1, 1], [2, 1]]))
        >>> both.values(torch.tensor([3.0, 1.0, 0.0, 5.0, 4.0]))
        tensor([ 2., -4.,  1.])
    """

    def __init__(self, relevant: Tensor, irrelevant: Tensor, sizes: Tensor) -> None:
        self.relevant, self.irrelevant, self.sizes = relevant, irrelevant, sizes
        ups, downs = sizes.unbind(-1)
        each = downs.repeat_interleave(ups)
        self._ends = each.cumsum(0)
        """Where the pairs of each relevant score end."""
        # What has to be added to a pair's number to get its irrelevant score's.
        self._shift = (downs.cumsum(0) - downs).repeat_interleave(ups) - (self._ends - each)
        self.count = int(self._ends[-1])
        self.any_alone, self.offset = False, None

    def values(self, scores: Tensor) -> Tensor:
        """The comparisons, list by list, relevant score by relevant score."""
        left, right, _ = self.parts(torch.arange(self.count, device=scores.device))
        return scores[..., left] - scores[..., right]

    def parts(self, which: Tensor) -> tuple[Tensor, Tensor, None]:
        """Left and right of some comparisons, by a search among the relevant scores."""
        row = torch.searchsorted(self._ends, which.contiguous(), right=True)
        return self.relevant[row], self.irrelevant[which + self._shift[row]], None

    def of_score(self, scores: Tensor, item: int) -> Tensor:
        """Those with the score on either side."""
        left, right, _ = self.parts(torch.arange(self.count, device=scores.device))
        return (left == item) | (right == item)


class Layout(NamedTuple):
    """Lists as `directloss.kernels.pairs` reads them: all arrays of integers."""

    relevant: Any
    irrelevant: Any
    ups: Any
    """Where the relevant scores of each list begin, and the end of the last: ``(lists + 1,)``."""
    downs: Any
    starts: Any

    @property
    def bounds(self) -> tuple[Any, Any, Any]:
        """Where lists begin among the relevant scores, the irrelevant scores and the pairs."""
        return self.ups, self.downs, self.starts

    def single(self) -> Iterator[tuple[Any, Any, Any]]:
        """The bounds of each relevant score alone, as a list of one."""
        for t in range(len(self.ups) - 1):
            width = self.downs[t + 1] - self.downs[t]
            for i in range(self.ups[t], self.ups[t + 1]):
                pair = self.starts[t] + (i - self.ups[t]) * width
                yield np.array([i, i + 1]), self.downs[t : t + 2], np.array([pair, pair + width])

    def place(self, pairs: Any) -> tuple[Any, Any, Any]:
        """List, relevant score and irrelevant score of some pairs."""
        t = np.searchsorted(self.starts, pairs, side="right") - 1
        rest, width = pairs - self.starts[t], self.downs[t + 1] - self.downs[t]
        return t, self.ups[t] + rest // width, self.downs[t] + rest % width

    def find(self, items: Any, count: int) -> tuple[Any, Any, Any]:
        """List, relevant score and irrelevant score of some of ``count`` scores; -1 for what a score is not.

        A score that is in no list is said to be in the first one, as neither.
        """
        found = []
        for members in (self.relevant, self.irrelevant):
            place = np.full(count, -1)
            place[members] = np.arange(len(members))
            found.append(place[items])
        up, down = found
        lists = [np.searchsorted(bounds, at, side="right") - 1 for bounds, at in ((self.ups, up), (self.downs, down))]
        return np.where(up >= 0, lists[0], lists[1]).clip(min=0), up, down


def layout(pairs: Comparisons) -> Layout | None:
    """The layout of pairs in lists; None for comparisons of another form."""
    if type(pairs) is Pairs:
        lists, p, n = pairs.shape
        steps = np.arange(lists + 1)
        up, down = (part.flatten().numpy() for part in (pairs.relevant, pairs.irrelevant))
        return Layout(up, down, p * steps, n * steps, p * n * steps)
    if type(pairs) is Ragged:
        sizes = torch.cat([pairs.sizes, pairs.sizes.prod(-1, keepdim=True)], -1)
        ups, downs, starts = torch.nn.functional.pad(sizes.cumsum(0), (0, 0, 1, 0)).T.contiguous()
        return Layout(*(part.numpy() for part in (pairs.relevant, pairs.irrelevant, ups, downs, starts)))
    return None
