"""Anchors: scores whose metric is known, drawn around three places. Sec. 3.4 of the paper.

    good    a few flips away from the best scores
    nearby  a few flips away from the current ones
    bad     random

An anchor is a row of scores, so its binaries never contradict themselves, and its value is the plain metric of that
row. (The paper flips binaries directly; `directloss_repro` has that for its ablations.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from directloss._checks import check_choice, check_count, fail
from directloss._uniloss.comparisons import BEYOND, Blocks, Comparisons, spread
from directloss._uniloss.refactoring import Bound

UNITS = ("comparison", "score")


@dataclass(frozen=True)
class Anchors:
    """Anchors with their values, good ones first, then nearby ones, then bad ones."""

    differing: Callable[[Tensor], Blocks]
    """Where their binaries differ from given ones, block by block."""
    values: Tensor
    """The metric, float64 ``(k,)``."""
    best: float | None = None
    """The metric of the best scores; None if no anchors lie around them."""


@dataclass(frozen=True)
class Anchoring:
    """How anchors are chosen.

    Args:
        good: how many around the best scores.
        nearby: how many around the current ones.
        bad: how many random ones.
        flips: how many comparisons (or scores) are flipped.
        unit: what nearby anchors flip: ``"comparison"``, or ``"score"`` to move one score to the top or the bottom, as
            the paper does with the pixels of a heatmap.
    """

    good: int = 16
    nearby: int = 16
    bad: int = 16
    flips: int = 1
    unit: str = "comparison"

    def __post_init__(self) -> None:
        for kind in ("good", "nearby", "bad"):
            check_count(kind, getattr(self, kind), least=0)
        if self.good + self.nearby + self.bad < 2:
            fail("anchors", "must be at least two in total", self.good + self.nearby + self.bad)
        check_count("flips", self.flips)
        check_choice("unit", self.unit, UNITS)

    def draw(self, problem: Bound, comparisons: Comparisons, generator: torch.Generator) -> Anchors:
        """Draw anchors for a problem, of which ``comparisons`` are relaxed in this step."""
        best = self.best(problem)[None] if self.good else problem.scores[None][:0]
        good = self._flip(best, self.good, comparisons, generator)
        move = self._move if self.unit == "score" else self._flip
        nearby = move(problem.scores[None], self.nearby, comparisons, generator)
        rows = torch.cat([good, nearby, comparisons.random(problem.scores, self.bad, generator)])
        measured = problem.measure(torch.cat([rows, best]))
        if not bool(measured.isfinite().all()):
            wrong = measured[~measured.isfinite()]
            fail(
                "metric",
                "must be a finite number for all scores",
                f"{float(wrong[0])} for {len(wrong)} of the anchors",
                "Give 0 / 0 a value inside the metric, for example with clamp(min=1) in the denominator.",
            )
        values, top = measured[: len(rows)], measured[len(rows) :]
        if bool((values == values[0]).all()) and bool((top != values[0]).any()):
            # The surface would be flat. The best scores are better than those one flip away, as for an exact match:
            # they replace them, which would hide them.
            rows, values = torch.cat([best, rows[self.good :]]), torch.cat([top, values[self.good :]])
        return Anchors(partial(comparisons.differing, rows), values, float(top[0]) if self.good else None)

    def best(self, problem: Bound) -> Tensor:
        """The best scores ``(m,)``."""
        if problem.best_scores is None:
            fail(
                "best_scores",
                "must be given if the target does not tell the best scores",
                None,
                "Pass best_scores=function(scores, target).",
            )
        return problem.best_scores

    def _flip(self, base: Tensor, k: int, comparisons: Comparisons, generator: torch.Generator) -> Tensor:
        """``k`` rows with some comparisons of the base ``(1, m)`` flipped."""
        rows = base.repeat(k, 1)
        for which in choose(k, self.flips, comparisons.count, generator).T if k else ():
            rows = comparisons.flipped(rows, which)
        return rows

    def _move(self, base: Tensor, k: int, comparisons: Comparisons, generator: torch.Generator) -> Tensor:
        """``k`` rows with some scores of the base moved: a low one above the top, a high one below the bottom."""
        items = choose(k, self.flips, base.numel(), generator)
        beyond = BEYOND * spread(base)
        to = torch.where(base[0, items] <= base.median(), base.max() + beyond, base.min() - beyond)
        return base.repeat(k, 1).scatter_(1, items, to)


def as_anchoring(anchors: int | Anchoring, unit: str = "comparison") -> Anchoring:
    """An `Anchoring` as it is; a number stands for that many of each kind, with this unit."""
    if isinstance(anchors, Anchoring):
        return anchors
    number = check_count("anchors", anchors)
    return Anchoring(number, number, number, unit=unit)


def choose(k: int, flips: int, among: int, generator: torch.Generator) -> Tensor:
    """``(k, flips)`` random numbers below ``among``, distinct within each row, by Floyd's algorithm."""
    first = among - min(flips, among) + 1
    chosen = torch.randint(first, (k, 1), generator=generator)
    for last in range(first, among):
        new = torch.randint(last + 1, (k, 1), generator=generator)
        taken = (chosen == new).any(-1, keepdim=True)
        chosen = torch.cat([chosen, torch.where(taken, last, new)], -1)
    return chosen
