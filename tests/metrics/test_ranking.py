"""Ranking metrics against scikit-learn and torchmetrics, where those have them."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score
from torch import Tensor
from torchmetrics.functional.retrieval import (
    retrieval_normalized_dcg,
    retrieval_precision,
    retrieval_recall,
    retrieval_reciprocal_rank,
)

from directloss import DirectLossError, metrics


def draw(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, 2, (n,), generator=generator)
    target[0], target[1] = 0, 1
    # Positive scores, because torchmetrics reads a negative one as "not retrieved".
    return torch.rand(n, generator=generator, dtype=torch.float64), target


REFERENCES = {
    "average_precision": (metrics.average_precision, lambda s, t: average_precision_score(t, s)),
    "auc": (metrics.auc, lambda s, t: roc_auc_score(t, s)),
    "ndcg": (metrics.ndcg, lambda s, t: ndcg_score(t[None], s[None])),
    "ndcg@5": (partial(metrics.ndcg, k=5), lambda s, t: ndcg_score(t[None], s[None], k=5)),
    "ndcg@3, torchmetrics": (partial(metrics.ndcg, k=3), lambda s, t: retrieval_normalized_dcg(s, t, top_k=3)),
    "precision@4": (partial(metrics.precision_at_k, k=4), lambda s, t: retrieval_precision(s, t, top_k=4)),
    "precision@99": (partial(metrics.precision_at_k, k=99), lambda s, t: retrieval_precision(s, t, top_k=99)),
    "recall@4": (partial(metrics.recall_at_k, k=4), lambda s, t: retrieval_recall(s, t, top_k=4)),
    "reciprocal_rank": (metrics.reciprocal_rank, retrieval_reciprocal_rank),
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("n", [2, 5, 20, 200])
def test_values(name: str, n: int) -> None:
    ours, reference = REFERENCES[name]
    for seed in range(5):
        scores, target = draw(n, seed)
        assert ours(scores, target).item() == pytest.approx(float(reference(scores, target)), abs=1e-6)


def test_partial_auc_is_the_area_up_to_a_false_positive_rate() -> None:
    scores, target = draw(50, 0)
    # scikit-learn standardises the partial area (McClish); undo that to get the plain share.
    x = 0.3
    standardised = roc_auc_score(target, scores, max_fpr=x)
    area = (2 * standardised - 1) * (x - x**2 / 2) + x**2 / 2
    irrelevant = int((target == 0).sum())
    # It also joins the points of the curve by straight lines: exact only where x N is a whole number.
    assert x * irrelevant % 1 or metrics.partial_auc(scores, target, x).item() == pytest.approx(area / x, abs=1e-9)
    assert metrics.partial_auc(scores, target, 1.0).item() == pytest.approx(roc_auc_score(target, scores))


@pytest.mark.parametrize("n", [2, 5, 20, 200])
def test_weighted_auc(n: int) -> None:
    for seed in range(5):
        scores, target = draw(n, seed)
        weight = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        weight[2:] *= torch.arange(n - 2) % 4 > 0  # some weigh nothing
        wanted = roc_auc_score(target, scores, sample_weight=weight)
        assert metrics.auc(scores, target, weight=weight).item() == pytest.approx(wanted, abs=1e-12)
    padded, mask = torch.cat([scores, scores.new_full((3,), torch.nan)]), torch.arange(n + 3) < n
    longer = torch.cat([target, target.new_zeros(3)]), torch.cat([weight, weight.new_ones(3)])
    assert metrics.auc(padded, longer[0], mask, longer[1]).item() == pytest.approx(wanted, abs=1e-12)


def test_equal_weights_are_no_weights() -> None:
    """Ties included, which are counted as in training."""
    scores, target = torch.randint(4, (3, 30)).double(), torch.randint(2, (3, 30))
    torch.testing.assert_close(
        metrics.auc(scores, target, weight=torch.full((3, 30), 0.1)), metrics.auc(scores, target)
    )
    nothing = torch.where(target == 1, 0.0, 1.0)
    assert metrics.auc(scores, target, weight=nothing).isnan().all()


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.ones(3), r"weight must hold one weight per item, shape \(2,\), but it is of shape \(3,\)"),
        (torch.tensor([1.0, -1.0]), "weight must be finite and not negative"),
        ([1.0, 1.0], "weight must be a torch.Tensor"),
    ],
)
def test_wrong_weights(weight: object, message: str) -> None:
    with pytest.raises(DirectLossError, match=message):
        metrics.auc(torch.tensor([1.0, 0.0]), torch.tensor([1, 0]), weight=weight)


def test_dcg_over_ideal_is_ndcg() -> None:
    scores, target = draw(30, 3)
    ideal = metrics.dcg(target.double(), target, k=7)
    torch.testing.assert_close(metrics.dcg(scores, target, k=7) / ideal, metrics.ndcg(scores, target, k=7))


def test_batches_and_masks() -> None:
    scores, target = torch.randn(2, 3, 8), torch.randint(0, 2, (2, 3, 8))
    mask = torch.ones(2, 3, 8, dtype=torch.bool)
    mask[..., 6:] = False
    target[..., 0], target[..., 1] = 1, 0
    padded = metrics.average_precision(scores, target, mask)
    assert padded.shape == (2, 3)
    torch.testing.assert_close(padded, metrics.average_precision(scores[..., :6], target[..., :6]))


def test_what_is_not_defined_is_nan() -> None:
    scores = torch.randn(2, 3)
    target = torch.tensor([[0, 0, 0], [1, 1, 1]])
    assert metrics.average_precision(scores, target).isnan().tolist() == [True, False]
    assert metrics.auc(scores, target).isnan().all()


@pytest.mark.parametrize(
    ("scores", "target", "message"),
    [
        (torch.tensor([1.0, float("nan")]), torch.tensor([1, 0]), "scores must be finite"),
        (torch.tensor([1.0, 0.0]), torch.tensor([1, 2]), "target must hold only 0 or 1"),
        (torch.tensor([1.0, 0.0]), torch.tensor([1]), "must have the shape of scores"),
        (torch.tensor([1, 0]), torch.tensor([1, 0]), "scores must be floating point"),
        (torch.tensor([]), torch.tensor([]), "scores must not be empty"),
    ],
)
def test_wrong_input(scores: Tensor, target: Tensor, message: str) -> None:
    with pytest.raises(DirectLossError, match=message):
        metrics.average_precision(scores, target)


@pytest.mark.parametrize("strange", [-1, 7])
def test_labels_behind_a_mask_are_not_looked_at(strange: int) -> None:
    scores, mask = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([True, True, False])
    assert metrics.average_precision(scores, torch.tensor([0, 1, strange]), mask) == 0.5
