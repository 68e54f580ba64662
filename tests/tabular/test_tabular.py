"""Reading, columns, encoding, splits, metrics and comparison, each against something simpler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from directloss import DirectLossError
from directloss.tabular import reading
from directloss.tabular.columns import CATEGORY, DATE, NUMBER, Column, encode, find_column, learn
from directloss.tabular.comparison import compare, draws
from directloss.tabular.files import write_file
from directloss.tabular.measures import OFFERED, Measure, get_measure
from directloss.tabular.methods import Data, methods
from directloss.tabular.reading import csv_bytes, open_table, read_sample
from directloss.tabular.target import Target, read_target, split, suspicions
from tests.tabular.tables import rows, write

# ---------------------------------------------------------------------- reading


def read(path: Path) -> tuple[dict[str, Column], dict[str, Any]]:
    """The columns of a file and their values."""
    table = open_table(path)
    sample = read_sample(table, None, 0)[0]
    found = {name: find_column(sample[name].to_pandas(), name, False, table.decimal_comma) for name in table.names}
    return {name: column for name, (column, _) in found.items()}, {name: values for name, (_, values) in found.items()}


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.xz", "t.tsv", "t.parquet"])
def test_tables_of_every_kind_hold_the_same(tmp_path: Path, name: str) -> None:
    columns, values = read(write(tmp_path, name))
    assert list(columns) == list(rows().columns)
    assert [column.kind for column in columns.values()] == [NUMBER, NUMBER, NUMBER, CATEGORY, CATEGORY]
    for own in columns:
        assert values[own].tolist() == rows()[own].tolist()


def test_a_file_in_small_batches_holds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "t.csv")
    monkeypatch.setattr(reading, "BATCH_BYTES", 1_000)
    _, values = read(path)
    for own in values:
        assert values[own].tolist() == rows()[own].tolist()


def test_a_sample_is_random_bounded_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"row": np.arange(20_000), "y": np.arange(20_000) % 2})
    frame.to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr(reading, "BATCH_BYTES", 4_000)
    table = open_table(tmp_path / "t.csv")
    sample, places, total = read_sample(table, 1_000, 0)
    assert (len(places), total, sample.num_rows) == (1_000, 20_000, 1_000)
    assert (np.diff(places) > 0).all()
    np.testing.assert_array_equal(sample["row"].to_pandas().astype(int), places)
    assert abs(places.mean() - 10_000) < 4 * 5_774 / 1_000**0.5
    assert set(read_sample(table, 1_000, 1)[1]) != set(places)
    monkeypatch.setattr(reading, "CELLS", 200)
    assert len(read_sample(table, None, 0)[1]) == 100


@pytest.mark.parametrize("separator", [";", "\t"])
def test_decimal_commas_are_numbers(tmp_path: Path, separator: str) -> None:
    """As spreadsheets write them where the comma is the decimal sign; words with commas stay words."""
    lines = ["\ufeffsize;note;whole;odd", "1,5;a, b;3;1,0", "-2,25;c;4;2,0", ";d;5;n/a", "1e3;e, f;6;,5"]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines).replace(";", separator), encoding="utf-8")
    _, values = read(path)
    np.testing.assert_array_equal(values["size"], [1.5, -2.25, np.nan, 1000.0])
    assert values["note"].tolist() == ["a, b", "c", "d", "e, f"]
    assert values["whole"].tolist() == [3, 4, 5, 6]
    np.testing.assert_array_equal(values["odd"], [1, 2, np.nan, 0.5])


def test_row_numbers_as_pandas_writes_them_are_left_out(tmp_path: Path) -> None:
    rows().to_csv(tmp_path / "t.csv")
    table = open_table(tmp_path / "t.csv")
    assert next(table.batches()).schema.names == list(rows().columns)
    assert table.notes == ("The first column of t.csv has no name; it is taken for row numbers and left out.",)


# ---------------------------------------------------------------------- columns


@pytest.mark.parametrize(
    ("values", "kind", "format"),
    [
        (["1", " 2", "NA"], NUMBER, ""),
        (["1.5", "?", ""], NUMBER, ""),
        ([1, 2, 3], NUMBER, ""),
        (["a", "b", None], CATEGORY, ""),
        (["a", "1", "2"], CATEGORY, ""),
        ([True, False, None], CATEGORY, ""),
        (["true", "FALSE", "true"], CATEGORY, ""),
        (["2024-01-31", "2024-02-01", ""], DATE, "%Y-%m-%d"),
        (["31.1.2024", "1.2.2024"], DATE, "%d.%m.%Y"),
        (["2024-01-31T10:30", "2024-02-01T11:00"], DATE, "%Y-%m-%dT%H:%M"),
        ([pd.Timestamp("2024-01-31", tz="Europe/Berlin"), pd.NaT], DATE, ""),
        (["2024-01-31", "soon"], CATEGORY, ""),
    ],
)
def test_what_a_column_holds(values: list[Any], kind: str, format: str) -> None:
    column, found = find_column(pd.Series(values), "x", False, False)
    assert (column.kind, column.format) == (kind, format)
    gaps = [value is None or value is pd.NaT or value in ("NA", "?", "") for value in values]
    assert found.isna().tolist() == gaps
    if values[0] in ("true", True) and values[1] != 2:
        assert found[0] == "True"


def test_a_few_words_among_numbers_are_a_mistake() -> None:
    values = pd.Series([*map(str, range(30)), "broken"])
    with pytest.raises(DirectLossError, match=r"'a' must hold numbers throughout.*1 of 31 values are not: 'broken'"):
        find_column(values, "a", False, False)
    assert find_column(values, "a", True, False)[0].kind == CATEGORY


def told(**columns: Any) -> list[str]:
    y = np.arange(30) % 2
    frame = {name: find_column(pd.Series(values), name, False, False)[1] for name, values in columns.items()}
    return suspicions(frame, y, ("no", "yes"))


def test_identifiers_are_said() -> None:
    found = told(number=range(100, 130), name=[f"person {k}" for k in range(30)], good=[0, 1, 2] * 10, flat=["x"] * 30)
    assert [sentence.split("'")[1] for sentence in found] == ["number", "name"]


@pytest.mark.parametrize(
    ("values", "how"),
    [
        (np.arange(30) % 2, "a copy of it, or a recoding"),
        (np.where(np.arange(30) % 2, "sick", "well"), "a copy of it, or a recoding"),
        ([None if k % 2 else "x" for k in range(30)], "a copy of it, or a recoding"),
        ([("a", "b", "c", "b")[k % 4] for k in range(30)], "each of its 3 values has one label only"),
        ([k % 2 + k / 100 for k in range(30)], "one threshold separates 'yes' from 'no'"),
        ([-(k % 2) - k / 100 for k in range(30)], "one threshold separates 'yes' from 'no'"),
        ([k % 3 for k in range(30)], ""),
        ([k % 2 if k else 1 for k in range(30)], ""),
    ],
)
def test_a_column_that_gives_the_target_away_is_said(values: Any, how: str) -> None:
    found = [sentence for sentence in told(x=values) if "gives the target away" in sentence]
    assert len(found) == bool(how)
    assert how in " ".join(found)


# ---------------------------------------------------------------------- target and split


def target_of(values: list[Any], positive: str = "") -> Target:
    return read_target(pd.Series(values), "t", positive)


@pytest.mark.parametrize(
    ("values", "asked", "labels", "positives"),
    [
        ([0, 1], "", ("0", "1"), 6),
        ([0.0, 1.0], "", ("0", "1"), 6),
        (["0", "1.0"], "", ("0", "1"), 6),
        ([False, True], "", ("False", "True"), 6),
        ([-1, 1], "", ("-1", "1"), 6),
        ([1, 0], "0", ("1", "0"), 6),
        (["sick", "well"], "", ("sick", "well"), 6),  # the rarer one
        (["sick", "well"], "sick", ("well", "sick"), 8),
        ([1, 2], "", ("1", "2"), 6),
    ],
)
def test_which_label_is_positive(values: list[Any], asked: str, labels: tuple[str, str], positives: int) -> None:
    target = target_of([values[0]] * 8 + [values[1]] * 6, asked)
    assert target.labels == labels
    assert target.y.sum() == positives


def test_one_of_several_values_against_all_others() -> None:
    target = target_of(["a", "b", None, "c"] * 10, "b")
    assert (target.labels, (target.y == 1).sum(), (target.y < 0).sum()) == (("not b", "b"), 10, 10)
    with pytest.raises(DirectLossError, match=r"must have two values, .* with 3: 'a', 'b', 'c'. --positive VALUE"):
        target_of(["a", "b", "c"] * 10)
    with pytest.raises(DirectLossError, match=r"--positive must be one of 'a', 'b', 'c', but it is 'zebra'"):
        target_of(["a", "b", "c"] * 10, "zebra")


@pytest.mark.parametrize("positives", [5, 37, 200])
def test_parts_are_disjoint_complete_and_stratified(positives: int) -> None:
    y = np.zeros(400, np.int64)
    y[np.random.default_rng(3).permutation(400)[:positives]] = 1
    parts = split(y, 0)
    assert np.sort(np.concatenate(list(parts.values()))).tolist() == list(range(400))
    assert [len(part) for part in parts.values()] == [240, 80, 80]
    for part in parts.values():
        assert abs(int(y[part].sum()) - positives * len(part) / 400) <= 1
    assert (parts["test"] == split(y, 0)["test"]).all()
    assert set(parts["test"]) != set(split(y, 1)["test"])


def test_groups_stay_together() -> None:
    draw = np.random.default_rng(0)
    groups, y = draw.integers(60, size=900), (draw.random(900) < 0.2).astype(np.int64)
    parts = split(y, 0, groups)
    names = [set(groups[part]) for part in parts.values()]
    assert sum(map(len, names)) == len(set.union(*names)) == 60
    assert [len(part) / 900 for part in parts.values()] == pytest.approx([0.6, 0.2, 0.2], abs=0.05)
    with pytest.raises(DirectLossError, match="--group must have at least 5 groups"):
        split(y, 0, np.zeros(900, np.int64))


# ---------------------------------------------------------------------- encoding


def learned(frame: pd.DataFrame) -> tuple[list[Column], dict[str, Any]]:
    found = {name: find_column(frame[name], name, False, False) for name in frame}
    values = {name: own for name, (_, own) in found.items()}
    return learn([column for column, _ in found.values()], values), values


def test_numbers_categories_and_dates_become_numbers() -> None:
    frame = pd.DataFrame(
        {
            "x": [1.0, None, 3.0, 8.0] * 5,
            "word": ["a", None, "b", "a"] * 5,
            "day": ["1970-01-02", "1970-01-03", None, "1970-01-02"] * 5,
        }
    )
    columns, values = learned(frame)
    assert [column.words for column in columns] == [("",), ("", "a", "b"), ("",)]
    encoded = encode(columns, values)
    mean, factor = (np.concatenate([getattr(column, key) for column in columns]) for key in ("mean", "factor"))
    varied = factor > 0
    assert varied.tolist() == [True] * 6 + [False, True, True, False, True]
    plain = encoded[:4] / np.where(varied, factor, 1) + mean
    np.testing.assert_allclose(
        plain,
        [
            [1, 0, 0, 1, 0, 1, 1, 2, 4, 0, 0],
            [4, 1, 1, 0, 0, 2, 1, 3, 5, 0, 0],  # a missing number is the mean, and marked
            [3, 0, 0, 0, 1, 4 / 3, 1, 7 / 3, 13 / 3, 0, 1],
            [8, 0, 0, 1, 0, 1, 1, 2, 4, 0, 0],
        ],
        atol=1e-5,
    )
    np.testing.assert_allclose(encoded.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(encoded[:, [1, 2, 3, 4, 10]].std(0), 1, rtol=1e-5)  # what has no gaps


def test_rare_categories_share_nothing_and_frequent_ones_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"word": ["often"] * 50 + ["rare"] * 2 + [f"w{k % 60}" for k in range(600)]})
    kept = learned(frame)[0][0].words
    assert len(kept) == 40
    assert "often" in kept
    assert "rare" not in kept
    monkeypatch.setattr("directloss.tabular.columns.ENCODED", 6_520)
    assert len(learned(frame)[0][0].words) == 10


def test_a_column_without_values_in_the_training_rows_is_zero() -> None:
    column, values = find_column(pd.Series([None, None, 3.0]), "x", False, False)
    known = column.learn(values[:2], 40)
    assert known.encode(values).tolist() == [[0, 0]] * 3


# ---------------------------------------------------------------------- metrics and comparison


@pytest.mark.parametrize("name", OFFERED)
def test_every_metric_that_is_offered_has_a_value(name: str) -> None:
    measure = get_measure(name)
    target = torch.arange(40) % 4 == 0
    good = target.double() + 0.1 * torch.rand(40)
    cut = measure.cut(good, target.long())
    assert float(measure.value(good - cut, target.long())) == pytest.approx(1.0)
    assert (cut > 0) == measure.decides


@pytest.mark.parametrize("name", ["f1", "accuracy", "mcc", "iou"])
def test_metrics_of_wrong_labels_are_corrected(name: str) -> None:
    """The corrected metric of wrong labels is that of the right ones, and so is its threshold."""
    draw = torch.Generator().manual_seed(0)
    right = (torch.rand(200_000, generator=draw) < 0.2).long()
    scores = right + 0.7 * torch.randn(200_000, generator=draw)
    wrong = torch.rand(200_000, generator=draw) < torch.where(right == 1, 0.3, 0.1)
    given = torch.where(wrong, 1 - right, right)
    plain, corrected = get_measure(name), get_measure(name, "0.1,0.3")
    value = float(plain.value(scores - 0.6, right))
    assert float(corrected.value(scores - 0.6, given)) == pytest.approx(value, abs=0.01)
    assert abs(float(plain.value(scores - 0.6, given)) - value) > 0.05
    best, cut = plain.cut(scores, right), corrected.cut(scores, given)
    assert float(plain.value(scores - cut, right)) == pytest.approx(float(plain.value(scores - best, right)), abs=0.005)


@pytest.mark.parametrize(
    ("metric", "flips", "message"),
    [
        ("f1", "0.5", "--flips must be a share of wrong labels in"),
        ("f1", "20", "It is a share: did you mean 0.2?"),
        ("ndcg@10%", "", "k must be a whole number of at least 1. Shares are for precision@1% and recall@1%."),
        ("f1", "nan", "--flips must be a share"),
        ("f1", "-0.1", "--flips must be a share"),
        ("f1", "0.1,0.2,0.3", "--flips must be a share"),
        ("f1", "some", "--flips must be a share"),
        ("ap", "0.2", "--flips must be left out for a ranking, but it is 0.2, with --metric ap"),
        ("average_precision", "", "Did you mean 'ap'?"),
        ("f1_score", "", "Did you mean 'f1'?"),
    ],
)
def test_what_is_no_metric_is_refused(metric: str, flips: str, message: str) -> None:
    with pytest.raises(DirectLossError, match=message.replace("?", r"\?")):
        get_measure(metric, flips)


def test_the_bootstrap_is_paired_and_about_right() -> None:
    """For accuracy the spread is known: sqrt(p (1 - p) / n)."""
    target = torch.arange(400) % 2
    scores = torch.where(torch.arange(400) % 5 == 0, -1.0, 1.0) * (2 * target - 1)  # 80 % right
    found = compare(Measure("accuracy"), {"c": -scores, "b": 7 * scores, "a": scores}, target, "a", 0)
    spread = (0.8 * 0.2 / 400) ** 0.5
    assert found.test["a"].value == pytest.approx(0.8)
    assert found.test["a"].low == pytest.approx(0.8 - 1.96 * spread, abs=0.007)
    assert found.test["a"].high == pytest.approx(0.8 + 1.96 * spread, abs=0.007)
    assert (found.ahead["b"].low, found.ahead["b"].high) == (0, 0), "the same rows, whatever the scores"
    assert found.ahead["c"].high < 0
    assert found.effect == found.ahead["c"]


def test_groups_are_drawn_as_a_whole_and_a_resample_has_both_labels() -> None:
    target = torch.tensor([1] + [0] * 11)
    for drawn in draws(target, 0, np.arange(12) // 3):
        counts = torch.bincount(drawn[0], minlength=12).reshape(4, 3)
        if (counts[0] == counts[0, 0]).all():  # else it got a positive in place of another row
            assert (counts == counts[:, :1]).all()
        assert target[drawn].any()


# ---------------------------------------------------------------------- methods


@pytest.mark.parametrize("metric", ["ap", "accuracy"])
def test_every_method_learns_and_is_reproducible(metric: str) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(300, 3)).astype(np.float32)
    y = (x[:, 0] > 0.5).astype(np.int64)
    data = Data((x[:200], y[:200]), (x[200:], y[200:]), Measure(metric), 0, epochs=100)
    for method in methods(Measure(metric), 2, 0):
        setting = method.settings[0]
        scorer = method.train(data, setting)
        assert data.judge(scorer)[0] > 0.85, method.name
        np.testing.assert_array_equal(method.train(data, setting).decision_function(x), scorer.decision_function(x))


# ---------------------------------------------------------------------- files


def test_formulas_are_made_harmless_and_numbers_are_left_alone() -> None:
    content = pd.DataFrame(
        {"score": [-1.5, 2.0], "label": ['=HYPERLINK("x")', "+cmd"], "=name": ["-1.5", "+.5e3"], "self": "x"}
    )
    assert (
        csv_bytes(content).decode()
        == 'score,label,\'=name,self\n-1.5,"\'=HYPERLINK(""x"")",-1.5,x\n2.0,\'+cmd,+.5e3,x\n'
    )


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "a.txt"
    write_file(path, b"old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.txt"]
    with pytest.raises(DirectLossError, match="must be a regular file"):
        write_file(Path("/dev/null"), b"new")
