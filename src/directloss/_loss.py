"""The base of all loss modules: checks settings at construction, gathers over processes, warns once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from directloss._checks import REDUCTIONS, DirectLossError, check_choice, check_epsilon, fail, remembering
from directloss._dynamo import outside_graphs, traced, transformed
from directloss._gradient import on_host
from directloss._problem import Dim, Problem
from directloss._registry import as_task
from directloss.distributed import Gather, Shards, check_gather, drawing_from, exchange, failing_together
from directloss.task import Task

NO_TRANSFORM = (
    "This loss runs compiled loops or a solver on the CPU, which torch.func's transforms cannot see. Use "
    "loss.backward() or torch.autograd.grad; or leave out epsilon and sign of a DirectLoss."
)


class LossModule(nn.Module):
    """A loss of scores and target. Invalid settings raise at construction; subclasses implement `loss`."""

    generator: torch.Generator | None = None
    """The source of random choices; None for the global generator."""

    @property
    def traceable(self) -> bool:
        """Whether the loss is tensor operations only, which a graph can hold."""
        return False

    def __init__(self, reduction: str, dim: Dim | None, check_values: bool, gather: Gather) -> None:
        super().__init__()
        self.reduction: str = check_choice("reduction", reduction, REDUCTIONS)
        self.dim = _check_dim(dim)
        self.check_values = check_values
        self.gather = check_gather(gather)
        self._told: set[str] = set()

    @abstractmethod
    def loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        """The loss of a batch on this process."""

    def joins_items(self, dims: int) -> bool:
        """Whether the first of ``dims`` dimensions of the scores holds items of one problem, not problems."""
        return 0 in self.places(dims)

    def places(self, dims: int) -> tuple[int, ...]:
        """Which of the ``dims`` dimensions of the scores make up one problem."""
        return tuple(range(dims))

    def forward(
        self, scores: Tensor, target: Tensor, mask: Tensor | None = None, weight: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch; with ``gather``, of the joined batch of all processes."""
        if self.gather is False and self.traceable and traced():
            return self.loss(scores, target, mask, weight)
        return self._eager_loss(scores, target, mask, weight)

    @outside_graphs
    def _eager_loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        with remembering(self._told):
            return (self.loss if self.gather is False else self._gathered_loss)(scores, target, mask, weight)

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

    def loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        return self.function(scores, target, self.task, mask=mask, weight=weight, **self.options())

    def options(self) -> dict[str, Any]:
        """The settings as keyword arguments of the function."""
        chosen = {"reduction": self.reduction, "dim": self.dim, "check_values": self.check_values}
        return chosen if self.epsilon is None else {**chosen, "epsilon": self.epsilon}

    def extra_repr(self) -> str:
        """The task, its epsilon and dimension if it has them, and the reduction."""
        epsilon = "" if self.epsilon is None else f"epsilon={self.epsilon!r}, "
        dim = "" if self.dim is None else f"dim={self.dim!r}, "
        return f"{self.task!r}, {epsilon}{dim}reduction={self.reduction!r}"

    def places(self, dims: int) -> tuple[int, ...]:
        return named_places(self.dim, self.task.event_dims, dims)

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


def hosted(estimator: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let an estimator run on the CPU, in eager mode: it gets the problem there, and the gradient comes back."""

    @outside_graphs
    @wraps(estimator)
    def there(problem: Problem, *more: Any) -> Tensor:
        if transformed():
            raise DirectLossError(NO_TRANSFORM)
        if problem.scores.is_cpu:
            return estimator(problem, *more)
        return on_host(lambda moved: estimator(moved, *more), problem)

    return there


def named_places(dim: Dim | None, event_dims: int, dims: int) -> tuple[int, ...]:
    """The dimensions named by ``dim``, ascending, out of ``dims``; the last ``event_dims`` if it is None."""
    if dim is None:
        return tuple(range(max(dims - event_dims, 0), dims))
    return tuple(sorted(place % dims for place in ([dim] if isinstance(dim, int) else dim)))


def _check_dim(dim: Any) -> Dim | None:
    named = [dim] if isinstance(dim, int) else dim
    if dim is not None and not (isinstance(named, Sequence) and named and all(type(place) is int for place in named)):
        fail("dim", "must be a dimension of scores or several of them, as whole numbers", repr(dim))
    return dim  # type: ignore[no-any-return]
