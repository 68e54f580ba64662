"""Known wrong labels: is `DirectLoss("f1", flips=rate)` better than cross-entropy corrected for the same rate?

    python -m benchmarks.flips --data-root DATA [--seeds 5] [--out results/flips] [--workers 2] [PARTS]
    python -m benchmarks.flips --show [PARTS]      the tables of what is stored

PARTS restrict it: ``--sets "digits, 8" pima --models mlp --noises 0.2 --methods forward``.

Eight data sets, a linear model or one hidden layer of 64. 20 or 40 % of the labels are flipped in the training and in
the validation rows; test labels are clean. Every loss trains five seeds at four learning rates with Adam, 600 steps in
batches of 256, or of all rows where there are fewer. For each seed, F1 of the validation rows chooses the rate and one
of ten looks. Losses:

    direct, flips            `DirectLoss("f1", flips=rate)`; decides at 0
    direct                   `DirectLoss("f1")`, which does not know the rate; decides at 0
    x-ent                    cross-entropy, which does not know the rate
    x-ent, corrected cut     the same, which learns the rate when it chooses
    forward                  cross-entropy with forward correction (Patrini et al. 2017)
    forward, threshold 0     the same, without a threshold of its own

Losses that know the rate are chosen by F1 of corrected counts, the others by F1 of the labels as they are. Those of
cross-entropy decide at the threshold that is best on the validation rows in that sense, except for the last. Variants
of ours are trained only if they are named.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.methods import cross_entropy
from directloss_repro.records import Record
from directloss_repro.seeding import generator
from torch import Tensor

import directloss as dl
from benchmarks.defaults import BATCH, LOOKS, MODELS, RATES, parts_of
from benchmarks.stacked import Batches, Loss, Networks, train
from benchmarks.study import from_command_line, gap_cell, mean_cell, table
from directloss.metrics.confusion import f_beta_of_counts
from directloss.moves import flip_decisions
from directloss.noise import DRAWN
from directloss.task import Estimate, Expected
from directloss.tasks import FBeta
from directloss.tasks._counting import corrected
from directloss.tasks._likelihood import of_decisions

VERSION, STEPS = "1", 600
NOISES = (0.2, 0.4)
SETS = ("Fashion-MNIST, 4", "digits, 8", "digits, 3", "page-blocks0", "yeast3", "pima", "vowel0", "segment0")
OURS, RIVAL, AT_ZERO = "direct, flips", "forward", "forward, threshold 0"
Rates = tuple[float, float]
"""Shares of wrong labels among negatives and among positives."""
NONE = (0.0, 0.0)

# ---------------------------------------------------------------------- the losses


class F1OfClassShare(FBeta):
    """F1 of corrected counts whose number of positives is that of the whole training set, not of the batch."""

    def __init__(self, rates: Rates, share: Tensor) -> None:
        super().__init__(1.0)
        self.rates, self.share = rates, share

    def right_metric(self, tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
        """F1, with ``share`` of the items positive."""
        yes, positive = tp + fp, self.share * (tp + fp + fn + tn)
        true = ((tp - self.rates[0] * yes) / (1 - sum(self.rates))).clamp(min=0).minimum(yes).minimum(positive)
        return 2 * true / (yes + positive)

    def expected(self, scores: Tensor, target: Tensor, request: Estimate) -> Expected:
        members = torch.stack((target == 1, target == 0))
        noise = request.noise
        value, slope = flip_decisions(self.right_metric, scores, members, noise.uniform(scores), float(noise.scale))
        return Expected(1 - value, -slope, of_decisions(scores, target, request) if request.likelihood else None)


def direct(rates: Rates, batches: Batches, draw: torch.Generator, **settings: Any) -> Loss:
    """Ours; every network has as many draws as if it were alone."""
    settings = {"samples": max(1, DRAWN // batches.size), "generator": draw, "check_values": False, **settings}
    return dl.DirectLoss(settings.pop("task", "f1"), reduction="sum", **settings)


def by_share(rates: Rates, batches: Batches, draw: torch.Generator) -> Loss:
    share = ((batches.y.double().mean(1) - rates[0]) / (1 - sum(rates))).clamp(min=1 / batches.y.shape[1])
    task = F1OfClassShare(rates, share.repeat_interleave(len(RATES))[:, None])
    return direct(rates, batches, draw, task=task, flips=rates)


def plain(rates: Rates, batches: Batches, draw: torch.Generator) -> Loss:
    return lambda scores, target: cross_entropy(scores, target).mean(1).sum()


def forward(rates: Rates, batches: Batches, draw: torch.Generator) -> Loss:
    """The likelihood of the labels as they are, if the network predicts the right ones."""

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        likely = torch.sigmoid(torch.where(target == 1, scores, -scores))
        unlike = torch.where(target == 1, *rates)
        return -(unlike + (1 - sum(rates)) * likely).log().mean(1).sum()

    return loss


@dataclass(frozen=True)
class Method:
    """A loss, whether it is judged by corrected counts, and whether its threshold is chosen on validation rows."""

    make: Callable[[Rates, Batches, torch.Generator], Loss]
    corrects: bool
    tuned: bool


def _with_flips(rates: Rates, batches: Batches, draw: torch.Generator, **settings: Any) -> Loss:
    return direct(rates, batches, draw, flips=rates, **settings)


METHODS: dict[str, Method] = {
    OURS: Method(_with_flips, corrects=True, tuned=False),
    "direct": Method(direct, corrects=False, tuned=False),
    "x-ent": Method(plain, corrects=False, tuned=True),
    "x-ent, corrected cut": Method(plain, corrects=True, tuned=True),
    RIVAL: Method(forward, corrects=True, tuned=True),
    AT_ZERO: Method(forward, corrects=True, tuned=False),
}
VARIANTS: dict[str, Method] = {
    "direct, flips, tuned cut": Method(_with_flips, corrects=True, tuned=True),
    "direct, flips, class share": Method(by_share, corrects=True, tuned=False),
    "direct, flips, likelihood 3": Method(partial(_with_flips, likelihood=3.0), corrects=True, tuned=False),
}
"""Other ways, for ``--methods``."""
KNOWN = METHODS | VARIANTS

# ---------------------------------------------------------------------- a cell


def train_cell(root: Path, seeds: int, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """All seeds and rates of a cell."""
    name, model = str(cell.group).split(" / ")
    train_rows, *others = parts_of(root, name, seeds, cell.noise)
    return trained(train_rows, others, model, cell.method, cell.noise)


def trained(rows: list[Part], others: list[list[Part]], model: str, name: str, rate: float) -> Outcome:
    """The test F1 of each seed."""
    method, seeds, batches = KNOWN[name], range(len(rows)), Batches(rows, range(len(rows)), BATCH)
    loss = method.make((rate, rate), batches, generator("flips", rate))
    networks = Networks(batches.x.shape[2], MODELS[model], 1, seeds, RATES)
    judge = partial(judged, rates=(rate, rate) if method.corrects else NONE, tuned=method.tuned)
    chosen = train(networks, loss, judge, others, batches, steps=STEPS, looks=LOOKS)
    of_seeds = {f"test {seed}": value for seed, value in enumerate(chosen.test)}
    return Outcome({"test": mean(chosen.test), **of_seeds}, shown={"rates": chosen.rates, "steps": chosen.steps})


def judged(
    known: Tensor, known_y: Tensor, new: Tensor, new_y: Tensor, rates: Rates, tuned: bool
) -> tuple[Tensor, Tensor]:
    """F1 of each network on validation rows of which these shares are wrong, and on test rows."""
    if tuned:
        cut = best_cut(known, known_y, rates)
        known, new = known - cut, new - cut
    return f1(known, known_y, rates), f1(new, new_y, NONE)


def f1(scores: Tensor, target: Tensor, rates: Rates) -> Tensor:
    """F1 of each list ``(m, n)``, corrected for shares of wrong labels."""
    return 1 - dl.direct_loss(scores, target, "f1", flips=rates, reduction="none", check_values=False).double()


def best_cut(scores: Tensor, target: Tensor, rates: Rates) -> Tensor:
    """The threshold of each list ``(m, n)`` with the best corrected F1, halfway between two scores: ``(m, 1)``."""
    ranked, order = scores.sort(dim=-1, descending=True)
    hits = target.gather(-1, order)
    tp, fp = hits.cumsum(-1).double(), (1 - hits).cumsum(-1).double()
    values = corrected(f_beta_of_counts, rates)(tp, fp, tp[:, -1:] - tp, fp[:, -1:] - fp)
    last = values.argmax(-1, keepdim=True)
    ranked = torch.cat((ranked, ranked[:, -1:] - 1), -1)  # below all, if all are best chosen
    return (ranked.gather(-1, last) + ranked.gather(-1, last + 1)) / 2


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(
        Cell(f"{name} / {model}", method, noise)
        for name in arguments.sets
        for noise in arguments.noises
        for model in arguments.models
        for method in (METHODS if set(arguments.methods) == set(KNOWN) else arguments.methods)
    )
    trainer = partial(train_cell, arguments.data_root, arguments.seeds)
    version = f"{VERSION}, {arguments.seeds} seeds"
    return Campaign("flips", version, cells, lambda cell: [{}], trainer, lambda cell: "test", seeds=1)


# ---------------------------------------------------------------------- the tables


Row = tuple[str, str, float]
"""Data set, model, share of wrong labels."""


def show(records: list[Record]) -> str:
    """Test F1 of each set in points, and the lead of ours over each other loss on average."""
    found: dict[Row, dict[str, list[float]]] = {}
    for record in records:
        name, model = str(record.group).split(" / ")
        numbers = [record.metrics[f"test {seed}"] for seed in range(len(record.metrics) - 1)]
        found.setdefault((name, model, record.noise or 0.0), {})[record.method] = numbers
    methods = [method for method in KNOWN if any(method in row for row in found.values())]
    found = {place: row for place, row in found.items() if len(row) == len(methods)}
    each = table(["data", *methods, f"{OURS} - {RIVAL}"], _rows(found, methods))
    return "\n\n".join([
        "**Mean over the data sets of test F1 in points; lead of ours, with its 95 % interval over the sets**",
        table(["", *methods, *(f"{OURS} - {m}" for m in methods if m != OURS)], _means(found, methods)),
        "**Test F1 in points, with half of its 95 % interval**", each,
    ])  # fmt: skip


def _means(found: dict[Row, dict[str, list[float]]], methods: list[str]) -> Iterator[list[str]]:
    for model in (*MODELS, None):
        for noise in NOISES:
            means = {m: _of_sets(found, model, noise, m) for m in methods}
            if all(means.values()):
                best = max(map(mean, means.values()))
                leads = [gap_cell(means[OURS], means[m]) for m in methods if m != OURS and OURS in means]
                shown = [_bold(100 * mean(values), mean(values) == best) for values in means.values()]
                yield [f"{model or 'both'}, {noise:.0%}", *shown, *leads]


def _of_sets(found: dict[Row, dict[str, list[float]]], model: str | None, noise: float, method: str) -> list[float]:
    """The mean over the seeds, and the models, of each data set: one number a set, since its models share the rows."""
    sets: dict[str, list[float]] = {}
    for (name, its_model, share), row in found.items():
        if model in (None, its_model) and share == noise:
            sets.setdefault(name, []).append(mean(row[method]))
    return [mean(numbers) for numbers in sets.values()]


def _rows(found: dict[Row, dict[str, list[float]]], methods: list[str]) -> Iterator[list[str]]:
    for (name, model, noise), row in found.items():
        best = max(map(mean, row.values()))
        gap = gap_cell(row.get(OURS, []), row.get(RIVAL, []))
        yield [f"{name}, {model}, {noise:.0%}", *(mean_cell(row[m], best) for m in methods), gap]


def _bold(number: float, best: bool) -> str:
    return f"**{number:.1f}**" if best else f"{number:.1f}"


if __name__ == "__main__":
    offered = {"sets": list(SETS), "models": list(MODELS), "noises": list(NOISES), "methods": list(KNOWN)}
    from_command_line(__doc__, study, show, seeds=5, out="results/flips", data=True, parts=offered)
