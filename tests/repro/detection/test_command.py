"""``directloss reproduce voc-detection`` from a tiny devkit to the report, and with whatever can be wrong in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from directloss_repro.data.photographs import Pixels
from directloss_repro.data.voc import OBJECTS, Skipped, find_devkit
from directloss_repro.detection import regions
from directloss_repro.detection.boxes import as_boxes, nms
from directloss_repro.detection.regions import Reader, Search, Trunk, features_of, pool_boxes, suppressed
from directloss_repro.experiments import get_experiment
from directloss_repro.experiments.base import Files, Source
from directloss_repro.experiments.voc_detection import DetectionConfig, chosen_photographs

from tests.repro.voc.commands import BOXES, animals, call, finish, info, lines, refuse
from tests.repro.voc.devkits import Item, Scene, write_devkit
from tests.test_frozen import keras_weights, write_tfjs

SETTINGS: dict[str, Any] = {**BOXES}


@pytest.fixture
def devkit(tmp_path: Path) -> Path:
    return write_devkit(tmp_path, {"train": animals(6), "val": animals(4, 100)})


# ---------------------------------------------------------------------- what goes well


def test_from_devkit_to_tables(devkit: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = {**SETTINGS, "iterations": 40, "evaluate_every": 10}
    words = ("voc-detection", "--data-root", devkit, "--out", out)
    finish(*words, "--seeds", 1, "--methods", "pos-ap,x-ent", settings=settings)
    records = lines(out)
    assert len(records) == 2 * 2 * 2
    for record in records:
        assert set(record["metrics"]) >= {"test_ap", "test_ap_11_point", "proposal_recall", "val_ap", "iteration"}
        assert record["metrics"]["proposal_recall"] == 1
    clean = [record["metrics"]["test_ap"] for record in records if record["noise"] == 0]
    # Red and blue on grey: easy, and far above the 0.1 or so of an untrained network.
    assert np.mean(clean) > 0.5
    tables = (out / "tables.md").read_text()
    assert "cat (paper) | 63.7 | 58.5 | 55.7 |" in tables
    finish(*words, "--resume", "--seeds", 2, settings={})
    assert len(lines(out)) == 16


def test_a_folder_of_weights_is_a_resnet50(devkit: Path, tmp_path: Path) -> None:
    write_tfjs(tmp_path / "net", keras_weights())
    words = ("voc-detection", "--data-root", devkit, "--out", tmp_path / "run", "--weights", tmp_path / "net")
    settings = {**SETTINGS, "classes": ["cat"], "noise": [0.0], "hidden": [4], "pool": 1, "iterations": 2}
    finish(*words, "--seeds", 1, "--methods", "x-ent", settings=settings)
    stored = next((tmp_path / "run" / "cache" / "regions").glob("*.npz"))
    with np.load(stored, allow_pickle=False) as found:
        assert found["features"].shape == (len(found["boxes"]), 2048)
        assert np.isfinite(found["features"]).all()
    assert all(record["metrics"]["test_ap"] > 0 for record in lines(tmp_path / "run"))


def test_settings_are_chosen_on_held_out_images(devkit: Path, tmp_path: Path) -> None:
    experiment = get_experiment("voc-detection")
    config = experiment.config("small").changed({**SETTINGS, "early": False})
    files = Files(str(devkit), cache=str(tmp_path / "cache"))
    source = Source(3, "dog", files)
    whole = experiment.data(config, source)
    assert whole.val is None
    searching = experiment.data(config, Source(3, "dog", files, "search"))
    assert searching.val is not None
    assert len(searching.train) < len(whole.train)
    both = torch.cat([searching.train.x, searching.val.x])
    # No box of a held-out image is trained on: features of one image are not those of another.
    assert len(torch.unique(both, dim=0)) >= len(torch.unique(searching.train.x, dim=0)) + 1
    early = experiment.data(config.changed({"early": True}), source)
    assert early.val is not None


def test_the_presets() -> None:
    paper, small = (get_experiment("voc-detection").config(name) for name in ("paper", "small"))
    assert isinstance(paper, DetectionConfig)
    assert isinstance(small, DetectionConfig)
    assert (paper.classes, paper.noise, paper.batch_size) == (OBJECTS, (0.0, 0.2), 512)
    assert paper.direct.points() == [{"learning_rate": 0.1, "weight_decay": 1e-7, "epsilon": 0.1}]
    assert paper.hinge.points()[0]["learning_rate"] == 1.0
    assert (paper.hidden, paper.optimizer, paper.photographs) == ((4096, 4096), "sgd", 0)
    assert (paper.train_set, paper.test_set, paper.per_positive) == ("train", "val", 3.0)
    assert (len(small.classes), small.photographs) == (4, 1000)


def test_half_of_the_chosen_photographs_have_an_object(tmp_path: Path) -> None:
    empty = [Scene(f"2010_{k:06d}", [Item("horse", (5, 5, 30, 30))]) for k in range(10)]
    devkit = find_devkit(write_devkit(tmp_path, {"train": [*empty, *animals(6)]}))
    config = get_experiment("voc-detection").config("small").changed({**SETTINGS, "photographs": 6})
    assert isinstance(config, DetectionConfig)
    chosen = chosen_photographs(config, devkit, "train")
    assert [name[:4] for name in chosen].count("2009") == 3
    assert len(chosen) == 6
    assert chosen == [name for name in devkit.image_set("train") if name in chosen]
    assert len(chosen_photographs(config.changed({"photographs": 0}), devkit, "train")) == 16  # type: ignore[arg-type]
    assert len(chosen_photographs(config.changed({"photographs": 14}), devkit, "train")) == 14  # type: ignore[arg-type]


def test_cells_have_the_largest_feature_inside() -> None:
    """A ramp from left to right, whose value at a place is that place in pixels."""
    columns = 15.5 + 16 * torch.arange(20.0)
    ramp = torch.stack([columns.expand(10, 20), -columns.expand(10, 20)])[None]
    boxes = as_boxes([[40.0, 40.0, 100.0, 100.0], [50.0, 20.0, 250.0, 120.0], [-50.0, 0.0, 900.0, 160.0]])
    values = pool_boxes(ramp, boxes, 2, 15.5).view(3, 2, 2, 2)
    step = (boxes[:, 2] - boxes[:, 0]) / 6  # three points in each cell
    right = torch.from_numpy(boxes[:, 2] - step / 2).float().clamp(max=float(columns[-1]))
    left = torch.from_numpy(boxes[:, 0] + step / 2).float().clamp(min=15.5)
    torch.testing.assert_close(values[:, 0, :, 1], right[:, None].expand(3, 2))
    torch.testing.assert_close(values[:, 1, :, 0], -left[:, None].expand(3, 2))


@pytest.mark.parametrize("held", [True, False])
def test_features_by_index_are_those_of_each_photograph(
    held: bool, devkit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "HELD", 4_000_000_000 if held else 0)
    shapes: list[tuple[int, ...]] = []

    def embed(photograph: Pixels) -> torch.Tensor:
        shapes.append(photograph.shape)
        return torch.nn.functional.avg_pool2d(torch.from_numpy(photograph).permute(0, 3, 1, 2).float() / 255, 16)

    reader = Reader(find_devkit(devkit), Search(0, 10), 160, 2, Trunk("mean", embed, 8.0), tmp_path / "cache")
    names = reader.devkit.image_set("val")
    scenes = reader.scenes(names, False, Skipped(), workers=2)
    assert shapes == [(1, 120, 160, 3)] * 4
    features = features_of(scenes)
    assert features.shape == (sum(len(scene.boxes) for scene in scenes), 12)
    every = torch.cat([torch.from_numpy(scene.features()).float() for scene in scenes])
    index = torch.randperm(len(every))[:20]
    assert torch.equal(features[index], every[index])
    assert torch.equal(features[5:9][torch.tensor([1, 0])], every[[6, 5]])
    with_objects = reader.scenes(names, True, Skipped())
    assert len(shapes) == 4  # from the cache
    assert [len(scene.boxes) for scene in with_objects] == [len(scene.boxes) + 2 for scene in scenes]
    assert with_objects[0].boxes[0].tolist() == list(with_objects[0].annotation.things[0].box)
    scores = np.random.default_rng(0).random(len(every))
    found = suppressed(scenes, scores, 0.3, keep=3)
    mine = scores[: len(scenes[0].boxes)]
    assert [one.score for one in found if one.image == scenes[0].name] == mine[
        nms(scenes[0].boxes, mine, 0.3)[:3]
    ].tolist()


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
    ("unknown class", lambda d: None, {"classes": ["digit0"]}, "classes must be among aeroplane"),
    ("not listed", lambda d: None, {"classes": ["boat"]}, "boat_train.txt must be a list of the devkit"),
    ("no class", lambda d: None, {"classes": []}, "classes must be among aeroplane"),
    ("suppression", lambda d: None, {"suppression": 2.0}, "suppression must be at most 1"),
    ("sample", lambda d: None, {"most": 0}, "most must be at least 1"),
    ("negatives", lambda d: None, {"per_positive": 0.0}, "per_positive must be"),
    ("search", lambda d: None, {"search_width": -1}, "search_width must be at least 0"),
    ("another set", lambda d: None, {"dataset": "coco"}, "dataset must be 'voc'"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "changes", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_devkits(
    spoil: Callable[[Path], object], changes: dict[str, Any], message: str, devkit: Path, tmp_path: Path
) -> None:
    spoil(devkit)
    refuse(message, "voc-detection", devkit, tmp_path / "run", {**SETTINGS, **changes})


def test_a_devkit_of_another_year(tmp_path: Path) -> None:
    other = write_devkit(tmp_path, {"train": animals(2), "val": animals(2, 100)}, year=2007)
    refuse("must hold VOC2012", "voc-detection", other, tmp_path / "run", SETTINGS)
    assert not (tmp_path / "run").exists()
