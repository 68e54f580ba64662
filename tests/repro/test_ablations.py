"""Ablations of UniLoss: declared as the paper's tables say, run on small files, and their pictures stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from directloss_repro.config import EpochConfig
from directloss_repro.data.keypoints import FILE
from directloss_repro.experiments import get_experiment
from directloss_repro.experiments.ablations import SIZES
from directloss_repro.methods import parse_method
from directloss_repro.records import Record, RunSpec
from directloss_repro.runner import make_schedule

from directloss import DirectLossError
from tests.repro.fake_records import ABLATIONS
from tests.repro.image_files import write_idx, write_leeds
from tests.repro.test_cli import call
from tests.repro.tiny import run_once
from tests.repro.tiny import stored as records_in

AP: dict[str, Any] = {"epochs": 2, "batch_size": 50, "validation": 20, "points": 0, "train_measured": 20, "hidden": [8]}
CLASSES: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 10,
    "validation": 20,
    "points": 40,
    "width": 2,
    "dataset": "fashion-mnist",
}
POSE: dict[str, Any] = {"epochs": 2, "batch_size": 2, "size": 32, "width": 4, "test": 3, "validation": 3}
TINY = {"ablation-ap": AP, "ablation-accuracy": CLASSES, "ablation-batch": CLASSES, "ablation-pose": POSE}


def tiny(name: str, folder: Path) -> tuple[EpochConfig, str]:
    (write_leeds if name == "ablation-pose" else write_idx)(folder)
    config = get_experiment(name).config("quick").changed({**TINY[name], "seeds": 1, "anchors": 4})
    assert isinstance(config, EpochConfig)
    return config, str(folder)


def run(name: str, config: EpochConfig, root: str, method: str, seed: int = 0) -> Record:
    return run_once(name, config, method, root, seed)


@pytest.mark.parametrize("name", TINY)
def test_every_method_trains_on_small_files(name: str, tmp_path: Path) -> None:
    config, root = tiny(name, tmp_path)
    get_experiment(name).check(config, root)
    found = {method: run(name, config, root, method) for method in config.methods}
    assert all(record.diverged_at is None for record in found.values())
    keys = {record.key for record in found.values()}
    assert len(keys) == len(config.methods)
    if name == "ablation-ap":
        # They must agree: the same anchors, the same comparisons, the same values.
        by_hand, found_in_code = found["uniloss-ap"].metrics, found["uniloss-ap:automatic"].metrics
        assert found_in_code == pytest.approx(by_hand, abs=1e-5)
        assert found["uniloss-ap:control"].metrics != by_hand


def test_names_of_presets_are_in_their_usual_form() -> None:
    for experiment in ABLATIONS:
        assert set(experiment.presets) == {"quick", "small", "paper"}
        for config in experiment.presets.values():
            assert [parse_method(method).name for method in config.methods] == list(config.methods)
            for method in config.methods:
                parse_method(method).check_fits(experiment.metric)


def test_claims_are_about_methods_that_are_run() -> None:
    for experiment in ABLATIONS:
        claimed = {
            method
            for claim in experiment.description.claims
            for pair in claim.comparisons
            for method in (pair.first, pair.second)
        }
        for config in experiment.presets.values():
            assert claimed <= set(config.methods)


def test_batches_have_the_papers_sizes_and_the_same_epochs() -> None:
    config = get_experiment("ablation-batch").config("paper")
    assert isinstance(config, EpochConfig)
    spec = RunSpec("x", "final", "x-ent", 0, 0.0, None, {"learning_rate": 0.1, "weight_decay": 0.0})
    schedules = [make_schedule(spec, config, parse_method(method), 45_000) for method in config.methods]
    assert tuple(schedule.batch_size for schedule in schedules) == SIZES == (8, 16, 32, 64, 128, 256, 512, 1024)
    assert [schedule.iterations for schedule in schedules] == [200 * (45_000 // size) for size in SIZES]
    assert [schedule.drops[0] for schedule in schedules] == [140 * (45_000 // size) for size in SIZES]
    assert {schedule.evaluate_every * 200 / schedule.iterations for schedule in schedules} == {1.0}


def test_shrunk_images_are_means_of_pixels(generator: torch.Generator) -> None:
    experiment = get_experiment("ablation-accuracy")
    config = experiment.config("small")
    torch.manual_seed(0)
    small = experiment.model(config, 1).eval()
    torch.manual_seed(0)
    network = experiment.model(config.changed({"shrink": 1}), 1).eval()
    images = torch.randn(2, 1, 28, 28, generator=generator)
    means = images.reshape(2, 1, 14, 2, 14, 2).mean((3, 5))
    with torch.no_grad():
        torch.testing.assert_close(small(images), network(means))
    with pytest.raises(DirectLossError, match="shrink must be at least 1"):
        config.changed({"shrink": 0})


def test_a_stored_config_is_read_again() -> None:
    for experiment in ABLATIONS:
        for config in experiment.presets.values():
            assert experiment.config_from(json.loads(json.dumps(config.to_dict()))) == config


# ---------------------------------------------------------------------- keypoints for the report


def test_the_first_seed_leaves_its_keypoints(tmp_path: Path) -> None:
    config, root = tiny("ablation-pose", tmp_path)
    first = run("ablation-pose", config, root, "uniloss-pckh")
    points = np.array(first.shown["points"])
    assert points.shape == (3, 2, 2)
    assert points.min() >= 0
    assert points.max() < 8  # heatmaps are four times smaller than images of 32 pixels
    assert "shown" not in run("ablation-pose", config, root, "uniloss-pckh", seed=1)
    assert json.loads(json.dumps(first.shown)) == first.shown


def test_the_command_stores_frames_and_a_resumed_one_again(tmp_path: Path) -> None:
    root, out = tmp_path / "data", tmp_path / "run"
    write_leeds(root)
    options = ["--data-root", str(root), "--methods", "uniloss-pckh,uniloss-pckh:anchors=2", "--seeds", "1"]
    for key, value in POSE.items():
        options += ["--set", f"{key}={json.dumps(value)}"]

    def command(*more: str) -> None:
        done = call("reproduce", "ablation-pose", "--out", out, "--workers", 1, *more)
        assert done.exit_code == 0, done.output

    command(*options)
    picture = out / "figures" / "frames-val-pck.png"
    assert picture.is_file()
    before = {key: record.get("shown") for key, record in records_in(out).items()}
    assert len(before) == 2
    stored = (out / FILE).read_bytes()
    picture.unlink()
    (out / FILE).unlink()
    command("--resume", "--seeds", "2")
    assert (out / FILE).read_bytes() == stored
    assert picture.is_file()
    after = {key: record.get("shown") for key, record in records_in(out).items()}
    assert len(after) == 4
    assert {key: after[key] for key in before} == before
