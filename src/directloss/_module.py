"""What the loss modules share: their settings, checked when they are built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from directloss._checks import REDUCTIONS, check_choice, check_epsilon, fail
from directloss._problem import Dim
from directloss.distributed import Gather, check_gather, exchange
from directloss.task import Task, as_task


class LossModule(nn.Module):
    """A task and the options of its loss. Fails when built, not when called."""

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
        super().__init__()
        self.task = as_task(task)
        if isinstance(task, nn.Module):  # whose parameters, seen through a task of ours, would be hidden
            self.task_module = task
        self.reduction: str = check_choice("reduction", reduction, REDUCTIONS)
        self.dim = _check_dim(dim)
        self.check_values = check_values
        self.gather = check_gather(gather)
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

    def joined(
        self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """The batch of all processes; see `directloss.distributed`."""
        shards = exchange({"scores": scores, "target": target, "mask": mask, "weight": weight}, self.gather)
        if shards is None:
            return scores, target, mask, weight
        scores, target = shards.join("scores"), shards.join("target")
        inside = self._joins_items(scores.dim())
        if weight is not None:
            # One weight per problem belongs to all processes where these divide the items of each problem.
            shared = weight.dim() == 0 or (inside and weight.dim() < target.dim())
            weight = shards.common("weight") if shared else shards.join("weight")
        return scores, target, shards.join_some("mask"), weight

    def _joins_items(self, dims: int) -> bool:
        """Whether the first dimension holds the items of one problem, rather than one problem after the other."""
        if self.dim is not None:
            named = [self.dim] if isinstance(self.dim, int) else self.dim
            first = any(place in (0, -dims) for place in named)
        else:
            first = dims <= self.task.event_dims
        if first and (self.task.event_dims, self.task.target_dims) != (1, 1):
            fail(
                "scores",
                "must have a first dimension that numbers problems, along which the processes are joined",
                f"without one: a problem of {self.task!r} has shape {self.task.shape_words}",
                "Use scores.unsqueeze(0) and target.unsqueeze(0) for a single problem.",
            )
        return first


def _check_dim(dim: Any) -> Dim | None:
    named = [dim] if isinstance(dim, int) else dim
    if dim is not None and not (isinstance(named, Sequence) and named and all(type(place) is int for place in named)):
        fail("dim", "must be a dimension of scores or several of them, as whole numbers", repr(dim))
    return dim  # type: ignore[no-any-return]
