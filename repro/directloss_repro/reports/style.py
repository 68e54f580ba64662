"""The fixed style of all figures: how a method looks, and SVG that follows the page.

Colour stands for the kind of update, the dash for the loss it is built on (solid for AP, dashed for 0-1), and every
method has its own marker, so that no two differ only in colour. The colours follow Okabe and Ito's palette, which suits
colour-blind readers, adjusted for a contrast of at least 3:1 with the page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

INK = "#1f2328"
RULE = "#d8dee4"
FAMILIES = {
    "direct": ("#13136c", "#ceeb92"),
    "pos": ("#0072b2", "#56b4e9"),
    "neg": ("#d55e00", "#ff7a2e"),
    "both": ("#4a2bd6", "#7a5cff"),
    "hinge": ("#00805c", "#1fc493"),
    "per": ("#b5558a", "#e07cb4"),
    "x": ("#3d444d", "#d9dfe6"),
    "uniloss": ("#6b5300", "#f0d34a"),
}
"""Kind of update -> colour in light mode, colour in dark mode."""
_LIKE = {"mse": "x"}
"""Kinds that share another's look: both are the usual loss of their task."""
_MARKERS = {"direct-ap": "H", "pos-ap": "o", "neg-ap": "s", "hinge-ap": "^", "per-ap": "D", "x-ent": "X"}
_MARKERS |= {"pos-01": "p", "neg-01": "P", "hinge-01": "v", "per-01": "d", "uniloss-ap": "*"}
_SPARE_MARKERS = ("<", ">", "h", "8", "p", "P", "d", "v", "s", "D", "*")
_SPARE_DASHES = ((0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
DASHED = (0, (4, 2))


@dataclass(frozen=True)
class Look:
    """Colour, dash and marker of a method."""

    colour: str
    dash: Any
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """The look as matplotlib keywords."""
        return {"color": self.colour, "ls": self.dash, "marker": self.marker}


def look(method: str) -> Look:
    """The fixed look of a method; an unknown method gets one that depends only on its name.

    Examples:
        >>> look("pos-ap")
        Look(colour='#0072b2', dash='solid', marker='o')
        >>> look("pos-01").dash
        (0, (4, 2))
    """
    kind, _, loss = method.partition("-")
    family = _LIKE.get(kind, kind)
    if method in _MARKERS:
        return Look(FAMILIES[family][0], DASHED if loss == "01" else "solid", _MARKERS[method])
    code = sum(ord(letter) * (place + 1) for place, letter in enumerate(method))
    colour = FAMILIES.get(family, list(FAMILIES.values())[code % len(FAMILIES)])[0]
    return Look(colour, _SPARE_DASHES[code % len(_SPARE_DASHES)], _SPARE_MARKERS[code % len(_SPARE_MARKERS)])


RC: Any = {
    "figure.figsize": (4.4, 3.3),
    "figure.facecolor": "white",
    "savefig.dpi": 200,
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.labelsize": 9.0,
    "axes.titlesize": 9.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "errorbar.capsize": 2,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.borderpad": 0,
    "legend.handlelength": 2.4,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "text.color": INK,
    # Names come from records; a dollar sign must not start a formula.
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "lines.solid_capstyle": "round",
    # Text stays text: small files that can be searched and read aloud.
    "svg.fonttype": "none",
    # Fixed ids, so that the same records give the same file.
    "svg.hashsalt": "directloss",
}


def short(name: str, longest: int = 16) -> str:
    """A name of at most ``longest`` letters; a long method with options keeps its options.

    Examples:
        >>> short("pos-ap"), short("a-method-with-a-very-long-name"), short("uniloss-accuracy:anchors=5")
        ('pos-ap', 'a-method-with-a…', '…:anchors=5')
    """
    _, colon, options = name.partition(":")
    if len(name) > longest and colon:
        name = f"…:{options}"
    return name if len(name) <= longest else name[: longest - 1] + "…"


def name_lines(canvas: Canvas, axes: Axes, ends: Mapping[str, float]) -> None:
    """Add a legend on the right, in the order in which the lines end."""
    handles, names = axes.get_legend_handles_labels()
    found = dict(zip(names, handles, strict=True))
    ranked = sorted(ends, key=lambda name: -ends[name])
    canvas.legend([found[name] for name in ranked], [short(name, 24) for name in ranked], loc="outside right upper")


# ---------------------------------------------------------------------- files

FONT = "system-ui, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif"


def colour_rules() -> tuple[str, str]:
    """CSS variables of the methods' colours for light and dark mode."""
    light, dark = (" ".join(f"--m-{kind}: {pair[mode]};" for kind, pair in FAMILIES.items()) for mode in (0, 1))
    return light, dark


def to_png(canvas: Canvas) -> bytes:
    """The figure as PNG on white."""
    png = io.BytesIO()
    canvas.savefig(png, format="png", facecolor="white", metadata={"Software": None})
    return png.getvalue()


def to_svg(canvas: Canvas, name: str, title: str, description: str) -> str:
    """An ``<svg>`` element that follows the page's colours and dark mode, with unique ids and alternative text."""
    raw = io.StringIO()
    canvas.savefig(raw, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    body = re.sub(r"\s*<(metadata|style)\b.*?</\1>", "", raw.getvalue(), flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]+)"', body)
    body = body[body.index(">", body.index("<svg")) + 1 :].replace(INK, "currentColor")
    for variable, colour in {"rule": RULE, **{f"m-{kind}": pair[0] for kind, pair in FAMILIES.items()}}.items():
        body = body.replace(colour, f"var(--{variable}, {colour})")
    # Several figures share one page, so every id is prefixed with the figure's name.
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", body)
    body = re.sub(r"'DejaVu Sans'[^;\"]*", FONT, body)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{box.group(1) if box else ""}" '
        f'role="img" aria-labelledby="{name}-title {name}-desc" style="stroke-linejoin: round; stroke-linecap: butt">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>{body}'
    )


def standalone(element: str) -> bytes:
    """The figure as a separate file, which follows the reader's dark mode."""
    light, dark = colour_rules()
    style = (
        f"<style>svg {{ color: {INK}; --rule: {RULE}; {light} }} "
        f"@media (prefers-color-scheme: dark) {{ svg {{ color: #e6edf3; --rule: #3d444d; {dark} }} }}</style>"
    )
    return f'<?xml version="1.0" encoding="utf-8"?>\n{element.replace(">", ">" + style, 1)}'.encode()
