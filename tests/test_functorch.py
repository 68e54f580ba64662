"""Inside the transforms of torch.func: gradients are those of autograd, and vmap is a loop over problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value, jacrev, jvp, vjp, vmap

import directloss as dl
from directloss import kernels
from directloss.noise import Noise

pytestmark = pytest.mark.filterwarnings("ignore:.*problems have no loss")

SCORES = torch.tensor([[0.3, 0.1, 0.2, -0.4], [1.0, -1.0, 0.5, 0.7], [0.2, 0.9, 0.4, 0.8]])
RANKED = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 1, 0]])
CLASSES = torch.tensor([1, 2, 0])
CALLS: list[tuple[str, Tensor, dict[str, Any]]] = [
    ("ap", RANKED, {}),
    ("ap", RANKED, {"mask": RANKED.roll(1) + RANKED > 0}),
    ("ndcg@2", RANKED, {"weight": torch.tensor([1.0, 0.0, 2.0]), "reduction": "sum"}),
    ("pauc@0.5", RANKED, {"likelihood": 0}),
    ("graded_ndcg", RANKED, {}),
    ("f1", RANKED, {"dim": 0}),
    ("f1", RANKED, {"flips": 0.1}),
    ("mcc", RANKED, {"weight": SCORES.abs()}),
    ("error", RANKED, {}),
    ("accuracy", CLASSES, {}),
    ("topk@2", CLASSES, {}),
]


def noisy(scores: Tensor, target: Tensor, task: Any, **options: Any) -> Tensor:
    """The same draws in every call."""
    torch.manual_seed(1)
    return dl.direct_loss(scores, target, task, **options)


def autograd(call: Callable[[Tensor], Tensor], scores: Tensor) -> tuple[Tensor, Tensor]:
    leaf = scores.clone().requires_grad_()
    value = call(leaf)
    return torch.autograd.grad(value.sum(), leaf)[0], value.detach()


@pytest.mark.parametrize(("name", "target", "options"), CALLS)
def test_gradients_are_those_of_autograd(name: str, target: Tensor, options: dict[str, Any]) -> None:
    def call(scores: Tensor, **more: Any) -> Tensor:
        return noisy(scores, target, name, **{**options, **more})

    torch.testing.assert_close(grad_and_value(call)(SCORES), autograd(call, SCORES))
    # One loss per problem: each row of the Jacobian is the gradient of one of them.
    each, _ = autograd(lambda scores: call(scores, reduction="none"), SCORES)
    rows = jacrev(lambda scores: call(scores, reduction="none"))(SCORES)
    torch.testing.assert_close(rows.reshape(-1, *SCORES.shape).sum(0), each)


def test_through_a_network() -> None:
    torch.manual_seed(0)
    model, loss_fn = nn.Linear(4, 1), dl.DirectLoss("ap")
    inputs, labels = torch.randn(20, 4), torch.randint(2, (20,))
    values = {name: value.detach() for name, value in model.named_parameters()}

    def objective(parameters: dict[str, Tensor]) -> Tensor:
        loss: Tensor = loss_fn(functional_call(model, parameters, (inputs,)).squeeze(-1), labels)
        return loss

    torch.manual_seed(0)
    found = grad(objective)(values)
    torch.manual_seed(0)
    loss_fn(model(inputs).squeeze(-1), labels).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)


def test_nothing_of_a_transform_stays_behind() -> None:
    """Tables are kept from call to call; none of them may belong to a transform that is over."""
    scores, target = torch.randn(777), torch.randint(2, (777,))
    inside = grad_and_value(lambda s: noisy(s, target, "ndcg"))(scores)
    torch.testing.assert_close(inside, autograd(lambda s: noisy(s, target, "ndcg"), scores))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own, when first used
@pytest.mark.parametrize("name", ["ap", "f1", "accuracy"])
def test_forward_mode_and_nested_transforms(name: str) -> None:
    def call(scores: Tensor) -> Tensor:
        return noisy(scores, CLASSES if name == "accuracy" else RANKED, name)

    slope, value = autograd(call, SCORES)
    direction = torch.ones_like(SCORES).tril()
    torch.testing.assert_close(jvp(call, (SCORES,), (direction,)), (value, (slope * direction).sum()))
    torch.testing.assert_close(vjp(call, SCORES)[1](torch.tensor(3.0))[0], 3 * slope)
    assert not grad(lambda s: grad(call)(s).square().sum())(SCORES).any(), "the gradient is held fixed"


@pytest.mark.parametrize("name", ["ap", "ndcg@2", "auc", "graded_ndcg", "f1", "mcc", "error", "accuracy"])
def test_vmap_is_a_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same noise for all problems, which vmap cannot be told by a seed."""
    target = CLASSES if name == "accuracy" else RANKED
    uniform = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(Noise, "uniform", lambda *_: uniform)

    def call(scores: Tensor, target: Tensor) -> Tensor:
        return dl.direct_loss(scores, target, name, reduction="sum")

    with kernels.use("tensor"):
        wanted = [autograd(lambda s, t=t: call(s, t), scores) for scores, t in zip(SCORES, target, strict=True)]
    found = vmap(grad_and_value(call))(SCORES, target)
    torch.testing.assert_close(found, tuple(torch.stack(parts) for parts in zip(*wanted, strict=True)))
    torch.testing.assert_close(vmap(call)(SCORES, target), found[1])
    # One argument alone, another dimension, two loops.
    torch.testing.assert_close(
        vmap(lambda scores: call(scores, target[0]), in_dims=1)(SCORES.T),
        torch.stack([call(scores, target[0]) for scores in SCORES]),
    )
    torch.testing.assert_close(vmap(vmap(call))(SCORES[None], target[None])[0], found[1])


def test_each_problem_of_vmap_has_noise_of_its_own() -> None:
    slopes = vmap(grad(dl.DirectLoss("ap", samples=1)), randomness="different")(
        SCORES[:1].expand(8, -1), RANKED[:1].expand(8, -1)
    )
    assert len(slopes.unique(dim=0)) > 1


def test_padding_may_hold_anything() -> None:
    real = torch.arange(4) < 3
    found = grad(lambda s: noisy(s, RANKED, "auc", mask=real.expand(3, 4)))(torch.where(real, SCORES, torch.nan))
    assert found.isfinite().all()
    assert found.any()


def test_wrong_scores_are_refused_as_elsewhere() -> None:
    with pytest.raises(dl.DirectLossError, match=r"scores must be a torch\.Tensor, but it is a list"):
        grad(lambda s: dl.direct_loss(s.tolist(), RANKED, "ap"))(SCORES)
    with pytest.raises(dl.DirectLossError, match="target must have the shape of scores"):
        grad(lambda s: dl.direct_loss(s, RANKED[:2], "ap"))(SCORES)


HOSTED: list[Callable[[Tensor], Tensor]] = [
    lambda s: dl.direct_loss(s, RANKED, "ap", epsilon=1.0),
    lambda s: dl.direct_loss(s, RANKED, "f1", sign=1),
    lambda s: dl.DirectLoss("ap", sign="both")(s, RANKED),
    lambda s: dl.direct_loss(s, CLASSES, "chain"),
    lambda s: dl.hinge_loss(s, RANKED, "ap"),
    lambda s: dl.PerceptronLoss("ap")(s, RANKED),
]


@pytest.mark.parametrize("call", HOSTED)
def test_what_runs_on_the_host_says_so(call: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(dl.DirectLossError, match=r"which torch\.func's transforms cannot see.*loss\.backward\(\)"):
        grad(call)(SCORES)
    with pytest.raises(dl.DirectLossError, match=r"which torch\.func's transforms cannot see"):
        vmap(call, randomness="different")(SCORES.expand(2, 3, 4))
    assert autograd(call, SCORES)[0].isfinite().all()


def test_costs_and_functions_of_counts_inside_of_vmap() -> None:
    draw = torch.Generator().manual_seed(0)
    scores, classes = torch.randn(4, 3, generator=draw), torch.tensor([0, 1, 2, 0])
    costs = dl.tasks.CostMatrix(torch.tensor([[0.0, 1, 2], [3, 0, 1], [1, 5, 0]]))
    each = torch.vmap(torch.func.grad(lambda s, c: dl.direct_loss(s, c, costs)), randomness="different")
    free = scores.clone().requires_grad_()
    dl.direct_loss(free, classes, costs, reduction="sum").backward()
    torch.testing.assert_close(each(scores, classes), free.grad)

    counts = dl.tasks.CountMetric(lambda tp, fp, fn, tn: (tn + 1) / (tn + fp + 1))
    one = torch.vmap(torch.func.grad(lambda s, t: dl.direct_loss(s, t, counts)), randomness="different")
    assert one(scores, torch.tensor([[1, 0, 0]] * 4)).isfinite().all()
