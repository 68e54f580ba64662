"""The paper's three refactorings: g(h(f(scores))) is the metric, and the paper's formulas hold."""

from __future__ import annotations

import itertools

import pytest
import torch
from directloss_repro.ablations import Ablation, decide

from directloss import metrics
from directloss._uniloss.refactoring import BY_HAND
from tests.uniloss.conftest import Problem, problem


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", BY_HAND)
def test_binaries_give_the_metric(name: str, seed: int) -> None:
    scores, target = problem(name, seed)
    bound = BY_HAND[name].bind(scores, target)
    assert bound is not None
    other = torch.randn(6, scores.numel(), dtype=scores.dtype, generator=torch.Generator().manual_seed(seed + 100))
    bits = torch.stack([bound.comparisons.values(row) > 0 for row in other])
    decided = decide(name, bound.comparisons, bits)
    torch.testing.assert_close(decided.double(), bound.measure(other).double())
    if name == "ap":
        expected = [metrics.average_precision(row, target) for row in other]
    elif name == "accuracy":
        expected = [metrics.accuracy(row.reshape(scores.shape), target) for row in other]
    else:
        expected = [metrics.pck_from_within(row.reshape(scores.shape), target) for row in other]
    torch.testing.assert_close(decided.double(), torch.stack(expected).double())


def test_comparisons_are_those_of_the_paper() -> None:
    scores, target = problem("accuracy")
    bound = BY_HAND["accuracy"].bind(scores, target)
    assert bound is not None
    expected = [scores[i, y] - scores[i, j] for i, y in enumerate(target.tolist()) for j in range(4) if j != y]
    torch.testing.assert_close(bound.comparisons.values(bound.scores), torch.stack(expected))  # Eq. (8)
    scores, target = problem("ap")
    bound = BY_HAND["ap"].bind(scores, target)
    assert bound is not None
    up, down = (target == 1).nonzero()[:, 0].tolist(), (target == 0).nonzero()[:, 0].tolist()
    expected = [scores[i] - scores[j] for i, j in itertools.product(up, down)]
    torch.testing.assert_close(bound.comparisons.values(bound.scores), torch.stack(expected))  # Sec. 4.2


def test_counts_of_comparisons(named: Problem) -> None:
    name, scores, target = named
    bound = BY_HAND[name].bind(scores, target)
    assert bound is not None
    if name == "accuracy":
        assert bound.comparisons.count == 9 * 3
    elif name == "ap":
        assert bound.comparisons.count == 5 * 9
    else:
        within = target.reshape(6, 20).sum(-1)
        assert bound.comparisons.count == int((within * (20 - within)).sum())


def test_best_scores_are_best_and_keep_the_order_inside_of_labels(named: Problem) -> None:
    name, scores, target = named
    bound = BY_HAND[name].bind(scores, target)
    assert bound is not None
    assert bound.best_scores is not None
    assert bound.measure(bound.best_scores[None]).item() == 1.0
    assert bool((bound.comparisons.values(bound.best_scores) > 0).all())
    if name == "ap":
        for label in (0, 1):
            assert torch.equal(bound.best_scores[target == label].argsort(), scores[target == label].argsort())


def test_ablations_of_bits(named: Problem) -> None:
    """Good anchors are one flip from all ones, nearby ones from the current binaries, or all flips of one score."""
    name, scores, target = named
    bound = BY_HAND[name].bind(scores, target)
    assert bound is not None
    here = bound.comparisons.values(bound.scores) > 0
    for unit in ("comparison", "score"):
        how = Ablation(3, 4, 2, unit=unit, bits=name)
        anchors = how.draw(bound, bound.comparisons, torch.Generator().manual_seed(0))
        ((_, from_best),) = anchors.differing(torch.ones_like(here))
        ((_, from_here),) = anchors.differing(here)
        assert from_best[:, :3].sum(0).tolist() == [1, 1, 1]
        assert bool((from_here[:, 3:7].sum(0) >= 1).all())
        assert unit == "score" or bool((from_here[:, 3:7].sum(0) == 1).all())
        bits = (from_best == 0).T
        torch.testing.assert_close(anchors.values, decide(name, bound.comparisons, bits))


def test_ablations_of_a_part_leave_the_other_binaries_as_they_are() -> None:
    bound = BY_HAND["accuracy"].bind(*problem("accuracy"))
    assert bound is not None
    subset = torch.tensor([20, 0, 5, 9])
    part = bound.comparisons.take(subset)
    anchors = Ablation(2, 2, 2, bits="accuracy").draw(bound, part, torch.Generator().manual_seed(0))
    ((_, from_here),) = anchors.differing(part.values(bound.scores) > 0)
    whole = (bound.comparisons.values(bound.scores) > 0).repeat(6, 1)
    whole[:, subset] ^= from_here.T > 0
    torch.testing.assert_close(anchors.values, decide("accuracy", bound.comparisons, whole))


def test_ablations_of_values_and_of_the_best_scores() -> None:
    bound = BY_HAND["pckh"].bind(*problem("pckh"))
    assert bound is not None
    draw = torch.Generator().manual_seed(0)
    constant = Ablation(2, 2, 2, control=True).draw(bound, bound.comparisons, draw)
    assert constant.values.tolist() == pytest.approx([1, 1, bound.now, bound.now, 0, 0])
    nearest, target = Ablation(nearest=True).best(bound), Ablation().best(bound)
    assert (nearest - bound.scores).abs().sum() < 0.9 * (target - bound.scores).abs().sum()
    assert bound.measure(nearest[None]).item() == 1


def test_no_relevant_or_no_irrelevant_item_has_nothing_to_compare() -> None:
    for label in (0, 1):
        assert BY_HAND["ap"].bind(torch.zeros(4), torch.full((4,), label)) is None
