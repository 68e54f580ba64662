from __future__ import annotations

from typing import Any

import pytest
import torch

import directloss as dl
from directloss.retrieval import RetrievalLoss, cosine

EMBEDDINGS = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12) // 3


def mean_ap(embeddings: torch.Tensor, labels: torch.Tensor) -> float:
    """One query after the other, by the definition."""
    values = []
    for i in range(len(labels)):
        others = torch.arange(len(labels)) != i
        scores = cosine(embeddings[i : i + 1], embeddings[others]).squeeze(0)
        hits = (labels[others] == labels[i])[scores.argsort(descending=True)]
        if hits.any() and not hits.all():
            ranks = hits.nonzero().squeeze(1) + 1
            values.append(float((torch.arange(1, len(ranks) + 1) / ranks).mean()))
    return sum(values) / len(values)


def test_value_is_the_metric_without_the_item_itself() -> None:
    assert RetrievalLoss("ap")(EMBEDDINGS, LABELS).item() == pytest.approx(1 - mean_ap(EMBEDDINGS, LABELS), abs=1e-6)


def test_queries_alone_in_their_class_do_not_count() -> None:
    labels = torch.tensor([0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    with pytest.warns(dl.DirectLossWarning, match="9 of 12"):
        value = RetrievalLoss("ap")(EMBEDDINGS, labels)
    assert value.item() == pytest.approx(1 - mean_ap(EMBEDDINGS, labels), abs=1e-6)


@pytest.mark.parametrize("metric", ["ap", "ndcg", "precision@1", "recall@2", "mrr"])
def test_it_learns(metric: str) -> None:
    embeddings = EMBEDDINGS.clone().requires_grad_()
    loss_fn = RetrievalLoss(metric, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam([embeddings], 0.05)
    for _ in range(60):
        optimizer.zero_grad()
        loss_fn(embeddings, LABELS).backward()
        optimizer.step()
    assert loss_fn(embeddings, LABELS) < 0.05


def test_other_candidates() -> None:
    """The reference may hold a copy of the query: then it counts."""
    value = RetrievalLoss("ap")(EMBEDDINGS[:2], LABELS[:2], ref_emb=EMBEDDINGS[:6], ref_labels=LABELS[:6])
    scores = cosine(EMBEDDINGS[:2], EMBEDDINGS[:6])
    wanted = 1 - dl.metrics.average_precision(scores, (LABELS[:2, None] == LABELS[:6]).long()).mean()
    assert value.item() == pytest.approx(wanted.item(), abs=1e-6)


def test_pairs_of_a_miner() -> None:
    """Pairs (0, 1) and (0, 4): one relevant, one not, in the right order or not. Triplets are the same."""
    a, p, n = torch.tensor([0]), torch.tensor([1]), torch.tensor([4])
    near = cosine(EMBEDDINGS[:1], EMBEDDINGS)[0]
    wanted = 0.0 if near[1] > near[4] else 0.5
    for tuple_ in ((a, p, a, n), (a, p, n)):
        with pytest.warns(dl.DirectLossWarning, match="11 of 12"):
            assert RetrievalLoss("ap")(EMBEDDINGS, LABELS, tuple_).item() == pytest.approx(wanted)


def test_memory_adds_earlier_batches_and_is_saved() -> None:
    loss_fn = RetrievalLoss("ap", memory=8)
    loss_fn(EMBEDDINGS[:6], LABELS[:6])
    other = RetrievalLoss("ap", memory=8)
    other.load_state_dict(loss_fn.state_dict())
    values = [each(EMBEDDINGS[6:], LABELS[:6]).item() for each in (loss_fn, other)]
    assert values[0] == values[1]
    scores = cosine(EMBEDDINGS[6:], torch.cat((EMBEDDINGS[6:], EMBEDDINGS[:6])))
    target = (LABELS[:6, None] == torch.cat((LABELS[:6], LABELS[:6]))).long()
    mask = ~torch.eye(6, 12, dtype=torch.bool)
    assert values[0] == pytest.approx(dl.direct_loss(scores, target, "ap", mask=mask).item(), abs=1e-6)
    fresh = RetrievalLoss("ap")
    loss_fn.eval()
    assert loss_fn(EMBEDDINGS[6:], LABELS[:6]) == fresh(EMBEDDINGS[6:], LABELS[:6])


@pytest.mark.parametrize("memory", [0, 2])
def test_a_smaller_memory_loads_the_newest_items(memory: int) -> None:
    loss_fn, smaller = RetrievalLoss("ap", memory=8), RetrievalLoss("ap", memory=memory)
    loss_fn(EMBEDDINGS[:6], LABELS[:6])
    smaller.load_state_dict(loss_fn.state_dict())
    wanted = RetrievalLoss("ap", memory=memory)
    wanted(EMBEDDINGS[:6], LABELS[:6])
    assert smaller(EMBEDDINGS[6:], LABELS[:6]) == wanted(EMBEDDINGS[6:], LABELS[:6])


def test_labels_of_another_dtype_keep_their_value() -> None:
    loss_fn = RetrievalLoss("ap", memory=12)
    loss_fn(EMBEDDINGS, LABELS + 300)
    loss_fn(EMBEDDINGS[:6], LABELS[:6].to(torch.uint8))
    assert loss_fn.memory.get_extra_state()["labels"].tolist() == [*LABELS[:6].tolist(), *(LABELS + 300).tolist()][:12]


def test_a_miner_of_pytorch_metric_learning() -> None:
    miners = pytest.importorskip(
        "pytorch_metric_learning.miners",
        reason="pytorch-metric-learning is not installed: pip install pytorch-metric-learning",
    )
    embeddings = EMBEDDINGS.clone().requires_grad_()
    pairs = miners.MultiSimilarityMiner(epsilon=0.5)(embeddings, LABELS)
    RetrievalLoss("ap")(embeddings, LABELS, pairs).backward()
    assert embeddings.grad is not None
    assert embeddings.grad.any()


def _twice(loss_fn: RetrievalLoss, *batches: torch.Tensor) -> None:
    for batch in batches:
        loss_fn(batch, LABELS)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: RetrievalLoss("f1"), "metric must be a metric of rankings"),
        (lambda: RetrievalLoss("ap", scale=0), "scale must be positive"),
        (lambda: RetrievalLoss("ap", memory=-1), "memory must be a whole number of at least 0"),
        (lambda: RetrievalLoss()(EMBEDDINGS, LABELS[:3]), "embeddings must have shape"),
        (lambda: RetrievalLoss()(EMBEDDINGS, LABELS, None, EMBEDDINGS), "ref_labels must be a torch.Tensor"),
        (lambda: RetrievalLoss()(EMBEDDINGS, LABELS, None, EMBEDDINGS[:, :1], LABELS), "ref_emb must have 5 columns"),
        (lambda: RetrievalLoss()(EMBEDDINGS * torch.nan, LABELS), "embeddings must be finite"),
        (lambda: RetrievalLoss()(EMBEDDINGS, LABELS, (LABELS,)), "indices_tuple must hold pairs"),
        (lambda: RetrievalLoss(gather=True)(EMBEDDINGS, LABELS, (LABELS,)), "gather must be False where"),
        (lambda: RetrievalLoss()(EMBEDDINGS.long(), LABELS), "embeddings must be floating point"),
        (
            lambda: _twice(RetrievalLoss(memory=8), EMBEDDINGS, EMBEDDINGS[:, :1]),
            r"must have the shape \(n, 5\)",
        ),
    ],
)
def test_bad_input(call: Any, says: str) -> None:
    with pytest.raises(dl.DirectLossError, match=says):
        call()


def test_without_a_memory_there_is_no_state() -> None:
    loss_fn = RetrievalLoss("ap")
    loss_fn(EMBEDDINGS, LABELS)
    assert not loss_fn.state_dict()
    loss_fn.load_state_dict({"_extra_state": {"embeddings": EMBEDDINGS, "labels": LABELS}})  # of an earlier version


def test_an_embedding_of_zeros_in_half_precision() -> None:
    embeddings, labels = torch.tensor([[1.0, 2.0], [0.0, 0.0], [1.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 0, 1, 1])
    wanted = dl.RetrievalLoss("ap")(embeddings, labels)
    assert float(dl.RetrievalLoss("ap")(embeddings.half(), labels)) == pytest.approx(float(wanted), abs=1e-3)
