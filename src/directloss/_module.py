"""What the loss modules share: their settings, checked when they are built."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from directloss._checks import REDUCTIONS, check_choice, check_epsilon
from directloss._problem import Dim
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
    ) -> None:
        super().__init__()
        self.task = as_task(task)
        self.reduction: str = check_choice("reduction", reduction, REDUCTIONS)
        self.dim = dim
        self.check_values = check_values
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
