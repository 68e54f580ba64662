"""The base of tasks with yes-or-no decisions, judged by a function of the confusion matrix."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from directloss._checks import check_finite, check_labels, check_same_shape, precise, warn_of_probabilities
from directloss.kernels import compiles, label_rows
from directloss.metrics.confusion import count, members
from directloss.moves import Metric, divided, flip_decisions, flipped
from directloss.task import Defaults, Estimate, Expected, Mask, PaddedTask
from directloss.tasks._likelihood import of_decisions, wide

ALL_YES = (
    "Every decision is yes: all scores lie between 0 and 1, and a decision is yes where its score is above 0. If they "
    "are logits, the network says yes to everything. If they are probabilities, pass logits instead, or scores - 0.5 "
    "for a threshold of 0.5."
)


class Selection(NamedTuple):
    """An output as F sees it."""

    chosen: Tensor
    """1 for yes, 0 for no and for padding. Shape ``(..., n)``, floating point."""
    items: Tensor
    """Number of items that are not padding, shape ``(...)``."""


def check_decisions(scores: Tensor, target: Tensor, check_values: bool) -> None:
    """Check scores with threshold 0 and a label of 0 or 1 each."""
    check_same_shape(target, scores)
    if check_values:
        check_finite(scores)
        check_labels(target, hint="Leave items out with mask. For labels -1 and 1 pass target > 0.")


class CountTask(PaddedTask):
    """Decide yes or no for each item, judged by a function of true and false positives and negatives.

    A new metric only implements `metric`; the loss is ``1 - metric``.
    """

    defaults = Defaults(
        likelihood=0.1,  # cross-entropy decides at one half, a metric of rare positives far below
        density="logistic",
        no_flips="",
        no_item_weights="with different weights the best set of decisions to flip is a knapsack problem. Leave out "
        "epsilon and sign",
    )

    line: ClassVar[str | None] = None
    """What must be fixed to make the metric linear in the true positives: "predicted" or "false positives"; None if
    that does not help.
    """
    monotone: bool = True
    """Whether one more wrong decision never increases the metric."""

    @abstractmethod
    def metric(self, tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
        """The metric as a function of float64 counts that broadcast against each other."""

    def loss_of_counts(self, tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
        """L as a function of the counts, ``1 - metric``, broadcast to the shape of all four."""
        return (1 - self.metric(tp, fp, fn, tn)).expand((tp + fp + fn + tn).shape)

    def predict(self, scores: Tensor) -> Tensor:
        """1 where the score is above 0, otherwise 0; in the dtype of the scores."""
        return (scores > 0).to(scores.dtype)

    def infer(self, scores: Tensor, target: Tensor, mask: Mask = None) -> Selection:
        real = members(target, mask).any(0)
        return Selection(self.predict(scores) * real, real.sum(-1))

    def augmented(
        self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int, mask: Mask = None
    ) -> Selection:
        from directloss.kernels import flips  # slow to import

        scores = wide(scores.detach())
        plain, shape = self.infer(scores, target, mask), scores.shape
        rows = scores.cpu().reshape(-1, shape[-1])
        sides = members(target, mask).cpu().expand(2, *shape).reshape(2, *rows.shape)
        counts = count(rows > 0, sides)
        steps = torch.as_tensor(epsilon, dtype=torch.float64, device="cpu").expand(shape[:-1]).reshape(-1).numpy()
        judge = flips.Judge(self._array_loss, self.line, self.monotone, sign)
        flipped = torch.from_numpy(flips.best_flips(rows.numpy(), sides.numpy(), counts.numpy(), steps, judge))
        return plain._replace(chosen=(plain.chosen - flipped.reshape(shape).to(plain.chosen)).abs())

    def truth(self, target: Tensor, mask: Mask = None) -> Selection:
        positive, negative = members(target, mask)
        return Selection(positive.to(torch.get_default_dtype()), (positive | negative).sum(-1))

    def loss(self, output: Tensor | Selection, target: Tensor, mask: Mask = None) -> Tensor:
        chosen = output.chosen if isinstance(output, Selection) else output
        losses = self.loss_of_counts(*count(chosen > 0, members(target, mask)))
        return losses.to(torch.promote_types(chosen.dtype, torch.float32))

    def score(self, scores: Tensor, output: Tensor | Selection) -> Tensor:
        """F, the mean over the items of ``score * chosen``."""
        dtype = torch.promote_types(scores.dtype, torch.float32)
        if not isinstance(output, Selection):
            return (scores.to(dtype) * output.to(dtype)).mean(-1)
        return (scores.to(dtype) * output.chosen.to(dtype)).sum(-1) / output.items.clamp(min=1)

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        check_decisions(scores, target, check_values)
        if check_values:
            self.warn(scores)

    def warn(self, scores: Tensor) -> None:
        """Warn once of scores that look like a mistake."""
        warn_of_probabilities(scores, "decisions", ALL_YES)

    def unit_epsilon(self, scores: Tensor, target: Tensor, mask: Mask = None) -> Tensor:
        """``1 / (n d)``: a flipped decision changes F by ``|score| / n`` and the loss by at most ``d``, the larger loss
        of one miss and of one false alarm with all other decisions right.
        """
        P, N = precise(members(target, mask).sum(-1))
        none, miss, alarm = torch.zeros_like(P), P.clamp(max=1), N.clamp(max=1)
        worst = torch.maximum(
            self.loss_of_counts(P - miss, none, miss, N), self.loss_of_counts(P, alarm, none, N - alarm)
        )
        stake = (P + N) * (worst - self.loss_of_counts(P, none, none, N))
        # If no single wrong decision changes the metric, treat all as equally important.
        return 1 / torch.where(stake > 0, stake, 1.0)

    def expected(self, scores: Tensor, target: Tensor, request: Estimate) -> Expected:
        metric, mask = corrected(self.metric, request.flips), request.mask
        counted = self.counted(target, mask)

        def loss(*counts: Tensor) -> Tensor:
            return 1 - metric(*counts)

        if request.gradient and request.weight is None and compiles(scores):
            value, slope = self._compiled(loss, wide(scores), target, request)
        else:
            self.check(scores, target, request.check_values)
            sides = members(target, mask)
            if not request.gradient:
                return Expected(loss(*count(scores > 0, sides, request.weight)), counted=counted)
            uniform, scale = request.noise.uniform(scores), float(request.noise.scale)
            value, slope = flip_decisions(loss, wide(scores), sides, uniform, scale, request.weight)
            slope = slope if mask is None else slope * mask
        likelihood = of_decisions(scores, target, request) if request.likelihood else None
        return Expected(value, slope, likelihood, counted)

    def _compiled(self, metric: Metric, scores: Tensor, target: Tensor, request: Estimate) -> tuple[Tensor, Tensor]:
        """`flip_decisions` in compiled loops."""
        from directloss.kernels import decisions  # slow to import

        self.check(scores, target, False)
        scale, n, mask = float(request.noise.scale), scores.shape[-1], request.mask
        likely, uniform = torch.sigmoid(divided(scores, scale)), request.noise.uniform(scores)
        likely = likely if mask is None else likely * mask
        rows, chances = (one.contiguous().numpy().reshape(-1, n) for one in (scores, likely))
        labels, drawn = label_rows(target), uniform.numpy().reshape(-1, *rows.shape)
        counts, slope = np.empty((4, len(drawn) + 1, len(rows))), np.empty_like(rows)
        wrong = decisions.count_yes(rows, labels, chances, drawn, counts)
        if request.check_values:
            if wrong:
                self.check(scores, target, True)
            self.warn(scores)
        if mask is not None:  # padding has label 0, and never says yes
            counts[3] -= (~mask).sum(-1).flatten().numpy()
        values = flipped(metric, torch.from_numpy(counts))
        decisions.weigh_flips(labels, chances, drawn, (values[:4] - values[2:]).numpy(), scale, slope)
        return values[2, 0].reshape(scores.shape[:-1]), torch.from_numpy(slope).reshape(scores.shape)

    def _array_loss(self, counts: Any) -> Any:
        return self.loss_of_counts(*torch.from_numpy(counts)).numpy()


def corrected(metric: Metric, flips: tuple[float, float]) -> Metric:
    """The metric of the right labels, as a function of the counts of labels of which some are wrong.

    ``flips`` are the shares of the negatives labelled positive and of the positives labelled negative. Replacing each
    label y by ``(y - flips[0]) / (1 - flips[0] - flips[1])`` makes every count right in expectation, so the right
    counts are linear in the given ones. Small batches may make them negative; they are then 0.

    Examples:
        >>> count = lambda tp, fp, fn, tn: tp
        >>> corrected(count, (0.2, 0.2))(*torch.tensor([30.0, 20.0, 10.0, 40.0]))
        tensor(33.3333)
    """
    if not any(flips):
        return metric
    whole = 1 - flips[0] - flips[1]

    def right(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
        counts = []
        for positive, negative in ((tp, fp), (fn, tn)):
            both = positive + negative
            true = ((positive - flips[0] * both) / whole).clamp(min=0).minimum(both)
            counts += [true, both - true]
        return metric(*counts)

    return right
