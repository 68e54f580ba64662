"""Overlap of two sets against scikit-learn and torchmetrics."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sklearn.metrics as sk
import torch
import torchmetrics.functional.classification as tm
from torch import Tensor

from directloss import DirectLossError
from directloss.metrics import dice, iou
from directloss.metrics.classification import f_beta


def test_iou_agrees(generator: torch.Generator) -> None:
    for _ in range(20):
        scores, target = torch.randn(30, generator=generator), torch.randint(2, (30,), generator=generator)
        predicted = (scores > 0).long()
        assert float(iou(scores, target)) == pytest.approx(sk.jaccard_score(target, predicted), abs=1e-6)
        assert float(iou(scores, target)) == pytest.approx(float(tm.binary_jaccard_index(predicted, target)), abs=1e-6)


def test_dice_is_f1_and_follows_from_iou(generator: torch.Generator) -> None:
    scores, target = torch.randn(8, 30, generator=generator), torch.randint(2, (8, 30), generator=generator)
    torch.testing.assert_close(dice(scores, target), f_beta(scores, target))
    torch.testing.assert_close(dice(scores, target), 2 * iou(scores, target) / (1 + iou(scores, target)))


@pytest.mark.parametrize("metric", [iou, dice])
def test_empty_sets_overlap_perfectly(metric: Callable[..., Tensor]) -> None:
    nothing, something = -torch.ones(3), torch.tensor([1.0, -1.0, -1.0])
    assert float(metric(nothing, torch.zeros(3))) == 1
    assert float(metric(something, torch.zeros(3))) == 0
    assert float(metric(nothing, torch.tensor([1, 0, 0]))) == 0
    mask = torch.tensor([False, True, True])
    assert float(metric(something, torch.zeros(3), mask=mask)) == 1


def test_wrong_input_is_named() -> None:
    with pytest.raises(DirectLossError, match="target must hold only 0 or 1, but it is 2"):
        iou(torch.zeros(2), torch.tensor([0, 2]))
