"""Shares of wrong labels from contradicting answers: the most likely ones, and those that answers were made with."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import directloss as dl


def answered(draw: torch.Generator, items: int, share: float, flips: tuple[float, float], people: int = 3) -> Tensor:
    truth = (torch.rand(items, 1, generator=draw) < share).long()
    rate = torch.tensor(flips)[truth]
    return truth ^ (torch.rand(items, people, generator=draw) < rate).long()


def log_likelihood(answers: Tensor, share: float, r0: float, r1: float) -> float:
    """Item by item, answer by answer."""
    total = torch.tensor(0.0).double()
    for row in answers.tolist():
        positive, negative = torch.tensor(share).double(), torch.tensor(1 - share).double()
        for answer in row:
            if answer >= 0:
                positive = positive * (1 - r1 if answer else r1)
                negative = negative * (r0 if answer else 1 - r0)
        total = total + (positive + negative).log()
    return float(total)


def test_the_estimate_is_the_most_likely_one(generator: torch.Generator) -> None:
    answers = answered(generator, 60, 0.4, (0.1, 0.25))
    answers[:10, 2] = -1
    found = dl.estimate_flips(answers)
    best = log_likelihood(answers, found.positives, *found.flips)
    around = itertools.product((-0.01, 0.0, 0.01), repeat=3)
    assert all(
        best >= log_likelihood(answers, found.positives + a, found.flips[0] + b, found.flips[1] + c) - 1e-9
        for a, b, c in around
    )
    grid = itertools.product((0.2, 0.4, 0.6), (0.02, 0.1, 0.3), (0.05, 0.25, 0.4))
    assert all(best >= log_likelihood(answers, *place) - 1e-9 for place in grid)


@pytest.mark.parametrize("flips", [(0.05, 0.3), (0.2, 0.2), (0.3, 0.0)])
def test_made_answers_give_the_rates_they_were_made_with(
    flips: tuple[float, float], generator: torch.Generator
) -> None:
    found = dl.estimate_flips(answered(generator, 100_000, 0.3, flips))
    assert found.flips == pytest.approx(flips, abs=0.01)
    assert found.positives == pytest.approx(0.3, abs=0.01)
    for k in range(2):
        assert found.low[k] <= found.flips[k] <= found.high[k]
        assert found.high[k] - found.low[k] < 0.02


def test_two_answers_are_enough_if_both_kinds_of_items_are_alike(generator: torch.Generator) -> None:
    answers = answered(generator, 100_000, 0.3, (0.15, 0.15), people=2)
    found = dl.estimate_flips(answers, alike=True)
    # Two people contradict each other if one of them is wrong.
    apart = float((answers[:, 0] != answers[:, 1]).double().mean())
    assert found.flips == pytest.approx(((1 - (1 - 2 * apart) ** 0.5) / 2,) * 2, abs=1e-5)


def test_intervals_hold_the_right_rates_in_most_samples(generator: torch.Generator) -> None:
    held = 0
    for _ in range(40):
        found = dl.estimate_flips(answered(generator, 400, 0.4, (0.1, 0.2)))
        held += sum(low <= rate <= high for low, rate, high in zip(found.low, (0.1, 0.2), found.high, strict=True))
    assert 66 <= held <= 80  # 95 % of 80 are 76; fewer than 66 would happen once in 10,000 times


ALL, NONE = [1, 1, 1], [0, 0, 0]


@pytest.mark.parametrize("others", [[], [[1, 1, 0]], [[1, 1, 0], [0, 1, 0]]])
@pytest.mark.parametrize("counts", [(1, 2), (10, 20)])
def test_few_answers_have_wide_intervals(counts: tuple[int, int], others: list[list[int]]) -> None:
    found = dl.estimate_flips(torch.tensor([ALL] * counts[0] + [NONE] * counts[1] + others))
    for low, rate, high in zip(found.low, found.flips, found.high, strict=True):
        assert 0 <= low <= rate + 1e-9
        assert rate - 1e-9 <= high <= 1


def test_missing_answers_and_their_order_do_not_matter(generator: torch.Generator) -> None:
    answers = answered(generator, 500, 0.4, (0.1, 0.2))
    wider = torch.full((500, 5), torch.nan)
    wider[:, [3, 0, 2]] = answers.float()
    assert dl.estimate_flips(wider) == dl.estimate_flips(answers)
    assert dl.estimate_flips(answers == 1) == dl.estimate_flips(answers)
    never_asked = torch.cat((answers, torch.full((7, 3), -1)))
    assert dl.estimate_flips(answers).flips == pytest.approx(dl.estimate_flips(never_asked).flips, abs=1e-6)


def test_the_estimate_goes_into_the_loss(generator: torch.Generator) -> None:
    truth = (torch.rand(20_000, generator=generator) < 0.3).long()
    scores = torch.randn(20_000, generator=generator) + 2.5 * truth - 1.25
    rate = torch.tensor([0.05, 0.2])[truth][:, None]
    answers = truth[:, None] ^ (torch.rand(20_000, 3, generator=generator) < rate).long()
    corrected = dl.direct_loss(scores, answers[:, 0], "f1", flips=dl.estimate_flips(answers).flips)
    assert float(corrected) == pytest.approx(float(dl.direct_loss(scores, truth, "f1")), abs=0.02)


TWO = torch.tensor([[0, 1], [1, 1], [0, 0]])


@pytest.mark.parametrize(
    ("answers", "options", "message"),
    [
        ([[0, 1, 1]], {}, "answers must be a torch.Tensor"),
        (torch.zeros(5), {}, "answers must have shape \\(items, people\\)"),
        (torch.tensor([[0, 2, 1]]), {}, "answers must hold only 0 or 1 or -1"),
        (torch.tensor([[0.5, 0, 1]]), {}, "answers must hold only"),
        (TWO, {}, "answers must have 3 answers to some items.*alike=True"),
        (TWO[:, :1], {"alike": True}, "answers must have 2 answers"),
        (torch.zeros(0, 3), {}, "answers must have 3 answers"),
        (torch.ones(9, 3), {}, "answers must hold both yes"),
        (torch.zeros(9, 3), {}, "answers must hold both yes"),
        (torch.tensor([[0, 0, 1], [0, 1, 1]] * 50), {}, "answers must agree more often than by chance"),
    ],
)
def test_bad_answers(answers: Any, options: dict[str, bool], message: str) -> None:
    with pytest.raises(dl.DirectLossError, match=message):
        dl.estimate_flips(answers, **options)
