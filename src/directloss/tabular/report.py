"""What came out, for people: a page that needs no other file, its tables as Markdown, and who wins in a sentence."""

from __future__ import annotations

import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from sklearn.metrics import precision_recall_curve

from directloss.tabular.baselines import BASELINES
from directloss.tabular.comparison import Estimate
from directloss.tabular.files import write_file
from directloss.tabular.session import MODEL, Method, Outcome, versions

PAGE, TABLES = "report.html", "tables.md"
OURS, OTHERS = ("#c2410c", "#ea9a6b"), ("#1d4ed8", "#0f766e", "#7c3aed", "#64748b")
POINTS = 400
"""Corners of a curve that are drawn."""
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
    sections = [results_table(outcome), split_table(outcome), columns_table(outcome)]
    lines = [f"# {_heading(outcome)}", "", *told, ""]
    for section in sections:
        lines += [f"## {section.title}", "", *markdown(section), ""]
    write_file(folder / TABLES, "\n".join(lines).encode())
    loader = PackageLoader("directloss.tabular", "")
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("report.html.j2")
    with rc_context(STYLE):
        scores, curves = _svg(draw_scores(outcome)), _svg(draw_curves(outcome))
    page = template.render(
        heading=_heading(outcome),
        verdict=told,
        sections=sections,
        scores=scores,
        curves=curves,
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
        rival = max(rivals, key=lambda method: (test[method.name].value, method.validation))
        told = _against(saved, rival, ours, test[rival.name], ahead[rival.name], metric)
        if rival.sampled is not None:
            all_rows = len(outcome.plan.parts["training"])
            told.append(f"{rival.title} had a sample of {rival.sampled:,} of the {all_rows:,} training rows.")
    other = next(method for method in outcome.methods if method.ours and method.name != saved.name)
    gap = ahead[other.name] if other.name != "x-ent" else _turned(ahead[other.name])
    told.append(_brought(gap, metric))
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
    changes = f"changes the network's test {metric} by {signed(gap.value)}"
    return f"Training on {metric} instead of cross-entropy {changes}. {shown} ({interval(gap)})."


def _against(saved: Method, rival: Method, ours: Estimate, theirs: Estimate, ahead: Estimate, metric: str) -> list[str]:
    """The saved network and the best baseline."""
    values = f"test {metric} {number(theirs.value)} against {number(ours.value)} for the saved network"
    difference = f"{signed(ahead.value)}, {interval(ahead)}"
    how_to = f"It is not in {MODEL}, which holds networks only: train it with {rival.setting}."
    if ahead.low > 0:
        return [f"Use {rival.title}: {values} ({difference}).", how_to]
    if ahead.value > 0:
        told = f"{rival.title} has the highest score, but the difference could be chance: {values} ({difference})."
        return [told, f"Use whichever is simpler for you. {how_to}"]
    back = f"{signed(-ahead.value)}, {interval(_turned(ahead))}"
    values = f"test {metric} {number(ours.value)} against {number(theirs.value)} for {rival.title}, the best baseline"
    if ahead.high < 0:
        return [f"The saved network wins: {values} ({back})."]
    return [f"The saved network has the highest score, but the difference could be chance: {values} ({back})."]


def _turned(gap: Estimate) -> Estimate:
    return Estimate(-gap.value, -gap.high, -gap.low)


def _rounded(value: float) -> float:
    """To three places, where a little less than zero is zero."""
    return round(value, 3) + 0.0


def number(value: float) -> str:
    """Three digits after the point, with a real minus."""
    return f"{_rounded(value):.3f}".replace("-", "\u2212")


def signed(value: float) -> str:
    """`number` with its sign."""
    return f"{_rounded(value):+.3f}".replace("-", "\u2212")


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
                f"{method.title}" + (" (saved)" if method.name == saved else ""),
                number(method.validation),
                number(test.value),
                f"{number(test.low)} to {number(test.high)}",
                "" if ahead is None else f"{signed(ahead.value)} ({number(ahead.low)} to {number(ahead.high)})",
                method.setting,
            ]
        )
    head = ("method", f"validation {metric}", f"test {metric}", "95 % interval", "ahead of the saved one", "settings")
    return Section("Results", head, rows, next(k for k, method in enumerate(ordered) if method.name == saved))


def split_table(outcome: Outcome) -> Section:
    """Rows and positives of each part."""
    plan = outcome.plan
    uses = {
        "training": "trains every method",
        "validation": "chooses settings, epochs and thresholds",
        "test": "judges, once",
    }
    parts = {**plan.parts, "all": np.arange(plan.survey.rows)}
    rows = [
        [part, f"{len(own):,}", f"{int(y.sum()):,}", f"{y.mean():.1%}", uses.get(part, "")]
        for part, own in parts.items()
        if len(y := plan.target.y[own])
    ]
    return Section("Rows", ("part", "rows", f"positive ({plan.target.labels[1]})", "share", "what for"), rows)


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
    cut = " Every method's threshold is the best one on the validation rows." if plan.measure.decides else ""
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


def _colours(outcome: Outcome) -> dict[str, str]:
    ours, others = iter(OURS), iter(OTHERS)
    return {method.name: next(ours if method.ours else others) for method in outcome.methods}


def draw_scores(outcome: Outcome) -> Figure:
    """Test scores with their intervals, and validation scores beside them."""
    colours, test = _colours(outcome), outcome.comparison.test
    ordered = sorted(outcome.methods, key=lambda method: test[method.name].value)
    figure = Figure(figsize=(7.6, 0.9 + 0.36 * len(ordered)), layout="constrained")
    axes = figure.add_subplot()
    for place, method in enumerate(ordered):
        own, colour = test[method.name], colours[method.name]
        axes.plot([own.low, own.high], [place, place], color=colour, lw=2, solid_capstyle="round")
        axes.plot(own.value, place, "o", color=colour, ms=7)
        axes.plot(method.validation, place, "o", mfc="white", mec=colour, ms=6, zorder=3)
    axes.set_yticks(range(len(ordered)), [_short(method, outcome) for method in ordered])
    axes.set_xlabel(f"{outcome.plan.measure.title}: test (filled, with 95 % interval) and validation (hollow)")
    axes.grid(axis="x", color="#e5e7eb")
    return _plain(figure)


def draw_curves(outcome: Outcome) -> Figure:
    """Precision against recall on the test rows."""
    plan, colours = outcome.plan, _colours(outcome)
    y = plan.target.y[plan.parts["test"]]
    figure = Figure(figsize=(7.6, 3.9), layout="constrained")
    axes = figure.add_subplot()
    for method in outcome.methods:
        recall, precision = curve(y, method.test)
        width = 2.2 if method.name == outcome.saved else 1.2
        axes.plot(recall, precision, color=colours[method.name], label=_short(method, outcome), lw=width)
    axes.axhline(y.mean(), color="#94a3b8", lw=1, ls=":", label="chance")
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    axes.grid(color="#e5e7eb")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return _plain(figure)


def curve(y: npt.NDArray[np.int64], scores: npt.NDArray[np.float64]) -> tuple[Any, Any]:
    """Recall and precision, thinned out to what can be seen."""
    precision, recall, _ = precision_recall_curve(y, scores)
    recall, precision = recall[::-1], precision[::-1]
    kept = np.unique(np.linspace(0, len(recall) - 1, POINTS).astype(int))
    return recall[kept], precision[kept]


def _short(method: Method, outcome: Outcome) -> str:
    return method.title + (" (saved)" if method.name == outcome.saved else "")


def _plain(figure: Figure) -> Figure:
    for axes in figure.axes:
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    return figure


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))  # type: ignore[no-untyped-call]
    return text.getvalue()[text.getvalue().index("<svg") :]
