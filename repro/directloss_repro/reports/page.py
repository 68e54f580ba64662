"""The page: everything a reader needs in one file that opens offline and asks nothing of the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from directloss_repro.reports.choices import choice_note, choice_table, choices
from directloss_repro.reports.claims import (
    OURS,
    PLACE_TEXT,
    Finding,
    Judgement,
    Verdict,
    is_first_look,
    judge,
    rule_text,
)
from directloss_repro.reports.compared import sentence, stored_comparisons
from directloss_repro.reports.describe import Description, describe
from directloss_repro.reports.drawings import read_drawings
from directloss_repro.reports.figures import Panel, draw_all
from directloss_repro.reports.samples import measured
from directloss_repro.reports.state import chosen_table, notices, versions
from directloss_repro.reports.stored import RUN, Run
from directloss_repro.reports.svg import colour_rules
from directloss_repro.reports.tables import Table, difference_table, result_tables
from directloss_repro.reports.wording import (
    MINUS,
    Metric,
    decimals,
    duration,
    metric,
    metrics_of,
    moment,
    number,
    span,
    value_text,
)

SIGNS = {Verdict.CONFIRMED: "✓", Verdict.NOT_CONFIRMED: "✕", Verdict.UNDECIDED: "?", Verdict.TOO_SMALL: "·"}


@dataclass(frozen=True)
class Report:
    """All parts of a report, ready to be printed in any form."""

    run: Run
    description: Description
    metrics: tuple[Metric, ...]
    judgements: tuple[Judgement, ...]
    results: tuple[Table, ...]
    differences: tuple[Table, ...]
    notices: tuple[str, ...]
    summary: str
    choices: tuple[Table, ...] = ()
    """How firm the choice of settings is."""


def build(run: Run) -> Report:
    """Judge the claims and make the tables of a run."""
    description = describe(run.experiment)
    metrics = metrics_of(run, description.metrics)
    judgements = tuple(judge(claim, run) for claim in description.claims)
    results = _with_note(result_tables(run, description, metrics), choice_note(run, metrics[0])) if metrics else ()
    choices = choice_table(run, metrics[0]) if metrics else None
    differences = difference_table(run, metrics[0], _reference_method(run, metrics[0])) if metrics else None
    return Report(
        run,
        description,
        metrics,
        judgements,
        results,
        (differences,) if differences else (),
        tuple(notices(run, metrics[0] if metrics else None)),
        summary(run, metrics, judgements),
        (choices,) if choices else (),
    )


def _with_note(tables: Sequence[Table], note: str) -> tuple[Table, ...]:
    """The tables, the first with one more note."""
    first, *others = tables
    return (replace(first, notes=(*first.notes, note)) if note else first, *others)


def _reference_method(run: Run, main: Metric) -> str:
    """Differences are taken from the method that the run compared itself, or pos-ap, or else the best method."""
    stored = stored_comparisons(run)
    if stored:
        return stored[0].first
    if "pos-ap" in run.methods:
        return "pos-ap"
    return _best(run, main)[0]


def _best(run: Run, main: Metric) -> tuple[str, float]:
    means = {m: [e.mean for n in run.noises if (e := measured(run, m, n, main.key))] for m in run.methods}
    # A method that lacks a noise level has an easier mean, so only those with the most levels compete.
    most = max(len(values) for values in means.values())
    means = {method: values for method, values in means.items() if len(values) == most}
    sign = -1 if main.lower_is_better else 1
    best = max(means, key=lambda method: sign * sum(means[method]) / len(means[method]))
    return best, sum(means[best]) / len(means[best])


def summary(run: Run, metrics: Sequence[Metric], judgements: Sequence[Judgement]) -> str:
    """One or two sentences that say what came out."""
    if not metrics:
        return "There is no result yet."
    if own := stored_comparisons(run):
        return " ".join(sentence(one) for one in own)
    parts = [_headline(judgements[0]) if judgements else ""]
    if not parts[0]:
        best, mean = _best(run, metrics[0])
        over = ", mean over all noise levels" if len(run.noises) > 1 else ""
        value = number(mean * metrics[0].factor, metrics[0].places)
        parts = [f"Best {metrics[0].label}: {best} with {value}{over} ({_seeds(len(run.seeds))})."]
    if judgements:
        parts.append(first_look(run, judgements) if is_first_look(run) else _count(judgements))
    return " ".join(parts)


def first_look(run: Run, judgements: Sequence[Judgement]) -> str:
    """Why a run does not judge the claims, and which one does."""
    config = run.info.get("config")
    plan = config if isinstance(config, dict) else {}
    chosen = choices(run, metric(judgements[0].claim.metric))
    few = [_seeds(len(run.seeds))]
    few += [f"{one.settings} settings of each method on {_seeds(one.lead.n)} in the search" for one in chosen[:1]]
    few += [f"{plan[unit]} {unit}" for unit in ("epochs", "iterations") if plan.get(unit)]
    claims = "claim" if len(judgements) == 1 else f"{len(judgements)} claims"
    return (
        f"This is a first look, too small to judge the paper's {claims} ({'; '.join(few)}); "
        "the paper preset is made for that."
    )


def _headline(judgement: Judgement) -> str:
    """The first claim in numbers: the narrowest of its comparisons, in the unit of the tables."""
    found = [(f.difference.mean, f) for f in judgement.findings if f.difference is not None]
    if not found:
        return ""
    finding = min(found, key=lambda pair: pair[0])[1]
    if finding.difference is None:
        return ""
    what = metric(judgement.claim.metric)
    difference = finding.difference.scaled(what.factor)
    places = decimals([difference], what.places)
    pair = finding.comparison
    one = len({f.comparison.first for _, f in found}) == 1
    rival = f"{pair.second}, the strongest of {len(found)} rivals" if one and len(found) > 1 else pair.second
    way = "ahead of" if difference.mean >= 0 else "behind"
    interval = (
        f"difference {span(difference, places, signed=True)} with 95 % confidence"
        if difference.low is not None
        else "no interval"
    )
    where = PLACE_TEXT[judgement.claim.place]
    details = "; ".join(part for part in (interval, where, _seeds(difference.n)) if part)
    amount = f"{number(abs(difference.mean), places)} {what.unit}".strip()
    return f"{pair.first} is {amount} of {what.label} {way} {rival} ({details})."


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{count} seeds"


def _count(judgements: Sequence[Judgement]) -> str:
    ours = [judgement for judgement in judgements if judgement.claim.source == OURS]
    theirs = [judgement for judgement in judgements if judgement.claim.source != OURS]
    parts = [
        f"Of the paper's {_verdicts(theirs, 'claim')}." if theirs else "",
        f"Of our own {_verdicts(ours, 'statement')}." if ours else "",
    ]
    return " ".join(part for part in parts if part)


def _verdicts(judgements: Sequence[Judgement], what: str) -> str:
    counts = Counter(judgement.verdict for judgement in judgements)
    listed = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    return f"{len(judgements)} {what if len(judgements) == 1 else what + 's'} judged here: {listed}"


def finding_text(finding: Finding, what: Metric) -> tuple[str, str]:
    """The measured difference and, if the paper prints one, the paper's."""
    paper = finding.comparison.paper
    theirs = "" if paper is None else f"{number(paper * what.factor, 1, signed=True)} {what.unit}".strip()
    if finding.difference is None:
        return finding.why, theirs
    e = finding.difference.scaled(what.factor)
    places = decimals([e], what.places)
    ours = f"{number(e.mean, places, signed=True)} {what.unit}".strip()
    return f"{ours} ({span(e, places, signed=True) or finding.why})", theirs


def render(report: Report, panels: Sequence[Panel]) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("directloss_repro.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    light, dark = colour_rules()
    return environment.get_template("report.html.j2").render(
        report=report,
        run=report.run,
        description=report.description,
        cards=[_card(judgement) for judgement in report.judgements],
        panels=panels,
        drawings=read_drawings(report.run.folder),
        chosen=chosen_table(report.run),
        settings=_settings(report.run),
        facts=_facts(report.run),
        light=light,
        dark=dark,
        records=report.run.records,
        run_file=RUN,
    )


def _card(judgement: Judgement) -> dict[str, Any]:
    claim = judgement.claim
    what = metric(claim.metric)
    findings = []
    for finding in judgement.findings:
        ours, theirs = finding_text(finding, what)
        value, bracket, interval = ours.partition("(")
        pair = f"{finding.comparison.first} {MINUS} {finding.comparison.second}"
        findings.append(
            {
                "pair": pair,
                "ours": value,
                "interval": bracket + interval,
                "paper": theirs,
                "verdict": finding.verdict.value,
                "sign": SIGNS[finding.verdict],
            }
        )
    return {
        "says": claim.says,
        "source": claim.source,
        "verdict": judgement.verdict.value,
        "sign": SIGNS[judgement.verdict],
        "slug": judgement.verdict.value.replace(" ", "-"),
        "findings": findings,
        "paper_numbers": any(finding["paper"] for finding in findings),
        "measure": "; ".join(part for part in (what.label, PLACE_TEXT[claim.place]) if part),
        "reading": claim.reading,
        "rule": ("A larger run is judged so: " if judgement.verdict == Verdict.TOO_SMALL else "")
        + rule_text(claim, what.unit or "", what.factor),
    }


def _settings(run: Run) -> dict[str, str]:
    config = run.info.get("config")
    return {str(key): value_text(value) for key, value in config.items()} if isinstance(config, dict) else {}


def _facts(run: Run) -> dict[str, str]:
    """Who, when, how long, with what: only what is known."""
    started, finished = moment(run.info.get("started")), moment(run.info.get("finished"))
    everything = (*run.search, *run.final)
    facts = {
        "experiment": run.experiment,
        "preset": value_text(run.info["preset"]) if run.info.get("preset") else "",
        "started": f"{started:%Y-%m-%d %H:%M %Z}" if started else "",
        "duration": duration((finished - started).total_seconds()) if started and finished else "",
        "training time, all runs": duration(sum(record.seconds for record in everything)),
        "runs": f"{len(run.final)} final, {len(run.search)} search trials",
        **versions(run),
    }
    return {name: value for name, value in facts.items() if value}


def panels_of(report: Report) -> list[Panel]:
    """The figures of a report."""
    return draw_all(report.run, report.description, report.metrics) if report.metrics else []
