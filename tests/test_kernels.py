"""Compiled rankings: the augmented output is the best there is, in exact rational arithmetic."""

from __future__ import annotations

import errno
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss import kernels
from directloss.metrics.confusion import members
from directloss.metrics.ranking import relevance, tensor_losses
from directloss.task import Task
from directloss.tasks import PartialAUC, PrecisionAtK, PrecisionAtRecall, RecallAtFPR, RecallAtK, get
from directloss.tasks.ranking import RankingTask

# Lists of one class have no loss; that this is announced is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore::directloss.DirectLossWarning")

SIGNS = (+1, -1)
ROUNDING = Fraction(1, 2**44)
"""Sums of a few dozen float64 terms, relative to the terms themselves."""


def discount(rank: int) -> Fraction:
    """Irrational; its float64 is what the library means."""
    return Fraction(1 / math.log2(1 + rank))


def dcg(n: tuple[int, ...], k: int) -> Fraction:
    return sum((discount(i + m) for i, m in enumerate(n, 1) if i + m <= k), Fraction(0))


def partial_area(n: tuple[int, ...], N: int, max_fpr: Fraction) -> Fraction:
    return sum((max(Fraction(0), max_fpr * N - m) for m in n), Fraction(0)) / (len(n) * max_fpr * N)


class Exact(NamedTuple):
    """A task and its metric for the i-th relevant item behind ``n_i`` of N irrelevant ones, as a fraction."""

    task: RankingTask

    def metric(self, n: tuple[int, ...], N: int) -> Fraction:
        name, P = repr(self.task), len(n)
        k = getattr(self.task, "k", None) or P + N
        if name == "AveragePrecision()":
            return sum((Fraction(i, i + m) for i, m in enumerate(n, 1)), Fraction(0)) / P
        if name == "ReciprocalRank()":
            return Fraction(1, 1 + n[0])
        if name.startswith("DCG"):
            return dcg(n, k)
        if name.startswith("NDCG"):
            return dcg(n, k) / dcg((0,) * P, k)
        if name.startswith(("PrecisionAtK", "RecallAtK")):
            return Fraction(sum(i + m <= k for i, m in enumerate(n, 1)), k if "Precision" in name else P)
        if name.startswith("RecallAtFPR"):
            return Fraction(sum(m <= Fraction(3, 10) * N for m in n), P)
        if name.startswith("PrecisionAtRecall"):
            i = math.ceil(Fraction(6, 10) * P)
            return Fraction(i, i + n[i - 1])
        return partial_area(n, N, Fraction(getattr(self.task, "max_fpr", 1.0)))


TASKS: dict[str, RankingTask] = {
    **{name: get(name) for name in ("ap", "ndcg", "ndcg@3", "ndcg@1", "dcg", "dcg@2", "mrr", "auc")},  # type: ignore[dict-item]
    "precision@2": PrecisionAtK(2),
    "precision@9": PrecisionAtK(9),
    "recall@1": RecallAtK(1),
    "recall@3": RecallAtK(3),
    "pauc@0.3": PartialAUC(0.3),
    "pauc@0.6": PartialAUC(0.6),
    "recall_at_fpr@0.3": RecallAtFPR(0.3),
    "precision_at_recall@0.6": PrecisionAtRecall(0.6),
}


class Output(NamedTuple):
    """A ranking by its counts, with F and L as fractions."""

    n: tuple[int, ...]
    score: Fraction
    loss: Fraction


def every_output(scores: Tensor, target: Tensor, task: RankingTask) -> Iterator[Output]:
    """All interleavings of the two sorted lists. Other rankings only swap items of one class: same L, lower F."""
    a, b = (sorted((Fraction(s) for s in scores[target == label].tolist()), reverse=True) for label in (1, 0))
    P, N = len(a), len(b)
    for places in combinations(range(P + N), P):
        n = tuple(place - i for i, place in enumerate(places))
        pairs = ((x - y) * (1 if j >= n[i] else -1) for (i, x), (j, y) in product(enumerate(a), enumerate(b)))
        yield Output(n, sum(pairs, Fraction(0)) / (P * N), -Exact(task).metric(n, N))


def augmented(task: Task, scores: Tensor, target: Tensor, epsilon: float, sign: int) -> tuple[int, ...]:
    return tuple(sorted(task.augmented(scores, target, epsilon, sign).above[target == 1].tolist()))


def predicted(task: Task, scores: Tensor, target: Tensor) -> tuple[int, ...]:
    return tuple(sorted(task.infer(scores, target).above[target == 1].tolist()))


def gradient(task: Task, scores: Tensor, target: Tensor, epsilon: float, sign: int) -> Tensor:
    leaf = scores.clone().requires_grad_()
    dl.direct_loss(leaf, target, task, epsilon=epsilon, sign=sign).backward()
    assert leaf.grad is not None
    return leaf.grad


def shortfall(outputs: list[Output], found: tuple[int, ...], plain: tuple[int, ...], epsilon: float, sign: int) -> bool:
    """Whether ``found`` is worse than the best output by more than rounding, measured from the plain prediction."""
    step = sign * Fraction(epsilon)
    by_counts = {output.n: output for output in outputs}
    origin = by_counts[plain]

    def gains(output: Output) -> tuple[Fraction, Fraction]:
        return output.score - origin.score, step * (output.loss - origin.loss)

    top = max(outputs, key=lambda output: sum(gains(output)))
    size = sum(abs(part) for output in (top, by_counts[found]) for part in gains(output))
    return sum(gains(top)) - sum(gains(by_counts[found])) > ROUNDING * size


# ---------------------------------------------------------------------------------------------- random problems


def draw_scores(n: int, kind: str, generator: torch.Generator) -> Tensor:
    """Float64 scores of one of the kinds that break sums in floating point."""
    normal = torch.randn(n, generator=generator, dtype=torch.float64)
    pick = torch.randint(4, (n,), generator=generator)
    if kind == "mixed":
        return normal * torch.tensor([1e30, 1e-30, 1.0, -1e30], dtype=torch.float64)[pick]
    if kind == "mixed and tied":
        return torch.tensor([1e30, 1e-30, 0.0, -1e30], dtype=torch.float64)[pick]
    if kind == "gaps":
        return 1000.0 + pick.double() * 2.0**-13
    return pick.double() / 2 if kind == "tied" else normal


KINDS = ("mixed", "mixed and tied", "gaps", "tied", "plain")


def draw_epsilon(scores: Tensor, generator: torch.Generator) -> float:
    """From 1e-6 to 1e6, half of the time in units of a difference between two scores."""
    size = 10 ** float(torch.randint(-6, 7, (), generator=generator))
    if bool(torch.randint(2, (), generator=generator)):
        first, second = scores[torch.randint(len(scores), (2,), generator=generator)].double().tolist()
        size = abs(first - second) * 2.0 ** int(torch.randint(-3, 4, (), generator=generator)) or size
    return size


def draw_problem(kind: str, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, Tensor, float]:
    n = int(torch.randint(2, 8, (), generator=generator))
    target = torch.randint(2, (n,), generator=generator)
    target[0], target[-1] = 1, 0
    scores = draw_scores(n, kind, generator).to(dtype)
    return scores, target, draw_epsilon(scores, generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_augmented_rankings_are_exact(kind: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    for (name, task), _ in product(TASKS.items(), range(5)):
        scores, target, epsilon = draw_problem(kind, dtype, generator)
        outputs, plain = list(every_output(scores, target, task)), predicted(task, scores, target)
        for sign in SIGNS:
            where = f"{name}, sign {sign}, epsilon {epsilon!r}, {scores.tolist()}, {target.tolist()}"
            found = augmented(task, scores, target, epsilon, sign)
            assert not shortfall(outputs, found, plain, epsilon, sign), where
            objective = {output.n: output.score + sign * Fraction(epsilon) * output.loss for output in outputs}
            if objective[plain] == max(objective.values()):
                assert found == plain, f"the prediction is as good as any: {where}"


def table_of_choices(scores: Tensor, target: Tensor, task: RankingTask, epsilon: float, sign: int) -> float:
    """The Bellman recursion of 001, Fig. 2, for any position metric: the best F - sign * epsilon * M."""
    a, b = (scores[target == label].double().sort(descending=True).values for label in (1, 0))
    P, N = (torch.tensor([float(len(part))], dtype=torch.float64) for part in (a, b))
    i, n = torch.arange(1.0, len(a) + 1).double()[:, None], torch.arange(len(b) + 1).double()[None]
    worth = task.metric.worth(*torch.broadcast_tensors(i, n), P, N) / task.metric.normaliser(P, N, len(scores))
    # F of relevant item i below n irrelevant ones, all pairs of it.
    sums = torch.cat((torch.zeros(1, dtype=torch.float64), b.cumsum(0)))
    pairs = ((len(b) - 2 * n) * a[:, None] + 2 * sums - sums[-1]) / (P * N)
    best = torch.zeros(len(b) + 1, dtype=torch.float64)
    for row in pairs - sign * epsilon * worth:
        best = (best + row).cummax(0).values
    return float(best[-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["plain", "tied", "gaps"])
def test_augmented_rankings_of_long_lists_are_best(kind: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    """Beyond enumeration: ranges of all lengths, windows of many words, lists of different lengths with padding."""
    for name, task in TASKS.items():
        scores, target, mask = draw_lists(100, kind, dtype, generator)
        epsilon = 10 ** (3 * torch.rand(3, generator=generator) - 2)
        for sign in SIGNS:
            output = task.augmented(scores, target, epsilon, sign, mask)
            metric = task.metric.best(*members(target, mask).sum(-1).double(), 100)
            found = task.score(scores.double(), output) - sign * epsilon * (metric - task.loss(output, target, mask))
            for row in range(3):
                alone, labels = scores[row, mask[row]].double(), target[row, mask[row]]
                alone = alone - alone.mean()  # F looks at differences alone
                wanted = table_of_choices(alone, labels, task, float(epsilon[row]), sign)
                assert float(found[row]) == pytest.approx(wanted, rel=1e-9, abs=1e-9), (name, sign, row)


def draw_lists(n: int, kind: str, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Three lists from few to many relevant items, and the mask of their padding."""
    scores = torch.stack([draw_scores(n, kind, generator) for _ in range(3)]).to(dtype)
    target = (torch.rand(3, n, generator=generator) < torch.tensor([[0.05], [0.5], [0.9]])).long()
    mask = torch.rand(3, n, generator=generator) < 0.8
    return scores * mask, target * mask, mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [*KINDS, "outlier"])
@pytest.mark.parametrize("n", [40, 1500])
def test_lists_of_every_length_are_sorted(n: int, kind: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    """By numpy and by digits, of float32 and of float64, which is sorted twice."""
    task = TASKS["ap"]
    scores, target, mask = draw_lists(n, "plain" if kind == "outlier" else kind, dtype, generator)
    scores[:, 0] = 1e30 * mask[:, 0] if kind == "outlier" else scores[:, 0]
    tables = task.metric.tables(target)
    found = kernels.solve_rankings(scores, target, tables, mask=mask, above="predicted")
    alone = kernels.solve_rankings(scores, target, tables, mask=mask)
    assert torch.equal(alone.loss, found.loss)
    torch.testing.assert_close(found.loss, tensor_losses(task.metric, scores, relevance(target, mask)).to(dtype))
    others = (target[..., None, :] + target[..., None] == 1) & mask[..., None, :]
    pairs, ties = (scores[..., None, :] > scores[..., None]), (scores[..., None, :] == scores[..., None])
    low, high = ((part & others).sum(-1) for part in (pairs, pairs | ties))
    assert ((low <= found.above) & (found.above <= high))[mask].all()
    assert not found.above[~mask].any()


def test_labels_are_repeated_over_draws(generator: torch.Generator) -> None:
    """The same labels and mask for several draws, whether they are stored once or many times."""
    scores, target, mask = draw_lists(30, "tied", torch.float32, generator)
    draws = scores + torch.randn(5, *scores.shape, generator=generator)
    weights = TASKS["ap"].metric.tables(target)
    once, many = (
        kernels.solve_rankings(draws, labels, weights, mask=real, epsilon=torch.tensor([0.1, 1.0, 3.0]), signs=(1,))
        for labels, real in (
            (target.expand(5, -1, -1), mask.expand(5, -1, -1)),
            (target.repeat(5, 1, 1), mask.repeat(5, 1, 1)),
        )
    )
    assert torch.equal(once.loss, many.loss)
    assert once.gradient is not None
    assert many.gradient is not None
    assert torch.equal(once.gradient, many.gradient)
    with pytest.raises(dl.DirectLossError, match=r"it is 7 at index \[0, 1, 2\]"):
        kernels.solve_rankings(
            draws, torch.where(torch.arange(90).view(3, 30) == 32, 7, target).expand(5, -1, -1), weights
        )


# ---------------------------------------------------------------------------------------------- edges

EXTREME = (1e-300, 1e-8, 1e-3, 0.3, 1.0, 7.0, 1e5, 1e8, 1e20, 1e300)


@pytest.mark.parametrize("name", TASKS)
def test_epsilon_does_not_matter_among_equal_scores(name: str) -> None:
    task, target = TASKS[name], torch.tensor([0, 1, 1, 0, 0, 1])
    for scores, sign in product(
        (torch.zeros(6), torch.full((6,), -3e38), torch.full((6,), 1e300, dtype=torch.float64)), SIGNS
    ):
        found = {augmented(task, scores, target, epsilon, sign) for epsilon in EXTREME}
        assert len(found) == 1
        outputs = list(every_output(scores, target, task))
        best = max(sign * output.loss for output in outputs)
        assert {sign * output.loss for output in outputs if output.n in found} == {best}
        wanted = gradient(task, scores, target, 1.0, sign)
        (plain,) = (output for output in outputs if output.n == predicted(task, scores, target))
        assert bool(wanted.any()) == (sign * plain.loss < best)
        for epsilon in EXTREME[1:-2]:
            torch.testing.assert_close(
                epsilon * gradient(task, scores.double(), target, epsilon, sign),
                wanted.double(),
                rtol=1e-6,
                atol=0,
            )


def test_the_gap_decides_however_small_or_large() -> None:
    """Two scores of either class: their order changes where epsilon / 2 is more than the gap, at every magnitude."""
    target = torch.tensor([1, 0])
    for power in (-300, -100, -30, 0, 30, 100, 300):
        gap = 10.0**power
        scores = torch.tensor([gap, 0.0], dtype=torch.float64)
        for factor in (1e-8, 0.99, 1.0, 1.01, 1e8):
            found = augmented(get("auc"), scores, target, 2 * factor * gap, +1)
            assert found == ((1,) if factor > 1 else (0,)), (power, factor)


def test_a_list_of_nothing_but_padding_has_no_gradient() -> None:
    """The memory of the gradient is not zero to begin with."""
    torch.full((64, 64), torch.nan)  # what may be left where the gradient is stored
    tables = TASKS["ap"].metric.tables(torch.zeros(64, 64))
    solved = kernels.solve_rankings(
        torch.randn(64, 64), torch.full((64, 64), -1), tables, signs=(1,), check_values=False
    )
    assert solved.gradient is not None
    assert not solved.gradient.any()


def test_threads_share_the_lists_of_a_batch(monkeypatch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    scores = torch.randn(7, 30, generator=generator)
    target = (torch.rand(7, 30, generator=generator) < 0.3).long()
    target[3] = 0  # a list that does not count
    weights = TASKS["ap"].metric.tables(target)
    epsilon = torch.rand(7, generator=generator) + 0.1
    wanted = kernels.solve_rankings(scores, target, weights, epsilon=epsilon, signs=(1,))
    monkeypatch.setattr(kernels, "GRAIN", 1)
    for threads in (2, 3, 16):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found = kernels.solve_rankings(scores, target, weights, epsilon=epsilon, signs=(1,))
        assert torch.equal(found.loss, wanted.loss)
        assert found.gradient is not None
        assert wanted.gradient is not None
        assert torch.equal(found.gradient, wanted.gradient)
        assert found.counted is not None
        scores[6, 2] = torch.nan  # in the part of the last thread
        with pytest.raises(dl.DirectLossError, match="scores must be finite"):
            kernels.solve_rankings(scores, target, weights)
        scores[6, 2] = 0.0
        wanted = kernels.solve_rankings(scores, target, weights, epsilon=epsilon, signs=(1,))


def test_one_thread_starts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "GRAIN", 1)
    monkeypatch.delattr(kernels, "ThreadPoolExecutor")
    assert torch.get_num_threads() == 1
    kernels.solve_rankings(torch.randn(9, 9), torch.ones(9, 9), TASKS["ap"].metric.tables(torch.ones(9, 9)))


# ---------------------------------------------------------------------------------------------- the cache on disk

FIRST_CALL = """
import torch
import directloss as dl
from directloss.kernels import compiled

torch.manual_seed(0)
scores = torch.randn(64, requires_grad=True)
dl.direct_loss(scores, (torch.arange(64) % 5 == 0).long(), "ap").backward()
stats = compiled.pack.stats
print(scores.grad.double().abs().sum().item(), sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def _start(cache: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.Popen([sys.executable, "-c", FIRST_CALL], env=environment, stdout=subprocess.PIPE, text=True)


def _report(process: subprocess.Popen[str]) -> list[str]:
    said, _ = process.communicate()
    assert process.returncode == 0
    return said.split()


def test_processes_that_start_together_fill_one_cache(tmp_path: Path) -> None:
    together = [_start(tmp_path), _start(tmp_path)]
    (first, *_), (second, *_) = [_report(process) for process in together]
    assert _report(_start(tmp_path)) == [first, "1", "0"] == [second, "1", "0"]


def test_kernels_compile_without_a_place_to_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from directloss.kernels import compiled

    def read_only(*_: object, **__: object) -> None:
        raise PermissionError("read-only file system")

    def double(number: int) -> int:
        return 2 * number

    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)  # with which numba looks for a place to write to
    doubled = compiled.kernel(double)
    assert doubled(4) == 8
    assert doubled.stats.cache_path is None


def test_tables_are_as_long_as_the_lists_not_as_the_cutoff() -> None:
    for name in ("precision@10000000", "ndcg@10000000"):
        tables = dl.tasks.get(name).metric.tables(torch.ones(1, 4)).arrays(np.array([[2, 2]]))
        assert max(part.size for part in tables if isinstance(part, np.ndarray)) <= 16


@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
def test_a_damaged_cache_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    import numba

    from directloss.kernels import compiled

    def double(number: int) -> int:
        return 2 * number

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert compiled.kernel(double)(4) == 8
    (file,) = tmp_path.rglob(f"*{ending}")
    file.write_bytes(file.read_bytes()[:20])
    for hits in (0, 1):
        again = compiled.kernel(double)
        assert again(4) == 8
        assert sum(again.stats.cache_hits.values()) == hits


def test_kernels_compile_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numba
    from numba.core.caching import IndexDataCacheFile

    from directloss.kernels import compiled

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def double(number: int) -> int:
        return 2 * number

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(IndexDataCacheFile, "_save_index", full)
    assert compiled.kernel(double)(4) == 8
