"""Hinge and perceptron: values by hand, classic special cases, and their place among the losses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import directloss as dl
from tests.toys import Pick

SCORES = torch.tensor([[2.0, 1.0, 0.0], [0.5, 0.4, 3.0]], dtype=torch.float64)
TARGET = torch.tensor([0, 1])


def test_hinge_of_classes_is_the_multiclass_hinge() -> None:
    """Crammer and Singer: max_c [s_c + epsilon (c != y)] - s_y; here max(2, 2, 1) - 2 and max(1.5, 0.4, 4) - 0.4."""
    found = dl.hinge_loss(SCORES, TARGET, "accuracy", reduction="none")
    torch.testing.assert_close(found, torch.tensor([0.0, 3.6], dtype=torch.float64))


def test_binary_hinge_is_the_classic_hinge() -> None:
    """With F = score * y, y in {0, 1}: max(0, epsilon - score) for label 1 and max(0, epsilon + score) for label 0."""
    scores = torch.linspace(-2, 2, 9, dtype=torch.float64)
    for label, wanted in [(1, (1 - scores).clamp(min=0)), (0, (1 + scores).clamp(min=0))]:
        target = torch.full((9,), label)
        torch.testing.assert_close(dl.hinge_loss(scores, target, "error", reduction="none"), wanted)


def test_binary_perceptron_is_the_classic_perceptron() -> None:
    scores = torch.linspace(-2, 2, 9, dtype=torch.float64)
    for label, wanted in [(1, (-scores).clamp(min=0)), (0, scores.clamp(min=0))]:
        target = torch.full((9,), label)
        torch.testing.assert_close(dl.perceptron_loss(scores, target, "error", reduction="none"), wanted)


def test_perceptron_by_hand() -> None:
    found = dl.perceptron_loss(SCORES, TARGET, "accuracy", reduction="none")
    torch.testing.assert_close(found, torch.tensor([0.0, 2.6], dtype=torch.float64))


def finite_differences(loss: nn.Module, scores: Tensor, target: Tensor, step: float = 1e-6) -> Tensor:
    result = torch.empty_like(scores).flatten()
    for place in range(scores.numel()):
        move = torch.zeros(scores.numel(), dtype=scores.dtype)
        move[place] = step
        move = move.view_as(scores)
        result[place] = (loss(scores + move, target) - loss(scores - move, target)) / (2 * step)
    return result.view_as(scores)


@pytest.mark.parametrize("kind", [dl.HingeLoss, dl.PerceptronLoss])
@pytest.mark.parametrize("task", ["ap", "f1"])
def test_gradient_is_that_of_the_value(kind: type[nn.Module], task: str) -> None:
    """Unlike the direct loss these are continuous, so finite differences must agree."""
    loss = kind(task)
    scores = torch.tensor([[0.31, 0.12, 0.23, -0.44, 0.05]], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[0, 1, 0, 1, 1]])
    (found,) = torch.autograd.grad(loss(scores, target), scores)
    assert found.any()
    torch.testing.assert_close(found, finite_differences(loss, scores.detach(), target), rtol=1e-6, atol=1e-6)


def test_hinge_of_a_wide_margin_is_zero() -> None:
    scores = torch.tensor([9.0, 8.0, -8.0, -9.0], requires_grad=True)
    loss = dl.hinge_loss(scores, torch.tensor([1, 1, 0, 0]), "ap")
    assert loss.item() == 0
    assert not torch.autograd.grad(loss, scores)[0].any()


def test_hinge_epsilon_auto_is_that_of_the_theorem() -> None:
    scores, target = torch.tensor([0.3, 0.1, 0.2, 0.9]), torch.tensor([1, 0, 1, 0])
    task = dl.tasks.get("ap")
    given = 5 * task.defaults.noise * float(task.unit_epsilon(scores, target))
    found = dl.hinge_loss(scores, target, "ap", epsilon="auto")
    torch.testing.assert_close(found, dl.hinge_loss(scores, target, "ap", epsilon=given))


def test_direct_gradient_is_hinge_minus_perceptron() -> None:
    """(dF(direct) - dF(truth)) - (dF(predicted) - dF(truth)), divided by epsilon."""
    target = torch.tensor([1, 0, 1, 0])
    scores = torch.tensor([0.3, 0.1, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    for epsilon in (0.1, 1.0, 10.0):
        losses = [
            dl.direct_loss(scores, target, "ap", epsilon=epsilon),
            dl.hinge_loss(scores, target, "ap", epsilon=epsilon),
            dl.perceptron_loss(scores, target, "ap"),
        ]
        direct, hinge, perceptron = (torch.autograd.grad(loss, scores)[0] for loss in losses)
        torch.testing.assert_close(direct, (hinge - perceptron) / epsilon)


def test_reductions_and_weights() -> None:
    weight = torch.tensor([1.0, 3.0])
    for loss in (dl.hinge_loss, dl.perceptron_loss):
        each = loss(SCORES, TARGET, Pick(), reduction="none")
        torch.testing.assert_close(loss(SCORES, TARGET, Pick(), reduction="sum"), each.sum())
        torch.testing.assert_close(loss(SCORES, TARGET, Pick()), each.mean())
        torch.testing.assert_close(loss(SCORES, TARGET, Pick(), weight=weight), (each * weight).sum().to(each) / 4)


def test_modules_equal_functions() -> None:
    assert torch.equal(
        dl.HingeLoss(Pick(), epsilon=0.5)(SCORES, TARGET), dl.hinge_loss(SCORES, TARGET, Pick(), epsilon=0.5)
    )
    assert torch.equal(dl.PerceptronLoss(Pick())(SCORES, TARGET), dl.perceptron_loss(SCORES, TARGET, Pick()))
    assert repr(dl.HingeLoss(Pick(), epsilon=0.5)) == "HingeLoss(Pick(), epsilon=0.5, reduction='mean')"
    assert repr(dl.PerceptronLoss(Pick(), reduction="sum")) == "PerceptronLoss(Pick(), reduction='sum')"
