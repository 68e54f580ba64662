"""Sequence labelling: one label per position, with scores of neighbouring labels (Viterbi)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from directloss._checks import check_finite, check_tensor, fail
from directloss.task import Mask
from directloss.tasks._labels import Cost, Labelling, LabelTask, mean_of_real
from directloss.tasks._likelihood import wide


class Chain(LabelTask):
    """Label the positions of a sequence, with or without scores of neighbouring labels.

    ``F = 1/T * (sum_t score[t, y_t] + sum_t transitions[y_{t-1}, y_t])`` over the T real positions. The loss is the
    share of wrong labels, or the mean of ``cost[true, predicted]``. Both inferences use the Viterbi recursion, a loop
    over positions for the whole batch: O(T c^2) per sequence.

    Args:
        transitions: scores of neighbouring labels, shape ``(c, c)``, from row to column. Gradients flow into it if it
            is a parameter (pass it to your optimizer; the task does not own it). Without it the positions are
            independent.
        cost: None for 0-1, a matrix ``cost[true, predicted]`` of shape ``(c, c)``, or a function from the target
            ``(..., t)`` to costs ``(..., t, c)``.

    Shapes:
        scores ``(..., t, c)``; target ``(..., t)``, labels from 0 to c - 1. Pad sequences of different lengths at the
        end; ``mask`` ``(..., t)`` is False for padding.

    References:
        Viterbi 1967 for the recursion; Song et al., ICML 2016, Sec. 3 for the loss-augmented problem.

    Examples:
        >>> scores = torch.tensor([[2.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
        >>> Chain().predict(scores)
        tensor([0, 1, 0])
        >>> sticky = Chain(transitions=torch.eye(2))
        >>> sticky.predict(scores)
        tensor([0, 0, 0])
        >>> sticky.loss(sticky.predict(scores), torch.tensor([0, 1, 0]))
        tensor(0.3333)
    """

    def __init__(self, transitions: Tensor | None = None, *, cost: Cost = None) -> None:
        super().__init__(cost)
        if transitions is not None:
            shape = check_tensor("transitions", transitions).shape
            if len(shape) != 2 or shape[0] != shape[1] or not transitions.is_floating_point():
                what = f"of shape {tuple(shape)}, {transitions.dtype}"
                fail("transitions", "must be a floating-point matrix (c, c): from one label to the next", what)
        self.transitions = transitions

    def solve(self, scores: Tensor, mask: Mask) -> Tensor:
        if self.transitions is None:
            return scores.argmax(-1)
        if mask is not None:
            _check_at_end(mask)
        between = self.transitions.detach().to(scores)
        stay = torch.arange(scores.shape[-1], device=scores.device)
        best, origins = scores[..., 0, :], []
        for place in range(1, scores.shape[-2]):
            arrived, origin = (best[..., :, None] + between).max(-2)
            arrived = arrived + scores[..., place, :]
            if mask is not None:  # padding passes on the result of the last real position
                here = mask[..., place, None]
                arrived, origin = torch.where(here, arrived, best), torch.where(here, origin, stay)
            best = arrived
            origins.append(origin)
        label = best.argmax(-1, keepdim=True)
        labels = [label]
        for origin in reversed(origins):
            label = origin.gather(-1, label)
            labels.append(label)
        return torch.cat(labels[::-1], -1)

    def score(self, scores: Tensor, output: Tensor | Labelling) -> Tensor:
        unary = super().score(scores, output)
        labels, mask = (output, None) if isinstance(output, Tensor) else output
        if self.transitions is None:
            return unary
        steps = self.transitions.to(unary)[labels[..., :-1], labels[..., 1:]]
        return unary + mean_of_real(pad(steps, (1, 0)), mask)

    def likelihood(self, scores: Tensor, target: Tensor, mask: Mask = None) -> Tensor | None:
        """Of a conditional random field: ``log sum_y exp(T F(y)) / T - F(target)``, by the forward recursion."""
        if self.transitions is None:
            return super().likelihood(scores, target, mask)
        scores = wide(scores)
        between, total = self.transitions.to(scores), scores[..., 0, :]
        for place in range(1, scores.shape[-2]):
            arrived = (total[..., :, None] + between).logsumexp(-2) + scores[..., place, :]
            total = arrived if mask is None else torch.where(mask[..., place, None], arrived, total)
        T = scores.shape[-2] if mask is None else mask.sum(-1).clamp(min=1)
        return total.logsumexp(-1) / T - self.score(scores, self.truth(target, mask))

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        super().check(scores, target, check_values)
        labels = scores.shape[-1]
        if self.transitions is not None and len(self.transitions) != labels:
            shape = f"of shape {tuple(self.transitions.shape)}"
            fail("transitions", f"must be a matrix for the {labels} labels of scores", shape)
        if check_values and self.transitions is not None:
            check_finite(self.transitions, "transitions")

    def __repr__(self) -> str:
        words = [] if self.transitions is None else [f"transitions={tuple(self.transitions.shape)}"]
        words += [] if self.cost is None else ["cost=..."]
        return f"Chain({', '.join(words)})"


def _check_at_end(mask: Tensor) -> None:
    late = mask[..., 1:] & ~mask[..., :-1]
    if bool(late.any()):
        where = late.nonzero()[0].tolist()
        fail("mask", "must have padding only at the end of each sequence", f"False right before {where}")
