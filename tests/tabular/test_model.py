"""The model file: the same model comes back, and nothing else is let in."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import directloss as dl
from directloss.integrations.sklearn import DirectLossClassifier
from directloss.tabular.columns import CATEGORY, DATE, NUMBER
from directloss.tabular.model import Model, Novelty, load_model
from tests.tabular.tables import learn_encoder


def frame() -> pd.DataFrame:
    draw = np.random.default_rng(1)
    days = pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d")
    words = draw.choice(["a", "b", "c"], 60)
    return pd.DataFrame({"x": draw.normal(3, 9, 60), "word": words, "flat": 2.0, "day": days})


@pytest.fixture(scope="module")
def model() -> Model:
    encoder = learn_encoder(frame(), {"x": NUMBER, "word": CATEGORY, "flat": NUMBER, "day": DATE})
    y = np.arange(60) % 2
    trained = DirectLossClassifier("f1", model=(4,), epochs=4, random_state=0).fit(encoder.encode(frame()), y)
    return Model.of(trained, encoder, metric="f1", method="x-ent", target="t", labels=("no", "yes"))


@pytest.fixture
def stored(model: Model, tmp_path: Path) -> Path:
    model.save(tmp_path / "model.json")
    return tmp_path / "model.json"


def test_a_model_file_gives_the_same_model(model: Model, stored: Path) -> None:
    again = dl.load(stored)
    scores = model.decision_function(frame())
    np.testing.assert_array_equal(again.decision_function(frame()), scores)
    np.testing.assert_array_equal(again.decision_function(frame()[:7]), scores[:7])
    assert again.predict(frame()).tolist() == np.where(scores > 0, "yes", "no").tolist()
    assert (again.labels, again.hidden, again.metric) == (("no", "yes"), (4,), "f1")
    assert json.loads(stored.read_text())["version"] == 2, "the whole file is JSON"
    assert repr(again) == "Model(metric='f1', method='x-ent', target='t', columns=4, labels=('no', 'yes'))"


def test_the_model_is_the_estimator(model: Model, stored: Path) -> None:
    encoded = model.encoder.encode(frame())
    trained = DirectLossClassifier("f1", model=(4,), epochs=4, random_state=0).fit(encoded, np.arange(60) % 2)
    np.testing.assert_allclose(model.scores(encoded), trained.decision_function(encoded), atol=1e-5)
    for one in (model, load_model(stored)):
        np.testing.assert_allclose(one.predict_proba(frame()), trained.predict_proba(encoded), atol=1e-5)


def test_a_file_without_calibration_still_scores(stored: Path) -> None:
    scores = load_model(stored).decision_function(frame())
    stored.write_bytes(changed(stored, lambda content: content.pop("calibration")))
    again = load_model(stored)
    np.testing.assert_array_equal(again.decision_function(frame()), scores)
    with pytest.raises(dl.DirectLossError, match=r"model must have been written with its calibration.*Train it again"):
        again.predict_proba(frame())


def test_every_flipped_bit_is_refused(stored: Path) -> None:
    raw = bytearray(stored.read_bytes())
    places = [*range(140), *range(140, len(raw), 37), *range(len(raw) - 4, len(raw))]
    for place in places:
        for bit in range(8):
            raw[place] ^= 1 << bit
            stored.write_bytes(raw)
            with pytest.raises(dl.DirectLossError, match="MODEL must be"):
                load_model(stored)
            raw[place] ^= 1 << bit
    stored.write_bytes(raw)
    load_model(stored)


def changed(path: Path, change: Any) -> bytes:
    """The file with other content and the checksum that belongs to it."""
    content = json.loads(path.read_text())["content"]
    change(content)
    text = json.dumps(content)
    mark = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"format": "directloss model", "version": 2, "sha256": "{mark}", "content": {text}}}\n'.encode()


def packed(values: np.ndarray) -> dict[str, Any]:
    return {"shape": list(values.shape), "float32": base64.b64encode(values.astype("<f4").tobytes()).decode()}


class Evil:
    """What a pickle can do: run any code when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("evil-was-run"),))


def old_file(path: Path) -> bytes:
    torch.save({"format": "directloss model", "version": 1, "about": "{}", "weights": {}}, path)
    return path.read_bytes()


UNFIT = "something is missing or does not fit"
BAD_FILES: dict[str, tuple[Any, str]] = {
    "text": (lambda p: b"hello", "another file or damaged"),
    "empty": (lambda p: b"", "another file or damaged"),
    "pickle": (lambda p: pickle.dumps(Evil()), "another file or damaged"),
    "torn": (lambda p: p.read_bytes()[:-300], "another file or damaged"),
    "trailing bytes": (lambda p: p.read_bytes() + b"\n", "another file or damaged"),
    "newer": (lambda p: p.read_bytes().replace(b'"version": 2', b'"version": 9', 1), "version 2.*A newer directloss"),
    "version -1": (lambda p: p.read_bytes().replace(b'"version": 2', b'"version": -1', 1), "of version -1"),
    "version True": (lambda p: p.read_bytes().replace(b'"version": 2', b'"version": true', 1), "of version true"),
    "of 0.x": (old_file, "of version 1. It was written by directloss 0.x: train it again"),
    "no columns": (lambda p: changed(p, lambda c: c.pop("columns")), UNFIT),
    "one label": (lambda p: changed(p, lambda c: c["labels"].pop()), "labels must be two or more"),
    "more labels than outputs": (lambda p: changed(p, lambda c: c["labels"].append("maybe")), UNFIT),
    "wide": (lambda p: changed(p, lambda c: c.update(hidden=[10**9])), UNFIT),
    "fine scale": (lambda p: changed(p, lambda c: c["scale"].__setitem__(0, 1e-300)), "scales from 1e-30"),
    "zero scale": (lambda p: changed(p, lambda c: c["scale"].__setitem__(0, 0)), "scales from 1e-30"),
    "far mean": (lambda p: changed(p, lambda c: c["mean"].__setitem__(0, 1e300)), "means up to 1e"),
    "short scale": (lambda p: changed(p, lambda c: c["scale"].pop()), "scaling must have"),
    "infinite cut": (lambda p: changed(p, lambda c: c.update(cut=float("inf"))), "cut must be a finite number"),
    "nan weight": (
        lambda p: changed(p, lambda c: c["weights"].update({"0.bias": packed(np.full(4, np.nan))})),
        "weights must be finite",
    ),
    "not base64": (lambda p: changed(p, lambda c: c["weights"]["0.bias"].update(float32="?")), UNFIT),
    "list": (lambda p: changed(p, lambda c: c.update(weights=[])), UNFIT),
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
    stored.write_bytes(changed(stored, lambda c: c["scale"].__setitem__(0, 1e-30)))
    rows = frame().assign(x=[1e30 * (-1) ** k * 0.99 for k in range(60)])
    assert np.isfinite(dl.load(stored).decision_function(rows)).all()


BAD_ROWS: dict[str, tuple[Any, str]] = {
    "column missing": (lambda f: f.rename(columns={"word": "words"}), "without 'word'. Did you mean 'words'"),
    "text in a number": (lambda f: f.assign(x="?"), "column 'x' must hold numbers, as in training"),
    "text in a date": (lambda f: f.assign(day="soon"), "column 'day' must hold dates, as in training"),
    "a word among dates": (lambda f: f.assign(day=["2024-01-02", "soon", *f.day[2:]]), "it is a column with 'soon'"),
    "infinite": (lambda f: f.assign(x=np.inf), "infinite or larger ones in x"),
    "too large": (lambda f: f.assign(x=1e31), "larger ones in x"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_do_not_fit_are_refused(model: Model, name: str) -> None:
    change, message = BAD_ROWS[name]
    with pytest.raises(dl.DirectLossError, match=message):
        model.predict(change(frame()))


def test_an_array_is_no_frame(model: Model) -> None:
    with pytest.raises(dl.DirectLossError, match=r"frame must be a pandas.DataFrame.*a ndarray. Columns: 'x', 'word'"):
        model.predict(frame().to_numpy())  # type: ignore[arg-type]


def test_gaps_and_columns_that_training_did_not_have_are_noted(model: Model) -> None:
    rows = frame().assign(x=[None] + [1.0] * 59, more=1)
    novelty = Novelty()
    checked = model.check(rows, novelty)
    assert (novelty.gaps, novelty.warning) == ({"x": 1}, "")
    assert model.unused(list(rows.columns)) == ["more"]
    assert np.isfinite(model.decision_function(checked)).all()


def test_unseen_categories_are_named_in_one_warning(model: Model) -> None:
    words = [None, *(["new"] * 3), *(f"w{k}" for k in range(5))]
    rows = frame().assign(word=[*words, *frame().word[len(words) :]])
    message = r"does not have: 'word' in 9 rows \('new', 'w0', 'w1'\)\.$"
    with pytest.warns(dl.DirectLossWarning, match=message) as found:
        model.predict(rows)
    assert len(found) == 1
    encoder = learn_encoder(frame().assign(word=["rare"] * 2 + ["often"] * 58), {"word": CATEGORY})
    novelty = Novelty()
    novelty.add(encoder.columns[0], rows["word"][:4])
    novelty.add(encoder.columns[0], pd.Series(["often", "rare", "new"]))
    rarely = "Categories that the training table does not have, or has too rarely to learn from: 'word' in 6 rows"
    assert novelty.warning == f"{rarely} ('new', '(missing)', 'rare')."
