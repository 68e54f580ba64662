"""Outputs that give each position (a token, a row) one label out of c, with a table of scores ``(..., t, c)``.

    F(y) = 1/T * sum_t score[t, y_t] + ...          L(y) = 1/T * sum_t cost[t, y_t]

Both are means over the T real positions, so the same solver maximises ``F + sign * epsilon * L``, given the table
``score + sign * epsilon * cost``, and epsilon is on the scale of the scores for any T.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from directloss._checks import check_classes, check_finite, check_tensor, fail, precise
from directloss.task import Defaults, Mask, PaddedTask
from directloss.tasks._likelihood import cross_entropy, wide

Cost: TypeAlias = Tensor | Callable[[Tensor], Tensor] | None
"""None for 0-1, a matrix ``cost[true, predicted]``, or a function from the target to a table of costs."""


class Labelling(NamedTuple):
    """An output as F sees it."""

    labels: Tensor
    """Shape ``(..., t)``, long; meaningless for padding."""
    mask: Mask = None


class LabelTask(PaddedTask):
    """The base of `Chain` and `Assignment`; subclasses implement `solve`. `predict` returns labels ``(..., t)``."""

    defaults = Defaults(
        no_item_weights="put the weights into cost, as a function of the target, which is just as exact"
    )
    event_dims = 2
    shape_words = "(..., t, c)"

    def __init__(self, cost: Cost) -> None:
        if isinstance(cost, Tensor):
            _check_cost(cost)
            cost = cost.detach()
        elif cost is not None and not callable(cost):
            fail("cost", "must be a matrix (c, c) or a function of the target", f"a {type(cost).__name__}")
        self.cost = cost

    @abstractmethod
    def solve(self, scores: Tensor, mask: Mask) -> Tensor:
        """The best labels for any scores ``(..., t, c)``."""

    def predict(self, scores: Tensor) -> Tensor:
        return self.solve(wide(scores.detach()), None)

    def infer(self, scores: Tensor, target: Tensor, mask: Mask = None) -> Labelling:
        return Labelling(self.solve(wide(scores.detach()), mask), mask)

    def augmented(
        self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int, mask: Mask = None
    ) -> Labelling:
        scores = precise(scores.detach())
        if isinstance(epsilon, Tensor):
            epsilon = epsilon.to(scores)[..., None, None]
        return Labelling(self.solve(scores + sign * epsilon * self.costs(target.long(), scores), mask), mask)

    def truth(self, target: Tensor, mask: Mask = None) -> Labelling:
        return Labelling(target.long(), mask)

    def loss(self, output: Tensor | Labelling, target: Tensor, mask: Mask = None) -> Tensor:
        """Mean cost over the real positions, shape ``b``."""
        labels, target = output if isinstance(output, Tensor) else output.labels, target.long()
        if self.cost is None:
            charge = (labels != target).float()
        elif isinstance(self.cost, Tensor):
            charge = wide(self.cost.to(target.device))[target, labels]
        else:
            charge = wide(self.cost(target)).gather(-1, labels[..., None])[..., 0]
        return mean_of_real(charge, mask)

    def score(self, scores: Tensor, output: Tensor | Labelling) -> Tensor:
        """``F = 1/T * sum_t score[t, y_t]``."""
        labels, mask = (output, None) if isinstance(output, Tensor) else output
        return mean_of_real(wide(scores).gather(-1, labels[..., None])[..., 0], mask)

    def costs(self, target: Tensor, like: Tensor) -> Tensor:
        """The cost of each label at each position, in the shape and type of ``like``."""
        if self.cost is None:
            labels = torch.arange(like.shape[-1], device=like.device)
            return (labels != target[..., None]).to(like)
        if isinstance(self.cost, Tensor):
            return self.cost.to(like)[target]
        table = check_tensor("cost(target)", self.cost(target)).to(like)
        if table.shape != like.shape:
            fail(
                "cost(target)", f"must have the shape of scores, {tuple(like.shape)}", f"of shape {tuple(table.shape)}"
            )
        return table

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        target = check_tensor("target", target)
        shape, labels = tuple(scores.shape[:-1]), scores.shape[-1]
        if target.shape != shape:
            fail("target", f"must hold one label per position, shape {shape}", f"of shape {tuple(target.shape)}")
        if isinstance(self.cost, Tensor) and len(self.cost) != labels:
            fail("cost", f"must be a matrix for the {labels} labels of scores", f"of shape {tuple(self.cost.shape)}")
        if check_values:
            check_finite(scores)
            check_classes(target, labels)
            if callable(self.cost):
                self.costs(target.long(), scores)

    def unit_epsilon(self, scores: Tensor, target: Tensor, mask: Mask = None) -> float | Tensor:
        """One over the largest cost: F and L are means over the same positions."""
        if self.cost is None:
            return 1.0
        if isinstance(self.cost, Tensor):
            largest = self.cost.amax()
        else:
            table = self.costs(target.long(), wide(scores)).abs()
            largest = (table if mask is None else table * mask[..., None]).amax((-2, -1))
        return 1 / torch.where(largest > 0, largest, 1.0).to(scores.device)

    def likelihood(self, scores: Tensor, target: Tensor, mask: Mask = None) -> Tensor | None:
        """Mean cross-entropy over the real positions, as if they were independent."""
        return mean_of_real(cross_entropy(scores, target), mask)


def mean_of_real(values: Tensor, mask: Mask) -> Tensor:
    """The mean over the real positions, shape ``b``; 0 if there are none."""
    return values.mean(-1) if mask is None else (values * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def _check_cost(cost: Tensor) -> None:
    """A square matrix of finite costs, with 0 for the right label."""
    if cost.dim() != 2 or cost.shape[0] != cost.shape[1]:
        fail("cost", "must be a matrix (c, c): cost[true, predicted]", f"of shape {tuple(cost.shape)}")
    check_finite(cost, "cost")
    if bool((cost < 0).any()):
        fail("cost", "must not be negative", f"as low as {cost.min().item()}")
    if bool(cost.diagonal().any()):
        fail("cost", "must be 0 for the right label, on the diagonal", cost.diagonal().tolist())
