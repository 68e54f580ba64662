"""From scores to decisions: the predicted class, the best threshold for a metric, and an even one for a ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from directloss.task import Task
from directloss.tasks import CountTask, Error

Flips = float | Sequence[float]
"""The share of wrong labels: one number, or one for negatives and one for positives."""


def decides(task: Task) -> bool:
    """Whether the metric judges a yes or no for each row, so that the threshold matters."""
    return isinstance(task, CountTask | Error)


def decided(scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The index of each row's predicted class: the second above 0, or the one with the highest score.

    Examples:
        >>> decided(np.array([0.5, -1.0])), decided(np.array([[0.1, 0.3, 0.2]]))
        (array([1, 0]), array([1]))
    """
    return scores.argmax(1) if scores.ndim == 2 else (scores > 0).astype(np.int64)


def corrected(shares: Any, flips: Flips) -> Any:
    """Labels 0 and 1, or probabilities of wrong labels, as unbiased estimates for the right ones.

    Examples:
        >>> corrected(np.array([0.0, 1.0]), 0.2)
        array([-0.33333333,  1.33333333])
    """
    negative, positive = (flips, flips) if isinstance(flips, int | float) else flips
    return (shares - negative) / (1 - negative - positive)


def best_cut(
    scores: Tensor, target: Tensor, task: Task, weight: Tensor | None = None, flips: Flips = 0.0
) -> tuple[float, float]:
    """The threshold with the highest metric, and that metric; scores ``(n,)`` above it mean yes, labels are ``(n,)``.

    In a tie the highest threshold wins.

    Args:
        scores: of the rows.
        target: 0 or 1.
        task: an `Error` or a `CountTask`.
        weight: how much each row counts.
        flips: the share of wrong labels; the counts are corrected for it.

    Examples:
        >>> from directloss.tasks import get
        >>> best_cut(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 1, 0]), get("f1"))
        (1.5, 1.0)
        >>> best_cut(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 1, 0]), get("error"), torch.tensor([1.0, 1.0, 9.0]))
        (1.5, 1.0)
    """
    ranked, order = scores.double().sort(descending=True, stable=True)
    hits = corrected((target[order] == 1).double(), flips)
    mass = torch.ones_like(ranked) if weight is None else weight[order].double() / weight.double().mean()
    tp, fp = (torch.cat([mass.new_zeros(1), part.cumsum(0)]) for part in (mass * hits, mass * (1 - hits)))
    # Corrected counts can be negative, which no metric is made for.
    counts = [part.clamp(min=0) for part in (tp, fp, tp[-1] - tp, fp[-1] - fp)]
    if isinstance(task, CountTask):
        values = 1 - task.loss_of_counts(*counts)
    else:
        values = (counts[0] + counts[3]) / sum(counts)
    # A threshold lies between two different scores, above all scores, or below them.
    ends = torch.cat([ranked[:1] + 2, ranked, ranked[-1:] - 2])
    values = torch.where(ends[:-1] > ends[1:], values, -torch.inf)
    place = int(values.argmax())
    return float((ends[place] + ends[place + 1]) / 2), float(values[place])


def even_cut(scores: Tensor, target: Tensor, weight: Tensor | None = None) -> float:
    """The threshold with as many scores above it as there are positives, where precision equals recall; all ``(n,)``.

    Examples:
        >>> even_cut(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 0]))
        2.5
    """
    ranked, order = scores.sort(descending=True)
    weight = torch.ones(len(scores), dtype=torch.float64) if weight is None else weight
    above = torch.cat([weight.new_zeros(1), weight[order].cumsum(0)])
    away = (above - weight[target == 1].sum()).abs()
    # The lowest within a millionth of the best, so that rows of negligible weight do not matter.
    place = int((away <= away.min() + 1e-6 * above[-1]).nonzero()[-1])
    ends = torch.cat([ranked[:1] + 2, ranked, ranked[-1:] - 2])
    return float((ends[place] + ends[place + 1]) / 2)
