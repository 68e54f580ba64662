"""The estimators in scikit-learn's own checks, in its tools, and against logistic regression."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    make_classification,
    make_multilabel_classification,
)
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, brier_score_loss, f1_score, ndcg_score
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import directloss as dl
from directloss.integrations._cut import best_cut, positive_class
from directloss.integrations.sklearn import DirectLossClassifier, DirectLossRanker

SHORT = {"epochs": 20, "learning_rate": 0.1, "random_state": 0}


RANDOM = "the noise and the batches are drawn for the rows that are there, so that a row twice is not a row of weight 2"


def expected_failures(estimator: Any) -> dict[str, str]:
    kinds = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
    return dict.fromkeys(kinds, RANDOM) if isinstance(estimator, DirectLossClassifier) else {}


@parametrize_with_checks(
    [
        DirectLossClassifier(epochs=20, learning_rate=0.1),
        DirectLossClassifier("accuracy", epochs=30, learning_rate=0.1),
        DirectLossRanker(epochs=6, learning_rate=0.1),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def imbalanced(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(
        2000, 20, n_informative=6, n_redundant=4, weights=[0.95], flip_y=0.02, class_sep=0.8, random_state=seed
    )
    return 1000 + 50 * X, y  # far from standardised


# What is lost at most against logistic regression, in average precision: a thousandth where both are near 1.
@pytest.mark.parametrize(
    ("data", "margin"), [(load_breast_cancer(return_X_y=True), 0.002), (imbalanced(), 0.01)], ids=["cancer", "rare"]
)
def test_out_of_the_box_it_keeps_up_with_logistic_regression(data: Any, margin: float) -> None:
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    usual = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    other, ours = (
        cross_val_score(estimator, *data, cv=folds, scoring="average_precision").mean()
        for estimator in (usual, DirectLossClassifier("ap", random_state=0))
    )
    assert ours > other - margin


def test_training_improves_the_metric_and_tells_it() -> None:
    X, y = imbalanced()
    fitted = DirectLossClassifier("ap", epochs=60, learning_rate=0.1, random_state=0).fit(X, y)
    assert len(fitted.loss_curve_) == fitted.n_iter_ == 60
    assert fitted.loss_curve_[-1] < 0.8 * fitted.loss_curve_[0]
    found = average_precision_score(y, fitted.decision_function(X))
    assert found == pytest.approx(1 - fitted.loss_curve_[-1], abs=0.02)  # the curve is one step behind


@pytest.mark.parametrize("metric", ["ap", "auc", "ndcg@20"])
@pytest.mark.parametrize("early", [False, True])
def test_a_ranking_predicts_the_most_probable_class(metric: str, early: bool) -> None:
    X, y = imbalanced()
    for labels in (y, y + (X[:, 0] > 1060)):
        fitted = DirectLossClassifier(metric, early_stopping=early, **SHORT).fit(X, labels)
        np.testing.assert_array_equal(fitted.predict(X), fitted.predict_proba(X).argmax(1))
    fitted.set_params(class_weight="balanced").fit(X, y)
    assert fitted.predict(X).mean() > 3 * y.mean()


def test_decisions_are_those_of_the_network() -> None:
    X, y = imbalanced()
    fitted = DirectLossClassifier("f1", **SHORT).fit(X, y)
    with torch.no_grad():
        raw = fitted.network_(fitted.scaling_(X)).squeeze(1).numpy()
    np.testing.assert_allclose(fitted.decision_function(X), raw, rtol=1e-6)


@pytest.mark.parametrize("metric", ["accuracy", "ap", "f1", "error", dl.tasks.CostMatrix(1 - torch.eye(3)), "topk@2"])
def test_many_classes(metric: Any) -> None:
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    fitted = DirectLossClassifier(metric, random_state=0).fit(X, names)
    assert fitted.decision_function(X).shape == (150, 3)
    # One class against the rest: the one in the middle cannot be told by a linear score.
    assert (fitted.predict(X) == names).mean() > (0.8 if metric in ("ap", "f1", "error") else 0.9)


def test_a_ranking_of_many_classes_ranks_by_the_softmax() -> None:
    X, y = load_digits(return_X_y=True)
    fitted = DirectLossClassifier("ap", epochs=100, random_state=0).fit(X[::2], y[::2])
    with torch.no_grad():
        raw = fitted.network_(fitted.scaling_(X[1::2])).double().softmax(1).log().numpy()
    np.testing.assert_allclose(fitted.decision_function(X[1::2]) + fitted.threshold_, raw, atol=1e-5)
    by_class = average_precision_score(np.eye(10)[y[1::2]], fitted.network_(fitted.scaling_(X[1::2])).detach())
    assert average_precision_score(np.eye(10)[y[1::2]], fitted.decision_function(X[1::2])) > by_class + 0.01


def test_two_classes_with_a_metric_of_many() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    fitted = DirectLossClassifier("accuracy", epochs=60, learning_rate=0.1, random_state=0).fit(X, y)
    assert fitted.decision_function(X).shape == (569,)
    assert fitted.score(X, y) > 0.95
    with pytest.raises(dl.DirectLossError, match="metric must be a metric of yes or no for two classes"):
        DirectLossClassifier(dl.tasks.CostMatrix(1 - torch.eye(2))).fit(X, y)


def test_batches_and_hidden_layers() -> None:
    X, y = imbalanced()
    for model in ("mlp", (16, 8)):
        fitted = DirectLossClassifier("ap", model=model, batch_size=500, **SHORT).fit(X, y)
        assert average_precision_score(y, fitted.decision_function(X)) > 5 * y.mean()


def test_same_seed_same_result_and_torchs_own_seed_is_left_alone() -> None:
    X, y = load_iris(return_X_y=True)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one = DirectLossClassifier(batch_size=40, **SHORT).fit(X, y)
    assert torch.equal(torch.rand(1), expected)
    other = clone(one).fit(X, y)
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    third = clone(one).set_params(random_state=1).fit(X, y)
    assert (one.decision_function(X) != third.decision_function(X)).any()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(one)).decision_function(X), one.decision_function(X))


def test_pipeline_and_grid_search() -> None:
    X, y = imbalanced()
    pipe = make_pipeline(StandardScaler(), DirectLossClassifier(**SHORT))
    grid = {"directlossclassifier__metric": ["ap", "f1"], "directlossclassifier__likelihood": ["auto", 1.0]}
    found = GridSearchCV(pipe, grid, scoring="average_precision", cv=2).fit(X, y)
    assert found.best_score_ > 5 * y.mean()
    assert len(found.cv_results_["params"]) == 4


# ---------------------------------------------------------------------- validation rows


@pytest.mark.parametrize("metric", ["ap", "f1", "error"])
def test_validation_rows_choose_the_epoch_and_the_threshold(metric: str) -> None:
    X, y = imbalanced()
    held = (X[1400:], y[1400:])
    fitted = DirectLossClassifier(metric, model=(16,), epochs=30, learning_rate=0.1, random_state=0).fit(
        X[:1400], y[:1400], eval_set=held
    )
    curve = fitted.validation_curve_
    assert curve[fitted.best_epoch_] == max(curve.values())
    scores, target = torch.from_numpy(fitted.decision_function(held[0])), torch.from_numpy(held[1])
    measure = {"ap": dl.metrics.average_precision, "f1": dl.metrics.f_beta, "error": dl.metrics.binary_accuracy}[metric]
    assert float(measure(scores, target).mean()) == pytest.approx(max(curve.values()), abs=1e-6)


def test_validation_rows_have_no_other_labels() -> None:
    with pytest.raises(dl.DirectLossError, match="eval_set must have labels that y has, such as 0, but it is 2"):
        DirectLossClassifier(**SHORT).fit(X3, Y3, eval_set=(X3, Y3 + 1))


def test_the_best_cut_is_the_best_of_all() -> None:
    draw = torch.Generator().manual_seed(5)
    for name in ("f1", "iou", "mcc", "kappa", "balanced_accuracy", "gmean", "error"):
        task = dl.tasks.get(name)
        for _ in range(10):
            scores = torch.randint(-4, 5, (12,), generator=draw).double()  # with ties
            target = (torch.rand(12, generator=draw) < 0.4).long()
            cut, value = best_cut(scores, target, task)
            cuts = [*(scores.unique() - 0.5).tolist(), float(scores.max()) + 0.5]
            values = [1 - float(task.loss(task.predict(scores - other), target).double().mean()) for other in cuts]
            assert value == pytest.approx(max(values), abs=1e-6)
            assert 1 - float(task.loss(task.predict(scores - cut), target).double().mean()) == pytest.approx(value)
            copies = torch.randint(0, 4, (12,), generator=draw)
            weighted = best_cut(scores, target, task, copies.double())[1]
            alike = best_cut(scores.repeat_interleave(copies), target.repeat_interleave(copies), task)[1]
            assert weighted == pytest.approx(alike)


@pytest.mark.parametrize("given", [False, True])
def test_early_stopping(given: bool) -> None:
    X, y = imbalanced()
    held = {"eval_set": [(X[1400:], y[1400:])]} if given else {}
    settings = {"epochs": 100, "early_stopping": True, "n_iter_no_change": 8, "random_state": 0}
    fitted = DirectLossClassifier("ap", **settings).fit(X[:1400], y[:1400], **held)
    assert len(fitted.loss_curve_) == fitted.n_iter_ == max(fitted.validation_curve_) < 100
    assert fitted.n_iter_ - fitted.best_epoch_ >= 8
    assert fitted.validation_curve_[fitted.best_epoch_] == max(fitted.validation_curve_.values())


# ---------------------------------------------------------------------- errors and threads


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"X": np.ones((5, 3))}, "inconsistent numbers of samples"),
        ({"y": np.zeros(6, int)}, "y must have at least two classes"),
    ],
)
def test_a_failed_fit_changes_nothing(more: dict[str, Any], message: str) -> None:
    fitted = DirectLossClassifier(epochs=2, random_state=0).fit(X3, Y3)
    before, scores = dict(vars(fitted)), fitted.decision_function(X3)
    with pytest.raises(ValueError, match=message):
        fitted.fit(**{"X": X3, "y": Y3, **more})
    assert vars(fitted).keys() == before.keys()
    assert all(vars(fitted)[name] is value for name, value in before.items())
    np.testing.assert_array_equal(fitted.decision_function(X3), scores)


def test_threads_do_not_disturb_each_other() -> None:
    X, y = imbalanced()
    before = torch.get_rng_state()

    def scores(seed: int) -> np.ndarray:
        made = DirectLossClassifier("ap", model="mlp", batch_size=500, epochs=3, random_state=seed)
        return made.fit(X, y).decision_function(X)

    alone = [scores(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(scores, range(4)))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


# ---------------------------------------------------------------------- tables as people have them


def people(rows: int = 600, seed: int = 0) -> tuple[Any, np.ndarray]:
    """A frame with a column of categories, which tells most, and a column with gaps, which tell something too."""
    draw = np.random.default_rng(seed)
    towns, size = draw.choice(["a", "b", "c", "d"], rows), draw.normal(size=rows)
    y = ((towns == "a") & (size > -1)) | (draw.random(rows) < 0.05)
    size[(draw.random(rows) < 0.3) & y] = np.nan
    return pd.DataFrame({"town": pd.Categorical(towns), "size": size}), y.astype(int)


def test_a_sparse_table_is_the_same_as_a_dense_one() -> None:
    X, y = imbalanced()
    X = np.where(np.abs(X - 1000) < 20, 0.0, X)
    X[::7, 3] = np.nan
    dense = DirectLossClassifier(**SHORT).fit(X, y)
    thin = DirectLossClassifier(**SHORT).fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(thin.decision_function(sparse.coo_array(X)), dense.decision_function(X), rtol=1e-5)


def test_a_default_one_hot_encoder_and_its_grid_search() -> None:
    frame, y = people()
    pipe = make_pipeline(OneHotEncoder(), DirectLossClassifier(**SHORT))
    found = GridSearchCV(pipe, {"directlossclassifier__epochs": [5, 20]}, scoring="average_precision", cv=2)
    assert found.fit(frame[["town"]].astype(str), y).best_score_ > 2 * y.mean()


def test_categories_and_gaps_as_gradient_boosting_takes_them() -> None:
    (frame, y), (unseen, wanted) = people(), people(seed=1)
    fitted = DirectLossClassifier("ap", random_state=0).fit(frame, y)
    boosted = HistGradientBoostingClassifier(random_state=0).fit(frame, y)
    ours = average_precision_score(wanted, fitted.decision_function(unseen))
    assert ours > average_precision_score(wanted, boosted.predict_proba(unseen)[:, 1]) - 0.05
    new = unseen.assign(town="elsewhere")
    assert np.isfinite(fitted.decision_function(new)).all()


@pytest.mark.parametrize("odd", [["x"] * 40, pd.date_range("2024-01-01", periods=40)], ids=["words", "dates"])
@pytest.mark.parametrize("categories", [True, False])
def test_columns_that_are_no_numbers_are_named(odd: Any, categories: bool) -> None:
    frame, y = people(40)
    frame = (frame if categories else frame.drop(columns="town")).assign(odd=odd)
    with pytest.raises(dl.DirectLossError, match=r"X must hold numbers.* with dates or words in \['odd'\]. Turn dates"):
        DirectLossClassifier().fit(frame, y)


def test_huge_and_constant_columns() -> None:
    X, y = imbalanced()
    X = np.hstack([X, np.full((len(y), 1), 7.0)])
    fitted = DirectLossClassifier(**SHORT).fit(X, y)
    far = X * np.where(np.arange(len(y)) % 2, 1e300, -1e300)[:, None]
    assert np.isfinite(fitted.decision_function(far)).all()
    moved = X + np.append(np.zeros(20), 5.0)
    np.testing.assert_array_equal(fitted.decision_function(moved), fitted.decision_function(X))
    assert np.isfinite(clone(fitted).fit(far, y).decision_function(far)).all()


def test_labels_have_no_gaps() -> None:
    frame, y = people(40)
    labels = np.where(y, "yes", "no").astype(object)
    labels[3] = None
    with pytest.raises(dl.DirectLossError, match="y must have a label for each row, but it is without one in 1 of 40"):
        DirectLossClassifier().fit(frame, labels)


@pytest.mark.parametrize("metric", ["ap", "f1", "accuracy"])
def test_several_labels_per_row_by_a_classifier_for_each(metric: str) -> None:
    X, Y = make_multilabel_classification(300, n_classes=4, random_state=0)
    fitted = OneVsRestClassifier(DirectLossClassifier(metric, epochs=60, learning_rate=0.1, random_state=0)).fit(X, Y)
    assert fitted.decision_function(X).shape == fitted.predict_proba(X).shape == (300, 4)
    assert (fitted.predict(X) == Y).mean() > 0.8


# ---------------------------------------------------------------------- probabilities and weights


@pytest.mark.parametrize("metric", ["ap", "f1", "auc", "accuracy"])
def test_probabilities_are_calibrated(metric: str) -> None:
    X, y = make_classification(4000, 10, weights=[0.8], flip_y=0.1, class_sep=0.7, random_state=1)
    fitted = DirectLossClassifier(metric, random_state=0).fit(X[:2000], y[:2000])
    usual = LogisticRegression().fit(X[:2000], y[:2000])
    ours, other = fitted.predict_proba(X[2000:])[:, 1], usual.predict_proba(X[2000:])[:, 1]
    # Brier score: half a hundredth above logistic regression, which is trained for it.
    assert brier_score_loss(y[2000:], ours) < brier_score_loss(y[2000:], other) + 0.005
    assert fitted.predict_proba(X[:2000])[:, 1].mean() == pytest.approx(y[:2000].mean(), abs=0.01)
    assert (np.argsort(ours) == np.argsort(fitted.decision_function(X[2000:]).astype(np.float64))).mean() > 0.99


@pytest.mark.parametrize("metric", ["ap", "f1", "accuracy"])
@pytest.mark.parametrize("classes", [2, 3])
def test_thresholds_of_the_metric_do_not_shift_the_probabilities(metric: str, classes: int) -> None:
    """The mean probability of each class is about its share, although validation rows moved the thresholds."""
    shares = [0.8, 0.2] if classes == 2 else [0.7, 0.2, 0.1]
    X, y = make_classification(
        4000, 10, n_classes=classes, n_informative=6, weights=shares, flip_y=0.1, class_sep=0.7, random_state=1
    )
    fitted = DirectLossClassifier(metric, epochs=60, learning_rate=0.1, early_stopping=True, random_state=0).fit(
        X[:2000], y[:2000]
    )
    found, truth = fitted.predict_proba(X[2000:]).mean(0), np.bincount(y[2000:]) / 2000
    np.testing.assert_allclose(found, truth, atol=0.04)  # 200 validation rows: two deviations of a share of 0.1
    if (metric, classes) == ("ap", 3):
        assert (fitted.predict_proba(X).argmax(1) == fitted.predict(X)).all()


@pytest.mark.parametrize("metric", ["ap", "auc", "error"])
def test_weights_move_the_decision_to_the_rows_that_count(metric: str) -> None:
    """Two groups want opposite directions; the weight says which one is heard."""
    draw = np.random.default_rng(0)
    X, first = draw.normal(size=(400, 2)), np.arange(400) < 200
    y = np.where(first, X[:, 0] > 0, X[:, 0] < 0).astype(int)
    for heard in (first, ~first):
        weight = np.where(heard, 1.0, 0.05)
        fitted = DirectLossClassifier(metric, epochs=60, learning_rate=0.1, random_state=0).fit(
            X, y, sample_weight=weight
        )
        assert (fitted.predict(X) == y)[heard].mean() > 0.9


@pytest.mark.parametrize("metric", ["accuracy", "f1", "ap", "auc"])
def test_weights_count_where_held_out_rows_choose(metric: str) -> None:
    """Half of the rows have labels the other way round and hardly any weight."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(1200, 3))
    truth = X[:, 0] > 0.5
    light = draw.random(1200) < 0.6
    y, weight = truth ^ light, np.where(light, 0.01, 1.0)
    given = {"eval_set": (X[800:], y[800:], weight[800:])}
    for more in ({}, given):
        fitted = DirectLossClassifier(metric, early_stopping=True, random_state=0)
        fitted.fit(X[:800], y[:800], sample_weight=weight[:800], **more)
        assert (fitted.predict(X) == truth).mean() > 0.8  # about 30 of the held-out rows count


@pytest.mark.parametrize("labels", [[0, 1], [-1, 1], [False, True], ["False", "True"], [0.0, 1.0]])
def test_one_or_true_is_positive_however_frequent(labels: list[Any]) -> None:
    assert positive_class(labels, [1, 9]) == 1
    assert positive_class(labels, [1, 9], labels[0]) == 0
    assert positive_class(["a", "b"], [1, 9]) == 0


def test_the_positive_class_can_be_chosen() -> None:
    """F1 of the rare class, whose name comes first: the rarer one of two words is positive."""
    X, y = imbalanced()
    names = np.array(["usual", "rare"])[y]
    settings = {"metric": "f1", "epochs": 60, "learning_rate": 0.1, "early_stopping": True, "random_state": 0}
    rare = DirectLossClassifier(**settings).fit(X, names)
    named = DirectLossClassifier(**settings, pos_label="rare").fit(X, names)
    np.testing.assert_array_equal(named.decision_function(X), rare.decision_function(X))
    usual = DirectLossClassifier(**settings, pos_label="usual").fit(X, names)
    assert (usual.predict(X) != rare.predict(X)).any()
    assert list(rare.classes_) == ["rare", "usual"]
    assert ((rare.decision_function(X) > 0) == (rare.predict(X) == "usual")).all()
    same = DirectLossClassifier(**settings).fit(X, y)
    np.testing.assert_array_equal(rare.predict(X) == "rare", same.predict(X) == 1)
    np.testing.assert_allclose(rare.predict_proba(X)[:, 0], same.predict_proba(X)[:, 1], atol=1e-3)
    assert rare.threshold_ == pytest.approx(same.threshold_)


def test_known_flips_correct_threshold_and_probabilities() -> None:
    """A fifth of the labels is wrong: F1 of the right ones, threshold and probabilities from wrong ones."""
    X, y = make_classification(4000, 8, weights=[0.9], flip_y=0, class_sep=1.5, random_state=3)
    wrong = y ^ (np.random.default_rng(0).random(4000) < 0.2)
    values, shares = [], []
    for flips in (0.0, 0.2):
        fitted = DirectLossClassifier("f1", flips=flips, early_stopping=True, validation_fraction=0.5, random_state=0)
        fitted.fit(X[:2000], wrong[:2000])
        values.append(f1_score(y[2000:], fitted.predict(X[2000:])))
        shares.append(fitted.predict_proba(X[2000:])[:, 1].mean())
    assert values[1] > max(0.75, values[0])  # the worst decision rule, all yes, has 0.2
    assert shares[0] == pytest.approx(wrong.mean(), abs=0.03)
    assert shares[1] == pytest.approx(y.mean(), abs=0.03)
    with pytest.raises(dl.DirectLossError, match="flips must be 0 for more than two classes"):
        DirectLossClassifier("f1", flips=0.2, epochs=2).fit(X3, np.arange(6) % 3)


def test_class_weights() -> None:
    X, y = imbalanced()
    recall = {}
    for weight in (None, "balanced", {0: 1.0, 1: 100.0}):
        fitted = DirectLossClassifier(
            "accuracy", epochs=60, learning_rate=0.1, class_weight=weight, random_state=0
        ).fit(X, y)
        recall[str(weight)] = fitted.predict(X)[y == 1].mean()
    assert recall["None"] + 0.2 < recall["balanced"] <= recall["{0: 1.0, 1: 100.0}"]


# ---------------------------------------------------------------------- ranking


def searches(seed: int = 0, lists: int = 40, items: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grades 0 to 3 that depend on a difference to the list's own mean, so that lists matter."""
    draw = np.random.default_rng(seed)
    qid = np.repeat(np.arange(lists), items)
    own = draw.normal(size=(lists * items, 6))
    level = 5 * draw.normal(size=(lists, 1))[qid]
    useful = own[:, 0] + 0.5 * own[:, 1] + 0.5 * draw.normal(size=len(qid))
    return np.hstack([own + level, level]), np.clip(np.round(useful + 1), 0, 3), qid


def test_ranker_learns_grades_in_lists() -> None:
    (X, y, qid), (unseen, wished, names) = searches(0), searches(1)
    ranker = DirectLossRanker("ndcg@5", random_state=0).fit(X, y, qid=qid)
    assert ranker.score(unseen, wished, qid=names) > 0.8
    scores = ranker.predict(unseen).reshape(40, 12)
    expected = ndcg_score(2 ** wished.reshape(40, 12) - 1, scores, k=5)
    assert ranker.score(unseen, wished, qid=names) == pytest.approx(expected, abs=1e-5)


def test_the_ranker_keeps_the_best_epoch_and_stops_early() -> None:
    (X, y, qid), (unseen, wished, names) = searches(0), searches(1)
    settings = {"epochs": 60, "learning_rate": 0.1, "early_stopping": True, "n_iter_no_change": 8, "random_state": 0}
    ranker = DirectLossRanker("ndcg@5", **settings).fit(X, y, qid=qid, eval_set=(unseen, wished), eval_qid=names)
    assert ranker.n_iter_ < 60
    assert ranker.score(unseen, wished, qid=names) == pytest.approx(max(ranker.validation_curve_.values()))
    aside = DirectLossRanker("ndcg@5", **settings).fit(sparse.csr_array(X), y, qid=qid)
    assert aside.validation_curve_
    assert aside.score(X, y, qid=qid) > 0.75


def test_order_of_rows_and_names_of_lists_do_not_matter() -> None:
    X, y, qid = searches()
    plain = {**SHORT, "epsilon": 1.0}  # without noise, whose draws would follow the order of the rows
    by_name = DirectLossRanker(**plain).fit(X, y, qid=qid).predict(X)
    order = np.random.default_rng(0).permutation(len(y))
    mixed = DirectLossRanker(**plain).fit(X[order], y[order], qid=np.char.mod("q%03d", qid[order])).predict(X)
    # A column that is constant in each list moves whole lists, by rounding alone: the order is in the differences.
    inside = [scores.reshape(40, 12) - scores.reshape(40, 12).mean(1, keepdims=True) for scores in (by_name, mixed)]
    np.testing.assert_allclose(*inside, atol=1e-4)


@pytest.mark.filterwarnings("ignore::directloss.DirectLossWarning")  # some lists have nothing that is relevant
@pytest.mark.parametrize("metric", ["ap", "mrr", "precision@3", dl.tasks.AUC()], ids=repr)
def test_ranker_with_yes_or_no(metric: Any) -> None:
    X, y, qid = searches()
    ranker = DirectLossRanker(metric, batch_size=10, **SHORT).fit(X, y >= 2, qid=qid)
    assert ranker.score(X, y >= 2, qid=qid) > 0.6


def test_many_rows_without_lists_are_one_list_with_a_warning() -> None:
    X, y, _ = searches(lists=100)
    ranker = DirectLossRanker("ap", epochs=1, random_state=0)
    with pytest.warns(dl.DirectLossWarning, match=r"All 1200 rows are ranked as one list: qid is not") as found:
        ranker.fit(X, y >= 2)
    assert len(found) == 1
    np.testing.assert_array_equal(ranker.predict(X), clone(ranker).fit(X, y >= 2, qid=np.zeros(1200)).predict(X))
    ranker.fit(X[:1000], y[:1000] >= 2)  # a list of this length is common


def test_ranker_in_cross_validation_with_lists() -> None:
    X, y, qid = searches()
    with config_context(enable_metadata_routing=True):
        ranker = DirectLossRanker("ndcg@5", random_state=0).set_fit_request(qid=True).set_score_request(qid=True)
        found = cross_val_score(ranker, X, y, params={"qid": qid, "groups": qid}, cv=GroupKFold(3))
    assert found.min() > 0.7


# ---------------------------------------------------------------------- wrong input


X3, Y3 = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "acuracy"}, "metric must be a known name"),
        ({"metric": "chain"}, "metric must be a metric of rows"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, but it is 0"),
        ({"learning_rate": -1}, "learning_rate must be positive and finite, but it is -1"),
        ({"weight_decay": -1}, "weight_decay must be a finite number of at least 0, but it is -1"),
        ({"n_iter_no_change": 0}, "n_iter_no_change must be a whole number of at least 1"),
        ({"validation_fraction": 1.0}, "validation_fraction must be a share of the rows, between 0 and 1"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"model": "deep"}, 'model must be "linear", "mlp", or widths of hidden layers'),
        ({"model": (8, 0)}, 'model must be "linear", "mlp", or widths of hidden layers'),
        ({"model": nn.Linear(2, 1)}, "model must be .* For a network of your own use skorch"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"sign": 3}, r"sign must be \+1"),
        ({"pos_label": "yes"}, "pos_label must be one of two classes, but it is 'yes'"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(dl.DirectLossError, match=message):
        DirectLossClassifier(**{"epochs": 2, **settings}).fit(X3, Y3)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"eval_set": X3}, r"eval_set must be rows and labels, \(X, y\), .*but it is a ndarray"),
        ({"eval_set": (X3, Y3 + 1)}, "eval_set must have labels that y has, such as 0, but it is 2"),
        ({"eval_set": (X3, 0 * Y3)}, "eval_set or validation_fraction must give rows of more than one label"),
    ],
)
def test_bad_validation_rows(more: dict[str, Any], message: str) -> None:
    with pytest.raises(dl.DirectLossError, match=message):
        DirectLossClassifier(epochs=2).fit(X3, Y3, **more)


def test_labels_of_several_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="y should be a 1d array"):
        DirectLossClassifier(epochs=2).fit(X3, np.column_stack([Y3, Y3 + 1]))


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"qid": [0, 1]}, "qid must have one entry for each of the 6 rows"),
        ({"qid": [0, 0, 0, 1, np.nan, np.nan]}, "qid must name the list of each row, .* in 2 of 6 rows"),
        ({"qid": np.array(["a", "a", "a", "b", "b", None])}, "qid must name the list of each row, .* in 1 of 6 rows"),
    ],
)
def test_bad_lists(lists: dict[str, Any], message: str) -> None:
    with pytest.raises(dl.DirectLossError, match=message):
        DirectLossRanker(epochs=2).fit(X3, Y3, **lists)


@pytest.mark.parametrize(
    ("metric", "grades", "message"),
    [
        ("error", Y3, "metric must be a metric of rankings"),
        ("f1", Y3, "metric must be a metric of rankings"),
        ("ap", 2 * Y3, "target must hold only 0 or 1"),
        ("ndcg", Y3 - 1, "y must hold grades of relevance, at least 0, but it is -1"),
    ],
)
def test_bad_relevance(metric: str, grades: np.ndarray, message: str) -> None:
    with pytest.raises(dl.DirectLossError, match=message):
        DirectLossRanker(metric, epochs=2).fit(X3, grades)


@pytest.mark.filterwarnings("ignore::directloss.DirectLossWarning")
@pytest.mark.parametrize("metric", ["dcg", "ap", "precision@3"])
def test_the_rankers_score_is_the_metric(metric: str) -> None:
    X, y, qid = searches()
    ranker = DirectLossRanker(metric, batch_size=10, **SHORT).fit(X, y >= 2, qid=qid)
    wished = (torch.from_numpy(y).reshape(40, 12) >= 2).long()
    scores = torch.from_numpy(ranker.predict(X)).reshape(40, 12)
    measures = {
        "dcg": dl.metrics.dcg,
        "ap": dl.metrics.average_precision,
        "precision@3": partial(dl.metrics.precision_at_k, k=3),
    }
    both = wished.any(1) & ~wished.all(1)
    wanted = measures[metric](scores, wished)[both].mean().item()
    assert ranker.score(X, y >= 2, qid=qid) == pytest.approx(wanted, abs=1e-5)
    assert math.isnan(ranker.score(X, np.zeros_like(y), qid=qid))


@pytest.mark.parametrize("metric", ["ap", "f1"])
def test_equal_weights_of_any_size_change_nothing(metric: str) -> None:
    plain = DirectLossClassifier(metric, epochs=3, random_state=0).fit(X3, Y3 > 0)
    tiny = DirectLossClassifier(metric, epochs=3, random_state=0).fit(X3, Y3 > 0, sample_weight=np.full(len(Y3), 1e-3))
    np.testing.assert_allclose(tiny.predict_proba(X3), plain.predict_proba(X3), rtol=1e-6)


def test_lists_that_tell_nothing_cannot_validate_a_ranker() -> None:
    lists = {"qid": np.arange(len(Y3)) // 10}
    with pytest.raises(dl.DirectLossError, match="eval_set or validation_fraction must give rows of more than one"):
        DirectLossRanker(epochs=2).fit(X3, Y3, **lists, eval_set=(X3, 0 * Y3), eval_qid=lists["qid"])
