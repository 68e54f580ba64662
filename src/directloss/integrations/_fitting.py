"""The network of an estimator, its scores, and batches of rows."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from directloss._checks import fail
from directloss.integrations._rows import ScaledRows, blocks_of

WIDTH = 64
"""Width of the hidden layer of ``model="mlp"``."""
ONE_AT_A_TIME = threading.Lock()
"""For the global generator of random numbers, which all threads share."""

Network = Callable[[int, int], nn.Module]
"""Makes a network from the number of columns and the number of scores per row."""


def make_network(model: object, columns: int, outputs: int, generator: torch.Generator) -> nn.Module:
    """The network for ``model``: "linear", "mlp", widths of hidden layers, or a function of columns and outputs."""
    widths: Any = {"linear": (), "mlp": (WIDTH,)}.get(model) if isinstance(model, str) else model
    fixed = isinstance(widths, tuple | list) and all(type(width) is int and width > 0 for width in widths)
    make: Network = (lambda *ends: layers([ends[0], *widths, ends[1]])) if fixed else _checked(model, columns, outputs)
    with ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):  # initial weights come from the global generator
        torch.default_generator.set_state(generator.get_state())
        network = make(columns, outputs)
        generator.set_state(torch.default_generator.get_state())
    if not isinstance(network, nn.Module):
        fail("model(columns, outputs)", "must be a torch.nn.Module", f"a {type(network).__name__}")
    return network.float()


def _checked(model: object, columns: int, outputs: int) -> Network:
    """The model if it is a function of columns and outputs."""
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
    return model


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
