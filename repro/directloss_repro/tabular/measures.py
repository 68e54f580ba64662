"""The metrics that `fit` can be asked for: their values, and the direct loss that belongs to each.

A ranking metric needs scores only. A decision metric (F1 and its kin) also needs a threshold. It is chosen on
validation data for every loss alike, because cross-entropy with its natural threshold would be too easy a rival.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from directloss import metrics
from directloss._checks import fail, near
from directloss.metrics import classification, confusion

Value = Callable[[Tensor, Tensor], Tensor]
RANKINGS: dict[str, Value] = {"ap": metrics.average_precision, "auc": metrics.auc, "ndcg": metrics.ndcg}
CUT_RANKINGS: dict[str, Callable[..., Tensor]] = {
    "ndcg": metrics.ndcg,
    "precision": metrics.precision_at_k,
    "recall": metrics.recall_at_k,
}
DECISIONS: dict[str, Callable[..., Tensor]] = {
    "f1": confusion.f_beta_of_counts,
    "iou": confusion.iou_of_counts,
    "dice": confusion.dice_of_counts,
    "mcc": confusion.matthews_of_counts,
    "kappa": confusion.kappa_of_counts,
    "balanced_accuracy": confusion.balanced_accuracy_of_counts,
    "gmean": confusion.g_mean_of_counts,
    "accuracy": confusion.accuracy_of_counts,
}
OTHER_NAMES = {"error": "accuracy", "01": "accuracy", "jaccard": "iou"}
LISTS = "It is a mean over many lists, one for each query, and a table here is one list: choose ap or precision@10."
KNOWN = (*RANKINGS, "ndcg@10", "precision@10", "recall@10", "pauc@0.1", *DECISIONS, "fbeta@2", *OTHER_NAMES)


@dataclass(frozen=True)
class Measure:
    """One metric. ``value(scores, target)`` takes ``(..., n)`` and returns ``(...)``; positive above 0 in decisions."""

    name: str
    value: Value
    of_counts: Callable[..., Tensor] | None = None
    first: int = 1
    """How many rows it looks at, at the least that makes sense."""

    @property
    def decides(self) -> bool:
        """Whether it judges decisions rather than a ranking."""
        return self.of_counts is not None

    @property
    def direct(self) -> str:
        """The method that trains on it."""
        return f"direct-{'01' if self.name == 'accuracy' else self.name}"

    def threshold(self, scores: Tensor, target: Tensor) -> float:
        """The cut with the best value when scores above it are positive; the highest of equally good ones.

        Scores and labels ``(n,)``. Zero for a ranking metric, which needs no cut.

        Example:
            >>> get_measure("f1").threshold(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 1, 0]))
            1.5
        """
        if self.of_counts is None:
            return 0.0
        ranked, order = scores.double().sort(descending=True, stable=True)
        hits = (target[order] == 1).double()
        zero = hits.new_zeros(1)
        tp, fp = (torch.cat([zero, part.cumsum(0)]) for part in (hits, 1 - hits))
        values = self.of_counts(tp, fp, tp[-1] - tp, fp[-1] - fp)
        # One can cut only between different scores, above all of them and below all of them.
        ends = torch.cat([ranked[:1] + 2, ranked, ranked[-1:] - 2])
        possible = ends[:-1] > ends[1:]
        cut = int(torch.where(possible, values, values.min() - 1).argmax())
        return float((ends[cut] + ends[cut + 1]) / 2)


def get_measure(name: str) -> Measure:
    """The metric of a name such as ``ap``, ``f1``, ``fbeta@2`` or ``ndcg@10``."""
    asked = name.strip().lower()
    asked = OTHER_NAMES.get(asked, asked)
    word, at, number = asked.partition("@")
    if at:
        return _with_number(word, number, asked)
    if word in RANKINGS:
        return Measure(word, RANKINGS[word])
    if word not in DECISIONS:
        hint = "Write precision@10 or recall@10 for the first 10." if word in CUT_RANKINGS else near(word, KNOWN)
        hint = LISTS if word in ("mrr", "map") else hint
        fail("--metric", "must be a metric for yes-or-no targets", repr(name), hint or f"Known: {', '.join(KNOWN)}.")
    return _decision(word, DECISIONS[word])


def _with_number(word: str, number: str, asked: str) -> Measure:
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if word == "fbeta" and 0 < value < float("inf"):
        return _decision(f"fbeta@{value:g}", partial(confusion.f_beta_of_counts, beta=value))
    if word == "pauc" and 0 < value <= 1:
        return Measure(f"pauc@{value:g}", partial(metrics.partial_auc, max_fpr=value))
    if word not in CUT_RANKINGS or value < 1 or not value.is_integer():
        rule = "must have a number that fits after the @, as in ndcg@10, precision@10, recall@10, pauc@0.1 or fbeta@2"
        fail("--metric", rule, repr(asked))
    first = 1 if word == "ndcg" else int(value)  # NDCG of fewer rows is well defined
    return Measure(f"{word}@{int(value)}", partial(CUT_RANKINGS[word], k=int(value)), first=first)


def _decision(name: str, of_counts: Callable[..., Tensor]) -> Measure:
    def value(scores: Tensor, target: Tensor) -> Tensor:
        return classification.evaluate(of_counts, scores, target, None)

    return Measure(name, value, of_counts)
