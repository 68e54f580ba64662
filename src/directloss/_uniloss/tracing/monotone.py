"""Operations that keep the order of scores, and so make images of them.

Each has an inverse function, a direction, and a range of values. Comparisons of the results of any other operation are
variables of general form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from directloss._uniloss.tracing.images import Images, Inverse, Kind, Origin
from directloss._uniloss.tracing.witness import Shadows

INF = math.inf


class Rule(NamedTuple):
    """An increasing function of one variable (or a decreasing one) and its inverse."""

    inverse: Inverse
    direction: int = 1
    low: float = -INF
    high: float = INF
    positive: bool = False
    """Whether it is monotone only for positive arguments."""


def _within(low: float, high: float, inverse: Inverse) -> Inverse:
    """An inverse for values inside a range; the function never reaches values outside."""
    return lambda t: torch.where(t <= low, -INF, torch.where(t >= high, INF, inverse(t.clamp(low, high))))


_log = _within(0.0, INF, torch.log)
UNARY: dict[str, Rule] = {
    "sigmoid": Rule(_within(0.0, 1.0, torch.logit), low=0.0, high=1.0),
    "exp": Rule(_log, low=0.0),
    "exp2": Rule(_within(0.0, INF, torch.log2), low=0.0),
    "expm1": Rule(_within(-1.0, INF, torch.log1p), low=-1.0),
    "log": Rule(torch.exp),
    "log2": Rule(torch.exp2),
    "log10": Rule(lambda t: torch.pow(10.0, t)),
    "log1p": Rule(torch.expm1),
    "tanh": Rule(_within(-1.0, 1.0, torch.atanh), low=-1.0, high=1.0),
    "atan": Rule(_within(-math.pi / 2, math.pi / 2, torch.tan), low=-math.pi / 2, high=math.pi / 2),
    "asinh": Rule(torch.sinh),
    "sinh": Rule(torch.asinh),
    "erf": Rule(_within(-1.0, 1.0, torch.erfinv), low=-1.0, high=1.0),
    "logit": Rule(torch.sigmoid),
    "softplus": Rule(_within(0.0, INF, lambda t: t + torch.log(-torch.expm1(-t))), low=0.0),
    "log_sigmoid_forward": Rule(_within(-INF, 0.0, lambda t: t - torch.log(-torch.expm1(t))), high=0.0),
    "neg": Rule(torch.neg, -1),
    "sqrt": Rule(lambda t: torch.where(t < 0, -INF, t.square()), low=0.0, positive=True),
    "square": Rule(lambda t: torch.where(t < 0, -INF, t.clamp(min=0).sqrt()), low=0.0, positive=True),
    # The function decreases, so a value below its range belongs to plus infinity.
    "reciprocal": Rule(lambda t: torch.where(t <= 0, INF, 1 / t), -1, low=0.0, positive=True),
}
ROWWISE = {"_softmax": (0.0, 1.0), "_log_softmax": (-INF, 0.0)}
SHIFTS = {"add", "sub", "rsub"}
SCALES = {"mul", "div"}


def note(images: Images, shadows: Shadows, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Remember which images of scores the result of an operation holds."""
    result = out[0] if isinstance(out, tuple | list) else out
    if not isinstance(result, Tensor) or not shadows.carries(result) or not args:
        return
    values = shadows.of(result)
    x = args[0]
    if name in UNARY and isinstance(x, Tensor) and len(args) == 1:
        _unary(images, images.locate(shadows.of(x)), name, UNARY[name], values)
    elif name in ROWWISE and isinstance(x, Tensor):
        dim = int(args[1]) % max(x.dim(), 1)  # softmax is monotone inside each row along this dimension
        each = [1 if d == dim else size for d, size in enumerate(values.shape)]
        rows = images.groups(each, values.device)
        _by_row(images, images.locate(shadows.of(x)), (name,), rows, values, *ROWWISE[name])
    elif (name in SHIFTS or name in SCALES) and len(args) == 2 and not kwargs.get("rounding_mode"):
        _binary(images, shadows, name, args, kwargs, values)


def _each_kind(images: Images, origin: Origin) -> list[tuple[Kind, Tensor]]:
    """The kinds of these images, and where each occurs."""
    numbers = [n for n in torch.unique(origin.function).tolist() if n >= 0]
    return [(images.by_number[n], origin.function == n) for n in numbers]


def _chain(inner: Inverse, outer: Inverse) -> Inverse:
    return lambda t: inner(outer(t))


def _mapped(
    images: Images, origin: Origin, name: tuple[Any, ...], rule: Callable[[Kind], Rule | None], values: Tensor
) -> None:
    """Remember the values as images of the images, under the rule of each kind that has one."""
    for kind, here in _each_kind(images, origin):
        known = rule(kind)
        if known is not None:
            inverse = None if kind.inverse is None else _chain(kind.inverse, known.inverse)
            new = images.kind((*kind.name, name), kind.direction * known.direction, inverse, known.low, known.high)
            images.add(new, here, values, origin)


def _is_difference(kind: Kind) -> bool:
    return kind.name[:1] == ("minus",)


def _unary(images: Images, origin: Origin, name: str, rule: Rule, values: Tensor) -> None:
    def known(kind: Kind) -> Rule | None:
        unknown = (rule.positive and kind.low < 0) or (_is_difference(kind) and name != "neg")
        return None if unknown else rule

    _mapped(images, origin, (name,), known, values)


def _by_row(
    images: Images, origin: Origin, name: tuple[str, ...], rows: Tensor, values: Tensor, low: float, high: float
) -> None:
    """Remember images under functions that keep the order only within a row; they have no inverse."""
    origin = origin._replace(group=rows.expand(values.shape))
    for kind, here in _each_kind(images, origin):
        if not _is_difference(kind):
            images.add(images.kind((*kind.name, name), kind.direction, None, low, high), here, values, origin)


def _binary(
    images: Images, shadows: Shadows, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], values: Tensor
) -> None:
    x, y = args
    alpha = float(kwargs.get("alpha", 1))
    if name == "rsub":
        if alpha != 1:
            return
        name, x, y = "sub", y, x
    free_x = isinstance(x, Tensor) and shadows.carries(x)
    free_y = isinstance(y, Tensor) and shadows.carries(y)
    if free_x and free_y:
        if name == "sub" and alpha == 1 and _difference(images, shadows, x, y, values):
            return
        _broadcast(images, shadows, name, x, y, values)
    elif free_x or (free_y and name != "div"):
        number = _single(y if free_x else x)
        if number is not None and math.isfinite(number):
            factor, step = _line(name, number, alpha, free_x)
            _affine(images, images.locate(shadows.of(x if free_x else y).expand_as(values)), factor, step, values)


def _line(name: str, number: float, alpha: float, first: bool) -> tuple[float, float]:
    """Factor and step of an operation on a number and a tensor, which comes ``first`` or second."""
    if name in SCALES:
        return (1 / number if name == "div" and number else number), 0.0
    sign = -1.0 if name == "sub" else 1.0
    return (1.0, sign * alpha * number) if first else (sign * alpha, number)


def _single(value: Any) -> float | None:
    """The number that fills a constant; None if it holds several."""
    if isinstance(value, Tensor):
        if value.numel() == 0:
            return None
        first = value.flatten()[0]
        return float(first) if value.numel() == 1 or bool((value == first).all()) else None
    return float(value)


def _affine(images: Images, origin: Origin, factor: float, step: float, values: Tensor) -> None:
    """``factor * x + step``."""
    if not factor:
        return
    rule = Rule(lambda t: (t - step) / factor, 1 if factor > 0 else -1)

    def known(kind: Kind) -> Rule | None:
        if step and _is_difference(kind):  # only its sign has a meaning
            return None
        ends = (step + factor * kind.low, step + factor * kind.high)
        return rule._replace(low=min(ends), high=max(ends))

    _mapped(images, origin, ("line", factor, step), known, values)


def _difference(images: Images, shadows: Shadows, x: Tensor, y: Tensor, values: Tensor) -> bool:
    """``phi(s_i) - phi(s_j)``, whose sign compares the two scores."""
    a, b = images.locate(shadows.of(x)), images.locate(shadows.of(y))
    a, b = (Origin(*(part.expand_as(values) for part in origin)) for origin in (a, b))
    good = (a.score >= 0) & (b.score >= 0) & (a.function == b.function) & (a.group == b.group)
    good &= (a.partner < 0) & (b.partner < 0) & (a.score != b.score)
    if not bool(good.any()):
        return False
    for kind, here in _each_kind(images, a):
        new = images.kind(("minus", kind.name), kind.direction, None, -INF, INF)
        images.add(new, here & good, values, a._replace(partner=b.score))
    return True


def _broadcast(images: Images, shadows: Shadows, name: str, x: Tensor, y: Tensor, values: Tensor) -> None:
    """``x - max(x)``, ``x / sum(x)`` and the like: one unknown shared by many entries, which keeps their order."""
    if y.numel() >= values.numel() and values.numel() > 1:
        return
    if name in SCALES and not (bool((y > 0).all()) and bool((shadows.of(y) > 0).all())):
        return
    origin = images.locate(shadows.of(x).expand_as(values))
    ungrouped = origin._replace(function=torch.where(origin.group < 0, origin.function, -1))
    _by_row(images, ungrouped, ("by row", name), images.groups(y.shape, y.device), values, -INF, INF)
