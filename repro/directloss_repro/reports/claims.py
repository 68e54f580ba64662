"""The papers' claims as rules on intervals, and their verdicts.

A claim is a set of paired comparisons. Each is measured as a difference of the metric, ``first - second``, on the
same seeds, with its 95 % interval. The rule is fixed before the numbers are seen and is printed beside the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from directloss_repro.reports.samples import levels, paired
from directloss_repro.reports.stats import LEVEL, Estimate, estimate
from directloss_repro.reports.stored import Run
from directloss_repro.reports.wording import number


class Verdict(StrEnum):
    """What the intervals say about a claim."""

    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not confirmed"
    UNDECIDED = "undecided"
    TOO_SMALL = "too small to judge"


FIRST_LOOKS = ("quick",)
"""Presets that are not meant to judge."""
OURS = "not in the paper"
"""The source of a statement that is a question of ours."""


@dataclass(frozen=True)
class Comparison:
    """``first`` against ``second``; ``paper`` is the paper's own difference where it prints numbers."""

    first: str
    second: str
    paper: float | None = None


@dataclass(frozen=True)
class Claim:
    """One statement of a paper and how it is judged.

    It holds for a comparison when the interval lies above ``above`` (and below ``under``, if given), and fails when
    the interval lies below ``fails_below`` (or above ``under``).
    """

    says: str
    source: str
    comparisons: tuple[Comparison, ...]
    above: float = 0.0
    fails_below: float = 0.005
    under: float | None = None
    place: str = "all"
    metric: str = "test_ap"
    reading: str = ""


@dataclass(frozen=True)
class Finding:
    """One comparison, measured."""

    comparison: Comparison
    difference: Estimate | None
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True)
class Judgement:
    """A claim with its verdict and the findings it rests on."""

    claim: Claim
    verdict: Verdict
    findings: tuple[Finding, ...]


def better(
    first: str, *others: str, by: float = 0.0, relevant: float = 0.005
) -> tuple[tuple[Comparison, ...], float, float]:
    """Comparisons and limits of "first is better than each of the others", by more than ``by``.

    With ``by = 0`` the claim fails when the interval rules out even a lead of ``relevant``; otherwise two equal
    methods would stay undecided for ever, however many seeds there are.
    """
    return tuple(Comparison(first, other) for other in others), by, by if by else relevant


def judge(claim: Claim, run: Run) -> Judgement:
    """Apply the claim's rule to a run.

    All comparisons must hold for "confirmed" (an intersection-union test, which needs no correction). One that fails is
    enough for "not confirmed", so there the interval is widened for the number of comparisons (Bonferroni).
    """
    findings = tuple(_find(claim, comparison, run) for comparison in claim.comparisons)
    if is_first_look(run):
        return Judgement(claim, Verdict.TOO_SMALL, tuple(replace(one, verdict=Verdict.TOO_SMALL) for one in findings))
    verdicts = {finding.verdict for finding in findings}
    if Verdict.NOT_CONFIRMED in verdicts:
        return Judgement(claim, Verdict.NOT_CONFIRMED, findings)
    return Judgement(claim, Verdict.UNDECIDED if Verdict.UNDECIDED in verdicts else Verdict.CONFIRMED, findings)


def is_first_look(run: Run) -> bool:
    """Whether the run's preset is there to show how things work, with too few seeds and settings for a verdict."""
    return run.info.get("preset") in FIRST_LOOKS


def _find(claim: Claim, comparison: Comparison, run: Run) -> Finding:
    missing = [method for method in (comparison.first, comparison.second) if method not in run.methods]
    if missing:
        return Finding(comparison, None, Verdict.UNDECIDED, f"{' and '.join(missing)} not in this run")
    plus, minus = levels(run, claim.place)
    if claim.place in ("noisy", "growth") and not plus:
        return Finding(comparison, None, Verdict.UNDECIDED, "no noisy labels in this run")
    if (claim.place == "growth" and not minus) or (claim.place == "clean" and not plus):
        return Finding(comparison, None, Verdict.UNDECIDED, "no run without label noise")
    values = paired(run, comparison.first, comparison.second, claim.metric, claim.place)
    if not values:
        return Finding(comparison, None, Verdict.UNDECIDED, "no seed has all the runs it needs yet")
    difference = estimate(values)
    if difference.n == 1:
        return Finding(comparison, difference, Verdict.UNDECIDED, "one seed gives no interval")
    wide = estimate(values, 1 - (1 - LEVEL) / len(claim.comparisons))
    return Finding(comparison, difference, _verdict(claim, difference, wide))


def _verdict(claim: Claim, narrow: Estimate, wide: Estimate) -> Verdict:
    if narrow.low is None or narrow.high is None or wide.low is None or wide.high is None:
        return Verdict.UNDECIDED
    if narrow.low > claim.above and (claim.under is None or narrow.high < claim.under):
        return Verdict.CONFIRMED
    if wide.high < claim.fails_below or (claim.under is not None and wide.low > claim.under):
        return Verdict.NOT_CONFIRMED
    return Verdict.UNDECIDED


def rule_text(claim: Claim, unit: str = "points", factor: float = 100.0) -> str:
    """The claim's rule as a sentence, with the limits in the unit of the tables.

    Example:
        >>> claim = Claim("a beats b", "Sec. 1", (Comparison("a", "b"),))
        >>> print(rule_text(claim))
        Confirmed when the 95 % interval of the difference lies above 0 points; not confirmed when it lies below
        0.5 points, since a smaller lead would not matter; undecided otherwise.
    """
    above, fails_below = (number(limit * factor, 1).removesuffix(".0") for limit in (claim.above, claim.fails_below))
    many = len(claim.comparisons) > 1
    whose = "of every difference" if many else "of the difference"
    if claim.under is None:
        holds = f"lies above {above} {unit}".rstrip()
        fails = f"lies below {fails_below} {unit}".rstrip()
        fails += ", since a smaller lead would not matter" if 0 == claim.above < claim.fails_below else ""
    else:
        holds = f"lies between {above} and {claim.under * factor:g} {unit}".rstrip()
        fails = "lies wholly outside"
    one = "one of them, widened for the number of comparisons (Bonferroni)," if many else "it"
    return f"Confirmed when the 95 % interval {whose} {holds}; not confirmed when {one} {fails}; undecided otherwise."


PLACE_TEXT = {
    "all": "",
    "clean": "without label noise",
    "noisy": "mean over the noisy levels",
    "growth": "lead under noise minus lead without",
}
