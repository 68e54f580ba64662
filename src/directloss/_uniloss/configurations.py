"""Sets of configurations of binaries, one byte per binary: where the anchors lie.

Interpolation needs only three things from them: the squared distances to a relaxed configuration ``u``, weighted sums
for their gradient, and the distances among themselves. Binaries become floating-point numbers block by block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 1 << 20
"""How many stored bits become numbers at a time."""


class Configurations:
    """``k`` configurations of ``l`` binaries.

    Args:
        parts: boolean ``(k_i, l)``; not concatenated, which would double their memory.

    Examples:
        >>> Configurations(torch.tensor([[True, False], [True, True]])).squared_distances(torch.tensor([0.5, 0.0]))
        tensor([0.2500, 1.2500])
    """

    def __init__(self, *parts: Tensor) -> None:
        self.parts = parts
        self.count = sum(map(len, parts))

    def dense(self) -> Tensor:
        """All bits, boolean ``(k, l)``."""
        return torch.cat(self.parts)

    def along(self, weight: Tensor) -> Tensor:
        """The inner product of each with a vector ``(l,)``, shape ``(k,)``."""
        total = weight.new_zeros(self.count)
        for some, numbers in self._blocks(weight.dtype):
            total += numbers @ weight[some]
        return total

    def mixed(self, weight: Tensor) -> Tensor:
        """Their sum, weighted by ``(k,)``: shape ``(l,)``."""
        total = weight.new_empty(self.parts[0].shape[1])
        for some, numbers in self._blocks(weight.dtype):
            total[some] = weight @ numbers
        return total

    def squared_distances(self, u: Tensor) -> Tensor:
        """``|u - a|^2`` for each configuration a, differentiable in ``u``."""
        result: Tensor = _SquaredDistances.apply(u, self)  # type: ignore[no-untyped-call]
        return result

    def between(self) -> Tensor:
        """Hamming distances ``(k, k)``, float64, which for configurations are the squared distances."""
        shared = torch.zeros(self.count, self.count, dtype=torch.float64, device=self.parts[0].device)
        # Single precision counts bits exactly up to 2^24, which is more than a block has.
        for _, numbers in self._blocks(torch.float32):
            shared += numbers @ numbers.T
        ones = shared.diagonal()
        return ones[:, None] + ones[None, :] - 2 * shared

    def _blocks(self, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
        """Some binaries of all configurations at a time: their slice, and numbers ``(k, some)``."""
        width = max(1, BLOCK // max(1, self.count))
        for start in range(0, self.parts[0].shape[1], width):
            some = slice(start, start + width)
            yield some, torch.cat([part[:, some] for part in self.parts]).to(dtype)


class _SquaredDistances(torch.autograd.Function):
    """Distances measured from the nearest configuration r, the rounded u, so that nothing cancels.

    With ``e = |u - r| <= 1/2`` every binary in which an anchor differs from r adds ``1 - 2 e >= 0`` to ``|u - r|^2``.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, configurations: Configurations) -> Tensor:
        nearest = u > 0.5
        # What a 1 costs more than a 0 in each binary: each anchor sums its ones, to compare with those of r.
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
