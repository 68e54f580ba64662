"""The mode that a metric runs under: it sees every tensor operation and passes the discrete ones to their handlers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from operator import or_
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

# A private module, but the only access to all operations as they run; stable since torch 1.13, and the tests of this
# package fail at once if it moves.
from torch.utils._python_dispatch import TorchDispatchMode

from directloss._checks import DirectLossError
from directloss._uniloss.tracing import monotone
from directloss._uniloss.tracing.calls import Location, here
from directloss._uniloss.tracing.decisions import Decider
from directloss._uniloss.tracing.images import Images
from directloss._uniloss.tracing.tensors import map_leaves, storage_key, tensors_in, written_by
from directloss._uniloss.tracing.variables import Operand, ask
from directloss._uniloss.tracing.witness import Shadows, domain_of, witness

CELLS = 1 << 22
"""The most questions per operation: sorting n scores asks n^2, so lists have at most 2,048 (some 0.6 GB)."""

# Their results depend on the shape of their argument, but not on its values.
SHAPE_ONLY = {
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
    "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided", "sym_size", "sym_numel", "sym_stride",
}  # fmt: skip
NEVER = {"isnan", "isinf", "isposinf", "isneginf", "isfinite", "equal", "allclose"}
"""Checks that finite scores pass, and those that return a Python bool; their answer is frozen."""
# The shape of their results may depend on the scores, and Python code can see it.
VARIABLE_SHAPE = {"nonzero", "masked_select", "_unique2", "unique_consecutive", "unique_dim", "index", "bincount"}
JUMPS = {
    "fmod", "remainder", "floor_divide", "frac", "nextafter", "scatter_reduce", "index_reduce", "max_pool2d",
    "max_pool1d", "adaptive_max_pool2d", "bernoulli", "quantize_per_tensor", "threshold", "renorm",
}  # fmt: skip
"""Float to float, but neither smooth nor handled."""


Handler = Callable[["Run", Any, tuple[Any, ...], dict[str, Any]], Any]
HANDLERS: dict[str, Handler] = {}
"""Operations that make something discrete out of scores, by name, each as questions and a choice by their answers;
registered by `elementwise` and `listwise`."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler."""

    def enter(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return enter


def name_of(func: Any) -> str:
    """The name of an operation, the same for its in-place version."""
    name: str = func._schema.name.split("::")[1]
    return name.rstrip("_") if not name.startswith("_") else name


def argument(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, default: Any = None) -> Any:
    """The argument of an operation by its name in the schema, or its default value there."""
    for place, one in enumerate(func._schema.arguments):
        if one.name == name:
            value = kwargs.get(name, args[place] if place < len(args) else one.default_value)
            return default if value is None else value
    return default


class Run(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """One execution of a metric.

    Args:
        scores: the real scores, of any shape, in a storage of their own.
        decider: answers the questions.
        aside: a context for asking, which is not part of the metric.
    """

    def __init__(
        self, scores: Tensor, decider: Decider, aside: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.decider, self._aside = decider, aside
        self.m = scores.numel()
        self.shadows = Shadows()
        domain = domain_of(scores)
        values = witness(scores, domain)
        self.images = Images(values, domain.low, domain.high)
        self.shadows.put(scores, values)
        self.guards = 0
        """Decisions that reached Python as a bool."""
        self.used = 0
        """Decisions that reached Python as a number or as a shape."""
        self.fresh = 0
        self.before = 0
        """Decisions made by the current operation, and earlier ones that it depends on."""
        self.paused = False
        self.made: dict[int, Location] = {}
        """Where small tensors that depend on scores were made."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation."""
        kwargs = kwargs or {}
        name = name_of(func)
        if self.paused or name in SHAPE_ONLY:
            return func(*args, **kwargs)
        tensors = list(tensors_in((args, kwargs)))
        origins = reduce(or_, map(self.shadows.origins, tensors), 0)
        if name == "_local_scalar_dense":
            return self._to_python(func, args[0], origins)
        if any(map(self.shadows.carries, tensors)):
            self.fresh, self.before = 0, origins
            out = self._on_scores(func, name, args, kwargs)
            origins |= self.fresh
        else:
            out = func(*args, **kwargs)
        if name in VARIABLE_SHAPE:
            self.used |= origins
        for tensor in tensors_in(out):
            self.shadows.add_origins(tensor, origins)
        return out

    def _on_scores(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in NEVER:
            return func(*args, **kwargs)
        if name in HANDLERS:
            out = HANDLERS[name](self, func, args, kwargs)
            if out is not NotImplemented:
                return self._written(args[0], out) if func._schema.name.endswith("_") else out
        if name in JUMPS or kwargs.get("rounding_mode"):
            self.refuse(func, "jumps, and has no rule")
        return self.smooth(func, name, args, kwargs)

    def smooth(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation on the real values and on the witness values."""
        if name == "view" and func._overloadname == "dtype":
            self.leak(".view(dtype)")
        written = written_by(func, args)
        for tensor in written:
            if tensor.is_floating_point():
                self.shadows.ensure(tensor)
        shadow_args, shadow_kwargs = map_leaves(self._shadow, args), map_leaves(self._shadow, kwargs)
        before = [storage_key(tensor) for tensor in tensors_in((args, kwargs))]
        out = func(*args, **kwargs)
        fresh = [t for t in tensors_in(out) if storage_key(t) not in before]
        if any(not t.is_floating_point() for t in (*fresh, *written)):
            self.refuse(func, "makes something discrete, and has no rule")
            for tensor in fresh:
                if tensor.is_floating_point():
                    self.shadows.put(tensor, tensor.to(torch.float64))
            return out
        if not fresh and not written:
            return out
        try:
            shadow = func(*shadow_args, **shadow_kwargs)
        except Exception as error:
            raise DirectLossError(f"{func} at {here()} could not be traced: {error}") from error
        for tensor, value in zip(tensors_in(out), tensors_in(shadow), strict=True):
            if storage_key(tensor) not in before:
                self.shadows.put(tensor, value)
                if tensor.numel() <= 16:
                    self.made[storage_key(tensor)] = here()
        if not written:
            monotone.note(self.images, self.shadows, name, args, kwargs, out)
        return out

    def _shadow(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.shadows.of(value) if value.is_floating_point() else value
        return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value

    def _written(self, into: Tensor, out: Tensor) -> Tensor:
        """The result of an in-place operation."""
        if self.shadows.carries(out) and into.is_floating_point():
            self.shadows.ensure(into)
        if self.shadows.carries(into):
            self.shadows.of(into).copy_(self.shadows.of(out))
        return into.copy_(out)

    def _to_python(self, func: Any, tensor: Tensor, origins: int) -> Any:
        if self.shadows.carries(tensor) and not self.constant(tensor):
            self.leak(".item()")
        if tensor.dtype == torch.bool:
            self.guards |= origins
        else:
            self.used |= origins
        return func(tensor)

    def leak(self, how: str) -> None:
        """Raise an error: a score leaves torch, where it cannot be traced."""
        raise DirectLossError(
            f"metric must keep scores in tensors, but {here()} takes their values out with {how}. Compare tensors with "
            "each other, and convert only the result."
        )

    def refuse(self, func: Any, why: str) -> None:
        """Note an operation without a rule; recording fails if the result depends on it."""
        self.fresh |= self.decider.begin(here(), name_of(func), f"{name_of(func)} {why}")

    def constant(self, tensor: Tensor) -> bool:
        """Whether a tensor holds the same values for the real and the witness scores."""
        before, self.paused = self.paused, True
        real, shadow = tensor.detach().to(torch.float64), self.shadows.of(tensor)
        same = torch.allclose(real, shadow, rtol=1e-6, atol=1e-12, equal_nan=True)
        self.paused = before
        return same

    def begin(self, name: str) -> None:
        """Begin a decision."""
        self.fresh |= self.decider.begin(here(), name, chosen=bool(self.before))

    def operand(self, value: Any, other: Any = None) -> Operand:
        """One side of a comparison, in the type in which it is compared."""
        if not isinstance(value, Tensor):
            kind = other.dtype if isinstance(other, Tensor) and other.is_floating_point() else torch.float64
            value = torch.tensor(value, dtype=kind, device=other.device if isinstance(other, Tensor) else None)
        elif not self.shadows.carries(value):
            value = value.to(torch.result_type(value, other))
        return Operand(value, self.shadows.of(value))

    def signs(self, x: Any, y: Any) -> Tensor:
        """The answers to ``sign(x - y)``, int8, broadcast."""
        a, b = self.operand(x, y), self.operand(y, x)
        shape: torch.Size = torch.broadcast_shapes(a.real.shape, b.real.shape)  # type: ignore[no-untyped-call]
        if shape.numel() > CELLS:
            raise DirectLossError(
                f"metric must compare at most {CELLS:,} pairs at once, but {here()} compares {shape.numel():,}. Use "
                "fewer scores, or a task of directloss.tasks."
            )
        if shape.numel() == 0:
            return torch.zeros(shape, dtype=torch.int8, device=a.real.device)
        return self._answers(a, b).reshape(shape)

    def _answers(self, x: Operand, y: Operand) -> Tensor:
        with self._aside():
            asked = ask(self.images, x, y, self.m)
        return self.decider.answer(asked, x.real, y.real)

    def ranked(self, x: Tensor, dim: int) -> Tensor:
        """Numbers in the answered order of ``x`` along ``dim``, for operations that depend only on order."""
        if x.dim() == 0 or x.numel() == 0:
            return x
        rows = x.movedim(dim, -1)
        real, dark = rows.detach(), self.shadows.of(x).movedim(dim, -1)
        n = rows.shape[-1]
        if rows.numel() * n > CELLS:
            raise DirectLossError(
                f"metric must sort at most {int(CELLS**0.5):,} scores at once, but {here()} sorts lists of {n:,}. It "
                'costs their square: use fewer scores, directloss.DirectLoss, or the name "ap" for average precision.'
            )
        answers = self._answers(*(Operand(real.unsqueeze(side), dark.unsqueeze(side)) for side in (-1, -2)))
        if not self.decider.replays:
            return x
        wins = (answers.reshape(*rows.shape, n) > 0).sum(-1)
        return wins.to(x.dtype).movedim(-1, dim).contiguous()

    def chosen(self, out: Tensor, shadow: Tensor) -> Tensor:
        """A new tensor of values picked by decisions, with its shadow."""
        self.shadows.put(out, shadow)
        return out


class Watch(TorchFunctionMode):
    """Sees what is not a tensor operation: the ways out of torch."""

    LEAKS = ("tolist", "numpy", "__array__", "data_ptr", "__dlpack__", "__array_interface__")

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run_ = run

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function, unless values of scores would leave torch."""
        name = getattr(func, "__name__", "")
        if name in self.LEAKS and args and isinstance(args[0], Tensor):
            if self.run_.shadows.carries(args[0]) and not self.run_.constant(args[0]):
                self.run_.leak(f".{name}()")
            self.run_.used |= self.run_.shadows.origins(args[0])
        return func(*args, **(kwargs or {}))
