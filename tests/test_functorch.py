"""Inside the transforms of torch.func: gradients are those of autograd, and vmap is a loop over problems."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value, jacrev, jvp, vjp, vmap

import directloss as dl

SCORES = torch.tensor([[0.3, 0.1, 0.2, -0.4], [1.0, -1.0, 0.5, 0.7], [0.2, 0.9, 0.4, 0.8]])
RANKED = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 1, 0]])
CLASSES = torch.tensor([1, 2, 0])


def noisy(scores: Tensor, target: Tensor, task: Any, **options: Any) -> Tensor:
    """The same draws in every call."""
    return dl.direct_loss(scores, target, task, generator=torch.Generator().manual_seed(1), **options)


def theorem(scores: Tensor, target: Tensor, task: Any, **options: Any) -> Tensor:
    return dl.direct_loss(scores, target, task, noise=0, **options)


LOSSES = [noisy, theorem, dl.hinge_loss, dl.perceptron_loss]
CALLS: list[tuple[str, Tensor, dict[str, Any]]] = [
    ("ap", RANKED, {}),
    ("ap", RANKED, {"mask": RANKED.roll(1) + RANKED > 0}),
    ("ndcg@2", RANKED, {"weight": torch.tensor([1.0, 0.0, 2.0]), "reduction": "sum"}),
    ("auc", RANKED, {"weight": SCORES.abs()}),
    ("f1", RANKED, {"dim": 0}),
    ("graded_ndcg", RANKED, {}),
    ("error", RANKED, {}),
    ("accuracy", CLASSES, {}),
    ("chain", CLASSES, {}),
]


def autograd(call: Callable[[Tensor], Tensor], scores: Tensor) -> tuple[Tensor, Tensor]:
    leaf = scores.clone().requires_grad_()
    value = call(leaf)
    return torch.autograd.grad(value.sum(), leaf)[0], value.detach()


@pytest.mark.filterwarnings("ignore:.*problems have no loss")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("name", "target", "options"), CALLS)
def test_gradients_are_those_of_autograd(
    name: str, target: Tensor, options: dict[str, Any], loss: Callable[..., Tensor]
) -> None:
    def call(scores: Tensor, target: Tensor = target, **more: Any) -> Tensor:
        return loss(scores, target, name, **{**options, **more})

    torch.testing.assert_close(grad_and_value(call)(SCORES, target), autograd(call, SCORES))
    # One loss per problem: each row of the Jacobian is the gradient of one of them.
    each, _ = autograd(lambda scores: call(scores, reduction="none"), SCORES)
    rows = jacrev(lambda scores: call(scores, reduction="none"))(SCORES)
    torch.testing.assert_close(rows.reshape(-1, *SCORES.shape).sum(0), each)


def test_through_a_network() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    inputs, labels = torch.randn(20, 4), torch.randint(2, (20,))
    values = {name: value.detach() for name, value in model.named_parameters()}
    loss_fn, twin = (dl.DirectLoss("ap", epsilon=torch.tensor(0.5), warm_up=1) for _ in range(2))

    def objective(parameters: dict[str, Tensor]) -> Tensor:
        return loss_fn(functional_call(model, parameters, (inputs,)).squeeze(-1), labels)

    for _ in range(2):  # the steps of the warm-up are counted inside of a transform, too
        torch.manual_seed(0)
        found = grad(objective)(values)
        torch.manual_seed(0)
        model.zero_grad()
        twin(model(inputs).squeeze(-1), labels).backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(found[name], parameter.grad)


def test_nothing_of_a_transform_stays_behind() -> None:
    """Tables are kept from call to call; none of them may belong to a transform that is over."""
    scores, target = torch.randn(777), torch.randint(2, (777,))
    inside, value = grad_and_value(lambda s: noisy(s, target, "ndcg"))(scores)
    torch.testing.assert_close((inside, value), autograd(lambda s: noisy(s, target, "ndcg"), scores))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own, when first used
def test_forward_mode_and_nested_transforms() -> None:
    def call(scores: Tensor) -> Tensor:
        return theorem(scores, RANKED, "ap", epsilon=1.0)

    slope, value = autograd(call, SCORES)
    direction = torch.ones_like(SCORES).tril()
    found = jvp(call, (SCORES,), (direction,))
    torch.testing.assert_close(found, (value, (slope * direction).sum()))
    torch.testing.assert_close(vjp(call, SCORES)[1](torch.tensor(3.0))[0], 3 * slope)
    assert not grad(lambda s: grad(call)(s).square().sum())(SCORES).any(), "the gradient is constant almost everywhere"


@pytest.mark.parametrize("loss", [theorem, dl.hinge_loss, dl.perceptron_loss])
@pytest.mark.parametrize("name", ["ap", "f1", "error"])
def test_vmap_is_a_loop(name: str, loss: Callable[..., Tensor]) -> None:
    def call(scores: Tensor, target: Tensor) -> Tensor:
        return loss(scores, target, name)

    wanted = [autograd(partial(call, target=target), scores) for scores, target in zip(SCORES, RANKED, strict=True)]
    found = vmap(grad_and_value(call))(SCORES, RANKED)
    torch.testing.assert_close(found, tuple(torch.stack(parts) for parts in zip(*wanted, strict=True)))
    torch.testing.assert_close(vmap(call)(SCORES, RANKED), found[1])
    # One argument alone, another dimension, two loops: the wrong labels are the same for all.
    torch.testing.assert_close(
        vmap(lambda scores: call(scores, RANKED[0]), in_dims=1)(SCORES.T),
        torch.stack([call(scores, RANKED[0]) for scores in SCORES]),
    )
    torch.testing.assert_close(vmap(vmap(call))(SCORES[None], RANKED[None])[0], found[1])


def test_vmap_of_modules() -> None:
    direct = dl.DirectLoss("ap", noise=0)
    torch.testing.assert_close(vmap(direct)(SCORES, RANKED), torch.stack([*map(direct, SCORES, RANKED)]))


def test_each_problem_of_vmap_has_noise_of_its_own() -> None:
    slopes = vmap(grad(dl.DirectLoss("ap", warm_up=0, samples=1)))(SCORES[:1].expand(8, -1), RANKED[:1].expand(8, -1))
    assert len(slopes.unique(dim=0)) > 1


def test_padding_may_hold_anything() -> None:
    real = torch.arange(4) < 3
    found = grad(lambda s: theorem(s, RANKED, "auc", mask=real.expand(3, 4)))(torch.where(real, SCORES, torch.nan))
    assert found.isfinite().all()
    assert found.any()


def test_wrong_scores_are_refused_as_elsewhere() -> None:
    with pytest.raises(dl.DirectLossError, match=r"scores must be a torch\.Tensor, but it is a list"):
        grad(lambda s: dl.direct_loss(s.tolist(), RANKED, "ap"))(SCORES)


@pytest.mark.parametrize("loss", LOSSES)
def test_what_a_task_has_learned_is_not_differentiated_in_silence(loss: Callable[..., Tensor]) -> None:
    def call(transitions: Tensor) -> Tensor:
        return loss(SCORES, CLASSES, dl.tasks.Chain(transitions))

    with pytest.raises(dl.DirectLossError, match=r"task must hold ordinary tensors.*transitions.*loss\.backward\(\)"):
        grad(call)(torch.eye(4))
