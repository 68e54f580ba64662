"""``sign="both"``: a central difference, which for decisions leaves the scale of the scores alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import directloss as dl
from directloss.task import without_growth


def _gradient(scores: Tensor, target: Tensor, task: object, **options: object) -> Tensor:
    free = scores.clone().requires_grad_()
    loss = dl.direct_loss(free, target, task, sign="both", **options)  # type: ignore[arg-type]
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


def test_classes_of_a_batch_neither_grow_nor_shrink_together() -> None:
    scores, target = _classes(8, 5)
    gradient = _gradient(scores, target, "accuracy")
    plain = _gradient(scores, target, "accuracy", epsilon=dl.tasks.get("accuracy").auto_epsilon(scores, target))
    centred = scores - scores.mean(-1, keepdim=True)
    assert float((plain * centred).sum().abs()) > 1e-6
    assert float((gradient * centred).sum()) == pytest.approx(float((plain * centred).sum()) / (8 * 4))


@pytest.mark.parametrize("task", ["f1", "iou", "mcc", "balanced_accuracy"])
def test_each_list_of_decisions_neither_grows_nor_shrinks(task: str) -> None:
    scores, target = _decisions(3, 40)
    gradient = _gradient(scores, target, task)
    plain = _gradient(scores, target, task, epsilon=dl.tasks.get(task).auto_epsilon(scores, target))
    assert bool(((plain * scores).sum(-1).abs() > 1e-6).any())
    torch.testing.assert_close((gradient * scores).sum(-1), (plain * scores).sum(-1) / 40)


def test_a_single_decision_can_only_grow_and_may() -> None:
    scores, target = torch.tensor([[0.4]], dtype=torch.float64), torch.tensor([[1]])
    plain = _gradient(scores, target, "f1", epsilon=dl.tasks.get("f1").auto_epsilon(scores, target))
    assert torch.equal(_gradient(scores, target, "f1"), plain)


def test_a_number_for_epsilon_leaves_the_theorem_as_it_is() -> None:
    scores, target = _decisions(40)
    signed = [torch.zeros(40, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)]
    for place, sign in enumerate((+1, -1)):
        free = scores.clone().requires_grad_()
        dl.direct_loss(free, target, "f1", epsilon=0.7, sign=sign).backward()
        assert free.grad is not None
        signed[place] = free.grad
    torch.testing.assert_close(_gradient(scores, target, "f1", epsilon=0.7), (signed[0] + signed[1]) / 2)


def test_huge_scores_keep_a_finite_gradient() -> None:
    scores, target = _decisions(40)
    found = _gradient(scores.float() * 1e37, target, "f1")
    assert bool(torch.isfinite(found).all())
    assert bool(torch.isfinite(without_growth(torch.ones(3), torch.zeros(3))).all())


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


@pytest.mark.parametrize(("task", "classes"), [("accuracy", 3), ("f1", 1), ("error", 1)])
def test_it_starts_where_everything_is_wrong(task: str, classes: int) -> None:
    """From scores that are all wrong the positive update alone cannot move; both signs learn three clouds of points."""
    torch.manual_seed(0)
    label = torch.arange(120) % 3
    x = torch.randn(120, 2) + 4 * torch.eye(3)[label][:, :2]
    target = label if classes > 1 else (label == 0).long()
    model = nn.Sequential(nn.Linear(2, classes), *([nn.Flatten(0)] if classes == 1 else []))
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.copy_(torch.tensor([0.0, 0.0, 1.0]) if classes > 1 else torch.tensor([-1.0]))
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    loss_fn = dl.DirectLoss(task, sign="both")
    for _ in range(200):
        optimizer.zero_grad()
        loss = loss_fn(model(x), target)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1


def test_the_module_shows_and_keeps_its_sign() -> None:
    assert (
        repr(dl.DirectLoss("error", sign="both"))
        == "DirectLoss(Error(), epsilon='auto', sign='both', reduction='mean')"
    )


@pytest.mark.parametrize(
    ("name", "sign"),
    {
        **dict.fromkeys(("ap", "auc", "ndcg"), +1),
        **dict.fromkeys(("ndcg@10", "precision@5", "pauc@0.1", "f1", "error", "accuracy", "topk@2"), "both"),
        **dict.fromkeys(("chain", "assignment"), -1),
    }.items(),
)
def test_every_kind_of_task_advises_a_sign(name: str, sign: int | str) -> None:
    assert dl.tasks.get(name).advised_sign == sign


@pytest.mark.parametrize("task", ["accuracy", "error"])
def test_double_scores_have_a_double_gradient(task: str) -> None:
    scores, target = _classes(6, 4) if task == "accuracy" else _decisions(24)
    gradient = _gradient(scores, target, task, epsilon=0.7, reduction="sum")
    whole = gradient * 2 * 0.7
    torch.testing.assert_close(whole, whole.round(), rtol=0, atol=1e-12)
