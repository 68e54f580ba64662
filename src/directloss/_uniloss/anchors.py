"""Anchors: configurations with known metric values, sampled around three places. Sec. 3.4 of the paper.

    good    a few flips away from the best configuration
    nearby  a few flips away from the present one
    bad     at random

In *score space* an anchor is a set of scores: its configuration is one that scores can have, and its value is the
metric's own. In *bit space*, as in the paper, binaries are flipped as they stand: for rankings nearly all random ones
and many flipped ones contradict themselves (a above b above c above a). Those are valued by the metric's counting
rule, and marked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

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
"""Into how many pieces the way to the ideal scores is cut in the search for the nearest optimal ones; done twice."""


@dataclass(frozen=True)
class Anchoring:
    """How anchors are chosen.

    Args:
        good: how many around the best configuration.
        nearby: how many around the present one.
        bad: how many at random.
        space: ``"scores"``, where every anchor is consistent, or ``"bits"``, the paper's.
        flips: how many comparisons (or scores) are flipped.
        unit: ``"comparison"`` flips one of them; ``"score"`` flips all comparisons of one score, as the paper does
            with the pixels of a heatmap, for nearby anchors.
        best: ``"target"`` for the configuration of the target; ``"nearest"`` for the first optimal one on the way from
            the present scores to it, so that none of several optimal ones is preferred.
        control: replace the values by constants (good 1, nearby the present value, bad 0), to measure in an experiment
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
            fail("anchors", "must be at least two in all", self.good + self.nearby + self.bad)
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


def as_anchoring(anchors: int | Anchoring) -> Anchoring:
    """A number stands for that many of each kind."""
    if isinstance(anchors, Anchoring):
        return anchors
    number = check_count("anchors", anchors)
    return Anchoring(number, number, number)


def sample(
    problem: Bound,
    comparisons: Comparisons,
    how: Anchoring,
    present: Tensor,
    generator: torch.Generator,
    subset: Tensor | None = None,
) -> Anchors:
    """Draw anchors for a problem.

    Args:
        problem: the metric, bound to scores and target.
        comparisons: those of the problem that are relaxed in this step.
        how: the numbers and places.
        present: the binaries of the present scores, ``(l,)``.
        generator: of all random choices.
        subset: indices of those comparisons among all of the problem; None for all.
    """
    with torch.no_grad():
        draw = _InScores if how.space == "scores" else _InBits
        anchors = draw(problem, comparisons, how, present, generator, subset).anchors()
    if how.control:
        now = float(problem.measure(problem.scores.detach()[None])[0])
        values = constants(anchors.kinds, now, anchors.values)
        return Anchors(anchors.configurations, values, anchors.kinds, anchors.inconsistent)
    return anchors


def as_kinds(how: Anchoring) -> tuple[str, ...]:
    """The kind of each anchor, in the order in which they are drawn."""
    return tuple(kind for kind in KINDS for _ in range(getattr(how, kind)))


def constants(kinds: tuple[str, ...], now: float, like: Tensor) -> Tensor:
    """What stands for the metric's values in a control experiment."""
    constant = {"good": 1.0, "nearby": now, "bad": 0.0}
    return like.new_tensor([constant[kind] for kind in kinds])


def leap(scores: Tensor, items: Tensor) -> Tensor:
    """Where scores go so that most of their comparisons flip: a low one beyond the top, a high one to the bottom."""
    beyond = BEYOND * spread(scores)
    top = scores[items] <= scores.median()
    return torch.where(top, scores.max() + beyond, scores.min() - beyond)


def all_equal(values: Tensor) -> bool:
    """Whether an interpolation of these values is flat."""
    return bool((values == values[0]).all())


def check_numbers(values: Tensor) -> Tensor:
    """The metric must have a value for every anchor."""
    if not bool(torch.isfinite(values).all()):
        fail(
            "metric",
            "must be a finite number for all scores",
            f"{float(values[~torch.isfinite(values)][0])} for {int((~torch.isfinite(values)).sum())} of the anchors",
            "Give 0 / 0 a value inside of the metric, for example with clamp(min=1) in the denominator.",
        )
    return values


Drawn = tuple[Tensor, Tensor, Tensor]
"""Of some anchors the binaries ``(k, l)``, their values ``(k,)``, and which no scores have ``(k,)``."""


@dataclass
class _Draw(ABC):
    """What both spaces share; the arguments of `sample`."""

    problem: Bound
    comparisons: Comparisons
    how: Anchoring
    present: Tensor
    generator: torch.Generator
    subset: Tensor | None

    def __post_init__(self) -> None:
        self.scores = self.problem.scores.detach()

    def anchors(self) -> Anchors:
        kinds = [kind for kind in KINDS if getattr(self.how, kind)]
        drawn = [getattr(self, kind)(getattr(self.how, kind)) for kind in kinds]
        names = as_kinds(self.how)
        if self.how.good and not self.how.control and all_equal(torch.cat([value for _, value, _ in drawn])):
            # The surface would be flat. If the best configuration itself is better than those that are a flip away from
            # it, as for an exact match, it takes their place: they would hide it.
            top = self.top()
            if top[1] != drawn[0][1][0]:
                drawn[0], names = top, ("good", *names[self.how.good :])
        values, bad = (torch.cat(part) for part in list(zip(*drawn, strict=True))[1:])
        return Anchors(Configurations(*(bits for bits, _, _ in drawn)), check_numbers(values), names, bad)

    @abstractmethod
    def top(self) -> Drawn:
        """The best configuration itself."""

    def choose(self, k: int, among: int) -> Tensor:
        """``(k, flips)`` numbers below ``among``, no two alike in a row."""
        flips = min(self.how.flips, among)
        if 4 * flips * flips > among and flips > 1:
            chosen = torch.stack([torch.randperm(among, generator=self.generator)[:flips] for _ in range(k)])
            return chosen.to(self.scores.device)
        # Two alike are rare among many, and drawing a row again costs less than an order of all numbers.
        chosen = torch.from_numpy(numbers(words(k * flips, self.generator), among)).reshape(k, flips)
        while flips > 1:
            ordered = chosen.sort(-1).values
            again = (ordered[:, 1:] == ordered[:, :-1]).any(-1)
            if not bool(again.any()):
                break
            chosen[again] = torch.randint(among, (int(again.sum()), flips), generator=self.generator)
        return chosen.to(self.scores.device)


class _InScores(_Draw):
    """Anchors are scores."""

    def good(self, k: int) -> Drawn:
        return self._flips_of(self.best(), k)

    def top(self) -> Drawn:
        return self._valued(self.best()[None])

    def nearby(self, k: int) -> Drawn:
        if self.how.unit == "score":
            return self._moves_of_scores(k)
        return self._flips_of(self.scores, k)

    def bad(self, k: int) -> Drawn:
        return self._valued(self.comparisons.random(self.scores, k, self.generator))

    def best(self) -> Tensor:
        """The best scores that are known, or the nearest optimal ones on the way to them."""
        best = self.problem.best_scores
        if best is None:
            fail(
                "best_scores",
                "must be given where the target does not say what the best scores are",
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
        """The least share of the way, of ``STEPS`` between two, from which on the metric is as good as at its end."""
        shares = torch.linspace(high, low, STEPS + 1, dtype=best.dtype, device=best.device)[:-1]
        values = self.problem.measure(self.scores + shares[:, None] * (best - self.scores))
        as_good = ((values - values[0]).abs() <= 1e-6).int().cumprod(0)
        return float(shares[int(as_good.sum()) - 1])

    def _flips_of(self, base: Tensor, k: int) -> Drawn:
        which = self.choose(k, self.comparisons.count)
        scores = base.repeat(k, 1)
        for flip in range(which.shape[1]):
            scores = self.comparisons.flipped(scores, which[:, flip])
        return self._valued(scores)

    def _moves_of_scores(self, k: int) -> Drawn:
        """A score that loses most of its comparisons goes to the top, another to the bottom."""
        items = self.choose(k, self.scores.numel())
        scores = self.scores.repeat(k, 1)
        scores.scatter_(1, items, leap(self.scores, items))
        return self._valued(scores)

    def _valued(self, scores: Tensor) -> Drawn:
        values = self.problem.measure(scores)
        return self.comparisons.bits(scores), values, torch.zeros_like(values, dtype=torch.bool)


class _InBits(_Draw):
    """Anchors are bits."""

    def good(self, k: int) -> Drawn:
        return self._flips_of(self.best(), k)

    def top(self) -> Drawn:
        return self._valued(self.best()[None])

    def best(self) -> Tensor:
        """The best binaries, all ones unless others are known."""
        best = self.problem.best_binaries
        if best is None:
            return torch.ones_like(self.present)
        return best if self.subset is None else best[self.subset]

    def nearby(self, k: int) -> Drawn:
        if self.how.unit == "score":
            return self._flips_of_scores(k)
        return self._flips_of(self.present, k)

    def bad(self, k: int) -> Drawn:
        bits = torch.empty(k, self.present.numel(), dtype=torch.bool)
        for row in bits:
            row.random_(generator=self.generator)
        return self._valued(bits.to(self.present.device))

    def _flips_of(self, base: Tensor, k: int) -> Drawn:
        which = self.choose(k, self.present.numel())
        return self._valued(base.repeat(k, 1).scatter_(1, which, ~base[which]))

    def _flips_of_scores(self, k: int) -> Drawn:
        items = self.choose(k, self.scores.numel())
        rows = []
        for row in items.tolist():
            touched = torch.zeros_like(self.present)
            for item in row:
                touched ^= self.comparisons.of_score(self.scores, item)
            rows.append(self.present ^ touched)
        return self._valued(torch.stack(rows))

    def _valued(self, bits: Tensor) -> Drawn:
        comparisons = self.problem.comparisons
        if self.problem.decide is None:
            fail("space", "must be 'scores' for a metric whose value of configurations is not known", "'bits'")
        found, values = [], []
        for piece in torch.split(bits, max(1, BLOCK // comparisons.count)):
            whole = self._completed(piece)
            found.append(consistent(comparisons, whole))
            values.append(self.problem.decide(whole))
        good = torch.cat(found)
        if not bool(good.all()):
            warn_once(
                "inconsistent anchors",
                f"{int((~good).sum())} of {len(good)} anchors in bit space contradict themselves: no scores have those "
                'binaries. They keep the value of the counting rule. Anchoring(space="scores") has none.',
            )
        return bits, torch.cat(values), ~good

    def _completed(self, bits: Tensor) -> Tensor:
        """Binaries that are not relaxed in this step stay as they are."""
        if self.subset is None:
            return bits
        whole = self.problem.comparisons.bits(self.scores).repeat(len(bits), 1)
        whole[:, self.subset] = bits
        return whole
