"""Brings user arguments into the form that tasks see, and reduces losses per problem to one number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

import directloss.tasks  # noqa: F401  # registers its names: a graph that begins with one could not import them
from directloss._checks import (
    REDUCTIONS,
    UNSIGNED,
    blank,
    check_choice,
    check_mask,
    check_scores,
    check_tensor,
    check_weight,
    fail,
    hint_of_classes,
    precise,
    warn_once,
)
from directloss._registry import as_task
from directloss.task import PaddedTask, Task

Dim = int | Sequence[int]


class Problem(NamedTuple):
    """A batch of problems in canonical form: the dimensions of one problem last, scores and labels 0 in padding."""

    task: Task
    scores: Tensor
    target: Tensor
    weight: Tensor | None
    """Weight of each problem, shape ``b``; None if all are 1."""
    check_values: bool
    """Whether values still need to be checked."""
    shown: Tensor | None = None
    """Which problems are not padding and have a positive weight, shape ``b``; None for all."""
    mask: Tensor | None = None
    """True for real items, in the shape of the target; None if there is no padding."""
    given: torch.dtype | None = None
    """The dtype of the user's scores and of the gradient; None if it is that of ``scores``."""
    item_weight: Tensor | None = None
    """Weight of each item, in the shape of the target, float64; None if all are 1."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the gradient."""
        return self.scores.dtype if self.given is None else self.given

    @property
    def padding(self) -> dict[str, Tensor]:
        """The mask as an argument of the methods of a `PaddedTask`; nothing for others."""
        return {} if self.mask is None else {"mask": self.mask}

    @property
    def batch_shape(self) -> torch.Size:
        """The shape ``b`` of the losses."""
        return self.scores.shape[: self.scores.dim() - self.task.event_dims]

    def refuse_item_weight(self) -> None:
        """Raise if items have weights."""
        if self.item_weight is not None:
            fail(
                "weight",
                f"must hold one weight per problem of {self.task!r}, shape {tuple(self.batch_shape)}",
                f"one per item, of shape {tuple(self.item_weight.shape)}",
                f"Items cannot have weights here: {self.task.defaults.no_item_weights}.",
            )

    def check(self) -> None:
        """Run the task's checks of scores and target."""
        self.task.check(self.scores, self.target, self.check_values)

    def repeated(self, scores: Tensor) -> Problem:
        """The same problems for draws of perturbed scores ``(draws, *b, ...)``, whose values are not checked again.

        A target shared by all problems, as some user-defined losses have, is shared by the draws as well.
        """
        target, mask = self.target, self.mask
        if target.shape[: len(self.batch_shape)] == self.batch_shape:
            target = target.expand(scores.shape[0], *target.shape)
            mask = None if mask is None else mask.expand(target.shape)
        return self._replace(scores=scores, target=target, mask=mask, check_values=False, given=self.dtype)

    def check_one_each(self, values: Tensor, what: str) -> None:
        """Raise unless there is one number per problem."""
        if values.shape != self.batch_shape:
            shape = tuple(self.batch_shape)
            fail(what, f"must return one number per problem, shape {shape}", f"of shape {tuple(values.shape)}")

    def shares(self, reduction: str, counted: Tensor | None) -> tuple[float | Tensor, float | Tensor]:
        """How much each problem counts in the reduced loss, shape ``b``, or one number for all: among the problems that
        count, and among all of them.
        """
        own = every = self.weight
        if counted is not None:
            own = counted.to(result_type(self.scores)) if every is None else counted * every
        if reduction != "mean" or (every is None and not self.batch_shape):  # the mean of one problem is its loss
            return 1.0 if own is None else own, 1.0 if every is None else every
        count = math.prod(self.batch_shape)  # torch.export would fix the result of numel()
        return tuple(  # type: ignore[return-value]
            1 / count if one is None else one / one.sum().clamp(min=torch.finfo(one.dtype).tiny) for one in (own, every)
        )

    def warn_of_uncounted(self, counted: Tensor | None) -> None:
        """Warn once of problems that do not count."""
        warn_of_uncounted(counted, self.task, UNRANKED)

    def reduce(self, losses: Tensor, reduction: str, counted: Tensor | None, warn: bool = True) -> Tensor:
        """The mean or the sum over the problems that count, or the losses themselves; see `result_type`."""
        return reduce(losses.to(result_type(self.scores)), reduction, self.weight, counted, self.task, UNRANKED, warn)


def warn_of_uncounted(counted: Tensor | None, under: object, why: str) -> int:
    """Warn once of problems that do not count, and return their number, which costs a synchronisation."""
    missing = 0 if counted is None else counted.numel() - int(counted.sum())
    if counted is not None and missing:
        warn_once(
            f"uncounted {under!r}",
            f"{missing} of {counted.numel()} problems have no loss under {under!r} ({why}). They get loss 0, the "
            "metric gives them no gradient, and they are left out of the mean.",
        )
    return missing


UNRANKED = "for a ranking: no relevant or no irrelevant item that counts; for decisions: no item that counts"


def reduce(
    losses: Tensor, reduction: str, weight: Tensor | None, counted: Tensor | None, under: object, why: str,
    warn: bool = True,
) -> Tensor:  # fmt: skip
    """The mean or the sum over the problems that count, by weight, or the losses themselves; None for all alike.

    ``under`` and ``why`` go into the warning about problems that do not count, which costs a synchronisation.
    """
    if not warn and counted is not None and counted.dim() == 0 and weight is None:
        return losses  # 0 if the only problem does not count
    missing = warn_of_uncounted(counted, under, why) if warn else 0
    if counted is not None and (missing or not warn):
        weight = counted.to(losses.dtype) if weight is None else counted.to(losses.dtype) * weight
    if weight is None:
        if reduction == "none" or losses.dim() == 0:
            return losses
        return losses.mean() if reduction == "mean" else losses.sum()
    if reduction == "none":
        return losses * weight
    total = (losses * weight).sum()
    if reduction == "sum":
        return total
    # If nothing counts, the loss is 0, not 0 / 0.
    return total / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)


def result_type(scores: Tensor) -> torch.dtype:
    """The dtype of losses: that of the scores, or float32 for half precision."""
    return torch.promote_types(scores.dtype, torch.float32)


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
    """Bring the arguments into canonical form and check shapes; `Problem.check` does the rest."""
    if reduction not in REDUCTIONS:
        check_choice("reduction", reduction, REDUCTIONS)
    task = as_task(task).fitted(check_tensor("scores", scores), check_tensor("target", target))
    scores, target, mask, weight = arrange(task, task.event_dims, scores, target, mask, weight, dim)
    if target.is_complex():
        fail("target", "must hold real labels", target.dtype)
    if target.dtype in UNSIGNED:
        target = target.long()
    shown = item_weight = None
    batch_shape = scores.shape[: scores.dim() - task.event_dims]
    if mask is not None:
        mask = _check_padding(task, scores, target, mask)
    if weight is not None:
        weight = check_tensor("weight", weight)
        if weight.shape != batch_shape and weight.shape == target.shape:
            item_weight, weight = precise(weight.detach()), None
            if isinstance(task, PaddedTask):  # an item without weight is hidden altogether
                mask = item_weight.ne(0) if mask is None else mask & item_weight.ne(0)
                item_weight = torch.where(mask, item_weight, 0.0)
            check_weight(item_weight, item_weight.shape, "item", check_values)
        elif weight.shape != batch_shape and task.target_dims:
            one_each = f"one weight per problem, shape {tuple(batch_shape)}, or per item, shape {tuple(target.shape)}"
            fail("weight", f"must hold {one_each}", f"of shape {tuple(weight.shape)}")
        else:
            weight = check_weight(weight, batch_shape, "problem", check_values)
    if mask is not None and task.target_dims == 0:  # whole problems
        weight, mask = mask if weight is None else torch.where(mask, weight, 0), None
    if weight is not None:
        scores, weight, shown = weigh(scores, weight, task.event_dims)
        if task.target_dims == 0 and target.shape == shown.shape:
            target = torch.where(shown, target, torch.zeros_like(target))
    if mask is not None:
        scores, target = blank(scores, target, mask)
    return Problem(task, scores, target, weight, check_values, shown, mask, item_weight=item_weight)


class Form(Protocol):
    """The shape of one problem: all that `arrange` needs to know of a task or a metric."""

    target_dims: int
    shape_words: str


def arrange(
    form: Form,
    event_dims: int,
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    dim: Dim | None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """The tensors with the ``event_dims`` dimensions of one problem last, after checks of shapes."""
    scores = check_scores(scores, event_dims, form.shape_words)
    target = check_tensor("target", target)
    if target.requires_grad:
        target = target.detach()
    if dim is not None:
        if event_dims != 1:
            fail("dim", f"must be left out: one problem of {form!r} has shape {form.shape_words}", dim)
        scores, target, mask, weight = _events_last(form, scores, target, mask, weight, dim)
    if scores.shape[-1:] == (1,) and scores.numel() > 1 and event_dims == form.target_dims == 1:
        remedy = "scores and target, or pass dim=0" if target.shape == scores.shape else "scores"
        fail(
            "scores",
            f"must have more than one item in at least one problem of {form!r}",
            f"of shape {tuple(scores.shape)}, that is {scores.numel()} problems of one item each",
            f"For one problem of {scores.numel()} items squeeze(-1) {remedy}.",
        )
    return scores, target, mask, weight


def weigh(scores: Tensor, weight: Tensor, event_dims: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (0 in problems without weight, which hides them), weights, and which problems have one."""
    shown = weight > 0
    hidden = torch.where(shown.reshape(*shown.shape, *(1,) * event_dims), scores, 0.0)
    return hidden, weight.to(result_type(scores)), shown


def _events_last(
    form: Form, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, dim: Dim
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Move ``dim``, the one or several dimensions that hold the items of one problem, to the end."""
    try:
        dims = [dim] if isinstance(dim, int) else list(dim)
        places = sorted(range(scores.dim())[d] for d in dims)
    except (IndexError, TypeError):
        fail("dim", f"must name dimensions of scores, which has {scores.dim()}", dim)
    if len(set(places)) != len(dims) or not dims:
        fail("dim", "must name each dimension once", dim)

    def last(argument: str, tensor: Tensor) -> Tensor:
        tensor = check_tensor(argument, tensor)
        if tensor.dim() != scores.dim():
            rule = f"must have {scores.dim()} dimensions like scores"
            fail(argument, rule, f"of shape {tuple(tensor.shape)}", hint_of_classes(tensor, scores))
        return tensor.movedim(places, list(range(-len(places), 0))).flatten(-len(places)).contiguous()

    if form.target_dims == 0:  # one label per problem: only the scores have this dimension
        return last("scores", scores), target, mask, weight
    if weight is not None and check_tensor("weight", weight).dim() == scores.dim():  # one per item
        weight = last("weight", weight)
    return last("scores", scores), last("target", target), None if mask is None else last("mask", mask), weight


def _check_padding(task: Task, scores: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """A mask in the shape of the target, or of the problems if each has a single label."""
    batch_shape = scores.shape[: scores.dim() - task.event_dims]
    if task.target_dims == 0:
        return check_mask(mask, batch_shape, "the problems")
    if not isinstance(task, PaddedTask):
        hint = "Leave out whole problems with weight=0." if batch_shape else "Let the task leave them out."
        fail("mask", f"must be left out: parts of {task!r} cannot be padding", "given", hint)
    return check_mask(mask, target.shape, "target")
