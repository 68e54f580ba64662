"""Records and folders: nothing is lost, nothing is half there, nobody writes where he should not."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from directloss_repro.experiments import get_experiment
from directloss_repro.folder import Folder
from directloss_repro.records import Record, RecordFile, RunSpec, commit, load_run, make_record, read_records

from directloss import DirectLossError
from tests.repro.fake_records import make_run, record, records, run_info, write_run

RESULTS = Path(__file__).parents[2] / "results"
SPEC = RunSpec("robustness", "final", "pos-ap", 3, 0.2, None, {"learning_rate": 0.01, "epsilon": "auto"})


def new_record(seed: int = 3) -> Record:
    spec = RunSpec("robustness", "final", "pos-ap", seed, 0.2, None, {"learning_rate": 0.01})
    return make_record(spec, "digest", metrics={"test_ap": 0.5}, seconds=1.23456)


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
    line = json.loads(new_record().line())
    keys = {"schema", "key", "experiment", "stage", "method", "seed", "noise", "class", "params", "metrics", "curve"}
    assert {*line} == keys | {"diverged_at", "seconds", "versions", "commit", "digest"}
    assert {*line["versions"]} == {"directloss", "torch", "numpy", "python"}


def test_records_come_back(tmp_path: Path) -> None:
    file = RecordFile(tmp_path)
    for seed in (0, 1, 1):
        file.append(new_record(seed))
    assert list(read_records(file.path).records) == [new_record(0), new_record(1)]
    again = RecordFile(tmp_path)
    assert len(again) == 2
    assert new_record(1).key in again
    assert new_record(2).key not in again


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path, kept: int) -> None:
    file = RecordFile(tmp_path)
    file.append(new_record(0))
    whole = file.path.read_bytes()
    file.append(new_record(1))
    line = file.path.read_bytes()[len(whole) :]
    file.path.write_bytes(whole + line[:kept])
    for notes in (load_run(tmp_path).notes, RecordFile(tmp_path).notes):
        assert "The last line of records.jsonl is cut off" in notes[0]
    assert file.path.read_bytes() == whole
    RecordFile(tmp_path).append(new_record(1))
    assert file.path.read_bytes() == whole + line


CHANGES: list[tuple[str, str]] = [
    ('"test_ap":0.5', '"test_ap":0.6'),
    ('"seed":1', '"seed":2'),
    ('"learning_rate":0.01', '"learning_rate":0.1'),
    ('"digest":"', '"digest":"0'),
    ('"seconds":1.235', '"seconds":0.1'),
]


@pytest.mark.parametrize(("old", "new"), CHANGES, ids=[old for old, _ in CHANGES])
def test_a_line_that_was_changed_is_named_and_refused(tmp_path: Path, old: str, new: str) -> None:
    file = RecordFile(tmp_path)
    file.append(new_record(0))
    file.append(new_record(1))
    first, second = file.path.read_text().splitlines()
    assert old in second
    file.path.write_text(f"{first}\n{second.replace(old, new)}\n")
    for read in (load_run, RecordFile):
        with pytest.raises(DirectLossError, match=r"records.jsonl line 2: digest must match .* \(run [0-9a-f]{16}\)"):
            read(tmp_path)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RecordFile(tmp_path)
    file.append(new_record(0))
    before = file.path.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:10]))
    with pytest.raises(OSError, match="No space left"):
        file.append(new_record(1))
    assert file.path.read_bytes() == before
    assert new_record(1).key not in file


def test_what_was_not_measured_is_no_number(tmp_path: Path) -> None:
    curve = {"iteration": [0.0, 1.0], "test_ap": [0.5, float("nan")]}
    bad = make_record(SPEC, "digest", metrics={"test_ap": float("nan")}, seconds=1.0, curve=curve)
    RecordFile(tmp_path).append(bad)
    (again,) = read_records(tmp_path / "records.jsonl").records
    assert again.metrics == {}
    assert again.line() == bad.line()


def test_commit_is_short_text_or_nothing() -> None:
    found = commit()
    assert found is None or len(found.removesuffix("-dirty")) == 12


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in RESULTS.glob("*/records.jsonl*")), ids=lambda f: f.name
)
def test_stored_results_stay_readable(folder: Path) -> None:
    run = load_run(folder)
    assert run.final
    if run.info:
        config = get_experiment(run.experiment).config_from(run.info["config"])
        assert {record.method for record in run.final} <= set(config.methods)
    assert all(record.key for record in (*run.search, *run.final))


# ---------------------------------------------------------------------- reading


def test_reads_what_was_written(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, "digits-noise", seeds=2))
    assert run.methods == ("pos-ap", "hinge-ap", "x-ent")
    assert run.seeds == (0, 1)
    assert run.noises == (0.0, 0.1, 0.2, 0.3, 0.4)
    assert run.groups == tuple("0123456789")
    assert len(run.final) == 3 * 2 * 5 * 10
    assert len(run.search) == 3 * 5 * 4
    assert run.notes == ()


def test_packed_records_are_read_as_plain_ones(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "digits-noise", seeds=2)
    plain = load_run(folder)
    packed = folder / "records.jsonl.gz"
    packed.write_bytes(gzip.compress((folder / "records.jsonl").read_bytes()))
    (folder / "records.jsonl").unlink()
    assert load_run(folder).final == plain.final
    with pytest.raises(DirectLossError, match=r"records.jsonl.gz must be unpacked .* Run: gunzip"):
        RecordFile(folder)
    packed.write_bytes(packed.read_bytes()[:100])
    with pytest.raises(DirectLossError, match=r"records.jsonl.gz must be a readable file of records"):
        load_run(folder)


def test_classes_that_are_numbers_sort_as_numbers(tmp_path: Path) -> None:
    lines = [record("digits-noise", "x-ent", 0, group=group) for group in (10, 9, 2)]
    assert load_run(write_run(tmp_path, lines)).groups == ("2", "9", "10")


def changed(**changes: Any) -> dict[str, Any]:
    return record("synthetic", "pos-ap", 1) | changes


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in record("synthetic", "pos-ap", 1).items() if name != key}


BAD_LINES = [
    ("{", "line 2 must be one JSON object, but it is broken at column 2"),
    ('"text"', "line 2 must be one JSON object, but it is a str"),
    (json.dumps(changed(schema=3)), "line 2: schema must be 1 or 2, but it is 3"),
    (json.dumps(without("schema")), "line 2: schema must be 1 or 2, but it is None"),
    (json.dumps(without("method")), "line 2: must have every key, but it is without method"),
    (json.dumps(changed(method="")), "line 2: method must be a word, but it is ''"),
    (json.dumps(changed(experiment=3)), "line 2: experiment must be a word, but it is 3"),
    (json.dumps(changed(stage="middle")), "line 2: stage must be 'search' or 'final', but it is 'middle'"),
    (json.dumps(changed(seed=1.5)), "line 2: seed must be a whole number, but it is 1.5"),
    (json.dumps(changed(seed=True)), "line 2: seed must be a whole number, but it is True"),
    (json.dumps(changed(noise="much")), "line 2: noise must be a number, but it is 'much'"),
    (json.dumps(changed(**{"class": [1]})), "line 2: class must be a word, but it is [1]"),
    (json.dumps(changed(params=[1])), "line 2: params must be an object, but it is [1]"),
    (json.dumps(without("metrics")), "line 2: must have every key, but it is without metrics"),
    (json.dumps(changed(metrics={"test_ap": "high"})), "line 2: metrics.test_ap must be a number, but it is 'high'"),
    (json.dumps(changed(curve={"test_ap": 1})), "line 2: curve.test_ap must be a list, but it is 1"),
    (
        json.dumps(changed(curve={"iteration": [0, 1], "test_ap": [0.5]})),
        "as many values of 'test_ap' as iterations, 2",
    ),
    (json.dumps(changed(curve={"test_ap": [0.5]})), "as many values of 'test_ap' as iterations, 0"),
    (json.dumps(changed(seconds="long")), "line 2: seconds must be a number, but it is 'long'"),
    (json.dumps(changed(versions="new")), "line 2: versions must be an object, but it is 'new'"),
    (
        json.dumps(changed(experiment="linear")),
        "must belong to one experiment, 'synthetic', but it is also of 'linear'",
    ),
]


@pytest.mark.parametrize(("line", "message"), BAD_LINES)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    good = json.dumps(record("synthetic", "pos-ap", 0))
    (tmp_path / "records.jsonl").write_text(f"{good}\n{line}\n{good}\n", encoding="utf-8")
    with pytest.raises(DirectLossError) as caught:
        load_run(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path / "records.jsonl") in str(caught.value)


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return write


BAD_FILES = [
    (
        lambda folder: (folder / "records.jsonl").unlink(),
        "records.jsonl must exist, but it is missing. Run the experiment",
    ),
    (_write("records.jsonl", b""), "records.jsonl must hold at least one record, but it is empty"),
    (_write("records.jsonl", b"\n\n"), "records.jsonl must hold at least one record, but it is empty"),
    (_write("records.jsonl", b'{"schema": 1'), "records.jsonl must hold at least one record, but it is empty"),
    (_write("records.jsonl", b"\xff\xfe\n"), "records.jsonl must be a readable file of records, but it is not"),
    (_write("run.json", b"{\n,"), "run.json must be readable JSON, but it is not (Expecting property name"),
    (_write("run.json", b"[]"), "run.json must be a JSON object, but it is a list"),
    (_write("run.json", b'{"experiment": "linear"}'), "run.json must name the experiment of the records, 'synthetic'"),
]


@pytest.mark.parametrize(("spoil", "message"), BAD_FILES)
def test_a_bad_file_is_named(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    make_run(tmp_path, "synthetic", seeds=1, methods=["x-ent"])
    spoil(tmp_path)
    with pytest.raises(DirectLossError) as caught:
        load_run(tmp_path)
    assert message in str(caught.value)


def test_a_last_line_cut_off_by_a_kill_is_left_out(tmp_path: Path) -> None:
    make_run(tmp_path, "synthetic", seeds=2, methods=["x-ent"])
    whole = load_run(tmp_path)
    with (tmp_path / "records.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record("synthetic", "x-ent", 2))[:100])
    cut = load_run(tmp_path)
    assert cut.final == whole.final
    assert "cut off" in cut.notes[0]


def test_a_run_that_is_stored_twice_counts_once(tmp_path: Path) -> None:
    again = record("synthetic", "x-ent", 0) | {"metrics": {"test_ap": 0.125}}
    run = load_run(write_run(tmp_path, [*records("synthetic", 2, ["x-ent"]), again], run_info("synthetic")))
    assert [r.metrics["test_ap"] for r in run.final if r.seed == 0] == [0.125]
    assert "1 finished runs are stored more than once" in run.notes[0]


def test_numbers_of_a_diverged_training_are_no_numbers(tmp_path: Path) -> None:
    line = changed(metrics={"test_ap": float("nan"), "train_ap": None, "test_accuracy": 0.5}, diverged_at=7)
    run = load_run(write_run(tmp_path, [line], run_info("synthetic")))
    assert run.final[0].metrics == {"test_accuracy": 0.5}
    assert run.final[0].diverged_at is not None


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
    ("text", "message"),
    [("{", "must be readable JSON"), ("[]", "must be a JSON object"), ('{"schema": 9}', "must describe")],
)
def test_bad_descriptions(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(DirectLossError, match=message):
        Folder(tmp_path).stored()


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    rule = "--out must not be in use by another run"
    with Folder(tmp_path), pytest.raises(DirectLossError, match=rule), Folder(tmp_path):
        pass
    with Folder(tmp_path):
        pass


def test_a_folder_in_an_impossible_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    rule = "--out must be a folder that can be created and written"
    with pytest.raises(DirectLossError, match=rule), Folder(tmp_path / "file" / "run"):
        pass


def test_descriptions_appear_whole(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write({"experiment": "linear"})
    with pytest.raises(TypeError):
        folder.write({"experiment": object()})
    assert json.loads((tmp_path / "run.json").read_text()) == {"schema": 1, "experiment": "linear"}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
