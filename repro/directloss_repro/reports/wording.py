"""How numbers, metrics and times are written, the same in tables, figures and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from directloss_repro.reports.stats import Estimate
from directloss_repro.reports.stored import Run

MINUS = "\u2212"

_UPPER = {"ap", "auc", "pauc", "iou", "mrr", "ndcg", "f1", "mcc", "map", "pck", "pckh"}
_FRACTIONS = {"ap", "map", "accuracy", "auc", "precision", "recall", "f1", "iou", "dice", "ndcg", "mrr", "pck", "pckh"}
_FRACTIONS |= {"fbeta", "gmean", "pauc"}
"""Shares of 1, which are printed in per cent; of other metrics the number itself is printed."""
_SIGNED = {"mcc", "kappa"}
"""Numbers from -1 to 1: a percentage of them would mean nothing."""


@dataclass(frozen=True)
class Metric:
    """A metric's name in the records and how it is printed."""

    key: str
    label: str
    factor: float
    """100 for fractions, which are printed in per cent."""
    lower_is_better: bool = False

    @property
    def unit(self) -> str:
        """The unit of a difference."""
        return "points" if self.factor == 100 else ""

    @property
    def signed(self) -> bool:
        """Whether it is a number from -1 to 1."""
        return self.factor == 1 and any(word in _SIGNED for word in self.key.split("_"))

    @property
    def axis(self) -> str:
        """The label of an axis."""
        return f"{self.label} (%)" if self.factor == 100 else self.label + (f" ({MINUS}1 to 1)" if self.signed else "")

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that it can be, as it is printed."""
        return (0.0, 100.0) if self.factor == 100 else (-1.0, 1.0) if self.signed else (-math.inf, math.inf)

    @property
    def places(self) -> int:
        """How many decimals it has at least."""
        return 3 if self.signed else 1


def metric(key: str) -> Metric:
    """What is known of a metric from its name.

    Example:
        >>> metric("test_ap")
        Metric(key='test_ap', label='test AP', factor=100.0, lower_is_better=False)
        >>> metric("test_loss").lower_is_better
        True
    """
    words = key.split("_")
    known = any(word.split("@")[0] in _FRACTIONS for word in words)
    label = " ".join(word.upper() if word.split("@")[0] in _UPPER else word for word in words)
    lower = any(word in ("loss", "error", "seconds") for word in words)
    return Metric(key, label, 100.0 if known else 1.0, lower)


def decimals(estimates: Iterable[Estimate | None], least: int = 1) -> int:
    """As many decimals as the narrowest interval deserves: one digit of its half-width, at least 1 and at most 3."""
    halves = [e.half for e in estimates if e is not None and e.half]
    if not halves:
        return least
    return min(3, max(least, math.ceil(-math.log10(min(halves)))))


def number(value: float, places: int, signed: bool = False) -> str:
    r"""A number with a true minus sign, and no minus before zero.

    Example:
        >>> number(-0.04, 1), number(-1.25, 1, signed=True), number(2, 1, signed=True)
        ('0.0', '\u22121.2', '+2.0')
    """
    rounded = round(value, places) + 0.0
    return f"{rounded:{'+' if signed and rounded else ''}.{places}f}".replace("-", MINUS)


def span(e: Estimate, places: int, signed: bool = False) -> str:
    """The interval as words, for example ``1.2 to 3.4``; empty for one seed."""
    if e.low is None or e.high is None:
        return ""
    return f"{number(e.low, places, signed)} to {number(e.high, places, signed)}"


def interval_text(e: Estimate, places: int) -> str:
    """What stands behind a mean: ``± 1.2``, or the two ends, or nothing.

    Example:
        >>> interval_text(Estimate(90.0, 88.5, 91.5, 5), 1), interval_text(Estimate(90.0, 87.0, 91.0, 1), 1)
        ('± 1.5', '(87.0 to 91.0)')
    """
    if e.half is None:
        return ""
    # An interval of one run is its own, such as a bootstrap, and need not lie evenly around the value.
    return f"({span(e, places)})" if e.n == 1 else f"± {number(e.half, places)}"


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def noise_text(noise: float | None) -> str:
    """A noise level in per cent.

    Example:
        >>> noise_text(0.1), noise_text(0.0), noise_text(None)
        ('10 %', '0 %', '')
    """
    return "" if noise is None else f"{100 * noise:g} %"


def duration(seconds: float) -> str:
    """A time that people read.

    Example:
        >>> duration(0.4), duration(75), duration(7384)
        ('0.4 s', '1 min 15 s', '2 h 3 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def moment(value: Any) -> datetime | None:
    """A time from run.json: ISO text or seconds since 1970; None if it is neither."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        if isinstance(value, str):
            read = datetime.fromisoformat(value)
            return read if read.tzinfo else read.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def value_text(value: Any) -> str:
    """A setting as text: short numbers, words as they are, lists with commas.

    Example:
        >>> value_text(1e-07), value_text([1, 2.5]), value_text({"a": True, "b": []}), value_text(None)
        ('1e-07', '1, 2.5', 'a: true; b: none', 'none')
    """
    if value is None or value == [] or value == {}:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(value_text(part) for part in value)
    if isinstance(value, dict):
        return "; ".join(f"{key}: {value_text(part)}" for key, part in value.items())
    return str(value)


def metrics_of(run: Run, wanted: tuple[str, ...]) -> tuple[Metric, ...]:
    """The metrics to show: those asked for that the run has, or else every test metric of the run."""
    there = {key for record in run.final for key in record.metrics}
    named = [key for key in wanted if key in there]
    ends = ("_low", "_high")
    found = named or [key for key in there if key.startswith("test_") and not key.endswith(ends)] or list(there)
    # AP is what the library is about; without a wish of the experiment it comes first.
    return tuple(metric(key) for key in (named or sorted(found, key=lambda key: (key != "test_ap", key))))
