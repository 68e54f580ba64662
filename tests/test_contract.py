"""Every registered task keeps the contract, and the contract catches tasks that do not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss._registry import as_task
from tests.contract import CHECKS, make_task
from tests.oracle import Case, all_cases, draw_scores
from tests.toys import Pick

CASES = all_cases()

# Problems without a loss are part of the contract; that they are announced is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore::directloss.DirectLossWarning")


@pytest.mark.parametrize(("name", "check"), list(product(CASES, CHECKS)))
def test_contract(name: str, check: str) -> None:
    CHECKS[check](make_task(name, CASES[name]), CASES[name])


def base_name(name: str) -> str:
    """``ndcg@3`` and ``ndcg: heavy ties`` are cases of ``ndcg``."""
    return re.split(r"[@:]", name)[0].strip()


def test_every_registered_name_has_a_case() -> None:
    covered = {base_name(name) for name in CASES}
    assert set(dl.tasks.names()) <= covered, "a task without a case in tests/oracle"


def test_every_case_belongs_to_a_task() -> None:
    for name, case in CASES.items():
        assert case.make is not None or base_name(name) in dl.tasks.names(), (
            f"{name!r} is neither registered nor has `make`"
        )


# ---------------------------------------------------------------------------------------------- the test of the test


def draw_pick(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    classes = 4
    return draw_scores((classes,), generator), torch.randint(classes, (), generator=generator)


def pick_outputs(scores: Tensor, target: Tensor) -> Iterator[tuple[float, float]]:
    for index, score in enumerate(scores.tolist()):
        yield score, float(index != int(target))


PICK = Case(draw_pick, pick_outputs)


@pytest.mark.parametrize("check", CHECKS)
def test_contract_accepts_a_right_task(check: str) -> None:
    CHECKS[check](as_task(Pick()), PICK)


class IgnoresTheLoss(Pick):
    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        return self.predict(scores)


class IgnoresTheSign(Pick):
    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        return super().augmented(scores, target, epsilon, +1)


class OffByOne(Pick):
    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        return (super().augmented(scores, target, epsilon, sign) + 1) % scores.shape[-1]


class DoublesEpsilon(Pick):
    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        return super().augmented(scores, target, 2 * epsilon, sign)


class PredictsTheWorst(Pick):
    def predict(self, scores: Tensor) -> Tensor:
        return scores.argmin(-1)


class InventsAScore(Pick):
    def score(self, scores: Tensor, output: Tensor) -> Tensor:
        return super().score(scores, output) + 0.1


class HidesTheSlope(Pick):
    def score(self, scores: Tensor, output: Tensor) -> Tensor:
        return super().score(scores.detach(), output) + 0 * scores.sum(-1)


class ForgetsTheTruth(Pick):
    def truth(self, target: Tensor) -> Tensor:
        return torch.zeros_like(target)


class MixesTheBatch(Pick):
    def predict(self, scores: Tensor) -> Tensor:
        best = scores.argmax(-1)
        return best.flip(0) if best.dim() else best


BROKEN: list[tuple[Callable[[], Pick], str]] = [
    (IgnoresTheLoss, "augmented_is_best"),
    (IgnoresTheLoss, "gradient_is_the_ramp_slope"),
    (IgnoresTheSign, "augmented_is_best"),
    (IgnoresTheSign, "gradient_is_the_ramp_slope"),
    (OffByOne, "augmented_is_best"),
    (DoublesEpsilon, "augmented_is_best"),
    (PredictsTheWorst, "prediction_is_best"),
    (PredictsTheWorst, "perceptron_is_the_shortfall"),
    (InventsAScore, "prediction_is_best"),
    (HidesTheSlope, "gradient_is_the_ramp_slope"),
    (ForgetsTheTruth, "truth_has_least_loss"),
    (MixesTheBatch, "batch_equals_one_by_one"),
]


@pytest.mark.parametrize(("broken", "check"), BROKEN)
def test_contract_rejects_a_broken_task(broken: Callable[[], Pick], check: str) -> None:
    with pytest.raises(AssertionError):
        CHECKS[check](as_task(broken()), PICK)
