"""Interpolation: exact at the anchors, Eq. (10) in between, gradients by finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from directloss import DirectLossError
from directloss._uniloss.comparisons import Blocks
from directloss._uniloss.interpolation import INTERPOLATIONS, Array, Interpolation, Places, as_interpolation
from directloss.relaxation import DistanceSpline, InverseDistance

ANCHORS = torch.rand(9, 16, generator=torch.Generator().manual_seed(0)) < 0.5
VALUES = torch.rand(9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
EVERY = pytest.mark.parametrize("surface", [*INTERPOLATIONS.values(), InverseDistance(4.0)], ids=str)


def _squared(u: Tensor, anchors: Tensor = ANCHORS) -> Tensor:
    return (u - anchors.to(u.dtype)).square().sum(-1)


def _between(anchors: Tensor = ANCHORS) -> Array:
    return (anchors[:, None] != anchors).sum(-1).double().numpy()


def _at(surface: Interpolation, u: Tensor) -> float:
    return surface(_squared(u).numpy(), VALUES.numpy(), _between)[0]


@EVERY
def test_value_at_an_anchor_is_its_own(surface: Interpolation) -> None:
    for row, value in zip(ANCHORS, VALUES, strict=True):
        assert _at(surface, row.double()) == pytest.approx(value.item(), abs=1e-5)


@EVERY
def test_slopes_against_finite_differences(surface: Interpolation) -> None:
    squared = _squared(torch.rand(16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))).numpy()
    _, slopes = surface(squared, VALUES.numpy(), _between)
    for bump, slope in zip(1e-6 * np.eye(9), slopes, strict=True):
        up, down = (surface(squared + side, VALUES.numpy(), _between)[0] for side in (bump, -bump))
        assert slope == pytest.approx((up - down) / 2e-6, abs=1e-7)


@EVERY
def test_slopes_at_an_anchor_are_finite(surface: Interpolation) -> None:
    _, slopes = surface(_squared(ANCHORS[3].double()).numpy(), VALUES.numpy(), _between)
    assert np.isfinite(slopes).all()


def test_inverse_distance_is_equation_10() -> None:
    u = torch.rand(16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    distance = [(u - row).square().sum().sqrt().item() for row in ANCHORS.double()]
    above = sum(value / d for value, d in zip(VALUES.tolist(), distance, strict=True))
    assert _at(InverseDistance(), u) == pytest.approx(above / sum(1 / d for d in distance))


def test_several_anchors_at_one_place_share_it() -> None:
    value, slopes = InverseDistance()(np.array([0.0, 0.0, 1.0]), np.array([0.2, 0.4, 9.0]), lambda: np.zeros((3, 3)))
    assert value == pytest.approx(0.3)
    assert not slopes.any()


def test_spline_bears_the_same_anchor_twice() -> None:
    twice, once = ANCHORS[[0, 1, 2, 0]], ANCHORS[:3]
    u = torch.rand(16, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    value, _ = DistanceSpline()(_squared(u, twice).numpy(), VALUES[[0, 1, 2, 0]].numpy(), lambda: _between(twice))
    expected, _ = DistanceSpline()(_squared(u, once).numpy(), VALUES[:3].numpy(), lambda: _between(once))
    assert value == pytest.approx(expected, abs=1e-4)


def test_constant_values_give_a_flat_surface() -> None:
    squared = _squared(torch.rand(16, dtype=torch.float64, generator=torch.Generator().manual_seed(5))).numpy()
    for surface in (InverseDistance(), DistanceSpline()):
        value, slopes = surface(squared, np.full(9, 0.7), _between)
        assert value == pytest.approx(0.7)
        assert abs(slopes).max() < 1e-9


# ------------------------------------------------------------------ where anchors lie


def _differing(here: Tensor) -> Blocks:
    """In two blocks."""
    for some in (slice(0, 7), slice(7, 16)):
        yield some, (ANCHORS.T[some] != here[some, None]).double()


COMPARISONS = 3 * torch.randn(16, dtype=torch.float64, generator=torch.Generator().manual_seed(6))


def test_places_have_the_distances_of_the_relaxed_binaries() -> None:
    places = Places(COMPARISONS, _differing, 9)
    torch.testing.assert_close(torch.from_numpy(places.squared), _squared(torch.sigmoid(COMPARISONS)))
    assert np.array_equal(places.between(), _between())


def test_gradient_with_respect_to_comparisons() -> None:
    free, weight = COMPARISONS.clone().requires_grad_(), np.arange(9.0)
    (expected,) = torch.autograd.grad(_squared(torch.sigmoid(free)), free, torch.from_numpy(weight))
    torch.testing.assert_close(Places(COMPARISONS, _differing, 9).pull(weight), expected)


def test_close_to_an_anchor_nothing_cancels() -> None:
    close = torch.where(ANCHORS[2], 20.0, -20.0).float()
    places = Places(close, lambda here: ((some, part.float()) for some, part in _differing(here)), 9)
    assert places.squared[2] == pytest.approx(16 * torch.sigmoid(torch.tensor(-20.0)).item() ** 2, rel=1e-5)


BAD = [
    (lambda: as_interpolation("spline"), r"interpolation must be one of.*'spline'.*distance-spline"),
    (lambda: InverseDistance(0.0), r"power must be positive and finite.*0"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(DirectLossError, match=message):
        call()
