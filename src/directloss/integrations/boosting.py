"""Gradient boosting on the metric, with LightGBM or XGBoost: an objective, an evaluation, and a recipe that uses both.

Boosting asks its objective for a gradient and a curvature per score. The gradient is that of `directloss.direct_loss`.
The curvature is a bound that follows from the noise: a decision under logistic noise of scale ``noise`` is a yes with
probability ``p = sigmoid(s / noise)``, so the expected loss is linear in p, and

    |L''(s)|  =  |L'(s)| |1 - 2 p| / noise  <=  |L'(s)| / noise

This also holds for a pair of items under Gumbel noise, whose difference is logistic. A leaf that divides the sum of
gradients by the sum of these curvatures moves no score by more than ``noise``. Because one draw of the noise leaves the
gradient of many items at zero, the mean of the bound is added.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from directloss._checks import DirectLossWarning, check_count, check_positive, fail, remembering
from directloss._registry import as_task
from directloss.averaging import margins
from directloss.direct import direct_loss
from directloss.integrations._cut import best_cut
from directloss.integrations._needs import needed
from directloss.task import Task
from directloss.tasks import NDCG, Accuracy, CountTask, Error, GradedNDCG

Array = npt.NDArray[Any]
NOISE = 0.5
"""Half a logit. After the few rounds that wrong labels allow, scores lie close together, and noise of one logit gained
less than half as much."""
SAMPLES = 16
"""Draws of noise per round; they are cheap compared with growing a tree."""
FLAT = 0.1
"""The share of the mean curvature that every score gets; the rest is proportional to its gradient."""
BUILT_IN = {
    "lightgbm": {"grades": "lambdarank", "classes": "multiclass", "yes or no": "binary"},
    "xgboost": {"grades": "rank:ndcg", "classes": "multi:softprob", "yes or no": "binary:logistic"},
}
"""The built-in objective of each library, by the kind of labels."""


class Objective:
    """A metric as the custom objective of LightGBM and XGBoost.

    One object fits all four calls: ``lightgbm.train({"objective": objective, ...}, data)``,
    ``xgboost.train(params, data, obj=objective)``, and ``objective=`` of the estimators of both. Labels, weights
    and groups are those of the data. Start from a model of the built-in objective, as `train` does: scores that are all
    equal carry little information about the metric.

    Gradient and curvature are scaled so that the mean curvature is 1. Regularisation by curvature (``reg_lambda``,
    ``min_child_weight``) then counts items, and the learning rate means the same for every metric.

    Args:
        metric: name of a ranking or of a metric of decisions (``"ap"``, ``"ndcg@10"``, ``"f1"``, ``"accuracy"`` ...),
            or such a task. NDCG treats labels other than 0 and 1 as grades.
        noise: scale of the noise, in units of the scores (logits after ``binary:logistic``); must be positive.
        samples: number of draws averaged per round.
        epsilon: see `directloss.direct_loss`.
        sign: see `directloss.direct_loss`.
        seed: seed of the noise.

    Shapes:
        Predictions ``(n,)`` and labels ``(n,)``: all rows are one list; with groups, each group is a list, and the
        mean over groups counts. Predictions ``(n, classes)`` with labels from 0 to ``classes - 1``: a metric of
        classes, or the mean over each class against the rest, where the highest score decides the class of a row.
        ``"accuracy"`` takes either.
        Weights: one per group, or one per row if the metric judges rows one by one (``"accuracy"``, ``"error"``) or
        supports item weights (``"auc"``).

    Examples:
        >>> gradient, curvature = Objective("ap")(np.array([1, 0, 0, 1]), np.array([0.2, 0.1, 0.3, -0.5]))
        >>> np.sign(gradient), bool((curvature > 0).all()), round(float(curvature.mean()), 6)
        (array([-1.,  1.,  1., -1.]), True, 1.0)
    """

    def __init__(
        self,
        metric: str | Task = "ap",
        *,
        noise: float = NOISE,
        samples: int = SAMPLES,
        epsilon: float | str = "auto",
        sign: int | str = "auto",
        seed: int = 0,
    ) -> None:
        self.task = item_task(metric)
        self.noise = check_positive("noise", noise, "The curvature comes from it.")
        self.samples, self.epsilon, self.sign = check_count("samples", samples), epsilon, sign
        self.seed = check_count("seed", seed, least=0)
        self.threshold = 0.0
        """For metrics of decisions, a score above it is a yes."""
        self.calls = 0
        self._told: set[str] = set()

    def __call__(self, first: Any, second: Any, sample_weight: Any = None, group: Any = None) -> tuple[Array, Array]:
        """Gradient and curvature, from predictions and a data set, or from labels and predictions."""
        batch = _batch(first, second, sample_weight, group)
        generator = torch.Generator().manual_seed(self.seed + 7919 * self.calls)
        self.calls += 1
        scores = torch.from_numpy(batch.scores - self.threshold).double().requires_grad_()
        with remembering(self._told):
            for part in batch.problems(self.task):
                loss = direct_loss(
                    part.pick(scores), part.target, part.task, mask=part.mask, weight=part.weight, epsilon=self.epsilon,
                    sign=self.sign, noise=self.noise, samples=self.samples, generator=generator, reduction="sum",
                )  # fmt: skip
                if loss.requires_grad:
                    loss.backward()  # type: ignore[no-untyped-call]
        return self._scaled(np.zeros(batch.scores.shape) if scores.grad is None else scores.grad.numpy())

    def _scaled(self, gradient: Array) -> tuple[Array, Array]:
        """Scale to a mean curvature of 1, of which `FLAT` is constant and the rest is the bound of the noise."""
        size = np.abs(gradient)
        mean = size.mean()
        if mean == 0:
            return gradient, np.ones_like(gradient)
        relative = (1 - FLAT) * size / mean
        return np.sign(gradient) * relative * self.noise, relative + FLAT

    def __repr__(self) -> str:
        return f"Objective({self.task!r})"


class Evaluation:
    """A metric as the evaluation function of LightGBM (``feval``) and XGBoost (``custom_metric``).

    Metrics of decisions say yes above 0: they need raw scores, which both libraries pass when the objective is custom.
    Rankings take scores or probabilities. In LightGBM's estimators it is an ``eval_metric``; XGBoost's minimise theirs
    and take ``Evaluation(metric).cost``.

    Args:
        metric: see `Objective`.
        tuned: whether a metric of decisions uses the best threshold instead of 0; for one list of all rows.

    Examples:
        >>> Evaluation("ap")(np.array([1, 0, 0, 1]), np.array([0.4, 0.1, 0.3, 0.2]))
        ('ap', 0.8333333333333333, True)
    """

    def __init__(self, metric: str | Task = "ap", *, tuned: bool = False) -> None:
        self.task = item_task(metric)
        self.tuned = tuned and decides(self.task)
        self.name = metric if isinstance(metric, str) else type(metric).__name__
        self._told: set[str] = set()

    def __call__(self, first: Any, second: Any, sample_weight: Any = None, group: Any = None) -> Any:
        """Name and value; for LightGBM also that higher is better."""
        value = self.value(_batch(first, second, sample_weight, group))
        return (self.name, value) if _library(second) == "xgboost" else (self.name, value, True)

    def cost(self, y_true: Any, y_pred: Any) -> float:
        """Minus the metric of labels and predictions."""
        return -self.value(_batch(y_true, y_pred, None, None))

    def value(self, batch: Batch) -> float:
        """The weighted mean over the problems that count; NaN if none does."""
        if self.tuned and batch.is_one_list:
            return batch.best_cut(self.task)[1]
        total, mass = 0.0, 0.0
        with remembering(self._told), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DirectLossWarning)  # the objective warns
            scores = torch.from_numpy(batch.scores).double()
            for part in batch.problems(self.task):
                items, problems = (part.weight, None) if part.by_item else (None, part.weight)
                losses = direct_loss(
                    part.pick(scores), part.target, part.task, mask=part.mask, weight=items, reduction="none"
                )
                target = part.target if part.mask is None else torch.where(part.mask, part.target, -1)
                values = part.task.value(losses, target).double()
                counted = part.task.counted(target)
                share = torch.ones_like(values) if problems is None else problems.double()
                share = share if counted is None else share * counted
                total, mass = total + float((share * values).sum()), mass + float(share.sum())
        return total / mass if mass else float("nan")

    def __repr__(self) -> str:
        return f"Evaluation({self.task!r})"


# ---------------------------------------------------------------------- rows of a table as problems of a task


class Part(NamedTuple):
    """Problems of similar length."""

    task: Task
    rows: Tensor | None
    """The row of each entry; None for all rows in order."""
    mask: Tensor | None
    target: Tensor
    weight: Tensor | None
    by_item: bool
    """Whether the weights belong to items rather than problems."""

    def pick(self, scores: Tensor) -> Tensor:
        """The scores of these problems."""
        if self.rows is not None:
            return scores[self.rows]
        if self.target.dim() == scores.dim() == 2:  # each class against the rest
            # Only the highest score is a yes: softmax scores have no natural zero.
            return (margins(scores) if decides(self.task) else scores).T
        return scores


class Batch(NamedTuple):
    """What an objective or an evaluation is called with."""

    scores: Array
    labels: Array
    weight: Array | None
    sizes: Array | None

    @property
    def is_one_list(self) -> bool:
        """Whether there is one score per row and no groups."""
        return self.scores.ndim == 1 and self.sizes is None

    def best_cut(self, task: Task) -> tuple[float, float]:
        """The best threshold over all rows for a metric of decisions, and the metric there."""
        return best_cut(torch.from_numpy(self.scores), torch.from_numpy(self.labels), task)

    def problems(self, task: Task) -> Iterator[Part]:
        """The problems of the task, in a few tensors."""
        task = of_one_score(for_labels(task, self.labels)) if self.scores.ndim == 1 else for_labels(task, self.labels)
        labels = torch.from_numpy(self.labels if task.event_dims and task.target_dims else self.labels.astype(np.int64))
        weight = None if self.weight is None else torch.from_numpy(self.weight)
        if task.target_dims and self.scores.ndim == 1 and self.sizes is not None:
            yield from self._by_group(task, labels, weight, self.sizes)
            return
        if task.target_dims and self.scores.ndim == 2:
            labels = torch.nn.functional.one_hot(labels.long(), self.scores.shape[1]).T
            weight = None if weight is None else weight.expand(labels.shape)
        yield Part(task, None, None, labels, weight, by_item=bool(task.target_dims) and weight is not None)

    def _by_group(self, task: Task, labels: Tensor, weight: Tensor | None, sizes: Array) -> Iterator[Part]:
        """Batches of groups whose lengths share a power of two, so that padding never doubles the work."""
        starts, lengths = torch.from_numpy(np.cumsum(sizes) - sizes), torch.from_numpy(sizes.astype(np.int64))
        weight, by_item = _of_groups(weight, starts, lengths)
        power = torch.frexp(lengths.double()).exponent
        for one in torch.unique(power):
            some = (power == one).nonzero().squeeze(1)
            place = torch.arange(int(lengths[some].max()))
            mask = place < lengths[some, None]
            rows = torch.where(mask, starts[some, None] + place, 0)
            chosen = None if weight is None else weight[rows] * mask if by_item else weight[some]
            yield Part(task, rows, mask, torch.where(mask, labels[rows], 0), chosen, by_item)


def _of_groups(weight: Tensor | None, starts: Tensor, lengths: Tensor) -> tuple[Tensor | None, bool]:
    """Weights per group, as in XGBoost, or as in LightGBM if equal within each group; otherwise per item."""
    if weight is None or len(weight) == len(starts):
        return weight, False
    first = weight[starts]
    same = bool((first.repeat_interleave(lengths) == weight).all())
    return (first, False) if same else (weight, True)


def item_task(metric: str | Task) -> Task:
    """A task whose scores belong to rows: rankings, decisions, classes."""
    task = as_task(metric, "metric")
    if task.event_dims > 1 or task.target_dims > 1 or task.event_dims < task.target_dims:
        fail("metric", "must be a metric of rows, such as ap, ndcg@10, f1 or accuracy", repr(task))
    return task


def decides(task: Task) -> bool:
    """Whether the metric judges a yes or no per row, so that the threshold matters."""
    return isinstance(task, CountTask | Error)


def for_labels(task: Task, labels: Array) -> Task:
    """The same task, or graded NDCG if labels go beyond 0 and 1."""
    return GradedNDCG(task.k) if isinstance(task, NDCG) and bool((labels > 1).any()) else task


def of_one_score(task: Task) -> Task:
    """The same metric with one score per row, which is enough for two classes."""
    return Error() if isinstance(task, Accuracy) else task


def _library(data: Any) -> str:
    """The library that a data set belongs to; empty for anything else."""
    home = type(data).__module__.split(".")[0]
    return home if home in BUILT_IN and hasattr(data, "get_label") else ""


def _batch(first: Any, second: Any, weight: Any, group: Any) -> Batch:
    """From predictions and a data set, or from labels and predictions in scikit-learn's order."""
    library = _library(second)
    if not library:
        return _checked(second, first, weight, group)
    labels, weight = second.get_label(), second.get_weight()
    if library == "lightgbm":
        return _checked(first, labels, weight, second.get_group())
    bounds = second.get_uint_info("group_ptr")
    return _checked(first, labels, weight, np.diff(bounds.astype(np.int64)) if len(bounds) else None)


def _checked(scores: Any, labels: Any, weight: Any, sizes: Any) -> Batch:
    scores, labels = np.asarray(scores), np.asarray(labels)
    if scores.ndim not in (1, 2) or labels.shape != scores.shape[:1]:
        rule = "must have shape (n,) or (n, classes), with one label per row"
        fail("predictions", rule, f"of shape {scores.shape}, and the labels of shape {labels.shape}")
    weight = None if weight is None or not len(weight) else np.asarray(weight)
    if weight is not None and (weight == weight[0]).all() and weight[0] > 0:
        weight = None  # we scale the gradient ourselves
    if sizes is not None:
        sizes = np.asarray(sizes)
        if sizes.sum() != len(labels):
            fail("group", f"must hold sizes with {len(labels)} rows in total", f"{sizes.sum()} in total")
    return Batch(np.ascontiguousarray(scores), labels, weight, sizes)


# ---------------------------------------------------------------------- first the built-in objective, then the metric


class Boosted(NamedTuple):
    """A trained model and how it was found."""

    booster: Any
    """The library's ``Booster`` with the chosen rounds only. Its raw scores are what the metric judges."""
    first: int
    """Number of its rounds with the built-in objective."""
    rounds: int
    """Number of all its rounds."""
    curve: list[float]
    """The metric on the validation data after each round that was tried; empty without validation data."""
    threshold: float
    """For metrics of decisions, a raw score above it is a yes: the best threshold on the validation data, or on the
    training data without them. 0 for rankings, groups and more than two classes."""


def train(
    params: Mapping[str, Any],
    data: Any,
    metric: str | Task = "ap",
    *,
    validation: Any = None,
    first: int = 100,
    then: int = 200,
    patience: int | None = 50,
    evaluation: Evaluation | None = None,
    **settings: Any,
) -> Boosted:
    """Boost with the built-in objective, then with the metric; validation data choose the rounds of both.

    The metric takes over where the built-in objective was best, and the best round of all is kept, which may be one of
    the built-in objective. Without validation data all rounds are kept. A metric of decisions takes over at the
    threshold that is then best on the training data, because cross-entropy does not put it at 0.

    Args:
        params: parameters of the library; ``"objective"`` is the built-in one, by default ``binary``
            (``binary:logistic``), ``lambdarank`` (``rank:ndcg``) for grades, or ``multiclass``
            (``multi:softprob``) with ``"num_class"``.
        data: a ``lightgbm.Dataset`` or a ``xgboost.DMatrix`` with labels.
        metric: see `Objective`.
        validation: another such data set; for LightGBM with ``reference=data``.
        first: maximum number of rounds with the built-in objective.
        then: maximum number of rounds with the metric.
        patience: rounds without progress on the validation data after which each phase ends; None for no limit.
        evaluation: the measure on the validation data; ``Evaluation(metric, tuned=True)`` by default.
        settings: settings of `Objective`: ``noise``, ``samples``, ``seed`` ...
    """
    if "num_class" not in params:
        metric = of_one_score(item_task(metric))
    objective = Objective(metric, **settings)
    check_count("first", first, least=0)
    check_count("then", then, least=0)
    if first + then == 0:
        fail("first and then", "must add up to at least one round", "0")
    library = _library(data)
    if not library:
        hint = "BoostedClassifier and BoostedRanker take rows and labels as they are."
        fail("data", "must be a lightgbm.Dataset or a xgboost.DMatrix", f"a {type(data).__name__}", hint)
    if library == "lightgbm" and data.label is None:
        fail("data", "must have labels", "without any", "Write lightgbm.Dataset(X, y).")
    if validation is not None and _library(validation) != library:
        fail("validation", f"must be a data set of {library} like data", f"a {type(validation).__name__}")
    task = for_labels(objective.task, np.asarray(data.get_label()))
    patience = None if patience is None else check_count("patience", patience)
    params = {"objective": BUILT_IN[library][_kind(task, params)], **params}
    model = (_LightGBM if library == "lightgbm" else _XGBoost)(params, data, validation)
    evaluation = evaluation or Evaluation(metric, tuned=True)
    model.run(None, first, evaluation, patience)
    chosen = model.rounds
    objective.threshold = _threshold(model.scored(None), task)
    model.run(objective, then, evaluation, patience)
    cut = _threshold(model.scored(objective if then else None, held=validation is not None), task)
    return Boosted(model.booster, min(chosen, model.rounds), model.rounds, model.curve, cut)


def _threshold(batch: Batch, task: Task) -> float:
    return batch.best_cut(task)[0] if decides(task) and batch.is_one_list else 0.0


class _Library(ABC):
    """A booster that grows one round at a time and can be rolled back."""

    booster: Any
    rounds = 0

    def __init__(self, data: Any, validation: Any) -> None:
        self.data, self.validation = data, validation
        self.curve: list[float] = []
        """The metric after each round."""
        self.best = -float("inf"), 0
        """The highest value, and the number of rounds it took."""

    def run(self, objective: Objective | None, rounds: int, evaluation: Evaluation, patience: int | None) -> None:
        """Grow by this many rounds, or until the metric stops improving, and roll back to the best."""
        for start in range(rounds):
            self.grow(objective)
            self.rounds += 1
            if self.validation is None:
                continue
            self.curve.append(evaluation.value(self.scored(objective, held=True)))
            if self.curve[-1] > self.best[0]:
                self.best = self.curve[-1], self.rounds
            if patience is not None and min(start + 1, self.rounds - self.best[1]) >= patience:
                break
        if 0 < self.best[1] < self.rounds:
            self.back_to(self.best[1])
            self.rounds = self.best[1]

    @abstractmethod
    def grow(self, objective: Objective | None) -> None:
        """Add a round, with the built-in objective or ours."""

    @abstractmethod
    def scored(self, objective: Objective | None, held: bool = False) -> Batch:
        """Raw scores and labels of the training or validation data, after rounds with this objective."""

    @abstractmethod
    def back_to(self, rounds: int) -> None:
        """Keep only the first rounds."""


class _LightGBM(_Library):
    def __init__(self, params: Mapping[str, Any], data: Any, validation: Any) -> None:
        super().__init__(data, validation)
        self.params = {"verbosity": -1, **params, "metric": "None"}
        self.booster = needed("lightgbm", "boosting", "lightgbm").Booster(self.params, data)
        if validation is not None:
            self.booster.add_valid(validation, "validation")

    def grow(self, objective: Objective | None) -> None:
        self.booster.update(fobj=objective)

    def scored(self, objective: Objective | None, held: bool = False) -> Batch:
        found: list[Batch] = []

        def look(predictions: Array, data: Any) -> tuple[str, float, bool]:
            found.append(_batch(predictions if objective is not None else self._raw(predictions), data, None, None))
            return "seen", 0.0, True

        (self.booster.eval_valid if held else self.booster.eval_train)(look)
        return found[0]

    def _raw(self, predictions: Array) -> Array:
        """LightGBM shows probabilities as long as its own objective is in use."""
        inside = np.clip(predictions, 1e-15, 1 - 1e-15)
        if self.params["objective"] in ("binary", "cross_entropy", "xentropy"):
            return np.log(inside / (1 - inside))  # type: ignore[no-any-return]
        return np.log(inside) if predictions.ndim == 2 else predictions

    def back_to(self, rounds: int) -> None:
        for _ in range(self.rounds - rounds):
            self.booster.rollback_one_iter()


class _XGBoost(_Library):
    def __init__(self, params: Mapping[str, Any], data: Any, validation: Any) -> None:
        super().__init__(data, validation)
        cache = [data] if validation is None else [data, validation]
        self.booster = needed("xgboost", "boosting", "xgboost").Booster(params, cache)

    def grow(self, objective: Objective | None) -> None:
        self.booster.update(self.data, self.rounds, fobj=objective)

    def scored(self, objective: Objective | None, held: bool = False) -> Batch:
        data = self.validation if held else self.data
        return _batch(self.booster.predict(data, output_margin=True), data, None, None)

    def back_to(self, rounds: int) -> None:
        self.booster = self.booster[:rounds]


def _kind(task: Task, params: Mapping[str, Any]) -> str:
    """The kind of labels."""
    if task.event_dims > task.target_dims or "num_class" in params:
        return "classes"
    return "grades" if isinstance(task, GradedNDCG) else "yes or no"
