"""Scores that are not on the CPU: the results of the CPU, within the budget of operations and synchronisations."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import directloss as dl
from benchmarks.accelerator import DEVICE, Accelerator, Record
from directloss import kernels
from directloss.noise import Noise

pytestmark = pytest.mark.filterwarnings("ignore::directloss.DirectLossWarning")

RANKINGS, GRADED, DECISIONS = 110, 220, 65
"""Operations of one default step, forward and backward."""
SHAPES = [(512,), (256, 200)]


def draw(shape: tuple[int, ...], classes: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(shape, generator=generator)
    if classes:
        return scores, torch.randint(classes, shape[:-1], generator=generator)
    return scores, (torch.rand(shape, generator=generator) < 0.1).long()


def step(scores: Tensor, target: Tensor, task: Any, **options: Any) -> tuple[Tensor, Tensor]:
    leaf = scores.detach().requires_grad_()
    loss = dl.direct_loss(leaf, target, task, **options)
    (loss.sum() if loss.dim() else loss).backward()
    assert leaf.grad is not None
    return loss.detach(), leaf.grad


def measured(scores: Tensor, target: Tensor, task: Any, **options: Any) -> tuple[Record, Tensor, Tensor]:
    """A step on the stand-in; what it took, and its results on the CPU."""
    with Accelerator() as device:
        here, labels = scores.to(DEVICE), target.to(DEVICE)
        device.forget()
        value, slope = step(here, labels, task, **options)
        return copy.deepcopy(device.record), value.cpu(), slope.cpu()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "name", ["ap", "ndcg@10", "auc", "pauc@0.3", "precision@5", "graded_ndcg", "f1", "mcc", "gmean"]
)
def test_a_default_step_stays_within_the_budget(name: str, shape: tuple[int, ...]) -> None:
    device, _, _ = measured(*draw(shape), name, check_values=False)
    ranked = dl.tasks.get(name).defaults.density == "uniform"
    budget = GRADED if name == "graded_ndcg" else RANKINGS if ranked else DECISIONS
    assert len(device.operations) <= budget, f"{len(device.operations)}: {device.operations}"
    assert not device.reads
    assert device.waits == 0
    assert device.fetched == device.sent == []


@pytest.mark.parametrize(("name", "classes"), [("accuracy", 10), ("topk@5", 10), ("error", 0)])
def test_a_default_step_of_classes_stays_within_the_budget(name: str, classes: int) -> None:
    device, _, _ = measured(*draw((128, 10) if classes else (512,), classes), name, check_values=False)
    assert len(device.operations) <= RANKINGS
    assert not device.reads
    assert device.waits == 0


@pytest.mark.parametrize(
    "name", ["ap", "ndcg@3", "dcg", "mrr", "pauc@0.3", "precision@5", "graded_ndcg", "f1", "kappa"]
)
def test_results_are_those_of_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same noise; the device has no float64."""
    scores, target = draw((4, 30))
    mask = torch.rand(4, 30, generator=torch.Generator().manual_seed(1)) < 0.8
    uniform = torch.rand(2, 4, 30, generator=torch.Generator().manual_seed(2))
    monkeypatch.setattr(Noise, "uniform", lambda self, scores: uniform.to(scores.device))
    for padding in (None, mask):
        wanted = step(scores, target, name, mask=padding)
        with Accelerator():
            shown = None if padding is None else padding.to(DEVICE)
            found = step(scores.to(DEVICE), target.to(DEVICE), name, mask=shown)
            found = found[0].cpu(), found[1].cpu()
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


HOSTED: list[tuple[str, dict[str, Any]]] = [
    ("ap", {"sign": -1}),
    ("precision@5", {"epsilon": 0.5}),
    ("graded_ndcg", {"epsilon": "auto"}),
    ("gmean", {"sign": "both"}),
    ("auc", {"epsilon": "auto"}),
]


@pytest.mark.parametrize(("name", "options"), HOSTED)
def test_theorem_1_asks_the_host_once(name: str, options: dict[str, Any]) -> None:
    scores, target = draw((300,))
    with Accelerator() as device:
        here, labels = scores.to(DEVICE), target.to(DEVICE)
        device.forget()
        value, slope = step(here, labels, name, check_values=False, **options)
        assert device.record.waits == 1
        assert not device.record.reads
        assert len(device.record.operations) <= 16
        assert sum(device.record.sent) == 4 + 4 * 300, "the value and the gradient"
        found = value.cpu(), slope.cpu()
    torch.testing.assert_close(found, step(scores, target, name, **options))


def test_the_other_losses_on_the_host() -> None:
    scores, target = draw((3, 50))
    for loss in (dl.hinge_loss, dl.perceptron_loss):
        with Accelerator() as device:
            here, labels = scores.to(DEVICE).requires_grad_(), target.to(DEVICE)
            device.forget()
            value = loss(here, labels, "ap", reduction="none")
            value.sum().backward()
            assert device.record.waits == 1
            assert here.grad is not None
            found = value.detach().cpu(), here.grad.cpu()
        leaf = scores.clone().requires_grad_()
        wanted = loss(leaf, target, "ap", reduction="none")
        wanted.sum().backward()
        torch.testing.assert_close(found, (wanted.detach(), leaf.grad))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision(kind: torch.dtype) -> None:
    scores, target = draw((4, 30))
    for options in ({"epsilon": "auto"}, {"sign": -1}, {}):
        with Accelerator():
            found = step(scores.to(kind).to(DEVICE), target.to(DEVICE), "ap", **options)
            assert found[1].dtype == kind
            found = found[0].cpu(), found[1].cpu()
        if options:
            torch.testing.assert_close(found, step(scores.to(kind), target, "ap", **options))
        assert found[1].isfinite().all()
        assert found[1].any()


def test_evaluation_on_the_device() -> None:
    scores, target = draw((4, 30))
    for name in ("ap", "f1", "graded_ndcg"):
        with Accelerator() as device, torch.no_grad():
            here, labels = scores.to(DEVICE), target.to(DEVICE)
            device.forget()
            value = dl.direct_loss(here, labels, name, check_values=False)
            assert device.record.waits == 0
            assert not device.record.reads
            assert float(value.cpu()) == pytest.approx(float(dl.direct_loss(scores, target, name)), abs=1e-6)


def test_wrong_input_raises_the_same_errors() -> None:
    scores, target = draw((20,))
    for wrong, labels, words in (
        (scores.masked_fill(scores > 1, torch.nan), target, "scores must be finite"),
        (scores, target + 1, "target must hold only 0 or 1"),
        (scores, target[:5], "target must have the shape of scores"),
    ):
        with kernels.use("tensor"), pytest.raises(dl.DirectLossError, match=words):
            dl.direct_loss(wrong, labels, "ap")
