"""Keypoints on test images: stored, read back, drawn, and refused where they are spoilt."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from directloss_repro.data import Part
from directloss_repro.data.keypoints import FILE, highest_pixels, store_frames
from directloss_repro.experiments.pose import FRAMES
from directloss_repro.records import load_run
from directloss_repro.reports.figures import Panel, draw
from directloss_repro.reports.predictions import RIGHT, WRONG, load_frames

from directloss import DirectLossError
from tests.repro.fake_records import records, run_info, write_report, write_run

TRUE = torch.tensor([[[3.0, 3.0, 1.5], [10.0, 4.0, 1.5], [0.0, 0.0, 0.0]]]).repeat(4, 1, 1)
"""Four images with three keypoints, of which one is not known."""
POINTS = [[[3, 4], [2, 12], [7, 7]]] * 3
"""Right, wrong, and not counted, on each of the three images that are stored."""


def frames_run(folder: Path, **changes: Any) -> Path:
    lines = records("pose", 2)
    for line in lines:
        if line["stage"] == "final" and line["seed"] == 0:
            line["shown"] = {"points": POINTS, **changes}
    write_run(folder, lines, run_info("pose"))
    images = torch.linspace(-0.5, 0.5, 64).repeat(64, 1).expand(4, 3, 64, 64)
    store_frames(folder, Part(images, TRUE), ((0, 1), (1, 2)))
    return folder


def draw_frames(folder: Path) -> Panel | None:
    return draw(load_run(folder), FRAMES, "name")


def drawn(folder: Path) -> Panel:
    panel = draw_frames(folder)
    assert panel is not None
    return panel


def test_stored_frames_are_read_as_they_were(tmp_path: Path) -> None:
    found = load_frames(load_run(frames_run(tmp_path)))
    assert found is not None
    assert found.images.shape == (3, 64, 64, 3)  # the fourth is not stored
    assert (int(found.images.min()), int(found.images.max())) == (0, 255)
    np.testing.assert_array_equal(found.keypoints, TRUE[:3].double().numpy())
    assert found.shrinks == 4
    assert found.bones.tolist() == [[0, 1], [1, 2]]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_highest_pixel_is_the_prediction(generator: torch.Generator) -> None:
    heatmaps = torch.randn(2, 3, 5, 7, generator=generator)
    for image, joints in zip(heatmaps, highest_pixels(heatmaps), strict=True):
        for heatmap, (x, y) in zip(image, joints, strict=True):
            assert heatmap[y, x] == heatmap.max()


def test_right_and_wrong_predictions_differ_in_shape_and_are_told(tmp_path: Path) -> None:
    panel = drawn(frames_run(tmp_path))
    assert "mse-" in panel.alt
    assert "uniloss-pckh 3 of 6" in panel.alt
    assert "3 of 6 right" in panel.caption
    root = ET.fromstring(panel.svg)
    assert len(root.findall(".//{*}image")) == 6  # three images for each of two methods
    inline = panel.inline
    assert inline.count("1 of 2 right") == 6
    for label in ("true place", "right prediction", "wrong prediction"):
        assert label in inline
    marks = {colour: re.findall(rf'<use [^>]*xlink:href="#([^"]+)"[^>]*{colour}', inline) for colour in (RIGHT, WRONG)}
    assert all(marks.values())
    assert not set(marks[RIGHT]) & set(marks[WRONG])  # other shapes, not only other colours
    assert panel.png.startswith(b"\x89PNG")


def test_the_same_run_gives_the_same_picture(tmp_path: Path) -> None:
    one, other = (drawn(frames_run(tmp_path / name)) for name in ("one", "other"))
    assert one == other
    assert (tmp_path / "one" / FILE).read_bytes() == (tmp_path / "other" / FILE).read_bytes()


def test_a_report_of_keypoints_has_its_picture(tmp_path: Path) -> None:
    page = write_report(frames_run(tmp_path)).read_text()
    assert "Keypoints on test images" in page
    assert (tmp_path / "figures" / "frames-val-pck.png").is_file()
    (tmp_path / FILE).unlink()
    assert "Keypoints on test images" not in write_report(tmp_path).read_text()


def test_without_predictions_there_is_no_picture(tmp_path: Path) -> None:
    write_run(tmp_path, records("pose", 2), run_info("pose"))
    store_frames(tmp_path, Part(torch.zeros(1, 3, 8, 8), TRUE[:1]), ())
    assert draw_frames(tmp_path) is None


def _other_shape(folder: Path) -> None:
    np.savez(folder / FILE, images=np.zeros((3, 8, 8), np.uint8), keypoints=np.zeros((3, 1, 3)), shrinks=4.0)


def _without_keypoints(folder: Path) -> None:
    np.savez(folder / FILE, images=np.zeros((3, 8, 8, 3), np.uint8))


def _objects(folder: Path) -> None:
    np.savez(folder / FILE, images=np.array([object()]), keypoints=np.zeros((3, 1, 3)), shrinks=4.0, allow_pickle=True)


def _cut_off(folder: Path) -> None:
    (folder / FILE).write_bytes((folder / FILE).read_bytes()[:100])


@pytest.mark.parametrize("spoil", [_other_shape, _without_keypoints, _objects, _cut_off])
def test_spoilt_frames_are_refused(spoil: Any, tmp_path: Path) -> None:
    spoil(frames_run(tmp_path))
    with pytest.raises(DirectLossError, match=r"frames\.npz must hold images and keypoints.*Delete it"):
        draw_frames(tmp_path)


@pytest.mark.parametrize("points", [POINTS[:2], "none", [[["a", 1]]]])
def test_spoilt_predictions_are_refused(points: Any, tmp_path: Path) -> None:
    with pytest.raises(DirectLossError, match=r"'shown' of .* must have points of shape \(3, 3, 2\)"):
        draw_frames(frames_run(tmp_path, points=points))
