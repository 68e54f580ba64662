"""Method names mean the losses that they say."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss.lab.methods import PAPER_METHODS, parse_method, parse_methods

TARGET = torch.tensor([1, 0, 0, 1, 0, 0, 0, 1])


def gradient(loss: object, scores: Tensor) -> Tensor:
    leaf = scores.clone().requires_grad_()
    loss(leaf).backward()  # type: ignore[operator]
    assert leaf.grad is not None
    return leaf.grad


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("pos-ap", lambda s: dl.direct_loss(s, TARGET, "ap", epsilon=0.5, sign=+1)),
        ("neg-ap", lambda s: dl.direct_loss(s, TARGET, "ap", epsilon=0.5, sign=-1)),
        ("pos-01", lambda s: dl.direct_loss(s, TARGET, "error", epsilon=0.5, sign=+1)),
        ("neg-01", lambda s: dl.direct_loss(s, TARGET, "error", epsilon=0.5, sign=-1)),
        ("hinge-ap", lambda s: dl.hinge_loss(s, TARGET, "ap", epsilon=0.5)),
        ("hinge-01", lambda s: dl.hinge_loss(s, TARGET, "error", epsilon=0.5)),
        ("per-ap", lambda s: dl.perceptron_loss(s, TARGET, "ap")),
        ("per-01", lambda s: dl.perceptron_loss(s, TARGET, "error")),
        ("pos-ndcg@3", lambda s: dl.direct_loss(s, TARGET, "ndcg@3", epsilon=0.5)),
        ("neg-f1", lambda s: dl.direct_loss(s, TARGET, "f1", epsilon=0.5, sign=-1)),
        ("hinge-auc", lambda s: dl.hinge_loss(s, TARGET, "auc", epsilon=0.5)),
    ],
)
def test_methods_are_the_losses_of_the_library(name: str, loss: object, generator: torch.Generator) -> None:
    scores = torch.randn(8, generator=generator) * 0.5
    method = parse_method(name)
    ours = gradient(lambda s: method.loss(s, TARGET, {"epsilon": 0.5}), scores)
    torch.testing.assert_close(ours, gradient(loss, scores), rtol=0, atol=0)


def test_cross_entropy_by_its_definition(generator: torch.Generator) -> None:
    scores = torch.randn(8, generator=generator, dtype=torch.float64)
    chance = torch.sigmoid(scores)
    expected = -(TARGET * chance.log() + (1 - TARGET) * (1 - chance).log()).mean()
    torch.testing.assert_close(parse_method("x-ent").loss(scores, TARGET, {}), expected)


def test_epsilon_defaults() -> None:
    scores = torch.linspace(1, -1, 8)
    for name, epsilon in (("pos-ap", "auto"), ("hinge-ap", 1.0)):
        method = parse_method(name)
        with_default = gradient(lambda s, m=method: m.loss(s, TARGET, {}), scores)
        given = gradient(lambda s, m=method, e=epsilon: m.loss(s, TARGET, {"epsilon": e}), scores)
        torch.testing.assert_close(with_default, given)


def test_hyper_parameters_and_families() -> None:
    with_epsilon = {name for name in PAPER_METHODS if "epsilon" in parse_method(name).hyper_parameters}
    assert with_epsilon == {"pos-ap", "neg-ap", "pos-01", "neg-01", "hinge-ap", "hinge-01"}
    assert [parse_method(name).family for name in ("neg-01", "hinge-f1", "per-ap", "x-ent")] == [
        "direct",
        "hinge",
        "plain",
        "plain",
    ]


def test_lists_of_methods() -> None:
    assert parse_methods("Pos-AP, x-ent") == ("pos-ap", "x-ent")
    assert parse_methods("all") == PAPER_METHODS
    assert parse_methods("") == ()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "method must be x-ent, or"),
        ("ap", "method must be x-ent, or"),
        ("pos-", "method must be x-ent, or"),
        ("xent", "Did you mean 'x-ent'"),
        ("hing-ap", "Did you mean 'hinge-ap'"),
        ("pos-app", "task must be a known name"),
        ("pos-ndcg@", "task must have a number after '@'"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        parse_method(name)
    assert message in str(caught.value)
