"""The usual anchors of pairs of scores, in compiled loops: the same numbers as the general way, many times faster."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from directloss import kernels
from directloss._gradient import deferred
from directloss._uniloss.anchors import Anchoring, as_kinds, check_numbers, constants, leap
from directloss._uniloss.comparisons import BEYOND, Comparisons, Pairs, spread
from directloss._uniloss.interpolation import Interpolation, InverseDistance
from directloss._uniloss.lists import Layout, Ragged, layout
from directloss._uniloss.refactoring import Bound

RULES = {"ap": 0, "hit": 1, None: 2}
"""The rules of `directloss.kernels.pairs`, which is imported late, because numba takes long to import."""


def applies(problem: Bound, comparisons: Comparisons, how: Anchoring, interpolation: Interpolation) -> bool:
    """Whether the loops know this kind of anchors: one flipped pair or one moved score, in score space, on the CPU.

    The best scores must be `ideal_scores`, where every pair is right, with a gap between the two groups.
    """
    usual = Anchoring(how.good, how.nearby, how.bad, unit=how.unit, control=how.control)
    return (
        type(comparisons) in (Pairs, Ragged)
        and how == usual
        and (how.unit == "comparison" or problem.counting is not None)
        and problem.best_scores is not None
        and isinstance(interpolation, InverseDistance)
        and kernels.compiles(problem.scores)
    )


def interpolate(
    problem: Bound, how: Anchoring, interpolation: InverseDistance, generator: torch.Generator
) -> tuple[Tensor, Tensor] | None:
    """The interpolated metric, differentiable in the scores, and the present one. Draws as `anchors.sample` does.

    None where all values are equal: `anchors.sample` knows what to do.
    """
    from directloss.kernels import pairs as loops

    pairs, scores = problem.comparisons, problem.scores
    lists = layout(pairs)
    assert lists is not None
    fixed = scores.detach()
    good = torch.randint(pairs.count, (how.good, 1), generator=generator)[:, 0] if how.good else _none()
    among = pairs.count if how.unit == "comparison" else fixed.numel()
    nearby = torch.randint(among, (how.nearby, 1), generator=generator)[:, 0] if how.nearby else _none()
    random = pairs.random(fixed, how.bad, generator)
    move = _meetings if how.unit == "comparison" else _leaps
    members = (lists.relevant, lists.irrelevant)
    rows = [fixed[part].double() for part in members]
    drawn = [random[:, part] for part in members]
    tensors = (*rows, lists.ups, lists.downs, lists.starts, good, *move(lists, fixed, nearby), *drawn)
    arguments = [part.numpy() for part in tensors]
    u = torch.empty(pairs.count, dtype=fixed.dtype).numpy()
    squared, values, now, ties = loops.relax(*arguments, RULES[problem.counting], u)
    if problem.counting is None or ties:
        measured, now = _measured(problem, how.unit, good, nearby, random)
        values = measured.numpy()
    if how.control:
        values = constants(as_kinds(how), now, torch.from_numpy(values)).numpy()
    if (values == values[0]).all():
        return None
    value, weight = interpolation.with_slope(squared, values)

    def gradient() -> Tensor:
        grads = [torch.zeros(len(part), dtype=torch.float64) for part in members]
        loops.carry_back(*arguments, u, weight, *(part.numpy() for part in grads))
        whole = torch.zeros(scores.numel(), dtype=torch.float64)
        for part, grad in zip(members, grads, strict=True):
            whole[part] = grad
        return whole.to(scores.dtype)

    known = torch.tensor(value, dtype=scores.dtype)
    return deferred(known, scores, gradient), torch.tensor(now, dtype=scores.dtype)


def _meetings(lists: Layout, scores: Tensor, nearby: Tensor) -> tuple[Tensor, Tensor]:
    """Which scores move, and where to: those of a pair meet in the middle and go a little beyond."""
    which = lists.place(nearby)
    up, down = scores[lists.relevant[which[1]]].double(), scores[lists.irrelevant[which[2]]].double()
    beyond = float(BEYOND * spread(scores))
    step = up - down
    step += torch.where(step > 0, beyond, -beyond)
    return torch.stack(which, -1), torch.stack([up - step / 2, down + step / 2], -1)


def _leaps(lists: Layout, scores: Tensor, nearby: Tensor) -> tuple[Tensor, Tensor]:
    """Which scores move, and where to: a low one beyond the top, a high one beyond the bottom."""
    to = leap(scores, nearby).double()
    return torch.stack(lists.find(nearby, scores.numel()), -1), torch.stack([to, to], -1)


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
