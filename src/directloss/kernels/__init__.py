"""The hot loops of rankings, twice: compiled for the CPU, and in tensor operations for every device. Same results.

A ranking of P relevant and N irrelevant items is described by counts: ``n_i`` irrelevant items stand above the i-th
relevant one, ``p_j`` relevant ones above the j-th irrelevant one. With the scores sorted (``a`` relevant, ``b``
irrelevant) the scoring function of Yue et al. and its gradient are

    F = 1/(PN) sum_ij y_ij (a_i - b_j)        dF/da_i = (N - 2 n_i) / (PN)        dF/db_j = (P - 2 p_j) / (PN)

and a metric that depends on positions is ``M = 1/z sum_i m_i(n_i)``, here ``m_i(n) = u_i * table[base + stride * i + n]``.
Loss-augmented inference, ``argmax F + sign * epsilon * (best - M)``, then takes one of two ways:

* The objective is a sum over irrelevant items of ``G_j(p_j)``. Where ``m_i`` is convex (sign +1) or linear (both signs),
  ``G`` is totally monotone and the best ``p_j`` of each item alone are already in order: O(P log N + N).
* Else it is a sum over relevant items of ``f_i(n_i)`` with ``n`` in order: a table of choices, one bit per cell, limited to
  the cells that an optimum can reach (``n_i >= n^w_i`` for sign +1, ``n_i <= n^w_i`` for sign -1).

Ties: among equal scores the k-th of r relevant items stands behind ``ceil(k q / r)`` of the q irrelevant ones, that is,
they are spread evenly. This does not depend on the order of the input, and a constant scorer gets the value of chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from directloss._checks import check_choice

BACKENDS = ("auto", "compiled", "tensor")
_chosen = "auto"


class PositionWeights(NamedTuple):
    """``m_i(n) = u_i * table[base + stride * i + n]`` with ``u_i = alpha + beta * i``, or ``[i = 1]`` if `first`."""

    table: Tensor
    """float64, shape ``(1, size)`` for all problems alike or ``(b, size)``."""
    prefix: Tensor
    """Sums of the table from its start, in its shape: harmonic numbers, if the table holds 1/k."""
    stride: int = 1
    alpha: float = 1.0
    beta: float = 0.0
    first: bool = False
    base: int = 0
    cutoff: int = 0
    """``m_i(n)`` is 0 for ``i + n > cutoff``; 0 means that there is no cutoff."""
    convex: bool = False
    linear: bool = False

    def monotone(self, sign: int) -> bool:
        """Whether the best positions can be found one by one."""
        return self.linear or (self.convex and sign > 0)


class Rankings(NamedTuple):
    """What a backend returns; None for what was not asked for. First dimension: problems."""

    loss: Tensor
    gradient: Tensor | None
    above_predicted: Tensor | None
    """For each item the number of items of the other class above it, in the predicted ranking; 0 for padding."""
    above_augmented: Tensor | None


@contextmanager
def use(backend: str) -> Iterator[None]:
    """Choose the backend inside a ``with`` block: "compiled", "tensor", or "auto" (compiled on the CPU)."""
    global _chosen
    before, _chosen = _chosen, check_choice("backend", backend, BACKENDS)
    try:
        yield
    finally:
        _chosen = before


@torch.compiler.disable
@torch.no_grad()
def solve_rankings(
    scores: Tensor,
    target: Tensor,
    weights: PositionWeights,
    z: Tensor,
    best: Tensor,
    *,
    epsilon: Tensor | None = None,
    sign: int = +1,
    gradient: bool = False,
    above: bool = False,
) -> Rankings:
    """Loss ``best - M`` of each ranking; with an epsilon also the augmented ranking.

    Args:
        scores: floating point, shape ``(b, n)``.
        target: int8, shape ``(b, n)``: 1 relevant, 0 irrelevant, -1 padding.
        weights: the metric's position weights.
        z, best: float64, shape ``(b,)``.
        epsilon: float64, shape ``(b,)``, or None for the predicted ranking alone.
        sign: +1 or -1.
        gradient: whether to return ``sign / epsilon * (dF(y_direct) - dF(y_w))``, in the type of the scores.
        above: whether to return the counts.
    """
    compiled = scores.device.type == "cpu" if _chosen == "auto" else _chosen == "compiled"
    backend = _solve_compiled if compiled else _solve_tensor
    return backend(scores, target, weights, z, best, epsilon, sign, gradient, above)


def _solve_compiled(
    scores: Tensor, target: Tensor, weights: PositionWeights, z: Tensor, best: Tensor,
    epsilon: Tensor | None, sign: int, gradient: bool, above: bool,
) -> Rankings:  # fmt: skip
    # Imported here because numba takes longer to import than all the rest; only the first ranking pays for it.
    from directloss.kernels import compiled

    kind = scores.dtype
    if kind not in (torch.float32, torch.float64):
        scores = scores.float()
    scores = scores.contiguous()
    augment = epsilon is not None
    monotone = weights.monotone(sign)
    b, n = scores.shape
    nothing = (0, 0)
    loss = torch.empty(b, dtype=torch.float64)
    grad = torch.zeros((b, n) if gradient and augment else nothing, dtype=scores.dtype)
    above_w = torch.zeros((b, n) if above else nothing, dtype=torch.int64)
    above_d = torch.zeros((b, n) if above and augment else nothing, dtype=torch.int64)
    narrow = scores.dtype == torch.float32
    values = scores.numpy()
    compiled.solve(
        values, values.view("uint32" if narrow else "uint64"), target.contiguous().numpy(), narrow,
        weights.table.numpy(), weights.prefix.numpy(), weights.base, weights.stride, weights.alpha, weights.beta, weights.first,
        weights.cutoff, monotone, (z if epsilon is None else epsilon).numpy(), sign, z.numpy(), best.numpy(), augment,
        loss.numpy(), grad.numpy(), above_w.numpy(), above_d.numpy(),
    )  # fmt: skip
    return Rankings(
        loss,
        grad.to(kind) if gradient and augment else None,
        above_w if above else None,
        above_d if above and augment else None,
    )


def _solve_tensor(
    scores: Tensor, target: Tensor, weights: PositionWeights, z: Tensor, best: Tensor,
    epsilon: Tensor | None, sign: int, gradient: bool, above: bool,
) -> Rankings:  # fmt: skip
    from directloss.kernels import tensor

    predicted = tensor.predict(scores, target)
    loss = tensor.position_loss(predicted.n_w, predicted.relevant, weights, z, best)
    if epsilon is None:
        return Rankings(loss, None, predicted.above if above else None, None)
    direct = tensor.augment(predicted, weights, z, epsilon, sign)
    grad = None
    if gradient:
        pairs = (predicted.relevant * predicted.irrelevant).clamp(min=1)
        unit = -2.0 * sign / (epsilon * pairs)
        grad = (unit[:, None] * (direct - predicted.above)).to(scores.dtype)
    return Rankings(loss, grad, predicted.above if above else None, direct if above else None)
