"""Comparisons of general form: the tape of a metric gives them for all scores, and quickly."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torchmetrics.functional.classification import multiclass_auroc

from directloss import Anchoring, DirectLossError, DirectLossWarning, UniLoss, uniloss
from directloss._uniloss import automatic
from directloss._uniloss.comparisons import General
from directloss._uniloss.tracing import record, trace

CLASSES = torch.arange(9) % 3


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def neighbours(scores: Tensor, target: Tensor) -> Tensor:
    """The share of each row's two nearest rows that are of its class."""
    far = (scores[:, None] - scores[None]).square().sum(-1) + 1e6 * torch.eye(len(scores), dtype=scores.dtype)
    nearest = far.topk(2, largest=False).indices
    return (target[nearest] == target[:, None]).double().mean()


def with_buffers(scores: Tensor, target: Tensor) -> Tensor:
    """Norms of rows above one half, with writes in place, a view, a transposition, no_grad and detach."""
    buffer = torch.zeros(len(scores), 2, dtype=scores.dtype)
    weight = torch.ones(len(scores), dtype=scores.dtype)
    with torch.no_grad():
        buffer[:, 0] = scores.detach().t().square().sum(0) * weight
        buffer.view(-1)[1::2].add_(buffer[:, 0]).sub_(1.0)
    weight.mul_(7.0)
    return ((buffer.mean(-1) > 0) == (target > 0)).double().mean()


def pairs_of_softmax(scores: Tensor) -> Tensor:
    chance = scores.softmax(-1)
    i, j = torch.triu_indices(len(scores), len(scores), 1)
    return (chance[i] - chance[j]).flatten().abs()


def pairs_of_distances(scores: Tensor) -> Tensor:
    far = (scores[:, None] - scores[None]).square().sum(-1)
    i, j = torch.triu_indices(9, 9, 1)
    rows = [far[k] - far[k, :, None] for k in range(9)]
    beside = [[at for at in range(len(i)) if k not in (i[at], j[at])] for k in range(9)]
    return torch.cat([row[i[at], j[at]] for row, at in zip(rows, beside, strict=True)]).abs()


FORMS: list[tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]] = [
    (partial(multiclass_auroc, num_classes=3), pairs_of_softmax),
    (with_buffers, lambda scores: (scores.square().sum(-1) - 0.5).abs()),
]


@pytest.mark.parametrize(("metric", "expected"), FORMS, ids=["auroc", "buffers"])
def test_the_tape_gives_the_comparisons_of_other_scores(metric: object, expected: Callable[[Tensor], Tensor]) -> None:
    found = record(metric, draw(9, 3), CLASSES).comparisons  # type: ignore[arg-type]
    assert isinstance(found, General)
    for seed in range(3):
        other = draw(9, 3, seed=seed).requires_grad_()
        values, wanted = found.values(other.flatten()), expected(other)
        torch.testing.assert_close(values.abs().sort().values, wanted.sort().values, rtol=1e-9, atol=1e-12)
        square, known = (
            torch.autograd.grad(part.square().sum(), other, retain_graph=True)[0] for part in (values, wanted)
        )
        torch.testing.assert_close(square, known, rtol=1e-9, atol=1e-12)
    assert bool((found.values(draw(9, 3, seed=1).flatten()) == found.values(draw(9, 3, seed=1).flatten())).all())


def test_distances_to_neighbours_are_among_the_comparisons() -> None:
    found = record(neighbours, draw(9, 3), CLASSES).comparisons
    values = found.values(draw(9, 3, seed=4).flatten()).abs().sort().values
    for value in pairs_of_distances(draw(9, 3, seed=4)):
        assert (values - value).abs().min() < 1e-9


def test_a_step_calls_the_metric_little_more_than_once_for_each_anchor() -> None:
    """And not once more for every flip and every configuration, under watch."""
    calls = []

    def counted(scores: Tensor, target: Tensor) -> Tensor:
        calls.append(1)
        return neighbours(scores, target)

    loss_fn = UniLoss(counted, best_scores=lambda s, t: 9.0 * torch.eye(3, dtype=s.dtype)[t] + 0.1 * s)
    scores = draw(9, 3).requires_grad_()
    loss_fn(scores, CLASSES)
    calls.clear()
    loss_fn(scores, CLASSES).backward()
    assert len(calls) <= 48 + 4  # the record, its replay, the metric itself and the look for NaN
    assert scores.grad is not None
    assert bool(scores.grad.any())


def test_neighbours_are_learned() -> None:
    scores = draw(9, 3).requires_grad_()
    best = lambda s, t: 9.0 * torch.eye(3, dtype=s.dtype)[t] + 0.1 * s  # noqa: E731
    loss_fn = UniLoss(neighbours, best_scores=best, generator=torch.Generator().manual_seed(0), anchors=4)
    optimizer = torch.optim.Adam([scores], 0.1)
    before = neighbours(scores, CLASSES)
    for _ in range(40):
        optimizer.zero_grad()
        loss_fn(scores, CLASSES).backward()
        optimizer.step()
    assert neighbours(scores, CLASSES) > before + 0.2


def test_very_many_general_comparisons_are_announced_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, metric = draw(9, 3), partial(multiclass_auroc, num_classes=3)
    monkeypatch.setattr(automatic, "MANY", 100)
    with pytest.warns(DirectLossWarning, match=r"108 comparisons that are not differences of scores.*fraction"):
        UniLoss(metric)(scores, CLASSES)
    monkeypatch.setattr(trace, "GENERAL_MOST", 100)
    with pytest.raises(DirectLossError, match=r"at most 100 comparisons that are not differences.*but it is .* 108"):
        uniloss(scores, CLASSES, metric, anchors=Anchoring(2, 2, 2))
