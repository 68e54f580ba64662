"""Two passes in chunks give the gradient of one pass over everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import directloss as dl

# Sums of float64 in another order.
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def network(*, dropout: float = 0.0) -> nn.Sequential:
    layers = [nn.Linear(5, 7), nn.Tanh(), nn.Dropout(dropout), nn.Linear(7, 1), nn.Flatten(0)]
    return nn.Sequential(*layers).double()


def problem(items: int = 103) -> tuple[Tensor, Tensor]:
    return torch.randn(items, 5, dtype=torch.float64), (torch.rand(items) < 0.3).long()


def gradients(model: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def one_pass(model: nn.Module, chunks: list[tuple[Tensor, Tensor]], loss_fn: Callable[..., Tensor]) -> Tensor:
    loss = loss_fn(torch.cat([model(x) for x, _ in chunks]), torch.cat([y for _, y in chunks]))
    loss.backward()
    return loss.detach()


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))


LOSSES = {
    "pos-ap": dl.DirectLoss("ap", epsilon=0.7),
    "ap": dl.DirectLoss("ap"),
    "hinge-ap": dl.HingeLoss("ap"),
    "f1": dl.DirectLoss("f1"),
    "x-ent": cross_entropy,
}


@pytest.mark.parametrize("loss_fn", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("chunk", [1, 10, 103, 1000])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_equals_one_pass(loss_fn: Callable[..., Tensor], chunk: int, dropout: float) -> None:
    model, (x, y) = network(dropout=dropout), problem()
    torch.manual_seed(1)
    expected = one_pass(model, list(zip(x.split(chunk), y.split(chunk), strict=True)), loss_fn)
    wanted, drawn_next = [grad.clone() for grad in gradients(model)], torch.rand(1)
    model.zero_grad()
    torch.manual_seed(1)
    torch.testing.assert_close(dl.full_batch_step(model, (x, y), loss_fn, chunk), expected)
    assert any(bool((grad != 0).any()) for grad in wanted)
    for found, right in zip(gradients(model), wanted, strict=True):
        torch.testing.assert_close(found, right, **CLOSE)
    assert torch.equal(torch.rand(1), drawn_next)


def test_chunks_of_ap_alone_would_be_wrong() -> None:
    model, (x, y) = network(), problem()
    loss_fn = dl.DirectLoss("ap", epsilon=0.7)
    dl.full_batch_step(model, (x, y), loss_fn, 10)
    right = gradients(model)[0].clone()
    model.zero_grad()
    for start in range(0, 100, 10):
        (loss_fn(model(x[start : start + 10]), y[start : start + 10]) / 10).backward()
    assert not torch.allclose(gradients(model)[0], right, rtol=0.1)


def test_never_more_than_a_chunk_in_the_model() -> None:
    seen: list[tuple[int, bool]] = []
    model, (x, y) = network(), problem(50)
    model.register_forward_hook(lambda _m, inputs, _o: seen.append((len(inputs[0]), torch.is_grad_enabled())))
    dl.full_batch_step(model, (x, y), dl.DirectLoss("ap"), 20)
    assert seen == [(20, False), (20, False), (10, False), (20, True), (20, True), (10, True)]


def test_gradients_are_added() -> None:
    model, data = network(), problem()
    dl.full_batch_step(model, data, LOSSES["pos-ap"], 10)
    once = gradients(model)[0].clone()
    dl.full_batch_step(model, data, LOSSES["pos-ap"], 10)
    torch.testing.assert_close(gradients(model)[0], 2 * once)


class Pairs(torch.utils.data.Dataset[Any]):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.x[index], int(self.y[index])


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x, y: Pairs(x, y),
        lambda x, y: TensorDataset(x, y),
        lambda x, y: list(zip(x.split(10), y.split(10), strict=True)),
        lambda x, y: [(x[:0], y[:0]), (x, y)],
        lambda x, y: DataLoader(TensorDataset(x, y), batch_size=10),
        # The generator that shuffles is replayed like that of dropout.
        lambda x, y: DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True),
    ],
    ids=["dataset", "tensor dataset", "list", "empty chunk", "loader", "shuffled loader"],
)
def test_all_kinds_of_data(wrap: Callable[[Tensor, Tensor], Any]) -> None:
    model, (x, y) = network(), problem()
    expected = one_pass(model, [(x, y)], LOSSES["pos-ap"])
    wanted = [grad.clone() for grad in gradients(model)]
    model.zero_grad()
    torch.testing.assert_close(dl.full_batch_step(model, wrap(x, y), LOSSES["pos-ap"], 10), expected)
    for found, right in zip(gradients(model), wanted, strict=True):
        torch.testing.assert_close(found, right, **CLOSE)


def test_loss_with_parameters_of_its_own() -> None:
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    dl.full_batch_step(network(), problem(), lambda s, y: cross_entropy(scale * s, y))
    assert scale.grad is not None


class Changing:
    """Another order in each reading, from a generator that nobody replays."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.draw = x, y, torch.Generator().manual_seed(0)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.y), generator=self.draw)
        yield from zip(self.x[order].split(10), self.y[order].split(10), strict=True)


class Shrinking(Changing):
    left = 3

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.left -= 1
        yield from [(self.x, self.y)] * self.left


class Growing(Shrinking):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.left += 1
        yield from [(self.x, self.y)] * self.left


class Relabelled(Shrinking):
    """The same inputs with other labels in the second reading."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.left -= 1
        yield self.x, self.y if self.left == 2 else self.y.flip(0)


X, Y = torch.randn(30, 5, dtype=torch.float64), torch.arange(30) % 3


def ap(scores: Tensor, target: Tensor) -> Tensor:
    return dl.direct_loss(scores, target == 0, "ap")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chunk": 0}, "chunk must be a whole number of at least 1"),
        ({"data": (X, Y[:5])}, r"as many inputs as labels, but it is of shapes \(30, 5\) and \(5,\)"),
        ({"data": (X[:0], Y[:0])}, "data must have at least one item"),
        ({"data": []}, "data must have at least one item"),
        ({"data": 3}, "iterable of chunks, but it is a int"),
        ({"data": iter([(X, Y)])}, "readable twice, but it is a list_iterator"),
        ({"data": [X, Y]}, "each chunk of data must be a pair"),
        ({"data": Changing(X, Y)}, "the same items with the same labels and scores"),
        ({"data": Shrinking(X, Y)}, "the same items with the same labels and scores"),
        ({"data": Growing(X, Y)}, "the same items with the same labels and scores"),
        ({"data": Relabelled(X, Y)}, "the same items with the same labels and scores"),
        ({"data": Changing(0 * X, Y)}, "the same items with the same labels and scores"),
        ({"loss_fn": lambda s, y: s.detach().mean()}, "loss_fn must be differentiable"),
        ({"loss_fn": lambda s, y: torch.ones((), requires_grad=True)}, "a function that does not use them"),
        ({"loss_fn": lambda s, y: s}, "must be a scalar"),
        ({"loss_fn": lambda s, y: 3.0}, "must be a torch.Tensor"),
        ({"model": nn.Flatten(0).double()}, "one entry for each of the 30 items"),
        ({"model": nn.Sequential(nn.BatchNorm1d(5).double(), network())}, "BatchNorm1d '0'"),
    ],
)
def test_bad_input(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"model": network(), "data": (X, Y), "loss_fn": ap, "chunk": 256}
    with pytest.raises(dl.DirectLossError, match=message):
        dl.full_batch_step(**(good | change))


def test_labels_may_be_missing() -> None:
    labels = torch.where(Y == 2, torch.nan, Y.double())
    loss = dl.full_batch_step(network(), (X, labels), lambda s, y: ap(s[~y.isnan()], y[~y.isnan()]), 7)
    assert 0 < loss < 1


def test_batch_norm_with_stored_statistics_is_fine() -> None:
    model = nn.Sequential(nn.BatchNorm1d(5).double().eval(), network())
    assert dl.full_batch_step(model, (X, Y), ap, 7) > 0
