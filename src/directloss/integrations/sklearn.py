"""scikit-learn estimators that train on the metric: `DirectLossClassifier` and `DirectLossRanker`.

They work in pipelines, cross-validation, grid search and pickles.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from directloss._checks import DirectLossWarning, check_count, fail
from directloss._registry import as_task
from directloss.direct import direct_loss, mean_metric
from directloss.integrations._fitting import (
    Network,
    Scaling,
    Schedule,
    Validation,
    all_scores,
    best_cut,
    make_network,
    minimise,
    scores_of,
    shuffled,
    start_at_base_rate,
)
from directloss.integrations._lists import Lists
from directloss.task import Task
from directloss.tasks import NDCG, Accuracy, CountTask, Error, GradedNDCG

Array = npt.NDArray[Any]


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: the parameters, and the way from rows to scores."""

    def __init__(
        self,
        metric: str | Task = "ap",
        *,
        model: str | Sequence[int] | Network = "linear",
        epochs: int = 200,
        warm_up: float = 0.5,
        learning_rate: float = 0.03,
        weight_decay: float = 0.01,
        batch_size: int | None = None,
        epsilon: float | str = "auto",
        sign: int | str | None = "auto",
        noise: float | str | None = "auto",
        warm_start: bool = False,
        random_state: Any = None,
    ) -> None:
        self.metric = metric
        self.model = model
        self.epochs = epochs
        self.warm_up = warm_up
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.epsilon = epsilon
        self.sign = sign
        self.noise = noise
        self.warm_start = warm_start
        self.random_state = random_state

    def _prepare(self, rows: Array, outputs: int) -> tuple[Tensor, bool]:
        """Scaled rows, and whether the network is a new one; with ``warm_start`` the present one goes on."""
        known = self.warm_start and hasattr(self, "network_")
        if not known:
            self.scaling_ = Scaling.of(rows)
            self.network_ = make_network(self.model, rows.shape[1], outputs).float()
            self.outputs_ = outputs
        elif outputs != self.outputs_:
            rule = f"must have the {self.outputs_} outputs of the fit before, as warm_start=True goes on with it"
            fail("y", rule, f"with {outputs}")
        return self.scaling_(rows), not known

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _schedule(self) -> Schedule:
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        return Schedule(self.epochs, self.warm_up, self.learning_rate, self.weight_decay)

    def _loss(self, scores: Tensor, target: Tensor, task: Task, **more: Any) -> Tensor:
        sign = "auto" if self.sign is None else self.sign
        return direct_loss(scores, target, task, epsilon=self.epsilon, sign=sign, noise=self.noise, **more)

    def _scores(self, X: Any) -> Tensor:
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return all_scores(self.network_, self.scaling_(rows), self.outputs_)


class DirectLossClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A classifier trained on the metric that judges it.

    It standardises the columns, so raw data are fine. Training has two parts: cross-entropy for the first half of the
    epochs (``warm_up``), which makes progress from any start; then the metric itself by direct loss minimization, with
    a tenth of the learning rate, falling to zero. Both use AdamW.

    `predict` returns the positive class where `decision_function` is above 0. Metrics of decisions (``"f1"``,
    ``"iou"``, ``"mcc"``, ``"accuracy"`` ...) learn that threshold. A ranking (``"ap"``, ``"auc"``, ``"ndcg"`` ...) has
    none, so one is set afterwards: as many training rows lie above it as are positive, which makes precision and recall
    equal there.

    With more than two classes, a metric of two classes is computed for each class against the rest, and its mean is
    the loss; a ranking's scores are then divided by their deviation, so that the classes can be compared.
    ``"accuracy"``, ``"topk@k"`` and `directloss.tasks.CostMatrix` are metrics of many classes by themselves.

    With validation rows (see `fit`), the weights of the best epoch are kept, training on the metric starts from the
    best epoch of the warm-up, and a metric of decisions gets the threshold that is best there.

    There is no ``sample_weight``: most of these metrics have no exact inference for weighted items.

    Args:
        metric: name of a task (`directloss.tasks.names` lists them) or a task object.
        model: ``"linear"``, ``"mlp"`` (one hidden layer of 64), widths of hidden layers such as ``(64, 32)``, or a
            function of the numbers of columns and of outputs that returns a `torch.nn.Module`.
        epochs: the number of passes over the rows.
        warm_up: share of the epochs that cross-entropy gets; 0 trains on the metric alone, at the full learning rate,
            and 1 on cross-entropy alone.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        batch_size: rows of a batch, drawn with equal shares of the classes; all rows at once by default, which is
            right for metrics that couple all items.
        epsilon: see `directloss.direct_loss`.
        sign: see `directloss.direct_loss`.
        noise: see `directloss.direct_loss`.
        warm_start: whether another `fit` continues with the present network, without warm-up.
        random_state: seed of the initial weights and of the batches.

    Attributes:
        classes_: the labels in order; of two, the last is the positive class.
        network_: the trained `torch.nn.Module`; it takes standardised columns.
        loss_curve_: the metric's loss on the training data, for each epoch after the warm-up.
        validation_curve_: the metric on the validation rows after some of the epochs; empty without such rows.
        best_epoch_: the epoch that the network comes from.
        n_iter_: number of epochs.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(300, weights=[0.9], random_state=0)
        >>> ranked = DirectLossClassifier("ap", random_state=0).fit(X, y).decision_function(X)
        >>> ranked.shape
        (300,)
    """

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        validation: tuple[Any, Any] | None = None,
        report: Callable[[int, float], None] | None = None,
    ) -> Self:
        """Train on rows ``(n, columns)`` and labels ``(n,)``.

        Args:
            X: rows.
            y: labels.
            validation: rows and labels that choose the epoch and the threshold.
            report: is called with an epoch and the metric on the validation rows; what it raises ends the training.
        """
        schedule = self._schedule()
        rows, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            fail("y", "must have at least two classes", "of one class only")
        task, by_class = self._task(count)
        self._by_class = by_class
        labels = torch.from_numpy(codes)
        target = self._target(labels)
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            if self.batch_size is not None:  # of a rare class some batches have none: that is normal
                warnings.simplefilter("ignore", DirectLossWarning)
            torch.manual_seed(self._seed())
            inputs, new = self._prepare(rows, count if by_class or count > 2 else 1)
            dim = 0 if task.event_dims == 1 and not by_class else None
            if new and schedule.warm_up and not by_class and not callable(self.model):
                start_at_base_rate(self.network_, target)
            held = None if validation is None else self._held(validation)

            def scored(batch: Tensor) -> tuple[Tensor, Tensor]:
                return scores_of(self.network_, inputs[batch], self.outputs_), target[batch]

            def cross_entropy(batch: Tensor) -> Tensor:
                scores, wanted = scored(batch)
                if by_class:
                    return F.cross_entropy(scores, wanted)
                return F.binary_cross_entropy_with_logits(scores, wanted.to(scores.dtype))

            def direct(batch: Tensor) -> Tensor:
                return self._loss(*scored(batch), task, dim=dim)

            def measure(held: tuple[Tensor, Tensor]) -> float:
                scores = all_scores(self.network_, held[0], self.outputs_)
                if self._decides(task):
                    return sum(value for _, value in self._cuts(scores, held[1], task)) / self.outputs_
                return mean_metric(scores, held[1], task, dim=dim)

            watched = None if held is None else Validation(lambda: measure(held), report)
            self.loss_curve_ = minimise(
                self.network_,
                lambda: shuffled(self.batch_size, labels),
                cross_entropy,
                direct,
                schedule,
                warm_up=new,
                validation=watched,
            )
            self._set_thresholds(all_scores(self.network_, inputs, self.outputs_), target, task)
            if held is not None and self._decides(task):
                scores = all_scores(self.network_, held[0], self.outputs_)
                self._cut = torch.tensor([cut for cut, _ in self._cuts(scores, held[1], task)])
        self.validation_curve_ = {} if watched is None else watched.curve
        self.best_epoch_ = schedule.epochs if watched is None else watched.best
        self.n_iter_ = schedule.epochs
        return self

    def _task(self, classes: int) -> tuple[Task, bool]:
        """The task, and whether it takes one label and a score for each class, not a yes or no for each class."""
        task = as_task(self.metric, "metric")
        if task.event_dims > 1 or task.target_dims > 1 or task.event_dims < task.target_dims:
            fail("metric", "must be a metric of items, such as ap, f1 or accuracy", repr(task))
        if classes == 2 and isinstance(task, Accuracy):
            return Error(), False  # the same with one score instead of two
        return task, task.event_dims > task.target_dims

    def _target(self, labels: Tensor) -> Tensor:
        """Classes as the task takes them: their numbers, or a yes or no for each (of two, for the last)."""
        if self._by_class:
            return labels
        each = F.one_hot(labels, len(self.classes_))
        return each[:, 1:] if len(self.classes_) == 2 else each

    def _held(self, validation: tuple[Any, Any]) -> tuple[Tensor, Tensor]:
        """Validation rows, scaled, and their target."""
        rows = validate_data(self, validation[0], reset=False, dtype=[np.float64, np.float32])
        wanted = np.asarray(validation[1])
        if wanted.shape != (len(rows),) or not np.isin(wanted, self.classes_).all():
            fail(
                "validation", "must have a label of y for each of its rows", f"{len(rows)} rows, {wanted.shape} labels"
            )
        return self.scaling_(rows), self._target(torch.from_numpy(np.searchsorted(self.classes_, wanted)))

    def _decides(self, task: Task) -> bool:
        """Whether the metric judges a yes or no, so that the place of the cut matters."""
        return not self._by_class and (task.event_dims == 0 or isinstance(task, CountTask))

    @staticmethod
    def _cuts(scores: Tensor, target: Tensor, task: Task) -> list[tuple[float, float]]:
        """The best cut of each output, with its metric."""
        return [best_cut(some, wanted, task) for some, wanted in zip(scores.T, target.T, strict=True)]

    def _set_thresholds(self, scores: Tensor, target: Tensor, task: Task) -> None:
        """Where a ranking is cut, and what makes the scores of its classes alike; 0 and 1 for decisions."""
        self._cut, self._spread = torch.zeros(self.outputs_), torch.ones(self.outputs_)
        if self._by_class or self._decides(task):
            return
        ranked = scores.sort(0, descending=True).values
        positives = target.sum(0, keepdim=True)
        last, next_one = ranked.gather(0, positives - 1), ranked.gather(0, positives)
        self._cut = ((last + next_one) / 2).squeeze(0)
        if self.outputs_ > 1:
            self._spread = scores.std(0).clamp(min=1e-12)

    def decision_function(self, X: Any) -> Array:
        """The score of the positive class, ``(n,)``, above 0 for yes; or of each class, ``(n, classes)``."""
        scores = (self._scores(X) - self._cut) / self._spread
        if len(self.classes_) > 2:
            return scores.numpy()
        return (scores[:, 1] - scores[:, 0] if self._by_class else scores[:, 0]).numpy()

    def predict(self, X: Any) -> Array:
        """The label of each row."""
        scores = self.decision_function(X)
        chosen: Array = self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)]
        return chosen


class DirectLossRanker(_Estimator):
    """Learning to rank: trains the order of the scores in each list on the metric.

    Rows belong to lists: rows with the same ``qid`` are one list, or ``group`` gives the sizes of consecutive lists;
    without either all rows are one list. NDCG takes grades of relevance, any numbers of at least 0,
    with gains ``2^grade - 1``; the other rankings take 0 and 1.

    Parameters and training are those of `DirectLossClassifier`. Cross-entropy is that of ListNet, between the shares of
    relevance in a list and the softmax of its scores, and ``batch_size`` counts lists.

    Examples:
        >>> X, qid = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) // 6
        >>> grades = np.clip(np.round(X[:, 0] + 1), 0, 3)
        >>> ranker = DirectLossRanker("ndcg@3", random_state=0).fit(X, grades, qid=qid)
        >>> ranker.predict(X).shape, ranker.score(X, grades, qid=qid) > 0.9
        ((60,), True)
    """

    def __init__(
        self,
        metric: str | Task = "ndcg",
        *,
        model: str | Sequence[int] | Network = "linear",
        epochs: int = 200,
        warm_up: float = 0.5,
        learning_rate: float = 0.03,
        weight_decay: float = 0.01,
        batch_size: int | None = None,
        epsilon: float | str = "auto",
        sign: int | str | None = "auto",
        noise: float | str | None = "auto",
        warm_start: bool = False,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            metric,
            model=model,
            epochs=epochs,
            warm_up=warm_up,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            batch_size=batch_size,
            epsilon=epsilon,
            sign=sign,
            noise=noise,
            warm_start=warm_start,
            random_state=random_state,
        )

    def fit(self, X: Any, y: Any, group: Any = None, qid: Any = None) -> Self:
        """Train on rows ``(n, columns)`` with relevance ``(n,)``."""
        schedule, task = self._schedule(), self._task()
        rows, relevance = validate_data(
            self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2, y_numeric=True
        )
        if (relevance < 0).any():
            fail("y", "must be at least 0, a grade of relevance", f"{relevance.min()} at the least")
        lists = Lists.of(len(rows), group, qid)
        padded = lists.pad(torch.from_numpy(np.asarray(relevance, np.float64)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed())
            inputs, new = self._prepare(rows, 1)

            def scored(batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                some = lists.take(batch)
                scores = scores_of(self.network_, inputs[some.rows], 1).squeeze(1)
                return some.pad(scores), padded[batch][:, : some.longest], some.mask

            def cross_entropy(batch: Tensor) -> Tensor:
                scores, grades, mask = scored(batch)
                shares = (grades / grades.sum(1, keepdim=True).clamp(min=1e-12)).to(scores.dtype)
                logs = scores.masked_fill(~mask, -torch.inf).log_softmax(1).masked_fill(~mask, 0.0)
                return -(shares * logs).sum(1).mean()

            def direct(batch: Tensor) -> Tensor:
                scores, grades, mask = scored(batch)
                return self._loss(scores, grades, task, mask=mask)

            self.loss_curve_ = minimise(
                self.network_,
                lambda: shuffled(self.batch_size, torch.zeros(len(lists))),
                cross_entropy,
                direct,
                schedule,
                warm_up=new,
            )
        self.n_iter_ = schedule.epochs
        return self

    def predict(self, X: Any) -> Array:
        """The score of each row: within a list, higher is more relevant."""
        return self._scores(X).squeeze(1).numpy()

    def score(self, X: Any, y: Any, group: Any = None, qid: Any = None) -> float:
        """The metric, as a mean over the lists that have something to rank; NaN where none has."""
        scores = self._scores(X).squeeze(1)
        lists = Lists.of(len(scores), group, qid)
        grades = lists.pad(torch.from_numpy(np.asarray(y, np.float64)))
        return mean_metric(lists.pad(scores), grades, self._task(), mask=lists.mask)

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
