"""The result for people: a self-contained HTML page, and the verdict in sentences."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import PrecisionRecallDisplay, confusion_matrix

from directloss.tabular.comparison import IntervalEstimate
from directloss.tabular.files import write_file
from directloss.tabular.fitting import MODEL, Outcome
from directloss.tabular.target import LEAK

PAGE = "report.html"
STYLE: Any = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "directloss", "font.family": "sans-serif"}


def write_report(outcome: Outcome) -> Path:
    """Write report.html; returns its path."""
    plan, path = outcome.plan, outcome.plan.request.folder / PAGE
    predict = ["directloss", "predict", str(path.with_name(MODEL)), "NEW.csv", "--out", "scores.csv"]
    chosen = outcome.results[outcome.saved].test > 0
    page = _render(
        "report.html.j2", outcome, verdict=verdict(outcome), confusion=confusion_matrix(plan.labels("test"), chosen),
        figures=[_svg(draw, outcome) for draw in (draw_curves, draw_reliability)],
        commands=[plan.request.command(), shlex.join(predict)],
    )  # fmt: skip
    write_file(path, page.encode())
    return path


def verdict(outcome: Outcome) -> list[str]:
    """Sentences: who wins, by how much, and what to use; the words are in ``verdict.txt.j2``."""
    plan, saved, ahead = outcome.plan, outcome.results[outcome.saved], outcome.comparison.ahead
    rivals = [own for own in outcome.ranked if own is not saved]
    sure = [rival for rival in rivals if ahead[rival.name].low > 0 and not plan.too_few]
    level = outcome.comparison.test[saved.name]
    text = _render(
        "verdict.txt.j2", outcome, rival=(sure or rivals)[0], sure=bool(sure), best=rivals[0],
        constant=_constant_answer(outcome), leaks=[note for note in plan.notes if LEAK in note],
        # The difference of two metrics, each on its own rows, varies about 1.4 times as much as one of them.
        optimistic=saved.validation > level.value + 1.5 * (level.high - level.value),
    )  # fmt: skip
    return [line for line in text.splitlines() if line.strip()]


def results_lines(outcome: Outcome) -> list[str]:
    """The results for a terminal of 80 columns; the networks have the names that the search printed."""
    return _render("results.txt.j2", outcome).splitlines()


def _constant_answer(outcome: Outcome) -> tuple[str, float] | None:
    """The best same answer for every row, and its metric, if no method beats it."""
    measure, y = outcome.plan.measure, torch.from_numpy(outcome.plan.labels("test"))
    if not measure.decides:
        return None
    values = [float(measure.value(torch.full((len(y),), score), y)) for score in (-1.0, 1.0)]
    best = values.index(max(values))
    beaten = max(estimate.value for estimate in outcome.comparison.test.values()) > values[best]
    return None if beaten else (outcome.plan.target.labels[best], values[best])


def _render(template: str, outcome: Outcome, **more: Any) -> str:
    loader, escape = PackageLoader("directloss.tabular", ""), ".html" in template
    environment = Environment(loader=loader, autoescape=escape, undefined=StrictUndefined, trim_blocks=True)
    plan = outcome.plan
    return environment.get_template(template).render(
        outcome=outcome, plan=plan, metric=plan.measure.title, saved=outcome.results[outcome.saved], file=MODEL,
        **vars(outcome.comparison), number=number, span=span, **more,
    )  # fmt: skip


def number(value: float, sign: str = "") -> str:
    """Three decimals with a real minus sign; values that round to zero have no sign."""
    return f"{round(value, 3) + 0.0:{sign}.3f}".replace("-", "\u2212")


def span(lead: IntervalEstimate) -> str:
    """A difference with its interval."""
    return f"{number(lead.value, '+')} ({number(lead.low)} to {number(lead.high)})"


def draw_curves(outcome: Outcome, axes: Any) -> None:
    """Precision against recall on the test rows."""
    y = outcome.plan.labels("test")
    for own in outcome.results.values():
        PrecisionRecallDisplay.from_predictions(y, own.test, name=own.title, ax=axes, drop_intermediate=True)
    axes.axhline(y.mean(), color="#9ca3af", ls=":", label=f"chance {y.mean():.3f}")


def draw_reliability(outcome: Outcome, axes: Any) -> None:
    """Calibration of the saved model's probabilities of the positive label."""
    shares = outcome.model.calibration(outcome.results[outcome.saved].test)[:, 1]
    y = outcome.plan.labels("test")
    CalibrationDisplay.from_predictions(y, shares, n_bins=10, strategy="quantile", name="saved model", ax=axes)


def _svg(draw: Callable[[Outcome, Any], None], outcome: Outcome) -> str:
    text = io.StringIO()
    with rc_context(STYLE):
        figure = Figure(figsize=(7.6, 3.6), layout="constrained")
        axes: Any = figure.add_subplot()
        draw(outcome, axes)
        axes.get_legend().remove()
        axes.set_aspect("auto")  # scikit-learn's square leaves no room for the label of the axis
        axes.grid(color="#e5e7eb")
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(text, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return text.getvalue()[text.getvalue().index("<svg") :]
