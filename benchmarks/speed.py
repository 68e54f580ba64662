"""Forward and backward of average precision as a loss, against a sort, cross-entropy and the peers, on the same scores.

    python -m benchmarks.speed [--sizes 512,2048,10000,100000,1000000] [--peers/--no-peers]

Prints one table: milliseconds, and in brackets the ratio to one ``torch.sort`` of the same scores and to forward and
backward of ``binary_cross_entropy_with_logits``. One thread, 10 % positives, AUC 0.9, the minimum of several repeats.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from functools import partial

import torch

import directloss as dl
from benchmarks.peers import available, cross_entropy
from benchmarks.study import table as markdown
from benchmarks.timing import Loss, imbalanced, seconds, step

NEGATIVE_LONGEST = 100_000
DEFAULT = "direct loss, default"
AS_FAST_AS_AP = ("NDCG@10", "precision@10")
TARGETS = {
    (DEFAULT, 512): (5.0, "BCE"),
    (DEFAULT, 100_000): (1.0, "sort"),
    (DEFAULT, 1_000_000): (1.0, "sort"),
    ("direct loss, F1", 512): (5.0, "BCE"),
    **{(f"direct loss, {task}", n): (1.3, "AP") for task in AS_FAST_AS_AP for n in (512, 100_000)},
    ("direct loss, +1", 512): (3.0, "BCE"),
    ("direct loss, +1", 10_000): (2.5, "sort"),
    ("direct loss, +1", 100_000): (1.6, "sort"),
    ("direct loss, +1", 1_000_000): (1.6, "sort"),
    ("direct loss, -1", 10_000): (15.0, "sort"),
}


def ours() -> dict[str, tuple[Loss, int]]:
    """Row -> (loss, longest list to measure): the defaults, and the paper's two updates."""
    paper = partial(dl.direct_loss, task="ap")
    default = {name: dl.DirectLoss(name.lower()) for name in ("AP", "F1", *AS_FAST_AS_AP)}
    return {
        DEFAULT: (default.pop("AP"), 10**9),
        **{f"direct loss, {name}": (loss, 10**9) for name, loss in default.items()},
        "direct loss, +1": (lambda s, t: paper(s, t, sign=+1), 10**9),
        "direct loss, -1": (lambda s, t: paper(s, t, sign=-1), NEGATIVE_LONGEST),
    }


def measure(sizes: list[int], peers: bool) -> dict[str, dict[int, tuple[float, float, float]]]:
    """Row -> size -> (seconds, ratio to sort, ratio to cross-entropy)."""
    rows = ours() | (available(max(sizes)) if peers else {})
    table: dict[str, dict[int, tuple[float, float, float]]] = {
        name: {} for name in ("torch.sort", "cross-entropy", *rows)
    }
    for n in sizes:
        scores, target = imbalanced(n)
        sort = seconds(lambda s=scores: torch.sort(s))
        floats = target.float()
        entropy = seconds(step(cross_entropy, scores, floats))
        table["torch.sort"][n] = (sort, 1.0, sort / entropy)
        table["cross-entropy"][n] = (entropy, entropy / sort, 1.0)
        for name, (loss, longest) in rows.items():
            if n <= longest:
                took = seconds(step(loss, scores, target), repeats=3 if n >= 10_000 and name not in ours() else 25)
                table[name][n] = (took, took / sort, took / entropy)
    return table


def short(number: float) -> str:
    """Two or three digits, without exponents."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"


def show(table: dict[str, dict[int, tuple[float, float, float]]], sizes: list[int]) -> str:
    """The table in Markdown."""
    rows = [[name, *(_cell(row[n]) if n in row else "-" for n in sizes)] for name, row in table.items()]
    return markdown(["forward + backward, ms (x sort / x BCE)", *(f"n = {n:,}" for n in sizes)], rows)


def _cell(times: tuple[float, float, float]) -> str:
    return "{} ({} / {})".format(*map(short, (1e3 * times[0], *times[1:])))


def verdicts(table: dict[str, dict[int, tuple[float, float, float]]]) -> list[str]:
    """Each goal, and whether this run met it."""
    lines = []
    for (name, n), (most, unit) in TARGETS.items():
        if n in table.get(name, {}):
            took, *ratios = table[name][n]
            ratio = took / table[DEFAULT][n][0] if unit == "AP" else ratios[0 if unit == "sort" else 1]
            lines.append(
                f"{name}, n = {n:,}: {ratio:.2f}x {unit}, goal {most}x: {'met' if ratio <= most else 'NOT MET'}"
            )
    return lines


def queries() -> str:
    """256 lists of 200 items against one list of 51,200."""
    scores, target = imbalanced(51_200)
    many, labels = scores.reshape(256, 200), target.reshape(256, 200).clone()
    labels[:, 0], labels[:, 1] = 1, 0
    loss, _ = ours()["direct loss, +1"]
    plain = seconds(step(loss, many, labels))
    ratio = plain / seconds(step(loss, scores, target))
    noisy = seconds(step(ours()[DEFAULT][0], many, labels)) / plain
    return (
        f"256 lists of 200 items: {ratio:.2f}x one list of 51,200, goal 5x: {'met' if ratio <= 5 else 'NOT MET'}; "
        f"the default {noisy:.2f}x the paper's update, goal 3x: {'met' if noisy <= 3 else 'NOT MET'}"
    )


def memory(n: int = NEGATIVE_LONGEST) -> str:
    """Peak memory of the negative update on a long list, above what the process had before."""
    scores, target = imbalanced(n)
    run = step(ours()["direct loss, -1"][0], scores, target)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    met = "met" if grown < 1000 else "NOT MET"
    return f"direct loss, -1, n = {n:,}: peak memory grows by {grown:.0f} MB, goal 1000 MB: {met}"


def import_time() -> str:
    """The time of ``import directloss`` after ``import torch``, in fresh processes."""
    code = "import time, torch; t = time.perf_counter(); import directloss; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True) for _ in range(3)]
    added = min(float(run.stdout) for run in runs)
    return f"import directloss adds {added:.2f} s to import torch, goal 0.3 s: {'met' if added < 0.3 else 'NOT MET'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="512,2048,10000,100000,1000000")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = [int(n) for n in arguments.sizes.split(",")]
    peak = memory()  # first, while the process is still small
    table = measure(sizes, arguments.peers)
    print(show(table, sizes))
    print()
    for line in [*verdicts(table), queries(), peak, import_time()]:
        print("-", line)


if __name__ == "__main__":
    main()
