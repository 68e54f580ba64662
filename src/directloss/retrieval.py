"""Embeddings trained on a retrieval metric: each item of a batch is a query, the others are its candidates.

    scores_ij = scale * <e_i, r_j> / (|e_i| |r_j|),    relevant where the labels are equal

Each query is one list of a ranking task; an item is not a candidate for itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from directloss._checks import (
    check_count,
    check_finite,
    check_positive,
    check_scores,
    check_tensor,
    fail,
    remembering,
)
from directloss._dynamo import outside_graphs
from directloss._loss import LossModule
from directloss._registry import as_task
from directloss.direct import DirectLoss
from directloss.distributed import Gather
from directloss.memory import RecentItems
from directloss.task import Estimate, Task

Similarity = Callable[[Tensor, Tensor], Tensor]


class RetrievalLoss(LossModule):
    """The loss of a ranking metric over embeddings and labels, called like the losses of pytorch-metric-learning.

    ``RetrievalLoss("ap")(embeddings, labels)`` is the mean of ``1 - AP`` over the queries of the batch. A query
    without a relevant candidate, or without an irrelevant one, does not count. Batches need several items of each
    class: draw, say, 16 classes with 4 items each.

    The likelihood, of which a share is added to the gradient, is that of the relevant candidates in a softmax over all
    of them: the supervised contrastive loss.

    Args:
        metric: a metric of rankings: ``"ap"``, ``"ndcg@10"``, ``"recall@4"`` (the share of the relevant items among the
            first four), ``"precision@1"`` (what retrieval calls recall at 1), ``"mrr"`` ...
        scale: the factor of the cosine similarities, an inverse temperature. The noise of `DirectLoss` is added to
            the product.
        similarity: a function from ``(n, d)`` and ``(m, d)`` to ``(n, m)`` that replaces the cosine.
        memory: number of stored embeddings of earlier batches that are also candidates; 0 for none. About ten
            batches are a good size. Labels must then mean the same in every batch.
        check_values: whether to raise on NaN, which synchronises with a GPU.
        gather: True joins the batches of all processes; see `DirectLoss`.
        more: ``noise``, ``samples``, ``likelihood``, ``epsilon``, ``sign``, ``generator`` of `DirectLoss`.

    Shapes:
        embeddings ``(n, d)``, labels ``(n,)``; for other candidates ``ref_emb`` ``(m, d)`` and ``ref_labels`` ``(m,)``.
        ``indices_tuple`` as miners return it: pairs ``(a, p, a, n)`` or triplets ``(a, p, n)``; only these count.

    Examples:
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.9, 0.5], [0.9, 0.1], [0.0, 1.0]], requires_grad=True)
        >>> loss = RetrievalLoss("ap")(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> loss
        tensor(0.5417, grad_fn=...)
    """

    def __init__(
        self,
        metric: str | Task = "ap",
        *,
        scale: float = 20.0,
        similarity: Similarity | None = None,
        memory: int = 0,
        check_values: bool = True,
        gather: Gather = False,
        **more: Any,
    ) -> None:
        super().__init__("mean", None, check_values, gather)
        self.ranking = DirectLoss(_listwise(metric), check_values=check_values, **more)
        self.generator = self.ranking.generator
        self.scale = check_positive("scale", scale)
        self.similarity = similarity or cosine
        self.memory = RecentItems(memory) if check_count("memory", memory, least=0) else None

    @outside_graphs
    def forward(  # type: ignore[override]
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Sequence[Tensor] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """The mean loss over the queries of the batch."""
        with remembering(self._told):
            if self.gather is False:
                return self.loss(embeddings, labels, None, None, indices_tuple, ref_emb, ref_labels)
            if (indices_tuple, ref_emb) != (None, None):
                fail("gather", "must be False where indices_tuple or ref_emb is given", self.gather)
            return self._gathered_loss(embeddings, labels, None, None)

    def loss(
        self,
        scores: Tensor,
        target: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,
        pairs: Sequence[Tensor] | None = None,
        others: Tensor | None = None,
        other_labels: Tensor | None = None,
    ) -> Tensor:
        """The loss of embeddings (``scores``) and labels (``target``)."""
        embeddings, labels = scores, self._check("embeddings", scores, "labels", target)
        candidates, names = embeddings, labels
        memory = self.memory if others is None and self.training else None
        if others is not None:
            candidates, names = others, self._check("ref_emb", others, "ref_labels", other_labels)
            if self.similarity is cosine and others.shape[1] != embeddings.shape[1]:
                fail("ref_emb", f"must have {embeddings.shape[1]} columns like the embeddings", others.shape[1])
        elif memory is not None:
            candidates, names = memory.joined(embeddings, labels, "embeddings")
        scores = self.scale * self.similarity(embeddings, candidates)
        allowed = _allowed(scores, others is None, pairs)
        if memory is not None:
            memory.store(candidates, names)
        relevant = (labels[:, None] == names).long()
        loss: Tensor = self.ranking(torch.where(allowed, scores, 0.0), relevant, allowed)
        return loss

    def _check(self, argument: str, embeddings: Any, of_labels: str, labels: Any) -> Tensor:
        check_scores(embeddings, 0, "(n, d)", argument)
        names: Tensor = check_tensor(of_labels, labels)
        if embeddings.dim() != 2 or names.shape != embeddings.shape[:1]:
            rule = f"must have shape (n, d), with {of_labels} of shape (n,)"
            fail(argument, rule, f"of shape {tuple(embeddings.shape)}, and {of_labels} of {tuple(names.shape)}")
        if self.check_values:
            check_finite(embeddings, argument)
        return names

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        if self.memory is None:  # what another loss, or an earlier version, kept
            state_dict.pop(f"{prefix}memory._extra_state", None)
        state_dict.pop(f"{prefix}_extra_state", None)
        super()._load_from_state_dict(state_dict, prefix, *more)

    def extra_repr(self) -> str:
        return f"scale={self.scale:g}"


def cosine(queries: Tensor, candidates: Tensor) -> Tensor:
    """Cosines ``(n, m)`` of the angles between embeddings."""
    least = max(1e-12, torch.finfo(queries.dtype).tiny)
    return F.normalize(queries, dim=-1, eps=least) @ F.normalize(candidates, dim=-1, eps=least).T


def _allowed(scores: Tensor, own: bool, pairs: Sequence[Tensor] | None) -> Tensor:
    """Which candidates count for each query: all but the item itself, or the pairs of a miner."""
    if pairs is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    elif len(pairs) not in (3, 4):
        fail("indices_tuple", "must hold pairs (a, p, a, n) or triplets (a, p, n)", f"{len(pairs)} tensors")
    else:
        mask = torch.zeros_like(scores, dtype=torch.bool)
        queries = (pairs[0], pairs[0]) if len(pairs) == 3 else (pairs[0], pairs[2])
        mask[queries[0], pairs[1]] = True
        mask[queries[1], pairs[-1]] = True
    if own:
        mask.fill_diagonal_(False)
    return mask


def _listwise(metric: str | Task) -> Task:
    """The task, with the likelihood of a softmax over the candidates: cosines have no natural zero, which the
    likelihood of yes-or-no decisions would need.
    """
    task = copy.copy(as_task(metric, "metric"))
    if (task.event_dims, task.target_dims) != (1, 1) or task.defaults.density != "uniform":
        fail("metric", "must be a metric of rankings, such as ap, recall@4 or ndcg", repr(task))
    task.likelihood_slope = _softmax_slope  # type: ignore[attr-defined]
    return task


def _softmax_slope(scores: Tensor, target: Tensor, request: Estimate) -> Tensor | None:
    """The gradient of the mean over the relevant candidates of their negative log-probability in a softmax."""
    if not request.likelihood:
        return None
    shown = scores if request.mask is None else scores.masked_fill(~request.mask, -torch.inf)
    likely = shown.softmax(-1).nan_to_num(0.0)
    relevant = (target == 1).to(scores.dtype)
    count = relevant.sum(-1, keepdim=True)
    return likely * (count > 0) - relevant / count.clamp(min=1)
