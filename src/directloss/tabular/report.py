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
from directloss.integrations._cut import decided
from directloss.tabular.baselines import BASELINES
from directloss.tabular.comparison import Estimate, Method
from directloss.tabular.files import write_file
from directloss.tabular.measures import CROSS_ENTROPY
from directloss.tabular.session import MODEL, Outcome, versions

PAGE, TABLES = "report.html", "tables.md"
SCORES = "Every method on the same test rows."
CURVES = "Precision and recall on the test rows, at every threshold."
SHARES = "Calibration of the saved network on the test rows: how often what it calls 80 % likely happens."
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
    """Write report.html and tables.md; returns the path of the page."""
    plan, folder, told = outcome.plan, outcome.plan.request.folder, verdict(outcome)
    heading = f"{plan.target.name} in {plan.request.data.name}, judged by {plan.measure.title}"
    sections = [results_table(outcome), *([labels_table(outcome)] if plan.measure.decides else [])]
    sections += [split_table(outcome), columns_table(outcome)]
    lines = [f"# {heading}", "", *told, ""]
    for section in sections:
        lines += [f"## {section.title}", "", *markdown(section), ""]
    write_file(folder / TABLES, "\n".join(lines).encode())
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
    methods = {method.name: method for method in outcome.methods}
    test, ahead, metric = outcome.comparison.test, outcome.comparison.ahead, outcome.plan.measure.title
    saved, ours = methods[outcome.saved], test[outcome.saved]
    rivals = [method for method in outcome.methods if not method.ours]
    told = [f"The saved network has a test {metric} of {number(ours.value)} ({interval(ours)})."]
    if rivals:
        rivals.sort(key=lambda method: (-test[method.name].value, -method.validation))
        sure = [method for method in rivals if ahead[method.name].low > 0 and not outcome.plan.too_few]
        rival = (sure or rivals)[0]
        told = _against(outcome, rival)
        if sure and rivals[0] is not rival:
            more = f"{rivals[0].title} has a higher test {metric}, {number(test[rivals[0].name].value)}"
            told.append(f"{more}, but its lead over the saved network could be chance.")
        if rival.sampled is not None:
            all_rows = len(outcome.plan.parts["training"])
            told.append(
                f"{rival.title} was trained on a sample of {rival.sampled:,} of the {all_rows:,} training rows."
            )
    other = next(method for method in outcome.methods if method.ours and method.name != saved.name)
    gap = ahead[other.name] if other.name != CROSS_ENTROPY else -ahead[other.name]
    told.append(_effect(gap, metric))
    told[1:1] = _constant_answer(outcome)
    values = f"{number(saved.validation)} against {number(other.validation)} for the {other.title}"
    told.append(f"{MODEL} holds the {saved.title}, chosen by its validation {metric}: {values}.")
    return told + _optimism(outcome, saved)


def _effect(gap: Estimate, metric: str) -> str:
    """The effect of training on the metric."""
    if gap.value == gap.low == gap.high == 0:
        return f"Training on {metric} instead of cross-entropy does not change the network's test {metric}."
    shown = "This is unlikely to be chance" if gap.certain else "This could be chance"
    changes = f"changes the network's test {metric} by {number(gap.value, '+')}"
    return f"Training on {metric} instead of cross-entropy {changes}. {shown} ({interval(gap)})."


def _optimism(outcome: Outcome, saved: Method) -> list[str]:
    """A sentence if the validation metric of the saved network is far above the interval of its test metric."""
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
    y, classes = torch.from_numpy(target.y[outcome.plan.parts["test"]]), torch.eye(len(target.labels))
    values = {}
    for label, scores in zip(target.labels, classes, strict=True):
        same = scores.expand(len(y), -1) if measure.classes > 2 else (scores[1] - 0.5).expand(len(y))
        values[label] = float(measure.value(same, y))
    best = max(values, key=lambda label: values[label])
    if max(estimate.value for estimate in outcome.comparison.test.values()) > values[best]:
        return []
    return [f"No method beats always answering {best!r}, with a test {measure.title} of {number(values[best])}."]


def _against(outcome: Outcome, rival: Method) -> list[str]:
    """The saved network against the best baseline."""
    test, ahead, metric = outcome.comparison.test, outcome.comparison.ahead, outcome.plan.measure.title
    ours, theirs, gap = test[outcome.saved], test[rival.name], ahead[rival.name]
    few = outcome.plan.too_few
    if gap.low > 0 and not few:
        how_to = f"{MODEL} holds only networks: train {rival.title} yourself with {rival.setting}."
        values = f"test {metric} {number(theirs.value)} against {number(ours.value)} for the saved network"
        return [f"Use {rival.title}: {values} ({number(gap.value, '+')}, {interval(gap)}).", how_to]
    difference = f"{number(-gap.value, '+')}, {interval(-gap)}"
    values = f"{number(ours.value)} against {number(theirs.value)} for {rival.title}, the best baseline ({difference})"
    if few:
        return [f"Too few rows to choose by: {few}.", f"The saved network's test {metric} is {values}."]
    if gap.high < 0:
        return [f"Use the saved network: its test {metric} is {values}."]
    chance = "the difference could be chance" if gap.value else "they are equal"
    open_ones = [method.title for method in outcome.methods if not method.ours and ahead[method.name].high >= 0]
    return [
        f"No winner: the saved network's test {metric} is {values}; {chance}.",
        f"Use whichever is simplest for you. Not shown to be worse than the saved network: {', '.join(open_ones)}.",
    ]


def number(value: float, sign: str = "") -> str:
    """Three decimals with a real minus sign; values that round to zero have no sign."""
    return f"{round(value, 3) + 0.0:{sign}.3f}".replace("-", "\u2212")


def interval(estimate: Estimate) -> str:
    """The interval in words."""
    return f"95 % interval {number(estimate.low)} to {number(estimate.high)}"


def results_table(outcome: Outcome) -> Section:
    """Validation and test metric of each method."""
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
    head = ("method", f"validation {metric}", f"test {metric}", "95 % interval", "lead over saved", "time")
    marked = next(k for k, method in enumerate(ordered) if method.name == saved)
    return Section("Results", (*head, "settings"), rows, marked)


def short_results(outcome: Outcome) -> Section:
    """The results for a terminal of 80 columns; the networks have the names that the search printed."""
    names = {_shown(method, outcome): method.name if method.ours else method.title for method in outcome.methods}
    rows = [
        [names[shown], validation, test, ahead or "(saved)", taken]
        for shown, validation, test, _, ahead, taken, _ in results_table(outcome).rows
    ]
    head = ("method", "validation", "test", "lead over saved", "time")
    return Section("Results", head, rows)


def split_table(outcome: Outcome) -> Section:
    """Rows and positives per part."""
    target, parts = outcome.plan.target, outcome.plan.parts
    uses = {
        "training": "training every method",
        "validation": "choosing settings, epochs and thresholds",
        "test": "the final comparison",
    }
    rows = []
    for part, own in {**parts, "all": np.concatenate(list(parts.values()))}.items():
        counts = target.counts(own)
        shares = [] if target.positive is None else [f"{counts[1]:,}", f"{counts[1] / len(own):.1%}"]
        rows.append([part, f"{len(own):,}", *shares, uses.get(part, "")])
    positive = [] if target.positive is None else [f"positive ({target.positive})", "share"]
    return Section("Rows", ("part", "rows", *positive, "used for"), rows)


def labels_table(outcome: Outcome) -> Section:
    """The decisions of the saved network for the test rows of each label."""
    target, test = outcome.plan.target, outcome.plan.parts["test"]
    places, y = decided(next(method.test for method in outcome.methods if method.name == outcome.saved)), target.y[test]
    chosen, right = (np.bincount(some, minlength=len(target.labels)) for some in (places, y[places == y]))
    rows = [
        [label, f"{wanted:,}", f"{got:,}", f"{hits:,}", _share(hits, got), _share(hits, wanted)]
        for label, wanted, got, hits in zip(target.labels, target.counts(test), chosen, right, strict=True)
    ]
    head = ("label", "test rows", "predicted", "correct", "precision", "recall")
    return Section("Decisions of the saved network", head, rows)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def columns_table(outcome: Outcome) -> Section:
    """How each column is encoded."""
    plan, story = outcome.plan, {**outcome.encoder.story, **outcome.plan.left_out}
    columns = [column for name, column in plan.survey.columns.items() if name != plan.target.name]
    rows = [[column.name, story[column.name], f"{column.gaps:,}" if column.gaps else ""] for column in columns]
    return Section("Columns", ("column", "encoding", "gaps"), rows)


def how(outcome: Outcome) -> list[str]:
    """How the numbers were obtained."""
    plan, trials = outcome.plan, " and ".join(f"{count} ({loss})" for loss, count in outcome.trials.items())
    kept = f" Rows with the same {plan.request.group!r} are in the same part." if plan.request.group else ""
    cut = " Every method has the threshold that is best on the validation rows." if plan.measure.cuts else ""
    absent = [baseline.title for baseline in BASELINES.values() if not baseline.there]
    without = f" Not installed, so not compared: {', '.join(absent)}." if absent else ""
    drawn = "groups of test rows" if plan.groups is not None else "test rows"
    sizes = [method.sampled for method in outcome.methods if method.sampled is not None]
    room = f" They were trained on a sample of {sizes[0]:,} training rows, to limit memory." if sizes else ""
    tried = " Each trial used a sample of the training rows; the winner is trained on all." if outcome.tried else ""
    best = " They are not corrected for choosing the best of several baselines on the same test rows."
    several = best if len(plan.baselines) > 1 else ""
    return [
        f"Networks: optuna tried settings on the validation rows, {trials} trials; poor ones were stopped early."
        f"{tried} "
        f"Training on {plan.measure.title} is cross-entropy in its first half and direct loss minimization in its "
        "second. The best epoch on the validation rows is kept.",
        f"Baselines: a few settings each, chosen on the same validation rows.{room}{cut}{kept}{without}",
        f"Intervals: a paired bootstrap over the {drawn}. They do not cover the randomness of the split and of the "
        f"training: try another --seed for that.{several}",
        f"The fit took {outcome.seconds:.0f} seconds.",
    ]


def markdown(section: Section) -> list[str]:
    """A table as Markdown."""
    rows = [list(section.head), ["---"] * len(section.head), *section.rows]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]


# ---------------------------------------------------------------------- figures


def draw_scores(outcome: Outcome) -> Figure:
    """Test metrics with their intervals, next to validation metrics."""
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
    """Precision against recall on the test rows."""
    figure, axes = _figure(3.9)
    target = torch.from_numpy(outcome.plan.target.y[outcome.plan.parts["test"]])
    curves = {_shown(method, outcome): torch.from_numpy(method.test) for method in outcome.methods}
    plot.precision_recall(curves, target, ax=axes)
    axes.get_legend().remove()
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


def draw_reliability(outcome: Outcome) -> Figure:
    """Calibration of the saved network's probabilities: of the positive label, or of the most probable class."""
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
