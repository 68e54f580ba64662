"""One class per row, judged by the average over the classes of a metric of decisions: macro F1, mean IoU, ..."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from directloss._checks import check_choice, check_classes, check_finite, fail, precise
from directloss._registry import as_task
from directloss.metrics.confusion import count
from directloss.moves import choose_classes
from directloss.task import Defaults, Estimate, Expected, Mask, PaddedTask
from directloss.tasks._counting import CountTask
from directloss.tasks._likelihood import wide
from directloss.tasks.classes import one_hot

AVERAGES = ("macro", "weighted")


class ClassAverage(PaddedTask):
    """Choose one of c classes for each of t rows (samples, pixels), judged by the mean over the classes of a metric of
    the decisions "is it this class?".

    The gradient is that of the expected metric if each row draws its class from the softmax of ``scores / noise``:
    exact, by moving one row at a time from class to class.

    Args:
        task: a metric of decisions, such as ``"f1"`` or ``IoU()``.
        average: ``"macro"`` for the classes that are present, all alike; ``"weighted"`` by their numbers of rows.

    Shapes:
        scores ``(..., t, c)``, target ``(..., t)`` with class indices.

    Examples:
        >>> from directloss.tasks import FBeta
        >>> task = ClassAverage(FBeta())
        >>> scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 2.0, 0.0], [0.0, 1.0, 2.0]])
        >>> task.loss(task.predict(scores), torch.tensor([0, 1, 0, 2]))
        tensor(0.2222, dtype=torch.float64)
    """

    event_dims = 2
    shape_words = "(..., t, c)"
    defaults = Defaults(
        no_flips="the classes that wrong labels come from are not known",
        no_item_weights="give each row a weight by drawing rows accordingly",
    )

    def __init__(self, task: str | CountTask, average: str = "macro") -> None:
        known = as_task(task)
        if not isinstance(known, CountTask):
            fail("task", 'must be a metric of decisions, such as "f1" or IoU()', repr(task))
        self.task, self.average = known, check_choice("average", average, AVERAGES)

    def predict(self, scores: Tensor) -> Tensor:
        """The class with the highest score; ties go to the lowest index."""
        return scores.argmax(-1)

    def loss(self, output: Tensor, target: Tensor, mask: Mask = None) -> Tensor:
        classes = int(torch.maximum(output.max(), target.max())) + 1
        return self._losses(output, classes, *self._members(target, classes, mask))

    def _losses(self, output: Tensor, classes: int, members: Tensor, share: Tensor) -> Tensor:
        yes = output.unsqueeze(-2) == torch.arange(classes, device=output.device)[:, None]
        return 1 - (self.task.metric(*count(yes, members)) * share).sum(-1)

    def _members(self, target: Tensor, classes: int, mask: Mask) -> tuple[Tensor, Tensor]:
        """Which rows belong to each class and which do not, ``(2, ..., c, t)``; and how much each class counts."""
        inside = target.unsqueeze(-2) == torch.arange(classes, device=target.device)[:, None]
        members = torch.stack((inside, ~inside))
        members = members if mask is None else members & mask.unsqueeze(-2)
        rows = precise(members[0].sum(-1))
        share = rows if self.average == "weighted" else (rows > 0).to(rows.dtype)
        return members, share / share.sum(-1, keepdim=True).clamp(min=1)

    def expected(self, scores: Tensor, target: Tensor, request: Estimate) -> Expected:
        request.refuse_weight(self)
        self.check(scores, target, request.check_values)
        scores, mask, classes = wide(scores), request.mask, scores.shape[-1]
        members, share = self._members(target, classes, mask)
        losses, counted = self._losses(self.predict(scores), classes, members, share), self.counted(target, mask)
        if not request.gradient:
            return Expected(losses, counted=counted)
        gumbel = request.noise.perturb(scores, self.defaults.density)
        slope = choose_classes(self.task.metric, scores, gumbel.argmax(-1), members, share, float(request.noise.scale))
        likelihood = self._likelihood_slope(scores, target, mask) if request.likelihood else None
        return Expected(losses, -slope, likelihood, counted)

    def _likelihood_slope(self, scores: Tensor, target: Tensor, mask: Mask) -> Tensor:
        """Of cross-entropy. The rows of a class count by the geometric mean of all alike and all classes alike."""
        truth, real = one_hot(target, scores), 1.0 if mask is None else mask.unsqueeze(-1)
        rows = (truth * real).sum(-2, keepdim=True)
        own = (truth * rows).sum(-1, keepdim=True).clamp(min=1)
        whole = rows.sum(-1, keepdim=True) * (rows > 0).sum(-1, keepdim=True)
        return (scores.softmax(-1) - truth) * real * (own * whole.clamp(min=1)).rsqrt()

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        if target.shape != scores.shape[:-1]:
            rule = f"must hold one class index per row, shape {tuple(scores.shape[:-1])}"
            fail("target", rule, f"of shape {tuple(target.shape)}")
        if check_values:
            check_finite(scores)
            check_classes(target, scores.shape[-1])

    def augmented(self, scores: Tensor, target: Tensor, epsilon: Any, sign: int, mask: Mask = None) -> Tensor:
        fail("epsilon, sign", f"must be left out: {self!r} has no exact loss-augmented inference", "given")

    def truth(self, target: Tensor, mask: Mask = None) -> Tensor:
        fail("task", 'must have a scoring function F: the perceptron takes "accuracy" instead', repr(self))

    def score(self, scores: Tensor, output: Tensor) -> Tensor:
        return self.truth(output)

    def __repr__(self) -> str:
        return f"ClassAverage({self.task!r}, {self.average!r})"
