"""The result for people: a self-contained HTML page, its tables as Markdown, and the verdict in sentences."""

from __future__ import annotations

import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from directloss import plot
from directloss.tabular.columns import LEAK
from directloss.tabular.comparison import Estimate
from directloss.tabular.files import write_file
from directloss.tabular.fitting import MODEL, Outcome, Result, versions

PAGE = "report.html"
SCORES = "Every method on the same test rows."
CURVES = "Precision and recall on the test rows, at every threshold."
SHARES = "Calibration of the saved model on the test rows: how often what it calls 80 % likely happens."
STYLE: Any = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "directloss", "font.family": "sans-serif"}


@dataclass(frozen=True)
class Section:
    """A table with its heading."""

    title: str
    head: Sequence[str]
    rows: list[list[str]]
    marked: int | None = None
    """The row to highlight."""


def write_report(outcome: Outcome) -> Path:
    """Write report.html; returns its path."""
    plan, folder, told = outcome.plan, outcome.plan.request.folder, verdict(outcome)
    heading = f"{plan.target.name} in {plan.request.data.name}, judged by {plan.measure.title}"
    sections = [results_table(outcome), *([labels_table(outcome)] if plan.measure.decides else [])]
    sections += [split_table(outcome), columns_table(outcome)]
    loader = PackageLoader("directloss.tabular", "")
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("report.html.j2")
    curves = {} if plan.target.positive is None else {CURVES: draw_curves}
    figures = {SCORES: draw_scores, **curves, SHARES: draw_reliability}
    with rc_context(STYLE):
        drawn = {caption: _svg(draw(outcome)) for caption, draw in figures.items()}
    predict = shlex.join(["directloss", "predict", str(folder / MODEL), "NEW.csv", "--out", "scores.csv"])
    page = template.render(
        heading=heading,
        verdict=told,
        sections=sections,
        figures=drawn,
        notes=plan.notes,
        commands=[plan.request.command(), predict],
        how=how(outcome),
        versions=", ".join(f"{name} {number}" for name, number in versions().items()),
    )
    write_file(folder / PAGE, page.encode())
    return folder / PAGE


def verdict(outcome: Outcome) -> list[str]:
    """Who wins, by how much, and what to use; then the effect of training on the metric, and what was saved."""
    test, ahead, metric = outcome.comparison.test, outcome.comparison.ahead, outcome.plan.measure.title
    saved = outcome.results[outcome.saved]
    rivals = sorted(
        (own for own in outcome.results.values() if own is not saved), key=lambda own: -test[own.name].value
    )
    sure = [rival for rival in rivals if ahead[rival.name].low > 0 and not outcome.plan.too_few]
    told = _against(outcome, saved, (sure or rivals)[0])
    if sure and rivals[0] is not sure[0]:
        more = f"{_capital(_named(rivals[0]))} has a higher test {metric}, {number(test[rivals[0].name].value)}"
        told.append(f"{more}, but its lead over the saved model could be chance.")
    told[1:1] = [*_constant_answer(outcome), *(note for note in outcome.plan.notes if LEAK in note)]
    if outcome.comparison.effect is not None:
        told.append(_effect(outcome.comparison.effect, metric))
    by = f"chosen by its validation {metric}, {number(saved.validation)}"
    told.append(f"{MODEL} holds {_named(saved)}, {by}: the best of those that plain numbers can store.")
    return told + _optimism(outcome, saved)


def _named(result: Result) -> str:
    return f"the {result.title}" if result.title.startswith("network") else result.title


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _against(outcome: Outcome, saved: Result, rival: Result) -> list[str]:
    """The saved model against the best of the others."""
    test, metric, gap = outcome.comparison.test, outcome.plan.measure.title, outcome.comparison.ahead[rival.name]
    ours, theirs, few = number(test[saved.name].value), number(test[rival.name].value), outcome.plan.too_few
    if gap.low > 0 and not few:
        values = f"test {metric} {theirs} against {ours} for the saved model, {_named(saved)}"
        how_to = f"{MODEL} does not hold it: train it yourself with {rival.setting}."
        return [f"Use {_named(rival)}: {values} ({number(gap.value, '+')}, {interval(gap)}).", how_to]
    difference = f"{number(-gap.value, '+')}, {interval(-gap)}"
    values = f"{ours} against {theirs} for {_named(rival)}, the best of the others ({difference})"
    if few:
        return [f"Too few rows to choose by: {few}.", f"The saved model's test {metric} is {values}."]
    if gap.high < 0:
        return [f"Use the saved model, {_named(saved)}: its test {metric} is {values}."]
    chance = "the difference could be chance" if gap.value else "they are equal"
    equal = [_named(own) for name, own in outcome.results.items()
             if name != saved.name and outcome.comparison.ahead[name].high >= 0]  # fmt: skip
    return [
        f"No winner: the test {metric} of the saved model, {_named(saved)}, is {values}; {chance}.",
        f"Use whichever is simplest for you. Not shown to be worse than the saved model: {', '.join(equal)}.",
    ]


def _effect(gap: Estimate, metric: str) -> str:
    """The effect of training on the metric."""
    certain = gap.low > 0 or gap.high < 0
    shown = "This is unlikely to be chance" if certain else "This could be chance"
    changes = f"changes the network's test {metric} by {number(gap.value, '+')}"
    return f"Training on {metric} instead of cross-entropy {changes}. {shown} ({interval(gap)})."


def _optimism(outcome: Outcome, saved: Result) -> list[str]:
    """A sentence if the validation metric of the saved model is far above the interval of its test metric."""
    test, metric, target = outcome.comparison.test[saved.name], outcome.plan.measure.title, outcome.plan.target
    # The difference of two metrics, each on its own rows, varies about 1.4 times as much as one of them.
    if saved.validation <= test.value + 1.5 * (test.high - test.value):
        return []
    counts = target.counts(outcome.plan.parts["validation"])
    share = "" if target.positive is None else f", {counts[1]:,} of them positive,"
    why = f"the {counts.sum():,} validation rows{share} are too few to choose by, or differ from the test rows"
    above = f"{number(saved.validation)}, is far above its test {metric}, {number(test.value)}"
    return [f"Its validation {metric}, {above}: {why}."]


def _constant_answer(outcome: Outcome) -> list[str]:
    """A sentence if no method beats giving every row the same answer."""
    measure, target = outcome.plan.measure, outcome.plan.target
    if not measure.decides:
        return []
    y, values = torch.from_numpy(target.y[outcome.plan.parts["test"]]), {}
    for label, scores in zip(target.labels, torch.eye(len(target.labels)), strict=True):
        same = scores.expand(len(y), -1) if measure.classes > 2 else (scores[1] - 0.5).expand(len(y))
        values[label] = float(measure.value(same, y))
    best = max(values, key=lambda label: values[label])
    if max(estimate.value for estimate in outcome.comparison.test.values()) > values[best]:
        return []
    return [f"No method beats always answering {best!r}, with a test {measure.title} of {number(values[best])}."]


def number(value: float, sign: str = "") -> str:
    """Three decimals with a real minus sign; values that round to zero have no sign."""
    return f"{round(value, 3) + 0.0:{sign}.3f}".replace("-", "\u2212")


def interval(estimate: Estimate) -> str:
    """The interval in words."""
    return f"95 % interval {number(estimate.low)} to {number(estimate.high)}"


# ---------------------------------------------------------------------- tables


def results_table(outcome: Outcome) -> Section:
    """Validation and test metric of each method."""
    metric, ordered, rows = outcome.plan.measure.title, _ordered(outcome), []
    for result in ordered:
        test, ahead = outcome.comparison.test[result.name], outcome.comparison.ahead.get(result.name)
        rows.append(
            [
                _shown(result, outcome),
                number(result.validation),
                number(test.value),
                f"{number(test.low)} to {number(test.high)}",
                "" if ahead is None else f"{number(ahead.value, '+')} ({number(ahead.low)} to {number(ahead.high)})",
                f"{result.seconds:.1f} s" if result.seconds < 100 else f"{result.seconds / 60:.1f} min",
                result.setting,
            ]
        )
    head = ("method", f"validation {metric}", f"test {metric}", "95 % interval", "lead over saved", "time", "settings")
    return Section("Results", head, rows, [own.name for own in ordered].index(outcome.saved))


def short_results(outcome: Outcome) -> Section:
    """The results for a terminal of 80 columns; the networks have the names that the search printed."""
    rows = []
    for result, row in zip(_ordered(outcome), results_table(outcome).rows, strict=True):
        name = result.name if result.title.startswith("network") else result.title
        rows.append([name, row[1], row[2], row[4] or "(saved)", row[5]])
    return Section("Results", ("method", "validation", "test", "lead over saved", "time"), rows)


def _ordered(outcome: Outcome) -> list[Result]:
    return sorted(outcome.results.values(), key=lambda own: -outcome.comparison.test[own.name].value)


def _shown(result: Result, outcome: Outcome) -> str:
    return result.title + (" (saved)" if result.name == outcome.saved else "")


def labels_table(outcome: Outcome) -> Section:
    """The decisions of the saved model for the test rows of each label."""
    target, test = outcome.plan.target, outcome.plan.parts["test"]
    scores, y = outcome.results[outcome.saved].test, target.y[test]
    places = scores.argmax(1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
    chosen, right = (np.bincount(own, minlength=len(target.labels)) for own in (places, y[places == y]))
    rows = [
        [label, f"{wanted:,}", f"{got:,}", f"{hits:,}", _share(hits, got), _share(hits, wanted)]
        for label, wanted, got, hits in zip(target.labels, target.counts(test), chosen, right, strict=True)
    ]
    head = ("label", "test rows", "predicted", "correct", "precision", "recall")
    return Section("Decisions of the saved model", head, rows)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def split_table(outcome: Outcome) -> Section:
    """Rows and positives per part."""
    target, rows = outcome.plan.target, []
    uses = ("training every method", "choosing settings, epochs and thresholds", "the final comparison")
    for (part, own), use in zip(outcome.plan.parts.items(), uses, strict=True):
        counts = target.counts(own)
        shares = [] if target.positive is None else [f"{counts[1]:,}", f"{counts[1] / len(own):.1%}"]
        rows.append([part, f"{len(own):,}", *shares, use])
    positive = [] if target.positive is None else [f"positive ({target.positive})", "share"]
    return Section("Rows", ("part", "rows", *positive, "used for"), rows)


def columns_table(outcome: Outcome) -> Section:
    """How each column is encoded."""
    plan, gaps = outcome.plan, {name: int(values.isna().sum()) for name, values in outcome.plan.frame.items()}
    story = {encoding.column.name: encoding.story for encoding in outcome.encoder.encodings} | plan.left_out
    names = [name for name in plan.table.names if name in story]
    rows = [[name, story[name], f"{gaps[name]:,}" if gaps.get(name) else ""] for name in names]
    return Section("Columns", ("column", "encoding", "gaps"), rows)


def how(outcome: Outcome) -> list[str]:
    """How the numbers were obtained."""
    plan, metric = outcome.plan, outcome.plan.measure.title
    kept = f" Rows with the same {plan.request.group!r} are in the same part." if plan.request.group else ""
    cut = " Every method has the threshold that is best on the validation rows." if plan.measure.cuts else ""
    drawn = "groups of test rows" if plan.groups is not None else "test rows"
    of_negatives, of_positives = plan.measure.flips
    flips = (
        f" {metric} is that of the right labels, estimated from wrong ones: {of_negatives:.0%} of the negatives and "
        f"{of_positives:.0%} of the positives are taken to be mislabelled, in all parts."
        if any(plan.measure.flips)
        else ""
    )
    return [
        f"Network trained on {metric}: DirectLossClassifier, which follows the gradient of the expected {metric} and a "
        "share of that of the likelihood. Network trained with cross-entropy: MLPClassifier of scikit-learn with the "
        "same layers. For both, the first setting is fixed and the others are drawn at random; setting and epoch with "
        f"the best validation {metric} are kept.",
        f"The others have a few settings each, chosen on the same validation rows.{cut}{kept}{flips}",
        f"Intervals: a paired bootstrap over the {drawn}. They do not cover the randomness of the split and of the "
        "training: try another --seed for that. They are not corrected for choosing the best of several methods.",
        f"The fit took {outcome.seconds:.0f} seconds.",
    ]


# ---------------------------------------------------------------------- figures


def draw_scores(outcome: Outcome) -> Figure:
    """Test metrics with their intervals, next to validation metrics."""
    test, ordered = outcome.comparison.test, _ordered(outcome)[::-1]
    own = dict(zip(outcome.results, cycle(plot.COLOURS), strict=False))
    figure, axes = _figure(0.9 + 0.36 * len(ordered))
    for place, result in enumerate(ordered):
        estimate, colour = test[result.name], own[result.name]
        axes.plot([estimate.low, estimate.high], [place, place], color=colour, lw=2, solid_capstyle="round")
        axes.plot(estimate.value, place, "o", color=colour, ms=7)
        axes.plot(result.validation, place, "o", mfc="white", mec=colour, ms=6, zorder=3)
    axes.set_yticks(range(len(ordered)), [_shown(result, outcome) for result in ordered])
    axes.set_xlabel(f"{outcome.plan.measure.title}: test (filled, with 95 % interval) and validation (hollow)")
    axes.grid(axis="x", color="#e5e7eb")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_curves(outcome: Outcome) -> Figure:
    """Precision against recall on the test rows."""
    figure, axes = _figure(3.9)
    target = torch.from_numpy(outcome.plan.target.y[outcome.plan.parts["test"]])
    curves = {_shown(result, outcome): torch.from_numpy(result.test) for result in outcome.results.values()}
    plot.precision_recall(curves, target, ax=axes)
    axes.get_legend().remove()
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


def draw_reliability(outcome: Outcome) -> Figure:
    """Calibration of the saved model's probabilities: of the positive label, or of the most probable class."""
    y, shares = outcome.plan.target.y[outcome.plan.parts["test"]], outcome.probabilities
    figure, axes = _figure(3.9)
    if outcome.plan.target.positive is None:
        shares, y = shares.max(1), (shares.argmax(1) == y).astype(np.int64)
    else:
        shares = shares[:, 1]
    plot.reliability(torch.from_numpy(shares), torch.from_numpy(y), ax=axes)
    return figure


def _figure(height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(7.6, height), layout="constrained")
    return figure, figure.add_subplot()


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))  # type: ignore[no-untyped-call]
    return text.getvalue()[text.getvalue().index("<svg") :]
