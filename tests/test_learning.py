"""Every registered name learns with all settings left alone, compared with cross-entropy on the same steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import directloss as dl

STEPS = 150
STRUCTURED = {"assignment", "chain"}


@lru_cache
def digits() -> tuple[Tensor, Tensor]:
    data = load_digits()
    return torch.from_numpy(data.data).float() / 16, torch.from_numpy(data.target).long()


def problem(name: str, scores: Tensor, digit: Tensor) -> tuple[Tensor, Tensor]:
    """The scores ``(n, 10)`` of a network and the labels, as the task takes them."""
    task = dl.tasks.get(name)
    if name in STRUCTURED:  # ten images at a time, each of another digit
        return scores.reshape(-1, 10, 10), digit.reshape(-1, 10)
    if task.target_dims < task.event_dims:
        return scores, digit
    return scores[:, 8], (digit == 8).long()


def train(name: str, loss_fn: Callable[[Tensor, Tensor], Tensor]) -> nn.Module:
    torch.manual_seed(0)
    inputs, labels = digits()
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    by_digit = [(labels == digit).nonzero()[:, 0] for digit in range(10)]
    for _ in range(STEPS):
        if name in STRUCTURED:
            rows = torch.stack([some[torch.randint(len(some), (20,))] for some in by_digit], 1).flatten()
        else:
            rows = torch.randint(len(labels), (256,))
        loss = loss_fn(*problem(name, network(inputs[rows]), labels[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    if scores.shape == target.shape:
        return nn.functional.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))
    return nn.functional.cross_entropy(scores.flatten(0, -2), target.flatten())


@lru_cache
def trained_by_cross_entropy(name: str) -> nn.Module:
    return train(name, cross_entropy)


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
    return task_loss(
        name, trained_by_cross_entropy("accuracy" if task.target_dims < task.event_dims or name in STRUCTURED else "ap")
    )


def chance(name: str) -> float:
    """The loss of a network that says the same of everything: what is not learned is a share of it."""
    return task_loss(name, lambda images: torch.zeros(len(images), 10))


@pytest.mark.filterwarnings("ignore:Every decision is yes")  # the best that recall can do
@pytest.mark.parametrize("name", [*dl.tasks.names(), "precision@40", "recall@100", "ndcg@10"])
def test_the_default_learns(name: str) -> None:
    assert task_loss(name, train(name, dl.DirectLoss(name))) <= 2 * reference(name) + 0.05 * chance(name)


@pytest.mark.parametrize("name", ["ap", "ndcg@10", "auc", "f1", "mcc", "balanced_accuracy", "accuracy", "chain"])
def test_the_metric_alone_learns_from_scratch(name: str) -> None:
    assert task_loss(name, train(name, dl.DirectLoss(name, likelihood=0))) <= 2 * reference(name) + 0.1 * chance(name)


@pytest.mark.parametrize("name", ["ap", "f1"])
def test_wrong_labels_do_less_harm_than_to_cross_entropy(name: str) -> None:
    """A third of the labels is wrong, and for decisions this is known."""
    inputs, labels = digits()
    truth = (labels == 8).long()
    wrong = torch.rand(len(truth), generator=torch.Generator().manual_seed(1)) < 0.3
    given, losses = torch.where(wrong, 1 - truth, truth), []
    for loss_fn in (dl.DirectLoss(name, flips=0.3 if name == "f1" else 0.0), cross_entropy):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
        optimizer = torch.optim.Adam(network.parameters(), 0.01)
        for _ in range(STEPS):
            rows = torch.randint(1000, (256,))
            loss = loss_fn(network(inputs[rows]), given[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            losses.append(float(dl.direct_loss(network(inputs[1000:]), truth[1000:], name)))
    assert losses[0] < losses[1]
