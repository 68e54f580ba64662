"""The hot loops of rankings, compiled for the CPU.

A ranking of P relevant and N irrelevant items is described by counts: ``n_i`` irrelevant items rank above the i-th
relevant one, ``p_j`` relevant ones above the j-th irrelevant one. With the scores sorted (``a`` relevant, ``b``
irrelevant) the scoring function of Yue et al. and its gradient are

    F = 1/(PN) sum_ij y_ij (a_i - b_j)        dF/da_i = (N - 2 n_i) / (PN)        dF/db_j = (P - 2 p_j) / (PN)

and a metric of positions is ``M = 1/z sum_i m_i(n_i)``, here with ``m_i(n) = u_i * table[base + stride * i + n]``.
The gradient of the expected metric moves one item at a time; `directloss.moves` has the formula, and `compiled.advance`
is its loop. The rest of this page is about Theorem 1.

Loss-augmented inference, ``argmax F + sign * epsilon * (best - M)``, is a set of exchanges of neighbours: sign +1 makes
right pairs wrong, sign -1 makes wrong pairs right. Exchanging i and j costs ``|a_i - b_j|``, in units of 2/(PN), and
gains ``epsilon PN / (2 z)`` times the change of ``m_i``, which is ``u_i * drop[i + j]``. There are two cases:

* If ``m_i`` is convex and the sign +1, the objective is totally monotone: the best ``p_j``, found for
  each irrelevant item alone, are already in order, O(P log N + N).
* Otherwise the objective is a sum over relevant items of gains and costs, with ``n`` in order: a table of choices, one
  bit per cell, limited to the cells that an optimum can reach (``n_i >= n^w_i`` for sign +1, ``n_i <= n^w_i`` for -1).

Both start at the predicted ranking and sum outwards, so distant scores never enter the sum of near ones, and a list
that mixes 1e30 with 1e-30 is solved as exactly as any other. Among outputs with equal sums, the one nearest to the
prediction wins.

Ties are spread evenly: among equal scores the k-th of r relevant items ranks below ``ceil(k q / r)`` of the q
irrelevant ones. This does not depend on the order of the input, and a constant scorer gets the value of chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from directloss._checks import check_choice, check_finite, check_labels
from directloss._dynamo import traced

if TYPE_CHECKING:
    from directloss.kernels import compiled

BINARY = 'Relevance is binary here: for labels -1 and 1 pass target > 0; for grades use "graded_ndcg".'
BACKENDS = ("auto", "tensor")
GRAIN = 1 << 14
"""Items that take about half a millisecond, which is worth a thread."""
_chosen: ContextVar[str] = ContextVar("backend", default="auto")


class PositionTables(NamedTuple):
    """A metric as compiled loops read it, and what loss-augmented inference may assume of it."""

    metric: Any
    """A `directloss.metrics.ranking.PositionMetric`."""
    n: int
    """The length of the lists."""
    convex: bool = False
    cutoff: int = 0
    """``m_i(n)`` is 0 for ``i + n > cutoff``; 0 means no cutoff."""
    earning: int = 0
    """Only the first relevant items count; 0 means all of them."""
    peak: float = 1.0
    """The most that one more irrelevant item can take from an ``m_i``: the largest ``m_i(n) - m_i(n + 1)``."""
    table: Tensor | None = None
    """All ``m_i(n)``, shape ``(P, N + 1)``, if they are not a product of a row and a column."""

    def arrays(self, numbers: Any) -> compiled.Weights:
        """The tables of some lists with these numbers of relevant and irrelevant items, ``(r, 2)``."""
        if self.metric.by_list:
            P, N = torch.from_numpy(numbers.astype(np.float64)).T[:, :, None]
            return _arrays(self.metric, self.n, self.n + 2, P, N)
        if self.table is not None:
            return _arrays(self.metric, self.n, self.n + 2, table=self.table)
        # Lengths are powers of two, so only few tables are ever built.
        size = 1 << (self.n + 2).bit_length()
        return (_short if size <= SHORT else _long)(self.metric, size, size)


def _arrays(
    metric: Any, n: int, size: int, P: Tensor | None = None, N: Tensor | None = None, table: Tensor | None = None
) -> compiled.Weights:
    """All tables, for one list (or any) per row."""
    # Imported lazily: numba is slow to import.
    from directloss.kernels import compiled

    k = torch.arange(size, dtype=torch.float64)[None]
    P, N = torch.ones(1, 1).double() if P is None else P, torch.ones(1, 1).double() if N is None else N
    if table is None:
        worth, rows = metric.column(k, P, N), metric.row(k, P, N)
        if metric.by_rank:
            worth[:, 0] = 0  # there is no rank 0
    else:
        worth, rows = table.reshape(1, -1), torch.ones_like(k)
    drop = torch.zeros_like(worth)
    drop[:, 1:] = worth[:, :-1] - worth[:, 1:]
    wide = 0 if table is None else table.shape[1]
    z, best = metric.normaliser(k.expand(len(N), -1), N, n), metric.best(k, N, n)
    return compiled.Weights(
        worth.numpy(), drop.numpy(), rows.numpy(), z.numpy(), best.numpy(), -wide, wide or int(metric.by_rank)
    )


SHORT = 1 << 16
"""Tables up to this length are kept for several metrics, longer ones only for the last."""
_short, _long = lru_cache(maxsize=16)(_arrays), lru_cache(maxsize=1)(_arrays)


class Rankings(NamedTuple):
    """The result for lists of shape ``(b, n)``; None for parts that were not requested."""

    loss: Tensor
    """``best - M``, 0 where nothing is relevant; float32, or float64 for float64 scores."""
    counted: Tensor | None
    """Which lists have relevant and irrelevant items, shape ``b``; None if all do."""
    gradient: Tensor | None
    """Of the loss, shape ``(b, n)``."""
    above: Tensor
    """For each item, how many items of the other class rank above it, shape ``(b, n)``; 0 for padding."""


@contextmanager
def use(backend: str) -> Iterator[None]:
    """Choose how losses are computed inside a ``with`` block: "tensor" for tensor operations only, as on accelerators
    and in graphs; "auto" for compiled loops where scores are on the CPU.

    Applies to this thread (or asyncio task) only.
    """
    before = _chosen.set(check_choice("backend", backend, BACKENDS))
    try:
        yield
    finally:
        _chosen.reset(before)


def compiles(scores: Tensor) -> bool:
    """Whether to use compiled loops for these scores."""
    return not traced() and scores.is_cpu and _chosen.get() == "auto"


def solve_rankings(
    scores: Tensor,
    target: Tensor,
    tables: PositionTables,
    *,
    mask: Tensor | None = None,
    epsilon: float | Tensor = 1.0,
    signs: tuple[int, ...] = (),
    noisy: Tensor | None = None,
    width: float = 0.0,
    above: str = "",
    check_values: bool = True,
) -> Rankings:
    """Losses of a batch and their gradients, or predicted and augmented rankings.

    Args:
        scores: floating point, detached, shape ``(b, n)`` with any number of batch dimensions ``b``.
        target: any dtype, shape ``(b, n)``: 1 relevant, 0 irrelevant.
        tables: the metric, for lists of n items.
        mask: True for real items, shape ``(b, n)``; scores and labels of the others are 0.
        epsilon: a number, or a tensor that broadcasts to ``b``.
        signs: +1, -1, or both: the gradient is that of Theorem 1, averaged over them. None for no such gradient.
        noisy: perturbed scores ``(draws, *b, n)`` to average the gradient over; the loss is that of ``scores``.
        width: the half-width of the noise, if the gradient is to be that of the expected metric.
        above: which counts to return: "predicted", "augmented" (for the first sign), or none.
        check_values: whether to raise on NaN and on labels other than 0 and 1; if not, NaN is the largest score, and
            items with other labels are padding.
    """
    from directloss.kernels import compiled

    device, shape = scores.device, scores.shape
    scores, target, draws = scores.cpu(), target.cpu(), None if noisy is None else noisy.cpu()
    if not check_values:
        scores = torch.nan_to_num(scores, nan=largest(scores.dtype))
    problem: dict[str, Any] = {
        "labels": label_rows(target),
        "mask": mask_rows(mask, shape[-1]),
        "tables": tables,
        "check": check_values,
        # One epsilon per problem repeats over leading dimensions, as in broadcasting.
        "epsilon": torch.as_tensor(epsilon, dtype=torch.float64, device="cpu").reshape(-1).numpy(),
        "draws": 1 if draws is None else len(draws),
    }
    moves, own = width > 0, bool(signs) and draws is None
    first = compiled.ListBatch(_rows(scores), **problem, sign=(*signs, 1)[0], slopes=own or moves, above=above)
    if moves and draws is not None:
        first.noisy, first.width = _rows(draws).reshape(len(draws), *first.scores.shape), width
    lacking = _in_threads(first)
    if lacking == compiled.NO_LABEL:
        check_labels(target, hint=BINARY)
    elif lacking == compiled.NOT_FINITE:
        check_finite(scores)
    slopes: list[Any] = [first.gradient] if own or moves else []
    # Noise may make huge scores infinite.
    perturbed = _rows(scores if draws is None else torch.nan_to_num(draws)) if len(signs) > own else None
    for sign in signs[own:]:
        lists = compiled.ListBatch(perturbed, **problem, sign=sign, slopes=True)
        _in_threads(lists)
        slopes.append(lists.gradient)
    slope: Any = slopes[0] / 2 + slopes[1] / 2 if len(slopes) == 2 else slopes[0] if slopes else None
    if signs and not own:
        slope = np.add.reduce(slope.reshape(-1, scores.numel()))
    counted = (first.numbers > 0).all(1) if lacking else None
    parts: Any = ((first.loss, shape[:-1]), (counted, shape[:-1]), (slope, shape), (first.counts, shape))
    results: Any = (None if x is None else torch.from_numpy(x.reshape(to)).to(device) for x, to in parts)
    return Rankings(*results)


def move_graded(
    scores: Tensor, noisy: Tensor, width: float, gains: Tensor, tables: PositionTables, mask: Tensor | None
) -> Tensor:
    """Minus the gradient of the expected sum of ``gain * column(rank)``, shape ``(b, n)``, on the CPU.

    ``scores``, ``gains`` and ``mask`` have shape ``(b, n)``, ``noisy`` ``(draws, *b, n)``.
    """
    from directloss.kernels import compiled

    most = largest(noisy.dtype)
    values, drawn = (np.nan_to_num(_rows(one.to(noisy.dtype)), nan=most) for one in (scores, noisy))
    n = scores.shape[-1]
    lists = compiled.ListBatch(
        values, np.ones((1, n), np.int8), mask_rows(mask, n), tables, noisy=drawn.reshape(-1, *values.shape),
        width=width, gains=_rows(gains.double()), slopes=True,
    )  # fmt: skip
    _in_threads(lists)
    return torch.from_numpy(lists.gradient.reshape(scores.shape))


def _rows(scores: Tensor) -> np.ndarray[Any, Any]:
    """Lists ``(b, n)`` in float32 or float64."""
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return wide.contiguous().numpy().reshape(-1, scores.shape[-1])


def largest(dtype: torch.dtype) -> float:
    """The largest number of a dtype."""
    return torch.finfo(dtype).max


def bounded(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """A gradient in a possibly narrower dtype, clamped to its range."""
    most = largest(dtype)
    return gradient.clamp(-most, most).to(dtype)


def spread_evenly(C: Tensor, above: Tensor) -> Tensor:
    """N of each item, if the k-th of r relevant items with equal scores ranks below ``ceil(k q / r)`` of the q
    irrelevant ones; ``above`` are C and N (rows) before and after the items with the same score (columns).
    """
    before, (r, q) = above[:, 0], above[:, 1] - above[:, 0]
    spread: Tensor = before[1] + ((C - before[0]) * q / r.clamp(min=1)).ceil()
    return spread


def label_rows(target: Tensor) -> np.ndarray[Any, Any]:
    """Labels or a mask as the loops read them, ``(any, n)``, in their own dtype where possible."""
    while target.dim() > 1 and target.stride(0) == 0:  # shared by all draws of noise
        target = target[0]
    if target.dtype.itemsize == 2 and target.is_floating_point():  # dtypes unknown to the loops
        target = target.float()
    labels = target.contiguous().numpy().reshape(-1, target.shape[-1])
    return labels.view(np.int8) if target.dtype == torch.bool else labels


def mask_rows(mask: Tensor | None, n: int) -> np.ndarray[Any, Any]:
    """A mask as the loops read it, ``(any, n)``; without one, a single row for all lists."""
    return np.ones((1, n), np.int8) if mask is None else label_rows(mask.cpu())


def _in_threads(lists: compiled.ListBatch) -> int:
    """Solve lists, in one part per PyTorch thread; how many lack relevant or irrelevant items, or a negative status.

    Threads only live as long as the call, so processes can fork between calls.
    """
    problems, solve = len(lists.scores), lists.solve
    parts = min(torch.get_num_threads(), problems, lists.scores.size // GRAIN)
    if parts < 2:
        return solve(0, problems)
    bounds = [problems * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts - 1) as pool:
        others = [pool.submit(solve, *ends) for ends in pairwise(bounds[1:])]
        found = [solve(0, bounds[1]), *(other.result() for other in others)]
    return min(found) if min(found) < 0 else sum(found)
