"""From records to one number for each seed, the unit of every interval.

A problem with one model for each class counts once for each seed, as the mean over classes: the classes of one seed
share their data and are not independent repetitions. A seed that lacks a class is left out of the mean, because a
mean over fewer classes is another quantity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from directloss_repro.reports.stats import Estimate, estimate
from directloss_repro.reports.stored import Record, Run

PLACES = ("all", "clean", "noisy", "growth")
"""Where two methods are compared: mean over all noise levels; without noise; mean over the levels with noise; and
the difference under noise minus the difference without."""


def by_seed(run: Run, method: str, noise: float | None, metric: str, group: str | None = None) -> dict[int, float]:
    """The metric of each seed at one noise level: of one class, or the mean over all classes of the run."""
    wanted = {group} if group is not None else set(run.groups)
    values: dict[int, dict[str | None, float]] = defaultdict(dict)
    for record in run.final:
        if record.method == method and record.noise == noise and record.group in wanted and metric in record.metrics:
            values[record.seed][record.group] = record.metrics[metric]
    return {
        seed: sum(found.values()) / len(found) for seed, found in sorted(values.items()) if len(found) == len(wanted)
    }


def measured(run: Run, method: str, noise: float | None, metric: str, group: str | None = None) -> Estimate | None:
    """Mean and interval over seeds, or None where nothing was measured.

    A single run may bring its own interval (say, a bootstrap over test examples) as ``<metric>_low`` and
    ``<metric>_high``; it is used where there is one seed and so no interval over seeds.
    """
    values = by_seed(run, method, noise, metric, group)
    if not values:
        return None
    result = estimate(list(values.values()))
    if result.n == 1:
        low, high = (by_seed(run, method, noise, f"{metric}_{end}", group) for end in ("low", "high"))
        if low and high:
            return Estimate(result.mean, next(iter(low.values())), next(iter(high.values())), 1)
    return result


def levels(run: Run, place: str) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    """The noise levels that count positively and those that count negatively at a place of `PLACES`."""
    clean = tuple(noise for noise in run.noises if not noise)
    noisy = tuple(noise for noise in run.noises if noise)
    return {"all": (run.noises, ()), "clean": (clean, ()), "noisy": (noisy, ()), "growth": (noisy, clean)}[place]


def paired(run: Run, first: str, second: str, metric: str, place: str = "all") -> list[float]:
    """``first`` minus ``second`` for each seed that has both methods at every noise level that is needed."""
    plus, minus = levels(run, place)
    if not plus or (place == "growth" and not minus):
        return []
    gaps = {noise: _gaps(run, first, second, metric, noise) for noise in plus + minus}
    seeds = set.intersection(*(set(gap) for gap in gaps.values()))
    return [_mean(gaps, plus, seed) - (_mean(gaps, minus, seed) if minus else 0.0) for seed in sorted(seeds)]


def paired_at(
    run: Run, first: str, second: str, metric: str, noise: float | None, group: str | None = None
) -> list[float]:
    """``first`` minus ``second`` for each common seed at one noise level."""
    return list(_gaps(run, first, second, metric, noise, group).values())


def _gaps(
    run: Run, first: str, second: str, metric: str, noise: float | None, group: str | None = None
) -> dict[int, float]:
    left, right = (by_seed(run, method, noise, metric, group) for method in (first, second))
    return {seed: left[seed] - right[seed] for seed in sorted(left.keys() & right.keys())}


def _mean(gaps: dict[float | None, dict[int, float]], noises: Sequence[float | None], seed: int) -> float:
    return sum(gaps[noise][seed] for noise in noises) / len(noises)


def without_value(run: Run, metric: str) -> tuple[Record, ...]:
    """Final runs that ended without a finite value of the metric (a diverged training)."""
    return tuple(record for record in run.final if metric not in record.metrics)
