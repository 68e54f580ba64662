"""Rankings with graded relevance, judged by NDCG: exact, and no harder than a sort."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from directloss._checks import check_finite, check_same_shape, precise
from directloss.kernels import bounded, compiles, move_graded
from directloss.metrics.graded import check_grades, check_settings, ideal, relative_gains, shared_discounts
from directloss.metrics.ranking import DCGMetric
from directloss.moves import Lists, move_items
from directloss.task import Estimate, Expected, Mask
from directloss.tasks.ranking import ListTask


class GradedRanking(NamedTuple):
    """A ranking as F and L see it."""

    discounts: Tensor
    """The discount of each item; 0 for padding and beyond k. Shape ``(..., n)``, float64."""
    coefficients: Tensor
    """dF/dscores: discounts / Z. Shape ``(..., n)``, float64."""


class GradedNDCG(ListTask):
    """Rank items with graded relevance, judged by NDCG.

    The metric is ``NDCG = sum_i u_i d(rank_i) / Z`` with ``u_i`` the gain of item i over the largest gain of its list
    (in [0, 1]), ``d(r) = 1 / log2(1 + r)`` up to rank k and 0 beyond, and Z the sum for the ideal ranking. The ranking
    is scored with the metric's own discount and normaliser:

        F                       = 1/Z * sum_i s_i d(rank_i)
        F + sign * epsilon * L  = constant + 1/Z * sum_i (s_i - sign * epsilon * u_i) d(rank_i)

    F is maximal for the order of falling scores, as it must be, and by the rearrangement inequality the augmented
    objective is maximal for the order of falling ``s_i - sign * epsilon * u_i``: one sort, O(n log n). (With F over
    pairs of items, as for binary relevance, it is an assignment problem, O(n^3).) So epsilon is in units of the
    scores: how far an item of the highest grade moves against an item of grade 0, for any n, k and grades.

    Equal scores share the mean discount of their ranks, in value, inference and metric alike; this is a mean of best
    rankings, so F and the augmented objective stay maximal. A list whose grades are all equal cannot be ranked wrong:
    it has loss 0, gradient 0, and does not count in the mean.

    Args:
        k: only the first k ranks count; all of them by default.
        gain: ``"exponential"`` for ``2^grade - 1``, ``"linear"`` for the grade itself.

    Shapes:
        scores ``(..., n)``; target ``(..., n)``, grades of at least 0, whole numbers or not.

    References:
        Burges et al., ICML 2005 for the metric; Le and Smola, arXiv 0704.3359, for F with a discount and its assignment
        problem; Song et al., ICML 2016, Theorem 1 for the gradient.

    Examples:
        >>> task = GradedNDCG(k=2)
        >>> scores, grades = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 2])
        >>> task.predict(scores)
        tensor([1., 2., 3.])
        >>> task.loss(task.predict(scores), grades)
        tensor(0.8262, dtype=torch.float64)
        >>> task.augmented(scores, grades, epsilon=4.0, sign=-1).discounts
        tensor([0.0000, 0.6309, 1.0000], dtype=torch.float64)
    """

    judged_by = "the grades"
    defaults = replace(
        ListTask.defaults,
        no_item_weights='put the weights into the grades, with gain="linear": a grade may be any number of at least 0',
    )

    def __init__(self, k: int | None = None, gain: str = "exponential") -> None:
        check_settings(k, gain)
        self.k = k
        self.gain = gain

    def augmented(
        self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int, mask: Mask = None
    ) -> GradedRanking:
        relative = relative_gains(target, self.gain)
        # In float64, so that distinct scores stay distinct.
        step = epsilon.double()[..., None] if isinstance(epsilon, Tensor) else epsilon
        return self._ranking(scores.double() - sign * step * relative, relative, mask)

    def truth(self, target: Tensor, mask: Mask = None) -> GradedRanking:
        return self.infer(precise(target), target, mask)

    def infer(self, scores: Tensor, target: Tensor, mask: Mask = None) -> GradedRanking:
        """The ranking as F sees it: the real items with their discounts."""
        return self._ranking(scores, relative_gains(target, self.gain), mask)

    def _ranking(self, scores: Tensor, relative: Tensor, mask: Mask) -> GradedRanking:
        shared = shared_discounts(scores, mask, self.k)
        return GradedRanking(shared, shared / ideal(relative, self.k)[..., None])

    def loss(self, output: Tensor | GradedRanking, target: Tensor, mask: Mask = None) -> Tensor:
        """``1 - NDCG`` of a ranking, or of plain ranks from `predict`; in float64."""
        ranking = output if isinstance(output, GradedRanking) else self.infer(-output, target, mask)
        # Clamped against rounding.
        return (1 - (relative_gains(target, self.gain) * ranking.coefficients).sum(-1)).clamp(0, 1)

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        check_same_shape(target, scores)
        if check_values:
            check_finite(scores)
            check_grades(target)

    def counted(self, target: Tensor, mask: Mask = None) -> Tensor:
        """Lists with at least two different grades."""
        grades = precise(target)
        return grades.amax(-1) > (grades if mask is None else grades.masked_fill(~mask, torch.inf)).amin(-1)

    def likelihood_slope(self, scores: Tensor, target: Tensor, request: Estimate) -> Tensor | None:
        """Binary cross-entropy with the relative gain of each item as its probability of a yes."""
        return super().likelihood_slope(scores, relative_gains(target, self.gain), request)

    def expected(self, scores: Tensor, target: Tensor, request: Estimate) -> Expected:
        """All items move all others: each adds one to the rank, and counts by its gain."""
        request.refuse_weight(self)
        self.check(scores, target, request.check_values)
        mask, relative = request.mask, relative_gains(target, self.gain)
        losses, counted = self.loss(self._ranking(scores, relative, mask), target), self.counted(target, mask)
        if not request.gradient:
            return Expected(losses, counted=counted)
        noise, z, shown = request.noise, ideal(relative, self.k)[..., None], counted[..., None]
        noisy, likelihood = noise.perturb(scores, self.defaults.density), self.likelihood_slope(scores, target, request)
        if compiles(scores) and not request.curvature:
            slope = move_graded(scores, noisy, float(noise.scale), relative / z, DCGMetric(self.k).tables(target), mask)
            return Expected(losses, slope * shown, likelihood, counted)
        real = torch.ones_like(relative) if mask is None else precise(mask)
        lists = Lists(torch.stack((real, torch.zeros_like(real))), self._worth, z, relative)
        moved = move_items(lists, scores.to(noisy.dtype), noisy, float(noise.scale), mask, request.curvature)
        bend = None if moved.curvature is None else moved.curvature * shown
        return Expected(losses, bounded(moved.slope * shown, noisy.dtype), likelihood, counted, bend)

    def _worth(self, rank: Tensor, _: Tensor) -> Tensor:
        return DCGMetric(self.k).column(rank, rank, rank)

    def __repr__(self) -> str:
        words = ([] if self.k is None else [f"k={self.k}"]) + (
            [] if self.gain == "exponential" else [f"gain={self.gain!r}"]
        )
        return f"GradedNDCG({', '.join(words)})"
