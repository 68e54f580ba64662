"""Graded rankings. The contract, with all weak orders of few items, is checked in test_contract.py."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

import directloss as dl
from directloss.metrics.graded import graded_ndcg
from directloss.tasks import GradedNDCG

SETTINGS = [(None, "exponential"), (3, "exponential"), (None, "linear"), (10, "linear")]


def draw(batch: int, n: int, tied: bool = False) -> tuple[Tensor, Tensor]:
    scores = torch.randn(batch, n, dtype=torch.float64)
    return (scores.round() if tied else scores).requires_grad_(), torch.randint(0, 5, (batch, n))


class FiveMethods(GradedNDCG):
    """The same task without its short cut: the theorem, method by method."""

    fused = None


@pytest.mark.parametrize("noise", [0, 0.5])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("k", "gain"), SETTINGS)
def test_short_cut_is_the_theorem(k: int | None, gain: str, tied: bool, noise: float) -> None:
    scores, target = draw(6, 15, tied)
    mask = torch.ones_like(target, dtype=torch.bool)
    mask[0, 3:9] = False
    for epsilon in ("auto", 0.2, torch.linspace(0.1, 3, 6, dtype=torch.float64)):
        for sign in (+1, -1):
            losses = []
            for task in (GradedNDCG, FiveMethods):
                options = {"epsilon": epsilon, "sign": sign, "noise": noise, "reduction": "none"}
                draws = torch.Generator().manual_seed(1)
                losses.append(dl.direct_loss(scores, target, task(k, gain), generator=draws, mask=mask, **options))
            torch.testing.assert_close(*losses)
            slopes = [torch.autograd.grad(loss.sum(), scores)[0] for loss in losses]
            assert slopes[0].any()
            torch.testing.assert_close(*slopes)


@pytest.mark.parametrize(("k", "gain"), SETTINGS)
@pytest.mark.parametrize("sign", [+1, -1])
def test_a_sort_solves_the_assignment_problem(sign: int, k: int | None, gain: str) -> None:
    """Items to ranks, by the Hungarian algorithm on all pairs: the sort must reach the same objective."""
    n, epsilon = 25, 0.7
    scores, target = (tensor.detach()[0] for tensor in draw(1, n))
    task = GradedNDCG(k, gain)
    discount = torch.tensor(
        [1 / math.log2(2 + r) if k is None or r < k else 0.0 for r in range(n)], dtype=torch.float64
    )
    gains = target.double() if gain == "linear" else 2.0 ** target.double() - 1
    ideal = float((gains.sort(descending=True).values * discount).sum())
    worth = scores * gains.max() / ideal - sign * epsilon * gains / ideal
    item, rank = linear_sum_assignment((worth[:, None] * discount).numpy(), maximize=True)
    wanted = float((worth[item] * discount[rank]).sum()) + sign * epsilon
    output = task.augmented(scores, target, epsilon, sign)
    found = float(task.score(scores, output) + sign * epsilon * task.loss(output, target))
    assert found == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(("k", "gain"), SETTINGS)
@pytest.mark.parametrize("tied", [False, True])
def test_value_is_one_minus_the_metric(k: int | None, gain: str, tied: bool) -> None:
    scores, target = draw(8, 12, tied)
    found = dl.direct_loss(scores, target, GradedNDCG(k, gain), reduction="none")
    torch.testing.assert_close(found.detach(), 1 - graded_ndcg(scores, target, k, gain))


def test_epsilon_is_the_lead_that_the_highest_grade_loses() -> None:
    """Items of the top grade and of grade 0 change places as soon as their scores are closer than epsilon."""
    task, grades = GradedNDCG(), torch.tensor([4, 0, 0, 0, 0, 0])
    for lead, swapped in ((0.99, True), (1.01, False)):
        scores = torch.tensor([lead, 0.0, -1.0, -2.0, -3.0, -4.0])
        above = task.augmented(scores, grades, 1.0, +1).discounts
        assert bool(above[0] < above[1]) is swapped


def test_equal_scores_are_treated_equally() -> None:
    """Whatever the order of the input: same loss, and the gradient moves along."""
    scores = torch.tensor([0.5, 0.5, 0.5, 0.0, 0.0], requires_grad=True)
    grades = torch.tensor([1, 3, 0, 2, 0])
    order = torch.tensor([4, 2, 0, 3, 1])
    for sign in (+1, -1):
        one = dl.direct_loss(scores, grades, "graded_ndcg", sign=sign)
        other = dl.direct_loss(scores[order], grades[order], "graded_ndcg", sign=sign)
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(torch.autograd.grad(one, scores)[0], torch.autograd.grad(other, scores)[0])
    assert GradedNDCG().predict(scores).tolist() == [2, 2, 2, 4.5, 4.5]


def test_gradient_sums_to_zero_and_ignores_a_common_shift() -> None:
    scores, target = draw(10, 9)
    slopes = [
        torch.autograd.grad(dl.direct_loss(moved, target, "graded_ndcg@4", epsilon=0.5), scores)[0]
        for moved in (scores, scores + 4)
    ]
    torch.testing.assert_close(*slopes)
    torch.testing.assert_close(slopes[0].sum(-1), torch.zeros(10, dtype=torch.float64))


def test_names() -> None:
    assert repr(dl.tasks.get("graded_ndcg")) == "GradedNDCG()"
    assert repr(dl.tasks.get("graded_ndcg@10")) == "GradedNDCG(k=10)"
    assert repr(GradedNDCG(gain="linear")) == "GradedNDCG(gain='linear')"


@pytest.mark.parametrize("grades", [[2, 2, 2], [0, 0, 0], [1, -1, -1], [-1, -1, -1], [3, 3, -1]])
def test_lists_without_two_grades_do_not_count(grades: list[int]) -> None:
    scores = torch.tensor([[0.3, 0.2, 0.1], [0.3, 0.2, 0.1]], requires_grad=True)
    target = torch.tensor([[0, 1, 2], grades])
    with pytest.warns(dl.DirectLossWarning, match="1 of 2 problems have no loss"):
        loss = dl.direct_loss(scores, target, "graded_ndcg", epsilon=1.0, sign=-1, mask=target >= 0)
    torch.testing.assert_close(loss, dl.direct_loss(scores[0], target[0], "graded_ndcg"))
    slope = torch.autograd.grad(loss, scores)[0]
    assert slope[0].any()
    assert not slope[1].any()


def test_training_ranks_by_grade() -> None:
    grades = torch.tensor([[0, 3, 1, 2, 0, 4]])
    scores = torch.randn(1, 6, requires_grad=True)
    optimiser = torch.optim.SGD([scores], lr=2.0)
    loss_fn = dl.DirectLoss("graded_ndcg", sign=-1, epsilon=20.0)
    assert loss_fn(scores, grades).item() > 0.4
    for _ in range(300):
        optimiser.zero_grad()
        loss_fn(scores, grades).backward()
        optimiser.step()
    assert loss_fn(scores, grades).item() < 0.01


def test_a_plain_ranking_has_no_score_yet() -> None:
    task, scores = GradedNDCG(), torch.tensor([1.0, 2.0])
    with pytest.raises(dl.DirectLossError, match="must know the grades before it has a score F"):
        task.score(scores, task.predict(scores))


SCORES, GRADES = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0, 1, 2]])
WRONG: list[tuple[Any, Any, Any, str]] = [
    ("graded_ndcg@2.5", SCORES, GRADES, "k must be a whole number of at least 1, but it is 2.5"),
    ("graded_ndcg@0", SCORES, GRADES, "k must be a whole number of at least 1, but it is 0"),
    ("graded_ndcg", SCORES, GRADES - 3, "target must hold grades of at least 0, but it is -3"),
    ("graded_ndcg", SCORES, GRADES * math.inf, "but it is nan at index [0, 0]"),
    ("graded_ndcg", SCORES, GRADES[0], "target must have the shape of scores, (1, 3), but it is of shape (3,)"),
    ("graded_ndcg", SCORES * math.nan, GRADES, "scores must be finite"),
]


@pytest.mark.parametrize(("task", "scores", "target", "message"), WRONG)
@pytest.mark.parametrize("loss", [dl.direct_loss, dl.hinge_loss, dl.perceptron_loss])
def test_wrong_input(loss: Any, task: Any, scores: Any, target: Any, message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        loss(scores, target, task)
    assert message in str(caught.value)
