"""Formatting of numbers, metrics, times and settings, the same in tables, figures and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from directloss_repro.records import Run
from directloss_repro.reports.stats import Estimate

MINUS = "\u2212"
NOTHING = "\u2013"
"""Stands for a missing number."""
_UPPER = {"ap", "auc", "pck", "pckh", "map"}


def label(metric: str) -> str:
    """A metric's name for a reader.

    Examples:
        >>> label("test_ap"), label("test_ap_11_point"), label("val_accuracy")
        ('test AP', 'test AP 11 point', 'val accuracy')
    """
    return " ".join(word.upper() if word in _UPPER else word for word in metric.split("_"))


def axis(metric: str) -> str:
    """A metric's name with its unit."""
    return f"{label(metric)} (%)"


def decimals(estimates: Iterable[Estimate | None]) -> int:
    """Decimals that show one digit of the narrowest interval's half-width; at least 1 and at most 3."""
    halves = [e.half for e in estimates if e is not None and e.half > 0]
    return min(3, max(1, math.ceil(-math.log10(min(halves))))) if halves else 1


def number(value: float, places: int = 1, signed: bool = False) -> str:
    r"""A number with a true minus sign, and no minus before zero.

    Examples:
        >>> number(-0.04), number(-1.25, signed=True), number(2, signed=True)
        ('0.0', '\u22121.2', '+2.0')
    """
    rounded = round(value, places) + 0.0
    return f"{rounded:{'+' if signed and rounded else ''}.{places}f}".replace("-", MINUS)


def span(e: Estimate, places: int) -> str:
    """The interval of a difference as text, such as ``+1.2 to +3.4``; empty for one seed."""
    return f"{number(e.low, places, True)} to {number(e.high, places, True)}" if e.has_interval else ""


def plus_minus(e: Estimate, places: int) -> str:
    """The text after a mean: ``± 1.2``, or nothing for one seed."""
    return f"± {number(e.half, places)}" if e.has_interval else ""


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def noise_text(noise: float | None) -> str:
    """A noise level in per cent; empty for none."""
    return "" if noise is None else f"{100 * noise:g} %"


def seeds_text(count: int) -> str:
    """``3 seeds``, ``one seed``."""
    return "one seed" if count == 1 else f"{count} seeds"


def duration(seconds: float) -> str:
    """A time span in words.

    Examples:
        >>> duration(0.42), duration(75), duration(7384)
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
    """An ISO time of run.json; None if it is something else."""
    try:
        read = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def value_text(value: Any) -> str:
    """A setting as text: short numbers, strings unchanged, lists with commas.

    Examples:
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


def metrics_of(run: Run, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The metrics to show: the wanted ones that the run has, or else all its test metrics, AP first."""
    there = {key for record in run.final for key in record.metrics}
    found = [key for key in there if key.startswith("test_")] or there
    return tuple(key for key in wanted if key in there) or tuple(sorted(found, key=lambda key: (key != "test_ap", key)))
