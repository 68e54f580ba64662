"""Gradient boosting on the metric, with LightGBM or XGBoost: an objective, an evaluation, and a recipe that uses both.

The gradient is that of `directloss.DirectLoss`. The curvature is the second difference of the same move,

    [L(s_d + h) - 2 L(s_d) + L(s_d - h)] / h^2            for rankings
    L'(s_d) (1 - 2 p) / noise                             for decisions and classes of probability p

bounded from below: by the gradient over the noise, so that no leaf moves a score by more than the noise, and by `FLAT`
times the mean.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import logit
from torch import Tensor
from torch.nn.functional import one_hot

from directloss._checks import (
    DirectLossWarning,
    check_choice,
    check_count,
    check_not_negative,
    check_positive,
    fail,
    remembering,
    warn_once,
)
from directloss._problem import Problem, prepare
from directloss.averaging import margins
from directloss.direct import scaled
from directloss.integrations._cut import Array, best_cut, decides, row_task
from directloss.integrations._needs import needed
from directloss.noise import Noise
from directloss.task import Estimate, Task, moving
from directloss.tasks import NDCG, GradedNDCG

SAMPLES = 16
"""Draws of noise per round; they are cheap compared with growing a tree."""
WEIGHTS = 64
"""The most distinct weights of rows for a ranking: each takes another pass over the rows."""
FLAT = 0.1
"""The share of the mean curvature that every row has at least."""
BUILT_IN = {
    "lightgbm": {"grades": "lambdarank", "classes": "multiclass", "yes or no": "binary"},
    "xgboost": {"grades": "rank:ndcg", "classes": "multi:softprob", "yes or no": "binary:logistic"},
}
"""The built-in objective of each library, by the type of labels."""
FROM_OUTPUT: dict[str, Callable[[Array], Array]] = {
    "binary": logit, "multiclass": np.log, "lambdarank": np.asarray, "rank_xendcg": np.asarray
}  # fmt: skip
"""From the output of LightGBM's objectives to raw scores, times ``sigmoid`` for the first."""


class Objective:
    """A metric as the custom objective of LightGBM and XGBoost.

    One object fits ``lightgbm.train``, ``xgboost.train`` and the estimators of both. Labels, weights and groups are
    those of the data. Gradient and curvature are scaled so that the mean curvature is 1: regularisation by curvature
    (``reg_lambda``, ``min_child_weight``) then counts items, and the learning rate means the same for every metric.

    Args:
        metric: name of a ranking or of a metric of decisions (``"ap"``, ``"ndcg@10"``, ``"f1"``, ``"accuracy"`` ...),
            or such a task. NDCG treats labels other than 0 and 1 as grades.
        noise: scale of the noise, in units of the scores (logits after ``binary:logistic``); ``"auto"`` is that
            of `directloss.DirectLoss`.
        samples: number of draws averaged per round.
        likelihood: see `directloss.DirectLoss`.
        seed: seed of the noise.

    Shapes:
        Predictions ``(n,)`` and labels ``(n,)``: all rows are one list; with groups, each group is a list, and the
        mean over groups counts. Predictions ``(n, classes)`` with labels from 0 to ``classes - 1``: a metric of
        classes, or the mean over each class against the rest, where the highest score decides the class of a row.
        ``"accuracy"`` takes either.
        Weights: one per group, or one per row where `directloss.DirectLoss` takes weights of items.

    Examples:
        >>> gradient, curvature = Objective("ap")(np.array([1, 0, 0, 1]), np.array([0.2, 0.1, 0.3, -0.5]))
        >>> np.sign(gradient), bool((curvature > 0).all()), round(float(curvature.mean()), 6)
        (array([-1.,  1.,  1., -1.]), True, 1.0)
    """

    def __init__(
        self,
        metric: str | Task = "ap",
        *,
        noise: float | str = "auto",
        samples: int = SAMPLES,
        likelihood: float | str = "auto",
        seed: int = 0,
    ) -> None:
        self.task = boosted_task(metric)
        self.noise = self.task.defaults.noise if noise == "auto" else check_positive("noise", noise)
        self.samples, self.seed = check_count("samples", samples), check_count("seed", seed, least=0)
        self.likelihood = likelihood if likelihood == "auto" else check_not_negative("likelihood", likelihood)
        self.threshold = 0.0
        """For metrics of decisions, a score above it is a yes."""
        self.calls = 0
        self._told: set[str] = set()

    def __call__(self, first: Any, second: Any, sample_weight: Any = None, group: Any = None) -> tuple[Array, Array]:
        """Gradient and curvature, from predictions and a data set, or from labels and predictions."""
        rows = ScoredRows.of(first, second, sample_weight, group)
        noise = Noise(self.noise, self.samples, torch.Generator().manual_seed(self.seed + 7919 * self.calls))
        self.calls += 1
        scores = torch.from_numpy(rows.scores - self.threshold).double().requires_grad_()
        gradient, curvature, counted = torch.zeros_like(scores), torch.zeros_like(scores), []
        with remembering(self._told):
            for problem in rows.problems(self.task, scores):
                slope, bend, ranked = self._derivatives(problem, noise)
                counted.append(torch.ones(problem.batch_shape) if ranked is None else ranked)
                gradient += torch.autograd.grad(problem.scores, scores, slope, retain_graph=True)[0]
                curvature += torch.autograd.grad(problem.scores, scores, bend)[0]
            idle = sum(int((one == 0).sum()) for one in counted)
            if idle:  # of all lists, whatever their length
                lists = sum(one.numel() for one in counted)
                warn_once("idle", f"{idle} of {lists} lists have nothing to rank under {self.task!r}.")
        return _bounded(gradient.numpy(), curvature.numpy(), self.noise)

    def _derivatives(self, problem: Problem, noise: Noise) -> tuple[Tensor, Tensor, Tensor | None]:
        """First and second derivative of each problem's loss, and which problems count."""
        task, scores, weight = problem.task, problem.scores.detach(), problem.item_weight
        if weight is not None and not decides(task) and (distinct := len(np.unique(weight))) > WEIGHTS:
            rule = f"must have at most {WEIGHTS} distinct values for the rows of a ranking"
            fail("weight", rule, f"{distinct} of them", "Round them, or draw rows in proportion to their weights.")
        expected = _expected(problem, scores, noise, gradient=True)
        share = task.defaults.likelihood if isinstance(self.likelihood, str) else self.likelihood
        slope, bend, added = expected.slope, expected.curvature, share * expected.likelihood
        if bend is None:
            logits = scores / self.noise
            yes = torch.sigmoid(logits) if task.defaults.density == "logistic" else logits.softmax(-1)
            bend = slope * (1 - 2 * yes) / self.noise
        mass = 1.0 if problem.weight is None else problem.weight
        return scaled(slope + added, mass), scaled(bend + added.abs(), mass), expected.counted  # p (1 - p) <= |p - y|

    def __repr__(self) -> str:
        return f"Objective({self.task!r})"


def _expected(problem: Problem, scores: Tensor, noise: Noise, *, gradient: bool) -> Any:
    """The task's own estimate of loss and, if wanted, gradient, likelihood and curvature."""
    request = Estimate(
        noise, gradient, gradient, problem.item_weight, mask=problem.mask, check_values=problem.check_values,
        curvature=gradient,
    )  # fmt: skip
    return problem.task.expected(scores, problem.target, request)  # type: ignore[attr-defined]


def _bounded(gradient: Array, curvature: Array, noise: float) -> tuple[Array, Array]:
    """Curvature that is positive and keeps steps short, and both scaled to a mean curvature of 1."""
    curvature = np.maximum(curvature, np.abs(gradient) / noise)
    if not (mean := curvature.mean()):
        return gradient, np.ones_like(gradient)
    curvature = np.maximum(curvature, FLAT * mean)
    return gradient / curvature.mean(), curvature / curvature.mean()


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
        self.task = boosted_task(metric)
        self.tuned = tuned
        self.name = metric if isinstance(metric, str) else type(metric).__name__

    def __call__(self, first: Any, second: Any, sample_weight: Any = None, group: Any = None) -> Any:
        """Name and value; for LightGBM also that higher is better."""
        value = self.value(ScoredRows.of(first, second, sample_weight, group))
        return (self.name, value) if _library(second) == "xgboost" else (self.name, value, True)

    def cost(self, y_true: Any, y_pred: Any) -> float:
        """Minus the metric of labels and predictions."""
        return -self.value(ScoredRows.of(y_true, y_pred))

    def value(self, rows: ScoredRows) -> float:
        """The weighted mean over the problems that count; NaN if none does."""
        if self.tuned and (best := rows.best_cut(self.task)) is not None:
            return best[1]
        total, mass = 0.0, 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DirectLossWarning)  # the objective warns
            for problem in rows.problems(self.task, torch.from_numpy(rows.scores).double()):
                judged = _expected(problem, problem.scores, Noise(0.0, 1, None), gradient=False)
                values = problem.task.value(judged.loss, problem.target).double()
                share = torch.ones_like(values) if problem.weight is None else problem.weight.double()
                share = share if judged.counted is None else share * judged.counted
                total, mass = total + float((share * values).sum()), mass + float(share.sum())
        return total / mass if mass else float("nan")


class ScoredRows(NamedTuple):
    """What an objective or an evaluation is called with."""

    scores: Array
    labels: Array
    weight: Array | None = None
    sizes: Array | None = None
    """The sizes of groups."""

    @classmethod
    def of(cls, first: Any, second: Any, weight: Any = None, sizes: Any = None) -> ScoredRows:
        """From predictions and a data set, or from labels and predictions in scikit-learn's order."""
        scores, labels = second, first
        if library := _library(second):
            scores, labels, weight = first, second.get_label(), second.get_weight()
            if library == "lightgbm":
                sizes = second.get_group()
            elif len(bounds := second.get_uint_info("group_ptr")):
                sizes = np.diff(bounds.astype(np.int64))
        scores, labels = np.ascontiguousarray(scores), np.asarray(labels)
        if scores.ndim not in (1, 2) or labels.shape != scores.shape[:1]:
            rule = "must have shape (n,) or (n, classes), with one label per row"
            fail("predictions", rule, f"of shape {scores.shape}, and the labels of shape {labels.shape}")
        weight = None if weight is None or not len(weight) else np.asarray(weight)
        if weight is not None and (weight == weight[0]).all() and weight[0] > 0:
            weight = None  # the gradient is scaled anyway
        sizes = None if sizes is None else np.asarray(sizes)
        if sizes is not None and sizes.sum() != len(labels):
            fail("group", f"must hold sizes with {len(labels)} rows in total", f"{sizes.sum()} in total")
        return cls(scores, labels, weight, sizes)

    def best_cut(self, task: Task) -> tuple[float, float] | None:
        """The best threshold and the metric there, for decisions with one score per row and no groups."""
        if not decides(task) or self.scores.ndim == 2 or self.sizes is not None:
            return None
        return best_cut(self.scores, self.labels, task, self.weight)

    def problems(self, task: Task, scores: Tensor) -> Iterator[Problem]:
        """The problems of the task, in a few batches; their scores are taken from ``scores``, differentiably."""
        task = row_task(for_labels(task, self.labels), one_score=self.scores.ndim == 1)
        by_class = task.event_dims > task.target_dims or not task.event_dims
        by_class |= self.scores.ndim == 2
        if by_class and (broken := self.labels != np.floor(self.labels)).any():
            fail("label", "must hold whole numbers, one class per row", self.labels[broken][0])
        labels = torch.from_numpy(self.labels.astype(np.int64) if by_class else self.labels)
        weight = None if self.weight is None else torch.from_numpy(self.weight)
        options: dict[str, Any] = {"reduction": "none", "dim": None, "check_values": True}
        if task.target_dims and self.scores.ndim == 1 and self.sizes is not None:
            for rows, mask, mass in _by_length(self.sizes, weight):
                target = torch.where(mask, labels[rows], 0)
                yield prepare(scores[rows], target, task, mask=mask, weight=mass, **options)
            return
        if task.target_dims and self.scores.ndim == 2:  # each class against the rest
            # Only the highest score is a yes: softmax scores have no natural zero.
            labels = one_hot(labels, scores.shape[1]).T.contiguous()
            scores = (margins(scores) if decides(task) else scores).T.contiguous()
            weight = None if weight is None else weight.expand(labels.shape)
        yield prepare(scores, labels, task, mask=None, weight=weight, **options)


def _by_length(sizes: Array, weight: Tensor | None) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Rows, mask and weights of groups whose lengths share a power of two, so that padding never doubles the work."""
    starts, lengths = torch.from_numpy(np.cumsum(sizes) - sizes), torch.from_numpy(sizes.astype(np.int64))
    if weight is not None and len(weight) != len(sizes):
        first = weight[starts]  # LightGBM repeats the weight of a group for each of its rows
        weight = first if bool((first.repeat_interleave(lengths) == weight).all()) else weight
    power = torch.frexp(lengths.double()).exponent
    for one in torch.unique(power):
        some = (power == one).nonzero().squeeze(1)
        place = torch.arange(max(2, int(lengths[some].max())))  # lists of one row alone would be refused
        mask = place < lengths[some, None]
        rows = torch.where(mask, starts[some, None] + place, 0)
        yield rows, mask, None if weight is None else weight[some] if len(weight) == len(sizes) else weight[rows] * mask


def boosted_task(metric: str | Task) -> Task:
    """A metric of rows with the gradient of its expectation."""
    task = row_task(metric)
    if moving(task) is None:
        fail("metric", "must be a metric of rows, such as ap, ndcg@10, f1 or accuracy", repr(task))
    return task


def for_labels(task: Task, labels: Array) -> Task:
    """The same task, or graded NDCG if labels go beyond 0 and 1."""
    return GradedNDCG(task.k) if isinstance(task, NDCG) and bool((labels > 1).any()) else task


def _library(data: Any) -> str:
    """The library that a data set belongs to; empty for anything else."""
    home = type(data).__module__.split(".")[0]
    return home if home in BUILT_IN and hasattr(data, "get_label") else ""


# ---------------------------------------------------------------------- first the built-in objective, then the metric


@dataclass(frozen=True)
class Boosted:
    """A trained model and how it was found."""

    booster: Any = field(repr=False)
    """The library's ``Booster`` with the chosen rounds only. Its raw scores are what the metric judges."""
    first: int
    """Number of its rounds with the built-in objective."""
    rounds: int
    """Number of all its rounds."""
    curve: list[float] = field(repr=False)
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
        settings: settings of `Objective`: ``noise``, ``samples``, ``likelihood``, ``seed``.
    """
    if "num_class" not in params:
        metric = row_task(metric, one_score=True)
    objective = Objective(metric, **settings)
    if check_count("first", first, least=0) + check_count("then", then, least=0) == 0:
        fail("first and then", "must add up to at least one round", "0")
    library = _library(data)
    if not library:
        hint = "BoostedClassifier takes rows and labels as they are."
        fail("data", "must be a lightgbm.Dataset or a xgboost.DMatrix", f"a {type(data).__name__}", hint)
    if library == "lightgbm" and data.label is None:
        fail("data", "must have labels", "without any", "Write lightgbm.Dataset(X, y).")
    if validation is not None and _library(validation) != library:
        fail("validation", f"must be a data set of {library} like data", f"a {type(validation).__name__}")
    if validation is not None and "dart" in map(params.get, ("boosting", "boosting_type", "boost", "booster")):
        hint = "It changes earlier trees, so no round can be taken back."
        fail("params", "must not choose dart with validation data", "dart", hint)
    patience = None if patience is None else check_count("patience", patience)
    task = for_labels(objective.task, np.asarray(data.get_label()))
    labels = "classes" if task.event_dims > task.target_dims or "num_class" in params else "yes or no"
    labels = "grades" if isinstance(task, GradedNDCG) else labels
    model = (_LightGBM if library == "lightgbm" else _XGBoost)(
        {"objective": BUILT_IN[library][labels], **params}, data, validation
    )
    evaluation = Evaluation(metric, tuned=True)
    rounds, best, value, curve, kept = 0, 0, -np.inf, list[float](), []
    for own, most in ((None, first), (objective, then)):
        if own is not None:
            own.threshold = (model.scored().best_cut(task) or (0.0,))[0]
        for done in range(1, most + 1):
            model.grow(rounds, own)
            rounds += 1
            if validation is None:
                continue
            curve.append(evaluation.value(model.scored(held=True)))
            if curve[-1] > value:
                best, value = rounds, curve[-1]
            if patience is not None and min(done, rounds - best) >= patience:
                break
        if 0 < best < rounds:
            model.back_to(best, rounds)
            rounds = best
        kept.append(rounds)
    threshold = (model.scored(held=validation is not None).best_cut(task) or (0.0,))[0]
    return Boosted(model.booster, min(kept), rounds, curve, threshold)


class _LightGBM:
    """A booster that grows one round at a time and can be rolled back."""

    def __init__(self, params: Mapping[str, Any], data: Any, validation: Any) -> None:
        self.from_output = FROM_OUTPUT[check_choice('params["objective"]', params["objective"], FROM_OUTPUT)]
        self.sigmoid = float(params.get("sigmoid", 1.0)) if params["objective"] == "binary" else 1.0
        params = {"verbosity": -1, **params, "metric": "None"}
        self.booster = needed("lightgbm", "boosting", "lightgbm").Booster(params, data)
        if validation is not None:
            self.booster.add_valid(validation, "validation")

    def grow(self, rounds: int, objective: Objective | None) -> None:
        """Add a round, with the built-in objective or ours."""
        if objective is None:
            self.booster.update()
        else:  # the first time, LightGBM passes what `scored` has just seen, still the output of its own objective
            self.booster.update(fobj=lambda predictions, data: objective(self._raw(predictions), data))
            self.from_output, self.sigmoid = np.asarray, 1.0

    def scored(self, held: bool = False) -> ScoredRows:
        """Raw scores and labels of the training or validation data."""
        seen: list[ScoredRows] = []

        def look(predictions: Array, data: Any) -> tuple[str, float, bool]:
            # Rounds taken back leave rounding errors; no threshold may lie between rows of the same leaves.
            seen.append(ScoredRows.of(self._raw(predictions).round(10), data))
            return "seen", 0.0, True

        (self.booster.eval_valid if held else self.booster.eval_train)(look)
        return seen[0]

    def _raw(self, predictions: Array) -> Array:
        """Raw scores: as long as its own objective is in use, LightGBM shows what it makes of them."""
        if self.from_output is np.asarray:
            return predictions
        bounds = np.finfo(float).tiny, 1 - np.finfo(float).epsneg
        return self.from_output(np.clip(predictions, *bounds)) / self.sigmoid

    def back_to(self, rounds: int, grown: int) -> None:
        """Keep only the first rounds of those grown."""
        for _ in range(grown - rounds):
            self.booster.rollback_one_iter()


class _XGBoost:
    """The same with XGBoost."""

    def __init__(self, params: Mapping[str, Any], data: Any, validation: Any) -> None:
        self.data, self.validation = data, validation
        known = [each for each in (data, validation) if each is not None]
        self.booster = needed("xgboost", "boosting", "xgboost").Booster(params, known)

    def grow(self, rounds: int, objective: Objective | None) -> None:
        self.booster.update(self.data, rounds, fobj=objective)

    def scored(self, held: bool = False) -> ScoredRows:
        data = self.validation if held else self.data
        return ScoredRows.of(self.booster.predict(data, output_margin=True), data)

    def back_to(self, rounds: int, grown: int) -> None:
        self.booster = self.booster[:rounds]
