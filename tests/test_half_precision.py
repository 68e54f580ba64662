"""Gradients that half precision cannot hold."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import directloss as dl

pytestmark = pytest.mark.filterwarnings("ignore::directloss.DirectLossWarning")


HALVES = {
    "accuracy": ([[0.5, 0.5, 0.25], [1.0, 2.0, 2.0]], [0, 2]),
    "topk@2": ([[0.5, 0.5, 0.5], [1.0, 2.0, 2.0]], [2, 0]),
    "chain": ([[[0.5, 0.5], [0.25, 0.25]]], [[0, 1]]),
    "error": ([0.0, 0.0, 1.0], [0, 1, 1]),
    "f1": ([[0.0, 0.0, 1.0, -1.0]], [[0, 1, 1, 0]]),
    "ap": ([[0.5, 0.5, 0.5, 1.0]], [[0, 1, 1, 0]]),
    "auc": ([[0.5, 0.5, 0.5, 1.0]], [[0, 1, 1, 0]]),
    "graded_ndcg": ([[0.5, 0.5, 0.5]], [[2, 0, 1]]),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", HALVES)
def test_what_half_precision_cannot_hold_is_cut(name: str, dtype: torch.dtype) -> None:
    """Equal scores, so that every epsilon has a gradient; the truth is that of float64."""
    scores, target = (torch.tensor(values) for values in HALVES[name])
    most = torch.finfo(dtype).max
    # Of tasks without a fast way 1 / epsilon is cut, and F has a weight of at least this for each part.
    least = {"f1": 1 / 4, "graded_ndcg": 0.06}.get(name, 1 / 2)
    cut = most if name == "ap" and dtype == torch.float16 else least * most
    for epsilon, sign in product((1e-3, 1e-6, 1e-39, 1e-45), (+1, -1, "both")):
        low, exact = (scores.to(kind).requires_grad_() for kind in (dtype, torch.float64))
        for leaf in (low, exact):
            dl.direct_loss(leaf, target, name, epsilon=epsilon, sign=sign, reduction="sum").backward()
        assert torch.equal(low.grad.sign(), exact.grad.to(dtype).sign())
        assert bool((low.grad.abs() <= most).all())
        large = exact.grad.abs() > cut
        assert bool((low.grad.abs()[large] >= 0.98 * cut).all()), (epsilon, sign)
        torch.testing.assert_close(low.grad.double()[~large], exact.grad[~large], rtol=1e-2, atol=0)


@pytest.mark.parametrize("name", HALVES)
def test_gradients_under_noise_are_finite_in_half_precision(name: str) -> None:
    scores, target = (torch.tensor(values) for values in HALVES[name])
    for sign in (+1, -1, "both"):
        leaf = scores.half().requires_grad_()
        dl.direct_loss(leaf, target, name, epsilon=1e-6, sign=sign, noise=1e-7, samples=20, reduction="sum").backward()
        assert leaf.grad.isfinite().all()


def test_a_scaled_loss_may_overflow_half_precision() -> None:
    """A GradScaler finds its scale by that."""
    scores = torch.zeros(4, dtype=torch.float16, requires_grad=True)
    loss = dl.direct_loss(scores, torch.tensor([1, 0, 1, 0]), "ap", epsilon=1.0, sign=1)
    (loss * 2.0**20).backward()
    assert scores.grad.isinf().any()
