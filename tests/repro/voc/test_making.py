"""``directloss data make-voc``: a devkit that the reader of VOC reads."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("cv2")

import directloss_repro.cli  # noqa: F401 - adds the command
from directloss_repro.data.images import read_image
from directloss_repro.data.voc import find_devkit
from directloss_repro.data.voc.making import DIGITS, Making, compose, make_voc, sample_backgrounds
from PIL import Image

from directloss import DirectLossError
from tests.tabular.tables import call

SMALL = Making(images=6, classes=("digit0", "digit3"), width=160, height=120, smallest=30, largest=60)


def shapes(count: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Rectangles, whose width tells the class."""
    images = np.zeros((count, 28, 28), np.uint8)
    labels = (np.arange(count) % 10).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[4:24, 4 : 10 + label] = 255
    return images, labels


@pytest.fixture
def idx(tmp_path: Path) -> Path:
    folder = tmp_path / "idx"
    folder.mkdir()
    for prefix, count in (("train", 60), ("t10k", 10)):
        images, labels = shapes(count)
        packed = struct.pack(">4I", 2051, *images.shape) + images.tobytes()
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(packed))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, count) + labels.tobytes())
    return folder


@pytest.fixture
def photos() -> list[Any]:
    return [np.random.default_rng(k).integers(90, 160, (200, 300, 3), dtype=np.uint8) for k in range(2)]


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_devkit_can_be_read(tmp_path: Path, idx: Path, photos: list[Any]) -> None:
    seen: list[tuple[int, int]] = []
    make_voc(tmp_path / "out", idx, SMALL, photos, progress=lambda done, total: seen.append((done, total)))
    devkit = find_devkit(tmp_path / "out")
    assert (len(devkit.image_set("train")), len(devkit.image_set("val")), len(devkit.image_set("trainval"))) == (
        3,
        3,
        6,
    )
    assert seen[-1] == (6, 6)
    for name in devkit.image_set("trainval"):
        annotation = devkit.annotation(name)
        assert not annotation.notes
        assert devkit.image(name, annotation).shape == (120, 160, 3)
        there = {thing.name for thing in annotation.things if not thing.difficult}
        for of in SMALL.classes:
            assert (devkit.image_labels(of, "trainval")[name] == 1) == (of in there)
    assert not list((tmp_path / "out").rglob("*.part"))


def test_boxes_are_tight_around_the_objects(photos: list[Any]) -> None:
    grey = [np.full((300, 400, 3), 128, np.uint8)]
    scene, placed = compose(Making(most_objects=1), "a", *shapes(60), grey)
    changed = np.abs(scene.astype(int) - 128).max(axis=2) > 20
    rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
    found = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    assert placed[0].box == pytest.approx(found, abs=4)


def test_covered_objects_are_difficult(photos: list[Any]) -> None:
    crowded = Making(images=2, classes=DIGITS, width=150, height=150, most_objects=30, smallest=100, largest=120)
    marks = [thing.difficult for name in "abc" for thing in compose(crowded, name, *shapes(60), photos)[1]]
    alone = [compose(Making(most_objects=1), name, *shapes(60), photos)[1][0].difficult for name in "abcdef"]
    assert sum(marks) > len(marks) / 2
    assert not any(alone)


def test_same_seed_same_files_and_resume_finishes(tmp_path: Path, idx: Path, photos: list[Any]) -> None:
    first = make_voc(tmp_path / "a", idx, SMALL, photos)
    whole = contents(first)
    assert contents(make_voc(tmp_path / "b", idx, SMALL, photos)) == whole
    (first / "JPEGImages" / "2012_000004.jpg").unlink()
    (first / "Annotations" / "2012_000005.xml").unlink()
    (first / "ImageSets" / "Main" / "train.txt").unlink()
    make_voc(tmp_path / "a", idx, SMALL, photos, resume=True)
    assert contents(first) == whole
    other = make_voc(tmp_path / "c", idx, Making(**{**vars(SMALL), "seed": 1}), photos)
    assert contents(other)["Annotations/2012_000001.xml"] != whole["Annotations/2012_000001.xml"]


def test_nothing_is_overwritten(tmp_path: Path, idx: Path, photos: list[Any]) -> None:
    make_voc(tmp_path, idx, SMALL, photos)
    with pytest.raises(DirectLossError, match=r"--out must not hold a devkit yet.*--resume"):
        make_voc(tmp_path, idx, SMALL, photos)
    with pytest.raises(DirectLossError, match="begun with the same settings"):
        make_voc(tmp_path, idx, Making(**{**vars(SMALL), "seed": 1}), photos, resume=True)
    strange = tmp_path / "strange" / "VOCdevkit" / "VOC2012"
    strange.mkdir(parents=True)
    (strange / "mine.txt").write_text("keep")
    for resume in (False, True):
        with pytest.raises(DirectLossError, match=r"--out must not hold|begun with the same settings"):
            make_voc(tmp_path / "strange", idx, SMALL, photos, resume=resume)
    assert contents(strange) == {"mine.txt": b"keep"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": 1}, "--images must be at least 2"),
        ({"classes": ("dog",)}, "--classes must be among digit0, .*but it is dog"),
        ({"classes": ()}, "--classes must be among .*but it is empty"),
        ({"largest": 500}, "the sizes of objects must be"),
        ({"smallest": 100}, "the sizes of objects must be"),
        ({"most_objects": 0}, "--objects must be at least 1"),
    ],
)
def test_settings_that_cannot_be(
    tmp_path: Path, idx: Path, photos: list[Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(DirectLossError, match=message):
        make_voc(tmp_path / "out", idx, Making(**{**vars(SMALL), **change}), photos)
    assert not (tmp_path / "out").exists()


def test_sample_photographs_are_real() -> None:
    assert [photo.shape for photo in sample_backgrounds()] == [(427, 640, 3), (427, 640, 3)]


def test_command(tmp_path: Path, idx: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    Image.new("RGB", (300, 200), (120, 130, 140)).save(photos / "a.jpg")
    (photos / "b.jpg").write_bytes(b"broken")
    words = ["data", "make-voc", "--out", str(tmp_path / "out"), "--data-root", str(idx), "--images", "4"]
    words += ["--backgrounds", str(photos), "--size", "160x120", "--smallest", "30", "--largest", "60"]
    done = call(*words)
    assert done.exit_code == 0, done.output
    assert "1 photograph was left out:" in done.output
    assert "4 scenes in" in done.output
    assert read_image(tmp_path / "out/VOCdevkit/VOC2012/JPEGImages/2012_000001.jpg").shape == (120, 160, 3)
    again = call(*words)
    assert again.exit_code == 2
    assert "--resume" in again.output
    assert call(*words, "--resume").exit_code == 0
    assert "--size must be two numbers" in call(*words, "--size", "big").output
    assert "must be a folder with the four MNIST files" in call(*words, "--data-root", str(photos), "--resume").output
