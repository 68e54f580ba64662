"""Hugging Face `Trainer`: a metric as its loss, and the same metric on the whole evaluation set.

Trainer(model, arguments, compute_loss_func=TrainerLoss("ap"), compute_metrics=TrainerMetric("ap"), ...)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from directloss._checks import check_tensor, fail
from directloss._registry import as_task
from directloss.direct import DirectLoss, mean_metric
from directloss.task import Task

LEFT_OUT = -100
"""The label of items that Hugging Face libraries leave out of a loss."""


class TrainerLoss:
    """A ``compute_loss_func`` for ``transformers.Trainer``.

    The items of a batch are one list, so a larger batch is a better estimate of the metric. With gradient accumulation
    each batch is a list and is weighted by its share of the items, as `Trainer` expects.

    Args:
        loss_fn: name of a task, for `DirectLoss` with its defaults; or a loss module such as
            ``DirectLoss("ap", likelihood=0.3)``.

    Shapes:
        One score per item: logits ``(n, 1)``, or ``(n, 2)``, whose difference is the score. Labels ``(n,)``, 0 or 1.
        Several labels: logits ``(n, c)`` and labels ``(n, c)``; the items are ranked per class.
        Classes (``"accuracy"``, ``"topk@5"``): logits ``(n, c)``, labels ``(n,)``.
        Tokens have one more dimension in both. The label -100 leaves an item out.

    Examples:
        >>> loss_fn = TrainerLoss("ap")
        >>> loss_fn({"logits": torch.tensor([[2.0], [1.0], [0.0]])}, torch.tensor([1, 0, 1]))
        tensor(0.1667)
    """

    def __init__(self, loss_fn: str | DirectLoss | Callable[..., Tensor] = "ap") -> None:
        self.loss_fn = DirectLoss(loss_fn) if isinstance(loss_fn, str) else loss_fn
        self.task: Task = getattr(self.loss_fn, "task", None) or as_task("ap")

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Any = None) -> Tensor:
        """The loss of a batch, or its share of the loss of the accumulated batches."""
        if labels is None:
            hint = 'Name it in TrainingArguments(label_names=["..."]).'
            fail("labels", "must be a column of the data", "missing", hint)
        logits = outputs["logits"] if hasattr(outputs, "keys") else outputs
        logits = logits[0] if isinstance(logits, tuple) else logits
        scores, target, mask = arranged(self.task, check_tensor("logits", logits), labels)
        loss: Tensor = self.loss_fn(scores, target, mask)
        if num_items_in_batch is None:
            return loss
        # Trainer does not divide a custom loss by the number of accumulated batches.
        share: Tensor = (labels != LEFT_OUT).sum() / num_items_in_batch
        return loss * share


class TrainerMetric:
    """A ``compute_metrics`` for ``transformers.Trainer``: a metric of all evaluated items.

    Name it in ``TrainingArguments(metric_for_best_model="ap", load_best_model_at_end=True)`` to keep the best model.

    Examples:
        >>> metric = TrainerMetric("ap")
        >>> metric((torch.tensor([[2.0], [1.0], [0.0]]).numpy(), torch.tensor([1, 0, 1]).numpy()))
        {'ap': 0.83333...}
    """

    def __init__(self, metric: str | Task = "ap", *, name: str | None = None) -> None:
        self.task = as_task(metric, "metric")
        self.name = name or (metric if isinstance(metric, str) else type(metric).__name__)

    def __call__(self, evaluated: Any) -> dict[str, float]:
        """``{name: value}`` of the predictions and labels that `Trainer` collected."""
        predictions, labels = evaluated
        predictions = predictions[0] if isinstance(predictions, tuple) else predictions
        scores, target, mask = arranged(self.task, torch.as_tensor(predictions).float(), torch.as_tensor(labels))
        return {self.name: mean_metric(scores, target, self.task, mask=mask)}


def arranged(task: Task, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scores, target and mask of the batch in the layout of the task."""
    mask = labels != LEFT_OUT
    target = torch.where(mask, labels, 0)
    if task.event_dims > task.target_dims:
        pass  # classes
    elif logits.dim() == labels.dim() + 1 and logits.shape[-1] in (1, 2):
        logits = logits[..., 0] if logits.shape[-1] == 1 else logits[..., 1] - logits[..., 0]
        if task.event_dims == 1:  # all items are one list, even tokens of several texts
            logits, target, mask = logits.flatten(), target.flatten(), mask.flatten()
    elif logits.shape != labels.shape:
        rule = "must have one score per item, two, or one per label"
        fail("logits", rule, f"of shape {tuple(logits.shape)}, and labels of shape {tuple(labels.shape)}")
    elif task.event_dims == 1 and logits.dim() == 2:  # several labels: one list of all items per label
        logits, target, mask = logits.T, target.T, mask.T
    return logits, target, None if bool(mask.all()) else mask
