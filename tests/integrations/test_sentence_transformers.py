"""The losses on models of a few numbers; `examples/sentence_ranking.py` has the real ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import directloss as dl
from directloss.integrations.sentence_transformers import BiEncoderRankingLoss, CrossEncoderRankingLoss


class Counting(nn.Module):
    """A cross-encoder that scores a document by its length."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))
        self.seen: list[int] = []

    def preprocess(self, pairs: list[tuple[str, str]], prompt: str | None = None) -> dict[str, Any]:
        self.seen.append(len(pairs))
        return {"length": torch.tensor([float(len(text)) for _, text in pairs]), "prompt": prompt}

    def forward(self, features: dict[str, Any]) -> dict[str, torch.Tensor]:
        return {"scores": self.factor * features["length"][:, None]}


QUERIES, DOCUMENTS = ["a", "b"], [["x", "xxx"], ["xx", "x", "xxx"]]
GRADES = [torch.tensor([1, 0]), torch.tensor([0.0, 1.0, 2.0])]


def test_cross_encoder_ranks_lists_of_different_lengths() -> None:
    model = Counting()
    loss = CrossEncoderRankingLoss(model, "ndcg@3", at_once=2)([QUERIES, DOCUMENTS], GRADES, prompt=None)
    assert model.seen == [2, 2, 1]
    pairs = [(torch.tensor([1.0, 3.0]), GRADES[0]), (torch.tensor([2.0, 1.0, 3.0]), GRADES[1])]
    wanted = [1 - float(dl.metrics.graded_ndcg(scores, grades, k=3)) for scores, grades in pairs]
    assert loss.item() == pytest.approx(sum(wanted) / 2, abs=1e-6)
    loss.backward()
    assert model.factor.grad is not None


class Embedding(nn.Module):
    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sentence_embedding": features["x"]}


def test_bi_encoder_ranks_the_documents_of_the_batch() -> None:
    anchors, positives, negatives = torch.randn(3, 5, 4).unbind()
    loss = BiEncoderRankingLoss(Embedding(), "mrr")([{"x": each} for each in (anchors, positives, negatives)], None)
    scores = torch.nn.functional.normalize(anchors) @ torch.nn.functional.normalize(torch.cat((positives, negatives))).T
    ranks = 1 + (scores > scores.diagonal()[:, None]).sum(1)
    assert loss.item() == pytest.approx(1 - (1 / ranks).mean().item(), abs=1e-6)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: CrossEncoderRankingLoss(Counting())([QUERIES, DOCUMENTS], torch.zeros(2)), "must be two columns"),
        (lambda: CrossEncoderRankingLoss(Counting())([QUERIES, DOCUMENTS], GRADES[::-1]), "labels must be as many as"),
        (lambda: CrossEncoderRankingLoss(Counting(), at_once=0), "at_once must be a whole number"),
        (lambda: BiEncoderRankingLoss(Embedding(), "f1"), "metric must be a metric of rankings"),
        (lambda: BiEncoderRankingLoss(Embedding())([{"x": torch.ones(2, 3)}]), "must hold an anchor and at least one"),
    ],
)  # fmt: skip
def test_bad_input(call: Any, says: str) -> None:
    with pytest.raises(dl.DirectLossError, match=says):
        call()
