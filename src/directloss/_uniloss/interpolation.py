"""Steps 2 to 4 of UniLoss, relaxed: u = sigmoid(c), and the metric at u between anchors. Sec. 3.4 of the paper.

An interpolation sees only distances: the squared distances ``(k,)`` from the relaxed binaries to the anchors, and
those ``(k, k)`` among the anchors, which for binaries are Hamming distances.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from directloss._checks import check_choice, check_positive
from directloss._uniloss.comparisons import Blocks

Array = NDArray[np.float64]


class Interpolation(ABC):
    """A function through the values of the anchors, and its derivatives."""

    @abstractmethod
    def __call__(self, squared: Array, values: Array, between: Callable[[], Array]) -> tuple[float, Array]:
        """The interpolated value, and its derivatives ``(k,)`` with respect to the squared distances.

        Args:
            squared: squared distances ``(k,)`` to the anchors, float64.
            values: the metric ``(k,)`` at the anchors.
            between: returns the squared distances ``(k, k)`` among the anchors.
        """


@dataclass(frozen=True)
class InverseDistance(Interpolation):
    """The mean of the values, weighted by the inverse distance: Shepard's method, Eq. (10) of the paper.

    At an anchor it is that anchor's value (the mean of theirs if there are several), with gradient zero.

    Args:
        power: the exponent of the distance; 1 in the paper.

    Examples:
        >>> value, slopes = InverseDistance()(np.array([1.0, 4.0]), np.array([0.0, 1.0]), lambda: None)
        >>> round(value, 4)
        0.3333
    """

    power: float = 1.0

    def __post_init__(self) -> None:
        check_positive("power", self.power)

    def __call__(self, squared: Array, values: Array, between: Callable[[], Array]) -> tuple[float, Array]:
        hit = squared <= 0
        if hit.any():
            return float(values[hit].mean()), np.zeros_like(squared)
        # Relative to the nearest, so that powers of long distances do not underflow.
        weight = (squared.min() / squared) ** (self.power / 2)
        weight /= weight.sum()
        value = float(weight @ values)
        return value, -0.5 * self.power * weight / squared * (values - value)


@dataclass(frozen=True)
class DistanceSpline(Interpolation):
    """The smoothest surface through the anchors made of their distances: ``c - sum_i a_i |u - anchor_i|``.

    Inverse distances weight each anchor on its own, so sixteen in one place count sixteen times, and the surface is
    flat between distant anchors. Here the coefficients solve a small linear system of the distances among the anchors.
    They sum to zero, so the surface stays bounded. For Hamming distances the system always has one solution, and there
    is nothing to tune.

    Examples:
        >>> between = lambda: np.array([[0.0, 4.0], [4.0, 0.0]])
        >>> value, slopes = DistanceSpline()(np.array([0.25, 2.25]), np.array([0.0, 1.0]), between)
        >>> round(value, 4)
        0.25
    """

    def __call__(self, squared: Array, values: Array, between: Callable[[], Array]) -> tuple[float, Array]:
        solution = self._solve(between(), values)
        coefficients, constant = solution[:-1], solution[-1]
        distance = np.sqrt(np.maximum(squared, 0.0))
        slopes = np.divide(-0.5 * coefficients, distance, out=np.zeros_like(distance), where=distance > 0)
        return float(constant - distance @ coefficients), slopes

    def _solve(self, between: Array, values: Array) -> Array:
        """The coefficients and, last, the constant: one system of ``k + 1`` equations."""
        k = len(values)
        # Anchors in one place share their mean value; they may differ if only some comparisons are relaxed.
        same = (between <= 0).astype(np.float64)
        distance = np.sqrt(between)
        system, right = np.ones((k + 1, k + 1)), np.append(same @ values / same.sum(-1), 0.0)
        # Equal anchors would make the system singular; this much on the diagonal changes no significant digit.
        system[:k, :k] = np.eye(k) * (1e-7 * max(distance.mean(), 1e-7)) - distance
        system[k, k] = 0
        return np.linalg.solve(system, right)


INTERPOLATIONS: dict[str, Interpolation] = {
    "inverse-distance": InverseDistance(),
    "distance-spline": DistanceSpline(),
}


def as_interpolation(interpolation: str | Interpolation) -> Interpolation:
    """The interpolation of a name, or an `Interpolation` as it is."""
    if isinstance(interpolation, Interpolation):
        return interpolation
    return INTERPOLATIONS[check_choice("interpolation", interpolation, INTERPOLATIONS)]


# ---------------------------------------------------------------------- relaxed binaries and anchors


class Places:
    """Where ``k`` anchors lie, as seen from comparisons ``c``: all that an interpolation needs, in matrix products.

    Distances are measured from the nearest binaries r, those of c itself, so that nothing cancels: with
    ``e = |sigmoid(c) - r| <= 1/2`` every binary in which an anchor differs from r adds ``1 - 2 e >= 0`` to ``|e|^2``.

    Args:
        comparisons: shape ``(l,)``.
        differing: where the binaries of the anchors differ from given ones, block by block.
        k: how many anchors there are.
    """

    def __init__(self, comparisons: Tensor, differing: Callable[[Tensor], Blocks], k: int) -> None:
        self.here = comparisons > 0
        self.off = torch.sigmoid(-comparisons.abs())
        self._differing = differing
        squared = self.off.double().square().sum().expand(k).clone()
        for some, differs in self._differing(self.here):
            squared += ((1 - 2 * self.off[some]) @ differs).double()
        self.squared = squared.numpy()

    def between(self) -> Array:
        """Hamming distances ``(k, k)`` among the anchors, float64."""
        shared = np.zeros((len(self.squared),) * 2)
        for _, differs in self._differing(self.here):  # counts of a block are exact in single precision
            shared += (differs.T @ differs).double().numpy()
        ones = shared.diagonal()
        return ones[:, None] + ones - 2 * shared

    def pull(self, slopes: Array) -> Tensor:
        """The gradient with respect to the comparisons, from that with respect to the squared distances."""
        weight = torch.from_numpy(slopes).to(self.off.dtype)
        mixed = torch.empty_like(self.off)
        for some, differs in self._differing(self.here):
            mixed[some] = differs @ weight
        away = (weight.sum() * self.off - mixed) * torch.where(self.here, -2.0, 2.0).to(self.off.dtype)
        return away * self.off * (1 - self.off)
