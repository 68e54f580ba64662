"""``directloss fit`` and ``directloss predict``, as a user types them."""

from __future__ import annotations

import errno
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
from directloss.tabular.comparison import Comparison, Estimate, Method
from directloss.tabular.planning import Request, make_plan
from directloss.tabular.report import verdict
from directloss.tabular.session import carry_out
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
    assert "'yes' is positive (the rarer one; --positive changes it), 33.0% of the rows" in text
    assert "Split: 180 training (59 positive), 60 validation (20 positive), 60 test (20 positive) rows." in text
    assert "LogisticRegression" in text
    assert "against" in text
    assert "Training on AP instead of cross-entropy" in text
    table = result.output[result.output.index("\nmethod ") :].splitlines()[1:5]
    assert {line.split()[0] for line in table[1:]} == {"direct-ap", "x-ent", "LogisticRegression"}
    assert max(map(len, table)) <= 80
    assert sum("(saved)" in line for line in table) == 1
    names = {"model.json", "predictions.csv", "report.html", "run.json", "tables.md", "search.journal"}
    assert {path.name for path in folder.iterdir()} == names


def test_numbers_follow_from_the_predictions(finished: Finished) -> None:
    data, folder, _ = finished
    table = pd.read_csv(folder / "predictions.csv")
    assert table["outcome"].tolist() == pd.read_csv(data)["outcome"].iloc[table["row"] - 1].tolist()
    y = torch.tensor((table["outcome"] == "yes").to_numpy()).long()
    info = json.loads((folder / "run.json").read_text())
    assert set(info["methods"]) == {"direct-ap", "x-ent", "logistic"}
    values = {}
    for name, method in info["methods"].items():
        values[name] = float(metrics.average_precision(torch.tensor(table[f"score {name}"].to_numpy()), y))
        assert method["test"]["value"] == pytest.approx(values[name], abs=1e-6)
        assert method["test"]["low"] <= values[name] <= method["test"]["high"]
    for name, ahead in info["ahead_of_saved"].items():
        assert ahead["value"] == pytest.approx(values[name] - values[info["saved"]], abs=1e-6)
    networks = {name: info["methods"][name]["validation"] for name in ("direct-ap", "x-ent")}
    assert info["saved"] == max(networks, key=lambda name: networks[name])
    assert info["trials"] == {"direct-ap": 2, "x-ent": 2}


def test_the_report_has_what_one_asks_for(finished: Finished) -> None:
    folder = finished[1]
    page, tables = (folder / "report.html").read_text(), (folder / "tables.md").read_text()
    for text in (page, tables):
        for words in (
            "validation AP",
            "test AP",
            "95 % interval",
            "(saved)",
            "date, split into days",
            "training",
        ):
            assert words in text
    assert page.count("<svg") == 3
    assert not re.search(r"(src|href)=.?(https?:|//)|@import|<script", page), "the page needs no other file"
    assert "directloss predict" in page
    assert "iteration" not in page


@pytest.mark.parametrize("winner", ["tree", "network", "nobody"])
def test_the_first_sentence_says_who_wins(tmp_path: Path, winner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By scores that are put in: a baseline that knows the answer, one that knows nothing, one that is the same."""
    plan = make_plan(Request(write(tmp_path, "t.csv"), "ap", target="outcome", trials=1, epochs=8, out=tmp_path / "o"))
    y = plan.target.y[plan.parts["test"]]

    noisy = y + 0.9 * np.random.default_rng(0).normal(size=len(y))
    scores = {"tree": 1.0 * y, "network": -1.0 * y, "nobody": noisy}[winner]
    sampled = 90 if winner == "network" else None

    def fake(name: str, *_: object) -> Method:
        return Method(name, "HistGradientBoosting", "depth=3", 0.5, scores, 1.5, sampled=sampled)

    monkeypatch.setattr("directloss.tabular.session.fit_baseline", fake)
    told = verdict(carry_out(plan, lambda line: None))
    first = {
        "tree": "Use HistGradientBoosting: test AP 1.000 against",
        "network": "Use the saved network: its test AP is",
    }
    assert told[0].startswith(first.get(winner, "No winner: the saved network's test AP is")), told
    assert ("Not shown to be worse than the saved network: Hist" in told[1]) == (winner == "nobody")
    assert ("could be chance" in told[0]) == (winner == "nobody")
    if winner == "tree":
        assert told[1] == "model.json holds only networks: train HistGradientBoosting yourself with depth=3."
    sample = "HistGradientBoosting was trained on a sample of 90 of the 180 training rows."
    assert (sample in told) == (winner == "network"), "a win over half of the rows is not kept silent"
    assert told[-1].startswith("model.json holds the network trained")


@pytest.mark.parametrize("metric", ["f1", "accuracy"])
def test_a_validation_metric_far_above_the_test_metric_is_pointed_out(tmp_path: Path, metric: str) -> None:
    data = write(tmp_path, "t.csv", rows() if metric == "f1" else rows().assign(outcome=np.arange(300) % 3))
    small: dict[str, Any] = {"trials": 1, "epochs": 8, "baselines": "none", "out": tmp_path / "o"}
    plan = make_plan(Request(data, metric, target="outcome", **small))
    outcome = carry_out(plan, lambda line: None)

    def last(validation: float) -> str:
        methods = [replace(method, validation=validation) for method in outcome.methods]
        test = dict.fromkeys(outcome.comparison.test, Estimate(0.1, 0.05, 0.2))
        return verdict(replace(outcome, methods=methods, comparison=replace(outcome.comparison, test=test)))[-1]

    title, share = ("F1", ", 20 of them positive,") if metric == "f1" else ("accuracy", "")
    why = f"the 60 validation rows{share} are too few to choose by, or differ from the test rows."
    assert last(0.3) == f"Its validation {title}, 0.300, is far above its test {title}, 0.100: {why}"
    assert last(0.24).startswith("model.json holds")
    assert last(0.0).startswith("model.json holds")


def test_progress_names_baselines_and_the_last_value_of_stopped_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("directloss.tabular.search.FREE", 1)
    data, small = write(tmp_path, "t.csv"), ["--trials", 6, "--epochs", 10]
    said = call("fit", data, *ASK, *small, "--baselines", "logistic,hist", "--out", tmp_path / "o").output
    assert re.search(r"\] validation AP: 0\.\d{4}, stopped early \(hidden=", said)
    assert "Training the baselines; --baselines leaves out some or all of them.\n" in said
    assert "Training HistGradientBoosting, 3 settings ...\n" in said
    assert "not corrected for choosing the best of several baselines" in (tmp_path / "o" / "report.html").read_text()


def test_a_sure_lead_counts_more_than_a_higher_one(tmp_path: Path) -> None:
    """And an answer that is the same for every row is beaten, or mentioned. By estimates that are put in."""
    data, out = write(tmp_path, "t.csv"), tmp_path / "o"
    plan = make_plan(
        Request(data, "f1", target="outcome", trials=1, epochs=8, baselines="logistic,hist", out=out),
    )
    outcome = carry_out(plan, lambda line: None)
    y = plan.target.y[plan.parts["test"]]
    always = 2 * y.mean() / (1 + y.mean())

    def told(lead: float) -> list[str]:
        gaps = {"logistic": Estimate(0.1, 0.05, 0.15), "hist": Estimate(0.2, -0.05, 0.45)}
        test = {
            name: always + lead - 0.2 + (gaps[name].value if name in gaps else 0) for name in outcome.comparison.test
        }
        comparison = Comparison(
            {name: Estimate(value, value, value) for name, value in test.items()}, outcome.comparison.ahead | gaps
        )
        return verdict(replace(outcome, comparison=comparison))

    assert told(0.01)[0].startswith("Use LogisticRegression: test F1 ")
    assert any(line.startswith("HistGradientBoosting has a higher test F1, ") for line in told(0.01))
    assert "always answering" not in " ".join(told(0.01))
    assert told(-0.01)[1] == f"No method beats always answering 'yes', with a test F1 of {always:.3f}."


def test_predict_gives_the_scores_of_fit_and_keeps_columns(finished: Finished, tmp_path: Path) -> None:
    data, folder, _ = finished
    named = pd.read_csv(data).assign(id=[f"=p{k}" for k in range(300)])
    result = call("predict", folder / "model.json", write(tmp_path, "n.csv", named), "--keep", "id,colour", "--out",
                  tmp_path / "p.csv")  # fmt: skip
    assert result.exit_code == 0, result.output
    saved = json.loads((folder / "run.json").read_text())["saved"]
    trained = "with cross-entropy" if saved == "x-ent" else "on AP itself"
    assert f"Scored 300 rows with the network with the best validation AP in fit, trained {trained}." in result.output
    assert "Higher scores favour 'yes'." in result.output
    table, fitted = pd.read_csv(tmp_path / "p.csv"), pd.read_csv(folder / "predictions.csv")
    assert list(table.columns) == ["row", "id", "colour", "score", "probability"]
    assert table["id"][0] == "'=p0", "a formula is made harmless"
    new = table.set_index("row")["score"].loc[fitted["row"]]
    np.testing.assert_allclose(new, fitted[f"score {saved}"], rtol=1e-7)
    loaded = directloss.load(folder / "model.json")
    np.testing.assert_allclose(loaded.decision_function(pd.read_csv(data)), table["score"], rtol=1e-7)
    np.testing.assert_allclose(loaded.predict_proba(pd.read_csv(data))[:, 1], table["probability"], rtol=1e-5)
    ranked = table.sort_values("score")["probability"]
    assert ranked.is_monotonic_increasing
    assert 0 < ranked.min() < ranked.max() < 1


def test_predict_overwrites_nothing_by_accident(finished: Finished, tmp_path: Path) -> None:
    data, folder, _ = finished
    for path in (data, folder / "model.json"):
        before = path.read_bytes()
        result = call("predict", folder / "model.json", data, "--out", path, "--force")
        assert result.exit_code == 2
        assert "--out must differ from the data and the model" in result.output
        assert path.read_bytes() == before
    other = tmp_path / "letter.csv"
    other.write_text("mine")
    refused = call("predict", folder / "model.json", data, "--out", other)
    assert refused.exit_code == 2
    assert "--out must be a new file" in refused.output
    assert other.read_text() == "mine"
    assert call("predict", folder / "model.json", data, "--out", other, "--force").exit_code == 0
    assert other.read_text().startswith("row,score,probability")


def test_predict_takes_other_orders_other_formats_and_no_target(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, folder, _ = finished
    monkeypatch.chdir(tmp_path)
    assert call("predict", folder / "model.json", data, "--out", "old.csv").exit_code == 0
    frame = pd.read_csv(data)[["day", "colour", "noise", "b", "a"]].assign(more=1)
    result = call("predict", folder / "model.json", write(tmp_path, "new.csv.gz", frame))
    assert result.exit_code == 0, result.output
    assert "Ignored columns that training did not have: 'more'." in result.output
    assert (tmp_path / "new-predictions.csv").read_bytes() == (tmp_path / "old.csv").read_bytes()


def test_predict_warns_of_categories_that_training_did_not_have(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.read_csv(finished[0]).assign(colour=lambda f: f["colour"].where(f.index % 100 > 1, "purple"))
    frame.loc[299, ["colour", "a"]] = "teal", None
    monkeypatch.setattr("directloss.tabular.reading.BATCH_BYTES", 4_000)  # one warning, however many batches
    result = call("predict", finished[1] / "model.json", write(tmp_path, "n.csv", frame), "--out", tmp_path / "p.csv")
    assert result.exit_code == 0, result.output
    warning = "Warning: Categories that the training table does not have: 'colour' in 7 rows ('purple', 'teal').\n"
    assert result.output.count("Warning") == result.output.count(warning) == 1
    assert "Note: Gaps filled with the median, in columns without gaps in training: a (1 row).\n" in result.output


@pytest.mark.parametrize(
    ("name", "metric", "options"),
    [
        ("t.svm", "auc", []),
        ("t.libsvm.gz", "ndcg@10", []),
        ("t.npz", "f1", ["--baselines", "hist"]),
        ("t.parquet", "mcc", ["--target", "outcome", "--positive", "no", "--group", "noise"]),
        ("t.csv.xz", "accuracy", ["--target", "outcome", "--categorical", "noise", "--drop", "b"]),
    ],
)
def test_every_format_and_kind_of_metric(tmp_path: Path, name: str, metric: str, options: list[str]) -> None:
    data, out = write(tmp_path, name), tmp_path / "run"
    small = ["--trials", 1, "--epochs", 4, "--baselines", "none"]
    result = call("fit", data, "--metric", metric, *small, *options, "--out", out)
    assert result.exit_code == 0, result.output
    predicted = tmp_path / "p.csv"
    assert call("predict", out / "model.json", data, "--out", predicted).exit_code == 0
    table, fitted = pd.read_csv(predicted, dtype=str), pd.read_csv(out / "predictions.csv", dtype=str)
    info = json.loads((out / "run.json").read_text())
    assert len(table) == 300
    decides = metric in ("f1", "mcc", "accuracy")
    assert ("decision" in table.columns) == decides
    if decides:
        kept = table.set_index("row")["decision"].loc[fitted["row"]]
        positive = directloss.load(out / "model.json").labels[1]
        y = torch.tensor((fitted.iloc[:, 1] == positive).to_numpy()).long()
        sides = torch.tensor((kept == positive).to_numpy()).float() - 0.5
        function = {"f1": metrics.f_beta, "mcc": metrics.matthews, "accuracy": metrics.binary_accuracy}[metric]
        assert info["methods"][info["saved"]]["test"]["value"] == pytest.approx(float(function(sides, y)), abs=1e-6)


@pytest.mark.parametrize("baseline", ["logistic", "xgboost"])
def test_several_classes_by_accuracy(tmp_path: Path, baseline: str) -> None:
    if baseline == "xgboost":
        pytest.importorskip("xgboost")
    frame = rows().assign(outcome=lambda f: np.select([f["a"] > 0.5, f["colour"] == "red"], ["up", "red"], "=rest"))
    data, out = write(tmp_path, "t.csv", frame), tmp_path / "run"
    words = ["--metric", "accuracy", "--target", "outcome", "--trials", 1, "--epochs", 20, "--baselines", baseline]
    result = call("fit", data, *words, "--out", out)
    assert result.exit_code == 0, result.output
    assert "Target 'outcome': 3 classes, " in result.output
    info, fitted = json.loads((out / "run.json").read_text()), pd.read_csv(out / "predictions.csv")
    for name, method in info["methods"].items():
        share = (fitted[f"decision {name}"] == fitted["outcome"]).mean()
        assert method["test"]["value"] == pytest.approx(share)
        assert method["test"]["low"] <= share <= method["test"]["high"]
        assert share > 0.75, "the most frequent class alone has about a third"
    assert "Decisions of the saved network" in (out / "tables.md").read_text()
    assert (out / "report.html").read_text().count("<svg") == 2
    told = call("predict", out / "model.json", data, "--out", tmp_path / "p.csv")
    assert "need not be the most probable class" in told.output
    table, loaded = pd.read_csv(tmp_path / "p.csv"), directloss.load(out / "model.json")
    shares = table[[f"probability {label}" for label in loaded.labels]].to_numpy()
    np.testing.assert_allclose(shares, loaded.predict_proba(frame), rtol=1e-4)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    assert table["decision"].tolist() == [label.replace("=", "'=") for label in loaded.predict(frame)]
    assert (np.array(loaded.labels)[shares.argmax(1)] == loaded.predict(frame)).mean() > 0.9
    decided = table.set_index("row")["decision"].loc[fitted["row"]].tolist()
    assert decided == fitted[f"decision {info['saved']}"].tolist()


def test_a_file_without_header_and_rows_without_label(tmp_path: Path) -> None:
    frame = rows(120)
    frame.loc[::12, "outcome"] = None
    data, out = tmp_path / "t.csv", tmp_path / "run"
    frame.to_csv(data, index=False, header=False)
    result = call("fit", data, "--no-header", "--target", "c5", "--metric", "f1", *FAST, "--out", out)
    assert result.exit_code == 0, result.output
    assert "Note: 10 of 120 rows have no 'c5' and are left out." in result.output
    assert "Note: Too few test rows to tell methods apart: only 7 of 22 test rows have 'yes'." in result.output
    assert "Too few rows to choose by: only 7 of 22 test rows have 'yes'." in result.output
    assert "--no-header" in json.loads((out / "run.json").read_text())["command"]
    assert not set(pd.read_csv(out / "predictions.csv")["row"]) & set(range(1, 121, 12))
    assert call("predict", out / "model.json", data, "--no-header", "--out", tmp_path / "p.csv").exit_code == 0
    assert len(pd.read_csv(tmp_path / "p.csv")) == 120


def test_every_fit_gets_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = Request(Path("t.v2.csv"), "ap")
    assert asked.folder == Path("runs/fit-t")
    asked.folder.mkdir(parents=True)
    assert asked.folder == Path("runs/fit-t"), "it stays what it was"
    assert Request(Path("t.csv"), "ap").folder == Path("runs/fit-t-2")
    Path("runs/fit-t-2").mkdir()
    assert Request(Path("t.csv"), "ap", resume=True).folder == Path("runs/fit-t-2")


def test_missing_numbers_are_filled_and_marked(tmp_path: Path) -> None:
    frame = rows(120).assign(empty=None)
    frame.loc[::10, "a"] = None
    data, out = write(tmp_path, "t.csv", frame), tmp_path / "run"
    result = call("fit", data, *ASK, *FAST, "--out", out)
    assert result.exit_code == 0, result.output
    tables = (out / "tables.md").read_text()
    assert "| a | number; gaps are filled with the median and marked | 12 |" in tables
    assert "| empty | left out: it has no values | 120 |" in tables


def test_rare_positives_get_their_chance(tmp_path: Path) -> None:
    """Started at the base rate; without it the network ends near chance, an AP of 0.02, here."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(3000, 8))
    signal = x[:, 0] + np.sin(2 * x[:, 2]) + x[:, 3] + 0.5 * draw.normal(size=3000)
    np.savez(tmp_path / "t.npz", x=x, y=signal > np.quantile(signal, 0.98))
    words = ["--metric", "ap", "--trials", 1, "--epochs", 60, "--baselines", "none", "--out", tmp_path / "run"]
    result = call("fit", tmp_path / "t.npz", *words)
    assert result.exit_code == 0, result.output
    methods = json.loads((tmp_path / "run" / "run.json").read_text())["methods"]
    assert min(method["test"]["value"] for method in methods.values()) > 0.2


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
            if line.startswith("[direct-ap 1 of 2]"):
                break
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not (folder / "model.json").exists()
    resumed = call(*words, "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert "[direct-ap 1 of 2]" not in resumed.output
    assert (folder / "predictions.csv").read_bytes() == (whole / "predictions.csv").read_bytes()
    assert (folder / "model.json").read_bytes() == (whole / "model.json").read_bytes()


def test_a_torn_model_does_not_stop_a_fit_from_going_on(finished: Finished) -> None:
    data, folder, _ = finished
    good = (folder / "model.json").read_bytes()
    (folder / "model.json").write_bytes(good[:100])
    result = call("fit", data, *ASK, *FAST, "--out", folder, "--resume")
    assert result.exit_code == 0, result.output
    assert (folder / "model.json").read_bytes() == good


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metric", "auc"], '--metric must be "ap", as in the fit in'),
        (["--seed", "3"], "--seed must be 0, as in the fit in"),
        (["--positive", "no"], '--positive must be "yes", as in the fit in'),
        (["--drop", "a"], "--drop must be [], as in the fit in"),
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
        patch.setattr("directloss.tabular.session._predictions", full)
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
    "torn gzip": (text("t.csv.gz", b"\x1f\x8b\x08\x00broken"), ASK, "DATA must be a whole csv file"),
    "no gzip": (text("t.csv.gz", b"a,b\n"), ASK, "DATA must be a whole csv file"),
    "no xz": (text("t.csv.xz", b"a,b\n"), ASK, "DATA must be a whole csv file"),
    "no parquet": (text("t.parquet", "hello"), ASK, "DATA must be a whole parquet file"),
    "no npz": (text("t.npz", "hello"), NPZ, "DATA must"),
    "same name twice": (text("t.csv", "a,a,outcome\n1,2,3\n"), ASK, "must have a unique name for each column"),
    "no header": (text("t.csv", "5,5,yes\n1,2,no\n"), ASK, "If the first line is not a header, add --no-header"),
    "nameless column": (text("t.csv", "a,,outcome\n1,2,3\n"), ASK, "without a name for column 2"),
    "npz with objects": (arrays(x=np.array([[None]]), y=HALF), NPZ, "with Python objects in it"),
    "npz without x": (arrays(z=HALF), NPZ, "DATA must have an array x"),
    "npz with text": (arrays(x=np.array([["a"]] * 60), y=HALF), NPZ, "array 'x' must hold numbers, but it is of type"),
    "npz with one row of x": (arrays(x=HALF, y=HALF), NPZ, "array 'x' must have two dimensions"),
    "npz with a name twice": (
        arrays(x=np.zeros((60, 2)), x0=HALF, y=HALF),
        NPZ,
        "array 'x0' must have a name that no column of x has",
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
    "unknown metric": (GOOD, ["--target", "outcome", "--metric", "accurcy"], "Did you mean 'accuracy'"),
    "bad share": (GOOD, [*ASK, "--test-share", "0.9"], "--test-share must be a share from 0.05 to 0.5"),
    "no share": (GOOD, [*ASK, "--test-share", "nan"], "--test-share must be a share from 0.05 to 0.5, but it is nan"),
    "no trials": (GOOD, [*ASK, "--trials", "0"], "--trials must be a whole number of at least 1"),
    "negative seed": (GOOD, [*ASK, "--seed", "-1"], "--seed must be a whole number from 0"),
    "unknown drop": (GOOD, [*ASK, "--drop", "nois"], "Did you mean 'noise'?"),
    "target dropped": (GOOD, [*ASK, "--drop", "outcome"], "--drop must not name the target"),
    "unknown categorical": (GOOD, [*ASK, "--categorical", "zip"], "--categorical must name columns of the data"),
    "unknown positive": (GOOD, [*ASK, "--positive", "maybe"], "--positive must be 'no' or 'yes'"),
    "one class": (table(outcome="yes"), ASK, "target 'outcome' must have two values, but it is 'yes' in every row"),
    "three classes": (
        table(outcome=np.arange(60) % 3),
        ASK,
        "target 'outcome' must have two values for --metric ap, but it is a column with 3: '0', '1', '2'. "
        "--positive VALUE tells one value from all others. For all classes at once: --metric accuracy.",
    ),
    "continuous target": (table(outcome=np.arange(60) / 7), ASK, "If it is a quantity, turn it into yes or no first"),
    "a table named txt": (
        text("t.txt", "a,outcome\n1,yes\n"),
        NPZ,
        "If it is a table with a header line, name it .csv",
    ),
    "a sheet": (text("t.xlsx", b"PK"), ASK, "Save a table as .csv with a header line"),
    "short line": (text("t.csv", "a,b,outcome\n1,2,3\n\n1,2\n"), ASK, "Line 4 has 2 fields, the header has 3."),
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
        "DATA must have finite numbers of at most 1e+30, but it is a table with infinite or larger ones in a (1 row)",
    ),
    "too large": (
        table(a=[-1e300] + [1.5] * 59),
        ASK,
        "DATA must have finite numbers of at most 1e+30, but it is a table with infinite or larger ones in a (1 row)",
    ),
    "words among numbers": (
        table(a=["?"] + [str(k) for k in range(59)]),
        ASK,
        "column 'a' must hold numbers throughout, but it is a column in which 1 of 60 values are not: '?'",
    ),
    "ragged": (
        text("t.csv", "a,outcome\n1,2\n1,2,3\n"),
        ASK,
        "DATA must be a whole csv file, but it is",
    ),
    "ragged, where": (text("t.csv", "a,outcome\n1,2\n1,2,3\n"), ASK, "Line 3 has 3 fields, the header has 2."),
    "longer than its header": (
        text("t.csv", 'a,outcome\n"1\n",2,3\n1,2,3\n'),
        ASK,
        "Line 3 has 3 fields, the header has 2.",
    ),
    "no metric": (GOOD, ["--target", "outcome"], "Missing option '--metric'"),
    "metric without k": (GOOD, ["--target", "outcome", "--metric", "recall"], "Write recall@10 for the first 10"),
    "metric of lists": (GOOD, ["--target", "outcome", "--metric", "mrr"], "It averages over many lists, and a table"),
    "metric of classes": (GOOD, ["--target", "outcome", "--metric", "topk@2"], "must be a metric of yes-or-no targets"),
    "metric of quantities": (
        GOOD,
        ["--target", "outcome", "--metric", "rmse"],
        "--metric must be a metric of yes-or-no targets, but it is 'rmse'. Choose one of ap, auc",
    ),
    "metric of graphs": (GOOD, ["--target", "outcome", "--metric", "chain"], "must be a metric of yes-or-no targets"),
    "more than there is": (
        GOOD,
        ["--target", "outcome", "--metric", "precision@500"],
        "--metric must look at no more than the 36 training rows, but it is 'precision@500'",
    ),
    "bad k": (GOOD, ["--target", "outcome", "--metric", "ndcg@x"], "--metric must have a number after '@'"),
    "no minutes": (GOOD, [*ASK, "--minutes", "0"], "--minutes must be a positive number, but it is 0"),
    "no workers": (GOOD, [*ASK, "--workers", "0"], "--workers must be a whole number of at least 1"),
    "unknown baseline": (GOOD, [*ASK, "--baselines", "tree"], "--baselines must be one of"),
    "unknown group": (GOOD, [*ASK, "--group", "nois"], "--group must name columns of the data"),
    "target as group": (GOOD, [*ASK, "--group", "outcome"], "--group must not name the target"),
    "all dropped": (GOOD, [*ASK, "--drop", "a,b,noise,colour"], "--drop must leave a column with values to learn from"),
    "nothing but gaps": (
        lambda folder: write(folder, "t.csv", rows(60)[["outcome"]].assign(a=None)),
        ASK,
        "must leave a column with values to learn from",
    ),
    "whole numbers beyond all bounds": (
        table(a=[str(10**40)] + ["1"] * 59),
        ASK,
        "DATA must have finite numbers of at most 1e+30, but it is a table with infinite or larger ones in a (1 row)",
    ),
    "lists": (
        lambda folder: write(folder, "t.parquet", rows(60).assign(a=[[1, 2]] * 60)),
        ASK,
        "column 'a' must hold numbers, words or dates",
    ),
    "no header of parquet": (
        lambda folder: write(folder, "t.parquet"),
        [*ASK, "--no-header"],
        "--no-header must be left out unless DATA is a CSV file",
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
    "infinite": (
        lambda folder: write(folder, "t.csv", nine().assign(a=np.inf)),
        "infinite or larger ones in a (9 rows)",
    ),
    "empty": (text("t.csv", ""), "DATA must have rows"),
    "other format": (lambda folder: write(folder, "t.svm"), "without 'a', 'b', 'noise', 'colour', 'day'"),
}


@pytest.mark.parametrize("name", PREDICT_BAD)
def test_predict_refuses_rows_that_do_not_fit(finished: Finished, tmp_path: Path, name: str) -> None:
    make, message = PREDICT_BAD[name]
    result = call("predict", finished[1] / "model.json", make(tmp_path), "--out", tmp_path / "p.csv")
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "p.csv").exists()


def test_predict_refuses_what_is_no_model(tmp_path: Path) -> None:
    data = write(tmp_path, "t.csv")
    for path in (data, tmp_path / "none.json", tmp_path):
        result = call("predict", path, data, "--out", tmp_path / "p.csv")
        assert result.exit_code == 2
        assert "MODEL must be" in result.output
    assert not (tmp_path / "p.csv").exists()


def test_predict_refuses_columns_that_it_cannot_keep(finished: Finished, tmp_path: Path) -> None:
    data = write(tmp_path, "t.csv", nine().assign(score=1))
    for words, message in (
        ("colr", "--keep must name columns of the data"),
        ("score", "--keep must name columns other"),
    ):
        result = call("predict", finished[1] / "model.json", data, "--keep", words, "--out", tmp_path / "p.csv")
        assert result.exit_code == 2
        assert message in result.output
