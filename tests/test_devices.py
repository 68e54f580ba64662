"""Scores that are not on the CPU: the results of the CPU, within the budget of operations and synchronisations."""

from __future__ import annotations

import copy
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import directloss as dl
from benchmarks.accelerator import DEVICE, Accelerator, Record
from directloss import kernels
from directloss.kernels import dense
from directloss.tasks import _lines
from directloss.tasks.ranking import RankingTask
from tests.contract import problems
from tests.oracle import all_cases
from tests.test_kernels import KINDS, TASKS, draw_epsilon, draw_lists

pytestmark = pytest.mark.filterwarnings("ignore::directloss.DirectLossWarning")

BUDGET = 120
"""Operations of one default step, forward and backward."""
SHAPES = [(512,), (4096,), (256, 200)]
CONVEX = ["ap", "ndcg", "dcg", "mrr", "auc", "pauc@0.3", "pauc@0.6"]


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
    """A step on the stand-in, after one that fills the tables; what it took, and its results on the CPU."""
    with Accelerator() as device:
        here, labels = scores.to(DEVICE), target.to(DEVICE)
        step(here, labels, task, **options)
        device.forget()
        value, slope = step(here, labels, task, **options)
        return copy.deepcopy(device.record), value.cpu(), slope.cpu()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["ap", "ndcg", "mrr", "auc", "f1", "mcc", "balanced_accuracy", "iou"])
def test_a_default_step_stays_within_the_budget(name: str, shape: tuple[int, ...]) -> None:
    device, _, _ = measured(*draw(shape), name, check_values=False)
    assert len(device.operations) <= BUDGET
    assert not device.reads
    assert device.waits == 0
    assert device.fetched == device.sent == []


@pytest.mark.parametrize(("name", "classes"), [("accuracy", 10), ("topk@5", 10), ("error", 0)])
def test_a_default_step_of_classes_stays_within_the_budget(name: str, classes: int) -> None:
    device, _, _ = measured(*draw((128, 10) if classes else (512,), classes), name, check_values=False)
    assert len(device.operations) <= BUDGET
    assert not device.reads
    assert device.waits == 0


HOSTED: list[tuple[str, dict[str, Any]]] = [
    ("ap", {"sign": -1}),
    ("precision@5", {}),
    ("graded_ndcg", {}),
    ("gmean", {}),
    ("auc", {"weight": torch.rand(300)}),
]


@pytest.mark.parametrize(("name", "options"), HOSTED)
def test_the_host_is_asked_once(name: str, options: dict[str, Any]) -> None:
    scores, target = draw((300,))
    moved = {key: value for key, value in options.items() if not isinstance(value, Tensor)}
    with Accelerator() as device:
        here, labels = scores.to(DEVICE), target.to(DEVICE)
        more = {key: value.to(DEVICE) for key, value in options.items() if isinstance(value, Tensor)}
        device.forget()
        torch.manual_seed(3)
        value, slope = step(here, labels, name, **moved, **more)
        assert device.record.waits == 1
        assert not device.record.reads
        assert len(device.record.operations) <= 10
        assert sum(device.record.fetched) == 4 * 300 + 8 * 300 + 4 * 300 * len(more)
        assert sum(device.record.sent) == 4 + 4 * 300, "the value and the gradient"
        found = value.cpu(), slope.cpu()
    torch.manual_seed(3)
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
            found = value.detach().cpu(), here.grad.cpu()
        leaf = scores.clone().requires_grad_()
        wanted = loss(leaf, target, "ap", reduction="none")
        wanted.sum().backward()
        torch.testing.assert_close(found, (wanted.detach(), leaf.grad))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_on_every_way(kind: torch.dtype) -> None:
    scores, target = draw((4, 30))
    for options in ({"noise": 0}, {"noise": 0, "sign": -1}):
        wanted = step(scores.to(kind), target, "ap", **options)
        for way in ("dense", "host"):
            with kernels.use(way):
                torch.testing.assert_close(step(scores.to(kind), target, "ap", **options), wanted)
        with Accelerator():
            found = step(scores.to(kind).to(DEVICE), target.to(DEVICE), "ap", **options)
            assert found[1].dtype == kind
            torch.testing.assert_close(tuple(part.cpu() for part in found), wanted)


def test_evaluation_and_warm_up_on_the_device() -> None:
    scores, target = draw((4, 30))
    plain, remote = dl.DirectLoss("ap", check_values=False), dl.DirectLoss("ap", check_values=False)
    leaf = scores.clone().requires_grad_()
    plain(leaf, target).backward()
    with Accelerator() as device:
        here = scores.to(DEVICE).requires_grad_()
        loss = remote(here, target.to(DEVICE))
        loss.backward()
        with torch.no_grad():
            assert float(remote(here, target.to(DEVICE)).cpu()) == pytest.approx(float(loss.detach().cpu()))
        assert device.record.waits == 0
        torch.testing.assert_close(here.grad.cpu(), leaf.grad)


# ---------------------------------------------------------------------------------------------- dense and compiled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "mixed" not in kind])
def test_dense_rankings_are_those_of_the_compiled_kernel(
    kind: str, dtype: torch.dtype, generator: torch.Generator
) -> None:
    for name in CONVEX:
        task = TASKS[name]
        assert isinstance(task, RankingTask)
        scores, target = draw_lists(60, kind, dtype, generator)
        target[0] = torch.where(target[0] == 1, 0, target[0])  # a list that does not count
        epsilon = torch.tensor([draw_epsilon(row, generator) for row in scores], dtype=dtype)
        weights = task.metric.weights(target)
        wanted = kernels.solve_rankings(scores, target, weights, epsilon=epsilon, gradient=True)
        loss, gradient, counted = dense.solve(scores, scores[None], target, weights, epsilon)
        torch.testing.assert_close(loss, wanted.loss)
        assert torch.equal(counted, (wanted.counts > 0).all(-1))
        torch.testing.assert_close(gradient, wanted.gradient, rtol=1e-5, atol=1e-6)
        assert torch.equal(dense.solve(scores, None, target, weights)[0], loss)


@pytest.mark.parametrize(("name", "room"), [("ap", dense), ("f1", _lines)])
def test_pieces_of_the_matrix_make_no_difference(name: str, room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scores, target = draw((3, 40))
    with kernels.use("dense"):
        wanted = step(scores, target, name, noise=0)
        monkeypatch.setattr(room, "CELLS", 3 * 40 * 7)
        assert torch.equal(step(scores, target, name, noise=0)[1], wanted[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["f1", "fbeta@2", "precision", "recall", "mcc", "kappa", "balanced_accuracy", "iou"])
def test_dense_decisions_are_those_of_the_cpu(name: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    """With padding and lists of one class; where scores are tied, also at 0, the output is as good."""
    shares = torch.tensor([[0.1], [0.5], [0.9], [0.0]])
    for tied, sign in product((False, True), (1, -1)):
        scores = torch.randn(4, 30, generator=generator, dtype=dtype)
        scores = (2 * scores).round() / 2 if tied else scores
        target = (torch.rand(4, 30, generator=generator) < shares).long()
        mask = torch.rand(4, 30, generator=generator) < 0.8
        for size in (0.1, 1.0):
            epsilon = size * torch.tensor([0.5, 1.0, 2.0, 5.0], dtype=dtype)
            options: dict[str, Any] = {"epsilon": epsilon, "sign": sign, "noise": 0, "mask": mask, "reduction": "sum"}
            wanted = step(scores, target, name, **options)
            with kernels.use("dense"):
                found = step(scores, target, name, **options)
            torch.testing.assert_close(found[0], wanted[0])
            if not tied:
                torch.testing.assert_close(found[1], wanted[1], rtol=1e-4, atol=1e-6)
            goals = [
                goal(name, scores, torch.where(mask, target, -1), slope, epsilon, sign) for _, slope in (found, wanted)
            ]
            torch.testing.assert_close(*goals, rtol=1e-5, atol=1e-5)


def goal(name: str, scores: Tensor, target: Tensor, slope: Tensor, epsilon: Tensor, sign: int) -> Tensor:
    """``F + sign * epsilon * L`` of the augmented decisions, as the gradient tells them."""
    task, items = dl.tasks.get(name), (target >= 0).sum(-1)
    flips = (sign * slope * (epsilon * items)[:, None]).round()
    output = dl.tasks.Selection((scores > 0) * (target >= 0) + flips, items)
    return task.score(scores, output) + sign * epsilon * task.loss(output, target)


@pytest.mark.parametrize("way", ["dense", "host"])
@pytest.mark.parametrize("name", ["ap", "ndcg", "mrr", "auc", "f1", "iou", "mcc", "accuracy", "graded_ndcg"])
def test_every_way_has_the_gradient_of_the_theorem(name: str, way: str) -> None:
    """On the tiny problems of the contract, in float64, with their ties."""
    case = all_cases()[name]
    for scores, target in problems(case, 20):
        for epsilon in (0.3, 1.0, 4.0):
            for sign in (1, "both"):
                wanted = step(scores, target, name, epsilon=epsilon, sign=sign, noise=0)
                with kernels.use(way):
                    found = step(scores, target, name, epsilon=epsilon, sign=sign, noise=0)
                torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("way", ["dense", "host"])
def test_masks_weights_and_reductions_on_every_way(way: str) -> None:
    scores, target = draw((4, 30))
    mask = torch.rand(4, 30, generator=torch.Generator().manual_seed(1)) < 0.8
    for options in (
        {"mask": mask},
        {"weight": torch.tensor([1.0, 0.0, 2.0, 0.5])},
        {"reduction": "none"},
        {"reduction": "sum", "dim": 0},
        {"epsilon": torch.tensor([0.1, 0.5, 1.0, 2.0])},
        {},
    ):
        for check_values in (True, False):
            chosen: dict[str, Any] = {**options, "noise": 0, "check_values": check_values}
            wanted = step(torch.where(mask, scores, torch.nan) if "mask" in options else scores, target, "ap", **chosen)
            with kernels.use(way):
                torch.testing.assert_close(step(scores, target, "ap", **chosen), wanted)


def test_noise_of_every_way_is_that_of_the_cpu() -> None:
    scores, target = draw((4, 30))
    found = []
    for way in ("compiled", "dense", "host"):
        with kernels.use(way):
            found.append(step(scores, target, "ap", generator=torch.Generator().manual_seed(7)))
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


@pytest.mark.parametrize("way", ["dense", "host"])
def test_wrong_input_raises_the_same_errors(way: str) -> None:
    scores, target = draw((20,))
    with kernels.use(way):
        for wrong, labels, words in (
            (scores.masked_fill(scores > 1, torch.nan), target, "scores must be finite"),
            (scores, target + 1, "target must"),
            (scores, target[:5], "target must have the shape of scores"),
        ):
            with pytest.raises(dl.DirectLossError, match=words):
                dl.direct_loss(wrong, labels, "ap")
