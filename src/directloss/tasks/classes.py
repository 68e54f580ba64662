"""One decision per problem: yes or no (0-1 loss), the best class (0-1 loss or a cost matrix), the k best classes.

Each row of scores is one problem with one label, so item weights are the ``weight`` of the losses. Augmented inference
is exact for both signs, in one pass over the scores. Among equally good outputs the plain prediction wins, and then the
one with the lowest index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding

from directloss._checks import check_count, check_finite, fail, precise, warn_of_probabilities
from directloss.metrics.classification import check_class_problem, check_k, top_k_members
from directloss.moves import expected_cost_slope
from directloss.task import Defaults, Estimate, Expected, Task
from directloss.tasks._counting import ALL_YES, check_decisions
from directloss.tasks._likelihood import of_classes, of_each_decision, wide
from directloss.tasks.ranking import RecallAtK


class Error(Task):
    """Binary 0-1 loss of every item: ``L = [(score > 0) != target]``, ``F = score * y`` with y in {0, 1}.

    Scores and target have the same shape ``(...)``; each item is one problem. A decision flips where
    ``|score| < epsilon``: for sign +1 the right ones, for sign -1 the wrong ones.

    Examples:
        >>> task = Error()
        >>> task.loss(task.predict(torch.tensor([2.0, -1.0])), torch.tensor([1, 1]))
        tensor([0., 1.])
    """

    event_dims = 0
    target_dims = 0
    shape_words = "(...)"
    defaults = Defaults(density="logistic", no_flips="")

    def predict(self, scores: Tensor) -> Tensor:
        """Yes where the score is above 0."""
        return scores > 0

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        """A flip costs ``|score|`` and gains epsilon if it goes in the direction of the sign."""
        scores = wide(scores)  # at least as precise as epsilon
        chosen = scores > 0
        right = chosen == (target == 1)
        return chosen ^ ((right if sign > 0 else ~right) & (scores.abs() < epsilon))

    def truth(self, target: Tensor) -> Tensor:
        return target == 1

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return (output != (target == 1)).to(torch.float32)

    def score(self, scores: Tensor, output: Tensor) -> Tensor:
        return wide(scores) * output

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        check_decisions(scores, target, check_values)
        if check_values:
            warn_of_probabilities(scores, "decisions", ALL_YES)

    def expected(self, scores: Tensor, target: Tensor, request: Estimate) -> Expected:
        """Closed form: the probability of a yes is ``sigmoid(score / noise)``."""
        self.check(scores, target, request.check_values)
        scores, (low, high) = wide(scores), request.flips
        # What a yes costs more than a no; with flips, right in expectation.
        cost = 1 - 2 * (target.to(scores.dtype) - low) / (1 - low - high)
        losses = torch.where(scores > 0, 1 + cost, 1 - cost) / 2
        if not request.gradient:
            return Expected(losses)
        likely, scale = torch.sigmoid(scores / float(request.noise.scale)), float(request.noise.scale)
        likelihood = of_each_decision(scores, target.to(scores.dtype), request.flips) if request.likelihood else None
        return Expected(losses, cost * likely * (1 - likely) / scale, likelihood)


class ClassTask(Task):
    """The base of tasks with scores ``(..., c)`` and one class index per row."""

    target_dims = 0
    shape_words = "(..., c)"
    defaults = Defaults(
        no_flips="wrong labels that are spread evenly over the classes only scale the expected accuracy"
    )

    def costs_of(self, scores: Tensor, target: Tensor) -> Tensor:
        """What each class would cost, ``(..., c)``."""
        return 1 - one_hot(target, scores)

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        steps, exact = epsilon.unsqueeze(-1) if isinstance(epsilon, Tensor) else epsilon, precise(scores)
        objective = exact + sign * steps * self.costs_of(exact, target)
        plain = self.predict(scores)
        stays = objective.gather(-1, plain.unsqueeze(-1)).squeeze(-1) >= objective.amax(-1)
        return torch.where(stays, plain, objective.argmax(-1))

    def expected(self, scores: Tensor, target: Tensor, request: Estimate) -> Expected:
        """Closed form: the class is drawn from the softmax of ``scores / noise``."""
        self.check(scores, target, request.check_values)
        scores = wide(scores)
        losses = self.loss(self.predict(scores), target)
        if not request.gradient:
            return Expected(losses)
        slope = expected_cost_slope(scores, self.costs_of(scores, target), float(request.noise.scale))
        likelihood = of_classes(scores, one_hot(target, scores)) if request.likelihood else None
        return Expected(losses, slope, likelihood)

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        check_class_problem(scores, target, check_values)


class Accuracy(ClassTask):
    """Multi-class 0-1 loss: ``L = [best class != target]``, F is the score of the chosen class.

    Examples:
        >>> task = Accuracy()
        >>> task.loss(task.predict(torch.tensor([[1.0, 3.0, 0.0], [2.0, 1.0, 0.0]])), torch.tensor([1, 2]))
        tensor([0., 1.])
    """

    def predict(self, scores: Tensor) -> Tensor:
        """The class with the highest score; ties go to the lowest index."""
        return scores.argmax(-1)

    def truth(self, target: Tensor) -> Tensor:
        return target

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return (output != target).to(torch.float32)

    def score(self, scores: Tensor, output: Tensor) -> Tensor:
        dtype = torch.promote_types(scores.dtype, torch.float32)
        return scores.gather(-1, output.long().unsqueeze(-1)).squeeze(-1).to(dtype)


def one_hot(target: Tensor, scores: Tensor) -> Tensor:
    """1 for the right class of each row, otherwise 0, in the shape and dtype of the scores."""
    return torch.zeros_like(scores).scatter(-1, target.long().unsqueeze(-1), 1.0)


class Holding(NamedTuple):
    """The set with the highest F among those with the right class: the reference of hinge and perceptron."""

    target: Tensor


class TopK(ClassTask):
    """Top-k error: the output is a set of k classes, F the sum of their scores, ``L = [target not in the set]``.

    An output is a boolean tensor in the shape of the scores, True for the classes of the set.

    Examples:
        >>> task = TopK(2)
        >>> task.loss(task.predict(torch.tensor([[1.0, 3.0, 0.0], [2.0, 1.0, 0.0]])), torch.tensor([0, 2]))
        tensor([0., 1.])
    """

    defaults = replace(ClassTask.defaults, noise=3.0, density="uniform")

    def __init__(self, k: int = 5) -> None:
        self.k = check_count("k", k)

    def expected(self, scores: Tensor, target: Tensor, request: Estimate) -> Expected:
        """A ranking of the classes with one relevant item, judged by recall at k."""
        self.check(scores, target, request.check_values)
        losses = self.loss(self.predict(scores), target)
        if not request.gradient:
            return Expected(losses)
        truth = one_hot(target, wide(scores))
        ranked = RecallAtK(self.k).expected(scores, truth, request._replace(likelihood=False))
        likelihood = of_classes(wide(scores), truth) if request.likelihood else None
        return Expected(losses, ranked.slope, likelihood, curvature=ranked.curvature)

    def predict(self, scores: Tensor) -> Tensor:
        """The k classes with the highest scores; ties go to the lowest indices."""
        return top_k_members(scores, self.k)

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        """Only one exchange can pay off: the right class for the best outside (+1), or the worst inside for it (-1)."""
        members = self.predict(scores)
        truth = target.long().unsqueeze(-1)
        own = scores.gather(-1, truth)
        if sign > 0:
            rival, place = scores.masked_fill(members, -torch.inf).max(-1, keepdim=True)
        else:
            rival, place = scores.masked_fill(~members, torch.inf).min(-1, keepdim=True)
        price = (precise(own) - precise(rival)).abs().squeeze(-1)
        inside = members.gather(-1, truth).squeeze(-1)
        exchange = ((inside if sign > 0 else ~inside) & (price < epsilon)).unsqueeze(-1)
        changed = members.scatter(-1, truth, sign < 0).scatter(-1, place, sign > 0)
        return torch.where(exchange, changed, members)

    def truth(self, target: Tensor) -> Holding:
        return Holding(target)

    def loss(self, output: Tensor | Holding, target: Tensor) -> Tensor:
        if isinstance(output, Holding):
            return (output.target != target).to(torch.float32)
        return (~output.gather(-1, target.long().unsqueeze(-1)).squeeze(-1)).to(torch.float32)

    def score(self, scores: Tensor, output: Tensor | Holding) -> Tensor:
        if isinstance(output, Holding):
            output = self.predict(scores.detach().scatter(-1, output.target.long().unsqueeze(-1), torch.inf))
        return (wide(scores) * output).sum(-1)

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        check_k(self.k, scores.shape[-1])
        super().check(scores, target, check_values)

    def __repr__(self) -> str:
        return f"TopK({self.k})"


class CostMatrix(Accuracy):
    """A cost matrix: ``L = costs[target, chosen class]``, F is the score of the chosen class.

    Args:
        costs: shape ``(c, c)``, finite and non-negative; row = right class, column = chosen class.

    Examples:
        >>> task = CostMatrix([[0.0, 1.0], [5.0, 0.0]])
        >>> task.loss(task.predict(torch.tensor([[1.0, 0.0], [1.0, 0.0]])), torch.tensor([0, 1]))
        tensor([0., 5.])
    """

    def __init__(self, costs: Tensor | Sequence[Sequence[float]]) -> None:
        try:
            table = torch.as_tensor(costs, dtype=torch.float32).detach().clone()
        except (TypeError, ValueError, RuntimeError):
            fail("costs", "must be a table of numbers", repr(costs))
        if table.dim() != 2 or table.shape[0] != table.shape[1] or table.numel() == 0:
            fail("costs", "must be square, one row and one column per class", f"of shape {tuple(table.shape)}")
        check_finite(table, "costs")
        if bool((table < 0).any()):
            fail("costs", "must not be negative", table.min().item())
        self.costs = table
        lowest = table.min(-1)
        # The right class itself, unless another one is even cheaper.
        classes = torch.arange(len(table), device=table.device)
        self.cheapest = torch.where(table.diagonal() <= lowest.values, classes, lowest.indices)

    def unit_epsilon(self, scores: Tensor, target: Tensor) -> float:
        """One over the mean of the non-zero costs."""
        paid = self.costs[self.costs > 0]
        return 1 / float(paid.mean()) if len(paid) else 1.0

    def costs_of(self, scores: Tensor, target: Tensor) -> Tensor:
        return embedding(target.long(), self.costs.to(scores))  # unlike an index, it also works inside of vmap

    def truth(self, target: Tensor) -> Tensor:
        return embedding(target.long(), self.cheapest.to(target.device).unsqueeze(-1)).squeeze(-1)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        costs = embedding(target.long(), self.costs.to(target.device))
        return costs.gather(-1, output.long().unsqueeze(-1)).squeeze(-1)

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        classes = len(self.costs)
        if scores.shape[-1] != classes:
            fail(
                "scores",
                f"must have one column per class of the cost matrix, {classes}",
                f"of shape {tuple(scores.shape)}",
            )
        super().check(scores, target, check_values)

    def __repr__(self) -> str:
        return f"CostMatrix({len(self.costs)} x {len(self.costs)})"
