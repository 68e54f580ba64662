"""scikit-learn estimators that train on the metric: `DirectLossClassifier` and `DirectLossRanker`.

They work in pipelines, cross-validation, grid search and pickles.
"""

from __future__ import annotations

from directloss.integrations._needs import needed

needed("sklearn", __name__, "scikit-learn")

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_random_state, check_X_y, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from directloss._checks import DirectLossWarning, check_count, fail, warn_once
from directloss._registry import as_task
from directloss.direct import direct_loss, mean_metric
from directloss.integrations._calibration import Calibration
from directloss.integrations._cut import best_cut, decided, even_cut
from directloss.integrations._fitting import (
    Network,
    Schedule,
    Validation,
    all_scores,
    make_network,
    mixed,
    resampled,
    scores_of,
    shuffled,
    start_at_base_rate,
)
from directloss.integrations._lists import Lists
from directloss.integrations._rows import (
    RowSource,
    Scaling,
    check_class_labels,
    learn_categories,
    naming_odd_columns,
    one_pair,
    some_rows,
)
from directloss.integrations.boosting import item_task, of_one_score
from directloss.task import Task
from directloss.tasks import NDCG, CountTask, GradedNDCG

Array = npt.NDArray[Any]
ROWS = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
"""Validation of `X`."""
ONE_LIST = 1_000
"""With more rows than this, a list of all rows is more likely a forgotten ``qid``."""


@dataclass(eq=False, repr=False)
class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: the parameters, and the path from rows to scores."""

    metric: str | Task = "ap"
    _: KW_ONLY
    model: str | Sequence[int] | Network = "linear"
    epochs: int = 200
    warm_up: float = 0.5
    learning_rate: float = 0.03
    weight_decay: float = 0.01
    batch_size: int | None = None
    epsilon: float | str = "auto"
    sign: int | str | None = "auto"
    noise: float | str | None = "auto"
    categorical_features: Any = "from_dtype"
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 40
    warm_start: bool = False
    verbose: bool | int = False
    random_state: Any = None

    def _read(self, X: Any, y: Any = "no_validation", *, reset: bool = False, **checks: Any) -> Any:
        """Checked rows with one-hot categories, and checked labels if there are any."""
        if isinstance(X, RowSource):
            return self._read_table(X, y, reset)
        if reset:
            self._categories = learn_categories(X, self.categorical_features)
        with naming_odd_columns(X, self._categories):
            if self._categories is None:
                return validate_data(self, X, y, reset=reset, **ROWS, **checks)
            validate_data(self, X, reset=reset, skip_check_array=True)
            rows = self._categories.transform(X)
            return check_array(rows, **ROWS) if isinstance(y, str) else check_X_y(rows, y, **ROWS, **checks)

    def _read_table(self, X: Any, y: Any, reset: bool) -> Any:
        """Check the shape of a `RowSource`; its rows are read later."""
        if reset:
            self._categories, self.n_features_in_ = None, X.shape[1]
        if X.shape[1] != self.n_features_in_:
            fail("X", f"must have {self.n_features_in_} columns, as in training", f"of shape {X.shape}")
        return X if isinstance(y, str) else (X, np.asarray(y))

    def _prepare(self, part: Any, held: Any, outputs: int) -> tuple[Any, Any, bool]:
        """Both parts with scaled rows, and whether the network is new; ``warm_start`` keeps the current one."""
        known = self.warm_start and hasattr(self, "network_")
        if not known:
            self.scaling_ = Scaling.of(part.rows)
            self.network_ = make_network(self.model, self.scaling_.width, outputs).float()
            self.outputs_ = outputs
        elif outputs != self.outputs_:
            rule = f"must have the {self.outputs_} outputs of the previous fit, because warm_start=True continues it"
            fail("y", rule, f"with {outputs}")
        part, held = (some and replace(some, rows=self.scaling_.rows(some.rows)) for some in (part, held))
        return part, held, not known

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _schedule(self) -> Schedule:
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        check_count("n_iter_no_change", self.n_iter_no_change)
        if not 0 < self.validation_fraction < 1:
            fail("validation_fraction", "must be a share of the rows, between 0 and 1", repr(self.validation_fraction))
        return Schedule(self.epochs, self.warm_up, self.learning_rate, self.weight_decay, bool(self.verbose))

    def _divide(self, whole: Any, held: Any) -> tuple[Any, Any]:
        """The training part and the validation part, if any: the given one, or one set aside."""
        if held is not None or not self.early_stopping:
            return whole, held
        size = max(1, round(self.validation_fraction * len(whole.strata)))
        if size == len(whole.strata):
            fail("validation_fraction", "must leave rows to train with", f"{self.validation_fraction} of {size}")
        aside, rest = mixed(whole.strata).tensor_split([size])
        return whole.take(rest.sort().values), whole.take(aside)

    def _train(self, part: Any, held: Any, new: bool, report: Callable[[int, float], None] | None = None) -> None:
        """Train the network on the part and store the curves."""
        patience = self.n_iter_no_change if self.early_stopping else float("inf")
        watch = None if held is None else Validation(lambda: self._measure(held), report, patience)
        losses = partial(self._cross_entropy, part), partial(self._direct, part)
        batches = partial(self._batches, part)
        before, self.loss_curve_ = self._schedule().train(self.network_, batches, *losses, watch, warm_up=new)
        self.n_iter_ = len(before) + len(self.loss_curve_)
        self.validation_curve_ = {} if watch is None else watch.curve
        self.best_epoch_ = self.epochs if watch is None else watch.best

    def _batches(self, part: Any) -> Iterator[Tensor]:
        """Indices of rows, or of lists."""
        return shuffled(self.batch_size, part.strata)

    @abstractmethod
    def _scored(self, part: Any, batch: Tensor) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Scores and target of a batch, and arguments for `direct_loss`."""

    @abstractmethod
    def _cross_entropy(self, part: Any, batch: Tensor) -> Tensor: ...

    def _direct(self, part: Any, batch: Tensor) -> Tensor:
        scores, target, about = self._scored(part, batch)
        about |= {"epsilon": self.epsilon, "sign": "auto" if self.sign is None else self.sign, "noise": self.noise}
        return direct_loss(scores, target, self._fitted_task, **about)

    @abstractmethod
    def _measure(self, held: Any) -> float: ...

    def _scores(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return all_scores(self.network_, self.scaling_.rows(self._read(X)), self.outputs_)

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
        return _Part(some_rows(self.rows, which.numpy()), self.target[which], self.weight[which], self.factor[which])

    @cached_property
    def strata(self) -> Tensor:
        """Indices of groups with equal targets."""
        if self.target.ndim == 1 or self.target.shape[1] == 1:
            return self.target.reshape(-1)  # `torch.unique` of rows takes 200 bytes for each of them
        numbers: Tensor = torch.unique(self.target, dim=0, return_inverse=True)[1]
        return numbers

    @cached_property
    def even(self) -> bool:
        """Whether all rows count equally in training."""
        return bool((self.factor == self.factor[0]).all())


@dataclass(eq=False, repr=False)
class DirectLossClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A classifier trained on the metric that judges it.

    It standardises the columns and accepts raw data, sparse tables, missing numbers (NaN) and columns of categories.
    Training has two phases: cross-entropy for the first half of the epochs (``warm_up``), which makes progress from any
    start; then the metric itself by direct loss minimization, with a tenth of the learning rate, decaying to zero. Both
    use AdamW.

    `predict` returns the positive class where `decision_function` is above 0. Metrics of decisions (``"f1"``,
    ``"iou"``, ``"mcc"``, ``"accuracy"`` ...) learn that threshold. A ranking (``"ap"``, ``"auc"``, ``"ndcg"`` ...) has
    none, so one is set afterwards: as many training rows lie above it as are positive, so precision equals recall.
    `predict_proba` is calibrated and does not follow that threshold.

    With more than two classes, a metric of two classes is averaged over each class against the rest. A ranking does not
    say which of several classes to predict, so `predict` returns the most probable one.
    ``"accuracy"``, ``"topk@k"`` and `directloss.tasks.CostMatrix` are metrics of many classes by themselves.

    Labels ``(n, labels)`` of 0 and 1 are a multilabel problem: the metric is averaged over labels.

    With validation rows (``eval_set`` of `fit`, or ``early_stopping``), the weights of the best epoch are kept,
    training on the metric starts from the best epoch of the warm-up, a metric of decisions gets the threshold that is
    best there, and probabilities are calibrated there.

    Args:
        metric: name of a task (`directloss.tasks.names` lists them) or a task object.
        model: ``"linear"``, ``"mlp"`` (one hidden layer of 64), widths of hidden layers such as ``(64, 32)``, or a
            function of the numbers of columns and of outputs that returns a `torch.nn.Module`.
        epochs: number of passes over the rows.
        warm_up: the share of the epochs with cross-entropy; 0 trains only on the metric, at the full learning rate,
            and 1 only with cross-entropy.
        learning_rate: learning rate of AdamW.
        weight_decay: weight decay of AdamW.
        batch_size: rows per batch, stratified by class; all rows at once by default, which is right for metrics that
            couple all items. A sparse table is made dense one batch at a time.
        epsilon: see `directloss.direct_loss`.
        sign: see `directloss.direct_loss`.
        noise: see `directloss.direct_loss`.
        categorical_features: columns of categories: ``"from_dtype"`` for those of a data frame with dtype
            ``category``; or column indices, names, a boolean mask, or None.
        early_stopping: whether each phase of the training ends when the validation metric stops improving.
        validation_fraction: the share of the rows set aside for early stopping if `fit` has no ``eval_set``.
        n_iter_no_change: epochs without a better value before early stopping.
        class_weight: weights of the classes, as a mapping, or ``"balanced"``.
        warm_start: whether another `fit` continues with the current network, without warm-up.
        verbose: whether to print the loss and the validation metric, about 25 times.
        random_state: seed of the initial weights and of the batches.

    Attributes:
        classes_: the labels in order; of two, the second is the positive class.
        network_: the trained `torch.nn.Module`; it takes standardised columns.
        loss_curve_: the metric's loss on the training data, per epoch after the warm-up.
        validation_curve_: the metric on the validation rows after some of the epochs; empty without such rows.
        best_epoch_: the epoch whose weights were kept.
        n_iter_: number of epochs.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(300, weights=[0.9], random_state=0)
        >>> ranked = DirectLossClassifier("ap", random_state=0).fit(X, y).decision_function(X)
        >>> ranked.shape
        (300,)
    """

    class_weight: Mapping[Any, float] | str | None = None

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: Any = None,
        report: Callable[[int, float], None] | None = None,
    ) -> Self:
        """Train on rows ``(n, columns)`` and labels ``(n,)`` or ``(n, labels)``.

        Args:
            X: rows: an array, a sparse matrix or a data frame.
            y: labels.
            sample_weight: weight of each row. Exact for ``"auc"`` and for metrics that judge each row alone, such as
                ``"accuracy"``; for other metrics each epoch resamples the rows by weight.
            eval_set: a pair of rows and labels that choose the epoch and the threshold.
            report: called with an epoch and the validation metric; an exception it raises ends the training.
        """
        self._schedule()
        rows, y = self._read(X, y, reset=True, multi_output=True)
        y, weight = _labels(y), _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        if not (kept := weight > 0).all():
            rows, y, weight = some_rows(rows, kept), y[kept], weight[kept]
        whole = self._learn(rows, y, weight)
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            if self.batch_size is not None or self.early_stopping or not whole.even:
                warnings.simplefilter("ignore", DirectLossWarning)  # a batch without a rare class is normal
            torch.manual_seed(self._seed())
            pair = one_pair(eval_set)
            part, held = self._divide(whole, None if pair is None else self._eval_part(*pair))
            outputs = len(self.classes_) if self._by_class else part.target.shape[1]
            part, held, new = self._prepare(part, held, outputs)
            if new and self.warm_up and not self._by_class and not callable(self.model):
                start_at_base_rate(self.network_, part.target)
            self._train(part, held, new, report)
            self._set_thresholds(part, held)
        return self

    def _learn(self, rows: Any, y: Array, weight: Array) -> _Part:
        """Learn the classes; returns the rows with their targets."""
        self._multilabel = y.ndim == 2
        self.classes_ = np.arange(y.shape[1]) if self._multilabel else np.unique(y)
        if len(self.classes_) < 2 and not self._multilabel:
            fail("y", "must have at least two classes", "of one class only")
        self._fitted_task = task = self._task()
        self._by_class = task.event_dims > task.target_dims
        factor = weight if self.class_weight is None else weight * compute_sample_weight(self.class_weight, y)
        return _Part(rows, self._target(y), torch.from_numpy(weight), torch.from_numpy(factor))

    def _task(self) -> Task:
        """The metric as a task: with one score per yes or no, or one score per class of a row."""
        task = item_task(self.metric)
        if self._multilabel or len(self.classes_) == 2:
            task = of_one_score(task)
        if self._multilabel and task.event_dims > task.target_dims:
            fail("metric", "must be a metric of yes or no for labels of shape (n, labels)", repr(task), "Try f1 or ap.")
        return task

    def _target(self, y: Array) -> Tensor:
        """Labels in the layout of the task: class indices, or a yes or no per class (of two, for the second)."""
        if self._multilabel:
            return torch.from_numpy(np.asarray(y != 0, np.int64))
        labels = torch.from_numpy(np.searchsorted(self.classes_, y))
        if self._by_class:
            return labels
        each = F.one_hot(labels, len(self.classes_))
        return each[:, 1:] if len(self.classes_) == 2 else each

    def _eval_part(self, X: Any, y: Any) -> _Part:
        rows, wanted = self._read(X), np.asarray(y)
        shape = (rows.shape[0], len(self.classes_)) if self._multilabel else (rows.shape[0],)
        if wanted.shape != shape:
            fail("eval_set", f"must have labels of shape {shape} for its rows", f"of shape {wanted.shape}")
        known = np.array([0, 1]) if self._multilabel else self.classes_
        if not (found := np.isin(wanted, known)).all():
            fail("eval_set", f"must have labels that y has, such as {known[0]}", wanted[~found][0])
        ones = torch.ones(len(wanted), dtype=torch.float64)
        return _Part(rows, self._target(wanted), ones, ones)

    # ------------------------------------------------------------------ training

    def _batches(self, part: _Part) -> Iterator[Tensor]:
        """Batches; rows are resampled by weight if the metric has no exact weights."""
        if part.even or self._exact_weights:
            return super()._batches(part)
        drawn = resampled(part.factor)
        return (drawn[batch] for batch in shuffled(self.batch_size, part.strata[drawn]))

    @property
    def _exact_weights(self) -> bool:
        """Whether the metric judges each row alone, or has exact inference with item weights."""
        task = self._fitted_task
        return self._by_class or task.event_dims == 0 or task.weighted(torch.ones(1, dtype=torch.float64)) is not None

    def _weight(self, part: _Part, batch: Tensor) -> Tensor | None:
        """The weight per row, or per row and output; None if all are equal."""
        if part.even or not self._exact_weights:
            return None
        factor = part.factor[batch] / part.factor.mean()
        return factor if self._by_class else factor.unsqueeze(1).expand(-1, self.outputs_)

    def _scored(self, part: _Part, batch: Tensor) -> tuple[Tensor, Tensor, dict[str, Any]]:
        scores = scores_of(self.network_, part.rows[batch], self.outputs_)
        return scores, part.target[batch], {"dim": self._dim, "weight": self._weight(part, batch)}

    def _cross_entropy(self, part: _Part, batch: Tensor) -> Tensor:
        scores, wanted, about = self._scored(part, batch)
        if self._by_class:
            losses = F.cross_entropy(scores, wanted, reduction="none")
        else:
            losses = F.binary_cross_entropy_with_logits(scores, wanted.to(scores.dtype), reduction="none")
        weight = about["weight"]
        return losses.mean() if weight is None else (losses * weight).sum() / weight.sum()

    @property
    def _dim(self) -> int | None:
        return 0 if self._fitted_task.event_dims == 1 and not self._by_class else None

    def _measure(self, held: _Part) -> float:
        """The metric, at the best thresholds if it needs them."""
        scores = all_scores(self.network_, held.rows, self.outputs_)
        if self._decides:
            return sum(value for _, value in self._cuts(scores, held.target)) / self.outputs_
        value = mean_metric(scores, held.target, self._fitted_task, dim=self._dim)
        if math.isnan(value):
            fail("eval_set", "must have rows of both labels", "of one label only")
        return value

    # ------------------------------------------------------------------ decisions and probabilities

    @property
    def _decides(self) -> bool:
        """Whether the metric judges a yes or no, so that the threshold matters."""
        return not self._by_class and (self._fitted_task.event_dims == 0 or isinstance(self._fitted_task, CountTask))

    def _cuts(self, scores: Tensor, target: Tensor) -> list[tuple[float, float]]:
        """The best threshold per output, with its metric."""
        return [best_cut(some, wanted, self._fitted_task) for some, wanted in zip(scores.T, target.T, strict=True)]

    def _set_thresholds(self, part: _Part, held: _Part | None) -> None:
        """Set the thresholds, the scale that makes scores of several classes comparable, and the calibration."""
        scores = all_scores(self.network_, part.rows, self.outputs_)
        self._cut, self._spread = torch.zeros(self.outputs_), torch.ones(self.outputs_)
        ranks = not self._by_class and not self._decides
        ranks_classes = ranks and self.outputs_ > 1 and not self._multilabel
        if ranks:
            columns = zip(scores.T, part.target.T, strict=True)
            self._cut = torch.tensor([even_cut(some, wanted, part.factor) for some, wanted in columns])
        if ranks_classes:
            self._spread = scores.std(0).clamp(min=1e-12)
        judge = part if held is None else held
        if held is not None:
            scores = all_scores(self.network_, held.rows, self.outputs_)
            if self._decides:
                self._cut = torch.tensor([cut for cut, _ in self._cuts(scores, held.target)])
        # Without validation rows, a metric that judges each row alone has learned to choose the most probable class.
        alone = self._by_class or self._fitted_task.event_dims == 0
        biased = held is not None or not alone or not judge.even
        self._calibrations = self._calibrate(self._decision(scores), judge, biased)
        if ranks_classes and judge.even:
            # Rankings of several classes do not say which one to predict: take the most probable one.
            slope, bias = self._calibrations[0].slope, self._calibrations[0].bias
            self._cut = self._cut - self._spread * torch.from_numpy(bias / slope).to(self._spread)
            self._calibrations = [Calibration(slope, np.zeros_like(bias))]

    def _calibrate(self, scores: Array, part: _Part, biased: bool) -> list[Calibration]:
        """One calibration for all classes, or one per label."""
        target, weight = part.target.numpy(), part.weight.numpy()
        if self._multilabel:
            columns = zip(scores.T, target.T, strict=True)
            return [Calibration.of(some, wanted, weight, biased=biased) for some, wanted in columns]
        codes = target if self._by_class else target.ravel() if scores.ndim == 1 else target.argmax(1)
        return [Calibration.of(scores, codes, weight, biased=biased)]

    def _decision(self, scores: Tensor) -> Array:
        scores = (scores - self._cut) / self._spread
        if self._multilabel or len(self.classes_) > 2:
            return scores.numpy()
        return (scores[:, 1] - scores[:, 0] if self._by_class else scores[:, 0]).numpy()

    def decision_function(self, X: Any) -> Array:
        """The score of the positive class, ``(n,)``, above 0 for yes; or of each class or label, ``(n, classes)``."""
        return self._decision(self._scores(X))

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, or, for a multilabel problem, of each label: ``(n, classes)``.

        Calibrated on the validation rows, or on the training rows if there are none. `predict` follows the metric and
        need not choose the most probable class.
        """
        scores = self.decision_function(X)
        if not self._multilabel:
            return self._calibrations[0](scores)
        columns = zip(scores.T, self._calibrations, strict=True)
        return np.column_stack([calibrated(some)[:, 1] for some, calibrated in columns])

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
    lists: Lists
    grades: Tensor

    @classmethod
    def of(cls, rows: Any, relevance: Any, group: Any, qid: Any) -> _ListPart:
        """The lists of these rows."""
        if group is None and qid is None and (count := rows.shape[0]) > ONE_LIST:
            hint = f"Pass qid, the name of each row's list, or group=[{count}] if one list is meant."
            warn_once("one list", f"All {count} rows are ranked as one list: neither group nor qid is given. {hint}")
        lists = Lists.of(rows.shape[0], group, qid)
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

    Parameters and training are those of `DirectLossClassifier`. Cross-entropy is that of ListNet, between the shares of
    relevance in a list and the softmax of its scores, and ``batch_size`` counts lists.

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
        self._schedule()
        self._fitted_task = self._task()
        rows, relevance = self._read(X, y, reset=True, ensure_min_samples=2, y_numeric=True)
        if (relevance < 0).any():
            fail("y", "must hold grades of relevance, at least 0", relevance.min())
        whole = _ListPart.of(rows, relevance, group, qid)
        pair = one_pair(eval_set)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed())
            held = None if pair is None else _ListPart.of(self._read(pair[0]), pair[1], eval_group, eval_qid)
            self._train(*self._prepare(*self._divide(whole, held), 1))
        return self

    def _scored(self, part: _ListPart, batch: Tensor) -> tuple[Tensor, Tensor, dict[str, Any]]:
        some = part.take(batch)
        scores = some.lists.pad(scores_of(self.network_, some.rows, 1).squeeze(1))
        return scores, some.grades, {"mask": some.lists.mask}

    def _cross_entropy(self, part: _ListPart, batch: Tensor) -> Tensor:
        scores, grades, about = self._scored(part, batch)
        mask = about["mask"]
        shares = (grades / grades.sum(1, keepdim=True).clamp(min=1e-12)).to(scores.dtype)
        logs = scores.masked_fill(~mask, -torch.inf).log_softmax(1).masked_fill(~mask, 0.0)
        return -(shares * logs).sum(1).mean()

    def _measure(self, held: _ListPart) -> float:
        return held.metric(all_scores(self.network_, held.rows, 1), self._fitted_task)

    def predict(self, X: Any) -> Array:
        """The score of each row: within a list, higher is more relevant."""
        return self._scores(X).squeeze(1).numpy()

    def score(self, X: Any, y: Any, group: Any = None, qid: Any = None) -> float:
        """The mean metric over the lists that have something to rank; NaN if none has."""
        scores = self._scores(X)
        return _ListPart.of(scores, y, group, qid).metric(scores, self._task())

    def _task(self) -> Task:
        task = as_task(self.metric, "metric")
        if task.event_dims != 1 or task.target_dims != 1 or isinstance(task, CountTask):
            fail("metric", "must be a metric of rankings, such as ndcg@10, ap or mrr", repr(task))
        return GradedNDCG(task.k) if isinstance(task, NDCG) else task

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags
