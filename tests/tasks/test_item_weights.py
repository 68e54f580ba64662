"""Weights of items: ties, weights of problems beside them, and Theorem 1, which refuses them.

tests/test_moves.py has weights under moves.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import directloss as dl


def lists(b: int, n: int, seed: int, ties: bool) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(b, n, generator=generator, dtype=torch.float64)
    target = torch.randint(2, (b, n), generator=generator)
    target[:, 0], target[:, 1] = 1, 0
    return scores.mul(2).round() if ties else scores, target, torch.rand(b, n, generator=generator)


@pytest.mark.parametrize("ties", [False, True])
def test_equal_weights_are_no_weights(ties: bool) -> None:
    """Also where each class has a weight of its own: only products of the two matter."""
    scores, target, _ = lists(5, 60, 0, ties)
    wanted = dl.direct_loss(scores, target, "auc", reduction="none")
    for weight in (torch.ones(5, 60), torch.full((5, 60), 0.37), torch.where(target == 1, 7.0, 0.1)):
        found = dl.direct_loss(scores, target, "auc", weight=weight, reduction="none")
        torch.testing.assert_close(found, wanted)


def test_ties_do_not_depend_on_the_order_of_the_input() -> None:
    scores, target, weight = lists(1, 40, 5, ties=True)
    first = dl.direct_loss(scores[0], target[0], "auc", weight=weight[0])
    for seed in range(5):
        order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
        again = dl.direct_loss(scores[0, order], target[0, order], "auc", weight=weight[0, order])
        torch.testing.assert_close(again, first)


def test_many_tied_items_are_half_right() -> None:
    """And few of them less than that: the rule is cautious, as without weights."""
    generator = torch.Generator().manual_seed(0)
    for n, tolerance in ((20, 0.2), (2000, 2e-3)):
        target, weight = torch.randint(2, (n,), generator=generator), torch.rand(n, generator=generator)
        loss = dl.direct_loss(torch.zeros(n), target, "auc", weight=weight).item()
        assert 0.5 <= loss <= 0.5 + tolerance


def test_weights_of_problems_stay_what_they_were() -> None:
    """Square batches included: (n,) is one weight per problem, (n, n) one per item."""
    scores, target, weight = lists(8, 8, 8, ties=False)
    each = dl.direct_loss(scores, target, "auc", reduction="none")
    torch.testing.assert_close(
        dl.direct_loss(scores, target, "auc", weight=weight[0], reduction="none"), each * weight[0]
    )
    per_item = dl.direct_loss(scores, target, "auc", weight=weight, reduction="none")
    assert per_item.shape == (8,)
    assert not torch.equal(per_item, each)


NAMES = ["ap", "auc", "ndcg", "mrr", "pauc@0.5", "precision@2", "f1", "iou", "mcc", "balanced_accuracy", "graded_ndcg"]


@pytest.mark.parametrize("loss", [dl.direct_loss, dl.hinge_loss, dl.perceptron_loss])
@pytest.mark.parametrize("name", NAMES)
def test_theorem_1_says_why_not(name: str, loss: Callable[..., Tensor]) -> None:
    scores, target, weight = lists(2, 4, 9, ties=False)
    options = {"epsilon": 1.0} if loss is dl.direct_loss else {}
    with pytest.raises(dl.DirectLossError) as caught:
        loss(scores, target, name, weight=weight, **options)
    text = str(caught.value)
    assert text.startswith("weight must hold one weight per problem of ")
    assert "shape (2,), but it is one per item, of shape (2, 4). Items cannot have weights here: " in text
    assert dl.Task.defaults.no_item_weights not in text, "the reason of the task itself"


def test_structured_tasks_say_why_not() -> None:
    labels = torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(dl.DirectLossError, match="put the weights into cost"):
        dl.direct_loss(torch.randn(2, 3, 4), labels, "chain", weight=torch.ones(2, 3))
    with pytest.raises(dl.DirectLossError, match='for loss="regret", into the costs of the target'):
        dl.direct_loss(torch.randn(2, 3), torch.rand(2, 3), dl.tasks.Choose(1), weight=torch.ones(2, 3))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.tensor([1.0, -1.0, 1.0]), "weight must be finite and not negative, but it is as low as -1.0"),
        (torch.tensor([1.0, torch.inf, 1.0]), "weight must be finite and not negative"),
        (torch.ones(2), r"weight must hold one weight per problem, shape \(\), or per item.*but it is of shape \(2,\)"),
    ],
)
def test_wrong_weights(weight: Tensor, message: str) -> None:
    with pytest.raises(dl.DirectLossError, match=message):
        dl.direct_loss(torch.zeros(3), torch.tensor([1, 0, 0]), "auc", weight=weight)
