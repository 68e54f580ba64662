"""Figures from records: metric over label noise, one row for each method, leads over noise, and those of `curves`.

Every figure is one panel of phone width; the page puts panels side by side where there is room. Nothing here uses
pyplot, so no display and no global state is needed.
"""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from directloss_repro.reports.curves import (
    STEPS,
    Drawing,
    keep_in_range,
    listed,
    over_epochs,
    over_iterations,
    over_sizes,
    seeds_text,
    ticks,
)
from directloss_repro.reports.describe import Description, Figure
from directloss_repro.reports.frames import draw_frames
from directloss_repro.reports.labels import label_ends, make_room, short
from directloss_repro.reports.samples import by_seed, measured, paired_at
from directloss_repro.reports.stats import Estimate, estimate
from directloss_repro.reports.stored import Run
from directloss_repro.reports.style import INK, RC, look
from directloss_repro.reports.svg import adapt, standalone
from directloss_repro.reports.wording import Metric, capital, decimals, interval_text, metric, noise_text, number


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
    draws = KINDS[figure.kind]
    with mpl.rc_context(RC):
        canvas = Canvas()
        FigureCanvasAgg(canvas)
        axes = canvas.add_axes((0.15, 0.14, 0.6, 0.81))
        drawing = draws(run, figure, metric(figure.metric), canvas, axes)
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


def _noise(run: Run, figure: Figure, what: Metric, canvas: Canvas, axes: Axes) -> Drawing | None:
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
    ends = _lines_over_noise(axes, found, what.bounds)
    axes.set(ylabel=what.axis)
    keep_in_range(axes, what)
    label_ends(canvas, axes, ends)
    title = f"{capital(what.label)} against label noise"
    last = noise_text(run.noises[-1])
    return Drawing(title, f"{title}: {seeds_text(run)}.", f"{title}. At {last} flipped labels: {listed(ends, what)}.")


def _lead(run: Run, figure: Figure, what: Metric, canvas: Canvas, axes: Axes) -> Drawing | None:
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
    ticks(axes)
    label_ends(canvas, axes, ends)
    title = f"Lead of {figure.first} in {what.label}"
    last = noise_text(run.noises[-1])
    caption = f"{title}, same seeds; above zero, {figure.first} is better: {seeds_text(run)}."
    return Drawing(title, caption, f"{title}. At {last} flipped labels, against: {listed(ends, what)}.")


def _lines_over_noise(
    axes: Axes, found: Mapping[str, Mapping[float, Estimate]], bounds: tuple[float, float] = (-math.inf, math.inf)
) -> dict[str, tuple[float, float]]:
    ends = {}
    shown = [method for method, points in found.items() if points]
    for place, method in enumerate(shown):
        points = found[method]
        seen = look(method)
        # A small step to the side keeps intervals of different methods from covering each other.
        shift = (place - (len(shown) - 1) / 2) * min(0.9, 5.0 / len(shown))
        x = [100 * noise + shift for noise in points]
        mean = [e.mean for e in points.values()]
        axes.errorbar(
            x,
            mean,
            yerr=np.transpose([e.arms(*bounds) for e in points.values()]),
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


def _methods(run: Run, figure: Figure, what: Metric, canvas: Canvas, axes: Axes) -> Drawing | None:
    """One row for each method, best on top: every seed as a dot, the mean with its interval."""
    noise = run.noises[0]
    found = {m: e.scaled(what.factor) for m in run.methods if (e := measured(run, m, noise, what.key))}
    if len(run.noises) > 1 or not found:
        return None
    ranked = sorted(found, key=lambda method: found[method].mean, reverse=what.lower_is_better)
    places = decimals(found.values(), what.places)
    values = []
    for row, method in enumerate(ranked):
        seen, e = look(method), found[method]
        seeds = [value * what.factor for value in by_seed(run, method, noise, what.key).values()]
        if len(seeds) > 1:
            axes.plot(seeds, [row] * len(seeds), ls="none", marker="o", ms=3.5, mew=0, color=seen.colour, alpha=0.35)
        arms = np.transpose([e.arms(*what.bounds)])
        axes.errorbar([e.mean], [row], xerr=arms, color=seen.colour, marker=seen.marker, ms=5, capsize=3, lw=1.4)
        text = f"{number(e.mean, places)} {interval_text(e, places)}".strip()
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
    best_first = listed({method: (0.0, found[method].mean) for method in reversed(ranked)}, what)
    caption = f"{title}, best on top. {_marks_text(run, found.values())}"
    return Drawing(title, caption, f"{title}, best first: {best_first}.")


def _marks_text(run: Run, shown: Iterable[Estimate]) -> str:
    """What the marks of a row are."""
    if len(run.seeds) > 1:
        return "Pale dots are single seeds; the mark is the mean, the bar its 95 % interval."
    if all(e.low is None for e in shown):
        return "The mark is the one seed there is, so there are no intervals."
    return "The mark is the value on the test data, the bar its 95 % interval (bootstrap over the test rows)."


KINDS: dict[str, Callable[[Run, Figure, Metric, Canvas, Axes], Drawing | None]] = {
    "curve": over_iterations,
    "epochs": over_epochs,
    "sizes": over_sizes,
    "noise": _noise,
    "methods": _methods,
    "lead": _lead,
    "frames": draw_frames,
}
"""The kinds of `Figure`."""
