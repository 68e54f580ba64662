"""A refactored metric: e = g(h(f(scores, target))), Eq. (4) of Liu, Wang, Deng (ECCV 2020)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from directloss._checks import fail
from directloss._uniloss.best import ideal_scores
from directloss._uniloss.comparisons import Comparisons, General


@dataclass(frozen=True)
class Bound:
    """A refactoring bound to one problem: all that sampling anchors and relaxing need."""

    scores: Tensor
    """The scores, flattened to ``(m,)``, with their gradient history."""
    comparisons: Comparisons
    """f: what is compared."""
    measure: Callable[[Tensor], Tensor]
    """The metric of other scores of the same problem, ``(k, m)`` to ``(k,)``."""
    decide: Callable[[Tensor], Tensor] | None
    """g: the metric of configurations, boolean ``(k, l)`` to ``(k,)``; None if unknown."""
    best_scores: Tensor | None
    """Scores ``(m,)`` with the best metric, close to the current ones; None if unknown."""
    best_binaries: Tensor | None = None
    """The best configuration, boolean ``(l,)``, for anchors in bit space; None means all ones."""
    counting: str | None = None
    """The compiled rule that computes the metric from lost comparisons; see `directloss._uniloss.compiled`."""


class Refactored(ABC):
    """A metric that can be bound to a problem: refactored by hand, or by tracing its code."""

    event_dims: int | None = None
    """How many of the last dimensions of ``scores`` are one problem; None for all, unless the user says otherwise."""
    least_dims: int = 1
    """How many dimensions one problem must have."""
    target_dims: int = 1
    """How many dimensions the target of one problem has, see `directloss._problem.arrange`."""
    shape_words: str = "(..., n)"
    """The shape of ``scores`` in error messages."""
    layout_checks: bool = False
    """Whether making a layout for compiled loops also checks the target."""
    unit: str = "comparison"
    """What nearby anchors flip by default; see `directloss.Anchoring`."""

    @abstractmethod
    def bind(self, scores: Tensor, target: Tensor) -> Bound | None:
        """Bind to the scores and the target of one problem; None if there is nothing to compare."""

    def check(self, scores: Tensor, target: Tensor) -> None:  # noqa: B027 - optional
        """Raise an error if scores and target do not fit; called before they are split into problems."""

    def explain(self, scores: Tensor, target: Tensor) -> object:
        """A description of what is compared in one problem."""
        bound = self.bind(scores, target)
        return f"{self!r}, written by hand: {0 if bound is None else bound.comparisons.count:,} comparisons."

    def hide(self, scores: Tensor, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """One problem without its padding; ``mask``, in the shape of the target, is True for real entries."""
        if mask.shape == scores.shape[: mask.dim()]:
            return scores[mask], target[mask]
        return scores.movedim(1, -1)[mask], target[mask]


@dataclass(frozen=True)
class Refactoring(Refactored):
    """A refactoring written by hand.

    Args:
        comparisons: f, ``comparisons(scores, target) -> (l,)``: differentiable numbers; the metric depends only on
            their signs.
        value: g, ``value(binaries, target) -> scalar``: the metric of a boolean ``(l,)``.
        best: ``best(target) -> (l,)``, the best configuration; all ones by default.
        best_scores: ``best_scores(scores, target)`` returns scores with that configuration, for anchors in score space;
            `directloss.relaxation.ideal_scores` by default.

    Examples:
        >>> error_free = Refactoring(
        ...     comparisons=lambda scores, target: scores * (2 * target - 1),
        ...     value=lambda binaries, target: binaries.float().mean(),
        ... )
        >>> error_free(torch.tensor([0.5, -2.0]), torch.tensor([1, 1]))
        tensor(0.5000)
    """

    comparisons: Callable[[Tensor, Tensor], Tensor]
    value: Callable[[Tensor, Tensor], Tensor]
    best: Callable[[Tensor], Tensor] | None = None
    best_scores: Callable[[Tensor, Tensor], Tensor | None] = ideal_scores

    def __post_init__(self) -> None:
        for name, signature in FUNCTIONS.items():
            given = getattr(self, name)
            if not callable(given) and not (name == "best" and given is None):
                fail(name, f"must be a function {signature}", f"a {type(given).__name__}")

    def __call__(self, scores: Tensor, target: Tensor) -> Tensor:
        """The metric itself: g(h(f(scores, target)))."""
        with torch.no_grad():
            return self.value(self.comparisons(scores, target) > 0, target)

    def bind(self, scores: Tensor, target: Tensor) -> Bound:
        """See `Refactored.bind`."""
        shape = scores.shape
        first = self._first(scores, target)
        best = self.best_scores(scores.detach(), target)
        if best is not None and shape_of(best) != shape:
            fail("best_scores(scores, target)", f"must return scores of shape {tuple(shape)}", in_words(best))
        binaries = None if self.best is None else self.best(target)
        if binaries is not None and shape_of(binaries) != first.shape:
            rule = f"must return one binary for each comparison, shape ({first.numel()},)"
            fail("best(target)", rule, in_words(binaries))
        return Bound(
            scores=scores.flatten(),
            comparisons=General(lambda flat: self.comparisons(flat.reshape(shape), target), first.numel()),
            measure=lambda rows: torch.stack([self._scalar(self(row.reshape(shape), target)) for row in rows]),
            decide=lambda bits: torch.stack([self._scalar(self.value(row, target)) for row in bits]),
            best_scores=None if best is None else best.flatten(),
            best_binaries=None if binaries is None else binaries.bool(),
        )

    def _first(self, scores: Tensor, target: Tensor) -> Tensor:
        """The comparisons of the current scores, after checking what the user returned."""
        what = "comparisons(scores, target)"
        with torch.enable_grad():
            first = self.comparisons(scores.detach().requires_grad_(), target)
        if shape_of(first) is None or first.dim() != 1 or first.numel() == 0:
            fail(what, "must return a tensor of shape (l,), not empty", in_words(first))
        if not first.requires_grad:
            fail(
                what,
                "must be differentiable in scores",
                f"a tensor of {first.dtype} without gradient",
                "Return numbers such as differences of scores, not their signs: those are taken for you.",
            )
        return first

    def _scalar(self, value: Tensor) -> Tensor:
        if shape_of(value) is None or value.numel() != 1:
            fail("value(binaries, target)", "must return a tensor with one number", in_words(value))
        return value.reshape(()).detach()


FUNCTIONS = {
    "comparisons": "of scores and target",
    "value": "of binaries and target",
    "best": "of target, or None",
    "best_scores": "of scores and target",
}


def shape_of(value: object) -> torch.Size | None:
    """The shape of what a user's function returned, or None if it is not a tensor."""
    return value.shape if isinstance(value, Tensor) else None


def in_words(value: object) -> str:
    """What a user's function returned, for error messages."""
    shape = shape_of(value)
    return f"a {type(value).__name__}" if shape is None else f"of shape {tuple(shape)}"
