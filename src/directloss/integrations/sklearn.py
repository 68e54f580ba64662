"""scikit-learn estimators that train on the metric: `DirectLossClassifier` and `DirectLossRanker`.

They work in pipelines, cross-validation, grid search and pickles.
"""

from __future__ import annotations

from directloss.integrations._needs import needed

needed("sklearn", __name__, "scikit-learn")

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_random_state, check_X_y, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.nn import functional as F

from directloss._checks import (
    check_count,
    check_finite,
    check_flips,
    check_labels,
    check_not_negative,
    check_positive,
    fail,
    warn_once,
)
from directloss._registry import as_task
from directloss.direct import DirectLoss, mean_metric
from directloss.integrations._cut import (
    Calibration,
    Flips,
    best_cut,
    decided,
    decides,
    even_cut,
    positive_class,
    row_task,
)
from directloss.integrations._fitting import Network, all_scores, make_network, mixed, resampled, scores_of, shuffled
from directloss.integrations._lists import QueryLists
from directloss.integrations._rows import (
    ScaledRows,
    Scaling,
    blocks_of,
    check_class_labels,
    learn_categories,
    naming_odd_columns,
    validation_rows,
    weighted_rows,
)
from directloss.task import Task
from directloss.tasks import NDCG, CountTask, Error, GradedNDCG

Array = npt.NDArray[Any]
ROWS = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
"""Validation of `X`."""
ONE_LIST = 1_000
"""With more rows than this, a list of all rows is more likely a forgotten ``qid``."""
FEW = 8
"""Rankings take so many distinct weights of rows; with more, moving each row among the others becomes slow."""
LOOKS = 25
"""How often training measures the held-out rows, if there are any."""
COPIES = 8
"""Held-out rows are repeated by weight for metrics without weights: this often, if they have the mean weight."""


@dataclass(eq=False, repr=False)
class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: the parameters, and the path from rows to scores."""

    metric: str | Task = "ap"
    _: KW_ONLY
    model: str | Sequence[int] | Network = "linear"
    epochs: int = 200
    learning_rate: float = 0.03
    weight_decay: float = 0.01
    batch_size: int | None = None
    noise: float | str | None = "auto"
    likelihood: float | str = "auto"
    epsilon: float | None = None
    sign: int | str | None = None
    categorical_features: Any = "from_dtype"
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 40
    verbose: bool | int = False
    random_state: Any = None

    def _fit_copy(self, *data: Any, **more: Any) -> Self:
        """Fit a copy and become it, so that an error leaves this estimator as it was."""
        fitted = copy(self)
        fitted._check_settings()
        fitted._fit(*data, **more)
        self.__dict__ = fitted.__dict__
        return self

    @abstractmethod
    def _fit(self, *data: Any, **more: Any) -> None: ...

    def _check_settings(self) -> None:
        for name in ("epochs", "n_iter_no_change", *([] if self.batch_size is None else ["batch_size"])):
            check_count(name, getattr(self, name))
        check_positive("learning_rate", self.learning_rate)
        check_not_negative("weight_decay", self.weight_decay)
        if not 0 < self.validation_fraction < 1:
            fail("validation_fraction", "must be a share of the rows, between 0 and 1", repr(self.validation_fraction))

    def _generator(self) -> torch.Generator:
        """The source of all random numbers of a fit: initial weights, batches, noise."""
        return torch.Generator().manual_seed(int(check_random_state(self.random_state).randint(2**31 - 1)))

    def _read(self, X: Any, y: Any = "no_validation", *, reset: bool = False, **checks: Any) -> Any:
        """Checked rows with one-hot categories, and checked labels if there are any."""
        if reset:
            self._categories = learn_categories(X, self.categorical_features)
        with naming_odd_columns(X, self._categories):
            if self._categories is None:
                return validate_data(self, X, y, reset=reset, **ROWS, **checks)
            validate_data(self, X, reset=reset, skip_check_array=True)
            rows = self._categories.transform(X)
            return check_array(rows, **ROWS) if isinstance(y, str) else check_X_y(rows, y, **ROWS, **checks)

    def _divide(self, whole: Any, held: Any, generator: torch.Generator) -> tuple[Any, Any]:
        """The training part and the held-out part, if any: the given one, or one set aside."""
        if held is not None or not self.early_stopping:
            return whole, held
        size = max(1, round(self.validation_fraction * len(whole.strata)))
        if size == len(whole.strata):
            fail("validation_fraction", "must leave rows to train with", f"{self.validation_fraction} of {size}")
        aside, rest = mixed(whole.strata, generator).tensor_split([size])
        return whole.take(rest.sort().values), whole.take(aside)

    def _train(self, part: Any, held: Any, outputs: int, generator: torch.Generator) -> tuple[Any, Any]:
        """Train by AdamW, and keep the weights of the best epoch; returns both parts with scaled rows."""
        self.scaling_, self.outputs_ = Scaling(part.rows), outputs
        self.network_ = make_network(self.model, self.scaling_.width, outputs, generator)
        part, held = (some and replace(some, rows=self._scaled(some.rows)) for some in (part, held))
        loss_fn = DirectLoss(
            self._task, noise=self.noise, likelihood=self.likelihood, epsilon=self.epsilon, sign=self.sign,
            flips=getattr(self, "flips", 0.0), generator=generator, dim=self._dim(),
            check_values=False,  # they are checked, and a batch without a rare class is no reason to warn
        )  # fmt: skip
        optimizer = torch.optim.AdamW(self.network_.parameters(), self.learning_rate, weight_decay=self.weight_decay)
        falling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 - epoch / self.epochs)
        self.loss_curve_, self.validation_curve_, self.best_epoch_ = list[float](), dict[int, float](), self.epochs
        best: dict[str, Tensor] = {}
        for epoch in range(1, self.epochs + 1):
            self.network_.train()
            losses = []
            for batch in self._batches(part, generator):
                optimizer.zero_grad()
                scores, *rest = self._scored(part, batch)
                check_finite(scores)
                loss = loss_fn(scores, *rest)
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
            falling.step()
            self.loss_curve_.append(sum(losses) / len(losses))
            if epoch % max(1, self.epochs // LOOKS) and epoch < self.epochs:
                continue
            line = f"epoch {epoch} of {self.epochs}: loss {self.loss_curve_[-1]:.4f}"
            if held is not None:
                self.validation_curve_[epoch] = value = self._measure(held)
                line += f", metric on validation rows {value:.4f}"
                if not best or value > self.validation_curve_[self.best_epoch_]:
                    self.best_epoch_, best = epoch, {k: one.clone() for k, one in self.network_.state_dict().items()}
            if self.verbose:
                print(line, flush=True)
            if self.early_stopping and epoch - self.best_epoch_ >= self.n_iter_no_change:
                break
        if best:
            self.network_.load_state_dict(best)
        self.n_iter_ = len(self.loss_curve_)
        return part, held

    def _scaled(self, table: Any) -> Tensor | ScaledRows:
        """Scaled rows: all at once if they are trained on at once, otherwise on access."""
        rows = ScaledRows(table, self.scaling_)
        lazy = sparse.issparse(table) or self.batch_size is not None
        return rows if lazy else torch.cat(list(blocks_of(rows)))

    def _dim(self) -> int | None:
        """The dimension of the scores that holds the items of one problem, for `DirectLoss`."""
        return None

    def _batches(self, part: Any, generator: torch.Generator) -> Iterator[Tensor]:
        """Indices of rows, or of lists."""
        return shuffled(self.batch_size, part.strata, generator)

    @abstractmethod
    def _scored(self, part: Any, batch: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Scores, target, mask and weight of a batch."""

    @abstractmethod
    def _measure(self, held: Any) -> float:
        """The metric of the held-out part."""

    def _scores(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return all_scores(self.network_, ScaledRows(self._read(X), self.scaling_), self.outputs_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


@dataclass(frozen=True)
class _Part:
    """Some of the rows with their targets and weights."""

    rows: Any
    """As in the table, or as the network takes them."""
    target: Tensor
    """The class index ``(n,)``, or a yes or no per output ``(n, outputs)``."""
    weight: Tensor
    """``(n,)``, without class weights."""
    factor: Tensor
    """``(n,)``, with class weights."""

    def take(self, which: Tensor) -> _Part:
        """Some of these rows."""
        return _Part(self.rows[which.numpy()], self.target[which], self.weight[which], self.factor[which])

    @cached_property
    def strata(self) -> Tensor:
        """Indices of groups with equal targets."""
        if self.target.ndim == 1 or self.target.shape[1] == 1:
            return self.target.reshape(-1)  # `torch.unique` of rows takes 200 bytes for each of them
        numbers: Tensor = torch.unique(self.target, dim=0, return_inverse=True)[1]
        return numbers

    @cached_property
    def distinct(self) -> int:
        """Number of distinct weights."""
        return len(np.unique(self.factor))


@dataclass(eq=False, repr=False)
class DirectLossClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A classifier trained on the metric that judges it: a linear model or a small network with `DirectLoss`.

    It standardises the columns and accepts raw data, sparse tables, missing numbers (NaN) and columns of categories.

    `predict` returns the positive class where `decision_function` is above 0. Metrics of decisions (``"f1"``,
    ``"iou"``, ``"mcc"``, ``"accuracy"`` ...) learn that threshold. A ranking (``"ap"``, ``"auc"``, ``"ndcg"`` ...) has
    none, so one is set afterwards: as many rows lie above it as are positive, so precision equals recall.
    `predict_proba` is calibrated and does not follow that threshold.

    With more than two classes, a metric of two classes is averaged over each class against the rest. A ranking does not
    say which of several classes to predict, so `predict` returns the most probable one. ``"accuracy"``, ``"topk@k"``
    and `directloss.tasks.CostMatrix` are metrics of many classes by themselves. Labels ``(n, labels)`` of 0 and 1 are a
    multilabel problem: the metric is averaged over labels.

    With held-out rows (``eval_set`` of `fit`, or ``early_stopping``), the weights of the best epoch are kept, and
    threshold and probabilities are set there.

    Args:
        metric: name of a task (`directloss.tasks.names` lists them) or a task object.
        model: ``"linear"``, ``"mlp"`` (one hidden layer of 64), widths of hidden layers such as ``(64, 32)``, or a
            function of the numbers of columns and of outputs that returns a `torch.nn.Module`.
        epochs: number of passes over the rows.
        learning_rate: the learning rate of AdamW at the start; it falls to zero.
        weight_decay: weight decay of AdamW.
        batch_size: rows per batch, stratified by class; all rows at once by default, which is right for metrics that
            couple all items. Rows are scaled, and those of a sparse table made dense, one batch at a time.
        noise: see `directloss.DirectLoss`.
        likelihood: see `directloss.DirectLoss`.
        flips: the share of wrong labels, if known: one number, or one for negatives and one for positives. For metrics
            of decisions with two classes; training, threshold and probabilities are corrected for it.
        epsilon: see `directloss.DirectLoss`.
        sign: see `directloss.DirectLoss`.
        categorical_features: columns of categories: ``"from_dtype"`` for those of a data frame with dtype
            ``category``; or column indices, names, a boolean mask, or None.
        early_stopping: whether training ends when the metric of held-out rows stops improving.
        validation_fraction: the share of the rows held out for early stopping if `fit` has no ``eval_set``.
        n_iter_no_change: epochs without a better value before early stopping.
        class_weight: weights of the classes, as a mapping, or ``"balanced"``.
        pos_label: the positive class of the metric, of two; by default, as in ``directloss fit``, 1 or True, otherwise
            the rarer one. Name it if two words are about equally frequent: which is rarer may differ between folds.
        verbose: whether to print the loss and the metric of held-out rows, about 25 times.
        random_state: seed of initial weights, batches and noise.

    Attributes:
        classes_: the labels in sorted order. A positive `decision_function` means the second of two, whatever
            ``pos_label`` is.
        threshold_: the score of the network above which the metric's positive class is predicted; one per output if
            there are several. `decision_function` is 0 there.
        network_: the trained `torch.nn.Module`; it takes standardised columns.
        loss_curve_: the metric's loss on the training rows, by epoch.
        validation_curve_: the metric on the held-out rows after some of the epochs; empty without such rows.
        best_epoch_: the epoch whose weights were kept.
        n_iter_: number of epochs.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(300, weights=[0.9], random_state=0)
        >>> ranked = DirectLossClassifier("ap", random_state=0).fit(X, y).decision_function(X)
        >>> ranked.shape
        (300,)
    """

    flips: Flips = 0.0
    class_weight: Mapping[Any, float] | str | None = None
    pos_label: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, eval_set: Any = None) -> Self:
        """Train on rows ``(n, columns)`` and labels ``(n,)`` or ``(n, labels)``.

        Args:
            X: rows: an array, a sparse matrix or a data frame.
            y: labels.
            sample_weight: weight of each row, in training and wherever held-out rows choose; rows of weight 0 are
                ignored altogether. For rankings, unless few weights differ, each epoch resamples the rows by weight.
            eval_set: rows, labels and perhaps weights, ``(X, y)`` or ``(X, y, w)``, that choose epoch and threshold.
        """
        return self._fit_copy(X, y, sample_weight, eval_set)

    def _fit(self, X: Any, y: Any, sample_weight: Any, eval_set: Any) -> None:
        X, y, weight = weighted_rows(X, y, sample_weight)
        rows, y = self._read(X, y, reset=True, multi_output=True)
        y = _labels(y)
        self._learn_classes(y)
        whole, held = self._part(rows, y, weight), validation_rows(eval_set)
        generator = self._generator()
        part, aside = self._divide(whole, None if held is None else self._held_part(*held), generator)
        outputs = len(self.classes_) if self._by_class else part.target.shape[1]
        self._set_thresholds(*self._train(part, aside, outputs, generator))

    def _learn_classes(self, y: Array) -> None:
        multilabel = y.ndim == 2
        classes = np.arange(y.shape[1]) if multilabel else np.unique(y)
        if len(classes) < 2 and not multilabel:
            fail("y", "must have at least two classes", "of one class only")
        self.classes_, self._multilabel = classes, multilabel
        two = not multilabel and len(classes) == 2
        if self.pos_label is not None and not (two and self.pos_label in classes):
            fail("pos_label", "must be one of two classes", f"{self.pos_label!r}, with the classes {classes}")
        if np.any(self.flips) and not (two or multilabel):
            fail("flips", "must be 0 for more than two classes", self.flips)
        counts = [int((y == label).sum()) for label in classes] if two else []
        self._positive = positive_class(classes, counts, self.pos_label) if two else 1
        self._task = task = row_task(self.metric, one_score=two or multilabel)
        self._by_class = task.event_dims > task.target_dims
        if multilabel and self._by_class:
            fail("metric", "must be a metric of yes or no for labels of shape (n, labels)", repr(task), "Try f1 or ap.")

    def _part(self, rows: Any, y: Array, weight: Array) -> _Part:
        factor = weight if self.class_weight is None else weight * compute_sample_weight(self.class_weight, y)
        return _Part(rows, self._target(y), torch.from_numpy(weight), torch.from_numpy(factor))

    def _target(self, y: Array) -> Tensor:
        """Labels in the layout of the task: class indices, or a yes or no per class (of two, for the positive)."""
        if self._multilabel:
            return torch.from_numpy(np.asarray(y != 0, np.int64))
        labels = torch.from_numpy(np.searchsorted(self.classes_, y))
        if self._by_class:
            return labels
        each = F.one_hot(labels, len(self.classes_))
        return each[:, [self._positive]] if len(self.classes_) == 2 else each

    def _held_part(self, X: Any, y: Any, weight: Array) -> _Part:
        rows, wanted = self._read(X), np.asarray(y)
        shape = (rows.shape[0], len(self.classes_)) if self._multilabel else (rows.shape[0],)
        if wanted.shape != shape:
            fail("eval_set", f"must have labels of shape {shape} for its rows", f"of shape {wanted.shape}")
        labels = np.array([0, 1]) if self._multilabel else self.classes_
        if not (good := np.isin(wanted, labels)).all():
            fail("eval_set", f"must have labels that y has, such as {labels[0]}", wanted[~good][0])
        return self._part(rows, wanted, weight)

    # ------------------------------------------------------------------ training

    def _dim(self) -> int | None:
        return 0 if self._task.event_dims == 1 and not self._by_class else None

    def _resamples(self, part: _Part) -> bool:
        """Whether rows are drawn by weight, because `DirectLoss` does not take these weights, or not fast."""
        if part.distinct == 1 or self._by_class or decides(self._task):
            return False
        return part.distinct > FEW or not getattr(getattr(self._task, "metric", None), "weighable", False)

    def _batches(self, part: _Part, generator: torch.Generator) -> Iterator[Tensor]:
        if not self._resamples(part):
            return super()._batches(part, generator)
        drawn = resampled(part.factor, len(part.factor), float(torch.rand((), generator=generator)))
        return (drawn[batch] for batch in shuffled(self.batch_size, part.strata[drawn], generator))

    def _scored(self, part: _Part, batch: Tensor) -> tuple[Tensor, Tensor, None, Tensor | None]:
        scores, weight = scores_of(self.network_, part.rows[batch], self.outputs_), None
        if part.distinct > 1 and not self._resamples(part):
            weight = part.factor[batch] / part.factor.mean()
            weight = weight if self._by_class else weight.unsqueeze(1).expand(-1, self.outputs_)
        return scores, part.target[batch], None, weight

    def _measure(self, held: _Part) -> float:
        """The metric, at the best thresholds if it needs them."""
        scores, target = all_scores(self.network_, held.rows, self.outputs_), held.target
        if decides(self._task):
            return sum(value for _, value in self._cuts(scores, held)) / self.outputs_
        if held.distinct > 1:
            copies = resampled(held.factor, COPIES * len(target))
            scores, target = scores[copies], target[copies]
        value = mean_metric(scores, target, self._task, dim=self._dim())
        if math.isnan(value):
            fail("eval_set or validation_fraction", "must give rows of both labels", "of one label only")
        return value

    # ------------------------------------------------------------------ decisions and probabilities

    def _cuts(self, scores: Tensor, part: _Part) -> list[tuple[float, float]]:
        """The best threshold per output, with its metric."""
        columns = zip(scores.T, part.target.T, strict=True)
        return [best_cut(some, wanted, self._task, part.factor, self.flips) for some, wanted in columns]

    def _set_thresholds(self, part: _Part, held: _Part | None) -> None:
        """Set thresholds, slopes and calibration on the held-out rows, or on the training rows if there are none."""
        judge = part if held is None else held
        scores, target = all_scores(self.network_, judge.rows, self.outputs_), judge.target
        columns = [*zip(scores.T, target.T, strict=True)] if target.ndim == 2 else []
        cuts, self._slope = np.zeros(self.outputs_), np.ones(self.outputs_)
        alone = self._by_class or isinstance(self._task, Error)
        # A metric of single rows has learned to choose the most probable class.
        biased = not (alone and held is None and judge.distinct == 1)
        if decides(self._task):
            cuts = cuts if held is None else np.array([cut for cut, _ in self._cuts(scores, held)])
        elif self._multilabel or self.outputs_ == 1:
            cuts = np.array([even_cut(*column, judge.factor) for column in columns])
            if self.outputs_ == 1 and judge.distinct == 1:
                # If as many rows are more probably positive, up to chance, let the two agree, as scikit-learn wants.
                each = Calibration.of(scores[:, 0].numpy(), target[:, 0].numpy())
                half, positives = (each.bias[0] - each.bias[1]) / each.slope, float(target.sum())
                if abs(float((scores > half).sum()) - positives) <= math.sqrt(positives):
                    cuts, biased = np.array([half]), False
        elif not self._by_class:  # rankings of several classes leave open which one to predict: the most probable one
            spread = scores.std(0).clamp(min=1e-12).numpy()
            each = Calibration.of(scores.numpy() / spread, target.argmax(1).numpy(), judge.factor.numpy())
            self._slope, biased = each.slope / spread, judge.distinct > 1
            cuts = -each.bias / self._slope
        self.threshold_: Any = float(cuts[0]) if self.outputs_ == 1 else cuts
        decisions = self._decision(scores)
        codes = target if self._by_class else target.argmax(1) if self.outputs_ > 1 else target[:, 0] == self._positive
        pairs = [*zip(decisions.T, target.T, strict=True)] if self._multilabel else [(decisions, codes)]
        self._calibrations = [
            Calibration.of(some, wanted.long().numpy(), judge.weight.numpy(), biased=biased) for some, wanted in pairs
        ]

    def _decision(self, scores: Tensor) -> Array:
        decisions: Array = (scores.numpy() - self.threshold_) * self._slope
        if self._multilabel or len(self.classes_) > 2:
            return decisions
        if self._by_class:
            return np.asarray(decisions[:, 1] - decisions[:, 0])
        return np.asarray(decisions[:, 0] if self._positive else -decisions[:, 0])

    def decision_function(self, X: Any) -> Array:
        """The score of the second class, ``(n,)``, above 0 for yes; or of each class or label, ``(n, classes)``."""
        return self._decision(self._scores(X))

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, or, for a multilabel problem, of each label: ``(n, classes)``.

        Calibrated on the held-out rows, or on the training rows if there are none. `predict` follows the metric and
        need not choose the most probable class.
        """
        scores = self.decision_function(X)
        columns = scores.T if self._multilabel else [scores]
        shares = [calibration(column) for calibration, column in zip(self._calibrations, columns, strict=True)]
        if np.any(self.flips):  # of two classes
            low, high = check_flips(self.flips)
            yes = [((share[:, self._positive] - low) / (1 - low - high)).clip(0, 1) for share in shares]
            shares = [np.column_stack([1 - each, each][:: 1 if self._positive else -1]) for each in yes]
        return np.column_stack([share[:, 1] for share in shares]) if self._multilabel else shares[0]

    def predict(self, X: Any) -> Array:
        """The label of each row; for a multilabel problem, a 0 or 1 per label."""
        scores = self.decision_function(X)
        if self._multilabel:
            return (scores > 0).astype(int)
        chosen: Array = self.classes_[decided(scores)]
        return chosen

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _labels(y: Any) -> Array:
    """Labels ``(n,)``, or ``(n, labels)`` of a multilabel problem."""
    y = y.toarray() if sparse.issparse(y) else y
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    check_class_labels(y)
    if y.ndim == 2 and type_of_target(y) != "multilabel-indicator":
        fail("y", "must hold one label per row, or a 0 or 1 for each of several labels", f"of shape {y.shape}")
    return np.asarray(y)


@dataclass(frozen=True)
class _ListPart:
    """Some of the lists: their rows, which rows belong to which list, and the padded grades of relevance."""

    rows: Any
    lists: QueryLists
    grades: Tensor

    @classmethod
    def of(cls, rows: Any, relevance: Any, group: Any, qid: Any) -> _ListPart:
        """The lists of these rows."""
        if group is None and qid is None and (count := rows.shape[0]) > ONE_LIST:
            hint = f"Pass qid, the name of each row's list, or group=[{count}] if one list is meant."
            warn_once("one list", f"All {count} rows are ranked as one list: neither group nor qid is given. {hint}")
        lists = QueryLists.of(rows.shape[0], group, qid)
        return cls(rows, lists, lists.pad(torch.from_numpy(np.asarray(relevance, np.float64))))

    @property
    def strata(self) -> Tensor:
        """All lists belong to the same stratum."""
        return torch.zeros(len(self.lists))

    def take(self, which: Tensor) -> _ListPart:
        """Some of these lists."""
        some = self.lists.take(which)
        rows = self.rows[some.rows if isinstance(self.rows, Tensor) else some.rows.numpy()]
        return _ListPart(rows, some, self.grades[which][:, : some.longest])

    def metric(self, scores: Tensor, task: Task) -> float:
        """The mean metric of scores ``(rows, 1)`` over the lists that have something to rank."""
        return mean_metric(self.lists.pad(scores.squeeze(1)), self.grades, task, mask=self.lists.mask)


@dataclass(eq=False, repr=False)
class DirectLossRanker(_Estimator):
    """Learning to rank: trains the order of the scores in each list on the metric.

    Rows with the same ``qid`` are one list, or ``group`` gives the sizes of consecutive lists. Without either, all rows
    are one list, with a warning above 1,000 rows. NDCG takes grades of relevance, any numbers of at least 0, with gains
    ``2^grade - 1``; the other rankings take 0 and 1.

    Parameters and training are those of `DirectLossClassifier`; ``batch_size`` counts lists.

    Examples:
        >>> X, qid = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) // 6
        >>> grades = np.clip(np.round(X[:, 0] + 1), 0, 3)
        >>> ranker = DirectLossRanker("ndcg@3", random_state=0).fit(X, grades, qid=qid)
        >>> ranker.predict(X).shape, ranker.score(X, grades, qid=qid) > 0.9
        ((60,), True)
    """

    metric: str | Task = "ndcg"

    def fit(
        self,
        X: Any,
        y: Any,
        group: Any = None,
        qid: Any = None,
        *,
        eval_set: Any = None,
        eval_group: Any = None,
        eval_qid: Any = None,
    ) -> Self:
        """Train on rows ``(n, columns)`` with relevance ``(n,)``.

        Args:
            X: rows.
            y: relevance of each row.
            group: sizes of consecutive lists; without ``group`` and ``qid``, all rows are one list.
            qid: the name of each row's list.
            eval_set: a pair of rows and relevance that chooses the epoch.
            eval_group: ``group`` of ``eval_set``.
            eval_qid: ``qid`` of ``eval_set``.
        """
        return self._fit_copy(X, y, group, qid, eval_set, eval_group, eval_qid)

    def _fit(self, X: Any, y: Any, group: Any, qid: Any, eval_set: Any, eval_group: Any, eval_qid: Any) -> None:
        self._task = self._ranking_task()
        rows, relevance = self._read(X, y, reset=True, ensure_min_samples=2, y_numeric=True)
        if (relevance < 0).any():
            fail("y", "must hold grades of relevance, at least 0", relevance.min())
        if not isinstance(self._task, GradedNDCG):
            check_labels(torch.from_numpy(np.asarray(relevance)), hint="Only ndcg takes grades.")
        held, pair, generator = None, validation_rows(eval_set), self._generator()
        if pair is not None:
            held = _ListPart.of(self._read(pair[0]), pair[1], eval_group, eval_qid)
        self._train(*self._divide(_ListPart.of(rows, relevance, group, qid), held, generator), 1, generator)

    def _scored(self, part: _ListPart, batch: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        some = part.take(batch)
        return some.lists.pad(scores_of(self.network_, some.rows, 1).squeeze(1)), some.grades, some.lists.mask, None

    def _measure(self, held: _ListPart) -> float:
        return held.metric(all_scores(self.network_, held.rows, 1), self._task)

    def predict(self, X: Any) -> Array:
        """The score of each row: within a list, higher is more relevant."""
        return self._scores(X).squeeze(1).numpy()

    def score(self, X: Any, y: Any, group: Any = None, qid: Any = None) -> float:
        """The mean metric over the lists that have something to rank; NaN if none has."""
        scores = self._scores(X)
        return _ListPart.of(scores, y, group, qid).metric(scores, self._ranking_task())

    def _ranking_task(self) -> Task:
        task = as_task(self.metric, "metric")
        if task.event_dims != 1 or task.target_dims != 1 or isinstance(task, CountTask):
            fail("metric", "must be a metric of rankings, such as ndcg@10, ap or mrr", repr(task))
        return GradedNDCG(task.k) if isinstance(task, NDCG) else task

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags
