"""Comparisons: values, gradients, flips, random rows; and pairs in lists."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from directloss._uniloss import comparisons as module
from directloss._uniloss.comparisons import Comparisons, Differences, all_pairs, ranked_pairs

SCORES = torch.randn(10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def _function(flat: Tensor) -> Tensor:
    return torch.stack([flat[0] - flat[1], flat[2:5].mean(), flat[5] * flat[6] - 0.1, flat[7]])


KINDS: dict[str, Comparisons] = {
    "pairs": Differences(torch.tensor([0, 3, 5]), torch.tensor([1, 2, 9]), 10),
    "thresholds": Differences.of(
        (torch.tensor([0, 3]), torch.tensor([1, 2])), 10, torch.tensor([0.3, -0.8], dtype=torch.float64)
    ),
    "general": Comparisons(_function, 4),
}
EVERY = pytest.mark.parametrize("kind", KINDS)


def _bits(comparisons: Comparisons, rows: Tensor) -> Tensor:
    return torch.stack([comparisons.values(row) > 0 for row in rows])


def test_thresholds_are_compared_with_every_score() -> None:
    values = KINDS["thresholds"].values(SCORES)
    expected = torch.cat([SCORES[[0, 3]] - SCORES[[1, 2]], SCORES - 0.3, SCORES + 0.8])
    torch.testing.assert_close(values, expected)


@EVERY
@pytest.mark.parametrize("block", [1 << 18, 12])
def test_differing_binaries(kind: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with ties, and in blocks."""
    monkeypatch.setattr(module, "BLOCK", block)
    rows = torch.randint(4, (5, 10), generator=torch.Generator().manual_seed(2)).double()
    comparisons, here = KINDS[kind], KINDS[kind].values(SCORES) > 0
    found = torch.empty(comparisons.count, 5, dtype=torch.float64)
    for some, differs in comparisons.differing(rows, here):
        found[some] = differs
    assert torch.equal(found.T > 0, _bits(comparisons, rows) != here)


@EVERY
def test_pull_is_the_gradient(kind: str) -> None:
    comparisons = KINDS[kind]
    slopes = torch.randn(comparisons.count, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    free = SCORES.clone().requires_grad_()
    (expected,) = torch.autograd.grad(comparisons.values(free), free, slopes)
    torch.testing.assert_close(comparisons.pull(SCORES, slopes), expected)


@EVERY
def test_flipped_changes_the_sign_of_the_chosen_comparison(kind: str) -> None:
    comparisons = KINDS[kind]
    which = torch.arange(comparisons.count)
    moved = comparisons.flipped(SCORES.repeat(comparisons.count, 1), which)
    before, after = comparisons.values(SCORES) > 0, _bits(comparisons, moved)
    linear = which if kind != "general" else which[[0, 1, 3]]  # a product of scores is flipped to first order only
    assert bool((after[linear, linear] != before[linear]).all())


@EVERY
def test_take_keeps_only_the_chosen(kind: str) -> None:
    comparisons, which = KINDS[kind], torch.tensor([2, 0])
    taken = comparisons.take(which)
    assert taken.count == 2
    torch.testing.assert_close(taken.values(SCORES), comparisons.values(SCORES)[which])


@EVERY
def test_random_rows_are_coin_flips_in_opposite_pairs(kind: str) -> None:
    comparisons = KINDS[kind]
    drawn = comparisons.random(SCORES * 3 + 5, 400, torch.Generator().manual_seed(3))
    if kind == "pairs":
        share = _bits(comparisons, drawn).double().mean(0)
        assert bool(((share - 0.5).abs() < 0.12).all()), share
    centre = -0.25 if kind == "thresholds" else (SCORES * 3 + 5).mean()  # the mean of the thresholds
    torch.testing.assert_close(drawn[:200] + drawn[200:], torch.full_like(drawn[200:], 2 * float(centre)))


def test_equal_scores_have_a_spread() -> None:
    pairs = KINDS["pairs"]
    moved = pairs.flipped(torch.ones(1, 10, dtype=torch.float64), torch.tensor([0]))
    assert bool(pairs.values(moved[0])[0] > 0)


@pytest.mark.parametrize("levels", [2, 3, 5])
def test_ranked_pairs_are_all_pairs_of_different_relevance(levels: int) -> None:
    draw = torch.Generator().manual_seed(levels)
    lists = torch.randperm(24, generator=draw).reshape(4, 6)
    relevance = torch.randint(levels, (4, 6), generator=draw).double()
    relevance[0] = 1  # nothing to compare
    relevance[1, :2] = torch.nan  # does not count
    left, right = ranked_pairs(lists, relevance)
    expected = {
        (int(lists[b, i]), int(lists[b, j]))
        for b in range(4) for i in range(6) for j in range(6) if relevance[b, i] > relevance[b, j]
    }  # fmt: skip
    assert sorted(zip(left.tolist(), right.tolist(), strict=True)) == sorted(expected)


def test_all_pairs_stay_within_their_lists() -> None:
    left, right = all_pairs(torch.tensor([[4, 7, 1], [2, 0, 9]]))
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == [(4, 7), (4, 1), (7, 1), (2, 0), (2, 9), (0, 9)]
