"""The strict test of a record: made at scores A, answered with the signs of scores B, it gives the metric of B."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from directloss import metrics
from directloss._uniloss.comparisons import Differences
from directloss._uniloss.tracing import record

Metric = Callable[[Tensor, Tensor], Any]
N, C = 12, 4
LABELS = torch.tensor([0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1, 1])
GRADES = torch.tensor([0, 3, 1, 0, 2, 1, 0, 0, 3, 0, 1, 2])
CLASSES = torch.arange(N) % C

KINDS: dict[str, Callable[[torch.Generator, tuple[int, ...]], Tensor]] = {
    "continuous": lambda g, shape: torch.randn(shape, generator=g),
    "double": lambda g, shape: torch.randn(shape, generator=g, dtype=torch.float64),
    "tied": lambda g, shape: torch.randint(-2, 3, shape, generator=g).float(),
    "probabilities": lambda g, shape: torch.rand(shape, generator=g),
    "tied probabilities": lambda g, shape: torch.randint(0, 5, shape, generator=g).float() / 4,
}


def strict(metric: Metric, draw: Callable[[], Tensor], target: Tensor, pairs: int = 2) -> None:
    for _ in range(pairs):
        recorded, other = draw(), draw()
        trace = record(metric, recorded, target)
        for scores in (recorded, other):
            want = torch.as_tensor(metric(scores.clone(), target)).double()
            got = trace.replay(trace.answers(scores)).double()
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)


OWN: dict[str, tuple[Metric, tuple[int, ...], Tensor]] = {
    **{
        name: (getattr(metrics, name), (N,), LABELS)
        for name in (
            "auc", "average_precision", "balanced_accuracy", "binary_accuracy", "dcg", "dice", "error", "f_beta",
            "g_mean", "iou", "kappa", "matthews", "ndcg", "partial_auc", "precision", "recall", "reciprocal_rank",
        )
    },
    "precision_at_k": (partial(metrics.precision_at_k, k=3), (N,), LABELS),
    "recall_at_k": (partial(metrics.recall_at_k, k=3), (N,), LABELS),
    "graded_dcg": (metrics.graded_dcg, (N,), GRADES),
    "graded_ndcg": (partial(metrics.graded_ndcg, k=5), (N,), GRADES),
    "accuracy": (metrics.accuracy, (N, C), CLASSES),
    "top_k_accuracy": (partial(metrics.top_k_accuracy, k=2), (N, C), CLASSES),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OWN)
def test_our_own_metrics(name: str, kind: str) -> None:
    metric, shape, target = OWN[name]
    generator = torch.Generator().manual_seed(5)
    strict(metric, lambda: KINDS[kind](generator, shape), target)


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


def in_place(scores: Tensor, target: Tensor) -> Tensor:
    best = torch.full_like(scores, -9.0)
    best[target == 1] = scores[target == 1]
    best[2:4] = 3.5
    best.mul_(2.0)
    return target[best.argmax()] + best.view(3, 4).argmax(1).float().mean()


USERS: dict[str, Metric] = {
    "argsort": by_hand_average_precision,
    "views and writes in place": in_place,
    "sigmoid": lambda s, t: ((s.sigmoid() > 0.3) == t).float().mean(),
    "rounded": lambda s, t: (s.sigmoid().round() == t).float().mean(),
    "whole": lambda s, t: ((s.sigmoid() + 0.5).long() == t).float().mean(),
    "sign": lambda s, t: (torch.sign(s) * (2 * t - 1)).mean(),
    "median": lambda s, t: ((s > s.median()) == t).float().mean(),
    "kth": lambda s, t: ((s >= s.kthvalue(4).values) == t).float().mean(),
    "maximum of all": lambda s, t: t[s == s.max()].float().mean(),
    "unique": lambda s, t: (torch.unique(s, return_inverse=True)[1] * t).sum() / 10.0,
    "runs": lambda s, t: torch.tensor(float(len(torch.unique_consecutive(s.sort().values)))),
    "number of entries": lambda s, t: s[s > 0.2].numel() / 12,
    "buckets": lambda s, t: (torch.bucketize(s, torch.tensor([-1.0, 0.0, 1.0])) * t).float().mean(),
    "searched": lambda s, t: torch.searchsorted(s[t == 1].sort().values, s[t == 0]).float().mean(),
    "histogram": lambda s, t: torch.histc(s[t == 1], 4, -2.0, 2.0)[2],
    "decreasing": lambda s, t: ((1 - s.sigmoid()).argsort() * t).float().mean(),
    "reciprocal of positives": lambda s, t: (s.exp().reciprocal().argmin() == 3).float() + ((-s).exp() < 2).sum(),
    "differences": lambda s, t: ((s[:, None] - s[None, :]) > 0).float()[t == 1][:, t == 0].mean(),
    "softmax then best": lambda s, t: (s.view(3, 4).softmax(1).argmax(1) * torch.tensor([1.0, 2.0, 3.0])).sum(),
    "shifted by the maximum": lambda s, t: ((s - s.max(0).values).argsort() * t).float().mean(),
    "normalised": lambda s, t: ((s.exp() / s.exp().sum()).argsort() * t).float().mean(),
    "exact match": lambda s, t: 1.0 if bool(((s > 0) == t).sum() > 6) else 0.0,
    "python number": lambda s, t: int(((s > 0) == t).sum()) / 12,
    "the greater of two": lambda s, t: (torch.maximum(s[:6], s[6:]) == s[:6]).float().mean(),
    "clamped": lambda s, t: (s.clamp(-1.0, 1.0) == 1).float().mean() + (torch.relu(s) == 0).float().mean(),
    "standardised": lambda s, t: ((s - s.mean()) / s.std() > 0.5).float().mean(),
    "absolute": lambda s, t: (s.abs() > 0.5).float().mean(),
    "margin": lambda s, t: ((s[:, None] - s[None, :]) > 0.3).float()[t == 1][:, t == 0].mean(),
    "probability of softmax": lambda s, t: (s.softmax(0) > 0.1).float().mean(),
    "membership": lambda s, t: torch.isin(s, torch.tensor([0.0, 1.0])).float().mean(),
    "nonzero": lambda s, t: torch.nonzero(s.clamp(min=0)).float().mean(),
    "top": lambda s, t: t[s.topk(3).indices].float().mean(),
    "best so far": lambda s, t: s.cummax(0).indices.float().mean(),
}


@pytest.mark.parametrize("kind", ["continuous", "tied"])
@pytest.mark.parametrize("name", USERS)
def test_what_users_write(name: str, kind: str) -> None:
    generator = torch.Generator().manual_seed(7)
    strict(USERS[name], lambda: KINDS[kind](generator, (N,)), LABELS)


def test_half_precision_scores_are_recorded_in_float32() -> None:
    trace = record(metrics.auc, torch.randn(N, generator=torch.Generator().manual_seed(1)).half(), LABELS)
    assert trace.scores.dtype == torch.float32
    assert trace.comparisons.count == N * (N - 1) // 2


def test_a_threshold_is_pulled_back_to_the_scores() -> None:
    trace = record(lambda s, t: (s.sigmoid() > 0.75).float().mean(), torch.tensor([2.0, -1.0, 0.5]), torch.zeros(3))
    found = trace.comparisons
    assert isinstance(found, Differences)
    torch.testing.assert_close(found.values(torch.zeros(3)), torch.full((3,), -1.0986123))


def test_pairs_are_counted_once() -> None:
    def twice(scores: Tensor, target: Tensor) -> Tensor:
        up = (scores[:, None] > scores[None, :]).float()
        return up.mean() + (scores.flip(0)[:, None] < scores.flip(0)[None, :]).float()[0].mean()

    assert record(twice, torch.randn(5), torch.zeros(5)).comparisons.count == 10


def test_questions_that_were_not_recorded_are_reported() -> None:
    def narrow(scores: Tensor, target: Tensor) -> Tensor:
        return (scores[scores.argmax()] > 2 * scores[scores.argmin()]).float()

    trace = record(narrow, torch.tensor([3.0, 1.0, -2.0]), torch.zeros(3))
    answers = trace.answers(torch.tensor([-2.0, 1.0, 3.0]))
    with pytest.raises(ValueError, match="must ask the same questions for all scores, but it is asking 1 question"):
        trace.replay(answers)


def test_general_comparisons_have_values_and_gradients() -> None:
    scores = torch.tensor([0.3, -1.0, 2.0, 0.9], requires_grad=True)
    trace = record(lambda s, t: (s.softmax(0) > 0.2).float().mean(), scores, torch.zeros(4))
    values = trace.comparisons.values(scores)
    want = scores.softmax(0) - 0.2
    # The direction of a general comparison is a convention.
    torch.testing.assert_close(values.abs().sort().values, want.abs().sort().values)
    slope = torch.autograd.grad(values.abs().sum(), scores)[0]
    torch.testing.assert_close(slope, torch.autograd.grad(want.abs().sum(), scores)[0])


def test_an_explanation_names_the_lines() -> None:
    def metric(scores: Tensor, target: Tensor) -> Tensor:
        if bool((scores >= 0).all() & (scores <= 1).all()):
            return ((scores > 0.5) == target).float().mean()
        return ((scores > 0) == target).float().mean()

    found = record(metric, torch.tensor([2.0, -1.0]), torch.tensor([1, 1])).explain()
    assert (found.found, found.thresholds, found.pairs, found.general, found.differences) == (2, 2, 0, 0, True)
    assert len(found.steps) == 1
    assert "test_tracing.py" in found.steps[0].where
    assert len(found.guards) == 1
    text = str(found)
    assert "gt, 2 variables" in text
    assert "Frozen" in text
    followed = record(metric, torch.tensor([2.0, -1.0]), torch.tensor([1, 1]), follow=True)
    assert followed.variables.count == 4
