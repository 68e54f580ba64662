"""Graded DCG and NDCG against scikit-learn, torchmetrics and the mean over all ways to break ties."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import dcg_score, ndcg_score
from torchmetrics.functional.retrieval import retrieval_normalized_dcg

import directloss as dl
from directloss.metrics.graded import graded_dcg, graded_ndcg, relative_gains
from directloss.metrics.ranking import ndcg


def draw(seed: int, tied: bool) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(20, 12, generator=generator, dtype=torch.float64)
    grades = torch.randint(0, 5, (20, 12), generator=generator)
    return (scores.mul(2).round() if tied else scores), grades


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("k", [None, 1, 3, 12, 50])
@pytest.mark.parametrize("gain", ["exponential", "linear"])
def test_values_are_those_of_scikit_learn(k: int | None, gain: str, tied: bool) -> None:
    scores, grades = draw(0, tied)
    gains = grades.numpy() if gain == "linear" else 2.0 ** grades.numpy() - 1
    found, raw = graded_ndcg(scores, grades, k, gain), graded_dcg(scores, grades, k, gain)
    assert found.shape == (20,)
    for row in range(20):
        assert float(found[row]) == pytest.approx(ndcg_score(gains[row : row + 1], scores[row : row + 1].numpy(), k=k))
        assert float(raw[row]) == pytest.approx(dcg_score(gains[row : row + 1], scores[row : row + 1].numpy(), k=k))


@pytest.mark.parametrize("k", [None, 4])
def test_values_are_those_of_torchmetrics(k: int | None) -> None:
    scores, grades = draw(1, tied=False)
    wanted = torch.stack([retrieval_normalized_dcg(s, g, top_k=k) for s, g in zip(scores, grades, strict=True)])
    torch.testing.assert_close(graded_ndcg(scores, grades, k, "linear"), wanted.double(), rtol=1e-6, atol=1e-6)


def test_ties_are_the_mean_over_all_orders() -> None:
    scores, grades = torch.tensor([1.0, 2.0, 1.0, 1.0], dtype=torch.float64), torch.tensor([3, 0, 1, 2])
    values = [
        graded_ndcg(torch.tensor([order[0], 9, order[1], order[2]], dtype=torch.float64), grades, 3)
        for order in permutations([1.0, 2.0, 3.0])
    ]
    torch.testing.assert_close(graded_ndcg(scores, grades, 3), torch.stack(values).mean())


@pytest.mark.parametrize("gain", ["exponential", "linear"])
def test_binary_grades_give_the_binary_metric(gain: str) -> None:
    scores, grades = draw(2, tied=False)
    torch.testing.assert_close(graded_ndcg(scores, grades % 2, 5, gain), ndcg(scores, grades % 2, 5))


def test_padding_is_removal() -> None:
    scores, grades = draw(3, tied=True)
    mask = torch.arange(12).expand(20, 12) % 3 != 1
    spoiled = torch.where(mask, scores, torch.nan)
    wanted = graded_ndcg(scores[:, mask[0]], grades[:, mask[0]], 4)
    torch.testing.assert_close(graded_ndcg(spoiled, grades, 4, mask=mask), wanted)
    torch.testing.assert_close(
        graded_dcg(spoiled, grades, mask=mask), graded_dcg(scores[:, mask[0]], grades[:, mask[0]])
    )


def test_no_relevant_item_is_not_a_number() -> None:
    scores = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    found = graded_ndcg(scores, torch.tensor([[0, 0], [2, 2]]))
    assert math.isnan(found[0])
    assert found[1] == pytest.approx(1.0), "any order of equal grades is ideal"


def test_large_grades_do_not_overflow() -> None:
    grades = torch.tensor([5000.0, 4999.0, 0.0])
    np.testing.assert_allclose(relative_gains(grades, "exponential"), [1.0, 0.5, 0.0], rtol=1e-9)
    assert float(graded_ndcg(torch.tensor([1.0, 2.0, 3.0]), grades)) == pytest.approx(
        (0.5 / math.log2(3) + 1 / math.log2(4)) / (1 + 0.5 / math.log2(3))
    )


def test_small_grades_do_not_wash_out() -> None:
    grades = torch.tensor([1e-12, 5e-13], dtype=torch.float64)
    np.testing.assert_allclose(relative_gains(grades, "exponential"), [1.0, 0.5], rtol=1e-9)


def test_type_follows_the_scores() -> None:
    grades = torch.tensor([1, 0])
    for given, wanted in (
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        assert graded_ndcg(torch.tensor([1.0, 2.0], dtype=given), grades).dtype == wanted


SCORES, GRADES = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0, 1, 2]])
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"k": 0}, "k must be a whole number of at least 1, but it is 0"),
    ({"k": 2.5}, "k must be a whole number of at least 1, but it is 2.5"),
    ({"gain": "exponent"}, "Did you mean 'exponential'?"),
    ({"target": GRADES - 2}, "target must hold grades of at least 0, but it is -2 at index [0, 0]"),
    ({"target": GRADES / 0}, "but it is nan at index [0, 0]"),
    ({"target": GRADES[0]}, "target must have the shape of scores, (1, 3), but it is of shape (3,)"),
    ({"scores": SCORES * math.inf}, "scores must be finite"),
    ({"scores": GRADES}, "scores must be floating point, but it is torch.int64"),
    ({"mask": GRADES}, "mask must be boolean"),
    ({"mask": GRADES[0] > 0}, "mask must have the shape of target, (1, 3)"),
]


@pytest.mark.parametrize("metric", [graded_dcg, graded_ndcg])
@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_input(metric: Any, changes: dict[str, Any], message: str) -> None:
    metric(SCORES, GRADES, mask=GRADES >= 0)
    with pytest.raises(dl.DirectLossError) as caught:
        metric(**{"scores": SCORES, "target": GRADES, **changes})
    assert message in str(caught.value)
