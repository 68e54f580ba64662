"""Metric objects that accumulate, as losses: the values and gradients of torchmetrics' functions, and no state."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
import torchmetrics.classification as objects
import torchmetrics.functional.classification as functions
import torchmetrics.functional.retrieval as retrieval
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.retrieval import (
    RetrievalAUROC,
    RetrievalMAP,
    RetrievalMRR,
    RetrievalNormalizedDCG,
    RetrievalPrecision,
    RetrievalRecall,
    RetrievalRPrecision,
)

import directloss as dl
from directloss._uniloss.metric import Stateless, stateless

N, C = 12, 4
DRAW = torch.Generator().manual_seed(0)
LISTS = (torch.randn(N, generator=DRAW), torch.arange(N) % 2)
CLASSES = (torch.randn(N, C, generator=DRAW), torch.arange(N) % C)
LABELS = (torch.randn(N, C, generator=DRAW), torch.randint(2, (N, C), generator=DRAW))

Case = tuple[Any, Callable[..., Tensor], tuple[Tensor, Tensor]]
CASES: dict[str, Case] = {
    "binary f1": (objects.BinaryF1Score(), functions.binary_f1_score, LISTS),
    "binary f2": (objects.BinaryFBetaScore(2.0), partial(functions.binary_fbeta_score, beta=2.0), LISTS),
    "binary ap": (objects.BinaryAveragePrecision(), functions.binary_average_precision, LISTS),
    "binary ap in bins": (
        objects.BinaryAveragePrecision(thresholds=5),
        partial(functions.binary_average_precision, thresholds=5),
        LISTS,
    ),
    "binary auroc": (objects.BinaryAUROC(), functions.binary_auroc, LISTS),
    "binary accuracy": (objects.BinaryAccuracy(), functions.binary_accuracy, LISTS),
    "binary iou": (objects.BinaryJaccardIndex(), functions.binary_jaccard_index, LISTS),
    "binary mcc": (objects.BinaryMatthewsCorrCoef(), functions.binary_matthews_corrcoef, LISTS),
    "binary kappa": (objects.BinaryCohenKappa(), functions.binary_cohen_kappa, LISTS),
    "class accuracy": (
        objects.MulticlassAccuracy(num_classes=C),
        partial(functions.multiclass_accuracy, num_classes=C),
        CLASSES,
    ),
    "class top 2": (
        objects.MulticlassAccuracy(num_classes=C, top_k=2),
        partial(functions.multiclass_accuracy, num_classes=C, top_k=2),
        CLASSES,
    ),
    "class f1": (
        objects.MulticlassF1Score(num_classes=C),
        partial(functions.multiclass_f1_score, num_classes=C),
        CLASSES,
    ),
    "label f1": (objects.MultilabelF1Score(C), partial(functions.multilabel_f1_score, num_labels=C), LABELS),
    "label ap": (
        objects.MultilabelAveragePrecision(C),
        partial(functions.multilabel_average_precision, num_labels=C),
        LABELS,
    ),
    "retrieval map": (RetrievalMAP(), retrieval.retrieval_average_precision, LISTS),
    "retrieval mrr": (RetrievalMRR(), retrieval.retrieval_reciprocal_rank, LISTS),
    "retrieval ndcg": (RetrievalNormalizedDCG(), retrieval.retrieval_normalized_dcg, LISTS),
    "retrieval auroc": (RetrievalAUROC(), retrieval.retrieval_auroc, LISTS),
    "retrieval r-precision": (RetrievalRPrecision(), retrieval.retrieval_r_precision, LISTS),
    "retrieval precision at 3": (RetrievalPrecision(top_k=3), partial(retrieval.retrieval_precision, top_k=3), LISTS),
    "retrieval recall at 3": (RetrievalRecall(top_k=3), partial(retrieval.retrieval_recall, top_k=3), LISTS),
}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torchmetrics")


def loss_and_gradient(metric: Any, scores: Tensor, target: Tensor, value: str) -> tuple[Tensor, Tensor]:
    scores = scores.clone().requires_grad_()
    loss = dl.UniLoss(metric, value=value, likelihood=0, generator=torch.Generator().manual_seed(0))(scores, target)
    loss.backward()
    assert scores.grad is not None
    return loss.detach(), scores.grad


@pytest.mark.parametrize("name", CASES)
def test_object_is_its_function(name: str) -> None:
    metric, function, (scores, target) = CASES[name]
    loss, gradient = loss_and_gradient(metric, scores, target, "metric")
    torch.testing.assert_close(loss, 1 - function(scores, target))
    relaxed, same = loss_and_gradient(function, scores, target, "interpolated")
    torch.testing.assert_close(loss_and_gradient(metric, scores, target, "interpolated")[0], relaxed)
    torch.testing.assert_close(gradient, same)
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("name", CASES)
def test_no_state_from_call_to_call(name: str) -> None:
    metric, _, (scores, target) = CASES[name]
    function = Stateless(metric)
    first = function(scores, target)
    function(-scores, target)
    torch.testing.assert_close(function(scores, target), first)


def test_what_the_owner_accumulates_stays_apart() -> None:
    metric = objects.BinaryF1Score()
    metric.update(torch.tensor([1.0, 0.0]), torch.tensor([1, 1]))
    before = metric.compute()
    loss_fn = dl.UniLoss(metric)
    assert loss_fn(torch.tensor([2.0, -2.0]), torch.tensor([1, 0])).item() == 0  # a perfect batch of its own
    metric.update(torch.tensor([1.0, 0.0]), torch.tensor([1, 1]))
    torch.testing.assert_close(metric.compute(), before)  # the same again, and nothing of the loss


def test_state_is_cleared_after_an_error() -> None:
    function = Stateless(objects.BinaryF1Score())
    with pytest.raises(RuntimeError, match="same shape"):
        function(torch.zeros(3), torch.zeros(2, dtype=torch.long))
    assert function(torch.tensor([2.0, -1.0]), torch.tensor([1, 0])) == 1


def test_copies_and_files() -> None:
    loss_fn = dl.UniLoss(objects.BinaryF1Score())
    expected = loss_fn(*LISTS)
    for other in (copy.deepcopy(loss_fn), pickle.loads(pickle.dumps(loss_fn))):
        torch.testing.assert_close(other(*LISTS), expected)


def test_it_is_called_by_its_name() -> None:
    assert "Automatic(BinaryF1Score)" in repr(dl.UniLoss(objects.BinaryF1Score()))
    assert not list(dl.UniLoss(objects.BinaryF1Score()).parameters())


def test_plain_functions_are_left_alone() -> None:
    assert stateless(functions.binary_f1_score) is functions.binary_f1_score


def test_a_network_of_processes_is_not_asked() -> None:
    """A loss belongs to its own process: the copy must not wait for others."""
    asked = []
    metric = objects.BinaryF1Score(distributed_available_fn=lambda: asked.append(True) or False)
    Stateless(metric)(*LISTS)
    assert not asked


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (
            objects.BinaryF1Score,
            r"metric must be an object, but it is the class BinaryF1Score. Write BinaryF1Score\(\)",
        ),
        (MetricCollection([objects.BinaryF1Score()]), "metric must return one number, but it is a dict"),
        (objects.MulticlassF1Score(num_classes=C, average=None), "metric must return one number"),
        (objects.MulticlassAccuracy(num_classes=2), "MulticlassAccuracy raised"),
    ],
    ids=["class", "collection", "a number per class", "other shape"],
)
def test_bad_objects(metric: Any, message: str) -> None:
    problem = CLASSES if isinstance(metric, objects.MulticlassF1Score) else LISTS
    with pytest.raises(dl.DirectLossError, match=message):
        dl.UniLoss(metric)(*problem)


def test_threads_do_not_meet_in_an_object() -> None:
    metric = Stateless(objects.BinaryF1Score())
    problems = [(torch.randn(N, generator=torch.Generator().manual_seed(k)), LISTS[1]) for k in range(32)]
    wanted = [float(metric(*problem)) for problem in problems]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda problem: float(metric(*problem)), problems))
    finally:
        sys.setswitchinterval(interval)
    assert found == wanted
