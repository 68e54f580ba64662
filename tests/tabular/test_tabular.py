"""Reading, columns, encoding, splits, metrics and comparison, each against something simpler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import OneHotEncoder

from directloss import DirectLossError
from directloss.tabular.baselines import BASELINES, Baseline, fit_baseline, parse_baselines
from directloss.tabular.columns import CATEGORY, DATE, NUMBER, Survey, kinds_of, numbers_of, suspicions
from directloss.tabular.comparison import compare, draws
from directloss.tabular.encoding import MOST, RARE, Encoder
from directloss.tabular.files import csv_bytes, write_file
from directloss.tabular.measures import OFFERED, get_measure
from directloss.tabular.reading import kind_of, open_table
from directloss.tabular.split import split_groups, split_rows
from directloss.tabular.target import Labels, Target, read_target
from tests.tabular.tables import learn_encoder, rows, write

# ---------------------------------------------------------------------- reading


def read(path: Path) -> pd.DataFrame:
    """All rows of a file, with words as plain objects and numbers as numbers."""
    frame = pd.concat([batch.astype(object) for batch in open_table(path).batches()])
    survey = looked(frame)
    for name, column in survey.columns.items():
        if column.numeric:
            frame[name] = numbers_of(frame[name], NUMBER)
    return frame


def looked(*batches: pd.DataFrame) -> Survey:
    return Survey.of(batches, list(batches[0].columns))


def target_of(frame: pd.DataFrame, name: str, positive: str | None, metric: str = "ap") -> Target:
    labels = Labels()
    labels.add(frame[name])
    return read_target(looked(frame).columns[name], labels, positive, get_measure(metric))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.xz", "t.tsv", "t.parquet"])
def test_tables_of_every_kind_hold_the_same(tmp_path: Path, name: str) -> None:
    found = read(write(tmp_path, name))
    assert list(found.columns) == list(rows().columns)
    for column in found.columns:
        assert found[column].tolist() == rows()[column].tolist()


@pytest.mark.parametrize("name", ["t.svm", "t.txt", "t.libsvm", "t.svm.gz", "t.npz"])
def test_arrays_of_every_kind_hold_the_same(tmp_path: Path, name: str) -> None:
    table = read(write(tmp_path, name))
    features = [column for column in table.columns if column not in ("label", "y")]
    assert features == (["x0", "x1", "x2"] if name == "t.npz" else ["f1", "f2", "f3"])
    np.testing.assert_allclose(table[features].astype(float), rows()[["a", "b", "noise"]])
    labels = table["y" if name == "t.npz" else "label"]
    assert ((labels > 0) == (rows()["outcome"] == "yes")).all()


def test_semicolons_and_a_byte_order_mark_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\ufeffa;b\n1;x\n2;y\n", encoding="utf-8")
    frame = read(path)
    assert list(frame.columns) == ["a", "b"]
    assert frame["b"].tolist() == ["x", "y"]


def test_row_numbers_as_pandas_writes_them_are_left_out(tmp_path: Path) -> None:
    rows().to_csv(tmp_path / "t.csv")
    table = open_table(tmp_path / "t.csv")
    assert list(next(table.batches()).columns) == list(rows().columns)
    assert table.notes == ("The first column of t.csv has no name; it is taken for row numbers and left out.",)


def test_kinds_by_name() -> None:
    names = ("A.CSV", "a.b.csv.gz", "x.pq", "x.txt.xz")
    assert [kind_of(Path(name)) for name in names] == ["csv", "csv", "parquet", "svmlight"]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npz"])
def test_words_for_a_gap_are_gaps_in_every_format(tmp_path: Path, name: str) -> None:
    words, numbers = ["x", "NA", "n/a", "Y"], ["1", "", "nan", "2"]
    frame = pd.DataFrame({"word": words, "kind": pd.Categorical(words), "number": numbers})
    path = tmp_path / name
    if name == "t.csv":
        frame.to_csv(path, index=False)
    elif name == "t.parquet":
        frame.to_parquet(path)
    else:
        columns: dict[str, Any] = {"word": np.array(words), "kind": np.array(words), "number": np.array(numbers)}
        np.savez(path, x=np.zeros((4, 1)), **columns)
    survey = Survey.of(open_table(path).batches(), list(frame.columns))
    assert [column.gaps for column in survey.columns.values()] == [2, 2, 2]
    assert kinds_of(survey, list(frame.columns), ()) == {"word": CATEGORY, "kind": CATEGORY, "number": NUMBER}


@pytest.mark.parametrize("separator", [";", "\t"])
def test_decimal_commas_are_numbers(tmp_path: Path, separator: str) -> None:
    """As spreadsheets write them where the comma is the decimal sign; words with commas stay words."""
    lines = ["size;note;whole;odd", "1,5;a, b;3;1,0", "-2,25;c;4;2,0", ";d;5;n/a", "1e3;e, f;6;,5"]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines).replace(";", separator), encoding="utf-8")
    frame = read(path)
    np.testing.assert_array_equal(frame["size"], [1.5, -2.25, np.nan, 1000.0])
    assert frame["note"].tolist() == ["a, b", "c", "d", "e, f"]
    assert frame["whole"].tolist() == [3, 4, 5, 6]
    assert frame["odd"].dtype == np.float64  # n/a is a missing number


def test_a_few_words_among_decimal_commas_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a;b\n" + "".join(f"{k},5;{k % 2}\n" for k in range(30)) + "broken;1\n", encoding="utf-8")
    frame = read(path)
    with pytest.raises(DirectLossError, match=r"'a' must hold numbers throughout.*1 of 31 values are not: 'broken'"):
        kinds_of(looked(frame), ["a"], [])


# ---------------------------------------------------------------------- target and columns


@pytest.mark.parametrize(
    ("values", "asked", "labels", "positives"),
    [
        ([0, 1], None, ("0", "1"), 6),
        ([0.0, 1.0], None, ("0", "1"), 6),
        ([False, True], None, ("False", "True"), 6),
        ([-1, 1], None, ("-1", "1"), 6),
        ([1, 0], "0", ("1", "0"), 6),
        (["sick", "well"], None, ("sick", "well"), 6),  # the rarer one
        (["sick", "well"], "sick", ("well", "sick"), 8),
        ([1, 2], None, ("1", "2"), 6),
    ],
)
def test_which_label_is_positive(values: list[Any], asked: str | None, labels: tuple[str, str], positives: int) -> None:
    column = [values[0]] * 8 + [values[1]] * 6
    target = target_of(pd.DataFrame({"t": column, "x": 0}), "t", asked)
    assert target.labels == labels
    assert target.y.sum() == positives


def test_what_is_suspicious_is_said() -> None:
    frame = pd.DataFrame(
        {
            "constant": 1.0,
            "number": range(100, 130),
            "name": [f"person {k}" for k in range(30)],
            "a": np.linspace(0, 1, 30) ** 2,
            "b": np.linspace(0, 1, 30) ** 2,
            "good": [0, 1, 2] * 10,
            "mixed": ["1", "2", "high"] * 10,
            "day": ["31.12.2024", "1.2.2025", "3.4.2025"] * 10,
        }
    )
    survey = looked(frame)
    found = suspicions(survey, kinds_of(survey, list(frame.columns), ()))
    flat = looked(frame.assign(flat="x"))
    many = suspicions(flat, kinds_of(flat, list(flat.columns), ()))
    assert "Columns 'constant', 'flat' have the same value in every row." in many
    assert [sentence.split("'")[1] for sentence in found] == ["mixed", "day", "constant", "number", "name", "b"]
    assert found[0] == "Column 'mixed' mixes words with 67% numbers; it is read as categories."
    assert found[-1] == "Column 'b' is the same as 'a'."


def test_kinds_of_columns() -> None:
    frame = pd.DataFrame(
        {
            "code": [1, 2, 2],
            "word": ["a", "b", None],
            "flag": [True, False, True],
            "huge": [str(10**25), "3", "4"],
            "day": ["2024-02-29", None, "2024-12-31T23:30"],
            "time": pd.to_datetime(["2024-01-01", None, "2024-01-02"], utc=True),
        }
    )
    kinds = kinds_of(looked(frame), list(frame.columns), ())
    wanted = (NUMBER, CATEGORY, NUMBER, NUMBER, DATE, DATE)
    assert tuple(kinds.values()) == wanted
    assert kinds_of(looked(frame), ["code"], ("code",)) == {"code": CATEGORY}
    np.testing.assert_array_equal(numbers_of(frame["huge"], NUMBER).ravel(), [1e25, 3, 4])
    parts = numbers_of(frame["day"], DATE)
    np.testing.assert_array_equal(parts[2], [20088, 12, 31, 1, 23.5])  # a Tuesday
    assert np.isnan(parts[1]).all()


def test_one_of_several_values_against_all_others() -> None:
    table = pd.DataFrame({"t": ["a", "b", "c"] * 10, "x": 0})
    target = target_of(table, "t", "b")
    assert (target.labels, target.y.sum()) == (("not b", "b"), 10)
    with pytest.raises(
        DirectLossError, match=r"two values for --metric ap, .* For all classes at once: --metric accuracy"
    ):
        target_of(table, "t", None)
    with pytest.raises(DirectLossError, match=r"--positive must be one of them, .* Values: a, b, c"):
        target_of(table, "t", "zebra")


def test_several_classes_in_their_order_and_rows_without_any() -> None:
    table = pd.DataFrame({"t": ["10", "9", None, "2"] * 10, "x": 0})
    target = target_of(table, "t", None, "accuracy")
    assert (target.labels, target.positive, target.unknown) == (("2", "9", "10"), None, 10)
    assert target.y[:4].tolist() == [2, 1, -1, 0]
    parts = split_rows(target.y, 0.2, 0)
    assert sorted(np.concatenate(list(parts.values()))) == [row for row in range(40) if row % 4 != 2]
    assert all(target.counts(rows).min() > 0 for rows in parts.values())
    groups = np.arange(40) // 4
    dealt = split_groups(target.y, groups, 0.2, 0)
    assert sorted(np.concatenate(list(dealt.values()))) == sorted(np.concatenate(list(parts.values())))
    owners = [set(groups[rows]) for rows in dealt.values()]
    assert sum(map(len, owners)) == len(set.union(*owners))


# ---------------------------------------------------------------------- encoding


def many() -> pd.DataFrame:
    draw = np.random.default_rng(1)
    words = draw.choice([f"w{k}" for k in range(70)], 600, p=np.arange(1, 71) / np.arange(1, 71).sum())
    return pd.DataFrame({"x": draw.normal(3, 9, 600), "word": words, "flat": 2.0})


KINDS = {"x": NUMBER, "word": CATEGORY, "flat": NUMBER}


def test_encoding_is_that_of_scikit_learn() -> None:
    frame = many()
    train, new = frame[:500], frame[500:].assign(word=lambda f: f["word"].where(f.index % 7 != 0, "never seen"))
    encoder = learn_encoder(train, KINDS)
    hot = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=RARE, max_categories=MOST)
    hot.fit(train[["word"]])
    for part in (train, new):
        words = hot.transform(part[["word"]]).toarray()
        np.testing.assert_allclose(encoder.encode(part), np.column_stack([part["x"], words, part["flat"]]))


def test_an_encoder_survives_json() -> None:
    frame = many().assign(day="2024-01-05")
    encoder = learn_encoder(frame, {**KINDS, "day": DATE}, ["x"])
    assert Encoder.from_list(json.loads(json.dumps(encoder.to_list()))) == encoder
    assert encoder.width == encoder.encode(frame).shape[1]


def test_missing_numbers_become_the_median_and_a_mark() -> None:
    frame = pd.DataFrame({"x": [1.0, np.nan, 3.0, 8.0], "word": ["a", None, "a", "a"]})
    encoder = learn_encoder(frame, {"x": NUMBER, "word": CATEGORY}, ["x"])
    assert encoder.encode(frame)[:, :2].tolist() == [[1, 0], [3, 1], [3, 0], [8, 0]]
    one = encoder.encode(pd.DataFrame({"x": [None], "word": ["new"]}))
    assert one[0, :2].tolist() == [3, 1]


def test_a_category_that_is_new_is_nothing_where_training_had_no_rare_ones() -> None:
    encoder = learn_encoder(pd.DataFrame({"word": ["a"] * 5 + ["b"] * 5}), {"word": CATEGORY})
    assert encoder.encode(pd.DataFrame({"word": ["b", "new"]})).tolist() == [[0, 1], [0, 0]]


# ---------------------------------------------------------------------- split


@pytest.mark.parametrize("positives", [5, 37, 200])
def test_parts_are_disjoint_complete_and_stratified(positives: int) -> None:
    y = np.zeros(400, np.int64)
    y[np.random.default_rng(3).permutation(400)[:positives]] = 1
    parts = split_rows(y, 0.2, 0)
    assert np.sort(np.concatenate(list(parts.values()))).tolist() == list(range(400))
    assert [len(part) for part in parts.values()] == pytest.approx([240, 80, 80], abs=2)
    for part in parts.values():
        assert abs(int(y[part].sum()) - positives * len(part) / 400) <= 1
        assert y[part].sum() >= 1
    assert (parts["test"] == split_rows(y, 0.2, 0)["test"]).all()
    assert set(parts["test"]) != set(split_rows(y, 0.2, 1)["test"])


def test_groups_stay_together() -> None:
    draw = np.random.default_rng(0)
    groups = [f"p{k}" for k in draw.integers(60, size=900)]
    y = (draw.random(900) < 0.2).astype(np.int64)
    parts = split_groups(y, groups, 0.2, 0)
    names = [{groups[row] for row in part} for part in parts.values()]
    assert not names[0] & names[1]
    assert not names[0] & names[2]
    assert not names[1] & names[2]
    assert [len(part) / 900 for part in parts.values()] == pytest.approx([0.6, 0.2, 0.2], abs=0.05)
    with pytest.raises(DirectLossError, match="--group must have enough groups"):
        split_groups(y, ["one"] * 900, 0.2, 0)


# ---------------------------------------------------------------------- metrics and comparison


@pytest.mark.parametrize("name", OFFERED)
def test_every_metric_that_is_offered_has_a_value(name: str) -> None:
    measure = get_measure(name)
    target = torch.arange(40) % 4 == 0
    good = target.double() + 0.1 * torch.rand(40)
    cut = measure.cut(good, target.long())
    assert float(measure.value(good - cut, target.long())) == pytest.approx(1.0)
    assert (cut > 0) == measure.decides


def test_the_bootstrap_is_paired_and_about_right() -> None:
    """For accuracy the spread is known: sqrt(p (1 - p) / n)."""
    target = torch.arange(400) % 2
    scores = torch.where(torch.arange(400) % 5 == 0, -1.0, 1.0) * (2 * target - 1)  # 80 % right
    found = compare(get_measure("accuracy"), {"a": scores, "b": 7 * scores, "c": -scores}, target, "a", 0)
    spread = (0.8 * 0.2 / 400) ** 0.5
    assert found.test["a"].value == pytest.approx(0.8)
    assert found.test["a"].low == pytest.approx(0.8 - 1.96 * spread, abs=0.007)
    assert found.test["a"].high == pytest.approx(0.8 + 1.96 * spread, abs=0.007)
    assert (found.ahead["b"].low, found.ahead["b"].high) == (0, 0), "the same rows, whatever the scores"
    assert found.ahead["c"].certain


def test_groups_are_drawn_as_a_whole_and_a_resample_has_both_labels() -> None:
    target = torch.tensor([1] + [0] * 11)
    for drawn in draws(target, 0, [f"g{k // 3}" for k in range(12)]):
        counts = torch.bincount(drawn[0], minlength=12).reshape(4, 3)
        if (counts[0] == counts[0, 0]).all():  # else it got a positive in place of another row
            assert (counts == counts[:, :1]).all()
        assert target[drawn].any()


def test_a_baseline_is_chosen_on_validation_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(200, 3))
    y = (x[:, 0] > 0.5).astype(np.int64)
    told: list[str] = []
    held = x[150:], y[150:]
    fitted = fit_baseline("logistic", get_measure("f1"), (x[:150], y[:150]), held, held[0], 0, told.append)
    assert told == [f"setting {place} of 4" for place in range(1, 5)]
    decided = torch.from_numpy(fitted.test)
    assert float(get_measure("f1").value(decided, torch.from_numpy(y[150:]))) == pytest.approx(fitted.validation)
    monkeypatch.setitem(BASELINES, "xgboost", Baseline("XGBoost", "no_such_package.Thing", ({},)))
    assert parse_baselines("none") == ()
    assert "xgboost" not in parse_baselines("all")
    for text, message in (
        ("xgboost", "--baselines must be installed.*pip install xgboost"),
        ("logistc", "--baselines must be one of"),
        ("logistic,none", "must be given alone"),
    ):
        with pytest.raises(DirectLossError, match=message):
            parse_baselines(text)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_boosting_of_other_libraries(name: str) -> None:
    pytest.importorskip(name)
    draw = np.random.default_rng(0)
    x = draw.normal(size=(300, 3))
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    held = x[200:], y[200:]
    assert fit_baseline(name, get_measure("ap"), (x[:200], y[:200]), held, held[0], 0).validation > 0.8


# ---------------------------------------------------------------------- files


def test_formulas_are_made_harmless_and_numbers_are_left_alone() -> None:
    text = csv_bytes({"score": [-1.5, 2.0], "label": ['=HYPERLINK("x")', "+1"], "=name": ["a", "b"]}).decode()
    assert text == 'score,label,\'=name\n-1.5,"\'=HYPERLINK(""x"")",a\n2.0,\'+1,b\n'


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "a.txt"
    write_file(path, b"old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.txt"]
