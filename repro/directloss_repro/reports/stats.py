"""Means and intervals over seeds, from the records of a run. Every metric is a share of 1 and is printed in per cent.

The same rule everywhere: the two-sided 95 % interval of Student's t over seeds, ``mean +- t(n - 1) * s / sqrt(n)``; a
bootstrap is too narrow for so few seeds. Methods are compared on the same seeds, by paired differences.

A problem with one model per class counts once per seed, as the mean over classes, because the classes of a seed share
their data. A seed that lacks a class is left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from directloss_repro.records import Run

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over ``n`` seeds with half the width of its interval, which is NaN for one seed."""

    mean: float
    half: float
    n: int

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.half

    @property
    def has_interval(self) -> bool:
        """Whether there is more than one seed."""
        return self.n > 1

    @property
    def has_zero(self) -> bool:
        """Whether the interval contains zero."""
        return self.low <= 0 <= self.high


def estimate(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """Mean and Student t interval.

    Examples:
        >>> e = estimate([1.0, 2.0, 3.0])
        >>> round(e.mean, 3), round(e.low, 3), round(e.high, 3), e.n
        (2.0, -0.484, 4.484, 3)
        >>> estimate([5.0])
        Estimate(mean=5.0, half=nan, n=1)
    """
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, math.nan, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return Estimate(mean, float(stdtrit(n - 1, (1 + level) / 2)) * math.sqrt(variance / n), n)


def percent(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """The same for shares of 1, in per cent."""
    e = estimate(values, level)
    return Estimate(100 * e.mean, 100 * e.half, e.n)


def by_seed(run: Run, method: str, noise: float | None, metric: str, group: str | None = None) -> dict[int, float]:
    """The metric of each seed, for one class or as the mean over all classes of the run."""
    wanted = {group} if group is not None else set(run.groups)
    values: dict[int, dict[str | None, float]] = defaultdict(dict)
    for record in run.final:
        if record.method == method and record.noise == noise and record.group in wanted and metric in record.metrics:
            values[record.seed][record.group] = record.metrics[metric]
    return {seed: sum(of.values()) / len(of) for seed, of in sorted(values.items()) if len(of) == len(wanted)}


def measured(run: Run, method: str, noise: float | None, metric: str, group: str | None = None) -> Estimate | None:
    """Mean and interval over seeds, or None if nothing was measured."""
    values = by_seed(run, method, noise, metric, group)
    return percent(list(values.values())) if values else None


def gaps(
    run: Run, first: str, second: str, metric: str, noise: float | None, group: str | None = None
) -> dict[int, float]:
    """``first`` minus ``second`` for each common seed at one noise level."""
    left, right = (by_seed(run, method, noise, metric, group) for method in (first, second))
    return {seed: left[seed] - right[seed] for seed in left if seed in right}


def difference(
    run: Run, first: str, second: str, metric: str, noise: float | None, group: str | None = None
) -> Estimate | None:
    """Mean and interval of ``first`` minus ``second``, or None if they share no seed."""
    found = gaps(run, first, second, metric, noise, group)
    return percent(list(found.values())) if found else None


def levels(run: Run, place: str) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    """The noise levels that count positively and those that count negatively at the place of a claim."""
    clean = tuple(noise for noise in run.noises if not noise)
    noisy = tuple(noise for noise in run.noises if noise)
    return {"all": (run.noises, ()), "clean": (clean, ()), "noisy": (noisy, ()), "growth": (noisy, clean)}[place]


def paired(run: Run, first: str, second: str, metric: str, place: str = "all") -> list[float]:
    """``first`` minus ``second`` for each seed that has both methods at every noise level that is needed."""
    plus, minus = levels(run, place)
    found = {noise: gaps(run, first, second, metric, noise) for noise in plus + minus}

    def mean(noises: Sequence[float | None], seed: int) -> float:
        return sum(found[noise][seed] for noise in noises) / max(1, len(noises))

    seeds = set.intersection(*(set(gap) for gap in found.values())) if found else set()
    return [mean(plus, seed) - mean(minus, seed) for seed in sorted(seeds)]
