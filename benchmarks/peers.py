"""The losses we compare with: cross-entropy, focal loss, and other losses for AP.

Each takes scores and labels of one list. Peers come from their packages if installed, otherwise from the published
formula, reimplemented here in the form that their authors' code computes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from directloss_repro import methods
from numba import njit
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of classes, or of binary labels."""
    return methods.cross_entropy(scores, target).mean()


def focal(scores: Tensor, target: Tensor, gamma: float) -> Tensor:
    """Lin et al. 2017: cross-entropy, with less weight on items that are already right."""
    return methods.focal(scores, target, gamma).mean()


def skipping_empty(loss: Loss) -> Loss:
    """Zero for a batch without positives, since several peers divide by their number. Labels are the first column."""

    def skipping(scores: Tensor, told: Tensor) -> Tensor:
        labels = told if told.dim() == 1 else told[:, 0]
        return loss(scores, told) if bool(labels.any()) else 0 * scores.sum()

    return skipping


def smooth_ap(scores: Tensor, target: Tensor, temperature: float = 0.01) -> Tensor:
    """Brown et al. 2020: ranks from sigmoids of all pairwise differences. Lists ``(..., n)``; 1 without a positive."""
    labels, place = target.to(scores.dtype).topk(int(target.sum(-1).max()), -1)
    difference = torch.sigmoid((scores.unsqueeze(-2) - scores.gather(-1, place).unsqueeze(-1)) / temperature)
    # Each row compares an item with itself once, which the sigmoid counts as one half.
    rank_all = 0.5 + difference.sum(-1)
    rank_positive = 0.5 + (difference @ target.to(scores.dtype).unsqueeze(-1)).squeeze(-1)
    return 1 - (labels * rank_positive / rank_all).sum(-1) / labels.sum(-1).clamp(min=1)


def recall_surrogate(scores: Tensor, target: Tensor, cuts: tuple[int, ...] = (1, 2, 4, 8, 16)) -> Tensor:
    """Patel et al. 2022: recall at several k, from sigmoids of similarities (temperature 0.01) and of ranks (1)."""
    labels, place = target.to(scores.dtype).topk(int(target.sum(-1).max()), -1)
    above = torch.sigmoid((scores.unsqueeze(-2) - scores.gather(-1, place).unsqueeze(-1)) / 0.01)
    rank = 0.5 + above.sum(-1)  # each item is compared with itself once, which counts as one half
    most = labels.sum(-1).clamp(min=1)
    found = [(torch.sigmoid(k - rank) * labels).sum(-1) / most.clamp(max=k) for k in cuts]
    return 1 - torch.stack(found).mean(0)


class _BlackBoxRank(torch.autograd.Function):
    """Rolinek et al. 2020 (RaMBO): rank again with scores moved along the incoming gradient."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, step: float) -> Tensor:
        ranks = _ranks(scores)
        ctx.step = step
        ctx.save_for_backward(scores, ranks)
        return ranks

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        scores, ranks = ctx.saved_tensors
        moved = _ranks(scores + ctx.step * grad_output)
        return -(ranks - moved) / (ctx.step + 1e-8), None


def _ranks(scores: Tensor) -> Tensor:
    return scores.argsort(descending=True).argsort().to(scores.dtype) + 1


def blackbox_ap(scores: Tensor, target: Tensor, step: float = 4.0, margin: float = 0.02) -> Tensor:
    """AP from black-box ranks among all items and among the positives."""
    positive = target.bool()
    shifted = scores + margin * torch.where(positive, -0.5, 0.5)
    ranks = _BlackBoxRank.apply(shifted, step)
    among = _BlackBoxRank.apply(shifted[positive], step)
    return 1 - (among / ranks[positive]).mean()


@njit(cache=True)
def _paper_table(a: np.ndarray, b: np.ndarray, epsilon: float) -> np.ndarray:
    """Song et al. 2016, Fig. 2: the full table of P x N cells, then backtracking."""
    P, N = len(a), len(b)
    h = np.zeros((P + 1, N + 1))
    up = np.zeros((P + 1, N + 1), dtype=np.bool_)
    prefix_b = np.zeros(N + 1)
    for j in range(N):
        prefix_b[j + 1] = prefix_b[j] + b[j]
    prefix_a = 0.0
    for i in range(P + 1):
        if i:
            prefix_a += a[i - 1]
        for j in range(N + 1):
            best = -np.inf
            if i:
                best = h[i - 1, j] - epsilon * i / (i + j) / P - (j * a[i - 1] - prefix_b[j]) / (P * N)
                up[i, j] = True
            if j:
                other = h[i, j - 1] + (prefix_a - i * b[j - 1]) / (P * N)
                if other > best:
                    best = other
                    up[i, j] = False
            h[i, j] = best if i or j else 0.0
    n = np.zeros(P, dtype=np.int64)
    i, j = P, N
    while i or j:
        if i and (not j or up[i, j]):
            n[i - 1] = j
            i -= 1
        else:
            j -= 1
    return n


class _PaperDirect(torch.autograd.Function):
    """Direct loss minimization of AP as published, sign +1, compiled by numba."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, target: Tensor, epsilon: float) -> Tensor:
        order = scores.argsort(descending=True)
        positive = target[order] == 1
        a, b = scores[order[positive]].double(), scores[order[~positive]].double()
        P, N = len(a), len(b)
        n_w = (~positive).cumsum(0)[positive]
        n = torch.from_numpy(_paper_table(a.numpy(), b.numpy(), epsilon))
        j = torch.arange(1, N + 1)
        moved = torch.searchsorted(n, j).sub(torch.searchsorted(n_w, j))
        gradient = torch.empty_like(scores)
        gradient[order[positive]] = (-2 / (epsilon * P * N) * (n - n_w)).to(scores.dtype)
        gradient[order[~positive]] = (-2 / (epsilon * P * N) * moved).to(scores.dtype)
        ctx.save_for_backward(gradient)
        i = torch.arange(1, P + 1)
        return 1 - (i / (i + n_w)).mean().to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        return ctx.saved_tensors[0] * grad_output, None, None


def paper_direct(scores: Tensor, target: Tensor) -> Tensor:
    """Song et al. 2016 with the O(PN) table of the paper."""
    return _PaperDirect.apply(scores, target, 0.1)


class _ErrorDriven(torch.autograd.Function):
    """Error-driven updates instead of derivatives: the error of a positive is distributed to the items above it.

    With a comparison ``h`` that rises linearly from 0 to 1 over ``2 * width``, positive i has the ranking error
    ``fp_i / rank_i``, the sums of h over the negatives and over all items. It gets minus that as gradient, and each
    negative its share ``h_ij / fp_i``. `sorting` adds the same among positives of different quality (target in (0, 1]),
    which vanishes for labels 0 and 1.
    """

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, target: Tensor, width: float, own: float, best: bool, sorting: bool
    ) -> Tensor:
        a, order = scores[target > 0].sort()
        quality = target[target > 0][order].to(scores.dtype)
        # A negative this far below every positive has no effect.
        near = (target == 0) & (scores >= a[0] - width)
        b = scores[near]
        grad_a, grad_b = torch.zeros_like(a), torch.zeros_like(b)
        highest, total = scores.new_zeros(()), scores.new_zeros(())
        for start in range(0, len(a), BLOCK):
            some = slice(start, start + BLOCK)
            among, above = (((x - a[some, None]) / (2 * width) + 0.5).clamp(0, 1) for x in (a, b))
            wrong, rank = above.sum(1), own + among.sum(1) + above.sum(1)
            error = wrong / rank
            if best:  # interpolated: no positive counts for less precision than one below it
                precision = torch.maximum((1 - error).cummax(0).values, highest)
                error, highest = 1 - precision, precision[-1]
            grad_a[some] -= error
            grad_b += (error / wrong.clamp(min=1e-10)) @ above
            total += error.sum()
            if sorting:
                total += _sorting_error(quality, quality[some, None], among, grad_a, some)
        gradient = torch.zeros_like(scores)
        gradient[(target > 0).nonzero()[order, 0]], gradient[near] = grad_a / len(a), grad_b / len(a)
        ctx.save_for_backward(gradient)
        return total / len(a)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        return ctx.saved_tensors[0] * grad_output, None, None, None, None, None


BLOCK = 256
"""How many positives are compared with all items at a time, so that memory does not grow with their number."""


def _sorting_error(quality: Tensor, own: Tensor, among: Tensor, grad: Tensor, some: slice) -> Tensor:
    """The sorting error of each positive, due to positives of lower quality above it; adds to ``grad`` in place."""
    better, worse = among * (quality >= own), among * (quality < own)
    now = (among * (1 - quality)).sum(1) / among.sum(1)
    error = torch.where(worse.sum(1) > 0, now - (better * (1 - quality)).sum(1) / better.sum(1), 0.0)
    grad[some] -= error
    grad += (error / worse.sum(1).clamp(min=1e-10)) @ worse
    return error.sum()


def ap_loss(scores: Tensor, target: Tensor) -> Tensor:
    """Chen et al. 2019 (AP-loss), with interpolated precision."""
    return _ErrorDriven.apply(scores, target, 1.0, 0.5, True, False)


def rank_sort(scores: Tensor, target: Tensor) -> Tensor:
    """Oksuz et al. 2021 (Rank & Sort). For labels 0 and 1 it equals AP-loss up to the interpolation."""
    return _ErrorDriven.apply(scores, target, 0.5, 0.0, False, True)


def torchsort_ap(scores: Tensor, target: Tensor, strength: float = 0.1) -> Tensor:
    """AP from the soft ranks of the package."""
    import torchsort

    positive = target.bool()
    ranks = torchsort.soft_rank(-scores[None], regularization_strength=strength)[0][positive]
    among = torchsort.soft_rank(-scores[positive][None], regularization_strength=strength)[0]
    return 1 - (among / ranks).mean()


def _libauc_ap() -> Loss:
    from libauc.losses import APLoss

    losses: dict[int, Any] = {}

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        n = len(target)
        # Its state is one moving average per sample, so each list needs its own.
        if n not in losses:
            losses[n] = APLoss(data_len=n, margin=1.0, gamma=0.9)
        return losses[n](torch.sigmoid(scores), target, torch.arange(n))

    return loss


def available(longest: int) -> dict[str, tuple[Loss, int]]:
    """Name -> (loss, longest list to measure). Quadratic methods stop early."""
    found: dict[str, tuple[Loss, int]] = {
        "Smooth-AP (formula)": (smooth_ap, 20_000),
        "RaMBO black box (formula)": (blackbox_ap, longest),
        "AP-loss (formula)": (ap_loss, 20_000),
        "Rank & Sort (formula)": (rank_sort, 20_000),
        "direct loss, the paper's table (numba)": (paper_direct, 20_000),
    }
    if importlib.util.find_spec("torchsort"):
        found["torchsort AP (package)"] = (torchsort_ap, longest)
    if importlib.util.find_spec("libauc"):
        found["LibAUC APLoss (package)"] = (_libauc_ap(), 20_000)
    return found
