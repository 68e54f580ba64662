"""Comparisons: values, flips, and the configurations that flips lead to."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from directloss._uniloss.comparisons import Comparisons, Differences, General, Pairs
from directloss._uniloss.lists import Ragged, layout

SCORES = torch.randn(10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
UP, DOWN = torch.tensor([[0, 3], [5, 9]]), torch.tensor([[1, 2, 4], [6, 7, 8]])


def _differences() -> Differences:
    right = torch.tensor([1, 2, -1, -1, 0])
    offset = torch.tensor([0.0, 0.5, -0.3, 0.8, -1.0], dtype=torch.float64)
    return Differences(torch.tensor([0, 3, 4, 9, 7]), right, offset)


def _general() -> General:
    def function(flat: Tensor) -> Tensor:
        return torch.stack([flat[0] - flat[1], flat[2:5].mean(), flat[5] * flat[6] - 0.1, flat[7]])

    return General(function, 4)


RAGGED = Ragged(torch.tensor([9, 3, 0]), torch.tensor([1, 2, 4, 6]), torch.tensor([[2, 1], [1, 3]]))

KINDS: dict[str, Comparisons] = {
    "differences": _differences(),
    "pairs": Pairs(UP, DOWN),
    "ragged": RAGGED,
    "general": _general(),
}
EVERY = pytest.mark.parametrize("kind", KINDS)


@EVERY
def test_values_of_a_batch_are_those_of_its_rows(kind: str) -> None:
    rows = torch.randn(3, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    comparisons = KINDS[kind]
    torch.testing.assert_close(comparisons.values(rows), torch.stack([comparisons.values(row) for row in rows]))
    assert comparisons.values(SCORES).shape == (comparisons.count,)


@EVERY
def test_flipped_changes_the_sign_of_the_chosen_comparison(kind: str) -> None:
    comparisons = KINDS[kind]
    which = torch.arange(comparisons.count)
    moved = comparisons.flipped(SCORES.repeat(comparisons.count, 1), which)
    before, after = comparisons.values(SCORES) > 0, comparisons.values(moved) > 0
    linear = which if kind != "general" else which[[0, 1, 3]]  # a product of scores is flipped to first order only
    assert bool((after[linear, linear] != before[linear]).all())


@EVERY
def test_changed_is_the_configuration_of_the_moved_scores(kind: str) -> None:
    comparisons = KINDS[kind]
    which = torch.arange(comparisons.count)[:, None]
    moved = comparisons.flipped(SCORES.repeat(comparisons.count, 1), which[:, 0])
    found = comparisons.changed(comparisons.values(SCORES) > 0, moved, which).dense()
    assert torch.equal(found, comparisons.values(moved) > 0)


@pytest.mark.parametrize("items", [[[0], [3], [1], [8]], [[0, 1], [3, 9], [4, 6], [2, 4]]])
def test_moved_pairs_are_found_without_looking_at_all(items: list[list[int]]) -> None:
    pairs, chosen = Pairs(UP, DOWN), torch.tensor(items)
    moved = SCORES.repeat(len(items), 1)
    moved.scatter_(
        1, chosen, torch.randn(chosen.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    )
    found = pairs.moved(pairs.values(SCORES) > 0, moved, chosen).dense()
    assert torch.equal(found, pairs.values(moved) > 0)


@EVERY
def test_take_keeps_only_the_chosen(kind: str) -> None:
    comparisons, which = KINDS[kind], torch.tensor([2, 0])
    taken = comparisons.take(which)
    assert taken.count == 2
    torch.testing.assert_close(taken.values(SCORES), comparisons.values(SCORES)[which])
    torch.testing.assert_close(taken.take(torch.tensor([1])).values(SCORES), comparisons.values(SCORES)[[0]])


@EVERY
def test_comparisons_of_one_score(kind: str) -> None:
    comparisons = KINDS[kind]
    for item in range(10):
        bumped = SCORES.clone()
        bumped[item] += 0.37
        expected = comparisons.values(bumped) != comparisons.values(SCORES)
        assert torch.equal(comparisons.of_score(SCORES, item), expected)


def test_random_scores_come_with_their_mirror_images() -> None:
    """Rows of the first half are as good as independent, although each number of them continues one that was drawn."""
    scores = torch.randn(20_001, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3 + 5
    drawn = Pairs(torch.tensor([[0]]), torch.tensor([[1]])).random(scores, 7, torch.Generator().manual_seed(2))
    half, rest = drawn[:4], drawn[4:]
    torch.testing.assert_close(rest + half[:3], (2 * scores.mean()).expand_as(rest))
    torch.testing.assert_close(half.mean(1), scores.mean().expand(4), rtol=0.02, atol=0)
    torch.testing.assert_close(half.std(1), scores.std().expand(4), rtol=0.02, atol=0)
    ahead = torch.sign(half[:, :-1] - half[:, 1:])  # who is ahead of his neighbour
    torch.testing.assert_close(ahead @ ahead.T / 20_000, torch.eye(4, dtype=torch.float64), rtol=0, atol=0.03)


@EVERY
def test_random_scores_are_coin_flips(kind: str) -> None:
    comparisons = KINDS[kind]
    drawn = comparisons.random(SCORES * 3 + 5, 400, torch.Generator().manual_seed(3))
    share = (comparisons.values(drawn) > 0).double().mean(0)
    if kind != "general":  # of a general form nothing is known that would centre it
        offset_pairs = kind == "differences"
        fair = share[[0, 2, 3]] if offset_pairs else share
        assert bool(((fair - 0.5).abs() < 0.12).all()), share


def test_equal_scores_have_a_spread() -> None:
    flat = torch.ones(10, dtype=torch.float64)
    moved = Pairs(UP, DOWN).flipped(flat[None], torch.tensor([0]))
    assert bool(Pairs(UP, DOWN).values(moved)[0, 0] > 0)


def test_ragged_pairs_are_those_of_each_list() -> None:
    left, right, _ = RAGGED.parts(torch.arange(RAGGED.count))
    assert left.tolist() == [9, 3, 0, 0, 0]
    assert right.tolist() == [1, 1, 2, 4, 6]


def test_lists_of_equal_size_are_the_same_either_way() -> None:
    """Pairs in a block and the same lists as ragged ones: same pairs, same layout for the compiled loops."""
    block = Pairs(UP, DOWN)
    ragged = Ragged(UP.flatten(), DOWN.flatten(), torch.tensor([[2, 3], [2, 3]]))
    assert torch.equal(block.values(SCORES), ragged.values(SCORES))
    one, other = layout(block), layout(ragged)
    assert one is not None
    assert other is not None
    for first, second in zip(one, other, strict=True):
        assert np.array_equal(first, second)
    up, down = one.place(np.arange(12))
    assert torch.equal(SCORES[one.relevant[up]] - SCORES[one.irrelevant[down]], block.values(SCORES))
    assert layout(_differences()) is None


def test_scores_are_found_in_their_lists() -> None:
    found = layout(RAGGED)
    assert found is not None
    up, down = found.find(np.array([9, 3, 0, 1, 6, 5]), 10)
    assert up.tolist() == [0, 1, 2, -1, -1, -1]
    assert down.tolist() == [-1, -1, -1, 0, 3, -1]
