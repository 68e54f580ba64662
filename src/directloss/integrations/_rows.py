"""From a user's table to the rows of a network: weights of 0, categories, missing numbers, sparse columns, scaling."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import MissingIndicator
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _num_samples
from torch import Tensor

from directloss._checks import DirectLossError, fail

Array = npt.NDArray[Any]
RARE = 5
"""Categories with fewer training rows than this are grouped together."""
MOST = 50
"""The most columns that a column of categories becomes."""
ODD = (str, date, timedelta, np.datetime64, np.timedelta64)
"""Types of values in a data frame that a network cannot take."""
ENTRIES = 2**23
"""The most numbers that are made dense, or scored, at once."""
FARTHEST = 1e6
"""Scaled numbers beyond this are cut off: a network that adds infinities returns NaN."""


def weighted_rows(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Array]:
    """Rows, labels and weights without the rows of weight 0, whose content is not looked at."""
    if sample_weight is None:
        return X, y, np.ones(_num_samples(X))
    X = X.tocsr() if sparse.issparse(X) else X
    blank = np.empty((_num_samples(X), 0))
    weight: Array = _check_sample_weight(sample_weight, blank, dtype=np.float64, ensure_non_negative=True)
    if (kept := weight > 0).all() or _num_samples(y) != len(weight):  # the latter is refused later
        return X, y, weight
    return _safe_indexing(X, np.flatnonzero(kept)), _safe_indexing(y, np.flatnonzero(kept)), weight[kept]


def validation_rows(eval_set: Any) -> tuple[Any, Any, Array] | None:
    """Validation rows, labels and weights from ``(X, y)``, ``(X, y, weight)``, or a list of one of them."""
    if eval_set is None:
        return None
    if isinstance(eval_set, list) and len(eval_set) == 1:
        eval_set = eval_set[0]
    if not isinstance(eval_set, tuple | list) or len(eval_set) not in (2, 3):
        fail("eval_set", "must be rows and labels, (X, y), or with weights, (X, y, w)", f"a {type(eval_set).__name__}")
    return weighted_rows(eval_set[0], eval_set[1], eval_set[2] if len(eval_set) == 3 else None)


def check_class_labels(y: npt.NDArray[Any]) -> None:
    """Check that labels are words or numbers, without gaps."""
    if y.dtype == object:
        gaps = sum(label is None or type(label).__name__ == "NAType" or label != label for label in y.flat)
        if gaps:
            fail("y", "must have a label for each row", f"without one in {gaps} of {len(y)}", "Leave these rows out.")
    check_classification_targets(y)


def learn_categories(table: Any, chosen: Any) -> ColumnTransformer | None:
    """The one-hot encoder for the columns of categories; None if there are none.

    Args:
        table: the training rows.
        chosen: ``"from_dtype"`` for the columns of a data frame with dtype ``category``, None, or the columns as
            indices, names, or a boolean mask.
    """
    if isinstance(chosen, str) and chosen == "from_dtype":
        frame = hasattr(table, "columns") and hasattr(table, "iloc")
        chosen = make_column_selector(dtype_include="category")(table) if frame else None
    if chosen is None or not np.size(chosen):
        return None
    if sparse.issparse(table):
        fail("X", "must be a dense table if categorical_features is given", "a sparse one")
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=RARE, max_categories=MOST)
    return ColumnTransformer([("categories", encoder, chosen)], remainder="passthrough").fit(table)


@contextmanager
def naming_odd_columns(table: Any, categories: ColumnTransformer | None) -> Iterator[None]:
    """Name the columns of a data frame, other than the categories, that hold dates or words."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if isinstance(error, DirectLossError) or not hasattr(table, "iloc"):
            raise
        rest = range(table.shape[1]) if categories is None else categories._transformer_to_input_indices["remainder"]
        odd = [table.columns[i] for i in rest if any(isinstance(value, ODD) for value in table.iloc[:, i])]
        if not odd:
            raise
        hint = 'Turn dates into numbers, and words into X.astype("category"), or name them in categorical_features.'
        fail("X", "must hold numbers, or columns of the type category", f"with dates or words in {odd}", hint)


class Scaling:
    """Scales columns to mean 0 and deviation 1 on the training rows; a constant column becomes 0.

    A missing number (NaN) becomes the mean. Columns with missing numbers in training get a second one to mark them.
    """

    def __init__(self, table: Any) -> None:
        self.marks = MissingIndicator(error_on_new=False).fit(table)
        self.scaler = StandardScaler(with_mean=not sparse.issparse(table))
        with np.errstate(all="ignore"):  # columns without numbers, or with numbers whose squares overflow
            for block in blocks_of(table):
                self.scaler.partial_fit(block)
            constant = ~(self.scaler.var_ > (1e-12 * self.scaler.mean_) ** 2)
        self.scaler.scale_[constant] = np.inf
        self.scaler.with_mean = True  # rows are dense by then
        self.width = len(constant) + len(self.marks.features_)

    def __call__(self, rows: Any) -> Tensor:
        """Scaled rows."""
        rows = rows.toarray() if sparse.issparse(rows) else rows
        with np.errstate(all="ignore"):
            scaled = np.hstack([self.scaler.transform(rows), self.marks.transform(rows)]).clip(-FARTHEST, FARTHEST)
        return torch.from_numpy(np.nan_to_num(scaled.astype(np.float32), copy=False))


@dataclass(frozen=True)
class ScaledRows:
    """Rows of an array or a sparse matrix, made dense and scaled on access."""

    table: Any
    scaling: Scaling

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return self.table.shape[0], self.scaling.width

    def __getitem__(self, which: Any) -> Tensor:
        return self.scaling(self.table[which.numpy() if isinstance(which, Tensor) else which])


def blocks_of(rows: Any) -> Iterator[Any]:
    """The rows in blocks of at most `ENTRIES` numbers."""
    size = max(1, ENTRIES // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], size):
        yield rows[start : start + size]
