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

RULES = {"ap": 0, "hit": 1, None: 2}
"""The rules of `directloss.kernels.pairs`, which is imported late, because numba takes long to import."""


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
    from directloss.kernels import pairs as loops

    fixed, count = scores.detach(), int(lists.starts[-1])
    good = torch.randint(count, (how.good, 1), generator=generator)[:, 0] if how.good else _none()
    among = count if how.unit == "comparison" else fixed.numel()
    nearby = torch.randint(among, (how.nearby, 1), generator=generator)[:, 0] if how.nearby else _none()
    # The order of these is that of `Comparisons.random`, and it is all that counts.
    noise = torch.randn(how.bad, fixed.numel(), generator=generator, dtype=fixed.dtype)
    # From here on in numpy, which costs a fraction of what small tensors cost.
    rows, drawn, members = fixed.numpy().astype(np.float64), noise.numpy(), (lists.relevant, lists.irrelevant)
    move = _meetings if how.unit == "comparison" else _leaps
    arguments = (
        *(rows.take(part) for part in members), lists.ups, lists.downs, lists.starts, good.numpy(),
        *move(lists, fixed, rows, nearby), *(drawn.take(part, 1) for part in members),
    )  # fmt: skip
    u = np.empty(count, drawn.dtype)
    squared, values, now, ties = loops.relax(*arguments, RULES[counting], u)
    if counting is None or ties:
        random = middle(fixed) + noise * spread(fixed)
        measured, now = _measured(bind(), how.unit, good, nearby, random)
        values = measured.numpy()
    if how.control:
        values = constants(as_kinds(how), now, torch.from_numpy(values)).numpy()
    if (values == values[0]).all():
        return None
    value, weight = interpolation.with_slope(squared, values)

    def gradient() -> Tensor:
        grads = [np.zeros(len(part)) for part in members]
        loops.carry_back(*arguments, u, weight, *grads)
        whole = np.zeros(len(rows), u.dtype)
        for part, grad in zip(members, grads, strict=True):
            whole[part] = grad
        return torch.from_numpy(whole)

    return Interpolated(value, float(now), gradient)


def _meetings(lists: Layout, scores: Tensor, rows: Any, nearby: Tensor) -> tuple[Any, Any]:
    """Which scores move, and where to: those of a pair meet in the middle and go a little beyond."""
    t, i, j = lists.place(nearby.numpy())
    up, down = rows[lists.relevant[i]], rows[lists.irrelevant[j]]
    beyond = float(BEYOND * spread(scores))
    step = up - down
    step += np.where(step > 0, beyond, -beyond)
    return np.stack([t, i, j], -1), np.stack([up - step / 2, down + step / 2], -1)


def _leaps(lists: Layout, scores: Tensor, rows: Any, nearby: Tensor) -> tuple[Any, Any]:
    """Which scores move, and where to: a low one beyond the top, a high one beyond the bottom."""
    to = leap(scores, nearby).double().numpy()
    return np.stack(lists.find(nearby.numpy(), len(rows)), -1), np.stack([to, to], -1)


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
