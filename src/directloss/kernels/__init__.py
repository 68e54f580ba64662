"""The hot loops of rankings: compiled for the CPU, dense for accelerators, and in plain tensor operations.

A ranking of P relevant and N irrelevant items is described by counts: ``n_i`` irrelevant items stand above the i-th
relevant one, ``p_j`` relevant ones above the j-th irrelevant one. With the scores sorted (``a`` relevant, ``b``
irrelevant) the scoring function of Yue et al. and its gradient are

    F = 1/(PN) sum_ij y_ij (a_i - b_j)        dF/da_i = (N - 2 n_i) / (PN)        dF/db_j = (P - 2 p_j) / (PN)

and a metric of positions is ``M = 1/z sum_i m_i(n_i)``, here with ``m_i(n) = u_i * table[base + stride * i + n]``.
Loss-augmented inference, ``argmax F + sign * epsilon * (best - M)``, is a set of exchanges of neighbours: for sign +1
right pairs are made wrong, for sign -1 wrong ones right. Exchanging i and j costs ``|a_i - b_j|``, in units of 2/(PN),
and gains ``epsilon PN / (2 z)`` times the change of ``m_i``, which is ``u_i * drop[i + j]``. It takes one of two ways:

* Where ``m_i`` is convex (sign +1) or linear (both signs), the objective is totally monotone: the best ``p_j`` of each
  irrelevant item alone are already in order, O(P log N + N).
* Else it is a sum over relevant items of what each gains and costs, with ``n`` in order: a table of choices, one bit
  per cell, limited to the cells that an optimum can reach (``n_i >= n^w_i`` for sign +1, ``n_i <= n^w_i`` for -1).

Both ways start at the predicted ranking and sum outwards, so that scores far away never enter a sum of near ones: of
lists that mix 1e30 with 1e-30 the result is as exact as of others. Among outputs that are equally good in these sums
the nearest to the prediction is taken. `compiled` and `tensor` sum in float64 in the same order, and so agree to the
last bit; `dense` sums in the type of the scores, float32 or wider.

Ties: among equal scores the k-th of r relevant items stands behind ``ceil(k q / r)`` of the q irrelevant ones, that is,
they are spread evenly. This does not depend on the order of the input, and a constant scorer gets the value of chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from directloss._checks import IGNORE, check_choice, check_finite, check_labels
from directloss._dynamo import outside_graphs

BINARY = 'Relevance is binary here: of labels -1 and 1 take target > 0; for grades there is "graded_ndcg".'
LABELS = (0, 1, IGNORE)
WAYS = ("auto", "compiled", "dense", "host", "tensor")
GRAIN = 1 << 14
"""As many items as take half a millisecond, for which a thread is worth starting."""
_chosen: ContextVar[str] = ContextVar("backend", default="auto")


class PositionWeights(NamedTuple):
    """``m_i(n) = u_i * table[base + stride * i + n]`` with ``u_i = alpha + beta * i``, or ``[i = 1]`` if `first`."""

    tables: Tensor
    """Four rows of float64, long enough for the lists: `table`, `drop`, `z` and `best`."""
    stride: int = 1
    alpha: float = 1.0
    beta: float = 0.0
    first: bool = False
    base: int = 0
    cutoff: int = 0
    """``m_i(n)`` is 0 for ``i + n > cutoff``; 0 means that there is no cutoff."""
    max_fpr: float = 0.0
    """If not 0, ``m_i(n) = max(0, max_fpr * N - n)`` takes the table's place and ``max_fpr * N`` multiplies ``z``."""
    convex: bool = False
    linear: bool = False
    peak: float = 1.0
    """The most that one irrelevant item more can take from an ``m_i``: the largest ``m_i(n) - m_i(n + 1)``."""

    @property
    def table(self) -> Tensor:
        """The weights themselves."""
        return self.tables[0]

    @property
    def drop(self) -> Tensor:
        """``table[k - 1] - table[k]``, without cancellation; needed only where the best positions are found one by
        one and the stride is 1.
        """
        return self.tables[1]

    @property
    def z(self) -> Tensor:
        """The normaliser for each number P of relevant items; never 0."""
        return self.tables[2]

    @property
    def best(self) -> Tensor:
        """What the loss is measured from, ``best - M``, for each P."""
        return self.tables[3]

    def monotone(self, sign: int) -> bool:
        """Whether the best positions can be found one by one."""
        return self.linear or (self.convex and sign > 0)


class Rankings(NamedTuple):
    """What a backend returns, for lists of shape ``(b, n)``; None for what was not asked for."""

    loss: Tensor
    """``best - M``, 0 where nothing is relevant; float32, or float64 for such scores."""
    counts: Tensor
    """Numbers of relevant and irrelevant items, shape ``(b, 2)``."""
    complete: bool
    """Whether every list has relevant and irrelevant items."""
    gradient: Tensor | None = None
    """``sign / epsilon * (dF(y_direct) - dF(y_w))``, shape ``(b, n)``."""
    above_predicted: Tensor | None = None
    """For each item the number of items of the other class above it, in the predicted ranking; 0 for padding."""
    above_augmented: Tensor | None = None


@contextmanager
def use(way: str) -> Iterator[None]:
    """Choose inside a ``with`` block where and how losses are computed; `way` has the table of the choices.

    It holds for this thread (or asyncio task) alone.
    """
    before = _chosen.set(check_choice("way", way, WAYS))
    try:
        yield
    finally:
        _chosen.reset(before)


def way(device: torch.device, advise: Callable[[], str | None]) -> str | None:
    """How a loss is computed, where nothing else is chosen with `use`. The one table of it:

        scores on      what the task advises     the way
        the CPU        anything                  "compiled": compiled loops, and PyTorch's operations around them
        elsewhere      "dense"                   few operations on the device, no synchronisation (`kernels.dense`)
        elsewhere      "host"                    the scores go to the CPU once, the gradient comes back
        elsewhere      None                      the task's own operations on the device, such as those of classes

    ``advise`` returns `directloss.task.Task.advised_way`. "tensor" is never chosen: it computes rankings in many plain
    operations, which UniLoss can watch and tests can compare with. A task without a dense form never takes it.
    """
    chosen = _chosen.get()
    if chosen in ("auto", "dense"):
        return "compiled" if chosen == "auto" and device.type == "cpu" else advise()
    return chosen


def works_here(scores: Tensor) -> bool:
    """Whether the scores are on the CPU, where nothing else is chosen."""
    return scores.device.type == "cpu" and _chosen.get() in ("auto", "compiled", "tensor")


def compiles(scores: Tensor) -> bool:
    """Whether compiled loops are to be used for these scores."""
    return scores.device.type == "cpu" and _chosen.get() != "tensor"


@outside_graphs
def solve_rankings(
    scores: Tensor,
    target: Tensor,
    weights: PositionWeights,
    *,
    epsilon: float | Tensor = 1.0,
    sign: int = +1,
    gradient: bool = False,
    above: str = "",
    check_values: bool = True,
    padding: bool = True,
) -> Rankings:
    """Predicted and augmented rankings of a batch.

    Args:
        scores: floating point, detached, shape ``(b, n)`` with any number of batch dimensions ``b``.
        target: any number type, shape ``(b, n)``: 1 relevant, 0 irrelevant, -1 padding.
        weights: the metric's position weights, for lists of n items.
        epsilon: a number, or one for each problem; a shape that broadcasts to ``b``.
        sign: +1 or -1.
        gradient: whether to return the direct gradient, in the type of the loss.
        above: which counts to return: "predicted", "augmented", or none.
        check_values: whether to look for NaN and wrong labels.
        padding: whether the label -1 is allowed.
    """
    if _chosen.get() == "tensor":
        return _solve_tensor(scores, target, weights, epsilon, sign, gradient, above, check_values, padding)
    options = (sign, gradient, above, check_values, padding)
    if scores.device.type == "cpu":
        return _solve_compiled(scores, target, weights, epsilon, *options)
    tables = weights.tables.cpu().double()
    steps = epsilon.cpu() if isinstance(epsilon, Tensor) else epsilon
    solved = _solve_compiled(scores.cpu(), target.cpu(), weights._replace(tables=tables), steps, *options)
    parts: Any = (part.to(scores.device) if isinstance(part, Tensor) else part for part in solved)
    return Rankings(*parts)


@lru_cache
def largest(kind: torch.dtype) -> float:
    """The largest number of a type."""
    return torch.finfo(kind).max


LEAST = 2.0**-960
"""The smallest epsilon (times the number of pairs, or over the range of the scores) that is told apart from less: its
inverse times any count is still finite."""


def bounded(gradient: Tensor, kind: torch.dtype) -> Tensor:
    """A gradient in a type that may be narrower: what would overflow it is cut to its largest number."""
    most = largest(kind)
    return gradient.clamp(-most, most).to(kind)


def _solve_compiled(
    scores: Tensor, target: Tensor, weights: PositionWeights, epsilon: float | Tensor, sign: int,
    gradient: bool, above: str, check_values: bool, padding: bool,
) -> Rankings:  # fmt: skip
    # Imported here because numba takes longer to import than all the rest; only the first ranking pays for it.
    from directloss.kernels import compiled

    if scores.dtype != torch.float64:
        scores = scores.float()
    # Reshaping is left to numpy from here on: it costs a fraction of what it costs on tensors.
    values = scores.contiguous().numpy()
    shape, n = values.shape, values.shape[-1]
    labels = _labels(target, padding)
    if labels is None:
        if check_values:
            check_labels(target, LABELS if padding else LABELS[:2], BINARY)
        labels = torch.where((target == 0) | (target == 1), target, IGNORE).to(torch.int8).numpy()
    # One for each problem is repeated over leading dimensions, as in broadcasting.
    steps = epsilon.double().reshape(-1).numpy() if isinstance(epsilon, Tensor) else np.array([float(epsilon)])
    loss, numbers = np.empty(shape[:-1], values.dtype), np.empty((*shape[:-1], 2), np.int64)
    grad = np.zeros(shape, values.dtype) if gradient else None
    counts = np.zeros(shape, np.int64) if above else None
    rows = counts.reshape(-1, n) if counts is not None else None
    tables = weights.tables.numpy()
    lists = compiled.Lists(
        values.reshape(-1, n),
        labels.reshape(-1, n),
        compiled.Weights(
            tables[:1], tables[1:2], _row_weights(weights.alpha, weights.beta, weights.first, tables.shape[1]),
            tables[2], tables[3], weights.base, weights.stride, weights.max_fpr,
        ),
        compiled.Search(
            sign, weights.monotone(sign), weights.cutoff, 1 if weights.first else weights.cutoff or n,
            weights.convex and weights.stride == 1,
        ),
        steps,
        loss.reshape(-1),
        numbers.reshape(-1, 2),
        None if grad is None else grad.reshape(-1, n),
        rows if above == "predicted" else None,
        rows if above == "augmented" else None,
    )  # fmt: skip
    missing = _in_threads(
        loss.size, values.size, partial(compiled.solve, lists, LEAST, largest(scores.dtype))
    )
    if missing < 0:  # a score is not finite
        if check_values:
            check_finite(torch.where(target >= 0, scores, 0.0))
        known = torch.nan_to_num(scores, nan=largest(scores.dtype))
        return _solve_compiled(known, target, weights, epsilon, sign, gradient, above, check_values, padding)
    found = None if counts is None else torch.from_numpy(counts)
    return Rankings(
        torch.from_numpy(loss),
        torch.from_numpy(numbers),
        missing == 0,
        None if grad is None else torch.from_numpy(grad),
        found if above == "predicted" else None,
        found if above == "augmented" else None,
    )


def _labels(target: Tensor, padding: bool) -> np.ndarray[Any, np.dtype[np.int8]] | None:
    """Labels in one byte each, or None if some are not 0 or 1 (or -1, where padding is allowed)."""
    while target.dim() > 1 and target.stride(0) == 0:  # the same labels for all draws of noise: read them once
        target = target[0]
    if target.dtype == torch.bfloat16:
        target = target.float()
    given = target.numpy()
    if given.dtype == np.bool_:
        return given.astype(np.int8)
    with np.errstate(invalid="ignore"):
        labels = given.astype(np.int8)
    known = (labels == given).all() and labels.min() >= (-1 if padding else 0) and labels.max() <= 1
    return labels if known else None


@lru_cache(maxsize=16)
def _row_weights(alpha: float, beta: float, first: bool, size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """u_i from i = 0, which does not exist."""
    i = np.arange(size, dtype=np.float64)
    return (i == 1).astype(np.float64) if first else alpha + beta * i


def _in_threads(problems: int, items: int, solve: Callable[[int, int], int]) -> int:
    """The sum of ``solve(first, last)`` over parts of the problems, one for each thread that PyTorch may use; or -1, if
    one of them is negative.

    The threads live as long as the call, so that processes may fork between calls.
    """
    parts = min(torch.get_num_threads(), problems, items // GRAIN)
    if parts < 2:
        return solve(0, problems)
    bounds = [problems * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts - 1) as pool:
        others = [pool.submit(solve, *ends) for ends in pairwise(bounds[1:])]
        found = [solve(0, bounds[1]), *(other.result() for other in others)]
    return -1 if min(found) < 0 else sum(found)


def _solve_tensor(
    scores: Tensor, target: Tensor, weights: PositionWeights, epsilon: float | Tensor, sign: int,
    gradient: bool, above: str, check_values: bool, padding: bool,
) -> Rankings:  # fmt: skip
    from directloss.kernels import tensor

    if check_values:
        check_labels(target, LABELS if padding else LABELS[:2], BINARY)
        check_finite(torch.where(target >= 0, scores, 0.0))
    batch, shape = scores.shape[:-1], scores.shape
    scores, target = scores.reshape(-1, shape[-1]), target.reshape(-1, shape[-1])
    predicted = tensor.predict(scores, target)
    relevant, irrelevant = predicted.relevant, predicted.irrelevant
    loss = tensor.position_loss(predicted.n_w, relevant, irrelevant, weights)
    loss = loss.to(torch.promote_types(scores.dtype, torch.float32)).reshape(batch)
    counts = torch.stack((relevant, irrelevant), 1).reshape(*batch, 2)
    complete = bool((counts > 0).all())
    above_w = predicted.above.reshape(shape) if above == "predicted" else None
    if not gradient and above != "augmented":
        return Rankings(loss, counts, complete, None, above_w)
    steps = torch.as_tensor(epsilon, dtype=torch.float64, device=scores.device).expand(batch).reshape(-1)
    direct = tensor.augment(predicted, weights, steps, sign)
    unit = -2.0 * sign / (steps * (relevant * irrelevant).clamp(min=1)).clamp(min=LEAST)
    slope = unit[:, None] * (direct - predicted.above) + 0.0  # and not -0.0
    grad = bounded(slope, loss.dtype).reshape(shape) if gradient else None
    return Rankings(loss, counts, complete, grad, above_w, direct.reshape(shape) if above == "augmented" else None)
