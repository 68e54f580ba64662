"""Scores as probabilities, by maximum likelihood.

One slope and a bias per class: Platt scaling (1999) for two classes, temperature scaling (Guo et al., 2017) with a bias
for more. The bias removes the thresholds that the metric prefers; without it, the class with the highest score is the
most probable one. Platt's softened targets keep the probabilities of separable data away from 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

Numbers = npt.NDArray[np.float64]
FLATTEST = 1e-3
"""The smallest slope for scores of deviation 1, so that a higher score is never less probable."""


@dataclass(frozen=True)
class Calibration:
    """``softmax(slope * scores + bias)`` for scores ``(n, c)``, or ``(n,)`` for the second of two classes."""

    slope: float
    bias: Numbers

    @classmethod
    def of(
        cls,
        scores: npt.NDArray[np.floating],
        codes: npt.NDArray[np.int64],
        weight: Numbers | None = None,
        *,
        biased: bool = True,
    ) -> Calibration:
        """The maximum-likelihood calibration for rows of these classes; the bias is 0 unless ``biased``.

        Examples:
            >>> draw = np.random.default_rng(0)
            >>> logits = draw.normal(size=4000)
            >>> codes = (draw.random(4000) < 1 / (1 + np.exp(-logits))).astype(int)
            >>> calibration = Calibration.of(5 * logits + 1, codes)
            >>> bool(abs(5 * calibration.slope - 1) < 0.1)
            True
        """
        scores = _columns(scores)
        spread = float(scores.std()) or 1.0
        scores = scores / spread
        weight = np.ones(len(codes)) if weight is None else weight
        wanted = _softened(codes, scores.shape[1], weight) * (weight / weight.sum())[:, None]

        def objective(numbers: Numbers) -> tuple[float, Numbers]:
            logs = log_softmax(numbers[0] * scores + numbers[1:], axis=1)
            slope = wanted.sum(1, keepdims=True) * np.exp(logs) - wanted
            return -float((wanted * logs).sum()), np.array([(slope * scores).sum(), *slope.sum(0)])

        start = np.array([1.0, *np.zeros(scores.shape[1])])
        bounds = [(FLATTEST, None), *[(None, None) if biased else (0.0, 0.0)] * scores.shape[1]]
        best = minimize(objective, start, jac=True, bounds=bounds, method="L-BFGS-B").x
        return cls(float(best[0]) / spread, best[1:])

    def __call__(self, scores: npt.NDArray[np.floating]) -> Numbers:
        """Probabilities ``(n, c)``."""
        shares: Numbers = softmax(self.slope * _columns(scores) + self.bias, axis=1)
        return shares


def _columns(scores: npt.NDArray[np.floating]) -> Numbers:
    """Scores per class; a single score per row is that of the second of two classes."""
    each = np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores
    return each.astype(np.float64)


def _softened(codes: npt.NDArray[np.int64], classes: int, weight: Numbers) -> Numbers:
    """Targets as if there were two more correct rows and two more wrong ones, for any number of classes.

    For two classes they are Platt's. One wrong row of every class in each class would make ten classes too uncertain.
    """
    counts, more = np.bincount(codes, weight, minlength=classes), 2 / classes
    rest = more / (counts + 2 * more) / (classes - 1)
    targets = np.repeat(rest[codes][:, None], classes, axis=1)
    targets[np.arange(len(codes)), codes] = ((counts + more) / (counts + 2 * more))[codes]
    return targets
