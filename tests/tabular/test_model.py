"""The model file: the same model comes back, and nothing else is let in."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load, save

import directloss as dl
from directloss.integrations._cut import Calibration
from directloss.tabular.columns import find_column, learn
from directloss.tabular.methods import Network
from directloss.tabular.model import Model, Novelty, _digest, load_model


def frame() -> pd.DataFrame:
    draw = np.random.default_rng(1)
    days = pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d")
    words = draw.choice(["a", "b", "c"], 60)
    return pd.DataFrame({"x": draw.normal(3, 9, 60), "word": words, "flat": 2.0, "day": days})


@pytest.fixture(scope="module")
def model() -> Model:
    found = {name: find_column(frame()[name], name, False, False) for name in frame()}
    columns = learn([own for own, _ in found.values()], {name: own for name, (_, own) in found.items()})
    draw = np.random.default_rng(0)
    sizes = [(sum(column.width for column in columns), 4), (4, 1)]
    layers = [(draw.normal(size=own).astype(np.float32), draw.normal(size=own[1]).astype(np.float32)) for own in sizes]
    calibration = Calibration(2.0, np.array([0.0, 0.5]))
    return Model(columns, Network(layers).above(0.25), calibration, ("no", "yes"), "t", "f1", "network")


@pytest.fixture
def stored(model: Model, tmp_path: Path) -> Path:
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_a_model_file_gives_the_same_model(model: Model, stored: Path) -> None:
    again = dl.load(stored)
    scores = model.decision_function(frame())
    np.testing.assert_array_equal(again.decision_function(frame()), scores)
    np.testing.assert_allclose(again.decision_function(frame()[:7]), scores[:7], rtol=1e-12)
    assert again.predict(frame()).tolist() == np.where(scores > 0, "yes", "no").tolist()
    np.testing.assert_allclose(again.predict_proba(frame())[:, 1], 1 / (1 + np.exp(-2 * scores - 0.5)))
    assert repr(again) == "Model(metric='f1', trained='network', target='t', columns=4, labels=('no', 'yes'))"


def test_scores_are_those_of_torch(model: Model) -> None:
    x = np.random.default_rng(2).normal(size=(9, len(model.network.layers[0][0]))).astype(np.float32)
    (w0, b0), (w1, b1) = ((torch.from_numpy(w).double(), torch.from_numpy(b).double()) for w, b in model.network.layers)
    wanted = torch.relu(torch.from_numpy(x).double() @ w0 + b0) @ w1 + b1
    np.testing.assert_allclose(model.network.decision_function(x), wanted[:, 0].numpy())


def test_probabilities_are_calibrated() -> None:
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(20_000, 3))
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    y = (draw.random(20_000)[:, None] > shares.cumsum(1)).sum(1)
    np.testing.assert_allclose(Calibration.of(5 * logits, y)(5 * logits), shares, atol=0.05)
    two = (draw.random(20_000) < 1 / (1 + np.exp(-logits[:, 0]))).astype(np.int64)
    found = Calibration.of(3 * logits[:, 0] + 1, two)(3 * logits[:, 0] + 1)
    np.testing.assert_allclose(found[:, 1], 1 / (1 + np.exp(-logits[:, 0])), atol=0.03)
    backward = Calibration.of(-logits[:, 0], two)(np.array([-1.0, 1.0]))
    assert backward[0, 1] < backward[1, 1], "a useless score is not turned around"


def test_every_flipped_bit_is_refused(stored: Path) -> None:
    raw = bytearray(stored.read_bytes())
    for place in [*range(140), *range(140, len(raw), 23), *range(len(raw) - 4, len(raw))]:
        for bit in range(8):
            raw[place] ^= 1 << bit
            stored.write_bytes(raw)
            with pytest.raises(dl.DirectLossError, match="MODEL must be"):
                load_model(stored)
            raw[place] ^= 1 << bit
    stored.write_bytes(raw)
    load_model(stored)


def forged(path: Path, change: Any, keep_sum: bool = False) -> bytes:
    """The file with other content and the checksum that belongs to it."""
    raw = path.read_bytes()
    about = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["__metadata__"]["directloss"]
    content, arrays = json.loads(about[64:]), {name: own.copy() for name, own in load(raw).items()}
    change(content, arrays)
    text = json.dumps(content)
    return save(arrays, {"directloss": (about[:64] if keep_sum else _digest(text, arrays)) + text})


class Evil:
    """What a pickle can do: run any code when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("evil-was-run"),))


def deep(path: Path) -> bytes:
    text = '{"a":' * 100_000 + "1" + "}" * 100_000
    return len(text).to_bytes(8, "little") + text.encode()


MORE_LAYERS = {f"weight {k}": np.full((1, 1), 1e38, np.float32) for k in range(2, 11)} | {
    f"bias {k}": np.ones(1, np.float32) for k in range(2, 11)
}
OTHER, UNFIT = "another file or damaged", "something is missing or does not fit"
CHANGES: dict[str, tuple[Any, str]] = {
    "other version": (lambda c, a: c.update(version=9), "version must be 6"),
    "no columns": (lambda c, a: c.pop("columns"), UNFIT),
    "empty columns": (lambda c, a: c.update(columns=[]), UNFIT),
    "a column twice": (lambda c, a: c["columns"][2].update(name="x"), "must have different names"),
    "a kind of its own": (lambda c, a: c["columns"][0].update(kind="code"), "be one of number"),
    "a number as name": (lambda c, a: c["columns"][0].update(name=3), "must each have a name"),
    "a field of its own": (lambda c, a: c["columns"][0].update(code="x"), UNFIT),
    "a mean that is no number": (lambda c, a: c["columns"][0].update(mean=[float("nan")]), "must have finite means"),
    "a word as mean": (lambda c, a: c["columns"][0].update(mean=["x"]), UNFIT),
    "too many means": (lambda c, a: c["columns"][0].update(mean=[1.0, 2.0]), "one mean and one factor"),
    "no means": (lambda c, a: c["columns"][0].update(mean=[]), "one mean and one factor"),
    "one label": (lambda c, a: c["labels"].pop(), "labels must be two"),
    "labels of another type": (lambda c, a: c.update(labels=[1, 2]), "labels must be two"),
    "more labels": (lambda c, a: c["labels"].append("maybe"), "labels must be two"),
    "no labels": (lambda c, a: c.update(labels=None), UNFIT),
    "an infinite slope": (lambda c, a: c.update(slope=float("inf")), "calibration must have"),
    "a slope of words": (lambda c, a: c.update(slope="x"), UNFIT),
    "a slope downwards": (lambda c, a: c.update(slope=-1.0), "calibration must have"),
    "a bias too many": (lambda c, a: c.update(bias=[0, 0, 0]), "calibration must have"),
    "unknown metric": (lambda c, a: c.update(metric="x"), UNFIT),
    "nan weight": (lambda c, a: a.update({"bias 0": np.full(4, np.nan, np.float32)}), "one finite score"),
    "infinite weight": (lambda c, a: a.update({"bias 0": np.full(4, np.inf, np.float32)}), "one finite score"),
    "words as weights": (lambda c, a: a.update({"weight 0": np.ones((4, 1), np.bool_)}), UNFIT),
    "missing layer": (lambda c, a: a.pop("bias 0"), UNFIT),
    "layers that do not fit": (lambda c, a: a.update({"weight 1": np.ones((5, 1), np.float32)}), UNFIT),
    "too many outputs": (
        lambda c, a: a.update({"weight 1": np.ones((4, 2), np.float32), "bias 1": np.ones(2, np.float32)}),
        UNFIT,
    ),
    "too deep": (lambda c, a: a.update(MORE_LAYERS), "one finite score"),
    "no network": (lambda c, a: a.clear(), UNFIT),
    "list": (lambda c, a: c.update(columns={"x": 1}), UNFIT),
}  # fmt: skip
BAD_FILES: dict[str, tuple[Any, str]] = {
    "text": (lambda p: b"hello", OTHER),
    "empty": (lambda p: b"", OTHER),
    "pickle": (lambda p: pickle.dumps(Evil()), OTHER),
    "torn": (lambda p: p.read_bytes()[:-300], OTHER),
    "trailing bytes": (lambda p: p.read_bytes() + b"\n", OTHER),
    "other safetensors": (lambda p: save({"x": np.ones(3)}), OTHER),
    "deep JSON": (deep, OTHER),
    "huge header": (lambda p: (2**60).to_bytes(8, "little") + b"{}", OTHER),
    "old JSON": (lambda p: b'{"format": "directloss model", "version": 2}', "Train it again if an earlier version"),
    "checksum": (lambda p: forged(p, lambda c, a: c.update(slope=1.0), True), "checksum does not match"),
    **{name: (lambda p, change=change: forged(p, change), message) for name, (change, message) in CHANGES.items()},
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_other_files_are_refused_and_never_run(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make, message = BAD_FILES[name]
    stored.write_bytes(make(stored))
    with pytest.raises(dl.DirectLossError, match=message):  # and nothing is warned of, which would be an error
        dl.load(stored)
    assert not (tmp_path / "evil-was-run").exists()


def test_scores_stay_finite_at_the_limits(stored: Path) -> None:
    stored.write_bytes(forged(stored, lambda c, a: [own.fill(1e30) for own in a.values()]))
    rows = frame().assign(x=[0.99e30 * (-1) ** k for k in range(60)])
    assert np.isfinite(dl.load(stored).decision_function(rows)).all()


BAD_ROWS: dict[str, tuple[Any, str]] = {
    "column missing": (lambda f: f.rename(columns={"word": "words"}), "without 'word'. Did you mean 'words'"),
    "text in a number": (lambda f: f.assign(x="much"), "column 'x' must hold numbers, as in training.* with 'much'"),
    "a date in a number": (lambda f: f.assign(x=pd.Timestamp(0)), "column 'x' must hold numbers"),
    "a number in a date": (lambda f: f.assign(day=3.5), "column 'day' must hold dates, as in training"),
    "text in a date": (lambda f: f.assign(day="soon"), "column 'day' must hold dates, as in training"),
    "a word among dates": (lambda f: f.assign(day=["2024-01-02", "soon", *f.day[2:]]), "it is a column with 'soon'"),
    "infinite": (lambda f: f.assign(x=np.inf), "column 'x' must have finite numbers.*larger ones, 60 of them"),
    "too large": (lambda f: f.assign(x=1e31), "column 'x' must have finite numbers"),
    "lists": (lambda f: f.assign(word=[(1, 2)] * 60), "column 'word' must hold numbers, words or dates"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_do_not_fit_are_refused(model: Model, name: str) -> None:
    change, message = BAD_ROWS[name]
    with pytest.raises(dl.DirectLossError, match=message):
        model.predict(change(frame()))


def test_an_array_is_no_frame(model: Model) -> None:
    with pytest.raises(dl.DirectLossError, match=r"frame must be a pandas.DataFrame.*a ndarray. Columns: 'x', 'word'"):
        model.predict(frame().to_numpy())  # type: ignore[arg-type]


def test_other_types_of_the_same_values_give_the_same_scores(model: Model) -> None:
    own = frame()
    other = pd.DataFrame(
        {
            "day": pd.to_datetime(own["day"]).dt.tz_localize("UTC"),
            "word": own["word"].astype("category"),
            "x": [str(value) for value in own["x"]],
            "flat": pd.array([2] * 60, "Int64"),
        }
    ).set_axis(range(100, 160))
    np.testing.assert_allclose(model.decision_function(other), model.decision_function(own), rtol=1e-6)


def test_gaps_and_columns_that_training_did_not_have_are_noted(model: Model) -> None:
    rows, novelty = frame().assign(x=[None] + [1.0] * 59, more=1), Novelty()
    assert model.check_names(list(rows.columns)) == ["more"]
    assert np.isfinite(model.score_table(rows, novelty)).all()
    assert novelty.warning.endswith("or too rarely: 1 in 'x' (such as a missing value).")


def test_unseen_categories_are_named_in_one_warning(model: Model) -> None:
    words = [*(["new"] * 3), *(f"w{k}" for k in range(5))]
    rows = frame().assign(word=[*words, *frame().word[len(words) :]])
    message = r"do not have, or too rarely: 8 in 'word' \(such as 'new', 'w0', 'w1'\)\.$"
    with pytest.warns(dl.DirectLossWarning, match=message) as found:
        model.predict(rows)
    assert len(found) == 1
