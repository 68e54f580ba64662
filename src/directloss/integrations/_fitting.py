"""How the estimators train: a small network, one loop, the best epoch by the metric of held-out rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from directloss._checks import fail
from directloss.integrations._rows import ScaledRows, blocks_of

WIDTH = 64
"""Width of the hidden layer of ``model="mlp"``."""
LOOKS = 25
"""How often training evaluates the validation rows, if there are any."""

Network = Callable[[int, int], nn.Module]
"""Makes a network from the number of columns and the number of scores per row."""


class SeededDraws(TorchFunctionMode):
    """A context in which random tensors come from one generator, in this thread only.

    The initial weights of a `torch.nn` layer otherwise come from the global generator, which all threads share.
    """

    FILLS = frozenset(
        {"uniform_", "normal_", "bernoulli_", "exponential_", "random_", "rand", "randn", "randint", "randperm"}
    )

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        draws = "generator" in options or getattr(func, "__name__", "") in self.FILLS
        if draws and options.get("generator") is None:
            options["generator"] = self.generator
        return func(*args, **options)


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
def all_scores(network: nn.Module, rows: Tensor | ScaledRows, outputs: int) -> Tensor:
    """The scores of many rows in evaluation mode, computed in blocks."""
    network.eval()
    return torch.cat([scores_of(network, block, outputs) for block in blocks_of(rows)])


@dataclass
class Course:
    """How a training went."""

    losses: list[float] = field(default_factory=list)
    """The mean loss of each epoch."""
    values: dict[int, float] = field(default_factory=dict)
    """The metric of the held-out rows, by epoch."""
    best: int = 0
    """The epoch whose weights were kept: the first with the highest value, or the last without held-out rows."""


def train(
    network: nn.Module,
    batches: Callable[[], Iterable[Tensor]],
    loss_of: Callable[[Tensor], Tensor],
    measure: Callable[[], float] | None,
    *,
    epochs: int,
    learning_rate: float,
    weight_decay: float,
    patience: float,
    report: Callable[[int, float], None] | None,
    verbose: bool,
) -> Course:
    """Train in place by AdamW with a learning rate that falls to zero, and keep the weights of the best epoch.

    ``batches()`` returns the batches of an epoch; ``report`` gets each epoch with a value and may raise to stop.
    """
    optimizer = torch.optim.AdamW(network.parameters(), learning_rate, weight_decay=weight_decay)
    falling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 - epoch / epochs)
    course = Course(best=epochs)
    best: dict[str, Tensor] = {}
    for epoch in range(1, epochs + 1):
        network.train()
        losses = []
        for batch in batches():
            optimizer.zero_grad()
            loss = loss_of(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(float(loss.detach()))
        falling.step()
        course.losses.append(sum(losses) / len(losses))
        if epoch % max(1, epochs // LOOKS) and epoch < epochs:
            continue
        line = f"epoch {epoch} of {epochs}: loss {course.losses[-1]:.4f}"
        if measure is not None:
            course.values[epoch] = value = measure()
            line += f", metric on validation rows {value:.4f}"
            if not best or value > course.values[course.best]:
                course.best, best = epoch, {name: part.clone() for name, part in network.state_dict().items()}
            if report is not None:
                report(epoch, value)
        if verbose:
            print(line, flush=True)
        if measure is not None and epoch - course.best >= patience:
            break
    if best:
        network.load_state_dict(best)
    return course


def shuffled(size: int | None, labels: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    """Item indices in stratified batches of about ``size``; one batch if ``size`` is None."""
    count = len(labels)
    if size is None or size >= count:
        return iter([torch.arange(count)])
    return iter(mixed(labels, generator).tensor_split(-(-count // size)))


def mixed(labels: Tensor, generator: torch.Generator) -> Tensor:
    """All item indices in random order, with each label spread evenly."""
    places = torch.empty(len(labels))
    for label in torch.unique(labels):
        own = (labels == label).nonzero().squeeze(1)
        # Evenly spread over the whole, at random within each stretch.
        draws = torch.randperm(len(own), generator=generator) + torch.rand(len(own), generator=generator)
        places[own] = draws / len(own)
    return places.argsort()


def resampled(weight: Tensor, count: int, offset: float = 0.5) -> Tensor:
    """``count`` item indices, each item about as often as its weight says; for metrics without weights.

    Systematic resampling: an item with k times the mean weight is drawn k times, up to rounding, which is unbiased if
    ``offset`` is uniform on (0, 1).

    Examples:
        >>> resampled(torch.tensor([2.0, 1.0, 1.0, 4.0], dtype=torch.float64), 8)
        tensor([0, 0, 1, 2, 3, 3, 3, 3])
    """
    places = (torch.arange(count, dtype=torch.float64) + offset) / count
    return torch.searchsorted(weight.cumsum(0) / weight.sum(), places).clamp(max=len(weight) - 1)
