"""Sets of configurations of binaries: the places of the anchors, stored as cheaply as they allow.

Interpolation needs two things of them only: the squared distances to a relaxed configuration ``u``, and weighted sums,
for the gradient. A few flips away from a base both cost O(flips) on top of the base.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 1 << 22
"""Numbers that are made at a time out of stored bits."""


class Configurations(ABC):
    """``k`` configurations of ``l`` binaries."""

    count: int
    """How many: ``k``."""

    @abstractmethod
    def along(self, weight: Tensor) -> Tensor:
        """Inner product of each with a vector ``(l,)``: shape ``(k,)``."""

    @abstractmethod
    def mixed(self, weight: Tensor) -> Tensor:
        """Their sum with a weight ``(k,)`` for each: shape ``(l,)``."""

    @abstractmethod
    def some(self, part: slice) -> Tensor:
        """The bits of some of them, boolean ``(k, l)``."""

    def dense(self) -> Tensor:
        """All bits, boolean ``(k, l)``."""
        return self.some(slice(None))

    def pieces(self, length: int) -> Iterator[Tensor]:
        """All bits, a few configurations of ``length`` binaries at a time."""
        rows = max(1, BLOCK // max(1, length))
        for start in range(0, self.count, rows):
            yield self.some(slice(start, start + rows))

    def squared_distances(self, u: Tensor) -> Tensor:
        """``|u - a|^2`` for each configuration a, differentiable in ``u``."""
        result: Tensor = _SquaredDistances.apply(u, self)  # type: ignore[no-untyped-call]
        return result

    def between(self) -> Tensor:
        """Hamming distances ``(k, k)``, which for configurations are the squared distances."""
        inner = _inner(self, self)
        ones = inner.diagonal()
        return ones[:, None] + ones[None, :] - 2 * inner


class Dense(Configurations):
    """Configurations with nothing in common.

    Examples:
        >>> Dense(torch.tensor([[True, False], [True, True]])).squared_distances(torch.tensor([0.5, 0.0]))
        tensor([0.2500, 1.2500])
    """

    def __init__(self, bits: Tensor) -> None:
        self.bits = bits
        self.count = len(bits)

    def along(self, weight: Tensor) -> Tensor:
        """Inner products, a block of binaries at a time."""
        total = weight.new_zeros(self.count)
        for part in self._blocks():
            total += self.bits[:, part].to(weight.dtype) @ weight[part]
        return total

    def mixed(self, weight: Tensor) -> Tensor:
        """Weighted sum, a block of binaries at a time."""
        total = weight.new_empty(self.bits.shape[1])
        for part in self._blocks():
            total[part] = weight @ self.bits[:, part].to(weight.dtype)
        return total

    def some(self, part: slice) -> Tensor:
        """The bits themselves."""
        return self.bits[part]

    def _blocks(self) -> list[slice]:
        width = max(1, BLOCK // max(1, self.count))
        return [slice(start, start + width) for start in range(0, self.bits.shape[1], width)]


class Flipped(Configurations):
    """Configurations that differ from one base in a few binaries.

    Args:
        base: boolean ``(l,)``.
        where: indices ``(k, f)`` of binaries.
        flips: boolean ``(k, f)``, which of them are flipped; None for all. No binary may be flipped twice in a row.

    Examples:
        >>> near = Flipped(torch.tensor([True, False]), torch.tensor([[0], [1]]))
        >>> near.dense()
        tensor([[False, False],
                [ True,  True]])
    """

    def __init__(self, base: Tensor, where: Tensor, flips: Tensor | None = None) -> None:
        self.base, self.where = base, where
        self.count = len(where)
        change = torch.where(base[where], -1, 1)
        self.change = change if flips is None else change * flips
        """What is added to the base at ``where``: -1, 0 or 1."""

    def along(self, weight: Tensor) -> Tensor:
        """That of the base, and what the flips change."""
        return weight[self.base].sum() + (self.change.to(weight.dtype) * weight[self.where]).sum(-1)

    def mixed(self, weight: Tensor) -> Tensor:
        """The base with the sum of the weights, and the flips one by one."""
        total = self.base.to(weight.dtype) * weight.sum()
        change = self.change.to(weight.dtype) * weight[:, None]
        return total.index_add_(0, self.where.flatten(), change.flatten())

    def some(self, part: slice) -> Tensor:
        """The base written out for each."""
        where, change = self.where[part], self.change[part]
        bits = self.base.to(torch.int8).repeat(len(where), 1)
        return bits.scatter_add_(1, where, change.to(torch.int8)) > 0


class Joined(Configurations):
    """Several sets of configurations, one after another."""

    def __init__(self, parts: Sequence[Configurations]) -> None:
        self.parts = [part for part in parts if part.count]
        self.count = sum(part.count for part in self.parts)

    def along(self, weight: Tensor) -> Tensor:
        """Inner products of all parts."""
        return torch.cat([part.along(weight) for part in self.parts])

    def mixed(self, weight: Tensor) -> Tensor:
        """Sum over the parts."""
        pieces = torch.split(weight, [part.count for part in self.parts])
        total = self.parts[0].mixed(pieces[0])
        for part, piece in zip(self.parts[1:], pieces[1:], strict=True):
            total += part.mixed(piece)
        return total

    def some(self, part: slice) -> Tensor:
        """The bits of some, whichever set they are in."""
        return torch.cat([piece.dense() for piece in self.parts])[part]


def _inner(first: Configurations, second: Configurations) -> Tensor:
    """Inner products of two sets of configurations, float64: how many ones they share."""
    if isinstance(first, Joined):
        return torch.cat([_inner(part, second) for part in first.parts])
    if isinstance(second, Joined) or (isinstance(first, Flipped) and isinstance(second, Dense)):
        return _inner(second, first).T
    if isinstance(first, Flipped) and isinstance(second, Flipped):
        return _inner_of_flipped(first, second)
    assert isinstance(first, Dense)
    if isinstance(second, Flipped):
        base = first.along(second.base.double())
        flips = (first.bits[:, second.where] * second.change).sum(-1, dtype=torch.float64)
        return base[:, None] + flips
    assert isinstance(second, Dense)
    # Products of bits in single precision are exact up to 2^24 of them, which is more than a block has.
    total = torch.zeros(first.count, second.count, dtype=torch.float64, device=first.bits.device)
    for part in first._blocks():
        total += first.bits[:, part].float() @ second.bits[:, part].float().T
    return total


def _inner_of_flipped(first: Flipped, second: Flipped) -> Tensor:
    bases = (first.base & second.base).sum(dtype=torch.float64)
    of_first = (first.change * second.base[first.where]).sum(-1, dtype=torch.float64)
    of_second = (second.change * first.base[second.where]).sum(-1, dtype=torch.float64)
    touched, place = torch.unique(torch.cat([first.where.flatten(), second.where.flatten()]), return_inverse=True)
    split = first.where.numel()
    both = [
        torch.zeros(part.count, len(touched), device=place.device).scatter_add_(
            1, at.reshape(part.where.shape), part.change.float()
        )
        for part, at in ((first, place[:split]), (second, place[split:]))
    ]
    return bases + of_first[:, None] + of_second[None, :] + (both[0] @ both[1].T).double()


class _SquaredDistances(torch.autograd.Function):
    """Distances measured from the nearest configuration r, the rounded u, so that nothing cancels.

    With ``e = |u - r| <= 1/2`` every binary in which an anchor differs from r adds ``1 - 2 e >= 0`` to ``|u - r|^2``.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, configurations: Configurations) -> Tensor:
        nearest = u > 0.5
        # What a 1 costs more than a 0, in each binary: an anchor adds up its ones and compares with those of r.
        extra = 1 - 2 * u
        least = torch.where(nearest, 1 - u, u).square().sum(dtype=torch.float64)
        gap = configurations.along(extra.double()) - extra[nearest].sum(dtype=torch.float64)
        ctx.save_for_backward(u)
        ctx.configurations = configurations
        return (least + gap.clamp(min=0)).to(u.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor, None]:
        (u,) = ctx.saved_tensors
        return 2 * (weight.sum() * u - ctx.configurations.mixed(weight)), None
