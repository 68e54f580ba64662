"""Signs: ``"both"`` is the documented central difference, with all settings; ``"auto"`` is what the task advises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import directloss as dl


def _gradient(scores: Tensor, target: Tensor, task: object, sign: int | str = "both", **options: Any) -> Tensor:
    free = scores.clone().requires_grad_()
    loss = dl.direct_loss(free, target, task, sign=sign, **options)
    loss.sum().backward()
    assert free.grad is not None
    return free.grad


def _classes(*shape: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(3)
    scores = torch.randn(*shape, dtype=torch.float64, generator=draw)
    return scores, torch.randint(shape[-1], shape[:-1], generator=draw)


def _decisions(*shape: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(4)
    scores = torch.randn(*shape, dtype=torch.float64, generator=draw)
    return scores, (torch.rand(*shape, generator=draw) < 0.4).long()


@pytest.mark.parametrize("options", [{"epsilon": 0.7}, {}, {"noise": 0.5, "samples": 3}])
@pytest.mark.parametrize("task", ["ap", "ndcg@5", "f1", "mcc", "error", "accuracy", "topk@2", "chain", "graded_ndcg"])
def test_both_signs_are_the_mean_of_the_two_whatever_the_settings(task: str, options: dict[str, Any]) -> None:
    scores, target = _classes(6, 4) if task in ("accuracy", "topk@2", "chain") else _decisions(3, 20)
    parts = []
    for sign in (+1, -1, "both"):
        torch.manual_seed(7)  # the same noise
        parts.append(_gradient(scores, target, task, sign, **options))
    assert parts[2].any()
    torch.testing.assert_close(parts[2], (parts[0] + parts[1]) / 2)


def test_huge_scores_keep_a_finite_gradient() -> None:
    scores, target = _decisions(40)
    for noise in (0, 1):
        assert bool(torch.isfinite(_gradient(scores.float() * 1e37, target, "f1", noise=noise)).all())


def test_padding_takes_no_part() -> None:
    scores, target = _decisions(40)
    mask = torch.arange(40) < 25
    padded = _gradient(torch.where(mask, scores, 1e6), target, "f1", mask=mask)
    assert not padded[25:].any()
    torch.testing.assert_close(padded[:25], _gradient(scores[:25], target[:25], "f1"))


def test_problems_that_do_not_count_take_no_part() -> None:
    scores, target = _classes(8, 5)
    real = torch.arange(8) < 5
    short = _gradient(scores[:5], target[:5], "accuracy", reduction="sum")
    masked = _gradient(scores, target, "accuracy", mask=real, reduction="sum")
    assert not masked[5:].any()
    torch.testing.assert_close(masked[:5], short)
    weighted = _gradient(scores, target, "accuracy", weight=real.double(), reduction="sum")
    assert not weighted[5:].any()


def test_half_precision_is_close() -> None:
    scores, target = torch.tensor([1.0, -2.0]), torch.tensor([1, 1])
    exact = _gradient(scores, target, "error")
    assert bool(exact.any())
    torch.testing.assert_close(_gradient(scores.bfloat16(), target, "error").float(), exact, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("options", [{}, {"likelihood": 0}], ids=["default", "the metric alone"])
@pytest.mark.parametrize(("task", "classes"), [("accuracy", 3), ("f1", 1), ("error", 1)])
def test_it_starts_where_everything_is_wrong(task: str, classes: int, options: dict[str, Any]) -> None:
    """From scores that are all wrong sign +1 without noise cannot move; the default learns three clouds of points."""
    torch.manual_seed(0)
    label = torch.arange(120) % 3
    x = torch.randn(120, 2) + 4 * torch.eye(3)[label][:, :2]
    target = label if classes > 1 else (label == 0).long()
    model = nn.Sequential(nn.Linear(2, classes), *([nn.Flatten(0)] if classes == 1 else []))
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.copy_(torch.tensor([0.0, 0.0, 2.0]) if classes > 1 else torch.tensor([-1.0]))
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    loss_fn = dl.DirectLoss(task, **options)
    for _ in range(200):
        optimizer.zero_grad()
        loss = loss_fn(model(x), target)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1


@pytest.mark.parametrize(
    ("name", "sign"),
    {
        **dict.fromkeys(("ap", "auc", "ndcg"), +1),
        **dict.fromkeys(("ndcg@10", "precision@5", "pauc@0.1", "f1", "error", "accuracy", "topk@2"), "both"),
        **dict.fromkeys(("chain", "assignment"), "both"),
    }.items(),
)
def test_every_kind_of_task_advises_a_sign(name: str, sign: int | str) -> None:
    assert dl.tasks.get(name).defaults.sign == sign


@pytest.mark.parametrize("task", ["accuracy", "error"])
def test_double_scores_have_a_double_gradient(task: str) -> None:
    scores, target = _classes(6, 4) if task == "accuracy" else _decisions(24)
    gradient = _gradient(scores, target, task, epsilon=0.7, reduction="sum")
    whole = gradient * 2 * 0.7
    torch.testing.assert_close(whole, whole.round(), rtol=0, atol=1e-12)
