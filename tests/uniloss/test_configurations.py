"""Configurations: whatever the storage, the numbers of the written-out bits."""

from __future__ import annotations

import pytest
import torch

from directloss._uniloss import configurations
from directloss._uniloss.configurations import Configurations, Dense, Flipped, Joined

L = 11


def _random_bits(rows: int, seed: int) -> torch.Tensor:
    return torch.rand(rows, L, generator=torch.Generator().manual_seed(seed)) < 0.5


def _sets() -> list[Configurations]:
    base, other = _random_bits(2, 0)
    single = Flipped(base, torch.tensor([[0], [3], [10], [3]]))
    several = Flipped(other, torch.tensor([[0, 4], [7, 2]]), torch.tensor([[True, False], [True, True]]))
    dense = Dense(_random_bits(3, 1))
    return [dense, single, several, Joined([single, dense, several]), Joined([dense, Dense(_random_bits(2, 2))])]


@pytest.mark.parametrize("index", range(5))
def test_squared_distances_are_those_of_the_bits(index: int) -> None:
    stored = _sets()[index]
    u = torch.rand(L, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    expected = (u - stored.dense().double()).square().sum(-1)
    torch.testing.assert_close(stored.squared_distances(u), expected)


@pytest.mark.parametrize("index", range(5))
def test_gradient_of_squared_distances(index: int) -> None:
    stored = _sets()[index]
    u = torch.rand(L, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    assert torch.autograd.gradcheck(stored.squared_distances, (u,))


@pytest.mark.parametrize("index", range(5))
def test_between_is_the_hamming_distance(index: int) -> None:
    stored = _sets()[index]
    bits = stored.dense()
    expected = (bits[:, None] != bits[None]).sum(-1).double()
    torch.testing.assert_close(stored.between(), expected)


def test_a_saturated_configuration_is_at_distance_zero_of_itself() -> None:
    bits = _random_bits(1, 5)
    far = Joined([Dense(bits), Dense(~bits)])
    assert far.squared_distances(bits[0].float()).tolist() == [0.0, L]


def test_blocks_do_not_change_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    u = torch.rand(L, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    whole = _sets()[0].squared_distances(u)
    monkeypatch.setattr(configurations, "BLOCK", 6)
    torch.testing.assert_close(_sets()[0].squared_distances(u), whole)
