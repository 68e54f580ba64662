"""Metrics by name: every name of a task that has a metric is one of UniLoss, with the same batches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from directloss import DirectLossError, UniLoss, metrics, tasks
from directloss._registry import measured
from directloss._uniloss.refactoring import BY_HAND, by_name
from directloss.relaxation import Automatic

NAMED = measured()
WITHOUT = {"assignment", "chain"}
"""Outputs with a structure, which are no function of comparisons of scores."""


def test_every_task_with_a_metric_has_its_name_here() -> None:
    assert {*NAMED, *BY_HAND} == {*tasks.names(), "pckh"} - WITHOUT


def _batch(name: str) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(3)
    if name in ("accuracy", "topk"):
        return torch.randn(2, 6, 7, generator=draw), torch.randint(7, (2, 6), generator=draw)
    if name == "pckh":
        return torch.randn(2, 4, 4, generator=draw), torch.eye(4).long().expand(2, 4, 4)
    grades = torch.tensor([0, 2, 1, 0, 0, 1, 0, 3] if name == "graded_ndcg" else [0, 1, 1, 0, 0, 1, 0, 1])
    return torch.randn(2, 8, generator=draw), torch.stack((grades, grades.roll(3)))


@pytest.mark.parametrize("name", sorted([*NAMED, *BY_HAND]))
def test_a_name_is_a_loss_of_batches(name: str) -> None:
    scores, target = _batch(name)
    scores.requires_grad_()
    loss_fn = UniLoss(name, generator=torch.Generator().manual_seed(0), reduction="none")
    loss = loss_fn(scores, target)
    if name in NAMED:
        expected = torch.stack([NAMED[name].metric(s, t) for s, t in zip(scores.detach(), target, strict=True)])
        torch.testing.assert_close(loss.detach(), 1 - expected)
    loss.sum().backward()
    assert scores.grad is not None
    assert bool(torch.isfinite(scores.grad).all())
    assert bool(scores.grad.any())


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("fbeta@2", lambda s, t: metrics.f_beta(s, t, beta=2.0)),
        ("ndcg@3", lambda s, t: metrics.ndcg(s, t, k=3)),
        ("precision@3", lambda s, t: metrics.precision_at_k(s, t, k=3)),
        ("recall@3", lambda s, t: metrics.recall_at_k(s, t, k=3)),
        ("PAUC@0.5", lambda s, t: metrics.partial_auc(s, t, max_fpr=0.5)),
    ],
)
def test_numbers_after_an_at(name: str, metric: object) -> None:
    scores, target = (part[0] for part in _batch(name))
    bound = by_name(name).bind(scores, target)
    assert bound is not None
    assert bound.now == pytest.approx(metric(scores, target).item())  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("foo", "must be a function, a Refactoring, or a known name, but it is 'foo'. Known: accuracy, ap, auc"),
        ("aq", "Did you mean 'ap'.*Known: accuracy"),
        ("average precision", "Did you mean 'ap'"),
        ("chain", "a known name, but it is 'chain'"),
        ("ap@3", "takes no number: 'ap' stands alone, but it is 'ap@3'"),
        ("f1@2", "takes no number: 'f1' stands alone, but it is 'f1@2'"),
        ("ndcg@x", "must have a number after '@', but it is 'ndcg@x'. For example 'ndcg@10'"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(DirectLossError, match=f"metric .*{message}"):
        UniLoss(name)


def test_a_number_that_is_not_allowed_fails_when_the_loss_is_built() -> None:
    with pytest.raises(DirectLossError, match="k must be a whole number of at least 1, but it is 0"):
        UniLoss("ndcg@0")


def test_case_and_spaces_do_not_matter() -> None:
    assert by_name(" AP ") is BY_HAND["ap"]
    assert isinstance(by_name("F1"), Automatic)
