"""From a user's table to the rows of a network: categories, missing numbers, sparse columns, and scaling."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from directloss._checks import DirectLossError, fail

if TYPE_CHECKING:
    from sklearn.compose import ColumnTransformer

Array = npt.NDArray[Any]
RARE = 5
"""Categories with fewer training rows than this are grouped together."""
MOST = 50
"""The most columns that a column of categories becomes."""
DATES = (date, timedelta, np.datetime64, np.timedelta64)
"""Types of the values in a date column of a data frame; a datetime is a date."""
ENTRIES = 2**23
"""The most numbers that are made dense, or scored, at once."""


def blocks_of(rows: Any) -> Iterator[Any]:
    """The rows in blocks of at most `ENTRIES` numbers."""
    size = max(1, ENTRIES // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], size):
        yield rows[start : start + size]


def some_rows(rows: Any, which: Array) -> Any:
    """Some rows of an array, a sparse matrix or a `RowSource`."""
    return rows.part(which) if isinstance(rows, RowSource) else rows[which]


@runtime_checkable
class RowSource(Protocol):
    """Rows that are not in memory but made on access, without missing numbers."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def moments(self) -> tuple[Array, Array]:
        """Mean and deviation of each column."""

    def __getitem__(self, which: Any, /) -> Array: ...

    def scaled(self, which: Any, mean: Array, scale: Array, /) -> npt.NDArray[np.float32]: ...

    def part(self, which: Any, /) -> Any: ...


@dataclass(frozen=True)
class Scaling:
    """Scales columns to mean 0 and deviation 1 on the training rows; a constant column becomes 0.

    A missing number (NaN) becomes the mean. Columns with missing numbers in training get a second one to mark them.
    """

    mean: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]
    gaps: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Indices of the columns with marks; the marks come after all columns."""

    @classmethod
    def of(cls, table: Any) -> Scaling:
        """The scaling for an array, a sparse matrix or a `RowSource`."""
        if isinstance(table, RowSource):
            mean, deviation = table.moments
            missing = np.zeros(len(mean))
        else:
            blocks = _column_blocks(table) if sparse.issparse(table) else iter([table.astype(np.float64, copy=False)])
            mean, deviation, missing = (np.concatenate(part) for part in zip(*map(statistics, blocks), strict=True))
        gaps = np.flatnonzero(missing)
        share = missing[gaps]
        mean = np.concatenate([mean, share])
        deviation = np.concatenate([deviation, np.sqrt(share * (1 - share))])
        rounding = 1e-12 * np.abs(mean)  # the spread of a constant column
        return cls(mean, np.where(deviation > rounding, deviation, np.inf), gaps)

    @property
    def width(self) -> int:
        """Number of columns after scaling, including marks."""
        return len(self.mean)

    def __call__(self, rows: Array) -> Tensor:
        """The scaled rows of an array."""
        if len(self.gaps):
            rows = np.hstack([rows, np.isnan(rows[:, self.gaps])])
        scaled = ((rows - self.mean) / self.scale).astype(np.float32)
        scaled[np.isnan(scaled)] = 0.0
        return torch.from_numpy(scaled)

    def rows(self, table: Any) -> Tensor | LazyRows:
        """Scaled rows: a tensor for an array, lazy for a sparse matrix or a `RowSource`."""
        if isinstance(table, RowSource):
            return LazyRows(table, self)
        return LazyRows(table.tocsr(), self) if sparse.issparse(table) else self(table)


def statistics(block: npt.NDArray[np.float64]) -> tuple[Array, Array, Array]:
    """Mean, deviation and share of missing numbers of each column."""
    missing = np.isnan(block)
    known = np.maximum((~missing).sum(0), 1)
    mean = np.where(missing, 0.0, block).sum(0) / known
    away = np.where(missing, 0.0, block - mean)
    # Divided first: squares of numbers near the largest float would overflow.
    largest = np.maximum(np.abs(away).max(0), np.finfo(np.float64).tiny)
    return mean, largest * (away / largest).std(0), missing.mean(0)


def _column_blocks(table: Any) -> Iterator[npt.NDArray[np.float64]]:
    """The columns of a sparse matrix, in blocks."""
    columns, width = table.tocsc(), max(1, ENTRIES // table.shape[0])
    for first in range(0, table.shape[1], width):
        yield columns[:, first : first + width].toarray().astype(np.float64, copy=False)


@dataclass(frozen=True)
class LazyRows:
    """Rows of a sparse matrix or a `RowSource`, made dense and scaled on access."""

    table: Any
    scaling: Scaling

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return self.table.shape[0], self.scaling.width

    def __getitem__(self, which: Any) -> Tensor:
        which = which.numpy() if isinstance(which, Tensor) else which
        if isinstance(self.table, RowSource):
            return torch.from_numpy(self.table.scaled(which, self.scaling.mean, self.scaling.scale))
        return self.scaling(self.table[which].toarray())


def learn_categories(table: Any, chosen: Any) -> ColumnTransformer | None:
    """The one-hot encoder for the columns of categories; None if there are none.

    Args:
        table: the training rows.
        chosen: ``"from_dtype"`` for the columns of a data frame with dtype ``category``, None, or the columns as
            indices, names, or a boolean mask.
    """
    places = _category_places(table, chosen)
    if not places:
        return None
    if sparse.issparse(table):
        fail("X", "must be a dense table if categorical_features is given", "a sparse one")
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder

    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=RARE, max_categories=MOST)
    return ColumnTransformer([("categories", encoder, places)], remainder="passthrough").fit(table)


@contextmanager
def naming_odd_columns(table: Any, categories: Any = None) -> Iterator[None]:
    """Name the columns of a data frame, other than the categories, that hold dates or words."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if isinstance(error, DirectLossError):
            raise
        known = [] if categories is None else categories.transformers[0][2]
        names = [name for place, name in enumerate(getattr(table, "columns", ())) if place not in known]
        numbers = "Turn them into numbers, such as days since a fixed date, the month or the weekday."
        convert = 'Convert them with X.astype("category"), or name them in categorical_features.'
        for what, kind, hint in (("dates", DATES, numbers), ("words", str, convert)):
            if found := [name for name in names if any(isinstance(value, kind) for value in table[name])]:
                fail("X", "must hold numbers, or columns of the type category", f"with {what} in {found}", hint)
        raise


def _category_places(table: Any, chosen: Any) -> list[int]:
    if chosen is None:
        return []
    if isinstance(chosen, str) and chosen == "from_dtype":
        types = list(getattr(table, "dtypes", [])) if hasattr(table, "columns") else []
        return [place for place, kind in enumerate(types) if str(kind) == "category"]
    names = [str(name) for name in getattr(table, "columns", [])]
    given, width = np.atleast_1d(np.asarray(chosen)), np.shape(table)[1]
    if given.dtype == bool and given.shape == (width,):
        return [int(place) for place in np.flatnonzero(given)]
    if given.dtype.kind in "iu" and ((given >= 0) & (given < width)).all():
        return sorted({int(place) for place in given})
    if given.dtype.kind not in "UO" or any(str(name) not in names for name in given):
        rule = f'must be "from_dtype", None, or columns of X: numbers below {width}, names, or a boolean for each'
        fail("categorical_features", rule, repr(chosen))
    return [names.index(str(name)) for name in given]


def check_class_labels(y: npt.NDArray[Any]) -> None:
    """Check that labels are words or numbers, without gaps."""
    from sklearn.utils.multiclass import check_classification_targets

    if y.dtype == object:
        gaps = sum(label is None or type(label).__name__ == "NAType" or label != label for label in y.flat)
        if gaps:
            fail("y", "must have a label for each row", f"without one in {gaps} of {len(y)}", "Leave these rows out.")
    check_classification_targets(y)


def one_pair(eval_set: Any) -> tuple[Any, Any] | None:
    """Validation rows and labels; also accepts a list of one pair, as gradient boosting libraries do."""
    if isinstance(eval_set, list) and len(eval_set) == 1:
        eval_set = eval_set[0]
    if eval_set is not None and (not isinstance(eval_set, tuple | list) or len(eval_set) != 2):
        fail("eval_set", "must be a pair of rows and labels, (X, y)", f"a {type(eval_set).__name__}")
    return None if eval_set is None else (eval_set[0], eval_set[1])
