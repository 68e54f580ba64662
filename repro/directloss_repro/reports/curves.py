"""Figures over the time of a training, and what all figures of records share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from directloss_repro.reports.compared import stored_comparisons
from directloss_repro.reports.description import Figure
from directloss_repro.reports.labels import label_ends
from directloss_repro.reports.samples import measured
from directloss_repro.reports.stats import Estimate, estimate
from directloss_repro.reports.stored import Run
from directloss_repro.reports.style import INK, Look, look
from directloss_repro.reports.wording import MINUS, Metric, capital, metric, number

STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Drawing:
    """What a figure says in words, besides the picture."""

    title: str
    caption: str
    alt: str


def over_iterations(run: Run, figure: Figure, what: Metric, canvas: Canvas, axes: Axes) -> Drawing | None:
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
    keep_in_range(axes, what)
    label_ends(canvas, axes, ends)
    title = f"{capital(what.label)} over iterations"
    return Drawing(title, f"{title}: {seeds_text(run)}.{zoomed}", f"{title}. At the end: {listed(ends, what)}.")


def over_epochs(run: Run, figure: Figure, what: Metric, canvas: Canvas, axes: Axes) -> Drawing | None:
    """Training and validation in one panel, over epochs: Fig. 2 and 3 of UniLoss.

    With ``first``, that method and the best of the others on validation data; else all of them.
    """
    planned = _epochs(run)
    if len(run.noises) > 1 or not planned:
        return None
    ends: dict[str, tuple[float, float]] = {}
    looks, drawn = {}, []
    for method in rivals(run, figure.first, f"val_{figure.metric}"):
        for part in ("val", "train"):
            found = _mean_curve(run, method, metric(f"{part}_{figure.metric}"))
            if found is None:
                continue
            steps, mean, low, high = found
            epochs = steps / steps[-1] * planned * (_stretch(run) if method.startswith("uniloss") else 1)
            name = f"{_brief(method)} {part}"
            seen = look(method)
            looks[name] = replace(seen, dash="solid") if part == "val" else replace(seen, dash=(0, (4, 2)), marker="")
            marks = slice(0, None, max(1, len(steps) // 6))
            axes.plot(epochs, mean, color=seen.colour, ls=looks[name].dash, marker=looks[name].marker, markevery=marks)
            axes.fill_between(epochs, low, high, color=seen.colour, alpha=0.16 if part == "val" else 0.07, lw=0)
            last = int(np.flatnonzero(np.isfinite(mean))[-1])
            ends[name] = (float(epochs[last]), float(mean[last]))
            drawn.append((mean, high - mean))
    if not drawn:
        return None
    axes.set(xlabel="epoch", ylabel=what.axis)
    axes.margins(x=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    zoomed = _frame(axes, [mean for mean, _ in drawn], [half for _, half in drawn]).replace("iterations", "epochs")
    keep_in_range(axes, what)
    label_ends(canvas, axes, ends, looks)
    title = f"{capital(what.label)} over epochs, training and validation"
    lines = "Solid with marks: validation; dashed: training."
    return Drawing(title, f"{title}: {seeds_text(run)}. {lines}{zoomed}", f"{title}. At the end: {listed(ends, what)}.")


def _brief(method: str) -> str:
    """UniLoss without its metric, which the axis names, but with its options.

    Example:
        >>> _brief("x-ent"), _brief("uniloss-ap"), _brief("uniloss-ap:bits")
        ('x-ent', 'uniloss', 'uniloss:bits')
    """
    base, colon, options = method.partition(":")
    return f"{'uniloss' if base.startswith('uniloss') else base}{colon}{options}"


def rivals(run: Run, first: str, key: str) -> list[str]:
    """``first`` and the best of the other methods by a metric; all methods without ``first``."""
    if not first:
        return list(run.methods)
    noise = run.noises[0]
    means = {m: e.mean for m in run.methods if m != first and (e := measured(run, m, noise, key))}
    best = [max(means, key=lambda method: means[method])] if means else []
    return [*best, *([first] if first in run.methods else [])]


def _config(run: Run, key: str) -> float:
    """A number of the run's settings; 0 where there is none."""
    config = run.info.get("config")
    found = config.get(key) if isinstance(config, dict) else None
    return found if isinstance(found, int | float) else 0


def _epochs(run: Run) -> float:
    return _config(run, "epochs")


def _stretch(run: Run) -> float:
    return _config(run, "stretch") or 1


SETTINGS = {"batch": ("batch_size", "images in a batch"), "anchors": ("anchors", "anchors of each type")}
"""Options of methods: the key of the config that holds without them, and the words on the axis."""


def over_sizes(run: Run, figure: Figure, what: Metric, canvas: Canvas, axes: Axes) -> Drawing | None:
    """The metric against a number in the methods' names, ``first``, beside the paper's: Tables 3 and 4 of UniLoss."""
    key, words = SETTINGS[figure.first]
    found: dict[float, Estimate] = {}
    for method in run.methods:
        name, _, options = method.partition(":")
        if not name.startswith("uniloss"):
            continue
        option, _, text = options.partition("=")
        at = float(text) if option == figure.first and text.isdigit() else _config(run, key) if not options else 0
        if at and (e := measured(run, method, run.noises[0], what.key)):
            found[at] = e.scaled(what.factor)
    if len(found) < 2 or len(run.noises) > 1:
        return None
    seen, sizes = look("uniloss"), sorted(found)
    means, arms = [found[at].mean for at in sizes], [found[at].arms(*what.bounds) for at in sizes]
    axes.errorbar(
        sizes, means, yerr=np.transpose(arms), color=seen.colour, marker="o", elinewidth=1.0, capsize=2, capthick=1.0
    )
    ends, looks = {"ours": (sizes[-1], means[-1])}, {"ours": Look(seen.colour, "solid", "o")}
    printed = [(at, value * what.factor) for at, value in figure.printed]
    if printed:
        looks["paper"] = Look(INK, (0, (4, 2)), "s")
        axes.plot(*zip(*printed, strict=True), color=INK, ls=looks["paper"].dash, marker="s", mfc="none")
        ends["paper"] = printed[-1]
    axes.set_xscale("log", base=2)
    shown = sorted({*sizes, *(at for at, _ in printed)})
    axes.set_xticks(shown, [f"{at:g}" for at in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=words, ylabel=what.axis)
    keep_in_range(axes, what)
    label_ends(canvas, axes, ends, looks)
    title = f"{capital(what.label)} by {words}"
    numbers = ", ".join(f"{at:g}: {number(found[at].mean, what.places)}" for at in sizes)
    return Drawing(title, f"{title}: {seeds_text(run)}.", f"{title}. Ours: {numbers}.")


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
    low, high = (np.clip(end, *what.bounds) for end in (low, high))
    return (np.array(steps), mean, low, high) if np.isfinite(mean).any() else None


def keep_in_range(axes: Axes, what: Metric) -> None:
    """No room above 100 % or below the least value: there is nothing there."""
    low, high = axes.get_ylim()
    least, most = max(low, what.bounds[0]), min(high, what.bounds[1])
    room = 0.01 * (most - least)
    axes.set_ylim(least - room if least > low else low, most + room if most < high else high)
    ticks(axes)


def ticks(axes: Axes) -> None:
    """Round numbers on the left, with a true minus sign."""
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


def seeds_text(run: Run) -> str:
    """What a line and its band are."""
    count = len(run.seeds)
    if stored_comparisons(run):
        return "one training of each loss"
    return "one seed, so no intervals" if count == 1 else f"mean of {count} seeds with the 95 % interval"


def listed(ends: Mapping[str, tuple[float, float]], what: Metric) -> str:
    """The ends of lines as words."""
    return ", ".join(f"{method} {number(point[1], what.places)}" for method, point in ends.items())
