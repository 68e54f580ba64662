"""Interpolation: exact at the anchors, Eq. (10) in between, gradients by finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from directloss import DirectLossError
from directloss._uniloss.comparisons import Blocks
from directloss._uniloss.interpolation import INTERPOLATIONS, Interpolation, Places, as_interpolation
from directloss.relaxation import DistanceSpline, InverseDistance

ANCHORS = torch.rand(9, 16, generator=torch.Generator().manual_seed(0)) < 0.5
VALUES = torch.rand(9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
EVERY = pytest.mark.parametrize(
    "surface", [*INTERPOLATIONS.values(), InverseDistance(4.0), DistanceSpline(0.5), DistanceSpline(1.5)], ids=str
)


def _squared(u: Tensor, anchors: Tensor = ANCHORS) -> Tensor:
    return (u - anchors.to(u.dtype)).square().sum(-1)


def _between(anchors: Tensor = ANCHORS) -> Tensor:
    return (anchors[:, None] != anchors).sum(-1).double()


def _at(surface: Interpolation, u: Tensor) -> Tensor:
    return surface(_squared(u), VALUES, _between)


@EVERY
def test_value_at_an_anchor_is_its_own(surface: InverseDistance) -> None:
    for row, value in zip(ANCHORS, VALUES, strict=True):
        assert _at(surface, row.double()).item() == pytest.approx(value.item(), abs=1e-5)


@EVERY
def test_gradient_against_finite_differences(surface: InverseDistance) -> None:
    u = torch.rand(16, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: _at(surface, x), (u,))


@EVERY
def test_gradient_at_an_anchor_is_finite(surface: InverseDistance) -> None:
    u = ANCHORS[0].double().requires_grad_()
    _at(surface, u).backward()
    assert u.grad is not None
    assert bool(torch.isfinite(u.grad).all())


@EVERY
@pytest.mark.parametrize("at_anchor", [False, True])
def test_slopes_in_closed_form_are_those_of_autograd(surface: InverseDistance, at_anchor: bool) -> None:
    u = torch.rand(16, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    squared = _squared(ANCHORS[3].double() if at_anchor else u).numpy()
    ours, theirs = (
        way.with_slopes(surface, squared, VALUES.numpy(), lambda: _between().numpy())
        for way in (type(surface), Interpolation)
    )
    assert ours[0] == pytest.approx(theirs[0])
    assert ours[1] == pytest.approx(theirs[1])


def test_inverse_distance_is_equation_10() -> None:
    u = torch.rand(16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    distance = [(u - row).square().sum().sqrt().item() for row in ANCHORS.double()]
    above = sum(value / d for value, d in zip(VALUES.tolist(), distance, strict=True))
    assert _at(InverseDistance(), u).item() == pytest.approx(above / sum(1 / d for d in distance))


def test_several_anchors_at_one_place_share_it() -> None:
    squared, values = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.2, 0.4, 9.0])
    assert InverseDistance()(squared, values, lambda: torch.zeros(3, 3)).item() == pytest.approx(0.3)


def test_spline_bears_the_same_anchor_twice() -> None:
    twice, once = ANCHORS[[0, 1, 2, 0]], ANCHORS[:3]
    u = torch.rand(16, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    value = DistanceSpline()(_squared(u, twice), VALUES[[0, 1, 2, 0]], lambda: _between(twice))
    expected = DistanceSpline()(_squared(u, once), VALUES[:3], lambda: _between(once))
    assert value.item() == pytest.approx(expected.item(), abs=1e-4)


def test_constant_values_give_a_flat_surface() -> None:
    u = torch.rand(16, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_()
    for surface in (InverseDistance(), DistanceSpline()):
        value = surface(_squared(u), torch.full_like(VALUES, 0.7), _between)
        assert value.item() == pytest.approx(0.7)
        (slope,) = torch.autograd.grad(value, u)
        assert slope.abs().max().item() < 1e-9


# ------------------------------------------------------------------ where anchors lie


def _differing(here: Tensor) -> Blocks:
    """In two blocks."""
    for some in (slice(0, 7), slice(7, 16)):
        yield some, (ANCHORS.T[some] != here[some, None]).double()


COMPARISONS = 3 * torch.randn(16, dtype=torch.float64, generator=torch.Generator().manual_seed(6))


def test_places_have_the_distances_of_the_relaxed_binaries() -> None:
    places = Places(COMPARISONS, _differing, 9)
    torch.testing.assert_close(torch.from_numpy(places.squared), _squared(torch.sigmoid(COMPARISONS)))
    assert torch.equal(torch.from_numpy(places.between()), _between())


@EVERY
def test_gradient_with_respect_to_comparisons(surface: Interpolation) -> None:
    free = COMPARISONS.clone().requires_grad_()
    (expected,) = torch.autograd.grad(_at(surface, torch.sigmoid(free)), free)
    places = Places(COMPARISONS, _differing, 9)
    value, slopes = surface.with_slopes(places.squared, VALUES.numpy(), places.between)
    assert value == pytest.approx(_at(surface, torch.sigmoid(COMPARISONS)).item())
    torch.testing.assert_close(places.pull(slopes), expected)


def test_close_to_an_anchor_nothing_cancels() -> None:
    close = torch.where(ANCHORS[2], 20.0, -20.0).float()
    places = Places(close, lambda here: ((some, part.float()) for some, part in _differing(here)), 9)
    assert places.squared[2] == pytest.approx(16 * torch.sigmoid(torch.tensor(-20.0)).item() ** 2, rel=1e-5)


BAD = [
    (lambda: as_interpolation("spline"), r"interpolation must be one of.*'spline'.*distance-spline"),
    (lambda: InverseDistance(0.0), r"power must be positive and finite.*0"),
    (lambda: DistanceSpline(2.0), r"power must lie between 0 and 2, but it is 2.0"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(DirectLossError, match=message):
        call()
