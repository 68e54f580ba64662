"""Negative log-likelihoods that several tasks share, one number per problem, padding left out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from directloss._checks import IGNORE


def wide(tensor: Tensor) -> Tensor:
    """In float32 or wider."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def binary_cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """Of independent yes-or-no decisions, the mean over the items ``(..., n)``; the target may hold shares of a yes.

    For a ranking this is more than the likelihood of its order: it also fixes the level and the scale of the scores,
    so that they are logits and noise of scale 1 is in their unit.
    """
    scores, known = wide(scores), target != IGNORE
    each = F.binary_cross_entropy_with_logits(scores, target.clamp(min=0).to(scores), reduction="none")
    return torch.where(known, each, 0.0).sum(-1) / known.sum(-1).clamp(min=1)


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """Of one class per problem, scores ``(..., c)`` and target ``(...)``."""
    logs = wide(scores).log_softmax(-1)
    return -logs.gather(-1, target.long().clamp(min=0).unsqueeze(-1)).squeeze(-1)
