"""The one training loop.

It can be stopped at any moment. Resumed from its last checkpoint, it ends with the same weights and the same curve, bit
for bit: everything a step depends on is either a function of the iteration (order of the batches, learning rate) or
stored (weights, optimizer, states of the random generators).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from directloss.full_batch import full_batch_step
from directloss_repro.checkpoint import Checkpoint, State
from directloss_repro.data import Part
from directloss_repro.seeding import derive, generator

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps scores and labels of a batch to a scalar."""
Watch = Callable[[nn.Module], dict[str, float]]
"""Evaluates a model; called without gradients."""
Augment = Callable[[Part, torch.Generator], Part]
"""Augments a batch at random, with the given generator."""


@dataclass(frozen=True)
class Schedule:
    """Length and settings of a training. ``batch_size=None`` is the full batch of the papers' small experiments."""

    iterations: int
    learning_rate: float
    weight_decay: float = 0.0
    optimizer: str = "adam"
    momentum: float = 0.9
    evaluate_every: int = 0
    """Evaluate at iteration 0, at every multiple of this, and at the end; 0 for only the end."""
    batch_size: int | None = None
    chunk: int | None = None
    """How many items of a batch go through the network at once; the gradient is that of the whole batch."""
    seed: int = 0
    """Determines the order of the batches and the augmentation; the full batch has no order."""
    drops: tuple[int, ...] = ()
    """Iterations at which the learning rate is multiplied by ``factor``."""
    factor: float = 0.1
    one_cycle: bool = False
    """The learning rate rises for the first quarter of the iterations, then falls to zero (Smith 2018)."""

    def rate(self, iteration: int) -> float:
        """The learning rate of an iteration.

        Examples:
            >>> [Schedule(10, 1.0, drops=(4, 6), factor=0.5).rate(i) for i in (0, 3, 4, 5, 6, 9)]
            [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
            >>> [round(Schedule(16, 1.0, one_cycle=True).rate(i), 2) for i in (0, 3, 4, 10, 15)]
            [0.25, 1.0, 1.0, 0.5, 0.08]
        """
        if self.one_cycle:
            peak = self.iterations / 4
            return self.learning_rate * min((iteration + 1) / peak, (self.iterations - iteration) / (3 * peak))
        return self.learning_rate * self.factor ** sum(iteration >= drop for drop in self.drops)


def steps_per_epoch(items: int, batch_size: int | None) -> int:
    """The number of full batches per epoch; which items are left over differs from epoch to epoch.

    Example:
        >>> steps_per_epoch(45_000, 128), steps_per_epoch(100, 128), steps_per_epoch(100, None)
        (351, 1, 1)
    """
    return 1 if batch_size is None or batch_size >= items else items // batch_size


@dataclass
class Trained:
    """The result of a training: ``curve["iteration"]`` and a list of the same length for each measured number."""

    curve: dict[str, list[float]] = field(default_factory=dict)
    diverged_at: int | None = None
    """The iteration at which a score or the loss was no longer finite; training stops there."""
    seconds_before: float = 0.0
    """Time spent before the checkpoint that the training was resumed from."""
    kept: State | None = None
    """The weights where ``keep_by`` was highest."""

    def note(self, iteration: int, numbers: dict[str, float]) -> None:
        """Add one point to the curve."""
        for name, value in {"iteration": iteration, **numbers}.items():
            self.curve.setdefault(name, []).append(value)

    @property
    def last(self) -> dict[str, float]:
        """The numbers at the end of training."""
        return {name: values[-1] for name, values in self.curve.items() if name != "iteration"}

    def best(self, by: str) -> dict[str, float]:
        """The numbers where ``by`` is highest, including the iteration; the first among equals."""
        place = self.curve[by].index(max(self.curve[by]))
        return {name: values[place] for name, values in self.curve.items()}


def train(
    model: nn.Module,
    loss: Loss,
    data: Part,
    schedule: Schedule,
    watch: Watch,
    *,
    augment: Augment | None = None,
    draws: Mapping[str, torch.Generator] | None = None,
    checkpoint: Checkpoint | None = None,
    keep_by: str | None = None,
) -> Trained:
    """Train ``model`` in place and return the curve of what ``watch`` measured.

    Args:
        model: computes the scores of a batch.
        loss: maps scores and labels to a scalar.
        data: the training part.
        schedule: length and settings.
        watch: evaluates the model.
        augment: augments each batch at random.
        draws: generators that ``loss`` draws from, by name; their states are part of a checkpoint.
        checkpoint: stores the state every minute; read at the start.
        keep_by: a number that ``watch`` measures; the weights where it is highest are kept.
    """
    optimizer = make_optimizer(model, schedule)
    changing = generator("augment", schedule.seed)
    state = _State(model, optimizer, {**(draws or {}), "augment": changing})
    done = Trained()
    every = schedule.evaluate_every

    def note(iteration: int) -> None:
        """Add a point to the curve."""
        model.eval()
        with torch.no_grad():
            numbers = watch(model)
        done.note(iteration, numbers)
        if keep_by is not None and numbers[keep_by] > max(done.curve[keep_by][:-1], default=-math.inf):
            done.kept = {name: value.detach().clone() for name, value in model.state_dict().items()}

    # Dropout and the like draw from torch's global generator: seed it here, and restore it afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive("training", schedule.seed))
        start = state.restore(checkpoint, done) if checkpoint is not None else 0
        batches = _batches(data, schedule, start)
        began = time.monotonic()
        for iteration in range(start, schedule.iterations):
            if checkpoint is not None and checkpoint.due():
                seconds = done.seconds_before + time.monotonic() - began
                checkpoint.save(state.snapshot(iteration, done, seconds))
            if every and iteration % every == 0:
                note(iteration)
            batch = next(batches) if augment is None else augment(next(batches), changing)
            model.train()
            optimizer.zero_grad(set_to_none=True)
            try:
                _backward(model, batch, loss, schedule.chunk)
            except _NotFiniteError:
                done.diverged_at = iteration
                break
            if schedule.drops or schedule.one_cycle:
                for group in optimizer.param_groups:
                    group["lr"] = schedule.rate(iteration)
            optimizer.step()
        note(schedule.iterations)
    return done


class _NotFiniteError(Exception):
    """A score is NaN or infinite."""


def _backward(model: nn.Module, batch: Part, loss: Loss, chunk: int | None) -> None:
    """Compute the gradient of the batch, at once or in chunks that are read twice."""

    def checked(scores: Tensor, target: Tensor) -> Tensor:
        # Checked once here, so that the losses need not check again.
        if not bool(torch.isfinite(scores).all()):
            raise _NotFiniteError
        return loss(scores, target)

    if chunk is None:
        checked(model(batch.x), batch.y).backward()  # type: ignore[no-untyped-call]
    else:
        full_batch_step(model, _Chunks(batch, chunk), checked)


@dataclass(frozen=True)
class _Chunks:
    """A part in pieces; it can be iterated again."""

    part: Part
    size: int

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for piece in self.part.pieces(self.size):
            yield piece.x, piece.y


def make_optimizer(model: nn.Module, schedule: Schedule) -> torch.optim.Optimizer:
    """Adam, AdamW, RMSProp or SGD with momentum, fused if PyTorch has a fused version.

    A step of these small networks is mostly overhead. Momentum applies only to SGD.
    """
    rate, decay = schedule.learning_rate, schedule.weight_decay
    if schedule.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), rate, momentum=schedule.momentum, weight_decay=decay, fused=True)
    if schedule.optimizer == "rmsprop":
        return torch.optim.RMSprop(model.parameters(), rate, weight_decay=decay)
    kind = torch.optim.AdamW if schedule.optimizer == "adamw" else torch.optim.Adam
    return kind(model.parameters(), rate, weight_decay=decay, fused=True)


@dataclass(frozen=True)
class _State:
    """Everything that changes during training; saved to and restored from a checkpoint."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    draws: Mapping[str, torch.Generator]

    def snapshot(self, iteration: int, done: Trained, seconds: float) -> State:
        return {
            "iteration": iteration,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "draws": {name: draw.get_state() for name, draw in self.draws.items()},
            "torch": torch.get_rng_state(),
            "curve": done.curve,
            "seconds": seconds,
            "kept": done.kept,
        }

    def restore(self, checkpoint: Checkpoint, done: Trained) -> int:
        """Load the checkpoint, if there is one, and return the iteration to continue with."""
        state = checkpoint.load()
        if state is None:
            return 0
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            for name, draw in self.draws.items():
                draw.set_state(state["draws"][name])
            torch.set_rng_state(state["torch"])
            done.curve, done.seconds_before = dict(state["curve"]), float(state["seconds"])
            done.kept = state.get("kept")
            return int(state["iteration"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            checkpoint.refuse("must fit the network and the optimizer of this run", f"that of another ({error!r:.80})")


def _batches(data: Part, schedule: Schedule, start: int = 0) -> Iterator[Part]:
    """The full batch repeatedly, or shuffled batches of equal size, epoch after epoch, from step ``start``."""
    size = schedule.batch_size
    if size is None or size >= len(data):
        while True:
            yield data
    draw = generator("batches", schedule.seed)
    steps = steps_per_epoch(len(data), size)
    for epoch in itertools.count():
        order = torch.randperm(len(data), generator=draw)  # also for skipped epochs: the order must not depend on start
        for step in range(max(0, start - epoch * steps), steps):
            yield data.take(order[step * size : (step + 1) * size])
