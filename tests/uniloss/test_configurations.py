"""Configurations: the numbers of the written-out bits, in whatever parts and blocks."""

from __future__ import annotations

import pytest
import torch

from directloss._uniloss import configurations
from directloss._uniloss.configurations import Configurations

L = 11


def _random_bits(rows: int, seed: int) -> torch.Tensor:
    return torch.rand(rows, L, generator=torch.Generator().manual_seed(seed)) < 0.5


def _sets() -> list[Configurations]:
    one, other = _random_bits(3, 1), _random_bits(2, 2)
    return [Configurations(one), Configurations(one, one[:1], other)]


@pytest.fixture(params=[configurations.BLOCK, 12])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All binaries at once, and a few at a time."""
    monkeypatch.setattr(configurations, "BLOCK", request.param)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("index", range(2))
def test_squared_distances_are_those_of_the_bits(index: int) -> None:
    stored = _sets()[index]
    u = torch.rand(L, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    expected = (u - stored.dense().double()).square().sum(-1)
    torch.testing.assert_close(stored.squared_distances(u), expected)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("index", range(2))
def test_gradient_of_squared_distances(index: int) -> None:
    stored = _sets()[index]
    u = torch.rand(L, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    assert torch.autograd.gradcheck(stored.squared_distances, (u,))


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("index", range(2))
def test_between_is_the_hamming_distance(index: int) -> None:
    stored = _sets()[index]
    bits = stored.dense()
    expected = (bits[:, None] != bits[None]).sum(-1).double()
    torch.testing.assert_close(stored.between(), expected)


def test_a_saturated_configuration_is_at_distance_zero_of_itself() -> None:
    bits = _random_bits(1, 5)
    assert Configurations(bits, ~bits).squared_distances(bits[0].float()).tolist() == [0.0, L]
