"""Small tasks of the tests' own, written without the library's base class, as a user would write them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot


class Pick:
    """Choose one of c classes; the loss is 0 or 1. Scores (..., c), target (...)."""

    event_dims, target_dims = 1, 0

    def predict(self, scores: Tensor) -> Tensor:
        return scores.argmax(-1)

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        wrong = 1 - one_hot(target, scores.shape[-1])
        return (scores + sign * torch.as_tensor(epsilon).unsqueeze(-1) * wrong).argmax(-1)

    def truth(self, target: Tensor) -> Tensor:
        return target

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return (output != target).float()

    def score(self, scores: Tensor, output: Tensor) -> Tensor:
        return scores.gather(-1, output.unsqueeze(-1)).squeeze(-1)


class Hamming:
    """Say yes or no to each item; the loss is the share of wrong answers. Knows nothing of padding."""

    def predict(self, scores: Tensor) -> Tensor:
        return (scores > 0).to(scores.dtype)

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        return self.predict(scores + sign * epsilon * (1 - 2 * target) / scores.shape[-1])

    def truth(self, target: Tensor) -> Tensor:
        return target

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return (output != target).float().mean(-1)

    def score(self, scores: Tensor, output: Tensor) -> Tensor:
        return (scores * output).sum(-1)
