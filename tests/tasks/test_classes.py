"""One decision per problem: against all classes and all sets, ties, large scores, wrong input."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss import tasks
from directloss.task import Task
from directloss.tasks.classes import Holding

SIGNS = (+1, -1)
TIGHT = 1e-12  # float64, sums of a few numbers of order one


def drawn(generator: torch.Generator, *shape: int) -> Tensor:
    """Scores with ties in half of the draws."""
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    return scores if int(torch.randint(2, (), generator=generator)) else (2 * scores).round() / 2


def table(classes: int, generator: torch.Generator) -> Tensor:
    """Costs in eighths, which float32 holds exactly."""
    return torch.randint(0, 16, (classes, classes), generator=generator) / 8


# ---------------------------------------------------------------------------------------------- exactness


def best_class(scores: list[float], costs: list[float], step: float) -> float:
    return max(score + step * cost for score, cost in zip(scores, costs, strict=True))


@pytest.mark.parametrize("classes", [1, 2, 3, 7])
def test_classes_against_all_of_them(classes: int, generator: torch.Generator) -> None:
    for _ in range(20):
        scores, target = drawn(generator, 6, classes), torch.randint(classes, (6,), generator=generator)
        costs = table(classes, generator)
        epsilon = 3 * torch.rand(6, generator=generator, dtype=torch.float64) + 0.01
        wrong = (1 - torch.eye(classes)).tolist()
        for task, losses in ((tasks.Accuracy(), wrong), (tasks.CostMatrix(costs), costs.tolist())):
            for sign in SIGNS:
                output = task.augmented(scores, target, epsilon, sign)
                found = task.score(scores, output) + sign * epsilon * task.loss(output, target).double()
                for row in range(6):
                    step = sign * float(epsilon[row])
                    wanted = best_class(scores[row].tolist(), losses[int(target[row])], step)
                    assert float(found[row]) == pytest.approx(wanted, abs=TIGHT)


@pytest.mark.parametrize(("classes", "k"), [(1, 1), (4, 1), (4, 2), (6, 3), (6, 5), (5, 5)])
def test_sets_against_all_of_them(classes: int, k: int, generator: torch.Generator) -> None:
    task = tasks.TopK(k)
    for _ in range(20):
        scores, target = drawn(generator, 4, classes), torch.randint(classes, (4,), generator=generator)
        members = task.predict(scores)
        assert members.sum(-1).tolist() == [k] * 4
        for epsilon, sign in product((0.1, 0.5, 2.0), SIGNS):
            output = task.augmented(scores, target, epsilon, sign)
            assert output.sum(-1).tolist() == [k] * 4
            found = task.score(scores, output) + sign * epsilon * task.loss(output, target).double()
            for row in range(4):
                wanted = max(
                    sum(float(scores[row, c]) for c in chosen) + sign * epsilon * (int(target[row]) not in chosen)
                    for chosen in combinations(range(classes), k)
                )
                assert float(found[row]) == pytest.approx(wanted, abs=TIGHT)


def test_zero_one_costs_are_accuracy(generator: torch.Generator) -> None:
    scores, target = drawn(generator, 50, 5), torch.randint(5, (50,), generator=generator)
    same = tasks.CostMatrix(1 - torch.eye(5))
    for sign, epsilon in product(SIGNS, (0.3, 1.0)):
        wanted = tasks.Accuracy().augmented(scores, target, epsilon, sign)
        assert torch.equal(same.augmented(scores, target, epsilon, sign), wanted)


def test_top_1_is_accuracy(generator: torch.Generator) -> None:
    scores, target = drawn(generator, 50, 5), torch.randint(5, (50,), generator=generator)
    for sign, epsilon in product(SIGNS, (0.3, 1.0)):
        chosen = tasks.Accuracy().augmented(scores, target, epsilon, sign)
        wanted = torch.nn.functional.one_hot(chosen, 5).bool()
        assert torch.equal(tasks.TopK(1).augmented(scores, target, epsilon, sign), wanted)


# ---------------------------------------------------------------------------------------------- ties and magnitudes


def test_error_flips_what_is_closer_than_epsilon() -> None:
    scores, target = torch.tensor([0.5, 0.5, -0.5, -0.5, 0.0, 0.0]), torch.tensor([1, 0, 1, 0, 1, 0])
    task = tasks.Error()
    assert task.predict(scores).tolist() == [True, True, False, False, False, False]
    assert task.augmented(scores, target, 0.51, +1).tolist() == [False, True, False, True, False, True]
    assert task.augmented(scores, target, 0.51, -1).tolist() == [True, False, True, False, True, False]
    for sign in SIGNS:  # at exactly epsilon both are as good, and the plain decision stays
        assert torch.equal(task.augmented(scores[:4], target[:4], 0.5, sign), task.predict(scores[:4]))


TASKS: list[tuple[Task, Callable[[Tensor], Tensor]]] = [
    (tasks.Accuracy(), lambda chosen: chosen),
    (tasks.CostMatrix(1 - torch.eye(3)), lambda chosen: chosen),
    (tasks.TopK(1), lambda chosen: chosen.long().argmax(-1)),
]


@pytest.mark.parametrize(("task", "chosen"), TASKS)
def test_ties_of_classes(task: Task, chosen: Callable[[Tensor], Tensor]) -> None:
    equal = torch.ones(3, 3)
    target = torch.arange(3)
    assert chosen(task.predict(equal)).tolist() == [0, 0, 0]
    # Away from worse: any other class brings epsilon. Where the plain one is among the best it stays.
    assert chosen(task.augmented(equal, target, 1.0, +1)).tolist() == [1, 0, 0]
    assert chosen(task.augmented(equal, target, 1.0, -1)).tolist() == [0, 1, 2]
    # A lead of exactly epsilon: nothing is strictly better than the plain class.
    lead = torch.tensor([[2.0, 1.0, 0.0]])
    assert chosen(task.augmented(lead, torch.tensor([0]), 1.0, +1)).tolist() == [0]
    assert chosen(task.augmented(lead, torch.tensor([1]), 1.0, -1)).tolist() == [0]
    assert chosen(task.augmented(lead, torch.tensor([0]), 1.01, +1)).tolist() == [1]
    assert chosen(task.augmented(lead, torch.tensor([1]), 1.01, -1)).tolist() == [1]


@pytest.mark.parametrize("task", [task for task, _ in TASKS])
@pytest.mark.parametrize("power", [-1000, -100, 100, 900])
def test_scale_does_not_matter(task: Task, power: int, generator: torch.Generator) -> None:
    scores, target, factor = drawn(generator, 20, 3), torch.randint(3, (20,), generator=generator), 2.0**power
    for sign in SIGNS:
        wanted = task.augmented(scores, target, 0.7, sign)
        assert torch.equal(task.augmented(scores * factor, target, 0.7 * factor, sign), wanted)


def test_large_float32_scores_do_not_swallow_epsilon() -> None:
    """In float32 2^24 + 1 is 2^24; the difference of two scores is still exact."""
    scores = torch.tensor([[2.0**24, 2.0**24 - 1, 0.0]])
    for task, chosen in TASKS:
        assert chosen(task.augmented(scores, torch.tensor([0]), 1.5, +1)).tolist() == [1]
        assert chosen(task.augmented(scores, torch.tensor([0]), 0.5, +1)).tolist() == [0]
        assert chosen(task.augmented(scores, torch.tensor([1]), 1.5, -1)).tolist() == [1]
        # Here the difference itself, 16777215.75, needs more digits than float32 has.
        far = torch.tensor([[2.0**24, 0.25, -1.0]])
        assert chosen(task.augmented(far, torch.tensor([1]), 2.0**24 - 0.1, -1)).tolist() == [1]
        assert chosen(task.augmented(far, torch.tensor([1]), 2.0**24 - 0.3, -1)).tolist() == [0]


# ---------------------------------------------------------------------------------------------- through the engine


def test_gradient_of_accuracy_moves_two_classes() -> None:
    scores = torch.tensor([[1.0, 0.8, 0.0], [1.0, 0.8, 0.0]], requires_grad=True)
    dl.direct_loss(scores, torch.tensor([0, 1]), "accuracy", epsilon=0.5, sign=+1, reduction="sum").backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[-2.0, 2.0, 0.0], [0.0, 0.0, 0.0]]
    scores.grad = None
    dl.direct_loss(scores, torch.tensor([0, 1]), "accuracy", epsilon=0.5, sign=-1, reduction="sum").backward()
    assert scores.grad.tolist() == [[0.0, 0.0, 0.0], [2.0, -2.0, 0.0]]


def test_gradient_of_error() -> None:
    scores = torch.tensor([0.2, -0.2, 3.0], requires_grad=True)
    dl.direct_loss(scores, torch.tensor([1, 1, 1]), "error", epsilon=0.5, sign=+1, reduction="sum").backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [-2.0, 0.0, 0.0]
    scores.grad = None
    dl.direct_loss(scores, torch.tensor([1, 1, 1]), "error", epsilon=0.5, sign=-1, reduction="sum").backward()
    assert scores.grad.tolist() == [0.0, -2.0, 0.0]


@pytest.mark.parametrize("name", ["error", "accuracy", "topk@2"])
def test_weights_and_masks_are_per_item(name: str, generator: torch.Generator) -> None:
    rows = (6,) if name == "error" else (6, 4)
    scores = torch.randn(rows, generator=generator)
    target = torch.randint(2, (6,), generator=generator)
    losses = dl.direct_loss(scores, target, name, reduction="none")
    weight = torch.arange(6.0)
    found = dl.direct_loss(scores, target, name, weight=weight)
    torch.testing.assert_close(found, (losses * weight).sum() / weight.sum())
    mask = weight > 2
    torch.testing.assert_close(dl.direct_loss(scores, target, name, mask=mask), losses[mask].mean())


@pytest.mark.parametrize("name", ["accuracy", "topk@2"])
def test_images_are_batches_of_pixels(name: str, generator: torch.Generator) -> None:
    """Class scores in the second dimension, as convolutions return them."""
    scores, target = torch.randn(2, 4, 3, 5, generator=generator), torch.randint(4, (2, 3, 5), generator=generator)
    found = dl.direct_loss(scores, target, name, dim=1, reduction="none")
    assert torch.equal(found, dl.direct_loss(scores.movedim(1, -1), target, name, reduction="none"))


def test_error_of_a_single_number() -> None:
    assert float(dl.direct_loss(torch.tensor(0.5), torch.tensor(0), "error")) == 1


def test_truth_of_top_k_is_the_best_set_with_the_right_class() -> None:
    task, scores, target = tasks.TopK(2), torch.tensor([[3.0, 2.0, 1.0, -4.0]]), torch.tensor([3])
    truth = task.truth(target)
    assert isinstance(truth, Holding)
    assert float(task.score(scores, truth)) == -1.0
    assert float(task.loss(truth, target)) == 0
    assert float(dl.perceptron_loss(scores, target, task)) == 6.0
    assert float(dl.hinge_loss(scores, target, task, epsilon=1.0)) == 7.0


def test_truth_of_costs_is_the_cheapest_class() -> None:
    task = tasks.CostMatrix([[1.0, 0.5, 0.5], [0.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
    assert task.truth(torch.tensor([0, 1, 2])).tolist() == [1, 1, 2]


def test_costs_are_a_copy() -> None:
    costs = torch.eye(2)
    task = tasks.CostMatrix(costs)
    costs.fill_(7)
    assert float(task.loss(torch.tensor(0), torch.tensor(0))) == 1


# ---------------------------------------------------------------------------------------------- names and wrong input

REPRS = {"error": "Error()", "accuracy": "Accuracy()", "topk": "TopK(5)", "topk@3": "TopK(3)"}


@pytest.mark.parametrize("name", REPRS)
def test_names(name: str) -> None:
    assert repr(tasks.get(name)) == REPRS[name]


def test_costs_show_their_size() -> None:
    assert repr(tasks.CostMatrix(torch.ones(3, 3))) == "CostMatrix(3 x 3)"


SQUARE = "costs must be square, one row and one column per class, but it is of shape"
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: tasks.TopK(0), "k must be a whole number of at least 1, but it is 0"),
    (lambda: tasks.TopK(2.0), "k must be a whole number of at least 1, but it is 2.0"),  # type: ignore[arg-type]
    (lambda: tasks.TopK(True), "k must be a whole number of at least 1, but it is True"),
    (lambda: tasks.get("topk@2.5"), "k must be a whole number of at least 1, but it is 2.5"),
    (lambda: tasks.get("accuracy@2"), "task takes no number: 'accuracy' stands alone"),
    (lambda: tasks.get("error@2"), "task takes no number: 'error' stands alone"),
    (lambda: tasks.CostMatrix(torch.ones(2, 3)), f"{SQUARE} (2, 3)"),
    (lambda: tasks.CostMatrix(torch.ones(3)), f"{SQUARE} (3,)"),
    (lambda: tasks.CostMatrix(torch.ones(0, 0)), f"{SQUARE} (0, 0)"),
    (lambda: tasks.CostMatrix([[0.0, -1.0], [1.0, 0.0]]), "costs must not be negative, but it is -1.0"),
    (lambda: tasks.CostMatrix([[0.0, math.nan], [1.0, 0.0]]), "costs must be finite, but it is nan at index [0, 1]"),
    (lambda: tasks.CostMatrix([[0.0, 1e300], [1.0, 0.0]]), "costs must be finite, but it is inf at index [0, 1]"),
    (lambda: tasks.CostMatrix([[0.0, 1.0], [1.0]]), "costs must be a table of numbers, but it is [[0.0, 1.0], [1.0]]"),
    (lambda: tasks.CostMatrix("ab"), "costs must be a table of numbers, but it is 'ab'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_tasks_are_refused_when_built(call: Callable[[], object], message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        call()
    assert str(caught.value).startswith(message)


SCORES = torch.tensor([[0.5, -0.5, 1.0], [0.1, 0.2, 0.3]])
CLASSES = torch.tensor([0, 2])
LABELS = torch.tensor([[1, 0, 0], [0, 1, 1]])
ROW = "target must hold one class index per row of scores, shape (2,), but it is of shape"
WRONG_DATA: list[tuple[Any, Any, Any, str]] = [
    (SCORES.long(), CLASSES, "accuracy", "scores must be floating point, but it is torch.int64"),
    (torch.tensor(1.0), torch.tensor(0), "accuracy", "scores must have shape (..., c), but it is of shape ()"),
    (SCORES / 0, CLASSES, "accuracy", "scores must be finite, but it is inf"),
    (SCORES, LABELS, "accuracy", f"{ROW} (2, 3). For one-hot labels pass target.argmax(-1);"),
    (SCORES, torch.tensor(0), "accuracy", f"{ROW} ()"),
    (SCORES, torch.tensor([0, 3]), "accuracy", "target must hold class indices from 0 to 2, but it is 3 at [1]"),
    (SCORES, torch.tensor([0, -1]), "accuracy", "target must hold class indices from 0 to 2, but it is -1 at [1]"),
    (SCORES, torch.tensor([-100, 0]), "topk@2", "target must hold class indices from 0 to 2, but it is -100 at [0]"),
    (SCORES, CLASSES.float(), "accuracy", "target must hold integer class indices, but it is torch.float32"),
    (SCORES, CLASSES.bool(), "accuracy", "target must hold integer class indices, but it is torch.bool"),
    (SCORES, CLASSES, "topk", "k must be at most the number of classes, 3, but it is 5"),
    (
        SCORES,
        CLASSES,
        tasks.CostMatrix(torch.ones(2, 2)),
        "scores must have one column per class of the cost matrix, 2",
    ),
    (SCORES, LABELS[0], "error", "target must have the shape of scores, (2, 3), but it is of shape (3,)"),
    (SCORES, LABELS + 1, "error", "target must hold only 0 or 1, but it is 2 at index [0, 0]"),
    (
        SCORES,
        -LABELS,
        "error",
        "target must hold only 0 or 1, but it is -1 at index [0, 0]. Leave items out with mask.",
    ),
    (SCORES / 0, LABELS, "error", "scores must be finite, but it is inf"),
]


@pytest.mark.parametrize(("scores", "target", "task", "message"), WRONG_DATA)
def test_wrong_data_is_named(scores: Any, target: Any, task: Any, message: str) -> None:
    for loss in (dl.direct_loss, dl.hinge_loss, dl.perceptron_loss):
        with pytest.raises(dl.DirectLossError) as caught:
            loss(scores, target, task)
        assert str(caught.value).startswith(message)
