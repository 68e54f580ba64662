"""Metric objects that accumulate batches, such as those of torchmetrics, as plain functions of one batch."""

from __future__ import annotations

import copy
import inspect
import threading
from typing import Any

import torch
from torch import Tensor

from directloss._checks import fail

STEPS = ("reset", "update", "compute")
_ONE_AT_A_TIME = threading.RLock()
"""An accumulating object serves one thread at a time; one global lock, because locks cannot be copied."""


def stateless(metric: Any) -> Any:
    """A metric object with ``reset``, ``update`` and ``compute`` as a function; any other metric unchanged."""
    if not all(callable(getattr(metric, step, None)) for step in STEPS):
        return metric
    if isinstance(metric, type):
        fail("metric", "must be an object", f"the class {metric.__name__}", f"Write {metric.__name__}().")
    return Stateless(metric)


class Stateless:
    """``metric(scores, target)`` from an object that accumulates: every call starts afresh.

    The object is copied, so the state of the original is neither used nor changed. It sees one problem at a time, and
    no other process. For a retrieval metric, whose ``update`` takes ``indexes``, all items belong to one query.

    Examples:
        >>> from torchmetrics.classification import BinaryF1Score
        >>> metric = Stateless(BinaryF1Score())
        >>> [metric(torch.tensor([2.0, -1.0]), torch.tensor(labels)).item() for labels in ([1, 0], [0, 1], [1, 0])]
        [1.0, 0.0, 1.0]
    """

    def __init__(self, metric: Any) -> None:
        self.__name__ = type(metric).__name__
        self._own = copy.deepcopy(metric)
        self._own.reset()
        # Each process has its own loss; torchmetrics would combine all processes.
        self._own.distributed_available_fn = _alone
        self._grouped = "indexes" in inspect.signature(metric.update).parameters

    def __call__(self, scores: Tensor, target: Tensor) -> Any:
        """The metric of this batch alone."""
        more = {"indexes": torch.zeros_like(target, dtype=torch.long)} if self._grouped else {}
        with _ONE_AT_A_TIME:
            if hasattr(self._own, "to"):
                self._own.to(scores.device)
            self._own.reset()
            try:
                self._own.update(scores, target, **more)
                return self._own.compute()
            finally:
                self._own.reset()

    def __repr__(self) -> str:
        return f"{self.__name__}()"


def _alone() -> bool:
    return False
