"""Yes-or-no decisions judged by the confusion matrix: F-beta, IoU, Dice, Matthews, kappa, ..., or your own function.

Scores and target have shape ``(..., n)``; each row of n items is one problem. The output says yes or no for every item,
F is the mean over the items of ``score * yes``, and plain inference says yes where the score is above 0 (a score of
exactly 0 is a no). Loss-augmented inference is exact for both signs: O(n log n), except for the G-mean and your own
functions, which take all pairs of true and false positives within reach; `directloss.kernels.flips` has the algorithm
and the rule for ties. Conventions for 0/0 are in `directloss.metrics.confusion`.

A problem without positives (or negatives) has a loss like any other: it can still have fewer false alarms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from directloss._checks import check_positive, fail, warn_once
from directloss._dynamo import traced
from directloss.metrics import confusion as formulas
from directloss.metrics.confusion import Counts
from directloss.tasks._counting import CountTask

ROWS_OF_PIXELS = (
    "Each row of pixels is a set of its own, because a set is the last dimension of the scores. If an image is one "
    "set, pass dim=(-2, -1) to the loss."
)


WHOLE_SHARE = replace(CountTask.defaults, likelihood=1.0)
"""Alone, precision is best with hardly any yes, and recall with no other answer."""


class FBeta(CountTask):
    """F-beta: ``L = 1 - (1 + beta^2) tp / ((1 + beta^2) tp + beta^2 fn + fp)``; beta = 1 gives F1.

    Examples:
        >>> task = FBeta(2.0)
        >>> task.loss(task.predict(torch.tensor([1.0, 1.0, -1.0])), torch.tensor([1, 0, 0]))
        tensor(0.1667)
    """

    line = "predicted"

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = check_positive("beta", beta)

    def metric(self, tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
        return formulas.f_beta_of_counts(tp, fp, fn, tn, beta=self.beta)

    def __repr__(self) -> str:
        return f"FBeta({self.beta})"


class SetTask(CountTask):
    """Overlap of two sets, which are often the foreground of images."""

    def warn(self, scores: Tensor) -> None:
        super().warn(scores)
        if scores.dim() >= 4:
            warn_once("sets in the last dimension", ROWS_OF_PIXELS)


class Dice(SetTask):
    """Dice coefficient of two sets: ``L = 1 - 2 tp / (2 tp + fp + fn)``; the same number as F1."""

    line = "predicted"
    metric = staticmethod(formulas.dice_of_counts)


class IoU(SetTask):
    """Intersection over union (Jaccard index) of two sets: ``L = 1 - tp / (tp + fp + fn)``.

    Examples:
        >>> task = IoU()
        >>> task.loss(task.predict(torch.tensor([1.0, 1.0, -1.0])), torch.tensor([1, 0, 0]))
        tensor(0.5000)
    """

    line = "false positives"
    metric = staticmethod(formulas.iou_of_counts)


class Precision(CountTask):
    """Precision: ``L = 1 - tp / (tp + fp)``. Saying no to everything has precision 0 where there are positives."""

    defaults = WHOLE_SHARE
    line = "predicted"
    metric = staticmethod(formulas.precision_of_counts)


class Recall(CountTask):
    """Recall: ``L = 1 - tp / (tp + fn)``. Saying yes to everything has recall 1: combine it with another loss."""

    defaults = WHOLE_SHARE
    line = "predicted"
    metric = staticmethod(formulas.recall_of_counts)


class BalancedAccuracy(CountTask):
    """Balanced accuracy: ``L = 1 - (tp / (tp + fn) + tn / (tn + fp)) / 2``."""

    line = "predicted"
    metric = staticmethod(formulas.balanced_accuracy_of_counts)


class GMean(CountTask):
    """Geometric mean of the two accuracies: ``L = 1 - sqrt(tp / (tp + fn) * tn / (tn + fp))``."""

    metric = staticmethod(formulas.g_mean_of_counts)


class Matthews(CountTask):
    """Matthews' correlation coefficient: ``L = 1 - MCC``, from 0 to 2.

    Examples:
        >>> task = Matthews()
        >>> task.loss(task.predict(torch.tensor([1.0, -1.0])), torch.tensor([0, 1]))
        tensor(2.)
    """

    line = "predicted"
    metric = staticmethod(formulas.matthews_of_counts)


class Kappa(CountTask):
    """Cohen's kappa: ``L = 1 - kappa``, from 0 to 2."""

    line = "predicted"
    metric = staticmethod(formulas.kappa_of_counts)


class CountMetric(CountTask):
    """Your own function of the confusion matrix: ``L = 1 - function(tp, fp, fn, tn)``.

    The function gets four float64 tensors of one shape and returns the metric in that shape, finite for all counts.
    Inference searches the grid of all pairs of counts, O(P N): seconds for 20,000 items, minutes for 100,000.

    Args:
        function: of true positives, false positives, false negatives and true negatives.
        monotone: True if one more wrong decision never increases the metric, which is not checked; inference is
            then much faster, because it skips flips that cannot help.

    Examples:
        >>> def specificity(tp, fp, fn, tn):
        ...     return (tn + 1) / (tn + fp + 1)
        >>> CountMetric(specificity, monotone=True)
        CountMetric(specificity, monotone=True)
    """

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], monotone: bool = False) -> None:
        if not callable(function):
            fail("function", "must be a function of the four counts tp, fp, fn, tn", repr(function))
        self.function = function
        self.monotone = bool(monotone)
        # All small confusion matrices with both classes, so that a wrong function fails here, not in training.
        small = [
            (tp, fp, p - tp, n - fp) for p, n in product((1, 2), (1, 2)) for tp in range(p + 1) for fp in range(n + 1)
        ]
        self.metric(*torch.tensor(small, dtype=torch.float64).unbind(-1))

    def metric(self, tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
        counts = Counts(*torch.broadcast_tensors(tp, fp, fn, tn))  # type: ignore[no-untyped-call]
        shape = counts.tp.shape
        what = "function(tp, fp, fn, tn)"
        try:
            value: object = self.function(*counts)
        except (RuntimeError, TypeError, ValueError) as error:
            hint = "Write if as torch.where, and math.sqrt as torch.sqrt."
            fail(what, "must work on tensors of counts", f"one that raises {type(error).__name__}: {error}", hint)
        if not isinstance(value, Tensor):
            fail(what, "must be a tensor", f"a {type(value).__name__}")
        if value.shape != shape:
            fail(what, f"must have the shape of the counts, {tuple(shape)}", f"of shape {tuple(value.shape)}")
        if not traced() and not bool((finite := torch.isfinite(value)).all()):
            where = ", ".join(f"{name} = {int(part[~finite][0])}" for name, part in counts._asdict().items())
            hint = "Define 0/0, for example with torch.where."
            fail(what, "must be finite for all counts", f"{value[~finite][0].item()} at {where}", hint)
        return value.double()

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"CountMetric({name}, monotone={self.monotone})"
