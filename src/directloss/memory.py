"""Scores of earlier batches, so that a small batch is ranked among many items.

The average precision of a minibatch is a biased estimate of that of the data set: with few items each rank counts
more, and a batch of 64 with 6 % positives has only four. Stored scores of the last few batches cost almost no memory
and no forward pass. The network has changed a little since then, but their order is nearly the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from directloss._checks import check_count, check_finite, check_same_shape, check_scores, fail
from directloss._dynamo import outside_graphs
from directloss._gradient import with_gradient_times

FORMER = {"items": "scores", "labels": "target"}
"""What the parts of a state were called in checkpoints of earlier versions."""


class RecentItems(nn.Module):
    """The newest ``size`` items of earlier batches, without gradients, and their labels; part of the ``state_dict``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self._stored: tuple[Tensor, Tensor] | None = None

    def joined(self, items: Tensor, labels: Tensor, argument: str) -> tuple[Tensor, Tensor]:
        """The batch followed by the stored items, and their labels in a dtype that holds both."""
        if self._stored is None:
            return items, labels
        earlier, names = self._stored
        if earlier.shape[1:] != items.shape[1:]:
            shape = ", ".join(["n", *map(str, earlier.shape[1:])])
            rule, hint = (
                f"must have the shape ({shape}) of earlier batches",
                "Use one memory per network, or clear() it.",
            )
            fail(argument, rule, f"of shape {tuple(items.shape)}", hint)
        return torch.cat((items, earlier.to(items))), torch.cat((labels, names.to(labels.device)))

    def store(self, items: Tensor, labels: Tensor) -> None:
        """Replace what is stored by the first ``size`` items."""
        self._stored = items[: self.size].detach().clone(), labels[: self.size].clone()

    def clear(self) -> None:
        """Forget everything, for example when the data changes."""
        self._stored = None

    def __len__(self) -> int:
        return 0 if self._stored is None else len(self._stored[0])

    def __bool__(self) -> bool:
        return True  # like any module, also while empty: `if memory:` asks whether there is one

    def get_extra_state(self) -> dict[str, Tensor]:
        """The stored items, for a ``state_dict``."""
        return {} if self._stored is None else {"items": self._stored[0], "labels": self._stored[1]}

    def set_extra_state(self, state: Any) -> None:
        """Restore the items from a ``state_dict``, the newest if there are more than ``size``."""
        self.clear()
        items, labels = (state.get(name, state.get(former)) for name, former in FORMER.items())
        if items is not None:
            self.store(items, labels)

    def extra_repr(self) -> str:
        return f"{len(self)} of {self.size} items"


class ScoreMemory(RecentItems):
    """Append detached scores and labels of recent batches to those of the current one.

    ``loss_fn(*memory(scores, target))`` ranks the current batch among up to ``size`` items of earlier batches. Use it
    with any loss that couples the items of a batch, such as rankings or F-beta.

    Only the current batch gets a gradient. A list of ``k`` times as many items gives each of them a ``k``-th of the
    gradient, so the gradient of the batch is multiplied by ``k``; the learning rate can stay the same.

    With several processes, call the memory first: ``DirectLoss("ap", gather=True)(*memory(scores, target))`` ranks
    among the memories of all processes.

    In evaluation mode it adds and stores nothing. The memory is part of the ``state_dict``, so training can resume from
    a checkpoint.

    Args:
        size: how many items to keep; the oldest are dropped first. More than 1,024 did not help in our study.
        check_values: whether to raise on NaN, which would stay in the memory; synchronises with a GPU.

    Shapes:
        Items in the first dimension: scores and target ``(n,)``, or ``(n, c)`` for several lists at once, as for
        ``DirectLoss("ap", dim=0)``. Independent lists, such as queries, need no memory.

    Examples:
        >>> from directloss import DirectLoss
        >>> memory, loss_fn = ScoreMemory(1000), DirectLoss("ap")
        >>> first = loss_fn(*memory(torch.tensor([0.3, 0.1]), torch.tensor([0, 1])))
        >>> scores, target = memory(torch.tensor([0.2]), torch.tensor([1]))
        >>> scores, target
        (tensor([0.2000, 0.3000, 0.1000]), tensor([1, 0, 1]))
        >>> memory
        ScoreMemory(3 of 1000 items)
    """

    def __init__(self, size: int = 1024, *, check_values: bool = True) -> None:
        super().__init__(check_count("size", size))
        self.check_values = check_values

    @outside_graphs
    def forward(self, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the batch followed by the stored items, then store the batch."""
        scores = check_scores(scores, 1, "(n,) or (n, c)")
        target = check_same_shape(target, scores)
        if not self.training:
            return scores, target
        if self.check_values:
            check_finite(scores)
        factor = 1 + len(self) / len(scores)
        joined, labels = self.joined(with_gradient_times(scores, factor), target, "scores")
        self.store(joined, labels)
        return joined, labels
