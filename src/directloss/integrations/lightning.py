"""PyTorch Lightning: the metric of the whole validation set, which is not the mean of the metric over batches."""

from __future__ import annotations

from directloss.integrations._needs import needed

needed("lightning", __name__, "lightning")

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from directloss._checks import fail
from directloss._registry import as_task
from directloss.direct import mean_metric
from directloss.task import Task

Metric = str | Task | Callable[[Tensor, Tensor], Tensor | float]


class WholeMetric(Callback):
    """Log a metric of the whole validation or test set as ``val_NAME`` and ``test_NAME``.

    Validation and test steps return ``{"scores": ..., "target": ...}``, which it collects from all processes; items
    that a distributed sampler repeats to fill the last batch count each time. With several loaders, each has its own
    value, named as Lightning does: ``val_NAME/dataloader_idx_0`` and so on. ``EarlyStopping`` and ``ModelCheckpoint``
    can monitor it.

    Args:
        metric: name of a task, a task (its metric is logged, NaN if nothing counts), or a function of all scores and
            all targets.
        name: the name in the log; by default that of the task or function.
        dim: for a task, the dimension of the scores that holds the items, as in `directloss.direct_loss`. Batches are
            joined along the first dimension, so ``dim=0`` ranks all items per class of a multi-label problem.
    """

    def __init__(self, metric: Metric = "ap", *, name: str | None = None, dim: int | None = None) -> None:
        self.dim = dim
        self.metric = metric if callable(metric) and not isinstance(metric, Task) else as_task(metric, "metric")
        self.name = name or (metric if isinstance(metric, str) else getattr(metric, "__name__", type(metric).__name__))
        self._seen: list[tuple[int, Tensor, Tensor]] = []

    def value(self, scores: Tensor, target: Tensor) -> float:
        """The metric of these scores."""
        if isinstance(self.metric, Task):
            return mean_metric(scores, target, self.metric, dim=self.dim)
        return float(self.metric(scores, target))

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Drop the scores of an earlier, perhaps interrupted epoch."""
        self._seen.clear()

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep what the step returned."""
        if not isinstance(outputs, Mapping) or not {"scores", "target"} <= outputs.keys():
            step = "test_step" if trainer.testing else "validation_step"
            given = f"a dict with {sorted(outputs)}" if isinstance(outputs, Mapping) else f"a {type(outputs).__name__}"
            fail(f"the result of {step}", 'must be a dict with "scores" and "target" for WholeMetric', given)
        self._seen.append((dataloader_idx, outputs["scores"].detach().cpu(), outputs["target"].detach().cpu()))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compute and log the metric; skipped in the sanity check, which sees only part of the data."""
        if trainer.sanity_checking:
            return
        seen, part = gathered(self._seen), "test" if trainer.testing else "val"
        self._seen.clear()
        loaders = sorted({number for number, _, _ in seen})
        for number in loaders:
            scores, target = (torch.cat([batch[i] for batch in seen if batch[0] == number]) for i in (1, 2))
            name = f"{part}_{self.name}" + (f"/dataloader_idx_{number}" if len(loaders) > 1 else "")
            pl_module.log(name, self.value(scores.float(), target), prog_bar=True, add_dataloader_idx=False)

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end


def gathered(own: list[Any]) -> list[Any]:
    """The batches of all processes."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return list(own)
    everyone: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(everyone, own)
    return [batch for batches in everyone for batch in batches]
