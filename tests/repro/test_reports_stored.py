"""Reading records: whole files, files cut short, and every kind of broken line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from directloss_repro.records import RecordFile
from directloss_repro.reports.stored import load_run

from directloss import DirectLossError
from tests.repro.fake_records import make_run, record, records, run_info, write_run


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
    with pytest.raises(DirectLossError, match=r"records.jsonl.gz must be a whole gzip file"):
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
    (_write("records.jsonl", b"\xff\xfe\n"), "records.jsonl must be UTF-8 text, but it is binary at byte 0"),
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
    assert run.final[0].diverged
