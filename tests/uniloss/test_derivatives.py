"""First derivatives by autograd alone: second ones, and transforms of torch.func, are refused, never wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_f1_score

from directloss import DirectLossError, UniLoss

SCORES = torch.randn(12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = (torch.arange(12) % 3 == 0).long()
METRICS: dict[str, object] = {"by hand": "ap", "found": binary_f1_score}


@pytest.fixture(params=METRICS)
def loss(request: pytest.FixtureRequest) -> Callable[[Tensor], Tensor]:
    loss_fn = UniLoss(METRICS[request.param])  # type: ignore[arg-type]

    def value(scores: Tensor) -> Tensor:
        loss_fn.generator = torch.Generator().manual_seed(5)
        result: Tensor = loss_fn(scores, LABELS)
        return result

    return value


TRANSFORMS: dict[str, Callable[[Callable[[Tensor], Tensor]], object]] = {
    "grad": lambda loss: torch.func.grad(loss)(SCORES),
    "vmap": lambda loss: torch.func.vmap(loss)(torch.stack((SCORES, SCORES))),
    "jacrev": lambda loss: torch.func.jacrev(loss)(SCORES),
}


@pytest.mark.parametrize("way", TRANSFORMS)
def test_transforms_are_refused(loss: Callable[[Tensor], Tensor], way: str) -> None:
    with pytest.raises(DirectLossError, match=r"cannot be transformed by torch.func.*loss.backward\(\)"):
        TRANSFORMS[way](loss)


SECOND: dict[str, Callable[[Callable[[Tensor], Tensor]], object]] = {
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
    (plain,) = torch.autograd.grad(loss(free), free)
    assert torch.equal(slope.detach(), plain)


@pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::DeprecationWarning:torch")  # of the compiler itself
def test_compiled_models_break_their_graph_here() -> None:
    loss_fn = UniLoss("ap")

    def step(scores: Tensor) -> Tensor:
        loss_fn.generator = torch.Generator().manual_seed(1)
        result: Tensor = loss_fn(2 * scores, LABELS) + scores.square().sum()
        return result

    free, other = (SCORES.clone().requires_grad_() for _ in range(2))
    expected = step(free)
    expected.backward()  # type: ignore[no-untyped-call]
    found = torch.compile(step, backend="eager")(other)
    found.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(other.grad, free.grad)
