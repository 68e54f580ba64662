"""The usual anchors of pairs of scores, in compiled loops: the same numbers as the general way, many times faster."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from directloss import kernels
from directloss._uniloss.anchors import Anchoring, as_kinds, check_numbers, constants, leap
from directloss._uniloss.comparisons import BEYOND, Comparisons, Pairs, middle, spread
from directloss._uniloss.interpolation import Interpolation, InverseDistance
from directloss._uniloss.lists import Layout, Ragged, layout
from directloss._uniloss.refactoring import Bound

FAR = 350.0
"""A distance of scores whose exponential, squared, is still a number."""


@lru_cache(maxsize=16)
def usual(how: Anchoring, interpolation: Interpolation) -> bool:
    """Whether the loops know this kind of anchors: one flipped pair or one moved score, in score space."""
    plain = Anchoring(how.good, how.nearby, how.bad, unit=how.unit, control=how.control)
    return how == plain and isinstance(interpolation, InverseDistance)


def applies(problem: Bound, comparisons: Comparisons, how: Anchoring, interpolation: Interpolation) -> bool:
    """Whether the loops know these anchors of this problem, on the CPU.

    The best scores must be `ideal_scores`, where every pair is right, with a gap between the two groups.
    """
    return (
        type(comparisons) in (Pairs, Ragged)
        and usual(how, interpolation)
        and (how.unit == "comparison" or problem.counting is not None)
        and problem.best_scores is not None
        and kernels.compiles(problem.scores)
    )


class Interpolated(NamedTuple):
    """The interpolated metric, the present one, and the gradient of the first, by the flattened scores."""

    value: float
    now: float
    gradient: Callable[[], Tensor]


def of_labels(labels: Any) -> Layout | None:
    """The lists ``(b, n)`` of labels 1, 0 and -1 that have something to compare; None if no list has."""
    high, low = labels == 1, labels == 0
    if len(labels) == 1:
        relevant, irrelevant = np.flatnonzero(high), np.flatnonzero(low)
        p, n = len(relevant), len(irrelevant)
        return Layout(relevant, irrelevant, *np.array([[0, p], [0, n], [0, p * n]])) if p and n else None
    ups, downs = high.sum(1), low.sum(1)
    kept = (ups > 0) & (downs > 0)
    if not kept.all():
        high, low = high & kept[:, None], low & kept[:, None]
        ups, downs = ups[kept], downs[kept]
        if not len(ups):
            return None
    ends = (np.concatenate(([0], np.cumsum(sizes))) for sizes in (ups, downs, ups * downs))
    return Layout(np.flatnonzero(high), np.flatnonzero(low), *ends)


def of_problem(problem: Bound) -> Layout:
    """The lists of a problem to which `applies` says yes."""
    lists = layout(problem.comparisons)
    assert lists is not None
    return lists


def interpolate(
    scores: Tensor, lists: Layout, counting: str | None, bind: Callable[[], Bound], how: Anchoring,
    interpolation: InverseDistance, generator: torch.Generator,
) -> Interpolated | None:  # fmt: skip
    """Interpolate the metric of flattened scores between anchors, which are drawn as `anchors.sample` does.

    None where all values are equal: `anchors.sample` knows what to do. ``bind`` makes the whole problem, which is
    needed only for ties and for metrics that the loops do not know.
    """
    fixed, count = scores.detach(), int(lists.starts[-1])
    good = torch.randint(count, (how.good, 1), generator=generator)[:, 0] if how.good else _none()
    among = count if how.unit == "comparison" else fixed.numel()
    nearby = torch.randint(among, (how.nearby, 1), generator=generator)[:, 0] if how.nearby else _none()
    # The order of these is that of `Comparisons.random`, and it is all that counts.
    noise = torch.randn(how.bad, fixed.numel(), generator=generator, dtype=fixed.dtype)
    # From here on in numpy, which costs a fraction of what small tensors cost.
    rows, drawn = fixed.numpy().astype(np.float64), noise.numpy()
    if how.unit == "comparison":
        moves = np.stack(lists.place(torch.cat((good, nearby)).numpy()), 1)
        moved, beyond = np.empty((len(moves), 2)), BEYOND * _deviation(fixed, rows)
    else:
        near = lists.find(nearby.numpy(), len(rows))
        moves = np.concatenate((np.stack(lists.place(good.numpy()), 1), np.stack(near, 1)))
        moved = np.append(np.zeros(len(good)), leap(fixed, nearby).double().numpy())[:, None].repeat(2, 1)
        beyond = 0.0
    bad = drawn.take(lists.relevant, 1), drawn.take(lists.irrelevant, 1)
    pairs = Relaxed.of(lists, rows, how.good, moves, moved, beyond, bad)
    if counting is None or pairs.ties:
        random = middle(fixed) + noise * spread(fixed)
        measured, now = _measured(bind(), how.unit, good, nearby, random)
        values = measured.numpy()
    else:
        values = _counted(pairs.lost, lists, counting)
        values, now = values[:-1], values[-1]
    if how.control:
        values = constants(as_kinds(how), now, torch.from_numpy(values)).numpy()
    if (values == values[0]).all():
        return None
    value, weight = interpolation.with_slope(pairs.squared, values)
    return Interpolated(value, float(now), lambda: torch.from_numpy(pairs.gradient(weight, len(rows))))


class Relaxed(NamedTuple):
    """The relaxed pairs of some lists, and anchors around them; `directloss.kernels.pairs` explains the names."""

    lists: Layout
    members: tuple[Any, Any]
    """Relevant and irrelevant scores, in float64."""
    u: Any
    random: tuple[Any, Any]
    good: int
    flips: Any
    flipped: int
    ties: bool
    """Whether scores of a pair are equal, of which each metric makes something else."""
    squared: Any
    """The squared distances to the anchors: good, nearby, bad."""
    lost: Any
    """How many pairs each relevant score loses in each anchor and, in the last row, at present."""

    @classmethod
    def of(
        cls, lists: Layout, rows: Any, good: int, moves: Any, moved: Any, beyond: float, random: tuple[Any, Any]
    ) -> Relaxed:
        """Relax the pairs, and look at the anchors."""
        # Imported here because numba takes long to import.
        from directloss.kernels import pairs as loops

        a, b = rows.take(lists.relevant), rows.take(lists.irrelevant)
        kind, few, anchors = random[0].dtype, len(moves), len(moves) + len(random[0])
        u, sums, lost = np.empty(lists.starts[-1], kind), np.zeros(4), np.zeros((anchors + 1, len(a)), np.int64)
        low, high = float(rows.min()), float(rows.max())
        if high - low < 2 * FAR:  # exp(b - a) is a product of exponentials of single scores
            centre = 0.5 * low + 0.5 * high
            loops.relax(a, b, *lists.bounds, np.exp(centre - a), np.exp(b - centre), u, sums, lost[-1])
        else:
            one = np.ones(len(a))
            for i, alone in enumerate(lists.single()):
                loops.relax(a, b, *alone, one, np.exp(np.minimum(b - a[i], 2 * FAR)), u, sums, lost[-1])
        squared = np.empty(anchors)
        squared[:good], squared[good:few], squared[few:] = sums[1], sums[2], sums[0]
        lost[good:few] = lost[-1]
        flips = np.empty((5, few * (len(a) + len(b))), np.int64)
        flipped = loops.flip(a, b, *lists.bounds, good, moves, moved, beyond, u, flips, squared, lost)
        loops.compare(*random, *lists.bounds, u, np.arange(2).astype(kind), squared[few:], lost[few:])
        return cls(lists, (a, b), u, random, good, flips, flipped, bool(sums[3]), np.maximum(squared, 0.0), lost)

    def gradient(self, weight: Any, scores: int) -> Any:
        """The gradient by all scores of squared distances with these weights."""
        from directloss.kernels import pairs as loops

        (a, b), kind, few = self.members, self.u.dtype, len(weight) - len(self.random[0])
        shares = np.array([0.0, weight.sum(), weight[: self.good].sum(), weight[self.good : few].sum()], kind)
        grads = np.zeros(len(a)), np.zeros(len(b))
        loops.carry_back(
            a, b, *self.lists.bounds, *self.random, self.u, shares, weight[few:].astype(kind), np.empty(len(b), kind),
            *grads,
        )  # fmt: skip
        loops.flip_back(self.flips, self.flipped, weight, self.u, *grads)
        whole = np.zeros(scores, kind)
        whole[self.lists.relevant], whole[self.lists.irrelevant] = grads
        return whole


def _counted(lost: Any, lists: Layout, counting: str) -> Any:
    """The metric, a mean over the lists, from the lost pairs ``(k, p)``: the average precision, or whether some
    relevant score loses none. A tie counts as lost, which is not what the metrics make of it.
    """
    first, place = lists.ups[:-1], np.arange(1, lost.shape[1] + 1)
    if counting == "hit":
        return (np.minimum.reduceat(lost, first, 1) == 0).mean(1)
    if len(first) == 1:
        ranked = np.sort(lost, 1)
        return np.add.reduce(place / (place + ranked), 1) / lost.shape[1]
    sizes = np.diff(lists.ups)
    place -= np.repeat(first, sizes)
    apart = np.repeat(np.arange(len(first)), sizes) * (lists.downs[-1] + 1)  # so that one sort sorts all lists
    ranked = np.sort(lost + apart, 1) - apart
    return (np.add.reduceat(place / (place + ranked), first, 1) / sizes).mean(1)


def _deviation(scores: Tensor, rows: Any) -> float:
    """As `spread`, from the same scores in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        apart = rows - np.add.reduce(rows) / len(rows)
        square = float(apart @ apart) / len(rows)
    return math.sqrt(square) if 0 < square < math.inf else float(spread(scores))


def _measured(problem: Bound, unit: str, good: Tensor, nearby: Tensor, random: Tensor) -> tuple[Tensor, float]:
    """The metric's own values of the anchors and of the present scores; if the latter is NaN, there is no loss.

    For metrics that the loops do not know, and for ties, of which each metric makes something else.
    """
    assert problem.best_scores is not None
    fixed, pairs = problem.scores.detach(), problem.comparisons
    with torch.no_grad():
        best = pairs.flipped(problem.best_scores.repeat(len(good), 1), good)
        near = fixed.repeat(len(nearby), 1)
        if unit == "comparison":
            near = pairs.flipped(near, nearby)
        else:
            near.scatter_(1, nearby[:, None], leap(fixed, nearby)[:, None])
        values = problem.measure(torch.cat([best, near, random, fixed[None]])).double()
    now = float(values[-1])
    return (values[:-1] if math.isnan(now) else check_numbers(values[:-1])).contiguous(), now


def _none() -> Tensor:
    return torch.empty(0, dtype=torch.int64)
