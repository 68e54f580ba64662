"""Anchors: configurations with known metric values, sampled around three places. Sec. 3.4 of the paper.

    good    a few flips away from the best configuration
    nearby  a few flips away from the current one
    bad     random

In *score space* an anchor is a vector of scores: its configuration is always consistent, and its value is the metric of
those scores. In *bit space*, as in the paper, binaries are flipped directly: for rankings nearly all random
configurations and many flipped ones contradict themselves (a above b above c above a). Those are valued by the metric's
counting rule and marked as inconsistent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from directloss._checks import check_choice, check_count, fail, warn_once
from directloss._uniloss.comparisons import BEYOND, Comparisons, numbers, spread, words
from directloss._uniloss.configurations import BLOCK, Configurations
from directloss._uniloss.consistency import consistent
from directloss._uniloss.refactoring import Bound

KINDS = ("good", "nearby", "bad")
SPACES = ("scores", "bits")
UNITS = ("comparison", "score")
BESTS = ("target", "nearest")
STEPS = 16
"""Grid size of the search for the nearest optimal scores on the way to the ideal ones; a second grid refines it."""


@dataclass(frozen=True)
class Anchoring:
    """How anchors are chosen.

    Args:
        good: how many around the best configuration.
        nearby: how many around the current one.
        bad: how many random ones.
        space: ``"scores"``, where every anchor is consistent, or ``"bits"``, the paper's.
        flips: how many comparisons (or scores) are flipped.
        unit: what nearby anchors flip: ``"comparison"``, or ``"score"`` for all comparisons of one score, as the paper
            does with the pixels of a heatmap.
        best: ``"target"`` for the configuration of the target; ``"nearest"`` for the first optimal one on the way from
            the current scores to it, which prefers none of several optimal ones.
        control: replace the values by constants (good 1, nearby the current value, bad 0), to measure in an experiment
            what the metric's values contribute.
    """

    good: int = 16
    nearby: int = 16
    bad: int = 16
    space: str = "scores"
    flips: int = 1
    unit: str = "comparison"
    best: str = "target"
    control: bool = False

    def __post_init__(self) -> None:
        for kind in KINDS:
            check_count(kind, getattr(self, kind), least=0)
        if self.good + self.nearby + self.bad < 2:
            fail("anchors", "must be at least two in total", self.good + self.nearby + self.bad)
        check_count("flips", self.flips)
        check_choice("space", self.space, SPACES)
        check_choice("unit", self.unit, UNITS)
        check_choice("best", self.best, BESTS)


@dataclass(frozen=True)
class Anchors:
    """Configurations with their values, good ones first, then nearby ones, then bad ones."""

    configurations: Configurations
    values: Tensor
    """The metric, ``(k,)``."""
    kinds: tuple[str, ...]
    inconsistent: Tensor
    """Boolean ``(k,)``: configurations that no scores have."""


def as_anchoring(anchors: int | Anchoring, unit: str = "comparison") -> Anchoring:
    """An `Anchoring` as it is; a number stands for that many of each kind, with this unit."""
    if isinstance(anchors, Anchoring):
        return anchors
    number = check_count("anchors", anchors)
    return Anchoring(number, number, number, unit=unit)


def sample(
    problem: Bound,
    comparisons: Comparisons,
    how: Anchoring,
    generator: torch.Generator,
    subset: Tensor | None = None,
) -> Anchors:
    """Draw anchors for a problem.

    Args:
        problem: the metric, bound to scores and target.
        comparisons: those of the problem that are relaxed in this step.
        how: how many anchors, and where.
        generator: the source of all random choices.
        subset: indices of ``comparisons`` among all of the problem; None for all.
    """
    draw = InScores if how.space == "scores" else InBits
    with torch.no_grad():
        anchors = draw(problem, comparisons, how, generator, subset).anchors()
    if not how.control:
        return anchors
    now = float(problem.measure(problem.scores.detach()[None])[0])
    return replace(anchors, values=constants(anchors.kinds, now, anchors.values))


def as_kinds(how: Anchoring) -> tuple[str, ...]:
    """The kind of each anchor, in the order in which they are drawn."""
    return tuple(kind for kind in KINDS for _ in range(getattr(how, kind)))


def constants(kinds: tuple[str, ...], now: float, like: Tensor) -> Tensor:
    """The constants that replace the metric's values in a control experiment."""
    constant = {"good": 1.0, "nearby": now, "bad": 0.0}
    return like.new_tensor([constant[kind] for kind in kinds])


def leap(scores: Tensor, items: Tensor) -> Tensor:
    """Where scores move to flip most of their comparisons: a low score above the top, a high one below the bottom."""
    beyond = BEYOND * spread(scores)
    top = scores[items] <= scores.median()
    return torch.where(top, scores.max() + beyond, scores.min() - beyond)


def all_equal(values: Tensor) -> bool:
    """Whether all values are equal, so that their interpolation is flat."""
    return bool((values == values[0]).all())


def check_numbers(values: Tensor) -> Tensor:
    """Check that the metric is finite at every anchor."""
    if not bool(torch.isfinite(values).all()):
        fail(
            "metric",
            "must be a finite number for all scores",
            f"{float(values[~torch.isfinite(values)][0])} for {int((~torch.isfinite(values)).sum())} of the anchors",
            "Give 0 / 0 a value inside the metric, for example with clamp(min=1) in the denominator.",
        )
    return values


Drawn = tuple[Tensor, Tensor, Tensor]
"""For some anchors: binaries ``(k, l)``, values ``(k,)``, and whether no scores have those binaries ``(k,)``."""


@dataclass
class _Draw(ABC):
    """What both spaces share; the fields are the arguments of `sample`."""

    problem: Bound
    comparisons: Comparisons
    how: Anchoring
    generator: torch.Generator
    subset: Tensor | None = None

    def __post_init__(self) -> None:
        self.scores = self.problem.scores.detach()
        self.current = self.scores if self.how.space == "scores" else self.comparisons.bits(self.scores)

    def anchors(self) -> Anchors:
        drawn, names = [self.valued(rows) for rows in self.rows()], as_kinds(self.how)
        if self.how.good and not self.how.control and all_equal(torch.cat([value for _, value, _ in drawn])):
            # The surface would be flat. If the best configuration itself is better than those one flip away, as for an
            # exact match, it replaces them: they would hide it.
            top = self.valued(self.best()[None])
            if top[1] != drawn[0][1][0]:
                drawn[0], names = top, ("good", *names[self.how.good :])
        values, bad = (torch.cat(part) for part in list(zip(*drawn, strict=True))[1:])
        return Anchors(Configurations(*(bits for bits, _, _ in drawn)), check_numbers(values), names, bad)

    def rows(self) -> list[Tensor]:
        """The anchors of each kind that has any, in the order of `KINDS`: scores ``(k, m)`` or binaries ``(k, l)``."""
        how, rows = self.how, []
        if how.good:
            rows.append(self.flips_of(self.best(), how.good))
        if how.nearby:
            rows.append(self.moves(how.nearby) if how.unit == "score" else self.flips_of(self.current, how.nearby))
        if how.bad:
            rows.append(self.random(how.bad))
        return rows

    @abstractmethod
    def valued(self, rows: Tensor) -> Drawn:
        """The anchors that these rows stand for."""

    @abstractmethod
    def best(self) -> Tensor:
        """The best row."""

    @abstractmethod
    def flips_of(self, base: Tensor, k: int) -> Tensor:
        """``k`` rows with some comparisons of the base flipped."""

    @abstractmethod
    def moves(self, k: int) -> Tensor:
        """``k`` rows with the comparisons of some scores flipped."""

    @abstractmethod
    def random(self, k: int) -> Tensor:
        """``k`` random rows."""

    def choose(self, k: int, among: int) -> Tensor:
        """``(k, flips)`` random numbers below ``among``, distinct within each row."""
        flips = min(self.how.flips, among)
        if 4 * flips * flips > among and flips > 1:
            chosen = torch.stack([torch.randperm(among, generator=self.generator)[:flips] for _ in range(k)])
            return chosen.to(self.scores.device)
        # Duplicates are rare here, and redrawing a row costs less than a permutation of all numbers.
        chosen = torch.from_numpy(numbers(words(k * flips, self.generator), among)).reshape(k, flips)
        while flips > 1:
            ordered = chosen.sort(-1).values
            again = (ordered[:, 1:] == ordered[:, :-1]).any(-1)
            if not bool(again.any()):
                break
            chosen[again] = torch.randint(among, (int(again.sum()), flips), generator=self.generator)
        return chosen.to(self.scores.device)


class InScores(_Draw):
    """Rows are scores."""

    def valued(self, rows: Tensor) -> Drawn:
        values = self.problem.measure(rows)
        return self.comparisons.bits(rows), values, torch.zeros_like(values, dtype=torch.bool)

    def best(self) -> Tensor:
        """The best known scores, or the nearest optimal ones on the way to them."""
        best = self.problem.best_scores
        if best is None:
            fail(
                "best_scores",
                "must be given if the target does not tell the best scores",
                None,
                'Pass best_scores=function(scores, target), or anchors=Anchoring(space="bits") with a best '
                "configuration.",
            )
        if self.how.best == "target":
            return best
        share = self._optimal_share(best, 0.0, 1.0)
        share = self._optimal_share(best, share * (1 - 1 / STEPS), share) if share > 1 / STEPS else share
        return self.scores + share * (best - self.scores)

    def _optimal_share(self, best: Tensor, low: float, high: float) -> float:
        """The least share of the way, on a grid of ``STEPS``, from which on the metric is as good as at ``high``."""
        shares = torch.linspace(high, low, STEPS + 1, dtype=best.dtype, device=best.device)[:-1]
        values = self.problem.measure(self.scores + shares[:, None] * (best - self.scores))
        as_good = ((values - values[0]).abs() <= 1e-6).int().cumprod(0)
        return float(shares[int(as_good.sum()) - 1])

    def flips_of(self, base: Tensor, k: int) -> Tensor:
        which = self.choose(k, self.comparisons.count)
        scores = base.repeat(k, 1)
        for flip in range(which.shape[1]):
            scores = self.comparisons.flipped(scores, which[:, flip])
        return scores

    def moves(self, k: int) -> Tensor:
        """A score that loses most of its comparisons moves to the top, any other to the bottom."""
        items = self.choose(k, self.scores.numel())
        return self.scores.repeat(k, 1).scatter_(1, items, leap(self.scores, items))

    def random(self, k: int) -> Tensor:
        return self.comparisons.random(self.scores, k, self.generator)


class InBits(_Draw):
    """Rows are binaries."""

    def valued(self, rows: Tensor) -> Drawn:
        comparisons = self.problem.comparisons
        if self.problem.decide is None:
            fail("space", "must be 'scores' for a metric that has no value for configurations", "'bits'")
        found, values = [], []
        for piece in torch.split(rows, max(1, BLOCK // comparisons.count)):
            whole = self._completed(piece)
            found.append(consistent(comparisons, whole))
            values.append(self.problem.decide(whole))
        good = torch.cat(found)
        if not bool(good.all()):
            warn_once(
                "inconsistent anchors",
                f"{int((~good).sum())} of {len(good)} anchors in bit space contradict themselves: no scores have those "
                'binaries. They keep the value of the counting rule. Anchoring(space="scores") avoids them.',
            )
        return rows, torch.cat(values), ~good

    def _completed(self, bits: Tensor) -> Tensor:
        """Binaries of all comparisons: those that are not relaxed in this step are the current ones."""
        if self.subset is None:
            return bits
        whole = self.problem.comparisons.bits(self.scores).repeat(len(bits), 1)
        whole[:, self.subset] = bits
        return whole

    def best(self) -> Tensor:
        """The best binaries: all ones unless the problem says otherwise."""
        best = self.problem.best_binaries
        if best is None:
            return torch.ones_like(self.current)
        return best if self.subset is None else best[self.subset]

    def flips_of(self, base: Tensor, k: int) -> Tensor:
        which = self.choose(k, base.numel())
        return base.repeat(k, 1).scatter_(1, which, ~base[which])

    def moves(self, k: int) -> Tensor:
        rows = self.current.repeat(k, 1)
        for row, items in zip(rows, self.choose(k, self.scores.numel()).tolist(), strict=True):
            for item in items:
                row ^= self.comparisons.of_score(self.scores, item)
        return rows

    def random(self, k: int) -> Tensor:
        bits = torch.empty(k, self.comparisons.count, dtype=torch.bool)
        for row in bits:
            row.random_(generator=self.generator)
        return bits.to(self.scores.device)
