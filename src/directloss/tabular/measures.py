"""The metrics that `fit` accepts: every registered metric of a yes-or-no target, by the name of its task."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from directloss._checks import fail, near
from directloss._registry import as_task, meant, measured, split_name
from directloss.metrics import accuracy
from directloss.task import Task
from directloss.tasks import CountTask, Error

OFFERED = (
    *("ap", "auc", "pauc@0.1", "ndcg", "ndcg@10", "precision@10", "recall@10", "f1", "fbeta@2", "iou", "dice", "mcc"),
    *("kappa", "balanced_accuracy", "gmean", "accuracy"),
)
SHOWN = {"ap": "AP", "auc": "AUC", "ndcg": "NDCG", "f1": "F1", "iou": "IoU", "mcc": "MCC", "dice": "Dice"}
SYNONYMS = {"error": "accuracy", "01": "accuracy", "jaccard": "iou"}
OF_LISTS = {"mrr", "map"}
FIRST = {"precision", "recall"}


@dataclass(frozen=True)
class Measure:
    """A metric by name, such as ``ap``, ``f1``, ``fbeta@2`` or ``ndcg@10``.

    Scores are ``(..., n)``; for more than two classes, which only accuracy supports, ``(..., n, classes)``.
    """

    name: str
    classes: int = 2
    flips: tuple[float, float] = (0.0, 0.0)
    """The share of the negatives and of the positives whose label is wrong; counts are corrected for it."""

    @property
    def task(self) -> Task:
        """The task to train on; with two classes, accuracy has one score per row, positive above 0."""
        return Error() if self.takes_classes and self.classes == 2 else as_task(self.name, "--metric")

    @property
    def takes_classes(self) -> bool:
        """Whether it supports more than two classes."""
        return self.name == "accuracy"

    @property
    def decides(self) -> bool:
        """Whether it judges decisions rather than a ranking."""
        return self.takes_classes or isinstance(self.task, CountTask)

    @property
    def cuts(self) -> bool:
        """Whether its decisions need a threshold."""
        return self.decides and self.classes == 2

    @property
    def of_first(self) -> bool:
        """Whether it judges only the first k rows."""
        base, number = split_name("--metric", self.name)
        return number is not None and base in (*FIRST, "ndcg")

    @property
    def title(self) -> str:
        """The name for people to read."""
        base, at, number = self.name.partition("@")
        return SHOWN.get(base, base.replace("_", " ")) + at + number

    def value(self, scores: Tensor, target: Tensor) -> Tensor:
        """The metric per problem, with labels ``(..., n)``; a row is positive above 0, or of the highest class."""
        if self.classes > 2:
            return accuracy(scores, target) if target.dim() == 1 else (scores.argmax(-1) == target).double().mean(-1)
        if self.decides:
            chosen, labels = (scores > 0).double(), self._corrected(target)
            tp, positives = (chosen * labels).sum(-1), labels.sum(-1)
            return self._of_counts(tp, chosen.sum(-1) - tp, positives, target.shape[-1] - positives)
        base, number = split_name("--metric", self.name)
        value: Tensor = measured()[base].function(number)(scores, target)
        return value

    def cut(self, scores: Tensor, target: Tensor) -> float:
        """The best threshold for these rows ``(n,)``, the highest in a tie; 0 if the metric needs none.

        Examples:
            >>> Measure("f1").cut(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 1, 0]))
            1.5
        """
        if not self.cuts:
            return 0.0
        ranked, order = scores.double().sort(descending=True, stable=True)
        labels = self._corrected(target[order])
        tp, fp = (torch.cat([labels.new_zeros(1), part.cumsum(0)]) for part in (labels, 1 - labels))
        values = self._of_counts(tp, fp, tp[-1], fp[-1])
        # A threshold lies between two different scores, above all scores, or below them.
        ends = torch.cat([ranked[:1] + 2, ranked, ranked[-1:] - 2])
        place = int(torch.where(ends[:-1] > ends[1:], values, -torch.inf).argmax())
        return float((ends[place] + ends[place + 1]) / 2)

    def check_rows(self, sizes: dict[str, int]) -> None:
        """Check that every part has as many rows as a metric of the first k needs."""
        base, number = split_name("--metric", self.name)
        for part, size in sizes.items():
            if base in FIRST and number is not None and number > size:
                fail("--metric", f"must look at no more than the {size} {part} rows", repr(self.name))

    def _corrected(self, target: Tensor) -> Tensor:
        """Labels whose sums have the counts of the right labels as their mean."""
        of_negatives, of_positives = self.flips
        return (target.double() - of_negatives) / (1 - of_negatives - of_positives)

    def _of_counts(self, tp: Tensor, fp: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        # Corrected counts of few rows may be negative.
        counts = (tp, fp, positives - tp, negatives - fp)
        tp, fp, fn, tn = (count.clamp_min(0.0) for count in counts)
        task = self.task
        return (
            1 - task.loss_of_counts(tp, fp, fn, tn) if isinstance(task, CountTask) else (tp + tn) / (tp + fp + fn + tn)
        )


def get_measure(name: str, flips: str = "") -> Measure:
    """The metric of a name; raises unless it is a metric of one list of yes-or-no targets."""
    word = SYNONYMS.get(name.strip().lower(), name.strip().lower())
    if word in OF_LISTS:
        hint = "It averages over many lists, and a table is one list: choose ap or precision@10."
        fail("--metric", "must be a metric of one list", repr(name), hint)
    if word in FIRST:
        fail("--metric", "must say how many rows", repr(name), f"Write {word}@10 for the first 10, or choose f1.")
    base = split_name("--metric", word)[0]
    task = Error() if word == "accuracy" else as_task(word, "--metric") if base in measured() else None
    if task is None or (task.event_dims, task.target_dims) not in ((0, 0), (1, 1)):
        known = meant(base)  # a word such as average_precision
        hint = f"Did you mean {known!r}?" if known in OFFERED else near(base, OFFERED)
        fail("--metric", "must be a metric of yes-or-no targets", repr(name), hint or f"Choose {', '.join(OFFERED)}.")
    measure = Measure(word)
    rates = read_flips(flips)
    if any(rates) and not measure.decides:
        hint = "Leave it out: the order of many rows changes little, and no correction of it is exact."
        fail("--flips", "must be left out for a ranking", f"{flips}, with --metric {word}", hint)
    return Measure(word, flips=rates)


def read_flips(text: str) -> tuple[float, float]:
    """``0.2``, or ``0.1,0.3`` for negatives and positives; each from 0 to below 0.5."""
    try:
        rates = [float(word) for word in text.split(",")] if text.strip() else [0.0]
    except ValueError:
        rates = []
    if len(rates) not in (1, 2) or not all(0 <= rate < 0.5 for rate in rates):
        hint = "0.2 if a fifth of the labels is wrong, 0.1,0.3 for a tenth of the negatives and three of the positives."
        fail("--flips", "must be a share from 0 to below 0.5, or one for each label", text, hint)
    return rates[0], rates[-1]
