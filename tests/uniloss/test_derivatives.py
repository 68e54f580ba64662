"""Transforms of torch.func give the same first derivatives; second ones are refused, never wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_f1_score

from directloss import Anchoring, DirectLossError, UniLoss

SCORES = torch.randn(12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = (torch.arange(12) % 3 == 0).long()
WAYS: dict[str, tuple[object, dict[str, object]]] = {
    "compiled": ("ap", {}),
    "general": ("ap", {"fraction": 0.5}),
    "bits": ("ap", {"anchors": Anchoring(3, 3, 3, space="bits")}),
    "found": (binary_f1_score, {}),
    "spline": ("f1", {"interpolation": "distance-spline"}),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*contradict themselves"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*is deprecated"),  # used by torch.func.hessian itself
]


@pytest.fixture(params=WAYS)
def loss(request: pytest.FixtureRequest) -> Callable[[Tensor], Tensor]:
    metric, options = WAYS[request.param]
    loss_fn = UniLoss(metric, **options)  # type: ignore[arg-type]

    def value(scores: Tensor) -> Tensor:
        loss_fn.generator = torch.Generator().manual_seed(5)
        result: Tensor = loss_fn(scores, LABELS)
        return result

    return value


def test_func_grad_is_backward(loss: Callable[[Tensor], Tensor]) -> None:
    free = SCORES.clone().requires_grad_()
    loss(free).backward()  # type: ignore[no-untyped-call]
    assert free.grad is not None
    slope, value = torch.func.grad_and_value(loss)(SCORES)
    assert torch.equal(slope, free.grad)
    assert torch.equal(value, loss(SCORES))
    assert bool(slope.any())


def test_problems_of_a_batch_inside_a_transform() -> None:
    loss_fn = UniLoss("ap", reduction="none", generator=torch.Generator().manual_seed(1))
    both = torch.stack((SCORES, -SCORES))
    rows = torch.func.jacrev(lambda s: loss_fn(s, LABELS.expand(2, 12)))(both)
    assert rows.shape == (2, 2, 12)
    assert not bool(rows[0, 1].any())
    assert bool(rows[0, 0].any())


SECOND: dict[str, Callable[[Callable[[Tensor], Tensor]], object]] = {
    "hessian": lambda loss: torch.func.hessian(loss)(SCORES),
    "grad of grad": lambda loss: torch.func.grad(lambda s: torch.func.grad(loss)(s).sum())(SCORES),
    "create_graph": lambda loss: _twice(loss, SCORES.clone().requires_grad_()),
    "gradient penalty": lambda loss: _penalty(loss, SCORES.clone().requires_grad_()),
}


def _twice(loss: Callable[[Tensor], Tensor], scores: Tensor) -> object:
    (slope,) = torch.autograd.grad(loss(scores), scores, create_graph=True)
    return torch.autograd.grad(slope.sum(), scores)


def _penalty(loss: Callable[[Tensor], Tensor], scores: Tensor) -> None:
    (slope,) = torch.autograd.grad(3 * loss(2 * scores), scores, create_graph=True)
    (scores.sum() + slope.square().sum()).backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("way", SECOND)
def test_second_derivatives_are_refused(loss: Callable[[Tensor], Tensor], way: str) -> None:
    with pytest.raises(DirectLossError, match="UniLoss has first derivatives only"):
        SECOND[way](loss)


def test_keeping_the_graph_alone_is_no_mistake(loss: Callable[[Tensor], Tensor]) -> None:
    free = SCORES.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(free), free, create_graph=True)
    assert torch.equal(slope.detach(), torch.func.grad(loss)(SCORES))


def test_vmap_is_a_loop(loss: Callable[[Tensor], Tensor]) -> None:
    both = torch.stack((SCORES, SCORES))
    assert torch.equal(torch.func.vmap(loss)(both), loss(SCORES).expand(2))
    slopes = torch.func.vmap(torch.func.grad(loss))(both)
    assert torch.equal(slopes[0], torch.func.grad(loss)(SCORES))
    assert bool(slopes[1].any())  # with anchors of its own
