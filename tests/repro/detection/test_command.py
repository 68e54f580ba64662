"""``directloss reproduce voc-detection`` from a tiny devkit to the report, and with whatever can be wrong in one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("cv2")

from directloss_repro.data import Part
from directloss_repro.data.images import read_image
from directloss_repro.data.skipping import Skipped
from directloss_repro.data.voc import OBJECTS, find_devkit
from directloss_repro.detection import Search, View, label_boxes, nms, read_proposals
from directloss_repro.detection.scenes import BoxInputs, Gallery, suppressed
from directloss_repro.experiments import get_experiment
from directloss_repro.experiments.base import Source
from directloss_repro.experiments.regions import RegionConfig, shared_images
from directloss_repro.reports.drawings import read_drawings
from PIL import Image

from directloss import DirectLossError
from tests.repro.voc.commands import BOXES, TINY, animals, call, finish, info, lines
from tests.repro.voc.devkits import Item, Scene, write_devkit

SETTINGS: dict[str, Any] = {**TINY, **BOXES}


@pytest.fixture
def devkit(tmp_path: Path) -> Path:
    return write_devkit(tmp_path, {"train": animals(6), "val": animals(4, 100)})


# ---------------------------------------------------------------------- what goes well


def test_from_devkit_to_drawn_detections(devkit: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = {**SETTINGS, "iterations": 40, "evaluate_every": 10}
    words = ("voc-detection", "--data-root", devkit, "--out", out)
    finish(*words, "--seeds", 1, "--methods", "pos-ap,x-ent", settings=settings)
    records = lines(out)
    assert len(records) == 2 * 2 * 2
    for record in records:
        assert set(record["metrics"]) >= {"test_ap", "test_ap_11_point", "proposal_recall", "val_ap", "iteration"}
        assert record["metrics"]["proposal_recall"] == 1
        assert list(record["shown"]) == [f"2009_{k:06d}" for k in range(100, 104)]
    clean = [record["metrics"]["test_ap"] for record in records if record["noise"] == 0]
    # Red and blue on grey: easy, and far above the 0.1 or so of an untrained network.
    assert np.mean(clean) > 0.5
    drawn = read_drawings(out)
    assert len(drawn) == 4
    assert [picture.caption for picture in drawn["2009_000100"]] == [
        "pos-ap", "x-ent", "pos-ap, 20 % of the labels flipped", "x-ent, 20 % of the labels flipped",
    ]  # fmt: skip
    with Image.open(out / "drawings" / "2009_000100-pos-ap-0.jpg") as picture:
        assert picture.size == (80, 60)
    page, tables = (out / "report.html").read_text(), (out / "tables.md").read_text()
    assert page.count("data:image/jpeg") == 16
    assert "cat (paper) | 63.7 | 58.5 | 55.7 |" in tables
    finish(*words, "--resume", "--seeds", 2, settings={})
    assert [sum("shown" in record for record in lines(out)), len(lines(out))] == [8, 16]


def test_all_layers_and_the_same_cache_for_both(devkit: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    words = ("voc-detection", "--data-root", devkit, "--cache", cache, "--seeds", 1, "--noise", 0)
    settings = {**SETTINGS, "layers": "all", "chunk": 16, "early": False, "classes": ["dog"], "iterations": 1}
    finish(*words, "--out", tmp_path / "all", "--methods", "pos-ap", settings=settings)
    assert not (cache / "features").exists()
    files = {path: path.stat().st_mtime_ns for path in (cache / "proposals").iterdir()}
    assert len(files) == 10
    finish(*words, "--out", tmp_path / "head", "--methods", "pos-ap", settings={**settings, "layers": "head"})
    assert {path: path.stat().st_mtime_ns for path in (cache / "proposals").iterdir()} == files
    assert len(list((cache / "features").rglob("*.npy"))) == 10


@pytest.mark.parametrize("layers", ["head", "all"])
def test_hard_negatives_are_those_with_the_highest_scores(devkit: Path, tmp_path: Path, layers: str) -> None:
    experiment = get_experiment("voc-detection")
    config = experiment.config("small").changed({**SETTINGS, "early": False, "layers": layers})
    source = Source(0, "dog", str(devkit), None, str(tmp_path / "cache"))
    train = experiment.data(config, source).train
    seen: list[torch.Tensor] = []

    def score(part: Part) -> torch.Tensor:
        seen.append(part.x[torch.arange(len(part))].flatten(1).mean(1))
        return seen[-1]

    assert experiment.harder is not None
    more = experiment.harder(config, source, train, score)
    extra = len(more) - len(train)
    assert extra == len(train) // 2
    assert not more.y[len(train) :].any()
    assert torch.equal(more.y[: len(train)], train.y)
    values = more.x[torch.arange(len(train), len(more))].flatten(1).mean(1)
    scenes = shared_images(config, source).training  # type: ignore[arg-type]
    negative = [label_boxes(scene.boxes, scene.truth("dog"), negative_below=0.3) == 0 for scene in scenes]
    every = torch.cat(seen)[torch.from_numpy(np.concatenate(negative))]
    assert torch.equal(values, every.sort(descending=True).values[:extra])


def test_a_round_with_hard_negatives(devkit: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("voc-detection", "--data-root", devkit, "--out", out, "--methods", "x-ent", "--noise", 0, "--seeds", 1)
    finish(*words, settings={**SETTINGS, "classes": ["dog"], "hard_rounds": 1})
    with_them = lines(out)[0]
    finish(*words[:4], tmp_path / "two", *words[5:], settings={**SETTINGS, "classes": ["dog"]})
    assert lines(tmp_path / "two")[0]["metrics"] != with_them["metrics"]
    assert not list(out.glob("checkpoints/*"))


def test_settings_are_chosen_on_held_out_images(devkit: Path, tmp_path: Path) -> None:
    experiment = get_experiment("voc-detection")
    config = experiment.config("small").changed({**SETTINGS, "early": False})
    source = Source(3, "dog", str(devkit), None, str(tmp_path / "cache"))
    whole = experiment.data(config, source)
    assert whole.val is None
    searching = experiment.data(config, Source(3, "dog", str(devkit), None, str(tmp_path / "cache"), "search"))
    assert searching.val is not None
    assert len(searching.train) < len(whole.train)
    both = torch.cat([searching.train.x, searching.val.x])
    # No box of a held-out image is trained on: features of one image are not those of another.
    assert len(torch.unique(both, dim=0)) >= len(torch.unique(searching.train.x, dim=0)) + 1
    early = experiment.data(config.changed({"early": True}), source)
    assert early.val is not None


def test_the_preset_is_the_papers() -> None:
    config = get_experiment("voc-detection").config("paper")
    assert isinstance(config, RegionConfig)
    assert (config.classes, config.noise, config.batch_size) == (OBJECTS, (0.0, 0.2), 512)
    assert config.direct.points() == [{"learning_rate": 0.1, "weight_decay": 1e-7, "epsilon": 0.1}]
    assert config.hinge.points()[0]["learning_rate"] == 1.0
    assert (config.layers, config.size, config.context, config.optimizer) == ("all", 227, 16, "sgd")
    assert (config.train_set, config.test_set, config.per_positive) == ("train", "val", 3.0)
    assert config.changed({"batch_size": 2048}).batch_size == 2048  # type: ignore[attr-defined]


def test_inputs_by_index_are_those_of_each_image(devkit: Path, tmp_path: Path) -> None:
    gallery = Gallery(find_devkit(devkit), Search(0, 10), View(size=32, context=2), tmp_path / "cache")
    scenes = gallery.scenes("val", False, Skipped())
    images, rows = torch.tensor([2, 0, 2, 1]), torch.tensor([1, 0, 0, 2])
    inputs = BoxInputs(gallery, scenes, images, rows)
    assert inputs.shape == (4, 3, 32, 32)
    for place in range(4):
        alone = gallery.view.numbers(gallery.rows(scenes[images[place]])[rows[place] : rows[place] + 1])
        assert torch.equal(inputs[torch.tensor([place])], alone)
    assert torch.equal(inputs[1:3][torch.tensor([1, 0])], inputs[torch.tensor([2, 1])])
    scores = np.random.default_rng(0).random(sum(len(scene.boxes) for scene in scenes))
    found = suppressed(scenes, scores, 0.3, keep=3)
    start = 0
    for scene in scenes:
        mine = scores[start : start + len(scene.boxes)]
        start += len(scene.boxes)
        kept = nms(scene.boxes, mine, 0.3)[:3]
        assert [score for _, score in found.of(scene.name)] == mine[kept].tolist()


def test_another_image_of_the_same_name_is_searched_again(devkit: Path, tmp_path: Path) -> None:
    path, cache = devkit / "JPEGImages" / "2009_000100.jpg", tmp_path / "boxes"
    first = read_proposals(path, cache, read_image(path), Search(0, 10))
    Image.new("RGB", (80, 60), (9, 9, 9)).save(path)
    assert not np.array_equal(read_proposals(path, cache, read_image(path), Search(0, 10)), first)
    assert len(list(cache.iterdir())) == 2


# ---------------------------------------------------------------------- broken files


def test_bad_files_and_empty_classes_are_left_out_and_told(devkit: Path, tmp_path: Path) -> None:
    (devkit / "JPEGImages" / "2009_000001.jpg").unlink()
    cut = devkit / "JPEGImages" / "2009_000101.jpg"
    cut.write_bytes(cut.read_bytes()[:400])
    entity = '<!DOCTYPE annotation [<!ENTITY a "aaaa">]><annotation><folder>&a;</folder></annotation>'
    (devkit / "Annotations" / "2009_000002.xml").write_text(entity)
    (devkit / "Annotations" / "2009_000102.xml").write_text("<annotation></annotation>")
    outside = devkit / "Annotations" / "2009_000003.xml"
    outside.write_text(outside.read_text().replace("<xmax>26</xmax>", "<xmax>900</xmax>"))
    for part in ("train", "val"):
        names = (devkit / "ImageSets" / "Main" / f"{part}.txt").read_text().split()
        (devkit / "ImageSets" / "Main" / f"horse_{part}.txt").write_text("".join(f"{name} -1\n" for name in names))
    out = tmp_path / "run"
    words = ("voc-detection", "--data-root", devkit, "--out", out, "--methods", "x-ent", "--noise", 0, "--seeds", 1)
    told = finish(*words, settings={**SETTINGS, "classes": ["dog", "horse"]}).output
    assert [record["class"] for record in lines(out)] == ["dog"]
    for name in ("000001.jpg", "000101.jpg", "000002.xml", "000102.xml", "000003.xml", "The class 'horse' is left out"):
        assert name in told
        assert name in " ".join(info(out)["skipped"])
    assert info(out)["left_out"] == ["horse"]
    assert "horse" in (out / "report.html").read_text()


def _lone(root: Path) -> Path:
    """Training images with dogs alone; the cat is in the test images."""
    lone = [Scene(f"2009_{k:06d}", [Item("dog", (5, 5, 30, 30))]) for k in range(6)]
    return write_devkit(root / "lone", {"train": lone, "val": animals(2, 100)})


def test_a_class_that_is_in_the_test_images_alone(tmp_path: Path) -> None:
    words = ("voc-detection", "--data-root", _lone(tmp_path), "--methods", "x-ent", "--noise", 0, "--workers", 1)
    result = call(*words, "--out", tmp_path / "run", **{**SETTINGS, "classes": ["cat"]})
    assert result.exit_code == 2
    assert "'cat' is left out: it has no object in the images of 'train'" in result.output


BAD: list[tuple[str, Callable[[Path], object], dict[str, Any], str]] = [
    ("no list", lambda d: (d / "ImageSets" / "Main" / "val.txt").unlink(), {}, "val.txt must be a list of the devkit"),
    ("no images", lambda d: [p.unlink() for p in (d / "JPEGImages").iterdir()], {}, "must have at least one usable"),
    ("unknown class", lambda d: None, {"classes": ["digit0"]}, "classes must be one of 'aeroplane'"),
    ("not listed", lambda d: None, {"classes": ["boat"]}, "boat_train.txt must be a list of the devkit"),
    ("no class", lambda d: None, {"classes": []}, "classes must name at least one class"),
    ("rounds", lambda d: None, {"hard_rounds": -1}, "hard_rounds must be at least 0"),
    ("suppression", lambda d: None, {"suppression": 2.0}, "suppression must be an overlap from 0 to 1"),
    ("sample", lambda d: None, {"most": 0}, "most must be at least 1"),
    ("negatives", lambda d: None, {"per_positive": 0.0}, "per_positive must be"),
    ("search", lambda d: None, {"search_width": -1}, "search_width must be at least 0"),
    ("another set", lambda d: None, {"dataset": "coco"}, "dataset must be one of 'voc', 'make-voc'"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "changes", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_devkits(
    spoil: Callable[[Path], object], changes: dict[str, Any], message: str, devkit: Path, tmp_path: Path
) -> None:
    spoil(devkit)
    out = tmp_path / "run"
    result = call("voc-detection", "--data-root", devkit, "--out", out, "--workers", 1, **{**SETTINGS, **changes})
    assert result.exit_code == 2
    assert message in result.output
    assert not (out / "records.jsonl").exists()


def test_a_devkit_of_another_year(tmp_path: Path) -> None:
    other = write_devkit(tmp_path, {"train": animals(2), "val": animals(2, 100)}, year=2007)
    result = call("voc-detection", "--data-root", other, "--out", tmp_path / "run", **SETTINGS)
    assert result.exit_code == 2
    assert "must hold VOC2012" in result.output
    assert not (tmp_path / "run").exists()


DRAWINGS: list[tuple[object, str]] = [
    ("text", "must be a list of pictures"),
    ([{"file": "a.jpg"}], "must be a list of pictures"),
    ([{"file": "../a.jpg", "image": "a", "method": "x", "noise": 0}], "must name JPEG files of its own folder"),
    ([{"file": "none.jpg", "image": "a", "method": "x", "noise": 0}], "must be a picture"),
    ([{"file": "text.jpg", "image": "a", "method": "x", "noise": 0}], "must be a JPEG of at most"),
]


@pytest.mark.parametrize(("listed", "message"), DRAWINGS)
def test_bad_lists_of_drawings(listed: object, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "drawings"
    folder.mkdir()
    (folder / "text.jpg").write_text("no picture")
    (folder / "index.json").write_text(json.dumps(listed))
    with pytest.raises(DirectLossError, match=message):
        read_drawings(tmp_path)
