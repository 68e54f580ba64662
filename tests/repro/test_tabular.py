"""Reading, encoding, splitting, metrics and the model file, each against something simpler."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from directloss_repro.models.mlp import Scorer
from directloss_repro.tabular.columns import CATEGORY, NUMBER, kinds_of, suspicions
from directloss_repro.tabular.comparing import bootstrap, interval
from directloss_repro.tabular.encoding import MOST, RARE, Encoder, learn_encoder
from directloss_repro.tabular.measures import DECISIONS, get_measure
from directloss_repro.tabular.modelfile import Model, load_model
from directloss_repro.tabular.reading import Table, kind_of, read_table
from directloss_repro.tabular.running import best_on_the_way, split_rows, start_at_base_rate
from directloss_repro.tabular.target import read_target
from directloss_repro.training import Trained
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from directloss import DirectLossError
from tests.repro.tables import rows, write

# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.xz", "t.tsv", "t.parquet"])
def test_tables_of_every_kind_hold_the_same(tmp_path: Path, name: str) -> None:
    read = read_table(write(tmp_path, name)).data
    assert list(read.columns) == list(rows().columns)
    for column in read.columns:
        assert read[column].tolist() == rows()[column].tolist()


@pytest.mark.parametrize("name", ["t.svm", "t.txt", "t.libsvm", "t.svm.gz", "t.npz"])
def test_arrays_of_every_kind_hold_the_same(tmp_path: Path, name: str) -> None:
    table = read_table(write(tmp_path, name))
    features = [column for column in table.data.columns if column not in ("label", "y")]
    assert features == (["x0", "x1", "x2"] if name == "t.npz" else ["f1", "f2", "f3"])
    np.testing.assert_allclose(table.data[features], rows()[["a", "b", "noise"]])
    labels = table.data["y" if name == "t.npz" else "label"]
    assert ((labels > 0) == (rows()["outcome"] == "yes")).all()


def test_semicolons_and_a_byte_order_mark_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\ufeffa;b\n1;x\n2;y\n", encoding="utf-8")
    frame = read_table(path).data
    assert list(frame.columns) == ["a", "b"]
    assert frame["b"].tolist() == ["x", "y"]


def test_kinds_by_name() -> None:
    assert [kind_of(Path(name)) for name in ("A.CSV", "a.b.csv.gz", "x.pq", "x.txt.xz")] == [
        "csv",
        "csv",
        "parquet",
        "svmlight",
    ]


# ---------------------------------------------------------------------- target


@pytest.mark.parametrize(
    ("values", "asked", "labels"),
    [
        ([0, 1], None, ("0", "1")),
        ([0.0, 1.0], None, ("0", "1")),
        ([False, True], None, ("False", "True")),
        ([-1, 1], None, ("-1", "1")),
        ([1, 0], "0", ("1", "0")),
        (["sick", "well"], None, ("sick", "well")),  # "well" is the rarer one below
        (["sick", "well"], "sick", ("well", "sick")),
        ([1, 2], None, ("1", "2")),
    ],
)
def test_which_label_is_positive(values: list[Any], asked: str | None, labels: tuple[str, str]) -> None:
    column = [values[0]] * 8 + [values[1]] * 6
    target = read_target(Table(pd.DataFrame({"t": column, "x": 0}), "csv", Path("t.csv")), "t", asked)
    assert target.labels == labels
    assert target.y.sum() == (
        6 if labels[1] == str(int(values[1]) if not isinstance(values[1], str | bool) else values[1]) else 8
    )


# ---------------------------------------------------------------------- columns


def test_what_is_suspicious_is_said() -> None:
    frame = pd.DataFrame(
        {
            "constant": 1.0,
            "number": range(100, 130),
            "name": [f"person {k}" for k in range(30)],
            "a": np.linspace(0, 1, 30) ** 2,
            "b": np.linspace(0, 1, 30) ** 2,
            "good": [0, 1, 2] * 10,
        }
    )
    found = suspicions(frame, kinds_of(frame, list(frame.columns), ()))
    assert [sentence.split("'")[1] for sentence in found] == ["constant", "number", "name", "b"]
    assert found[3] == "Column 'b' is the same as 'a'."


def test_numbers_can_be_read_as_categories() -> None:
    frame = pd.DataFrame({"code": [1, 2, 2], "word": ["a", "b", None], "flag": [True, False, True]})
    assert kinds_of(frame, list(frame.columns), ()) == {"code": NUMBER, "word": CATEGORY, "flag": NUMBER}
    assert kinds_of(frame, ["code"], ("code",)) == {"code": CATEGORY}


# ---------------------------------------------------------------------- encoding


def many() -> pd.DataFrame:
    draw = np.random.default_rng(1)
    words = draw.choice([f"w{k}" for k in range(70)], 600, p=np.arange(1, 71) / np.arange(1, 71).sum())
    return pd.DataFrame({"x": draw.normal(3, 9, 600), "word": words, "flat": 2.0})


def test_encoding_is_that_of_scikit_learn() -> None:
    frame = many()
    train, new = frame[:500], frame[500:].assign(word=lambda f: f["word"].where(f.index % 7 != 0, "never seen"))
    encoder = learn_encoder(train, {"x": NUMBER, "word": CATEGORY, "flat": NUMBER})
    hot = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=RARE, max_categories=MOST)
    hot.fit(train[["word"]])
    scaler = StandardScaler().fit(train[["x", "flat"]].to_numpy())
    for part in (train, new):
        numbers = scaler.transform(part[["x", "flat"]].to_numpy())
        words = hot.transform(part[["word"]]).toarray()
        expected = np.column_stack([numbers[:, :1], words, numbers[:, 1:]])
        np.testing.assert_allclose(encoder.encode(part).numpy(), expected, rtol=1e-6, atol=1e-6)


def test_an_encoder_survives_json() -> None:
    encoder = learn_encoder(many(), {"x": NUMBER, "word": CATEGORY, "flat": NUMBER}, ["x"])
    again = Encoder.from_list(json.loads(json.dumps(encoder.to_list())))
    assert again == encoder
    assert encoder.width == encoder.encode(many()).shape[1]


def test_missing_numbers_become_the_median_and_a_mark() -> None:
    frame = pd.DataFrame({"x": [1.0, np.nan, 3.0, 8.0], "word": ["a", None, "a", "a"]})
    encoder = learn_encoder(frame, {"x": NUMBER, "word": CATEGORY}, ["x"])
    encoded = encoder.encode(frame)
    assert encoded[:, 1].tolist() == [0, 1, 0, 0]
    assert encoded[1, 0] == encoded[2, 0], "the median of 1, 3 and 8 is 3"
    one = encoder.encode(pd.DataFrame({"x": [None], "word": ["new"]}))
    assert one[0, :2].tolist() == encoded[1, :2].tolist()


def test_a_category_that_is_new_is_nothing_where_training_had_no_rare_ones() -> None:
    frame = pd.DataFrame({"word": ["a"] * 5 + ["b"] * 5})
    encoder = learn_encoder(frame, {"word": CATEGORY})
    assert encoder.encode(pd.DataFrame({"word": ["b", "new"]})).tolist() == [[0, 1], [0, 0]]


# ---------------------------------------------------------------------- split


@pytest.mark.parametrize("positives", [5, 37, 200])
def test_parts_are_disjoint_complete_and_stratified(positives: int) -> None:
    y = torch.zeros(400, dtype=torch.long)
    y[torch.randperm(400, generator=torch.Generator().manual_seed(3))[:positives]] = 1
    parts = split_rows(y, 0.2, 0)
    together = torch.cat(list(parts.values()))
    assert together.sort().values.tolist() == list(range(400))
    assert len(parts["test"]) == pytest.approx(80, abs=1)
    assert len(parts["val"]) == pytest.approx(80, abs=1)
    for part in parts.values():
        assert abs(int(y[part].sum()) - positives * len(part) / 400) <= 1
        assert int(y[part].sum()) >= 1
    assert not torch.equal(parts["test"], split_rows(y, 0.2, 1)["test"])
    assert torch.equal(parts["test"], split_rows(y, 0.2, 0)["test"])


# ---------------------------------------------------------------------- training


def test_the_number_of_steps_is_chosen_and_the_start_does_not_count() -> None:
    trained = Trained({"iteration": [0, 10, 20, 30], "val_ap": [0.9, 0.5, 0.7, 0.7]})
    assert best_on_the_way(trained, "val_ap") == {"val_ap": 0.7, "iterations": 20}
    at_once = Trained({"iteration": [0, 1], "val_ap": [0.9, 0.5]}, diverged_at=0)
    assert best_on_the_way(at_once, "val_ap") == {"val_ap": 0.5, "iterations": 1}


@pytest.mark.parametrize("hidden", [(), (8,)])
def test_cross_entropy_starts_at_the_base_rate(hidden: tuple[int, ...]) -> None:
    scorer = Scorer(3, hidden)
    start_at_base_rate(scorer, torch.tensor([1] + [0] * 49))
    share = torch.sigmoid(scorer.layers[-1].bias.detach())
    assert float(share) == pytest.approx(0.02)


# ---------------------------------------------------------------------- metrics


@pytest.mark.parametrize("name", [*DECISIONS, "fbeta@2"])
def test_the_threshold_is_the_best_of_all_cuts(name: str) -> None:
    measure = get_measure(name)
    draw = torch.Generator().manual_seed(5)
    for _ in range(20):
        scores = torch.randint(-4, 5, (12,), generator=draw).double()  # with ties
        target = (torch.rand(12, generator=draw) < 0.4).long()
        cut = measure.threshold(scores, target)
        cuts = [*(scores.unique() - 0.5).tolist(), float(scores.max()) + 0.5]
        best = max(float(measure.value(scores - other, target)) for other in cuts)
        assert float(measure.value(scores - cut, target)) == pytest.approx(best)


@pytest.mark.parametrize(
    ("name", "canonical", "direct", "decides"),
    [
        ("AP", "ap", "direct-ap", False),
        ("auc", "auc", "direct-auc", False),
        ("ndcg@10", "ndcg@10", "direct-ndcg@10", False),
        ("precision@5", "precision@5", "direct-precision@5", False),
        ("recall@5", "recall@5", "direct-recall@5", False),
        ("f1", "f1", "direct-f1", True),
        ("fbeta@2.0", "fbeta@2", "direct-fbeta@2", True),
        ("jaccard", "iou", "direct-iou", True),
        ("error", "accuracy", "direct-01", True),
    ],
)
def test_names_of_metrics(name: str, canonical: str, direct: str, decides: bool) -> None:
    measure = get_measure(name)
    assert (measure.name, measure.direct, measure.decides) == (canonical, direct, decides)


# ---------------------------------------------------------------------- bootstrap


def test_the_bootstrap_is_paired_and_about_right() -> None:
    """For accuracy the spread is known: sqrt(p (1 - p) / n)."""
    measure = get_measure("accuracy")
    target = torch.arange(400) % 2
    scores = torch.where(torch.arange(400) % 5 == 0, -1.0, 1.0) * (2 * target - 1)  # 80 % right
    values = bootstrap(measure, scores, target, 0)
    assert len(values) == 1000
    assert float(values.mean()) == pytest.approx(0.8, abs=0.003)
    assert float(values.std()) == pytest.approx((0.8 * 0.2 / 400) ** 0.5, rel=0.1)
    low, high = interval(values)
    assert low < 0.8 < high
    assert torch.equal(values, bootstrap(measure, 7 * scores, target, 0)), "the same rows, whatever the scores"


def test_a_resample_always_has_both_labels() -> None:
    target = torch.tensor([1] + [0] * 30)
    values = bootstrap(get_measure("ap"), torch.arange(31.0), target, 0)
    assert bool(torch.isfinite(values).all())


# ---------------------------------------------------------------------- the model file


def model() -> Model:
    encoder = learn_encoder(many(), {"x": NUMBER, "word": CATEGORY, "flat": NUMBER})
    return Model(Scorer(encoder.width, (4,)), encoder, (4,), "f1", "pos-f1", "t", ("no", "yes"), 0.25)


def test_a_model_file_gives_the_same_model(tmp_path: Path) -> None:
    stored = model()
    path = tmp_path / "model.pt"
    path.write_bytes(stored.to_bytes())
    again = load_model(path)
    x = stored.encoder.encode(many())
    assert torch.equal(stored.score(x), again.score(x))
    assert torch.equal(stored.score(x)[:7], again.score(x[:7]))
    assert (again.labels, again.threshold, again.hidden) == (("no", "yes"), 0.25, (4,))


class Evil:
    """What a pickle can do: run any code when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("evil-was-run"),))


def _content(change: Any) -> bytes:
    import io

    content = torch.load(io.BytesIO(model().to_bytes()), weights_only=True)
    about = json.loads(content["about"])
    change(content, about)
    content["about"] = json.dumps(about)
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


BAD_FILES: dict[str, tuple[Any, str]] = {
    "text": (lambda: b"hello", "another file or damaged"),
    "empty": (lambda: b"", "another file or damaged"),
    "pickle": (lambda: pickle.dumps(Evil()), "another file or damaged"),
    "torn": (lambda: model().to_bytes()[:-300], "another file or damaged"),
    "foreign": (lambda: _content(lambda c, a: c.update(format="other")), "another file"),
    "newer": (lambda: _content(lambda c, a: c.update(version=99)), "must be of version 1 or older"),
    "no columns": (lambda: _content(lambda c, a: a.pop("columns")), "something is missing or does not fit"),
    "wide": (lambda: _content(lambda c, a: a.update(hidden=[10**9])), "something is missing or does not fit"),
    "zero scale": (lambda: _content(lambda c, a: a["columns"][0].update(scale=0)), "positive scale"),
    "nan": (
        lambda: _content(lambda c, a: c["weights"]["layers.0.bias"].fill_(float("nan"))),
        "must be finite float32",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_other_files_are_refused_and_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    make, message = BAD_FILES[name]
    path = tmp_path / "model.pt"
    path.write_bytes(make())
    with pytest.raises(DirectLossError, match=message):
        load_model(path)
    assert not (tmp_path / "evil-was-run").exists()


def test_a_torch_pickle_with_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"format": "directloss model", "version": 1, "about": Evil()}, tmp_path / "model.pt")
    with pytest.raises(DirectLossError, match="another file or damaged"):
        load_model(tmp_path / "model.pt")
    assert not (tmp_path / "evil-was-run").exists()


@pytest.mark.parametrize("separator", [";", "\t"])
def test_decimal_commas_are_numbers(tmp_path: Path, separator: str) -> None:
    """As spreadsheets write them where the comma is the decimal sign; words with commas stay words."""
    lines = ["size;note;whole;odd", "1,5;a, b;3;1,0", "-2,25;c;4;2,0", ";d;5;n/a", "1e3;e, f;6;,5"]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines).replace(";", separator), encoding="utf-8")
    frame = read_table(path).data
    np.testing.assert_array_equal(frame["size"], [1.5, -2.25, np.nan, 1000.0])
    assert frame["note"].tolist() == ["a, b", "c", "d", "e, f"]
    assert frame["whole"].tolist() == [3, 4, 5, 6]
    assert frame["odd"].dtype == np.float64  # n/a is a missing number


def test_a_few_words_among_decimal_commas_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a;b\n" + "".join(f"{k},5;{k % 2}\n" for k in range(30)) + "broken;1\n", encoding="utf-8")
    frame = read_table(path).data
    with pytest.raises(DirectLossError, match=r"'a' must hold numbers throughout.*1 of 31 values are not: 'broken'"):
        kinds_of(frame, ["a"], [])
