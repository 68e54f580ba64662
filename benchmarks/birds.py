"""Retrieval of unseen birds on frozen features: `RetrievalLoss` against other losses for embeddings.

    python -m benchmarks.features --data-root DATA --weights FOLDER --sets cub-train        once
    python -m benchmarks.birds --data-root DATA [--seeds 5] [--out results/birds] [--workers 1] [--sets cub]

CUB-200-2011, 2,048 features of an ImageNet ResNet-50, a linear embedding of 128 numbers. Of classes 1 to 100, a seed
takes 80 to train and 20 to validate; classes 101 to 200 are the test, as usual. Adam, 400 steps, batches of 16 classes
with four images each. The learning rate (of two) with the best validation mAP@R in a search run is used for fresh
seeds; every run takes the best of eight looks. Every loss has the settings of its paper or package; ``scale 10`` was
chosen on classes 1 to 100. ``cub-train`` has the photographs of the official training list only, half of each class.
``frozen`` is the cosine of the features themselves. To train ours again after a change of the library, change
`SETTINGS`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.records import Params, Record
from directloss_repro.seeding import generator, seeded
from pytorch_metric_learning import losses
from torch import Tensor, nn

import directloss as dl
from benchmarks import features
from benchmarks.peers import recall_surrogate, smooth_ap
from benchmarks.retrieval import map_at_r
from benchmarks.study import from_command_line, gap_cell, mean_cell, table, values
from directloss.retrieval import cosine

VERSION, SETTINGS = "1", "third version"
STEPS, LOOKS, CLASSES, EACH, WIDTH = 400, 8, 16, 4, 128
RATES = (0.0001, 0.0005)
TRAIN, KNOWN = 80, 100
"""Classes to train on, and to train and validate on."""
SETS = ("cub-train", "cub")
OURS, FROZEN = "direct", "frozen"
NUMBERS = {"test": "mAP@R", "recall@1": "recall@1"}
Embedded = Callable[[Tensor, Tensor], Tensor]
"""From embeddings ``(n, d)`` and labels ``(n,)`` to a loss."""


def listwise(loss: Embedded) -> Embedded:
    """A loss of cosines and relevance ``(n, n - 1)``, each item against the others."""

    def of_embeddings(embeddings: Tensor, labels: Tensor) -> Tensor:
        others = ~torch.eye(len(labels), dtype=torch.bool)
        scores, target = (
            table[others].view(len(labels), -1)
            for table in (cosine(embeddings, embeddings), (labels[:, None] == labels).long())
        )
        return loss(scores, target).mean()

    return of_embeddings


def ours(seed: int, **settings: Any) -> dl.RetrievalLoss:
    return dl.RetrievalLoss(**{"metric": "ap", **settings}, generator=generator("noise", seed))


METHODS: dict[str, Callable[[int], Embedded]] = {
    OURS: ours,
    "direct, scale 10": partial(ours, scale=10.0),
    "direct, memory": partial(ours, memory=10 * CLASSES * EACH),
    "Smooth-AP": lambda seed: listwise(smooth_ap),
    "FastAP": lambda seed: losses.FastAPLoss(),
    "SupCon": lambda seed: losses.SupConLoss(),
    "multi-similarity": lambda seed: losses.MultiSimilarityLoss(),
    "recall@k surrogate": lambda seed: listwise(recall_surrogate),
    FROZEN: lambda seed: lambda embeddings, labels: 0 * embeddings.sum(),
}


@lru_cache
def birds(root: Path, name: str) -> Part:
    """Standardised features and classes from 0."""
    x, found = features.load(root, name)
    known = x[found.labels < KNOWN]
    return Part((x - known.mean(0)) / known.std(0).clamp(min=1e-6), found.labels)


def train_cell(root: Path, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One training."""
    whole, draw = birds(root, str(cell.group)), generator("birds", seed)
    order = torch.randperm(KNOWN, generator=draw)
    rows = [(whole.y == label).nonzero().squeeze(1) for label in range(int(whole.y.max()) + 1)]
    held, new = torch.cat([rows[int(c)] for c in order[TRAIN:]]), (whole.y >= KNOWN).nonzero().squeeze(1)
    network = seeded(lambda: nn.Linear(whole.x.shape[1], WIDTH, bias=False), "birds", seed)
    if cell.method == FROZEN:
        found, first = map_at_r(whole.x[new], whole.y[new])
        return Outcome({"val": map_at_r(whole.x[held], whole.y[held])[0], "test": found, "recall@1": first})
    loss_fn = METHODS[cell.method](seed)
    optimizer = torch.optim.Adam(network.parameters(), params["learning_rate"])
    best, kept = -1.0, network.weight.detach().clone()
    for step in range(1, STEPS + 1):
        classes = order[:TRAIN][torch.randperm(TRAIN, generator=draw)[:CLASSES]]
        drawn = [rows[int(c)][torch.randperm(len(rows[int(c)]), generator=draw)[:EACH]] for c in classes]
        optimizer.zero_grad()
        loss_fn(network(whole.x[torch.cat(drawn)]), classes.repeat_interleave(EACH)).backward()
        optimizer.step()
        if step % (STEPS // LOOKS) == 0:
            with torch.no_grad():
                value = map_at_r(network(whole.x[held]), whole.y[held])[0]
            if value > best:
                best, kept = value, network.weight.detach().clone()
    found, first = map_at_r(whole.x[new] @ kept.T, whole.y[new])
    return Outcome({"val": best, "test": found, "recall@1": first})


def settings(cell: Cell) -> list[Params]:
    """Records of ours say with which settings they were made."""
    more = {"settings": SETTINGS} if cell.method.startswith(OURS) else {}
    return [{"learning_rate": rate, **more} for rate in RATES]


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(Cell(name, method) for name in arguments.sets for method in arguments.methods)
    trainer = partial(train_cell, arguments.data_root)
    return Campaign("birds", VERSION, cells, settings, trainer, lambda cell: "val", arguments.seeds)


def show(records: list[Record]) -> str:
    """mAP@R and recall@1 of unseen classes, and the lead of ours on the same seeds."""
    head = ["loss", *NUMBERS.values(), *(f"lead of {OURS}: {title}" for title in NUMBERS.values())]
    names = dict.fromkeys(str(record.group) for record in records)
    return "\n\n".join(f"**{name}**\n\n{table(head, _rows(records, name))}" for name in names)


def _rows(records: list[Record], name: str) -> Iterator[list[str]]:
    found = {(m, n): values(records, Cell(name, m), n) for m in METHODS for n in NUMBERS}
    best = {n: max((mean(v) for (_, k), v in found.items() if k == n and v), default=0.0) for n in NUMBERS}
    for method in METHODS:
        leads = ("" if method == OURS else gap_cell(found[OURS, n], found[method, n]) for n in NUMBERS)
        yield [method, *(mean_cell(found[method, n], best[n]) for n in NUMBERS), *leads]


if __name__ == "__main__":
    choices = {"sets": list(SETS), "methods": list(METHODS)}
    from_command_line(__doc__, study, show, seeds=5, out="results/birds", data=True, parts=choices)
