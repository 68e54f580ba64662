"""Long lists: binaries may be stored, one byte each, but no numbers for all of them at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from directloss import Anchoring, UniLoss
from directloss._uniloss import anchors as drawing
from directloss._uniloss import configurations
from directloss._uniloss.byhand import BY_HAND
from directloss._uniloss.tracing import record, variables

LABELS = (torch.arange(600) % 6 == 0).long()
PAIRS = 100 * 500


def _scores() -> Tensor:
    return torch.randn(600, generator=torch.Generator().manual_seed(0))


class Largest(TorchDispatchMode):
    """The bytes of the largest tensor that any operation made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.dim():
            self.bytes = max(self.bytes, out.untyped_storage().nbytes())
        return out


WAYS: dict[str, dict[str, object]] = {
    "fraction": {"fraction": 0.5},
    "bits": {"anchors": Anchoring(space="bits")},
    "bits and fraction": {"anchors": Anchoring(space="bits"), "fraction": 0.5},
    "two flips": {"anchors": Anchoring(flips=2)},
}


@pytest.mark.filterwarnings("ignore:.*contradict themselves")
@pytest.mark.parametrize("way", WAYS)
def test_anchors_take_a_byte_for_a_binary_at_most(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "BLOCK", PAIRS)
    scores = _scores().requires_grad_()
    loss_fn = UniLoss("ap", **WAYS[way])  # type: ignore[arg-type]
    loss_fn(scores, LABELS)
    with Largest() as largest:
        loss_fn(scores, LABELS).backward()
    assert PAIRS < largest.bytes <= 16 * PAIRS


def test_binaries_are_the_signs_of_the_comparisons() -> None:
    bound = BY_HAND["ap"].bind(_scores(), LABELS)
    assert bound is not None
    rows = torch.stack((_scores(), -_scores(), torch.zeros(600)))
    some = bound.comparisons.take(torch.arange(0, PAIRS, 7))
    for comparisons in (bound.comparisons, some):
        assert torch.equal(comparisons.bits(rows), comparisons.values(rows) > 0)


@pytest.mark.parametrize(("flips", "among"), [(1, 5), (3, 5), (3, 40), (5, 10_000), (9, 5)])
def test_chosen_numbers_differ(flips: int, among: int) -> None:
    bound = BY_HAND["ap"].bind(_scores(), LABELS)
    assert bound is not None
    how = Anchoring(flips=flips)
    draw = drawing.InBits(bound, bound.comparisons, how, torch.Generator().manual_seed(1))
    chosen = draw.choose(300, among)
    assert chosen.shape == (300, min(flips, among))
    assert all(len(set(row)) == len(row) for row in chosen.tolist())
    assert int(chosen.min()) == 0 or among > 100
    assert int(chosen.max()) < among


def test_questions_are_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    def metric(scores: Tensor, target: Tensor) -> Tensor:
        order = (scores.sigmoid() - 0.1 * scores.mean()).argsort(descending=True)
        return (target[order][:5] * (scores[order][:5] > 0)).float().mean()

    scores, target = _scores()[:30], LABELS[:30]
    whole = record(metric, scores, target)
    monkeypatch.setattr(variables, "BLOCK", 100)
    pieces = record(metric, scores, target)
    for field in ("pairs", "levels", "places", "marks"):
        assert torch.equal(getattr(whole.variables, field), getattr(pieces.variables, field))
    assert torch.equal(whole._recorded, pieces._recorded)
