"""Every registered name learns with all settings left alone, compared with cross-entropy on the same steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import directloss as dl

STEPS = 400
STRUCTURED = {"assignment", "chain"}


@lru_cache
def digits() -> tuple[Tensor, Tensor]:
    data = load_digits()
    return torch.from_numpy(data.data).float() / 16, torch.from_numpy(data.target).long()


def problem(name: str, scores: Tensor, digit: Tensor) -> tuple[Tensor, Tensor]:
    """The scores ``(n, 10)`` of a network and the labels, as the task takes them."""
    task = dl.tasks.get(name)
    if name == "assignment":  # ten images at a time, each of another digit
        return scores.reshape(-1, 10, 10), digit.reshape(-1, 10)
    if name == "chain":
        return scores.reshape(-1, 10, 10), digit.reshape(-1, 10)
    if task.target_dims < task.event_dims:
        return scores, digit
    return scores[:, 8], (digit == 8).long()


def train(name: str, loss_fn: nn.Module | None) -> nn.Module:
    """A network after so many steps; without a loss, by the likelihood."""
    torch.manual_seed(0)
    inputs, labels = digits()
    task = dl.tasks.get(name)
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(network.parameters(), 0.005)
    by_digit = [(labels == digit).nonzero()[:, 0] for digit in range(10)]
    for _ in range(STEPS):
        if name in STRUCTURED:
            rows = torch.stack([some[torch.randint(len(some), (20,))] for some in by_digit], 1).flatten()
        else:
            rows = torch.randint(len(labels), (256,))
        scores, target = problem(name, network(inputs[rows]), labels[rows])
        if loss_fn is None:
            likelihood = task.likelihood(scores, target)
            assert likelihood is not None
            loss = likelihood.mean()
        else:
            loss = loss_fn(scores, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


@lru_cache
def trained_by_likelihood(kind: str) -> nn.Module:
    return train(kind, None)


def task_loss(name: str, network: Callable[[Tensor], Tensor]) -> float:
    """Of all images."""
    inputs, labels = digits()
    by_digit = [(labels == digit).nonzero()[:170, 0] for digit in range(10)]
    rows = torch.stack(by_digit, 1).flatten() if name in STRUCTURED else torch.arange(len(labels))
    with torch.no_grad():
        return float(dl.direct_loss(*problem(name, network(inputs[rows]), labels[rows]), name))


def reference(name: str) -> float:
    """The loss of cross-entropy: the same network for all metrics of the same kind of answer."""
    task = dl.tasks.get(name)
    kind = name if name in STRUCTURED else "accuracy" if task.target_dims < task.event_dims else "ap"
    return task_loss(name, trained_by_likelihood(kind))


def chance(name: str) -> float:
    """The loss of a network that says the same of everything: what is not learned is a share of it."""
    return task_loss(name, lambda images: torch.zeros(len(images), 10))


@pytest.mark.filterwarnings("ignore:Every decision is yes")  # the best that recall can do
@pytest.mark.parametrize("name", dl.tasks.names())
def test_the_default_learns(name: str) -> None:
    assert task_loss(name, train(name, dl.DirectLoss(name))) <= 2 * reference(name) + 0.05 * chance(name)


@pytest.mark.parametrize("name", ["ap", "ndcg@10", "auc", "f1", "mcc", "balanced_accuracy", "accuracy", "chain"])
def test_the_metric_alone_learns_from_scratch(name: str) -> None:
    assert task_loss(name, train(name, dl.DirectLoss(name, warm_up=0))) <= 2 * reference(name) + 0.1 * chance(name)


def test_the_warm_up_is_counted_in_training_alone_and_saved() -> None:
    loss_fn, scores, target = (
        dl.DirectLoss("ap", warm_up=3),
        torch.randn(20, requires_grad=True),
        torch.arange(20) % 3 == 0,
    )
    loss_fn.eval()(scores, target)
    with torch.no_grad():
        loss_fn.train()(scores, target)
    assert loss_fn.steps == 0
    loss_fn(scores, target)
    other = dl.DirectLoss("ap", warm_up=3)
    other.load_state_dict(loss_fn.state_dict())
    assert other.steps == loss_fn.steps == 1


def test_the_warm_up_has_the_value_of_the_metric_and_the_gradient_of_the_likelihood() -> None:
    scores, target = torch.randn(20), (torch.arange(20) % 3 == 0).long()
    leaf = scores.clone().requires_grad_()
    loss_fn = dl.DirectLoss("ap", warm_up=1)
    warm = loss_fn(leaf, target)
    assert warm.item() == dl.direct_loss(scores, target, "ap").item()
    (found,) = torch.autograd.grad(warm, leaf)
    (wanted,) = torch.autograd.grad(nn.functional.binary_cross_entropy_with_logits(leaf, target.float()), leaf)
    torch.testing.assert_close(found, wanted)
    torch.manual_seed(5)
    (after,) = torch.autograd.grad(loss_fn(leaf, target), leaf)
    torch.manual_seed(5)
    (direct,) = torch.autograd.grad(dl.direct_loss(leaf, target, "ap"), leaf)
    assert torch.equal(after, direct)


def test_checkpoints_from_before_the_warm_up_go_on_without_one() -> None:
    loss_fn = dl.DirectLoss("ap")
    loss_fn.load_state_dict({})
    assert loss_fn.steps == 300


@pytest.mark.parametrize("warm_up", [-1, 2.5, True, "long"])
def test_a_wrong_warm_up_is_refused(warm_up: object) -> None:
    with pytest.raises(dl.DirectLossError, match="warm_up must be a whole number of at least 0"):
        dl.DirectLoss("ap", warm_up=warm_up)  # type: ignore[arg-type]
