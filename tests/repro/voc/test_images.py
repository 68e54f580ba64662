"""Crops as R-CNN makes them, and the numbers a network sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from directloss_repro.data.photographs import MEAN_COLOUR, normalise, read_image, warp
from PIL import Image

from directloss import DirectLossError


def test_box_fills_the_crop_without_its_context() -> None:
    pixels = np.zeros((400, 500, 3), np.uint8)
    pixels[100:200, 150:350] = 255
    crop = warp(pixels, (150, 100, 350, 200))
    assert crop.shape == (227, 227, 3)
    # 227 - 2 * 16 = 195 pixels of each line are the box; its edges fall on pixels 16 and 211.
    assert (crop[113, :, 0] > 127).sum() == pytest.approx(195, abs=2)
    assert (crop[:, 113, 0] > 127).sum() == pytest.approx(195, abs=2)
    assert crop[113, 18, 0] > 200 > 50 > crop[113, 13, 0]


def test_mean_colour_outside_of_the_image() -> None:
    pixels = np.full((50, 60, 3), 255, np.uint8)
    crop = warp(pixels, (0, 0, 60, 50))
    assert tuple(crop[3, 113].tolist()) == tuple(crop[113, 223].tolist()) == MEAN_COLOUR
    assert tuple(crop[30, 113].tolist()) == (255, 255, 255)
    assert (crop[113, :, 0] == 255).sum() == pytest.approx(195, abs=2)
    # The mean is what the network sees as nothing; one step of a byte is all that rounding costs.
    seen = normalise(torch.from_numpy(crop[None].copy()))
    assert float(seen[0, :, 3, 113].abs().max()) < 0.5 / 255 / 0.224
    assert float(seen[0, 0, 113, 113]) == pytest.approx((1 - 0.485) / 0.229, abs=1e-5)


def test_without_context_the_whole_is_the_box() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    assert np.array_equal(warp(pixels, (0, 0, 32, 32), size=32, context=0), pixels)


@pytest.mark.parametrize("box", [(0, 0, 0.2, 0.2), (59.5, 49.5, 60, 50), (-30, -30, -10, -10), (20, 0, 20.4, 50)])
def test_tiny_and_distant_boxes_give_a_crop(box: tuple[float, float, float, float]) -> None:
    assert warp(np.zeros((50, 60, 3), np.uint8), box).shape == (227, 227, 3)


def test_grey_and_transparent_images_get_three_colours(tmp_path: Path) -> None:
    for mode in ("L", "RGBA", "P", "CMYK"):
        path = tmp_path / f"{mode}.{'jpg' if mode == 'CMYK' else 'png'}"
        Image.new(mode, (5, 4)).save(path)
        assert read_image(path).shape == (4, 5, 3)


def test_huge_image_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.png"
    Image.new("L", (50, 40)).save(path)
    for most in (1500, 100):  # a warning of Pillow, an error of Pillow
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
        with pytest.raises(DirectLossError, match=r"large\.png must be a complete image.*decompression bomb"):
            read_image(path)
