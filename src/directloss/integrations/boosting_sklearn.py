"""Boosted trees that finish on the metric, as a scikit-learn estimator: `BoostedClassifier`."""

from __future__ import annotations

from directloss.integrations._needs import needed

needed("sklearn", __name__, "scikit-learn")

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d
from sklearn.utils.validation import validate_data

from directloss._checks import check_choice
from directloss.integrations._classifier import MetricClassifier, Part
from directloss.integrations._cut import Array
from directloss.integrations.boosting import BUILT_IN, train
from directloss.task import Task


@dataclass(eq=False, repr=False)
class BoostedClassifier(MetricClassifier, BaseEstimator):  # type: ignore[misc]
    """Boosted trees of LightGBM or XGBoost, trained with cross-entropy, then on the metric.

    Rows go to the library as they are, which handles missing values, sparse matrices and categorical columns of pandas.
    A part of the rows (or ``eval_set``) chooses the rounds and the threshold of `predict`: the best one for a metric of
    decisions; otherwise the most probable class is predicted.

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
        threshold_: for two classes, the raw score above which the positive class is predicted; for a ranking of more,
            what is subtracted from each score.
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

    def _read(self, X: Any, y: Any = "no_validation", *, reset: bool = False) -> Any:
        """The table with the categories of the training rows: XGBoost sees their codes only."""
        X = X if hasattr(X, "shape") else np.asarray(X)
        validate_data(self, X, y, reset=reset, skip_check_array=True)
        if reset:
            types = getattr(X, "dtypes", ())
            self._categories = {i: dtype for i, dtype in enumerate(types) if str(dtype) == "category"}
        if self._categories:
            X = X.copy(deep=False)
            for place, dtype in self._categories.items():
                # As plain values first: to pandas, categories in another order, and so of other codes, are one dtype.
                X.isetitem(place, X.iloc[:, place].astype(object).astype(dtype))
        return (X, column_or_1d(y)) if reset else X

    def _held_share(self) -> float:
        return self.validation

    def _train(self, part: Part, held: Part | None, seed: int) -> None:
        library = check_choice("library", self.library, BUILT_IN)
        module = needed(library, type(self).__name__, library)
        assert held is not None
        if library == "lightgbm":
            data = module.Dataset(part.rows, part.target, weight=part.weight)
            other = data.create_valid(held.rows, held.target, weight=held.weight)
        else:
            data, other = (
                module.DMatrix(one.rows, one.target, weight=one.weight, enable_categorical=True) for one in (part, held)
            )
        many = {"num_class": len(self.classes_)} if len(self.classes_) > 2 else {}
        self.boosted_ = train(
            {"seed": seed, **many, **(self.params or {})}, data, self.metric, validation=other, first=self.first,
            then=self.then, patience=self.patience, noise=self.noise, seed=seed,
        )  # fmt: skip
        self.n_iter_ = self.boosted_.rounds

    def _scores(self, rows: Any) -> Array:
        booster = self.boosted_.booster
        if self.library == "lightgbm":
            return np.asarray(booster.predict(rows, raw_score=True))
        data = needed("xgboost", type(self).__name__, "xgboost").DMatrix(rows, enable_categorical=True)
        return np.asarray(booster.predict(data, output_margin=True))
