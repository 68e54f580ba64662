"""Exact loss-augmented inference for every loss that is a function of the confusion matrix.

Plain inference says yes where the score is above 0. With F the mean over the items of ``score * yes``, any other output
is that one with some decisions flipped, and each flip costs ``|score| / n``. The loss counts items but does not know
them, so within a class the cheapest are flipped first, and what has to be found is two numbers per problem:

    max over i, j  of  sign * L(i, j) - X_i - Y_j

where ``X_i`` and ``Y_j`` are the prices ``|score| / (n epsilon)`` of the i cheapest flips among the positives and the j
cheapest among the negatives. Measured from the threshold, sums never mix the large scores with the small ones.

Three facts keep this small:

- A monotone loss (never smaller for one more wrong decision) is raised only by flipping right decisions and lowered
  only by flipping wrong ones, so sign +1 looks at the right ones and sign -1 at the wrong ones.
- No set of flips may cost more than it can possibly gain, which leaves out the items far from the threshold.
- Where L is linear along a line - for most metrics at a fixed number of predicted positives (``j - i`` fixed), for IoU
  at a fixed number of false positives (``j`` fixed) - the objective is concave along it: its top is where the price of
  one more step exceeds its slope. `directloss.kernels.flips` has a binary search for each line, O(n log n). Where the
  metric is a product (G-mean) the best cells form a staircase, O(n log n) too. Else the grid of all (i, j).

Among equal scores the item with the lower index is flipped first. Of several equally good outputs the one that costs
least is taken, so that the plain prediction stays unless something is better by more than rounding errors.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from directloss.metrics.confusion import Counts, count
from directloss.tasks._search import Loss, Moves, search_grid
from directloss.tasks._staircase import search_staircase

ITEMS = 1 << 22
CPU_ITEMS = 1 << 16
"""How many items are processed at a time, unless a single problem has more: memory stays bounded, or in the cache."""
KEYS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class Decisions(NamedTuple):
    """The plain decisions of a batch of problems, in two dimensions ``(b, n)``, and their confusion matrix ``(b,)``."""

    scores: Tensor
    chosen: Tensor
    positive: Tensor
    negative: Tensor
    counts: Counts

    def part(self, some: slice) -> Decisions:
        """Some of the problems."""
        counts = Counts(*(number[some] for number in self.counts))
        return Decisions(self.scores[some], self.chosen[some], self.positive[some], self.negative[some], counts)


def decide(scores: Tensor, target: Tensor) -> Decisions:
    """Yes where the score is above 0. Any batch dimensions become one."""
    n = scores.shape[-1]
    flat, labels = scores.reshape(-1, n), target.reshape(-1, n)
    chosen, positive, negative = flat > 0, labels == 1, labels == 0
    return Decisions(flat, chosen, positive, negative, count(chosen, positive, negative))


def best_flips(
    plain: Decisions, loss: Loss, epsilon: Tensor, sign: int, *, product: bool = False, monotone: bool = True
) -> Tensor:
    """The augmented output minus the plain one: +1, -1 or 0 for each item, shape ``(b, n)``.

    Where L has lines, `directloss.kernels.flips` takes its place.

    Args:
        plain: the plain decisions.
        loss: L as a function of the four counts, float64 tensors that broadcast against each other.
        epsilon: shape ``(b,)``, float64.
        sign: +1 or -1.
        product: whether the metric is a product of a function of ``tp`` and one of ``fp``.
        monotone: whether L never falls when one more decision is wrong.
    """
    most = CPU_ITEMS if plain.scores.device.type == "cpu" else ITEMS
    together = max(1, most // plain.scores.shape[1])
    parts = [slice(start, start + together) for start in range(0, len(epsilon), together)]
    found = [_best_flips(plain.part(some), loss, epsilon[some], sign, product, monotone) for some in parts]
    return found[0] if len(found) == 1 else torch.cat(found)


def _best_flips(plain: Decisions, loss: Loss, epsilon: Tensor, sign: int, product: bool, monotone: bool) -> Tensor:
    now = Counts(*(part[:, None] for part in plain.counts))
    unit = now.items.clamp(min=1) * epsilon[:, None]
    size = plain.scores.abs()
    if not monotone:
        ways = [(plain.chosen, -1), (~plain.chosen, +1)]
        either = [
            [_collect(size, kind & able, step, unit) for able, step in ways]
            for kind in (plain.positive, plain.negative)
        ]
        return _apply(plain, search_grid(now, loss, sign, *either))
    limit = _most_gained(now, loss, sign)
    movable = plain.chosen if sign > 0 else ~plain.chosen
    cheap = size < unit * limit
    positives = _collect(size, plain.positive & movable & cheap, -sign, unit).cut(limit)
    negatives = _collect(size, plain.negative & ~movable & cheap, sign, unit).cut(limit)
    if product:
        return _apply(plain, search_staircase(now, loss, sign, positives, negatives))
    return _apply(plain, search_grid(now, loss, sign, [positives], [negatives]))


def _most_gained(now: Counts, loss: Loss, sign: int) -> Tensor:
    """How much more (sign +1) or less (sign -1) than now a monotone loss can be, shape ``(b, 1)``."""
    zero = torch.zeros_like(now.tp)
    positives, negatives = now.tp + now.fn, now.fp + now.tn
    extreme = (zero, negatives, positives, zero) if sign > 0 else (positives, zero, zero, negatives)
    return sign * (loss(*extreme) - loss(*now))


def _collect(size: Tensor, able: Tensor, step: int, unit: Tensor) -> Moves:
    """Sort the items that can be flipped by ``|score|``. Only they are sorted: with sign -1 they are few."""
    problems, n = size.shape
    if problems == 1:
        place = able[0].nonzero()[:, 0]
        sizes, order = _ascending(size[0].index_select(0, place))
        return Moves(step, sizes.double()[None] / unit, place.index_select(0, order)[None])
    number = able.sum(-1)
    row, item = able.nonzero(as_tuple=True)
    slot = torch.arange(len(row), device=row.device) - (number.cumsum(0) - number)[row]
    sizes = size.new_full((problems, int(number.max())), torch.inf)
    sizes[row, slot] = size[row, item]
    place = torch.full_like(sizes, n, dtype=torch.int64)
    place[row, slot] = item
    sizes, order = _ascending(sizes)
    return Moves(step, sizes.double() / unit, place.gather(-1, order))


def _ascending(sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Sort numbers that are not negative. Their bits, read as integers, have the same order, and sort much faster."""
    keys, order = sizes.view(KEYS[sizes.element_size()]).sort(dim=-1, stable=True)
    return keys.view(sizes.dtype), order


def _apply(plain: Decisions, flips: list[tuple[Moves, Tensor]]) -> Tensor:
    """Carry out the first so many moves of each kind."""
    problems, n = plain.scores.shape
    kind = torch.promote_types(plain.scores.dtype, torch.float32)
    # One column more than there are items: it takes the moves that a problem does not have.
    change = torch.zeros(problems, n + 1, dtype=kind, device=plain.scores.device)
    for moves, number in flips:
        done = torch.arange(moves.place.shape[1], device=number.device) < number
        change.scatter_(1, moves.place, moves.step * done.to(kind))
    return change[:, :n]
