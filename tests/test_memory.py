"""A batch among the scores of earlier ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import directloss as dl


def batch(items: int, *lists: int) -> tuple[Tensor, Tensor]:
    scores = torch.randn(items, *lists, dtype=torch.float64)
    target = (torch.rand(items, *lists) < 0.4).long()
    target[:2] = torch.tensor([0, 1]).reshape(2, *(1 for _ in lists))
    return scores.requires_grad_(), target


def test_the_value_is_that_of_the_joined_list_and_the_gradient_its_part_rescaled() -> None:
    memory, loss_fn = dl.ScoreMemory(100), dl.DirectLoss("ap", epsilon="auto")
    earlier, present = batch(30), batch(10)
    memory(*earlier)
    loss = loss_fn(*memory(*present))
    loss.backward()

    joined = torch.cat((present[0], earlier[0])).detach().requires_grad_()
    expected = loss_fn(joined, torch.cat((present[1], earlier[1])))
    expected.backward()
    assert loss.item() == expected.item()
    assert joined.grad is not None
    torch.testing.assert_close(present[0].grad, 4 * joined.grad[:10])
    assert earlier[0].grad is None


def test_the_first_batch_is_ranked_alone() -> None:
    scores, target = batch(12)
    found, labels = dl.ScoreMemory()(scores, target)
    assert torch.equal(found, scores)
    assert torch.equal(labels, target)


def test_the_newest_items_are_kept() -> None:
    memory = dl.ScoreMemory(5)
    for start in (0.0, 3.0, 6.0):
        memory(torch.arange(start, start + 3), torch.zeros(3))
    kept, _ = memory.get_extra_state().values()
    assert kept is not None
    assert kept.tolist() == [6.0, 7.0, 8.0, 3.0, 4.0]
    assert len(memory) == 5


def test_a_batch_larger_than_the_memory_is_still_ranked_whole() -> None:
    memory = dl.ScoreMemory(4)
    scores, _ = memory(torch.arange(9.0), torch.zeros(9))
    assert len(scores) == 9
    assert len(memory) == 4


def test_what_is_remembered_does_not_change_with_the_scores_it_came_from() -> None:
    memory, scores = dl.ScoreMemory(), torch.zeros(3)
    memory(scores, torch.tensor([0, 1, 0]))
    scores += 1
    joined, _ = memory(torch.ones(1), torch.tensor([1]))
    assert joined.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_evaluation_adds_and_stores_nothing() -> None:
    memory = dl.ScoreMemory()
    memory(*batch(8))
    memory.eval()
    scores, target = batch(5)
    assert memory(scores, target) == (scores, target)
    assert len(memory) == 8


def test_a_checkpoint_brings_the_memory_back(tmp_path: Path) -> None:
    memory = dl.ScoreMemory(20)
    memory(*batch(8))
    torch.save(memory.state_dict(), tmp_path / "memory.pt")
    again = dl.ScoreMemory(20)
    again.load_state_dict(torch.load(tmp_path / "memory.pt", weights_only=True))
    present = batch(4)
    for one, other in zip(memory(*present), again(*present), strict=True):
        assert torch.equal(one, other)


def test_an_empty_memory_can_be_saved_and_loaded() -> None:
    again = dl.ScoreMemory()
    again.load_state_dict(dl.ScoreMemory().state_dict())
    assert len(again) == 0


def test_several_lists_at_once() -> None:
    memory, loss_fn = dl.ScoreMemory(), dl.DirectLoss("ap", dim=0)
    memory(*batch(20, 3))
    scores, target = batch(6, 3)
    loss_fn(*memory(scores, target)).backward()
    assert scores.grad is not None
    assert scores.grad.shape == (6, 3)
    assert scores.grad.abs().sum() > 0


def test_scores_of_another_precision_are_joined_in_the_present_one() -> None:
    memory = dl.ScoreMemory()
    memory(torch.zeros(3, dtype=torch.bfloat16), torch.tensor([True, False, True]))
    scores, target = memory(torch.ones(2), torch.tensor([1, 0]))
    assert (scores.dtype, target.dtype) == (torch.float32, torch.int64)
    assert target.tolist() == [1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("stored", "present", "joined"),
    [
        (torch.tensor([0.5, 1.0]), torch.tensor([1, 0]), [1, 0, 0.5, 1]),
        (torch.tensor([300, 2]), torch.tensor([1, 0], dtype=torch.uint8), [1, 0, 300, 2]),
        (torch.tensor([2, 1]), torch.tensor([True, False]), [1, 0, 2, 1]),
    ],
)
def test_labels_of_another_dtype_keep_their_value(stored: Tensor, present: Tensor, joined: list[float]) -> None:
    memory = dl.ScoreMemory()
    memory(torch.zeros(2), stored)
    assert memory(torch.zeros(2), present)[1].tolist() == joined


def test_a_smaller_memory_loads_the_newest_items() -> None:
    memory, smaller = dl.ScoreMemory(50), dl.ScoreMemory(10)
    memory(torch.arange(50.0), torch.zeros(50))
    smaller.load_state_dict(memory.state_dict())
    assert smaller(torch.zeros(5), torch.zeros(5))[0].tolist() == [0.0] * 5 + list(range(10))


def test_an_empty_memory_is_true() -> None:
    assert dl.ScoreMemory(8)


def test_clear_forgets() -> None:
    memory = dl.ScoreMemory()
    memory(*batch(8, 2))
    memory.clear()
    assert len(memory) == 0
    memory(*batch(8))


@pytest.mark.parametrize(
    ("scores", "target", "message"),
    [
        (torch.tensor([float("nan")]), torch.tensor([1]), "scores must be finite, but it is nan at index"),
        (torch.tensor(1.0), torch.tensor(1), "scores must have shape (n,) or (n, c), but it is of shape ()"),
        (torch.zeros(3), torch.zeros(2), "target must have the shape of scores, (3,), but it is of shape (2,)"),
        (torch.zeros(3, 4), torch.zeros(3, 4), "scores must have the shape (n, 2) of earlier batches"),
        ([1.0], torch.zeros(1), "scores must be a torch.Tensor, but it is a list"),
    ],
    ids=["nan", "number", "lengths", "other lists", "list"],
)
def test_bad_input_is_refused_and_not_remembered(scores: Tensor, target: Tensor, message: str) -> None:
    memory = dl.ScoreMemory()
    memory(*batch(4, 2))
    with pytest.raises(dl.DirectLossError) as caught:
        memory(scores, target)
    assert message in str(caught.value)
    assert len(memory) == 4


@pytest.mark.parametrize("size", [0, -3, 2.5, True, "many"])
def test_the_size_is_a_positive_whole_number(size: object) -> None:
    with pytest.raises(dl.DirectLossError, match="size must be a whole number of at least 1"):
        dl.ScoreMemory(size)  # type: ignore[arg-type]


def test_a_state_of_an_earlier_version_loads() -> None:
    memory = dl.ScoreMemory(4)
    memory.load_state_dict({"_extra_state": {"scores": torch.tensor([3.0, 1.0]), "target": torch.tensor([1, 0])}})
    assert memory(torch.zeros(1), torch.ones(1))[0].tolist() == [0.0, 3.0, 1.0]
    memory.load_state_dict({"_extra_state": {"scores": None, "target": None}})
    assert len(memory) == 0
