"""The verdicts: each claim is a rule on intervals, fixed before the results are known and printed with the verdict.

A claim is a set of paired comparisons. Each is measured as a difference of the metric, ``first - second``, on the same
seeds, with its 95 % interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from directloss_repro.records import Run
from directloss_repro.reports.description import OURS, Claim, Comparison
from directloss_repro.reports.formatting import decimals, number, span
from directloss_repro.reports.stats import LEVEL, Estimate, levels, paired, percent

FIRST_LOOKS = ("quick",)
"""Presets that are too small for verdicts."""
PLACE_TEXT = {
    "all": "",
    "clean": "without label noise",
    "noisy": "mean over the noisy levels",
    "growth": "lead under noise minus lead without",
}


class Verdict(StrEnum):
    """What the intervals say about a claim."""

    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not confirmed"
    UNDECIDED = "undecided"
    TOO_SMALL = "too small to judge"

    @property
    def sign(self) -> str:
        """A symbol that does not rely on colour."""
        return {"confirmed": "✓", "not confirmed": "✕", "undecided": "?"}.get(self, "·")


@dataclass(frozen=True)
class Finding:
    """One measured comparison, or the reason why it could not be measured."""

    comparison: Comparison
    difference: Estimate | None
    verdict: Verdict
    why: str = ""

    @property
    def ours(self) -> str:
        """The measured difference."""
        if self.difference is None:
            return self.why
        return f"{number(self.difference.mean, decimals([self.difference]), signed=True)} points"

    @property
    def interval(self) -> str:
        """Its interval in brackets."""
        e = self.difference
        return "" if e is None else f"({span(e, decimals([e])) or self.why})"

    @property
    def paper(self) -> str:
        """The paper's difference, if it prints one."""
        paper = self.comparison.paper
        return "" if paper is None else f"{number(paper, signed=True)} points"


@dataclass(frozen=True)
class Judgement:
    """A claim with its verdict and the findings behind it."""

    claim: Claim
    verdict: Verdict
    findings: tuple[Finding, ...]


def judge_all(claims: tuple[Claim, ...], run: Run) -> tuple[Judgement, ...]:
    """Judge the paper's claims, and our own if the run has their methods."""
    asked = (claim for claim in claims if claim.source != OURS or claim.methods <= set(run.methods))
    return tuple(judge(claim, run) for claim in asked)


def judge(claim: Claim, run: Run) -> Judgement:
    """Apply the claim's rule to a run.

    "Confirmed" needs all comparisons to hold (an intersection-union test, which needs no correction). For "not
    confirmed", one failure is enough, so the interval is widened for the number of comparisons (Bonferroni).
    """
    findings = tuple(_find(claim, comparison, run) for comparison in claim.comparisons)
    # The most severe verdict of a comparison decides.
    order = (Verdict.TOO_SMALL, Verdict.NOT_CONFIRMED, Verdict.UNDECIDED, Verdict.CONFIRMED)
    return Judgement(claim, min((finding.verdict for finding in findings), key=order.index), findings)


def is_first_look(run: Run) -> bool:
    """Whether the run's preset is too small for verdicts."""
    return run.info.get("preset") in FIRST_LOOKS


def _find(claim: Claim, pair: Comparison, run: Run) -> Finding:
    values = (
        [] if (why := _lacking(claim, pair, run)) else paired(run, pair.first, pair.second, claim.metric, claim.place)
    )
    found = percent(values) if values else None
    if found is None:
        why = why or "no seed has all the runs it needs yet"
    elif not found.has_interval:
        why = "one seed gives no interval"
    if is_first_look(run):
        return Finding(pair, found, Verdict.TOO_SMALL, why)
    if found is None or why:
        return Finding(pair, found, Verdict.UNDECIDED, why)
    return Finding(pair, found, _verdict(claim, found, percent(values, 1 - (1 - LEVEL) / len(claim.comparisons))))


def _lacking(claim: Claim, pair: Comparison, run: Run) -> str:
    missing = [method for method in (pair.first, pair.second) if method not in run.methods]
    if missing:
        return f"{' and '.join(missing)} not in this run"
    plus, minus = levels(run, claim.place)
    if claim.place in ("noisy", "growth") and not plus:
        return "no noisy labels in this run"
    lacks_clean = (claim.place == "growth" and not minus) or (claim.place == "clean" and not plus)
    return "no run without label noise" if lacks_clean else ""


def _verdict(claim: Claim, narrow: Estimate, wide: Estimate) -> Verdict:
    if narrow.low > claim.above and (claim.under is None or narrow.high < claim.under):
        return Verdict.CONFIRMED
    if wide.high < claim.fails_below or (claim.under is not None and wide.low > claim.under):
        return Verdict.NOT_CONFIRMED
    return Verdict.UNDECIDED


def rule_text(claim: Claim) -> str:
    """The claim's rule as a sentence.

    Examples:
        >>> print(rule_text(Claim("a beats b", "Sec. 1", (Comparison("a", "b"),))))
        Confirmed when the 95 % interval of the difference lies above 0 points; not confirmed when it lies below
        0.5 points, since a smaller lead would not matter; undecided otherwise.
    """
    above, fails_below = (number(limit).removesuffix(".0") for limit in (claim.above, claim.fails_below))
    many = len(claim.comparisons) > 1
    whose = "of every difference" if many else "of the difference"
    if claim.under is None:
        holds, fails = f"lies above {above} points", f"lies below {fails_below} points"
        fails += ", since a smaller lead would not matter" if 0 == claim.above < claim.fails_below else ""
    else:
        holds, fails = f"lies between {above} and {claim.under:g} points", "lies wholly outside"
    one = "one of them, widened for the number of comparisons (Bonferroni)," if many else "it"
    return f"Confirmed when the 95 % interval {whose} {holds}; not confirmed when {one} {fails}; undecided otherwise."
