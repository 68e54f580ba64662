"""The default anchors of pairs of scores in compiled loops: the numbers of the general path, many times faster."""

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
    """Whether the loops support these anchors: one flipped pair or one moved score, in score space."""
    return how == Anchoring(how.good, how.nearby, how.bad, unit=how.unit, control=how.control)


def lists_of(problem: Bound, how: Anchoring) -> Layout | None:
    """The lists of a problem with `usual` anchors, or None if the loops do not support it.

    The best scores must be `ideal_scores`, where every pair is right, with a gap between the two groups.
    """
    pairs, known = problem.comparisons, how.unit == "comparison" or problem.counting is not None
    if not (
        known and isinstance(pairs, Pairs) and problem.best_scores is not None and kernels.compiles(problem.scores)
    ):
        return None
    return Layout.of(pairs.relevant.numpy(), pairs.irrelevant.numpy(), *pairs.sizes.numpy().T)


class Interpolated(NamedTuple):
    """The interpolated metric, the metric of the current scores, and the gradient of the first."""

    value: float
    now: float
    gradient: Tensor
    """With respect to the flattened scores; meaningless if it was not requested."""


def interpolate(
    scores: Tensor, lists: Layout, counting: str | None, bind: Callable[[], Bound | None], how: Anchoring,
    interpolation: Interpolation, generator: torch.Generator, scale: float, refuse: Callable[[], object] | None,
) -> Interpolated | None:  # fmt: skip
    """Interpolate the metric of flattened scores between anchors, drawn as in `anchors.sample`.

    Returns None, with the generator as it was, if all values are equal: `anchors.sample` handles that case. ``bind``
    makes the whole problem, needed only for ties and for metrics that the loops do not support. The gradient is
    multiplied by ``scale`` and skipped if that is 0. ``refuse`` is called if the scores are not finite, or too large.
    """
    before = generator.get_state()
    step = Step(scores, lists, how, generator, refuse)
    values = step.values(counting, bind)
    now, values = float(values[-1]), values[:-1]
    value, weights = step.weigh(values, interpolation, scale)
    if math.isnan(value) and not math.isnan(now):
        generator.set_state(before)
        return None
    return Interpolated(value, now, step.gradient(weights) if scale else scores)


FAR = 350.0
"""A difference of scores whose exponential, squared, is still finite."""
UNITS = {"f": np.array([0, 1], np.float32), "d": np.array([0.0, 1.0])}
"""Zero and one in both types of scores."""


@cache
def _kernels() -> Any:
    """Imported lazily: numba is slow to import."""
    from directloss.kernels import pairs

    return pairs


class Step:
    """One step of `directloss.kernels.pairs`: the anchors, their squared distances, and the pairs lost in each."""

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
        """Relax scores so far apart that their exponentials overflow; rare, so without compiled loops."""
        up, down = self.lists.place(np.arange(self.lists.size))
        apart = np.subtract(self.a[up], self.b[down], dtype=np.float64)
        s = 1 / (1 + np.exp(np.minimum(-apart, 2 * FAR)))
        self.u[:] = s
        self.sums[:] = s @ s, (1 - s) @ (1 - s), np.square(np.minimum(s, 1 - s)).sum(), (apart == 0).sum()
        self.lost[-1] = np.add.reduceat(apart <= 0, self.lists.firsts)

    def values(self, counting: str | None, bind: Callable[[], Bound | None]) -> Any:
        """The metric at the anchors and, last, at the current scores."""
        if counting is None or self.sums[3] or self.how.control:
            return _measured(bind(), self.how, self.drawn)
        if counting == "ap":
            self.lost.sort()
            values = np.zeros(len(self.lost))
            self.loops.average_precision(self.lost, values)
            return values
        # The share of lists in which some relevant score loses no pair.
        return (np.minimum.reduceat(self.lost, self.lists.ups, 1) == 0).mean(1)

    def weigh(self, values: Any, interpolation: Interpolation, scale: float) -> tuple[float, Any]:
        """The interpolated value, or NaN if all values are equal, and ``scale`` times its derivatives with respect to
        the squared distances.
        """
        if values[0] == values[-1] and (values == values[0]).all():
            return math.nan, values
        value, slopes = interpolation.with_slopes(self.squared, values, partial(between, self))
        return value, np.multiply(scale, slopes, dtype=self.u.dtype, casting="same_kind")

    def gradient(self, weights: Any) -> Tensor:
        """The gradient of the weighted squared distances with respect to the scores."""
        gradient = np.zeros(self.scores.shape, self.u.dtype)
        self.loops.carry_back(
            self.a, self.b, *self.sides, *self.spans, self.how.good, *self.moves, self.tops, self.rivals, self.u,
            self.units, weights, np.empty(len(self.b), self.u.dtype), np.zeros(len(self.b)), gradient,
        )  # fmt: skip
        return torch.from_numpy(gradient)


class Drawn(NamedTuple):
    """The random choices of one step."""

    flips: Any
    """Pairs that good anchors flip, and nearby ones if their unit is the comparison."""
    leaps: Any
    """Scores that nearby anchors move if their unit is the score."""
    noise: Any
    """For the bad anchors, shape ``(m,)``, see `as_wide`. Only its order matters, which is that of
    `Comparisons.random`."""

    @classmethod
    def draw(cls, scores: Tensor, pairs: int, how: Anchoring, generator: torch.Generator) -> Drawn:
        """Draw everything at once, in the order of `anchors.sample`."""
        m, few = scores.numel(), how.good + how.nearby
        flips = few if how.unit == "comparison" else how.good
        drawn = words(few + half_of(m), generator)
        leaps = numbers(drawn[flips:few], m) if flips < few else drawn[:0].view(np.int64)
        return cls(numbers(drawn[:flips], pairs), leaps, halves(drawn[few:], m))

    def moves(self, scores: Tensor, lists: Layout) -> tuple[Any, Any, Any, Any]:
        """Which scores move, and for leaps where to."""
        ups, downs = lists.place(self.flips)
        to = np.empty((2, len(ups) + len(self.leaps)))
        if len(self.leaps):
            found = lists.find(self.leaps, len(scores))
            ups, downs = (np.concatenate(parts) for parts in zip((ups, downs), found, strict=True))
            to[:, len(self.flips) :] = leap(scores, torch.from_numpy(self.leaps)).numpy()
        return unsigned(ups), unsigned(downs), to[0], to[1]


def _measured(problem: Bound | None, how: Anchoring, drawn: Drawn) -> Any:
    """The metric's own values at the anchors and, last, at the current scores; there is no loss if that one is NaN.

    For metrics that the loops do not support, and for ties, which each metric treats in its own way.
    """
    assert problem is not None
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
