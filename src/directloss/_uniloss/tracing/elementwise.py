"""Operations that decide about each entry by itself: comparisons, rounding, clamping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from directloss._uniloss.tracing.run import Run, argument, handles, name_of

STEPS = 64
"""The most steps that rounding may have."""

COMPARE: dict[str, Callable[[Tensor], Tensor]] = {
    "lt": lambda s: s < 0,
    "le": lambda s: s <= 0,
    "gt": lambda s: s > 0,
    "ge": lambda s: s >= 0,
    "eq": lambda s: s == 0,
    "ne": lambda s: s != 0,
}


@handles(*COMPARE)
def compare(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """x < y and the like."""
    name = name_of(func)
    run.begin(name)
    x, y = args[0], args[1]
    out = COMPARE[name](run.signs(x, y))
    nan = torch.isnan(torch.as_tensor(x)) | torch.isnan(torch.as_tensor(y))
    if bool(nan.any()):
        out = torch.where(nan, name == "ne", out)
    return out


def _not_zero(run: Run, x: Any) -> Any:
    """x != 0 as a decision; x itself if it does not depend on scores."""
    if isinstance(x, Tensor) and run.shadows.carries(x):
        return run.signs(x, 0.0) != 0
    return x


@handles("nonzero", "any", "all", "logical_not", "logical_and", "logical_or", "logical_xor", "count_nonzero")
def truth(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operations that only ask what is zero."""
    run.begin(name_of(func))
    return func(*(_not_zero(run, value) for value in args), **kwargs)


@handles("_to_copy", "to")
def cast(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A change of type, which is a decision for bool and integers."""
    kind = kwargs.get("dtype")
    if kind is None or kind.is_floating_point or kind.is_complex:
        return NotImplemented
    if kind == torch.bool:
        run.begin("bool")
        return _not_zero(run, args[0])
    steps = _steps(run, func, args[0], "trunc")
    return steps if steps is NotImplemented else steps.to(kind)


@handles("round", "floor", "ceil", "trunc", "fix")
def rounding(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Integers, by a threshold for each step."""
    if kwargs.get("decimals"):
        run.refuse(func, "to decimals is not supported")
        return NotImplemented
    name = name_of(func)
    return _steps(run, func, args[0], "trunc" if name == "fix" else name)


def _steps(run: Run, func: Any, x: Tensor, how: str) -> Any:
    """The integer of each entry, with a threshold for every step in the range of x, as far as that is known."""
    low, high = run.images.bounds(run.shadows.of(x))
    if not (math.isfinite(low) and math.isfinite(high)):
        low, high = float(x.min()) - 2, float(x.max()) + 2
    low, high = math.floor(low), math.ceil(high)
    if high - low > STEPS:
        run.refuse(func, f"to integers has more than {STEPS} steps")
        return NotImplemented
    run.begin(how)
    whole = torch.arange(low, high, dtype=x.dtype, device=x.device)
    # Where the step from an integer to the next is, and whether a value on the edge takes it.
    edge, tie = {
        "floor": (whole + 1, whole == whole),
        "ceil": (whole, whole != whole),
        "round": (whole + 0.5, whole.remainder(2) != 0),
        "trunc": (torch.where(whole >= 0, whole + 1, whole), whole >= 0),
    }[how]
    answers = run.signs(x.unsqueeze(-1), edge)
    up = (answers > 0) | ((answers == 0) & tie)
    return low + up.sum(-1).to(x.dtype)


@handles("sign", "sgn")
def sign(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """-1, 0 or +1."""
    run.begin("sign")
    return run.signs(args[0], 0.0).to(args[0].dtype)


@handles("heaviside")
def heaviside(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """0, the given value, or 1."""
    run.begin("heaviside")
    return func(run.signs(args[0], 0.0).to(args[0].dtype), args[1])


@handles("abs")
def absolute(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """|x| is a new value: its shadow is a smooth stand-in, so that it is not taken for x or -x."""
    x = args[0]
    shadow = run.shadows.of(x)
    fixed = torch.isclose(x.detach().double(), shadow, rtol=1e-6, atol=0.0) | (x == shadow)
    positive = run.images.bounds(shadow)[0] >= 0
    stand_in = shadow if positive else torch.where(fixed, shadow.abs(), (shadow.square() + 0.371).sqrt())
    return run.chosen(func(x), stand_in)


@handles("clamp", "clip", "clamp_min", "clamp_max", "relu", "hardtanh", "relu6")
def clamp(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Clamping: the side of each bound is a decision."""
    name, x = name_of(func), args[0]
    if name in ("relu", "relu6"):
        low, high = 0.0, 6.0 if name == "relu6" else None
    else:
        names = ("min_val", "max_val") if name == "hardtanh" else ("min", "max")
        low, high = (argument(func, args, kwargs, bound) for bound in names)
    if not x.is_floating_point():
        return NotImplemented
    run.begin(name)
    # Both bounds are compared with x itself, so that the questions are the same for all scores.
    out = x
    for bound, outside in ((low, -1), (high, +1)):
        if bound is not None:
            out = _pick(run, run.signs(x, bound) == outside, bound, out)
    return out


@handles("maximum", "minimum", "fmax", "fmin")
def extreme_of_two(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The larger or the smaller of two values."""
    run.begin(name_of(func))
    answers = run.signs(args[0], args[1])
    first = answers >= 0 if name_of(func) in ("maximum", "fmax") else answers <= 0
    return _pick(run, first, args[0], args[1])


def _pick(run: Run, first: Tensor, x: Any, y: Any) -> Tensor:
    """x where ``first``, else y."""
    like = y if isinstance(y, Tensor) else x
    x, y = (v if isinstance(v, Tensor) else torch.tensor(v, dtype=like.dtype, device=like.device) for v in (x, y))
    return run.chosen(torch.where(first, x, y), torch.where(first, run.shadows.of(x), run.shadows.of(y)))


@handles("isclose")
def close(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A check within a tolerance: allowed as a guard, not as part of the result."""
    run.refuse(func, "compares within a tolerance; write it with abs and <=")
    return func(*args, **kwargs)
