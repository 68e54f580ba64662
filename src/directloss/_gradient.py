"""Attaches known gradients to known values: the only place that hands results to autograd.

A loss computes its value (the task loss) and its gradient (two inferences) separately. This module combines them: in
eager mode (`attach`, `with_value`) and, inside the graphs of ``torch.compile`` and the transforms of
``torch.func``, as the operator ``directloss::loss`` (`through_operator`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch._C import _functorch

from directloss._checks import DirectLossError, fail

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def attach(value: Tensor | float, scores: Tensor, slope: Tensor) -> Tensor:
    """Losses ``value`` of shape ``b`` whose gradient with respect to ``scores`` is ``slope``."""
    lead = value.dim() if isinstance(value, Tensor) else 0
    return with_value(carrier(scores, slope, tuple(range(lead, scores.dim()))), value)


def carrier(scores: Tensor, slope: Tensor, inside: tuple[int, ...]) -> Tensor:
    """Sums over the dimensions ``inside`` with gradient ``slope``, in its dtype; their own value is meaningless."""
    if slope.dtype != scores.dtype:
        slope = fitting(slope, scores.dtype)
        scores = scores.to(slope.dtype)  # back to half precision only at the end of the backward pass
    if scores.dim() == 1 and inside:
        return torch.dot(scores, slope)
    product = scores * slope
    return product.sum(inside) if inside else product


def fitting(slope: Tensor, kind: torch.dtype) -> Tensor:
    """A slope clamped to the range of scores of dtype ``kind``.

    The result of the backward pass is not clamped: a scaled loss may overflow, which ``GradScaler`` relies on.
    """
    if slope.dtype == kind:
        return slope
    most = largest_slope(kind)
    return slope.clamp(-most, most)


@lru_cache
def largest_slope(kind: torch.dtype) -> float:
    """The largest gradient for scores of dtype ``kind``: the largest number in half precision, otherwise less, to leave
    room for sums.
    """
    return torch.finfo(kind).max / (1 if kind.itemsize == 2 else 1024)


def with_value(carrier: Tensor, value: Tensor | float) -> Tensor:
    """Replace the value of ``carrier``, which may even be infinite, and keep its gradient.

    The value is written behind autograd's back, which is safe: the derivatives of sums and products do not use their
    results. An ``autograd.Function`` would do the same, but call Python in every backward pass.
    """
    if isinstance(value, Tensor):
        carrier.detach().copy_(value)
    else:
        carrier.detach().fill_(value)
    return carrier


def with_gradient_times(values: Tensor, factor: float) -> Tensor:
    """The same values, with their gradient multiplied by ``factor``."""
    return with_value(values * factor, values)


# ---------------------------------------------------------------------- on the host


def on_host(
    loss: Callable[..., Tensor], scores: Tensor, others: Sequence[Tensor | None], inside: tuple[int, ...]
) -> Tensor:
    """``loss(scores, *others)`` computed on the CPU: all tensors are moved at once, value and gradient come back.

    ``inside`` are the dimensions of the scores that make up one problem.
    """
    needed = torch.is_grad_enabled() and scores.requires_grad
    leaf, *rest = fetch([scores.detach(), *others])
    assert leaf is not None
    leaf = leaf.to(torch.promote_types(leaf.dtype, torch.float32)).requires_grad_(needed)
    value = loss(leaf, *rest)
    if not needed:
        return value.to(scores.device, non_blocking=True)
    (slope,) = torch.autograd.grad(value.sum(), leaf)
    value, slope = (part.detach().to(scores.device, non_blocking=True) for part in (value, slope))
    return with_value(carrier(scores, slope, inside if value.dim() else tuple(range(scores.dim()))), value)


def fetch(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The tensors on the CPU, with a single synchronisation."""
    copies = [None if one is None else one.to("cpu", non_blocking=True) for one in tensors]  # into pinned memory
    for device in {one.device for one in tensors if one is not None and one.device.type != "cpu"}:
        wait_for(device)
    return copies


def wait_for(device: torch.device) -> None:
    """Block until the device has finished its queued work."""
    module = torch.get_device_module(device)
    if hasattr(module, "current_stream"):
        module.current_stream().synchronize()
    else:
        module.synchronize()


# ---------------------------------------------------------------------- no second derivatives

NO_SECOND = (
    "UniLoss has first derivatives only: its anchors are held fixed, so a second derivative would ignore how they "
    "move. Leave out create_graph=True, or take second derivatives only of the rest of your loss."
)


def attach_first(value: Tensor | float, scores: Tensor, slope: Tensor) -> Tensor:
    """Like `attach`; differentiating the gradient raises `DirectLossError`."""
    return _first_order(attach(value, scores, slope), scores)


def first_only(scores: Tensor) -> Tensor:
    """The same scores; differentiating their gradient raises `DirectLossError`."""
    return _first_order(scores.view_as(scores), scores)


def _first_order(result: Tensor, scores: Tensor) -> Tensor:
    """A function of the scores whose gradient refuses to be differentiated."""

    def refuse(upstream: tuple[Tensor, ...]) -> tuple[Tensor] | None:
        # Without create_graph nothing can differentiate the gradient; None leaves it unchanged.
        if not torch.is_grad_enabled():
            return None
        return (_Refused.apply(upstream[0].detach(), scores),)  # type: ignore[no-untyped-call]

    assert result.grad_fn is not None
    result.grad_fn.register_prehook(refuse)
    return result


class _Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, scores: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> NoReturn:
        raise DirectLossError(NO_SECOND)


def refuse_second_of(scores: object) -> None:
    """Raise `DirectLossError` inside two nested transforms of ``torch.func``."""
    levels = 0
    while isinstance(scores, Tensor) and _functorch.is_gradtrackingtensor(scores):
        scores, levels = _functorch.get_unwrapped(scores), levels + 1
    if levels > 1:
        raise DirectLossError(NO_SECOND)


# ---------------------------------------------------------------------- graphs and transforms


class Operable(Protocol):
    """The interface of a loss module that the operator uses."""

    key: str
    """The key that `enroll` returned."""
    reduction: str

    def plain_loss(
        self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, **changed: Any
    ) -> Tensor:
        """The loss of ordinary tensors, with some settings changed."""

    def places(self, dims: int) -> tuple[int, ...]:
        """Which of the ``dims`` dimensions of the scores make up one problem."""

    def learned(self) -> dict[str, Tensor]:
        """Tensors of the task that also receive gradients, by attribute path."""


_numbers = itertools.count()
_operable: WeakValueDictionary[str, Operable] = WeakValueDictionary()
_kept: dict[tuple[Any, ...], Operable] = {}
CONSTANTS = (str, int, float, tuple, list, type(None))
"""Settings that are compared by their repr; others, such as tasks, are compared by identity."""


def enroll(module: Operable) -> str:
    """Register a module and return its key: a graph can hold strings, but not modules."""
    key = f"{type(module).__name__} {next(_numbers)}"
    _operable[key] = module
    return key


def traced() -> bool:
    """Whether ``torch.compile`` or ``torch.export`` traces this call, or ``torch.func`` transforms it."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def _constant(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Like ``torch._dynamo.assume_constant_result``, which is slow to import: graphs store the result."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@_constant
def keep(make: Callable[..., Any], *settings: Any, **options: Any) -> str:
    """The key of ``make(*settings, **options)``, which is built once and kept for the graphs that call it."""
    values = (*settings, *options.values())
    named = (make, *options, *(repr(one) if isinstance(one, CONSTANTS) else id(one) for one in values))
    if named not in _kept:
        _kept[named] = make(*settings, **options)
    return _kept[named].key


@_constant
def _places(key: str, dims: int) -> tuple[int, ...]:
    return _operable[key].places(dims)


@_constant
def learned_paths(key: str) -> tuple[str, ...]:
    """The paths of a task's tensors that receive gradients."""
    return tuple(_operable[key].learned())


def reach(owner: Any, path: str) -> Tensor:
    """The tensor at an attribute path."""
    for name in path.split("."):
        owner = getattr(owner, name)
    tensor: Tensor = owner
    return tensor


def through_operator(
    key: str,
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    parts: list[Tensor],
    epsilon: Tensor | None = None,
) -> Tensor:
    """The loss of a module inside a graph or a transform. Graphs skip the checks of values.

    ``parts`` are the tensors at `learned_paths`; ``epsilon`` replaces that of the module.
    """
    transformed, compiling = torch._C._are_functorch_transforms_active(), torch.compiler.is_compiling()
    if weight is not None and weight.requires_grad:
        fail("weight", "must not require gradients inside graphs and transforms", "one that does", "Detach it.")
    needed = torch.is_grad_enabled() and (transformed or scores.requires_grad or any(p.requires_grad for p in parts))
    value: Tensor
    if not transformed:
        value, _, _ = loss_operator(scores, target, mask, weight, epsilon, parts, key, needed, not compiling)
        return value
    # A transform cannot differentiate the operator, but it can differentiate slope * (scores - fixed): the value is 0
    # and the derivative is the slope. Where the slope is 0 the scores may be anything, such as padding.
    fixed = scores.detach()
    value, slope, _ = loss_operator(fixed, target, mask, weight, epsilon, parts, key, needed, not compiling)
    if not needed:
        return value
    moved: Tensor = slope * torch.where(slope != 0, scores - fixed, 0.0)
    if value.dim() == 0:
        return value + moved.sum()
    inside = _places(key, scores.dim())
    return value + (moved.sum(inside) if inside else moved)


@torch.library.custom_op("directloss::loss", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def loss_operator(
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    epsilon: Tensor | None,
    parts: list[Tensor],
    key: str,
    gradient: bool,
    check_values: bool,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Value of the loss module ``key``, and its gradients with respect to the scores and the parts.

    Gradients are float32 or wider, and empty unless ``gradient`` is True.
    """
    module = _found(key)
    changed: dict[str, Any] = {} if check_values else {"check_values": False}
    if epsilon is not None:
        changed["epsilon"] = epsilon
    leaf = scores.detach().to(torch.promote_types(scores.dtype, torch.float32))
    if not gradient:
        with torch.no_grad():
            value = module.plain_loss(leaf, target, mask, weight, **changed)
        return value.clone(), leaf.new_empty(0), [part.new_empty(0) for part in parts]
    # Operators run below autograd, so switch it on, for the leaf only.
    with torch._C._PreserveDispatchKeyGuard(), torch.enable_grad():
        torch._C._dispatch_tls_set_dispatch_key_excluded(torch._C.DispatchKey.AutogradFunctionality, False)
        leaf = leaf.detach().requires_grad_()
        value = module.plain_loss(leaf, target, mask, weight, **changed)
        wanted = [leaf, *module.learned().values()]
        slope, *slopes = torch.autograd.grad(value.sum(), wanted, allow_unused=True, materialize_grads=True)
    slope = fitting(slope, scores.dtype)
    return value.detach().clone(), slope.contiguous(), [one.contiguous() for one in slopes]


def _found(key: str) -> Operable:
    if key not in _operable:
        raise DirectLossError(
            f"The loss {key!r} of this graph no longer exists in this process. Keep the loss module as long as the "
            "graph; a graph loaded from a file only works in the process that exported it."
        )
    return _operable[key]


@loss_operator.register_fake
def _(
    scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, epsilon: Tensor | None,
    parts: list[Tensor], key: str, gradient: bool, check_values: bool,
) -> tuple[Tensor, Tensor, list[Tensor]]:  # fmt: skip
    module, kind = _found(key), torch.promote_types(scores.dtype, torch.float32)
    shape: list[int] = []
    if module.reduction == "none":
        inside = module.places(scores.dim())
        shape = [size for place, size in enumerate(scores.shape) if place not in inside]
    value = scores.new_empty(shape, dtype=kind)
    if not gradient:
        return value, scores.new_empty(0, dtype=kind), [part.new_empty(0) for part in parts]
    return value, scores.new_empty(scores.shape, dtype=kind), [part.new_empty(part.shape) for part in parts]


def _keep_slopes(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, list[Tensor]]) -> None:
    scores, key, (value, slope, slopes) = inputs[0], inputs[6], output
    ctx.save_for_backward(slope, *slopes)
    ctx.kind, ctx.kinds = scores.dtype, [part.dtype for part in inputs[5]]
    ctx.inside = _found(key).places(scores.dim()) if value.dim() else ()


def _from_slopes(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Any, ...]:
    """A score belongs to one problem, but parts belong to all, so they only have a gradient of the reduced loss."""
    slope, *slopes = ctx.saved_tensors
    wide = upstream
    for place in ctx.inside:
        wide = wide.unsqueeze(place)
    if slopes and upstream.dim():
        rule = 'must be "mean" or "sum" inside graphs for a task with learned tensors'
        fail("reduction", rule, "none", "Or take the gradient outside of torch.compile.")
    found = [(upstream * one).to(kind) for one, kind in zip(slopes, ctx.kinds, strict=True)]
    return (wide * slope).to(ctx.kind), None, None, None, None, found, None, None, None


loss_operator.register_autograd(_from_slopes, setup_context=_keep_slopes)


@loss_operator.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
    """Loops over the batch; leading dimensions with reduction="none" are faster."""
    parts = inputs[5]
    if any(place is not None for place in in_dims[5]):
        fail("task", "must hold ordinary tensors", "one that is mapped over by torch.vmap")

    def problem(index: int) -> list[Any]:
        return [
            value.select(place, index) if isinstance(place, int) and isinstance(value, Tensor) else value
            for value, place in zip(inputs, in_dims, strict=True)
        ]

    values, slopes, of_parts = zip(*(loss_operator(*problem(index)) for index in range(info.batch_size)), strict=True)
    stacked = [torch.stack(some) for some in zip(*of_parts, strict=True)] if parts else []
    return (torch.stack(values), torch.stack(slopes), stacked), (0, 0, [0] * len(stacked))


def refuse_wrapped(task: object) -> None:
    """Raise if a transform differentiates a task's own tensors: it would get a wrong gradient of zero."""
    for name, part in getattr(task, "__dict__", {}).items():
        if isinstance(part, Tensor) and _functorch.is_functorch_wrapped_tensor(part):
            fail(
                "task",
                "must hold ordinary tensors inside torch.func's transforms, which only differentiate the scores",
                f"{task!r} whose {name!r} is being differentiated",
                "Use loss.backward() or torch.autograd.grad for the tensors of a task.",
            )
