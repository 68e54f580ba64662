"""Frozen features and a small head: does training the head on the metric pay?

    python -m benchmarks.features --data-root DATA --weights FOLDER        once
    python -m benchmarks.frozen --data-root DATA [--seeds 5] [--out results/frozen] [--workers 1] [PARTS]
    python -m benchmarks.frozen --show [PARTS]            the tables of what is stored

PARTS restrict it: ``--sets voc pets --models linear --noises 0.2 --shots all --methods direct-ap x-ent``. To train ours
again after a change of the library, change `SETTINGS` and name its methods.

2,048 features of an ImageNet ResNet-50, see `benchmarks.features`. VOC 2012: its twenty objects, several per image.
Pets: 37 breeds, each against the rest. CUB-200: twenty of its species, each against all others: 0.5 % of the images.
The official test parts (of VOC: ``val``) are for testing. ``all`` takes three quarters of the training images to train
and one to validate; ``5`` and ``50`` take images until every class has as many, and as many others to validate. With
noise, 20 % of the training and of the validation images have the labels of another image; test labels are clean.

A linear model or one hidden layer of 64, one output for each class, Adam, batches of 256, 200 steps. The last layer
begins with zero weights and the log odds of each class, which helps cross-entropy a lot where positives are rare, and
can stop generalised cross-entropy: that is also trained from even odds. For each seed, metric and loss, the mean over
the classes of the metric on validation images chooses one of three learning rates (and of these starts) and one of
five looks. F1 of losses that do not know it is taken at the threshold of each class that is best on the validation
images, that of ``direct-f1`` at 0. scikit-learn's logistic regression has three strengths C instead of learning rates.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.methods import CLASSIFICATION
from directloss_repro.records import Params, Record
from directloss_repro.seeding import generator
from sklearn.linear_model import LogisticRegression
from torch import Tensor

import directloss as dl
from benchmarks import features
from benchmarks.defaults import best_cut, measured
from benchmarks.multilabel import with_others_labels
from benchmarks.peers import smooth_ap
from benchmarks.stacked import Batches, Loss, Networks, log_odds, train
from benchmarks.study import from_command_line, gap_cell, mean_cell, table

VERSION, SETTINGS = "1", "third version"
BATCH, STEPS, LOOKS, HIDDEN = 256, 200, 5, 64
RATES, STRENGTHS = (0.0001, 0.0005, 0.002), (0.0001, 0.001, 0.01)
MODELS = {"linear": 0, "mlp": HIDDEN}
NOISES = (0.0, 0.2)
SETS = {"voc": ("5", "50", "all"), "cub": ("all",), "pets": ("5", "50", "all")}
METRICS = {
    "ap": "mAP", "precision@1%": "precision at the top 1 %", "recall_at_fpr@0.01": "recall at 1 % FPR", "f1": "F1"
}  # fmt: skip
SPECIES = 20
"""Classes of CUB that are judged."""
BASE, LOGISTIC, SOFTMAX = "x-ent", "logistic regression", "softmax"
RANKED = "direct-ap, softmax"
"""The same training as ``direct-ap``, but the photographs are ranked by the softmax of their scores."""
EXCLUSIVE = (SOFTMAX, RANKED)
"""For classes that exclude each other."""
STOPPED = "gce"
"""It hardly sees a positive of low probability, so it may also begin at even odds."""
OURS = {f"direct-{metric}": metric for metric in METRICS}
TRAINED = OURS | {RANKED: "ap"}
"""Our losses, and what each is trained on."""


def weighted(scores: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy in which the positives of a class together weigh as much as its negatives."""
    share = target.double().mean(1, keepdim=True).clamp(min=0.5 / target.shape[1], max=0.99).to(scores.dtype)
    weight = torch.where(target == 1, 0.5 / share, 0.5 / (1 - share))
    return F.binary_cross_entropy_with_logits(scores, target.to(scores.dtype), weight, reduction="none")


def smooth(scores: Tensor, target: Tensor) -> Tensor:
    """Smooth-AP, class by class: as many positives are compared as the class has."""
    pairs = zip(scores.unbind(2), target.unbind(2), strict=True)
    return torch.stack([smooth_ap(s, y, temperature=1.0).sum() for s, y in pairs if y.any()]).sum()


def softmax(scores: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of classes that exclude each other."""
    return CLASSIFICATION[BASE](scores, target.argmax(2)).mean(1).sum()


def loss_of(method: str, draw: torch.Generator) -> Loss:
    """From scores and labels ``(m, n, c)`` to the sum over networks of the mean over classes, up to a constant."""
    if method in TRAINED:
        return dl.DirectLoss(TRAINED[method], dim=1, generator=draw, samples=1, reduction="sum", check_values=False)
    if method in LISTS:
        return LISTS[method]
    by_item = CLASSIFICATION.get(method, weighted)
    return lambda scores, target: by_item(scores, target).mean(1).sum()


LISTS: dict[str, Loss] = {"smooth-ap 1": smooth, SOFTMAX: softmax}
METHODS = (*TRAINED, BASE, "weighted", "focal", "gce", *LISTS, LOGISTIC)

# ---------------------------------------------------------------------- the data


@lru_cache(maxsize=1)
def read(root: Path, name: str) -> tuple[Part, Part]:
    """Training and test images: features, standardised on all training images, and labels ``(n, c)`` of 0 and 1."""
    x, found = features.load(root, name)
    y = found.labels if found.labels.dim() == 2 else F.one_hot(found.labels)
    if name == "cub":
        y = y[:, torch.randperm(y.shape[1], generator=generator("cub"))[:SPECIES]]
    known = x[~found.test]
    x = (x - known.mean(0)) / known.std(0).clamp(min=1e-6)
    return Part(x[~found.test], y[~found.test]), Part(x[found.test], y[found.test])


def enough(y: Tensor, count: int) -> Tensor:
    """The first rows that together give each class ``count`` positives."""
    return ((y.cumsum(0) <= count) & (y == 1)).any(1).nonzero().squeeze(1)


def divide(whole: Part, shots: str, seeds: Sequence[int], noise: float) -> tuple[list[Part], list[Part]]:
    """Training and validation images of each seed, equally many for each seed."""
    found = []
    for seed in seeds:
        order = torch.randperm(len(whole), generator=generator("frozen", seed))
        fitting = torch.arange(len(whole) * 3 // 4) if shots == "all" else enough(whole.y[order], int(shots))
        rest = _without(order, fitting)
        held = torch.arange(len(rest)) if shots == "all" else enough(whole.y[rest], int(shots))
        found.append(((order[fitting], rest[held]), _without(rest, held)))
    # Images have several labels, so seeds differ by a few images; the shorter ones get some more.
    most = [max(len(parts[place]) for parts, _ in found) for place in range(2)]
    both: tuple[list[Part], list[Part]] = [], []
    for seed, (parts, spare) in zip(seeds, found, strict=True):
        for place, (rows, count) in enumerate(zip(parts, most, strict=True)):
            more, spare = spare.split([count - len(rows), len(spare) - count + len(rows)])
            both[place].append(with_others_labels(whole.take(torch.cat((rows, more))), noise, seed, place))
    return both


def _without(rows: Tensor, taken: Tensor) -> Tensor:
    left = torch.ones(len(rows), dtype=torch.bool)
    left[taken] = False
    return rows[left]


# ---------------------------------------------------------------------- a cell


def judged(known: Tensor, known_y: Tensor, new: Tensor, new_y: Tensor, *, method: str) -> tuple[Tensor, Tensor]:
    """Every metric ``(k, m)`` on two parts, from scores and labels ``(m, n, c)``."""
    if method in EXCLUSIVE:
        known, new = known.double().log_softmax(2), new.double().log_softmax(2)
    networks = len(known)
    known, known_y, new, new_y = (part.mT.flatten(0, 1) for part in (known, known_y, new, new_y))
    cut = 0 if OURS.get(method) == "f1" else best_cut(known, known_y)
    pairs = []
    for metric in METRICS:
        shift = cut if metric == "f1" else 0
        values = measured(known - shift, known_y, metric), measured(new - shift, new_y, metric)
        pairs.append(torch.stack([value.double().view(networks, -1).mean(1) for value in values]))
    both = torch.stack(pairs, 1)
    return both[0], both[1]


def logistic(parts: tuple[list[Part], list[Part]], test: Part) -> list[list[float]]:
    """Test metrics of scikit-learn's logistic regression, one model for each class: metrics x seeds."""
    results = []
    for fitting, held in zip(*parts, strict=True):
        scores = [
            [_fitted(fitting, c, strength, held, test) for c in range(fitting.y.shape[1])] for strength in STRENGTHS
        ]
        known, new = (torch.stack([torch.stack([one[k] for one in row], 1) for row in scores]) for k in range(2))
        repeated = [y.expand(len(STRENGTHS), -1, -1) for y in (held.y, test.y)]
        on_known, on_new = judged(known, repeated[0], new, repeated[1], method=LOGISTIC)
        results.append(on_new.gather(1, on_known.argmax(1, keepdim=True)).squeeze(1).tolist())
    return [list(row) for row in zip(*results, strict=True)]


def _fitted(fitting: Part, label: int, strength: float, *others: Part) -> list[Tensor]:
    y = fitting.y[:, label].numpy()
    if y.min() == y.max():  # wrong labels can leave a class without a positive
        return [torch.zeros(len(other)) for other in others]
    model = LogisticRegression(C=strength, tol=1e-3).fit(fitting.x.numpy(), y)
    return [torch.from_numpy(model.decision_function(other.x.numpy())).float() for other in others]


def train_cell(root: Path, seeds: int, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """All seeds and rates of a cell."""
    name, model, shots = str(cell.group).split(" / ")
    whole, test = read(root, name)
    parts = divide(whole, shots, range(seeds), cell.noise)
    if cell.method == LOGISTIC:
        values, shown = logistic(parts, test), {}
    else:
        batches = Batches(parts[0], range(seeds), BATCH)
        odds = log_odds(batches.y)
        starts = [odds, torch.zeros_like(odds)] if cell.method == STOPPED else [odds]
        networks = Networks(whole.x.shape[1], MODELS[model], whole.y.shape[1], range(seeds), RATES * len(starts))
        networks.begin_at(torch.cat([start.expand(-1, len(RATES), -1) for start in starts], 1))
        loss = loss_of(cell.method, generator("frozen noise", cell.noise))
        judge = partial(judged, method=cell.method)
        chosen = train(networks, loss, judge, (parts[1], [test] * seeds), batches, steps=STEPS, looks=LOOKS)
        values, shown = chosen.test, {"rates": chosen.rates, "steps": chosen.steps}
    metrics = {
        f"{metric} {place}": value
        for metric, row in zip(METRICS, values, strict=True)
        for place, value in enumerate(row)
    }
    return Outcome(metrics, shown=shown)


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(
        Cell(f"{name} / {model} / {shots}", method, noise)
        for name in arguments.sets
        for model in arguments.models
        for shots in SETS[name]
        if shots in arguments.shots
        for noise in arguments.noises
        for method in arguments.methods
        if (method != LOGISTIC or model == "linear") and (method not in EXCLUSIVE or name == "pets")
    )
    trainer, version = partial(train_cell, arguments.data_root, arguments.seeds), f"{VERSION}, {arguments.seeds} seeds"
    return Campaign("frozen", version, cells, settings, trainer, lambda cell: "", seeds=1)


def settings(cell: Cell) -> list[Params]:
    """Records of ours say with which settings they were made."""
    if cell.method == STOPPED:
        return [{"starts": "log odds, even"}]
    return [{"settings": SETTINGS}] if cell.method in TRAINED else [{}]


# ---------------------------------------------------------------------- tables

Found = dict[tuple[str, float, str], Record]


def numbers(found: Found, place: tuple[str, float], method: str, metric: str) -> list[float]:
    """The metric of each seed; empty without a record."""
    record = found.get((*place, method))
    return [] if record is None else [v for name, v in record.metrics.items() if name.rsplit(" ", 1)[0] == metric]


def show(records: list[Record]) -> str:
    """For each data set and metric: the test metric of every loss, and the lead of ours over each on the same seeds."""
    found = {(str(record.group), record.noise or 0.0, record.method): record for record in records}
    places = list(dict.fromkeys((group, noise) for group, noise, _ in found))
    pieces = []
    for name in dict.fromkeys(group.split(" / ")[0] for group, _ in places):
        here = [place for place in places if place[0].startswith(name)]
        for metric, title in METRICS.items():
            head = [
                f"{g.split(' / ', 1)[1].replace(' / ', ', ')}{', 20 % wrong' if noise else ''}" for g, noise in here
            ]
            pieces += [f"**{name}: {title}**", table(["loss", *head], _rows(found, here, metric))]
            pieces.append(table([f"lead of direct-{metric}", *head], _leads(found, here, metric)))
    return "\n\n".join(pieces)


def compared(metric: str) -> list[str]:
    """The losses to show for a metric: of ours, the one that trains on it, and AP."""
    return [m for m in METHODS if OURS.get(m, "ap") in (metric, "ap")]


def _rows(found: Found, places: list[tuple[str, float]], metric: str) -> Iterator[list[str]]:
    values = {(p, m): numbers(found, p, m, metric) for p in places for m in compared(metric)}
    best = {p: max((mean(v) for (q, _), v in values.items() if q == p and v), default=0.0) for p in places}
    for method in compared(metric):
        if any(values[p, method] for p in places):
            yield [method, *(mean_cell(values[p, method], best[p]) for p in places)]


def _leads(found: Found, places: list[tuple[str, float]], metric: str) -> Iterator[list[str]]:
    for method in compared(metric):
        if OURS.get(method) != metric:
            pairs = [(numbers(found, p, f"direct-{metric}", metric), numbers(found, p, method, metric)) for p in places]
            if any(theirs for _, theirs in pairs):
                yield [f"over {method}", *(gap_cell(*pair) for pair in pairs)]


if __name__ == "__main__":
    choices: dict[str, Sequence[Any]] = {
        "sets": list(SETS), "models": list(MODELS), "noises": NOISES, "shots": ["5", "50", "all"], "methods": METHODS
    }  # fmt: skip
    from_command_line(__doc__, study, show, seeds=5, out="results/frozen", data=True, parts=choices)
