"""The network of an estimator: from a table to scaled rows, batches and scores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import _safe_indexing
from torch import Tensor, nn

from directloss._checks import check_finite, fail

RARE = 5
"""Categories with fewer training rows than this are grouped together."""
MOST = 50
"""The most columns that a column of categories becomes."""
ENTRIES = 2**23
"""The most numbers that are made dense, or scored, at once."""
FARTHEST = 1e6
"""Scaled numbers beyond this are cut off: a network that adds infinities returns NaN."""
WIDTH = 64
"""Width of the hidden layer of ``model="mlp"``."""
ONE_AT_A_TIME = threading.Lock()
"""For the global generator of random numbers, which all threads share."""

Network = Callable[[int, int], nn.Module]
"""Makes a network from the number of columns and the number of scores per row."""


def learn_categories(table: Any, chosen: Any) -> ColumnTransformer | None:
    """The one-hot encoder for the chosen columns; None if there are none."""
    frame = hasattr(table, "select_dtypes")
    if isinstance(chosen, str) and chosen == "from_dtype":
        chosen = [*table.select_dtypes("category")] if frame else None
    categories, rest = None, table
    if chosen is not None and np.size(chosen):
        if sparse.issparse(table):
            fail("X", "must be a dense table if categorical_features is given", "a sparse one")
        encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=RARE, max_categories=MOST)
        categories = ColumnTransformer([("categories", encoder, chosen)], remainder="passthrough").fit(table)
        rest = table.drop(columns=_safe_indexing(table, chosen, axis=1).columns) if frame else table
    if frame and (odd := [name for name, dtype in rest.dtypes.items() if dtype.kind in "OMm"]):
        hint = 'Turn dates into numbers, and words into X.astype("category"), or name them in categorical_features.'
        fail("X", "must hold numbers, or columns of the type category", f"with dates or words in {odd}", hint)
    return categories


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


def blocks_of(table: Any) -> Iterator[Any]:
    """The rows in blocks of at most `ENTRIES` numbers."""
    size = max(1, ENTRIES // max(1, table.shape[1]))
    for start in range(0, table.shape[0], size):
        yield table[start : start + size]


def make_network(model: Any, columns: int, outputs: int, generator: torch.Generator) -> nn.Module:
    """The network for ``model``: "linear", "mlp", widths of hidden layers, or a function of columns and outputs."""
    widths: Any = {"linear": (), "mlp": (WIDTH,)}.get(model) if isinstance(model, str) else model
    fixed = isinstance(widths, tuple | list) and all(type(width) is int and width > 0 for width in widths)
    if not fixed and (isinstance(model, nn.Module) or not callable(model)):
        rule = (
            'must be "linear", "mlp", widths of hidden layers such as (64, 32), '
            "or a function of the numbers of columns and of outputs that returns a network"
        )
        hint = "Write model=lambda columns, outputs: ..., so that every fit starts from new weights."
        fail("model", rule, f"a {type(model).__name__}" if isinstance(model, nn.Module) else repr(model), hint)
    with ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):  # initial weights come from the global generator
        torch.default_generator.set_state(generator.get_state())
        network = layers([columns, *widths, outputs]) if fixed else model(columns, outputs)
        generator.set_state(torch.default_generator.get_state())
    if not isinstance(network, nn.Module):
        fail("model(columns, outputs)", "must be a torch.nn.Module", f"a {type(network).__name__}")
    return network.float()


def layers(widths: Sequence[int], bias: bool = True) -> nn.Sequential:
    """Linear layers with ReLU in between."""
    parts: list[nn.Module] = []
    for left, right in pairwise(widths):
        parts += [nn.Linear(left, right, bias=bias), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def scores_of(network: nn.Module, rows: Tensor, outputs: int) -> Tensor:
    """Scores ``(n, outputs)`` of rows ``(n, columns)``, or ``(n,)`` of one output."""
    scores: Tensor = network(rows)
    if outputs == 1 and scores.shape == (len(rows), 1):
        scores = scores.squeeze(1)
    if scores.shape != (len(rows), outputs)[: 1 if outputs == 1 else 2]:
        rule = f"must have shape {(len(rows), outputs)}, one score per row and output"
        fail("model(columns, outputs)(rows)", rule, f"of shape {tuple(scores.shape)}")
    check_finite(scores)
    return scores


def batches(size: int | None, strata: Tensor, weight: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Item indices of an epoch, drawn by weight, in batches of about ``size`` that spread each stratum evenly; one
    batch if ``size`` is None.
    """
    count = len(weight)
    order = torch.arange(count)
    if bool((weight != weight[0]).any()):
        order = resampled(weight, count, float(torch.rand((), generator=generator)))
    if size is None or size >= count:
        return [order]
    places, strata = torch.empty(count), strata[order]
    for stratum in torch.unique(strata):
        own = (strata == stratum).nonzero().squeeze(1)
        # Evenly spread over the whole, at random within each stretch.
        draws = torch.randperm(len(own), generator=generator) + torch.rand(len(own), generator=generator)
        places[own] = draws / len(own)
    return [*order[places.argsort()].tensor_split(-(-count // size))]


def resampled(weight: Tensor, count: int, offset: float = 0.5) -> Tensor:
    """``count`` item indices, each item about as often as its weight says.

    Systematic resampling: an item with k times the mean weight is drawn k times, up to rounding, which is unbiased if
    ``offset`` is uniform on (0, 1).

    Examples:
        >>> resampled(torch.tensor([2.0, 1.0, 1.0, 4.0], dtype=torch.float64), 8)
        tensor([0, 0, 1, 2, 3, 3, 3, 3])
    """
    places = (torch.arange(count, dtype=torch.float64) + offset) / count
    return torch.searchsorted(weight.cumsum(0) / weight.sum(), places).clamp(max=len(weight) - 1)
