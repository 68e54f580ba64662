"""The variables of a metric: pairs of scores, scores and thresholds, and comparisons of general form; each one once.

A metric asks "what is the sign of x - y?" many times. `ask` finds the variable of each question, `collect` lists all
variables, and `Variables.number` looks a question up in the list.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from directloss._uniloss.comparisons import Differences
from directloss._uniloss.tracing.images import TOLERANCE, Images, Origin, find

FIXED, PAIR, THRESHOLD, GENERAL = range(4)
"""Not a variable, because the answer is the same for all scores; two scores; a score and a constant; anything else."""
BLOCK = 1 << 19
"""How many questions are processed at a time."""
SAME = 1e-11
"""A general comparison with a smaller witness value compares an expression with itself."""


# ---------------------------------------------------------------------- questions


class Operand(NamedTuple):
    """One side of a comparison."""

    real: Tensor
    shadow: Tensor


class Asked(NamedTuple):
    """Questions, flattened. ``answer = turn * sign(variable)``."""

    kind: Tensor
    turn: Tensor
    code: Tensor
    """``i * m + j`` with ``i < j`` for the pair ``s_i - s_j``; ``i`` for a threshold on ``s_i``."""
    value: Tensor
    """The threshold, or the witness value that marks a general comparison; float64."""
    real: Tensor
    """The answer for the scores of this run, int8."""


def signs(x: Tensor, y: Tensor) -> Tensor:
    """-1, 0 or +1, int8."""
    return (x > y).to(torch.int8) - (x < y).to(torch.int8)


def ask(images: Images, x: Operand, y: Operand, m: int) -> Asked:
    """The questions ``sign(x - y)``, entry by entry, with broadcasting."""
    shape: torch.Size = torch.broadcast_shapes(x.real.shape, y.real.shape)  # type: ignore[no-untyped-call]
    sides = [(side, images.locate(side.shadow)) for side in (x, y)]
    columns = [(side.real, side.shadow, _constant(side, origin), *origin) for side, origin in sides]
    wide = [[part.expand(shape) for part in column] for column in columns]
    # Questions take far less memory than finding them, so that is done for some rows at a time.
    dim = next((d for d, size in enumerate(shape) if size > 1), None)
    length = 1 if dim is None else shape[dim]
    step = max(1, BLOCK * length // max(1, shape.numel()))
    parts = []
    for start in range(0, length, step):
        size = min(step, length - start)
        left, right = (
            [(part if dim is None else part.narrow(dim, start, size)).reshape(-1) for part in side] for side in wide
        )
        parts.append(_ask(images, left, right, m))
    return parts[0] if len(parts) == 1 else Asked(*map(torch.cat, zip(*parts, strict=True)))


def _ask(images: Images, x: list[Tensor], y: list[Tensor], m: int) -> Asked:
    """The questions of flat sides of equal length."""
    (x_real, left, fixed_a, *a_parts), (y_real, right, fixed_b, *b_parts) = x, y
    a, b = Origin(*a_parts), Origin(*b_parts)
    real = signs(x_real, y_real)
    known_a, known_b = a.score >= 0, b.score >= 0
    mark = left - right
    out = Asked(
        torch.full_like(real, GENERAL),
        torch.where(mark < 0, -1, 1).to(torch.int8),
        torch.zeros_like(a.score),
        mark.abs(),
        real,
    )
    never = (fixed_a & fixed_b) | ~torch.isfinite(mark) | (mark.abs() < SAME * left.abs().clamp(min=1))
    out.kind[never] = FIXED
    lone_a, lone_b = known_a & (a.partner < 0), known_b & (b.partner < 0)
    same = known_a & known_b & (a.function == b.function) & (a.group == b.group) & (a.partner == b.partner)
    _pairs(out, images, same, a.score, b.score, a.function, m)
    _pairs(out, images, known_a & ~lone_a & fixed_b & (right == 0), a.score, a.partner, a.function, m)
    _pairs(out, images, known_b & ~lone_b & fixed_a & (left == 0), b.partner, b.score, b.function, m)
    _thresholds(out, images, lone_a & fixed_b, a, right, 1)
    _thresholds(out, images, lone_b & fixed_a, b, left, -1)
    return out


def _constant(operand: Operand, origin: Origin) -> Tensor:
    """Which entries do not depend on the scores: those that are equal for the real and the witness scores."""
    near = 8 * torch.finfo(operand.real.dtype).eps
    gap = (operand.real.detach().to(torch.float64) - operand.shadow).abs()
    same = (gap <= near * operand.shadow.abs()) | (operand.real == operand.shadow)
    return (origin.score < 0) & (same | (torch.isnan(operand.real) & torch.isnan(operand.shadow)))


def _pairs(out: Asked, images: Images, where: Tensor, i: Tensor, j: Tensor, function: Tensor, m: int) -> None:
    """``phi(s_i) - phi(s_j)``."""
    i, j = i[where], j[where]
    turn = torch.where(i < j, 1, -1) * images.directions(function[where])
    out.kind[where] = torch.where(i == j, FIXED, PAIR).to(torch.int8)
    out.real[where] = torch.where(i == j, 0, out.real[where]).to(torch.int8)
    out.turn[where] = turn.to(torch.int8)
    out.code[where] = torch.minimum(i, j) * m + torch.maximum(i, j)


def _thresholds(out: Asked, images: Images, where: Tensor, origin: Origin, constant: Tensor, side: int) -> None:
    """``phi(s_i) - t``, pulled back to ``s_i - phi^-1(t)``; fixed if phi never reaches t."""
    function = origin.function[where]
    level = images.inverse(function, constant[where])
    turn = (side * images.directions(function)).to(torch.int8)
    known = ~torch.isnan(level)
    at = where.nonzero()[:, 0]
    at, level, turn = at[known], level[known], turn[known]
    reached = torch.isfinite(level)
    out.kind[at] = torch.where(reached, THRESHOLD, FIXED).to(torch.int8)
    out.turn[at] = turn
    out.code[at] = origin.score[at]
    out.value[at] = level
    never = at[~reached]
    out.real[never] = torch.where(level[~reached] > 0, -1, 1).to(torch.int8) * turn[~reached]


# ---------------------------------------------------------------------- variables


@dataclass(frozen=True)
class Variables:
    """All variables, numbered: first the pairs, then the thresholds, then the general ones."""

    m: int
    """The number of scores."""
    pairs: Tensor
    """Codes ``i * m + j`` with ``i < j``, sorted."""
    levels: Tensor
    """The distinct thresholds, float64, sorted."""
    places: Tensor
    """Codes ``i * len(levels) + number of the threshold``, sorted."""
    marks: Tensor
    """The witness values of the general comparisons, sorted."""

    @property
    def count(self) -> int:
        """How many there are."""
        return self.pairs.numel() + self.places.numel() + self.marks.numel()

    @property
    def simple(self) -> int:
        """How many are differences of scores, or of a score and a constant."""
        return self.pairs.numel() + self.places.numel()

    @cached_property
    def differences(self) -> Differences:
        """The simple variables as functions of the scores; a threshold is a negative offset in float64."""
        left, right = self.pairs // self.m, self.pairs % self.m
        if self.places.numel() == 0:
            return Differences(left, right)
        left = torch.cat((left, self.places // len(self.levels)))
        right = torch.cat((right, torch.full_like(self.places, -1)))
        level = torch.cat((self.levels.new_zeros(self.pairs.numel()), self.levels[self.places % len(self.levels)]))
        return Differences(left, right, -level)

    def number(self, asked: Asked) -> Tensor:
        """The number of the variable of each question; -1 if it has none, -2 if it is unknown."""
        out = torch.full(asked.kind.shape, -2, dtype=torch.long, device=asked.kind.device)
        out[asked.kind == FIXED] = -1
        here = asked.kind == PAIR
        out[here] = _exact(self.pairs, asked.code[here])
        here = asked.kind == THRESHOLD
        level = find(self.levels, asked.value[here])
        place = _exact(self.places, asked.code[here] * len(self.levels) + level)
        out[here] = torch.where((level < 0) | (place < 0), -2, place + self.pairs.numel())
        here = asked.kind == GENERAL
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
    given = torch.cat(level)
    levels = _apart(given)
    number = torch.searchsorted(levels, given, right=True) - 1
    places = torch.unique(torch.cat(index) * len(levels) + number)
    return Variables(m, torch.unique(torch.cat(codes)), levels, places, _apart(torch.cat(marks)))


def _apart(values: Tensor) -> Tensor:
    """The sorted values, without duplicates up to rounding."""
    values = values.sort().values
    gap = values[1:] - values[:-1] > TOLERANCE * values[1:].abs().clamp(min=1)
    return values[torch.cat((gap.new_ones(min(1, values.numel())), gap))]


def _exact(table: Tensor, values: Tensor) -> Tensor:
    """The places of integers in a sorted table; -2 if not found."""
    if table.numel() == 0:
        return torch.full_like(values, -2)
    at = torch.searchsorted(table, values.contiguous()).clamp(max=table.numel() - 1)
    return torch.where(table[at] == values, at, -2)
