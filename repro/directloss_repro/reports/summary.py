"""The result in one or two sentences, and what readers must know before trusting a number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from directloss_repro.folder import RUN_FILE
from directloss_repro.records import Run, group_order, method_order
from directloss_repro.reports.claims import PLACE_TEXT, Judgement, Verdict, is_first_look
from directloss_repro.reports.description import OURS
from directloss_repro.reports.formatting import decimals, label, number, seeds_text, span
from directloss_repro.reports.stats import measured

SHOWN = 3
"""How many skipped files a report names."""


def summary(run: Run, metrics: Sequence[str], judgements: Sequence[Judgement]) -> str:
    """The first claim in numbers, or else the best method, and how many claims are confirmed."""
    if not metrics:
        return "There is no result yet."
    parts = [_headline(judgements[0]) if judgements else ""]
    if not parts[0]:
        best, mean = _best(run, metrics[0])
        over = ", mean over all noise levels" if len(run.noises) > 1 else ""
        parts = [f"Best {label(metrics[0])}: {best} with {number(mean)}{over} ({seeds_text(len(run.seeds))})."]
    if judgements:
        parts.append(_first_look(run, judgements) if is_first_look(run) else _count(judgements))
    return " ".join(parts)


def main_method(run: Run, metric: str) -> str:
    """The method that others are compared with: the library's own, the paper's, or else the best."""
    own = [method for method in ("direct-ap", "pos-ap") if method in run.methods]
    return own[0] if own else _best(run, metric)[0]


def _best(run: Run, metric: str) -> tuple[str, float]:
    means = {m: [e.mean for n in run.noises if (e := measured(run, m, n, metric))] for m in run.methods}
    # A method that lacks a noise level has an easier mean, so only methods with the most levels compete.
    most = max(len(values) for values in means.values())
    totals = {method: sum(values) / most for method, values in means.items() if len(values) == most}
    best = max(totals, key=lambda method: totals[method])
    return best, totals[best]


def _first_look(run: Run, judgements: Sequence[Judgement]) -> str:
    """Why a run is too small to judge the claims, and which preset is not."""
    config, few = run.config, [seeds_text(len(run.seeds))]
    few += [f"{config[unit]} {unit}" for unit in ("epochs", "iterations") if config.get(unit)]
    count = sum(one.claim.source != OURS for one in judgements)
    claims = f"the paper's {count} claims" if count > 1 else "the paper's claim" if count else "any claim"
    return f"This is a first look, too small to judge {claims} ({'; '.join(few)}); the paper preset is made for that."


def _headline(judgement: Judgement) -> str:
    """The first claim in numbers: the narrowest of its comparisons."""
    found = [(finding.comparison, e) for finding in judgement.findings if (e := finding.difference) is not None]
    if not found:
        return ""
    pair, e = min(found, key=lambda one: one[1].mean)
    places = decimals([e])
    one = len({comparison.first for comparison, _ in found}) == 1
    rival = f"{pair.second}, the strongest of {len(found)} rivals" if one and len(found) > 1 else pair.second
    way = "ahead of" if e.mean >= 0 else "behind"
    interval = f"difference {span(e, places)} with 95 % confidence" if e.has_interval else "no interval"
    details = [part for part in (interval, PLACE_TEXT[judgement.claim.place], seeds_text(e.n)) if part]
    amount = f"{number(abs(e.mean), places)} points of {label(judgement.claim.metric)}"
    return f"{pair.first} is {amount} {way} {rival} ({'; '.join(details)})."


def _count(judgements: Sequence[Judgement]) -> str:
    parts = []
    for whose, what in (("the paper's", "claim"), ("our own", "statement")):
        some = [one.verdict for one in judgements if (one.claim.source == OURS) == (what == "statement")]
        counts = ", ".join(f"{some.count(verdict)} {verdict}" for verdict in Verdict if verdict in some)
        word = what if len(some) == 1 else f"{what}s"
        parts += [f"Of {whose} {len(some)} {word} judged here: {counts}."] if some else []
    return " ".join(parts)


# ---------------------------------------------------------------------- how complete the run is


def notices(run: Run, metric: str | None) -> list[str]:
    """Sentences about everything that is missing or wrong; empty for a complete run."""
    found = list(run.notes)
    if run.info and not run.info.get("finished"):
        found.append("This experiment has not finished. The numbers below cover only finished runs.")
    if not run.final:
        return [*found, "No final run is stored yet, so there is nothing to compare."]
    found += [*_reported(run), *_missing(run)]
    if len(run.seeds) == 1:
        found.append("There is only one seed, so nothing can be said about chance: claims stay undecided.")
    if len(run.methods) == 1:
        found.append(f"There is only one method ({run.methods[0]}), so there is nothing to compare it with.")
    if stopped := _counted(record.method for record in run.final if record.diverged_at is not None):
        found.append(
            f"Final runs in which training diverged and stopped early, counted as they were measured: {stopped}."
        )
    lost = _counted(record.method for record in run.final if metric and metric not in record.metrics)
    if metric and lost:
        found.append(f"Final runs without a finite {label(metric)}, which are left out: {lost}.")
    return found


def _counted(methods: Iterable[str]) -> str:
    return ", ".join(f"{method} {count}" for method, count in sorted(Counter(methods).items()))


def _reported(run: Run) -> list[str]:
    """The run's own notes: classes and files that could not be used."""
    found = [f"This class could not be used: {name}." for name in _words(run.info.get("left_out"))]
    skipped = _words(run.info.get("skipped"))
    if skipped:
        more = f" {RUN_FILE} lists all {len(skipped)}." if len(skipped) > SHOWN else ""
        found.append("Left out or repaired: " + " ".join(skipped[:SHOWN]) + more)
    return [*_words(run.info.get("notes")), *found]


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _missing(run: Run) -> list[str]:
    """Which final runs are missing, compared with the settings or else with other methods."""
    config, left_out = run.config, set(_words(run.info.get("left_out")))
    methods = sorted({*run.methods, *_words(config.get("methods"))}, key=method_order)
    seeds, noises = {*run.seeds, *range(config.get("seeds", 0))}, {*run.noises, *config.get("noise", ())}
    # An experiment with classes has no runs without one, so the settings can only add to it.
    planned = set(_words(config.get("classes")) if run.groups != (None,) else ()) - left_out
    wanted = set(product(methods, seeds, noises, sorted({*run.groups, *planned}, key=group_order)))
    missing = Counter(place[0] for place in wanted - {record.place for record in run.final})
    if not missing:
        return []
    of_each = ", ".join(f"{method} {missing[method]}" for method in methods if missing[method])
    total = f"{missing.total()} of {len(wanted)} final runs are missing ({of_each})."
    return [f"{total} Intervals use the available seeds."]
