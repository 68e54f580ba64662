"""Figures from records, by the kinds that `Figure` names.

Every figure is one panel of phone width; the page puts panels side by side if there is room. Without pyplot, so no
display and no global state are needed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from directloss_repro.records import Run
from directloss_repro.reports.description import Description, Figure
from directloss_repro.reports.formatting import MINUS, axis, capital, decimals, label, noise_text, number, plus_minus
from directloss_repro.reports.predictions import draw_frames
from directloss_repro.reports.stats import Estimate, by_seed, difference, measured, percent
from directloss_repro.reports.style import DASHED, INK, RC, Look, look, name_lines, short, standalone, to_png, to_svg

STEPS = (1, 2, 2.5, 5, 10)
Ends = dict[str, float]
"""The value at the end of each line."""


@dataclass(frozen=True)
class Words:
    """Title, caption and alternative text of a figure."""

    title: str
    caption: str
    alt: str


@dataclass(frozen=True)
class Panel(Words):
    """A drawn figure, as an element for the page and as files."""

    name: str
    inline: str
    svg: bytes
    png: bytes


def draw_all(run: Run, description: Description, metrics: Sequence[str]) -> list[Panel]:
    """The figures that the experiment declares and the records can fill; the usual ones if there are none."""
    return _drawn(run, description.figures) or _drawn(run, _usual(run, metrics))


def _drawn(run: Run, figures: Iterable[Figure]) -> list[Panel]:
    panels: list[Panel] = []
    for figure in figures:
        # Metric names come from records: keep only characters that are safe in ids and file names.
        name = re.sub(r"[^a-z0-9]+", "-", f"{figure.kind}-{figure.metric}".lower()).strip("-")[:60]
        again = sum(panel.name.startswith(name) for panel in panels)
        panels += [panel] if (panel := draw(run, figure, f"{name}-{again + 1}" if again else name)) else []
    return panels


def _usual(run: Run, metrics: Sequence[str]) -> tuple[Figure, ...]:
    """The default figures: over noise if there are several levels, otherwise curves and a summary."""
    if len(run.noises) > 1:
        return tuple(Figure("noise", one) for one in metrics)
    return (*(Figure("curve", one) for one in metrics), *(Figure("methods", one) for one in metrics[:1]))


def draw(run: Run, figure: Figure, name: str) -> Panel | None:
    """Draw one figure, or return None if the records hold nothing for it."""
    with mpl.rc_context(RC):
        canvas = Canvas(layout="constrained")
        words = KINDS[figure.kind](run, figure, canvas)
        if words is None:
            return None
        caption = f"{words.caption} Compare with {figure.paper}." if figure.paper else words.caption
        inline = to_svg(canvas, name, words.title, words.alt)
        return Panel(words.title, caption, words.alt, name, inline, standalone(inline), to_png(canvas))


# ---------------------------------------------------------------------- over label noise


def _over_noise(run: Run, figure: Figure, canvas: Canvas) -> Words | None:
    """The metric against the share of flipped labels, with intervals."""
    found = _at_levels(run, lambda method, noise: measured(run, method, noise, figure.metric))
    if not found:
        return None
    axes = canvas.add_subplot()
    ends = _lines_over_noise(axes, found, (0.0, 100.0))
    axes.set(ylabel=axis(figure.metric))
    _keep_in_range(axes)
    name_lines(canvas, axes, ends)
    title = f"{capital(label(figure.metric))} against label noise"
    return Words(
        title, f"{title}: {_seeds(run)}.", f"{title}. At {noise_text(run.noises[-1])} flipped labels: {_listed(ends)}."
    )


def _lead(run: Run, figure: Figure, canvas: Canvas) -> Words | None:
    """The lead of the first method over the others on the same seeds, against label noise."""
    first = figure.first
    found = _at_levels(run, lambda other, noise: difference(run, first, other, figure.metric, noise), without=first)
    if not found:
        return None
    axes = canvas.add_subplot()
    axes.axhline(0, color=INK, lw=0.8)
    ends = _lines_over_noise(axes, found)
    axes.set(ylabel=f"{first} minus the other (points)")
    _ticks(axes)
    name_lines(canvas, axes, ends)
    title = f"Lead of {first} in {label(figure.metric)}"
    caption = f"{title}, same seeds; above zero, {first} is better: {_seeds(run)}."
    return Words(title, caption, f"{title}. At {noise_text(run.noises[-1])} flipped labels, against: {_listed(ends)}.")


def _at_levels(
    run: Run, value: Callable[[str, float], Estimate | None], without: str = ""
) -> dict[str, dict[float, Estimate]]:
    """Methods with their estimates at each noise level; empty if there is only one level."""
    noises = [noise for noise in run.noises if noise is not None] if len(run.noises) > 1 else []
    found = {m: {n: e for n in noises if (e := value(m, n))} for m in run.methods if m != without}
    return {method: points for method, points in found.items() if points}


def _lines_over_noise(
    axes: Axes, found: Mapping[str, Mapping[float, Estimate]], bounds: tuple[float, float] = (-np.inf, np.inf)
) -> Ends:
    ends = {}
    for place, (method, points) in enumerate(found.items()):
        # A small horizontal offset keeps the intervals of different methods from overlapping.
        shift = (place - (len(found) - 1) / 2) * min(0.9, 5.0 / len(found))
        x = [100 * noise + shift for noise in points]
        mean = [e.mean for e in points.values()]
        axes.errorbar(x, mean, yerr=_arms(points.values(), bounds), **look(method).line, elinewidth=1.0, label=method)
        ends[method] = mean[-1]
    levels = sorted({100 * noise for points in found.values() for noise in points})
    axes.set_xticks(levels, [f"{level:g}" for level in levels])
    axes.set_xlabel("flipped training labels (%)")
    axes.margins(x=0.04)
    return ends


def _arms(estimates: Iterable[Estimate], bounds: tuple[float, float] = (0.0, 100.0)) -> np.ndarray:
    """Lengths of the intervals below and above their means, clipped to the possible range."""
    rows = [(e.mean - max(e.low, bounds[0]), min(e.high, bounds[1]) - e.mean) for e in estimates]
    arms: np.ndarray = np.nan_to_num(np.transpose(rows))
    return arms.clip(min=0)


# ---------------------------------------------------------------------- one row per method


def _methods(run: Run, figure: Figure, canvas: Canvas) -> Words | None:
    """One row per method, best on top: every seed as a dot, the mean with its interval."""
    noise = run.noises[0]
    found = {m: e for m in run.methods if (e := measured(run, m, noise, figure.metric))}
    if len(run.noises) > 1 or not found:
        return None
    axes = canvas.add_subplot()
    ranked = sorted(found, key=lambda method: found[method].mean)
    places = decimals(found.values())
    values = []
    for row, method in enumerate(ranked):
        seen, e = look(method), found[method]
        seeds = [100 * value for value in by_seed(run, method, noise, figure.metric).values()]
        if len(seeds) > 1:
            axes.plot(seeds, [row] * len(seeds), ls="none", marker="o", ms=3.5, mew=0, color=seen.colour, alpha=0.35)
        axes.errorbar([e.mean], [row], xerr=_arms([e]), color=seen.colour, marker=seen.marker, ms=5, capsize=3, lw=1.4)
        values.append(f"{number(e.mean, places)} {plus_minus(e, places)}".strip())
    axes.set_yticks(range(len(ranked)), [short(method) for method in ranked])
    axes.set_ylim(-0.6, len(ranked) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
    axes.set_xlabel(axis(figure.metric))
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(ranked)), values)
    right.spines["right"].set_visible(False)
    title = f"{capital(label(figure.metric))} of each method"
    marks = "Pale dots are single seeds; the mark is the mean, the bar its 95 % interval."
    if len(run.seeds) == 1:
        marks = "There is only one seed, so there are no intervals."
    best_first = _listed({method: found[method].mean for method in reversed(ranked)})
    return Words(title, f"{title}, best on top. {marks}", f"{title}, best first: {best_first}.")


# ---------------------------------------------------------------------- over the course of training


@dataclass(frozen=True)
class Curve:
    """A mean over seeds with its interval as a band."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    look: Look
    alpha: float = 0.16


def _over_iterations(run: Run, figure: Figure, canvas: Canvas) -> Words | None:
    curves = {method: curve for method in run.methods if (curve := _curve(run, method, figure.metric))}
    title = f"{capital(label(figure.metric))} over iterations"
    return _draw_curves(run, canvas, curves, figure.metric, title, "iteration")


def _over_epochs(run: Run, figure: Figure, canvas: Canvas) -> Words | None:
    """Training and validation in one panel, over epochs: Fig. 2 and 3 of UniLoss.

    With ``first``, that method and the best of the others on validation data; otherwise all methods.
    """
    planned, stretch = _setting(run, "epochs"), _setting(run, "stretch") or 1
    curves = {}
    for method, part in itertools.product(rivals(run, figure.first, f"val_{figure.metric}"), ("val", "train")):
        curve = _curve(run, method, f"{part}_{figure.metric}")
        if curve and planned:
            epochs = curve.x / curve.x[-1] * planned * (stretch if method.startswith("uniloss") else 1)
            val = part == "val"
            seen = replace(curve.look, dash="solid") if val else replace(curve.look, dash=DASHED, marker="")
            name = f"{_brief(method)} {part}"
            curves[name] = replace(curve, x=epochs, look=seen, alpha=0.16 if val else 0.07)
    title = f"{capital(label(figure.metric))} over epochs, training and validation"
    lines = " Solid with marks: validation; dashed: training."
    return _draw_curves(run, canvas, curves, figure.metric, title, "epoch", lines)


def _brief(method: str) -> str:
    """UniLoss without its metric, which the axis shows, but with its options.

    Examples:
        >>> _brief("x-ent"), _brief("uniloss-ap"), _brief("uniloss-ap:bits")
        ('x-ent', 'uniloss', 'uniloss:bits')
    """
    base, colon, options = method.partition(":")
    return f"{'uniloss' if base.startswith('uniloss') else base}{colon}{options}"


def rivals(run: Run, first: str, metric: str) -> list[str]:
    """``first`` and the best of the other methods by a metric; all methods if ``first`` is empty."""
    if not first:
        return list(run.methods)
    means = {m: e.mean for m in run.methods if m != first and (e := measured(run, m, run.noises[0], metric))}
    best = [max(means, key=lambda method: means[method])] if means else []
    return [*best, *([first] if first in run.methods else [])]


def _setting(run: Run, key: str) -> float:
    """A number from the run's settings; 0 if there is none."""
    found = run.config.get(key)
    return found if isinstance(found, int | float) else 0


def _curve(run: Run, method: str, metric: str) -> Curve | None:
    """Mean and interval at the iterations that every seed has."""
    by: dict[int, list[dict[float, float]]] = {}
    for record in run.final:
        if record.method == method and metric in record.curve:
            points = zip(record.curve["iteration"], record.curve[metric], strict=True)
            by.setdefault(record.seed, []).append(dict(points))
    curves = [points for each in by.values() for points in each]
    steps = sorted(set.intersection(*(set(points) for points in curves))) if curves else []
    if len(steps) < 2:
        return None
    # One curve per seed: the mean over its classes, if there are classes.
    seeds = np.array([[np.mean([points[step] for points in each]) for step in steps] for each in by.values()])
    estimates = [percent(list(column)) for column in seeds.T]
    mean, half = np.array([(e.mean, e.half if e.has_interval else 0.0) for e in estimates]).T
    # The interval of two seeds is so wide that it would hide the lines; show their range instead.
    ends = (mean - half, mean + half) if len(seeds) > 2 else (100 * seeds.min(0), 100 * seeds.max(0))
    low, high = (np.clip(end, 0.0, 100.0) for end in ends)
    return Curve(np.array(steps), mean, low, high, look(method)) if np.isfinite(mean).any() else None


def _draw_curves(
    run: Run, canvas: Canvas, curves: Mapping[str, Curve], metric: str, title: str, unit: str, lines: str = ""
) -> Words | None:
    if len(run.noises) > 1 or not curves:
        return None
    axes = canvas.add_subplot()
    ends: Ends = {}
    for place, (name, curve) in enumerate(curves.items()):
        stride = max(1, len(curve.x) // 6)
        marks = slice(place * stride // len(curves), None, stride)
        axes.plot(curve.x, curve.mean, **curve.look.line, markevery=marks, label=name)
        axes.fill_between(curve.x, curve.low, curve.high, color=curve.look.colour, alpha=curve.alpha, lw=0)
        ends[name] = float(curve.mean[np.isfinite(curve.mean)][-1])
    axes.set(xlabel=unit, ylabel=axis(metric))
    axes.margins(x=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    start = _show_the_end(axes, list(curves.values()))
    zoomed = "" if start is None else f" The axis starts at {start:.3g}; the first {unit}s lie below."
    _keep_in_range(axes)
    name_lines(canvas, axes, ends)
    shown = "mean and range of two seeds" if len(run.seeds) == 2 else _seeds(run)
    return Words(title, f"{title}: {shown}.{lines}{zoomed}", f"{title}. At the end: {_listed(ends)}.")


def _show_the_end(axes: Axes, curves: Sequence[Curve]) -> float | None:
    """Set limits that show the means well; return where the axis starts if it cuts off the first iterations.

    If all lines end close together, the axis shows that end, because the steep start would hide the differences.
    """
    means, halves = [curve.mean for curve in curves], [curve.high - curve.mean for curve in curves]
    low, high = float(np.nanmin(np.concatenate(means))), float(np.nanmax(np.concatenate(means)))
    pad = min(float(np.nanmax(np.concatenate(halves))), 0.25 * (high - low)) + 0.03 * (high - low) + 1e-9
    lasts = [float(mean[np.isfinite(mean)][-1]) for mean in means]
    apart = max(lasts) - min(lasts)
    unsure = max(float(half[np.isfinite(half)][-1]) for half in halves)
    if not 0 < apart < 0.1 * (high - low) or unsure > 3 * apart:
        axes.set_ylim(low - pad, high + pad)
        return None
    start = min(lasts) - 3 * apart
    axes.set_ylim(start, high + min(pad, apart))
    return start


# ---------------------------------------------------------------------- over an option of methods

OPTIONS = {"batch": ("batch_size", "images in a batch"), "anchors": ("anchors", "anchors of each type")}
"""Options of methods: the config key that sets the default, and the axis label."""


def _over_sizes(run: Run, figure: Figure, canvas: Canvas) -> Words | None:
    """The metric against the option ``first`` of methods, next to the paper's: Tables 3 and 4 of UniLoss."""
    key, words = OPTIONS[figure.first]
    found: dict[float, Estimate] = {}
    for method in run.methods:
        name, _, options = method.partition(":")
        option, _, text = options.partition("=")
        at = float(text) if option == figure.first and text.isdigit() else _setting(run, key) if not options else 0
        if name.startswith("uniloss") and at and (e := measured(run, method, run.noises[0], figure.metric)):
            found[at] = e
    if len(found) < 2 or len(run.noises) > 1:
        return None
    axes = canvas.add_subplot()
    ours, paper = Look(look("uniloss").colour, "solid", "o"), Look(INK, DASHED, "s")
    sizes = sorted(found)
    means = [found[at].mean for at in sizes]
    axes.errorbar(sizes, means, yerr=_arms(found[at] for at in sizes), **ours.line, elinewidth=1.0, label="ours")
    ends: Ends = {"ours": means[-1]}
    if figure.printed:
        axes.plot(*zip(*figure.printed.items(), strict=True), **paper.line, mfc="none", label="paper")
        ends["paper"] = list(figure.printed.values())[-1]
    axes.set_xscale("log", base=2)
    shown = sorted({*sizes, *figure.printed})
    axes.set_xticks(shown, [f"{at:g}" for at in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=words, ylabel=axis(figure.metric))
    _keep_in_range(axes)
    name_lines(canvas, axes, ends)
    title = f"{capital(label(figure.metric))} by {words}"
    numbers = ", ".join(f"{at:g}: {number(found[at].mean)}" for at in sizes)
    return Words(title, f"{title}: {_seeds(run)}.", f"{title}. Ours: {numbers}.")


# ---------------------------------------------------------------------- keypoints


def _frames(run: Run, figure: Figure, canvas: Canvas) -> Words | None:
    """One row of test images for ``first`` and one for its best rival on validation data."""
    told = draw_frames(run, rivals(run, figure.first, figure.metric), canvas)
    if not told:
        return None
    title = "Keypoints on test images"
    caption = (
        f"{title}, of the first seed: {told} right. Circles have the radius within which a prediction is "
        "right; a line connects a wrong one to its true position. The images were not selected by result."
    )
    return Words(title, caption, f"{title}. Right predictions: {told}.")


# ---------------------------------------------------------------------- shared


def _keep_in_range(axes: Axes) -> None:
    """Keep the axis within 0 and 100 %."""
    low, high = axes.get_ylim()
    least, most = max(low, 0.0), min(high, 100.0)
    room = 0.01 * (most - least)
    axes.set_ylim(least - room if least > low else low, most + room if most < high else high)
    _ticks(axes)


def _ticks(axes: Axes) -> None:
    """Use round numbers on the y axis, with a true minus sign."""
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=STEPS))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", MINUS)))


def _seeds(run: Run) -> str:
    """What a line and its band show."""
    count = len(run.seeds)
    return "one seed, so no intervals" if count == 1 else f"mean of {count} seeds with the 95 % interval"


def _listed(ends: Ends) -> str:
    """The values at the ends of lines, as text."""
    return ", ".join(f"{name} {number(value)}" for name, value in ends.items())


KINDS: dict[str, Callable[[Run, Figure, Canvas], Words | None]] = {
    "curve": _over_iterations,
    "epochs": _over_epochs,
    "sizes": _over_sizes,
    "noise": _over_noise,
    "methods": _methods,
    "lead": _lead,
    "frames": _frames,
}
"""The kinds of `Figure`."""
