"""A table that is read, stored and scored in small pieces gives what it gives as a whole."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from directloss.integrations import _rows
from directloss.tabular import comparison, planning, reading, store
from directloss.tabular.baselines import ROOM, fit_baseline, sample
from directloss.tabular.columns import CATEGORY, DATE, NUMBER, Survey, kinds_of, suspicions
from directloss.tabular.encoding import CategoryColumn
from directloss.tabular.measures import get_measure
from directloss.tabular.search import TRIED, Problem
from directloss.tabular.split import ENOUGH, split_rows
from directloss.tabular.store import Store, StoredRows
from tests.tabular.tables import FAST, call, learn_encoder, rows, write


def odd_rows(count: int = 300) -> pd.DataFrame:
    """Every kind of column, with gaps, and much to be suspicious of."""
    frame = rows(count)
    number = np.arange(count)
    frame["twin"] = frame["b"]
    frame["almost"] = frame["b"].where(number != count - 1, 0.0)
    frame["nr"] = number + 100
    frame["gaps"] = frame["a"].where(number % 7 != 0)
    frame["code"] = np.where(number % 3 == 0, "007", np.where(number % 3 == 1, "7", "x9"))
    frame["flag"] = np.where(number % 2, "true", "false")
    frame["fixed"] = "same"
    frame["day"] = pd.date_range("2023-11-01", periods=count, freq="31h").strftime("%Y-%m-%dT%H:%M")
    frame["german"] = [f"{k % 28 + 1}.2.2024" for k in number]
    frame["name"] = [f"person {k}" for k in number]
    frame.loc[5::11, "colour"] = None
    return frame


def small_pieces(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reading, "BATCH_BYTES", 4_000)
    patch.setattr(reading, "BATCH_ROWS", 37)
    patch.setattr(store, "IN_MEMORY", 0)
    patch.setattr(store, "AT_ONCE", 23)
    patch.setattr(store, "SPREAD", 2)
    patch.setattr(planning, "QUIET", 0)


@pytest.mark.parametrize(("count", "size"), [(30, 1), (300, 37), (300, 299)])
def test_a_survey_in_batches_finds_what_one_of_the_whole_does(count: int, size: int) -> None:
    frame = odd_rows(count)
    whole = Survey.of([frame], list(frame.columns))
    parts = Survey.of([frame[k : k + size] for k in range(0, len(frame), size)], list(frame.columns))
    names = [name for name in frame.columns if name != "outcome"]
    kinds = kinds_of(whole, names, ["nr"])
    assert kinds_of(parts, names, ["nr"]) == kinds
    assert (kinds["flag"], kinds["code"], kinds["day"], kinds["german"]) == (NUMBER, CATEGORY, DATE, CATEGORY)
    assert suspicions(parts, kinds) == suspicions(whole, kinds)
    told = " ".join(suspicions(whole, kinds))
    for word in ("'twin' is the same as 'b'", "'code' mixes", "'german' looks like dates", "'fixed' has the same"):
        assert word in told
    assert "almost" not in told
    for name in frame.columns:
        for what in ("rows", "gaps", "numbers", "different", "whole", "in_float32", "constant"):
            assert getattr(parts.columns[name], what) == getattr(whole.columns[name], what), (name, what)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.xz", "t.parquet"])
def test_a_fit_in_small_pieces_is_the_same_fit(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte: the same rows in the same order, read 37 at a time, from a file instead of from memory."""
    data = write(tmp_path, name, odd_rows())
    words = ["--target", "outcome", "--metric", "ap", "--categorical", "nr", *FAST]
    assert call("fit", data, *words, "--out", tmp_path / "whole").exit_code == 0
    places: set[Path | None] = set()
    take = Store.take

    def spied(self: Store, *which: Any) -> Any:
        places.add(self.path)
        return take(self, *which)

    with monkeypatch.context() as patch:
        small_pieces(patch)
        patch.setattr(Store, "take", spied)
        result = call("fit", data, *words, "--out", tmp_path / "parts")
        assert result.exit_code == 0, result.output
        assert f"Reading {name}: 300 rows\nt" in result.output
        assert "Storing rows: 300 rows (100%)\n" in result.output
        assert "Training x-ent: epoch 8, validation " in result.output
        predicted = call("predict", tmp_path / "parts" / "model.json", data, "--out", tmp_path / "p.csv")
        assert predicted.exit_code == 0, predicted.output
    assert places == {tmp_path / "parts" / "rows.tmp"}
    for file in ("model.json", "predictions.csv", "tables.md"):
        whole, parts = ((tmp_path / folder / file).read_text() for folder in ("whole", "parts"))
        assert re.sub(r"[\d.]+ s ", "", parts) == re.sub(r"[\d.]+ s ", "", whole), file  # times differ
    assert not (tmp_path / "parts" / "rows.tmp").exists()
    assert call("predict", tmp_path / "whole" / "model.json", data, "--out", tmp_path / "q.csv").exit_code == 0
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "q.csv").read_bytes()


def test_stored_rows_are_the_encoded_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = odd_rows()
    names = [name for name in frame.columns if name != "outcome"]
    survey = Survey.of([frame], names)
    kinds = kinds_of(survey, names, ["nr"])
    small_pieces(monkeypatch)
    kept = Store.of([frame[:100], frame[100:]], survey, kinds, tmp_path / "rows")
    encoder = kept.learn(np.arange(300), ["gaps"])
    assert encoder == learn_encoder(frame, kinds, ["gaps"])
    stored = StoredRows(kept, encoder, np.arange(299, -1, -1))
    np.testing.assert_array_equal(stored[:], encoder.encode(frame)[::-1])
    np.testing.assert_array_equal(stored.part(np.array([3, 0]))[:], encoder.encode(frame)[[296, 299]])
    mean, scale = np.linspace(-1, 1, encoder.width), np.linspace(1, 3, encoder.width)
    wanted = ((stored[:] - mean) / scale).astype(np.float32)
    np.testing.assert_array_equal(stored.scaled(slice(None), mean, scale), wanted)
    for far in (np.array([0, 299, 5]), np.array([298, 7])):  # one by one, as well as with all in between
        np.testing.assert_array_equal(stored[far], encoder.encode(frame)[::-1][far])
    again = pickle.loads(pickle.dumps(stored))
    assert len(pickle.dumps(kept)) < 20_000, "rows in a file stay there"
    np.testing.assert_array_equal(again[4:9], stored[4:9])


def test_words_beyond_what_can_be_numbered_are_rare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "WORDS", 3)
    frame = pd.DataFrame({"word": ["a"] * 6 + ["b"] * 6 + [f"w{k}" for k in range(30)] + ["a"]})
    kinds = {"word": CATEGORY}
    kept = Store.of([frame], Survey.of([frame], ["word"]), kinds, tmp_path / "rows")
    encoder = kept.learn(np.arange(43))
    assert encoder.columns == (CategoryColumn("word", ("a", "b"), others=True),)
    np.testing.assert_array_equal(StoredRows(kept, encoder, np.arange(43))[:], encoder.encode(frame))


def test_the_scaling_of_stored_rows_is_that_of_an_array(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    frame = odd_rows()
    names = [name for name in frame.columns if name != "outcome"]
    survey = Survey.of([frame], names)
    small_pieces(monkeypatch)
    kept = Store.of([frame], survey, kinds_of(survey, names, []), tmp_path / "rows")
    which = np.arange(0, 300, 2)
    rows = StoredRows(kept, kept.learn(which, ["gaps"]), which)
    whole, stored = _rows.Scaling.of(rows[:]), _rows.Scaling.of(rows)
    np.testing.assert_allclose(stored.mean, whole.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(stored.scale, whole.scale, rtol=1e-9)


# ---------------------------------------------------------------------- what large tables get


def test_trials_of_a_large_table_train_on_a_sample() -> None:
    y = np.arange(TRIED + 9) % 2
    problem = Problem((np.arange(TRIED + 9.0)[:, None], y), (np.zeros((2, 1)), y[:2]), get_measure("ap"), 0)
    sampled, own = problem.sample
    assert len(own) == TRIED
    np.testing.assert_array_equal(own, y[sampled[:, 0].astype(int)])
    few = Problem((np.zeros((TRIED, 1)), y[:TRIED]), (np.zeros((2, 1)), y[:2]), get_measure("ap"), 0)
    assert few.sample is few.train


def test_a_baseline_gets_no_more_rows_than_it_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    y = (np.arange(1000) % 10 == 0).astype(np.int64)
    kept = sample(y, (1000, ROOM // 500), 0)
    assert len(kept) == 500
    assert y[kept].sum() == 50
    x = y[:, None] + np.random.default_rng(0).normal(size=(1000, 3))
    monkeypatch.setattr("directloss.tabular.baselines.ROOM", 600)
    fitted = fit_baseline("logistic", get_measure("ap"), (x[:800], y[:800]), (x[800:], y[800:]), x, 0)
    assert fitted.sampled == 200
    assert fitted.validation > 0.3


def test_a_quantity_as_target_is_refused_before_all_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("directloss.tabular.target.TOO_MANY", 50)
    monkeypatch.setattr(reading, "BATCH_ROWS", 37)
    data = write(tmp_path, "t.parquet", rows().assign(outcome=np.arange(300) / 7))
    result = call("fit", data, "--target", "outcome", "--metric", "ap", "--out", tmp_path / "run")
    assert "a column with 7" in result.output  # 74 of 300, and one for gaps
    assert "If it is a quantity, turn it into yes or no first" in result.output


def test_a_large_table_needs_no_more_validation_rows_than_enough() -> None:
    y = np.arange(2_000_000) % 2
    parts = split_rows(y, 0.2, 0)
    assert {part: len(own) for part, own in parts.items()} == {
        "training": 1_400_000,
        "validation": ENOUGH,
        "test": 400_000,
    }


def test_intervals_from_fewer_rows_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    target = torch.arange(4000) % 5 == 0
    scores = target + torch.randn(4000, generator=torch.Generator().manual_seed(0)).double()
    whole = comparison.compare(get_measure("ap"), {"a": scores, "b": scores.round()}, target.long(), "a", 0)
    monkeypatch.setattr(comparison, "DRAWN", 1000)
    part = comparison.compare(get_measure("ap"), {"a": scores, "b": scores.round()}, target.long(), "a", 0)
    for one, other in ((whole.test["a"], part.test["a"]), (whole.ahead["b"], part.ahead["b"])):
        assert one.value == other.value
        assert other.high - other.low == pytest.approx(one.high - one.low, rel=0.15)
