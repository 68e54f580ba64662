"""From what a user passes to what a task sees, and from one loss per problem back to one number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from directloss._checks import (
    IGNORE,
    REDUCTIONS,
    check_choice,
    check_epsilon,
    check_mask,
    check_scores,
    check_tensor,
    fail,
    warn_once,
)
from directloss.task import Task, as_task

Dim = int | Sequence[int]


@dataclass(frozen=True)
class Problem:
    """A batch of problems in canonical form: the dimensions of one problem last, padding labelled `IGNORE`."""

    task: Task
    scores: Tensor
    target: Tensor
    weight: Tensor | None
    """Weight of each problem, shape ``b``; None when all weigh one."""

    @property
    def batch_shape(self) -> torch.Size:
        """The shape ``b`` of the losses."""
        return self.scores.shape[: self.scores.dim() - self.task.event_dims]

    def epsilon(self, epsilon: object) -> float | Tensor:
        """The user's epsilon, or the task's own choice for ``"auto"``; a number, or a tensor of shape ``b``."""
        given = check_epsilon(epsilon)
        if given is None:
            return self.task.auto_epsilon(self.scores.detach(), self.target)
        if isinstance(given, Tensor):
            try:
                return given.to(self.scores.device).expand(self.batch_shape)
            except RuntimeError:
                fail("epsilon", f"must be a number or broadcast to {tuple(self.batch_shape)}", f"of shape {tuple(given.shape)}")
        return given

    def reduce(self, losses: Tensor, reduction: str) -> Tensor:
        """Mean, sum, or nothing, over the problems that count."""
        weight = self.weight
        if reduction == "none":
            return losses if weight is None else losses * weight
        if weight is None:
            return losses.mean() if reduction == "mean" else losses.sum()
        total = (losses * weight).sum()
        # A batch in which nothing counts has the loss 0, not 0 / 0.
        mass = weight.sum()
        return total / torch.where(mass > 0, mass, torch.ones_like(mass)) if reduction == "mean" else total


def prepare(
    scores: Tensor,
    target: Tensor,
    task: object,
    *,
    reduction: str,
    mask: Tensor | None,
    dim: Dim | None,
    weight: Tensor | None,
    check_values: bool,
) -> Problem:
    """Check the arguments and bring them into canonical form. The order of steps is the same for every loss."""
    check_choice("reduction", reduction, REDUCTIONS)
    task = as_task(task)
    scores = check_scores(scores, task.event_dims, task.shape_words)
    target = check_tensor("target", target)
    if dim is not None:
        scores, target, mask = _events_last(task, scores, target, mask, dim)
    problem_mask = None
    if mask is not None:
        scores, target, mask = _blank_padding(task, scores, target, mask)
    task.check(scores, target, check_values)
    if mask is not None and task.target_dims == 0:
        problem_mask = mask
    elif mask is not None:
        target = torch.where(mask, target, IGNORE)
    return Problem(task, scores, target, _weights(task, scores, target, problem_mask, weight, check_values))


def _events_last(
    task: Task, scores: Tensor, target: Tensor, mask: Tensor | None, dim: Dim
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Move ``dim`` (one or several dimensions, which together hold the items of one problem) to the end."""
    if task.event_dims != 1:
        fail("dim", f"must be left out: one problem of this task has shape {task.shape_words}", dim)
    dims = [dim] if isinstance(dim, int) else list(dim)
    try:
        places = sorted(range(scores.dim())[d] for d in dims)
    except (IndexError, TypeError):
        fail("dim", f"must name dimensions of scores, which has {scores.dim()}", dim)
    if len(set(places)) != len(dims) or not dims:
        fail("dim", "must name each dimension once", dim)

    def last(tensor: Tensor) -> Tensor:
        if tensor.dim() != scores.dim():
            fail("target or mask", f"must have {scores.dim()} dimensions like scores", f"of shape {tuple(tensor.shape)}")
        return tensor.movedim(places, list(range(-len(places), 0))).flatten(-len(places))

    if task.target_dims == 0:  # one label per problem: only the scores have the dimension
        return last(scores), target, mask
    return last(scores), last(target), None if mask is None else last(mask)


def _blank_padding(task: Task, scores: Tensor, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores and labels of padding set to zero, so that whatever stands there, NaN included, is neither checked nor leaks
    into a gradient. The mask has the shape of the target, or of the problems where each has a single label."""
    if not task.maskable:
        fail("mask", f"must be left out: parts of {task!r} cannot be padding", "given", "Leave out problems with weight=0.")
    if task.target_dims == 0:
        mask = check_mask(mask, scores.shape[: scores.dim() - task.event_dims], "the problems")
    else:
        mask = check_mask(mask, target.shape, "target")
    if target.dtype in (torch.bool, torch.uint8):  # types that cannot hold the label of padding
        target = target.to(torch.int8)
    shown = mask.reshape(mask.shape + (1,) * (scores.dim() - mask.dim()))
    return torch.where(shown, scores, 0.0), torch.where(mask, target, torch.zeros_like(target)), mask


def _weights(
    task: Task, scores: Tensor, target: Tensor, problem_mask: Tensor | None, weight: Tensor | None, check_values: bool
) -> Tensor | None:
    """Weights of the problems: the user's, times zero for those that are padding or have no loss."""
    batch_shape = scores.shape[: scores.dim() - task.event_dims]
    kind = torch.promote_types(scores.dtype, torch.float32)
    counted = task.counted(target)
    if counted is not None and check_values:
        missing = counted.numel() - int(counted.sum())
        if missing == 0:
            counted = None
        else:
            warn_once(
                f"uncounted {task!r}",
                f"{missing} of {counted.numel()} problems have no loss under {task!r} (for a ranking: no relevant or no "
                "irrelevant item). They count as loss 0 with gradient 0, and not in the mean. This is said once.",
            )
    total: Tensor | None = None
    for part in (problem_mask, counted):
        if part is not None:
            total = part.to(kind) if total is None else total * part
    if weight is None:
        return total
    weight = check_tensor("weight", weight).to(kind)
    if weight.shape != batch_shape:
        fail("weight", f"must hold one weight per problem, shape {tuple(batch_shape)}", f"of shape {tuple(weight.shape)}")
    if check_values and not bool((torch.isfinite(weight) & (weight >= 0)).all()):
        fail("weight", "must be finite and not negative", f"{weight.min().item()} at the least")
    return weight if total is None else weight * total
