"""The time of the first call of a loss in a fresh process, with the cache of compiled kernels empty and full.

    python -m benchmarks.first_call

CPU seconds of forward and backward on one list of 512, including the import of numba that it triggers. The cache is a
new directory (``NUMBA_CACHE_DIR``); the minimum of three processes each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

GOAL = 2.0
CALLS = {
    "AP, the default": '"ap"',
    "AP, sign -1": '"ap", sign=-1',
    "precision@5": '"precision@5"',
    "F1, the default": '"f1"',
    "UniLoss of AP": None,
}
CODE = """
import time, torch
import directloss as dl
torch.manual_seed(0)
scores, target = torch.randn(512, requires_grad=True), (torch.rand(512) < 0.1).long()
start = time.process_time()
{call}.backward()
print(time.process_time() - start)
"""


def first_call(arguments: str | None, cache: str) -> float:
    """CPU seconds of the first call in a new process."""
    call = 'dl.UniLoss("ap")(scores, target)' if arguments is None else f"dl.direct_loss(scores, target, {arguments})"
    run = subprocess.run(
        [sys.executable, "-c", CODE.format(call=call)],
        env={**os.environ, "NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(run.stdout)


def main() -> None:
    print("| first call, s | cache empty | cache full | goal |")
    print("|---|---|---|---|")
    for name, arguments in CALLS.items():
        empty = []
        for _ in range(3):
            with tempfile.TemporaryDirectory() as cache:
                empty.append(first_call(arguments, cache))
                full = min(first_call(arguments, cache) for _ in range(3))
        met = "met" if min(empty) <= GOAL else "NOT MET"
        print(f"| {name} | {min(empty):.2f} | {full:.2f} | {GOAL:.0f} s: {met} |")


if __name__ == "__main__":
    main()
