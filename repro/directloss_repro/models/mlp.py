"""The multilayer perceptron of the experiments without images."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from directloss.integrations._fitting import layers


class Scorer(nn.Module):
    """A ReLU network; with no hidden layers, a linear scorer ``w . x``.

    Inputs ``(n, d)``, scores ``(n,)``. With two outputs the score is their difference, second minus first, of which the
    cross-entropy of two classes is a function. ``bias=False`` is for the linear scorer, whose paper has none.

    Example:
        >>> import torch
        >>> Scorer(784, (500, 300), outputs=2)(torch.zeros(3, 784)).shape
        torch.Size([3])
    """

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int = 1, bias: bool = True) -> None:
        super().__init__()
        self.layers = layers([inputs, *hidden, outputs], bias)

    def forward(self, x: Tensor) -> Tensor:
        """One score per item."""
        scores: Tensor = self.layers(x)
        return scores[..., 0] if scores.shape[-1] == 1 else scores[..., 1] - scores[..., 0]
