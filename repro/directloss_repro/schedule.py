"""How long and how a network is trained: plain numbers, which a config makes and the training loop follows."""

from __future__ import annotations

from dataclasses import dataclass


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
    chunk: int | None = None
    """How many items of a batch go through the network at once; the gradient is that of the whole batch."""
    seed: int = 0
    """Order of the batches and augmentation; the full batch has no order."""
    drops: tuple[int, ...] = ()
    """Iterations from which on the learning rate is multiplied by ``factor``, once for each."""
    factor: float = 0.1

    def rate(self, iteration: int) -> float:
        """The learning rate of an iteration.

        Example:
            >>> [Schedule(10, 1.0, drops=(4, 6), factor=0.5).rate(i) for i in (0, 3, 4, 5, 6, 9)]
            [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
        """
        return self.learning_rate * self.factor ** sum(iteration >= drop for drop in self.drops)


def steps_per_epoch(items: int, batch_size: int | None) -> int:
    """How many batches of equal size an epoch has; what is left over is another rest in every epoch.

    Example:
        >>> steps_per_epoch(45_000, 128), steps_per_epoch(100, 128), steps_per_epoch(100, None)
        (351, 1, 1)
    """
    return 1 if batch_size is None or batch_size >= items else items // batch_size
