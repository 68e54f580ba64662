"""When does training on the metric pay? The gains of the studies of defaults, against what a user knows beforehand.

    python -m benchmarks.gains --data-root DATA      count the training rows and positives of the data sets (needs DATA)
    python -m benchmarks.figures gains               draw the figure from the records and these counts

A gain is the test AP of `DirectLoss("ap")` minus that of the better of cross-entropy and generalised cross-entropy, in
points, mean over seeds. The better one is chosen by its test value, so a gain of 0 means that the default did as well
as the right choice of the two.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from directloss_repro.files import write_all
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.defaults import BASE, JUDGED, OURS, UNSEEN, load
from benchmarks.figures import COLOUR, INK, RESULTS, WIDTH, finals
from benchmarks.leads import OTHERS, WORDS, Values, values
from benchmarks.tables import split

STANDARD = (BASE, "gce")
COUNTS = RESULTS / "defaults" / "sets.json"
STEPS = 600
MOST = 16.0
"""Points; gains beyond this are drawn at the border."""
LOOK = {"linear": (COLOUR["direct-ap"], "o"), "mlp": (COLOUR["blackbox-ap"], "s")}
METRICS = {"ap": "AP", "ndcg@10": "NDCG@10", "precision@20": "precision@20", "f1": "F1", "accuracy": "accuracy"}


class Gain(NamedTuple):
    """One cell of the studies."""

    model: str
    noise: float
    rows: int
    """In the training part."""
    positives: int
    """Among them, before labels are flipped."""
    points: float


def count(root: Path) -> None:
    """Store the number of training rows and positives of every data set."""
    parts = {name: split(load(root, name), seed=0)[0] for name in (*JUDGED["ap"], *UNSEEN)}
    sizes = {name: {"rows": len(part), "positives": int(part.y.sum())} for name, part in parts.items()}
    write_all({COUNTS: (json.dumps(sizes, indent=1) + "\n").encode()})


def gains() -> list[Gain]:
    """All cells of both studies of defaults that have our loss and a standard one."""
    sizes = json.loads(COUNTS.read_text(encoding="utf-8"))
    return [
        Gain(model, noise, **sizes[name], points=cell[OURS] - max(cell[m] for m in STANDARD if m in cell))
        for study in ("defaults", "unseen")
        for (name, model, noise), cell in values(finals(study), "ap", STEPS).items()
        if OURS in cell and BASE in cell
    ]


def draw() -> Figure:
    """Gains by wrong labels, by rows, by positives, and by metric."""
    figure = Figure((WIDTH, 5.2), layout="constrained")
    (by_noise, by_metric), (by_rows, by_positives) = figure.subplots(2, 2, sharey=True)
    every = gains()
    _by_noise(by_noise, every)
    _by_metric(by_metric)
    wrong = [gain for gain in every if gain.noise == 0.2]
    _by_number(by_rows, wrong, "rows", "AP, by rows", (300, 1_000, 3_000, 10_000))
    _by_number(by_positives, wrong, "positives", "AP, by positives", (20, 50, 100, 200, 500))
    for place in (by_noise, by_metric, by_rows, by_positives):
        place.axhline(0, color=INK, linewidth=1)
        place.grid(axis="y")
    by_noise.set_ylim(-MOST / 2, MOST)
    by_noise.legend(loc="upper left", handletextpad=0.2)
    figure.supylabel("points, minus the better standard loss", fontsize=9.5)
    return figure


def _shown(points: Iterable[float]) -> list[float]:
    return [max(-MOST / 2, min(MOST, value)) for value in points]


def _by_noise(place: Axes, every: list[Gain]) -> None:
    levels = sorted({gain.noise for gain in every})
    for shift, (model, (colour, marker)) in zip((-0.15, 0.15), LOOK.items(), strict=True):
        for x, noise in enumerate(levels):
            some = [gain.points for gain in every if (gain.model, gain.noise) == (model, noise)]
            label = WORDS[model] if x == 0 else None
            place.scatter(
                [x + shift] * len(some), _shown(some), s=14, color=colour, marker=marker, alpha=0.5, linewidths=0,
                label=label,
            )  # fmt: skip
            place.plot([x + shift - 0.12, x + shift + 0.12], [median(some)] * 2, color=colour, linewidth=2.5)
    place.set_xticks(range(len(levels)), [f"{noise:.0%} wrong" if noise else "clean" for noise in levels])
    place.set_title("AP, by wrong labels", fontweight="bold")


def _by_metric(place: Axes) -> None:
    """The median over the data sets, clean and with wrong labels, of both models together."""
    records = finals("defaults")
    for x, metric in enumerate(METRICS):
        steps = next(length for name, length in (("ap", STEPS), *OTHERS) if name == metric and length == STEPS)
        cells = values(records, metric, steps)
        for shift, noise, colour in ((-0.15, 0.0, COLOUR["x-ent"]), (0.15, 0.2, COLOUR["direct-ap"])):
            some = _leads(cells, noise)
            label = ("20 % wrong" if noise else "clean") if x == 0 else None
            place.bar(x + shift, median(some), 0.28, color=colour, label=label)
    place.set_xticks(range(len(METRICS)), list(METRICS.values()), rotation=20, ha="right", fontsize=8)
    place.legend(loc="upper right", handlelength=1)
    place.set_title("by metric, median", fontweight="bold")


def _leads(cells: Values, noise: float) -> list[float]:
    """Over the standard losses that were run; for F1 these choose their threshold on validation data."""
    return [
        cell[OURS] - max(cell[m] for m in STANDARD if m in cell)
        for (*_, its_noise), cell in cells.items()
        if its_noise == noise and OURS in cell and BASE in cell
    ]


def _by_number(place: Axes, some: list[Gain], field: str, title: str, ticks: tuple[int, ...]) -> None:
    for model, (colour, marker) in LOOK.items():
        own = [gain for gain in some if gain.model == model]
        x = [getattr(gain, field) for gain in own]
        shown = _shown(gain.points for gain in own)
        place.scatter(x, shown, s=18, color=colour, marker=marker, alpha=0.65, linewidths=0)
    place.set_xscale("log")
    place.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    place.minorticks_off()
    place.set_xlabel(f"training {field}; 20 % of the labels wrong", fontsize=8)
    place.set_title(title, fontweight="bold")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True)
    count(parser.parse_args().data_root)
