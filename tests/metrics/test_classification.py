"""Metrics of decisions against scikit-learn and torchmetrics, their conventions for 0/0, and wrong input."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import sklearn.metrics as sk
import torch
import torchmetrics.functional.classification as tm
from torch import Tensor

from directloss import DirectLossError
from directloss.metrics import classification as m
from directloss.metrics import confusion
from directloss.metrics.confusion import Counts

SINGLE = 1e-6  # float32 results of order one

# our metric, scikit-learn's of (target, predicted), torchmetrics' of (predicted, target)
TWINS: dict[str, tuple[Callable[..., Tensor], Callable[..., Any], Callable[..., Any] | None]] = {
    "f1": (m.f_beta, sk.f1_score, tm.binary_f1_score),
    "f2": (partial(m.f_beta, beta=2.0), partial(sk.fbeta_score, beta=2.0), partial(tm.binary_fbeta_score, beta=2.0)),
    "f0.5": (partial(m.f_beta, beta=0.5), partial(sk.fbeta_score, beta=0.5), partial(tm.binary_fbeta_score, beta=0.5)),
    "precision": (m.precision, sk.precision_score, tm.binary_precision),
    "recall": (m.recall, sk.recall_score, tm.binary_recall),
    "matthews": (m.matthews, sk.matthews_corrcoef, tm.binary_matthews_corrcoef),
    "kappa": (m.kappa, sk.cohen_kappa_score, tm.binary_cohen_kappa),
    "balanced accuracy": (m.balanced_accuracy, sk.balanced_accuracy_score, None),
    "accuracy": (m.binary_accuracy, sk.accuracy_score, tm.binary_accuracy),
}


def problem(generator: torch.Generator, n: int = 40) -> tuple[Tensor, Tensor]:
    """Scores that know something of the labels; both classes, both decisions and some scores of exactly 0."""
    target = torch.randint(2, (n,), generator=generator)
    target[:2] = torch.tensor([0, 1])
    scores = torch.randn(n, generator=generator) + target - 0.5
    scores[:4] = torch.tensor([1.0, -1.0, 0.0, 0.0])
    return scores, target


@pytest.mark.parametrize("name", TWINS)
def test_agrees_with_scikit_learn_and_torchmetrics(name: str, generator: torch.Generator) -> None:
    ours, scikit, torchm = TWINS[name]
    for _ in range(20):
        scores, target = problem(generator)
        predicted = (scores > 0).long()
        found = float(ours(scores, target))
        assert found == pytest.approx(float(scikit(target.numpy(), predicted.numpy())), abs=SINGLE)
        if torchm is not None:
            assert found == pytest.approx(float(torchm(predicted, target)), abs=SINGLE)


def test_g_mean_is_the_geometric_mean_of_the_recalls(generator: torch.Generator) -> None:
    for _ in range(20):
        scores, target = problem(generator)
        predicted = (scores > 0).long().numpy()
        recalls = [sk.recall_score(target.numpy(), predicted, pos_label=label) for label in (0, 1)]
        assert float(m.g_mean(scores, target)) == pytest.approx(math.sqrt(recalls[0] * recalls[1]), abs=SINGLE)


def test_error_is_the_rest_of_accuracy() -> None:
    assert float(m.error(torch.tensor([1.0, 0.0, -2.0]), torch.tensor([1, 1, 1]))) == pytest.approx(2 / 3)


ALL: dict[str, Callable[..., Tensor]] = {name: row[0] for name, row in TWINS.items()} | {
    "g-mean": m.g_mean,
    "error": m.error,
}


@pytest.mark.parametrize("name", ALL)
def test_batches_and_masks(name: str, generator: torch.Generator) -> None:
    """Each row of a batch is a problem of its own; padding is as good as not there, whatever stands in it."""
    metric = ALL[name]
    rows = [problem(generator) for _ in range(6)]
    scores, target = (torch.stack(parts).reshape(2, 3, -1) for parts in zip(*rows, strict=True))
    single = torch.stack([metric(*row) for row in rows]).reshape(2, 3)
    assert torch.equal(metric(scores, target), single)
    mask = torch.cat([torch.ones(2, 3, 40), torch.zeros(2, 3, 5)], -1).bool()
    padded_scores = torch.cat([scores, torch.full((2, 3, 5), torch.nan)], -1)
    padded_target = torch.cat([target, torch.full((2, 3, 5), 7)], -1)
    assert torch.equal(metric(padded_scores, padded_target, mask=mask), single)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [(torch.float64, torch.float64), (torch.float32, torch.float32), (torch.bfloat16, torch.float32)],
)
def test_type_of_the_result(name: str, dtype: torch.dtype, wanted: torch.dtype, generator: torch.Generator) -> None:
    scores, target = problem(generator)
    found = ALL[name](scores.to(dtype), target.bool())
    assert found.dtype == wanted
    torch.testing.assert_close(
        found.double(), ALL[name](scores.to(dtype).double(), target.float()), atol=SINGLE, rtol=0
    )


# counts (tp, fp, fn, tn) and the value by convention
CONVENTIONS: dict[str, dict[tuple[int, int, int, int], float]] = {
    "precision": {(0, 0, 0, 3): 1, (0, 0, 2, 3): 0, (0, 0, 0, 0): 1, (0, 2, 0, 3): 0},
    "recall": {(0, 0, 0, 3): 1, (0, 2, 0, 3): 0, (0, 0, 0, 0): 1, (0, 0, 2, 3): 0},
    "f_beta": {(0, 0, 0, 3): 1, (0, 2, 0, 3): 0, (0, 0, 2, 3): 0, (0, 0, 0, 0): 1},
    "iou": {(0, 0, 0, 3): 1, (0, 2, 0, 3): 0, (0, 0, 2, 3): 0, (0, 0, 0, 0): 1},
    "dice": {(0, 0, 0, 3): 1, (0, 2, 0, 3): 0, (0, 0, 2, 3): 0, (0, 0, 0, 0): 1},
    "matthews": {(0, 0, 0, 3): 0, (3, 0, 0, 0): 0, (0, 0, 2, 3): 0, (2, 3, 0, 0): 0, (0, 0, 0, 0): 0},
    "kappa": {(0, 0, 0, 3): 1, (3, 0, 0, 0): 1, (0, 0, 2, 3): 0, (0, 3, 0, 0): 0, (0, 0, 0, 0): 1},
    "balanced_accuracy": {(0, 1, 0, 3): 0.75, (1, 0, 3, 0): 0.25, (0, 0, 0, 0): 1, (0, 0, 2, 3): 0.5},
    "g_mean": {(0, 1, 0, 3): 0.75, (1, 0, 3, 0): 0.25, (0, 0, 0, 0): 1, (0, 0, 2, 3): 0},
    "accuracy": {(0, 0, 0, 0): 1, (0, 0, 0, 3): 1, (0, 3, 0, 0): 0},
}


ROWS = [(name, counts, value) for name, rows in CONVENTIONS.items() for counts, value in rows.items()]


@pytest.mark.parametrize(("name", "counts", "wanted"), ROWS)
def test_what_zero_over_zero_means(name: str, counts: tuple[int, ...], wanted: float) -> None:
    formula = getattr(confusion, f"{name}_of_counts")
    assert float(formula(*(torch.tensor(float(c)) for c in counts))) == pytest.approx(wanted)


@pytest.mark.parametrize("name", CONVENTIONS)
def test_counts_broadcast(name: str) -> None:
    """Rows of one count against columns of another give the whole grid."""
    tp, fp = torch.arange(4.0)[:, None], torch.arange(3.0)[None]
    formula = getattr(confusion, f"{name}_of_counts")
    found = formula(tp, fp, 3 - tp, 2 - fp)
    for i in range(4):
        for j in range(3):
            counts = (torch.tensor(float(c)) for c in (i, j, 3 - i, 2 - j))
            assert float(found[i, j]) == pytest.approx(
                float(getattr(confusion, f"{name}_of_counts")(*counts)), abs=SINGLE
            )


@pytest.mark.parametrize("beta", [1e-200, 1e200, 1e-300, 1e300])
def test_extreme_beta_is_precision_or_recall(beta: float) -> None:
    counts = [torch.tensor(float(c), dtype=torch.float64) for c in (3, 2, 5, 7)]
    wanted = confusion.recall_of_counts(*counts) if beta > 1 else confusion.precision_of_counts(*counts)
    assert float(confusion.f_beta_of_counts(*counts, beta=beta)) == pytest.approx(float(wanted))


def test_counts_of_millions_of_items_stay_finite() -> None:
    counts = Counts(*(torch.tensor(c) for c in (1e9, 2e9, 3e9, 4e9)))  # float32: the product of all four overflows
    assert float(confusion.matthews_of_counts(*counts)) == pytest.approx(-0.0891, abs=1e-3)


# ---------------------------------------------------------------------------------------------- classes


def class_problem(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(50, 7, generator=generator), torch.randint(7, (50,), generator=generator)


def test_accuracy_agrees(generator: torch.Generator) -> None:
    for _ in range(10):
        scores, target = class_problem(generator)
        found = float(m.accuracy(scores, target))
        assert found == pytest.approx(sk.accuracy_score(target, scores.argmax(-1)), abs=SINGLE)
        wanted = tm.multiclass_accuracy(scores, target, num_classes=7, average="micro")
        assert found == pytest.approx(float(wanted), abs=SINGLE)


@pytest.mark.parametrize("k", [1, 2, 6, 7])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")  # k = 7 of 7 is always right
def test_top_k_accuracy_agrees(k: int, generator: torch.Generator) -> None:
    for _ in range(10):
        scores, target = class_problem(generator)
        wanted = sk.top_k_accuracy_score(target, scores, k=k, labels=range(7))
        assert float(m.top_k_accuracy(scores, target, k)) == pytest.approx(wanted, abs=SINGLE)


def test_ties_go_to_the_lower_index() -> None:
    scores = torch.tensor([[1.0, 1.0, 0.0, 1.0]])
    assert [float(m.accuracy(scores, torch.tensor([c]))) for c in range(4)] == [1, 0, 0, 0]
    assert [float(m.top_k_accuracy(scores, torch.tensor([c]), 2)) for c in range(4)] == [1, 1, 0, 0]
    assert m.top_k_members(torch.zeros(5), 3).tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("metric", [m.accuracy, partial(m.top_k_accuracy, k=2)])
def test_class_masks_and_batches(metric: Callable[..., Tensor], generator: torch.Generator) -> None:
    scores, target = class_problem(generator)
    mask = torch.arange(50) % 3 > 0
    wanted = metric(scores[mask], target[mask])
    spoiled = torch.where(mask[:, None], scores, torch.nan), torch.where(mask, target, -100)
    torch.testing.assert_close(metric(*spoiled, mask=mask), wanted)
    torch.testing.assert_close(metric(scores.view(5, 10, 7), target.view(5, 10)), metric(scores, target))
    assert float(metric(scores, target, mask=torch.zeros(50, dtype=torch.bool))) == 1
    assert metric(scores.bfloat16(), target).dtype == torch.float32


# ---------------------------------------------------------------------------------------------- wrong input

SCORES = torch.tensor([[0.5, -0.5, 1.0], [0.1, 0.2, 0.3]])
LABELS = torch.tensor([[1, 0, 0], [0, 1, 1]])
CLASSES = torch.tensor([0, 2])
NAN = torch.tensor([[0.5, math.nan, 1.0], [0.1, 0.2, 0.3]])

WRONG: list[tuple[Callable[..., Tensor], tuple[Any, ...], dict[str, Any], str]] = [
    (m.precision, (SCORES.long(), LABELS), {}, "scores must be floating point, but it is torch.int64"),
    (m.precision, (SCORES.tolist(), LABELS), {}, "scores must be a torch.Tensor, but it is a list"),
    (m.precision, (torch.zeros(0), torch.zeros(0)), {}, "scores must not be empty"),
    (m.precision, (torch.tensor(1.0), torch.tensor(1)), {}, "scores must have shape (..., n), but it is of shape ()"),
    (m.precision, (NAN, LABELS), {}, "scores must be finite, but it is nan at index [0, 1]"),
    (m.precision, (SCORES, LABELS[0]), {}, "target must have the shape of scores, (2, 3), but it is of shape (3,)"),
    (m.precision, (SCORES, LABELS + 1), {}, "target must hold only 0 or 1, but it is 2 at index [0, 0]"),
    (m.precision, (SCORES, -LABELS), {}, "target must hold only 0 or 1, but it is -1"),
    (m.precision, (SCORES, LABELS), {"mask": LABELS}, "mask must be boolean"),
    (m.precision, (SCORES, LABELS), {"mask": LABELS[0].bool()}, "mask must have the shape of target, (2, 3)"),
    (m.f_beta, (SCORES, LABELS), {"beta": 0}, "beta must be positive and finite, but it is 0"),
    (m.f_beta, (SCORES, LABELS), {"beta": -1.0}, "beta must be positive and finite, but it is -1.0"),
    (m.f_beta, (SCORES, LABELS), {"beta": math.nan}, "beta must be positive and finite, but it is nan"),
    (m.f_beta, (SCORES, LABELS), {"beta": "2"}, "beta must be a positive number, but it is '2'"),
    (m.accuracy, (SCORES, LABELS), {}, "target must hold one class index per row of scores, shape (2,), but it is of"),
    (m.accuracy, (SCORES, torch.tensor([0, 3])), {}, "target must hold class indices from 0 to 2, but it is 3"),
    (m.accuracy, (SCORES, torch.tensor([0, -1])), {}, "target must hold class indices from 0 to 2, but it is -1"),
    (m.accuracy, (SCORES, CLASSES.float()), {}, "target must hold integer class indices, but it is torch.float32"),
    (m.accuracy, (NAN, CLASSES), {}, "scores must be finite"),
    (m.accuracy, (SCORES, CLASSES), {"mask": LABELS.bool()}, "mask must have the shape of target, (2,)"),
    (m.accuracy, (SCORES, LABELS), {"mask": torch.tensor([True, True])}, "target must hold one class index per row"),
    (m.accuracy, (SCORES, [0, 1]), {}, "target must be a torch.Tensor, but it is a list"),
    (m.top_k_accuracy, (SCORES, CLASSES), {"k": 4}, "k must be at most the number of classes, 3, but it is 4"),
    (m.top_k_accuracy, (SCORES, CLASSES), {"k": 0}, "k must be a whole number of at least 1, but it is 0"),
    (m.top_k_accuracy, (SCORES, CLASSES), {"k": 1.5}, "k must be a whole number of at least 1, but it is 1.5"),
]


@pytest.mark.parametrize(("metric", "arguments", "options", "message"), WRONG)
def test_wrong_input_is_named(
    metric: Callable[..., Tensor], arguments: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DirectLossError) as caught:
        metric(*arguments, **options)
    assert str(caught.value).startswith(message)
