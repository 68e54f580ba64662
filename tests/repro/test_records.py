"""Records and folders: nothing is lost, nothing is half there, nobody writes where he should not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from directloss_repro.folder import Folder
from directloss_repro.records import RecordFile, RunSpec, commit, make_record, read_records

from directloss import DirectLossError

SPEC = RunSpec("robustness", "final", "pos-ap", 3, 0.2, None, {"learning_rate": 0.01, "epsilon": "auto"})


def record(seed: int = 3) -> dict[str, Any]:
    spec = RunSpec("robustness", "final", "pos-ap", seed, 0.2, None, {"learning_rate": 0.01})
    return make_record(spec, "digest", metrics={"test_ap": 0.5}, curve={}, seconds=1.23456, diverged_at=None)


def test_keys_name_the_run() -> None:
    assert SPEC.key("digest") == "34f4bf336214e505"  # a change would make old folders impossible to resume
    others = [
        RunSpec("synthetic", "final", "pos-ap", 3, 0.2, None, SPEC.params),
        RunSpec("robustness", "search", "pos-ap", 3, 0.2, None, SPEC.params),
        RunSpec("robustness", "final", "neg-ap", 3, 0.2, None, SPEC.params),
        RunSpec("robustness", "final", "pos-ap", 4, 0.2, None, SPEC.params),
        RunSpec("robustness", "final", "pos-ap", 3, 0.3, None, SPEC.params),
        RunSpec("robustness", "final", "pos-ap", 3, 0.2, "7", SPEC.params),
        RunSpec("robustness", "final", "pos-ap", 3, 0.2, None, {**SPEC.params, "epsilon": 1.0}),
    ]
    assert len({SPEC.key("digest"), SPEC.key("other"), *(other.key("digest") for other in others)}) == 9


def test_a_record_has_what_the_contract_says() -> None:
    keys = {"schema", "key", "experiment", "stage", "method", "seed", "noise", "class", "params", "metrics", "curve"}
    assert {*record()} == keys | {"diverged_at", "seconds", "versions"}
    assert {*record()["versions"]} == {"directloss", "torch", "numpy", "python"}


def test_records_come_back(tmp_path: Path) -> None:
    file = RecordFile(tmp_path)
    file.append(record(0))
    file.append(record(1))
    file.append(record(1))
    assert [line["seed"] for line in read_records(tmp_path)] == [0, 1]
    again = RecordFile(tmp_path)
    assert len(again) == 2
    assert record(1)["key"] in again
    assert record(2)["key"] not in again


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_torn_last_line_is_dropped(tmp_path: Path, kept: int) -> None:
    file = RecordFile(tmp_path)
    file.append(record(0))
    whole = file.path.read_bytes()
    file.append(record(1))
    line = file.path.read_bytes()[len(whole) :]
    file.path.write_bytes(whole + line[:kept])
    assert [r["seed"] for r in read_records(tmp_path)] == [0]
    again = RecordFile(tmp_path)
    assert file.path.read_bytes() == whole
    again.append(record(1))
    assert file.path.read_bytes() == whole + line


@pytest.mark.parametrize("line", ["rubbish", "[1]", '{"schema": 2}', ""])
def test_a_bad_line_in_the_middle_is_an_error(tmp_path: Path, line: str) -> None:
    RecordFile(tmp_path).append(record(0))
    path = tmp_path / "records.jsonl"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DirectLossError, match=r"line 2 of .* must be a record of schema 1"):
        RecordFile(tmp_path)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RecordFile(tmp_path)
    file.append(record(0))
    before = file.path.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:10]))
    with pytest.raises(OSError, match="No space left"):
        file.append(record(1))
    assert file.path.read_bytes() == before
    assert record(1)["key"] not in file


def test_numbers_that_are_not_json_are_refused(tmp_path: Path) -> None:
    bad = record()
    bad["metrics"] = {"test_ap": float("nan")}
    with pytest.raises(ValueError, match="not JSON compliant"):
        RecordFile(tmp_path).append(bad)
    assert read_records(tmp_path) == []


def test_commit_is_short_text_or_nothing() -> None:
    found = commit()
    assert found is None or len(found.removesuffix("-dirty")) == 12


# ---------------------------------------------------------------------- folders


def test_a_new_run_needs_an_empty_folder(tmp_path: Path) -> None:
    Folder(tmp_path / "new").check_new("linear")
    Folder(tmp_path).check_new("linear")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DirectLossError, match="--out must be a new or empty folder"):
        Folder(tmp_path).check_new("linear")
    with pytest.raises(DirectLossError, match="--out must be a folder"):
        Folder(tmp_path / "notes.txt").check_new("linear")


def test_only_the_same_experiment_can_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(DirectLossError, match=r"--resume needs an --out folder that holds a run"):
        Folder(tmp_path).check_resumable("linear")
    Folder(tmp_path).write({"experiment": "synthetic"})
    with pytest.raises(DirectLossError, match=r"must hold a run of 'linear', but it is .* which holds 'synthetic'"):
        Folder(tmp_path).check_resumable("linear")
    assert Folder(tmp_path).check_resumable("synthetic")["experiment"] == "synthetic"


@pytest.mark.parametrize(
    ("text", "message"), [("{", "must be readable JSON"), ("[]", "must describe"), ('{"schema": 9}', "must describe")]
)
def test_bad_descriptions(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(DirectLossError, match=message):
        Folder(tmp_path).stored()


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    first, second = Folder(tmp_path), Folder(tmp_path)
    first.claim()
    with pytest.raises(DirectLossError, match="--out must not be in use by another run"):
        second.claim()
    first.release()
    second.claim()
    second.release()


def test_descriptions_appear_whole(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write({"experiment": "linear"})
    with pytest.raises(TypeError):
        folder.write({"experiment": object()})
    assert json.loads((tmp_path / "run.json").read_text()) == {"schema": 1, "experiment": "linear"}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
