"""Assignments. The contract is checked in test_contract.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss.tasks import Assignment, Matching


def draw(batch: int, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    target = torch.stack([torch.randperm(columns)[:rows] for _ in range(batch)])
    return torch.randn(batch, rows, columns, requires_grad=True), target


def theorem(scores: Tensor, target: Tensor, task: Any, **options: Any) -> Tensor:
    """The paper's theorem on the scores as they are: its gradients can be compared."""
    return dl.direct_loss(scores, target, task, noise=0, **options)


def test_every_row_gets_a_column_of_its_own() -> None:
    scores, target = draw(20, 6, 9)
    task = Assignment()
    for output in (
        task.predict(scores),
        task.augmented(scores, target, 5.0, +1).labels,
        task.augmented(scores, target, 5.0, -1).labels,
    ):
        assert output.shape == (20, 6)
        assert all(len(set(row)) == 6 for row in output.tolist())


def test_loss_is_the_share_of_wrong_rows() -> None:
    output, target = torch.tensor([[0, 1, 2], [2, 0, 1]]), torch.tensor([[0, 2, 1], [2, 0, 1]])
    torch.testing.assert_close(Assignment().loss(output, target), torch.tensor([2 / 3, 0.0]))


def test_a_large_epsilon_finds_the_truth_or_its_opposite() -> None:
    scores, target = draw(10, 3, 5)
    task = Assignment()
    assert torch.equal(task.augmented(scores, target, 1000.0, -1).labels, target)
    assert not (task.augmented(scores, target, 1000.0, +1).labels == target).any()


@pytest.mark.parametrize("loss", [theorem, dl.hinge_loss, dl.perceptron_loss])
def test_padded_rows_take_no_column(loss: Callable[..., Tensor]) -> None:
    scores, target = draw(8, 4, 4)
    mask = torch.tensor([True, False, True, False]).expand(8, 4)
    spoiled = torch.where(mask[..., None], scores.detach(), torch.nan).requires_grad_()
    found = loss(spoiled, target, "assignment", mask=mask, reduction="none")
    alone = scores.detach()[:, ::2].clone().requires_grad_()
    wanted = loss(alone, target[:, ::2], "assignment", reduction="none")
    torch.testing.assert_close(found, wanted)
    gradient = torch.autograd.grad(found.sum(), spoiled)[0]
    torch.testing.assert_close(gradient[:, ::2], torch.autograd.grad(wanted.sum(), alone)[0])
    assert not gradient[:, 1::2].any()


def test_a_table_of_marks_is_a_matching() -> None:
    scores, target = draw(5, 3, 4)
    table = torch.nn.functional.one_hot(target, 4).bool()
    torch.testing.assert_close(
        dl.direct_loss(scores, table, Matching(loss="missed")), dl.direct_loss(scores, target, Assignment())
    )


def test_own_cost_is_the_loss() -> None:
    """Distance between columns, as for detections along a line."""
    far = (torch.arange(5)[:, None] - torch.arange(5)).abs() / 4
    scores, target = draw(6, 4, 5)
    loss = dl.direct_loss(scores, target, Assignment(cost=far), reduction="none")
    wanted = far[target, Assignment().predict(scores)].mean(-1)
    torch.testing.assert_close(loss.detach(), wanted)


def test_training_finds_the_assignment() -> None:
    target = torch.tensor([[3, 0, 2, 1]])
    scores = torch.randn(1, 4, 4, requires_grad=True)
    optimiser = torch.optim.SGD([scores], lr=1.0)
    loss_fn = dl.DirectLoss("assignment", likelihood=0)
    for _ in range(50):
        optimiser.zero_grad()
        loss_fn(scores, target).backward()
        optimiser.step()
    assert loss_fn(scores, target).item() == 0


def test_repr() -> None:
    assert repr(Assignment()) == "Assignment()"
    assert repr(Assignment(cost=1 - torch.eye(2))) == "Assignment(cost=...)"


SCORES, TARGET = torch.zeros(2, 2, 3), torch.tensor([[0, 1], [2, 0]])
TABLE = torch.nn.functional.one_hot(TARGET, 3)
WRONG_CALLS: list[tuple[Any, Any, Any, dict[str, Any], str]] = [
    (
        Assignment(),
        SCORES.mT,
        TARGET,
        {},
        "scores must have at least as many columns as rows, but it is of shape (2, 3, 2)",
    ),
    (
        Assignment(),
        SCORES,
        TARGET[0],
        {},
        "target must hold one label per position, shape (2, 2), but it is of shape (2,)",
    ),
    (Assignment(), SCORES, TARGET + 1, {}, "target must hold class indices from 0 to 2, but it is 3"),
    (
        Assignment(),
        SCORES,
        TARGET * 0,
        {},
        "target must give each row a different column, but it is column 0 for more than one row",
    ),
    (Assignment(), SCORES, TARGET.double(), {}, "target must hold integer class indices, but it is torch.float64"),
    (
        Assignment(),
        SCORES,
        TABLE,
        {},
        "target must hold the column of each row, but it is a table in the shape of scores. Use",
    ),
    (Assignment(), SCORES / 0, TARGET, {}, "scores must be finite"),
    (Assignment(), SCORES[0, 0], TARGET, {}, "scores must have shape (..., r, c), but it is of shape (3,)"),
    (Assignment(cost=torch.zeros(2, 2)), SCORES, TARGET, {}, "cost must be a matrix for the 3 labels of scores"),
    (
        Matching(loss="missed"),
        SCORES,
        TABLE * 0,
        {},
        "target must have a single 1 in each row, but it is of 0 in row [0, 0]",
    ),
]


@pytest.mark.parametrize(("task", "scores", "target", "options", "message"), WRONG_CALLS)
def test_wrong_calls(task: Assignment, scores: Any, target: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        dl.direct_loss(scores, target, task, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(("kind", "huge"), [(torch.float32, 3e38), (torch.float64, 1e300)])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_scores_near_the_largest_number(kind: torch.dtype, huge: float, sign: int, share: float) -> None:
    """As for scores of order one: everything is scaled."""
    plain = torch.tensor([[1.0, -1.0, 0.1], [1.0, 0.3, 0.0], [0.0, 0.9, -1.0]], dtype=torch.float64)
    target = torch.tensor([0, 1, 2])
    found = []
    for scores, unit in ((plain, 1.0), ((plain * huge).to(kind), huge)):
        leaf = scores.clone().requires_grad_()
        loss = theorem(leaf, target, "assignment", epsilon=share * unit, sign=sign)
        loss.backward()
        found.append((loss.detach().double(), leaf.grad.double() * unit))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("kind", "huge"), [(torch.float32, 3e38), (torch.float64, 1e300)])
@pytest.mark.parametrize("noise", [0, 1.0])
def test_the_automatic_epsilon_of_huge_scores_is_a_number(kind: torch.dtype, huge: float, noise: float) -> None:
    scores = (torch.tensor([[1.0, -1.0, 0.1], [1.0, 0.3, 0.0], [0.0, 0.9, -1.0]]).to(kind) * huge).requires_grad_()
    dl.direct_loss(scores, torch.tensor([0, 1, 2]), "assignment", noise=noise).backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
