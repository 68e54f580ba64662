"""Boosted trees that finish on the metric, as scikit-learn estimators: `BoostedClassifier` and `BoostedRanker`."""

from __future__ import annotations

from directloss.integrations._needs import needed

needed("sklearn", __name__, "scikit-learn")

from collections.abc import Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from directloss._checks import check_choice, fail
from directloss.integrations._cut import Calibration, best_cut, decided, decides, even_cut, row_task
from directloss.integrations._lists import QueryLists
from directloss.integrations._rows import check_class_labels, validation_rows, weighted_rows
from directloss.integrations.boosting import BUILT_IN, Evaluation, ScoredRows, train
from directloss.task import Task

Array = npt.NDArray[Any]


class _Rows(NamedTuple):
    """Rows as both libraries take them."""

    X: Any
    y: Array
    weight: Array | None = None
    sizes: Array | None = None

    def take(self, which: Array, sizes: Array | None = None) -> _Rows:
        """Some of the rows; ``sizes`` are the sizes of their lists."""
        weight = None if self.weight is None else self.weight[which]
        return _Rows(_safe_indexing(self.X, which), self.y[which], weight, sizes)


@dataclass(eq=False, repr=False)
class _Boosted(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: parameters, data sets of either library, and scores."""

    metric: str | Task = "ap"
    _: KW_ONLY
    library: str = "lightgbm"
    first: int = 100
    then: int = 200
    patience: int | None = 50
    validation: float = 0.2
    params: Mapping[str, Any] | None = None
    noise: float | str = "auto"
    random_state: Any = None

    def _boost(self, fitting: _Rows, held: _Rows, more: Mapping[str, Any], seed: int) -> None:
        """Train; ``held`` chooses the rounds."""
        library = check_choice("library", self.library, BUILT_IN)
        module = needed(library, type(self).__name__, library)
        validate_data(self, fitting.X, skip_check_array=True)
        types = getattr(fitting.X, "dtypes", ())
        self._categories = {i: dtype for i, dtype in enumerate(types) if str(dtype) == "category"}
        if library == "lightgbm":
            data = module.Dataset(fitting.X, fitting.y, weight=fitting.weight, group=fitting.sizes)
            other = data.create_valid(self._coded(held.X), held.y, weight=held.weight, group=held.sizes)
        else:
            data, other = (
                module.DMatrix(self._coded(X), y, weight=weight, group=sizes, enable_categorical=True)
                for X, y, weight, sizes in (fitting, held)
            )
        params = {"seed": seed, **more, **(self.params or {})}
        self.boosted_ = train(
            params, data, self.metric, validation=other, first=self.first, then=self.then, patience=self.patience,
            noise=self.noise, seed=seed,
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

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))


@dataclass(eq=False, repr=False)
class BoostedClassifier(ClassifierMixin, _Boosted):  # type: ignore[misc]
    """Boosted trees of LightGBM or XGBoost, trained with cross-entropy, then on the metric.

    Rows go to the library as they are, which handles missing values, sparse matrices and categorical columns of pandas.
    A part of the rows (or ``eval_set``) chooses the rounds and the threshold of `predict`: for a metric of decisions
    the best one; for a ranking the one that predicts as many positives as there are.

    Args:
        metric: see `directloss.integrations.boosting.Objective`. With more than two classes, a metric of two is the
            mean over each class against the rest. Of two classes, the last in sorted order is the positive one.
        library: ``"lightgbm"`` or ``"xgboost"``.
        first: maximum number of rounds with cross-entropy.
        then: maximum number of rounds with the metric.
        patience: rounds without progress after which each phase ends; None for no limit.
        validation: the share of the rows that chooses the rounds if there is no ``eval_set``.
        params: parameters of the library: ``{"num_leaves": 15, "learning_rate": 0.05}`` ...
        noise: see `directloss.integrations.boosting.Objective`.
        random_state: seed of the split, of the library and of the noise.

    Attributes:
        classes_: the labels in order; of two, the second is the positive class.
        boosted_: the ``Boosted`` of the training: booster, rounds and validation curve.
        threshold_: for two classes, the raw score above which `predict` says yes.
        n_iter_: number of rounds kept.
        n_features_in_: number of columns; ``feature_names_in_`` has their names, if they have any.
    """

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
        pair = validation_rows(eval_set)
        X = X if hasattr(X, "shape") else np.asarray(X)
        check_consistent_length(X, y, sample_weight)
        X, y, weight = weighted_rows(X, column_or_1d(y), sample_weight)
        check_class_labels(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if (count := len(self.classes_)) < 2:
            fail("y", "must have at least two classes", "of one class only" if len(y) else "empty")
        task = row_task(self.metric, one_score=count == 2)
        if count == 2 and task.event_dims > task.target_dims:
            fail("metric", "must be a metric of yes or no for two classes", repr(task))
        seed = self._seed()
        fitting = _Rows(X, codes, weight)
        if pair is None:
            split = train_test_split(np.arange(len(y)), test_size=self.validation, stratify=codes, random_state=seed)
            fitting, held = (fitting.take(some) for some in split)
        else:
            labels = column_or_1d(pair[1])
            if not np.isin(labels, self.classes_).all():
                fail("eval_set", "must only have labels of y", np.setdiff1d(labels, self.classes_))
            held = _Rows(pair[0], np.searchsorted(self.classes_, labels), pair[2])
        self._boost(fitting, held, {"num_class": count} if count > 2 else {}, seed)
        scores, self.threshold_ = self._scores(held.X), 0.0
        if count == 2:
            some = torch.from_numpy(scores), torch.from_numpy(held.y)
            mass = torch.from_numpy(held.weight)
            self.threshold_ = best_cut(*some, task, mass)[0] if decides(task) else even_cut(*some, mass)
        self._calibration = Calibration.of(scores - self.threshold_, held.y, held.weight)

    def decision_function(self, X: Any) -> Array:
        """The score of the positive class, ``(n,)``, above 0 for yes; or of each class, ``(n, classes)``."""
        scores: Array = self._scores(X) - self.threshold_
        return scores

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, ``(n, classes)``, calibrated on the rows that chose the rounds.

        `predict` follows the metric and need not choose the most probable class.
        """
        return self._calibration(self.decision_function(X))

    def predict(self, X: Any) -> Array:
        """The label of each row."""
        chosen: Array = self.classes_[decided(self.decision_function(X))]
        return chosen


@dataclass(eq=False, repr=False)
class BoostedRanker(_Boosted):
    """Boosted trees of LightGBM or XGBoost for lists, trained with the library's ranking objective, then on the metric.

    Rows with the same ``qid`` are one list, or ``group`` gives the sizes of consecutive lists. NDCG takes grades of
    relevance, the other metrics 0 and 1 and start with cross-entropy. A part of the lists chooses the rounds.

    Parameters are those of `BoostedClassifier`.
    """

    metric: str | Task = "ndcg@10"

    def fit(self, X: Any, y: Any, group: Any = None, qid: Any = None) -> Self:
        """Train on rows with relevance ``y``, in lists."""
        X, y = X if hasattr(X, "shape") else np.asarray(X), column_or_1d(y)
        check_consistent_length(X, y)
        lists = QueryLists.of(len(y), group, qid)
        if len(lists) < 2:
            given = "left out" if qid is None and group is None else "with one list only"
            fail("qid or group", "must name at least two lists, one to train on and one to choose the rounds", given)
        seed = self._seed()
        split = train_test_split(np.arange(len(lists)), test_size=self.validation, random_state=seed)
        parts = [lists.take(torch.from_numpy(some)) for some in split]
        fitting, held = (_Rows(X, y).take(part.rows.numpy(), part.mask.sum(1).numpy()) for part in parts)
        self._boost(fitting, held, {}, seed)
        return self

    def predict(self, X: Any) -> Array:
        """The score of each row: within a list, higher is more relevant."""
        return self._scores(X)

    def score(self, X: Any, y: Any, group: Any = None, qid: Any = None) -> float:
        """The mean metric over the lists that have something to rank; NaN if none has."""
        y = column_or_1d(y)
        lists = QueryLists.of(len(y), group, qid)
        order = lists.rows.numpy()
        return Evaluation(self.metric).value(
            ScoredRows(self._scores(X)[order], y[order], None, lists.mask.sum(1).numpy())
        )
