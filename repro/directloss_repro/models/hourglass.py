"""One stack of the hourglass network: Newell, Yang, Deng, Stacked Hourglass Networks (ECCV 2016), Sec. 3.

The image shrinks to a quarter, then an hourglass goes down by halves and up again, with a skip connection at each size,
and ends in one heatmap per joint. ``width`` is the number of channels, 256 in the paper; ``depth`` is the number of
halvings, 4 in the paper.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from directloss_repro.models.images import ImageNetwork


class Residual(nn.Module):
    """The pre-activation bottleneck block: 1 x 1, 3 x 3, 1 x 1, and a skip connection."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = max(1, outputs // 2)
        self.layers = nn.Sequential(
            *(nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, half, 1)),
            *(nn.BatchNorm2d(half), nn.ReLU(), nn.Conv2d(half, half, 3, padding=1)),
            *(nn.BatchNorm2d(half), nn.ReLU(), nn.Conv2d(half, outputs, 1)),
        )
        self.around = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The same height and width."""
        result: Tensor = self.layers(x) + self.around(x)
        return result


class Glass(nn.Module):
    """Halve, recurse, double, and add the skip connection."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.around = Residual(width, width)
        self.down = Residual(width, width)
        self.inside: nn.Module = Glass(width, depth - 1) if depth > 1 else Residual(width, width)
        self.up = Residual(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape; odd sizes are rounded down inside and stretched to fit on the way up."""
        low = self.up(self.inside(self.down(F.max_pool2d(x, 2))))
        result: Tensor = self.around(x) + F.interpolate(low, size=x.shape[-2:], mode="nearest")
        return result


class Hourglass(ImageNetwork):
    """Images ``(n, channels, h, w)`` to heatmaps ``(n, joints, h / 4, w / 4)``.

    Example:
        >>> import torch
        >>> Hourglass(3, 5, width=16, depth=3)(torch.zeros(2, 3, 64, 48)).shape
        torch.Size([2, 5, 16, 12])
    """

    def __init__(self, channels: int, joints: int, width: int = 256, depth: int = 4, *, bfloat16: bool = False) -> None:
        super().__init__(bfloat16=bfloat16)
        quarter = max(1, width // 4)
        self.stem = nn.Sequential(
            *(nn.Conv2d(channels, quarter, 7, 2, 3), nn.BatchNorm2d(quarter), nn.ReLU()),
            *(Residual(quarter, width // 2), nn.MaxPool2d(2)),
            *(Residual(width // 2, width // 2), Residual(width // 2, width)),
        )
        self.glass = Glass(width, depth)
        self.head = nn.Sequential(
            *(Residual(width, width), nn.Conv2d(width, width, 1), nn.BatchNorm2d(width), nn.ReLU()),
            nn.Conv2d(width, joints, 1),
        )

    def score(self, x: Tensor) -> Tensor:
        """One heatmap per joint."""
        heatmaps: Tensor = self.head(self.glass(self.stem(x)))
        return heatmaps
