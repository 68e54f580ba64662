"""How times are measured: one thread, the minimum of several repeats, each long enough for the clock.

Times are CPU times, which other programs on the machine disturb less than wall-clock time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]


def seconds(run: Callable[[], object], repeats: int = 25, at_least: float = 0.01) -> float:
    """The shortest time of one call. The first call, which may compile, is not counted."""
    run()
    start = time.process_time()
    run()
    calls = max(1, int(at_least / max(time.process_time() - start, 1e-7)))
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(calls):
            run()
        best = min(best, (time.process_time() - start) / calls)
    return best


def step(loss: Loss, scores: Tensor, target: Tensor) -> Callable[[], None]:
    """A function that runs forward and backward of a loss on the same scores."""
    leaf = scores.clone().requires_grad_()

    def run() -> None:
        leaf.grad = None
        loss(leaf, target).backward()

    return run


def imbalanced(n: int, auc_shift: float = 1.8, share: float = 0.1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Scores of a half-trained network: two Gaussians, a shift of 1.8 gives an AUC of 0.9; 10 % positives."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.rand(n, generator=generator) < share
    target[:2] = torch.tensor([True, False])
    return torch.randn(n, generator=generator) + auc_shift * target, target.long()
