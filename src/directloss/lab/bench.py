"""How long a loss takes, measured beside two things everybody knows: a sort, and cross-entropy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from directloss.direct import direct_loss
from directloss.lab.seeding import generator
from directloss.surrogates import hinge_loss

Step = Callable[[Tensor, Tensor], Tensor]

ROWS: dict[str, Step] = {
    "pos-ap": lambda scores, target: direct_loss(scores, target, "ap", sign=+1),
    "neg-ap": lambda scores, target: direct_loss(scores, target, "ap", sign=-1),
    "hinge-ap": lambda scores, target: hinge_loss(scores, target, "ap"),
    "cross-entropy": lambda scores, target: F.binary_cross_entropy_with_logits(scores, target.to(scores.dtype)),
    "torch.sort alone": lambda scores, target: scores.sort(descending=True).values.sum(),
}
"""What is measured. Scores are those of a half-trained network: positives are one deviation above negatives."""


def problem(n: int) -> tuple[Tensor, Tensor]:
    """Scores and labels of ``n`` items, a fifth of them positive."""
    target = (torch.arange(n) % 5 == 0).long()
    return torch.randn(n, generator=generator("bench", n)) + target, target


def measure(step: Step, n: int, seconds: float) -> float:
    """Median seconds of one forward and backward pass, after one that is not counted (it may compile)."""
    start, target = problem(n)
    scores = start.requires_grad_()
    times: list[float] = []
    _once(step, scores, target)
    began = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - began < seconds:
        times.append(_once(step, scores, target))
    return statistics.median(times)


def _once(step: Step, scores: Tensor, target: Tensor) -> float:
    scores.grad = None
    began = time.perf_counter()
    step(scores, target).backward()  # type: ignore[no-untyped-call]
    return time.perf_counter() - began


def measure_all(sizes: Sequence[int], seconds: float = 0.5, threads: int = 1) -> dict[tuple[str, int], float]:
    """Seconds for each row of `ROWS` and each size."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return {(name, n): measure(step, n, seconds) for name, step in ROWS.items() for n in sizes}
    finally:
        torch.set_num_threads(before)
