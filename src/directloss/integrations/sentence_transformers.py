"""sentence-transformers: ranking the candidates of each query, with a cross-encoder or a bi-encoder.

Both are loss modules for the trainers of the package: ``CrossEncoderTrainer(model, loss=...)`` and
``SentenceTransformerTrainer(model, loss=...)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from directloss._checks import check_count, fail
from directloss._registry import as_task
from directloss.direct import DirectLoss
from directloss.retrieval import RetrievalLoss
from directloss.task import Task
from directloss.tasks import NDCG, GradedNDCG


class _RankingLoss(nn.Module):
    """A model and the loss of its rankings."""

    def __init__(self, model: nn.Module, ranking: nn.Module) -> None:
        super().__init__()
        self.model, self.ranking = model, ranking

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {"ranking": repr(self.ranking)}


class CrossEncoderRankingLoss(_RankingLoss):
    """Rank the documents of each query with a cross-encoder.

    The data have the columns query, documents (a list of texts) and labels (a list of relevance grades), as for the
    package's ``LambdaLoss`` and ``ListNetLoss``. Lists may have different lengths.

    Args:
        model: a ``CrossEncoder`` with one output.
        metric: a metric of rankings. NDCG takes grades of relevance, the others 0 and 1.
        at_once: number of query-document pairs per forward pass; the whole batch by default.
        more: settings of `DirectLoss`, such as ``likelihood``.
    """

    def __init__(
        self, model: nn.Module, metric: str | Task = "ndcg@10", *, at_once: int | None = None, **more: Any
    ) -> None:
        task = as_task(metric, "metric")
        super().__init__(model, DirectLoss(GradedNDCG(task.k) if isinstance(task, NDCG) else task, **more))
        self.at_once = None if at_once is None else check_count("at_once", at_once)

    def forward(self, inputs: Sequence[Any], labels: Any, **options: Any) -> Tensor:
        """The mean loss over the queries of a batch; ``inputs`` are queries and their lists of documents."""
        if isinstance(labels, Tensor) or len(inputs) != 2:
            rule = "must be two columns, a query and a list of documents, with a list of labels for each query"
            fail("inputs", rule, f"{len(inputs)} columns, and labels a {type(labels).__name__}")
        queries, documents = inputs
        sizes = [len(texts) for texts in documents]
        if sizes != [len(grades) for grades in labels]:
            fail("labels", f"must be as many as documents, {sizes}", [len(grades) for grades in labels])
        pairs = [(query, text) for query, texts in zip(queries, documents, strict=True) for text in texts]
        scores = pad_sequence(self._scores(pairs, options).split(sizes), batch_first=True)
        grades = pad_sequence([torch.as_tensor(each).flatten().float() for each in labels], batch_first=True)
        mask = torch.arange(max(sizes)) < torch.tensor(sizes).unsqueeze(1)
        return self.ranking(scores, grades.to(scores.device), mask.to(scores.device))  # type: ignore[no-any-return]

    def _scores(self, pairs: list[tuple[str, str]], options: dict[str, Any]) -> Tensor:
        size = self.at_once or len(pairs)
        scores = []
        for start in range(0, len(pairs), size):
            features = self.model.preprocess(pairs[start : start + size], **options)  # type: ignore[operator]
            device: Any = self.model.device
            features = {name: each.to(device) if isinstance(each, Tensor) else each for name, each in features.items()}
            scores.append(self.model(features)["scores"].flatten())
        return torch.cat(scores).float()


class BiEncoderRankingLoss(_RankingLoss):
    """Rank the documents of a batch for each of its queries with a bi-encoder.

    The data have the columns anchor, positive and any number of negatives, as for the package's
    ``MultipleNegativesRankingLoss``. All documents of the batch are candidates; only the positive of a query is
    relevant, so use ``BatchSamplers.NO_DUPLICATES``.

    Args:
        model: a ``SentenceTransformer``.
        metric: a metric of rankings; with one relevant document, ``"mrr"`` is the natural one and equals ``"ap"``.
        scale: factor for the cosines.
        more: settings of `RetrievalLoss`, such as ``noise``.
    """

    def __init__(self, model: nn.Module, metric: str | Task = "mrr", *, scale: float = 20.0, **more: Any) -> None:
        super().__init__(model, RetrievalLoss(metric, scale=scale, **more))

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Any = None) -> Tensor:
        """The mean loss over the anchors of a batch."""
        anchors, *documents = (self.model(features)["sentence_embedding"] for features in sentence_features)
        if not documents:
            fail("sentence_features", "must hold an anchor and at least one document", "an anchor alone")
        number = torch.arange(len(anchors), device=anchors.device)
        none = torch.full_like(number, -1)
        names = torch.cat([number, *(none for _ in documents[1:])])
        return self.ranking(anchors, number, ref_emb=torch.cat(documents), ref_labels=names)  # type: ignore[no-any-return]
