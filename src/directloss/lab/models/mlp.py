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
