"""The metrics that `fit` accepts: every registered metric of a yes-or-no target, by the name of its task."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from directloss._checks import check_flips, fail, near
from directloss._registry import meant, measured, split_name
from directloss.integrations._cut import best_cut, decides, row_task
from directloss.metrics.confusion import accuracy_of_counts, count, members
from directloss.task import Task
from directloss.tasks import CountTask
from directloss.tasks._counting import corrected

OFFERED = (
    *("ap", "auc", "pauc@0.1", "ndcg", "ndcg@10", "precision@10", "recall@10", "f1", "fbeta@2", "iou", "dice", "mcc"),
    *("kappa", "balanced_accuracy", "gmean", "accuracy"),
)
TITLES = {"ap": "AP", "auc": "AUC", "ndcg": "NDCG", "f1": "F1", "iou": "IoU", "mcc": "MCC", "dice": "Dice"}
SYNONYMS = {"error": "accuracy", "01": "accuracy", "jaccard": "iou"}
FIRST = ("precision", "recall")
HINTS = {
    **{name: f"Write {name}@10 for the first 10 rows, or choose f1." for name in FIRST},
    **dict.fromkeys(("mrr", "map"), "It averages over many lists, and a table is one list: choose ap or precision@10."),
}
"""Metrics of other questions, and what to choose instead."""


@dataclass(frozen=True)
class Measure:
    """A metric by name, such as ``ap``, ``f1``, ``fbeta@2`` or ``ndcg@10``."""

    name: str
    flips: tuple[float, float] = (0.0, 0.0)
    """The share of the negatives and of the positives whose label is wrong; counts are corrected for it."""

    @property
    def task(self) -> Task:
        """The task to train on, with one score per row."""
        return row_task(self.name, one_score=True)

    @property
    def decides(self) -> bool:
        """Whether it judges decisions rather than a ranking."""
        return decides(self.task)

    @property
    def title(self) -> str:
        """The name for people to read."""
        base, at, number = self.name.partition("@")
        return TITLES.get(base, base.replace("_", " ")) + at + number

    def value(self, scores: Tensor, target: Tensor) -> Tensor:
        """The metric per problem, with scores and labels ``(..., n)``; a row is positive above 0."""
        if self.decides:
            task = self.task
            metric = task.metric if isinstance(task, CountTask) else accuracy_of_counts
            return corrected(metric, self.flips)(*count(scores > 0, members(target)))
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
        return best_cut(scores, target, self.task, flips=self.flips)[0] if self.decides else 0.0

    def check_rows(self, count: int) -> None:
        """Check that a part with the fewest rows has as many as a metric of the first k needs."""
        base, number = split_name("--metric", self.name)
        if base in FIRST and number is not None and number > count:
            fail("--metric", f"must look at no more than {count} rows, as many as the smallest part has", self.name)


def get_measure(name: str, flips: str = "") -> Measure:
    """The metric of a name; raises unless it is a metric of one list of yes-or-no targets."""
    word = SYNONYMS.get(name.strip().lower(), name.strip().lower())
    base = split_name("--metric", word)[0]
    task = row_task(word, one_score=True) if base in measured() and word not in HINTS else None
    if task is None or (task.event_dims, task.target_dims) not in ((0, 0), (1, 1)):
        known = meant(base)  # a word such as average_precision
        hint = f"Did you mean {known!r}?" if known in OFFERED else near(base, OFFERED)
        hint = HINTS.get(word) or hint or f"Choose {', '.join(OFFERED)}."
        fail("--metric", "must be a metric of one list of yes-or-no targets", repr(name), hint)
    try:
        rates = [float(rate) for rate in flips.split(",")] if flips.strip() else [0.0]
    except ValueError:
        fail("--flips", "must be a share of wrong labels, such as 0.2, or 0.1,0.3 for negatives and positives", flips)
    measure = Measure(word, check_flips(rates[0] if len(rates) == 1 else rates, "--flips"))
    if any(measure.flips) and not measure.decides:
        hint = "Leave it out: the order of many rows changes little, and no correction of it is exact."
        fail("--flips", "must be left out for a ranking", f"{flips}, with --metric {word}", hint)
    return measure
