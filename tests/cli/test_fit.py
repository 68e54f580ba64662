"""``directloss fit`` and ``directloss predict``, as a user types them."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import Result

import directloss
from directloss import metrics
from directloss.tabular.comparison import Comparison, IntervalEstimate
from directloss.tabular.fitting import FitRequest, Outcome, carry_out, make_plan
from directloss.tabular.report import verdict
from tests.tabular.tables import FAST, call, rows, write

ASK = ["--target", "outcome", "--metric", "ap"]
Finished = tuple[Path, Path, Result]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("fit")
    data = write(folder, "rows.csv", rows().assign(day=pd.date_range("2024-01-01", periods=300).strftime("%Y-%m-%d")))
    result = call("fit", data, *ASK, *FAST, "--out", folder / "run")
    assert result.exit_code == 0, result.output
    return data, folder / "run", result


# ---------------------------------------------------------------------- what goes well


def test_the_end_says_what_came_out_and_where_it_is(finished: Finished) -> None:
    _, folder, result = finished
    text = " ".join(result.output.split())
    assert "rows.csv: 300 rows, 5 columns (3 numeric, 1 categorical, 1 date)." in text
    assert "'yes' is positive (--positive changes it), 33.0% of the rows" in text
    assert "Split: 180 training (59 positive), 60 validation (20 positive), 60 test (20 positive) rows." in text
    assert "direct-ap (network trained on AP): trying 2 settings ..." in text
    assert re.search(r"\[x-ent 2 of 2\] validation AP: 0\.\d{4} \(", text)
    assert "Training on AP instead of cross-entropy" in text
    table = result.output[result.output.index("\nmethod ") :].splitlines()[1:6]
    assert {line.split()[0] for line in table[1:]} == {
        "direct-ap",
        "x-ent",
        "LogisticRegression",
        "HistGradientBoosting",
    }
    assert max(map(len, table)) <= 80
    assert sum("(saved)" in line for line in table) == 1
    names = {"model.safetensors", "predictions.csv", "report.html", "run.json"}
    assert {path.name for path in folder.iterdir()} == names


def test_numbers_follow_from_the_predictions(finished: Finished) -> None:
    data, folder, _ = finished
    table = pd.read_csv(folder / "predictions.csv")
    assert table["outcome"].tolist() == pd.read_csv(data)["outcome"].iloc[table["row"] - 1].tolist()
    y = torch.tensor((table["outcome"] == "yes").to_numpy()).long()
    info = json.loads((folder / "run.json").read_text())
    assert list(info["test"]) == ["direct-ap", "x-ent", "logistic", "hist"]
    values = {}
    for name, test in info["test"].items():
        values[name] = float(metrics.average_precision(torch.tensor(table[f"score {name}"].to_numpy()), y))
        assert test["value"] == pytest.approx(values[name], abs=1e-6)
        assert test["low"] <= values[name] <= test["high"]
    for name, ahead in info["ahead"].items():
        assert ahead["value"] == pytest.approx(values[name] - values[info["saved"]], abs=1e-6)
    assert info["saved"] == max(list(values)[:3], key=lambda name: info["chosen"][name]["validation"])


def test_the_report_has_what_one_asks_for(finished: Finished) -> None:
    page = (finished[1] / "report.html").read_text()
    for words in (
        "validation AP",
        "test AP",
        "95 % interval",
        "(saved)",
        "read as %Y-%m-%d",
        "training",
        "MLPClassifier",
    ):
        assert words in page
    assert page.count("<svg") == 2
    assert not re.search(r"(src|href)=.?(https?:|//)|@import|<script", page), "the page needs no other file"
    assert "directloss predict" in page


def test_names_of_a_table_are_text_in_the_report(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    frame = rows(120).rename(columns={"a": evil, "outcome": f"t{evil}"}).assign(colour=lambda f: f["colour"] + evil)
    frame[f"t{evil}"] = frame[f"t{evil}"].map({"yes": f"yes{evil}", "no": "no"})
    data = write(tmp_path, "t.csv", frame)
    result = call("fit", data, "--target", f"t{evil}", "--metric", "f1", *FAST, "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "o" / "report.html").read_text()
    assert "<img" not in page
    assert "&lt;img src=x" in page


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("outcome")
    plan = make_plan(FitRequest(write(folder, "t.csv"), "f1", target="outcome", trials=1, epochs=8, out=folder / "o"))
    return carry_out(plan, lambda line: None)


def judged(outcome: Outcome, saved: str, ahead: dict[str, IntervalEstimate], level: float = 0.9) -> list[str]:
    """The verdict for estimates that are put in."""
    gaps = {name: ahead.get(name, IntervalEstimate(-0.5, -0.6, -0.4)) for name in outcome.results if name != saved}
    test = {saved: level} | {name: level + gap.value for name, gap in gaps.items()}
    comparison = Comparison(
        {name: IntervalEstimate(value, value, value) for name, value in test.items()},
        gaps,
        IntervalEstimate(0.01, -0.1, 0.2),
    )
    return verdict(replace(outcome, saved=saved, comparison=comparison))


def test_the_first_sentence_says_who_wins(outcome: Outcome) -> None:
    saved = "direct-f1"
    tree = judged(outcome, saved, {"hist": IntervalEstimate(0.05, 0.01, 0.09)})
    assert tree[0].startswith("Use HistGradientBoosting: test F1 0.950 against 0.900 for the saved model, the network")
    assert tree[1].startswith("model.safetensors does not hold it: train it yourself with ")
    ours = judged(outcome, saved, {})
    assert ours[0].startswith("Use the saved model, the network trained on F1: its test F1 is 0.900 against 0.400 for")
    logistic = judged(outcome, "logistic", {})
    assert logistic[0].startswith("Use the saved model, LogisticRegression: its test F1 is 0.900")
    assert "holds LogisticRegression, chosen by its validation F1" in " ".join(logistic)
    assert "saved model, the network" not in " ".join(logistic), "only what was trained on the metric is called so"
    nobody = judged(outcome, saved, {"hist": IntervalEstimate(0.01, -0.02, 0.09)})
    assert nobody[0].startswith(
        "No winner: the test F1 of the saved model, the network trained on F1, is 0.900 against"
    )
    assert nobody[1].endswith("Not shown to be worse than the saved model: HistGradientBoosting.")
    sure = judged(
        outcome, saved, {"hist": IntervalEstimate(0.08, -0.02, 0.19), "logistic": IntervalEstimate(0.05, 0.01, 0.09)}
    )
    assert sure[0].startswith("Use LogisticRegression")
    assert any(line.startswith("HistGradientBoosting has a higher test F1, 0.980, but its lead") for line in sure)
    assert "Training on F1 instead of cross-entropy changes the network's test F1 by +0.010. This could be" in nobody[2]


def test_an_answer_that_is_always_the_same_is_beaten_or_mentioned(outcome: Outcome) -> None:
    y = outcome.plan.target.y[outcome.plan.parts["test"]]
    always = 2 * y.mean() / (1 + y.mean())
    assert "always answering" not in " ".join(judged(outcome, "logistic", {}, always + 0.01))
    low = judged(outcome, "logistic", {}, always - 0.01)
    assert low[1] == f"No method beats always answering 'yes', with a test F1 of {always:.3f}."


def test_a_validation_metric_far_above_the_test_metric_is_pointed_out(outcome: Outcome) -> None:
    def last(validation: float) -> str:
        results = {name: replace(own, validation=validation) for name, own in outcome.results.items()}
        test = dict.fromkeys(outcome.comparison.test, IntervalEstimate(0.1, 0.05, 0.2))
        return verdict(replace(outcome, results=results, comparison=replace(outcome.comparison, test=test)))[-1]

    why = "the 60 validation rows, 20 of them positive, are too few to choose by, or differ from the test rows."
    assert last(0.3) == f"Its validation F1, 0.300, is far above its test F1, 0.100: {why}"
    assert last(0.24).startswith("model.safetensors holds")


def test_a_copy_of_the_target_is_in_the_verdict(tmp_path: Path) -> None:
    data = write(tmp_path, "t.csv", rows().assign(result=lambda f: f["outcome"].map({"yes": 2, "no": 7})))
    result = call("fit", data, *ASK, *FAST, "--out", tmp_path / "o")
    said = "Column 'result' gives the target away: it is a copy of it, or a recoding."
    assert result.output.count(said) == 2, "when it was found, and at the end"
    assert said.replace("'", "&#39;") in (tmp_path / "o" / "report.html").read_text()


def test_predict_gives_the_scores_of_fit_and_keeps_columns(finished: Finished, tmp_path: Path) -> None:
    data, folder, _ = finished
    named = pd.read_csv(data).assign(id=[f"=p{k}" for k in range(300)])
    new, model = write(tmp_path, "n.csv", named), folder / "model.safetensors"
    result = call("predict", model, new, "--keep", "id,colour", "--out", tmp_path / "p.csv")
    assert result.exit_code == 0, result.output
    saved = json.loads((folder / "run.json").read_text())["saved"]
    trained = {"x-ent": "network trained with cross-entropy", "direct-ap": "network trained on AP"}
    name = trained.get(saved, "LogisticRegression")
    assert f"Scored 300 rows with the {name}, which had the best validation AP in fit." in result.output
    assert "Higher scores favour 'yes'." in result.output
    table, fitted = pd.read_csv(tmp_path / "p.csv"), pd.read_csv(folder / "predictions.csv")
    assert list(table.columns) == ["row", "id", "colour", "score", "probability"]
    assert table["id"][0] == "'=p0", "a formula is made harmless"
    again = table.set_index("row")["score"].loc[fitted["row"]]
    np.testing.assert_allclose(again, fitted[f"score {saved}"], rtol=1e-7)
    loaded = directloss.load(folder / "model.safetensors")
    np.testing.assert_allclose(loaded.decision_function(pd.read_csv(data)), table["score"], rtol=1e-7)
    np.testing.assert_allclose(loaded.predict_proba(pd.read_csv(data))[:, 1], table["probability"], rtol=1e-5)
    ranked = table.sort_values("score")["probability"]
    assert ranked.is_monotonic_increasing
    assert 0 < ranked.min() < ranked.max() < 1


def test_predict_overwrites_nothing_by_accident(finished: Finished, tmp_path: Path) -> None:
    data, folder, _ = finished
    for path in (data, folder / "model.safetensors"):
        before = path.read_bytes()
        result = call("predict", folder / "model.safetensors", data, "--out", path, "--force")
        assert result.exit_code == 2
        assert "--out must differ from the data and the model" in result.output
        assert path.read_bytes() == before
    device = tmp_path / "pipe"
    os.mkfifo(device)
    for other in (device, Path("/dev/null"), tmp_path):
        refused = call("predict", folder / "model.safetensors", data, "--out", other, "--force")
        assert "must be a regular file" in refused.output
    assert device.is_fifo()
    assert Path("/dev/null").is_char_device()
    other = tmp_path / "letter.csv"
    other.write_text("mine")
    refused = call("predict", folder / "model.safetensors", data, "--out", other)
    assert refused.exit_code == 2
    assert "--out must be a new file" in refused.output
    assert other.read_text() == "mine"
    assert call("predict", folder / "model.safetensors", data, "--out", other, "--force").exit_code == 0
    assert other.read_text().startswith("row,score,probability")


def test_predict_takes_other_orders_other_formats_and_no_target(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, folder, _ = finished
    monkeypatch.chdir(tmp_path)
    assert call("predict", folder / "model.safetensors", data, "--out", "old.csv").exit_code == 0
    frame = pd.read_csv(data)[["day", "colour", "noise", "b", "a"]].assign(more=1)
    result = call("predict", folder / "model.safetensors", write(tmp_path, "new.csv.gz", frame))
    assert result.exit_code == 0, result.output
    assert "Ignored columns that training did not have: 'more'." in result.output
    assert (tmp_path / "new-predictions.csv").read_bytes() == (tmp_path / "old.csv").read_bytes()
    typed = write(tmp_path, "typed.parquet", frame.assign(day=pd.to_datetime(frame["day"])))
    assert call("predict", folder / "model.safetensors", typed).exit_code == 0
    assert (tmp_path / "typed-predictions.csv").read_bytes() == (tmp_path / "old.csv").read_bytes()


def test_predict_warns_of_categories_that_training_did_not_have(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.read_csv(finished[0]).assign(colour=lambda f: f["colour"].where(f.index % 100 > 1, "purple"))
    frame.loc[299, ["colour", "a"]] = "teal", None
    monkeypatch.setattr("directloss.tabular.reading.BATCH_BYTES", 4_000)  # one warning, however many batches
    model = finished[1] / "model.safetensors"
    result = call("predict", model, write(tmp_path, "n.csv", frame), "--out", tmp_path / "p.csv")
    assert result.exit_code == 0, result.output
    warning = "too rarely: 7 in 'colour' (such as 'purple', 'teal'), 1 in 'a' (such as a missing value).\n"
    assert result.output.count("Warning") == result.output.count(warning) == 1


@pytest.mark.parametrize(
    ("name", "metric", "options"),
    [
        ("t.parquet", "mcc", ["--positive", "no", "--group", "noise"]),
        ("t.csv.xz", "accuracy", ["--categorical", "noise", "--drop", "b"]),
        ("t.tsv", "ndcg@10", ["--rows", "200"]),
        ("t.csv", "f1", ["--seed", "3"]),
    ],
)
def test_every_format_and_kind_of_metric(tmp_path: Path, name: str, metric: str, options: list[str]) -> None:
    data, out = write(tmp_path, name), tmp_path / "run"
    small = ["--target", "outcome", "--trials", 1, "--epochs", 4]
    result = call("fit", data, "--metric", metric, *small, *options, "--out", out)
    assert result.exit_code == 0, result.output
    predicted = tmp_path / "p.csv"
    assert call("predict", out / "model.safetensors", data, "--out", predicted).exit_code == 0
    table, fitted = pd.read_csv(predicted, dtype=str), pd.read_csv(out / "predictions.csv", dtype=str)
    info = json.loads((out / "run.json").read_text())
    assert len(table) == 300
    assert fitted["outcome"].tolist() == rows()["outcome"].iloc[fitted["row"].astype(int) - 1].tolist()
    decides = metric in ("f1", "mcc", "accuracy")
    assert ("decision" in table.columns) == decides
    if decides:
        kept = table.set_index("row")["decision"].loc[fitted["row"]]
        positive = directloss.load(out / "model.safetensors").labels[1]
        y = torch.tensor((fitted.iloc[:, 1] == positive).to_numpy()).long()
        sides = torch.tensor((kept == positive).to_numpy()).float() - 0.5
        function = {"f1": metrics.f_beta, "mcc": metrics.matthews, "accuracy": metrics.binary_accuracy}[metric]
        assert info["test"][info["saved"]]["value"] == pytest.approx(float(function(sides, y)), abs=1e-6)
    else:
        assert "Everything below is about 200 of 300 rows, drawn at random" in result.output


def test_wrong_labels_that_are_known_to_be_wrong(tmp_path: Path) -> None:
    """The thresholds are chosen for the right labels, whatever the file says."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(3000, 4))
    right = (x[:, 0] + 0.5 * draw.normal(size=3000) > 1.1).astype(int)
    given = np.where(draw.random(3000) < 0.25, 1 - right, right)
    data = write(tmp_path, "t.csv", pd.DataFrame(x.round(4), columns=list("abcd")).assign(y=given))
    reached = {}
    for name, options in {"taken": [], "corrected": ["--flips", "0.25"]}.items():
        out = tmp_path / name
        words = ["--target", "y", "--metric", "f1", "--trials", 1, "--epochs", 60]
        result = call("fit", data, *words, *options, "--out", out)
        assert result.exit_code == 0, result.output
        table = pd.read_csv(out / "predictions.csv")
        y = torch.tensor(right[table["row"] - 1])
        for method in ("direct-f1", "x-ent", "logistic"):
            reached[name, method] = float(metrics.f_beta(torch.tensor(table[f"score {method}"].to_numpy()), y))
    for method in ("direct-f1", "x-ent", "logistic"):
        assert reached["corrected", method] > reached["taken", method] + 0.02
    assert "25% of the negatives and" in (tmp_path / "corrected" / "report.html").read_text()


def test_rows_without_label_are_left_out(tmp_path: Path) -> None:
    frame = rows(120)
    frame.loc[::12, "outcome"] = None
    data, out = write(tmp_path, "t.csv", frame), tmp_path / "run"
    result = call("fit", data, "--target", "outcome", "--metric", "f1", *FAST, "--out", out)
    assert result.exit_code == 0, result.output
    assert "Note: 10 of 120 rows have no 'outcome' and are left out." in result.output
    assert "Note: Too few test rows to tell methods apart: 'yes' in only 8 of 22 test rows." in result.output
    assert "Too few rows to choose by: 'yes' in only 8 of 22 test rows." in result.output
    assert not set(pd.read_csv(out / "predictions.csv")["row"]) & set(range(1, 121, 12))
    assert call("predict", out / "model.safetensors", data, "--out", tmp_path / "p.csv").exit_code == 0
    assert len(pd.read_csv(tmp_path / "p.csv")) == 120


def test_every_fit_gets_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = FitRequest(Path("t.v2.csv"), "ap")
    assert asked.folder == Path("runs/fit-t")
    asked.folder.mkdir(parents=True)
    assert asked.folder == Path("runs/fit-t"), "it stays what it was"
    assert FitRequest(Path("t.csv"), "ap").folder == Path("runs/fit-t-2")
    Path("runs/fit-t-2").mkdir()
    assert FitRequest(Path("t.csv"), "ap", resume=True).folder == Path("runs/fit-t-2")


def test_missing_numbers_are_filled_and_marked(tmp_path: Path) -> None:
    frame = rows(120).assign(empty=None)
    frame.loc[::10, "a"] = None
    data, out = write(tmp_path, "t.csv", frame), tmp_path / "run"
    result = call("fit", data, *ASK, *FAST, "--out", out)
    assert result.exit_code == 0, result.output
    page = (out / "report.html").read_text()
    assert "<td>number; gaps are filled with the mean and marked</td><td>12</td>" in page
    assert "<td>left out: it has no values</td>" in page


# ---------------------------------------------------------------------- going on


def test_killed_and_resumed_equals_uninterrupted(finished: Finished, tmp_path: Path) -> None:
    data, whole, _ = finished
    folder = tmp_path / "run"
    words = ["fit", data, *ASK, *FAST, "--out", folder]
    command = [sys.executable, "-m", "directloss", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:  # each line is printed after its trial is stored
            if line.startswith("[x-ent 1 of 2]"):
                break
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not (folder / "model.safetensors").exists()
    resumed = call(*words, "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert "[direct-ap" not in resumed.output
    assert "[x-ent 1 of 2]" not in resumed.output
    assert "[x-ent 2 of 2]" in resumed.output
    assert (folder / "predictions.csv").read_bytes() == (whole / "predictions.csv").read_bytes()
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_torn_model_does_not_stop_a_fit_from_going_on(finished: Finished) -> None:
    data, folder, _ = finished
    good = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(good[:100])
    result = call("fit", data, *ASK, *FAST, "--out", folder, "--resume")
    assert result.exit_code == 0, result.output
    assert (folder / "model.safetensors").read_bytes() == good


def test_a_torn_file_of_trials_is_named(finished: Finished) -> None:
    data, folder, _ = finished
    whole = (folder / "run.json").read_bytes()
    for content in (whole[:50], b"[1]", b'{"config": {}}'):
        (folder / "run.json").write_bytes(content)
        result = call("fit", data, *ASK, *FAST, "--out", folder, "--resume")
        assert result.exit_code == 2, result.output
        assert "must describe a fit of this version" in result.output
    (folder / "run.json").write_bytes(whole)


def test_the_later_of_two_fits_in_a_folder_is_refused(tmp_path: Path) -> None:
    request = FitRequest(write(tmp_path, "t.csv"), "ap", target="outcome", trials=1, epochs=2, out=tmp_path / "run")
    first, second = make_plan(request), make_plan(request)
    carry_out(first, lambda line: None)
    with pytest.raises(directloss.DirectLossError, match="--out must be a new or empty folder"):
        carry_out(second, lambda line: None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metric", "auc"], '--metric must be "ap", as in the fit in'),
        (["--seed", "3"], "--seed must be 0, as in the fit in"),
        (["--positive", "no"], '--positive must be "yes", as in the fit in'),
        (["--drop", "a"], '--drop must be "", as in the fit in'),
    ],
)
def test_a_fit_does_not_go_on_with_other_questions(finished: Finished, words: list[str], message: str) -> None:
    data, folder, _ = finished
    result = call("fit", data, *ASK, *words, *FAST, "--out", folder, "--resume")
    assert result.exit_code == 2
    assert message in result.output


def test_a_fit_does_not_go_on_with_other_data(finished: Finished, tmp_path: Path) -> None:
    result = call("fit", write(tmp_path, "rows.csv", rows(seed=1)), *ASK, "--out", finished[1], "--resume")
    assert result.exit_code == 2
    assert "DATA must be the table of the fit in" in result.output


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    data, out = write(tmp_path, "t.csv"), tmp_path / "run"
    out.mkdir()
    (out / "run.json").write_text(json.dumps({"schema": 1, "experiment": "linear"}))
    for words, message in (([], "--out must be a new or empty folder"), (["--resume"], "must describe a fit of this")):
        result = call("fit", data, *ASK, "--out", out, *words)
        assert result.exit_code == 2
        assert message in result.output
    assert [path.name for path in out.iterdir()] == ["run.json"]
    nothing = call("fit", data, *ASK, "--out", tmp_path / "none", "--resume")
    assert "--resume needs an --out folder that holds a fit" in nothing.output


def test_an_impossible_place_is_said_without_a_promise(tmp_path: Path) -> None:
    data, file = write(tmp_path, "t.csv"), tmp_path / "file"
    file.write_text("")
    result = call("fit", data, *ASK, "--out", file / "run")
    assert result.exit_code == 2
    assert "cannot be read or written" in result.output
    assert "saved" not in result.output


def test_a_full_disk_is_said_and_the_fit_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = write(tmp_path, "t.csv", rows(80)), tmp_path / "run"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out))

    words = ["fit", data, *ASK, *FAST, "--out", out]
    with monkeypatch.context() as patch:
        patch.setattr("directloss.tabular.fitting._predictions", full)
        result = call(*words)
    assert result.exit_code == 2, result.output
    assert "No space left on device" in result.output
    assert f"continue with:\n  directloss fit {shlex.quote(str(data))}" in result.output
    assert call(*words, "--resume").exit_code == 0
    assert (out / "report.html").is_file()


# ---------------------------------------------------------------------- what goes wrong


def text(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def table(**columns: Any) -> Callable[[Path], Path]:
    return lambda folder: write(folder, "t.csv", rows(60).assign(**columns))


def wide(folder: Path) -> Path:
    (folder / "t.csv").write_text(",".join(f"c{k}" for k in range(20_000)) + "\n")
    return folder / "t.csv"


def long_header(folder: Path) -> Path:
    """Half a gigabyte of header in half a megabyte."""
    with gzip.open(folder / "t.csv.gz", "wb") as file:
        for _ in range(50):
            file.write(b"a," * 500_000)
    return folder / "t.csv.gz"


GOOD = table()
BAD: dict[str, tuple[Callable[[Path], Path], list[str], str]] = {
    "no such file": (lambda folder: folder / "none.csv", ASK, "DATA must be a file that exists"),
    "folder": (lambda folder: (folder / "d.csv").mkdir() or folder / "d.csv", ASK, "DATA must be a file that exists"),
    "unknown kind": (text("t.xlsx", "x"), ASK, "DATA must be a file of a known kind"),
    "packed parquet": (text("t.parquet.gz", "x"), ASK, "DATA must be a file of a known kind"),
    "empty": (text("t.csv", ""), ASK, "DATA must have rows, but it is an empty file"),
    "header only": (text("t.csv", "a,outcome\n"), ASK, "DATA must have rows, but it is without any"),
    "not utf-8": (text("t.csv", b"a,outcome\n\xff\xfe,1\n"), ASK, "DATA must be text in UTF-8"),
    "torn gzip": (text("t.csv.gz", b"\x1f\x8b\x08\x00broken"), ASK, "DATA must be a whole csv file"),
    "no gzip": (text("t.csv.gz", b"a,b\n"), ASK, "DATA must be a whole csv file"),
    "no xz": (text("t.csv.xz", b"a,b\n"), ASK, "DATA must be a whole csv file"),
    "no parquet": (text("t.parquet", "hello"), ASK, "DATA must be a whole parquet file"),
    "same name twice": (text("t.csv", "a,a,outcome\n1,2,3\n"), ASK, "must have a unique name for each column"),
    "no header": (text("t.csv", "5,5,yes\n1,2,no\n"), ASK, "A CSV file needs a header line."),
    "nameless column": (text("t.csv", "a,,outcome\n1,2,3\n"), ASK, "with a column without a name"),
    "no target": (
        GOOD,
        ["--metric", "ap"],
        "--target must name columns of t.csv, but it is ''. Columns: a, b",
    ),
    "unknown target": (GOOD, ["--target", "outcom", "--metric", "ap"], "Did you mean 'outcome'?"),
    "unknown metric": (GOOD, ["--target", "outcome", "--metric", "accurcy"], "Did you mean 'accuracy'"),
    "no trials": (GOOD, [*ASK, "--trials", "0"], "Invalid value for '--trials'"),
    "negative seed": (GOOD, [*ASK, "--seed", "-1"], "Invalid value for '--seed'"),
    "unknown drop": (GOOD, [*ASK, "--drop", "nois"], "Did you mean 'noise'?"),
    "target dropped": (GOOD, [*ASK, "--drop", "outcome"], "--drop must not name the target"),
    "unknown categorical": (GOOD, [*ASK, "--categorical", "zip"], "--categorical must name columns of t.csv"),
    "unknown positive": (GOOD, [*ASK, "--positive", "maybe"], "--positive must be one of 'no', 'yes'"),
    "one class": (table(outcome="yes"), ASK, "target 'outcome' must have two values, but it is 'yes' in every row"),
    "three classes": (
        table(outcome=np.arange(60) % 3),
        ASK,
        "target 'outcome' must have two values, but it is a column with 3: '0', '1', '2'. "
        "--positive VALUE tells one value from all others.",
    ),
    "continuous target": (table(outcome=np.arange(60) / 7), ASK, "Turn a quantity into yes or no first"),
    "a sheet": (text("t.xlsx", b"PK"), ASK, "Save a table as .csv with a header line"),
    "short line": (text("t.csv", "a,b,outcome\n1,2,3\n\n1,2\n"), ASK, "Expected 3 columns, got 2"),
    "not utf-8, far down": (
        text("t.csv", b"a,outcome\n" + b"1,yes\n" * 9000 + b"\xff,no\n"),
        ASK,
        "DATA must be text in UTF-8, but it is",
    ),
    "rare class": (table(outcome=(np.arange(60) < 3)), ASK, "must have at least 5 rows of each label"),
    "no target at all": (table(outcome=None), ASK, "target 'outcome' must have two values, but it is missing in every"),
    "infinite": (
        table(a=[np.inf] + [1.5] * 59),
        ASK,
        "column 'a' must have finite numbers of at most 1e+30, but it is a column with infinite or",
    ),
    "too large": (
        table(a=[-1e300] + [1.5] * 59),
        ASK,
        "column 'a' must have finite numbers of at most 1e+30, but it is a column with infinite or",
    ),
    "words among numbers": (
        table(a=["high"] + [str(k) for k in range(59)]),
        ASK,
        "column 'a' must hold numbers throughout, but it is a column in which 1 of 60 values are not: 'high'",
    ),
    "ragged": (text("t.csv", "a,outcome\n1,2\n1,2,3\n"), ASK, "DATA must be a whole csv file, but it is"),
    "ragged, where": (text("t.csv", "a,outcome\n1,2\n1,2,3\n"), ASK, "Expected 2 columns, got 3"),
    "longer than its header": (text("t.csv", 'a,outcome\n"1\n",2,3\n1,2,3\n'), ASK, "Expected 2 columns, got 3"),
    "too wide": (wide, ASK, "DATA must have at most 10,000 columns, but it is"),
    "a long header": (long_header, ASK, "DATA must have at most 10,000 columns"),
    "svmlight": (text("t.svm", "1 1:2\n"), ASK, "DATA must be a file of a known kind"),
    "bad flips": (GOOD, ["--target", "outcome", "--metric", "f1", "--flips", "0.6"], "--flips must be a share of"),
    "flips of a ranking": (GOOD, [*ASK, "--flips", "0.1"], "--flips must be left out for a ranking"),
    "a synonym": (GOOD, ["--target", "outcome", "--metric", "average_precision"], "Did you mean 'ap'?"),
    "no rows": (GOOD, [*ASK, "--rows", "0"], "Invalid value for '--rows'"),
    "no metric": (GOOD, ["--target", "outcome"], "Missing option '--metric'"),
    "metric without k": (GOOD, ["--target", "outcome", "--metric", "recall"], "Write recall@10 for the first 10"),
    "metric of lists": (GOOD, ["--target", "outcome", "--metric", "mrr"], "It averages over many lists, and a table"),
    "metric of classes": (GOOD, ["--target", "outcome", "--metric", "topk@2"], "of yes-or-no targets"),
    "metric of quantities": (
        GOOD,
        ["--target", "outcome", "--metric", "rmse"],
        "--metric must be a metric of one list of yes-or-no targets, but it is 'rmse'. Choose ap, auc",
    ),
    "metric of graphs": (GOOD, ["--target", "outcome", "--metric", "chain"], "of yes-or-no targets"),
    "more than there is": (
        GOOD,
        ["--target", "outcome", "--metric", "precision@500"],
        "--metric must look at no more than 12 rows, as many as the smallest part has, but it is precision@500",
    ),
    "bad k": (GOOD, ["--target", "outcome", "--metric", "ndcg@x"], "--metric must have a number after '@'"),
    "unknown group": (GOOD, [*ASK, "--group", "nois"], "--group must name columns of t.csv"),
    "target as group": (GOOD, [*ASK, "--group", "outcome"], "--group must not name the target"),
    "all dropped": (GOOD, [*ASK, "--drop", "a,b,noise,colour"], "--drop must leave a column with values to learn from"),
    "nothing but names": (
        lambda folder: write(folder, "t.csv", rows(60)[["outcome"]].assign(a=[f"p{k}" for k in range(60)])),
        ASK,
        "data must have a column with numbers, or with a word in at least 5 training rows",
    ),
    "nothing but gaps": (
        lambda folder: write(folder, "t.csv", rows(60)[["outcome"]].assign(a=None)),
        ASK,
        "must leave a column with values to learn from",
    ),
    "whole numbers beyond all bounds": (
        table(a=[str(10**40)] + ["1"] * 59),
        ASK,
        "column 'a' must have finite numbers of at most 1e+30, but it is a column with infinite or",
    ),
    "lists": (
        lambda folder: write(folder, "t.parquet", rows(60).assign(a=[[1, 2]] * 60)),
        ASK,
        "column 'a' must hold numbers, words or dates",
    ),
    "target alone": (lambda folder: write(folder, "t.csv", rows(60)[["outcome"]]), ASK, "must leave a column"),
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


def test_the_process_ends_with_the_code_of_bad_input(tmp_path: Path) -> None:
    """Readers may have threads of their own, which must not abort it."""
    command = [
        sys.executable,
        "-m",
        "directloss",
        "fit",
        str(write(tmp_path, "t.csv")),
        "--target",
        "x",
        "--metric",
        "ap",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: --target must name columns of t.csv, but it is 'x'.")


def nine() -> pd.DataFrame:
    return rows(9).assign(day="2024-03-01")


PREDICT_BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "column missing": (
        lambda folder: write(folder, "t.csv", nine().rename(columns={"noise": "noisy"})),
        "DATA must have every column of training, but it is without 'noise'. Did you mean 'noisy'?",
    ),
    "text in a number": (
        lambda folder: write(folder, "t.csv", nine().assign(a=["x"] + [1] * 8)),
        "column 'a' must hold numbers, as in training, but it is a column with 'x'",
    ),
    "infinite": (lambda folder: write(folder, "t.csv", nine().assign(a=np.inf)), "infinite or larger ones, 9 of them"),
    "empty": (text("t.csv", ""), "DATA must have rows"),
}


@pytest.mark.parametrize("name", PREDICT_BAD)
def test_predict_refuses_rows_that_do_not_fit(finished: Finished, tmp_path: Path, name: str) -> None:
    make, message = PREDICT_BAD[name]
    result = call("predict", finished[1] / "model.safetensors", make(tmp_path), "--out", tmp_path / "p.csv")
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "p.csv").exists()


def test_predict_refuses_what_is_no_model(tmp_path: Path) -> None:
    data = write(tmp_path, "t.csv")
    for path in (data, tmp_path / "none.safetensors", tmp_path):
        result = call("predict", path, data, "--out", tmp_path / "p.csv")
        assert result.exit_code == 2
        assert "MODEL must be" in result.output
    assert not (tmp_path / "p.csv").exists()


def test_predict_refuses_columns_that_it_cannot_keep(finished: Finished, tmp_path: Path) -> None:
    data = write(tmp_path, "t.csv", nine().assign(score=1))
    for words, message in (
        ("colr", "--keep must name columns of t.csv"),
        ("score", "--keep must name columns other"),
    ):
        result = call("predict", finished[1] / "model.safetensors", data, "--keep", words, "--out", tmp_path / "p.csv")
        assert result.exit_code == 2
        assert message in result.output
