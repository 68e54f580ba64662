"""Names at the ends of lines instead of a legend box, moved apart just enough not to overlap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from directloss_repro.reports.style import INK, Look, look

HEIGHT = 11.0
"""Distance between the middles of two names. This and the next numbers are points of 1/72 inch."""
LETTER = 5.4
"""Room for one letter of a name, by the widest of the common fonts."""
KEY_FROM, KEY_TO, NAME_FROM = 7.0, 22.0, 26.0
"""Where the sample of the line starts and ends and where the name starts, to the right of the axes."""
LONGEST = 16


def short(name: str) -> str:
    """A name that fits; of a method with options these remain.

    Example:
        >>> short("pos-ap"), short("a-method-with-a-very-long-name"), short("uniloss-accuracy:anchors=5")
        ('pos-ap', 'a-method-with-a…', '…:anchors=5')
    """
    _, colon, options = name.partition(":")
    if len(name) > LONGEST and colon:
        name = f"…:{options}"
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def make_room(figure: Figure, axes: Axes, names: Iterable[str], start: float = NAME_FROM) -> None:
    """Set the width of the axes so that the labels on the left and the names on the right are never cut off."""
    canvas = figure.canvas
    if not isinstance(canvas, FigureCanvasAgg):
        raise TypeError("figures are drawn with the Agg canvas")
    box = axes.yaxis.get_tightbbox(canvas.get_renderer())  # type: ignore[no-untyped-call]
    left = (box.width / figure.bbox.width if box else 0.1) + 0.02
    right = (start + LETTER * max((len(name) for name in names), default=0)) / 72 / figure.get_size_inches()[0]
    axes.set_position((left, 0.14, 1 - left - right, 0.81))


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions at least ``gap`` apart inside ``[low, high]``, as near as possible (least squares) to the wanted ones.

    Taking ``i * gap`` off the i-th sorted position turns the problem into isotonic regression, solved by pooling.

    Example:
        >>> spread([1.0, 1.0, 5.0], 1.0, 0.0, 10.0)
        [0.5, 1.5, 5.0]
    """
    order = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    pools: list[tuple[float, int]] = []
    for rank, index in enumerate(order):
        total, count = wanted[index] - rank * gap, 1
        while pools and pools[-1][0] / pools[-1][1] >= total / count:
            last_total, last_count = pools.pop()
            total, count = total + last_total, count + last_count
        pools.append((total, count))
    flat = [total / count for total, count in pools for _ in range(count)]
    top = max(low, high - gap * (len(wanted) - 1))
    placed = [0.0] * len(wanted)
    for rank, index in enumerate(order):
        placed[index] = min(max(flat[rank], low), top) + rank * gap
    return placed


def label_ends(
    figure: Figure, axes: Axes, ends: Mapping[str, tuple[float, float]], looks: Mapping[str, Look] | None = None
) -> None:
    """Write each method's name to the right of its line's end ``(x, y)``, tied to it by a thin line in its colour.

    The text has the page's colour, not the line's: coloured small text is hard to read for many. ``looks`` is for
    lines that stand for something else than a method.
    """
    make_room(figure, axes, [short(method) for method in ends])
    box = axes.get_window_extent()
    scale = figure.dpi / 72
    heights = [min(max(float(axes.transData.transform(end)[1]), box.y0), box.y1) for end in ends.values()]
    placed = spread(heights, HEIGHT * scale, box.y0 + 4 * scale, box.y1 + 2 * scale)
    for (method, (x, _)), height, y in zip(ends.items(), placed, heights, strict=True):
        start = (float(axes.transData.transform((x, 0))[0]) - box.x0) / box.width, (y - box.y0) / box.height
        seen = look(method) if looks is None else looks[method]
        _name(axes, method, seen, start, (height - box.y0) / box.height, scale / box.width)


def _name(axes: Axes, method: str, seen: Look, start: tuple[float, float], height: float, point: float) -> None:
    """A thin line from the end of the data to a sample of the method's line and marker, then the name."""
    left, right, text = (1 + place * point for place in (KEY_FROM, KEY_TO, NAME_FROM))

    def line(xs: list[float], ys: list[float], **how: object) -> None:
        axes.add_line(Line2D(xs, ys, transform=axes.transAxes, color=seen.colour, clip_on=False, **how))  # type: ignore[arg-type]

    line([start[0], left], [start[1], height], lw=0.7, alpha=0.7)
    line([left, right], [height, height], lw=1.6, ls=seen.dash)
    line([(left + right) / 2], [height], marker=seen.marker, ms=4.5, ls="none")
    axes.text(text, height, short(method), transform=axes.transAxes, va="center_baseline", color=INK, fontsize=8.5)
