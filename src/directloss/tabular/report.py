"""What came out, for people: a page that needs no other file, its tables as Markdown, and who wins in a sentence."""

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
from directloss.integrations._cut import decided
from directloss.tabular.baselines import BASELINES
from directloss.tabular.comparison import Estimate, Method
from directloss.tabular.files import write_file
from directloss.tabular.planning import FEW
from directloss.tabular.session import MODEL, Outcome, versions

PAGE, TABLES = "report.html", "tables.md"
SCORES = "Every method on the same test rows."
CURVES = "Precision and recall on the test rows, for every place of the threshold."
SHARES = "Probabilities of the saved network on the test rows: how often what it calls 80 % likely does happen."
STYLE: Any = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "directloss", "font.family": "sans-serif"}


@dataclass(frozen=True)
class Section:
    """A table with its heading."""

    title: str
    head: Sequence[str]
    rows: list[list[str]]
    marked: int | None = None
    """The row to point out."""


def write_report(outcome: Outcome) -> Path:
    """Write report.html and tables.md; the path of the page."""
    folder, told = outcome.plan.request.folder, verdict(outcome)
    two, decides = outcome.plan.target.positive is not None, outcome.plan.measure.decides
    sections = [results_table(outcome), *([labels_table(outcome)] if decides else [])]
    sections += [split_table(outcome), columns_table(outcome)]
    lines = [f"# {_heading(outcome)}", "", *told, ""]
    for section in sections:
        lines += [f"## {section.title}", "", *markdown(section), ""]
    write_file(folder / TABLES, "\n".join(lines).encode())
    loader = PackageLoader("directloss.tabular", "")
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("report.html.j2")
    with rc_context(STYLE):
        figures = {SCORES: draw_scores, **({CURVES: draw_curves} if two else {}), SHARES: draw_reliability}
        drawn = {caption: _svg(draw(outcome)) for caption, draw in figures.items()}
    page = template.render(
        heading=_heading(outcome),
        verdict=told,
        sections=sections,
        figures=drawn,
        notes=outcome.plan.notes,
        commands=commands(outcome),
        how=how(outcome),
        versions=", ".join(f"{name} {number}" for name, number in versions().items()),
    )
    write_file(folder / PAGE, page.encode())
    return folder / PAGE


def verdict(outcome: Outcome) -> list[str]:
    """Who wins, by how much, and what to use; then what training on the metric brought, and what was saved."""
    methods = {method.name: method for method in outcome.methods}
    test, ahead, metric = outcome.comparison.test, outcome.comparison.ahead, outcome.plan.measure.title
    saved, ours = methods[outcome.saved], test[outcome.saved]
    rivals = [method for method in outcome.methods if not method.ours]
    told = [f"The saved network has a test {metric} of {number(ours.value)} ({interval(ours)})."]
    if rivals:
        rivals.sort(key=lambda method: (-test[method.name].value, -method.validation))
        sure = [method for method in rivals if ahead[method.name].low > 0 and _enough(outcome)]
        rival = (sure or rivals)[0]
        told = _against(outcome, rival)
        if sure and rivals[0] is not rival:
            more = f"{rivals[0].title} has a higher test {metric}, {number(test[rivals[0].name].value)}"
            told.append(f"{more}, but its lead over the saved network could be chance.")
        if rival.sampled is not None:
            all_rows = len(outcome.plan.parts["training"])
            told.append(f"{rival.title} had a sample of {rival.sampled:,} of the {all_rows:,} training rows.")
    other = next(method for method in outcome.methods if method.ours and method.name != saved.name)
    gap = ahead[other.name] if other.name != "x-ent" else -ahead[other.name]
    told.append(_brought(gap, metric))
    told[1:1] = _same_answer(outcome)
    told.append(
        f"{MODEL} holds the {saved.title}: its validation {metric}, {number(saved.validation)}, "
        f"{'is as high as' if saved.validation == other.validation else 'is higher than'} "
        f"that of the {other.title}, {number(other.validation)}. Test rows had no say in it."
    )
    return told


def _brought(gap: Estimate, metric: str) -> str:
    """What training on the metric changed."""
    if gap.value == gap.low == gap.high == 0:
        return f"Training on {metric} instead of cross-entropy changes nothing about the network's test {metric}."
    shown = "The difference is shown" if gap.certain else "The difference could be chance"
    changes = f"changes the network's test {metric} by {number(gap.value, '+')}"
    return f"Training on {metric} instead of cross-entropy {changes}. {shown} ({interval(gap)})."


def _same_answer(outcome: Outcome) -> list[str]:
    """Whether an answer that looks at no column would have done as well."""
    measure, target = outcome.plan.measure, outcome.plan.target
    if not measure.decides:
        return []
    y, classes = torch.from_numpy(target.y[outcome.plan.parts["test"]]), torch.eye(len(target.labels))
    values = {}
    for label, scores in zip(target.labels, classes, strict=True):
        same = scores.expand(len(y), -1) if measure.classes > 2 else (scores[1] - 0.5).expand(len(y))
        values[label] = float(measure.value(same, y))
    best = max(values, key=lambda label: values[label])
    if max(estimate.value for estimate in outcome.comparison.test.values()) > values[best]:
        return []
    shown = f"{best!r} has a test {measure.title} of {number(values[best])}"
    return [f"No method is better than the same answer for every row: {shown}."]


def _enough(outcome: Outcome) -> bool:
    """Whether there are test rows enough of every label to choose by."""
    return bool(outcome.plan.target.counts(outcome.plan.parts["test"]).min() >= FEW)


def _against(outcome: Outcome, rival: Method) -> list[str]:
    """The saved network and the best baseline."""
    test, ahead, metric = outcome.comparison.test, outcome.comparison.ahead, outcome.plan.measure.title
    ours, theirs, gap = test[outcome.saved], test[rival.name], ahead[rival.name]
    how_to = f"It is not in {MODEL}, which holds networks only: train it with {rival.setting}."
    counts = outcome.plan.target.counts(outcome.plan.parts["test"])
    if gap.low > 0 and _enough(outcome):
        values = f"test {metric} {number(theirs.value)} against {number(ours.value)} for the saved network"
        return [f"Use {rival.title}: {values} ({number(gap.value, '+')}, {interval(gap)}).", how_to]
    difference = f"{number(-gap.value, '+')}, {interval(-gap)}"
    values = f"{number(ours.value)} against {number(theirs.value)} for {rival.title}, the best baseline ({difference})"
    if not _enough(outcome):
        rare = outcome.plan.target.labels[counts.argmin()]
        have = "has" if counts.min() == 1 else "have"
        why = f"only {counts.min()} of {counts.sum()} test rows {have} {rare!r}"
        return [f"Too few rows to choose by: {why}.", f"The saved network's test {metric} is {values}."]
    if gap.high < 0:
        return [f"Use the saved network: its test {metric} is {values}."]
    chance = "the difference could be chance" if gap.value else "they are level"
    open_ones = [method.title for method in outcome.methods if not method.ours and ahead[method.name].high >= 0]
    return [
        f"No winner: the saved network's test {metric} is {values}; {chance}.",
        f"Use whichever is simplest for you. Not shown to be worse than the saved network: {', '.join(open_ones)}.",
    ]


def number(value: float, sign: str = "") -> str:
    """Three digits after the point, with a real minus; a little less than zero is zero."""
    return f"{round(value, 3) + 0.0:{sign}.3f}".replace("-", "\u2212")


def interval(estimate: Estimate) -> str:
    """In words."""
    return f"95 % interval {number(estimate.low)} to {number(estimate.high)}"


def results_table(outcome: Outcome) -> Section:
    """Validation beside test for each method."""
    metric, saved = outcome.plan.measure.title, outcome.saved
    ordered = sorted(outcome.methods, key=lambda method: -outcome.comparison.test[method.name].value)
    rows = []
    for method in ordered:
        test, ahead = outcome.comparison.test[method.name], outcome.comparison.ahead.get(method.name)
        rows.append(
            [
                _shown(method, outcome),
                number(method.validation),
                number(test.value),
                f"{number(test.low)} to {number(test.high)}",
                "" if ahead is None else f"{number(ahead.value, '+')} ({number(ahead.low)} to {number(ahead.high)})",
                f"{method.seconds:.1f} s" if method.seconds < 100 else f"{method.seconds / 60:.1f} min",
                method.setting,
            ]
        )
    head = ("method", f"validation {metric}", f"test {metric}", "95 % interval", "ahead of the saved one", "time")
    marked = next(k for k, method in enumerate(ordered) if method.name == saved)
    return Section("Results", (*head, "settings"), rows, marked)


def short_results(outcome: Outcome) -> Section:
    """The same for a terminal of 80 columns; the networks have the names that the search told of."""
    names = {_shown(method, outcome): method.name if method.ours else method.title for method in outcome.methods}
    rows = [
        [names[shown], validation, test, ahead or "(saved)", taken]
        for shown, validation, test, _, ahead, taken, _ in results_table(outcome).rows
    ]
    head = ("method", "validation", "test", "ahead of the saved one", "time")
    return Section("Results", head, rows)


def split_table(outcome: Outcome) -> Section:
    """Rows and positives of each part."""
    target, parts = outcome.plan.target, outcome.plan.parts
    uses = {
        "training": "trains every method",
        "validation": "chooses settings, epochs and thresholds",
        "test": "judges, once",
    }
    rows = []
    for part, own in {**parts, "all": np.concatenate(list(parts.values()))}.items():
        counts = target.counts(own)
        shares = [] if target.positive is None else [f"{counts[1]:,}", f"{counts[1] / len(own):.1%}"]
        rows.append([part, f"{len(own):,}", *shares, uses.get(part, "")])
    positive = [] if target.positive is None else [f"positive ({target.positive})", "share"]
    return Section("Rows", ("part", "rows", *positive, "what for"), rows)


def labels_table(outcome: Outcome) -> Section:
    """What the saved network decides for the test rows of each label."""
    target, test = outcome.plan.target, outcome.plan.parts["test"]
    places, y = decided(next(method.test for method in outcome.methods if method.name == outcome.saved)), target.y[test]
    chosen, right = (np.bincount(some, minlength=len(target.labels)) for some in (places, y[places == y]))
    rows = [
        [label, f"{wanted:,}", f"{got:,}", f"{hits:,}", _share(hits, got), _share(hits, wanted)]
        for label, wanted, got, hits in zip(target.labels, target.counts(test), chosen, right, strict=True)
    ]
    head = ("label", "test rows", "decided for", "of these right", "precision", "recall")
    return Section("Decisions of the saved network", head, rows)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def columns_table(outcome: Outcome) -> Section:
    """What became of each column."""
    plan, story = outcome.plan, {**outcome.encoder.story, **outcome.plan.left_out}
    columns = [column for name, column in plan.survey.columns.items() if name != plan.target.name]
    rows = [[column.name, story[column.name], f"{column.gaps:,}" if column.gaps else ""] for column in columns]
    return Section("Columns", ("column", "what became of it", "gaps"), rows)


def how(outcome: Outcome) -> list[str]:
    """How the numbers were made."""
    plan, trials = outcome.plan, " and ".join(f"{count} ({loss})" for loss, count in outcome.trials.items())
    kept = f" Rows with the same {plan.request.group!r} are in the same part." if plan.request.group else ""
    cut = " Every method's threshold is the best one on the validation rows." if plan.measure.cuts else ""
    absent = [baseline.title for baseline in BASELINES.values() if not baseline.there]
    without = f" Not installed, so not compared: {', '.join(absent)}." if absent else ""
    drawn = "groups of test rows" if plan.groups is not None else "test rows"
    sizes = [method.sampled for method in outcome.methods if method.sampled is not None]
    room = f" They had a sample of {sizes[0]:,} training rows, as many as they get memory for." if sizes else ""
    tried = " Each trial had a sample of the training rows, the network that won has all." if outcome.tried else ""
    return [
        f"Networks: optuna tried settings on the validation rows, {trials} trials; poor ones were stopped early."
        f"{tried} "
        f"Training on {plan.measure.title} is cross-entropy in its first half and direct loss minimization in its "
        "second. The best epoch on the validation rows is kept.",
        f"Baselines: a few settings each, chosen on the same validation rows.{room}{cut}{kept}{without}",
        f"Intervals: a paired bootstrap over the {drawn}. They do not cover the chance of the split and of the "
        "training: another --seed shows that.",
        f"It took {outcome.seconds:.0f} seconds.",
    ]


def commands(outcome: Outcome) -> list[str]:
    """What was typed, and what to type next."""
    path = str(outcome.plan.request.folder / MODEL)
    return [
        outcome.plan.request.command(),
        shlex.join(["directloss", "predict", path, "NEW.csv", "--out", "scores.csv"]),
    ]


def _heading(outcome: Outcome) -> str:
    return f"{outcome.plan.target.name} in {outcome.plan.request.data.name}, judged by {outcome.plan.measure.title}"


def markdown(section: Section) -> list[str]:
    """A table as Markdown."""
    rows = [list(section.head), ["---"] * len(section.head), *section.rows]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]


# ---------------------------------------------------------------------- figures


def draw_scores(outcome: Outcome) -> Figure:
    """Test scores with their intervals, and validation scores beside them."""
    test, colours = outcome.comparison.test, cycle(plot.COLOURS)
    own = {method.name: next(colours) for method in outcome.methods}
    ordered = sorted(outcome.methods, key=lambda method: test[method.name].value)
    figure, axes = _figure(0.9 + 0.36 * len(ordered))
    for place, method in enumerate(ordered):
        estimate, colour = test[method.name], own[method.name]
        axes.plot([estimate.low, estimate.high], [place, place], color=colour, lw=2, solid_capstyle="round")
        axes.plot(estimate.value, place, "o", color=colour, ms=7)
        axes.plot(method.validation, place, "o", mfc="white", mec=colour, ms=6, zorder=3)
    axes.set_yticks(range(len(ordered)), [_shown(method, outcome) for method in ordered])
    axes.set_xlabel(f"{outcome.plan.measure.title}: test (filled, with 95 % interval) and validation (hollow)")
    axes.grid(axis="x", color="#e5e7eb")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_curves(outcome: Outcome) -> Figure:
    """Precision over recall on the test rows."""
    figure, axes = _figure(3.9)
    target = torch.from_numpy(outcome.plan.target.y[outcome.plan.parts["test"]])
    curves = {_shown(method, outcome): torch.from_numpy(method.test) for method in outcome.methods}
    plot.precision_recall(curves, target, ax=axes)
    axes.get_legend().remove()
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


def draw_reliability(outcome: Outcome) -> Figure:
    """Whether the saved network's probabilities are right: of the positive label, or of the likeliest class."""
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


def _shown(method: Method, outcome: Outcome) -> str:
    return method.title + (" (saved)" if method.name == outcome.saved else "")


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))  # type: ignore[no-untyped-call]
    return text.getvalue()[text.getvalue().index("<svg") :]
