"""One decision per problem: yes or no (0-1 loss), the best class (0-1 loss or any table of costs), the k best classes.

Each row of scores is a problem of its own with one label, so a weight per item is the ``weight`` of the losses. The
augmented output is exact for both signs in one pass over the scores. Of several equally good outputs the plain prediction
is taken if it is one of them, else the one with the lowest index.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from directloss._checks import check_count, check_finite, check_labels, check_same_shape, fail
from directloss.metrics.classification import check_class_problem, check_k, top_k_members
from directloss.task import Solved, Task


class Error(Task):
    """Binary 0-1 loss of every item: ``L = [(score > 0) != target]``, ``F = score * y`` with y in {0, 1}.

    Scores and target have the same shape ``(...)``; each item is a problem of its own. A decision flips where
    ``|score| < epsilon``: for sign +1 the right ones, for sign -1 the wrong ones.

    Example:
        >>> task = Error()
        >>> task.loss(task.predict(torch.tensor([2.0, -1.0])), torch.tensor([1, 1]))
        tensor([0., 1.])
    """

    event_dims = 0
    target_dims = 0
    shape_words = "(...)"

    def predict(self, scores: Tensor) -> Tensor:
        """Yes where the score is above 0."""
        return scores > 0

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        chosen = scores > 0
        return chosen ^ self._flips(scores, chosen, target, epsilon, sign)

    @staticmethod
    def _flips(scores: Tensor, chosen: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        """Which decisions change: a flip costs ``|score|`` and brings epsilon, if it goes the way of the sign."""
        right = chosen == (target == 1)
        return (right if sign > 0 else ~right) & (scores.abs() < epsilon)

    def truth(self, target: Tensor) -> Tensor:
        return target == 1

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return (output != (target == 1)).to(torch.float32)

    def score(self, scores: Tensor, output: Tensor) -> Tensor:
        return scores.to(torch.promote_types(scores.dtype, torch.float32)) * output

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        check_same_shape(target, scores)
        if check_values:
            check_finite(scores)
            check_labels(target, hint="Items to leave out are said with mask.")

    def fused(
        self,
        scores: Tensor,
        target: Tensor,
        epsilon: float | Tensor | None,
        sign: int,
        *,
        gradient: bool,
        check_values: bool,
    ) -> Solved:
        self.check(scores, target, check_values)
        kind = torch.promote_types(scores.dtype, torch.float32)
        chosen = scores > 0
        losses = (chosen != (target == 1)).to(kind)
        if not gradient:
            return Solved(losses, None)
        steps = self.auto_epsilon(scores, target) if epsilon is None else epsilon
        flips = self._flips(scores, chosen, target, steps, sign)
        # Either sign pushes a positive up and a negative down.
        return Solved(losses, (flips * (1 - 2 * target.to(kind)) / steps).to(scores.dtype))

    def __repr__(self) -> str:
        return "Error()"


class ClassTask(Task):
    """What the tasks with scores ``(..., c)`` and one class index per row share."""

    target_dims = 0
    shape_words = "(..., c)"

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        check_class_problem(scores, target, check_values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Accuracy(ClassTask):
    """Multi-class 0-1 loss: ``L = [best class != target]``, F is the score of the chosen class.

    Example:
        >>> task = Accuracy()
        >>> task.loss(task.predict(torch.tensor([[1.0, 3.0, 0.0], [2.0, 1.0, 0.0]])), torch.tensor([1, 2]))
        tensor([0., 1.])
    """

    def predict(self, scores: Tensor) -> Tensor:
        """The class with the highest score; of equal ones that with the lowest index."""
        return scores.argmax(-1)

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        """Only the right class and the best of the others can win."""
        truth = target.long().unsqueeze(-1)
        own = scores.gather(-1, truth).squeeze(-1)
        other, rival = scores.scatter(-1, truth, -torch.inf).max(-1)
        # The two scores are compared with each other first: adding epsilon to a large score would swallow it.
        lead = own.double() - other.double()
        plain = torch.where(rival < target, lead > 0, lead >= 0)
        stays = torch.where(plain, lead >= sign * epsilon, lead > sign * epsilon)
        return torch.where(stays, target, rival)

    def truth(self, target: Tensor) -> Tensor:
        return target

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return (output != target).to(torch.float32)

    def score(self, scores: Tensor, output: Tensor) -> Tensor:
        kind = torch.promote_types(scores.dtype, torch.float32)
        return scores.gather(-1, output.long().unsqueeze(-1)).squeeze(-1).to(kind)
