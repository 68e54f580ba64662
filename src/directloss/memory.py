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


class ScoreMemory(nn.Module):
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
        super().__init__()
        self.size = check_count("size", size)
        self.check_values = check_values
        self._scores: Tensor | None = None
        self._target: Tensor | None = None

    @outside_graphs
    def forward(self, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the batch followed by the stored items, then store the batch."""
        scores = check_scores(scores, 1, "(n,) or (n, c)")
        target = check_same_shape(target, scores)
        if not self.training:
            return scores, target
        if self.check_values:
            check_finite(scores)
        old_scores, old_target = self._recalled(scores, target)
        joined = torch.cat((with_gradient_times(scores, 1 + len(old_scores) / len(scores)), old_scores))
        labels = torch.cat((target, old_target))
        self._scores, self._target = joined[: self.size].detach().clone(), labels[: self.size].clone()
        return joined, labels

    def clear(self) -> None:
        """Forget everything, for example when the data changes."""
        self._scores = self._target = None

    def __len__(self) -> int:
        return 0 if self._scores is None else len(self._scores)

    def __bool__(self) -> bool:
        return True  # like any module, also while empty: `if memory:` asks whether there is one

    def _recalled(self, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The stored items, on the device of the batch; labels in their own dtype, which that of the batch may lack."""
        if self._scores is None or self._target is None:
            return scores[:0].detach(), target[:0]
        if self._scores.shape[1:] != scores.shape[1:]:
            fail(
                "scores",
                f"must have the shape ({', '.join(['n', *map(str, self._scores.shape[1:])])}) of earlier batches",
                f"of shape {tuple(scores.shape)}",
                "Use one memory per kind of scores, or clear() it.",
            )
        return self._scores.to(scores), self._target.to(target.device)

    def get_extra_state(self) -> dict[str, Tensor | None]:
        """The stored items, for a ``state_dict``."""
        return {"scores": self._scores, "target": self._target}

    def set_extra_state(self, state: Any) -> None:
        """Restore the items from a ``state_dict``, the newest if there are more than ``size``."""
        kept = (state["scores"], state["target"])
        self._scores, self._target = (None if one is None else one[: self.size] for one in kept)

    def extra_repr(self) -> str:
        return f"{len(self)} of {self.size} items"
