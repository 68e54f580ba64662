from __future__ import annotations

import pickle
import sys
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import directloss as dl
from directloss.integrations import boosting
from directloss.integrations.boosting import Evaluation, Objective, ScoredRows, train

lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed: pip install 'directloss[boosting]'")
xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed: pip install xgboost-cpu")
from sklearn.base import clone  # noqa: E402
from sklearn.metrics import average_precision_score, f1_score  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402

from directloss.integrations.boosting_sklearn import BoostedClassifier  # noqa: E402

LEAVES = {"num_leaves": 7, "num_threads": 1, "min_data_in_leaf": 5, "seed": 0}
DEPTH = {"max_depth": 3, "nthread": 1, "seed": 0}


def expected_f1_loss(scores: np.ndarray, labels: np.ndarray, noise: float) -> float:
    """The mean loss over all decisions, each a yes with the probability that logistic noise gives it."""
    p = 1 / (1 + np.exp(-scores / noise))
    total = 0.0
    for decided in product((0, 1), repeat=len(scores)):
        yes = np.array(decided)
        hits, said, true = (yes * labels).sum(), yes.sum(), labels.sum()
        total += np.prod(np.where(yes, p, 1 - p)) * (1 - 2 * hits / (said + true))
    return float(total)


def derivatives(function: Any, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and second derivative in each score, by differences."""
    step, here = 1e-4, function(scores)
    moves = np.eye(len(scores)) * step
    up, down = (np.array([function(scores + sign * move) for move in moves]) for sign in (1, -1))
    return (up - down) / (2 * step), (up - 2 * here + down) / step**2


SCORES, LABELS = np.array([0.4, -0.2, 1.1, -0.9, 0.1]), np.array([1, 1, 0, 0, 1])


def test_gradient_is_that_of_the_expected_metric() -> None:
    """F1 of five decisions, against the mean over all 32 outcomes."""
    exact, _ = derivatives(lambda s: expected_f1_loss(s, LABELS, 0.5), SCORES)
    objective = Objective("f1", noise=0.5, samples=40_000, likelihood=0)
    gradient, _ = objective(LABELS, SCORES)
    cosine = gradient @ exact / np.linalg.norm(gradient) / np.linalg.norm(exact)
    assert cosine > 0.995


def test_curvature_is_that_of_the_expected_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is bounded and scaled: F1 of five decisions, against the mean over all 32 outcomes."""
    raw: list[np.ndarray] = []
    monkeypatch.setattr(boosting, "_bounded", lambda g, c, noise: raw.extend((g, c)) or (g, c))
    Objective("f1", noise=0.5, samples=40_000, likelihood=0)(LABELS, SCORES)
    for found, exact in zip(raw, derivatives(lambda s: expected_f1_loss(s, LABELS, 0.5), SCORES), strict=True):
        np.testing.assert_allclose(found, exact, atol=0.01)


def test_curvature_of_a_ranking_is_the_second_difference_of_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """AP, one draw: each item up and down by the noise, all others where their noise put them."""
    raw: list[np.ndarray] = []
    monkeypatch.setattr(boosting, "_bounded", lambda g, c, noise: raw.extend((g, c)) or (g, c))
    Objective("ap", samples=1, noise=1.0, likelihood=0, seed=3)(LABELS, SCORES)
    uniform = torch.rand(1, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    noisy = SCORES + (2 * uniform[0].numpy() - 1)

    def loss(item: int, place: float) -> float:
        moved = np.where(np.arange(5) == item, place, noisy)
        return 1 - average_precision_score(LABELS, moved)

    for item, score in enumerate(SCORES):
        up, here, down = (loss(item, score + step) for step in (1.0, 0.0, -1.0))
        assert raw[0][item] == pytest.approx((up - down) / 2)
        assert raw[1][item] == pytest.approx(up - 2 * here + down)


def test_every_row_has_a_gradient_and_no_leaf_moves_a_score_by_more_than_the_noise() -> None:
    draw = np.random.default_rng(0)
    labels, scores = draw.integers(0, 2, 200), draw.normal(size=200)
    gradient, curvature = Objective("ap", noise=0.5)(labels, scores)
    assert curvature.mean() == pytest.approx(1)
    assert (gradient != 0).all()
    assert (curvature >= 0.05).all()
    for _ in range(50):
        leaf = draw.random(200) < draw.random()
        if leaf.any():
            assert abs(gradient[leaf].sum() / curvature[leaf].sum()) <= 0.5


@pytest.mark.parametrize("task", ["ap", "ndcg", "auc", "f1", "mcc", "error", "precision@3", "mrr", "dcg@3", "pauc@0.5"])
def test_each_task_pushes_the_right_way(task: str) -> None:
    labels, scores = np.array([0, 1, 0, 1, 0, 0]), np.array([0.9, 0.4, 0.3, -0.1, -0.2, -0.6])
    gradient, _ = Objective(task, samples=400)(labels, scores)
    assert gradient[labels == 1].sum() < 0 < gradient[labels == 0].sum()


def test_metric_of_classes_and_one_class_against_the_rest() -> None:
    labels, scores = np.array([0, 1, 2, 1]), np.random.default_rng(0).normal(size=(4, 3))
    for task in ("accuracy", "topk@2", "ap"):
        gradient, curvature = Objective(task, samples=200)(labels, scores)
        assert gradient.shape == curvature.shape == (4, 3)
        assert gradient[np.arange(4), labels].sum() < 0
    assert Evaluation("accuracy")(labels, scores)[1] == (scores.argmax(1) == labels).mean()


@pytest.mark.parametrize("shift", [0.0, -5.0])
def test_f1_of_several_classes_is_that_of_the_highest_score(shift: float) -> None:
    """Scores of a softmax have no zero of their own: adding a number to all of them changes nothing."""
    draw = np.random.default_rng(0)
    labels, scores = draw.integers(0, 3, 60), draw.normal(size=(60, 3))
    found = Evaluation("f1")(labels, scores + shift)[1]
    assert found == pytest.approx(f1_score(labels, scores.argmax(1), average="macro"))
    gradient, _ = Objective("f1", samples=200)(labels, scores + shift)
    assert gradient[np.arange(60), labels].sum() < 0


# ---------------------------------------------------------------------- groups and weights

SIZES = np.array([3, 9, 1, 5, 17, 2])


def grouped() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    return draw.normal(size=SIZES.sum()), draw.integers(0, 4, SIZES.sum()).astype(float)


def test_groups_are_lists_of_their_own() -> None:
    scores, grades = grouped()
    parts = np.split(np.arange(len(scores)), np.cumsum(SIZES)[:-1])
    each = [
        float(dl.metrics.graded_ndcg(torch.from_numpy(scores[p]), torch.from_numpy(grades[p]), k=3))
        for p in parts
        if len(np.unique(grades[p])) > 1
    ]
    assert Evaluation("ndcg@3").value(ScoredRows(scores, grades, None, SIZES)) == pytest.approx(np.mean(each))


@pytest.mark.filterwarnings("ignore::directloss.DirectLossWarning")
def test_groups_of_one_row_have_nothing_to_rank() -> None:
    scores, labels = np.array([0.1, 0.3, 0.2, 0.4, 0.5]), np.array([1, 0, 1, 0, 1])
    alone, sizes = ScoredRows(scores[:3], labels[:3]), np.array([3, 1, 1])
    assert Evaluation("ap").value(ScoredRows(scores, labels, None, sizes)) == Evaluation("ap").value(alone)
    assert not Objective("ap", likelihood=0)(labels, scores, None, sizes)[0][3:].any()


def test_a_group_without_weight_has_no_gradient() -> None:
    scores, grades = grouped()
    weight = np.array([1.0, 0.0, 1.0, 2.0, 1.0, 1.0])
    for given in (weight, np.repeat(weight, SIZES)):  # as XGBoost and as LightGBM have it
        with pytest.warns(dl.DirectLossWarning, match="of 6 lists have nothing to rank"):  # one item, or one grade
            gradient, _ = Objective("ndcg@3")(grades, scores, given, SIZES)
        assert not gradient[3:12].any()
        assert gradient[13:18].any()


def test_a_group_weighs_as_much_as_that_many_copies() -> None:
    scores, labels, sizes = np.array([0.1, 0.0, 0.3, 0.2]), np.array([0, 1, 0, 1]), np.array([2, 2])
    value = Evaluation("ap").value(ScoredRows(scores, labels, np.array([3.0, 1.0]), sizes))
    copies = ScoredRows(
        np.tile(scores, 1)[[0, 1, 0, 1, 0, 1, 2, 3]], labels[[0, 1, 0, 1, 0, 1, 2, 3]], None, np.full(4, 2)
    )
    assert value == pytest.approx(Evaluation("ap").value(copies))


@pytest.mark.parametrize("metric", ["auc", "f1", "accuracy"])
def test_a_row_weighs_as_much_as_that_many_copies(metric: str) -> None:
    scores, labels, weight = np.array([0.3, 0.2, -0.1, -0.4]), np.array([0, 1, 0, 1]), np.array([1.0, 1.0, 3.0, 2.0])
    copies = np.repeat(np.arange(4), weight.astype(int))
    spread = scores[copies] - 1e-9 * np.arange(7)  # scores that are not tied
    for tuned in (False, True):
        judge = Evaluation(metric, tuned=tuned)
        assert judge(labels, scores, weight)[1] == pytest.approx(judge(labels[copies], spread)[1])
    wanted = average_precision_score(labels, scores, sample_weight=weight)
    assert Evaluation("ap")(labels, scores, weight)[1] == pytest.approx(wanted)
    with pytest.raises(dl.DirectLossError, match="weight must have at most 64 distinct values"):
        Objective("ap")(np.arange(99) % 2, np.arange(99.0), np.arange(1.0, 100.0))
    with pytest.raises(dl.DirectLossError, match='Weighted ranks are defined for "ap", "auc"'):
        Objective("mrr")(labels, scores, weight)


# ---------------------------------------------------------------------- the libraries


def toy(rows: int = 400, seed: int = 0, wrong: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 6))
    y = (x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * draw.normal(size=rows) > 1.2).astype(int)
    return x, np.where(draw.random(rows) < wrong, 1 - y, y)


def test_native_calls() -> None:
    x, y = toy()
    data = lightgbm.Dataset(x, y)
    seen: dict[str, Any] = {}
    keep = [lightgbm.record_evaluation(seen)]
    lightgbm.train(
        {**LEAVES, "verbosity": -1, "metric": "None", "objective": Objective("ap")}, data, 5,
        valid_sets=[data], valid_names=["train"], feval=Evaluation("ap"), callbacks=keep,
    )  # fmt: skip
    assert seen["train"]["ap"][-1] > seen["train"]["ap"][0] > y.mean()
    matrix, found = xgboost.DMatrix(x, y), {}
    xgboost.train(
        {**DEPTH, "disable_default_eval_metric": True}, matrix, 5, obj=Objective("ap"), custom_metric=Evaluation("ap"),
        evals=[(matrix, "train")], evals_result=found, verbose_eval=False,
    )  # fmt: skip
    assert found["train"]["ap"][-1] > found["train"]["ap"][0] > y.mean()


def test_estimators_of_the_libraries_take_the_objective() -> None:
    x, y = toy()
    model = lightgbm.LGBMClassifier(objective=Objective("f1"), n_estimators=5, verbosity=-1, n_jobs=1, num_leaves=7)
    model.fit(x, y, eval_X=x, eval_y=y, eval_metric=Evaluation("f1"))
    assert model.evals_result_["valid_0"]["f1"][-1] > 0.5
    model = xgboost.XGBClassifier(
        objective=Objective("f1"), n_estimators=5, n_jobs=1, eval_metric=Evaluation("f1").cost
    )
    model.fit(x, y, eval_set=[(x, y)], verbose=False)
    assert model.evals_result()["validation_0"]["cost"][-1] < -0.5


def data_of(library: str, x: np.ndarray, y: np.ndarray, reference: Any = None, group: Any = None) -> Any:
    if library == "lightgbm":
        return lightgbm.Dataset(x, y, reference=reference, group=group)
    matrix = xgboost.DMatrix(x, y)
    if group is not None:
        matrix.set_group(group)
    return matrix


def raw(booster: Any, x: np.ndarray) -> np.ndarray:
    if isinstance(booster, lightgbm.Booster):
        return booster.predict(x, raw_score=True)
    return booster.predict(xgboost.DMatrix(x), output_margin=True)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("metric", ["ap", "f1"])
def test_recipe_keeps_the_best_rounds(library: str, metric: str) -> None:
    (x, y), (held, wanted) = toy(wrong=0.2), toy(seed=1, wrong=0.2)
    data = data_of(library, x, y)
    params = LEAVES if library == "lightgbm" else DEPTH
    made = train(params, data, metric, validation=data_of(library, held, wanted, data), first=15, then=25, patience=10)
    value = Evaluation(metric)(wanted, raw(made.booster, held) - made.threshold)[1]
    assert value == pytest.approx(max(made.curve), abs=1e-5)  # XGBoost's scores are float32
    count = made.booster.current_iteration() if library == "lightgbm" else made.booster.num_boosted_rounds()
    assert 1 <= made.first <= made.rounds == count
    assert len(made.curve) >= made.rounds


def test_the_threshold_is_in_raw_scores() -> None:
    """What LightGBM shows is not always the sigmoid of the raw score."""
    (x, y), (held, wanted) = toy(wrong=0.1), toy(seed=1, wrong=0.1)
    for then in (0, 3):
        data = lightgbm.Dataset(x, y)
        other = data.create_valid(held, wanted)
        made = train({**LEAVES, "sigmoid": 3.0}, data, "f1", validation=other, first=10, then=then)
        value = Evaluation("f1")(wanted, raw(made.booster, held) - made.threshold)[1]
        assert value == pytest.approx(max(made.curve), abs=1e-9)


def test_no_threshold_lies_between_rows_of_the_same_leaves() -> None:
    """Rounds taken back leave their rounding behind, in which such rows differ."""
    draw = np.random.default_rng(0)
    for _ in range(6):
        x = draw.normal(size=(1500, 5))
        y = (x[:, 0] + x[:, 1] + draw.normal(size=1500) > 1.5).astype(int)
        data = lightgbm.Dataset(x[:1000], y[:1000])
        made = train(LEAVES, data, "f1", validation=data.create_valid(x[1000:], y[1000:]), first=10, then=10)
        value = Evaluation("f1")(y[1000:], raw(made.booster, x[1000:]) - made.threshold)[1]
        assert value == pytest.approx(max(made.curve), abs=1e-9)


def test_the_first_round_on_the_metric_sees_raw_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = toy()
    start = raw(train({**LEAVES, "sigmoid": 2.0}, lightgbm.Dataset(x, y), "ap", first=5, then=0).booster, x)
    seen: list[np.ndarray] = []
    was = Objective.__call__
    monkeypatch.setattr(Objective, "__call__", lambda self, *some: seen.append(some[0].copy()) or was(self, *some))
    train({**LEAVES, "sigmoid": 2.0}, lightgbm.Dataset(x, y), "ap", first=5, then=1)
    np.testing.assert_allclose(seen[0], start)


def test_dart_cannot_be_rolled_back() -> None:
    data = lightgbm.Dataset(*toy(100))
    with pytest.raises(dl.DirectLossError, match="params must not choose dart with validation data"):
        train({**LEAVES, "boosting": "dart"}, data, "ap", validation=data.create_valid(*toy(100, seed=1)))
    made = train({**LEAVES, "boosting": "dart"}, lightgbm.Dataset(*toy(100)), "ap", first=2, then=2)
    assert repr(made) == "Boosted(first=2, rounds=4, threshold=0.0)"


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_recipe_without_validation_keeps_all(library: str) -> None:
    data = data_of(library, *toy())
    made = train(LEAVES if library == "lightgbm" else DEPTH, data, "ap", first=3, then=4)
    assert (made.first, made.rounds, made.curve) == (3, 7, [])


def test_rounds_on_the_metric_help_on_wrong_labels() -> None:
    """Test AP of clean labels, where every fifth is wrong in training and validation: mean of three data sets."""
    gains = []
    for seed in range(3):
        (x, y), (held, wanted), (new, truth) = toy(1500, seed, 0.2), toy(1500, 100 + seed, 0.2), toy(3000, 200 + seed)
        data = lightgbm.Dataset(x, y, free_raw_data=False)
        other = data.create_valid(held, wanted)
        values = [
            Evaluation("ap")(truth, raw(train(LEAVES, data, "ap", validation=other, first=f, then=t).booster, new))[1]
            for f, t in ((60, 60), (120, 0))
        ]
        gains.append(values[0] - values[1])
    assert np.mean(gains) > 0.005


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_a_metric_of_decisions_takes_over_at_its_threshold(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """F1 wants more yeses than cross-entropy gives at 0, and starts where its best threshold is."""
    seen = []
    was = Objective.__call__

    def call(self: Objective, *batch: Any) -> Any:
        seen.append(self.threshold)
        return was(self, *batch)

    monkeypatch.setattr(Objective, "__call__", call)
    x, y = toy(800, wrong=0.1)
    rare = y * (np.arange(800) % 3 == 0)
    params = LEAVES if library == "lightgbm" else DEPTH
    made = train(params, data_of(library, x, rare), "f1", first=10, then=2)
    start = raw(train(params, data_of(library, x, rare), "f1", first=10, then=0).booster, x)
    best = ScoredRows(start, rare, None, None).best_cut(Objective("f1").task)[0]
    assert seen == pytest.approx([best, best], abs=1e-5)  # XGBoost's scores are float32
    assert best < -0.2
    found = Evaluation("f1")(rare, raw(made.booster, x) - made.threshold)[1]
    assert found == pytest.approx(Evaluation("f1", tuned=True)(rare, raw(made.booster, x))[1], abs=1e-5)
    assert train(params, data_of(library, x, rare), "ap", first=1, then=1).threshold == 0


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_recipe_for_queries_with_grades(library: str) -> None:
    draw = np.random.default_rng(0)
    x, sizes = draw.normal(size=(200, 4)), np.full(20, 10)
    grades = np.clip(np.round(x[:, 0] + 1), 0, 3)
    data = data_of(library, x, grades, group=sizes)
    made = train(LEAVES if library == "lightgbm" else DEPTH, data, "ndcg@5", first=5, then=5)
    assert Evaluation("ndcg@5").value(ScoredRows(raw(made.booster, x), grades, None, sizes)) > 0.9


# ---------------------------------------------------------------------- estimators of our own


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_classifier(library: str) -> None:
    x, y = toy(600)
    names = np.array(["no", "yes"])[y]
    params = LEAVES if library == "lightgbm" else DEPTH
    made = BoostedClassifier("f1", library=library, first=20, then=20, params=params, random_state=0).fit(x, names)
    assert list(made.classes_) == ["no", "yes"]
    assert made.score(x, names) > 0.9
    assert ((made.decision_function(x) > 0) == (made.predict(x) == "yes")).all()
    assert made.n_features_in_ == x.shape[1]
    with pytest.raises(ValueError, match="is expecting"):
        made.predict(x[:, :2])
    again = pickle.loads(pickle.dumps(clone(made).fit(x, names)))
    assert np.array_equal(again.decision_function(x), made.decision_function(x))


def test_accuracy_of_two_classes_needs_one_score() -> None:
    """As an objective, in the recipe, and in the estimator, with validation rows as the libraries take them."""
    x, y = toy(400)
    for first, second in zip(Objective("accuracy")(y, x[:, 0]), Objective("error")(y, x[:, 0]), strict=True):
        assert np.array_equal(first, second)
    runs = [
        BoostedClassifier(metric, first=5, then=5, params=LEAVES, random_state=0).fit(x, y, eval_set=[(x, y)])
        for metric in ("accuracy", "error")
    ]
    assert np.array_equal(runs[0].decision_function(x), runs[1].decision_function(x))
    assert runs[0].score(x, y) == pytest.approx(max(runs[0].boosted_.curve))


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_calibrated(classes: int) -> None:
    """Among new rows that get about the same probability, about that share is of the class."""
    (x, y), (new, truth) = toy(3000), toy(3000, seed=1)
    if classes == 3:
        y, truth = y + (x[:, 3] > 0.5), truth + (new[:, 3] > 0.5)
    metric = "f1" if classes == 2 else "accuracy"
    made = BoostedClassifier(metric, first=30, then=20, params=LEAVES, random_state=0).fit(x, y)
    shares = made.predict_proba(new)
    assert shares.shape == (3000, classes)
    assert shares.sum(1) == pytest.approx(1)
    for low, high in ((0.1, 0.4), (0.4, 0.7), (0.7, 1.0)):
        some = (shares[:, 1] > low) & (shares[:, 1] <= high)
        assert shares[some, 1].mean() == pytest.approx((truth[some] == 1).mean(), abs=0.12)  # of about 200 rows


def test_classifier_of_three_classes_with_missing_values_in_a_search() -> None:
    x, _ = toy(300)
    y = x[:, :3].argmax(1)
    x[::7, 4] = np.nan
    search = GridSearchCV(
        BoostedClassifier("accuracy", first=5, then=5, params=LEAVES, random_state=0), {"then": [0, 5]}, cv=2
    ).fit(x, y)
    assert search.best_score_ > 0.75


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_the_rarer_class_is_positive_unless_another_is_named(library: str) -> None:
    """F1 of the rare class, whose name comes first."""
    x, y = toy(800)
    names = np.array(["usual", "rare"])[y]
    params = LEAVES if library == "lightgbm" else DEPTH
    made = BoostedClassifier("f1", library=library, first=10, then=5, params=params, random_state=0)
    rare = clone(made).fit(x, names)
    assert list(rare.classes_) == ["rare", "usual"]
    assert ((rare.decision_function(x) > 0) == (rare.predict(x) == "usual")).all()
    np.testing.assert_allclose(rare.predict_proba(x).sum(1), 1)
    assert average_precision_score(y, rare.predict_proba(x)[:, 0]) > 3 * y.mean()
    usual = clone(made).set_params(pos_label="usual").fit(x, names)
    assert (usual.predict(x) == "rare").sum() < (rare.predict(x) == "rare").sum()  # F1 says its yes below a half
    with pytest.raises(dl.DirectLossError, match="pos_label must be one of two classes"):
        clone(made).set_params(pos_label="odd").fit(x, names)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_categories_keep_their_meaning(library: str) -> None:
    draw = np.random.default_rng(0)
    town = draw.choice(list("abcd"), 800)
    frame = pd.DataFrame({"town": pd.Categorical(town), "size": draw.normal(size=800)})
    y = (town == "a") ^ (draw.random(800) < 0.05)
    made = BoostedClassifier("ap", library=library, first=10, then=5, random_state=0).fit(frame, y)
    shares = made.predict_proba(frame)[:, 1]
    for order in ("dcba", "xdcab"):
        other = frame.assign(town=pd.Categorical(town, categories=list(order)))
        np.testing.assert_allclose(made.predict_proba(other)[:, 1], shares)
    few = other[town == "a"].assign(town=lambda some: some["town"].cat.remove_unused_categories())
    np.testing.assert_allclose(made.predict_proba(few)[:, 1], shares[town == "a"])
    again = BoostedClassifier("ap", library=library, first=10, then=5, random_state=0).fit(
        frame, y, eval_set=(other, y)
    )
    assert average_precision_score(y, again.decision_function(frame)) > 0.8


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("metric", ["accuracy", "f1", "ap"])
def test_weights_count_where_rounds_and_threshold_are_chosen(library: str, metric: str) -> None:
    draw = np.random.default_rng(0)
    x, light = draw.normal(size=(1200, 3)), draw.random(1200) < 0.6
    truth = x[:, 0] > 0.5
    y, weight = truth ^ light, np.where(light, 0.01, 1.0)
    params = LEAVES if library == "lightgbm" else DEPTH
    made = BoostedClassifier(metric, library=library, first=30, then=10, params=params, random_state=0)
    assert (made.fit(x, y, weight).predict(x) == truth).mean() > 0.85
    made.fit(x[:800], y[:800], weight[:800], eval_set=(x[800:], y[800:], weight[800:]))
    assert (made.predict(x) == truth).mean() > 0.85


def test_a_failed_fit_changes_nothing() -> None:
    x, y = toy(200)
    made = BoostedClassifier("f1", first=3, then=2, params=LEAVES, random_state=0).fit(x, y)
    before = made.decision_function(x)
    with pytest.raises(dl.DirectLossError, match="eval_set must have labels that y has"):
        made.fit(x[:, :3], np.array(list("ab"))[y], eval_set=(x[:, :3], y))
    assert list(made.classes_) == [0, 1]
    np.testing.assert_array_equal(made.decision_function(x), before)


def test_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ImportError, match=r"^BoostedClassifier needs xgboost: pip install xgboost$"):
        BoostedClassifier(library="xgboost").fit(*toy(50))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Objective("chain"), "metric must be a metric of rows"),
        (lambda: Objective("app"), "metric must be a known name"),
        (lambda: Objective("ap", noise=0), "noise must be positive"),
        (lambda: Objective("ap", samples=0), "samples must be a whole number"),
        (lambda: Objective("ap")(np.zeros(3), np.zeros(4)), "predictions must have shape"),
        (lambda: Objective("ap")(np.zeros(3), np.zeros(3), None, [2, 2]), "group must hold sizes with 3 rows"),
        (lambda: train({}, np.zeros(3)), "data must be a lightgbm.Dataset or a xgboost.DMatrix, but it is a ndarray"),
        (lambda: train({}, lightgbm.Dataset(np.zeros((3, 1)))), "data must have labels"),
        (lambda: BoostedClassifier().fit(np.zeros((4, 1)), [0, 1, None, 1]), "without one in 1 of 4"),
        (lambda: train({}, lightgbm.Dataset(*toy(20)), first=0, then=0), "must add up to at least one round"),
        (lambda: train({"objective": "xentropy"}, lightgbm.Dataset(*toy(20))), "must be one of 'binary', 'multiclass'"),
        (lambda: train({}, lightgbm.Dataset(*toy(20)), validation=3), "validation must be a data set of lightgbm"),
        (lambda: train({}, lightgbm.Dataset(*toy(20)), patience=0), "patience must be a whole number"),
        (lambda: BoostedClassifier(library="catboost").fit(*toy(50)), "library must be one of"),
        (lambda: BoostedClassifier().fit(np.zeros((4, 1)), [1, 1, 1, 1]), "y must have at least two classes"),
        (lambda: BoostedClassifier("topk@2").fit(*toy(50)), "metric must be a metric of yes or no"),
    ],
)  # fmt: skip
def test_bad_input(call: Any, says: str) -> None:
    with pytest.raises(dl.DirectLossError, match=says):
        call()


@pytest.mark.parametrize(("metric", "shape"), [("accuracy", (4,)), ("ap", (4, 3)), ("f1", (4, 2))])
def test_labels_between_classes_are_refused(metric: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(dl.DirectLossError, match=r"label must hold whole numbers, one class per row, but it is 0\.9"):
        Objective(metric)(np.array([0.9, 1.0, 0.0, 1.0]), np.zeros(shape))
