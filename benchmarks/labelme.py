"""Wrong labels that nobody simulated: which loss learns best from the answers of LabelMe's crowd?

    python -m benchmarks.labelme --data-root DATA [--seeds 5] [--out results/labelme] [--workers 1]

1,000 photographs of 8 classes as 512 features of VGG, and 2,547 answers of 59 people, of which 26 % are wrong
(Rodrigues and Pereira 2017). A training label is one random answer for the photograph, or the majority of its answers,
where a random one of the most frequent wins. Only these photographs have answers, so each seed keeps 250 of them for
validation; their labels come from the crowd as well. The 1,188 test photographs have the right labels.

A linear model or one hidden layer of 64, Adam, batches of 128, 300 steps. For each seed, the validation metric chooses
one of four learning rates and one of ten looks. Macro AP is the mean over the classes of the AP of the class against
the rest: photographs are ranked by the softmax of their scores, for ``direct-ap`` by the scores themselves.
``direct-ap, softmax`` is the same loss ranked by the softmax; it was added after a look at the results.

Files in DATA/labelme: LabelMe_VGG_avg_train.npy and LabelMe_VGG_avg_test.npy (features), LabelMe_Z_test.txt (classes)
and answers.txt (photographs x people, -1 for no answer).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.records import Record
from directloss_repro.seeding import generator
from torch import Tensor
from torch.nn.functional import one_hot

import directloss as dl
from benchmarks.defaults import Make, by_item, direct, one_by_one
from benchmarks.stacked import Batches, Loss, Networks, train
from benchmarks.study import from_command_line, gap_cell, mean_cell, table
from directloss.noise import DRAWN

CLASSES, HELD = 8, 250
BATCH, STEPS, LOOKS, HIDDEN = 128, 300, 10, 64
RATES = (0.001, 0.003, 0.01, 0.03)
MODELS = {"linear": 0, "mlp": HIDDEN}
LABELS = ("one answer", "majority")
METRICS = ("accuracy", "macro AP")
BASE = "x-ent"


def of_columns(metric: str, items: int, draw: torch.Generator) -> Loss:
    """``DirectLoss("ap", dim=0)`` of one-hot labels, for all networks at once."""
    loss = dl.DirectLoss(
        "ap", dim=1, generator=draw, reduction="sum", samples=max(1, DRAWN // items), check_values=False
    )
    return lambda scores, target: loss(scores, one_hot(target, scores.shape[2])) / scores.shape[2]


def macro_f1(metric: str, items: int, draw: torch.Generator) -> Loss:
    return one_by_one(dl.AveragedLoss("f1", generator=draw, check_values=False))


METHODS: dict[str, Make] = {
    **{name: partial(by_item, name) for name in (BASE, "focal", "gce")},
    "direct-accuracy": lambda metric, items, draw: direct("accuracy", items, draw),
    "direct-ap": of_columns,
    "direct-ap, softmax": of_columns,
    "averaged-f1": macro_f1,
}
RAW = "direct-ap"
"""Ranked by its scores themselves."""


@lru_cache
def photographs(root: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features and answers of the training photographs; features and classes of the test photographs."""
    folder = root / "labelme"
    known, new = (
        torch.from_numpy(np.load(folder / f"LabelMe_VGG_avg_{part}.npy")).float() for part in ("train", "test")
    )
    answers = torch.from_numpy(np.loadtxt(folder / "answers.txt", dtype=np.int64))
    return known, answers, new, torch.from_numpy(np.loadtxt(folder / "LabelMe_Z_test.txt", dtype=np.int64))


def crowd_labels(answers: Tensor, labels: str, seed: int) -> Tensor:
    """One label for each photograph: a random answer, or a random one of the most frequent answers."""
    votes = one_hot(answers.clamp(min=0), CLASSES) * (answers >= 0).unsqueeze(2)
    counts = votes.sum(1)
    weight = (counts == counts.amax(1, keepdim=True)) if labels == "majority" else counts
    return torch.multinomial(weight.double(), 1, generator=generator("crowd", labels, seed)).squeeze(1)


@lru_cache(maxsize=2)
def parts(root: Path, labels: str, seeds: int) -> tuple[list[Part], list[Part], list[Part]]:
    """Training, validation and test photographs of each seed; features are standardised on the training part."""
    known, answers, new, gold = photographs(root)
    found: tuple[list[Part], list[Part], list[Part]] = [], [], []
    for seed in range(seeds):
        order = torch.randperm(len(known), generator=generator("labelme", seed))
        held, fitting = order[:HELD], order[HELD:]
        y = crowd_labels(answers, labels, seed)
        middle, spread = known[fitting].mean(0), known[fitting].std(0).clamp(min=1e-6)
        for part, x, classes in zip(
            found, (known[fitting], known[held], new), (y[fitting], y[held], gold), strict=True
        ):
            part.append(Part((x - middle) / spread, classes))
    return found


def judged(
    known: Tensor, known_y: Tensor, new: Tensor, new_y: Tensor, metric: str, ranks: bool
) -> tuple[Tensor, Tensor]:
    return measured(known, known_y, metric, ranks), measured(new, new_y, metric, ranks)


def measured(scores: Tensor, target: Tensor, metric: str, ranks: bool) -> Tensor:
    """The metric of each network, from scores ``(m, n, c)``."""
    if metric == "accuracy":
        return (scores.argmax(2) == target).double().mean(1)
    scores = scores if ranks else scores.double().log_softmax(2)
    return dl.metrics.average_precision(scores.mT, one_hot(target, scores.shape[2]).mT).double().mean(1)


def train_on(
    data: Sequence[list[Part]], cell: Cell, name: str, classes: int, batch: int, rates: Sequence[float], **steps: int
) -> Outcome:
    """All seeds and rates of a cell. ``data`` has the training, validation and test parts of each seed."""
    (labels, model, metric), (fitting, *others) = str(cell.group).split(" / "), data
    seeds = range(len(fitting))
    batches = Batches(fitting, seeds, batch)
    loss = METHODS[cell.method](metric, batches.size, generator(f"{name} noise", labels))
    networks = Networks(batches.x.shape[2], MODELS[model], classes, seeds, rates)
    judge = partial(judged, metric=metric, ranks=cell.method == RAW)
    chosen = train(networks, loss, judge, others, batches, **steps)
    of_seeds = {f"test {seed}": value for seed, value in enumerate(chosen.test)}
    return Outcome({"test": mean(chosen.test), **of_seeds}, shown={"rates": chosen.rates, "steps": chosen.steps})


def train_cell(root: Path, seeds: int, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    data = parts(root, str(cell.group).partition(" / ")[0], seeds)
    return train_on(data, cell, "labelme", CLASSES, BATCH, RATES, steps=STEPS, looks=LOOKS)


def cells_of(labels: Iterable[str], models: Iterable[str], methods: Iterable[str]) -> tuple[Cell, ...]:
    return tuple(
        Cell(f"{place} / {metric}", method)
        for place in (f"{kind} / {model}" for kind in labels for model in models)
        for metric in METRICS
        for method in methods
        if metric == "macro AP" or not method.endswith(", softmax")  # the softmax decides as the scores do
    )


def study(arguments: argparse.Namespace) -> Campaign:
    cells, trainer = cells_of(LABELS, MODELS, METHODS), partial(train_cell, arguments.data_root, arguments.seeds)
    return Campaign(
        "labelme", f"1, {arguments.seeds} seeds", cells, lambda cell: [{}], trainer, lambda cell: "test", seeds=1
    )


def of_cells(records: list[Record]) -> dict[tuple[str, str], list[float]]:
    """Group and method -> test metric of each seed."""
    return {
        (str(record.group), record.method): [record.metrics[f"test {seed}"] for seed in range(len(record.metrics) - 1)]
        for record in records
    }


def show(records: list[Record], labels: Sequence[str] = LABELS) -> str:
    """For each metric: test metric of every loss, and its lead over cross-entropy on the same seeds."""
    found, pieces = of_cells(records), []
    for metric in METRICS:
        places = [f"{kind} / {model} / {metric}" for kind in labels for model in MODELS]
        head = [metric, *(", ".join(place.split(" / ")[:2]) for place in places)]
        best = {p: max((mean(v) for (group, _), v in found.items() if group == p), default=0.0) for p in places}
        rows = [[m, *(mean_cell(found.get((p, m), []), best[p]) for p in places)] for m in METHODS]
        leads = [
            [m, *(gap_cell(found.get((p, m), []), found.get((p, BASE), [])) for p in places)]
            for m in METHODS
            if m != BASE
        ]
        pieces += [table(head, rows), table([f"lead over {BASE}", *head[1:]], leads)]
    return "\n\n".join(pieces)


if __name__ == "__main__":
    from_command_line(__doc__, study, show, seeds=5, out="results/labelme", data=True)
