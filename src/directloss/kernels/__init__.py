"""The hot loops of rankings: compiled for the CPU, dense for accelerators.

A ranking of P relevant and N irrelevant items is described by counts: ``n_i`` irrelevant items rank above the i-th
relevant one, ``p_j`` relevant ones above the j-th irrelevant one. With the scores sorted (``a`` relevant, ``b``
irrelevant) the scoring function of Yue et al. and its gradient are

    F = 1/(PN) sum_ij y_ij (a_i - b_j)        dF/da_i = (N - 2 n_i) / (PN)        dF/db_j = (P - 2 p_j) / (PN)

and a metric of positions is ``M = 1/z sum_i m_i(n_i)``, here with ``m_i(n) = u_i * table[base + stride * i + n]``.
Loss-augmented inference, ``argmax F + sign * epsilon * (best - M)``, is a set of exchanges of neighbours: sign +1 makes
right pairs wrong, sign -1 makes wrong pairs right. Exchanging i and j costs ``|a_i - b_j|``, in units of 2/(PN), and
gains ``epsilon PN / (2 z)`` times the change of ``m_i``, which is ``u_i * drop[i + j]``. There are two cases:

* If ``m_i`` is convex (sign +1) or linear (both signs), the objective is totally monotone: the best ``p_j``, found for
  each irrelevant item alone, are already in order, O(P log N + N).
* Otherwise the objective is a sum over relevant items of gains and costs, with ``n`` in order: a table of choices, one
  bit per cell, limited to the cells that an optimum can reach (``n_i >= n^w_i`` for sign +1, ``n_i <= n^w_i`` for -1).

Both start at the predicted ranking and sum outwards, so distant scores never enter the sum of near ones, and a list
that mixes 1e30 with 1e-30 is solved as exactly as any other. Among outputs with equal sums, the one nearest to the
prediction wins. `compiled` sums in float64; `dense` sums in the dtype of the scores, float32 or wider.

Ties are spread evenly: among equal scores the k-th of r relevant items ranks below ``ceil(k q / r)`` of the q
irrelevant ones. This does not depend on the order of the input, and a constant scorer gets the value of chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from directloss._checks import IGNORE, check_choice, check_finite, check_labels
from directloss._dynamo import outside_graphs

if TYPE_CHECKING:
    from directloss.kernels import compiled

BINARY = 'Relevance is binary here: for labels -1 and 1 pass target > 0; for grades use "graded_ndcg".'
LABELS = (0, 1, IGNORE)
WAYS = ("auto", "compiled", "dense", "host", "tensor")
GRAIN = 1 << 14
"""Items that take about half a millisecond, which is worth a thread."""
_chosen: ContextVar[str] = ContextVar("backend", default="auto")


class PositionWeights(NamedTuple):
    """``m_i(n) = u_i * table[base + stride * i + n]``; ``u_i`` is 1, or i if `rising`, or ``[i = 1]`` if `first`."""

    tables: Tensor
    """Four float64 rows, long enough for the lists: `table`, `drop`, `z` and `best`."""
    stride: int = 1
    rising: bool = False
    first: bool = False
    base: int = 0
    cutoff: int = 0
    """``m_i(n)`` is 0 for ``i + n > cutoff``; 0 means no cutoff."""
    max_fpr: float = 0.0
    """If not 0, ``m_i(n) = max(0, max_fpr * N - n)`` replaces the table, and ``z`` is multiplied by ``max_fpr * N``."""
    convex: bool = False
    linear: bool = False
    peak: float = 1.0
    """The most that one more irrelevant item can take from an ``m_i``: the largest ``m_i(n) - m_i(n + 1)``."""

    @property
    def table(self) -> Tensor:
        """The weights themselves."""
        return self.tables[0]

    @property
    def drop(self) -> Tensor:
        """``table[k - 1] - table[k]``, without cancellation; only needed if best positions are found one by one and
        the stride is 1.
        """
        return self.tables[1]

    @property
    def z(self) -> Tensor:
        """The normaliser for each P; never 0."""
        return self.tables[2]

    @property
    def best(self) -> Tensor:
        """The reference value of the loss ``best - M``, for each P."""
        return self.tables[3]

    def monotone(self, sign: int) -> bool:
        """Whether the best positions can be found one by one."""
        return self.linear or (self.convex and sign > 0)


class Rankings(NamedTuple):
    """The result of a backend for lists of shape ``(b, n)``; None for parts that were not requested."""

    loss: Tensor
    """``best - M``, 0 where nothing is relevant; float32, or float64 for float64 scores."""
    counts: Tensor
    """Numbers of relevant and irrelevant items, shape ``(b, 2)``."""
    complete: bool
    """Whether every list has relevant and irrelevant items."""
    gradient: Tensor | None = None
    """``sign / epsilon * (dF(y_direct) - dF(y_w))``, shape ``(b, n)``."""
    above_predicted: Tensor | None = None
    """For each item, how many items of the other class rank above it in the prediction; 0 for padding."""
    above_augmented: Tensor | None = None


@contextmanager
def use(way: str) -> Iterator[None]:
    """Choose where and how losses are computed inside a ``with`` block; `way` lists the choices.

    Applies to this thread (or asyncio task) only.
    """
    before = _chosen.set(check_choice("way", way, WAYS))
    try:
        yield
    finally:
        _chosen.reset(before)


def way(device: torch.device, advise: Callable[[], str | None]) -> str | None:
    """How a loss is computed, unless chosen with `use`:

        scores on      the task advises          the way
        the CPU        anything                  "compiled": compiled loops, and PyTorch's operations around them
        elsewhere      "dense"                   few operations on the device, no synchronisation (`kernels.dense`)
        elsewhere      "host"                    scores move to the CPU once, the gradient comes back
        elsewhere      None                      the task's own operations on the device, such as those of classes

    ``advise`` returns `directloss.task.Task.advised_way`. "tensor" is never automatic: it computes losses without
    gradients, in plain operations that UniLoss can trace. A task without a dense form never uses "dense".
    """
    chosen = _chosen.get()
    if chosen in ("auto", "dense"):
        return "compiled" if chosen == "auto" and device.type == "cpu" else advise()
    return chosen


def works_here(scores: Tensor) -> bool:
    """Whether the scores are on the CPU and no other way is chosen."""
    return scores.is_cpu and _chosen.get() in ("auto", "compiled", "tensor")


def compiles(scores: Tensor) -> bool:
    """Whether to use compiled loops for these scores."""
    return scores.is_cpu and _chosen.get() != "tensor"


class Asked(NamedTuple):
    """A request to a backend; see `solve_rankings`."""

    weights: PositionWeights
    epsilon: float | Tensor = 1.0
    automatic: bool = False
    signs: tuple[int, ...] = (1,)
    gradient: bool = False
    noisy: Tensor | None = None
    above: str = ""
    check_values: bool = True
    padding: bool = True

    @property
    def labels(self) -> tuple[int, ...]:
        """The allowed labels."""
        return LABELS if self.padding else LABELS[:2]


@outside_graphs
def solve_rankings(scores: Tensor, target: Tensor, weights: PositionWeights, **options: Any) -> Rankings:
    """Predicted and augmented rankings of a batch.

    Args:
        scores: floating point, detached, shape ``(b, n)`` with any number of batch dimensions ``b``.
        target: any dtype, shape ``(b, n)``: 1 relevant, 0 irrelevant, -1 padding.
        weights: the metric's position weights, for lists of n items.
        epsilon: a number, or a tensor that broadcasts to ``b``.
        automatic: whether epsilon is in units of ``2 z / (P N peak)``.
        signs: +1, -1, or both, to average the gradient over.
        gradient: whether to return the direct gradient, in the dtype of the loss.
        noisy: perturbed scores ``(draws, *b, n)`` to average the gradient over; the loss is that of ``scores``.
        above: which counts to return: "predicted", "augmented" (for the first sign), or none.
        check_values: whether to raise on NaN and wrong labels.
        padding: whether label -1 is allowed.
    """
    asked = Asked(weights, **options)
    if _chosen.get() == "tensor" and not asked.gradient and asked.above != "augmented":
        return _solve_tensor(scores, target, asked)
    if scores.device.type == "cpu":
        return _solve_compiled(scores, target, asked)
    here = asked._replace(
        weights=weights._replace(tables=weights.tables.cpu().double()),
        epsilon=asked.epsilon.cpu() if isinstance(asked.epsilon, Tensor) else asked.epsilon,
        noisy=None if asked.noisy is None else asked.noisy.cpu(),
    )
    solved = _solve_compiled(scores.cpu(), target.cpu(), here)
    parts: Any = (part.to(scores.device) if isinstance(part, Tensor) else part for part in solved)
    return Rankings(*parts)


@lru_cache
def largest(kind: torch.dtype) -> float:
    """The largest number of a dtype."""
    return torch.finfo(kind).max


LEAST = 2.0**-960
"""The smallest effective epsilon (times the number of pairs, or over the range of the scores): its inverse times any
count is still finite."""


def bounded(gradient: Tensor, kind: torch.dtype) -> Tensor:
    """A gradient in a possibly narrower dtype, clamped to its range."""
    most = largest(kind)
    return gradient.clamp(-most, most).to(kind)


def _solve_compiled(scores: Tensor, target: Tensor, asked: Asked) -> Rankings:
    known = _known(scores, target, asked)
    own = asked.gradient and asked.noisy is None
    lists, lacking = _solved(scores, target, known, asked, asked.signs[0], own, asked.above)
    slope = None
    if asked.gradient:
        draws = scores if asked.noisy is None else asked.noisy
        signs = asked.signs[1:] if own else asked.signs
        found = [_solved(draws, target, known, asked, sign, gradient=True)[0].gradient for sign in signs]
        if own:
            found.insert(0, lists.gradient)
        slope = found[0] if len(found) == 1 else found[0] / 2 + found[1] / 2
        if not own:
            slope = np.add.reduce(slope.reshape(-1, scores.numel()))
    shape = scores.shape
    return Rankings(
        torch.from_numpy(lists.loss.reshape(shape[:-1])),
        torch.from_numpy(lists.numbers.reshape(*shape[:-1], 2)),
        lacking == 0,
        *(
            None if part is None else torch.from_numpy(part.reshape(shape))
            for part in (slope, lists.above_predicted, lists.above_augmented)
        ),
    )


class Known(NamedTuple):
    """What all lists of a call share, as the loops read it."""

    labels: Any
    weights: compiled.Weights
    epsilon: Any
    cutoffs: tuple[int, int]
    """``cutoff`` and ``earning`` of `compiled.Search`."""


def _known(scores: Tensor, target: Tensor, asked: Asked) -> Known:
    # Imported lazily: numba is slow to import.
    from directloss.kernels import compiled

    weights, epsilon, n = asked.weights, asked.epsilon, scores.shape[-1]
    tables = weights.tables.numpy()
    return Known(
        _labels(target).reshape(-1, n),
        compiled.Weights(
            tables[:1], tables[1:2], _row_weights(weights.rising, weights.first, tables.shape[1]),
            tables[2:3], tables[3], weights.base, weights.stride, weights.max_fpr,
        ),
        # One epsilon per problem repeats over leading dimensions, as in broadcasting.
        epsilon.double().reshape(-1).numpy() if isinstance(epsilon, Tensor) else np.array([float(epsilon)]),
        (weights.cutoff, 1 if weights.first else weights.cutoff or n),
    )  # fmt: skip


def _solved(
    scores: Tensor, target: Tensor, known: Known, asked: Asked, sign: int, gradient: bool, above: str = ""
) -> tuple[compiled.Lists, int]:
    """Solved lists, with gradients divided by the number of draws, and how many lists lack relevant or irrelevant
    items.
    """
    from directloss.kernels import compiled

    weights, kind = asked.weights, torch.promote_types(scores.dtype, torch.float32)
    values = scores.to(kind).contiguous().numpy().reshape(-1, scores.shape[-1])
    lists = compiled.Lists(
        values,
        known.labels,
        asked.padding or not asked.check_values,
        known.weights,
        compiled.Search(sign, weights.monotone(sign), *known.cutoffs, weights.convex and weights.stride == 1),
        compiled.Step(
            known.epsilon, sign, weights.peak if asked.automatic else 0.0,
            1 if asked.noisy is None else asked.noisy.shape[0], LEAST, largest(kind),
        ),
        np.empty(len(values), values.dtype),
        np.empty((len(values), 2), np.int64),
        np.zeros(values.shape, values.dtype) if gradient else None,
        np.zeros(values.shape, np.int64) if above == "predicted" else None,
        np.zeros(values.shape, np.int64) if above == "augmented" else None,
    )  # fmt: skip
    lacking = _in_threads(len(values), values.size, partial(compiled.solve, lists))
    if lacking >= 0:
        return lists, lacking
    if lacking == compiled.NO_LABEL:
        if asked.check_values:
            check_labels(target, asked.labels, BINARY)
        known = known._replace(labels=binary_labels(target).reshape(-1, scores.shape[-1]))
    else:
        if asked.check_values and scores.shape == target.shape:  # draws may overflow, so they are not checked
            check_finite(torch.where(target >= 0, scores, 0.0))
        scores = torch.nan_to_num(scores, nan=largest(scores.dtype))
    return _solved(scores, target, known, asked, sign, gradient, above)


def binary_labels(target: Tensor) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Labels 0 and 1 in one byte each; all others are padding."""
    return torch.where((target == 0) | (target == 1), target, IGNORE).to(torch.int8).numpy()


def _labels(target: Tensor) -> np.ndarray[Any, Any]:
    """Labels as the loops read them, in their own dtype where possible."""
    while target.dim() > 1 and target.stride(0) == 0:  # shared by all draws of noise
        target = target[0]
    if target.dtype.itemsize == 2 and target.is_floating_point():  # dtypes unknown to the loops
        target = target.float()
    labels = target.contiguous().numpy()
    return labels.view(np.int8) if target.dtype == torch.bool else labels


@lru_cache(maxsize=16)
def _row_weights(rising: bool, first: bool, size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """u_i from i = 0, which is unused."""
    i = np.arange(size, dtype=np.float64)
    return (i == 1).astype(np.float64) if first else i if rising else np.ones(size)


def _in_threads(problems: int, items: int, solve: Callable[[int, int], int]) -> int:
    """The sum of ``solve(first, last)`` over parts of the problems, one per PyTorch thread; or the minimum if that is
    negative.

    Threads only live as long as the call, so processes can fork between calls.
    """
    parts = min(torch.get_num_threads(), problems, items // GRAIN)
    if parts < 2:
        return solve(0, problems)
    bounds = [problems * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts - 1) as pool:
        others = [pool.submit(solve, *ends) for ends in pairwise(bounds[1:])]
        found = [solve(0, bounds[1]), *(other.result() for other in others)]
    return min(found) if min(found) < 0 else sum(found)


def _solve_tensor(scores: Tensor, target: Tensor, asked: Asked) -> Rankings:
    from directloss.kernels import dense, weighted

    if asked.check_values:
        check_labels(target, asked.labels, BINARY)
        check_finite(torch.where(target >= 0, scores, 0.0))
    else:
        scores = torch.nan_to_num(scores, nan=largest(scores.dtype))
    items = weighted.weigh(scores, target, torch.ones_like(scores))
    above = weighted.predicted_above(items, traced=True).long()
    relevant, irrelevant = items.relevant.sum(-1), items.irrelevant.sum(-1)
    counts = torch.stack((relevant, irrelevant), -1)
    n = torch.where(items.relevant, above, scores.shape[-1]).sort(dim=-1).values
    loss = dense.position_loss(n, relevant, irrelevant, asked.weights)
    loss = loss.to(torch.promote_types(scores.dtype, torch.float32))
    return Rankings(loss, counts, bool((counts > 0).all()), above_predicted=above)
