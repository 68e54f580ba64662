"""``directloss reproduce voc-action`` from a tiny devkit to the report, and with whatever can be wrong in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from directloss_repro.checkpoint import Checkpoint
from directloss_repro.data import Part
from directloss_repro.data.photographs import normalise
from directloss_repro.data.split import lazy
from directloss_repro.experiments import get_experiment
from directloss_repro.experiments.base import Files, Source
from directloss_repro.experiments.voc_action import ActionConfig, _listed, _parts
from directloss_repro.methods import parse_method
from directloss_repro.models.alexnet import AlexNet
from directloss_repro.training import Schedule, Trained, train
from torch import nn

from tests.repro.voc.commands import PERSONS, call, finish, info, lines, person, refuse
from tests.repro.voc.devkits import Item, Scene, write_devkit
from tests.test_frozen import keras_weights, write_tfjs

SETTINGS = {**PERSONS, "classes": ["jumping", "walking"]}


@pytest.fixture
def devkit(tmp_path: Path) -> Path:
    return write_devkit(tmp_path, {"train": [person(k) for k in range(30)]})


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A whole network of the right shape, with other numbers than ours."""
    torch.manual_seed(5)
    torch.save(AlexNet(4).state_dict(), tmp_path / "alexnet.pt")
    return tmp_path / "alexnet.pt"


# ---------------------------------------------------------------------- what goes well


def test_all_layers_in_chunks(devkit: Path, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = {**SETTINGS, "layers": "all", "chunk": 4, "early": False, "classes": ["jumping"], "iterations": 2}
    words = ("voc-action", "--data-root", devkit, "--out", out)
    finish(
        *words, "--weights", weights, "--seeds", 1, "--methods", "pos-ap,x-ent", "--noise", "0,0.2", settings=settings
    )
    records = lines(out)
    assert len(records) == 2 * 2
    assert all(set(record["metrics"]) == {"train_ap", "val_ap", "test_ap", "test_accuracy"} for record in records)
    assert all(len(record["curve"]["iteration"]) == 3 for record in records)
    crops = sorted((out / "cache" / "action").iterdir())
    assert len(crops) == 30
    made = [path.stat().st_mtime_ns for path in crops]
    finish(*words, "--resume", "--seeds", 2, settings={})
    assert len(lines(out)) == 8
    assert [path.stat().st_mtime_ns for path in crops] == made
    tables = (out / "tables.md").read_text()
    assert "jumping (paper) | 77.3 | 76.6" in tables, tables
    assert "the same data, with our own splits" in tables


def test_the_weights_are_part_of_the_run(devkit: Path, weights: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "layers": "head", "classes": ["jumping"]}
    words = ("voc-action", "--data-root", devkit, "--methods", "x-ent", "--noise", 0, "--seeds", 1)
    with_them, without = tmp_path / "with", tmp_path / "without"
    finish(*words, "--out", with_them, "--weights", weights, settings=settings)
    told = finish(*words, "--out", without, settings=settings).output
    assert "The network starts from random numbers" in told
    assert "starts from random numbers" in (without / "report.html").read_text()
    assert not info(with_them)["notes"]
    assert lines(with_them)[0]["key"] != lines(without)[0]["key"]
    torch.save(AlexNet(4).state_dict(), weights)
    refused = call("voc-action", "--out", with_them, "--resume", "--weights", weights)
    assert refused.exit_code == 2
    assert "config 'weights' must be what the run" in refused.output


def test_stored_features_and_the_best_iteration(devkit: Path, weights: Path, tmp_path: Path) -> None:
    out, cache = tmp_path / "run", tmp_path / "cache"
    settings = {**SETTINGS, "classes": ["jumping"], "iterations": 6, "plain.learning_rate": [0.01, 0.03]}
    settings |= {"direct.learning_rate": [0.01, 0.03], "hinge.learning_rate": [0.01, 0.03]}
    finish(
        *("voc-action", "--data-root", devkit, "--out", out, "--cache", cache, "--weights", weights),
        *("--seeds", 2, "--noise", 0.1, "--methods", "pos-ap,x-ent"),
        settings=settings,
    )
    assert not (out / "cache").exists()
    assert len(list(cache.glob("action/*.npz"))) == 30
    found = lines(out)
    assert len(found) == 2 * (2 + 2)
    for record in found:
        assert set(record["metrics"]) >= {"iteration", "train_ap", "val_ap"}
        assert ("test_ap" in record["metrics"]) == (record["stage"] == "final")
        if record["stage"] == "final":
            curve = record["curve"]
            place = curve["iteration"].index(record["metrics"]["iteration"])
            assert curve["val_ap"][place] == max(curve["val_ap"])
            assert curve["test_ap"][place] == pytest.approx(record["metrics"]["test_ap"], abs=1e-6)


def test_a_folder_of_weights_is_a_resnet50(devkit: Path, tmp_path: Path) -> None:
    words = ("voc-action", "--data-root", devkit, "--out", tmp_path / "run", "--weights", tmp_path / "net")
    settings = {**SETTINGS, "layers": "head", "size": 63, "hidden": [4]}
    write_tfjs(tmp_path / "net", {"a/kernel": np.ones((2, 3), np.float32)})
    assert "must be those of ResNet-50" in call(*words, **settings).output
    write_tfjs(tmp_path / "net", keras_weights())
    finish(*words, "--seeds", 1, "--methods", "x-ent", "--noise", 0, settings=settings)
    stored = next((tmp_path / "run" / "cache" / "action").glob("*.npz"))
    with np.load(stored, allow_pickle=False) as found:
        assert found["rows"].shape == (1, 2048)
    assert all(record["metrics"]["test_ap"] > 0 for record in lines(tmp_path / "run"))


def test_the_preset_is_the_papers() -> None:
    config = get_experiment("voc-action").config("paper")
    assert isinstance(config, ActionConfig)
    assert (config.layers, config.size, config.context, config.width, config.iterations) == ("all", 227, 16, 4096, 300)
    assert (config.batch_size, config.early, config.select_on) == (0, False, "val")
    assert (len(config.classes), config.noise) == (10, (0.0, 0.1, 0.2, 0.3, 0.4))
    assert config.methods == ("x-ent", "hinge-ap", "pos-ap")


@pytest.mark.parametrize("method", ["x-ent", "hinge-ap", "pos-ap"])
def test_chunks_train_as_the_whole_batch(method: str, generator: torch.Generator) -> None:
    crops = torch.randint(0, 256, (20, 8, 8, 3), generator=generator).to(torch.uint8)
    labels = torch.randint(0, 2, (20,), generator=generator)
    read = lazy(torch.arange(20), (3, 8, 8), lambda index: normalise(crops[index]))
    assert torch.equal(read[torch.tensor([3, 5])], normalise(crops[[3, 5]]))
    assert read[2:7].shape == (5, 3, 8, 8)
    ends = []
    for x, chunk in ((normalise(crops), None), (read, 7), (read, 100)):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.Tanh(), nn.Linear(6, 1), nn.Flatten(0))
        loss = parse_method(method).loss_fn({"epsilon": 1.0})
        part = Part(x, labels)
        train(model, loss, part, Schedule(5, 0.01, chunk=chunk), lambda _: {})
        ends.append(model[1].weight.detach().clone())
    assert torch.allclose(ends[0], ends[1], atol=1e-6)
    assert torch.allclose(ends[0], ends[2], atol=1e-6)


def test_scores_that_are_not_finite_stop_the_training() -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    with torch.no_grad():
        model[0].weight.fill_(torch.inf)
    part = Part(torch.ones(4, 2), torch.tensor([0, 1, 0, 1]))
    done = train(model, parse_method("x-ent").loss_fn({}), part, Schedule(3, 0.1, chunk=2), lambda _: {"a": 0.0})
    assert done.diverged_at == 0


def test_the_best_weights_are_kept_and_survive_an_interruption(tmp_path: Path) -> None:
    """The number to keep them by rises and falls; the run is stopped after its best point."""
    heights = [0.1, 0.5, 0.9, 0.4, 0.9, 0.2, 0.3]
    part = Part(torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 1, 0]))
    seen: list[torch.Tensor] = []

    def run(stop: int | None) -> Trained:
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
        checkpoint = Checkpoint(tmp_path, "one", every=0.0)
        began = 0 if checkpoint.load() is None else checkpoint.load()["iteration"]  # type: ignore[index]
        count = iter(range(began, 7))

        def watch(network: nn.Module) -> dict[str, float]:
            place = next(count)
            if place == stop:
                raise KeyboardInterrupt
            seen.append(network[0].weight.detach().clone())  # type: ignore[index]
            return {"height": heights[place]}

        schedule = Schedule(6, 0.1, evaluate_every=1)
        loss = parse_method("x-ent").loss_fn({})
        return train(model, loss, part, schedule, watch, checkpoint=checkpoint, keep_by="height")

    with pytest.raises(KeyboardInterrupt):
        run(4)
    done = run(None)
    assert done.best("height")["iteration"] == 2
    assert done.kept is not None
    assert torch.equal(done.kept["0.weight"], seen[2])


# ---------------------------------------------------------------------- broken files


def test_bad_files_are_left_out_and_told(devkit: Path, tmp_path: Path) -> None:
    (devkit / "JPEGImages" / "2011_000001.jpg").unlink()
    cut = devkit / "JPEGImages" / "2011_000002.jpg"
    cut.write_bytes(cut.read_bytes()[:400])
    (devkit / "Annotations" / "2011_000003.xml").write_text("")
    secret = tmp_path / "secret.txt"
    secret.write_text("not to be read")
    entity = (
        f'<!DOCTYPE annotation [<!ENTITY x SYSTEM "file://{secret}">]><annotation><folder>&x;</folder></annotation>'
    )
    (devkit / "Annotations" / "2011_000004.xml").write_text(entity)
    for number, edges in (("000005", "<xmin>200</xmin>"), ("000006", "<xmin>60</xmin>")):
        path = devkit / "Annotations" / f"2011_{number}.xml"
        path.write_text(
            path.read_text().replace("<xmin>6</xmin>", edges).replace("<xmax>36</xmax>", "<xmax>230</xmax>")
        )
    (devkit / "Annotations" / "2011_000007.xml").write_text("<annotation><filename>a.jpg</filename></annotation>")
    out = tmp_path / "run"
    words = ("voc-action", "--data-root", devkit, "--out", out, "--methods", "x-ent", "--noise", 0, "--seeds", 1)
    told = finish(*words, settings=SETTINGS).output
    assert len(lines(out)) == 2
    reasons = " ".join(info(out)["skipped"])
    for name in ("2011_000001.jpg", "2011_000002.jpg", *(f"2011_00000{k}.xml" for k in (3, 4, 5, 6, 7))):
        assert name in reasons
        assert name in told
    assert "document type" in reasons
    assert "not to be read" not in reasons + told + (out / "report.html").read_text()
    page = (out / "report.html").read_text()
    assert "Left out or repaired" in page
    # The second time, everything comes from the cache, and is told again.
    assert "2011_000002.jpg" in finish(*words[:5], "--resume", "--seeds", 2, settings={}).output


def test_a_class_without_positives_is_left_out(devkit: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("voc-action", "--data-root", devkit, "--methods", "x-ent", "--noise", 0, "--seeds", 1)
    told = finish(*words, "--out", out, settings={**PERSONS, "classes": ["jumping", "phoning"]}).output
    assert "The class 'phoning' is left out: the train (seed 0) data must have items of both labels" in told
    assert info(out)["left_out"] == ["phoning"]
    page = (out / "report.html").read_text()
    assert "This class could not be used: phoning." in page
    assert "final runs are missing" not in page
    nothing = call(*words, "--out", tmp_path / "none", "--workers", 1, **{**PERSONS, "classes": ["phoning"]})
    assert nothing.exit_code == 2
    assert "the classes must have at least one usable" in nothing.output


def _empty(devkit: Path) -> None:
    for path in (devkit / "Annotations").iterdir():
        path.write_text("<annotation></annotation>")


BAD: list[tuple[str, Callable[[Path], object], dict[str, Any], str]] = [
    ("no labels", lambda d: (d / "ImageSets" / "Action" / "walking_trainval.txt").unlink(), {}, "walking_trainval.txt"),
    ("no images", lambda d: [p.unlink() for p in (d / "JPEGImages").iterdir()], {}, "must have at least one usable"),
    ("empty annotations", _empty, {}, "must have at least one usable <object>"),
    ("no folder", lambda d: d.rename(d.with_name("VOC")), {}, "must be the folder of a VOC devkit"),
    ("an object class", lambda d: None, {"classes": ["horse"]}, "classes must be among jumping, phoning"),
    ("no class", lambda d: None, {"classes": []}, "classes must be among jumping, phoning"),
    ("another set", lambda d: None, {"dataset": "coco"}, "dataset must be 'voc'"),
    ("small crops", lambda d: None, {"size": 40}, "size must be at least 63"),
    ("much context", lambda d: None, {"context": 40}, "context must leave room for the box"),
    ("layers", lambda d: None, {"layers": "some"}, "layers must be 'all' or 'head'"),
    ("chunks", lambda d: None, {"chunk": -1}, "chunk must be at least 0"),
    ("stopping blindly", lambda d: None, {"select_on": "train"}, 'early needs select_on="val"'),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "changes", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_devkits(
    spoil: Callable[[Path], object], changes: dict[str, Any], message: str, devkit: Path, tmp_path: Path
) -> None:
    spoil(devkit)
    refuse(message, "voc-action", devkit, tmp_path / "run", {**SETTINGS, **changes})


def test_a_devkit_of_another_year(tmp_path: Path) -> None:
    other = write_devkit(tmp_path, {"train": [person(k) for k in range(3)]}, year=2007)
    refuse("must hold VOC2012, but it is the devkit VOC2007", "voc-action", other, tmp_path / "run", SETTINGS)
    assert not (tmp_path / "run").exists()


def test_bad_weights(devkit: Path, tmp_path: Path) -> None:
    words = ("voc-action", "--data-root", devkit, "--out", tmp_path / "run", "--weights")
    assert "--weights must be a file that can be read" in call(*words, tmp_path / "none.pt", **SETTINGS).output
    (tmp_path / "text.pt").write_text("no weights")
    result = call(*words, tmp_path / "text.pt", **SETTINGS)
    assert result.exit_code == 2
    assert "must be a file of weights that torch.load reads" in result.output
    torch.save(AlexNet(5).state_dict(), tmp_path / "wide.pt")
    assert (
        "Are these weights of another network or width?"
        in call(*words, tmp_path / "wide.pt", **{**SETTINGS, "layers": "all"}).output
    )
    assert not (tmp_path / "run").exists()
    for option in ("--weights", "--cache"):
        result = call("robustness", option, tmp_path / "text.pt")
        assert result.exit_code == 2
        assert f"{option} must be left out: 'robustness'" in result.output


def test_persons_of_one_image_stay_together(tmp_path: Path) -> None:
    both = [
        Scene(f"2011_{k:06d}", [Item("person", (2, 2, 20, 30)), Item("person", (25, 2, 44, 40))], width=48, height=48)
        for k in range(12)
    ]
    root = str(write_devkit(tmp_path, {"train": both}))
    groups = [person.image for person in _listed(root).persons]
    for seed in range(3):
        parts = _parts(Source(seed, "jumping", Files(root)), torch.arange(len(groups)))
        names = [{groups[k] for k in place.tolist()} for place, _ in parts.values()]
        assert sum(len(part) for part in names) == len(set().union(*names)) == 12
