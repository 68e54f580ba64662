"""The exact gradient of a full batch in bounded memory.

Average precision couples all items, so the mean gradient of small batches is not the gradient of the whole batch.
But the loss depends on the network only through the scores, and by the chain rule

    dL/dw = sum_i dL/ds_i * ds_i/dw

the sum over the items can be computed in chunks once all ``dL/ds_i`` are known. So the data is read twice: first for
the scores, without a graph; then in chunks with a graph, each with its stored part of the score gradient. This takes
the memory of one chunk and one extra forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import get_device_states, set_device_states
from torch.utils.data import DataLoader, Dataset

from directloss._checks import check_count, check_tensor, fail

Chunk = tuple[Any, Tensor]
"""Inputs and labels of some items; the inputs are whatever the model takes."""
Data = tuple[Tensor, Tensor] | Dataset[Any] | Iterable[Chunk]

SAME = 1e-3
"""Relative difference between two passes that a different summation order can explain, even in half precision."""


def full_batch_step(
    model: nn.Module, data: Data, loss_fn: Callable[[Tensor, Tensor], Tensor], chunk: int = 256
) -> Tensor:
    """Add the gradient of ``loss_fn`` over all of ``data`` to the ``.grad`` of the model; return the loss.

    The gradient is that of ``loss_fn(model(x), y).backward()``, with at most ``chunk`` items in a graph at any time.
    As with ``backward``, call ``optimizer.zero_grad()`` before and ``optimizer.step()`` after.

    The data is read twice. The second pass draws the same random numbers (dropout) as the first, and the generators
    end where an ordinary step would have left them. Scores or labels that differ between the passes raise
    `DirectLossError`. So does batch normalisation in training mode, because it would see chunks instead of the batch.

    Args:
        model: returns scores with one entry per item in the first dimension.
        data: tensors ``(x, y)``; or a map-style `torch.utils.data.Dataset` of pairs; or any iterable of chunks
            ``(x, y)``, such as a list or a `DataLoader`, that can be read twice. Tensors may be on another device than
            the model; each chunk is moved when it is needed.
        loss_fn: takes the scores and labels of all items, returns a scalar.
        chunk: how many items go through the model at once; ignored for an iterable of chunks.

    Returns:
        The loss, detached.

    Examples:
        >>> from directloss import DirectLoss
        >>> x, y = torch.randn(1000, 8), torch.arange(1000) % 5 == 0
        >>> model = nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))
        >>> loss = full_batch_step(model, (x, y), DirectLoss("ap"), chunk=100)
        >>> model[0].weight.grad.shape
        torch.Size([1, 8])
    """
    _check_model(model)
    if not callable(loss_fn):
        fail("loss_fn", "must be a function of scores and labels", repr(loss_fn), 'For example DirectLoss("ap").')
    chunks = _chunks(data, check_count("chunk", chunk))
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    before = _random_state(model)
    scores, target, sizes = _first_pass(model, chunks, device)
    loss, gradient = _loss(loss_fn, scores, target)
    after = _random_state(model)
    _set_random_state(*before)
    first = zip(*(torch.split(one, sizes) for one in (scores.detach(), target, gradient)), strict=True)
    _second_pass(model, chunks, device, first)
    _set_random_state(*after)
    return loss


def _first_pass(
    model: nn.Module, chunks: Callable[[], Iterator[Chunk]], device: torch.device
) -> tuple[Tensor, Tensor, list[int]]:
    """All scores, all labels, and the size of each chunk."""
    scores, targets = [], []
    with torch.no_grad():
        for inputs, target in chunks():
            scores.append(_scores(model, inputs, len(target), device))
            targets.append(target.to(device))
    if not any(len(part) for part in scores):
        fail("data", "must have at least one item", "empty")
    return torch.cat(scores).requires_grad_(), torch.cat(targets), [len(part) for part in scores]


def _loss(loss_fn: Callable[[Tensor, Tensor], Tensor], scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and its gradient with respect to the scores; parameters of the loss receive their gradients too."""
    with torch.enable_grad():
        loss = check_tensor("the result of loss_fn", loss_fn(scores, target))
        if loss.numel() != 1:
            fail("the result of loss_fn", "must be a scalar", f"of shape {tuple(loss.shape)}", 'Use reduction="mean".')
        if not loss.requires_grad:
            fail("loss_fn", "must be differentiable in the scores", "without a gradient")
        loss.backward()  # type: ignore[no-untyped-call]
    if scores.grad is None:
        fail("loss_fn", "must be differentiable in the scores", "a function that does not use them")
    return loss.detach(), scores.grad


def _second_pass(
    model: nn.Module, chunks: Callable[[], Iterator[Chunk]], device: torch.device, first: Iterable[tuple[Tensor, ...]]
) -> None:
    """Backpropagate the chunks, each with the scores, labels and gradient of the first pass."""
    again = chunks()
    for scores, labels, gradient in first:
        item = next(again, None)
        if item is None or item[1].shape != labels.shape or not _same(item[1].to(labels), labels):
            _refuse_changes()
        with torch.enable_grad():
            repeated = _scores(model, item[0], len(labels), device)
        if not _same(repeated.detach(), scores, SAME):
            _refuse_changes()
        repeated.backward(gradient)  # type: ignore[no-untyped-call]
    if next(again, None) is not None:
        _refuse_changes()


def _same(repeated: Tensor, expected: Tensor, tolerance: float = 0.0) -> bool:
    """Whether two tensors are equal; NaN equals NaN, because a label may be missing."""
    scale = float(expected.abs().max()) if tolerance and expected.numel() else 0.0
    return torch.allclose(repeated, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def _refuse_changes() -> NoReturn:
    fail(
        "data",
        "must give the same items with the same labels and scores in both passes",
        "different in the second pass",
        "Switch off shuffling and random augmentation; the model must not change its state when called.",
    )


def _scores(model: nn.Module, inputs: Any, items: int, device: torch.device) -> Tensor:
    scores = check_tensor("model(x)", model(inputs.to(device) if isinstance(inputs, Tensor) else inputs))
    if scores.dim() == 0 or len(scores) != items:
        fail("model(x)", f"must have one entry for each of the {items} items", f"of shape {tuple(scores.shape)}")
    return scores


def _chunks(data: Data, size: int) -> Callable[[], Iterator[Chunk]]:
    """A function that starts a new pass over the data."""
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], Tensor) and isinstance(data[1], Tensor):
        x, y = data
        if x.dim() == 0 or y.dim() == 0 or len(x) != len(y):
            fail("data", "must have as many inputs as labels", f"of shapes {tuple(x.shape)} and {tuple(y.shape)}")
        return lambda: zip(torch.split(x, size), torch.split(y, size), strict=True)
    if isinstance(data, Dataset) and hasattr(data, "__len__"):
        # With its own generator: otherwise the loader draws from the global one.
        return lambda: map(_pair, DataLoader(data, size, generator=torch.Generator()))
    if isinstance(data, Iterator):
        fail("data", "must be readable twice", f"a {type(data).__name__}, which is exhausted after one pass")
    if not isinstance(data, Iterable):
        fail("data", "must be tensors (x, y), a dataset of pairs, or an iterable of chunks", f"a {type(data).__name__}")
    return lambda: map(_pair, data)


def _pair(item: Any) -> Chunk:
    if not isinstance(item, tuple | list) or len(item) != 2 or not isinstance(item[1], Tensor) or item[1].dim() == 0:
        fail("each chunk of data", "must be a pair of inputs and a tensor of labels", f"a {type(item).__name__}")
    return item[0], item[1]


def _check_model(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.training:
            fail(
                "model",
                "must not have batch normalisation in training mode, which would see chunks instead of the batch",
                f"one with {type(module).__name__} {name!r}",
                f"Call model.get_submodule({name!r}).eval() to use its stored statistics.",
            )


def _random_state(model: nn.Module) -> tuple[Tensor, list[int], list[Tensor]]:
    """The state of the CPU generator; the model's other devices and the states of their generators."""
    one_each = {parameter.device: parameter for parameter in model.parameters()}
    return torch.get_rng_state(), *get_device_states(*one_each.values())


def _set_random_state(here: Tensor, devices: list[int], states: list[Tensor]) -> None:
    torch.set_rng_state(here)
    set_device_states(devices, states)
