"""The metrics that `fit` accepts: every registered metric of a yes-or-no target, by the name of its task."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from directloss._checks import fail, near
from directloss._registry import as_task, measured, split_name
from directloss.integrations._cut import best_cut
from directloss.metrics import accuracy
from directloss.task import Task
from directloss.tasks import CountTask, Error

OFFERED = (
    *("ap", "auc", "pauc@0.1", "ndcg", "ndcg@10", "precision@10", "recall@10", "f1", "fbeta@2", "iou", "dice", "mcc"),
    *("kappa", "balanced_accuracy", "gmean", "accuracy"),
)
SHOWN = {"ap": "AP", "auc": "AUC", "ndcg": "NDCG", "f1": "F1", "iou": "IoU", "mcc": "MCC", "dice": "Dice"}
CROSS_ENTROPY = "x-ent"
"""Name of the loss that the metric's own is compared with."""
OF_LISTS = {"mrr", "map"}
FIRST = {"precision", "recall"}


@dataclass(frozen=True)
class Measure:
    """A metric by name, such as ``ap``, ``f1``, ``fbeta@2`` or ``ndcg@10``.

    Scores are ``(..., n)``; for more than two classes, which only accuracy supports, ``(..., n, classes)``.
    """

    name: str
    classes: int = 2

    @property
    def takes_classes(self) -> bool:
        """Whether it supports more than two classes."""
        return self.name == "accuracy"

    @property
    def task(self) -> Task:
        """The task to train on; with two classes, accuracy has one score per row, positive above 0."""
        return Error() if self.takes_classes and self.classes == 2 else as_task(self.name, "--metric")

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
        if self.classes > 2 and target.dim() > 1:
            return torch.stack([self.value(*problem) for problem in zip(scores, target, strict=True)])
        if self.classes > 2:
            return accuracy(scores, target)
        base, number = split_name("--metric", self.name)
        found: Tensor = measured()["error" if base == "accuracy" else base].function(number)(scores, target)
        return found

    def cut(self, scores: Tensor, target: Tensor) -> float:
        """The best threshold for these rows; 0 for rankings and for more than two classes, which have none."""
        return best_cut(scores, target, self.task)[0] if self.cuts else 0.0

    def check_rows(self, sizes: dict[str, int]) -> None:
        """Check that every part has as many rows as a metric of the first k needs."""
        base, number = split_name("--metric", self.name)
        for part, size in sizes.items():
            if base in FIRST and number is not None and number > size:
                fail("--metric", f"must look at no more than the {size} {part} rows", repr(self.name))


def get_measure(name: str) -> Measure:
    """The metric of a name; raises unless it is a metric of one list of yes-or-no targets."""
    word = {"error": "accuracy", "01": "accuracy", "jaccard": "iou"}.get(name.strip().lower(), name.strip().lower())
    if word in OF_LISTS:
        hint = "It averages over many lists, and a table is one list: choose ap or precision@10."
        fail("--metric", "must be a metric of one list", repr(name), hint)
    if word in FIRST:
        fail("--metric", "must say how many rows", repr(name), f"Write {word}@10 for the first 10, or choose f1.")
    base = split_name("--metric", word)[0]
    task = Error() if word == "accuracy" else as_task(word, "--metric") if base in measured() else None
    if task is None or (task.event_dims, task.target_dims) not in ((0, 0), (1, 1)):
        hint = near(base, OFFERED) or f"Choose one of {', '.join(OFFERED)}."
        fail("--metric", "must be a metric of yes-or-no targets", repr(name), hint)
    return Measure(word)
