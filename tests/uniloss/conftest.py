"""Problems that the tests of UniLoss share."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

Problem = tuple[str, Tensor, Tensor]


def problem(name: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Small random scores and a target for one of the metrics with a name."""
    draw = torch.Generator().manual_seed(seed)
    if name == "ap":
        target = torch.zeros(14, dtype=torch.long)
        target[torch.randperm(14, generator=draw)[:5]] = 1
        return torch.randn(14, generator=draw, dtype=dtype), target
    if name == "accuracy":
        return torch.randn(9, 4, generator=draw, dtype=dtype), torch.randint(4, (9,), generator=draw)
    heatmaps = torch.randn(3, 2, 4, 5, generator=draw, dtype=dtype)
    target = (torch.rand(3, 2, 4, 5, generator=draw) < 0.2).long()
    target[..., 0, 0], target[..., 3, 4] = 1, 0
    return heatmaps, target


@pytest.fixture(params=["ap", "accuracy", "pckh"])
def named(request: pytest.FixtureRequest) -> Problem:
    """Each metric that has a name, with scores and target."""
    return request.param, *problem(request.param)
