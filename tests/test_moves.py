"""Moves: the gradient is that of the expected metric, for every registered name, and the same whenever it is asked for.

The metrics are those of tests/oracle, in plain Python; expectations are enumerated or integrated exactly.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from itertools import permutations, product
from typing import Any

import pytest
import torch
from numpy.polynomial import Polynomial
from sklearn.metrics import average_precision_score, balanced_accuracy_score, f1_score, matthews_corrcoef, roc_auc_score
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import directloss as dl
from directloss import kernels, tasks
from directloss.moves import Lists, move_items
from directloss.noise import Noise
from directloss.tasks._counting import corrected
from tests.oracle import ranking as oracle
from tests.oracle.confusion import METRICS, lenient, lenient_tensors

pytestmark = pytest.mark.filterwarnings("ignore:.*problems have no loss", "ignore:Every decision is yes")

Value = Callable[[list[Any]], float]


def graded(k: int) -> Value:
    """1 - NDCG of grades from top to bottom."""

    def gained(grades: list[int]) -> float:
        return sum((2**grade - 1) / math.log2(rank + 2) for rank, grade in enumerate(grades[:k]))

    return lambda grades: 1 - gained(grades) / gained(sorted(grades, reverse=True))


# The loss of the labels from top to bottom.
RANKINGS: dict[str, Value] = {
    "ap": oracle.ap,
    "ndcg": oracle.ndcg(99),
    "ndcg@2": oracle.ndcg(2),
    "dcg": oracle.dcg(99),
    "dcg@3": oracle.dcg(3),
    "precision@2": oracle.precision(2),
    "recall@1": oracle.recall(1),
    "mrr": oracle.reciprocal_rank,
    "auc": oracle.partial_auc(1.0),
    "pauc": oracle.partial_auc(0.1),
    "pauc@0.7": oracle.partial_auc(0.7),
    "recall_at_fpr": oracle.recall_at_fpr(0.01),
    "recall_at_fpr@0.5": oracle.recall_at_fpr(0.5),
    "precision_at_recall": oracle.precision_at_recall(0.9),
    "precision_at_recall@0.5": oracle.precision_at_recall(0.5),
    "graded_ndcg": graded(99),
    "graded_ndcg@2": graded(2),
    "own": oracle.geometric,
}
CLASSES = {"accuracy", "topk", "error"}  # in closed form, below
OWN = {"own": tasks.PositionTask(oracle.rank_biased), "own counts": tasks.CountMetric(lenient_tensors)}
DECISIONS = {**METRICS, "own counts": lenient}


def test_every_name_with_moves_is_tried() -> None:
    tried = {name.split("@")[0] for name in (*RANKINGS, *DECISIONS, *CLASSES)}
    assert {name for name in dl.tasks.names() if hasattr(dl.tasks.get(name), "expected")} <= tried


def task_of(name: str) -> Any:
    return OWN.get(name, name)


def step(scores: Tensor, target: Tensor, task: Any, seed: int = 0, **options: Any) -> tuple[Tensor, Tensor]:
    """Losses, and the gradient of their sum; of the metric alone unless a likelihood is named."""
    leaf = scores.detach().clone().requires_grad_()
    options = {"likelihood": 0, "reduction": "none", **options}
    losses = dl.direct_loss(leaf, target, task, generator=torch.Generator().manual_seed(seed), **options)
    (slope,) = torch.autograd.grad(losses.sum(), leaf)
    return losses.detach(), slope


def labels_of(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Labels with at least one of each class in every list."""
    target = torch.randint(4 if name.startswith("graded") else 2, shape, generator=generator)
    target[..., 0], target[..., 1] = 1, 0
    return target.gather(-1, torch.rand(shape, generator=generator).argsort(-1))


# ---------------------------------------------------------------------------------------------- one draw, by hand


def moved_by_hand(value: Callable[[Tensor], float], scores: Tensor, noisy: Tensor, h: float) -> Tensor:
    """For each item alone: the value with it h higher, minus that with it h lower, over 2h."""
    slopes = []
    for d in range(len(scores)):
        high, low = noisy.clone(), noisy.clone()
        high[d], low[d] = scores[d] + h, scores[d] - h
        slopes.append((value(high) - value(low)) / (2 * h))
    return torch.tensor(slopes, dtype=torch.float64)


def ranked(loss: Value, target: Tensor) -> Callable[[Tensor], float]:
    return lambda scores: loss(target[scores.argsort(descending=True)].tolist())


@pytest.mark.filterwarnings("ignore:All 2 items of a list are among the first k")
@pytest.mark.parametrize("backend", ["auto", "tensor"])
@pytest.mark.parametrize("name", RANKINGS)
def test_one_draw_is_moving_each_item_by_hand(name: str, backend: str, generator: torch.Generator) -> None:
    for trial, (b, n) in enumerate([(1, 2), (3, 5), (2, 9), (1, 17)]):
        dtype, h = (torch.float64, torch.float32)[trial % 2], (0.5, 3.0)[trial // 2]
        scores = torch.randn(b, n, generator=generator, dtype=dtype)
        if trial % 2:
            scores = (2 * scores).round() / 2  # ties
        target = labels_of(name, (b, n), generator)
        mask = torch.rand(b, n, generator=generator) < (0.7 if trial > 1 else 2)
        noisy = Noise(h, 1, torch.Generator().manual_seed(trial)).perturb(scores, "uniform")[0]
        spoiled = torch.where(mask, scores, torch.nan)
        with kernels.use(backend):
            losses, slope = step(spoiled, target, task_of(name), trial, noise=h, samples=1, mask=mask)
        assert not slope[~mask].any()
        for row, keep in enumerate(mask):
            labels = target[row, keep]
            wanted = torch.zeros(int(keep.sum()), dtype=torch.float64)
            if labels.unique().numel() > 1:
                hand = ranked(RANKINGS[name], labels)
                wanted = moved_by_hand(hand, scores[row, keep], noisy[row, keep], h)
                if scores[row, keep].unique().numel() == len(labels):
                    assert losses[row].item() == pytest.approx(hand(scores[row, keep]), abs=1e-6)
            torch.testing.assert_close(slope[row, keep].double(), wanted, rtol=1e-5, atol=1e-6)


def weighted_ap(scores: Tensor, target: Tensor, weight: Tensor) -> float:
    return 1 - float(average_precision_score(target, scores, sample_weight=weight))


def weighted_auc(scores: Tensor, target: Tensor, weight: Tensor) -> float:
    return 1 - float(roc_auc_score(target, scores, sample_weight=weight))


def weighted_recall_at_fpr(scores: Tensor, target: Tensor, weight: Tensor) -> float:
    order = scores.argsort(descending=True)
    hits, alarms = ((weight * (target == label))[order].double() for label in (1, 0))
    fits = alarms.cumsum(0) <= (0.4 + 1e-9) * alarms.sum()
    return 1 - float(hits[fits].sum() / hits.sum())


def weighted_partial_auc(scores: Tensor, target: Tensor, weight: Tensor) -> float:
    """The curve is a step at each relevant item, above its share of the irrelevant weight."""
    order = scores.argsort(descending=True)
    hits, alarms = ((weight * (target == label))[order].double() for label in (1, 0))
    room = (0.4 - alarms.cumsum(0) / alarms.sum()).clamp(min=0)
    return 1 - float((hits / hits.sum() * room).sum() / 0.4)


WEIGHTED = {
    "ap": weighted_ap,
    "auc": weighted_auc,
    "pauc@0.4": weighted_partial_auc,
    "recall_at_fpr@0.4": weighted_recall_at_fpr,
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_one_draw_with_weights_of_items_is_moving_each_by_hand(name: str, generator: torch.Generator) -> None:
    """The values are those of scikit-learn's ``sample_weight``."""
    for n in (2, 5, 12):
        scores = torch.randn(2, n, generator=generator, dtype=torch.float64)
        target = labels_of(name, (2, n), generator)
        weight = torch.tensor([0.5, 1.0, 3.0])[torch.randint(3, (2, n), generator=generator)]
        noisy = Noise(2.0, 1, torch.Generator().manual_seed(n)).perturb(scores, "uniform")[0]
        losses, slope = step(scores, target, name, n, noise=2.0, samples=1, weight=weight)
        for row in range(2):
            value = partial(WEIGHTED[name], target=target[row], weight=weight[row])
            assert losses[row].item() == pytest.approx(value(scores[row]), abs=1e-12)
            torch.testing.assert_close(slope[row], moved_by_hand(value, scores[row], noisy[row], 2.0))


def test_one_draw_of_any_function_is_moving_each_score_by_hand() -> None:
    scores, target = torch.tensor([0.3, -0.2, 1.0, 0.4]), torch.tensor([1, 0, 0, 1])

    def metric(scores: Tensor, target: Tensor) -> float:
        return 1 - ranked(oracle.ap, target)(scores)

    noisy = Noise(3.0, 1, torch.Generator().manual_seed(0)).perturb(scores, "uniform")[0]
    loss, slope = step(scores, target, metric)
    assert loss.item() == pytest.approx(oracle.ap([0, 1, 1, 0]))
    wanted = moved_by_hand(lambda moved: 1 - metric(moved, target), scores, noisy, 3.0)
    torch.testing.assert_close(slope.double(), wanted)


@pytest.mark.parametrize("name", ["ap", "ndcg@3", "f1"])
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_unchecked_scores_that_are_not_finite_are_the_same_for_every_backend(name: str, odd: float) -> None:
    scores, target = torch.tensor([0.3, odd, 1.0, 0.4, -0.2]), torch.tensor([1, 0, 0, 1, 0])
    found = []
    for backend in ("auto", "tensor"):
        with kernels.use(backend):
            found.append(step(scores, target, name, check_values=False))
    torch.testing.assert_close(found[0], found[1], equal_nan=True)


def test_the_curvature_is_the_second_difference() -> None:
    scores, target = torch.tensor([0.3, -0.2, 1.0, 0.4, 0.0]).double(), torch.tensor([1, 0, 0, 1, 0])
    noisy = Noise(1.0, 1, torch.Generator().manual_seed(0)).perturb(scores, "uniform")
    sizes = torch.stack((target == 1, target == 0)).double()
    lists = Lists(sizes=sizes, worth=lambda i, n: i / (i + n), z=torch.tensor([2.0]))
    found = move_items(lists, scores, noisy, 1.0, curvature=True).curvature
    value, wanted = ranked(oracle.ap, target), []
    for d in range(5):
        places = noisy[0].repeat(3, 1)
        places[:, d] = scores[d] + torch.tensor([1.0, 0.0, -1.0])
        high, here, low = (value(one) for one in places)
        wanted.append(high - 2 * here + low)
    torch.testing.assert_close(found, torch.tensor(wanted).double())


# ---------------------------------------------------------------------------------------------- the expected metric


@cache
def chance(centres: tuple[float, ...], h: float) -> float:
    """The probability that independent uniform numbers, within h of these centres, fall from first to last.

    From the last to the first: ``below(x)`` is the probability that the items so far are in order, and below x. It is a
    polynomial between any two ends of the windows.
    """
    knots = sorted({centre + side * h for centre in centres for side in (-1, 1)})
    below = [Polynomial([1.0])] * (len(knots) - 1)
    total = 1.0
    for centre in reversed(centres):
        total, grown = 0.0, []
        for low, high, piece in zip(knots, knots[1:], below, strict=False):
            inside = abs((low + high) / 2 - centre) < h
            integral = (piece / (2 * h)).integ(lbnd=low) if inside else Polynomial([0.0])
            grown.append(integral + total)
            total += float(integral(high))
        below = grown
    return total


def expected_loss(scores: Tensor, labels: list[int], loss: Value, h: float) -> float:
    """By the probability of every order."""
    return sum(
        chance(tuple(scores[list(order)].tolist()), h) * loss([labels[item] for item in order])
        for order in permutations(range(len(labels)))
    )


def central_difference(function: Callable[[Tensor], float], scores: Tensor) -> Tensor:
    """Between the knots the function is a polynomial: the error is of the order of the squared step."""
    steps = 1e-4 * torch.eye(len(scores), dtype=torch.float64)
    return torch.tensor([(function(scores + one) - function(scores - one)) / 2e-4 for one in steps]).double()


LISTS = 20_000
"""Each draws noise of its own; their gradients have the standard error ``deviation / sqrt(LISTS)``."""


def assert_unbiased(slopes: Tensor, wanted: Tensor) -> None:
    """The mean over the first dimension is as wanted, up to five standard errors, which must be small."""
    error = 5 * slopes.std(0) / len(slopes) ** 0.5
    assert bool(((slopes.mean(0) - wanted).abs() <= error + 1e-7).all()), (slopes.mean(0), wanted, error)
    assert float(error.norm()) < 0.25 * float(wanted.norm()), "the agreement must mean something"


PLACES = torch.tensor([0.31, -0.22, 0.57, -0.13], dtype=torch.float64)
"""Scores in units of the noise."""


@pytest.mark.parametrize("name", RANKINGS)
def test_the_gradient_of_a_ranking_is_that_of_the_expected_metric(name: str) -> None:
    task = tasks.get(name) if name not in OWN else OWN[name]
    for labels in ([1, 0], [0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 3 if name.startswith("graded") else 0]):
        scores = task.defaults.noise * PLACES[: len(labels)]
        expected = partial(expected_loss, labels=labels, loss=RANKINGS[name], h=task.defaults.noise)
        wanted = central_difference(expected, scores)
        if float(wanted.norm()) < 1e-9:
            continue  # such as recall among the first two of two
        target = torch.tensor(labels)
        _, slopes = step(scores.expand(LISTS, -1), target.expand(LISTS, -1), task, samples=1)
        assert_unbiased(slopes, wanted)
    draws = torch.Generator().manual_seed(0)
    value = dl.expected_metric(scores, target, task, samples=100_000, generator=draws)
    best = float(task.value(torch.zeros(()), target))
    assert float(value) == pytest.approx(best - expected(scores), abs=0.01)  # five standard errors of 100,000 draws


def test_a_wrong_gradient_would_be_seen() -> None:
    scores, target = 3 * PLACES, torch.tensor([0, 1, 1, 0])
    wanted = central_difference(partial(expected_loss, labels=[0, 1, 1, 0], loss=oracle.ap, h=3.0), scores)
    _, slopes = step(scores.expand(LISTS, -1), target.expand(LISTS, -1), "ap", samples=1, noise=4.0)
    with pytest.raises(AssertionError):
        assert_unbiased(slopes, wanted)


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Tensor], Iterator[tuple[Tensor, float]]]:
    """All decisions that noise can make; while one is given out, losses draw it."""

    def every(likely: Tensor) -> Iterator[tuple[Tensor, float]]:
        for yes in product((True, False), repeat=len(likely)):
            chosen = torch.tensor(yes)
            monkeypatch.setattr(Noise, "uniform", lambda *_, chosen=chosen: (~chosen).to(likely.dtype).unsqueeze(0))
            yield chosen, float(torch.where(chosen, likely, 1 - likely).prod())

    return every


def counts(chosen: Tensor, target: Tensor, weight: Tensor) -> list[float]:
    return [float(weight[(chosen == y) & (target == t)].sum()) for y, t in ((1, 1), (1, 0), (0, 1), (0, 0))]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", DECISIONS)
def test_the_gradient_of_decisions_is_that_of_the_expected_metric(name: str, weighted: bool, outcomes: Any) -> None:
    """By enumeration of the 2^n outcomes: the mean of the gradients, and the gradient of the mean."""
    for labels in ([1, 0, 0, 1], [1, 1, 0], [0, 0, 0], [1]):
        target, scores = torch.tensor(labels), 2 * PLACES[: len(labels)]
        weight = torch.tensor([1.0, 0.5, 3.0, 2.0])[: len(labels)] if weighted else torch.ones(len(labels))
        leaf = scores.clone().requires_grad_()
        expected, found, likely = torch.zeros(()), torch.zeros_like(scores), torch.sigmoid(leaf / 1.5)
        for chosen, probability in outcomes(likely.detach()):
            loss = 1 - DECISIONS[name](*counts(chosen, target, weight))  # type: ignore[arg-type]
            expected = expected + torch.where(chosen, likely, 1 - likely).prod() * loss
            more = {"weight": weight} if weighted else {}
            found += probability * step(scores, target, task_of(name), noise=1.5, **more)[1]
        (wanted,) = torch.autograd.grad(expected, leaf)
        torch.testing.assert_close(found, wanted)


def test_the_expected_metric_of_decisions_and_classes() -> None:
    target, scores = torch.tensor([1, 0, 0, 1]), 2 * PLACES
    likely = torch.sigmoid(scores)
    wanted = 0.0
    for yes in product((True, False), repeat=4):
        chosen = torch.tensor(yes)
        tallies = counts(chosen, target, torch.ones(4))
        wanted += float(torch.where(chosen, likely, 1 - likely).prod()) * METRICS["f1"](*tallies)  # type: ignore[arg-type]
    draws = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"samples": 100_000, "generator": draws, "noise": 1.0}
    assert float(dl.expected_metric(scores, target, "f1", **options)) == pytest.approx(wanted, abs=0.01)
    right = float(torch.softmax(scores, -1)[2])
    found = dl.expected_metric(scores[None], torch.tensor([2]), "accuracy", **options)
    assert float(found) == pytest.approx(right, abs=0.01)
    both = scores.expand(2, -1), torch.stack((target, 0 * target))
    alone = dl.expected_metric(scores, target, "ap", samples=100_000, generator=draws)
    assert float(dl.expected_metric(*both, "ap", samples=100_000, generator=draws)) == pytest.approx(
        float(alone), abs=0.01
    )


def test_the_gradient_of_classes_is_that_of_the_expected_metric() -> None:
    """Closed forms, without draws: all but top-k, which is a ranking of the classes."""
    scores, target = (
        torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).double(),
        torch.tensor([0, 1, 2, 3, 0]),
    )
    costs = torch.tensor([[0, 1, 2, 3], [1, 0, 5, 1], [2, 2, 0, 4], [1, 1, 1, 0]]).double()
    for task, table in (("accuracy", 1 - torch.eye(4).double()), (tasks.CostMatrix(costs), costs)):
        leaf = scores.clone().requires_grad_()
        (wanted,) = torch.autograd.grad((torch.softmax(leaf / 2, -1) * table[target]).sum(), leaf)
        torch.testing.assert_close(step(scores, target, task, noise=2.0)[1], wanted)
    leaf = scores.clone().requires_grad_()
    wrong = torch.where(
        scores.argmax(-1, keepdim=True) == torch.arange(4), torch.sigmoid(-leaf / 2), torch.sigmoid(leaf / 2)
    )
    (wanted,) = torch.autograd.grad(wrong.sum(), leaf)
    labels = (scores.argmax(-1, keepdim=True) == torch.arange(4)).long()
    torch.testing.assert_close(step(scores, labels, "error", noise=2.0)[1], wanted)


def test_the_gradient_of_top_k_is_that_of_the_expected_metric() -> None:
    expected = partial(expected_loss, labels=[0, 1, 0, 0], loss=oracle.recall(2), h=3.0)
    _, slopes = step((3 * PLACES).expand(LISTS, -1), torch.ones(LISTS).long(), "topk@2", samples=1, noise=3.0)
    assert_unbiased(slopes, central_difference(expected, 3 * PLACES))


@pytest.mark.parametrize("average", ["macro", "weighted"])
def test_the_gradient_of_an_average_over_classes_is_that_of_the_expected_metric(average: str) -> None:
    """Three rows, each with one of three classes: 27 outcomes, by scikit-learn."""
    scores = torch.tensor([[0.5, 0.0, -0.5], [0.2, 0.9, 0.1], [0.3, -0.3, 0.0]], dtype=torch.float64)
    target = torch.tensor([0, 1, 0])
    leaf = scores.clone().requires_grad_()
    likely, expected = torch.softmax(leaf, -1), torch.zeros(())
    for classes in product(range(3), repeat=3):
        present = [0, 1]
        value = f1_score(target, classes, labels=present, average=average, zero_division=0.0)
        expected = expected + likely[torch.arange(3), list(classes)].prod() * (1 - float(value))
    (wanted,) = torch.autograd.grad(expected, leaf)
    task = tasks.ClassAverage(tasks.FBeta(), average)
    _, slopes = step(scores.expand(LISTS, -1, -1), target.expand(LISTS, -1), task, samples=1, noise=1.0)
    assert_unbiased(slopes, wanted)


# ---------------------------------------------------------------------------------------------- the likelihood


def test_the_share_of_the_likelihood_is_constant_and_added() -> None:
    scores = torch.randn(3, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = (torch.arange(36).reshape(3, 12) % 5 == 0).long()
    rare = torch.minimum(target.sum(-1, keepdim=True), (1 - target).sum(-1, keepdim=True))
    classes, one_hot = target.argmax(-1), nn.functional.one_hot(target.argmax(-1), 12)
    problems: list[tuple[str, Tensor, Tensor]] = [
        ("ap", target, (torch.sigmoid(scores) - target) / (12 * rare).sqrt()),
        ("f1", target, (torch.sigmoid(scores) - target) / (12 * rare).sqrt()),
        ("error", target, torch.sigmoid(scores) - target),
        ("accuracy", classes, torch.softmax(scores, -1) - one_hot),
        ("topk@2", classes, torch.softmax(scores, -1) - one_hot),
    ]
    for name, labels, likelihood in problems:
        alone = step(scores, labels, name, likelihood=0)[1]
        for share in (0.3, 2.0, "auto"):
            factor = tasks.get(name).defaults.likelihood if share == "auto" else share
            torch.testing.assert_close(step(scores, labels, name, likelihood=share)[1], alone + factor * likelihood)
        assert tasks.get(name).defaults.likelihood > 0


def test_lists_of_one_class_have_a_likelihood_in_the_mean_over_all_lists() -> None:
    """The metric's mean is over the lists that count, that of the likelihood over all."""
    scores = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.tensor([[1, 0, 0, 1, 0, 0], [0] * 6, [1] * 6])
    for backend in ("auto", "tensor"):
        with kernels.use(backend):
            loss, slope = step(scores, target, "ap", likelihood=0.5, reduction="mean")
            each, alone = step(scores, target, "ap", likelihood=0)
            added = step(scores, target, "ap", likelihood=0.5)[1] - alone
        assert loss == each[0]
        assert not alone[1:].any()
        torch.testing.assert_close(slope, alone + added / 3)
        assert (added[1] > 0).all()
        assert (added[2] < 0).all()


# ---------------------------------------------------------------------------------------------- no state

MODULES: dict[str, tuple[Callable[..., nn.Module], Tensor]] = {
    "ap": (partial(dl.DirectLoss, "ap"), torch.tensor([[1, 0, 0, 1, 0], [0, 1, 0, 0, 0]])),
    "pos-ap": (partial(dl.DirectLoss, "ap", sign=1, epsilon=20.0), torch.tensor([[1, 0, 0, 1, 0], [0, 1, 0, 0, 0]])),
    "f1": (partial(dl.DirectLoss, "f1"), torch.tensor([[1, 0, 0, 1, 0], [0, 1, 0, 0, 0]])),
    "flips": (partial(dl.DirectLoss, "f1", flips=0.1), torch.tensor([[1, 0, 0, 1, 0], [0, 1, 0, 0, 0]])),
    "accuracy": (partial(dl.DirectLoss, "accuracy"), torch.tensor([1, 4])),
    "chain": (partial(dl.DirectLoss, "chain"), torch.tensor([1, 4])),
    "macro": (partial(dl.AveragedLoss, "f1"), torch.tensor([1, 4])),
}
POINTS = torch.tensor([[0.3, -0.2, 1.1, 0.4, -0.6], [1.2, 0.1, -0.9, 0.3, 0.5]])


def gradient(loss_fn: Callable[..., Tensor], target: Tensor, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    leaf = POINTS.clone().requires_grad_()
    return torch.autograd.grad(loss_fn(leaf, target), leaf)[0]


@pytest.mark.parametrize("name", MODULES)
def test_the_same_input_has_the_same_gradient_first_and_last_and_in_any_mode(name: str) -> None:
    make, target = MODULES[name]
    loss_fn = make()
    assert not loss_fn.state_dict()
    first = gradient(loss_fn, target)
    assert first.any()
    for step_number in range(400):
        leaf = POINTS.clone().requires_grad_()
        loss_fn.train(step_number % 2 == 0)(leaf, target).backward()
    with pytest.raises(dl.DirectLossError):
        loss_fn(POINTS / 0, target)
    with torch.no_grad():
        loss_fn(POINTS, target)
    assert not loss_fn.state_dict()
    loaded = make()
    loaded.load_state_dict(loss_fn.state_dict())
    for other in (loss_fn.train(), loss_fn.eval(), copy.deepcopy(loss_fn), loaded, make()):
        assert torch.equal(gradient(other, target), first)


@pytest.mark.parametrize("name", ["ap", "f1", "accuracy", "chain"])
def test_the_function_is_the_module(name: str) -> None:
    make, target = MODULES[name]
    more: dict[str, Any] = {} if name == "chain" else {"mask": target >= 0, "weight": torch.tensor([2.0, 0.5])}
    for options in ({}, {"likelihood": 0.3, "noise": 0.7, "samples": 2}, {"epsilon": "auto"}, {"reduction": "none"}):
        module, function = make(**options), partial(dl.direct_loss, task=name, **options)
        slopes = [gradient(lambda s, t, call=call: call(s, t, **more).sum(), target) for call in (module, function)]
        assert torch.equal(*slopes)


@pytest.mark.parametrize("name", MODULES)
def test_micro_batches_add_up(name: str) -> None:
    """Losses that are differentiated one by one have the gradient of their sum: nothing counts the calls."""
    make, target = MODULES[name]
    loss_fn, twin = make(), make()
    network = nn.Linear(5, 5)
    together = copy.deepcopy(network)
    torch.manual_seed(1)
    for part in range(4):
        loss_fn(network(POINTS + part), target).backward()
    torch.manual_seed(1)
    torch.stack([twin(together(POINTS + part), target) for part in range(4)]).sum().backward()
    torch.testing.assert_close(network.weight.grad, together.weight.grad)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_checkpoints_recompute_the_same(name: str, reentrant: bool) -> None:
    """Also in step 300, where a schedule might have ended."""
    make, target = MODULES[name]
    loss_fn, network = make(), nn.Linear(5, 5)

    def loss(inputs: Tensor) -> Tensor:
        value: Tensor = loss_fn(network(inputs), target)
        return value

    for seed in range(3):
        slopes = []
        for run in (loss, lambda inputs: checkpoint(loss, inputs, use_reentrant=reentrant)):
            network.zero_grad()
            torch.manual_seed(seed)
            run(POINTS.clone().requires_grad_()).backward()
            assert network.weight.grad is not None
            slopes.append(network.weight.grad.clone())
        assert torch.equal(*slopes)


@pytest.mark.parametrize("old", [torch.tensor(17), {"steps": 300}, 300])
def test_checkpoints_of_earlier_versions_load(old: Any) -> None:
    """They carry a counter of steps."""
    model = nn.ModuleDict(
        {"direct": dl.DirectLoss("ap"), "macro": dl.AveragedLoss("f1"), "retrieval": dl.RetrievalLoss("ap")}
    )
    keys = [f"{name}._extra_state" for name, part in model.named_modules() if isinstance(part, dl.DirectLoss)]
    assert len(keys) >= 3
    state = {**model.state_dict(), **dict.fromkeys(keys, old)}
    model.load_state_dict(state, strict=True)
    assert set(state) >= set(keys), "the caller's dictionary is left alone"
    dl.DirectLoss("ap").load_state_dict({"_extra_state": old}, strict=True)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        dl.DirectLoss("ap").load_state_dict({"_extra_states": old}, strict=True)


# ---------------------------------------------------------------------------------------------- the compiled twin

POSITION = [name for name in RANKINGS if not name.startswith("graded") and name != "own"]


@pytest.mark.filterwarnings("ignore:All 2 items of a list are among the first k")
@pytest.mark.parametrize("name", POSITION)
def test_compiled_loops_are_the_tensor_operations(name: str, generator: torch.Generator) -> None:
    """With ties, padding, lists of one class, all types, and lists that are sorted by digits."""
    for trial, (b, n) in enumerate([(1, 2), (4, 7), (3, 40), (2, 130), (2, 1500)]):
        for dtype in (torch.float64, torch.float32, torch.float16):
            scores = torch.randn(b, n, generator=generator).mul(2).to(dtype)
            if trial % 2:
                scores = (2 * scores).round() / 2
            target = (torch.rand(b, n, generator=generator) < 0.3).long()
            mask = torch.rand(b, n, generator=generator) < 0.8 if trial in (1, 2, 4) else None
            found = []
            for backend in ("auto", "tensor"):
                with kernels.use(backend):
                    found.append(step(scores, target, name, trial, samples=3, mask=mask, likelihood=0.1))
            loose = dtype == torch.float16
            torch.testing.assert_close(*found, rtol=2e-3 if loose else 1e-5, atol=1e-4 if loose else 1e-6)


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    scores, target = torch.randn(7, 30, generator=generator), labels_of("ap", (7, 30), generator)
    wanted = step(scores, target, "ap", samples=5)
    monkeypatch.setattr(kernels, "GRAIN", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    found = step(scores, target, "ap", samples=5)
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])


@pytest.mark.parametrize("name", ["ap", "ndcg@2", "auc", "f1", "mcc", "accuracy", "topk@2", "graded_ndcg"])
def test_extreme_scores_have_finite_gradients(name: str) -> None:
    target = torch.tensor([0, 1]) if name in ("accuracy", "topk@2") else torch.tensor([[1, 0, 0, 1], [0, 1, 0, 0]])
    for dtype, size in ((torch.float16, 6e4), (torch.float32, 3e38), (torch.float32, 1e-44), (torch.float64, 1.7e308)):
        scores = (torch.tensor([[0.9, -1.0, 0.2, 0.9], [0.0, -0.3, 1.0, -1.0]], dtype=torch.float64) * size).to(dtype)
        for backend in ("auto", "tensor"):
            with kernels.use(backend):
                losses, slope = step(scores, target, name, likelihood="auto")
            assert losses.isfinite().all()
            assert slope.isfinite().all(), (dtype, size, backend)
            assert slope.dtype == dtype


# ---------------------------------------------------------------------------------------------- weights of items


def test_whole_weights_of_decisions_are_repeated_items(generator: torch.Generator) -> None:
    scores = torch.randn(20, generator=generator, dtype=torch.float64)
    target, times = torch.arange(20) % 3 == 0, torch.randint(0, 4, (20,), generator=generator)
    for name in METRICS:
        found = dl.direct_loss(scores, target, name, weight=times)
        many = dl.direct_loss(scores.repeat_interleave(times), target.repeat_interleave(times), name)
        torch.testing.assert_close(found, many)
    options = {"y_true": target, "y_pred": scores > 0, "sample_weight": torch.rand(20, generator=generator)}
    for name, metric in (("f1", f1_score), ("mcc", matthews_corrcoef), ("balanced_accuracy", balanced_accuracy_score)):
        value = 1 - dl.direct_loss(scores, target, name, weight=options["sample_weight"])
        assert value.item() == pytest.approx(float(metric(**options)), abs=1e-6)


ALL_WEIGHED = [*METRICS, *WEIGHTED]


@pytest.mark.parametrize("name", ALL_WEIGHED)
def test_equal_weights_are_no_weights_and_none_is_left_out(name: str, generator: torch.Generator) -> None:
    scores, target = torch.randn(2, 9, generator=generator), labels_of(name, (2, 9), generator)
    for likelihood in (0, 0.3):
        wanted = step(scores, target, name, likelihood=likelihood)
        for size in (1.0, 1e-3, 700.0):
            weight = torch.full((2, 9), size)
            torch.testing.assert_close(step(scores, target, name, likelihood=likelihood, weight=weight), wanted)
    # The numbers of the first items are drawn first, so the noise of the others does not change.
    longer, labels = (
        torch.cat((scores[0], torch.tensor([5.0, torch.nan]))),
        torch.cat((target[0], torch.tensor([1, 0]))),
    )
    weight = torch.tensor([1.0] * 5 + [2.0] * 4 + [0.0] * 2)
    loss, slope = step(longer, labels, name, samples=1, weight=weight, likelihood=0.3)
    wanted = step(scores[0], target[0], name, samples=1, weight=weight[:9], likelihood=0.3)
    torch.testing.assert_close((loss, slope[:9]), wanted)
    assert not slope[9:].any()


@pytest.mark.parametrize("name", ["ndcg", "dcg@3", "mrr", "precision@2", "recall@2", "precision_at_recall@0.5", "own"])
def test_metrics_without_weighted_ranks_say_so(name: str) -> None:
    scores, target = torch.randn(2, 4), torch.tensor([[1, 0, 0, 1], [0, 1, 0, 0]])
    message = r"weight must hold one weight per problem of .*, but it is one per item\. Weighted ranks are defined for"
    with pytest.raises(dl.DirectLossError, match=message):
        dl.direct_loss(scores, target, task_of(name), weight=torch.rand(2, 4))


def test_other_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, target = torch.randn(2, 4), torch.tensor([[1, 0, 0, 1], [0, 1, 0, 0]])
    negative = torch.tensor([[1.0, 1.0, -1.0, 1.0], [1.0] * 4])
    for name in ("ap", "auc", "f1"):
        for wrong, message in (
            (negative, "weight must be finite and not negative, but it is as low as -1.0"),
            (negative * torch.nan, "weight must be finite and not negative"),
            (
                torch.ones(2, 3),
                r"weight must hold one weight per problem, shape \(2,\), or per item.*but it is of shape \(2, 3\)",
            ),
        ):
            with pytest.raises(dl.DirectLossError, match=message):
                dl.direct_loss(scores, target, name, weight=wrong)
    with pytest.raises(dl.DirectLossError, match='Put the weights into the grades, with gain="linear"'):
        dl.direct_loss(scores, target, "graded_ndcg", weight=torch.ones(2, 4))
    monkeypatch.setattr("directloss.tasks.ranking.CELLS", 31)
    with pytest.raises(
        dl.DirectLossError, match=r"weight must have fewer distinct values.*8 distinct values\. Round the"
    ):
        dl.direct_loss(scores, target, "ap", weight=torch.rand(2, 4))


# ---------------------------------------------------------------------------------------------- wrong labels

FLIPS = (0.1, 0.2)
"""Of the negatives and of the positives."""


@lru_cache
def binomial(n: int, share: float) -> list[float]:
    return [math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]


def test_corrected_counts_are_right_in_expectation() -> None:
    """Over all numbers of wrong labels; in groups so large that a count is hardly ever cut off at 0."""
    right = {"tp": 60, "fp": 40, "fn": 50, "tn": 70}
    low, high = FLIPS
    for place, (positive, negative) in enumerate([(60, 40), (50, 70)]):  # said yes, said no
        mean = torch.zeros(2, dtype=torch.float64)
        for (up, p), (down, q) in product(enumerate(binomial(negative, low)), enumerate(binomial(positive, high))):
            labelled = float(positive + up - down)
            given = torch.tensor([labelled, positive + negative - labelled, 0.0, 0.0]).roll(2 * place).double()
            found = corrected(lambda *counts: torch.stack(counts), FLIPS)(*given)
            mean += p * q * found[2 * place : 2 * place + 2]
        assert mean.tolist() == pytest.approx(list(right.values())[2 * place : 2 * place + 2], abs=1e-6)


@pytest.mark.parametrize("flips", [0.2, (0.3, 0.05)])
def test_one_decision_with_flips_is_right_in_expectation(flips: Any) -> None:
    """Value and gradient of the error, averaged over both labels that the item may have."""
    rates = flips if isinstance(flips, tuple) else (flips, flips)
    for score, true in product((-0.7, 0.4), (0, 1)):
        scores, wrong = torch.tensor([score], dtype=torch.float64), rates[true]
        wanted = step(scores, torch.tensor([true]), "error")
        kept, flipped = (step(scores, torch.tensor([y]), "error", flips=flips) for y in (true, 1 - true))
        for part in range(2):
            torch.testing.assert_close((1 - wrong) * kept[part] + wrong * flipped[part], wanted[part])


@pytest.mark.parametrize("name", ["f1", "mcc", "balanced_accuracy", "iou"])
def test_flips_undo_wrong_labels(name: str, generator: torch.Generator) -> None:
    """Many items: value and gradient of the right labels, from wrong ones whose rates are known."""
    right = (torch.rand(40_000, generator=generator) < 0.3).long()
    scores = torch.randn(40_000, generator=generator) + 1.5 * right - 1
    rate = torch.where(right == 1, FLIPS[1], FLIPS[0])
    given = torch.where(torch.rand(40_000, generator=generator) < rate, 1 - right, right)
    wanted, found, plain = (
        step(scores, labels, name, samples=1, flips=flips)
        for labels, flips in ((right, 0.0), (given, FLIPS), (given, 0.0))
    )
    assert found[0].item() == pytest.approx(wanted[0].item(), abs=0.015)
    assert abs(plain[0].item() - wanted[0].item()) > 0.04

    def groups(slope: Tensor) -> Tensor:
        """Summed over the items of each class with low and with high scores."""
        place = 2 * right + (scores > 0)
        return torch.zeros(4).index_add(0, place, slope)

    error = (groups(found[1]) - groups(wanted[1])).norm() / groups(wanted[1]).norm()
    assert float(error) < 0.08
    assert float((groups(plain[1]) - groups(wanted[1])).norm() / groups(wanted[1]).norm()) > 0.15


def test_flips_of_nothing_change_nothing(generator: torch.Generator) -> None:
    scores, target = torch.randn(3, 8, generator=generator), labels_of("f1", (3, 8), generator)
    for name in (*METRICS, "error"):
        wanted = step(scores, target, name, likelihood="auto")
        for flips in (0.0, (0.0, 0.0), [0, 0]):
            torch.testing.assert_close(step(scores, target, name, likelihood="auto", flips=flips), wanted)
    torch.testing.assert_close(
        step(scores, target, "f1", flips=0.1, likelihood=0.3),
        step(scores, target, "f1", flips=(0.1, 0.1), likelihood=0.3),
    )


def test_the_likelihood_of_labels_with_flips_is_that_of_the_labels_as_they_are() -> None:
    """By autograd: the probability of a given label is a mixture."""
    scores, target = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64), torch.tensor([1, 0, 0])
    leaf = scores.clone().requires_grad_()
    told = torch.sigmoid(leaf) * (1 - FLIPS[1]) + (1 - torch.sigmoid(leaf)) * FLIPS[0]
    (wanted,) = torch.autograd.grad(nn.functional.binary_cross_entropy(told, target.double(), reduction="sum"), leaf)
    with_it, without = (step(scores, target, "error", flips=FLIPS, likelihood=share)[1] for share in (1.0, 0.0))
    torch.testing.assert_close(with_it - without, wanted)
    sure = torch.tensor([200.0, -200.0, 30.0, -30.0]).repeat(2)
    for flips in (FLIPS, (0.2, 0.0), (0.0, 0.2)):  # one of the mixtures may vanish
        _, slope = step(sure, torch.tensor([1] * 4 + [0] * 4), "error", flips=flips, likelihood=1.0)
        assert slope.isfinite().all()
        torch.testing.assert_close(slope[[0, 5]], torch.zeros(2), rtol=0, atol=1e-6)


def test_the_expected_metric_of_a_cost_is_the_cost() -> None:
    cost = dl.tasks.MetricFunction(lambda scores, target: 5.0, maximize=False)
    assert float(dl.expected_metric(torch.randn(3), torch.tensor([0, 1, 0]), cost, samples=2)) == 5
