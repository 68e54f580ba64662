"""ResNet-20 for small images: He et al., Deep Residual Learning for Image Recognition (CVPR 2016), Sec. 4.2."""

from __future__ import annotations

import itertools

import torch.nn.functional as F
from torch import Tensor, nn

from directloss_repro.models.images import ImageNetwork

BLOCKS = 3
"""Blocks of each of the three stages: 6 * 3 + 2 = 20 layers."""


class Block(nn.Module):
    """Two 3 x 3 convolutions and a skip connection.

    Where the size halves and the channels double, the skip connection takes every second pixel and adds channels of
    zeros (option A of the paper): it has no weights.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.stride = 1 if inputs == outputs else 2
        self.added = outputs - inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Shape ``(n, inputs, h, w)`` to ``(n, outputs, h / stride, w / stride)``."""
        around = F.pad(x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added))
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + around)


class ResNet20(ImageNetwork):
    """Images ``(n, channels, h, w)`` to scores ``(n, classes)``.

    ``width`` is the number of channels of the first stage, 16 in the paper; the other stages have twice and four times
    as many.

    Example:
        >>> sum(weight.numel() for weight in ResNet20(3, 10).parameters())
        269722
    """

    def __init__(self, channels: int, classes: int, width: int = 16, *, bfloat16: bool = False) -> None:
        super().__init__(bfloat16=bfloat16)
        self.first = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        widths = [width] * (BLOCKS + 1) + [2 * width] * BLOCKS + [4 * width] * BLOCKS
        self.blocks = nn.Sequential(*(Block(a, b) for a, b in itertools.pairwise(widths)))
        self.last = nn.Linear(4 * width, classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def score(self, x: Tensor) -> Tensor:
        """One score per class."""
        y = self.blocks(F.relu(self.norm(self.first(x))))
        scores: Tensor = self.last(y.mean((-1, -2)))
        return scores
