"""The base of all loss modules: checks settings at construction, gathers over processes, warns once."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn

from directloss._checks import REDUCTIONS, check_choice, check_epsilon, check_sign, fail, remembering
from directloss._dynamo import outside_graphs
from directloss._gradient import enroll, keep, learned_paths, on_host, reach, refuse_wrapped, through_operator, traced
from directloss._problem import Dim
from directloss._registry import as_task
from directloss.distributed import Gather, Shards, check_gather, drawing_from, exchange, failing_together
from directloss.kernels import use, way, works_here
from directloss.task import Task


class LossModule(nn.Module):
    """A loss of scores and target. Invalid settings raise at construction; subclasses implement `loss`."""

    generator: torch.Generator | None = None
    """The source of random choices; None for the global generator."""

    def __init__(self, reduction: str, dim: Dim | None, check_values: bool, gather: Gather) -> None:
        super().__init__()
        self.reduction: str = check_choice("reduction", reduction, REDUCTIONS)
        self.dim = _check_dim(dim)
        self.check_values = check_values
        self.gather = check_gather(gather)
        self._told: set[str] = set()
        self.key = enroll(self)

    @abstractmethod
    def loss(
        self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, **changed: Any
    ) -> Tensor:
        """The loss of a batch on this process, with some settings changed."""

    def joins_items(self, dims: int) -> bool:
        """Whether the first of ``dims`` dimensions of the scores holds items of one problem, not problems."""
        return 0 in self.places(dims)

    def places(self, dims: int) -> tuple[int, ...]:
        """Which of the ``dims`` dimensions of the scores make up one problem."""
        return tuple(range(dims))

    def learned(self) -> dict[str, Tensor]:
        """Tensors of the task that also receive gradients, by attribute path."""
        return {}

    def forward(
        self, scores: Tensor, target: Tensor, mask: Tensor | None = None, weight: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch; with ``gather``, of the joined batch of all processes."""
        if self.gather is False and traced() and are_tensors(scores, target, mask, weight):
            return self._traced_loss(scores, target, mask, weight)
        return self._eager_loss(scores, target, mask, weight)

    def _traced_loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        return through_operator(self.key, scores, target, mask, weight, [])

    @outside_graphs
    def _eager_loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        with remembering(self._told):
            return (self.loss if self.gather is False else self._gathered_loss)(scores, target, mask, weight)

    def plain_loss(
        self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, **changed: Any
    ) -> Tensor:
        """`loss`, without repeating warnings."""
        with remembering(self._told):
            return self.loss(scores, target, mask, weight, **changed)

    def _gathered_loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        parts = {"scores": scores, "target": target, "mask": mask, "weight": weight}
        source = self._source(scores)
        shards = exchange(parts, self.gather, source, repr(self))
        if shards is None:
            return self.loss(scores, target, mask, weight)
        with drawing_from(source, shards.first_draws), failing_together(self.gather):
            scores, target = shards.join("scores"), shards.join("target")
            joined = self.loss(scores, target, shards.join("mask"), self._joined_weight(shards, scores, target))
        return joined

    def _joined_weight(self, shards: Shards, scores: Tensor, target: Tensor) -> Tensor | None:
        """All processes share one weight per problem if the items of each problem are divided among them."""
        inside, given = self.joins_items(scores.dim()), shards.parts.get("weight")
        if given is None:
            return None
        shared = given[0].dim() == 0 or (inside and given[0].dim() < target.dim())
        return shards.common("weight") if shared else shards.join("weight")

    def _source(self, scores: Tensor) -> torch.Generator:
        """The generator of random choices."""
        if self.generator is not None:
            return self.generator
        device = getattr(scores, "device", None)  # wrong scores are reported later
        if device is not None and device.type == "cuda":
            return torch.cuda.default_generators[device.index or 0]
        return torch.default_generator

    def __getstate__(self) -> dict[str, Any]:
        """Without the generator, which cannot be pickled: a copy uses the global one."""
        return {**self.__dict__, "generator": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.key = enroll(self)  # a copy is another module


class TaskLoss(LossModule):
    """A task loss, with or without an epsilon."""

    epsilon: float | Tensor | str | None
    function: Callable[..., Tensor]
    """The same loss as a function."""

    def __init__(
        self,
        task: str | Task | Any,
        reduction: str,
        dim: Dim | None,
        check_values: bool,
        epsilon: float | Tensor | str | None = None,
        gather: Gather = False,
    ) -> None:
        super().__init__(reduction, dim, check_values, gather)
        self.task = as_task(task)
        if isinstance(task, nn.Module):  # otherwise the wrapper would hide its parameters
            self.task_module = task
        if epsilon is not None:
            check_epsilon(epsilon)
        if isinstance(epsilon, Tensor):  # moved and saved with the module
            self.register_buffer("epsilon", epsilon)
        else:
            self.epsilon = epsilon

    def loss(
        self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, **changed: Any
    ) -> Tensor:
        return self.function(scores, target, self.task, mask=mask, weight=weight, **{**self.options(), **changed})

    def options(self) -> dict[str, Any]:
        """The settings as keyword arguments of the function."""
        chosen = {"reduction": self.reduction, "dim": self.dim, "check_values": self.check_values}
        return chosen if self.epsilon is None else {**chosen, "epsilon": self.epsilon}

    def extra_repr(self) -> str:
        """The task, its epsilon if it has one, and the reduction."""
        epsilon = "" if self.epsilon is None else f"epsilon={self.epsilon!r}, "
        return f"{self.task!r}, {epsilon}reduction={self.reduction!r}"

    def places(self, dims: int) -> tuple[int, ...]:
        return named_places(self.dim, self.task.event_dims, dims)

    def learned(self) -> dict[str, Tensor]:
        return dict(_learned(self.task))

    def _traced_loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        if not torch.compiler.is_compiling():
            refuse_wrapped(self.task)
        parts = [reach(self.task, path) for path in learned_paths(self.key)]
        return through_operator(self.key, scores, target, mask, weight, parts)

    def joins_items(self, dims: int) -> bool:
        first = super().joins_items(dims)
        if first and (self.task.event_dims, self.task.target_dims) != (1, 1):
            fail(
                "scores",
                "must have a first dimension of problems, along which the processes are joined",
                f"without one: a problem of {self.task!r} has shape {self.task.shape_words}",
                "Use scores.unsqueeze(0) and target.unsqueeze(0) for a single problem.",
            )
        return first


def traced_loss(
    kind: Any, task: Any, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None,
    epsilon: object = None, **options: Any,
) -> Tensor:  # fmt: skip
    """The result of a loss function inside graphs and transforms: that of a module of this kind with these options."""
    if epsilon is not None:
        options["epsilon"] = epsilon
    if not (torch.compiler.is_compiling() and are_tensors(scores, target, mask, weight)):
        result: Tensor = kind(task, **options)(scores, target, mask, weight)
        return result
    given = None
    if isinstance(epsilon, Tensor):  # numbers are settings of the module, tensors are inputs of the graph
        given, options["epsilon"] = epsilon, 1.0
    key = keep(kind, task, **options)
    own = isinstance(task, Task)
    parts = [reach(task, path if own else path.removeprefix("inner.")) for path in learned_paths(key)]
    return through_operator(key, scores, target, mask, weight, parts, given)


def hosted(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let a loss of ordinary tensors run on the CPU where `directloss.kernels.way` says so."""

    @wraps(loss)
    def either(scores: Tensor, target: Tensor, task: Any, **options: Any) -> Tensor:
        if not are_tensors(scores, target, None, None) or works_here(scores):
            return loss(scores, target, task, **options)
        task = as_task(task)
        inside = named_places(options["dim"], task.event_dims, scores.dim())
        advise = partial(_advised_way, task, scores, target, inside, options)
        if way(scores.device, advise) != "host" or advise() is None:
            return loss(scores, target, task, **options)
        moved = [name for name, value in options.items() if isinstance(value, Tensor)]
        seed = _seed(options.get("generator"), scores)

        def there(scores: Tensor, target: Tensor, seed: Tensor | None, *rest: Tensor) -> Tensor:
            changed: dict[str, Any] = dict(zip(moved, rest, strict=True))
            if seed is not None:
                changed["generator"] = torch.Generator().manual_seed(int(seed))
            with use("compiled"):
                return loss(scores, target, task, **{**options, **changed})

        return on_host(there, scores, [target, seed, *(options[name] for name in moved)], inside)

    return either


def _advised_way(task: Task, scores: Tensor, target: Tensor, inside: tuple[int, ...], options: Any) -> str | None:
    weight = options["weight"]
    if isinstance(weight, Tensor) and task.target_dims and weight.dim() == target.dim():
        return "host"  # weighted items
    advised = task.advised_way(
        math.prod(scores.shape[place] for place in inside), check_sign(options.get("sign", 1), task.advised_sign)
    )
    # Hinge and perceptron, which take no sign, have no dense form.
    return "host" if advised is not None and "sign" not in options else advised


def _seed(generator: torch.Generator | None, scores: Tensor) -> Tensor | None:
    """A seed for draws on the host, if the generator is on another device."""
    if generator is None or generator.device.type == "cpu":
        return None
    return torch.randint(2**62, (), generator=generator, device=scores.device)


def are_tensors(scores: object, target: object, mask: object, weight: object) -> bool:
    """Whether all arguments are tensors, or None where that is allowed."""
    given = isinstance(scores, Tensor) and isinstance(target, Tensor)
    return given and (mask is None or isinstance(mask, Tensor)) and (weight is None or isinstance(weight, Tensor))


def named_places(dim: Dim | None, event_dims: int, dims: int) -> tuple[int, ...]:
    """The dimensions named by ``dim``, ascending, out of ``dims``; the last ``event_dims`` if it is None."""
    if dim is None:
        return tuple(range(max(dims - event_dims, 0), dims))
    return tuple(sorted(place % dims for place in ([dim] if isinstance(dim, int) else dim)))


def _learned(task: Any) -> Iterator[tuple[str, Tensor]]:
    """Tensors of a task that require gradients: attributes, and parameters of modules."""
    if isinstance(task, nn.Module):
        yield from ((name, part) for name, part in task.named_parameters() if part.requires_grad)
    for name, part in getattr(task, "__dict__", {}).items():
        if isinstance(part, Tensor):
            if part.requires_grad:
                yield name, part
        elif isinstance(part, nn.Module) or name == "inner":
            yield from ((f"{name}.{path}", tensor) for path, tensor in _learned(part))


def _check_dim(dim: Any) -> Dim | None:
    named = [dim] if isinstance(dim, int) else dim
    if dim is not None and not (isinstance(named, Sequence) and named and all(type(place) is int for place in named)):
        fail("dim", "must be a dimension of scores or several of them, as whole numbers", repr(dim))
    return dim  # type: ignore[no-any-return]
