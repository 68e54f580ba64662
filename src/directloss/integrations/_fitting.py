"""What the estimators with a network share: from a table to scaled rows, batches, scores, and the training."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from directloss._checks import check_count, check_finite, check_not_negative, check_positive, fail
from directloss.direct import DirectLoss
from directloss.integrations._cut import Array
from directloss.task import Task

ROWS = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
"""Validation of `X`."""
LOOKS = 25
"""How often training measures the held-out rows, if there are any."""
ENTRIES = 2**23
"""The most numbers that are made dense, or scored, at once."""
FARTHEST = 1e6
"""Scaled numbers beyond this are cut off: a network that adds infinities returns NaN."""
ONE_AT_A_TIME = threading.Lock()
"""For the global generator of random numbers, which all threads share."""


def learn_categories(table: Any) -> ColumnTransformer | None:
    """The one-hot encoder for the columns of a data frame with dtype ``category``; None if there are none."""
    if not hasattr(table, "select_dtypes"):
        return None
    chosen = [*table.select_dtypes("category")]
    if odd := [name for name, dtype in table.dtypes.items() if dtype.kind in "OMm" and name not in chosen]:
        hint = 'Turn dates into numbers, and words into X.astype("category").'
        fail("X", "must hold numbers, or columns of the type category", f"with dates or words in {odd}", hint)
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=5, max_categories=50)
    encoding = ColumnTransformer([("categories", encoder, chosen)], remainder="passthrough")
    return encoding.fit(table) if chosen else None


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
    """The network for ``model``: "linear", "mlp", or widths of hidden layers."""
    widths: Any = {"linear": (), "mlp": (64,)}.get(model) if isinstance(model, str) else model
    if not isinstance(widths, tuple | list) or not all(type(width) is int and width > 0 for width in widths):
        rule = 'must be "linear", "mlp", or widths of hidden layers such as (64, 32)'
        fail("model", rule, repr(model), "For a network of your own use skorch.")
    with ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):  # initial weights come from the global generator
        torch.default_generator.set_state(generator.get_state())
        network = layers([columns, *widths, outputs])
        generator.set_state(torch.default_generator.get_state())
    return network


def layers(widths: Sequence[int], bias: bool = True) -> nn.Sequential:
    """Linear layers with ReLU in between."""
    parts: list[nn.Module] = []
    for left, right in pairwise(widths):
        parts += [nn.Linear(left, right, bias=bias), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def scores_of(network: nn.Module, rows: Tensor) -> Tensor:
    """Scores ``(n, outputs)`` of rows ``(n, columns)``, or ``(n,)`` of one output."""
    scores: Tensor = network(rows)
    check_finite(scores)
    return scores.squeeze(1) if scores.shape[1] == 1 else scores


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


@dataclass(eq=False, repr=False)
class NetworkEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: the parameters, and a network from rows to scores."""

    metric: str | Task = "ap"
    _: KW_ONLY
    model: str | Sequence[int] = "linear"
    epochs: int = 200
    learning_rate: float = 0.03
    weight_decay: float = 0.01
    batch_size: int | None = None
    noise: float | str | None = "auto"
    likelihood: float | str = "auto"
    epsilon: float | None = None
    sign: int | str | None = None
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 40
    random_state: Any = None

    def _check_settings(self) -> None:
        for name in ("epochs", "n_iter_no_change", *([] if self.batch_size is None else ["batch_size"])):
            check_count(name, getattr(self, name))
        check_positive("learning_rate", self.learning_rate)
        check_not_negative("weight_decay", self.weight_decay)
        if not 0 < self.validation_fraction < 1:
            fail("validation_fraction", "must be a share of the rows, between 0 and 1", repr(self.validation_fraction))

    def _read(self, X: Any, y: Any = "no_validation", *, reset: bool = False, **checks: Any) -> Any:
        """Checked rows with one-hot categories, and checked labels if there are any."""
        if reset:
            self._check_settings()
            self._categories = learn_categories(X)
        if self._categories is None:
            return validate_data(self, X, y, reset=reset, **ROWS, **checks)
        validate_data(self, X, reset=reset, skip_check_array=True)
        rows = self._categories.transform(X)
        return check_array(rows, **ROWS) if isinstance(y, str) else check_X_y(rows, y, **ROWS, **checks)

    def _make_network(self, table: Any, outputs: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Scaling and network for a table; returns the scores of rows by index. Batches are scaled when needed."""
        self.scaling_ = scaling = Scaling(table)
        self.network_ = network = make_network(self.model, scaling.width, outputs, generator)
        if sparse.issparse(table) or self.batch_size is not None:
            return lambda which: scores_of(network, scaling(table[which.numpy()]))
        rows = torch.cat([scaling(block) for block in blocks_of(table)])
        return lambda which: scores_of(network, rows[which])

    @torch.no_grad()
    def _scores(self, table: Any) -> Array:
        self.network_.eval()
        return torch.cat([scores_of(self.network_, self.scaling_(block)) for block in blocks_of(table)]).numpy()

    def _loss_fn(self, task: Task, generator: torch.Generator, **settings: Any) -> DirectLoss:
        settings |= {name: getattr(self, name) for name in ("noise", "likelihood", "epsilon", "sign")}
        # Values are checked already, and a batch without a rare class is no reason to warn.
        return DirectLoss(task, **settings, generator=generator, check_values=False)

    def _descend(
        self,
        epoch: Callable[[], list[Tensor]],
        loss_of: Callable[[Tensor], Tensor],
        measure: Callable[[], float] | None,
    ) -> None:
        """Train the network by AdamW on the batches of each epoch, and keep the weights of the best measure, if any."""
        optimizer = torch.optim.AdamW(self.network_.parameters(), self.learning_rate, weight_decay=self.weight_decay)
        falling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 - epoch / self.epochs)
        self.loss_curve_, self.validation_curve_, self.best_epoch_ = list[float](), dict[int, float](), self.epochs
        best: dict[str, Tensor] = {}
        for number in range(1, self.epochs + 1):
            self.network_.train()
            losses = []
            for batch in epoch():
                optimizer.zero_grad()
                loss = loss_of(batch)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                losses.append(float(loss.detach()))
            falling.step()
            self.loss_curve_.append(sum(losses) / len(losses))
            if measure is None or (number % max(1, self.epochs // LOOKS) and number < self.epochs):
                continue
            self.validation_curve_[number] = value = measure()
            if math.isnan(value):
                rule = "must give rows of more than one label, or lists with more than one grade"
                fail("eval_set or validation_fraction", rule, "of one label only")
            if not best or value > self.validation_curve_[self.best_epoch_]:
                self.best_epoch_, best = number, {k: one.clone() for k, one in self.network_.state_dict().items()}
            if self.early_stopping and number - self.best_epoch_ >= self.n_iter_no_change:
                break
        if best:
            self.network_.load_state_dict(best)
        self.n_iter_ = len(self.loss_curve_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags
