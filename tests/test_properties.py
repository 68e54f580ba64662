"""Laws that hold for any input, tried on many drawn ones.

Scores are multiples of 1/8 and factors are powers of two, so that shifting and scaling are exact in floating point and
an equality that should hold does hold to the last digits.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

import directloss as dl

# On tiny lists these happen all the time.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*but no gradient", "ignore:Every decision is yes", "ignore:All 2 items of a list are among the first k"
)

RANKING = ["ap", "ndcg@3", "dcg", "recall@2", "mrr", "auc", "pauc@0.5", "precision_at_recall@0.7"]
SETS = ["f1", "iou", "mcc"]

signs = st.sampled_from([+1, -1])
epsilons = st.sampled_from([0.05, 0.3, 1.0, 5.0, 40.0])
factors = st.integers(-4, 6).map(lambda power: 2.0**power)


@st.composite
def lists(draw: st.DrawFn, distinct: bool = False) -> tuple[Tensor, Tensor]:
    """One list of up to nine items with at least one of each class."""
    size = draw(st.integers(2, 9))
    eighths = st.lists(st.integers(-40, 40), min_size=size, max_size=size, unique=distinct)
    scores = torch.tensor(draw(eighths), dtype=torch.float64) / 8
    labels = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    assume(0 < sum(labels) < size)
    return scores, torch.tensor(labels)


def gradient(scores: Tensor, target: Tensor, task: str, epsilon: float | str, sign: int) -> Tensor:
    """That of the theorem, without noise."""
    leaf = scores.detach().clone().requires_grad_()
    return torch.autograd.grad(dl.direct_loss(leaf, target, task, epsilon=epsilon, sign=sign), leaf)[0]


def value(scores: Tensor, target: Tensor, task: str) -> float:
    return float(dl.direct_loss(scores, target, task))


# ---------------------------------------------------------------------------------------------- rankings


@pytest.mark.parametrize("task", RANKING)
@given(problem=lists(), factor=factors, shift=st.integers(-50, 50))
def test_ranking_value_ignores_shift_and_scale(
    task: str, problem: tuple[Tensor, Tensor], factor: float, shift: int
) -> None:
    scores, target = problem
    assert value(factor * scores + shift, target, task) == value(scores, target, task)


@pytest.mark.parametrize("task", RANKING)
@given(problem=lists(), epsilon=epsilons, sign=signs)
def test_ranking_gradient_sums_to_zero(task: str, problem: tuple[Tensor, Tensor], epsilon: float, sign: int) -> None:
    """F looks at differences alone, so a common shift of all scores changes nothing."""
    found = gradient(*problem, task, epsilon, sign)
    assert abs(float(found.sum())) <= 1e-12 * (1 + float(found.abs().sum()))


@pytest.mark.parametrize("task", RANKING)
@given(problem=lists(), epsilon=epsilons)
def test_direct_ranking_is_no_better_or_no_worse(task: str, problem: tuple[Tensor, Tensor], epsilon: float) -> None:
    """sign +1 looks at worse rankings, sign -1 at better ones; a larger epsilon looks further."""
    scores, target = problem
    object_ = dl.tasks.get(task)
    here = float(object_.loss(object_.predict(scores), target))
    for sign in (+1, -1):
        near, far = (
            float(object_.loss(object_.augmented(scores, target, e, sign), target)) for e in (epsilon, 2 * epsilon)
        )
        assert sign * (near - here) >= -1e-9
        assert sign * (far - near) >= -1e-9


# ---------------------------------------------------------------------------------------------- rankings and sets


@pytest.mark.parametrize("task", RANKING + SETS)
@given(problem=lists(distinct=True), epsilon=epsilons, sign=signs, seed=st.integers(0, 1000))
def test_order_of_the_items_does_not_matter(
    task: str, problem: tuple[Tensor, Tensor], epsilon: float, sign: int, seed: int
) -> None:
    scores, target = problem
    order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(seed))
    assert value(scores[order], target[order], task) == pytest.approx(value(scores, target, task), abs=1e-12)
    found = gradient(scores[order], target[order], task, epsilon, sign)
    torch.testing.assert_close(found, gradient(scores, target, task, epsilon, sign)[order], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("task", RANKING + SETS)
@given(problem=lists(), epsilon=epsilons, sign=signs)
def test_gradient_points_against_the_scores(
    task: str, problem: tuple[Tensor, Tensor], epsilon: float, sign: int
) -> None:
    """F is linear: <gradient, scores> = sign / epsilon * (F(direct) - F(predicted)), and F(predicted) is largest."""
    scores, target = problem
    product = float((gradient(scores, target, task, epsilon, sign) * scores).sum())
    assert sign * product <= 1e-9 / epsilon


@pytest.mark.parametrize("task", RANKING + SETS)
@given(problem=lists(distinct=True), epsilon=epsilons)
def test_a_perfect_prediction_is_left_alone_by_the_negative_sign(
    task: str, problem: tuple[Tensor, Tensor], epsilon: float
) -> None:
    """There is nothing better to move towards."""
    scores, target = problem
    scores = scores.abs() + 1
    perfect = torch.where(target == 1, scores, -scores)
    # Of ten relevant items only two can be among the first two: the least loss of recall@2 is not 0.
    object_ = dl.tasks.get(task)
    least = float(object_.loss(object_.truth(target), target))
    assert value(perfect, target, task) == pytest.approx(least, abs=1e-12)
    assert not gradient(perfect, target, task, epsilon, -1).any()


@pytest.mark.parametrize("task", SETS)
@given(problem=lists(), factor=factors)
def test_set_value_ignores_scale(task: str, problem: tuple[Tensor, Tensor], factor: float) -> None:
    scores, target = problem
    assert value(factor * scores, target, task) == value(scores, target, task)


@pytest.mark.parametrize("task", RANKING + SETS)
@given(problem=lists(), epsilon=epsilons)
def test_losses_are_ordered(task: str, problem: tuple[Tensor, Tensor], epsilon: float) -> None:
    """hinge >= perceptron >= 0, and hinge >= epsilon times the task loss."""
    scores, target = problem
    hinge = float(dl.hinge_loss(scores, target, task, epsilon=epsilon))
    perceptron = float(dl.perceptron_loss(scores, target, task))
    assert hinge >= perceptron - 1e-9
    assert perceptron >= -1e-9
    assert hinge >= epsilon * value(scores, target, task) - 1e-6 * (1 + epsilon)


# ---------------------------------------------------------------------------------------------- classes


@given(
    rows=st.lists(st.lists(st.integers(-40, 40), min_size=4, max_size=4), min_size=1, max_size=5),
    shift=st.integers(-50, 50),
    factor=factors,
    sign=signs,
)
def test_class_value_ignores_shift_and_scale(rows: list[list[int]], shift: int, factor: float, sign: int) -> None:
    scores = torch.tensor(rows, dtype=torch.float64) / 8
    target = torch.arange(len(rows)) % 4
    assert value(factor * scores + shift, target, "accuracy") == value(scores, target, "accuracy")
    found = gradient(scores, target, "accuracy", 1.0, sign)
    assert math.isclose(float(found.sum()), 0, abs_tol=1e-12)
