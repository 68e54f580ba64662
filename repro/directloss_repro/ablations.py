"""Other anchors for UniLoss, which its ablations compare: Liu, Wang, Deng (ECCV 2020), Sec. 3.4, and questions of ours.

In *bit space*, as in the paper, binaries are flipped directly. For rankings nearly all random configurations and many
flipped ones contradict themselves (a above b above c above a); they are valued by the metric's counting rule, `decide`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from directloss._uniloss.anchors import Anchoring, Anchors, choose
from directloss._uniloss.comparisons import Blocks, Comparisons, Differences
from directloss._uniloss.refactoring import Bound

STEPS = 16
"""Grid size of the search for the nearest optimal scores on the way to the best ones; a second grid refines it."""


@dataclass(frozen=True)
class Ablation(Anchoring):
    """Anchors with one or more changes.

    Args:
        bits: the metric (``"ap"``, ``"accuracy"`` or ``"pckh"``) whose binaries are flipped directly; empty for anchors
            in score space.
        nearest: whether good anchors lie around the first optimal scores on the way from the current ones to the best.
        control: whether constants (good 1, nearby the current value, bad 0) replace the metric's values.
    """

    bits: str = ""
    nearest: bool = False
    control: bool = False

    def draw(self, problem: Bound, comparisons: Comparisons, generator: torch.Generator) -> Anchors:
        """See `Anchoring.draw`."""
        draw = self._draw_bits if self.bits else super().draw
        anchors = draw(problem, comparisons, generator)
        if not self.control:
            return anchors
        constants = [1.0] * self.good + [problem.now] * self.nearby + [0.0] * self.bad
        missing = len(constants) - len(anchors.values)  # good anchors that one stands for
        return replace(anchors, values=torch.tensor(constants[missing:], dtype=torch.float64))

    def best(self, problem: Bound) -> Tensor:
        """See `Anchoring.best`."""
        best = super().best(problem)
        if not self.nearest:
            return best
        share = _optimal_share(problem, best, 0.0, 1.0)
        share = _optimal_share(problem, best, share * (1 - 1 / STEPS), share) if share > 1 / STEPS else share
        return problem.scores + share * (best - problem.scores)

    def _draw_bits(self, problem: Bound, comparisons: Comparisons, generator: torch.Generator) -> Anchors:
        every = problem.comparisons
        assert isinstance(every, Differences)
        assert isinstance(comparisons, Differences)
        here = comparisons.values(problem.scores) > 0
        good = _flipped(torch.ones_like(here), self.good, self.flips, generator)
        if self.unit == "score":
            nearby = here.repeat(self.nearby, 1)
            for row, items in zip(nearby, choose(self.nearby, self.flips, every.items, generator), strict=True):
                for item in items:
                    row ^= (comparisons.left == item) | (comparisons.right == item)
        else:
            nearby = _flipped(here, self.nearby, self.flips, generator)
        bad = torch.rand(self.bad, comparisons.count, generator=generator) < 0.5
        bits = torch.cat([good, nearby, bad])
        whole = (every.values(problem.scores) > 0).repeat(len(bits), 1)
        whole[:, _places_among(comparisons, every)] = bits
        dtype = problem.scores.dtype

        def differing(here: Tensor) -> Blocks:
            return iter([(slice(None), (bits != here).T.to(dtype))])

        return Anchors(differing, decide(self.bits, every, whole))


def decide(metric: str, comparisons: Comparisons, bits: Tensor) -> Tensor:
    """g of the paper's metrics: their values ``(k,)`` for binaries ``(k, l)`` of relevant against irrelevant scores."""
    assert isinstance(comparisons, Differences)
    left, right = comparisons.left, comparisons.right
    relevant, place = torch.unique(left, return_inverse=True)
    lost = torch.zeros(len(bits), len(relevant), dtype=torch.float64).index_add_(1, place, (~bits).double())
    if metric == "ap":  # the i-th best relevant item, which loses some comparisons, has precision i / (i + lost)
        rank = torch.arange(1, len(relevant) + 1)
        return (rank / (rank + lost.sort(-1).values)).mean(-1)
    # A hit: some relevant score of the list loses none. Scores of one list have the same rivals.
    rival = torch.full((len(relevant),), comparisons.items).scatter_reduce_(0, place, right, "amin")
    lists, which = torch.unique(rival, return_inverse=True)
    hits = torch.zeros(len(bits), len(lists), dtype=torch.float64)
    return hits.scatter_reduce_(1, which.expand(len(bits), -1), (lost == 0).double(), "amax").mean(-1)


def _flipped(base: Tensor, k: int, flips: int, generator: torch.Generator) -> Tensor:
    """``k`` copies of binaries, some of them flipped."""
    which = choose(k, flips, base.numel(), generator)
    return base.repeat(k, 1).scatter_(1, which, ~base[which])


def _places_among(some: Differences, every: Differences) -> Tensor:
    """Where the relaxed comparisons are among all."""
    keys, all_keys = (part.left * every.items + part.right for part in (some, every))
    ordered, order = all_keys.sort()
    return order[torch.searchsorted(ordered, keys)]


def _optimal_share(problem: Bound, best: Tensor, low: float, high: float) -> float:
    """The least share of the way, on a grid of ``STEPS``, from which on the metric is as good as at ``high``."""
    shares = torch.linspace(high, low, STEPS + 1, dtype=best.dtype)[:-1]
    values = problem.measure(problem.scores + shares[:, None] * (best - problem.scores))
    as_good = ((values - values[0]).abs() <= 1e-6).int().cumprod(0)
    return float(shares[int(as_good.sum()) - 1])
