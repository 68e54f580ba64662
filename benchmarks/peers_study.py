"""Which loss ranks best? Losses for average precision on imbalanced data, ours and others, with equal budgets.

    python -m benchmarks.peers_study --data-root DATA [--seeds 5] [--out results/peers] [--workers 2]

Every method trains the same network (one hidden layer of 64) with Adam, 600 steps on batches of 256, or on all rows
if there are fewer. Each has eight settings: four learning rates, and two values of its own parameter, or of the
weight decay if it has none. The best by validation AP (mean of two search seeds) is used for fresh seeds; every run
takes the step with the best validation AP (evaluated every 60 steps). With noise, 20 % of the labels are flipped in the
training and validation parts; the test part is clean. ``benchmarks.tables`` says where the data come from.

Peers run from their packages if installed (``pip install torchsort libauc``), otherwise from our implementations in
``benchmarks.peers``. LibAUC's loss keeps a number for each training row, so it is given the row numbers; its own
optimizer and sampler are not used, as for all.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.records import Record
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import Schedule, train
from torch import nn

import directloss as dl
from benchmarks import tables
from benchmarks.peers import Loss, blackbox_ap, cross_entropy, focal, skipping_empty, smooth_ap, torchsort_ap
from benchmarks.study import from_command_line, mean_cell, table, values

STEPS, BATCH, HIDDEN, LOOKS = 600, 256, 64, 10
RATES = (0.001, 0.003, 0.01, 0.03)
NOISES = (0.0, 0.2)
DECAY = ("weight_decay", (0.0, 0.001))


OWN: dict[str, tuple[str, tuple[float, float]]] = {
    "x-ent": DECAY,
    "focal": ("gamma", (1.0, 2.0)),
    "hinge-ap": DECAY,
    "pos-ap": DECAY,
    "uniloss-ap": DECAY,
    "smooth-ap": ("temperature", (0.1, 1.0)),
    "blackbox-ap": ("step", (1.0, 10.0)),
    "torchsort-ap": ("strength", (0.1, 1.0)),
    "libauc-ap": ("gamma", (0.1, 0.9)),
}
"""What each method tunes besides the learning rate."""
PACKAGES = {"torchsort-ap": "torchsort", "libauc-ap": "libauc"}
METHODS = tuple(m for m in OWN if m not in PACKAGES or importlib.util.find_spec(PACKAGES[m]))


def loss_of(method: str, own: float, rows: int, seed: int) -> Loss:
    """The loss of a method, on scores and on labels with row numbers."""
    if method == "libauc-ap":
        return _libauc(own, rows)
    plain: dict[str, Loss] = {
        "x-ent": cross_entropy,
        "focal": partial(focal, gamma=own),
        "hinge-ap": dl.HingeLoss("ap"),
        "pos-ap": dl.DirectLoss("ap", sign=+1),
        "uniloss-ap": dl.UniLoss("ap", generator=generator("anchors", seed)),
        "smooth-ap": partial(smooth_ap, temperature=own),
        "blackbox-ap": partial(blackbox_ap, step=own),
        "torchsort-ap": partial(torchsort_ap, strength=own),
    }
    chosen = plain[method]
    return lambda scores, told: chosen(scores, told[:, 0])


def _libauc(gamma: float, rows: int) -> Loss:
    from libauc.losses import APLoss

    inner = APLoss(data_len=rows, margin=1.0, gamma=gamma)
    return lambda scores, told: inner(torch.sigmoid(scores), told[:, 0], told[:, 1])


def columns(root: Path) -> dict[str, Callable[[], tables.Table]]:
    return {
        **{name: partial(tables.keel, name) for name in tables.KEEL},
        "digits, 8": partial(tables.digit, 8),
        "MNIST, 5": partial(tables.image_class, root, "mnist", 5),
        "census-income": lambda: tables.census(root)[0],
    }


def train_cell(root: Path, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One training."""
    part, val, test = tables.split(columns(root)[cell.group](), seed, cell.noise)
    told = torch.stack((part.y, torch.arange(len(part))), 1)
    name, _ = OWN[cell.method]
    loss = skipping_empty(loss_of(cell.method, params[name], len(part), seed))
    model = seeded(lambda: network(part.x.shape[1]), "peers", seed)
    schedule = Schedule(
        STEPS,
        params["learning_rate"],
        weight_decay=params["weight_decay"] if name == "weight_decay" else 0.0,
        evaluate_every=STEPS // LOOKS,
        batch_size=BATCH,
        seed=seed,
    )
    looking = Looking({"val_ap": val, "test_ap": test})
    began = time.perf_counter()
    trained = train(model, loss, Part(part.x, told), schedule, looking)
    step = (time.perf_counter() - began - looking.seconds) / STEPS
    best = {name: value for name, value in trained.best("val_ap").items() if name != "iteration"}
    return Outcome({**best, "milliseconds": 1000 * step}, trained.diverged_at)


class Looking:
    """Measures AP of some parts, and the time that this takes."""

    def __init__(self, parts: dict[str, Part]) -> None:
        self.parts, self.seconds = parts, 0.0

    def __call__(self, model: nn.Module) -> dict[str, float]:
        began = time.perf_counter()
        found = {
            n: float(dl.metrics.average_precision(torch.nan_to_num(model(p.x)), p.y)) for n, p in self.parts.items()
        }
        self.seconds += time.perf_counter() - began
        return found


def network(inputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1), nn.Flatten(0))


def settings(cell: Cell) -> list[dict[str, Any]]:
    name, choices = OWN[cell.method]
    return [{"learning_rate": rate, name: own} for rate in RATES for own in choices]


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(Cell(c, m, noise) for noise in NOISES for c in columns(arguments.data_root) for m in METHODS)
    trainer = partial(train_cell, arguments.data_root)
    return Campaign("peers", "1", cells, settings, trainer, lambda cell: "val_ap", arguments.seeds, search_seeds=2)


def show(records: list[Record]) -> str:
    """For each noise level: test AP of every data set, mean rank, wins, and milliseconds per step."""
    return "\n\n".join(f"{noise:.0%} of the labels flipped\n\n{_one(records, noise)}" for noise in NOISES)


def _one(records: list[Record], noise: float) -> str:
    names = list(dict.fromkeys(str(r.group) for r in records))
    methods = [m for m in OWN if any(r.method == m for r in records)]
    found = {(n, m): values(records, Cell(n, m, noise), "test_ap") for n in names for m in methods}
    return table(["data", *methods], _rows(records, noise, names, methods, found))


def _rows(
    records: list[Record], noise: float, names: list[str], methods: list[str], found: dict[Any, list[float]]
) -> Iterator[list[str]]:
    means = {key: mean(numbers) for key, numbers in found.items() if numbers}
    whole = [n for n in names if all((n, m) in means for m in methods)]
    for name in whole:
        best = max(means[name, m] for m in methods)
        yield [name, *(mean_cell(found[name, m], best) for m in methods)]
    ranks = {m: [1 + sum(means[n, other] > means[n, m] for other in methods) for n in whole] for m in methods}
    yield ["mean rank", *(f"{mean(ranks[m]):.1f}" if whole else "-" for m in methods)]
    yield ["wins", *(str(sum(rank == 1 for rank in ranks[m])) for m in methods)]
    times = {m: [x for n in whole for x in values(records, Cell(n, m, noise), "milliseconds")] for m in methods}
    yield ["ms per step", *(f"{median(times[m]):.2f}" if times[m] else "-" for m in methods)]


if __name__ == "__main__":
    from_command_line(__doc__, study, show, seeds=5, out="results/peers", data=True)
