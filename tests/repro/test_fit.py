"""``directloss fit`` and ``directloss predict``, as a user types them."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from directloss_repro.records import RecordFile
from directloss_repro.tabular.modelfile import load_model
from typer.testing import Result

from directloss import metrics
from tests.repro.tables import FAST, call, rows, write
from tests.repro.tiny import stored

ASK = ["--target", "outcome", "--metric", "ap"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Result]:
    folder = tmp_path_factory.mktemp("fit")
    data = write(folder, "rows.csv")
    result = call("fit", data, *ASK, *FAST, "--compare", "x-ent,hinge-ap", "--out", folder / "run")
    assert result.exit_code == 0, result.output
    return data, folder / "run", result


# ---------------------------------------------------------------------- what goes well


def test_the_end_says_what_came_out_and_where_it_is(finished: tuple[Path, Path, Result]) -> None:
    _, folder, result = finished
    text = " ".join(result.output.split())
    assert "rows.csv: 300 rows, 4 columns (3 of numbers, 1 of categories)." in text
    assert "'yes' is positive (the rarer one; --positive chooses another), 33.0% of the rows" in text
    assert "Split: 180 training, 60 validation and 60 test rows." in text
    assert "9 of 9 runs to do" in text
    assert text.count("95 % interval") == 2
    assert "direct-ap" in text
    assert "hinge-ap" in text
    for name in ("model.pt", "predictions.csv", "report.html", "records.jsonl", "run.json", "tables.md"):
        assert (folder / name).is_file()
        assert name in text or name.endswith((".jsonl", ".json", ".md"))
    assert not list(folder.rglob("*.tmp"))


def test_every_loss_had_the_same_number_of_trials_and_none_saw_test_data(finished: tuple[Path, Path, Result]) -> None:
    records = list(stored(finished[1]).values())
    for method in ("direct-ap", "x-ent", "hinge-ap"):
        mine = [record for record in records if record["method"] == method]
        search = [record for record in mine if record["stage"] == "search"]
        (final,) = (record for record in mine if record["stage"] == "final")
        assert [set(record["metrics"]) for record in search] == [{"val_ap", "iterations"}] * 2
        best = max(search, key=lambda record: record["metrics"]["val_ap"])
        assert final["params"] == {**best["params"], "iterations": best["metrics"]["iterations"]}
        assert final["curve"]["iteration"][-1] == best["metrics"]["iterations"]
        assert set(final["metrics"]) == {"train_ap", "test_ap", "test_ap_low", "test_ap_high"}


def test_numbers_follow_from_the_predictions(finished: tuple[Path, Path, Result]) -> None:
    data, folder, _ = finished
    table = pd.read_csv(folder / "predictions.csv")
    assert len(table) == 60
    assert table["outcome"].tolist() == pd.read_csv(data)["outcome"].iloc[table["row"] - 1].tolist()
    y = torch.tensor((table["outcome"] == "yes").to_numpy())
    values = {}
    for record in stored(folder).values():
        if record["stage"] == "final":
            method = record["method"]
            scores = torch.tensor(table[f"score {method}"].to_numpy())
            values[method] = float(metrics.average_precision(scores, y.long()))
            assert record["metrics"]["test_ap"] == pytest.approx(values[method], abs=1e-6)
            assert record["metrics"]["test_ap_low"] <= values[method] <= record["metrics"]["test_ap_high"]
    info = json.loads((folder / "run.json").read_text())
    for one in info["comparison"]:
        assert one["difference"] == pytest.approx(values[one["first"]] - values[one["second"]], abs=1e-6)
        assert one["low"] <= one["difference"] <= one["high"]
    best = {
        m: max(r["metrics"]["val_ap"] for r in stored(folder).values() if r["method"] == m and r["stage"] == "search")
        for m in values
    }
    assert info["model"] == max(best, key=lambda method: best[method])


def test_the_report_tells_the_comparison(finished: tuple[Path, Path, Result]) -> None:
    page = (finished[1] / "report.html").read_text()
    assert "Direct loss and its rivals on your data" in page
    assert "bootstrap over the test rows" in page
    assert "one seed only" not in page
    assert call("report", finished[1]).exit_code == 0


def test_predict_gives_the_scores_of_fit(finished: tuple[Path, Path, Result], tmp_path: Path) -> None:
    data, folder, _ = finished
    fitted = pd.read_csv(folder / "predictions.csv", dtype=str)
    for method in ("direct-ap", "x-ent"):
        out = tmp_path / f"{method}.csv"
        result = call("predict", folder / "models" / f"{method}.pt", data, "--out", out)
        assert result.exit_code == 0, result.output
        assert f"300 rows scored by {method}, trained for ap; higher means 'yes'." in result.output
        table = pd.read_csv(out, dtype=str)
        assert list(table.columns) == ["row", "score"]
        new = table.set_index("row")["score"].loc[fitted["row"]]
        np.testing.assert_allclose(new.astype(float), fitted[f"score {method}"].astype(float), rtol=1e-7)
    assert load_model(folder / "model.pt").method == json.loads((folder / "run.json").read_text())["model"]


def test_predict_does_not_overwrite_what_it_reads(finished: tuple[Path, Path, Result]) -> None:
    data, folder, _ = finished
    for path in (data, folder / "model.pt"):
        before = path.read_bytes()
        result = call("predict", folder / "model.pt", data, "--out", path)
        assert result.exit_code == 2
        assert "--out must be another file than the data and the model" in result.output
        assert path.read_bytes() == before


def test_predict_takes_other_orders_other_formats_and_no_target(
    finished: tuple[Path, Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, folder, _ = finished
    monkeypatch.chdir(tmp_path)
    assert call("predict", folder / "model.pt", data, "--out", "old.csv").exit_code == 0
    frame = rows()[["colour", "noise", "b", "a"]].assign(more=1)
    result = call("predict", folder / "model.pt", write(tmp_path, "new.csv.gz", frame))
    assert result.exit_code == 0, result.output
    assert "Not used, because training did not have them: 'more'." in result.output
    assert (tmp_path / "new-predictions.csv").read_bytes() == (tmp_path / "old.csv").read_bytes()


@pytest.mark.parametrize(
    ("name", "metric", "options"),
    [
        ("t.svm", "auc", ["--model", "linear"]),
        ("t.libsvm.gz", "ndcg@10", []),
        ("t.npz", "f1", ["--compare", "x-ent,hinge-f1"]),
        ("t.parquet", "mcc", ["--target", "outcome", "--positive", "no"]),
        ("t.csv.xz", "accuracy", ["--target", "outcome", "--categorical", "noise", "--drop", "b"]),
    ],
)
def test_every_format_and_kind_of_metric(tmp_path: Path, name: str, metric: str, options: list[str]) -> None:
    data, out = write(tmp_path, name), tmp_path / "run"
    small = ["--trials", 1, "--iterations", 4, "--workers", 1]
    result = call("fit", data, "--metric", metric, *options, *small, "--out", out)
    assert result.exit_code == 0, result.output
    predicted = tmp_path / "p.csv"
    assert call("predict", out / "model.pt", data, "--out", predicted).exit_code == 0
    table, fitted = pd.read_csv(predicted, dtype=str), pd.read_csv(out / "predictions.csv", dtype=str)
    model = load_model(out / "model.pt")
    assert len(table) == 300
    decides = metric in ("f1", "mcc", "accuracy")
    assert ("decision" in table.columns) == decides
    if decides:
        assert set(table["decision"]) <= set(model.labels)
        kept = table.set_index("row")["decision"].loc[fitted["row"]]
        assert kept.tolist() == fitted[f"decision {model.method}"].tolist()
        (record,) = (r for r in stored(out).values() if r["stage"] == "final" and r["method"] == model.method)
        y = torch.tensor((fitted.iloc[:, 1] == model.labels[1]).to_numpy()).long()
        sides = torch.tensor((kept == model.labels[1]).to_numpy()).float() - 0.5
        function = {"f1": metrics.f_beta, "mcc": metrics.matthews, "accuracy": metrics.binary_accuracy}[metric]
        assert record["metrics"][f"test_{metric}"] == pytest.approx(float(function(sides, y)), abs=1e-6)


def test_large_data_is_trained_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("directloss_repro.tabular.session.LARGE", 100)
    monkeypatch.setattr("directloss_repro.tabular.session.BATCH", 16)
    frame = rows()
    frame["outcome"] = np.where(np.arange(300) % 60 < 2, "yes", "no")  # batches without any positive
    data, out = write(tmp_path, "t.csv", frame), tmp_path / "run"
    result = call("fit", data, *ASK, "--trials", 1, "--workers", 1, "--out", out)
    assert result.exit_code == 0, result.output
    config = json.loads((out / "run.json").read_text())["config"]
    assert (config["batch"], config["iterations"]) == (16, 500)
    assert all(record["diverged_at"] is None for record in stored(out).values())


def test_missing_numbers_are_filled_when_asked(tmp_path: Path) -> None:
    frame = rows(120)
    frame.loc[::10, "a"] = None
    data, out = write(tmp_path, "t.csv", frame), tmp_path / "run"
    result = call("fit", data, *ASK, "--impute", "--trials", 1, "--iterations", 4, "--workers", 1, "--out", out)
    assert result.exit_code == 0, result.output
    assert "Missing numbers are filled with the median and marked: a." in result.output
    assert call("predict", out / "model.pt", data, "--out", tmp_path / "p.csv").exit_code == 0
    gone = write(tmp_path, "gone.csv", frame.assign(b=[None] + [1.0] * 119))
    refused = call("predict", out / "model.pt", gone, "--out", tmp_path / "q.csv")
    assert refused.exit_code == 2
    assert "gaps in b (1 row)" in refused.output
    assert not (tmp_path / "q.csv").exists()


# ---------------------------------------------------------------------- going on


def test_killed_and_resumed_equals_uninterrupted(finished: tuple[Path, Path, Result], tmp_path: Path) -> None:
    """SIGKILL with two worker processes, and on with one: the same records, predictions and comparison."""
    data, whole, _ = finished
    folder = tmp_path / "run"
    words = ["fit", data, *ASK, "--compare", "x-ent,hinge-ap", "--trials", 2, "--iterations", 8, "--workers", 2]
    command = [sys.executable, "-m", "directloss_repro", *map(str, words), "--out", str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:  # each line is printed after its record is on disk
            if line.startswith("[3/"):
                break
        process.kill()
    assert process.returncode == -signal.SIGKILL
    done = (folder / "records.jsonl").read_text().count("\n")
    assert 3 <= done < 9
    assert not (folder / "model.pt").exists()
    resumed = call("fit", data, "--out", folder, "--resume", "--workers", 1)
    assert resumed.exit_code == 0, resumed.output
    assert f"{9 - done} of 9 runs to do" in resumed.output
    assert stored(folder) == stored(whole)
    assert (folder / "predictions.csv").read_bytes() == (whole / "predictions.csv").read_bytes()
    old, new = (json.loads((path / "run.json").read_text()) for path in (whole, folder))
    assert (old["comparison"], old["model"]) == (new["comparison"], new["model"])


def test_a_finished_run_can_have_one_more_loss(finished: tuple[Path, Path, Result], tmp_path: Path) -> None:
    data, _, _ = finished
    folder = tmp_path / "run"
    small = ["--trials", 1, "--iterations", 4, "--workers", 1]
    assert call("fit", data, *ASK, *small, "--out", folder).exit_code == 0
    before = stored(folder)
    (folder / "models" / "x-ent.pt").unlink()  # a lost model is trained again, to the same record
    result = call("fit", data, "--compare", "x-ent,per-ap", "--out", folder, "--resume", "--workers", 1)
    assert result.exit_code == 0, result.output
    assert before.items() <= stored(folder).items()
    assert len(stored(folder)) == 6
    assert (folder / "models" / "x-ent.pt").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metric", "auc"], "--metric must be what the run in"),
        (["--trials", "3"], "--trials must be what the run in"),
        (["--compare", "x-ent"], "--compare must be what the run in"),
        (["--positive", "no"], "--positive must be what the run in"),
    ],
)
def test_a_run_does_not_go_on_with_other_numbers(
    finished: tuple[Path, Path, Result], words: list[str], message: str
) -> None:
    data, folder, _ = finished
    result = call("fit", data, *words, "--out", folder, "--resume")
    assert result.exit_code == 2
    assert message in result.output


def test_a_run_does_not_go_on_with_other_data(finished: tuple[Path, Path, Result], tmp_path: Path) -> None:
    other = write(tmp_path, "rows.csv", rows(seed=1))
    result = call("fit", other, "--out", finished[1], "--resume")
    assert result.exit_code == 2
    assert "DATA must have the content that the run in" in result.output


# ---------------------------------------------------------------------- what goes wrong


def text(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def table(**columns: Any) -> Callable[[Path], Path]:
    return lambda folder: write(folder, "t.csv", rows(60).assign(**columns))


def arrays(**named: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        np.savez(folder / "t.npz", **named)
        return folder / "t.npz"

    return make


HALF = np.arange(60) % 2
GOOD = table()
NPZ = ["--metric", "ap"]
BAD: dict[str, tuple[Callable[[Path], Path], list[str], str]] = {
    "no such file": (lambda folder: folder / "none.csv", ASK, "DATA must be a file that exists"),
    "folder": (
        lambda folder: (folder / "d.csv").mkdir() or folder / "d.csv",
        ASK,
        "DATA must be a file, but it is the",
    ),
    "unknown kind": (text("t.xlsx", "x"), ASK, "DATA must be a file of a known kind"),
    "packed parquet": (text("t.parquet.gz", "x"), ASK, "DATA must be a file of a known kind"),
    "empty": (text("t.csv", ""), ASK, "DATA must have rows, but it is an empty file"),
    "header only": (text("t.csv", "a,outcome\n"), ASK, "DATA must have rows, but it is without any"),
    "not utf-8": (text("t.csv", b"a,outcome\n\xff\xfe,1\n"), ASK, "DATA must be text in UTF-8"),
    "ragged": (text("t.csv", "a,outcome\n1,2\n1,2,3\n"), ASK, "DATA must be a whole csv file"),
    "longer than its header": (text("t.csv", "a,outcome\n1,2,3\n1,2,3\n"), ASK, "DATA must be a whole csv file"),
    "torn gzip": (text("t.csv.gz", b"\x1f\x8b\x08\x00broken"), ASK, "DATA must be a whole csv file"),
    "no gzip": (text("t.csv.gz", b"a,b\n"), ASK, "DATA must be a whole csv file"),
    "no xz": (text("t.csv.xz", b"a,b\n"), ASK, "DATA must be a whole csv file"),
    "no parquet": (text("t.parquet", "hello"), ASK, "DATA must be a whole parquet file"),
    "no npz": (text("t.npz", "hello"), NPZ, "DATA must"),
    "same name twice": (text("t.csv", "a,a,outcome\n1,2,3\n"), ASK, "must have a name of its own for each column"),
    "nameless column": (text("t.csv", "a,,outcome\n1,2,3\n"), ASK, "without a name for column 2"),
    "npz with objects": (arrays(x=np.array([[None]]), y=HALF), NPZ, "with Python objects in it"),
    "npz without x": (arrays(z=HALF), NPZ, "DATA must have an array x"),
    "npz with text": (arrays(x=np.array([["a"]] * 60), y=HALF), NPZ, "array 'x' must hold numbers, but it is of type"),
    "npz with one row of x": (arrays(x=HALF, y=HALF), NPZ, "array 'x' must have two dimensions"),
    "npz with a name twice": (
        arrays(x=np.zeros((60, 2)), x0=HALF, y=HALF),
        NPZ,
        "array 'x0' must have another name, which a column of x has already",
    ),
    "npz with other names": (arrays(features=HALF), NPZ, "with features. Write it with numpy.savez(file, x=x, y=y)"),
    "npz with short y": (
        arrays(x=np.zeros((60, 2)), y=HALF[:5]),
        NPZ,
        "array 'y' must have one value for each of the 60",
    ),
    "npz without y": (arrays(x=np.zeros((60, 2))), NPZ, "--target must be a column of t.npz, but it is 'y'"),
    "svmlight with text": (text("t.svm", "1 1:abc\n"), NPZ, "must have lines of the form LABEL INDEX:NUMBER"),
    "svmlight without colons": (text("t.txt", "some words here\n"), NPZ, "must have lines of the form LABEL INDEX"),
    "no target": (
        GOOD,
        ["--metric", "ap"],
        "--target must name the column to predict, but it is not given. Columns: a, b",
    ),
    "unknown target": (GOOD, ["--target", "outcom", "--metric", "ap"], "Did you mean 'outcome'?"),
    "no metric": (GOOD, ["--target", "outcome"], "--metric must be given"),
    "unknown metric": (GOOD, ["--target", "outcome", "--metric", "accurcy"], "Did you mean 'accuracy'"),
    "metric without k": (GOOD, ["--target", "outcome", "--metric", "recall"], "Write precision@10 or recall@10"),
    "metric of lists": (GOOD, ["--target", "outcome", "--metric", "mrr"], "It is a mean over many lists, one for each"),
    "more than there is": (
        GOOD,
        ["--target", "outcome", "--metric", "precision@500"],
        "--metric must look at no more than the 36 rows of the train part, but it is 'precision@500'",
    ),
    "bad k": (GOOD, ["--target", "outcome", "--metric", "ndcg@x"], "must have a number that fits after the @"),
    "unknown loss": (GOOD, [*ASK, "--compare", "xent"], "Did you mean 'x-ent'"),
    "no rival": (GOOD, [*ASK, "--compare", "direct-ap"], "--compare must name a loss besides the direct one"),
    "loss for heatmaps": (
        GOOD,
        [*ASK, "--compare", "mse-1"],
        "--compare must name what can train on one score per item",
    ),
    "loss for keypoints": (GOOD, [*ASK, "--compare", "uniloss-pckh"], "but it is 'uniloss-pckh'. These can: x-ent"),
    "size of batches": (GOOD, [*ASK, "--compare", "x-ent:batch=9"], "--compare must have no option 'batch' here"),
    "unfit loss": (GOOD, [*ASK, "--compare", "pos-accuracy"], "but it is"),
    "unknown model": (GOOD, [*ASK, "--model", "tree"], "--model must be one of 'mlp', 'linear'"),
    "bad share": (GOOD, [*ASK, "--test-share", "0.9"], "--test-share must be a share from 0.05 to 0.5"),
    "no share": (GOOD, [*ASK, "--test-share", "nan"], "--test-share must be a share from 0.05 to 0.5, but it is nan"),
    "no trials": (GOOD, [*ASK, "--trials", "0"], "--trials must be a whole number of at least 1"),
    "negative seed": (GOOD, [*ASK, "--seed", "-1"], "--seed must be a whole number from 0"),
    "unknown drop": (GOOD, [*ASK, "--drop", "nois"], "Did you mean 'noise'?"),
    "target dropped": (GOOD, [*ASK, "--drop", "outcome"], "--drop must not name the target"),
    "all dropped": (GOOD, [*ASK, "--drop", "a,b,noise,colour"], "--drop must leave a column to learn from"),
    "unknown categorical": (GOOD, [*ASK, "--categorical", "zip"], "--categorical must name columns of the data"),
    "unknown positive": (GOOD, [*ASK, "--positive", "maybe"], "--positive must be 'no' or 'yes'"),
    "one class": (table(outcome="yes"), ASK, "target 'outcome' must have two values, but it is 'yes' in every row"),
    "three classes": (table(outcome=np.arange(60) % 3), ASK, "a column with 3: '0', '1', '2'"),
    "continuous target": (table(outcome=np.arange(60) / 7), ASK, "a column with 60: "),
    "rare class": (table(outcome=(np.arange(60) < 3)), ASK, "must have at least 5 rows of each label"),
    "missing target": (table(outcome=[None, *["yes", "no"] * 29, "no"]), ASK, "missing in 1 of 60 rows"),
    "missing numbers": (
        table(a=[None] * 3 + [1.5] * 57, b=[None] + [2.5] * 59),
        ASK,
        "DATA must have no missing numbers, but it is a table with gaps in a (3 rows), b (1 row). Add --impute",
    ),
    "nothing but gaps": (table(a=None), [*ASK, "--impute"], "column 'a' must have values"),
    "infinite": (
        table(a=[np.inf] + [1.5] * 59),
        ASK,
        "DATA must have finite numbers only, but it is a table with infinite ones in a (1 row)",
    ),
    "too large": (
        table(a=[-1e300] + [1.5] * 59),
        ASK,
        "DATA must have numbers of at most 1e+30, but it is a table with larger ones in a (1 row)",
    ),
    "words among numbers": (
        table(a=["?"] + [str(k) for k in range(59)]),
        ASK,
        "column 'a' must hold numbers throughout, but it is a column in which 1 of 60 values are not: '?'",
    ),
    "target alone": (lambda folder: write(folder, "t.csv", rows(60)[["outcome"]]), ASK, "columns besides the target"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_and_leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    make, words, message = BAD[name]
    data = make(tmp_path)
    result = call("fit", data, *words, "--out", tmp_path / "run")
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert not (tmp_path / "run").exists()


def test_dates_are_refused(tmp_path: Path) -> None:
    data = write(tmp_path, "t.parquet", rows(60).assign(day=pd.Timestamp("2020-01-01")))
    result = call("fit", data, *ASK, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "column 'day' must hold numbers or words" in result.output
    assert "--drop day" in result.output


def test_the_folder_of_another_experiment_is_left_alone(tmp_path: Path) -> None:
    data, out = write(tmp_path, "t.csv"), tmp_path / "run"
    out.mkdir()
    (out / "run.json").write_text(json.dumps({"schema": 1, "experiment": "linear"}))
    for words, message in (
        ([], "--out must be a new or empty folder"),
        (["--resume"], "--out must hold a run of 'fit'"),
    ):
        result = call("fit", data, *ASK, "--out", out, *words)
        assert result.exit_code == 2
        assert message in result.output
    assert [path.name for path in out.iterdir()] == ["run.json"]


@pytest.mark.parametrize("when", ["record", "results"])
def test_a_full_disk_is_said_and_the_run_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    data, out = write(tmp_path, "t.csv", rows(80)), tmp_path / "run"
    small = ["--trials", 1, "--iterations", 2, "--workers", 1, "--out", out]

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out))

    with monkeypatch.context() as patch:
        if when == "record":
            patch.setattr(RecordFile, "append", full)
        else:
            patch.setattr("directloss_repro.files._fill", full)
        result = call("fit", data, *ASK, *small)
    assert result.exit_code == 2, result.output
    assert "No space left on device" in result.output
    assert not list(out.rglob("*.tmp"))
    assert not (out / "model.pt").exists()
    assert call("fit", data, "--out", out, "--resume", "--workers", 1).exit_code == 0
    assert (out / "model.pt").is_file()


PREDICT_BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "column missing": (
        lambda folder: write(folder, "t.csv", rows(9).rename(columns={"noise": "noisy"})),
        "DATA must have every column of training, but it is without 'noise'. Did you mean 'noisy'?",
    ),
    "text in a number": (
        lambda folder: write(folder, "t.csv", rows(9).assign(a=["x"] + [1] * 8)),
        "column 'a' must hold numbers, as in training, but it is a column with 'x'",
    ),
    "gap": (lambda folder: write(folder, "t.csv", rows(9).assign(a=[None] + [1] * 8)), "gaps in a (1 row)"),
    "infinite": (lambda folder: write(folder, "t.csv", rows(9).assign(a=np.inf)), "infinite ones in a (9 rows)"),
    "empty": (text("t.csv", ""), "DATA must have rows"),
    "other format": (lambda folder: write(folder, "t.svm"), "without 'a', 'b', 'noise', 'colour'"),
}


@pytest.mark.parametrize("name", PREDICT_BAD)
def test_predict_refuses_rows_that_do_not_fit(finished: tuple[Path, Path, Result], tmp_path: Path, name: str) -> None:
    make, message = PREDICT_BAD[name]
    result = call("predict", finished[1] / "model.pt", make(tmp_path), "--out", tmp_path / "p.csv")
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "p.csv").exists()


def test_predict_refuses_what_is_no_model(tmp_path: Path) -> None:
    data = write(tmp_path, "t.csv")
    for path in (data, tmp_path / "none.pt", tmp_path):
        result = call("predict", path, data, "--out", tmp_path / "p.csv")
        assert result.exit_code == 2
        assert "MODEL must be" in result.output
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_help(command: str) -> None:
    result = call(command, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_cross_entropy_gets_its_chance_with_rare_positives(tmp_path: Path) -> None:
    """Without its start at the base rate and a chosen number of steps it ends at an AP of 0.07 here."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(3000, 20))
    signal = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + x[:, 3] + 0.5 * draw.normal(size=3000)
    np.savez(tmp_path / "t.npz", x=x, y=signal > np.quantile(signal, 0.98))
    words = ["--metric", "ap", "--trials", 2, "--iterations", 60, "--workers", 1, "--out", tmp_path / "run"]
    result = call("fit", tmp_path / "t.npz", *words)
    assert result.exit_code == 0, result.output
    final = {r["method"]: r["metrics"]["test_ap"] for r in stored(tmp_path / "run").values() if r["stage"] == "final"}
    assert final["x-ent"] > 0.2
