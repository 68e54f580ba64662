"""From the scores of rows to decisions and probabilities: the task of a metric, thresholds, calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from directloss._checks import check_flips, fail
from directloss._registry import as_task
from directloss.metrics.confusion import accuracy_of_counts
from directloss.task import Task
from directloss.tasks import Accuracy, CountTask, Error
from directloss.tasks._counting import corrected

Array = npt.NDArray[Any]
TRUTH = {"false": "0", "true": "1", "0.0": "0", "1.0": "1", "-1.0": "-1"}
"""Other spellings of 0, 1 and -1."""


def row_task(metric: str | Task, one_score: bool = False) -> Task:
    """The task of a metric of rows: a ranking, decisions or classes; accuracy of ``one_score`` per row is `Error`."""
    task = as_task(metric, "metric")
    if task.event_dims > 1 or task.target_dims > 1 or task.event_dims < task.target_dims:
        fail("metric", "must be a metric of rows, such as ap, ndcg@10, f1 or accuracy", repr(task))
    return Error() if one_score and type(task) is Accuracy else task


def decides(task: Task) -> bool:
    """Whether the metric judges a yes or no for each row, so that the threshold matters."""
    return isinstance(task, CountTask | Error)


def positive_class(classes: Any, counts: Any, chosen: Any = None) -> int:
    """The index of the positive one of two classes, which are in order: the one that is ``chosen``; otherwise 1 or true
    by convention; otherwise the rarer one, or the second in a tie.
    """
    if chosen is not None:
        return list(classes).index(chosen)
    words = [TRUTH.get(str(label).lower(), str(label).lower()) for label in classes]
    return 1 if (words[0] in ("0", "-1") and words[1] == "1") or counts[1] <= counts[0] else 0


def decided(scores: Array) -> npt.NDArray[np.int64]:
    """The index of each row's predicted class: the second above 0, or the one with the highest score."""
    return scores.argmax(1) if scores.ndim == 2 else (scores > 0).astype(np.int64)


def best_cut(scores: Any, target: Any, task: Task, weight: Any = None, flips: Any = 0.0) -> tuple[float, float]:
    """The threshold with the highest metric, and that metric, of tensors or arrays ``(n,)``; scores above it mean yes.

    ``task`` is an `Error` or a `CountTask`. Rows count by ``weight``; ``flips``, the share of wrong labels, corrects
    the counts. In a tie the highest threshold wins.
    """
    ranked, order = torch.as_tensor(scores).double().sort(descending=True, stable=True)
    positive = torch.as_tensor(target)[order] == 1
    mass = torch.ones_like(ranked) if weight is None else torch.as_tensor(weight).double()[order]
    parts = torch.stack([mass * positive, mass * ~positive]) / mass.mean()
    tp, fp = torch.nn.functional.pad(parts.cumsum(-1), (1, 0))
    metric = corrected(task.metric if isinstance(task, CountTask) else accuracy_of_counts, check_flips(flips))
    ends = torch.cat([ranked[:1] + 2, ranked, ranked[-1:] - 2])
    cuts = torch.where(ends[:-1] > ends[1:], (ends[:-1] + ends[1:]) / 2, torch.inf)  # infinite inside of ties
    values = torch.where(torch.isfinite(cuts), metric(tp, fp, tp[-1] - tp, fp[-1] - fp), -torch.inf)
    place = int(values.argmax())
    return float(cuts[place]), float(values[place])


@dataclass(frozen=True)
class Calibration:
    """``softmax(slope * scores + bias)`` for scores ``(n, c)``, or ``(n,)`` for the second of two classes.

    Platt scaling (1999) for two classes, temperature scaling (Guo et al., 2017) with a bias for more. The bias removes
    the thresholds that the metric prefers; without it, the class with the highest score is the most probable one.
    """

    slope: float
    bias: Array

    @classmethod
    def of(cls, scores: Array, codes: Array, weight: Array | None = None, *, biased: bool = True) -> Calibration:
        """The calibration of maximum likelihood for rows of these classes; the bias is 0 unless ``biased``."""
        scores = _by_class(scores)
        spread, classes = float(scores.std()) or 1.0, scores.shape[1]
        weight = np.ones(len(codes)) if weight is None else weight / weight.mean()
        # Platt's targets, for any number of classes: as if there were two more right rows and two more wrong ones.
        counts, more = np.bincount(codes, weight, minlength=classes), 2 / classes
        wrong = (more / (counts + 2 * more))[codes]
        targets = np.repeat(wrong[:, None] / (classes - 1), classes, axis=1)
        targets[np.arange(len(codes)), codes] = 1 - wrong
        targets *= (weight / weight.sum())[:, None]

        def objective(numbers: Array) -> tuple[float, Array]:
            logs = log_softmax(numbers[0] * scores / spread + numbers[1:], axis=1)
            change = targets.sum(1, keepdims=True) * np.exp(logs) - targets
            return -float((targets * logs).sum()), np.array([(change * scores / spread).sum(), *change.sum(0)])

        # A slope above 0, so that a higher score is never less probable.
        bounds = [(1e-3, None), *[(None, None) if biased else (0.0, 0.0)] * classes]
        best = minimize(objective, np.eye(classes + 1)[0], jac=True, bounds=bounds, method="L-BFGS-B").x
        return cls(float(best[0]) / spread, best[1:])

    @property
    def threshold(self) -> Any:
        """What to subtract from the scores so that the most probable class has the highest one, or one above 0."""
        cuts = -self.bias / self.slope
        return cuts if len(cuts) > 2 else float(cuts[1] - cuts[0])

    def __call__(self, scores: Array) -> Array:
        """Probabilities ``(n, c)``."""
        return np.asarray(softmax(self.slope * _by_class(scores) + self.bias, axis=1))


def _by_class(scores: Array) -> Array:
    """Scores per class; a single score per row is that of the second of two classes."""
    each = np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores
    return each.astype(np.float64)
