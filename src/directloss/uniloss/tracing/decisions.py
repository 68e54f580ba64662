"""Every operation that makes something discrete out of scores, as questions and a choice that follows from the answers.

Operations that depend on the order of a list alone (sort, topk, argmax, median ...) run on numbers that stand in the
answered order instead of the scores, so that they keep their own rule for ties. Their values are then picked from the
scores by the indices that they return.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from directloss.uniloss.tracing.run import Run

Handler = Callable[[Run, Any, tuple[Any, ...], dict[str, Any]], Any]
HANDLERS: dict[str, Handler] = {}
STEPS = 64
"""The most values that rounding may tell apart."""
FEW = 64
"""The maximum of more scores than this, or of a whole matrix, is a value of its own and not the choice of one of them:
it is there to shift or to scale, and the shadow of the choice would change with it."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Enter a handler into the table."""

    def enter(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return enter


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
    """x < y and its kin."""
    name = _name(func)
    run.begin(name)
    x, y = args[0], args[1]
    out = COMPARE[name](run.signs(x, y))
    nan = torch.isnan(torch.as_tensor(x)) | torch.isnan(torch.as_tensor(y))
    if bool(nan.any()):
        out = torch.where(nan, name == "ne", out)
    return out


def _name(func: Any) -> str:
    name: str = func._schema.name.split("::")[1]
    return name.rstrip("_") if not name.startswith("_") else name


def _not_zero(run: Run, x: Any) -> Any:
    """x != 0 as a decision; what carries no scores stays as it is."""
    if isinstance(x, Tensor) and run.shadows.carries(x):
        return run.signs(x, 0.0) != 0
    return x


@handles("nonzero", "any", "all", "logical_not", "logical_and", "logical_or", "logical_xor", "count_nonzero")
def truth(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operations that only ask whether something is zero."""
    name = _name(func)
    run.begin(name)
    out = func(*(_not_zero(run, value) for value in args), **kwargs)
    if name in ("nonzero", "count_nonzero"):
        run.used |= run.fresh
    return out


@handles("_to_copy", "to")
def cast(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A change of type; to bool or to whole numbers it decides."""
    kind = kwargs.get("dtype")
    if kind is None or kind.is_floating_point or kind.is_complex:
        return NotImplemented
    if kind == torch.bool:
        run.begin("bool")
        return _not_zero(run, args[0])
    steps = _steps(run, args[0], "trunc")
    if steps is NotImplemented:
        run.refuse(func, "to whole numbers tells apart too many values")
        return func(*args, **kwargs)
    return steps.to(kind)


@handles("round", "floor", "ceil", "trunc", "fix")
def rounding(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Whole numbers, by a threshold for each step."""
    if kwargs.get("decimals"):
        run.refuse(func, "to decimals is not known")
        return NotImplemented
    name = _name(func)
    out = _steps(run, args[0], "trunc" if name == "fix" else name)
    if out is NotImplemented:
        run.refuse(func, f"tells apart more than {STEPS} values")
    return out


def _steps(run: Run, x: Tensor, how: str) -> Any:
    low, high = _range(run, x)
    if high - low > STEPS:
        return NotImplemented
    run.begin(how)
    whole = torch.arange(low, high, dtype=x.dtype, device=x.device)
    answers = run.signs(x.detach().unsqueeze(-1) if not run.shadows.carries(x) else _last(run, x), _edges(whole, how))
    tie = {"floor": torch.ones_like(whole), "ceil": torch.zeros_like(whole), "round": whole.remainder(2) != 0,
           "trunc": whole + 1 > 0}[how]  # fmt: skip
    up = (answers > 0) | ((answers == 0) & tie.bool())
    return low + up.sum(-1).to(x.dtype)


def _edges(whole: Tensor, how: str) -> Tensor:
    """Where the step from ``whole`` to ``whole + 1`` is."""
    if how == "floor":
        return whole + 1
    if how == "ceil":
        return whole
    return whole + 0.5 if how == "round" else torch.where(whole >= 0, whole + 1, whole)


def _last(run: Run, x: Tensor) -> Tensor:
    """A last dimension of length one; a view, so that it has its shadow."""
    return x.unsqueeze(-1)


def _range(run: Run, x: Tensor) -> tuple[int, int]:
    """Whole numbers around everything that x can be, as far as it is known."""
    origin = run.images.locate(run.shadows.of(x))
    numbers = origin.function.unique().tolist()
    if all(n >= 0 for n in numbers):
        low = min(run.images.by_number[n].low for n in numbers)
        high = max(run.images.by_number[n].high for n in numbers)
        if math.isfinite(low) and math.isfinite(high):
            return math.floor(low), math.ceil(high)
    return math.floor(float(x.min())) - 2, math.ceil(float(x.max())) + 2


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
    """|x| is a value of its own: its shadow is a smooth stand-in, or it would be taken for x or for -x."""
    x = args[0]
    shadow = run.shadows.of(x)
    origin = run.images.locate(shadow)
    known = [run.images.by_number[n].low >= 0 if n >= 0 else False for n in origin.function.unique().tolist()]
    fixed = torch.isclose(x.detach().double(), shadow, rtol=1e-6, atol=0.0) | (x == shadow)
    stand_in = shadow if known and all(known) else torch.where(fixed, shadow.abs(), (shadow.square() + 0.371).sqrt())
    return run.chosen(func(x), stand_in)


@handles("clamp", "clip", "clamp_min", "clamp_max", "relu", "hardtanh", "relu6")
def clamp(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Between two bounds: which side of each bound is a decision."""
    name = _name(func)
    x, bounds = args[0], [*args[1:], None, None]
    low, high = kwargs.get("min", bounds[0]), kwargs.get("max", bounds[1])
    if name == "clamp_max":
        low, high = None, bounds[0]
    elif name in ("relu", "relu6"):
        low, high = 0.0, 6.0 if name == "relu6" else None
    elif name == "hardtanh":
        low, high = kwargs.get("min_val", -1.0 if low is None else low), kwargs.get("max_val", 1.0 if high is None else high)
    if not x.is_floating_point():
        return NotImplemented
    run.begin(name)
    for bound, outside in ((low, -1), (high, +1)):
        if bound is not None:
            x = _pick(run, run.signs(x, bound) == outside, bound, x)
    return x


@handles("maximum", "minimum", "fmax", "fmin")
def extreme_of_two(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The greater or the lesser of two."""
    run.begin(_name(func))
    answers = run.signs(args[0], args[1])
    first = answers >= 0 if _name(func) in ("maximum", "fmax") else answers <= 0
    return _pick(run, first, args[0], args[1])


def _pick(run: Run, first: Tensor, x: Any, y: Any) -> Tensor:
    """x where ``first``, else y."""
    like = y if isinstance(y, Tensor) else x
    x, y = (v if isinstance(v, Tensor) else torch.tensor(v, dtype=like.dtype, device=like.device) for v in (x, y))
    return run.chosen(torch.where(first, x, y), torch.where(first, run.shadows.of(x), run.shadows.of(y)))


# From here on: operations on lists.


@handles("sort", "topk", "kthvalue", "median", "nanmedian", "mode", "cummax", "cummin", "msort")
def order(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operations along a dimension that return values and indices."""
    name = _name(func)
    if name == "median" and func._overloadname == "default" or name == "nanmedian" and len(args) == 1:
        return _middle(run, args[0])
    x = args[0]
    dim = _dim(func, args, kwargs, {"sort": -1, "topk": -1, "kthvalue": -1, "mode": -1}.get(name, -1))
    run.begin(name)
    indices = func(run.ranked(x, dim), *args[1:], **kwargs)[1]
    return _named(x, indices, dim, run, _keeps(func, args, kwargs, x, indices))


def _middle(run: Run, x: Tensor) -> Tensor:
    run.begin("median")
    at = run.ranked(x.reshape(-1) if x.is_contiguous() else _flat(run, x), -1).median(0).indices
    return run.chosen(x.detach().flatten()[at].clone(), run.shadows.of(x).flatten()[at])


def _flat(run: Run, x: Tensor) -> Tensor:
    """All entries in a row; a copy, with the shadow of the original."""
    flat = x.detach().flatten().clone()
    return run.chosen(flat, run.shadows.of(x).flatten())


def _dim(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], default: int) -> int:
    """The dimension that an operation works along."""
    for at, argument in enumerate(func._schema.arguments):
        if argument.name == "dim":
            value = kwargs.get("dim", args[at] if at < len(args) else None)
            return default if value is None else int(value)
    return default


def _keeps(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], x: Tensor, indices: Tensor) -> bool:
    return x.dim() == indices.dim()


def _named(x: Tensor, indices: Tensor, dim: int, run: Run, keeps: bool) -> tuple[Tensor, Tensor]:
    """The values at the indices, and the indices."""
    return _gathered(run, x, indices, dim, keeps), indices


def _gathered(run: Run, x: Tensor, indices: Tensor, dim: int, keeps: bool) -> Tensor:
    shadow, real = run.shadows.of(x), x.detach()
    if x.dim() == 0:
        return run.chosen(real.clone(), shadow)
    at = indices if keeps else indices.unsqueeze(dim)
    values, dark = real.gather(dim, at), shadow.gather(dim, at)
    return run.chosen(values, dark) if keeps else run.chosen(values.squeeze(dim), dark.squeeze(dim))


@handles("argmax", "argmin", "argsort")
def where_extreme(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operations that return indices alone."""
    run.begin(_name(func))
    x = args[0]
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if _name(func) == "argsort":
        dim = _dim(func, args, kwargs, -1)
    if dim is None:
        flat = run.ranked(_flat(run, x), 0)
        return func(flat.reshape(x.shape), *args[1:], **kwargs)
    return func(run.ranked(x, int(dim)), *args[1:], **kwargs)


@handles("max", "min")
def extreme(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The extreme value along a dimension with its index, or of everything."""
    name, x = _name(func), args[0]
    if func._overloadname == "other":
        return extreme_of_two(run, func, args, kwargs)
    if func._overloadname != "dim":
        return _extreme_over(run, name, x, list(range(x.dim())), False)
    run.begin(name)
    indices = func(run.ranked(x, int(args[1])), *args[1:], **kwargs)[1]
    keeps = bool(args[2]) if len(args) > 2 else bool(kwargs.get("keepdim", False))
    return _named(x, indices, int(args[1]), run, keeps)


@handles("amax", "amin", "aminmax")
def extreme_value(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The extreme value over some dimensions."""
    x, name = args[0], _name(func)
    dims = kwargs.get("dim", args[1] if len(args) > 1 else None)
    dims = list(range(x.dim())) if dims is None or dims == [] else [dims] if isinstance(dims, int) else list(dims)
    keepdim = bool(kwargs.get("keepdim", args[2] if len(args) > 2 else False))
    if name == "aminmax":
        return tuple(_extreme_over(run, which, x, dims, keepdim) for which in ("min", "max"))
    return _extreme_over(run, name[1:], x, dims, keepdim)


def _extreme_over(run: Run, name: str, x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    dims = sorted(d % max(x.dim(), 1) for d in dims)
    shape = [1 if d in dims else size for d, size in enumerate(x.shape)]
    rest = [d for d in range(x.dim()) if d not in dims]
    if not keepdim:
        shape = [x.shape[d] for d in rest]
    real, dark = (
        v.permute(*rest, *dims).reshape(*(v.shape[d] for d in rest), -1) if v.dim() else v.reshape(1)
        for v in (x.detach(), run.shadows.of(x))
    )
    if not rest and (real.numel() > FEW or x.dim() > 1):
        value = real.amax(-1) if name == "max" else real.amin(-1)
        soft = torch.logsumexp(3 * dark, -1) / 3 if name == "max" else -torch.logsumexp(-3 * dark, -1) / 3
        return run.chosen(value.reshape(shape).clone(), soft.reshape(shape))
    run.begin(name)
    rows = run.chosen(real.clone(), dark)
    ranked = run.ranked(rows, -1)
    at = (ranked.argmax(-1) if name == "max" else ranked.argmin(-1)).unsqueeze(-1)
    return run.chosen(real.gather(-1, at).reshape(shape), dark.gather(-1, at).reshape(shape))


@handles("_unique2", "unique_dim", "_unique")
def unique(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The different values, sorted; where each entry went, and how often each occurs."""
    if _name(func) == "unique_dim" and args[0].dim() != 1:
        return NotImplemented
    run.begin("unique")
    x = args[0]
    flat = _flat(run, x)
    _, inverse, counts = torch.unique(run.ranked(flat, 0), return_inverse=True, return_counts=True)
    run.used |= run.fresh
    return _representatives(run, flat, inverse, counts.numel()), inverse.reshape(x.shape), counts


@handles("unique_consecutive")
def unique_runs(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One of each run of equal values."""
    if args[0].dim() != 1 and kwargs.get("dim") is not None:
        return NotImplemented
    run.begin("unique_consecutive")
    flat = _flat(run, args[0])
    new = run.signs(flat[1:], flat[:-1]) != 0
    inverse = torch.cat((new.new_zeros(min(1, flat.numel())), new)).cumsum(0)
    counts = torch.bincount(inverse)
    run.used |= run.fresh
    return _representatives(run, flat, inverse, counts.numel()), inverse.reshape(args[0].shape), counts


def _representatives(run: Run, flat: Tensor, inverse: Tensor, count: int) -> Tensor:
    """For each group of equal entries the first of them."""
    places = torch.arange(flat.numel(), device=flat.device)
    first = places.new_full((count,), flat.numel()).scatter_reduce_(0, inverse, places, "amin")
    return run.chosen(flat[first], run.shadows.of(flat)[first])


@handles("searchsorted", "bucketize")
def search(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """How many of a sorted list stand before a value."""
    name = _name(func)
    values, edges = (args[0], args[1]) if name == "bucketize" else (args[1], args[0])
    right = bool(kwargs.get("right", False)) or kwargs.get("side") == "right"
    if kwargs.get("sorter") is not None or not isinstance(edges, Tensor):
        return NotImplemented
    run.begin(name)
    kind = torch.int32 if kwargs.get("out_int32") else torch.int64
    probe = values if isinstance(values, Tensor) else torch.tensor(values, dtype=edges.dtype, device=edges.device)
    probe_ = probe.unsqueeze(-1)
    list_ = edges if edges.dim() == 1 else edges.unsqueeze(-2)
    answers = run.signs(probe_, list_)
    return ((answers >= 0) if right else (answers > 0)).sum(-1).to(kind)


@handles("isin")
def membership(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Which values occur in a list."""
    run.begin("isin")
    x, among = (v if isinstance(v, Tensor) else torch.tensor(v) for v in args[:2])
    hit = (run.signs(x.unsqueeze(-1), _flat(run, among) if run.shadows.carries(among) else among.flatten()) == 0).any(-1)
    return ~hit if kwargs.get("invert") else hit


@handles("histc")
def histogram(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Counts between equally spaced edges."""
    x, bins, low, high = (*args, *(100, 0, 0)[len(args) - 1 :])
    low, high = float(kwargs.get("min", low)), float(kwargs.get("max", high))
    if low == high:
        return NotImplemented
    run.begin("histc")
    edges = torch.linspace(low, high, int(bins) + 1, dtype=x.dtype, device=x.device)
    answers = run.signs(_flat(run, x).unsqueeze(-1), edges)
    inside = (answers[:, 0] >= 0) & (answers[:, -1] <= 0)
    at = (answers[:, 1:-1] >= 0).sum(-1)[inside]
    return torch.bincount(at, minlength=int(bins)).to(x.dtype)


@handles("equal", "allclose")
def same(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A check that gives a Python bool: a guard, frozen."""
    return func(*args, **kwargs)


@handles("isclose")
def close(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A check within a tolerance: fine as a guard, not as a part of the result."""
    run.refuse(func, "compares within a tolerance; write it with abs and <=")
    return func(*args, **kwargs)
