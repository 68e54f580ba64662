"""A user's own solver as a task. That both inferences are exact is checked in test_contract.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

import directloss as dl
from directloss.tasks import SolverTask
from tests.oracle.structured import SETS, kruskal, positive_parts

SCORES = torch.tensor([[3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
TARGET = torch.tensor([[0, 1, 1, 0], [0, 0, 1, 1]])


def best_two(scores: Tensor) -> Tensor:
    return torch.zeros_like(scores).scatter(-1, scores.topk(2, dim=-1).indices, 1.0)


def test_hamming_is_the_share_of_differing_parts() -> None:
    task = SolverTask(best_two)
    torch.testing.assert_close(task.loss(best_two(SCORES), TARGET), torch.tensor([0.5, 0.0]))


def test_missed_is_the_share_of_missed_parts() -> None:
    task = SolverTask(best_two, loss="missed")
    torch.testing.assert_close(task.loss(best_two(SCORES), TARGET), torch.tensor([0.5, 0.0]))
    assert task.loss(torch.zeros(4), torch.ones(4)) == 1
    assert task.loss(torch.ones(4), torch.zeros(4)) == 0, "an empty target has nothing to miss"


@pytest.mark.parametrize("loss", ["hamming", "missed"])
def test_named_losses_are_what_their_costs_say(loss: str) -> None:
    """L(y) - sum_p cost_p y_p must be the same for every output: that is all that augmented inference relies on."""
    task = SolverTask(positive_parts, loss=loss)
    every = torch.from_numpy(SETS).double()
    for truth in every:
        rest = task.loss(every, truth.expand_as(every)) - every @ task.costs(truth, truth)
        torch.testing.assert_close(rest, rest[:1].expand_as(rest))


def test_hamming_is_zero_only_for_the_target() -> None:
    task, every = SolverTask(positive_parts), torch.from_numpy(SETS).double()
    for number, truth in enumerate(every):
        losses = task.loss(every, truth.expand_as(every))
        assert losses.min() == losses[number] == 0
        assert int((losses == 0).sum()) == 1
        assert losses.max() == 1


def test_regret_is_the_excess_of_the_true_cost() -> None:
    task = SolverTask(best_two, loss="regret")
    costs = torch.tensor([[5.0, 1.0, 2.0, 9.0], [4.0, 3.0, 2.0, 1.0]])
    # The first problem chooses parts 0 and 1 for 6 where 1 and 2 cost 3; the second chooses the cheapest.
    torch.testing.assert_close(dl.direct_loss(SCORES, costs, task, reduction="none"), torch.tensor([3.0, 0.0]))
    assert torch.equal(task.truth(costs), best_two(-costs))
    assert float(dl.perceptron_loss(SCORES[1], costs[1], task)) == 0


def own_costs(target: Tensor) -> tuple[Tensor, Tensor]:
    return 1.0 - target, target.sum(-1)


def test_own_loss_may_have_a_target_of_any_kind() -> None:
    """Here the target is one number, the part that must not be chosen."""
    task = SolverTask(best_two, loss=lambda part: (torch.eye(4)[part], 0.0))
    parts = torch.tensor([0, 0])
    torch.testing.assert_close(dl.direct_loss(SCORES, parts, task, reduction="none"), torch.tensor([1.0, 0.0]))
    scores = SCORES.clone().requires_grad_()
    dl.direct_loss(scores, parts, task, sign=-1, epsilon=4.0, reduction="sum").backward()
    torch.testing.assert_close(scores.grad, torch.tensor([[0.25, 0.0, -0.25, 0.0], [0.0, 0.0, 0.0, 0.0]]))


def test_own_truth_serves_the_hinge() -> None:
    task = SolverTask(best_two, loss=lambda part: (torch.eye(4)[part], 0.0), truth=lambda part: TARGET[part])
    assert float(dl.hinge_loss(SCORES[0], torch.tensor(0), task)) == pytest.approx(3 + 2 + 1 - (2 + 1))


def test_solver_for_one_problem_is_looped_over() -> None:
    task = SolverTask(kruskal, batched=False, loss="missed")
    scores = torch.randn(2, 3, 5)
    found = task.predict(scores)
    for place in np.ndindex(2, 3):
        assert np.array_equal(found[place].numpy(), kruskal(scores[place]))


def test_batched_solver_sees_one_batch_dimension() -> None:
    seen = []

    def solver(scores: Tensor) -> Tensor:
        seen.append((tuple(scores.shape), scores.requires_grad, scores.dtype))
        return (scores > 0).int()

    task = SolverTask(solver, event_dims=2)
    found = task.predict(torch.randn(2, 3, 4, 5, dtype=torch.float16).requires_grad_())
    assert found.shape == (2, 3, 4, 5)
    task.predict(torch.randn(4, 5, dtype=torch.float64))
    first, *tries, last = seen
    assert first == ((6, 4, 5), False, torch.float32)
    assert tries == [((1, 4, 5), False, torch.float32)] * 2, "once, to see that a batch is solved as its problems are"
    assert last == ((1, 4, 5), False, torch.float64)


def test_counts_are_allowed_when_asked_for() -> None:
    task = SolverTask(lambda scores: 2 * best_two(scores), loss="regret", indicator=False)
    assert task.predict(SCORES[0]).tolist() == [2, 2, 0, 0]


def test_unit_epsilon_is_one_over_the_unit_of_the_costs() -> None:
    for loss, factor in (("hamming", 0.2), ("missed", 0.2), ("regret", 1.0), (own_costs, 1.0)):
        task, target = SolverTask(best_two, loss=loss), 1.0 + TARGET if loss == "regret" else TARGET
        unit = task.unit_epsilon(SCORES, target) * task.unit(task.costs(target, SCORES))
        torch.testing.assert_close(unit, torch.full((2,), factor))
    free = SolverTask(best_two, loss=lambda t: (0.0 * t, 0.0)).unit_epsilon(SCORES, TARGET)
    torch.testing.assert_close(free, torch.ones(2))


def test_a_solver_that_fails_on_random_scores_has_the_root_mean_square_as_unit() -> None:
    def of_costs(scores: Tensor) -> Tensor:
        if bool((scores > 0).any()):
            raise ValueError("unbounded")
        return torch.zeros_like(scores)

    torch.testing.assert_close(SolverTask(of_costs).unit(torch.tensor([[1.0, 7.0]])), torch.tensor([5.0]))


@pytest.mark.parametrize("noise", [0, 1.0])
@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (lambda part: (torch.eye(4)[part], 0.0), torch.tensor([0, 0])),
        (lambda part: (torch.eye(4)[part], 0.0), torch.tensor(0)),
        (lambda costs: (costs, 0.0), torch.eye(4)[0]),
        (lambda costs: (costs, 0.0), torch.eye(4)[[0, 0]]),
        (lambda costs: (costs[..., :4], costs[..., 4]), torch.eye(5)[[0, 0]]),
        (lambda _: (torch.eye(4)[0], 0.0), torch.zeros(3, 7)),
    ],
    ids=["number", "shared number", "shared costs", "costs", "costs and constant", "nothing"],
)
def test_own_losses_say_the_same_in_every_form(loss: Any, target: Tensor, noise: float) -> None:
    """Part 0 must not be chosen; what all problems share is shared by all draws."""
    slopes = []
    for own, given in ((loss, target), (lambda costs: (costs, 0.0), torch.eye(4).repeat(2, 1, 1)[:, 0])):
        scores, draws = SCORES.clone().requires_grad_(), torch.Generator().manual_seed(1)
        options = {"noise": noise, "epsilon": 4.0, "samples": 5, "generator": draws, "sign": "both"}
        dl.direct_loss(scores, given, SolverTask(best_two, loss=own), **options).backward()
        slopes.append(scores.grad)
    assert slopes[0].any()
    torch.testing.assert_close(*slopes)


def test_a_solver_that_minimises_is_found_out() -> None:
    task = SolverTask(lambda scores: best_two(-scores), loss="missed")
    scores = SCORES.clone().requires_grad_()
    with pytest.warns(dl.DirectLossWarning, match="It must maximise"):
        dl.direct_loss(scores, best_two(SCORES), task, sign=-1)


def test_a_good_solver_is_not_suspected() -> None:
    scores = torch.randn(50, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    for sign in (+1, -1):
        dl.direct_loss(scores, TARGET[:1].expand(50, 4), SolverTask(best_two), sign=sign)


def test_repr_names_solver_and_loss() -> None:
    assert repr(SolverTask(best_two)) == "SolverTask(best_two, loss='hamming')"
    assert (
        repr(SolverTask(best_two, loss=own_costs, event_dims=2)) == "SolverTask(best_two, loss=own_costs, event_dims=2)"
    )


WRONG_SETTINGS: list[tuple[Callable[[], object], str]] = [
    (lambda: SolverTask("dijkstra"), "solver must be a function from scores to the best output, but it is a str"),
    (lambda: SolverTask(best_two, loss="haming"), "Did you mean 'hamming'?"),
    (lambda: SolverTask(best_two, loss=None), "loss must be one of 'hamming', 'missed', 'regret', but it is None"),
    (lambda: SolverTask(best_two, event_dims=0), "event_dims must be a whole number of at least 1, but it is 0"),
    (lambda: SolverTask(best_two, indicator=False), 'loss must be a function or "regret" for outputs that are not 0/1'),
]


@pytest.mark.parametrize(("build", "message"), WRONG_SETTINGS)
def test_wrong_settings(build: Callable[[], object], message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        build()
    assert message in str(caught.value)


WRONG_CALLS: list[tuple[Any, Any, Any, dict[str, Any], str]] = [
    (
        SolverTask(lambda s: s[:, :3]),
        SCORES,
        TARGET,
        {},
        "solver(scores) must have the shape of scores, (2, 4), but it is of shape (2, 3)",
    ),
    (SolverTask(lambda s: best_two(s[0])), SCORES, TARGET, {}, "Pass batched=False"),
    (
        SolverTask(lambda s: s[0], batched=False),
        SCORES,
        TARGET,
        {},
        "must have the shape of scores, (4,), but it is of shape ()",
    ),
    (SolverTask(lambda s: s * 0 + 0.5), SCORES, TARGET, {}, "solver(scores) must hold only 0 and 1, but it is 0.5"),
    (SolverTask(lambda s: s * math.nan), SCORES, TARGET, {}, "solver(scores) must hold only 0 and 1, but it is nan"),
    (
        SolverTask(lambda s: None),
        SCORES,
        TARGET,
        {},
        "solver(scores) must be a tensor or an array, but it is a NoneType",
    ),
    (
        SolverTask(best_two),
        SCORES,
        TARGET[0],
        {},
        "target must have the shape of scores, (2, 4), but it is of shape (4,)",
    ),
    (SolverTask(best_two), SCORES, TARGET + 1, {}, "target must hold only 0 or 1, but it is 2"),
    (SolverTask(best_two), SCORES, -TARGET, {}, "Parts of a structured output cannot be padding"),
    (SolverTask(best_two), SCORES * math.inf, TARGET, {}, "scores must be finite"),
    (
        SolverTask(best_two),
        SCORES,
        TARGET,
        {"mask": TARGET == 0},
        "mask must be left out: parts of SolverTask(best_two, loss='hamming')",
    ),
    (SolverTask(best_two, loss="regret"), SCORES, TARGET / 0, {}, "target must be finite, but it is nan"),
    (
        SolverTask(best_two, loss=lambda t: t),
        SCORES,
        TARGET,
        {},
        "loss(target) must return the costs of the parts and a constant",
    ),
    (
        SolverTask(best_two, loss=lambda t: (t[:, :3], 0)),
        SCORES,
        TARGET,
        {},
        "loss(target) must give costs (2, 4) and a constant (2,) here",
    ),
    (SolverTask(best_two, loss=lambda t: (t, t)), SCORES, TARGET, {}, "but it is of shapes (2, 4) and (2, 4)"),
    (
        SolverTask(best_two, event_dims=2),
        SCORES[0],
        TARGET[0],
        {},
        "scores must have shape (..., d1, d2), but it is of shape (4,)",
    ),
]


@pytest.mark.parametrize(("task", "scores", "target", "options", "message"), WRONG_CALLS)
def test_wrong_calls(task: SolverTask, scores: Any, target: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        dl.direct_loss(scores, target, task, **options)
    assert message in str(caught.value)


def one_matching(scores: Tensor) -> Tensor:
    """For one problem, a table, only."""
    rows, columns = linear_sum_assignment(-scores.numpy())
    output = torch.zeros_like(scores)
    output[rows, columns] = 1.0
    return output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"event_dims": 2}, "It takes one problem at a time: pass batched=False."),
        ({"batched": False}, "With event_dims=1 and batched=False it is given one problem of shape (3,)."),
        ({"event_dims": 1}, "Is one problem larger than that? event_dims=1 may be too small."),
    ],
)
def test_a_solver_that_raises_at_once_is_told_its_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        SolverTask(one_matching, loss="regret", **options).predict(torch.randn(2, 3, 3))
    assert message in str(caught.value)
    one = SolverTask(one_matching, loss="regret", event_dims=2, batched=False)
    assert one.predict(torch.randn(2, 3, 3)).sum() == 6


def test_hinge_asks_for_a_truth_that_it_cannot_guess() -> None:
    task = SolverTask(best_two, loss=lambda part: (torch.eye(4)[part], 0.0))
    with pytest.raises(dl.DirectLossError, match="Pass truth, a function"):
        dl.hinge_loss(SCORES, torch.tensor([3, 2]), task)


MANY = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
BAD = MANY.clone()
BAD[4, 0] = 0


def test_a_failure_names_the_problem() -> None:
    def raises_at_zero(scores: Tensor) -> Tensor:
        if float(scores[0]) == 0:
            raise ValueError("no way out")
        return (scores > 0).float()

    with pytest.raises(dl.DirectLossError, match="none for problem 4: it raised ValueError: no way out"):
        SolverTask(raises_at_zero, batched=False).predict(BAD)


def test_a_batch_names_the_problem_too() -> None:
    def solver(scores: Tensor) -> Tensor:
        if bool((scores[:, 0] == 0).any()):
            raise ValueError("no way out")
        return (scores > 0).float()

    with pytest.raises(dl.DirectLossError, match=r"none for problem 4: it raised ValueError: no way out \(it got"):
        SolverTask(solver).predict(BAD)


def test_a_solver_that_mixes_problems_is_told_what_is_wrong() -> None:
    def one_of_all(scores: Tensor) -> Tensor:
        """For a single problem of any shape."""
        return (scores == scores.max()).float()

    with pytest.raises(dl.DirectLossError, match=r"event_dims=1 may be too small.*batched=False"):
        SolverTask(one_of_all).predict(MANY)
    assert SolverTask(one_of_all, batched=False).predict(MANY).sum() == 9
    assert SolverTask(one_of_all, batched=False, event_dims=2).predict(MANY.expand(2, 9, 5)).sum() == 2
    with pytest.raises(dl.DirectLossError, match=r"Pass event_dims=2 if one problem has 2 dimensions"):
        SolverTask(lambda scores: torch.zeros(9, 5), batched=False).predict(MANY)


def test_infeasible_outputs_are_refused() -> None:
    def chooses_all(scores: Tensor) -> Tensor:
        return torch.ones_like(scores)

    task = SolverTask(chooses_all, feasible=lambda y: y.sum() <= 3)
    with pytest.raises(dl.DirectLossError, match="must be feasible, but it is not, for problem 0"):
        task.predict(MANY)


def test_regret_below_zero_is_suspicious() -> None:
    def minimises(scores: Tensor) -> Tensor:
        return torch.zeros_like(scores).scatter(-1, scores.argmin(-1, keepdim=True), 1.0)

    costs = torch.rand(9, 5)
    with pytest.warns(dl.DirectLossWarning, match="better than its own output for the true costs"):
        dl.direct_loss(MANY, costs, SolverTask(minimises, loss="regret"))
