"""Wrong labels of people at a rate that nobody knows: is it enough to estimate it from answers that contradict?

    python -m benchmarks.features --data-root DATA --weights FOLDER --sets cifar10        once
    python -m benchmarks.answers --data-root DATA [--seeds 5] [--out results/answers] [--workers 1]

CIFAR-10N: three answers to each of 5,000 training images; one of them (``random_label1``) is the label. LabelMe: 2.5
answers to each of 1,000 photographs; a random one is the label. Every class is a yes-or-no decision, judged by the mean
of the classes' F1 on test images with their true classes. `directloss.estimate_flips` estimates the two rates of each
class from all answers to its training images. Images, models and batches as in `benchmarks.cifar10n` and
`benchmarks.labelme`; losses, and how thresholds and corrected counts are used, as in `benchmarks.flips`. The validation
images have such labels as well, and choose one of three or four learning rates and one of the looks. The row
``direct, flips, tuned cut`` was added after a look at the others. The last layer begins with zero weights and the log
odds of each class; a random start cost linear models 4 to 24 points, those that decide at threshold 0 most.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.records import Record
from directloss_repro.seeding import generator
from torch import Tensor
from torch.nn.functional import one_hot

import directloss as dl
from benchmarks import cifar10n, flips, labelme
from benchmarks.flips import NONE, OURS, VARIANTS, Rates, judged
from benchmarks.labelme import MODELS, of_cells
from benchmarks.stacked import Batches, Networks, log_odds, train
from benchmarks.study import from_command_line, gap_cell, mean_cell, table


class Crowd(NamedTuple):
    """Images that people labelled."""

    parts: tuple[list[Part], list[Part], list[Part]]
    """Training, validation and test images of each seed, with their classes."""
    answers: Tensor
    """All answers to the training and validation images, ``(items, people)``; -1 for none."""
    truth: Tensor | None
    """Their true classes, where they are known: only to see how good an estimate is."""
    study: Any
    """The module with the settings of the training."""


def cifar(root: Path, seeds: int) -> Crowd:
    told = torch.stack(list(cifar10n.answers(root, cifar10n.PEOPLE).values()), 1)
    return Crowd(cifar10n.parts(root, cifar10n.PEOPLE[0], seeds), told, cifar10n.read(root)[0].y, cifar10n)


def photographs(root: Path, seeds: int) -> Crowd:
    return Crowd(labelme.parts(root, "one answer", seeds), labelme.photographs(root)[1], None, labelme)


TUNED = "direct, flips, tuned cut"
METHODS = flips.METHODS | {TUNED: VARIANTS[TUNED]}
CROWDS = {"CIFAR-10N": cifar, "LabelMe": photographs}


def estimated(answers: Tensor, classes: int) -> list[Rates]:
    """The shares of wrong answers to each class, as a decision of yes or no."""
    known = answers >= 0
    return [dl.estimate_flips(torch.where(known, (answers == k).long(), -1)).flips for k in range(classes)]


def counted(answers: Tensor, truth: Tensor, classes: int) -> list[Rates]:
    """What `estimated` should be."""
    found = []
    for k in range(classes):
        wrong = (answers == k) != (truth == k).unsqueeze(1)
        found.append((float(wrong[truth != k].double().mean()), float(wrong[truth == k].double().mean())))
    return found


def train_cell(root: Path, seeds: int, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """All seeds and rates of a cell: one network for all classes."""
    name, model = str(cell.group).split(" / ")
    crowd, method = CROWDS[name](root, seeds), METHODS[cell.method]
    settings = crowd.study
    told = estimated(crowd.answers, settings.CLASSES)
    fitting, *others = [[Part(p.x, one_hot(p.y, settings.CLASSES)) for p in part] for part in crowd.parts]
    batches = Batches(fitting, range(seeds), settings.BATCH)
    losses = [method.make(rates, batches, generator("answers", k)) for k, rates in enumerate(told)]

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        return torch.stack([one(scores[..., k], target[..., k]) for k, one in enumerate(losses)]).mean()

    def judge(known: Tensor, known_y: Tensor, new: Tensor, new_y: Tensor) -> tuple[Tensor, Tensor]:
        found = [
            judged(known[..., k], known_y[..., k], new[..., k], new_y[..., k], rates, method.tuned)
            for k, rates in enumerate(told if method.corrects else [NONE] * settings.CLASSES)
        ]
        on_known, on_new = zip(*found, strict=True)
        return torch.stack(on_known).mean(0), torch.stack(on_new).mean(0)

    networks = Networks(batches.x.shape[2], MODELS[model], settings.CLASSES, range(seeds), settings.RATES)
    networks.begin_at(log_odds(batches.y))
    chosen = train(networks, loss, judge, others, batches, steps=settings.STEPS, looks=settings.LOOKS)
    of_seeds = {f"test {seed}": value for seed, value in enumerate(chosen.test)}
    right = [] if crowd.truth is None else counted(crowd.answers, crowd.truth, settings.CLASSES)
    return Outcome({"test": mean(chosen.test), **of_seeds}, shown={"flips": told, "true flips": right})


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(
        Cell(f"{name} / {model}", method) for name in arguments.sets for model in MODELS for method in METHODS
    )
    trainer, version = partial(train_cell, arguments.data_root, arguments.seeds), f"2, {arguments.seeds} seeds"
    return Campaign("answers", version, cells, lambda cell: [{}], trainer, lambda cell: "test", seeds=1)


def show(records: list[Record]) -> str:
    """Test F1 of every loss, and the lead of ours on the same seeds; the estimated rates beside the true ones."""
    found = of_cells(records)
    places = list(dict.fromkeys(group for group, _ in found))
    rows, leads = _rows(found, places), _leads(found, places)
    pieces = [table(["F1", *places], rows), table([f"lead of {OURS}", *places], leads)]
    shown = {str(record.group).split(" / ")[0]: record.shown or {} for record in records}
    for name, told in shown.items():
        both = [told.get("flips"), told.get("true flips")]
        if all(both):
            pieces.append(
                f"{name}, mean share of wrong answers to the other classes and to the class: "
                + ", ".join(
                    f"{title} {_percent(rates)}" for title, rates in zip(("estimated", "true"), both, strict=True)
                )
            )
    return "\n\n".join(pieces)


def _percent(rates: Sequence[Rates]) -> str:
    return " and ".join(f"{mean(side):.1%}" for side in zip(*rates, strict=True))


Found = dict[tuple[str, str], list[float]]


def _rows(found: Found, places: Sequence[str]) -> Iterator[list[str]]:
    best = {p: max(mean(numbers) for (group, _), numbers in found.items() if group == p) for p in places}
    for method in METHODS:
        yield [method, *(mean_cell(found.get((p, method), []), best[p]) for p in places)]


def _leads(found: Found, places: Sequence[str]) -> Iterator[list[str]]:
    for method in METHODS:
        if method != OURS:
            yield [f"over {method}", *(gap_cell(found.get((p, OURS), []), found.get((p, method), [])) for p in places)]


if __name__ == "__main__":
    parts: dict[str, Sequence[Any]] = {"sets": list(CROWDS)}
    from_command_line(__doc__, study, show, seeds=5, out="results/answers", data=True, parts=parts)
