"""The one network of the synthetic experiments."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor, nn


class Scorer(nn.Module):
    """A ReLU network with one output; with no hidden layers, a linear scorer ``w . x``.

    Inputs ``(n, d)``, scores ``(n,)``. ``bias`` belongs to the linear scorer only, whose paper has none.

    Example:
        >>> Scorer(10, (10, 10, 10)).depth
        4
    """

    def __init__(self, inputs: int, hidden: Sequence[int], bias: bool = True) -> None:
        super().__init__()
        widths = [inputs, *hidden, 1]
        layers: list[nn.Module] = []
        for left, right in itertools.pairwise(widths):
            layers += [nn.Linear(left, right, bias=bias), nn.ReLU()]
        self.depth = len(widths) - 1
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """One score per item."""
        scores: Tensor = self.layers(x).squeeze(-1)
        return scores


class TwoWay(nn.Module):
    """A ReLU network with two outputs, of which the score is the difference: second minus first.

    The cross-entropy of two classes depends on that difference alone, and is the binary one of it.

    Example:
        >>> import torch
        >>> TwoWay(784, (500, 300))(torch.zeros(3, 784)).shape
        torch.Size([3])
    """

    def __init__(self, inputs: int, hidden: Sequence[int]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for left, right in itertools.pairwise([inputs, *hidden]):
            layers += [nn.Linear(left, right), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear([inputs, *hidden][-1], 2))

    def forward(self, x: Tensor) -> Tensor:
        """One score per item."""
        first, second = self.layers(x).unbind(-1)
        scores: Tensor = second - first
        return scores
