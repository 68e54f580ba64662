"""Anchors: where they are, what they are worth, and what contradicts itself."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from directloss import DirectLossError, DirectLossWarning
from directloss._uniloss.anchors import Anchoring, Anchors, sample
from directloss._uniloss.byhand import BY_HAND
from directloss._uniloss.comparisons import Differences
from directloss._uniloss.consistency import consistent_differences
from directloss._uniloss.refactoring import Bound
from tests.uniloss.conftest import Problem, problem


def _bound(name: str) -> Bound:
    bound = BY_HAND[name].bind(*problem(name))
    assert bound is not None
    return bound


def _sample(bound: Bound, how: Anchoring, seed: int = 0) -> Anchors:
    return sample(bound, bound.comparisons, how, torch.Generator().manual_seed(seed))


def test_anchors_in_score_space_are_consistent_and_truly_valued(named: Problem) -> None:
    bound = _bound(named[0])
    anchors = _sample(bound, Anchoring(6, 5, 4))
    bits = anchors.configurations.dense()
    assert anchors.kinds == ("good",) * 6 + ("nearby",) * 5 + ("bad",) * 4
    assert bits.shape == (15, bound.comparisons.count)
    assert not bool(anchors.inconsistent.any())
    assert bool(consistent_differences(bound.comparisons, bits).all())
    assert bound.decide is not None
    torch.testing.assert_close(anchors.values.double(), bound.decide(bits).double())


def test_good_anchors_are_one_flip_from_the_best(named: Problem) -> None:
    anchors = _sample(_bound(named[0]), Anchoring(8, 0, 2))
    wrong = (~anchors.configurations.dense()[:8]).sum(-1)
    # A pixel that meets another between the two groups flips nothing else.
    assert wrong.tolist() == [1] * 8


def test_nearby_anchors_flip_at_least_one(named: Problem) -> None:
    bound = _bound(named[0])
    present = bound.comparisons.values(bound.scores) > 0
    flips = (_sample(bound, Anchoring(0, 12, 0)).configurations.dense() != present).sum(-1)
    assert bool((flips > 0).all())
    assert flips.double().mean() < 0.5 * bound.comparisons.count


@pytest.mark.parametrize("space", ["scores", "bits"])
def test_the_same_generator_gives_the_same_anchors(space: str) -> None:
    first, second, third = (
        _sample(_bound("accuracy"), Anchoring(space=space), seed).configurations.dense() for seed in (1, 1, 2)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_bit_space_marks_and_warns_of_contradictions() -> None:
    bound = _bound("ap")
    with pytest.warns(DirectLossWarning, match="anchors in bit space contradict themselves"):
        anchors = _sample(bound, Anchoring(space="bits"))
    bits = anchors.configurations.dense()
    assert torch.equal(anchors.inconsistent, ~consistent_differences(bound.comparisons, bits))
    assert bool(anchors.inconsistent[-16:].all())  # random tables of 5 x 9 binaries are no ranking
    assert not bool(anchors.inconsistent[:16].any())  # one flip from the best is
    assert bool((anchors.values > 0).all())  # never valued 0 for it


def test_bit_space_of_accuracy_has_no_contradictions() -> None:
    assert not bool(_sample(_bound("accuracy"), Anchoring(space="bits")).inconsistent.any())


@pytest.mark.filterwarnings("ignore:.*contradict themselves")
def test_whole_scores_are_flipped_in_bit_space() -> None:
    bound = _bound("pckh")
    present = bound.comparisons.values(bound.scores) > 0
    flips = _sample(bound, Anchoring(0, 6, 0, space="bits", unit="score")).configurations.dense() != present
    rows = {tuple(bound.comparisons.of_score(bound.scores, item).tolist()) for item in range(bound.scores.numel())}
    assert all(tuple(row) in rows for row in flips.tolist())


def test_whole_scores_move_to_the_top_or_the_bottom() -> None:
    bound = _bound("pckh")
    present = bound.comparisons.values(bound.scores) > 0
    moved = _sample(bound, Anchoring(0, 40, 0, unit="score")).configurations.dense()
    touched = [bound.comparisons.of_score(bound.scores, item) for item in range(bound.scores.numel())]
    for row in moved:
        assert any(bool((row == present)[~mine].all()) for mine in touched)


def test_several_flips() -> None:
    anchors = _sample(_bound("accuracy"), Anchoring(10, 0, 2, flips=3))
    wrong = (~anchors.configurations.dense()[:10]).sum(-1)
    assert bool((wrong >= 1).all())
    assert int(wrong.max()) == 3


def test_the_nearest_optimum_prefers_none_of_several() -> None:
    """One pixel near the keypoint is enough; the target's configuration would raise all of them."""
    bound = _bound("pckh")
    of_target = _sample(bound, Anchoring(16, 0, 0))
    nearest = _sample(bound, Anchoring(16, 0, 0, best="nearest"))
    present = bound.comparisons.values(bound.scores) > 0
    far, near = ((a.configurations.dense() != present).sum().item() for a in (of_target, nearest))
    assert near < 0.9 * far
    assert float(nearest.values.max()) == 1.0


def test_control_has_constants_for_values() -> None:
    anchors = _sample(_bound("accuracy"), Anchoring(2, 2, 2, control=True))
    now = BY_HAND["accuracy"].bind(*problem("accuracy"))
    assert now is not None
    value = now.measure(now.scores[None]).item()
    assert anchors.values.tolist() == pytest.approx([1, 1, value, value, 0, 0])


def test_part_of_the_comparisons_leaves_the_others_as_they_are() -> None:
    bound = _bound("accuracy")
    subset = torch.tensor([0, 5, 9, 20])
    part = bound.comparisons.take(subset)
    how = Anchoring(4, 4, 4, space="bits")
    anchors = sample(bound, part, how, torch.Generator().manual_seed(0), subset)
    assert anchors.configurations.dense().shape == (12, 4)
    whole = (bound.comparisons.values(bound.scores) > 0).repeat(12, 1)
    whole[:, subset] = anchors.configurations.dense()
    assert bound.decide is not None
    torch.testing.assert_close(anchors.values, bound.decide(whole))


def test_without_best_scores_the_message_says_what_to_do() -> None:
    bound = replace(_bound("ap"), best_scores=None)
    with pytest.raises(DirectLossError, match=r"best_scores must be given if the target does not tell"):
        _sample(bound, Anchoring())


def test_thresholds_take_part_in_contradictions() -> None:
    """s0 > 1 and s0 <= 0 cannot be; nor can s0 > 1, s1 <= 0 and s1 >= s0."""
    left, right = torch.tensor([0, 0, 1, 0]), torch.tensor([-1, -1, -1, 1])
    comparisons = Differences(left, right, torch.tensor([-1.0, 0.0, 0.0, 0.0]))
    scores = torch.tensor(list(itertools.product([-1.0, -0.5, 0.3, 0.6, 1.5, 2.0], repeat=2)))
    possible = {tuple(row) for row in (comparisons.values(scores) > 0).tolist()}
    every = torch.tensor(list(itertools.product([False, True], repeat=4)))
    expected = torch.tensor([tuple(row) in possible for row in every.tolist()])
    assert torch.equal(consistent_differences(comparisons, every), expected)


BAD = [
    ({"good": -1}, r"good must be a whole number of at least 0, but it is -1"),
    ({"good": 0, "bad": 1, "nearby": 0}, r"anchors must be at least two in total, but it is 1"),
    ({"flips": 0}, r"flips must be a whole number of at least 1"),
    ({"space": "bit"}, r"space must be one of .*'bit'.*bits"),
    ({"unit": "pixel"}, r"unit must be one of"),
    ({"best": "near"}, r"best must be one of.*nearest"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input(arguments: dict[str, int | str], message: str) -> None:
    with pytest.raises(DirectLossError, match=message):
        Anchoring(**arguments)  # type: ignore[arg-type]
