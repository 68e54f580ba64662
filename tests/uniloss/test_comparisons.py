"""Comparisons: values, binaries, flips, and pairs in lists."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from directloss import Anchoring
from directloss._uniloss.comparisons import Comparisons, Differences, General, Pairs
from directloss._uniloss.compiled import lists_of
from directloss._uniloss.lists import Layout
from directloss._uniloss.refactoring import Bound

SCORES = torch.randn(10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
UP, DOWN = torch.tensor([[0, 3], [5, 9]]), torch.tensor([[1, 2, 4], [6, 7, 8]])
PAIRS = Pairs(UP.flatten(), DOWN.flatten(), torch.tensor([[2, 3], [2, 3]]))
SINGLE = Pairs(torch.tensor([8, 2, 5]), torch.tensor([9, 0]), torch.tensor([[3, 2]]))


def _differences() -> Differences:
    right = torch.tensor([1, 2, -1, -1, 0])
    offset = torch.tensor([0.0, 0.5, -0.3, 0.8, -1.0], dtype=torch.float64)
    return Differences(torch.tensor([0, 3, 4, 9, 7]), right, offset)


def _general() -> General:
    def function(flat: Tensor) -> Tensor:
        return torch.stack([flat[0] - flat[1], flat[2:5].mean(), flat[5] * flat[6] - 0.1, flat[7]])

    return General(function, 4)


RAGGED = Pairs(torch.tensor([9, 3, 0]), torch.tensor([1, 2, 4, 6]), torch.tensor([[2, 1], [1, 3]]))

KINDS: dict[str, Comparisons] = {
    "differences": _differences(),
    "pairs": PAIRS,
    "single list": SINGLE,
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
def test_binaries_are_the_signs_of_the_values(kind: str) -> None:
    rows = torch.randint(4, (5, 10), generator=torch.Generator().manual_seed(2)).double()  # with ties
    comparisons = KINDS[kind]
    assert torch.equal(comparisons.bits(rows), comparisons.values(rows) > 0)


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
    drawn = Pairs(torch.tensor([0]), torch.tensor([1]), torch.tensor([[1, 1]])).random(
        scores, 7, torch.Generator().manual_seed(2)
    )
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
    moved = PAIRS.flipped(flat[None], torch.tensor([0]))
    assert bool(PAIRS.values(moved)[0, 0] > 0)


def test_ragged_pairs_are_those_of_each_list() -> None:
    left, right, _ = RAGGED.parts(torch.arange(RAGGED.count))
    assert left.tolist() == [9, 3, 0, 0, 0]
    assert right.tolist() == [1, 1, 2, 4, 6]


def _layout(pairs: Pairs) -> Layout:
    found = lists_of(Bound(SCORES, pairs, lambda rows: rows[:, 0], None, SCORES), Anchoring())
    assert found is not None
    return found


def test_the_layout_for_compiled_loops_has_the_same_pairs() -> None:
    for pairs in (PAIRS, SINGLE, RAGGED):
        found = _layout(pairs)
        up, down = found.place(np.arange(pairs.count))
        assert torch.equal(SCORES[found.relevant[up]] - SCORES[found.irrelevant[down]], pairs.values(SCORES))


def test_lists_without_both_kinds_have_no_pairs() -> None:
    lists = torch.tensor([[0, 1], [2, 3], [4, 5]])
    high = torch.tensor([[True, False], [True, True], [False, True]])
    found = Pairs.of(lists, high, ~high)
    assert found is not None
    assert torch.equal(found.values(SCORES), SCORES[[0, 5]] - SCORES[[1, 4]])
    assert Pairs.of(lists, high | True, ~high & False) is None


def test_scores_are_found_in_their_lists() -> None:
    found = _layout(RAGGED)
    up, down = found.find(np.array([9, 3, 0, 1, 6, 5]), 10)
    assert up.tolist() == [0, 1, 2, -1, -1, -1]
    assert down.tolist() == [-1, -1, -1, 0, 3, -1]
