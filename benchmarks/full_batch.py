"""The cost of one exact step of average precision over all data, up to ten million rows.

    python -m benchmarks.full_batch [--rows 200000,1000000,10000000]

A network of one hidden layer of 64 units reads 16 columns, 1 % of the rows are positive. `full_batch_step` (two passes
in chunks of 8,192, exact AP of all rows in between) against a pass of cross-entropy in the same chunks (forward and
backward, gradients added up), which any training has to do. If all rows fit into one graph, the gradient is compared
with that of one pass, without noise (Theorem 1). One thread; each size in a separate process, to measure its memory.
"""

from __future__ import annotations

import argparse
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import directloss as dl
from benchmarks.study import table

CHUNK, COLUMNS, HIDDEN, SHARE = 8_192, 16, 64, 0.01
EPSILON = 0.001
ONE_GRAPH = 1_000_000
"""Up to this many rows are also computed in one pass."""


def problem(rows: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(rows, COLUMNS, generator=draw)
    noisy = x[:, 0] + 0.5 * torch.randn(rows, generator=draw)
    return x, (noisy > noisy.topk(int(SHARE * rows)).values[-1]).long()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(COLUMNS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1), nn.Flatten(0))


def cross_entropy_pass(model: nn.Module, x: Tensor, y: Tensor) -> None:
    for rows, labels in zip(x.split(CHUNK), y.split(CHUNK), strict=True):
        F.binary_cross_entropy_with_logits(model(rows), labels.float(), reduction="sum").backward()


def gradient(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def difference_from_one_pass(x: Tensor, y: Tensor) -> float:
    """The largest difference of the two gradients, relative to the largest entry."""
    chunked, whole = network(), network()
    dl.full_batch_step(chunked, (x, y), dl.DirectLoss("ap", epsilon=EPSILON), chunk=CHUNK)
    dl.direct_loss(whole(x), y, "ap", epsilon=EPSILON).backward()
    expected = gradient(whole)
    return float((gradient(chunked) - expected).abs().max() / expected.abs().max())


def peak() -> float:
    """Peak memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def row(rows: int) -> list[str]:
    torch.set_num_threads(1)
    x, y = problem(rows)
    model, loss_fn = network(), dl.DirectLoss("ap")
    dl.full_batch_step(model, (x[:1000], torch.arange(1000) % 2), loss_fn)  # compiles
    before = peak()
    began = time.perf_counter()
    dl.full_batch_step(model, (x, y), loss_fn, chunk=CHUNK)
    step = time.perf_counter() - began
    grown = peak() - before
    began = time.perf_counter()
    cross_entropy_pass(model, x, y)
    plain = time.perf_counter() - began
    same = f"{difference_from_one_pass(x, y):.0e}" if rows <= ONE_GRAPH else "-"
    return [f"{rows:,}", f"{step:.2f}", f"{plain:.2f}", f"{step / plain:.1f}", f"{grown:,.0f}", same]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="200000,1000000,10000000")
    sizes = [int(size) for size in parser.parse_args().rows.split(",")]
    head = ["rows", "exact AP step, s", "cross-entropy pass, s", "ratio", "memory, MB", "difference from one pass"]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        print(table(head, pool.map(row, sizes)))


if __name__ == "__main__":
    main()
