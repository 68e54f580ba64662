"""How the estimators train: a small network on standardised columns, first by cross-entropy, then by the metric."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from directloss._checks import check_count, check_positive, fail
from directloss.task import Task
from directloss.tasks import CountTask

WIDTH = 64
"""Width of the one hidden layer of ``model="mlp"``."""
REFINING = 0.1
"""Share of the learning rate that training by the metric starts with, after cross-entropy has come near."""
AT_ONCE = 65_536
"""How many rows are scored at once."""
LOOKS = 25
"""How often a training looks at validation rows, if it is given some."""

Network = Callable[[int, int], nn.Module]
"""Makes a network: numbers of columns and of scores for each row."""


@dataclass(frozen=True)
class Schedule:
    """How long and how to train."""

    epochs: int
    warm_up: float
    learning_rate: float
    weight_decay: float

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        check_positive("learning_rate", self.learning_rate)
        if not 0 <= self.warm_up <= 1:
            fail("warm_up", "must be a share of the epochs, from 0 to 1", repr(self.warm_up))
        if not 0 <= self.weight_decay < float("inf"):
            fail("weight_decay", "must be a number of at least 0", repr(self.weight_decay))

    def rate(self, epoch: int, first: int) -> float:
        """The learning rate: constant during the warm-up of ``first`` epochs, then falling to zero.

        Examples:
            >>> schedule = Schedule(epochs=4, warm_up=0.5, learning_rate=1.0, weight_decay=0.0)
            >>> [schedule.rate(epoch, 2) for epoch in range(4)], [schedule.rate(epoch, 0) for epoch in range(4)]
            ([1.0, 1.0, 0.1, 0.05], [1.0, 0.75, 0.5, 0.25])
        """
        if epoch < first:
            return self.learning_rate
        start = self.learning_rate * (REFINING if first else 1.0)
        return start * (self.epochs - epoch) / (self.epochs - first)


@dataclass
class Validation:
    """The metric on validation rows during training, and the weights that were best there."""

    measure: Callable[[], float]
    report: Callable[[int, float], None] | None = None
    """Is told the epoch and the value, and may end the training by raising an exception."""
    curve: dict[int, float] = field(default_factory=dict)
    best: int = 0
    """The first of the epochs with the highest value."""
    _state: dict[str, Tensor] = field(default_factory=dict)

    def look(self, network: nn.Module, epoch: int) -> None:
        """Measure after an epoch; the network stays in training mode."""
        self.curve[epoch] = value = self.measure()
        network.train()
        if not self.best or value > self.curve[self.best]:
            self.best = epoch
            self._state = {name: weight.clone() for name, weight in network.state_dict().items()}
        if self.report is not None:
            self.report(epoch, value)

    def restore(self, network: nn.Module) -> None:
        """Go back to the best weights so far."""
        if self.best:
            network.load_state_dict(self._state)


def minimise(
    network: nn.Module,
    batches: Callable[[], Iterable[Any]],
    warming: Callable[[Any], Tensor],
    direct: Callable[[Any], Tensor],
    schedule: Schedule,
    *,
    warm_up: bool,
    validation: Validation | None = None,
) -> list[float]:
    """Train in place; the mean value of ``direct`` in each of its epochs.

    ``batches()`` are the batches of one epoch, and both losses take one of them. With ``validation``, training on the
    metric starts from the best epoch of the warm-up, and the network ends with its best epoch of all.
    """
    optimizer = torch.optim.AdamW(network.parameters(), schedule.learning_rate, weight_decay=schedule.weight_decay)
    first = round(schedule.warm_up * schedule.epochs) if warm_up else 0
    every = max(1, schedule.epochs // LOOKS)
    curve = []
    network.train()
    for epoch in range(schedule.epochs):
        if validation is not None and epoch == first:
            validation.restore(network)
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(epoch, first)
        values = []
        for batch in batches():
            loss = (warming if epoch < first else direct)(batch)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            values.append(float(loss.detach()))
        if epoch >= first:
            curve.append(sum(values) / len(values))
        if validation is not None and ((epoch + 1) % every == 0 or epoch + 1 in (first, schedule.epochs)):
            validation.look(network, epoch + 1)
    if validation is not None:
        validation.restore(network)
    return curve


def make_network(model: object, columns: int, outputs: int) -> nn.Module:
    """The network of ``model``: "linear", "mlp", widths of hidden layers, or a function of columns and outputs."""
    widths: Any = {"linear": (), "mlp": (WIDTH,)}.get(model) if isinstance(model, str) else model
    if isinstance(widths, tuple | list) and all(type(width) is int and width > 0 for width in widths):
        return layers([columns, *widths, outputs])
    rule = (
        'must be "linear", "mlp", widths of hidden layers such as (64, 32), '
        "or a function of the numbers of columns and of outputs that returns a network"
    )
    if isinstance(model, nn.Module) or not callable(model):
        hint = "Write model=lambda columns, outputs: ..., so that every fit starts from new weights."
        fail("model", rule, f"a {type(model).__name__}" if isinstance(model, nn.Module) else repr(model), hint)
    try:
        inspect.signature(model).bind(columns, outputs)
    except (TypeError, ValueError) as error:
        fail("model", rule, f"{model!r} ({error})")
    network = model(columns, outputs)
    if not isinstance(network, nn.Module):
        fail("model(columns, outputs)", "must be a torch.nn.Module", f"a {type(network).__name__}")
    return network


def layers(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU in between."""
    parts: list[nn.Module] = []
    for left, right in pairwise(widths):
        parts += [nn.Linear(left, right), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def start_at_base_rate(network: nn.Module, target: Tensor) -> None:
    """Set the last bias of `layers` to the log-odds of each output, the answer without looking at the columns.

    With few positives, cross-entropy would otherwise spend most of its time on the way there. ``target`` is
    ``(n, outputs)``, 0 or 1.
    """
    last = network[-1] if isinstance(network, nn.Sequential) else None
    if isinstance(last, nn.Linear):
        shares = target.double().mean(0).clamp(1e-6, 1 - 1e-6)
        with torch.no_grad():
            last.bias.copy_(shares.logit())


def best_cut(scores: Tensor, target: Tensor, task: Task) -> tuple[float, float]:
    """The cut with the highest metric when scores above it mean yes, and that metric. Scores and labels ``(n,)``.

    ``task`` is an `Error` or a `CountTask`; among equally good cuts it is the highest.

    Examples:
        >>> from directloss.tasks import get
        >>> best_cut(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 1, 0]), get("f1"))
        (1.5, 1.0)
    """
    ranked, order = scores.double().sort(descending=True, stable=True)
    hits = (target[order] == 1).double()
    tp, fp = (torch.cat([hits.new_zeros(1), part.cumsum(0)]) for part in (hits, 1 - hits))
    fn, tn = tp[-1] - tp, fp[-1] - fp
    values = 1 - task.loss_of_counts(tp, fp, fn, tn) if isinstance(task, CountTask) else (tp + tn) / len(hits)
    # One can cut only between different scores, above all of them and below all of them.
    ends = torch.cat([ranked[:1] + 2, ranked, ranked[-1:] - 2])
    values = torch.where(ends[:-1] > ends[1:], values, -torch.inf)
    place = int(values.argmax())
    return float((ends[place] + ends[place + 1]) / 2), float(values[place])


def scores_of(network: nn.Module, rows: Tensor, outputs: int) -> Tensor:
    """Scores ``(n, outputs)`` of rows ``(n, columns)``; one score for each row may also come as ``(n,)``."""
    scores: Tensor = network(rows)
    if outputs == 1 and scores.shape == (len(rows),):
        scores = scores.unsqueeze(-1)
    if scores.shape != (len(rows), outputs):
        rule = f"must have shape {(len(rows), outputs)}, one score for each row and output"
        fail("model(columns, outputs)(rows)", rule, f"of shape {tuple(scores.shape)}")
    return scores


@torch.no_grad()
def all_scores(network: nn.Module, rows: Tensor, outputs: int) -> Tensor:
    """The scores of many rows, outside of training."""
    network.eval()
    return torch.cat([scores_of(network, some, outputs) for some in torch.split(rows, AT_ONCE)])


@dataclass(frozen=True)
class Scaling:
    """Columns with mean 0 and deviation 1 on the training rows; a constant column becomes 0."""

    mean: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]

    @classmethod
    def of(cls, rows: npt.NDArray[Any]) -> Scaling:
        """The scaling of these rows."""
        rows = rows.astype(np.float64, copy=False)
        mean = rows.mean(0)
        # From a shifted copy: numbers near the largest float would overflow when they are squared.
        largest = np.maximum(np.abs(rows - mean).max(0), np.finfo(np.float64).tiny)
        deviation = largest * ((rows - mean) / largest).std(0)
        rounding = 1e-12 * np.abs(mean)  # what is left of a constant column
        return cls(mean, np.where(deviation > rounding, deviation, np.inf))

    def __call__(self, rows: npt.NDArray[Any]) -> Tensor:
        """The rows as a tensor."""
        return torch.from_numpy(((rows - self.mean) / self.scale).astype(np.float32))


def shuffled(size: int | None, labels: Tensor) -> Iterator[Tensor]:
    """Numbers of items in batches of about ``size``, each with the labels in about the same shares; or all at once."""
    count = len(labels)
    if size is None or size >= count:
        yield torch.arange(count)
        return
    places = torch.empty(count)
    for label in torch.unique(labels):
        own = (labels == label).nonzero().squeeze(1)
        # Evenly spread over the epoch, at random inside of each stretch.
        places[own] = (torch.randperm(len(own)) + torch.rand(len(own))) / len(own)
    yield from places.argsort().tensor_split(-(-count // size))
