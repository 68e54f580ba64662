"""Which score an entry of a tensor is: images of scores under monotone functions, recognised by their witness value.

An *image* of score i is ``phi(s_i)`` for a strictly monotone phi. Comparing two images under the same phi compares the
scores; comparing an image with a constant t compares the score with ``phi^-1(t)``. Softmax and the like are monotone
only within a row: such images carry the number of their row as *group*, and have no inverse. Differences of two images
are kept as well, with the second score as *partner*.

Data movement (indexing, sorting, concatenation, views) needs no rules: the witness value moves along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

TOLERANCE = 1e-10
"""Closer witness values are the same expression: different ones are some 1e-5 apart, and float64 errs by 1e-15."""

Inverse = Callable[[Tensor], Tensor]
Function = tuple[Any, ...]
IDENTITY: Function = ()


class Origin(NamedTuple):
    """Which image each entry of a tensor is; all fields have the tensor's shape."""

    score: Tensor
    """The flat index of the score; -1 if the entry is not a known image."""
    partner: Tensor
    """The flat index of the subtracted score; -1 if there is none."""
    function: Tensor
    """The number of phi."""
    group: Tensor
    """The number of the row within which phi is monotone; -1 if it is monotone everywhere."""


@dataclass
class Kind:
    """A function phi and the images seen under it."""

    name: Function
    number: int
    direction: int
    inverse: Inverse | None
    low: float
    high: float
    values: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    columns: Tensor = field(default_factory=lambda: torch.empty(3, 0, dtype=torch.long))


class Images:
    """All images seen in a run.

    Args:
        scores: the witness scores.
        low: the least value that a score can have.
        high: the greatest value that a score can have.
    """

    def __init__(self, scores: Tensor, low: float, high: float) -> None:
        self.kinds: dict[Function, Kind] = {}
        self.by_number: list[Kind] = []
        self._groups = 0
        index = torch.arange(scores.numel(), device=scores.device).reshape(scores.shape)
        none = torch.full_like(index, -1)
        itself = self.kind(IDENTITY, 1, lambda t: t, low, high)
        self.add(itself, index >= 0, scores, Origin(index, none, none, none))

    def kind(self, name: Function, direction: int, inverse: Inverse | None, low: float, high: float) -> Kind:
        """The kind of this name, created on first use."""
        if name not in self.kinds:
            self.kinds[name] = Kind(name, len(self.by_number), direction, inverse, low, high)
            self.by_number.append(self.kinds[name])
        return self.kinds[name]

    def groups(self, shape: Sequence[int], device: torch.device) -> Tensor:
        """New group numbers."""
        first = self._groups
        self._groups += math.prod(shape)
        return torch.arange(first, self._groups, device=device).reshape(shape)

    def add(self, kind: Kind, where: Tensor, values: Tensor, origin: Origin) -> None:
        """Remember that the values in these places are images of their scores, replacing the function of ``origin``."""
        good = where & torch.isfinite(values) & (origin.score >= 0)
        values = values[good]
        columns = torch.stack((origin.score[good], origin.partner[good], origin.group[good]))
        fresh = find(kind.values, values) < 0
        if bool(fresh.any()):
            values = torch.cat((kind.values.to(values.device), values[fresh]))
            columns = torch.cat((kind.columns.to(columns.device), columns[:, fresh]), 1)
            order = values.argsort()
            kind.values, kind.columns = values[order], columns[:, order]

    def locate(self, shadow: Tensor) -> Origin:
        """Which images the entries of a shadow are."""
        flat = shadow.contiguous().flatten()
        found = torch.full((4, flat.numel()), -1, dtype=torch.long, device=flat.device)
        for kind in self.by_number:
            at = find(kind.values, flat)
            hit = (found[0] < 0) & (at >= 0)
            if bool(hit.any()):
                found[:3, hit] = kind.columns[:, at[hit]]
                found[3, hit] = kind.number
                if bool((found[0] >= 0).all()):
                    break
        index, partner, group, function = (row.reshape(shadow.shape) for row in found)
        return Origin(index, partner, function, group)

    def bounds(self, shadow: Tensor) -> tuple[float, float]:
        """The range of these images over all scores; infinite if any entry is not a known image."""
        numbers = torch.unique(self.locate(shadow).function).tolist()
        if not numbers or min(numbers) < 0:
            return -math.inf, math.inf
        return min(self.by_number[n].low for n in numbers), max(self.by_number[n].high for n in numbers)

    def inverse(self, function: Tensor, value: Tensor) -> Tensor:
        """The scores whose images are the values; NaN if phi has no inverse."""
        out = torch.full_like(value, torch.nan)
        for number in torch.unique(function).tolist():
            inverse = self.by_number[number].inverse if number >= 0 else None
            if inverse is not None:
                here = function == number
                out[here] = inverse(value[here])
        return out

    def directions(self, function: Tensor) -> Tensor:
        """+1 where phi increases, -1 where it decreases."""
        table = torch.tensor([kind.direction for kind in self.by_number] + [1], device=function.device)
        return table[function]


def find(table: Tensor, values: Tensor) -> Tensor:
    """The places of values in a sorted table, within the tolerance; -1 if not found."""
    if table.numel() == 0:
        return torch.full_like(values, -1, dtype=torch.long)
    right = torch.searchsorted(table, values.contiguous()).clamp(max=table.numel() - 1)
    left = (right - 1).clamp(min=0)
    nearer = (table[left] - values).abs() < (table[right] - values).abs()
    at = torch.where(nearer, left, right)
    close = (table[at] - values).abs() <= TOLERANCE * values.abs().clamp(min=1)
    return torch.where(close & torch.isfinite(values), at, -1)
