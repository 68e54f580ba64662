"""The estimators in scikit-learn's own checks, in its tools, and against logistic regression."""

from __future__ import annotations

import math
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, ndcg_score
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Tensor, nn

import directloss as dl
from directloss.integrations._fitting import (
    Scaling,
    best_cut,
    make_network,
    scores_of,
    shuffled,
    start_at_base_rate,
)
from directloss.integrations._lists import Lists
from directloss.integrations.sklearn import DirectLossClassifier, DirectLossRanker

SHORT = {"epochs": 20, "random_state": 0}


@parametrize_with_checks(
    [
        DirectLossClassifier(epochs=20),
        DirectLossClassifier("accuracy", epochs=60),
        DirectLossRanker(epochs=6),
    ]
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
    fitted = DirectLossClassifier("ap", warm_up=0.0, epochs=60, random_state=0).fit(X, y)
    assert len(fitted.loss_curve_) == fitted.n_iter_ == 60
    assert fitted.loss_curve_[-1] < 0.8 * fitted.loss_curve_[0]
    found = average_precision_score(y, fitted.decision_function(X))
    assert found == pytest.approx(1 - fitted.loss_curve_[-1], abs=0.02)  # the curve is one step behind


@pytest.mark.parametrize("metric", ["ap", "auc", "ndcg@20"])
def test_a_ranking_is_cut_where_precision_equals_recall(metric: str) -> None:
    X, y = imbalanced()
    fitted = DirectLossClassifier(metric, **SHORT).fit(X, y)
    assert fitted.predict(X).sum() == y.sum()
    assert ((fitted.decision_function(X) > 0) == fitted.predict(X)).all()


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


@pytest.mark.parametrize("metric", ["accuracy", dl.tasks.CostMatrix(1 - torch.eye(2))], ids=repr)
def test_two_classes_with_a_metric_of_many(metric: Any) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    fitted = DirectLossClassifier(metric, epochs=60, random_state=0).fit(X, y)
    assert fitted.decision_function(X).shape == (569,)
    assert fitted.score(X, y) > 0.95


def test_batches_and_networks_of_ones_own() -> None:
    X, y = imbalanced()

    def wide(columns: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(columns, 8), nn.Tanh(), nn.Linear(8, outputs), nn.Flatten(0))

    for model in ("mlp", wide):
        fitted = DirectLossClassifier("ap", model=model, batch_size=500, **SHORT).fit(X, y)
        assert average_precision_score(y, fitted.decision_function(X)) > 5 * y.mean()


def test_batches_have_the_share_of_each_class() -> None:
    labels = torch.cat([torch.zeros(900), torch.ones(100)])
    batches = list(shuffled(100, labels))
    assert sorted(torch.cat(batches).tolist()) == list(range(1000))
    assert [len(batch) for batch in batches] == [100] * 10
    assert all(6 <= labels[batch].sum() <= 14 for batch in batches)
    assert [batch.tolist() for batch in shuffled(None, labels)] == [list(range(1000))]


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


def test_warm_start_goes_on() -> None:
    X, y = imbalanced()
    once = DirectLossClassifier("ap", epochs=30, warm_start=True, random_state=0).fit(X, y)
    before, curve = once.network_, once.loss_curve_
    again = once.fit(X, y)
    assert again.network_ is before
    assert len(again.loss_curve_) == 30  # no warm-up any more
    assert again.loss_curve_[0] == pytest.approx(curve[-1], abs=0.05)
    anew = DirectLossClassifier("ap", epochs=30, random_state=0).fit(X, y)
    assert anew.fit(X, y).loss_curve_ == curve


def test_pipeline_and_grid_search() -> None:
    X, y = imbalanced()
    pipe = make_pipeline(StandardScaler(), DirectLossClassifier(**SHORT))
    grid = {"directlossclassifier__metric": ["ap", "f1"], "directlossclassifier__epsilon": ["auto", 1.0]}
    found = GridSearchCV(pipe, grid, scoring="average_precision", cv=2).fit(X, y)
    assert found.best_score_ > 5 * y.mean()
    assert len(found.cv_results_["params"]) == 4


# ---------------------------------------------------------------------- validation rows


@pytest.mark.parametrize("metric", ["ap", "f1", "error"])
def test_validation_rows_choose_the_epoch_and_the_threshold(metric: str) -> None:
    X, y = imbalanced()
    seen: list[int] = []
    held = (X[1400:], y[1400:])
    fitted = DirectLossClassifier(metric, model=(16,), epochs=30, random_state=0).fit(
        X[:1400], y[:1400], validation=held, report=lambda epoch, value: seen.append(epoch)
    )
    curve = fitted.validation_curve_
    assert seen == list(curve)
    assert curve[fitted.best_epoch_] == max(curve.values())
    scores, target = torch.from_numpy(fitted.decision_function(held[0])), torch.from_numpy(held[1])
    measure = {"ap": dl.metrics.average_precision, "f1": dl.metrics.f_beta, "error": dl.metrics.binary_accuracy}[metric]
    assert float(measure(scores, target).mean()) == pytest.approx(max(curve.values()), abs=1e-6)


def test_what_report_raises_ends_the_training() -> None:
    def stop(epoch: int, value: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DirectLossClassifier(**SHORT).fit(X3, Y3, validation=(X3, Y3), report=stop)
    with pytest.raises(dl.DirectLossError, match="validation must have a label of y for each of its rows"):
        DirectLossClassifier(**SHORT).fit(X3, Y3, validation=(X3, Y3 + 1))


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


def test_cross_entropy_starts_at_the_base_rate() -> None:
    network = make_network((8,), 3, 1)
    start_at_base_rate(network, torch.tensor([[1.0]] + [[0.0]] * 49))
    assert float(torch.sigmoid(network[-1].bias.detach())) == pytest.approx(0.02)


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
    assert ranker.score(unseen, wished, qid=names) > 0.85
    scores = ranker.predict(unseen).reshape(40, 12)
    expected = ndcg_score(2 ** wished.reshape(40, 12) - 1, scores, k=5)
    assert ranker.score(unseen, wished, qid=names) == pytest.approx(expected, abs=1e-5)


def test_order_of_rows_and_way_of_naming_lists_do_not_matter() -> None:
    X, y, qid = searches()
    plain = {**SHORT, "noise": 0}  # whose draws would follow the order of the rows
    by_size = DirectLossRanker(**plain).fit(X, y, group=[12] * 40).predict(X)
    by_name = DirectLossRanker(**plain).fit(X, y, qid=qid).predict(X)
    order = np.random.default_rng(0).permutation(len(y))
    mixed = DirectLossRanker(**plain).fit(X[order], y[order], qid=np.char.mod("q%03d", qid[order])).predict(X)
    np.testing.assert_array_equal(by_size, by_name)
    # A column that is constant in each list moves whole lists, by rounding alone: the order is in the differences.
    inside = [scores.reshape(40, 12) - scores.reshape(40, 12).mean(1, keepdims=True) for scores in (by_name, mixed)]
    np.testing.assert_allclose(*inside, atol=1e-4)


@pytest.mark.filterwarnings("ignore::directloss.DirectLossWarning")  # some lists have nothing that is relevant
@pytest.mark.parametrize("metric", ["ap", "mrr", "precision@3", dl.tasks.AUC()], ids=repr)
def test_ranker_with_yes_or_no(metric: Any) -> None:
    X, y, qid = searches()
    ranker = DirectLossRanker(metric, batch_size=10, **SHORT).fit(X, y >= 2, qid=qid)
    assert ranker.score(X, y >= 2, qid=qid) > 0.6


def test_lists_of_different_length_are_each_a_problem() -> None:
    lists = Lists.of(6, group=[1, 3, 2])
    assert lists.pad(torch.arange(6)).tolist() == [[0, 0, 0], [1, 2, 3], [4, 5, 0]]
    some = lists.take(torch.tensor([2, 0]))
    assert (some.rows.tolist(), some.longest) == ([4, 5, 0], 2)
    assert some.pad(torch.tensor([7, 8, 9])).tolist() == [[7, 8], [9, 0]]


def test_ranker_in_cross_validation_with_lists() -> None:
    X, y, qid = searches()
    with config_context(enable_metadata_routing=True):
        ranker = DirectLossRanker("ndcg@5", random_state=0).set_fit_request(qid=True).set_score_request(qid=True)
        found = cross_val_score(ranker, X, y, params={"qid": qid, "groups": qid}, cv=GroupKFold(3))
    assert found.min() > 0.7


# ---------------------------------------------------------------------- wrong input


def test_extreme_columns_are_scaled() -> None:
    rows = np.array([[1e300, 3.0, 1e-300], [-1e300, 3.0, 2e-300], [0.0, 3.0, 0.0]])
    scaled = Scaling.of(rows)(rows)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(scaled.std(0, correction=0), torch.tensor([1.0, 0.0, 1.0]))


X3, Y3 = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "acuracy"}, "metric must be a known name"),
        ({"metric": "chain"}, "metric must be a metric of items"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, but it is 0"),
        ({"learning_rate": -1}, "learning_rate must be positive and finite, but it is -1"),
        ({"weight_decay": -1}, "weight_decay must be a number of at least 0, but it is -1"),
        ({"warm_up": 2}, "warm_up must be a share of the epochs, from 0 to 1, but it is 2"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"model": "deep"}, 'model must be "linear", "mlp", widths of hidden layers'),
        ({"model": (8, 0)}, 'model must be "linear", "mlp", widths of hidden layers'),
        ({"model": nn.Linear(2, 1)}, "model must be .* but it is a Linear. Write model=lambda"),
        ({"model": lambda: None}, r"model must be .* \(too many positional arguments"),
        ({"model": lambda columns, outputs: 3}, r"model\(columns, outputs\) must be a torch.nn.Module"),
        ({"model": lambda columns, outputs: nn.Linear(columns, 7)}, r"must have shape \(6, 1\)"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"sign": 3}, r"sign must be \+1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(dl.DirectLossError, match=message):
        DirectLossClassifier(**{"epochs": 2, "warm_up": 0.0, **settings}).fit(X3, Y3)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"group": [3, 3], "qid": [0] * 6}, "group must be left out where qid is given"),
        ({"group": [3, 4]}, "group must hold the sizes of lists with 6 rows in all"),
        ({"group": [6, 0]}, "group must hold the sizes"),
        ({"group": [3.0, 3.0]}, "group must hold the sizes"),
        ({"qid": [0, 1]}, "qid must have one entry for each of the 6 rows"),
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
        ("ndcg", Y3 - 1, "y must be at least 0, a grade of relevance, but it is -1 at the least"),
    ],
)
def test_bad_relevance(metric: str, grades: np.ndarray, message: str) -> None:
    with pytest.raises(dl.DirectLossError, match=message):
        DirectLossRanker(metric, epochs=2).fit(X3, grades)


def test_one_class_and_another_number_of_classes_are_refused() -> None:
    with pytest.raises(dl.DirectLossError, match="y must have at least two classes"):
        DirectLossClassifier(epochs=2).fit(X3, np.zeros(6, int))
    fitted = DirectLossClassifier(epochs=2, warm_start=True).fit(X3, Y3)
    with pytest.raises(dl.DirectLossError, match="y must have the 1 outputs of the fit before"):
        fitted.fit(X3, np.arange(6) % 3)


def test_network_may_return_one_score_per_row() -> None:
    rows = torch.zeros(3, 2)
    network = nn.Sequential(make_network("linear", 2, 1), nn.Flatten(0))
    flat: Tensor = scores_of(network, rows, 1)
    assert flat.shape == (3, 1)


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
