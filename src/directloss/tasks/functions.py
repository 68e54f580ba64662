"""Any metric, by moves: a function of scores and target that is known by its values alone.

The formula of `directloss.moves` needs nothing of a metric but its value,

    d/ds_d E[ M(s + z) ]  =  E[ M(s + z, d at s_d + h) - M(s + z, d at s_d - h) ] / (2 h)

so each step moves some of the scores, chosen at random, and calls the metric twice for each. The gradient of the others
is 0 in this step, and that of the moved ones is multiplied accordingly: its mean over steps is exact.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from directloss._checks import check_count, check_finite, check_no_column, fail, name_of, value_of, warn_once
from directloss.noise import Noise
from directloss.task import Defaults, Estimate, Expected, Task
from directloss.tasks._likelihood import of_classes, of_each_decision, wide

SLOW = 1.0
"""Seconds per step from which a metric is called slow."""
MetricOfScores = Callable[[Tensor, Tensor], Any]


class MetricFunction(Task):
    """A function ``metric(scores, target)`` that returns one number, as the task of a `DirectLoss`.

    ``DirectLoss(function)`` is short for ``DirectLoss(MetricFunction(function))``. All scores of a call are one
    problem.

    Args:
        function: gets the scores and a copy of the target, both as passed to the loss, and returns a number or a tensor
            with one element. NumPy arrays work too: write ``lambda s, t: metric(t.numpy(), s.numpy())``.
        maximize: False for a metric where lower is better. The loss is ``1 - metric``, or the metric itself.
        moved: how many scores are moved in each step, at two calls of the metric each. Of thousands of scores, most
            have no gradient of the metric in a step; `directloss.UniLoss` gives all of them one.

    Examples:
        >>> def agreement(scores, target):
        ...     return ((scores > 0) == (target == 1)).float().mean()
        >>> MetricFunction(agreement, moved=16)
        MetricFunction(agreement)
    """

    shape_words = "(...)"
    defaults = Defaults(
        noise=3.0,
        density="uniform",
        graphs=False,
        no_flips="the counts of a function are not known, so they cannot be corrected",
        no_item_weights="let the function weigh its items",
    )

    def __init__(self, function: MetricOfScores, *, maximize: bool = True, moved: int = 32) -> None:
        if isinstance(function, type) or not callable(function):
            fail("function", "must be a function metric(scores, target)", repr(function))
        if maximize and isinstance(function, nn.modules.loss._Loss):
            hint = "Write MetricFunction(loss, maximize=False), or add the loss to that of a metric."
            fail("function", "must be a metric, where higher is better", f"the loss {function}", hint)
        self.function, self.maximize, self.moved = function, bool(maximize), check_count("moved", moved)

    def fitted(self, scores: Tensor, target: Tensor) -> MetricFunction:
        """All of the scores are one problem."""
        check_no_column(scores, target)
        task = copy.copy(self)
        task.event_dims, task.target_dims = scores.dim(), target.dim()
        return task

    def expected(self, scores: Tensor, target: Tensor, request: Estimate) -> Expected:
        """The loss, and an unbiased estimate of the gradient of its expectation."""
        request.refuse_weight(self)
        if request.check_values:
            check_finite(scores)
        losses = self.loss(scores, target)
        if not request.gradient:
            return Expected(losses)
        draws = request.noise.samples or 1
        slope = torch.stack([self._slope(wide(scores), target, request.noise) for _ in range(draws)]).mean(0)
        likelihood = self._likelihood_slope(wide(scores), target) if request.likelihood else None
        return Expected(losses, -slope if self.maximize else slope, likelihood)

    def predict(self, scores: Tensor) -> Tensor:
        """The scores themselves: what they are turned into is the function's business."""
        return scores

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        lead = output.shape[: output.dim() - self.event_dims]
        values = self.values(output.reshape(-1, *output.shape[len(lead) :]), target).reshape(lead).to(output.device)
        return 1 - values if self.maximize else values

    def value(self, losses: Tensor, target: Tensor) -> Tensor:
        """What the function returns."""
        return 1 - losses if self.maximize else losses

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> NoReturn:
        fail("epsilon, sign", f"must be left out: {self!r} has no loss-augmented inference", "given")

    def truth(self, target: Tensor) -> NoReturn:
        fail("task", "must know the true output, which hinge and perceptron need", repr(self))

    def score(self, scores: Tensor, output: Tensor) -> NoReturn:
        fail("task", "must have a scoring function F, which hinge and perceptron need", repr(self))

    def _slope(self, scores: Tensor, target: Tensor, noise: Noise) -> Tensor:
        """The gradient by one draw of the noise, for some of the scores."""
        flat, h = scores.flatten(), float(noise.scale)
        count, one = min(self.moved, flat.numel()), noise._replace(samples=1)
        noisy = one.perturb(flat, "uniform")[0]
        chosen = one.uniform(flat)[0].argsort()[:count]
        moved = noisy.repeat(2, count, 1)
        rows = torch.arange(count, device=flat.device)
        moved[0, rows, chosen], moved[1, rows, chosen] = flat[chosen] + h, flat[chosen] - h
        up, down = self.values(moved.reshape(2 * count, *scores.shape), target).reshape(2, count)
        slope = torch.zeros_like(flat)
        slope[chosen] = ((up - down) / (2 * h) * (flat.numel() / count)).to(flat)
        return slope.reshape(scores.shape)

    def values(self, batch: Tensor, target: Tensor) -> Tensor:
        """The metric of each of several score tensors ``(k, *scores.shape)``, shape ``(k,)``, float64."""
        shared = target.dim() == self.target_dims
        began = time.thread_time()  # not delayed by a busy machine
        values = [self._value(scores, target if shared else target[k]) for k, scores in enumerate(batch)]
        if (seconds := time.thread_time() - began) > SLOW:
            warn_once(
                "slow metric",
                f"{len(batch)} calls of {self!r} take {seconds:.1f} s in each step. Write it without Python loops over "
                "items, or move fewer scores: MetricFunction(function, moved=8).",
            )
        return torch.stack(values)

    def _value(self, scores: Tensor, target: Tensor) -> Tensor:
        value = value_of(self.function, scores, target).cpu()
        if not bool(torch.isfinite(value)):
            fail("metric", "must return a finite number", value.item())
        return value

    def _likelihood_slope(self, scores: Tensor, target: Tensor) -> Tensor | None:
        """The gradient of the mean cross-entropy, if the target holds 0 and 1 for each score, or one class per row."""
        if target.shape == scores.shape and bool(((target == 0) | (target == 1)).all()):
            return of_each_decision(scores, target.to(scores.dtype)) / scores.numel()
        whole = not target.is_floating_point() and target.dtype != torch.bool
        by_row = whole and scores.dim() > 0 and target.shape == scores.shape[:-1]
        if by_row and bool(((target >= 0) & (target < scores.shape[-1])).all()):
            truth = torch.zeros_like(scores).scatter(-1, target.long().unsqueeze(-1), 1.0)
            return of_classes(scores, truth) / max(target.numel(), 1)
        return None

    def __repr__(self) -> str:
        return f"MetricFunction({name_of(self.function)})"
