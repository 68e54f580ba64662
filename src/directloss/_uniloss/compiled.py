"""The usual anchors of pairs of scores, in compiled loops: the same numbers as the general way, many times faster."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from directloss import kernels
from directloss._uniloss.anchors import Anchoring, as_kinds, check_numbers, constants, leap
from directloss._uniloss.comparisons import BEYOND, Pairs, as_wide, half_of, halves, numbers, powers, spread, words
from directloss._uniloss.interpolation import Interpolation
from directloss._uniloss.lists import Layout, unsigned
from directloss._uniloss.refactoring import Bound
from directloss._uniloss.spacing import between
from directloss.kernels import largest


def usual(how: Anchoring) -> bool:
    """Whether the loops know this kind of anchors: one flipped pair or one moved score, in score space."""
    return how == Anchoring(how.good, how.nearby, how.bad, unit=how.unit, control=how.control)


def lists_of(problem: Bound, how: Anchoring) -> Layout | None:
    """The lists of a problem, if the loops know its `usual` anchors, on the CPU; else None.

    The best scores must be `ideal_scores`, where every pair is right, with a gap between the two groups.
    """
    pairs, known = problem.comparisons, how.unit == "comparison" or problem.counting is not None
    if not (
        known and isinstance(pairs, Pairs) and problem.best_scores is not None and kernels.compiles(problem.scores)
    ):
        return None
    return Layout.of(pairs.relevant.numpy(), pairs.irrelevant.numpy(), *pairs.sizes.numpy().T)


class Interpolated(NamedTuple):
    """The interpolated metric, the present one, and the gradient of the first, by the flattened scores."""

    value: float
    now: float
    gradient: Tensor
    """Means nothing if it was not asked for."""


def interpolate(
    scores: Tensor, lists: Layout, counting: str | None, bind: Callable[[], Bound], how: Anchoring,
    interpolation: Interpolation, generator: torch.Generator, scale: float, refuse: Callable[[], object] | None,
) -> Interpolated | None:  # fmt: skip
    """Interpolate the metric of flattened scores between anchors, which are drawn as `anchors.sample` does.

    None where all values are equal: `anchors.sample` knows what to do. ``bind`` makes the whole problem, which is
    needed only for ties and for metrics that the loops do not know. The gradient is multiplied by ``scale``, and left
    out if that is 0. ``refuse`` is called if the scores are not finite, or too large.
    """
    step = Step(scores, lists, how, generator, refuse)
    values = step.values(counting, bind)
    now, values = float(values[-1]), values[:-1]
    value, weights = step.weigh(values, interpolation, scale)
    if math.isnan(value) and not math.isnan(now):
        return None
    return Interpolated(value, now, step.gradient(weights) if scale else scores)


FAR = 350.0
"""A distance of scores whose exponential, squared, is still a number."""
UNITS = {"f": np.array([0, 1], np.float32), "d": np.array([0.0, 1.0])}
"""None and one, in both types of scores."""


@cache
def _kernels() -> Any:
    """Not imported before they are needed, because numba takes long to import."""
    from directloss.kernels import pairs

    return pairs


class Step:
    """One step of `directloss.kernels.pairs`: the anchors, the squared distances from them, and what they lose."""

    def __init__(
        self, scores: Tensor, lists: Layout, how: Anchoring, generator: torch.Generator,
        refuse: Callable[[], object] | None = None,
    ) -> None:  # fmt: skip
        loops = self.loops = _kernels()
        self.scores, self.lists, self.how, self.sides, self.spans = scores, lists, how, lists.sides, lists.spans
        rows = np.ascontiguousarray(scores.numpy())
        kind, p, n = rows.dtype, len(lists.relevant), len(lists.irrelevant)
        self.units = UNITS[kind.char]
        anchors = how.good + how.nearby + how.bad
        self.a, self.b, self.u = np.empty(p, kind), np.empty(n, kind), np.empty(lists.size, kind)
        self.sums, self.squared, self.lost = np.zeros(4), np.empty(anchors), np.zeros((anchors + 1, p), np.int32)
        facts = np.empty(3)
        loops.relax(
            rows, *self.sides, *self.spans, 2 * FAR, self.a, self.b, np.empty(p), np.empty(n), facts, self.u,
            self.units, self.sums, self.lost[-1],
        )  # fmt: skip
        low, high, variance = facts.tolist()
        if refuse is not None and not (variance < math.inf and abs(low) + abs(high) < largest(scores.dtype) / 1024):
            refuse()
        if not high - low < 2 * FAR:
            self._relax_far_apart()
        self.drawn = Drawn.draw(scores, lists.size, how, generator)
        self.moves = self.drawn.moves(scores, lists)
        factors = powers(how.bad)
        self.tops, self.rivals = np.empty((len(factors), p), np.int32), np.empty((len(factors), n), np.int32)
        width = math.sqrt(variance) if 0 < variance < math.inf else float(spread(scores))
        beyond = BEYOND * width if how.unit == "comparison" else 0.0
        loops.compare(
            self.a, self.b, *self.sides, *self.spans, how.good, *self.moves, beyond, self.drawn.noise, factors,
            self.tops, self.rivals, self.u, self.units, self.sums, self.squared, self.lost,
        )  # fmt: skip

    def _relax_far_apart(self) -> None:
        """For scores that are so far apart that their exponentials are no numbers; without the loops, because they are
        rare.
        """
        up, down = self.lists.place(np.arange(self.lists.size))
        apart = np.subtract(self.a[up], self.b[down], dtype=np.float64)
        s = 1 / (1 + np.exp(np.minimum(-apart, 2 * FAR)))
        self.u[:] = s
        self.sums[:] = s @ s, (1 - s) @ (1 - s), np.square(np.minimum(s, 1 - s)).sum(), (apart == 0).sum()
        self.lost[-1] = np.add.reduceat(apart <= 0, self.lists.firsts)

    def values(self, counting: str | None, bind: Callable[[], Bound]) -> Any:
        """The metric of the anchors and, last, of the present scores."""
        if counting is None or self.sums[3] or self.how.control:
            return _measured(bind(), self.how, self.drawn)
        if counting == "ap":
            self.lost.sort()
            values = np.zeros(len(self.lost))
            self.loops.average_precision(self.lost, values)
            return values
        # the share of the lists in which some relevant score loses no pair
        return (np.minimum.reduceat(self.lost, self.lists.ups, 1) == 0).mean(1)

    def weigh(self, values: Any, interpolation: Interpolation, scale: float) -> tuple[float, Any]:
        """The interpolated value, NaN if all values are equal, and ``scale`` times its derivatives by the squared
        distances.
        """
        if values[0] == values[-1] and (values == values[0]).all():
            return math.nan, values
        value, slopes = interpolation.with_slopes(self.squared, values, partial(between, self))
        return value, np.multiply(scale, slopes, dtype=self.u.dtype, casting="same_kind")

    def gradient(self, weights: Any) -> Tensor:
        """That of the squared distances with these weights, by the scores."""
        gradient = np.zeros(self.scores.shape, self.u.dtype)
        self.loops.carry_back(
            self.a, self.b, *self.sides, *self.spans, self.how.good, *self.moves, self.tops, self.rivals, self.u,
            self.units, weights, np.empty(len(self.b), self.u.dtype), np.zeros(len(self.b)), gradient,
        )  # fmt: skip
        return torch.from_numpy(gradient)


class Drawn(NamedTuple):
    """The random choices of one step."""

    flips: Any
    """Pairs, of the good anchors, and of the nearby ones if these are a flipped pair away."""
    leaps: Any
    """Scores, of the nearby anchors, if these are a moved score away."""
    noise: Any
    """Of the bad anchors, shape ``(m,)``, see `as_wide`. The order of these is that of `Comparisons.random`, and it is
    all that counts."""

    @classmethod
    def draw(cls, scores: Tensor, pairs: int, how: Anchoring, generator: torch.Generator) -> Drawn:
        """In the order of `anchors.sample`, all at once."""
        m, few = scores.numel(), how.good + how.nearby
        flips = few if how.unit == "comparison" else how.good
        drawn = words(few + half_of(m), generator)
        leaps = numbers(drawn[flips:few], m) if flips < few else NOTHING
        return cls(numbers(drawn[:flips], pairs), leaps, halves(drawn[few:], m))

    def moves(self, scores: Tensor, lists: Layout) -> tuple[Any, Any, Any, Any]:
        """Which scores move, and where to if they leap."""
        ups, downs = lists.place(self.flips)
        to = np.empty((2, len(ups) + len(self.leaps)))
        if len(self.leaps):
            found = lists.find(self.leaps, len(scores))
            ups, downs = (np.concatenate(parts) for parts in zip((ups, downs), found, strict=True))
            to[:, len(self.flips) :] = leap(scores, torch.from_numpy(self.leaps)).numpy()
        return unsigned(ups), unsigned(downs), to[0], to[1]


NOTHING = np.empty(0, np.int64)


def _measured(problem: Bound, how: Anchoring, drawn: Drawn) -> Any:
    """The metric's own values of the anchors and, last, of the present scores; if the latter is NaN, there is no loss.

    For metrics that the loops do not know, and for ties, of which each metric makes something else.
    """
    assert problem.best_scores is not None
    fixed, pairs, flips = problem.scores.detach(), problem.comparisons, torch.from_numpy(drawn.flips)
    with torch.no_grad():
        best = pairs.flipped(problem.best_scores.repeat(how.good, 1), flips[: how.good])
        near = fixed.repeat(how.nearby, 1)
        if how.unit == "comparison":
            near = pairs.flipped(near, flips[how.good :])
        else:
            leaps = torch.from_numpy(drawn.leaps)
            near.scatter_(1, leaps[:, None], leap(fixed, leaps)[:, None])
        random = as_wide(drawn.noise, how.bad, fixed)
        values = problem.measure(torch.cat([best, near, random, fixed[None]])).double()
    now = float(values[-1])
    if not math.isnan(now):
        check_numbers(values)
    if how.control:
        values[:-1] = constants(as_kinds(how), now, values)
    return values.numpy()
