"""The command line: what a newcomer types, what goes wrong, and the codes it ends with."""

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from directloss_repro import progress
from directloss_repro.campaign import Campaign
from directloss_repro.cli import METHODS, app
from directloss_repro.experiments import FILES, PRESETS, get_experiment
from directloss_repro.methods import parse_method
from directloss_repro.progress import Display
from directloss_repro.records import Record, RecordFile, RunSpec
from directloss_repro.reproduce import Request
from directloss_repro.runner import Training, campaign_of
from rich.console import Console
from typer.testing import CliRunner, Result

import directloss
from tests.repro.tiny import OPTIONS, RUNS, stored


def call(*words: object) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("finished") / "run"
    result = call(*OPTIONS, "--workers", 1, "--out", folder)
    assert result.exit_code == 0, result.output
    return folder, result


# ---------------------------------------------------------------------- what goes well


@pytest.mark.parametrize("command", [[], ["reproduce"], ["report"], ["list"]])
def test_help_is_there_for_everything(command: list[str]) -> None:
    result = call(*command, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output


COMPLETIONS: list[tuple[str, list[str]]] = [
    ("directloss reproduce rob", ["robustness"]),
    ("directloss reproduce robustness --preset ", ["quick", "small", "paper"]),
    ("directloss reproduce robustness --methods pos-ap,x", ["pos-ap,x-ent"]),
    ("directloss reproduce mnist-ap --methods uniloss-a", ["uniloss-ap", "uniloss-accuracy"]),
]


@pytest.mark.parametrize(("line", "offered"), COMPLETIONS, ids=[line for line, _ in COMPLETIONS])
def test_the_shell_completes(line: str, offered: list[str]) -> None:
    words = {"_DIRECTLOSS_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    assert CliRunner(env=words).invoke(app, [], prog_name="directloss").output.split() == offered


def test_what_is_offered_is_what_there_is() -> None:
    assert [one.name for one in map(get_experiment, FILES)] == list(FILES)
    assert set(PRESETS) == {preset for one in map(get_experiment, FILES) for preset in one.presets}
    assert [parse_method(name).name for name in METHODS] == list(METHODS)


SLOW = ("torch", "pandas", "matplotlib", "pydantic", "distributed", "sklearn", "directloss_repro.experiments.base")


def test_commands_import_nothing_slow() -> None:
    """So that ``--help`` answers at once."""
    script = f"import sys, directloss_repro.cli; print([name for name in {SLOW} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_names_experiments_and_options() -> None:
    text = call("reproduce", "--help").output
    for word in (*FILES, "--preset", "--methods", "--seeds", "--noise", "--resume", "--workers", "--cluster"):
        assert word in text


def test_list_names_everything() -> None:
    result = call("list")
    assert result.exit_code == 0
    for word in (*FILES, "pos-TASK", "x-ent", "ICML 2016, Fig. 3b", *directloss.tasks.names()):
        assert word in result.output


def test_reproduce_ends_with_table_and_report(finished: tuple[Path, Result]) -> None:
    folder, result = finished
    assert f"{RUNS} of {RUNS} runs to do" in result.output
    assert f"[{RUNS}/{RUNS}]" in result.output
    assert "pos-ap" in result.output
    assert result.output.rstrip().endswith(str(folder / "report.html"))
    assert (folder / "report.html").is_file()


def test_run_json_says_what_was_done(finished: tuple[Path, Result]) -> None:
    folder, _ = finished
    info = json.loads((folder / "run.json").read_text())
    assert info["experiment"] == "robustness"
    assert info["preset"] == "quick"
    assert info["command"].startswith("directloss reproduce robustness --preset quick --seeds 2 --noise 0.2 --out ")
    assert info["started"] <= info["finished"]
    assert info["seconds"] > 0
    assert get_experiment("robustness").config_from(info["config"]).seeds == 2


def test_report_again_from_records_alone(finished: tuple[Path, Result], tmp_path: Path) -> None:
    folder, _ = finished
    (tmp_path / "records.jsonl").write_bytes((folder / "records.jsonl").read_bytes())
    result = call("report", tmp_path)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "report.html").is_file()


def test_resume_of_a_finished_run_does_nothing_new(finished: tuple[Path, Result]) -> None:
    folder, _ = finished
    before = stored(folder)
    result = call("reproduce", "robustness", "--out", folder, "--resume", "--workers", 1)
    assert result.exit_code == 0, result.output
    assert f"0 of {RUNS} runs to do" in result.output
    assert stored(folder) == before


def test_packed_records_are_refused_before_anything_is_written(finished: tuple[Path, Result], tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    folder.mkdir()
    (folder / "run.json").write_bytes((finished[0] / "run.json").read_bytes())
    (folder / "records.jsonl.gz").write_bytes(gzip.compress((finished[0] / "records.jsonl").read_bytes()))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = call("reproduce", "robustness", "--out", folder, "--resume", "--workers", 1)
    assert result.exit_code == 2
    assert "must be unpacked before the run can continue" in result.output
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_stored_command_asks_for_the_same_run(finished: tuple[Path, Result], tmp_path: Path) -> None:
    folder, _ = finished
    command = shlex.split(json.loads((folder / "run.json").read_text())["command"])
    command[command.index("--out") + 1] = str(tmp_path / "again")
    result = call(*command[1:], "--workers", 1)
    assert result.exit_code == 0, result.output
    assert stored(tmp_path / "again") == stored(folder)


def test_commands_are_complete() -> None:
    request = Request("linear", methods=("pos-ap", "x-ent"), noise=(0.0, 0.1), select="val", out=Path("runs/a b"))
    command = request.command("paper")
    assert command == (
        "directloss reproduce linear --preset paper --methods pos-ap,x-ent --noise 0,0.1 --select val --out 'runs/a b'"
    )


# ---------------------------------------------------------------------- what goes wrong

BAD: list[tuple[list[str], str]] = [
    (["reproduce", "robustnes"], "experiment must be a known one, but it is 'robustnes'. Did you mean 'robustness'?"),
    (["reproduce", "robustness", "--preset", "fast"], "--preset must be one of 'quick', 'paper', but it is 'fast'"),
    (["reproduce", "robustness", "--methods", "pos-ap,hing-ap"], "Did you mean 'hinge-ap'"),
    (["reproduce", "robustness", "--methods", "pos-apple"], "task must be a known name"),
    (["reproduce", "robustness", "--methods", ","], "methods must have at least one, and each once"),
    (["reproduce", "robustness", "--methods", "x-ent,x-ent"], "methods must have at least one, and each once"),
    (["reproduce", "robustness", "--methods", "x-ent:batch=8"], "methods must have no option 'batch' here"),
    (["reproduce", "robustness", "--seeds", "0"], "config seeds must be at least 1, but it is 0"),
    (["reproduce", "robustness", "--set", "momentum=NaN"], "config momentum must be finite, but it is nan"),
    (["reproduce", "robustness", "--set", "deviation=Infinity"], "config deviation must be finite, but it is inf"),
    (["reproduce", "robustness", "--set", "train_points=-5"], "config train_points must be at least 1, but it is -5"),
    (["reproduce", "synthetic", "--set", "positive_share=2"], "config positive_share must be below 1, but it is 2"),
    (["reproduce", "robustness", "--seeds", "many"], "Invalid value for '--seeds'"),
    (["reproduce", "robustness", "--noise", "20"], "config noise must be at most 0.5, but it is 20.0"),
    (["reproduce", "robustness", "--noise", "a lot"], "--noise must be numbers such as 0,0.2"),
    (["reproduce", "robustness", "--select", "test"], "config select_on must be 'train' or 'val', but it is 'test'"),
    (["reproduce", "robustness", "--workers", "0"], "--workers must be a whole number of at least 1"),
    (["reproduce", "robustness", "--set", "iterations"], "--set must have the form KEY=VALUE"),
    (["reproduce", "robustness", "--set", "iteration=5"], "Did you mean 'iterations'"),
    (
        ["reproduce", "robustness", "--set", "iterations=few"],
        "config iterations must be a whole number, but",
    ),
    (
        ["reproduce", "robustness", "--data-root", "."],
        "--data-root must be left out: 'robustness' needs no files",
    ),
    (["reproduce", "mnist-ap"], "--data-root must name the folder with the data of 'mnist-ap', but it is missing"),
    (["reproduce", "mnist-ap", "--data-root", "nowhere"], "--data-root must be a folder with the four MNIST files"),
    (["reproduce", "robustness", "--resume"], "--resume needs an --out folder that holds a run"),
    (["reproduce", "robustness", "--cluster", "nonsense:1:2"], "--cluster must be the address of a Dask scheduler"),
    (["reproduce", "robustness", "--out", "/dev/null/run"], "--out must be a folder that can be created and written"),
    (["reproduce", "robustness", "--out", "/proc/none/run"], "--out must be a folder that can be created and written"),
    (["reproduce"], "Missing argument 'NAME'"),
    (["reproduce", "robustness", "--nois", "0.2"], "No such option"),
    (["report", "nowhere"], "must exist, but it is missing"),
    (["nonsense"], "No such command"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_explained(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*words)
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert "Finished work is saved" not in result.output
    assert list(tmp_path.iterdir()) == [], "nothing may be left behind"


def test_folders_are_not_mixed_up(finished: tuple[Path, Result]) -> None:
    folder, _ = finished
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for words, message in (
        (["reproduce", "robustness", "--out", folder], "--out must be a new or empty folder"),
        (["reproduce", "linear", "--out", folder, "--resume"], "--out must hold a run of 'linear'"),
        (["reproduce", "robustness", "--out", folder, "--resume", "--preset", "paper"], "--preset must be 'quick'"),
        (["reproduce", "robustness", "--out", folder, "--resume", "--seeds", 1], "config 'seeds' must be what the run"),
        (
            ["reproduce", "robustness", "--out", folder, "--resume", "--select", "val"],
            "config 'select_on' must be what",
        ),
        (["reproduce", "robustness", "--out", folder / "run.json"], "--out must be a folder"),
    ):
        result = call(*words)
        assert result.exit_code == 2, result.output
        assert message in " ".join(result.output.split())
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_full_disk_is_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: RecordFile, record: object) -> None:
        raise OSError(28, os.strerror(28), str(self.path))

    monkeypatch.setattr(RecordFile, "append", full)
    result = call(*OPTIONS, "--workers", 1, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "records.jsonl cannot be read or written: No space left on device." in " ".join(result.output.split())


def test_a_record_that_was_changed_by_hand_stops_a_resumed_run(finished: tuple[Path, Result], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_bytes((finished[0] / "run.json").read_bytes())
    text = (finished[0] / "records.jsonl").read_text()
    (folder / "records.jsonl").write_text(text.replace('"train_ap":0.', '"train_ap":0.9', 1))
    for command in (["reproduce", "robustness", "--out", folder, "--resume", "--workers", 1], ["report", folder]):
        result = call(*command)
        assert result.exit_code == 2
        assert "records.jsonl line 1: digest must match its content" in " ".join(result.output.split())


def test_a_run_that_came_to_nothing_does_not_block_its_folder(tmp_path: Path) -> None:
    """A number that only the data shows to be wrong."""
    folder = tmp_path / "run"
    refused = call(*OPTIONS, "--set", "deviation=0.001", "--workers", 1, "--out", folder)
    assert refused.exit_code == 2
    assert "data must have items of both labels" in refused.output
    other = call("reproduce", "linear", "--out", folder)
    assert "--out must be a new or empty folder" in " ".join(other.output.split())
    mended = call(*OPTIONS, "--workers", 1, "--out", folder)
    assert mended.exit_code == 0, mended.output
    assert len(stored(folder)) == RUNS
    assert not (folder / "checkpoints").exists()
    assert "--out must be a new or empty folder" in " ".join(call(*OPTIONS, "--out", folder).output.split())


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
    with subprocess.Popen(
        [sys.executable, "-m", "directloss", *OPTIONS, "--workers", "1", "--seeds", "40", "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # jobs in the background ignore Ctrl-C
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.readline()  # the first finished runs
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        message = process.stderr.read()
    assert process.returncode == 130, message
    assert f"directloss reproduce robustness --out {folder} --resume" in message
    assert "Traceback" not in message
    assert stored(folder)


# ---------------------------------------------------------------------- progress


def record(stage: str, method: str, ap: float, noise: float = 0.0, label: str | None = None) -> Record:
    metrics = {"train_ap": ap} if stage == "search" else {"train_ap": ap, "test_ap": ap}
    return Record(experiment="x", stage=stage, method=method, seed=0, noise=noise, group=label, metrics=metrics)


def shown(seeds: int = 1) -> Campaign:
    changes = {"methods": ["pos-ap", "x-ent"], "noise": [0.0, 0.2], "select_on": "train", "seeds": seeds}
    one = {"learning_rate": [0.1], "epsilon": [1.0]}
    config = get_experiment("robustness").config("quick")
    grids = {"direct": one, "hinge": one, "plain": {"learning_rate": [0.1]}}
    return campaign_of(Training("robustness", config.changed({**changes, **grids})))


def test_a_terminal_gets_a_bar() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None)
    with Display(console, "robustness", shown(), [record("search", "pos-ap", 0.5)]) as display:
        display.finished(record("search", "pos-ap", 0.75))
        display.finished(record("final", "x-ent", 0.25, 0.2))
    last = screen.getvalue()
    assert "3/4" in last
    assert "train_ap: 0.750" in last
    assert "test_ap: 0.250" in last
    assert "left" in last


def test_elsewhere_there_are_plain_lines() -> None:
    screen = io.StringIO()
    with Display(Console(file=screen, width=40), "robustness", shown()) as display:
        display.finished(record("search", "pos-ap", 0.65))
        display.finished(record("search", "pos-ap", 0.75))
        display.finished(record("final", "pos-ap", 0.5, label="7"))
    lines = screen.getvalue().splitlines()
    assert lines[0] == "robustness: 4 of 4 runs to do"
    assert lines[1] == "[1/4] search pos-ap, noise 0, seed 0; train_ap: 0.650"
    assert lines[2].startswith("[2/4] search pos-ap, noise 0, seed 0; about ")
    assert lines[2].endswith("train_ap: 0.750")
    assert lines[3].startswith("[3/4] final pos-ap, noise 0, seed 0, class 7; ")
    assert lines[3].endswith("test_ap: 0.500")


def test_after_half_a_minute_of_silence_it_says_what_is_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file, too, again and again: whoever looks into it sees that the run is alive."""
    assert progress.SILENCE <= 30
    monkeypatch.setattr(progress, "SILENCE", 0.01)
    screen, twice = io.StringIO(), threading.Semaphore(0)
    display = Display(Console(file=screen, width=40), "robustness", shown())
    display.began(RunSpec("x", "final", "pos-ap", 3, 0.2, None, {}))
    monkeypatch.setattr(display, "note", lambda line: (Display.note(display, line), twice.release()))
    with display:
        assert all(twice.acquire(timeout=60) for _ in range(3))
    assert screen.getvalue().splitlines()[1:3] == ["[0/4] running: final pos-ap, noise 0.2, seed 3"] * 2


def test_the_time_until_the_first_run_is_not_the_time_of_a_run() -> None:
    """Processes start and data is read before it, once."""
    display = Display(Console(file=io.StringIO()), "robustness", shown(3))
    display.clock -= 1000
    display.finished(record("search", "pos-ap", 0.65))
    assert display.time_left() == ""
    display.clock -= 200
    display.finished(record("search", "pos-ap", 0.65))
    assert display.time_left().startswith("about 33 min")
