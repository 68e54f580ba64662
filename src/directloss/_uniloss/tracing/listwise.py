"""Operations that decide about lists: sorting, extremes, counting, searching.

An operation that depends only on the order of a list runs on numbers in the answered order instead of the scores, and
so keeps its own rule for ties. Values are then picked from the scores by the indices that it returns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from directloss._uniloss.tracing.elementwise import extreme_of_two
from directloss._uniloss.tracing.run import Run, argument, handles, name_of

FEW = 64
"""The maximum of more scores than this, or of a whole matrix, is a new value and not a choice of one of them: it serves
to shift or scale, and the shadow of a choice would change with the scores."""


@handles("sort", "topk", "kthvalue", "median", "nanmedian", "mode", "cummax", "cummin", "msort")
def order(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operations along a dimension that return values and indices; the median of a whole tensor returns no index."""
    name = name_of(func)
    if name in ("median", "nanmedian") and func._overloadname == "default":
        return order(run, getattr(torch.ops.aten, name).dim, (_flat(run, args[0]), 0), {})[0]
    x = args[0]
    dim = argument(func, args, kwargs, "dim", -1)
    run.begin(name)
    indices = func(run.ranked(x, dim), *args[1:], **kwargs)[1]
    return _gathered(run, x, indices, dim, x.dim() == indices.dim()), indices


def _flat(run: Run, x: Tensor) -> Tensor:
    """A flat copy with the shadow of the original."""
    flat = x.detach().flatten().clone()
    return run.chosen(flat, run.shadows.of(x).flatten())


def _gathered(run: Run, x: Tensor, indices: Tensor, dim: int, keeps: bool) -> Tensor:
    """The values at indices along a dimension; ``keeps`` tells whether the indices still have that dimension."""
    shadow, real = run.shadows.of(x), x.detach()
    if x.dim() == 0:
        return run.chosen(real.clone(), shadow)
    at = indices if keeps else indices.unsqueeze(dim)
    values, dark = real.gather(dim, at), shadow.gather(dim, at)
    return run.chosen(values, dark) if keeps else run.chosen(values.squeeze(dim), dark.squeeze(dim))


@handles("argmax", "argmin", "argsort")
def where_extreme(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operations that return only indices."""
    run.begin(name_of(func))
    x, dim = args[0], argument(func, args, kwargs, "dim", -1 if name_of(func) == "argsort" else None)
    ranked = run.ranked(_flat(run, x), 0).reshape(x.shape) if dim is None else run.ranked(x, dim)
    return func(ranked, *args[1:], **kwargs)


@handles("max", "min")
def extreme(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The extreme value along a dimension with its index, or of the whole tensor."""
    if func._overloadname == "other":
        return extreme_of_two(run, func, args, kwargs)
    if func._overloadname == "dim":
        return order(run, func, args, kwargs)
    return _extreme_over(run, name_of(func), args[0], list(range(args[0].dim())), False)


@handles("amax", "amin", "aminmax")
def extreme_value(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The extreme value over some dimensions."""
    x, name = args[0], name_of(func)
    everything = list(range(x.dim()))
    dims = argument(func, args, kwargs, "dim", everything)
    dims = [dims] if isinstance(dims, int) else list(dims) or everything
    keepdim = argument(func, args, kwargs, "keepdim")
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
    rows = run.chosen(real.clone(), dark)
    found: Tensor = order(run, getattr(torch.ops.aten, name).dim, (rows, -1), {})[0]
    return found.reshape(shape)


@handles("_unique2", "unique_dim", "_unique")
def unique(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The sorted distinct values, the place of each entry among them, and their counts."""
    if name_of(func) == "unique_dim" and args[0].dim() != 1:
        return NotImplemented
    run.begin("unique")
    x = args[0]
    flat = _flat(run, x)
    _, inverse, counts = torch.unique(run.ranked(flat, 0), return_inverse=True, return_counts=True)
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
    return _representatives(run, flat, inverse, counts.numel()), inverse.reshape(args[0].shape), counts


def _representatives(run: Run, flat: Tensor, inverse: Tensor, count: int) -> Tensor:
    """The first entry of each group of equal entries."""
    places = torch.arange(flat.numel(), device=flat.device)
    first = places.new_full((count,), flat.numel()).scatter_reduce_(0, inverse, places, "amin")
    return run.chosen(flat[first], run.shadows.of(flat)[first])


@handles("searchsorted", "bucketize")
def search(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """How many entries of a sorted list come before a value."""
    name = name_of(func)
    values, edges = (args[0], args[1]) if name == "bucketize" else (args[1], args[0])
    right = bool(kwargs.get("right", False)) or kwargs.get("side") == "right"
    if kwargs.get("sorter") is not None or not isinstance(edges, Tensor):
        return NotImplemented
    run.begin(name)
    kind = torch.int32 if kwargs.get("out_int32") else torch.int64
    probe = values if isinstance(values, Tensor) else torch.tensor(values, dtype=edges.dtype, device=edges.device)
    answers = run.signs(probe.unsqueeze(-1), edges if edges.dim() == 1 else edges.unsqueeze(-2))
    return ((answers >= 0) if right else (answers > 0)).sum(-1).to(kind)


@handles("isin")
def membership(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Which values occur in a list."""
    run.begin("isin")
    x, among = (v if isinstance(v, Tensor) else torch.tensor(v) for v in args[:2])
    among = _flat(run, among) if run.shadows.carries(among) else among.flatten()
    hit = (run.signs(x.unsqueeze(-1), among) == 0).any(-1)
    return ~hit if kwargs.get("invert") else hit


@handles("histc")
def histogram(run: Run, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Counts between equally spaced edges."""
    x = args[0]
    bins, low, high = (argument(func, args, kwargs, name) for name in ("bins", "min", "max"))
    if low == high:
        return NotImplemented
    run.begin("histc")
    edges = torch.linspace(low, high, int(bins) + 1, dtype=x.dtype, device=x.device)
    answers = run.signs(_flat(run, x).unsqueeze(-1), edges)
    inside = (answers[:, 0] >= 0) & (answers[:, -1] <= 0)
    at = (answers[:, 1:-1] >= 0).sum(-1)[inside]
    return torch.bincount(at, minlength=int(bins)).to(x.dtype)
