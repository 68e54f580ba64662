"""The paper's three refactorings: g(h(f(scores))) is the metric, and the paper's formulas hold."""

from __future__ import annotations

import itertools

import pytest
import torch

from directloss import metrics
from directloss._uniloss.byhand import BY_HAND
from directloss._uniloss.comparisons import Pairs
from directloss._uniloss.consistency import consistent_differences, consistent_pairs
from tests.uniloss.conftest import Problem, problem


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", BY_HAND)
def test_binaries_give_the_metric(name: str, seed: int) -> None:
    scores, target = problem(name, seed)
    bound = BY_HAND[name].bind(scores, target)
    assert bound is not None
    assert bound.decide is not None
    other = torch.randn(6, scores.numel(), dtype=scores.dtype, generator=torch.Generator().manual_seed(seed + 100))
    decided = bound.decide(bound.comparisons.values(other) > 0)
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


def test_all_ones_is_the_best_configuration(named: Problem) -> None:
    name, scores, target = named
    bound = BY_HAND[name].bind(scores, target)
    assert bound is not None
    assert bound.decide is not None
    assert bound.decide(torch.ones(1, bound.comparisons.count, dtype=torch.bool)).item() == 1.0


def test_consistency_of_pairs_by_enumeration() -> None:
    """A table of 2 x 2 binaries is consistent exactly when some order of the four scores has it."""
    pairs = Pairs(torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([[2, 2]]))
    orders = torch.tensor(list(itertools.permutations(range(4))), dtype=torch.float64)
    possible = {tuple(row) for row in (pairs.values(orders) > 0).tolist()}
    every = torch.tensor(list(itertools.product([False, True], repeat=4)))
    expected = torch.tensor([tuple(row) in possible for row in every.tolist()])
    assert torch.equal(consistent_pairs(every.reshape(-1, 2, 2)), expected)
    assert torch.equal(consistent_differences(pairs, every), expected)


def test_no_relevant_or_no_irrelevant_item_has_nothing_to_compare() -> None:
    for label in (0, 1):
        assert BY_HAND["ap"].bind(torch.zeros(4), torch.full((4,), label)) is None
