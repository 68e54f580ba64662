"""The experiments on images: declared as the paper says, run on small files, resumed after SIGKILL, reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from directloss_repro.campaign import Cell
from directloss_repro.config import EpochConfig
from directloss_repro.data import Part, Split
from directloss_repro.evaluation import measure
from directloss_repro.experiments import get_experiment
from directloss_repro.experiments.base import Files, Source
from directloss_repro.methods import parse_method
from directloss_repro.records import RunSpec, load_run
from directloss_repro.reproduce import CHECKPOINTS, Request, carry_out, check_request
from directloss_repro.runner import Training, make_schedule
from rich.console import Console
from typer.testing import Result

from directloss import DirectLossError
from tests.repro.image_files import write_cifar, write_idx, write_leeds, write_mpii
from tests.repro.test_cli import call
from tests.repro.tiny import run_once, stored

ROOT = Path(__file__).parents[2]
TINY: dict[str, Any] = {"epochs": 2, "batch_size": 10, "validation": 20, "points": 40, "train_measured": 20}
POSE: dict[str, Any] = {"batch_size": 2, "size": 32, "width": 4}

CASES = {
    # Batches of 50, because a batch without a zero teaches nothing, and warns.
    "mnist-ap": (write_idx, {**TINY, "hidden": [8], "points": 0, "batch_size": 50}, "ap"),
    "cifar10": (write_idx, {**TINY, "width": 2, "dataset": "fashion-mnist"}, "accuracy"),
    "cifar10 itself": (partial(write_cifar, name="cifar10"), {**TINY, "width": 2, "dataset": "cifar10"}, "accuracy"),
    "cifar100": (
        partial(write_cifar, name="cifar100"),
        {**TINY, "width": 2, "dataset": "cifar100", "points": 0, "validation": 4},
        "accuracy",
    ),
    "pose": (write_leeds, {**POSE, "epochs": 2, "test": 3, "validation": 3}, "pck"),
    "pose itself": (write_mpii, {**POSE, "epochs": 1, "test": 2, "validation": 2, "dataset": "mpii"}, "pck"),
}


def tiny(case: str, folder: Path, **changes: Any) -> tuple[str, EpochConfig, str]:
    name = case.split()[0]
    write, settings, _ = CASES[case]
    write(folder)  # type: ignore[operator]
    config = get_experiment(name).config("quick").changed({**settings, **changes})
    assert isinstance(config, EpochConfig)
    return name, config, str(folder)


@pytest.mark.parametrize("case", CASES)
def test_runs_on_small_files(case: str, tmp_path: Path) -> None:
    name, config, root = tiny(case, tmp_path)
    get_experiment(name).check(config, root)
    method = "mse-1" if name == "pose" else "x-ent"
    record = run_once(name, config, method, root)
    metric = CASES[case][2]
    wanted = {f"{part}_{metric}" for part in ("train", "val", "test")} | (
        {"test_accuracy"} if metric == "ap" else set()
    )
    assert set(record.metrics) == wanted
    steps = {len(points) for points in record.curve.values()}
    assert steps == {config.epochs + 1}  # before the first epoch and after each
    assert set(run_once(name, config, method, root, 1000).metrics) == {f"train_{metric}", f"val_{metric}"}
    again = run_once(name, config, method, root)
    assert again == record


@pytest.mark.parametrize("case", ["mnist-ap", "cifar10", "pose"])
def test_uniloss_trains_and_repeats(case: str, tmp_path: Path) -> None:
    name, config, root = tiny(case, tmp_path, anchors=4)
    method = {"mnist-ap": "uniloss-ap", "cifar10": "uniloss-accuracy", "pose": "uniloss-pckh"}[name]
    first, again = (run_once(name, config, method, root) for _ in range(2))
    assert again == first
    assert first.diverged_at is None
    other = run_once(name, config.changed({"anchors": 2}), method, root)
    assert other.key != first.key


def test_training_learns(tmp_path: Path) -> None:
    more = {"plain.learning_rate": [0.05], "epochs": 15, "evaluate_every": 15, "points": 0, "hidden": [16]}
    name, config, root = tiny("mnist-ap", tmp_path, **more)
    before, after = run_once(name, config, "x-ent", root).curve["test_ap"]
    assert after > before + 0.3


def test_presets_are_those_of_the_paper() -> None:
    names = ("mnist-ap", "cifar10", "cifar100", "pose")
    mnist, ten, hundred, pose = (get_experiment(name).config("paper") for name in names)
    for config in (mnist, ten, hundred, pose):
        assert isinstance(config, EpochConfig)
        assert config.anchors == 16
        assert all(len(grid) == 1 for grid in config.grids().values())  # the paper fixes the learning rate
    spec = RunSpec("x", "final", "x-ent", 0, 0.0, None, {"learning_rate": 0.1, "weight_decay": 0.0})
    assert (mnist.epochs, mnist.hidden, mnist.validation) == (30, (500, 300), 6_000)  # type: ignore[attr-defined]
    schedule = make_schedule(spec, ten, parse_method("x-ent"), 45_000)
    assert schedule.iterations == 200 * 351
    rates = [schedule.rate(epoch * 351) for epoch in (0, 139, 140, 159, 160, 199)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    longer = make_schedule(spec, hundred, parse_method("uniloss-accuracy"), 45_000)
    assert longer.iterations == 5 * 200 * 351
    assert longer.drops == (5 * 140 * 351, 5 * 160 * 351)
    assert make_schedule(spec, hundred, parse_method("x-ent"), 45_000).iterations == 200 * 351
    assert hundred.fraction == 0.2  # type: ignore[attr-defined]
    schedule = make_schedule(spec, pose, parse_method("mse-1"), 22_000)
    steps = 22_000 // 6
    assert [schedule.rate(epoch * steps) / 0.1 for epoch in (29, 30, 40, 49)] == pytest.approx(
        [1, 1 / 4, 1 / 16, 1 / 16]
    )


def test_mpii_keeps_images_together(tmp_path: Path) -> None:
    _, config, root = tiny("pose itself", tmp_path)
    split = get_experiment("pose").data(config, Source(0, files=Files(root)))
    pixels = [{float(image[0, 8, 8]) for image in part.x[torch.arange(len(part))]} for part in split.parts().values()]
    assert sum(len(part) for part in pixels) == len(set().union(*pixels)) == 8  # every image has another grey


# ---------------------------------------------------------------------- evaluation in batches


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.parametrize("metric", ["ap", "accuracy", "pck"])
def test_batches_are_measured_as_the_whole(metric: str, generator: torch.Generator) -> None:
    if metric == "ap":
        part = Part(torch.randn(23, generator=generator), torch.randint(2, (23,), generator=generator))
    elif metric == "accuracy":
        part = Part(torch.randn(23, 4, generator=generator), torch.randint(4, (23,), generator=generator))
    else:
        target = torch.rand(23, 2, 3, generator=generator) * 4
        target[..., 2] = torch.where(torch.rand(23, 2, generator=generator) < 0.3, 0.0, target[:, :1, 2])
        part = Part(torch.randn(23, 2, 5, 5, generator=generator), target)
    split = Split(part, part, part)
    whole = measure(Same(), split, ("train", "val", "test"), metric=metric)
    for batch in (1, 5, 22, 23, 100):
        assert measure(Same(), split, ("train", "val", "test"), metric=metric, batch=batch) == pytest.approx(whole)
    assert whole[f"val_{metric}"] == whole[f"test_{metric}"]
    assert 0 < whole[f"val_{metric}"] < 1


def test_broken_networks_are_judged_as_constant_ones() -> None:
    part = Part(torch.full((4, 3), torch.nan), torch.tensor([0, 1, 2, 0]))
    assert measure(Same(), Split(part, part), ("test",), metric="accuracy") == {"test_accuracy": 0.5}


# ---------------------------------------------------------------------- campaigns and the command

SCRIPT = """
import sys
from directloss_repro import checkpoint
from tests.repro.test_image_experiments import conduct
checkpoint.EVERY = 0.0
conduct(sys.argv[1], sys.argv[2], loud=True)
"""

CAMPAIGN = {**TINY, "dataset": "fashion-mnist", "width": 2, "methods": ["x-ent"], "seeds": 2, "epochs": 3}


def conduct(folder: str, root: str, loud: bool = False) -> None:
    """All of the command but its report, in one process; loud about each checkpoint."""
    if loud:
        from directloss_repro.checkpoint import Checkpoint

        save = Checkpoint.save

        def saying(self: Checkpoint, state: dict[str, Any]) -> None:
            save(self, state)
            print(state["iteration"], flush=True)

        Checkpoint.save = saying  # type: ignore[method-assign]
    begun = (Path(folder) / "run.json").is_file()
    request = Request("cifar10", out=Path(folder), data_root=Path(root), settings=CAMPAIGN, workers=1, resume=begun)
    session = check_request(request)
    with session.folder:
        carry_out(session, Console(quiet=True))


def test_one_setting_needs_no_search(tmp_path: Path) -> None:
    root, folder = write_idx(tmp_path / "data"), tmp_path / "run"
    conduct(str(folder), str(root))
    assert [record["stage"] for record in stored(folder).values()] == ["final", "final"]
    assert not (folder / CHECKPOINTS).exists()


def test_a_campaign_killed_in_the_middle_of_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    root = write_idx(tmp_path / "data")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    conduct(str(whole), str(root))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, str(killed), str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "7":  # in the second of three epochs
                break
        process.kill()
    assert process.returncode == -signal.SIGKILL
    left = list((killed / CHECKPOINTS).glob("*.pt"))
    assert len(left) == 1
    conduct(str(killed), str(root))
    assert stored(killed) == stored(whole)
    assert not (killed / CHECKPOINTS).exists()


def test_the_command_from_data_to_report_and_on(tmp_path: Path) -> None:
    root, out = write_idx(tmp_path / "data"), tmp_path / "run"
    options = ["--dataset", "fashion-mnist", "--data-root", str(root), "--out", str(out)]
    for key, value in {**TINY, "width": 2}.items():
        options += ["--set", f"{key}={json.dumps(value)}"]

    def run(*words: str) -> Result:
        return call("reproduce", "cifar10", *words, "--workers", "1")

    assert "test accuracy" in run(*options, "--methods", "x-ent", "--seeds", "2").output
    page, tables = (out / "report.html").read_text(), (out / "tables.md").read_text()
    assert "test accuracy (%)" in tables
    assert "test_ap" not in page
    assert (out / "figures" / "epochs-accuracy.svg").is_file()
    assert run("--out", str(out), "--resume", "--seeds", "3").exit_code == 0
    assert len(stored(out)) == 3
    other = write_idx(tmp_path / "other", train=121)
    refused = run("--out", str(out), "--resume", "--seeds", "4", "--data-root", str(other))
    assert refused.exit_code == 2
    assert "must hold the data that the run began with" in " ".join(refused.output.split())


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("cifar10", {"data_root": None}, "--data-root must name the folder with the data of 'cifar10'"),
    ("cifar10", {"dataset": "cifar-10"}, "Did you mean 'cifar10'"),
    ("cifar10", {"dataset": "cifar10"}, "must be a folder with the files of cifar10"),
    ("cifar10", {"methods": ("pos-ap",)}, "must support class scores, but it is 'pos-ap'. These do: x-ent"),
    ("cifar10", {"methods": ("uniloss-ap",)}, "must support class scores"),
    ("cifar10", {"methods": ("mse-1",)}, "must support class scores"),
    ("cifar10", {"noise": (0.2,)}, "noise must be 0, because this experiment has no 0/1 labels to flip"),
    ("cifar10", {"settings": {"iterations": 5}}, "config iterations must be 0, but it is 5"),
    ("cifar10", {"settings": {"epochs": 0}}, "config epochs must be at least 1, but it is 0"),
    ("cifar10", {"settings": {"batch_size": 0}}, "config batch_size must be at least 1"),
    ("cifar10", {"settings": {"fraction": 1.5}}, "config fraction must be at most 1, but it is 1.5"),
    ("cifar10", {"settings": {"points": -1}}, "config points must be at least 0"),
    ("cifar10", {"settings": {"drops": [0]}}, "config drops must be at least 1"),
    ("cifar10", {"settings": {"width": 0}}, "config width must be at least 1"),
    ("cifar10", {"preset": "tiny"}, "--preset must be one of 'quick', 'small', 'paper'"),
    ("pose", {"methods": ("x-ent",)}, "must support heatmaps"),
    ("pose", {"settings": {"size": 66}}, "size must be a multiple of 4"),
    ("pose", {}, "--data-root must be a folder with joints.mat (leeds) or mpii_human_pose"),
    ("robustness", {}, "--data-root must be left out: 'robustness' needs no files"),
    ("robustness", {"data_root": None, "dataset": "mnist"}, "config key must be a known one, but it is 'dataset'"),
    ("robustness", {"data_root": None, "methods": ("mse-1",)}, "must support one score per item"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "message"), BAD)
def test_bad_requests(name: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    root = write_idx(tmp_path / "data")
    request = Request(**{"name": name, "out": tmp_path / "run", "data_root": root, **changes})
    with pytest.raises(DirectLossError) as caught:
        check_request(request)
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------- what was recorded before


def test_stored_results_are_still_what_comes_out() -> None:
    """The key of every stored run, and the numbers of one of them."""
    folder = ROOT / "results" / "linear"
    experiment = get_experiment("linear")
    config = experiment.config_from(json.loads((folder / "run.json").read_text())["config"])
    run = load_run(folder)
    for record in (*run.search, *run.final):
        place = (record.experiment, record.stage, record.method, record.seed, record.noise or 0.0, record.group)
        assert RunSpec(*place, record.params).key(config.digest()) == record.key
    fast = next(record for record in run.final if record.method == "x-ent")
    again = Training("linear", config)(Cell(None, "x-ent"), fast.params, fast.seed)
    assert again.metrics == pytest.approx(fast.metrics, abs=1e-6)
    assert again.curve["test_ap"] == pytest.approx(fast.curve["test_ap"], abs=1e-5)
