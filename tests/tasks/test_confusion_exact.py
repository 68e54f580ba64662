"""Augmented decisions against all 2^n outputs in exact rational arithmetic, the same for every type of scores."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product

import pytest
import torch
from torch import Tensor

import directloss as dl

pytestmark = pytest.mark.filterwarnings("ignore::directloss.DirectLossWarning")

ROUNDING = Fraction(1, 10**12)
"""In units of the loss: less is no difference to the search, which adds up a few prices in float64."""


def share(part: int, whole: int, otherwise: int) -> Fraction:
    return Fraction(part, whole) if whole else Fraction(otherwise)


def kappa(tp: int, fp: int, fn: int, tn: int) -> Fraction:
    return share(2 * (tp * tn - fp * fn), (tp + fp) * (fp + tn) + (tp + fn) * (fn + tn), 1)


METRICS: dict[str, Callable[[int, int, int, int], Fraction]] = {
    "kappa": kappa,
    "f1": lambda tp, fp, fn, tn: share(2 * tp, 2 * tp + fp + fn, 1),
    "iou": lambda tp, fp, fn, tn: share(tp, tp + fp + fn, 1),
    "precision": lambda tp, fp, fn, tn: share(tp, tp + fp, fn == 0),
}


def outputs(name: str, scores: Tensor, target: Tensor) -> dict[tuple[int, ...], tuple[Fraction, Fraction]]:
    """F and L of all 2^n outputs."""
    values, labels = [Fraction(s) for s in scores.tolist()], target.tolist()
    found = {}
    for chosen in product((0, 1), repeat=len(values)):
        pairs = list(zip(chosen, labels, strict=True))
        loss = 1 - METRICS[name](*(pairs.count(kind) for kind in [(1, 1), (1, 0), (0, 1), (0, 0)]))
        found[chosen] = sum((s for y, s in zip(chosen, values, strict=True) if y), Fraction(0)) / len(values), loss
    return found


def at_ties(scores: Tensor) -> list[float]:
    """Epsilons at which a flip, or several, cost as much as a loss of 1 or 1/2 brings, and just above."""
    size = scores.abs().double().tolist()
    prices = [sum(some) / len(size) for count in (1, 2, 3) for some in combinations(size, count)]
    return [price * part * nudge for price in prices for part in (1, 2) for nudge in (1, 1 + 1e-9)]


CLOSE = torch.tensor([-1.2609460353851318, -1.16879141330719, -1.2414380311965942])


@pytest.mark.parametrize("scores", [CLOSE, -CLOSE, torch.tensor([1e-30, -1e30, 1.0])], ids=["no", "yes", "mixed"])
@pytest.mark.parametrize("name", METRICS)
def test_every_type_finds_the_best_decisions(name: str, scores: Tensor) -> None:
    task = dl.tasks.get(name)
    for labels, sign in product(((0, 0, 0), (1, 1, 1), (0, 1, 1), (0, 0, 1)), (+1, -1)):
        target, epsilons = torch.tensor(labels), (1e-3, 0.1, 1.0, 30.0, *at_ties(scores))
        pairs, each = outputs(name, scores, target), torch.tensor(epsilons, dtype=torch.float64)
        single, double = (
            task.augmented(scores.to(kind).repeat(len(each), 1), target.repeat(len(each), 1), each, sign).chosen.int()  # type: ignore[attr-defined]
            for kind in (torch.float32, torch.float64)
        )
        for epsilon, found, again in zip(epsilons, single.tolist(), double.tolist(), strict=True):
            values = {chosen: f / Fraction(epsilon) + sign * loss for chosen, (f, loss) in pairs.items()}
            assert found == again, (labels, sign, epsilon)
            assert max(values.values()) - values[tuple(found)] < ROUNDING, (labels, sign, epsilon)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("sign", [+1, -1, "both"])
def test_kappa_of_equal_labels_is_the_same_for_every_type(label: int, sign: int | str) -> None:
    """At an epsilon that one flip costs exactly, float32 once had a gradient and float64 none."""
    for epsilon in ("auto", 0.1, 1.0, *at_ties(CLOSE)):
        slopes = []
        for kind in (torch.float32, torch.float64):
            leaf = CLOSE.to(kind).clone().requires_grad_()
            dl.direct_loss(leaf, torch.full((3,), label), "kappa", epsilon=epsilon, sign=sign).backward()
            slopes.append(leaf.grad)
        # The derivative of the automatic epsilon cancels most of the gradient of these nearly equal scores.
        torch.testing.assert_close(slopes[0].double(), slopes[1], rtol=2e-5 if epsilon == "auto" else 1e-6, atol=0)
