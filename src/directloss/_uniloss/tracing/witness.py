"""What is known about tensors, kept by storage, so that views and in-place writes need no rules of their own.

A tensor that depends on scores has a *shadow*: the same computation in float64 on witness scores. Any tensor may have
*origins*: the set of decisions it depends on, as the bits of an integer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from directloss._uniloss.tracing.tensors import storage_key, storage_length, whole_storage


class Shadows:
    """The shadows and origins of all tensors of one run."""

    def __init__(self) -> None:
        # Storages are kept alive: a freed one could be reused at the same address.
        self._shadow: dict[int, tuple[torch.UntypedStorage, Tensor]] = {}
        self._origins: dict[int, tuple[torch.UntypedStorage, int]] = {}

    def carries(self, tensor: Tensor) -> bool:
        """Whether it holds values that depend on scores."""
        return storage_key(tensor) in self._shadow

    def of(self, tensor: Tensor) -> Tensor:
        """The shadow, float64, in the shape of the tensor; its own values if it has none."""
        known = self._shadow.get(storage_key(tensor))
        if known is None:
            return tensor.to(torch.float64)
        return known[1].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def put(self, tensor: Tensor, shadow: Tensor) -> None:
        """Give a new tensor its shadow."""
        self._keep(tensor, torch.zeros(storage_length(tensor), dtype=torch.float64, device=tensor.device))
        self.of(tensor).copy_(shadow)

    def _keep(self, tensor: Tensor, flat: Tensor) -> None:
        self._shadow[storage_key(tensor)] = (tensor.untyped_storage(), flat)

    def ensure(self, tensor: Tensor) -> None:
        """Give a constant tensor a shadow, before scores are written into it."""
        if not self.carries(tensor):
            self._keep(tensor, whole_storage(tensor).to(torch.float64).clone())

    def origins(self, tensor: Tensor) -> int:
        """The decisions it depends on."""
        known = self._origins.get(storage_key(tensor))
        return 0 if known is None else known[1]

    def add_origins(self, tensor: Tensor, origins: int) -> None:
        """Add to the decisions it depends on."""
        if origins:
            self._origins[storage_key(tensor)] = (tensor.untyped_storage(), origins | self.origins(tensor))


class Domain(NamedTuple):
    """The range of possible scores, and the range that witness scores are drawn from."""

    low: float
    high: float
    first: float
    last: float


def domain_of(scores: Tensor) -> Domain:
    """The range of scores that the metric's guards may have checked: probabilities, positive, or any."""
    if float(scores.min()) < 0:
        return Domain(-math.inf, math.inf, -2.93, 3.11)
    return Domain(0.0, 1.0, 0.013, 0.987) if float(scores.max()) <= 1 else Domain(0.0, math.inf, 0.31, 4.17)


def witness(scores: Tensor, domain: Domain) -> Tensor:
    """Random scores, float64, all distinct and well apart, in the domain of the real ones."""
    generator = torch.Generator().manual_seed(20201 + scores.numel())
    m = scores.numel()
    place = torch.randperm(m, generator=generator) + 0.8 * torch.rand(m, generator=generator, dtype=torch.float64)
    return (domain.first + (domain.last - domain.first) * (place + 0.1) / m).reshape(scores.shape).to(scores.device)
