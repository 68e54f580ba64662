"""How a method looks in every figure, and the fixed style of all figures.

Colour stands for the kind of update (positive, negative, both, hinge, perceptron, cross-entropy), the dash for the loss
it is built on (solid for AP, dashed for 0-1), and every method has its own marker, so that no two depend on colour
alone. The colours follow Okabe and Ito's palette, which stays apart under the common kinds of colour blindness,
darkened or lightened until each has a contrast of at least 3:1 with the page in light and in dark mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
"""Kinds that look like another: the usual loss of their task, as cross-entropy is of classes."""
_MARKERS = {
    "direct-ap": "H",
    "pos-ap": "o",
    "neg-ap": "s",
    "hinge-ap": "^",
    "per-ap": "D",
    "x-ent": "X",
    "pos-01": "p",
    "neg-01": "P",
    "hinge-01": "v",
    "per-01": "d",
    "uniloss-ap": "*",
}
_SPARE_MARKERS = ("<", ">", "h", "8")
_SPARE_DASHES = ((0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)))


@dataclass(frozen=True)
class Look:
    """Colour, dash and marker of a method."""

    colour: str
    dash: Any
    marker: str


def look(method: str) -> Look:
    """The fixed look of a method; a method we do not know gets one that depends on its name alone.

    Example:
        >>> look("pos-ap")
        Look(colour='#0072b2', dash='solid', marker='o')
        >>> look("pos-01").dash
        (0, (4, 2))
    """
    kind, _, loss = method.partition("-")
    family = _LIKE.get(kind, kind)
    if method in _MARKERS:
        return Look(FAMILIES[family][0], (0, (4, 2)) if loss == "01" else "solid", _MARKERS[method])
    code = sum(ord(letter) * (place + 1) for place, letter in enumerate(method))
    names = list(FAMILIES)
    colour = FAMILIES.get(family, FAMILIES[names[code % len(names)]])[0]
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
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "text.color": INK,
    # Names come from records; a dollar sign in one must not be read as a formula.
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "lines.solid_capstyle": "round",
    # Letters stay letters: small files, text that can be searched and read aloud.
    "svg.fonttype": "none",
    # Fixed ids, so that the same records give the same file.
    "svg.hashsalt": "directloss",
}
