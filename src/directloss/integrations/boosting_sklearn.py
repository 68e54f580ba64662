"""Boosted trees that finish on the metric, as a scikit-learn estimator: `BoostedClassifier`."""

from __future__ import annotations

from directloss.integrations._needs import needed

needed("sklearn", __name__, "scikit-learn")

from collections.abc import Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from directloss._checks import check_choice, fail
from directloss.integrations._cut import Calibration, best_cut, decided, decides, even_cut, positive_class, row_task
from directloss.integrations._rows import check_class_labels, validation_rows, weighted_rows
from directloss.integrations.boosting import BUILT_IN, train
from directloss.task import Task

Array = npt.NDArray[Any]


@dataclass(eq=False, repr=False)
class BoostedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Boosted trees of LightGBM or XGBoost, trained with cross-entropy, then on the metric.

    Rows go to the library as they are, which handles missing values, sparse matrices and categorical columns of pandas.
    A part of the rows (or ``eval_set``) chooses the rounds and the threshold of `predict`: for a metric of decisions
    the best one; for a ranking the one that predicts as many positives as there are.

    Args:
        metric: see `directloss.integrations.boosting.Objective`. With more than two classes, a metric of two is the
            mean over each class against the rest.
        library: ``"lightgbm"`` or ``"xgboost"``.
        first: maximum number of rounds with cross-entropy.
        then: maximum number of rounds with the metric.
        patience: rounds without progress after which each phase ends; None for no limit.
        validation: the share of the rows that chooses the rounds if there is no ``eval_set``.
        params: parameters of the library: ``{"num_leaves": 15, "learning_rate": 0.05}`` ...
        noise: see `directloss.integrations.boosting.Objective`.
        pos_label: the positive class of the metric, of two; by default 1 or True, otherwise the rarer one.
        random_state: seed of the split, of the library and of the noise.

    Attributes:
        classes_: the labels in sorted order. A positive `decision_function` means the second of two.
        boosted_: the ``Boosted`` of the training: booster, rounds and validation curve.
        threshold_: for two classes, the raw score above which the positive class is predicted.
        n_iter_: number of rounds kept.
        n_features_in_: number of columns; ``feature_names_in_`` has their names, if they have any.
    """

    metric: str | Task = "ap"
    _: KW_ONLY
    library: str = "lightgbm"
    first: int = 100
    then: int = 200
    patience: int | None = 50
    validation: float = 0.2
    params: Mapping[str, Any] | None = None
    noise: float | str = "auto"
    pos_label: Any = None
    random_state: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: Any = None) -> Self:
        """Train on rows and labels; ``eval_set``, ``(X, y)`` or ``(X, y, weights)``, chooses rounds and threshold.

        Weights count in both parts; rows of weight 0 are ignored altogether. A ranking takes weights where
        `directloss.DirectLoss` does.
        """
        fitted = copy(self)
        fitted._fit(X, y, sample_weight, eval_set)
        self.__dict__ = fitted.__dict__  # only now, so that an error leaves an earlier fit as it was
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, eval_set: Any) -> None:
        X = X if hasattr(X, "shape") else np.asarray(X)
        check_consistent_length(X, y, sample_weight)
        X, y, weight = weighted_rows(X, column_or_1d(y), sample_weight)
        check_class_labels(y)
        self.classes_, counts = np.unique(y, return_counts=True)
        if (count := len(self.classes_)) < 2:
            fail("y", "must have at least two classes", "of one class only" if len(y) else "empty")
        if self.pos_label is not None and (count > 2 or self.pos_label not in self.classes_):
            fail("pos_label", "must be one of two classes", f"{self.pos_label!r}, with the classes {self.classes_}")
        self._positive = positive_class(self.classes_, counts, self.pos_label) if count == 2 else 1
        task = row_task(self.metric, one_score=count == 2)
        if count == 2 and task.event_dims > task.target_dims:
            fail("metric", "must be a metric of yes or no for two classes", repr(task))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        fitting, codes = (X, y, weight), np.searchsorted(self.classes_, y)
        if (held := validation_rows(eval_set)) is None:
            split = train_test_split(np.arange(len(y)), test_size=self.validation, stratify=codes, random_state=seed)
            fitting, held = ((_safe_indexing(X, some), y[some], weight[some]) for some in split)
        elif not np.isin(held[1], self.classes_).all():
            fail("eval_set", "must only have labels of y", np.setdiff1d(held[1], self.classes_))
        self._boost(fitting, held, {"num_class": count} if count > 2 else {}, seed)
        scores, codes, self.threshold_ = self._scores(held[0]), self._codes(held[1]), 0.0
        if count == 2:
            some = torch.from_numpy(scores), torch.from_numpy(codes)
            mass = torch.from_numpy(held[2])
            self.threshold_ = best_cut(*some, task, mass)[0] if decides(task) else even_cut(*some, mass)
        self._calibration = Calibration.of(scores - self.threshold_, codes, held[2])

    def _codes(self, y: Any) -> Array:
        """Class indices; of two classes, 1 for the positive one."""
        codes: Array = np.searchsorted(self.classes_, column_or_1d(y))
        return codes if self._positive else 1 - codes

    def _boost(self, fitting: Any, held: Any, more: Mapping[str, Any], seed: int) -> None:
        """Train on rows, labels and weights; ``held`` chooses the rounds."""
        library = check_choice("library", self.library, BUILT_IN)
        module = needed(library, type(self).__name__, library)
        validate_data(self, fitting[0], skip_check_array=True)
        types = getattr(fitting[0], "dtypes", ())
        self._categories = {i: dtype for i, dtype in enumerate(types) if str(dtype) == "category"}
        parts = [(self._coded(X), self._codes(y), weight) for X, y, weight in (fitting, held)]
        if library == "lightgbm":
            data = module.Dataset(*parts[0][:2], weight=parts[0][2])
            other = data.create_valid(*parts[1][:2], weight=parts[1][2])
        else:
            data, other = (module.DMatrix(X, y, weight=weight, enable_categorical=True) for X, y, weight in parts)
        self.boosted_ = train(
            {"seed": seed, **more, **(self.params or {})}, data, self.metric, validation=other, first=self.first,
            then=self.then, patience=self.patience, noise=self.noise, seed=seed,
        )  # fmt: skip
        self.n_iter_ = self.boosted_.rounds

    def _coded(self, X: Any) -> Any:
        """The table with the categories of the training rows: XGBoost sees their codes only."""
        if not self._categories:
            return X
        coded = X.copy(deep=False)
        for place, dtype in self._categories.items():
            # As plain values first: to pandas, categories in another order, with other codes, are of the same dtype.
            coded.isetitem(place, X.iloc[:, place].astype(object).astype(dtype))
        return coded

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        validate_data(self, X, reset=False, skip_check_array=True)
        if self.library == "lightgbm":
            return np.asarray(self.boosted_.booster.predict(self._coded(X), raw_score=True))
        data = needed("xgboost", type(self).__name__, "xgboost").DMatrix(self._coded(X), enable_categorical=True)
        return np.asarray(self.boosted_.booster.predict(data, output_margin=True))

    def decision_function(self, X: Any) -> Array:
        """The score of the second class, ``(n,)``, above 0 for yes; or of each class, ``(n, classes)``."""
        scores: Array = self._scores(X) - self.threshold_
        return scores if self._positive else -scores

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, ``(n, classes)``, calibrated on the rows that chose the rounds.

        `predict` follows the metric and need not choose the most probable class.
        """
        shares = self._calibration(self._scores(X) - self.threshold_)
        return shares if self._positive else shares[:, ::-1]

    def predict(self, X: Any) -> Array:
        """The label of each row."""
        chosen: Array = self.classes_[decided(self.decision_function(X))]
        return chosen
