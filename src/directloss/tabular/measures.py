"""The metrics that `fit` accepts: every registered metric of a yes-or-no target, by the name of its task."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from directloss._checks import check_flips, fail, near
from directloss._registry import as_task, meant, measured, split_name
from directloss.integrations._cut import best_cut
from directloss.metrics import accuracy
from directloss.metrics.confusion import accuracy_of_counts, count
from directloss.task import Task
from directloss.tasks import CountTask, Error
from directloss.tasks._counting import corrected

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
    def title(self) -> str:
        """The name for people to read."""
        base, at, number = self.name.partition("@")
        return SHOWN.get(base, base.replace("_", " ")) + at + number

    def value(self, scores: Tensor, target: Tensor) -> Tensor:
        """The metric per problem, with labels ``(..., n)``; a row is positive above 0, or of the highest class."""
        if self.classes > 2:
            return accuracy(scores, target) if target.dim() == 1 else (scores.argmax(-1) == target).double().mean(-1)
        if self.decides:
            task = self.task
            metric = task.metric if isinstance(task, CountTask) else accuracy_of_counts
            return corrected(metric, self.flips)(*count(scores > 0, target == 1, target == 0))
        base, number = split_name("--metric", self.name)
        value: Tensor = measured()[base].function(number)(scores, target)
        return value

    def cut(self, scores: Tensor, target: Tensor) -> float:
        """The best threshold for these rows ``(n,)``, the highest in a tie; 0 if the metric needs none.

        Examples:
            >>> import torch
            >>> Measure("f1").cut(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 1, 0]))
            1.5
        """
        return best_cut(scores, target, self.task, flips=self.flips)[0] if self.cuts else 0.0

    def check_rows(self, sizes: dict[str, int]) -> None:
        """Check that every part has as many rows as a metric of the first k needs."""
        base, number = split_name("--metric", self.name)
        for part, size in sizes.items():
            if base in FIRST and number is not None and number > size:
                fail("--metric", f"must look at no more than the {size} {part} rows", repr(self.name))


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
    """``0.2``, or ``0.1,0.3`` for negatives and positives."""
    try:
        rates = [float(word) for word in text.split(",")] if text.strip() else [0.0]
    except ValueError:
        fail("--flips", "must be a share of wrong labels, such as 0.2, or 0.1,0.3 for negatives and positives", text)
    return check_flips(rates[0] if len(rates) == 1 else rates, "--flips")
