"""Negative log-likelihoods shared by several tasks: one number per problem, padding ignored."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from directloss._checks import IGNORE


def wide(tensor: Tensor) -> Tensor:
    """The tensor in float32 or wider."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def binary_cross_entropy(scores: Tensor, target: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """Of independent yes-or-no decisions, the weighted mean over the items ``(..., n)``; targets may be probabilities.

    For a ranking this is more than the likelihood of its order: it also fixes the level and the scale of the scores,
    so they are logits, and noise of scale 1 is in their unit.
    """
    scores, weight = wide(scores), weight * (target != IGNORE)
    labels, mass = target.clamp(min=0).to(scores), weight.sum(-1)
    each = F.binary_cross_entropy_with_logits(scores, labels, weight.to(scores), reduction="none")
    return each.sum(-1) / torch.where(mass > 0, mass, 1.0).to(scores)


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """Of one class per problem, scores ``(..., c)`` and target ``(...)``."""
    logs = wide(scores).log_softmax(-1)
    return -logs.gather(-1, target.long().clamp(min=0).unsqueeze(-1)).squeeze(-1)
