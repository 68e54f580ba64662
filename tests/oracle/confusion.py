"""Yes-or-no decisions by brute force: every one of the 2^n selections, every metric from its textbook definition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import product

import torch
from torch import Tensor

from directloss import tasks
from tests.oracle import Case, draw_scores

Metric = Callable[[int, int, int, int], float]


def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Up to 6 items; now and then all of one class."""
    n = int(torch.randint(1, 7, (), generator=generator))
    share = float(torch.rand((), generator=generator))
    return draw_scores((n,), generator), (torch.rand(n, generator=generator) < share).long()


def outputs(metric: Metric) -> Callable[[Tensor, Tensor], Iterable[tuple[float, float]]]:
    """(F, L) of every selection."""

    def every(scores: Tensor, target: Tensor) -> Iterable[tuple[float, float]]:
        items = list(zip(scores.tolist(), target.tolist(), strict=True))
        for chosen in product((0, 1), repeat=len(items)):
            pairs = [(y, t) for y, (_, t) in zip(chosen, items, strict=True)]
            f = sum(s for y, (s, _) in zip(chosen, items, strict=True) if y) / max(len(items), 1)
            yield f, 1 - metric(*(pairs.count(kind) for kind in [(1, 1), (1, 0), (0, 1), (0, 0)]))

    return every


def precision(tp: int, fp: int, fn: int, tn: int) -> float:
    if tp + fp == 0:
        return float(fn == 0)
    return tp / (tp + fp)


def recall(tp: int, fp: int, fn: int, tn: int) -> float:
    if tp + fn == 0:
        return float(fp == 0)
    return tp / (tp + fn)


def f_beta(beta: float) -> Metric:
    """The weighted harmonic mean of precision and recall."""

    def metric(tp: int, fp: int, fn: int, tn: int) -> float:
        p, r = precision(tp, fp, fn, tn), recall(tp, fp, fn, tn)
        return 0.0 if tp == 0 and fp + fn > 0 else (1 + beta**2) * p * r / (beta**2 * p + r)

    return metric


def iou(tp: int, fp: int, fn: int, tn: int) -> float:
    return tp / (tp + fp + fn) if tp + fp + fn else 1.0


def dice(tp: int, fp: int, fn: int, tn: int) -> float:
    predicted, true = tp + fp, tp + fn
    return 2 * tp / (predicted + true) if predicted + true else 1.0


def matthews(tp: int, fp: int, fn: int, tn: int) -> float:
    """The correlation of two lists of zeros and ones."""
    n = tp + fp + fn + tn
    predicted, true = (tp + fp) / n, (tp + fn) / n
    deviations = math.sqrt(predicted * (1 - predicted) * true * (1 - true))
    return (tp / n - predicted * true) / deviations if deviations else 0.0


def kappa(tp: int, fp: int, fn: int, tn: int) -> float:
    n = tp + fp + fn + tn
    agreed = (tp + tn) / n
    by_chance = ((tp + fp) * (tp + fn) + (fn + tn) * (fp + tn)) / n**2
    return 1.0 if by_chance == 1 else (agreed - by_chance) / (1 - by_chance)


def rates(tp: int, fp: int, fn: int, tn: int) -> list[float]:
    """The accuracy on each class that has items."""
    return [right / (right + wrong) for right, wrong in ((tp, fn), (tn, fp)) if right + wrong]


def balanced_accuracy(tp: int, fp: int, fn: int, tn: int) -> float:
    return sum(rates(tp, fp, fn, tn)) / len(rates(tp, fp, fn, tn))


def g_mean(tp: int, fp: int, fn: int, tn: int) -> float:
    return math.prod(rates(tp, fp, fn, tn)) ** (1 / len(rates(tp, fp, fn, tn)))


def bumpy(tp: int, fp: int, fn: int, tn: int) -> float:
    """Neither monotone nor linear along any line, and best for some wrong decisions."""
    return ((2 * tp + 3 * fp + 5 * fn + 7 * tn) % 4) / 4


def lenient(tp: int, fp: int, fn: int, tn: int) -> float:
    """Monotone, and best where nothing is wrong, but not linear along any line."""
    return 1 / (1 + fp**2 + 2 * fn**0.5)


def bumpy_tensors(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    return ((2 * tp + 3 * fp + 5 * fn + 7 * tn) % 4) / 4


def lenient_tensors(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    return 1 / (1 + fp**2 + 2 * fn**0.5)


METRICS: dict[str, Metric] = {
    "f1": f_beta(1.0),
    "fbeta@2": f_beta(2.0),
    "fbeta@0.5": f_beta(0.5),
    "precision": precision,
    "recall": recall,
    "iou": iou,
    "jaccard": iou,
    "dice": dice,
    "mcc": matthews,
    "kappa": kappa,
    "balanced_accuracy": balanced_accuracy,
    "gmean": g_mean,
}

CASES = {name: Case(draw, outputs(metric)) for name, metric in METRICS.items()} | {
    "fbeta": Case(draw, outputs(f_beta(1.0))),
    "counts: monotone": Case(draw, outputs(lenient), lambda: tasks.CountMetric(lenient_tensors, monotone=True)),
    "counts: monotone, all cells": Case(draw, outputs(lenient), lambda: tasks.CountMetric(lenient_tensors)),
}
