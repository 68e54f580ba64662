"""Comparisons that a run measured itself and left in ``run.json``: one test set, paired over its rows.

A run with one final training for each method has no interval over seeds. It may store, as ``comparison``, a list of
objects with ``first``, ``second``, ``metric``, ``difference``, ``low`` and ``high``; differences are fractions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from directloss._checks import fail
from directloss_repro.reports.stats import Estimate
from directloss_repro.reports.stored import RUN, Run
from directloss_repro.reports.wording import decimals, metric, number, span

BOOTSTRAP_TEXT = (
    "Intervals of 95 % from a bootstrap over the test rows, paired for differences; one split, one training."
)


@dataclass(frozen=True)
class Compared:
    """``first`` minus ``second`` with its interval."""

    first: str
    second: str
    metric: str
    difference: Estimate

    @property
    def clear(self) -> bool:
        """Whether the interval does not contain zero."""
        low, high = self.difference.low or 0.0, self.difference.high or 0.0
        return low > 0 or high < 0


def stored_comparisons(run: Run) -> tuple[Compared, ...]:
    """What the run compared itself, checked; empty for a run that did not."""
    raw = run.info.get("comparison", [])
    if not isinstance(raw, list):
        fail(str(run.folder / RUN), "must have a list as 'comparison'", f"with a {type(raw).__name__}")
    return tuple(_compared(one, str(run.folder / RUN)) for one in raw)


def _compared(raw: object, where: str) -> Compared:
    words, numbers = ("first", "second", "metric"), ("difference", "low", "high")
    good = (
        isinstance(raw, dict)
        and all(isinstance(raw.get(key), str) for key in words)
        and all(isinstance(raw.get(key), int | float) and math.isfinite(raw[key]) for key in numbers)
    )
    if not isinstance(raw, dict) or not good:
        fail(f"'comparison' in {where}", f"must have {', '.join(words + numbers)}", repr(raw))
    difference = Estimate(float(raw["difference"]), float(raw["low"]), float(raw["high"]), 1)
    return Compared(raw["first"], raw["second"], raw["metric"], difference)


def sentence(one: Compared) -> str:
    r"""What the comparison says, in plain words.

    Example:
        >>> print(sentence(Compared("pos-ap", "x-ent", "test_ap", Estimate(0.012, 0.003, 0.021, 1))))
        pos-ap is better than x-ent by 1.2 points of test AP (95 % interval 0.3 to 2.1).
        >>> print(sentence(Compared("pos-ap", "x-ent", "test_ap", Estimate(0.01, -0.005, 0.025, 1))))
        No difference between pos-ap and x-ent could be shown: +1.0 points of test AP (95 % interval ...0.5 to +2.5).
        >>> print(sentence(Compared("pos-f1", "x-ent", "test_mcc", Estimate(-0.02, -0.04, -0.0004, 1))))
        pos-f1 is worse than x-ent by 0.0200 of test MCC (95 % interval 0.0004 to 0.0400).
    """
    what = metric(one.metric)
    e = one.difference.scaled(what.factor)
    # A limit next to zero must not be rounded to zero: it is what the sentence turns on.
    limits = [limit for limit in (e.low, e.high) if limit]
    first = decimals([e], what.places)
    places = next((p for p in range(first, 4) if all(round(limit, p) for limit in limits)), 4)
    amount = f"{what.unit} of {what.label}".strip() if what.unit else f"of {what.label}"
    if not one.clear:
        value = number(e.mean, places, signed=True)
        interval = span(e, places, signed=True)
        return (
            f"No difference between {one.first} and {one.second} could be shown: "
            f"{value} {amount} (95 % interval {interval})."
        )
    way = "better" if (e.mean > 0) != what.lower_is_better else "worse"
    flip = -1 if e.mean < 0 else 1
    low, high = sorted((flip * (e.low or 0.0), flip * (e.high or 0.0)))
    interval = span(Estimate(0.0, low, high, 1), places)
    value = number(abs(e.mean), places)
    return f"{one.first} is {way} than {one.second} by {value} {amount} (95 % interval {interval})."
