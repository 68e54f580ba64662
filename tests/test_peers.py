"""The peers of the speed table compute what their papers say: written once more here, pair by pair."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import directloss as dl
from benchmarks.peers import Loss, ap_loss, paper_direct, rank_sort


def lists(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    target = (torch.rand(n, generator=generator) < 0.5).double()
    target[:2] = torch.tensor([1.0, 0.0])
    return torch.randn(n, generator=generator, dtype=torch.float64), target


def differentiated(loss: Loss, scores: Tensor, target: Tensor) -> tuple[float, Tensor]:
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, target)
    value.backward()
    return value.item(), leaf.grad


def error_driven(
    scores: Tensor, target: Tensor, *, width: float, own: float, interpolated: bool
) -> tuple[float, Tensor]:
    """Each positive's errors, one after the other from the lowest, and whom they are handed to."""
    s, y = scores.tolist(), target.tolist()
    positives = sorted((i for i in range(len(s)) if y[i] > 0), key=lambda i: s[i])
    gradient, total, best = [0.0] * len(s), 0.0, 0.0

    def hand_out(error: float, item: int, shares: dict[int, float]) -> None:
        gradient[item] -= error
        for other, share in shares.items():
            gradient[other] += error * share / sum(shares.values())

    for i in positives:
        h = {j: min(max((s[j] - s[i]) / (2 * width) + 0.5, 0.0), 1.0) for j in range(len(s))}
        wrong = {j: h[j] for j in h if y[j] == 0}
        error = sum(wrong.values()) / (own + sum(h.values()))
        if interpolated:
            best = max(best, 1 - error)
            error = 1 - best
        if sum(wrong.values()) > 0:
            hand_out(error, i, wrong)
        total += error
        worse = {j: h[j] for j in positives if y[j] < y[i]}
        if sum(worse.values()) > 0:
            better = [j for j in positives if y[j] >= y[i]]
            now = sum(h[j] * (1 - y[j]) for j in positives) / sum(h[j] for j in positives)
            aim = sum(h[j] * (1 - y[j]) for j in better) / sum(h[j] for j in better)
            hand_out(now - aim, i, worse)
            total += now - aim
    return total / len(positives), torch.tensor(gradient, dtype=torch.float64) / len(positives)


@pytest.mark.parametrize("n", [5, 40, 700])  # the last has more positives than one block
def test_error_driven_peers(n: int) -> None:
    scores, target = lists(n, seed=n)
    quality = torch.where(target > 0, torch.linspace(0.1, 1, n, dtype=torch.float64), 0.0)
    for loss, labels, settings in [
        (ap_loss, target, {"width": 1.0, "own": 0.5, "interpolated": True}),
        (rank_sort, target, {"width": 0.5, "own": 0.0, "interpolated": False}),
        (rank_sort, quality, {"width": 0.5, "own": 0.0, "interpolated": False}),
    ]:
        torch.testing.assert_close(differentiated(loss, scores, labels), error_driven(scores, labels, **settings))


def test_the_papers_table_is_the_direct_loss() -> None:
    scores, target = lists(60, seed=1)
    ours = differentiated(lambda s, t: dl.direct_loss(s, t, "ap", noise=0, epsilon=0.1), scores, target)
    torch.testing.assert_close(differentiated(paper_direct, scores, target), ours)
