"""Retrieval of unseen classes: `RetrievalLoss` against the losses of pytorch-metric-learning.

    python -m benchmarks.retrieval --data-root DATA [--seeds 20] [--out results/retrieval] [--workers 1]

Images of half the width and height, one hidden layer of 64, embeddings of 16 numbers. A seed divides the ten classes
into five to train on, two to validate and three to test. Every method trains with Adam for 400 steps on batches of five
classes with five images each (SmoothAP of the package is correct only if both numbers are equal) at two learning rates.
The rate with the best mean validation mAP@R of ten search runs is used for fresh seeds; every run takes the best of
eight evaluations. `RetrievalLoss` remembers ten batches in one of its rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.data.idx import read_images
from directloss_repro.records import Record
from directloss_repro.seeding import generator, seeded
from pytorch_metric_learning import losses
from torch import Tensor, nn

import directloss as dl
from benchmarks.study import from_command_line, gap_cell, mean_cell, rates, table, values
from directloss.retrieval import cosine

STEPS, LOOKS, CLASSES, EACH, SEARCHES = 400, 8, 5, 5, 10
RATES = (0.001, 0.004)
DATA = ("fashion-mnist", "mnist")
OURS = "direct, memory"
NUMBERS = ("test", "recall@1")
PER_CLASS = 300
"""Images per class in validation and test."""

METHODS: dict[str, Callable[[int], nn.Module]] = {
    "direct": lambda seed: dl.RetrievalLoss("ap", generator=generator("noise", seed)),
    OURS: lambda seed: dl.RetrievalLoss("ap", memory=250, generator=generator("noise", seed)),
    "SmoothAP": lambda seed: losses.SmoothAPLoss(),
    "FastAP": lambda seed: losses.FastAPLoss(),
    "SupCon": lambda seed: losses.SupConLoss(),
}


@lru_cache
def images(root: Path, name: str) -> Part:
    x, y = (torch.from_numpy(array) for array in read_images(root / name, "train"))
    small = torch.nn.functional.avg_pool2d(x[:, None].float() / 255, 2)
    return Part(small.flatten(1), y.long())


def map_at_r(embeddings: Tensor, labels: Tensor) -> tuple[float, float]:
    """mAP@R and recall@1 over all queries (Musgrave et al. 2020, Sec. 3.2); each class has several items."""
    scores = cosine(embeddings, embeddings).fill_diagonal_(-torch.inf)
    relevant = (labels[:, None] == labels).sum(1) - 1
    hits = labels[scores.topk(int(relevant.max()), 1).indices] == labels[:, None]
    place = torch.arange(1, hits.shape[1] + 1)
    precision = hits.cumsum(1) / place
    first_r = place <= relevant[:, None]
    return float(((precision * hits * first_r).sum(1) / relevant).mean()), float(hits[:, 0].double().mean())


def train_cell(root: Path, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One training."""
    whole, draw = images(root, str(cell.group)), generator("retrieval", seed)
    order = torch.randperm(10, generator=draw)
    of_class = [(whole.y == label).nonzero().squeeze(1) for label in order]
    val, test = (torch.cat([c[:PER_CLASS] for c in part]) for part in (of_class[5:7], of_class[7:]))
    network = seeded(lambda: nn.Sequential(nn.Linear(196, 64), nn.ReLU(), nn.Linear(64, 16)), "retrieval", seed)
    loss_fn, best = METHODS[cell.method](seed), {"val": -1.0}
    optimizer = torch.optim.Adam(network.parameters(), params["learning_rate"])
    labels = torch.arange(CLASSES).repeat_interleave(EACH)
    for step in range(1, STEPS + 1):
        rows = torch.cat([c[torch.randint(len(c), (EACH,), generator=draw)] for c in of_class[:CLASSES]])
        optimizer.zero_grad()
        loss_fn(network(whole.x[rows]), labels).backward()
        optimizer.step()
        if step % (STEPS // LOOKS) == 0:
            best = max(best, _looked(network, whole, val, test), key=lambda look: look["val"])
    return Outcome(best)


@torch.no_grad()
def _looked(network: nn.Module, whole: Part, val: Tensor, test: Tensor) -> dict[str, float]:
    known = map_at_r(network(whole.x[val]), whole.y[val])[0]
    found, first = map_at_r(network(whole.x[test]), whole.y[test])
    return {"val": known, "test": found, "recall@1": first}


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(Cell(name, method) for name in DATA for method in METHODS)
    trainer = partial(train_cell, arguments.data_root)
    return Campaign("retrieval", "2", cells, rates(*RATES), trainer, lambda cell: "val", arguments.seeds, SEARCHES)


def show(records: list[Record]) -> str:
    """For each data set: mAP@R and recall@1 of unseen classes, and the lead of ours on the same seeds."""
    head = ["loss", "mAP@R", "recall@1", f"lead of {OURS}: mAP@R", "recall@1"]
    return "\n\n".join(f"**{name}**\n\n{table(head, _lines(records, name))}" for name in DATA)


def _lines(records: list[Record], name: str) -> Iterator[list[str]]:
    found = {(m, n): values(records, Cell(name, m), n) for m in METHODS for n in NUMBERS}
    best = {n: max((sum(v) / len(v) for (_, k), v in found.items() if k == n and v), default=0.0) for _, n in found}
    for method in METHODS:
        numbers = [mean_cell(found[method, n], best[n]) for n in NUMBERS]
        yield [
            method,
            *numbers,
            *("" if method == OURS else gap_cell(found[OURS, n], found[method, n]) for n in NUMBERS),
        ]


if __name__ == "__main__":
    from_command_line(__doc__, study, show, seeds=20, out="results/retrieval", data=True)
