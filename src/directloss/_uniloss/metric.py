"""Calling the user's metric: copies of its arguments, one number back, and a clear message for every failure."""

from __future__ import annotations

import copy
import inspect
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from directloss._checks import fail, name_of, value_of, warn_once

SLOW = 0.02
"""Seconds. A metric that takes longer for one call makes a step of UniLoss take longer than a second."""


class BoundMetric:
    """A metric bound to the target of one problem: the values ``(k,)`` of rows of flattened scores ``(k, m)``.

    The metric gets copies, so it may write into its arguments. Rows go into one call if the metric of a stack of
    problems is the stack of their metrics, which is tested on the first rows.
    """

    def __init__(self, metric: Callable[..., Any], shape: torch.Size, target: Tensor) -> None:
        self.metric, self.shape, self.target = metric, shape, target
        self._repeat = without_checks(metric)
        self._stacks: bool | None = None

    def __call__(self, rows: Tensor) -> Tensor:
        """Values in float64."""
        rows = rows.reshape(-1, *self.shape)
        if self._stacks is None and len(rows) > 2:
            self._stacks = self._test_stack(rows)
        if self._stacks:
            values: Tensor = self._stack(rows).double()
            return values
        return torch.stack([self._one(row) for row in rows])

    def one(self, scores: Tensor) -> float:
        """The value of one row, with the metric's own checks, after checking that it is the same twice."""
        began = time.thread_time()  # not delayed by a busy machine
        value = value_of(self.metric, scores.reshape(self.shape), self.target)
        between = time.thread_time()
        again = self._one(scores.reshape(self.shape))
        took = min(between - began, time.thread_time() - between)  # the first call may import and compile
        if not torch.equal(value, again) and not bool(value.isnan() & again.isnan()):
            fail(
                "metric",
                "must return the same value for the same scores",
                f"{float(value):g} in one call and {float(again):g} in the next",
                "Seed its random numbers, or reset its state in every call.",
            )
        if took > SLOW:
            warn_once(
                f"slow {name_of(self.metric)}",
                f"One call of {name_of(self.metric)} takes {1e3 * took:.0f} ms, and a step makes about 70 of them. "
                "Replace Python loops by tensor operations; or pass fewer anchors (anchors=4), or train on a named "
                "metric close to it with DirectLoss.",
            )
        return value.item()

    def _one(self, row: Tensor) -> Tensor:
        return value_of(self._repeat, row, self.target)

    def _stack(self, rows: Tensor) -> Any:
        return self._repeat(rows.clone(), self.target.expand(len(rows), *self.target.shape).clone())

    def _test_stack(self, rows: Tensor) -> bool:
        """Whether two different rows in one call have the values that they have in two."""
        first = self._one(rows[0])
        others = ((row, self._one(row)) for row in rows[1:4])
        row, other = next((pair for pair in others if pair[1] != first), (None, first))
        if row is None:
            return False  # they cannot be told apart
        try:
            at_once: object = self._stack(torch.stack([rows[0], row]))
        except Exception:  # whatever a metric raises for an unknown shape
            return False
        if not isinstance(at_once, Tensor) or at_once.shape != (2,):
            return False
        return bool(torch.allclose(at_once.double(), torch.stack([first, other])))


def check_metric(metric: object) -> None:
    """Check that a metric can be called with scores and target, as far as its signature is known."""
    if not callable(metric):
        hint = "It is called as metric(scores, target) and returns one number."
        fail("metric", "must be a function", f"a {type(metric).__name__}", hint)
    try:
        inspect.signature(metric, follow_wrapped=False).bind(None, None)  # a decorator may add arguments itself
    except TypeError as problem:
        name = name_of(metric)
        hint = f"Set its other arguments with functools.partial({name}, ...)."
        fail("metric", "must be callable as metric(scores, target)", f"{name} ({problem})", hint)
    except ValueError:
        pass


def without_checks(metric: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torchmetrics without its checks of arguments, for further calls like one that has passed them."""
    inner, given = getattr(metric, "func", metric), getattr(metric, "keywords", {})
    if not str(getattr(inner, "__module__", "")).startswith("torchmetrics.") or "validate_args" in given:
        return metric
    return partial(metric, validate_args=False) if "validate_args" in inspect.signature(metric).parameters else metric


# ---------------------------------------------------------------------- metric objects

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


def _alone() -> bool:
    return False
