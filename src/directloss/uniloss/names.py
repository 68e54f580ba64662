"""Metrics by name: those refactored by hand, and `directloss.metrics` under the names that `directloss.tasks` uses."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from directloss import metrics
from directloss._checks import fail, near
from directloss.uniloss.automatic import Automatic
from directloss.uniloss.byhand import BY_HAND
from directloss.uniloss.refactoring import Refactored

Number = int | float


class Named(NamedTuple):
    """A metric, and what a number after an @ means to it."""

    metric: Callable[..., Any]
    number: str = ""
    """The argument that the number is; empty where there may be none."""
    event_dims: int = 1
    other: Callable[..., Any] | None = None
    """The metric to take with a number, where it is another one."""


NAMED: dict[str, Named] = {
    "auc": Named(metrics.auc),
    "balanced_accuracy": Named(metrics.balanced_accuracy),
    "dcg": Named(metrics.dcg, "k"),
    "dice": Named(metrics.dice),
    "error": Named(metrics.binary_accuracy),
    "f1": Named(metrics.f_beta),
    "fbeta": Named(metrics.f_beta, "beta"),
    "gmean": Named(metrics.g_mean),
    "graded_ndcg": Named(metrics.graded_ndcg, "k"),
    "iou": Named(metrics.iou),
    "jaccard": Named(metrics.iou),
    "kappa": Named(metrics.kappa),
    "mcc": Named(metrics.matthews),
    "mrr": Named(metrics.reciprocal_rank),
    "ndcg": Named(metrics.ndcg, "k"),
    "pauc": Named(metrics.partial_auc, "max_fpr"),
    "precision": Named(metrics.precision, "k", other=metrics.precision_at_k),
    "recall": Named(metrics.recall, "k", other=metrics.recall_at_k),
    "topk": Named(metrics.top_k_accuracy, "k", event_dims=2),
}


def by_name(name: str) -> Refactored:
    """The refactoring of a name such as ``"ap"``, ``"f1"`` or ``"ndcg@10"``.

    Example:
        >>> by_name("ap"), by_name("ndcg@10")
        (AveragePrecisionPairs(), Automatic(ndcg))
    """
    base, at, number = name.strip().lower().partition("@")
    if base in BY_HAND and not at:
        return BY_HAND[base]
    if base not in NAMED and base not in BY_HAND:
        known = sorted([*BY_HAND, *NAMED])
        fail(
            "metric",
            "must be a function, a Refactoring, or a known name",
            repr(name),
            f"{near(base, known)} Known: {', '.join(known)}; or pass the metric's function.".strip(),
        )
    found = NAMED.get(base)
    if found is not None and not at:
        return Automatic(found.metric, event_dims=found.event_dims)
    if found is None or not found.number:
        fail("metric", f"takes no number: {base!r} stands alone", repr(name))
    if not re.fullmatch(r"\d+(\.\d+)?", number):
        fail("metric", "must have a number after '@'", repr(name), f"For example {base + '@2'!r}.")
    given: Number = float(number) if "." in number else int(number)
    return Automatic(partial(found.other or found.metric, **{found.number: given}), event_dims=found.event_dims)
