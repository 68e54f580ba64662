"""What a metric compares, found by calling it: torchmetrics' functions, users' code, and metrics that are refused."""

from __future__ import annotations

import copy
import pickle
import random
import time
import warnings
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.functional.classification as tm
import torchmetrics.functional.regression as tr
import torchmetrics.functional.retrieval as ret
import torchmetrics.functional.segmentation as seg
from sklearn.metrics import average_precision_score, f1_score
from torch import Tensor

from directloss import DirectLossError, DirectLossWarning, UniLoss, metrics, uniloss
from directloss._uniloss.comparisons import Differences
from directloss.relaxation import Automatic

Metric = Callable[[Tensor, Tensor], Any]
N, C = 12, 4
LABELS = torch.tensor([0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1, 1])
GRADES = torch.tensor([0, 3, 1, 0, 2, 1, 0, 0, 3, 0, 1, 2])
CLASSES = torch.arange(N) % C
MULTI = torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 1, 0]] * 2)
PIXELS = torch.arange(32).reshape(2, 4, 4) % 3
WISHED = torch.linspace(0.05, 0.95, N)[torch.tensor([3, 7, 1, 11, 0, 5, 9, 2, 8, 4, 10, 6])]
GROUPS = torch.tensor([0, 0, 1] * 4)


def draw(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def first(function: Any, **settings: Any) -> Metric:
    """The metric, of a pair of metric and threshold; the mean over classes where there are several."""
    return lambda s, t: function(s, t, **settings)[0].mean()


def any_of(function: Any, *more: Tensor) -> Metric:
    return lambda s, t: next(iter(function(s, t, *more).values()))


# ---------------------------------------------------------------------- the functions of torchmetrics

CURVES = {
    "precision_at_fixed_recall": "min_recall",
    "recall_at_fixed_precision": "min_precision",
    "sensitivity_at_specificity": "min_specificity",
    "specificity_at_sensitivity": "min_sensitivity",
}
COUNTS = [
    "accuracy", "f1_score", "hamming_distance", "jaccard_index", "matthews_corrcoef", "negative_predictive_value",
    "precision", "recall", "specificity",
]  # fmt: skip
AREAS = ["auroc", "average_precision", "logauc"]
ZERO, BINS = ((), (0.0,)), ((), (-1.0986123, 0.0, 1.0986123))
"""Expected findings: the dimensions along which scores are compared, and thresholds."""
ALL, ROWS, COLUMNS = ((0,), ()), ((1,), ()), ((0,), ())
UNKNOWN = None
Case = tuple[Metric, tuple[int, ...], Tensor, Any]

BINARY: dict[str, tuple[Metric, Any]] = {
    **{name: (getattr(tm, f"binary_{name}"), ZERO) for name in [*COUNTS, "cohen_kappa"]},
    **{name: (getattr(tm, f"binary_{name}"), ALL) for name in [*AREAS, "eer"]},
    **{name: (first(getattr(tm, f"binary_{name}"), **{setting: 0.6}), ALL) for name, setting in CURVES.items()},
    "fbeta_score": (partial(tm.binary_fbeta_score, beta=2.0), ZERO),
    "auroc up to 0.3": (partial(tm.binary_auroc, max_fpr=0.3), ALL),
    "auroc in bins": (partial(tm.binary_auroc, thresholds=5), BINS),
    "average precision in bins": (partial(tm.binary_average_precision, thresholds=5), BINS),
    "stat_scores": (lambda s, t: tm.binary_stat_scores(s, t)[0], ZERO),
    "confusion_matrix": (lambda s, t: tm.binary_confusion_matrix(s, t)[0, 1], ZERO),
    "fairness": (any_of(tm.binary_fairness, GROUPS), ZERO),
    "demographic_parity": (lambda s, t: next(iter(tm.demographic_parity(s, GROUPS).values())), ZERO),
    "equal_opportunity": (any_of(tm.equal_opportunity, GROUPS), ZERO),
    **{f"retrieval_{name}": (getattr(ret, f"retrieval_{name}"), ALL) for name in ("auroc", "normalized_dcg")},
    "retrieval_r_precision": (ret.retrieval_r_precision, ALL),
    # These also filter by preds > 0.
    "retrieval_average_precision": (ret.retrieval_average_precision, ((0,), (0.0,))),
    "retrieval_reciprocal_rank": (ret.retrieval_reciprocal_rank, ((0,), (0.0,))),
    "retrieval_precision": (ret.retrieval_precision, ZERO),
    "retrieval_recall at 3": (partial(ret.retrieval_recall, top_k=3), ((0,), (0.0,))),
    "retrieval_normalized_dcg at 3": (partial(ret.retrieval_normalized_dcg, top_k=3), ALL),
    "retrieval_precision_recall_curve": (lambda s, t: ret.retrieval_precision_recall_curve(s, t)[0].mean(), ALL),
}  # fmt: skip
MULTICLASS: dict[str, tuple[Metric, Any]] = {
    **{
        f"multiclass_{name}": (partial(getattr(tm, f"multiclass_{name}"), num_classes=C), ROWS)
        for name in [*COUNTS, "cohen_kappa"]
    },
    **{f"multiclass_{name}": (partial(getattr(tm, f"multiclass_{name}"), num_classes=C), UNKNOWN) for name in AREAS},
    **{
        f"multiclass_{name}": (first(getattr(tm, f"multiclass_{name}"), num_classes=C, **{setting: 0.5}), UNKNOWN)
        for name, setting in CURVES.items()
    },
    "multiclass_eer": (lambda s, t: tm.multiclass_eer(s, t, C).mean(), UNKNOWN),
    "multiclass_fbeta_score": (partial(tm.multiclass_fbeta_score, beta=2.0, num_classes=C), ROWS),
    "multiclass_accuracy, micro": (partial(tm.multiclass_accuracy, average="micro", num_classes=C), ROWS),
    "multiclass_accuracy, top 2": (partial(tm.multiclass_accuracy, top_k=2, num_classes=C), ROWS),
    "multiclass_auroc in bins": (partial(tm.multiclass_auroc, thresholds=5, num_classes=C), UNKNOWN),
    "multiclass_stat_scores": (lambda s, t: tm.multiclass_stat_scores(s, t, num_classes=C)[0], ROWS),
    "multiclass_confusion_matrix": (lambda s, t: tm.multiclass_confusion_matrix(s, t, C)[0, 1], ROWS),
}
MULTILABEL: dict[str, tuple[Metric, Any]] = {
    **{
        f"multilabel_{name}": (partial(getattr(tm, f"multilabel_{name}"), num_labels=C), ZERO)
        for name in [*COUNTS, "exact_match"]
    },
    **{f"multilabel_{name}": (partial(getattr(tm, f"multilabel_{name}"), num_labels=C), COLUMNS) for name in AREAS},
    **{
        f"multilabel_{name}": (partial(getattr(tm, f"multilabel_{name}"), num_labels=C), ROWS)
        for name in ("coverage_error", "ranking_average_precision", "ranking_loss")
    },
    **{
        f"multilabel_{name}": (first(getattr(tm, f"multilabel_{name}"), num_labels=C, **{setting: 0.6}), COLUMNS)
        for name, setting in CURVES.items()
    },
    "multilabel_eer": (lambda s, t: tm.multilabel_eer(s, t, C).mean(), COLUMNS),
    "multilabel_fbeta_score": (partial(tm.multilabel_fbeta_score, beta=2.0, num_labels=C), ZERO),
    "multilabel_auroc in bins": (partial(tm.multilabel_auroc, thresholds=5, num_labels=C), BINS),
    "multilabel_stat_scores": (lambda s, t: tm.multilabel_stat_scores(s, t, num_labels=C).flatten()[0], ZERO),
    "multilabel_confusion_matrix": (lambda s, t: tm.multilabel_confusion_matrix(s, t, C)[0, 0, 1], ZERO),
}
SEGMENTATION: dict[str, tuple[Metric, Any]] = {
    "mean_iou": (lambda s, t: seg.mean_iou(s.argmax(1), t, num_classes=3, input_format="index").mean(), ROWS),
    "mean_iou, mixed": (lambda s, t: seg.mean_iou(s, t, num_classes=3, input_format="mixed").mean(), ROWS),
    "dice_score": (lambda s, t: seg.dice_score(s.argmax(1), t, num_classes=3, input_format="index").mean(), ROWS),
    "multiclass_jaccard_index of pixels": (partial(tm.multiclass_jaccard_index, num_classes=3), ROWS),
    "multiclass_exact_match": (partial(tm.multiclass_exact_match, num_classes=3), ROWS),
}
ORDER: dict[str, tuple[Metric, Any]] = {
    "spearman_corrcoef": (tr.spearman_corrcoef, ALL),
    "kendall_rank_corrcoef": (tr.kendall_rank_corrcoef, ALL),
    "critical_success_index": (partial(tr.critical_success_index, threshold=0.5), ((), (0.5,))),
}
CASES: dict[str, Case] = {
    **{name: (metric, (N,), LABELS, found) for name, (metric, found) in BINARY.items()},
    "normalized_dcg of grades": (ret.retrieval_normalized_dcg, (N,), GRADES, ALL),
    **{name: (metric, (N, C), CLASSES, found) for name, (metric, found) in MULTICLASS.items()},
    **{name: (metric, (N, C), MULTI, found) for name, (metric, found) in MULTILABEL.items()},
    **{name: (metric, (2, 3, 4, 4), PIXELS, found) for name, (metric, found) in SEGMENTATION.items()},
    **{name: (metric, (N,), WISHED, found) for name, (metric, found) in ORDER.items()},
}
LOWER = ("hamming", "eer", "coverage", "ranking_loss", "confusion", "fall_out", "fairness", "parity", "stat")
"""Metrics for which lower is better, or for which the target does not tell what is best."""


def found_in(metric: Metric, scores: Tensor, target: Tensor) -> Any:
    """Order and thresholds that were found; None if neither explains the metric."""
    told: list[Any] = []

    class Told(Automatic):
        def _find(self, *problem: Any) -> Any:
            told.append(super()._find(*problem))
            return told[0]

    Told(metric).bind(scores, target)
    return None if told[0].order is None else (told[0].order, told[0].thresholds)


@pytest.mark.filterwarnings("ignore")  # torchmetrics warns of classes that never occur, and the like
@pytest.mark.parametrize("name", CASES)
def test_what_torchmetrics_compares(name: str) -> None:
    metric, shape, target, expected = CASES[name]
    found = found_in(metric, draw(*shape), target)
    if expected is None:
        assert found is None
    else:
        assert found[0] == expected[0]
        assert found[1] == pytest.approx(expected[1], abs=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in CASES if not any(word in name for word in LOWER)])
def test_torchmetrics_as_a_loss(name: str) -> None:
    metric, shape, target, _ = CASES[name]
    scores = draw(*shape, seed=0).requires_grad_()
    loss = uniloss(scores, target, metric, likelihood=0, generator=torch.Generator().manual_seed(0))
    loss.backward()
    assert loss.item() == pytest.approx(1 - float(metric(scores.detach(), target)), abs=1e-5)
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
    assert bool(scores.grad.any())


def test_there_are_many() -> None:
    assert len(CASES) >= 80


USES_VALUES: dict[str, tuple[Metric, tuple[int, ...], Tensor]] = {
    "calibration": (tm.binary_calibration_error, (N,), LABELS),
    "calibration of classes": (partial(tm.multiclass_calibration_error, num_classes=C), (N, C), CLASSES),
    "hinge": (tm.binary_hinge_loss, (N,), LABELS),
    "hinge of classes": (partial(tm.multiclass_hinge_loss, num_classes=C), (N, C), CLASSES),
    "pearson": (tr.pearson_corrcoef, (N,), WISHED),
    "absolute error": (tr.mean_absolute_error, (N,), WISHED),
    "squares": (lambda s, t: (s - t).square().mean(), (N,), LABELS),
    "values after decisions": (lambda s, t: s[s > 0].mean(), (N,), LABELS),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", USES_VALUES)
def test_metrics_of_values_are_refused(name: str) -> None:
    metric, shape, target = USES_VALUES[name]
    with pytest.raises(DirectLossError, match=r"only through comparisons.*also depends on their values"):
        uniloss(draw(*shape), target, metric)


# ---------------------------------------------------------------------- what users write


def by_hand_average_precision(scores: Tensor, target: Tensor) -> Tensor:
    order = scores.argsort(descending=True)
    hits = target[order]
    return (hits * hits.cumsum(0) / torch.arange(1, len(hits) + 1)).sum() / hits.sum()


def loop_of_pairs(scores: Tensor, target: Tensor) -> float:
    right = 0
    for i in range(len(scores)):
        for j in range(len(scores)):
            if target[i] > target[j] and scores[i] > scores[j]:
                right += 1
    return right / 36


def at(*levels: float) -> Any:
    return ((), levels)


USERS: dict[str, tuple[Metric, Any]] = {
    "argsort": (by_hand_average_precision, ALL),
    "a loop": (loop_of_pairs, ALL),
    "sigmoid": (lambda s, t: ((s.sigmoid() > 0.3) == t).float().mean(), at(-0.8472979)),
    "rounded": (lambda s, t: (s.sigmoid().round() == t).float().mean(), at(0.0)),
    "sign": (lambda s, t: (torch.sign(s) * (2 * t - 1)).mean(), at(0.0)),
    "median": (lambda s, t: ((s > s.median()) == t).float().mean(), ALL),
    "maximum of all": (lambda s, t: t[s == s.max()].float().mean(), ALL),
    "number of entries": (lambda s, t: s[s > 0.2].numel() / 12, at(0.2)),
    "buckets": (lambda s, t: (torch.bucketize(s, torch.tensor([-1.0, 0.0, 1.0])) * t).float().mean(), at(-1, 0, 1)),
    "searched": (lambda s, t: torch.searchsorted(s[t == 1].sort().values, s[t == 0]).float().mean(), ALL),
    "differences": (lambda s, t: ((s[:, None] - s[None, :]) > 0).float()[t == 1][:, t == 0].mean(), ALL),
    "softmax then best": (lambda s, t: (s.softmax(0).argsort() * t).float().mean(), ALL),
    "exact match": (lambda s, t: 1.0 if bool(((s > 0) == t).all()) else 0.0, at(0.0)),
    "python number": (lambda s, t: int(((s > 0) == t).sum()) / 12, at(0.0)),
    "absolute": (lambda s, t: (s.abs() > 0.5).float().mean(), at(-0.5, 0.5)),
    "clamped": (lambda s, t: (s.clamp(-1, 1) == 1).float().mean() + (s.relu() == 0).float().mean(), at(0, 1)),
    "standardised": (lambda s, t: ((s - s.mean()) / s.std() > 0.5).float()[t == 1].mean(), None),
    "margin": (lambda s, t: ((s[:, None] - s[None, :]) > 0.3).float()[t == 1][:, t == 0].mean(), None),
    "softmax above": (lambda s, t: (s.softmax(0) > 0.1).float()[t == 1].mean(), None),
    "item": (lambda s, t: sum(float(one) > 0 for one in s) / 12, at(0.0)),
    "numpy": (lambda s, t: float(((s.numpy() > 0) == t.numpy()).mean()), at(0.0)),
    "numpy array": (lambda s, t: np.asarray((s.numpy() > 0).mean()), at(0.0)),
    "scikit-learn's AP": (lambda s, t: average_precision_score(t, s), ALL),
    "scikit-learn's F1": (lambda s, t: f1_score(t, s > 0.5), at(0.5)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*neither on an order")
@pytest.mark.parametrize("name", USERS)
def test_what_users_write(name: str) -> None:
    metric, expected = USERS[name]
    found = found_in(metric, draw(N), LABELS)
    if expected is None:
        assert found is None
    else:
        assert found[0] == expected[0]
        assert found[1] == pytest.approx(expected[1], abs=1e-5)


def test_scores_where_the_thresholds_are() -> None:
    """Nothing happens near 0, so the search looks around the scores."""
    found = found_in(lambda s, t: ((s > 60) == t).float().mean(), 60 + 20 * draw(N), LABELS)
    assert found == ((), pytest.approx((60.0,), abs=1e-3))


@pytest.mark.filterwarnings("ignore:All scores lie between 0 and 1")
def test_probabilities_and_logits_are_two_kinds_of_scores() -> None:
    def positive(scores: Tensor, target: Tensor) -> Tensor:
        inside = bool(((scores >= 0) & (scores <= 1)).all())
        return ((scores if inside else scores.sigmoid()) > 0.7).float().mean()

    assert found_in(positive, draw(N), LABELS) == ((), pytest.approx((0.8472978,), abs=1e-4))
    assert found_in(positive, draw(N).sigmoid(), LABELS) == ((), pytest.approx((0.7,), abs=1e-4))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["sigmoid", "buckets", "margin", "argsort"])
def test_large_problems_are_found_alike(name: str) -> None:
    metric, expected = USERS[name]
    found = found_in(metric, draw(700), (torch.arange(700) % 3 == 0).long())
    assert found == (None if expected is None else (expected[0], pytest.approx(expected[1], abs=1e-5)))


# ---------------------------------------------------------------------- which pairs matter


def bound(metric: Any, scores: Tensor, target: Tensor) -> Any:
    found = Automatic(metric).bind(scores, target)
    assert found is not None
    return found


def test_accuracy_compares_the_right_class_with_the_others() -> None:
    comparisons = bound(metrics.accuracy, draw(9, 4), torch.arange(9) % 4).comparisons
    assert comparisons.count == 9 * 3
    assert (comparisons.left % 4 == (torch.arange(9) % 4).repeat_interleave(3)).all()
    assert (comparisons.left // 4 == comparisons.right // 4).all()


@pytest.mark.parametrize("metric", [metrics.average_precision, metrics.auc, metrics.ndcg])
def test_rankings_compare_relevant_with_irrelevant_items(metric: Any) -> None:
    comparisons = bound(metric, draw(N), LABELS).comparisons
    assert comparisons.count == 6 * 6
    assert (LABELS[comparisons.left] > LABELS[comparisons.right]).all()


def test_grades_are_compared_where_they_differ() -> None:
    grades = torch.tensor([0, 1, 2, 0, 1])
    comparisons = bound(metrics.graded_ndcg, draw(5), grades).comparisons
    assert comparisons.count == 8
    assert (grades[comparisons.left] > grades[comparisons.right]).all()


def test_pairs_of_equal_labels_are_kept_if_they_matter() -> None:
    def by_place(scores: Tensor, target: Tensor) -> Tensor:
        return (target * scores.argsort().argsort() * torch.arange(N)).float().mean()

    assert bound(by_place, draw(N), LABELS).comparisons.count == N * (N - 1) // 2


def macro(scores: Tensor, target: Tensor) -> Tensor:
    guess = scores.argmax(-1)
    precision = [((guess == k) & (target == k)).sum() / (guess == k).sum().clamp(min=1) for k in range(3)]
    return torch.stack(precision).mean()


def test_pairs_of_wrong_classes_are_not_relaxed() -> None:
    assert bound(macro, draw(12, 3), torch.arange(12) % 3).comparisons.count == 12 * 2


def test_lists_of_any_sizes() -> None:
    def best_is_relevant(scores: Tensor, target: Tensor) -> Tensor:
        return target.gather(1, scores.argmax(1, keepdim=True)).float().mean()

    target = torch.tensor([[1, 0, 0, 0], [1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 1, 0]])
    assert bound(best_is_relevant, draw(4, 4, seed=1), target).comparisons.count == 3 + 3 + 4


# ---------------------------------------------------------------------- nothing is remembered


def gradient(loss_fn: Any, scores: Tensor, target: Tensor) -> Tensor:
    loss_fn.generator = torch.Generator().manual_seed(0)
    free = scores.clone().requires_grad_()
    loss_fn(free, target).backward()
    assert free.grad is not None
    return free.grad


def test_a_metric_may_change_its_threshold() -> None:
    level = [0.3]

    def annealed(scores: Tensor, target: Tensor) -> Tensor:
        return ((scores.sigmoid() > level[0]) == (target == 1)).float().mean()

    scores, target = draw(200), (torch.arange(200) % 3 == 0).long()
    loss_fn = UniLoss(annealed)
    for level[0] in (0.3, 0.3, 0.3001, 0.45, 0.5):
        torch.testing.assert_close(gradient(loss_fn, scores, target), gradient(UniLoss(annealed), scores, target))
        (at_level,) = loss_fn.refactored.bind(scores, target).comparisons.constants.tolist()  # type: ignore[union-attr]
        assert at_level == pytest.approx(float(torch.tensor(level[0]).logit()), abs=2e-6)


def test_a_metric_may_lose_a_threshold_or_become_a_ranking() -> None:
    parts = [0, 1]

    def changing(scores: Tensor, target: Tensor) -> Tensor:
        if not parts:
            return metrics.auc(scores, target)
        return torch.stack([(scores > part).float()[target == 1].mean() for part in parts]).mean()

    scores, target = draw(60), (torch.arange(60) % 3 == 0).long()
    loss_fn = UniLoss(changing)
    for parts[:] in ([0, 1], [1], []):
        torch.testing.assert_close(gradient(loss_fn, scores, target), gradient(UniLoss(changing), scores, target))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_metric_may_compare_other_things_for_other_labels(order: tuple[int, int]) -> None:
    def either(scores: Tensor, target: Tensor) -> Tensor:
        right = target.bool() == (scores > 0) if target.sum() > 3 else target[scores.argmax()] == 1
        return right.float().mean()

    targets = (LABELS, (torch.arange(N) < 2).long())
    refactored = Automatic(either)
    for which in order:
        comparisons = refactored.bind(draw(N), targets[which]).comparisons  # type: ignore[union-attr]
        assert isinstance(comparisons, Differences)
        assert len(comparisons.constants) == (1 if which == 0 else 0)


def test_copies_find_the_same() -> None:
    loss_fn = UniLoss(metrics.auc)
    first = gradient(loss_fn, draw(N), LABELS)
    for twin in (copy.deepcopy(loss_fn), pickle.loads(pickle.dumps(loss_fn))):
        torch.testing.assert_close(gradient(twin, draw(N), LABELS), first)


# ---------------------------------------------------------------------- how the metric is called


def test_a_metric_may_write_into_its_arguments() -> None:
    def careless(scores: Tensor, target: Tensor) -> Tensor:
        scores.sub_(0.1)
        target.mul_(2)
        return ((scores > 0) == (target == 2)).float().mean()

    scores, target = draw(N), LABELS.clone()
    before = scores.clone()
    loss = uniloss(scores.requires_grad_(), target, careless)
    loss.backward()
    assert torch.equal(scores.detach(), before)
    assert torch.equal(target, LABELS)
    assert loss.item() == pytest.approx(1 - ((before > 0.1) == (LABELS == 1)).float().mean().item())


def test_metrics_that_take_stacks_are_measured_in_one_call() -> None:
    calls: list[torch.Size] = []

    def counted(scores: Tensor, target: Tensor) -> Tensor:
        calls.append(scores.shape)
        return metrics.average_precision(scores, target)

    found = bound(counted, draw(N), LABELS)
    rows = draw(7, N)
    calls.clear()
    values = found.measure(rows)
    assert calls == [(7, N)]
    torch.testing.assert_close(values.float(), torch.stack([metrics.average_precision(row, LABELS) for row in rows]))


def test_a_slow_metric_is_warned_of_once() -> None:
    def slow(scores: Tensor, target: Tensor) -> Tensor:
        end = time.thread_time() + (0.025 if len(calls) < 12 else 0)
        while time.thread_time() < end:
            pass
        calls.append(1)
        return ((scores > 0) == (target == 1)).float().mean()

    calls: list[int] = []
    loss_fn = UniLoss(slow, anchors=1)
    with pytest.warns(DirectLossWarning, match=r"One call of slow takes \d+ ms.*tensor operations.*anchors=4"):
        loss_fn(draw(N), LABELS)
    calls.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss_fn(draw(N), LABELS)


def unsteady(scores: Tensor, target: Tensor) -> Tensor:
    return (scores > 0).float().mean() + random.random()


def stateful(scores: Tensor, target: Tensor, seen: list[int] = []) -> Tensor:  # noqa: B006
    seen.append(1)
    return (scores > 0).float().mean() + len(seen)


def broken(scores: Tensor, target: Tensor) -> Tensor:
    raise KeyError("lost")


WRONG: dict[str, tuple[Any, str]] = {
    "not a function": (3, "metric must be a function, but it is a int"),
    "a vector": (lambda s, t: (s > 0).float(), r"must return one number, but it is a tensor of shape \(12,\).*mean"),
    "a tuple": (lambda s, t: (1.0, 2.0), "must return one number, but it is a tuple"),
    "complex": (lambda s, t: torch.tensor(1j), "must return a real number"),
    "random": (unsteady, "must return the same value for the same scores"),
    "with a state": (stateful, "must return the same value for the same scores.*reset its state"),
    "more arguments": (lambda s, t, k: 1.0, "must be callable as metric.scores, target.*functools.partial"),
    "raises": (broken, "of shape .12,., but broken raised KeyError: 'lost'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_metrics(name: str) -> None:
    metric, words = WRONG[name]
    with pytest.raises(DirectLossError, match=words):
        uniloss(draw(N), LABELS, metric)


def test_a_decorator_may_add_arguments() -> None:
    def above(scores: Tensor, target: Tensor, level: float) -> Tensor:
        return ((scores > level) == (target == 1)).float().mean()

    @wraps(above)
    def decorated(scores: Tensor, target: Tensor) -> Tensor:
        return above(scores, target, 0.0)

    assert "each score with 0: 12" in UniLoss(decorated).explain(draw(N), LABELS)


def test_the_metrics_own_exception_is_kept() -> None:
    with pytest.raises(DirectLossError) as told:
        uniloss(draw(N), LABELS, broken)
    assert isinstance(told.value.__cause__, KeyError)


def test_names_of_metrics() -> None:
    assert repr(Automatic(partial(metrics.precision_at_k, k=2))) == "Automatic(precision_at_k)"


def test_a_metric_checks_its_arguments_in_every_step() -> None:
    loss_fn = UniLoss(tm.binary_average_precision)
    loss_fn(draw(N), LABELS)
    with pytest.raises(DirectLossError, match="target"):
        loss_fn(draw(N), 7 * LABELS)


def test_explain() -> None:
    text = UniLoss(metrics.accuracy).explain(draw(8, 4), torch.arange(8) % 4)
    assert text == (
        "accuracy compares pairs along dimension (1) of different relevance: 24 comparisons relaxed. "
        "Tested on fresh scores."
    )
    assert "each score with 0: 12" in UniLoss(metrics.f_beta).explain(draw(N), LABELS)
    with pytest.warns(DirectLossWarning, match="neither on an order of scores nor on thresholds"):
        words = UniLoss(lambda s, t: (s.softmax(0) > 0.1).float()[t == 1].mean()).explain(draw(N), LABELS)
    assert "the 36 pairs that the target orders stand for its comparisons" in words
