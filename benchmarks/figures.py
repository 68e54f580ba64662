"""Draw the figures of README and docs from the committed records.

    python -m benchmarks.figures [--out docs/assets]

Each figure is one SVG file that follows the reader's light or dark mode.
"""

from __future__ import annotations

import argparse
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from directloss_repro.campaign import Cell
from directloss_repro.records import Record, load_run
from directloss_repro.reports.stats import percent
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import directloss as dl
from benchmarks.study import values
from directloss import plot

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
BASE = "x-ent"
WIDTH = 6.2
"""Inches; text stays readable on a phone."""
INK, GRID = "#1f2328", "#d8dee4"
METHODS = {
    "direct-ap": ("#0b5fa5", "#58b0f5"),
    "pos-ap": ("#2f7fc2", "#8cc8f5"),
    "hinge-ap": ("#00805c", "#1fc493"),
    "uniloss-ap": ("#8a6d00", "#f0d34a"),
    "smooth-ap": ("#b5558a", "#e07cb4"),
    "torchsort-ap": ("#7a4fd0", "#b79bff"),
    "blackbox-ap": ("#c25100", "#ff8a47"),
    "libauc-ap": ("#a33a3a", "#f08585"),
    "focal": ("#5a6470", "#a9b4c0"),
    "gce": ("#6b7280", "#9aa5b1"),
    "x-ent": ("#4a525c", "#c3ccd6"),
}
"""Method -> colour in light mode, colour in dark mode; at least 3:1 on either page."""
COLOUR = {method: light for method, (light, _) in METHODS.items()}
COLOURS = {(INK, "ink"): "#e6edf3", (GRID, "grid"): "#3d444d"} | {
    (light, method): dark for method, (light, dark) in METHODS.items()
}
COLOURS |= {
    (light, f"plot-{place}"): dark
    for place, (light, dark) in enumerate(zip(plot.COLOURS, ("#56b4e9", "#ff8a47", "#1fc493"), strict=False))
}
STYLE: Any = {
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "grid.color": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",  # letters stay letters: small files, text that can be searched
    "svg.hashsalt": "directloss",  # the same records give the same file
}
TIMED = {
    "torch.sort": "x-ent",
    "cross-entropy": "focal",
    "direct loss, default": "direct-ap",
    "direct loss, +1": "pos-ap",
    "Smooth-AP (formula)": "smooth-ap",
    "RaMBO black box (formula)": "blackbox-ap",
    "torchsort AP (package)": "torchsort-ap",
    "LibAUC APLoss (package)": "libauc-ap",
}
"""Row of the performance page -> the method whose colour it gets; other rows are left out."""


def finals(name: str) -> tuple[Record, ...]:
    """The records of the final runs in ``results/NAME``."""
    return load_run(RESULTS / name).final


SHORT = {"direct": "direct-ap", "smooth-ap 1": "smooth-ap", "gce": "gce"}
"""The losses of the study of the defaults that are drawn, and their names in the other figures."""
SHOWN = 600
"""The number of training steps to draw from the study of the defaults."""


def point() -> Figure:
    """How far each loss is ahead of cross-entropy, by the share of wrong labels: the median of the data sets."""
    found = {(str(record.group), record.method, record.noise): record.metrics["test"] for record in finals("defaults")}
    figure = Figure((WIDTH, 2.9), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for place, model, title in zip(axes, ("linear", "mlp"), ("linear model", "network"), strict=True):
        for method, name in SHORT.items():
            leads: dict[float, list[float]] = defaultdict(list)
            for group, of, noise in found:
                if of == method and group.endswith(f" / {model} / ap / {SHOWN}"):
                    leads[noise].append(100 * (found[group, of, noise] - found[group, BASE, noise]))
            _leads(place, name, {100 * noise: leads[noise] for noise in sorted(leads)})
        place.axhline(0, color=INK, linewidth=1.2)
        place.annotate("cross-entropy = 0", (40, 0), (0, -4), textcoords="offset points", ha="right", va="top")
        place.set_title(title, fontweight="bold")
        place.set(xlabel="wrong labels in training, %", xticks=(0, 20, 40))
        place.grid(axis="y")
    axes[0].set_ylabel("points of test AP\nover cross-entropy")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(SHORT))
    return figure


def _leads(place: Axes, name: str, leads: dict[float, list[float]]) -> None:
    """The median of one loss, and the middle half of the data sets for ours."""
    middle, colour, ours = [float(np.median(one)) for one in leads.values()], COLOUR[name], name == "direct-ap"
    look = {"linewidth": 2.6, "markersize": 5.5, "zorder": 3} if ours else {"linewidth": 1.4, "markersize": 3.5}
    place.plot(list(leads), middle, color=colour, marker="o", label=name, **look)
    if ours:
        low, high = np.percentile(list(leads.values()), (25, 75), axis=1)
        place.fill_between(list(leads), low, high, color=colour, alpha=0.15, linewidth=0)


DECIDING = {
    "direct": "direct-ap",
    "SPO+": "hinge-ap",
    "PFYL": "uniloss-ap",
    "PG": "smooth-ap",
    "DBB": "blackbox-ap",
    "squared error": "x-ent",
}
"""Method of the study of decisions -> the method whose colour it gets."""
MOST = 3.0
"""Multiples of the best regret; values beyond are drawn as triangles at the border."""


def regrets() -> Figure:
    """Regret relative to that of the best method, one dot per problem; the bar is the median."""
    found: dict[tuple[str, str, float], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in finals("decisions"):
        name, size = str(record.group).split(" / ")
        found[size, name, record.noise][record.method].append(-record.metrics["test"])
    figure = Figure((WIDTH, 2.3), layout="constrained")
    for place, size in zip(figure.subplots(1, 2, sharex=True, sharey=True), ("100", "1000"), strict=True):
        rows = [by_method for (of, *_), by_method in found.items() if of == size and len(by_method) == len(DECIDING)]
        _ratios(place, rows)
        place.set_title(f"{int(size):,} training points", fontweight="bold")
    figure.supxlabel("normalised regret, times the best of the problem", fontsize=9.5)
    return figure


def _ratios(place: Axes, rows: list[dict[str, list[float]]]) -> None:
    """One panel of `regrets`."""
    for level, (method, like) in enumerate(DECIDING.items()):
        ratios = np.array([mean(row[method]) / min(mean(numbers) for numbers in row.values()) for row in rows])
        look = {"color": METHODS[like][0], "alpha": 0.65}
        near = ratios <= MOST
        place.scatter(ratios[near], np.full(near.sum(), level), s=34, linewidths=0, **look)
        if not near.all():
            place.plot(MOST, level, marker=">", markersize=6, **look)
        place.plot([min(np.median(ratios), MOST)] * 2, [level - 0.3, level + 0.3], color=look["color"], linewidth=2.5)
    place.grid(axis="x")
    place.set_yticks(range(len(DECIDING)), list(DECIDING))
    place.set(xlim=(0.95, MOST + 0.05), ylim=(len(DECIDING) - 0.5, -0.5))
    place.tick_params("y", length=0)
    place.spines["left"].set_visible(False)


def boosting() -> Figure:
    """Rounds on the metric against their starting objective, on the same seeds, with 95 % intervals."""
    from benchmarks.boosting import COLUMNS, NOISES, start

    records = finals("boosting")
    looks = {"direct": ("LightGBM", "direct-ap", -0.14), "direct, xgboost": ("XGBoost", "blackbox-ap", 0.14)}
    figure = Figure((WIDTH, 2.7), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for place, noise, title in zip(axes, NOISES, ("clean labels", "20 % wrong labels"), strict=True):
        for method, (name, like, shift) in looks.items():
            leads = []
            for column in COLUMNS:
                ours, theirs = (
                    values(records, Cell(column, of, noise), "test") for of in (method, start(column, method))
                )
                leads.append(percent([mine - other for mine, other in zip(ours, theirs, strict=True)]))
            rows = [row + shift for row in range(len(COLUMNS))]
            place.errorbar(
                [lead.mean for lead in leads], rows, xerr=[lead.half for lead in leads],
                color=METHODS[like][0], fmt="o", markersize=5, capsize=2.5, linewidth=1.8, label=name,
            )  # fmt: skip
        _rows_of(place, [_in_words(column) for column in COLUMNS], title)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    figure.supxlabel("points of the test metric, minus the built-in objective alone", fontsize=9.5)
    return figure


def crowd() -> Figure:
    """Labels from a crowd: lead of each loss over cross-entropy on the same seeds, with 95 % intervals."""
    from benchmarks.labelme import BASE, LABELS, METHODS, METRICS, of_cells

    found = of_cells(list(finals("labelme")))
    methods = [method for method in METHODS if method != BASE]
    figure = Figure((WIDTH, 4.2), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for row, labels in zip(axes, LABELS, strict=True):
        for place, metric in zip(row, METRICS, strict=True):
            for model, (name, like, shift) in MODELS.items():
                group = f"{labels} / {model} / {metric}"
                pairs = {m: (found.get((group, m), []), found[group, BASE]) for m in methods}
                _intervals(place, list(pairs.values()), shift, COLOUR[like], name)
            _rows_of(place, methods, f"{metric}, {labels}")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    figure.supxlabel("points of the test metric, minus cross-entropy", fontsize=9.5)
    return figure


def frozen(name: str = "voc") -> Figure:
    """Heads on frozen features: lead of each loss over cross-entropy on the same seeds, with 95 % intervals."""
    from benchmarks.frozen import BASE, EXCLUSIVE, compared, numbers

    found = {(str(record.group), record.noise or 0.0, record.method): record for record in finals("frozen")}
    left_out = (BASE,) if name == "pets" else (BASE, *EXCLUSIVE)
    methods = [method for method in compared("ap") if method not in left_out]
    shots = {"5": "5 each", "50": "50 each", "all": "all"}
    figure = Figure((WIDTH, 4.6), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    for row, noise, labels in zip(axes, (0.0, 0.2), ("clean", "20 % wrong"), strict=True):
        for place, (shot, title) in zip(row, shots.items(), strict=True):
            for model, (label, like, shift) in MODELS.items():
                cell = (f"{name} / {model} / {shot}", noise)
                pairs = [(numbers(found, cell, m, "ap"), numbers(found, cell, BASE, "ap")) for m in methods]
                _intervals(place, pairs, shift, COLOUR[like], label)
            _rows_of(place, methods, f"{title}, {labels}")
    axes[0, 0].set_xlim(-8, 8)  # generalised cross-entropy with a hidden layer is far outside
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    figure.supxlabel("points of test mAP, minus cross-entropy", fontsize=9.5)
    return figure


def letor() -> Figure:
    """NDCG@10 on MQ2008: lead over LambdaMART on the same folds, with 95 % intervals."""
    from benchmarks.letor import BASE, LOSSES, METHODS, NOISES, TREE_GROUP, of_folds

    records = list(finals("letor"))
    looks = {**MODELS, TREE_GROUP: ("trees", "hinge-ap", 0.0)}
    methods = [*LOSSES, *METHODS[TREE_GROUP]]
    figure = Figure((WIDTH, 4.6), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for place, noise, title in zip(axes, NOISES, ("clean grades", "20 % redrawn"), strict=True):
        base = of_folds(records, TREE_GROUP, BASE[TREE_GROUP], noise, "ndcg")
        for group, (name, like, shift) in looks.items():
            pairs = [(of_folds(records, group, method, noise, "ndcg"), base) for method in methods]
            _intervals(place, pairs, shift, COLOUR[like], name)
        _rows_of(place, methods, title)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    figure.supxlabel("points of test NDCG@10, minus LightGBM lambdarank", fontsize=9.5)
    return figure


STREET = (
    "#7ec8e3", "#a0603a", "#6a5acd", "#7d7d86", "#e8b4c8", "#2e8b57", "#f2c230", "#c9a06a", "#c0392b", "#ff6fb5",
    "#1f4fa3",
)  # fmt: skip
"""The colours of CamVid's classes."""


def street() -> Figure:
    """Three test images of CamVid: photograph, truth, and what the first seed of some losses chose."""
    from matplotlib.colors import ListedColormap
    from matplotlib.image import imread
    from matplotlib.patches import Patch

    from benchmarks.camvid import NAMES

    columns = {
        "photographs": "photograph",
        "truth": "truth",
        "x-ent": "x-ent",
        "x-ent+dice": "x-ent + dice",
        "iou": "iou",
    }
    figure = Figure((WIDTH, 3.1), layout="constrained")
    for place, (name, title) in zip(figure.subplots(1, len(columns)), columns.items(), strict=True):
        pixels = imread(RESULTS / "camvid" / "chosen" / f"{name}.png")
        if pixels.ndim == 2:  # classes, which imread has divided by 255
            colours = ListedColormap((*STREET, "#000000"))
            place.imshow(np.rint(255 * pixels), cmap=colours, vmin=-0.5, vmax=len(NAMES) + 0.5, interpolation="none")
        else:
            place.imshow(pixels, interpolation="none")
        place.set_title(title, fontsize=8.5)
        place.set(xticks=[], yticks=[])
        place.spines[:].set_visible(False)
    patches = [
        Patch(color=colour, label=name) for colour, name in zip((*STREET, "#000000"), (*NAMES, "void"), strict=True)
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=6, fontsize=8, handlelength=1)
    return figure


MODELS = {"linear": ("linear", "direct-ap", -0.16), "mlp": ("hidden layer", "blackbox-ap", 0.16)}
"""Model -> its name, the method whose colour it gets, and how far its marks are moved."""


def _intervals(
    place: Axes, pairs: Sequence[tuple[list[float], list[float]]], shift: float, colour: str, name: str
) -> None:
    """For each row, the mean difference of paired numbers with its 95 % interval; nothing where there are none."""
    rows = [row for row, (mine, _) in enumerate(pairs) if mine]
    leads = [percent([a - b for a, b in zip(*pairs[row], strict=True)]) for row in rows]
    place.errorbar(
        [lead.mean for lead in leads], [row + shift for row in rows], xerr=[lead.half for lead in leads],
        color=colour, fmt="o", markersize=4.5, capsize=2, linewidth=1.6, label=name,
    )  # fmt: skip


def _rows_of(place: Axes, names: Sequence[str], title: str) -> None:
    """A panel whose rows have names, with a line at zero."""
    place.axvline(0, color=INK, linewidth=1)
    place.grid(axis="x")
    place.set_yticks(range(len(names)), names)
    place.set_ylim(len(names) - 0.5, -0.5)
    place.tick_params("y", length=0)
    place.spines["left"].set_visible(False)
    place.set_title(title, fontweight="bold")


def _in_words(column: str) -> str:
    """A column of the study of boosting, as the page calls it."""
    name, metric = column.split(" / ")
    return f"{name.split(',')[0].replace('census-income', 'Census-Income')}, {metric.upper()}"


def robustness() -> Figure:
    """Test AP over the share of wrong training labels, with 95 % intervals over seeds."""
    figure = Figure((WIDTH, 3.4), layout="constrained")
    place = figure.subplots()
    found: dict[tuple[str, float], list[float]] = defaultdict(list)
    for record in finals("robustness"):
        found[record.method, record.noise or 0.0].append(record.metrics["test_ap"])
    for shift, method in zip((-0.6, -0.2, 0.2, 0.6), ("direct-ap", "pos-ap", "hinge-ap", BASE), strict=True):
        levels = sorted(noise for (of, noise) in found if of == method)
        means = [percent(found[method, noise]) for noise in levels]
        x = [100 * noise + shift for noise in levels]
        middle, half = [e.mean for e in means], [e.half for e in means]
        place.errorbar(x, middle, half, color=METHODS[method][0], marker="o", capsize=3, linewidth=2, label=method)
    place.set(xlabel="wrong training labels, %", ylabel="test AP, %")
    place.set_xticks([0, 10, 20, 30, 40])
    place.grid(axis="y")
    place.legend(loc="lower left")
    return figure


def speed() -> Figure:
    """The tables of the performance page as multiples of the sort in the same run, which makes runs comparable."""
    figure = Figure((WIDTH, 4.2), layout="constrained")
    place = figure.subplots()
    for name, (sizes, sorts) in _in_sorts().items():
        dash = {"torch.sort": "--", "cross-entropy": ":", "direct loss, default": "--"}.get(name, "-")
        label = name.replace(" (formula)", "").replace(" (package)", "").replace(", +1", ", sign=+1")
        place.loglog(
            sizes, sorts, dash, marker="o", markersize=4, color=METHODS[TIMED[name]][0],
            linewidth=2.6 if name.startswith("direct") else 1.6, label=label,
        )  # fmt: skip
    place.set(xlabel="items in the list", ylabel="forward and backward, in sorts of the scores")
    place.grid()
    handles, labels = place.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper")
    return figure


def _in_sorts() -> dict[str, tuple[list[int], list[float]]]:
    """Lengths of the list, and how many sorts a method takes for each; the first of repeated measurements counts."""
    found: dict[str, tuple[list[int], list[float]]] = {}
    for table in (ROOT / "docs" / "performance.md").read_text().split("\n\n"):
        if not table.startswith("| forward + backward"):
            continue
        head, _, *rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
        sizes = [int(name.removeprefix("n = ").replace(",", "")) for name in head[1:]]
        for name, *cells in rows:
            if name in TIMED and name not in found:
                found[name] = sizes, [_first_ratio(cell) for cell in cells]
    return found


def _first_ratio(cell: str) -> float:
    """48 in "0.43 (48 / 9.9)"."""
    return float(cell.split("(")[1].split(" ")[0].replace(",", "")) if "(" in cell else np.nan


def noise() -> Figure:
    """1 - AP as the score of one relevant item moves: the steps of the metric, and its expectation under noise."""
    others, labels = torch.tensor([2.0, 1.2, 0.6, -0.5, -1.0]), torch.tensor([1, 0, 0, 1, 0, 0])
    moved = torch.linspace(-3, 4, 281)
    lists = torch.cat((moved[:, None], others.expand(len(moved), -1)), 1)
    draw = torch.Generator().manual_seed(0)
    figure = Figure((WIDTH, 3.0), layout="constrained")
    place = figure.subplots()
    for look, scale, name in (
        ("focal", 0.0, "1 - AP"),
        ("uniloss-ap", 1.0, "noise 1"),
        ("direct-ap", 3.0, "noise 3"),
    ):
        draws = 4_000 if scale else 1
        shift = scale * (2 * torch.rand(draws, 1, lists.shape[1], generator=draw) - 1)
        loss = 1 - dl.metrics.average_precision(lists + shift, labels.expand(draws, len(lists), -1)).mean(0)
        place.plot(moved, loss, color=METHODS[look][0], linewidth=2, label=name)
    place.set(xlabel="score of one relevant item", ylabel="1 - AP")
    place.grid(axis="y")
    place.legend()
    return figure


SCORES = torch.tensor([2.1, 1.6, 1.3, 0.9, 0.4, 0.1, -0.5, -1.0])
LABELS = torch.tensor([0, 1, 0, 0, 1, 0, 0, 1])
"""The list of the plots in the API reference."""


def _page(drawing: Callable[[Axes], object]) -> Figure:
    figure = Figure((WIDTH, 3.0), layout="constrained")
    drawing(figure.subplots())
    return figure


def plot_step() -> Figure:
    torch.manual_seed(0)
    return _page(lambda ax: plot.step(SCORES, LABELS, "ap", ax=ax))


def plot_landscape() -> Figure:
    draw = torch.Generator().manual_seed(0)
    return _page(lambda ax: plot.landscape(SCORES, LABELS, "ap", item=4, generator=draw, ax=ax))


def gains() -> Figure:
    from benchmarks.gains import draw  # it uses this module

    return draw()


FIGURES: dict[str, Callable[[], Figure]] = {
    "point": point,
    "gains": gains,
    "robustness": robustness,
    "regrets": regrets,
    "boosting": boosting,
    "letor": letor,
    "crowd": crowd,
    "frozen": frozen,
    "breeds": partial(frozen, "pets"),
    "street": street,
    "speed": speed,
    "noise": noise,
    "plot-step": plot_step,
    "plot-landscape": plot_landscape,
}


def svg(figure: Figure) -> str:
    """The figure as text; its colours are CSS variables that change in dark mode."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", out.getvalue(), flags=re.DOTALL)
    text = re.sub(r"\d+(\.\d+)?px 'DejaVu Sans'[^;\"]*", _system_font, text)
    for colour, name in COLOURS:
        text = text.replace(colour, f"var(--{name})")
    rules = "".join(f"--{name}: {light}; " for light, name in COLOURS)
    dark = "".join(f"--{name}: {dark}; " for (_, name), dark in COLOURS.items())
    style = f"<style>svg {{ {rules}}} @media (prefers-color-scheme: dark) {{ svg {{ {dark}}} }}</style>"
    start = text.index(">", text.index("<svg")) + 1
    return "".join(line.rstrip() + "\n" for line in (text[:start] + style + text[start:]).splitlines())


def _system_font(found: re.Match[str]) -> str:
    return found[0].split(" ")[0] + " system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def draw(names: Iterable[str], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for name in names:
            (out / f"{name}.svg").write_text(svg(FIGURES[name]()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(FIGURES), help="which figures; all by default")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "assets")
    arguments = parser.parse_args()
    draw(arguments.names, arguments.out)
