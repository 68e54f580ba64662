"""The one training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from directloss.lab.data import Part
from directloss.lab.seeding import generator

Loss = Callable[[Tensor, Tensor], Tensor]
"""Scores and labels of a batch to a scalar."""
Watch = Callable[[nn.Module], dict[str, float]]
"""Measures a model; called with gradients off."""


@dataclass(frozen=True)
class Schedule:
    """How long and how to train. ``batch_size=None`` is the full batch of the papers' small experiments."""

    iterations: int
    learning_rate: float
    weight_decay: float = 0.0
    optimizer: str = "adam"
    momentum: float = 0.9
    evaluate_every: int = 0
    """Measure at iteration 0, at every multiple of this, and at the end; 0 for the end only."""
    batch_size: int | None = None
    seed: int = 0
    """Order of the batches; the full batch has no order."""


@dataclass
class Trained:
    """What came of it: ``curve["iteration"]`` and a list of the same length for each measured number."""

    curve: dict[str, list[float]] = field(default_factory=dict)
    diverged_at: int | None = None
    """The iteration at which a score or the loss was no longer finite; training stops there."""

    def note(self, iteration: int, numbers: dict[str, float]) -> None:
        """Add one point to the curve."""
        for name, value in {"iteration": iteration, **numbers}.items():
            self.curve.setdefault(name, []).append(value)

    @property
    def last(self) -> dict[str, float]:
        """The numbers at the end of training."""
        return {name: values[-1] for name, values in self.curve.items() if name != "iteration"}


def train(model: nn.Module, loss: Loss, data: Part, schedule: Schedule, watch: Watch) -> Trained:
    """Train ``model`` in place and return the curve of what ``watch`` saw."""
    optimizer = make_optimizer(model, schedule)
    batches = _batches(data, schedule)
    done = Trained()
    every = schedule.evaluate_every
    for iteration in range(schedule.iterations):
        if every and iteration % every == 0:
            done.note(iteration, _measure(model, watch))
        batch = next(batches)
        model.train()
        scores = model(batch.x)
        # Checked here once, so that the losses need not look at the values again.
        if not bool(torch.isfinite(scores).all()):
            done.diverged_at = iteration
            break
        optimizer.zero_grad(set_to_none=True)
        loss(scores, batch.y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    done.note(schedule.iterations, _measure(model, watch))
    return done


def make_optimizer(model: nn.Module, schedule: Schedule) -> torch.optim.Optimizer:
    """Adam, AdamW or SGD with momentum; fused, because a step of these small networks is mostly overhead."""
    rate, decay = schedule.learning_rate, schedule.weight_decay
    if schedule.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), rate, momentum=schedule.momentum, weight_decay=decay, fused=True)
    kind = torch.optim.AdamW if schedule.optimizer == "adamw" else torch.optim.Adam
    return kind(model.parameters(), rate, weight_decay=decay, fused=True)


def _measure(model: nn.Module, watch: Watch) -> dict[str, float]:
    model.eval()
    with torch.no_grad():
        return watch(model)


def _batches(data: Part, schedule: Schedule) -> Iterator[Part]:
    """The whole data again and again, or shuffled batches of equal size, epoch after epoch."""
    size = schedule.batch_size
    if size is None or size >= len(data):
        while True:
            yield data
    draw = generator("batches", schedule.seed)
    while True:
        order = torch.randperm(len(data), generator=draw)
        for start in range(0, len(data) - size + 1, size):
            yield data.take(order[start : start + size])
