"""Gradients of negative log-likelihoods that several tasks share; padding has none."""

from __future__ import annotations

import torch
from torch import Tensor

from directloss.task import Estimate

TINY = 1e-30
"""In place of a sum of weights that are all 0."""


def wide(tensor: Tensor) -> Tensor:
    """The tensor in float32 or wider."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def of_decisions(scores: Tensor, target: Tensor, request: Estimate) -> Tensor:
    """The gradient of binary cross-entropy over the items ``(..., n)``; targets may be probabilities.

    The sum over the items is divided by the geometric mean of the number of items and that of the rarer class. A metric
    of a rare class pulls at its few members, each with a force of about one over their number; in a plain mean over all
    items, cross-entropy would be the weaker, the rarer the class is.

    For a ranking this is more than the likelihood of its order: it also fixes the level and the scale of the scores,
    so they are logits, and the noise is in their unit.
    """
    scores, weight = wide(scores), request.mask if request.weight is None else request.weight
    labels = target.to(scores.dtype)
    each = of_each_decision(scores, labels, request.flips)
    mass: int | Tensor
    if weight is None:
        positive, mass = labels.sum(-1, keepdim=True), labels.shape[-1]
    else:
        weight = weight.to(scores.dtype)
        if request.weight is not None:  # weights of one on average, so that their scale does not matter
            weight = weight * ((weight > 0).sum(-1, keepdim=True) / weight.sum(-1, keepdim=True).clamp(min=TINY))
        each = each * weight
        positive, mass = (labels * weight).sum(-1, keepdim=True), weight.sum(-1, keepdim=True).clamp(min=1)
    if any(request.flips):
        positive = (positive - request.flips[0] * mass) / (1 - sum(request.flips))
    return each * (torch.minimum(positive, mass - positive).clamp(min=1) * mass).rsqrt()


def of_each_decision(scores: Tensor, labels: Tensor, flips: tuple[float, float] = (0.0, 0.0)) -> Tensor:
    """The gradient of binary cross-entropy for each score; with shares of wrong labels, that of the labels as they are
    (forward correction, Patrini et al. 2017).
    """
    yes = torch.sigmoid(scores)
    if not any(flips):
        return yes - labels
    # The mixture of both probabilities, divided by the one that may vanish.
    odds = scores.clamp(-60, 60).exp()
    as_no, as_yes = yes / (1 - flips[0] + flips[1] * odds), torch.sigmoid(-scores) / (1 - flips[1] + flips[0] / odds)
    return (1 - sum(flips)) * ((1 - labels) * as_no - labels * as_yes)


def of_classes(scores: Tensor, truth: Tensor) -> Tensor:
    """The gradient of cross-entropy, for scores ``(..., c)`` and a right class marked by 1."""
    return torch.softmax(scores, -1) - truth


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """Of one class per problem, scores ``(..., c)`` and target ``(...)``."""
    logs = wide(scores).log_softmax(-1)
    return -logs.gather(-1, target.long().unsqueeze(-1)).squeeze(-1)
