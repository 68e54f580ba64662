"""scikit-learn estimators that train on the metric: `DirectLossClassifier` and `DirectLossRanker`.

They work in pipelines, cross-validation, grid search and pickles.
"""

from __future__ import annotations

from directloss.integrations._needs import needed

needed("sklearn", __name__, "scikit-learn")

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from scipy.special import log_softmax
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import functional as F

from directloss._checks import check_labels, fail, warn_once
from directloss._registry import as_task
from directloss.direct import mean_metric
from directloss.integrations._classifier import MetricClassifier, Part, fit_copy, validation_rows
from directloss.integrations._cut import Array, best_cut, decides
from directloss.integrations._fitting import NetworkEstimator, batches, resampled
from directloss.task import Task
from directloss.tasks import NDCG, CountTask, GradedNDCG

ONE_LIST = 1_000
"""With more rows than this, a list of all rows is more likely a forgotten ``qid``."""


@dataclass(eq=False, repr=False)
class DirectLossClassifier(MetricClassifier, NetworkEstimator):
    """A classifier trained on the metric that judges it: a linear model or a small network with `DirectLoss`.

    It standardises the columns and accepts raw data, sparse tables, missing numbers (NaN), and data frames with columns
    of dtype ``category``.

    `predict` returns the second class where `decision_function` is above 0. Metrics of decisions (``"f1"``, ``"iou"``,
    ``"mcc"``, ``"accuracy"`` ...) learn that threshold. A ranking (``"ap"``, ``"auc"``, ``"ndcg"`` ...) does not say
    what to predict, so `predict` returns the most probable class.

    With more than two classes, a metric of decisions is the mean over the classes of the predicted ones, as macro F1,
    and a ranking the mean over each class against the rest, ranked by the softmax. ``"accuracy"``, ``"topk@k"`` and
    `directloss.tasks.CostMatrix` are metrics of many classes by themselves.

    With held-out rows (``eval_set`` of `fit`, or ``early_stopping``), the weights of the best epoch are kept, and
    threshold and probabilities are set there.

    Args:
        metric: name of a task (`directloss.tasks.names` lists them) or a task object.
        model: ``"linear"``, ``"mlp"`` (one hidden layer of 64), or widths of hidden layers such as ``(64, 32)``.
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
        early_stopping: whether training ends when the metric of held-out rows stops improving.
        validation_fraction: the share of the rows held out for early stopping if `fit` has no ``eval_set``.
        n_iter_no_change: epochs without a better value before early stopping.
        class_weight: weights of the classes, as a mapping, or ``"balanced"``.
        pos_label: the positive class of the metric, of two; by default, as in ``directloss fit``, 1 or True, otherwise
            the rarer one. Name it if two words are about equally frequent: which is rarer may differ between folds.
        random_state: seed of initial weights, batches and noise.

    Attributes:
        classes_: the labels in sorted order. A positive `decision_function` means the second of two, whatever
            ``pos_label`` is.
        threshold_: the score of the network above which the metric's positive class is predicted, where
            `decision_function` is 0; for a ranking of more than two classes, what is subtracted from each score.
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

    flips: float | tuple[float, float] = 0.0
    class_weight: Mapping[Any, float] | str | None = None
    pos_label: Any = None

    def _held_share(self) -> float | None:
        return self.validation_fraction if self.early_stopping else None

    @property
    def _ranks_classes(self) -> bool:
        """Whether the rows are ranked for each of several classes."""
        return len(self.classes_) > 2 and self._task.event_dims == self._task.target_dims

    def _scores(self, table: Any) -> Array:
        """Classes exclude each other, which a ranking by the scores of one class alone would ignore."""
        scores = super()._scores(table)
        return log_softmax(scores.astype(np.float64), axis=1) if self._ranks_classes else scores

    def _train(self, part: Part, held: Part | None, seed: int) -> None:
        task, generator, count = self._task, torch.Generator().manual_seed(seed), len(self.classes_)
        one_vs_rest = self._ranks_classes
        dim = 0 if one_vs_rest else None
        scores_at = self._make_network(part.rows, count if count > 2 else 1, generator)
        codes, weight = torch.from_numpy(part.target), torch.from_numpy(part.weight)
        loss_fn = self._loss_fn(task, generator, flips=self.flips, dim=dim)

        def target(codes: Tensor) -> Tensor:
            return F.one_hot(codes, count) if one_vs_rest else codes

        def measure(held: Part) -> float:
            """The metric, at the best threshold if it needs one."""
            scores, wanted = torch.from_numpy(self._scores(held.rows)), torch.from_numpy(held.target)
            if decides(task):
                return best_cut(scores, wanted, task, held.weight, self.flips)[1]
            if held.weight.std():
                copies = resampled(torch.from_numpy(held.weight), 8 * len(wanted))  # a row of mean weight 8 times
                scores, wanted = scores[copies], wanted[copies]
            return mean_metric(scores, target(wanted), task, dim=dim)

        self._descend(
            lambda: batches(self.batch_size, codes, weight, generator),
            lambda batch: loss_fn(scores_at(batch), target(codes[batch])),
            None if held is None else lambda: measure(held),
        )


class QueryLists(NamedTuple):
    """Lists of rows with their grades of relevance, padded: all tensors are ``(lists, longest)``."""

    place: Tensor
    """The row of each entry."""
    mask: Tensor
    """False for padding."""
    grades: Tensor

    @classmethod
    def of(cls, relevance: Any, qid: Any = None) -> QueryLists:
        """The lists of rows with the same name; all rows are one list if they have none."""
        grades = torch.from_numpy(np.asarray(relevance, np.float64))
        if qid is None and (count := len(grades)) > ONE_LIST:
            hint = f"Pass qid, the name of each row's list, or qid=np.zeros({count}) if one list is meant."
            warn_once("one list", f"All {count} rows are ranked as one list: qid is not given. {hint}")
        names = np.zeros(len(grades), np.int64) if qid is None else np.asarray(qid)
        if names.shape != grades.shape:
            fail("qid", f"must have one entry for each of the {len(grades)} rows", f"of shape {names.shape}")
        if missing := int((names != names).sum()) + sum(name is None for name in names if names.dtype == object):
            fail("qid", "must name the list of each row", f"missing (NaN or None) in {missing} of {len(grades)} rows")
        _, owner, sizes = np.unique(names, return_inverse=True, return_counts=True)
        mask = torch.arange(int(sizes.max())) < torch.from_numpy(sizes).unsqueeze(1)
        place = torch.zeros(mask.shape, dtype=torch.long)
        place[mask] = torch.from_numpy(np.argsort(owner, kind="stable"))
        return cls(place, mask, torch.where(mask, grades[place], 0))

    def take(self, which: Tensor) -> QueryLists:
        """Some of these lists."""
        return QueryLists(*(each[which] for each in self))

    def metric(self, scores: Array, task: Task) -> float:
        """The mean metric over the lists that have something to rank, for the score of each row."""
        padded = torch.where(self.mask, torch.from_numpy(scores)[self.place], 0)
        return mean_metric(padded, self.grades, task, mask=self.mask)


@dataclass(eq=False, repr=False)
class DirectLossRanker(NetworkEstimator):
    """Learning to rank: trains the order of the scores in each list on the metric.

    Rows with the same ``qid`` are one list. Without it, all rows are one list, with a warning above 1,000 rows. NDCG
    takes grades of relevance, any numbers of at least 0, with gains ``2^grade - 1``; the other rankings take 0 and 1.

    Parameters and training are those of `DirectLossClassifier`; ``batch_size`` counts lists.

    Examples:
        >>> X, qid = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) // 6
        >>> grades = np.clip(np.round(X[:, 0] + 1), 0, 3)
        >>> ranker = DirectLossRanker("ndcg@3", random_state=0).fit(X, grades, qid=qid)
        >>> ranker.predict(X).shape, ranker.score(X, grades, qid=qid) > 0.9
        ((60,), True)
    """

    metric: str | Task = "ndcg"

    def fit(self, X: Any, y: Any, qid: Any = None, *, eval_set: Any = None, eval_qid: Any = None) -> Self:
        """Train on rows ``(n, columns)`` with relevance ``(n,)``.

        Args:
            X: rows.
            y: relevance of each row.
            qid: the name of each row's list; without it, all rows are one list.
            eval_set: a pair of rows and relevance that chooses the epoch.
            eval_qid: ``qid`` of ``eval_set``.
        """
        return fit_copy(self, X, y, qid, eval_set, eval_qid)  # type: ignore[no-any-return]

    def _fit(self, X: Any, y: Any, qid: Any, eval_set: Any, eval_qid: Any) -> None:
        task = self._ranking_task()
        table, relevance = self._read(X, y, reset=True, ensure_min_samples=2, y_numeric=True)
        if (relevance < 0).any():
            fail("y", "must hold grades of relevance, at least 0", relevance.min())
        if not isinstance(task, GradedNDCG):
            check_labels(torch.from_numpy(np.asarray(relevance)), hint="Only ndcg takes grades.")
        lists, held, held_table = QueryLists.of(relevance, qid), None, table
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if eval_set is not None:
            held_X, wanted, _ = validation_rows(eval_set)
            held_table, held = self._read(held_X), QueryLists.of(wanted, eval_qid)
        elif self.early_stopping:
            numbers = np.arange(len(lists.mask))
            split = train_test_split(numbers, test_size=self.validation_fraction, random_state=seed)
            lists, held = (lists.take(torch.from_numpy(some)) for some in split)
        generator, alike = torch.Generator().manual_seed(seed), torch.ones(len(lists.mask))
        scores_at, loss_fn = self._make_network(table, 1, generator), self._loss_fn(task, generator)

        def loss_of(which: Tensor) -> Tensor:
            some = lists.take(which)
            scores = torch.zeros(some.mask.shape).masked_scatter(some.mask, scores_at(some.place[some.mask]))
            loss: Tensor = loss_fn(scores, some.grades, some.mask)
            return loss

        self._descend(
            lambda: batches(self.batch_size, alike, alike, generator),
            loss_of,
            None if held is None else lambda: held.metric(self._scores(held_table), task),
        )

    def predict(self, X: Any) -> Array:
        """The score of each row: within a list, higher is more relevant."""
        check_is_fitted(self)
        return self._scores(self._read(X))

    def score(self, X: Any, y: Any, qid: Any = None) -> float:
        """The mean metric over the lists that have something to rank; NaN if none has."""
        return QueryLists.of(y, qid).metric(self.predict(X), self._ranking_task())

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
