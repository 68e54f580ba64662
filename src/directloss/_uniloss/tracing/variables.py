"""The variables of a metric: pairs of scores, scores and thresholds, and comparisons of general form; each one once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from directloss._uniloss.tracing.images import find
from directloss._uniloss.tracing.questions import FIXED, GENERAL, PAIR, THRESHOLD, Asked

TICKS = 2.0**28
"""Thresholds are told apart to 1 part in this."""
LARGEST = 2.0**33
"""Beyond this a threshold is as good as infinite."""


@dataclass(frozen=True)
class Variables:
    """All variables, numbered: first the pairs, then the thresholds, then the general ones."""

    m: int
    """The number of scores."""
    pairs: Tensor
    """Codes ``i * m + j`` with ``i < j``, sorted."""
    ticks: Tensor
    """The different thresholds, rounded to whole numbers, sorted."""
    levels: Tensor
    """The thresholds themselves, float64."""
    places: Tensor
    """Codes ``i * len(ticks) + number of the threshold``, sorted."""
    marks: Tensor
    """The witness values of the general comparisons, sorted."""

    @property
    def count(self) -> int:
        """How many there are."""
        return self.pairs.numel() + self.places.numel() + self.marks.numel()

    @property
    def simple(self) -> int:
        """How many of them are differences of scores, or of a score and a constant."""
        return self.pairs.numel() + self.places.numel()

    def left(self) -> Tensor:
        """The first score of each simple variable."""
        return torch.cat((self.pairs // self.m, self.places // max(len(self.ticks), 1)))

    def right(self) -> Tensor:
        """The second score of each simple variable, -1 for thresholds."""
        return torch.cat((self.pairs % self.m, torch.full_like(self.places, -1)))

    def offset(self) -> Tensor | None:
        """What to add, float64: minus the threshold."""
        if self.places.numel() == 0:
            return None
        level = self.levels[self.places % max(len(self.ticks), 1)]
        return torch.cat((torch.zeros(self.pairs.numel(), dtype=torch.float64, device=level.device), -level))

    def number(self, asked: Asked) -> Tensor:
        """The number of the variable of each question, -1 for a question that is no variable, -2 for an unknown one."""
        out = torch.full(asked.kind.shape, -2, dtype=torch.long, device=asked.kind.device)
        out[asked.kind == FIXED] = -1
        here = asked.kind == PAIR
        out[here] = _exact(self.pairs, asked.code[here])
        here = asked.kind == THRESHOLD
        tick = _exact(self.ticks, _rounded(asked.value[here]))
        place = _exact(self.places, asked.code[here] * max(len(self.ticks), 1) + tick)
        out[here] = torch.where((tick < 0) | (place < 0), -2, place + self.pairs.numel())
        here = asked.kind == GENERAL
        if self.marks.numel():
            at = find(self.marks, asked.value[here])
            out[here] = torch.where(at < 0, -2, at + self.simple)
        return out


def collect(asked: Iterable[Asked], m: int, device: torch.device) -> Variables:
    """The variables of these questions."""
    empty = torch.empty(0, dtype=torch.long, device=device)
    codes, index, level, marks = [empty], [empty], [empty.double()], [empty.double()]
    for questions in asked:
        codes.append(torch.unique(questions.code[questions.kind == PAIR]))
        here = questions.kind == THRESHOLD
        index.append(questions.code[here])
        level.append(questions.value[here])
        marks.append(questions.value[questions.kind == GENERAL])
    levels = torch.cat(level)
    ticks, inverse = torch.unique(_rounded(levels), return_inverse=True)
    shown = torch.zeros(len(ticks), dtype=torch.float64, device=device).scatter_(0, inverse, levels)
    places = torch.unique(torch.cat(index) * max(len(ticks), 1) + inverse)
    return Variables(m, torch.unique(torch.cat(codes)), ticks, shown, places, _apart(torch.cat(marks).sort().values))


def _apart(values: Tensor) -> Tensor:
    """One of each run of sorted values that are equal up to rounding."""
    if values.numel() == 0:
        return values
    gap = values[1:] - values[:-1] > 1e-10 * values[1:].clamp(min=1)
    return values[torch.cat((gap.new_ones(1), gap))]


def _rounded(level: Tensor) -> Tensor:
    return (level.clamp(-LARGEST, LARGEST) * TICKS).round().long()


def _exact(table: Tensor, values: Tensor) -> Tensor:
    """Where whole numbers stand in a sorted table; -2 where they do not."""
    if table.numel() == 0:
        return torch.full_like(values, -2)
    at = torch.searchsorted(table, values.contiguous()).clamp(max=table.numel() - 1)
    return torch.where(table[at] == values, at, -2)
