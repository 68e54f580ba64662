"""Many small networks trained at once: all seeds and learning rates of a cell of a study, with stacked weights.

A step of such a network costs mostly the calls, not the arithmetic, so twenty of them take little longer than one.
Every seed has its own rows, first weights and batches, which do not depend on the others; all of its rates share them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from directloss_repro.data import Part
from directloss_repro.seeding import generator
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
"""From scores ``(m, n)`` or ``(m, n, c)`` and targets ``(m, n)`` of m networks to the sum of their losses."""
Judge = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""From scores and targets of the validation rows and of the test rows to the metric of each network ``(m,)`` on both,
or to several metrics ``(k, m)``."""


class Networks:
    """Linear models, or networks with one hidden layer: one for each of s seeds and r learning rates."""

    def __init__(self, inputs: int, hidden: int, outputs: int, seeds: Sequence[int], rates: Sequence[float]) -> None:
        draws = [generator("stacked", inputs, hidden, outputs, seed) for seed in seeds]
        sizes = [(inputs, hidden), (hidden, outputs)] if hidden else [(inputs, outputs)]
        self.rates = torch.tensor(rates)[:, None]
        # (s, inputs, r, outputs) and (s, 1, r, outputs): the rates are the third dimension of all
        self.weights = [
            _uniform((rows, 1, width), before, draws).repeat(1, 1, len(rates), 1).requires_grad_()
            for before, width in sizes
            for rows in (before, 1)
        ]
        self._mean, self._square, self._change = (
            [torch.zeros_like(weight) for weight in self.weights] for _ in range(3)
        )
        self._steps = 0

    def begin_at(self, scores: Tensor) -> None:
        """Give every row the same first scores ``(s, r, outputs)``; ``(s, 1, outputs)`` for all rates alike.

        With few rows and rare positives, other first weights are not forgotten, and steps of Adam that only lower all
        scores cover what is to be learnt.
        """
        with torch.no_grad():
            self.weights[-2].zero_()
            self.weights[-1].copy_(scores[:, None])

    def __call__(self, x: Tensor) -> Tensor:
        """The scores ``(s * r, n, outputs)`` of rows ``(s, n, inputs)``; ``(s * r, n)`` for one output."""
        weight, shift, *last = self.weights
        values = torch.baddbmm(shift.flatten(2), x, weight.flatten(2)).unflatten(2, weight.shape[2:])
        if last:
            values = torch.einsum("snrh,shrc->snrc", values.relu(), last[0]) + last[1]
        scores = values.transpose(1, 2).flatten(0, 1)
        return scores.squeeze(2) if scores.shape[2] == 1 else scores

    def step(self, loss: Tensor) -> None:
        """One step of Adam (Kingma and Ba 2015, Algorithm 1 and the end of Sec. 2), each network with its own rate."""
        self._steps += 1
        gradients = torch.autograd.grad(loss, self.weights)
        scale = math.sqrt(1 - 0.999**self._steps)
        rates = self.rates * scale / (1 - 0.9**self._steps)
        with torch.no_grad():  # in place: new memory for large weights would take longer than the arithmetic
            for weight, mean, square, change, slope in zip(
                self.weights, self._mean, self._square, self._change, gradients, strict=True
            ):
                mean.lerp_(slope, 0.1)
                square.mul_(0.999).addcmul_(slope, slope, value=0.001)
                torch.sqrt(square, out=change).add_(1e-8 * scale)
                weight.sub_(torch.div(mean, change, out=change).mul_(rates))


def _uniform(shape: tuple[int, ...], inputs: int, draws: list[torch.Generator]) -> Tensor:
    """First weights as those of ``nn.Linear``, one set for each generator."""
    drawn = torch.stack([torch.rand(shape, generator=draw) for draw in draws])
    return (2 * drawn - 1) / math.sqrt(inputs)


class Batches:
    """Batches without end from the rows of every seed; all rows where there are not enough for a batch."""

    def __init__(self, parts: Sequence[Part], seeds: Sequence[int], size: int) -> None:
        self.x, self.y = _stack(parts)
        self.size = min(size, self.y.shape[1])
        self._draws = [generator("batches", seed) for seed in seeds]
        self._order = torch.empty(len(parts), 0, dtype=torch.long)

    def __call__(self) -> tuple[Tensor, Tensor]:
        """Rows ``(s, n, inputs)`` and labels ``(s, n)``. A rest that is smaller than a batch is dropped."""
        if self._order.shape[1] < self.size:
            self._order = torch.stack([torch.randperm(self.y.shape[1], generator=draw) for draw in self._draws])
        rows, self._order = self._order.split([self.size, self._order.shape[1] - self.size], 1)
        place = torch.arange(len(rows))[:, None]
        return self.x[place, rows], self.y[place, rows]


def log_odds(target: Tensor) -> Tensor:
    """The log odds of each class among labels ``(s, n, c)`` of 0 and 1, ``(s, 1, c)``, for `Networks.begin_at`."""
    return ((target.float().sum(1, keepdim=True) + 0.5) / (target.shape[1] + 1)).logit()


def _stack(parts: Sequence[Part]) -> tuple[Tensor, Tensor]:
    return torch.stack([part.x for part in parts]), torch.stack([part.y for part in parts])


class Chosen(NamedTuple):
    """For each seed, what the validation metric chose; lists of lists if there are several metrics."""

    test: list[Any]
    """The test metric."""
    rates: list[Any]
    steps: list[Any]
    """After how many steps."""


def train(
    networks: Networks, loss: Loss, judge: Judge, parts: Sequence[Sequence[Part]], batches: Batches, *, steps: int,
    looks: int,
) -> Chosen:  # fmt: skip
    """Train all networks; for each seed choose the rate and one of ``looks`` by the metric on the validation rows.

    Args:
        parts: the validation rows of each seed, and the test rows of each seed.
    """
    rates = networks.rates.flatten()
    (val_x, val_y), (test_x, test_y) = (_stack(part) for part in parts)
    val_y, test_y = (y.repeat_interleave(len(rates), 0) for y in (val_y, test_y))
    best = test = found = torch.empty(0)
    for step in range(1, steps + 1):
        x, y = batches()
        # A network that diverges must not stop the others.
        scores = networks(x).nan_to_num(0.0, 0.0, 0.0)
        networks.step(loss(scores, y.repeat_interleave(len(rates), 0)))
        if step * looks % steps < looks:
            with torch.no_grad():
                known, new = judge(networks(val_x).nan_to_num(), val_y, networks(test_x).nan_to_num(), test_y)
            if not len(found):
                best, test, found = torch.full_like(known, -torch.inf), torch.zeros_like(new), torch.zeros_like(known)
            better = known > best
            best, test = torch.where(better, known, best), torch.where(better, new, test)
            found[better] = step
    winner = best.unflatten(-1, (-1, len(rates))).argmax(-1, keepdim=True)
    of_winner = [part.unflatten(-1, (-1, len(rates))).gather(-1, winner).squeeze(-1) for part in (test, found)]
    chosen_rates = rates.double().round(decimals=8)[winner.squeeze(-1)]
    return Chosen(of_winner[0].tolist(), chosen_rates.tolist(), of_winner[1].long().tolist())
