"""Sequence labelling. The contract is checked in test_contract.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import directloss as dl
from directloss.tasks import Chain


def theorem(scores: Tensor, target: Tensor, task: Any, **options: Any) -> Tensor:
    """The paper's theorem on the scores as they are: its gradients can be compared."""
    return dl.direct_loss(scores, target, task, **{"epsilon": "auto", **options})


LOSSES = [theorem, dl.hinge_loss, dl.perceptron_loss]


def viterbi(scores: list[list[float]], transitions: list[list[float]]) -> float:
    """The value of the best labelling, position by position, in plain Python."""
    labels = range(len(transitions))
    best = scores[0]
    for row in scores[1:]:
        best = [max(best[a] + transitions[a][b] for a in labels) + row[b] for b in labels]
    return max(best)


def test_long_chains_reach_the_value_of_the_plain_recursion() -> None:
    scores = torch.randn(3, 40, 6, dtype=torch.float64)
    transitions = torch.randn(6, 6, dtype=torch.float64)
    task = Chain(transitions)
    value = task.score(scores, task.predict(scores))
    wanted = [viterbi(one.tolist(), transitions.tolist()) / 40 for one in scores]
    torch.testing.assert_close(value, torch.tensor(wanted, dtype=torch.float64))


def test_without_transitions_it_is_a_mean_of_classifications() -> None:
    scores, target = torch.randn(5, 7, 4, requires_grad=True), torch.randint(4, (5, 7))
    labels = scores.detach().argmax(-1)
    wanted = (labels != target).float().mean(-1)
    torch.testing.assert_close(dl.direct_loss(scores, target, "chain", reduction="none").detach(), wanted)
    hinge = dl.hinge_loss(scores, target, "chain", reduction="none")
    margin = scores + 1 - nn.functional.one_hot(target, 4)
    separate = margin.amax(-1) - scores.gather(-1, target[..., None])[..., 0]
    torch.testing.assert_close(hinge, separate.mean(-1))


@pytest.mark.parametrize("transitions", [None, torch.randn(3, 3, generator=torch.Generator().manual_seed(5))])
@pytest.mark.parametrize("loss", LOSSES)
def test_padding_is_removal(loss: Callable[..., Tensor], transitions: Tensor | None) -> None:
    """Also of its transitions: what stands behind the end must not pull at the last real label."""
    task = Chain(transitions)
    scores, target = torch.randn(6, 5, 3), torch.randint(3, (6, 5))
    lengths = torch.tensor([5, 1, 2, 3, 4, 2])
    mask = torch.arange(5) < lengths[:, None]
    spoiled = torch.where(mask[..., None], scores, torch.nan).requires_grad_()
    options = {} if loss is dl.perceptron_loss else {"epsilon": 2.0}
    found = loss(spoiled, target, task, mask=mask, reduction="none", **options)
    gradient = torch.autograd.grad(found.sum(), spoiled)[0]
    for row, length in enumerate(lengths.tolist()):
        alone = scores[row, :length].clone().requires_grad_()
        wanted = loss(alone, target[row, :length], task, **options)
        torch.testing.assert_close(found[row], wanted)
        torch.testing.assert_close(gradient[row, :length], torch.autograd.grad(wanted, alone)[0])
        assert not gradient[row, length:].any()


def test_only_a_mask_is_padding() -> None:
    scores, target = torch.randn(2, 4, 3), torch.randint(3, (2, 4))
    target[0, 2:] = -1
    task = Chain(torch.randn(3, 3))
    with pytest.raises(dl.DirectLossError, match="Leave such labels out with mask=target != -1"):
        dl.direct_loss(scores, target, task)
    assert torch.equal(
        dl.direct_loss(scores, target, task, mask=target != -1),
        dl.direct_loss(scores, target.clamp(min=0), task, mask=target != -1),
    )


def test_a_sequence_of_padding_alone_does_not_count() -> None:
    scores, target = torch.randn(2, 3, 2, requires_grad=True), torch.tensor([[0, 1, 1], [-1, -1, -1]])
    with pytest.warns(dl.DirectLossWarning, match="1 of 2 problems have no loss"):
        loss = dl.direct_loss(scores, target, "chain", mask=target >= 0)
    torch.testing.assert_close(loss, dl.direct_loss(scores[:1], target[:1], "chain"))


def test_gradient_reaches_the_transitions() -> None:
    """By finite differences of (F(direct) - F(predicted)) / epsilon, with both labellings held fixed."""
    transitions = nn.Parameter(torch.randn(3, 3, dtype=torch.float64))
    task = Chain(transitions)
    scores, target = torch.randn(8, 6, 3, dtype=torch.float64), torch.randint(3, (8, 6))
    theorem(scores, target, task, epsilon=1.5, sign=+1, reduction="sum").backward()
    predicted, direct = task.predict(scores), task.augmented(scores, target, 1.5, +1)
    assert transitions.grad is not None
    assert transitions.grad.any()
    for place in [(0, 1), (2, 2), (1, 0)]:
        moved = transitions.detach().clone()
        moved[place] += 1
        other = Chain(moved)
        gap = other.score(scores, direct) - other.score(scores, predicted)
        here = task.score(scores, direct) - task.score(scores, predicted)
        torch.testing.assert_close(transitions.grad[place], ((gap - here).sum() / 1.5).detach())


def test_transitions_can_be_learned_alone() -> None:
    """Labels alternate, the scores say nothing: only transitions can tell."""
    target = torch.tensor([[0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 0, 1]])
    scores = torch.zeros(2, 6, 2)
    scores[:, 0, 0] = 1.0
    transitions = nn.Parameter(torch.tensor([[0.1, 0.0], [0.0, 0.1]]))
    optimiser = torch.optim.SGD([transitions], lr=0.5)
    loss_fn = dl.DirectLoss(Chain(transitions), sign=-1, epsilon=1.0)
    first = loss_fn(scores, target).item()
    for _ in range(20):
        optimiser.zero_grad()
        loss_fn(scores, target).backward()
        optimiser.step()
    assert first == 0.5
    assert loss_fn(scores, target).item() == 0


def test_cost_matrix_and_cost_function_agree() -> None:
    cost = torch.tensor([[0.0, 1.0, 0.25], [0.5, 0.0, 1.0], [0.75, 0.5, 0.0]])
    scores, target = torch.randn(4, 5, 3, requires_grad=True), torch.randint(3, (4, 5))
    by_matrix = theorem(scores, target, Chain(cost=cost))
    by_function = theorem(scores, target, Chain(cost=lambda labels: cost[labels]))
    assert torch.equal(by_matrix, by_function)
    assert torch.equal(torch.autograd.grad(by_matrix, scores)[0], torch.autograd.grad(by_function, scores)[0])
    labels = scores.argmax(-1)
    assert by_matrix.item() == pytest.approx(cost[target, labels].mean().item())


def test_unit_epsilon_is_one_over_the_largest_cost() -> None:
    scores, target = torch.randn(2, 4, 3), torch.tensor([[0, 1, 2, 3], [2, 3, 3, 3]])
    half = (1 - torch.eye(3)) / 2
    assert Chain().unit_epsilon(scores, target) == 1
    assert Chain(cost=half).unit_epsilon(scores, target) == 2
    assert Chain(cost=0 * half).unit_epsilon(scores, target) == 1
    # A function may tell problems apart; what it says of padding does not count.
    table = torch.tensor([[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.1, 0.1, 0.0], [9.0, 9.0, 9.0]])
    found = Chain(cost=lambda labels: table[labels]).unit_epsilon(scores, target, mask=target < 3)
    torch.testing.assert_close(found, torch.tensor([2.0, 10.0]))


def test_one_wrong_label_bridges_the_unit() -> None:
    """Just more than the unit gives up a lead of 1 in a single position, just less does not."""
    scores, target = torch.tensor([[1.0, 0.0], [5.0, 0.0], [5.0, 0.0]]), torch.tensor([0, 0, 0])
    for cost in (None, 4 * (1 - torch.eye(2))):
        task = Chain(cost=cost)
        unit = task.unit_epsilon(scores, target)
        assert task.augmented(scores, target, 0.99 * unit, +1).labels.tolist() == [0, 0, 0]
        assert task.augmented(scores, target, 1.01 * unit, +1).labels.tolist() == [1, 0, 0]


def test_repr() -> None:
    assert repr(Chain()) == "Chain()"
    assert repr(Chain(torch.zeros(3, 3), cost=1 - torch.eye(3))) == "Chain(transitions=(3, 3), cost=...)"


WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"transitions": [[0.0]]}, "transitions must be a torch.Tensor, but it is a list"),
    ({"transitions": torch.zeros(2, 3)}, "transitions must be a floating-point matrix (c, c)"),
    ({"transitions": torch.zeros(2, 2, dtype=torch.long)}, "but it is of shape (2, 2), torch.int64"),
    ({"cost": torch.zeros(3)}, "cost must be a matrix (c, c): cost[true, predicted], but it is of shape (3,)"),
    ({"cost": -1 + torch.eye(2)}, "cost must not be negative, but it is as low as -1.0"),
    ({"cost": torch.ones(2, 2)}, "cost must be 0 for the right label, on the diagonal, but it is [1.0, 1.0]"),
    ({"cost": torch.full((2, 2), math.nan)}, "cost must be finite"),
    ({"cost": 2.0}, "cost must be a matrix (c, c) or a function of the target, but it is a float"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG_SETTINGS)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        Chain(**settings)
    assert message in str(caught.value)


SCORES, TARGET = torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.long)
GAP = torch.tensor([[True, False, True], [True, True, True]])
WRONG_CALLS: list[tuple[Any, Any, Any, dict[str, Any], str]] = [
    (Chain(), SCORES, TARGET[0], {}, "target must hold one label per position, shape (2, 3), but it is of shape (3,)"),
    (Chain(), SCORES, TARGET + 4, {}, "target must hold class indices from 0 to 3, but it is 4"),
    (Chain(), SCORES, TARGET - 2, {}, "target must hold class indices from 0 to 3, but it is -2"),
    (Chain(), SCORES, TARGET.float(), {}, "target must hold integer class indices, but it is torch.float32"),
    (Chain(), SCORES[0, 0], TARGET, {}, "scores must have shape (..., t, c), but it is of shape (4,)"),
    (Chain(), SCORES / 0, TARGET, {}, "scores must be finite"),
    (
        Chain(torch.zeros(4, 4)),
        SCORES,
        TARGET,
        {"mask": GAP},
        "mask must have padding only at the end of each sequence",
    ),
    (Chain(torch.zeros(3, 3)), SCORES, TARGET, {}, "transitions must be a matrix for the 4 labels of scores"),
    (Chain(torch.zeros(4, 4) / 0), SCORES, TARGET, {}, "transitions must be finite"),
    (Chain(cost=torch.zeros(3, 3)), SCORES, TARGET, {}, "cost must be a matrix for the 4 labels of scores"),
    (
        Chain(cost=lambda t: t.float()),
        SCORES.clone().requires_grad_(),
        TARGET,
        {},
        "cost(target) must have the shape of scores, (2, 3, 4)",
    ),
    (Chain(cost=lambda t: None), SCORES, TARGET, {}, "cost(target) must be a torch.Tensor, but it is a NoneType"),
]


@pytest.mark.parametrize(("task", "scores", "target", "options", "message"), WRONG_CALLS)
def test_wrong_calls(task: Chain, scores: Any, target: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        dl.direct_loss(scores, target, task, **options)
    assert message in str(caught.value)


def test_the_likelihood_is_that_of_a_conditional_random_field() -> None:
    """Against the sum over all labellings, with padding at the end."""
    draw = torch.Generator().manual_seed(1)
    scores = torch.randn(2, 4, 3, dtype=torch.float64, generator=draw)
    transitions = torch.randn(3, 3, dtype=torch.float64, generator=draw).requires_grad_()
    target, mask = torch.tensor([[0, 2, 1, 1], [2, 0, 1, 0]]), torch.arange(4) < torch.tensor([[4], [3]])
    task = Chain(transitions)
    found = task.likelihood(scores, target, mask)
    assert found is not None
    for problem, length in enumerate((4, 3)):
        every = torch.tensor(list(product(range(3), repeat=length)))
        each = length * task.score(scores[problem, :length].expand(len(every), -1, -1), every)
        wanted = (each.logsumexp(0) - length * task.score(scores[problem, :length], target[problem, :length])) / length
        torch.testing.assert_close(found[problem], wanted)
    assert torch.autograd.grad(found.sum(), transitions)[0].any()
