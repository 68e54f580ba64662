"""What the classifiers share: labels, weights, held-out rows, thresholds and probabilities."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from directloss._checks import check_flips, fail
from directloss.integrations._cut import Array, Calibration, best_cut, decided, decides, positive_class, row_task
from directloss.task import Task
from directloss.tasks import Accuracy, ClassAverage, CountTask


class Part(NamedTuple):
    """Some of the rows."""

    rows: Any
    target: Array
    """The class index ``(n,)``, or 1 for the positive one of two classes."""
    weight: Array


def validation_rows(eval_set: Any) -> tuple[Any, Any, Any]:
    """Validation rows, labels and weights, if any, from ``(X, y)``, ``(X, y, weight)``, or a list of one of them."""
    if isinstance(eval_set, list) and len(eval_set) == 1:
        eval_set = eval_set[0]
    if not isinstance(eval_set, tuple | list) or len(eval_set) not in (2, 3):
        fail("eval_set", "must be rows and labels, (X, y), or with weights, (X, y, w)", f"a {type(eval_set).__name__}")
    check_consistent_length(*eval_set[:2])
    return eval_set[0], eval_set[1], eval_set[2] if len(eval_set) == 3 else None


def fit_copy(estimator: Any, *data: Any) -> Any:
    """Fit a copy of the estimator and let it become the copy, so that an error leaves it as it was."""
    fitted = copy(estimator)
    fitted._fit(*data)
    estimator.__dict__ = fitted.__dict__
    return estimator


class MetricClassifier(ClassifierMixin):  # type: ignore[misc]
    """A classifier for a metric. Subclasses read rows, train, and return scores: ``(n,)`` for the positive one of two
    classes, or ``(n, classes)``.
    """

    metric: str | Task
    pos_label: Any
    random_state: Any
    class_weight: Any = None
    flips: Any = 0.0
    _read: Callable[..., Any]
    """From rows, and from labels with ``reset=True`` in `fit`, to what `_train` and `_scores` take."""
    _held_share: Callable[[], float | None]
    """The share of the rows that is held out if there is no ``eval_set``; None for none."""
    _train: Callable[[Part, Part | None, int], None]
    _scores: Callable[[Any], Array]

    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: Any = None) -> Self:
        """Train on rows ``(n, columns)`` and labels ``(n,)``.

        Args:
            X: rows: an array, a sparse matrix or a data frame.
            y: labels.
            sample_weight: weight of each row, in training and wherever held-out rows choose.
            eval_set: rows, labels and perhaps weights, ``(X, y)`` or ``(X, y, w)``, that choose when training ends,
                and the threshold.
        """
        return fit_copy(self, X, y, sample_weight, eval_set)  # type: ignore[no-any-return]

    def _fit(self, X: Any, y: Any, sample_weight: Any, eval_set: Any) -> None:
        check_consistent_length(X, y)
        rows, y = self._read(X, y, reset=True)
        self._learn_classes(y)
        seed, share = int(check_random_state(self.random_state).randint(2**31 - 1)), self._held_share()
        part, held = self._part(rows, y, sample_weight), None
        if eval_set is not None:
            X, y, sample_weight = validation_rows(eval_set)
            held = self._part(self._read(X), y, sample_weight)
        elif share is not None:
            split = train_test_split(*part, test_size=share, stratify=part.target, random_state=seed)
            part, held = Part(*split[::2]), Part(*split[1::2])
        self._train(part, held, seed)
        self._set_threshold(part if held is None else held, held is not None)

    def _learn_classes(self, y: Array) -> None:
        """The classes, which of two is positive, and the task."""
        if y.dtype == object and (gaps := sum(label is None or label != label for label in y)):
            fail("y", "must have a label for each row", f"without one in {gaps} of {len(y)}", "Leave these rows out.")
        check_classification_targets(y)
        self.classes_, counts = np.unique(y, return_counts=True)
        if len(self.classes_) < 2:
            fail("y", "must have at least two classes", "of one class only" if len(y) else "empty")
        two = len(self.classes_) == 2
        if self.pos_label is not None and not (two and self.pos_label in self.classes_):
            fail("pos_label", "must be one of two classes", f"{self.pos_label!r}, with the classes {self.classes_}")
        if np.any(self.flips) and not two:
            fail("flips", "must be 0 for more than two classes", self.flips)
        task = row_task(self.metric, one_score=two)
        if decides(task) and not two:
            task = ClassAverage(task) if isinstance(task, CountTask) else Accuracy()
        if two and task.event_dims > task.target_dims:
            hint = "For costs of two classes, use accuracy with weights."
            fail("metric", "must be a metric of yes or no for two classes", repr(task), hint)
        self._task = task
        self._swapped = two and not positive_class(self.classes_, counts, self.pos_label)

    def _part(self, rows: Any, y: Any, sample_weight: Any) -> Part:
        y = column_or_1d(y)
        weight = _check_sample_weight(sample_weight, y[:, None], dtype=np.float64, ensure_non_negative=True)
        if not (good := np.isin(y, self.classes_)).all():
            fail("eval_set", f"must have labels that y has, such as {self.classes_[0]}", y[~good][0])
        codes = np.searchsorted(self.classes_, y)
        return Part(rows, 1 - codes if self._swapped else codes, weight * compute_sample_weight(self.class_weight, y))

    def _set_threshold(self, judge: Part, held: bool) -> None:
        """Set threshold and probabilities on held-out rows, or on the training rows if there are none.

        A metric of decisions has its best threshold, or the one it has learned. For a ranking, the most probable class
        is predicted, and for a metric of classes the one with the highest score.
        """
        scores, task = self._scores(judge.rows), self._task
        ranks = not decides(task) and task.event_dims == task.target_dims
        # Without held-out rows, accuracy and the like have learned to choose the most probable class.
        biased = held or ranks or isinstance(task, CountTask)
        self._calibration = Calibration.of(scores, judge.target, judge.weight, biased=biased)
        self.threshold_: Any = self._calibration.threshold if ranks else 0.0
        if held and decides(task):
            self.threshold_ = best_cut(scores, judge.target, task, judge.weight, self.flips)[0]

    def decision_function(self, X: Any) -> Array:
        """The score of the second class, ``(n,)``, above 0 for yes; or of each class, ``(n, classes)``."""
        check_is_fitted(self)
        scores = self._scores(self._read(X)) - self.threshold_
        return np.asarray(-scores if self._swapped else scores)

    def predict(self, X: Any) -> Array:
        """The label of each row."""
        chosen = decided(self.decision_function(X))
        return np.asarray(self.classes_[chosen])

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, ``(n, classes)``, calibrated on the held-out rows, or on the training rows if
        there are none.

        `predict` follows the metric and need not choose the most probable class.
        """
        check_is_fitted(self)
        shares = self._calibration(self._scores(self._read(X)))
        if np.any(self.flips):  # of two classes
            low, high = check_flips(self.flips)
            yes = ((shares[:, 1] - low) / (1 - low - high)).clip(0, 1)
            shares = np.column_stack([1 - yes, yes])
        return shares[:, ::-1] if self._swapped else shares
