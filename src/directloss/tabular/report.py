"""The result for people: a self-contained HTML page, its tables as Markdown, and the verdict in sentences."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import PrecisionRecallDisplay

from directloss.integrations._cut import decided
from directloss.tabular.columns import LEAK, some
from directloss.tabular.comparison import IntervalEstimate
from directloss.tabular.files import write_file
from directloss.tabular.fitting import MODEL, Outcome, Result, versions

PAGE = "report.html"
SCORES = "Every method on the same test rows."
CURVES = "Precision and recall on the test rows, at every threshold."
SHARES = "Calibration of the saved model on the test rows: how often what it calls 80 % likely happens."
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
"""Of the methods; all can be told apart with any kind of colour vision."""
STYLE: Any = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "directloss", "font.family": "sans-serif"}


def write_report(outcome: Outcome) -> Path:
    """Write report.html; returns its path."""
    plan, folder = outcome.plan, outcome.plan.request.folder
    figures = {
        SCORES: draw_scores,
        **({} if plan.target.positive is None else {CURVES: draw_curves}),
        SHARES: draw_reliability,
    }
    with rc_context(STYLE):
        drawn = {caption: _svg(draw(outcome)) for caption, draw in figures.items()}
    predict = shlex.join(["directloss", "predict", str(folder / MODEL), "NEW.csv", "--out", "scores.csv"])
    page = _template("report.html.j2", autoescape=True).render(
        heading=f"{plan.target.name} in {plan.request.data.name}, judged by {plan.measure.title}",
        plan=plan, metric=plan.measure.title, verdict=verdict(outcome), results=results_rows(outcome),
        marked=[own.name for own in _ordered(outcome)].index(outcome.saved), figures=drawn, parts=_parts(outcome),
        decisions=_decisions(outcome) if plan.measure.decides else None, columns=_columns(outcome),
        seconds=round(outcome.seconds), commands=[plan.request.command(), predict],
        versions=", ".join(f"{name} {own}" for name, own in versions().items()),
    )  # fmt: skip
    write_file(folder / PAGE, page.encode())
    return folder / PAGE


def verdict(outcome: Outcome) -> list[str]:
    """Sentences: who wins, by how much, and what to use; the words are in ``verdict.txt.j2``."""
    plan, results, (test, ahead) = outcome.plan, outcome.results, (outcome.comparison.test, outcome.comparison.ahead)
    saved = results[outcome.saved]
    rivals = [own for own in _ordered(outcome) if own is not saved]
    sure = [rival for rival in rivals if ahead[rival.name].low > 0 and not plan.too_few]
    rival, level = (sure or rivals)[0], test[saved.name]
    text = _template("verdict.txt.j2", autoescape=False).render(
        metric=plan.measure.title, file=MODEL, test=test, saved=saved, rival=rival, gap=ahead[rival.name],
        sure=bool(sure), best=rivals[0], too_few=plan.too_few, constant=_constant_answer(outcome),
        equal=[own for own in results.values() if own is not saved and ahead[own.name].high >= 0],
        leaks=[note for note in plan.notes if LEAK in note], effect=outcome.comparison.effect,
        # The difference of two metrics, each on its own rows, varies about 1.4 times as much as one of them.
        optimistic=saved.validation > level.value + 1.5 * (level.high - level.value),
        validation=plan.target.counts(plan.parts["validation"]), positive=plan.target.positive, number=number,
        interval=interval,
    )  # fmt: skip
    return [line for line in text.splitlines() if line.strip()]


def _constant_answer(outcome: Outcome) -> tuple[str, float] | None:
    """The best same answer for every row, and its metric, if no method beats it."""
    measure, target = outcome.plan.measure, outcome.plan.target
    if not measure.decides:
        return None
    y, values = torch.from_numpy(target.y[outcome.plan.parts["test"]]), {}
    for label, scores in zip(target.labels, torch.eye(len(target.labels)), strict=True):
        same = scores.expand(len(y), -1) if measure.classes > 2 else (scores[1] - 0.5).expand(len(y))
        values[label] = float(measure.value(same, y))
    best = max(values, key=lambda label: values[label])
    beaten = max(estimate.value for estimate in outcome.comparison.test.values()) > values[best]
    return None if beaten else (repr(best), values[best])


def _template(name: str, *, autoescape: bool) -> Template:
    loader = PackageLoader("directloss.tabular", "")
    made = Environment(loader=loader, autoescape=autoescape, undefined=StrictUndefined, trim_blocks=True)
    return made.get_template(name)


def number(value: float, sign: str = "") -> str:
    """Three decimals with a real minus sign; values that round to zero have no sign."""
    return f"{round(value, 3) + 0.0:{sign}.3f}".replace("-", "\u2212")


def interval(estimate: IntervalEstimate) -> str:
    """The interval in words."""
    return f"95 % interval {number(estimate.low)} to {number(estimate.high)}"


# ---------------------------------------------------------------------- tables


def results_rows(outcome: Outcome) -> list[list[str]]:
    """For each method, the best first: name, validation and test metric, its interval, lead, time and settings."""
    rows = []
    for result in _ordered(outcome):
        test, ahead = outcome.comparison.test[result.name], outcome.comparison.ahead.get(result.name)
        lead = "" if ahead is None else f"{number(ahead.value, '+')} ({number(ahead.low)} to {number(ahead.high)})"
        seconds = f"{result.seconds:.1f} s" if result.seconds < 100 else f"{result.seconds / 60:.1f} min"
        values = [number(result.validation), number(test.value), f"{number(test.low)} to {number(test.high)}"]
        rows.append([_shown(result, outcome), *values, lead, seconds, result.setting])
    return rows


def short_results(outcome: Outcome) -> tuple[tuple[str, ...], list[list[str]]]:
    """Head and rows for a terminal of 80 columns; the networks have the names that the search printed."""
    names = [own.name if own.title.startswith("network") else own.title for own in _ordered(outcome)]
    rows = zip(names, results_rows(outcome), strict=True)
    return ("method", "validation", "test", "lead over saved", "time"), [
        [name, row[1], row[2], row[4] or "(saved)", row[5]] for name, row in rows
    ]


def _ordered(outcome: Outcome) -> list[Result]:
    return sorted(outcome.results.values(), key=lambda own: -outcome.comparison.test[own.name].value)


def _shown(result: Result, outcome: Outcome) -> str:
    return result.title + (" (saved)" if result.name == outcome.saved else "")


def _decisions(outcome: Outcome) -> list[list[str]]:
    """The decisions of the saved model for the test rows of each label."""
    target, test = outcome.plan.target, outcome.plan.parts["test"]
    scores, y = outcome.results[outcome.saved].test, target.y[test]
    places = decided(scores)
    chosen, right = (np.bincount(own, minlength=len(target.labels)) for own in (places, y[places == y]))
    return [
        [label, f"{wanted:,}", f"{got:,}", f"{hits:,}", f"{hits / max(got, 1):.1%}", f"{hits / max(wanted, 1):.1%}"]
        for label, wanted, got, hits in zip(target.labels, target.counts(test), chosen, right, strict=True)
    ]


def _parts(outcome: Outcome) -> list[list[str]]:
    """Rows and labels of each part."""
    target, rows = outcome.plan.target, []
    uses = ("training every method", "choosing settings, epochs and thresholds", "the final comparison")
    for (part, own), use in zip(outcome.plan.parts.items(), uses, strict=True):
        counts = [f"{count:,} {label}" for label, count in zip(target.labels, target.counts(own), strict=True)]
        rows.append([part, f"{len(own):,}", some(counts), use])
    return rows


def _columns(outcome: Outcome) -> list[list[str]]:
    """How each column is encoded."""
    plan, gaps = outcome.plan, {name: int(values.isna().sum()) for name, values in outcome.plan.frame.items()}
    story = {encoding.column.name: encoding.story for encoding in outcome.encoder.encodings} | plan.left_out
    return [[own, story[own], f"{gaps[own]:,}" if gaps.get(own) else ""] for own in plan.table.names if own in story]


# ---------------------------------------------------------------------- figures


def draw_scores(outcome: Outcome) -> Figure:
    """Test metrics with their intervals, next to validation metrics."""
    test, ordered = outcome.comparison.test, _ordered(outcome)[::-1]
    own = dict(zip(outcome.results, COLOURS, strict=False))
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
    y = outcome.plan.target.y[outcome.plan.parts["test"]]
    for result, colour in zip(outcome.results.values(), COLOURS, strict=False):
        title, look = _shown(result, outcome), {"color": colour, "lw": 1.5}
        PrecisionRecallDisplay.from_predictions(
            y, result.test, name=title, ax=axes, drop_intermediate=True, curve_kwargs=look
        )
    axes.axhline(y.mean(), color="#9ca3af", ls=":", lw=1, label=f"chance {y.mean():.3f}")
    return _legend(figure, axes, "recall", "precision")


def draw_reliability(outcome: Outcome) -> Figure:
    """Calibration of the saved model's probabilities: of the positive label, or of the most probable class."""
    y, shares = outcome.plan.target.y[outcome.plan.parts["test"]], outcome.probabilities
    figure, axes = _figure(3.9)
    if outcome.plan.target.positive is None:
        shares, y = shares.max(1), (shares.argmax(1) == y).astype(np.int64)
    else:
        shares = shares[:, 1]
    CalibrationDisplay.from_predictions(y, shares, n_bins=10, strategy="quantile", name="saved model", ax=axes)
    return _legend(figure, axes, "probability", "observed share")


def _legend(figure: Figure, axes: Any, across: str, up: str) -> Figure:
    axes.get_legend().remove()
    axes.set_aspect("auto")  # scikit-learn's square leaves no room for the label of the axis
    axes.set(xlabel=across, ylabel=up)
    axes.grid(color="#e5e7eb")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return figure


def _figure(height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(7.6, height), layout="constrained")
    return figure, figure.add_subplot()


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))  # type: ignore[no-untyped-call]
    return text.getvalue()[text.getvalue().index("<svg") :]
