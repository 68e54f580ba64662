"""Forward and backward of UniLoss, as multiples of cross-entropy on the same scores in the same run.

    python -m benchmarks.uniloss_speed

16 anchors of each kind (48 in all), one thread, the minimum of several repeats. For metric functions, a separate
column shows the 48 plain calls of the metric, which any such method has to make.
"""

from __future__ import annotations

import resource
from collections.abc import Callable

import torch
from torch import Tensor
from torchmetrics.functional import classification, retrieval

import directloss as dl
from benchmarks.peers import cross_entropy
from benchmarks.study import table
from benchmarks.timing import imbalanced, seconds, step

Metric = Callable[[Tensor, Tensor], Tensor]


def accuracy(scores: Tensor, target: Tensor) -> Tensor:
    """Accuracy, as a user would write it."""
    return (scores.argmax(-1) == target).float().mean()


def macro_f1(scores: Tensor, target: Tensor) -> Tensor:
    return classification.multiclass_f1_score(scores, target, num_classes=10, average="macro")


def ndcg(scores: Tensor, target: Tensor) -> Tensor:
    return retrieval.retrieval_normalized_dcg(scores, target, top_k=10)


def classes(n: int = 128, c: int = 10) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(c, (n,), generator=generator)
    scores = torch.randn(n, c, generator=generator)
    scores[torch.arange(n), target] += 1.5
    return scores, target


SPLINE = "distance-spline"
ROWS: list[tuple[str, str | Metric, tuple[Tensor, Tensor], float | None]] = [
    ("AP, by hand, n = 512", "ap", imbalanced(512), None),
    (f"AP, by hand, n = 512, {SPLINE}", "ap", imbalanced(512), None),
    ("accuracy, by hand, 128 x 10", "accuracy", classes(), 5),
    (f"accuracy, by hand, 128 x 10, {SPLINE}", "accuracy", classes(), 5),
    ("accuracy, a function, 128 x 10", accuracy, classes(), None),
    ("torchmetrics AP, n = 128", classification.binary_average_precision, imbalanced(128), None),
    ("torchmetrics AUROC, n = 128", classification.binary_auroc, imbalanced(128), None),
    ("torchmetrics F1, n = 128", classification.binary_f1_score, imbalanced(128), None),
    ("torchmetrics macro-F1, 128 x 10", macro_f1, classes(), None),
    ("torchmetrics NDCG@10, n = 128", ndcg, imbalanced(128), None),
]


def measure() -> str:
    """The table in Markdown."""
    rows = []
    for name, metric, (scores, target), most in ROWS:
        entropy = seconds(step(cross_entropy, scores, target))
        loss = dl.UniLoss(metric, interpolation=SPLINE if SPLINE in name else "inverse-distance")
        took = seconds(step(loss, scores, target))
        plain = "" if isinstance(metric, str) else f"{48e3 * seconds(lambda m=metric, s=scores, t=target: m(s, t)):.1f}"
        ratio = took / entropy
        goal = "" if most is None else f"{most:.0f} ms: {'met' if 1e3 * took <= most else 'NOT MET'}"
        rows.append([name, f"{1e3 * took:.2f}", f"{ratio:.0f}", plain, goal])
    return table(["UniLoss of", "ms", "x cross-entropy", "48 plain calls, ms", "goal"], rows)


def memory(n: int = 10_000) -> str:
    """Peak memory of AP on a long list, above what the process had before."""
    scores, target = imbalanced(n)
    step(dl.UniLoss("ap"), *imbalanced(64))()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = seconds(step(dl.UniLoss("ap"), scores, target), repeats=1)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    met = "met" if grown < 1000 else "NOT MET"
    return f"AP, by hand, n = {n:,}: {took:.2f} s, peak memory grows by {grown:.0f} MB, goal 1000 MB: {met}"


def main() -> None:
    torch.set_num_threads(1)
    peak = memory()
    print(measure())
    print()
    print("-", peak)


if __name__ == "__main__":
    main()
