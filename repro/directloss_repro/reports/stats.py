"""Means and intervals over seeds.

One rule everywhere: the two-sided 95 % interval of Student's t over seeds, ``mean +- t(n - 1) * s / sqrt(n)``.
With the few seeds of an experiment it keeps its level better than a bootstrap, which is too narrow for small n.
Methods are compared on the same seeds, so the interval of a difference is that of the paired differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

LEVEL = 0.95

METHOD_TEXT = "mean over seeds with a two-sided 95 % Student t interval"


@dataclass(frozen=True)
class Estimate:
    """A mean over ``n`` seeds with its interval; one seed has a mean and no interval (``low`` is None)."""

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def half(self) -> float | None:
        """Half the width of the interval, or None."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def arms(self, least: float = -math.inf, most: float = math.inf) -> tuple[float, float]:
        """How far the interval reaches below and above the mean, within what the quantity can be.

        Example:
            >>> Estimate(99.0, 97.5, 100.5, 8).arms(most=100.0)
            (1.5, 1.0)
        """
        if self.low is None or self.high is None:
            return 0.0, 0.0
        return max(0.0, self.mean - max(self.low, least)), max(0.0, min(self.high, most) - self.mean)

    def scaled(self, factor: float) -> Estimate:
        """The same estimate in another unit (``factor`` > 0)."""
        return Estimate(
            self.mean * factor,
            None if self.low is None else self.low * factor,
            None if self.high is None else self.high * factor,
            self.n,
        )


def estimate(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """Mean and Student t interval.

    Example:
        >>> e = estimate([1.0, 2.0, 3.0])
        >>> round(e.mean, 3), round(e.low, 3), round(e.high, 3), e.n
        (2.0, -0.484, 4.484, 3)
        >>> estimate([5.0])
        Estimate(mean=5.0, low=None, high=None, n=1)
    """
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = float(stdtrit(n - 1, (1 + level) / 2)) * math.sqrt(variance / n)
    return Estimate(mean, mean - half, mean + half, n)
