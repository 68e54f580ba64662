"""Macro, micro and other averages of a binary loss over several classes or labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from directloss._checks import UNSIGNED, check_choice, check_mask, check_scores, check_tensor, fail
from directloss._dynamo import traced
from directloss._loss import LossModule, TaskLoss
from directloss.direct import DirectLoss
from directloss.distributed import Gather
from directloss.task import Task
from directloss.tasks import ClassAverage, CountTask

AVERAGES = ("macro", "micro", "weighted", "samples", "samples_macro")
SHAPES = "scores (n, c, ...) take classes (n, ...), or a 0 or 1 for each score"


class AveragedLoss(LossModule):
    """A binary loss for each of several classes or labels, averaged as in scikit-learn.

    Scores have shape ``(n, c, ...)``: n samples, c classes or labels, then pixels if there are any. The target holds
    class indices, ``(n, ...)``, or 0 or 1 for each score, ``(n, c, ...)``. One score per pixel,
    ``(n, 1, h, w)``, takes masks ``(n, h, w)`` of 0 and 1.

    With class indices, the prediction is the class with the highest score, and the value is its metric. A class that
    is absent from the target is left out of ``"macro"``, and for that sample out of ``"samples_macro"``: its wrong
    pixels already count against the classes they belong to. With labels 0 and 1, each score above 0 is a yes, and
    every label counts.

    Args:
        task: name of a binary metric (``"f1"``, ``"iou"``, ``"dice"``, ``"mcc"``, ``"ap"`` ...), or a task.
        average: ``"macro"``, the mean over the classes, each over all samples and pixels; ``"weighted"``, the same
            with classes weighted by their frequency; ``"micro"``, all decisions of all classes together;
            ``"samples"``, the mean over the samples, each over all its decisions; ``"samples_macro"``, the mean over
            each class of each sample, such as the mean IoU of images.
        ignore_index: target value to ignore, such as 255.
        loss: `DirectLoss`, `HingeLoss` or `PerceptronLoss`.
        gather: True joins the samples of all processes; see `DirectLoss`.
        **options: other arguments of that loss, such as ``likelihood``.

    Examples:
        >>> scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 2.0, 0.0], [0.0, 1.0, 2.0]])
        >>> classes = torch.tensor([0, 1, 0, 2])
        >>> AveragedLoss("f1", average="macro")(scores, classes)
        tensor(0.2222)
        >>> AveragedLoss("f1", average="micro")(scores, classes)
        tensor(0.2500)
    """

    def __init__(
        self,
        task: str | Task | Any,
        *,
        average: str = "macro",
        ignore_index: int | None = None,
        loss: Callable[..., TaskLoss] = DirectLoss,
        gather: Gather = False,
        **options: Any,
    ) -> None:
        super().__init__(options.get("reduction", "mean"), None, options.get("check_values", True), gather)
        self.average: str = check_choice("average", average, AVERAGES)
        self.ignore_index = ignore_index
        if "dim" in options:
            fail("dim", "must be left out: average decides which decisions belong together", repr(options["dim"]))
        self.each = loss(task, dim=0 if average in ("macro", "weighted") else None, **options)
        self.generator = self.each.generator
        judged = self.each.task
        if (judged.event_dims, judged.target_dims) != (1, 1):
            hint = "An average of it is the loss itself: use the loss without AveragedLoss."
            fail("task", "must be a metric of several decisions or ranks, such as f1, iou or ap", repr(judged), hint)
        self.by_class: TaskLoss | None = None
        exact = isinstance(self.each, DirectLoss) and self.each.traceable and average not in ("micro", "samples")
        self._corrects = any(getattr(self.each, "flips", ()))
        if exact and isinstance(judged, CountTask) and self.reduction == "mean" and not self._corrects:
            self.by_class = loss(ClassAverage(judged, "weighted" if average == "weighted" else "macro"), **options)

    def forward(  # type: ignore[override]
        self, scores: Tensor, target: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch; ``mask`` has the shape of the target."""
        if self.gather is False:
            return self.loss(scores, target, mask, None)
        return self._eager_loss(scores, target, mask, None)

    def loss(self, scores: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        """The loss of a batch on this process; ``weight`` is ignored: the average sets the class weights."""
        scores, target = _check_shapes(scores, target)
        shown = self._shown(target, mask)
        if shown is not None:
            target = torch.where(shown, target, torch.zeros_like(target))
        of_classes = target.dim() < scores.dim() and scores.shape[1] > 1
        if of_classes and self._corrects:
            fail("flips", "must be 0 for class indices: the classes that wrong labels come from are not known", "given")
        if target.dim() < scores.dim() and self.check_values and not traced():
            _check_classes(target, max(scores.shape[1], 2))
        if of_classes and self.by_class is not None:
            return self._loss_of_classes(self.by_class, scores, target, shown)
        if target.dim() < scores.dim():
            target = _one_hot(target, scores.shape[1]) if of_classes else target.unsqueeze(1)
            shown = None if shown is None else shown.unsqueeze(1).expand_as(scores)
        if of_classes and self.each.task.defaults.density == "logistic":
            scores = margins(scores.to(torch.promote_types(scores.dtype, torch.float32)))
        wanted, shown = self._problems(target), None if shown is None else self._problems(shown)
        share = self._weight(wanted if shown is None else wanted * shown, of_classes)
        value: Tensor = self.each(self._problems(scores), wanted, mask=shown, weight=share)
        return value

    def _loss_of_classes(self, loss: TaskLoss, scores: Tensor, target: Tensor, shown: Tensor | None) -> Tensor:
        """The loss of one class per sample or pixel, whose expected metric is known exactly."""
        _check_whole(target)
        keep = 1 if self.average == "samples_macro" else 0
        rows = scores.movedim(1, -1)
        rows = rows.unsqueeze(keep) if rows.dim() == 2 and keep else rows.flatten(keep, -2)
        weight = None
        if keep and target.dim() > 1:  # the mean is over all classes of all samples, of which some samples have more
            wanted = _one_hot(target, scores.shape[1])
            wanted = wanted if shown is None else wanted * shown.unsqueeze(1)
            weight = wanted.flatten(2).any(-1).sum(1).to(rows.dtype)
        target = target.reshape(rows.shape[:-1])
        shown = None if shown is None else shown.reshape(target.shape)
        value: Tensor = loss(rows, target, mask=shown, weight=weight)
        return value

    def _shown(self, target: Tensor, mask: Tensor | None) -> Tensor | None:
        """Which labels count."""
        shown = None if mask is None else check_mask(mask, target.shape, "target")
        if self.ignore_index is None:
            return shown
        kept = target != self.ignore_index
        return kept if shown is None else kept & shown

    def _weight(self, wanted: Tensor, of_classes: bool) -> Tensor | None:
        """The weight of each class, or of each class of each sample; None if all are equal."""
        if self.average == "weighted":
            return wanted.sum(0).to(torch.float64)
        if of_classes and self.average in ("macro", "samples_macro"):
            return wanted.any(0 if self.average == "macro" else -1).to(torch.float64)
        return None

    def _problems(self, values: Tensor) -> Tensor:
        """Values ``(n, c, ...)`` grouped by problem."""
        if self.average == "micro":
            return values.flatten()
        if self.average == "samples":
            return values.flatten(1)
        if self.average == "samples_macro":
            return values.flatten(2) if values.dim() > 2 else values.unsqueeze(2)
        return values.movedim(1, -1).flatten(0, -2)

    def extra_repr(self) -> str:
        """The average and the ignored index."""
        ignored = "" if self.ignore_index is None else f", ignore_index={self.ignore_index}"
        return f"average={self.average!r}{ignored}"


def margins(scores: Tensor) -> Tensor:
    """Each score minus the best of the others, along dimension 1: positive only for the predicted class, which is the
    first of equal ones.

    Examples:
        >>> margins(torch.tensor([[2.0, 5.0, 1.0]]))
        tensor([[-3.,  3., -4.]])
    """
    first, second = torch.split(scores.topk(2, dim=1).values, 1, dim=1)
    place = torch.arange(scores.shape[1], device=scores.device).reshape(-1, *(1,) * (scores.dim() - 2))
    predicted = place == scores.argmax(1, keepdim=True)
    margin = scores - torch.where(predicted, second, first)
    return margin + (predicted & (margin == 0)).to(margin) * torch.finfo(margin.dtype).tiny


def _check_shapes(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    scores, target = check_scores(scores, 1, "(n, c, ...)"), check_tensor("target", target)
    if scores.dim() == 1:
        scores = scores.unsqueeze(1)
    without = scores.shape[:1] + scores.shape[2:]
    if target.shape not in (scores.shape, without):
        rule = f"must have shape {tuple(without)} or {tuple(scores.shape)}: {SHAPES}"
        fail("target", rule, f"of shape {tuple(target.shape)}")
    return scores, target.long() if target.dtype in UNSIGNED else target


def _check_classes(target: Tensor, classes: int) -> None:
    if target.is_complex():
        fail("target", "must hold classes", target.dtype)
    if target.dtype != torch.bool and bool((beyond := (target < 0) | (target >= classes)).any()):
        value = target[beyond][0].item()
        hint = f"Ignore such targets with ignore_index={value}."
        fail("target", f"must hold classes from 0 to {classes - 1}", value, hint)


def _check_whole(target: Tensor) -> None:
    if target.is_floating_point() or target.is_complex():
        fail("target", "must hold whole numbers, one class for each", target.dtype, "Call target.long() first.")


def _one_hot(target: Tensor, classes: int) -> Tensor:
    _check_whole(target)
    numbers = torch.arange(classes, device=target.device).reshape(-1, *(1,) * (target.dim() - 1))
    return (target.unsqueeze(1) == numbers).long()
