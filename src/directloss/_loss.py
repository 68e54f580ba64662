"""The skeleton of all loss modules: settings checked when built, the batch of all processes, warnings, one loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from directloss._checks import REDUCTIONS, check_choice, check_epsilon, fail, remembering
from directloss._dynamo import outside_graphs
from directloss._problem import Dim
from directloss._registry import as_task
from directloss.distributed import Gather, Shards, check_gather, drawing_from, exchange, failing_together
from directloss.task import Task


class LossModule(nn.Module):
    """A loss of scores and target. Fails when built, not when called; subclasses write `loss`."""

    generator: torch.Generator | None = None
    """Where random choices come from; None for the global generator."""

    def __init__(self, reduction: str, dim: Dim | None, check_values: bool, gather: Gather) -> None:
        super().__init__()
        self.reduction: str = check_choice("reduction", reduction, REDUCTIONS)
        self.dim = _check_dim(dim)
        self.check_values = check_values
        self.gather = check_gather(gather)
        self._told: set[str] = set()

    @abstractmethod
    def loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        """The loss of a batch that lies on this process."""

    @abstractmethod
    def joins_items(self, dims: int) -> bool:
        """Whether the first of ``dims`` dimensions of the scores holds the items of one problem, not the problems."""

    @outside_graphs
    def forward(
        self, scores: Tensor, target: Tensor, mask: Tensor | None = None, weight: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch, with ``gather`` that of the batch of all processes."""
        with remembering(self._told):
            if self.gather is False:
                return self.loss(scores, target, mask, weight)
            return self._gathered_loss(scores, target, mask, weight)

    def _gathered_loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        parts = {"scores": scores, "target": target, "mask": mask, "weight": weight}
        source = self._source(scores)
        shards = exchange(parts, self.gather, source, repr(self))
        if shards is None:
            return self.loss(scores, target, mask, weight)
        with drawing_from(source, shards.first_draws), failing_together(self.gather):
            scores, target = shards.join("scores"), shards.join("target")
            joined = self.loss(scores, target, shards.join_some("mask"), self._joined_weight(shards, scores, target))
        return joined

    def _joined_weight(self, shards: Shards, scores: Tensor, target: Tensor) -> Tensor | None:
        """One weight per problem is shared by all processes if these divide the items of each problem."""
        inside, given = self.joins_items(scores.dim()), shards.parts["weight"]
        if given is None:
            return None
        shared = given[0].dim() == 0 or (inside and given[0].dim() < target.dim())
        return shards.common("weight") if shared else shards.join("weight")

    def _source(self, scores: Tensor) -> torch.Generator:
        """The generator that random choices come from."""
        if self.generator is not None:
            return self.generator
        device = getattr(scores, "device", None)  # whatever is wrong with the scores is found later
        if device is not None and device.type == "cuda":
            return torch.cuda.default_generators[device.index or 0]
        return torch.default_generator

    def __getstate__(self) -> dict[str, Any]:
        """Without the generator, which cannot be pickled: a copy of the loss draws from the global one."""
        return {**self.__dict__, "generator": None}


class TaskLoss(LossModule):
    """A loss of a task, with or without an epsilon."""

    epsilon: float | Tensor | str | None

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
        if isinstance(task, nn.Module):  # whose parameters, seen through a task of ours, would be hidden
            self.task_module = task
        if epsilon is not None:
            check_epsilon(epsilon)
        if isinstance(epsilon, Tensor):  # moves with the module and is saved with it
            self.register_buffer("epsilon", epsilon)
        else:
            self.epsilon = epsilon

    def options(self) -> dict[str, Any]:
        """The settings, as the functions take them."""
        chosen = {"reduction": self.reduction, "dim": self.dim, "check_values": self.check_values}
        return chosen if self.epsilon is None else {**chosen, "epsilon": self.epsilon}

    def joins_items(self, dims: int) -> bool:
        first = dims <= self.task.event_dims if self.dim is None else names_first(self.dim, dims)
        if first and (self.task.event_dims, self.task.target_dims) != (1, 1):
            fail(
                "scores",
                "must have a first dimension that numbers problems, along which the processes are joined",
                f"without one: a problem of {self.task!r} has shape {self.task.shape_words}",
                "Use scores.unsqueeze(0) and target.unsqueeze(0) for a single problem.",
            )
        return first


def names_first(dim: Dim, dims: int) -> bool:
    """Whether ``dim`` includes the first of so many dimensions."""
    return any(place in (0, -dims) for place in ([dim] if isinstance(dim, int) else dim))


def _check_dim(dim: Any) -> Dim | None:
    named = [dim] if isinstance(dim, int) else dim
    if dim is not None and not (isinstance(named, Sequence) and named and all(type(place) is int for place in named)):
        fail("dim", "must be a dimension of scores or several of them, as whole numbers", repr(dim))
    return dim  # type: ignore[no-any-return]
