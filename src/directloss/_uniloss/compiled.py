"""The usual anchors of pairs of scores, in compiled loops: the same numbers as the general way, many times faster."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from directloss import kernels
from directloss._uniloss.anchors import Anchoring, as_kinds, check_numbers, constants, leap
from directloss._uniloss.comparisons import BEYOND, Pairs, middle, spread
from directloss._uniloss.interpolation import Interpolation, InverseDistance
from directloss._uniloss.lists import Layout, Ragged, layout
from directloss._uniloss.refactoring import Bound


def usual(how: Anchoring, interpolation: Interpolation) -> bool:
    """Whether the loops know this kind of anchors: one flipped pair or one moved score, in score space."""
    plain = Anchoring(how.good, how.nearby, how.bad, unit=how.unit, control=how.control)
    return how == plain and isinstance(interpolation, InverseDistance)


def applies(problem: Bound, how: Anchoring) -> bool:
    """Whether the loops know `usual` anchors of this problem, on the CPU.

    The best scores must be `ideal_scores`, where every pair is right, with a gap between the two groups.
    """
    return (
        type(problem.comparisons) in (Pairs, Ragged)
        and (how.unit == "comparison" or problem.counting is not None)
        and problem.best_scores is not None
        and kernels.compiles(problem.scores)
    )


class Interpolated(NamedTuple):
    """The interpolated metric, the present one, and the gradient of the first, by the flattened scores."""

    value: float
    now: float
    gradient: Tensor
    """Means nothing if it was not asked for."""


def of_problem(problem: Bound) -> Layout:
    """The lists of a problem to which `applies` says yes."""
    lists = layout(problem.comparisons)
    assert lists is not None
    return lists


def interpolate(
    scores: Tensor, lists: Layout, counting: str | None, bind: Callable[[], Bound], how: Anchoring,
    interpolation: InverseDistance, generator: torch.Generator, scale: float,
) -> Interpolated | None:  # fmt: skip
    """Interpolate the metric of flattened scores between anchors, which are drawn as `anchors.sample` does.

    None where all values are equal: `anchors.sample` knows what to do. ``bind`` makes the whole problem, which is
    needed only for ties and for metrics that the loops do not know. The gradient is multiplied by ``scale``, and left
    out if that is 0.
    """
    # Imported here because numba takes long to import.
    from directloss.kernels import pairs as loops

    kind, good, few, anchors = scores.numpy().dtype, how.good, how.good + how.nearby, how.good + how.nearby + how.bad
    drawn, rows = _draw(scores, lists.size, how, generator), scores.numpy().astype(np.float64)
    a, b, noise = rows.take(lists.relevant), rows.take(lists.irrelevant), drawn.noise.numpy()
    u, rivals = np.empty(lists.size, kind), np.empty((how.bad, len(b)), kind)
    sums, squared, lost = np.zeros(4), np.zeros(anchors), np.zeros((anchors + 1, len(a)), np.int64)
    low, high = float(rows.min()), float(rows.max())
    _relax(loops, low, high, a, b, lists, u, sums, lost[-1])
    squared[few:], squared[good:few], squared[:good], lost[good:few] = sums[0], sums[2], sums[1], lost[-1]
    compared = noise, lists.relevant, lists.irrelevant, *lists.loops, u, UNITS[kind.char]
    loops.compare(*compared, rivals, squared[few:], lost[few:])
    beyond = BEYOND * _deviation(scores, rows) if how.unit == "comparison" else 0.0
    room = good + how.nearby * (len(a) + len(b))
    flips = *np.empty((4, room), np.int64), np.empty(room)
    flipped = loops.flip(a, b, *lists.loops, good, *drawn.moves(scores, lists, how), beyond, u, *flips, squared, lost)
    values = np.zeros(anchors + 1)
    if counting is None or sums[3] or how.control:
        values = _measured(bind(), how, drawn)
    elif counting == "ap":
        lost.sort()
        loops.average_precision(lost, values)
    else:  # the share of the lists in which some relevant score loses no pair
        values = (np.minimum.reduceat(lost, lists.ups, 1) == 0).mean(1)
    now, values = float(values[-1]), values[:-1]
    if (values == values[0]).all():
        return None
    gradient = np.zeros(len(rows) if scale else 0, kind)
    if squared.min() <= 0:  # at an anchor, where the gradient is zero
        return Interpolated(float(values[squared <= 0].mean()), now, torch.from_numpy(gradient))
    weights, shares = np.empty(anchors, kind), np.zeros(4, kind)
    value = loops.weigh(squared, values, interpolation.power, good, few, weights, shares)
    if scale:
        loops.carry_back(
            a, b, lists.relevant, lists.irrelevant, *lists.loops, noise, rivals, u, shares, weights,
            np.empty(len(b), kind), flipped, *flips, scale, np.zeros(len(b)), gradient,
        )  # fmt: skip
    return Interpolated(value, now, torch.from_numpy(gradient))


FAR = 350.0
"""A distance of scores whose exponential, squared, is still a number."""
UNITS = {"f": np.array([0, 1], np.float32), "d": np.array([0.0, 1.0])}
"""None and one, in both types of scores."""


class Drawn(NamedTuple):
    """The random choices of one step."""

    good: Tensor
    """Pairs."""
    nearby: Tensor
    """Pairs, or scores."""
    noise: Tensor
    """Of the bad anchors, shape ``(k, m)``. The order of these is that of `Comparisons.random`, and it is all that
    counts."""

    def moves(self, scores: Tensor, lists: Layout, how: Anchoring) -> tuple[Any, Any, Any, Any]:
        """Which scores move, and where to if they leap."""
        if how.unit == "comparison":
            to = np.empty(how.good + how.nearby)
            return *lists.place(np.concatenate((self.good, self.nearby))), to, np.empty_like(to)
        both = zip(lists.place(self.good.numpy()), lists.find(self.nearby.numpy(), len(scores)), strict=True)
        to = np.append(np.zeros(how.good), leap(scores, self.nearby).double().numpy())
        ups, downs = (np.concatenate(parts) for parts in both)
        return ups, downs, to, to


def _draw(scores: Tensor, pairs: int, how: Anchoring, generator: torch.Generator) -> Drawn:
    among = pairs if how.unit == "comparison" else scores.numel()
    good = torch.randint(pairs, (how.good,), generator=generator)
    nearby = torch.randint(among, (how.nearby,), generator=generator)
    noise = torch.randn(how.bad, scores.numel(), generator=generator, dtype=scores.dtype)
    return Drawn(good, nearby, noise)


def _relax(loops: Any, low: float, high: float, a: Any, b: Any, lists: Layout, u: Any, sums: Any, lost: Any) -> None:
    """Fill u, the sums and the lost pairs of present scores between ``low`` and ``high``."""
    if high - low < 2 * FAR:  # exp(b - a) is a product of exponentials of single scores
        centre = 0.5 * low + 0.5 * high
        loops.relax(a, b, *lists.loops, np.exp(centre - a), np.exp(b - centre), u, sums, lost)
        return
    for i in range(len(a)):
        one = slice(i, i + 1)
        powers = np.exp(np.minimum(b - a[i], 2 * FAR))
        loops.relax(a[one], b, *(part[one] for part in lists.loops), np.ones(1), powers, u, sums, lost[one])


def _deviation(scores: Tensor, rows: Any) -> float:
    """As `spread`, from the same scores in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        apart = rows - np.add.reduce(rows) / len(rows)
        square = float(apart @ apart) / len(rows)
    return math.sqrt(square) if 0 < square < math.inf else float(spread(scores))


def _measured(problem: Bound, how: Anchoring, drawn: Drawn) -> Any:
    """The metric's own values of the anchors and, last, of the present scores; if the latter is NaN, there is no loss.

    For metrics that the loops do not know, and for ties, of which each metric makes something else.
    """
    assert problem.best_scores is not None
    fixed, pairs, (good, nearby, noise) = problem.scores.detach(), problem.comparisons, drawn
    with torch.no_grad():
        best = pairs.flipped(problem.best_scores.repeat(len(good), 1), good)
        near = fixed.repeat(len(nearby), 1)
        if how.unit == "comparison":
            near = pairs.flipped(near, nearby)
        else:
            near.scatter_(1, nearby[:, None], leap(fixed, nearby)[:, None])
        random = middle(fixed) + noise * spread(fixed)
        values = problem.measure(torch.cat([best, near, random, fixed[None]])).double()
    now = float(values[-1])
    if not math.isnan(now):
        check_numbers(values)
    if how.control:
        values[:-1] = constants(as_kinds(how), now, values)
    return values.numpy()
