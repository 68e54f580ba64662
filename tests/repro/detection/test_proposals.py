"""Proposals: real selective search, its cache, and files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("cv2")


from directloss_repro.data.images import read_image
from directloss_repro.data.skipping import Skipped
from directloss_repro.data.voc import Devkit, find_devkit
from directloss_repro.detection import Search, propose_all, read_proposals

from tests.repro.voc.devkits import Item, Scene, write_devkit

COLOURS = {"dog": (220, 40, 40), "cat": (40, 60, 220)}
SEARCH = Search(width=0, least=10)


def scenes(count: int, offset: int = 0) -> list[Scene]:
    draw = np.random.default_rng(offset)
    found = []
    for k in range(count):
        x, y, w, h = (int(draw.integers(low, high)) for low, high in ((2, 8), (2, 8), (18, 26), (18, 30)))
        dog, cat = Item("dog", (x, y, x + w, y + h)), Item("cat", (x + 38, y + 4, x + 38 + w, y + 4 + h))
        found.append(Scene(f"2009_{offset + k:06d}", [dog, cat], colours=COLOURS))
    return found


@pytest.fixture
def devkit(tmp_path: Path) -> Devkit:
    return find_devkit(write_devkit(tmp_path, {"train": scenes(8), "val": scenes(5, 100)}))


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_search_is_kept_and_goes_on(devkit: Devkit, tmp_path: Path, workers: int) -> None:
    paths = [devkit.image_path(name) for name in devkit.image_set("val")]
    cache, skipped, seen = tmp_path / "boxes", Skipped(), list[tuple[int, int]]()
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no image")
    count = propose_all([*paths, broken], cache, SEARCH, workers, skipped, lambda *step: seen.append(step))
    assert (count, len(skipped.reasons), seen[-1]) == (5, 1, (6, 6))
    files = sorted(cache.iterdir())
    assert len(files) == 5
    first = {file.name: file.read_bytes() for file in files}
    files[0].write_bytes(first[files[0].name][:50])
    files[1].unlink()
    assert propose_all(paths, cache, SEARCH) == 2
    pixels = read_image(paths[0])
    assert propose_all(paths, cache, Search(width=0, least=11), 1) == 5
    boxes = read_proposals(paths[0], cache, pixels, SEARCH)
    assert boxes.shape[1] == 4
    assert len(boxes) > 3
    assert (boxes[:, 2:] - boxes[:, :2] >= 10).all()
    assert (boxes >= 0).all()
    assert (boxes <= [80, 60, 80, 60]).all()
    assert not list(cache.glob("*.part"))


def test_search_gives_the_same_boxes_and_no_more_than_asked(devkit: Devkit, tmp_path: Path) -> None:
    path = devkit.image_path("2009_000000")
    pixels = read_image(path)
    first = read_proposals(path, tmp_path / "a", pixels, SEARCH)
    assert np.array_equal(read_proposals(path, tmp_path / "b", pixels, SEARCH), first)
    few = read_proposals(path, tmp_path / "c", pixels, Search(width=0, least=10, most=3))
    assert len(few) == 3
    assert {tuple(box) for box in few.tolist()} <= {tuple(box) for box in first.tolist()}
    torch.manual_seed(5)
    assert np.array_equal(read_proposals(path, tmp_path / "d", pixels, Search(width=0, least=10, most=3)), few)
