"""PCK against its definition in plain Python, ties, and wrong input."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from directloss import DirectLossError
from directloss.metrics import pck_from_within, within_radius


def problem(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Two images, three joints; scores with many ties, keypoints between pixels, lengths of all sizes."""
    heatmaps = torch.randint(0, 4, (2, 3, 5, 7), generator=generator).float()
    keypoints = torch.rand(2, 3, 2, generator=generator) * torch.tensor([6, 4])
    return heatmaps, keypoints, torch.rand(2, generator=generator) * 8 + 1.5  # the nearest pixel is always within


def by_hand(heatmap: list[list[float]], x: float, y: float, radius: float) -> bool:
    best = max(value for row in heatmap for value in row)
    row, column = next((r, c) for r, line in enumerate(heatmap) for c, value in enumerate(line) if value == best)
    return (column - x) ** 2 + (row - y) ** 2 <= radius**2


def pckh(heatmaps: Tensor, keypoints: Tensor, reference: Tensor, visible: Tensor | None = None) -> Tensor:
    radius = (0.5 * reference)[..., None].expand(keypoints.shape[:-1])
    return pck_from_within(heatmaps, within_radius(keypoints, radius, heatmaps.shape[-2:]), visible)


def test_by_hand(generator: torch.Generator) -> None:
    seen = set()
    for _ in range(50):
        heatmaps, keypoints, reference = problem(generator)
        visible = torch.rand(2, 3, generator=generator) < 0.8
        right = [
            by_hand(heatmaps[b, j].tolist(), *keypoints[b, j].tolist(), 0.5 * float(reference[b]))
            for b in range(2)
            for j in range(3)
            if visible[b, j]
        ]
        expected = sum(right) / len(right) if right else 1.0
        assert float(pckh(heatmaps, keypoints, reference, visible=visible)) == pytest.approx(expected)
        seen.add(expected)
    assert len(seen) > 4


def test_within_by_hand(generator: torch.Generator) -> None:
    for _ in range(20):
        _, keypoints, reference = problem(generator)
        radius = reference[:, None].expand(2, 3)
        within = within_radius(keypoints, radius, (5, 7))
        for b in range(2):
            for j in range(3):
                x, y = keypoints[b, j].tolist()
                distance = {(r, c): math.hypot(c - x, r - y) for r in range(5) for c in range(7)}
                near = {place for place, d in distance.items() if d <= float(radius[b, j])}
                near |= {min(distance, key=distance.__getitem__)}
                assert {tuple(place) for place in within[b, j].nonzero().tolist()} == near


def test_a_pixel_on_the_circle_is_right() -> None:
    heatmaps = torch.zeros(1, 1, 4)
    heatmaps[0, 0, 3] = 1.0
    assert float(pckh(heatmaps, torch.tensor([[0.0, 0.0]]), torch.tensor(6.0))) == 1.0
    assert float(pckh(heatmaps, torch.tensor([[0.0, 0.0]]), torch.tensor(5.99))) == 0.0


def test_equal_scores_mean_the_first_pixel() -> None:
    heatmaps = torch.ones(1, 3, 3)
    assert float(pckh(heatmaps, torch.tensor([[0.0, 0.0]]), torch.tensor(1.0))) == 1.0
    assert float(pckh(heatmaps, torch.tensor([[2.0, 2.0]]), torch.tensor(1.0))) == 0.0


def test_the_nearest_pixel_is_always_right() -> None:
    assert within_radius(torch.tensor([[0.4, 0.6]]), 0.0, (2, 2)).tolist() == [[[0, 0], [1, 0]]]
    assert within_radius(torch.tensor([[-5.0, 9.0]]), 1.0, (2, 2)).tolist() == [[[0, 0], [1, 0]]]


def test_nothing_to_find() -> None:
    none = torch.zeros(1, dtype=torch.bool)
    assert float(pckh(torch.zeros(1, 2, 2), torch.zeros(1, 2), torch.tensor(1.0), visible=none)) == 1.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_type_and_layout(dtype: torch.dtype, generator: torch.Generator) -> None:
    heatmaps, keypoints, reference = problem(generator)
    strange = heatmaps.to(dtype).transpose(-1, -2).contiguous().transpose(-1, -2)
    found = pckh(strange, keypoints, reference)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert float(found) == pytest.approx(float(pckh(heatmaps, keypoints, reference)))


MAPS, POINTS, LENGTH = torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 2), torch.ones(2)
BAD: list[tuple[str, Any, str]] = [
    ("pck_from_within", ([[1.0]], MAPS), "heatmaps must be a torch.Tensor"),
    ("pck_from_within", (MAPS[0, 0], MAPS[0, 0]), "heatmaps must have shape (..., joints, h, w)"),
    ("pck_from_within", (MAPS.long(), MAPS), "must be floating point"),
    ("pck_from_within", (MAPS / 0, MAPS), "heatmaps must be finite"),
    ("pck_from_within", (MAPS[:, :0], MAPS), "not be empty, but it is of shape (2, 0, 4, 5)"),
    ("pck_from_within", (MAPS, MAPS, torch.ones(2, 3)), "visible must be boolean"),
    ("pck_from_within", (MAPS, MAPS, LENGTH.bool()), "visible must have the shape of the keypoints"),
    ("within_radius", (POINTS[..., :1], 1.0, (4, 5)), "shape (..., joints, 2), but it is of shape (2, 3, 1)"),
    ("within_radius", (POINTS / 0, 1.0, (4, 5)), "keypoints must be finite"),
    ("within_radius", (POINTS.bool(), 1.0, (4, 5)), "keypoints must be real numbers"),
    ("within_radius", (POINTS.tolist(), 1.0, (4, 5)), "keypoints must be a torch.Tensor"),
    ("within_radius", (torch.zeros(2), 1.0, (4, 5)), "keypoints must hold one (x, y)"),
    ("within_radius", (POINTS, 1.0, (0, 5)), "size must be a height and a width"),
    ("within_radius", (POINTS, LENGTH, (4, 5)), "radius must be a number or of shape (2, 3)"),
    ("within_radius", (POINTS, -1.0, (4, 5)), "radius must be finite and not negative"),
    ("pck_from_within", (MAPS, MAPS.tolist()), "within must be a torch.Tensor"),
    ("pck_from_within", (MAPS, MAPS[:1]), "within must have the shape of heatmaps"),
    ("pck_from_within", (MAPS, MAPS + 2), "must hold only 0 or 1"),
]
FUNCTIONS = {"within_radius": within_radius, "pck_from_within": pck_from_within}


@pytest.mark.parametrize(("name", "arguments", "message"), BAD, ids=[f"{n}: {m}" for n, _, m in BAD])
def test_bad_input(name: str, arguments: Any, message: str) -> None:
    with pytest.raises(DirectLossError) as caught:
        FUNCTIONS[name](*arguments)
    assert message in str(caught.value)
