"""How the estimators train: a small network on standardised columns, first with cross-entropy, then on the metric."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from directloss._checks import check_count, check_positive, fail
from directloss.integrations._rows import LazyRows, blocks_of

WIDTH = 64
"""Width of the hidden layer of ``model="mlp"``."""
REFINING = 0.1
"""The share of the learning rate that training on the metric starts with after the warm-up."""
LOOKS = 25
"""How often training evaluates the validation rows, if there are any."""

Network = Callable[[int, int], nn.Module]
"""Makes a network from the number of columns and the number of scores per row."""


@dataclass(frozen=True)
class Schedule:
    """A training schedule: first cross-entropy, which makes progress from any start, then the metric."""

    epochs: int
    warm_up: float
    learning_rate: float
    weight_decay: float
    verbose: bool = False

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        check_positive("learning_rate", self.learning_rate)
        if not 0 <= self.warm_up <= 1:
            fail("warm_up", "must be a share of the epochs, from 0 to 1", repr(self.warm_up))
        if not 0 <= self.weight_decay < float("inf"):
            fail("weight_decay", "must be a number of at least 0", repr(self.weight_decay))

    def rate(self, epoch: int, first: int) -> float:
        """The learning rate: constant during the ``first`` epochs of warm-up, then decaying to zero.

        Examples:
            >>> schedule = Schedule(epochs=4, warm_up=0.5, learning_rate=1.0, weight_decay=0.0)
            >>> [schedule.rate(epoch, 2) for epoch in range(4)], [schedule.rate(epoch, 0) for epoch in range(4)]
            ([1.0, 1.0, 0.1, 0.05], [1.0, 0.75, 0.5, 0.25])
        """
        if epoch < first:
            return self.learning_rate
        start = self.learning_rate * (REFINING if first else 1.0)
        return start * (self.epochs - epoch) / (self.epochs - first)

    def train(
        self,
        network: nn.Module,
        batches: Callable[[], Iterable[Any]],
        warming: Callable[[Any], Tensor],
        direct: Callable[[Any], Tensor],
        validation: Validation | None,
        *,
        warm_up: bool,
    ) -> tuple[list[float], list[float]]:
        """Train in place; returns the mean loss per epoch, of both phases.

        ``batches()`` returns the batches of one epoch, and both losses take a batch. With ``validation``, training on
        the metric starts from the best epoch of the warm-up, and the network ends up with the best weights of all.
        """
        optimizer = torch.optim.AdamW(network.parameters(), self.learning_rate, weight_decay=self.weight_decay)
        first = round(self.warm_up * self.epochs) if warm_up else 0
        curves: tuple[list[float], list[float]] = ([], [])
        network.train()
        parts = (warming, range(first), "cross-entropy"), (direct, range(first, self.epochs), "metric's loss")
        for curve, (loss_of, epochs, name) in zip(curves, parts, strict=True):
            for epoch in epochs:
                for group in optimizer.param_groups:
                    group["lr"] = self.rate(epoch, first)
                curve.append(_one_epoch(optimizer, batches(), loss_of))
                due = (epoch + 1) % max(1, self.epochs // LOOKS) == 0 or epoch == epochs[-1]
                if due and not self._look(network, validation, epoch + 1, f"{name} {curve[-1]:.4f}"):
                    break
            if validation is not None:
                validation.restore(network, epochs.stop)
        return curves

    def _look(self, network: nn.Module, validation: Validation | None, epoch: int, told: str) -> bool:
        """Evaluate the validation rows, if there are any; returns whether to go on."""
        going = validation is None or validation.look(network, epoch)
        if self.verbose:
            held = "" if validation is None else f", metric on validation rows {validation.curve[epoch]:.4f}"
            print(f"epoch {epoch} of {self.epochs}: {told}{held}", flush=True)
        return going


def _one_epoch(optimizer: torch.optim.Optimizer, batches: Iterable[Any], loss_of: Callable[[Any], Tensor]) -> float:
    """One step per batch; returns the mean loss."""
    values = []
    for batch in batches:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        values.append(float(loss.detach()))
    return sum(values) / len(values)


@dataclass
class Validation:
    """Tracks the metric on validation rows during training, and the best weights."""

    measure: Callable[[], float]
    report: Callable[[int, float], None] | None = None
    """Called with the epoch and the value; may end the training by raising an exception."""
    patience: float = float("inf")
    """Number of epochs without a better value after which a phase ends."""
    curve: dict[int, float] = field(default_factory=dict)
    best: int = 0
    """The first epoch with the highest value."""
    _state: dict[str, Tensor] = field(default_factory=dict)
    _begin: int = 0

    def look(self, network: nn.Module, epoch: int) -> bool:
        """Evaluate after an epoch; returns whether to go on. The network stays in training mode."""
        self.curve[epoch] = value = self.measure()
        network.train()
        if not self.best or value > self.curve[self.best]:
            self.best = epoch
            self._state = {name: weight.clone() for name, weight in network.state_dict().items()}
        if self.report is not None:
            self.report(epoch, value)
        return epoch - max(self.best, self._begin) < self.patience

    def restore(self, network: nn.Module, begin: int) -> None:
        """Go back to the best weights so far; patience starts again at the epoch ``begin``."""
        self._begin = begin
        if self.best:
            network.load_state_dict(self._state)


def make_network(model: object, columns: int, outputs: int) -> nn.Module:
    """The network for ``model``: "linear", "mlp", widths of hidden layers, or a function of columns and outputs."""
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


def layers(widths: Sequence[int], bias: bool = True) -> nn.Sequential:
    """Linear layers with ReLU in between."""
    parts: list[nn.Module] = []
    for left, right in pairwise(widths):
        parts += [nn.Linear(left, right, bias=bias), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def start_at_base_rate(network: nn.Module, target: Tensor) -> None:
    """Set the last bias of `layers` to the log-odds of each output, the best answer without any columns.

    With few positives, cross-entropy would otherwise spend most of its time getting there. ``target`` is
    ``(n, outputs)``, 0 or 1.
    """
    last = network[-1] if isinstance(network, nn.Sequential) else None
    if isinstance(last, nn.Linear):
        shares = target.double().mean(0).clamp(1e-6, 1 - 1e-6)
        with torch.no_grad():
            last.bias.copy_(shares.logit())


def scores_of(network: nn.Module, rows: Tensor, outputs: int) -> Tensor:
    """Scores ``(n, outputs)`` of rows ``(n, columns)``; with one output, networks may also return ``(n,)``."""
    scores: Tensor = network(rows)
    if outputs == 1 and scores.shape == (len(rows),):
        scores = scores.unsqueeze(-1)
    if scores.shape != (len(rows), outputs):
        rule = f"must have shape {(len(rows), outputs)}, one score per row and output"
        fail("model(columns, outputs)(rows)", rule, f"of shape {tuple(scores.shape)}")
    return scores


@torch.no_grad()
def all_scores(network: nn.Module, rows: Tensor | LazyRows, outputs: int) -> Tensor:
    """The scores of many rows in evaluation mode, computed in blocks."""
    network.eval()
    return torch.cat([scores_of(network, block, outputs) for block in blocks_of(rows)])


def shuffled(size: int | None, labels: Tensor) -> Iterator[Tensor]:
    """Item indices in stratified batches of about ``size``; one batch if ``size`` is None."""
    count = len(labels)
    if size is None or size >= count:
        yield torch.arange(count)
        return
    yield from mixed(labels).tensor_split(-(-count // size))


def mixed(labels: Tensor) -> Tensor:
    """All item indices in random order, with each label spread evenly."""
    places = torch.empty(len(labels))
    for label in torch.unique(labels):
        own = (labels == label).nonzero().squeeze(1)
        # Evenly spread over the whole, at random within each stretch.
        places[own] = (torch.randperm(len(own)) + torch.rand(len(own))) / len(own)
    return places.argsort()


def resampled(weight: Tensor) -> Tensor:
    """Item indices, as many as items, each about as often as its weight says; for metrics without weights.

    Systematic resampling: an item with k times the mean weight is drawn k times, up to unbiased rounding.

    Examples:
        >>> resampled(torch.tensor([2.0, 1.0, 1.0, 4.0], dtype=torch.float64))
        tensor([0, ..., 3, 3])
    """
    count = len(weight)
    places = (torch.arange(count, dtype=torch.float64) + torch.rand((), dtype=torch.float64)) / count
    return torch.searchsorted(weight.cumsum(0) / weight.sum(), places).clamp(max=count - 1)
