"""What the classifiers share: labels, weights, held-out rows, thresholds and probabilities."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import LabelBinarizer
from sklearn.utils import _safe_indexing, check_random_state, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_consistent_length, check_is_fitted

from directloss._checks import check_flips, fail
from directloss.integrations._cut import Array, Calibration, best_cut, decides, positive_class, row_task
from directloss.task import Task
from directloss.tasks import Accuracy, ClassAverage, CountTask, Error


class Part(NamedTuple):
    """Some of the rows."""

    rows: Any
    target: Array
    """The class index ``(n,)``, or a yes or no per output ``(n, outputs)``."""
    weight: Array
    """``(n,)``, without class weights."""
    factor: Array
    """``(n,)``, with class weights."""

    def best_cuts(self, scores: Array, task: Task, flips: Any) -> list[tuple[float, float]]:
        """The best threshold of each output and its metric, for scores ``(n, outputs)``."""
        columns, factor = zip(torch.from_numpy(scores.T), torch.from_numpy(self.target.T), strict=True), self.factor
        return [best_cut(some, wanted, task, torch.from_numpy(factor), flips) for some, wanted in columns]


def weighted_rows(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Array]:
    """Rows, labels and weights without the rows of weight 0, whose content is not looked at."""
    check_consistent_length(X, y, sample_weight)
    if sample_weight is None:
        return X, y, np.ones(_num_samples(X))
    blank = np.empty((_num_samples(X), 0))
    weight: Array = _check_sample_weight(sample_weight, blank, dtype=np.float64, ensure_non_negative=True)
    if (weight > 0).all():
        return X, y, weight
    kept = np.flatnonzero(weight)
    X = X.tocsr() if sparse.issparse(X) else X
    return _safe_indexing(X, kept), _safe_indexing(y, kept), weight[kept]


def validation_rows(eval_set: Any) -> tuple[Any, Any, Array]:
    """Validation rows, labels and weights from ``(X, y)``, ``(X, y, weight)``, or a list of one of them."""
    if isinstance(eval_set, list) and len(eval_set) == 1:
        eval_set = eval_set[0]
    if not isinstance(eval_set, tuple | list) or len(eval_set) not in (2, 3):
        fail("eval_set", "must be rows and labels, (X, y), or with weights, (X, y, w)", f"a {type(eval_set).__name__}")
    return weighted_rows(eval_set[0], eval_set[1], eval_set[2] if len(eval_set) == 3 else None)


def fit_copy(estimator: Any, *data: Any) -> Any:
    """Fit a copy of the estimator and let it become the copy, so that an error leaves it as it was."""
    fitted = copy(estimator)
    fitted._fit(*data)
    estimator.__dict__ = fitted.__dict__
    return estimator


class MetricClassifier(ClassifierMixin):  # type: ignore[misc]
    """A classifier for a metric. Subclasses read rows, train, and return scores ``(n, outputs)``: one per class whose
    highest is predicted (`_by_class`), otherwise one per class or label, or one for the positive class of two.
    """

    metric: str | Task
    pos_label: Any
    random_state: Any
    class_weight: Any = None
    flips: Any = 0.0

    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: Any = None) -> Self:
        """Train on rows ``(n, columns)`` and labels ``(n,)``, or ``(n, labels)`` if the estimator takes several.

        Args:
            X: rows: an array, a sparse matrix or a data frame.
            y: labels.
            sample_weight: weight of each row, in training and wherever held-out rows choose; rows of weight 0 are
                ignored altogether.
            eval_set: rows, labels and perhaps weights, ``(X, y)`` or ``(X, y, w)``, that choose when training ends,
                and the threshold.
        """
        return fit_copy(self, X, y, sample_weight, eval_set)  # type: ignore[no-any-return]

    def _fit(self, X: Any, y: Any, sample_weight: Any, eval_set: Any) -> None:
        X, y, weight = weighted_rows(X, y, sample_weight)
        rows, y = self._read(X, y, reset=True)
        y = _labels(y)
        self._learn_classes(y)
        seed, share = int(check_random_state(self.random_state).randint(2**31 - 1)), self._held_share()
        part, held = self._part(rows, y, weight), None
        if eval_set is not None:
            X, wanted, held_weight = validation_rows(eval_set)
            held = self._part(self._read(X), self._known(wanted, y), held_weight)
        elif share is not None:
            strata = None if self._multilabel else part.target
            split = train_test_split(*part, test_size=share, stratify=strata, random_state=seed)
            part, held = Part(*split[::2]), Part(*split[1::2])
        self._train(part, held, seed)
        self._set_thresholds(part if held is None else held, held is not None)

    def _read(self, X: Any, y: Any = "no_validation", *, reset: bool = False) -> Any:
        """The rows as `_train` and `_scores` take them, with the labels if given; ``reset`` in `fit`."""
        raise NotImplementedError

    def _held_share(self) -> float | None:
        """The share of the rows that is held out if there is no ``eval_set``; None for none."""
        raise NotImplementedError

    def _train(self, part: Part, held: Part | None, seed: int) -> None:
        raise NotImplementedError

    def _scores(self, rows: Any) -> Array:
        raise NotImplementedError

    # ------------------------------------------------------------------ labels

    def _learn_classes(self, y: Array) -> None:
        """The classes, which of two is positive, and the task."""
        self._binarizer, self._multilabel = LabelBinarizer().fit(y), y.ndim == 2
        self.classes_: Array = self._binarizer.classes_
        count = len(self.classes_)
        if count < 2 and not self._multilabel:
            fail("y", "must have at least two classes", "of one class only")
        two = count == 2 and not self._multilabel
        if self.pos_label is not None and not (two and self.pos_label in self.classes_):
            fail("pos_label", "must be one of two classes", f"{self.pos_label!r}, with the classes {self.classes_}")
        if np.any(self.flips) and not (two or self._multilabel):
            fail("flips", "must be 0 for more than two classes", self.flips)
        self._positive = (
            positive_class(self.classes_, np.unique(y, return_counts=True)[1], self.pos_label) if two else 1
        )
        task = row_task(self.metric, one_score=two or self._multilabel)
        if count > 2 and not self._multilabel and decides(task):
            task = ClassAverage(task) if isinstance(task, CountTask) else Accuracy()
        self._task, self._by_class = task, task.event_dims > task.target_dims
        if self._multilabel and self._by_class:
            fail("metric", "must be a metric of yes or no for labels of shape (n, labels)", repr(task), "Try f1 or ap.")

    def _known(self, wanted: Any, y: Array) -> Array:
        """Labels of validation rows, which must be among the labels ``y``."""
        wanted = np.asarray(wanted)
        if wanted.shape[1:] != y.shape[1:]:
            fail("eval_set", f"must have labels like those of y, of shape {y.shape}", f"of shape {wanted.shape}")
        labels = np.array([0, 1]) if self._multilabel else self.classes_
        if not (good := np.isin(wanted, labels)).all():
            fail("eval_set", f"must have labels that y has, such as {labels[0]}", wanted[~good][0])
        return wanted

    def _part(self, rows: Any, y: Array, weight: Array) -> Part:
        factor = weight if self.class_weight is None else weight * compute_sample_weight(self.class_weight, y)
        if self._by_class:
            return Part(rows, np.searchsorted(self.classes_, y), weight, factor)
        target = self._binarizer.transform(y)
        return Part(rows, target if self._positive else 1 - target, weight, factor)

    # ------------------------------------------------------------------ decisions and probabilities

    def _set_thresholds(self, judge: Part, held: bool) -> None:
        """Set thresholds and probabilities on held-out rows, or on the training rows if there are none.

        A metric of decisions has its best threshold, or the one it has learned. Otherwise the most probable class is
        predicted, or, for a metric of classes, the one with the highest score.
        """
        scores = self._scores(judge.rows)
        pairs = [(scores, judge.target)] if self._by_class else [*zip(scores.T, judge.target.T, strict=True)]
        # Without held-out rows, accuracy and the like have learned to choose the most probable class.
        biased = held or self.class_weight is not None or not (self._by_class or isinstance(self._task, Error))
        self._calibrations = [Calibration.of(*pair, judge.weight, biased=biased) for pair in pairs]
        cuts, self._slope = np.zeros(scores.shape[1]), np.ones(scores.shape[1])
        if held and decides(self._task):
            cuts = np.array([cut for cut, _ in judge.best_cuts(scores, self._task, self.flips)])
        elif not (self._by_class or decides(self._task)):
            judged = [Calibration.of(*pair, judge.factor) for pair in pairs]
            self._slope = np.array([each.slope for each in judged])
            cuts = np.array([(each.bias[0] - each.bias[1]) / each.slope for each in judged])
        self.threshold_: Any = float(cuts[0]) if len(cuts) == 1 else cuts

    def decision_function(self, X: Any) -> Array:
        """The score of the second class, ``(n,)``, above 0 for yes; or of each class or label, ``(n, classes)``."""
        check_is_fitted(self)
        scores: Array = (self._scores(self._read(X)) - self.threshold_) * self._slope
        if self._multilabel or len(self.classes_) > 2:
            return scores
        if scores.shape[1] == 2:
            return np.asarray(scores[:, 1] - scores[:, 0])
        return np.asarray(scores[:, 0] if self._positive else -scores[:, 0])

    def predict(self, X: Any) -> Array:
        """The label of each row; for a multilabel problem, a 0 or 1 per label."""
        scores = self.decision_function(X)
        return np.asarray(self._binarizer.inverse_transform(scores, threshold=0))

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, or, for a multilabel problem, of each label: ``(n, classes)``.

        Calibrated on the held-out rows, or on the training rows if there are none. `predict` follows the metric and
        need not choose the most probable class.
        """
        check_is_fitted(self)
        scores = self._scores(self._read(X))
        if self._by_class:
            return self._calibrations[0](scores)
        columns = zip(self._calibrations, scores.T, strict=True)
        low, high = check_flips(self.flips)
        yes = (np.column_stack([calibration(column)[:, 1] for calibration, column in columns]) - low) / (1 - low - high)
        yes = yes.clip(np.finfo(float).tiny, 1)
        if self._multilabel:
            return yes
        if yes.shape[1] > 1:
            return np.asarray(yes / yes.sum(1, keepdims=True))
        return np.hstack([1 - yes, yes] if self._positive else [yes, 1 - yes])


def _labels(y: Any) -> Array:
    """Labels ``(n,)``, or ``(n, labels)`` of a multilabel problem."""
    y = y.toarray() if sparse.issparse(y) else np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    if y.dtype == object and (gaps := sum(label is None or label != label for label in y.flat)):
        fail("y", "must have a label for each row", f"without one in {gaps} of {len(y)}", "Leave these rows out.")
    check_classification_targets(y)
    return np.asarray(y)
