"""Figures from records: curves over iterations, metric over label noise, one row for each method, leads over noise.

Every figure is one panel of phone width; the page puts panels side by side where there is room. Nothing here uses
pyplot, so no display and no global state is needed.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from directloss.lab.reports.describe import Description, Figure
from directloss.lab.reports.labels import label_ends, make_room, short
from directloss.lab.reports.samples import by_seed, measured, paired_at
from directloss.lab.reports.stats import Estimate, estimate
from directloss.lab.reports.stored import Run
from directloss.lab.reports.style import INK, RC, look
from directloss.lab.reports.svg import adapt, standalone
from directloss.lab.reports.wording import MINUS, Metric, capital, decimals, metric, noise_text, number

STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Panel:
    """A drawn figure: an element for the page, and the same as files."""

    name: str
    title: str
    caption: str
    alt: str
    inline: str
    svg: bytes
    png: bytes


@dataclass(frozen=True)
class _Drawing:
    title: str
    caption: str
    alt: str


def draw_all(run: Run, description: Description, metrics: Iterable[Metric]) -> list[Panel]:
    """Every figure of the experiment for which the records hold the data."""
    wanted = description.figures or _usual(run, tuple(metrics))
    names: set[str] = set()
    panels = []
    for figure in wanted:
        name = _free_name(figure, names)
        panel = draw(run, figure, name)
        if panel is not None:
            names.add(name)
            panels.append(panel)
    return panels


def _free_name(figure: Figure, taken: set[str]) -> str:
    """A name for ids and files. It is made of letters that are safe in both, because metrics are named in records."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{figure.kind}-{figure.metric}".lower()).strip("-")[:60]
    others = (f"{name}-{count}" for count in itertools.count(2))
    return next(free for free in itertools.chain([name], others) if free not in taken)


def _usual(run: Run, metrics: tuple[Metric, ...]) -> tuple[Figure, ...]:
    """The figures of an experiment that asks for none: over noise if there are levels, else curves and a summary."""
    if len(run.noises) > 1:
        return tuple(Figure("noise", one.key) for one in metrics)
    return (*(Figure("curve", one.key) for one in metrics), *(Figure("methods", one.key) for one in metrics[:1]))


def draw(run: Run, figure: Figure, name: str) -> Panel | None:
    """Draw one figure, or return None when the records hold nothing for it."""
    kinds = {"curve": _curve, "noise": _noise, "methods": _methods, "lead": _lead}
    with mpl.rc_context(RC):
        canvas = Canvas()
        FigureCanvasAgg(canvas)
        axes = canvas.add_axes((0.15, 0.14, 0.6, 0.81))
        drawing = kinds[figure.kind](run, figure, metric(figure.metric), canvas, axes)
        if drawing is None:
            return None
        raw, png = _saved(canvas)
    caption = f"{drawing.caption} Compare with {figure.paper}." if figure.paper else drawing.caption
    inline = adapt(raw, name, drawing.title, drawing.alt)
    return Panel(name, drawing.title, caption, drawing.alt, inline, standalone(inline).encode(), png)


def _saved(canvas: Canvas) -> tuple[str, bytes]:
    svg, png = io.StringIO(), io.BytesIO()
    canvas.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    canvas.savefig(png, format="png", facecolor="white", metadata={"Software": None})
    return svg.getvalue(), png.getvalue()


def _curve(run: Run, figure: Figure, what: Metric, canvas: Canvas, axes: Axes) -> _Drawing | None:
    """Mean over seeds with the interval as a band, over iterations."""
    if len(run.noises) > 1:
        return None
    found = {method: curve for method in run.methods if (curve := _mean_curve(run, method, what)) is not None}
    if not found:
        return None
    ends: dict[str, tuple[float, float]] = {}
    for method, (steps, mean, low, high) in found.items():
        seen = look(method)
        stride = max(1, len(steps) // 6)
        offset = run.methods.index(method) * stride // max(1, len(run.methods))
        marks = slice(offset, None, stride)
        axes.plot(steps, mean, color=seen.colour, ls=seen.dash, marker=seen.marker, markevery=marks)
        axes.fill_between(steps, low, high, color=seen.colour, alpha=0.16, lw=0)
        last = int(np.flatnonzero(np.isfinite(mean))[-1])
        ends[method] = (float(steps[last]), float(mean[last]))
    axes.set(xlabel="iteration", ylabel=what.axis)
    axes.margins(x=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    zoomed = _frame(axes, [curve[1] for curve in found.values()], [curve[3] - curve[1] for curve in found.values()])
    _keep_below_full(axes, what)
    label_ends(canvas, axes, ends)
    title = f"{capital(what.label)} over iterations"
    return _Drawing(title, f"{title}: {_seeds_text(run)}.{zoomed}", f"{title}. At the end: {_listed(ends)}.")


def _mean_curve(run: Run, method: str, what: Metric) -> tuple[np.ndarray, ...] | None:
    """Iterations, mean and interval; only iterations that every seed has."""
    by: dict[int, list[dict[float, float]]] = {}
    for record in run.final:
        if record.method == method and what.key in record.curve:
            points = zip(record.curve["iteration"], record.curve[what.key], strict=True)
            by.setdefault(record.seed, []).append(dict(points))
    curves = [points for each in by.values() for points in each]
    steps = sorted(set.intersection(*(set(points) for points in curves))) if curves else []
    if len(steps) < 2:
        return None
    # One curve for each seed: the mean over its classes, if there are classes.
    seeds = np.array([[np.mean([points[step] for points in each]) for step in steps] for each in by.values()])
    estimates = [estimate(list(column * what.factor)) for column in seeds.T]
    rows = [(e.mean, e.mean if e.low is None else e.low, e.mean if e.high is None else e.high) for e in estimates]
    mean, low, high = np.array(rows).T
    return (np.array(steps), mean, low, high) if np.isfinite(mean).any() else None


def _noise(run: Run, figure: Figure, what: Metric, canvas: Canvas, axes: Axes) -> _Drawing | None:
    """The metric against the share of flipped labels, with intervals."""
    found = {
        method: {
            noise: e.scaled(what.factor)
            for noise in run.noises
            if noise is not None and (e := measured(run, method, noise, what.key))
        }
        for method in run.methods
    }
    if len(run.noises) < 2 or not any(found.values()):
        return None
    ends = _lines_over_noise(axes, found)
    axes.set(ylabel=what.axis)
    _keep_below_full(axes, what)
    label_ends(canvas, axes, ends)
    title = f"{capital(what.label)} against label noise"
    last = noise_text(run.noises[-1])
    return _Drawing(title, f"{title}: {_seeds_text(run)}.", f"{title}. At {last} flipped labels: {_listed(ends)}.")


def _lead(run: Run, figure: Figure, what: Metric, canvas: Canvas, axes: Axes) -> _Drawing | None:
    """How far the first method is ahead of the others on the same seeds, against label noise."""
    found: dict[str, dict[float, Estimate]] = {}
    for other in run.methods:
        gaps = {n: paired_at(run, figure.first, other, what.key, n) for n in run.noises if n is not None}
        if other != figure.first and any(gaps.values()):
            found[other] = {noise: estimate(gap).scaled(what.factor) for noise, gap in gaps.items() if gap}
    if len(run.noises) < 2 or not found:
        return None
    axes.axhline(0, color=INK, lw=0.8)
    ends = _lines_over_noise(axes, found)
    axes.set(ylabel=f"{figure.first} minus the other ({what.unit})" if what.unit else f"{figure.first} minus the other")
    _ticks(axes)
    label_ends(canvas, axes, ends)
    title = f"Lead of {figure.first} in {what.label}"
    last = noise_text(run.noises[-1])
    caption = f"{title}, same seeds; above zero, {figure.first} is better: {_seeds_text(run)}."
    return _Drawing(title, caption, f"{title}. At {last} flipped labels, against: {_listed(ends)}.")


def _lines_over_noise(axes: Axes, found: Mapping[str, Mapping[float, Estimate]]) -> dict[str, tuple[float, float]]:
    ends = {}
    shown = [method for method, points in found.items() if points]
    for place, method in enumerate(shown):
        points = found[method]
        seen = look(method)
        # A small step to the side keeps intervals of different methods from covering each other.
        shift = (place - (len(shown) - 1) / 2) * min(0.9, 5.0 / len(shown))
        x = [100 * noise + shift for noise in points]
        mean = [e.mean for e in points.values()]
        half = [e.half or 0.0 for e in points.values()]
        axes.errorbar(
            x,
            mean,
            yerr=half,
            color=seen.colour,
            ls=seen.dash,
            marker=seen.marker,
            elinewidth=1.0,
            capsize=2,
            capthick=1.0,
        )
        ends[method] = (x[-1], mean[-1])
    levels = sorted({100 * noise for points in found.values() for noise in points})
    axes.set_xticks(levels, [f"{level:g}" for level in levels])
    axes.set_xlabel("flipped training labels (%)")
    axes.margins(x=0.04)
    return ends


def _methods(run: Run, figure: Figure, what: Metric, canvas: Canvas, axes: Axes) -> _Drawing | None:
    """One row for each method, best on top: every seed as a dot, the mean with its interval."""
    noise = run.noises[0]
    found = {m: e.scaled(what.factor) for m in run.methods if (e := measured(run, m, noise, what.key))}
    if len(run.noises) > 1 or not found:
        return None
    ranked = sorted(found, key=lambda method: found[method].mean, reverse=what.lower_is_better)
    places = decimals(found.values())
    values = []
    for row, method in enumerate(ranked):
        seen, e = look(method), found[method]
        seeds = [value * what.factor for value in by_seed(run, method, noise, what.key).values()]
        axes.plot(seeds, [row] * len(seeds), ls="none", marker="o", ms=3.5, mew=0, color=seen.colour, alpha=0.35)
        axes.errorbar(
            [e.mean], [row], xerr=[e.half or 0.0], color=seen.colour, marker=seen.marker, ms=5, capsize=3, lw=1.4
        )
        text = number(e.mean, places) + (f" ± {number(e.half, places)}" if e.half is not None else "")
        axes.text(1.03, row, text, transform=axes.get_yaxis_transform(), va="center", fontsize=8.5, color=INK)
        values.append(text)
    axes.set_yticks(range(len(ranked)), [short(method) for method in ranked])
    axes.set_ylim(-0.6, len(ranked) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
    axes.set_xlabel(what.axis)
    make_room(canvas, axes, values, start=8)
    title = f"{capital(what.label)} of each method"
    listed = _listed({method: (0.0, found[method].mean) for method in reversed(ranked)})
    caption = f"{title}, best on top. Pale dots are single seeds; the mark is the mean, the bar its 95 % interval."
    return _Drawing(title, caption, f"{title}, best first: {listed}.")


def _keep_below_full(axes: Axes, what: Metric) -> None:
    """No room above 100 %: there is nothing there."""
    low, high = axes.get_ylim()
    if what.factor == 100 and high > 100:
        axes.set_ylim(low, 100 + 0.01 * (100 - low))
    _ticks(axes)


def _ticks(axes: Axes) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=STEPS))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", MINUS)))


def _frame(axes: Axes, means: list[np.ndarray], halves: list[np.ndarray]) -> str:
    """Limits that show the means well and the bands as far as they leave room; says so if the start is cut off.

    Where all lines end close together the axis shows that end, because the steep start would hide every difference.
    """
    values = np.concatenate(means)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    pad = min(float(np.nanmax(np.concatenate(halves))), 0.25 * (high - low)) + 0.03 * (high - low) + 1e-9
    lasts = [float(mean[np.isfinite(mean)][-1]) for mean in means]
    apart = max(lasts) - min(lasts)
    unsure = max(float(half[np.isfinite(half)][-1]) for half in halves)
    if not 0 < apart < 0.1 * (high - low) or unsure > 3 * apart:
        axes.set_ylim(low - pad, high + pad)
        return ""
    start = min(lasts) - 3 * apart
    axes.set_ylim(start, high + min(pad, apart))
    return f" The axis starts at {start:.3g}; the first iterations lie below."


def _seeds_text(run: Run) -> str:
    count = len(run.seeds)
    return "one seed, so no intervals" if count == 1 else f"mean of {count} seeds with the 95 % interval"


def _listed(ends: Mapping[str, tuple[float, float]]) -> str:
    return ", ".join(f"{method} {number(point[1], 1)}" for method, point in ends.items())
