"""Which defaults are good? `DirectLoss(metric)` with nothing set, against cross-entropy and other losses.

    python -m benchmarks.defaults --data-root DATA [--seeds 5] [--out results/defaults] [--workers 2] [PARTS]
    python -m benchmarks.defaults --show [PARTS]      the tables of what is stored
    python -m benchmarks.unseen                  the same on data sets that were not used to choose the defaults

PARTS restrict it: ``--metrics ap f1 --sets "digits, 8" pima --models mlp --noises 0 0.2 --lengths 200 --methods gce``.

A cell is a data set, a model (linear, or one hidden layer of 64), a metric, a share of wrong labels, a number of steps
and a loss. It trains five seeds at four learning rates with Adam on batches of 256, or on all rows where there are
fewer. For each seed, the validation metric chooses the rate and one of ten looks. Wrong labels are in the training and
in the validation rows; test labels are clean. For a metric of decisions, losses that do not know it decide at the
threshold that is best on the validation rows, and ``x-ent, threshold 0`` does without.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.methods import CLASSIFICATION
from directloss_repro.records import Record
from directloss_repro.reports.stats import estimate
from directloss_repro.seeding import generator
from torch import Tensor

import directloss as dl
from benchmarks import tables
from benchmarks.peers import smooth_ap
from benchmarks.stacked import Batches, Loss, Networks, train
from benchmarks.study import from_command_line, gap_cell, mean_cell, table
from directloss._registry import get
from directloss.noise import DRAWN, Noise

VERSION = "3"
BATCH, HIDDEN, LOOKS = 256, 64, 10
RATES = (0.001, 0.003, 0.01, 0.03)
NOISES = (0.0, 0.2, 0.4)
LENGTHS = (200, 600, 6000)
MODELS = {"linear": 0, "mlp": HIDDEN}
OURS, BASE, AT_ZERO, SECOND = "direct", "x-ent", "x-ent, threshold 0", "second version"

# ---------------------------------------------------------------------- the data

KEEL = ("yeast1", "vehicle1", "page-blocks0", "yeast3", "car-good")
LATER_KEEL = ("pima", "segment0", "vowel0", "flare-F", "abalone9-18", "wisconsin", "kr-vs-k-three_vs_eleven")
UNSEEN_KEEL = ("vehicle0", "vehicle2", "car-vgood", "yeast5", "yeast-0-2-5-7-9_vs_3-6-8", "winequality-red-4")
IMAGES = {
    "Fashion-MNIST, 6": 8_000, "Fashion-MNIST, 2, few": 4_000, "MNIST, 8": 8_000, "MNIST, 5, few": 4_000,
    "Fashion-MNIST, 4": 8_000, "MNIST, 9": 8_000,
}  # fmt: skip
UNSEEN_IMAGES = {"Fashion-MNIST, 0": 8_000, "MNIST, 3": 8_000}
UNSEEN = (*UNSEEN_IMAGES, "digits, 3", *UNSEEN_KEEL)

Sets = Mapping[str, tuple[str, ...]]
"""Metric -> names of data sets or of methods."""
JUDGED: Sets = {
    "ap": (*IMAGES, "census-income", "digits, 8", *KEEL, *LATER_KEEL),
    "ndcg@10": ("Fashion-MNIST, 2, few", "census-income", "digits, 8", "page-blocks0", "pima"),
    "precision@20": ("Fashion-MNIST, 2, few", "census-income", "digits, 8", "page-blocks0", "pima"),
    "f1": ("Fashion-MNIST, 4", "census-income", "digits, 8", "page-blocks0", "yeast3", "pima", "vowel0", "segment0"),
    "accuracy": ("digits, all", "MNIST, all", "Fashion-MNIST, all"),
}
"""The data sets of each metric."""


def load(root: Path, name: str) -> tables.Table:
    """A data set of the study."""
    if name == "census-income":
        return tables.census_sample(root, 16_000)
    first, *rest = name.split(", ")
    if first == "digits":
        return tables.digits() if rest == ["all"] else tables.digit(int(rest[0]))
    if rest:
        folder, which = first.lower(), None if rest[0] == "all" else int(rest[0])
        return tables.image_class(root, folder, which, {**IMAGES, **UNSEEN_IMAGES}.get(name, 4_000))
    return tables.keel(name)


@lru_cache(maxsize=2)
def parts_of(root: Path, name: str, seeds: int, noise: float) -> tuple[list[Part], list[Part], list[Part]]:
    """Training, validation and test rows of each seed."""
    train, val, test = zip(*(tables.split(load(root, name), seed, noise) for seed in range(seeds)), strict=True)
    return list(train), list(val), list(test)


# ---------------------------------------------------------------------- the losses


def by_item(name: str, metric: str, items: int, draw: torch.Generator) -> Loss:
    """A loss of each label alone."""
    return lambda scores, target: CLASSIFICATION[name](scores, target).mean(1).sum()


def at_once(loss: dl.DirectLoss | dl.HingeLoss) -> Loss:
    """A loss that takes all networks in one call."""
    if loss.task.target_dims:
        return loss
    return lambda scores, target: loss(scores.flatten(0, 1), target.flatten()) / target.shape[1]


def one_by_one(loss: Loss) -> Loss:
    """A loss that takes one network at a time."""
    return lambda scores, target: torch.stack([loss(*one) for one in zip(scores, target, strict=True)]).sum()


def direct(metric: str, items: int, draw: torch.Generator, **settings: Any) -> Loss:
    """Ours; every network has as many draws as if it were alone."""
    settings = {"samples": max(1, DRAWN // items), **settings}
    return at_once(dl.DirectLoss(metric, generator=draw, reduction="sum", check_values=False, **settings))


def smooth(metric: str, items: int, draw: torch.Generator, share: float = 0.0) -> Loss:
    """Smooth-AP at temperature 1, plus a share of cross-entropy."""
    plain = by_item(BASE, metric, items, draw)

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        value = smooth_ap(scores, target, temperature=1.0).sum() if target.any() else 0 * scores.sum()
        return value + share * plain(scores, target) if share else value

    return loss


class SecondVersion:
    """The default of the second version of this library: cross-entropy for 300 steps, then Theorem 1 under noise.

    The noise is Gumbel's or logistic, of scale 1 for rankings and 0.5 otherwise. Epsilon is five times the one at which
    the most important exchange of the task bridges the noise.
    """

    WARM_UP, DRAWN, REACH = 300, 4096, 5.0

    def __init__(self, metric: str, items: int, draw: torch.Generator) -> None:
        self.task, self.metric, self.steps = get(metric), metric, 0
        ranks = self.task.defaults.density == "uniform"
        self.density, scale = ("gumbel", 1.0) if ranks else (self.task.defaults.density, 0.5)
        self.noise = Noise(scale, max(1, self.DRAWN // items), draw)
        self.warm = by_item(BASE, metric, items, draw)

    def __call__(self, scores: Tensor, target: Tensor) -> Tensor:
        self.steps += 1
        if self.steps <= self.WARM_UP:
            return self.warm(scores, target)
        noisy = self.noise.perturb(scores, self.density)
        unit = self.task.unit_epsilon(scores.detach(), target)
        epsilon = torch.as_tensor(self.REACH * self.noise.scale * unit, dtype=torch.float32)
        problems = noisy.shape[: noisy.dim() - self.task.event_dims]
        total = dl.direct_loss(
            noisy, target.expand(len(noisy), *target.shape), self.task, reduction="sum", check_values=False,
            epsilon=epsilon.expand(problems), sign=self.task.defaults.sign,
        )  # fmt: skip
        return total / len(noisy) / (1 if self.task.target_dims else target.shape[1])


Make = Callable[[str, int, torch.Generator], Loss]
"""From the metric, the number of items of a batch and a generator to a loss."""
VARIANTS: dict[str, dict[str, Any]] = {
    "direct, likelihood 0": {"likelihood": 0.0},
    "direct, likelihood 0.03": {"likelihood": 0.03},
    "direct, likelihood 0.2": {"likelihood": 0.2},
    "direct, likelihood 0.3": {"likelihood": 0.3},
    "direct, likelihood 1": {"likelihood": 1.0},
    "direct, noise 1": {"noise": 1.0},
    "direct, noise 5": {"noise": 5.0},
    "direct, noise 10": {"noise": 10.0},
    "direct, 1 draw": {"samples": 1},
}
"""Other settings of ours, for ``--methods``."""
METHODS: dict[str, Make] = {
    OURS: direct,
    BASE: partial(by_item, BASE),
    AT_ZERO: partial(by_item, BASE),
    "focal": partial(by_item, "focal"),
    "gce": partial(by_item, "gce"),
    "smooth-ap 1": smooth,
    "smooth-ap 1 + 0.1 x-ent": partial(smooth, share=0.1),
    "hinge": lambda metric, items, draw: at_once(dl.HingeLoss(metric, reduction="sum", check_values=False)),
    "pos": lambda metric, items, draw: at_once(dl.DirectLoss(metric, sign=+1, reduction="sum", check_values=False)),
    "uniloss": lambda metric, items, draw: one_by_one(dl.UniLoss(metric, generator=draw, check_values=False)),
    SECOND: SecondVersion,
    **{name: partial(direct, **settings) for name, settings in VARIANTS.items()},
}
_EVERYWHERE = (OURS, BASE, "focal", "gce", "hinge", "pos", SECOND)
COMPARED: Sets = {
    "ap": (*_EVERYWHERE, "smooth-ap 1", "smooth-ap 1 + 0.1 x-ent", "uniloss"),
    "ndcg@10": _EVERYWHERE,
    "precision@20": _EVERYWHERE,
    "f1": (OURS, BASE, AT_ZERO, "focal", "gce", "hinge", "uniloss", SECOND),
    "accuracy": (OURS, BASE, "focal", "gce", "hinge", "uniloss", SECOND),
}
"""The losses of each metric."""

# ---------------------------------------------------------------------- a cell


def train_cell(root: Path, seeds: int, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """All seeds and rates of a cell."""
    name, model, metric, steps = str(cell.group).split(" / ")
    train_rows, *others = parts_of(root, name, seeds, cell.noise)
    batches = Batches(train_rows, range(seeds), BATCH)
    loss = METHODS[cell.method](metric, batches.size, generator("defaults", metric, cell.noise))
    outputs = int(batches.y.max()) + 1 if metric == "accuracy" else 1
    networks = Networks(batches.x.shape[2], MODELS[model], outputs, range(seeds), RATES)
    judge = partial(judged, metric=metric, tuned=cell.method in CLASSIFICATION)
    chosen = train(networks, loss, judge, others, batches, steps=int(steps), looks=LOOKS)
    shown = {"rates": chosen.rates, "steps": chosen.steps}
    of_seeds = {f"test {seed}": value for seed, value in enumerate(chosen.test)}
    return Outcome({"test": mean(chosen.test), **of_seeds}, shown=shown)


def judged(
    known: Tensor, known_y: Tensor, new: Tensor, new_y: Tensor, metric: str, tuned: bool
) -> tuple[Tensor, Tensor]:
    """The metric of each network on two parts; F1 of a ``tuned`` loss at the threshold that is best on the first."""
    if metric == "f1" and tuned:
        cut = best_cut(known, known_y)
        known, new = known - cut, new - cut
    return measured(known, known_y, metric), measured(new, new_y, metric)


def measured(scores: Tensor, target: Tensor, metric: str) -> Tensor:
    """The metric of each network."""
    task = get(metric)
    losses = dl.direct_loss(scores, target, task, reduction="none", check_values=False)
    values = task.value(losses.double(), target)
    return values if task.target_dims else values.mean(1)


def best_cut(scores: Tensor, target: Tensor) -> Tensor:
    """The threshold of each list ``(m, n)`` with the best F1, halfway between two scores: shape ``(m, 1)``."""
    ranked, order = scores.sort(dim=-1, descending=True)
    hits = target.gather(-1, order).cumsum(-1)
    f1 = 2 * hits / (torch.arange(1, hits.shape[-1] + 1) + hits[:, -1:])
    last = f1.argmax(-1, keepdim=True)
    ranked = torch.cat((ranked, ranked[:, -1:] - 1), -1)  # below all, if all are best chosen
    return (ranked.gather(-1, last) + ranked.gather(-1, last + 1)) / 2


def study(arguments: argparse.Namespace, judged: Sets = JUDGED, name: str = "defaults") -> Campaign:
    """Short trainings first; the losses that are compared one after the other."""
    cells = tuple(
        Cell(f"{data} / {model} / {metric} / {steps}", method, noise)
        for steps in arguments.lengths
        for metric, sets in judged.items()
        if metric in arguments.metrics
        for data in sets
        if data in arguments.sets
        for noise in arguments.noises
        for model in arguments.models
        for method in _methods(metric, arguments.methods)
    )
    trainer = partial(train_cell, arguments.data_root, arguments.seeds)
    version = f"{VERSION}, {arguments.seeds} seeds"
    return Campaign(name, version, cells, lambda cell: [{}], trainer, lambda cell: "test", seeds=1)


def _methods(metric: str, named: list[str]) -> tuple[str, ...]:
    """The losses of a metric; variants only if they are named."""
    all_of_them = set(named) == set(METHODS)
    return tuple(m for m in COMPARED[metric] + tuple(() if all_of_them else VARIANTS) if m in named)


# ---------------------------------------------------------------------- the tables


class Results:
    """The test metrics of all cells of one metric and length that have all losses."""

    def __init__(self, records: list[Record]) -> None:
        self.values: dict[tuple[str, str, float], dict[str, list[float]]] = {}
        for record in records:
            name, model, *_ = str(record.group).split(" / ")
            cell = self.values.setdefault((name, model, record.noise or 0.0), {})
            cell[record.method] = [record.metrics[f"test {seed}"] for seed in range(len(record.metrics) - 1)]
        self.methods = [method for method in METHODS if any(method in cell for cell in self.values.values())]
        self.values = {place: cell for place, cell in self.values.items() if len(cell) == len(self.methods)}

    def of(self, model: str | None = None, noise: float | None = None) -> list[dict[str, list[float]]]:
        """The cells of a model and of a share of wrong labels."""
        return [
            cell for (_, its_model, its_noise), cell in self.values.items()
            if model in (None, its_model) and noise in (None, its_noise)
        ]  # fmt: skip

    def lead(self, cells: list[dict[str, list[float]]], method: str) -> str:
        """Mean and median of the lead over cross-entropy in points, and the mean rank."""
        if not cells:
            return "-"
        leads = [100 * (mean(cell[method]) - mean(cell[BASE])) for cell in cells]
        means = [{m: mean(values) for m, values in cell.items()} for cell in cells]
        rank = mean(1 + sum(value > row[method] for value in row.values()) for row in means)
        return f"{mean(leads):+.1f} / {median(leads):+.1f} ({rank:.1f})"

    def worst(self, method: str) -> str:
        """The cell with the lowest mean lead, with the 95 % interval of the lead on the same seeds."""
        leads = {
            place: estimate([100 * (a - b) for a, b in zip(cell[method], cell[BASE], strict=True)])
            for place, cell in self.values.items()
        }
        name, model, noise = place = min(leads, key=lambda place: leads[place].mean)
        found = leads[place]
        return f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f}): {name}, {model}, {noise:.0%}"


def show(records: list[Record]) -> str:
    """For each metric and length: mean / median lead over cross-entropy and mean rank of each loss; then each set."""
    found: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        *_, metric, steps = str(record.group).split(" / ")
        found.setdefault((metric, int(steps)), []).append(record)
    whole = {
        place: results for place, some in found.items() if (results := Results(some)).values and BASE in results.methods
    }
    sums = [f"**{metric}, {steps:,} steps**\n\n{_summary(results)}" for (metric, steps), results in whole.items()]
    each = [
        f"**{metric}, {steps:,} steps, {model}, {noise:.0%} wrong labels**\n\n{_each(results, model, noise)}"
        for (metric, steps), results in whole.items()
        for model in MODELS
        for noise in NOISES
        if results.of(model, noise)
    ]
    explained = f"Mean / median lead over {BASE} in points (mean rank), over data sets."
    return "\n\n".join([explained, *sums, "Test metric in points, with half of its 95 % interval.", *each])


def _summary(results: Results) -> str:
    places = [(model, noise) for model in MODELS for noise in NOISES if results.of(model, noise)]
    head = ["loss", "all", *MODELS, *(f"{model}, {noise:.0%}" for model, noise in places), "worst cell"]
    chosen = [(None, None), *((model, None) for model in MODELS), *places]
    rows = [
        [method, *(results.lead(results.of(*place), method) for place in chosen), results.worst(method)]
        for method in results.methods
    ]
    return table(head, rows)


def _each(results: Results, model: str, noise: float) -> str:
    return table(["data", *results.methods, f"{OURS} - {BASE}"], _rows(results, model, noise))


def _rows(results: Results, model: str, noise: float) -> Iterator[list[str]]:
    for (name, its_model, its_noise), cell in results.values.items():
        if (its_model, its_noise) == (model, noise):
            best = max(map(mean, cell.values()))
            gap = gap_cell(cell.get(OURS, []), cell[BASE])
            yield [name, *(mean_cell(cell[method], best) for method in results.methods), gap]


def command(doc: str | None, judged: Sets, name: str) -> None:
    """The command of the study on some sets."""
    parts: dict[str, list[Any]] = {
        "metrics": list(judged),
        "sets": list(dict.fromkeys(data for sets in judged.values() for data in sets)),
        "models": list(MODELS),
        "noises": list(NOISES),
        "lengths": list(LENGTHS),
        "methods": list(METHODS),
    }
    make = partial(study, judged=judged, name=name)
    from_command_line(doc, make, show, seeds=5, out=f"results/{name}", data=True, parts=parts)


if __name__ == "__main__":
    command(__doc__, JUDGED, "defaults")
