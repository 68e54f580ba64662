"""Any metric: `DirectLoss(function)` or `UniLoss(function)`, or the likelihood that you would take instead?

    python -m benchmarks.functions [--seeds 5] [--out results/functions] [--workers 2] [PARTS]
    python -m benchmarks.functions --show      the tables of what is stored

PARTS restrict it: ``--metrics profit pckh --methods direct uniloss``.

Five metrics that the library has no name for, written as plain functions of scores and target, on two problems each
(one for PCKh). Losses:

    direct, likelihood 1    `DirectLoss(function)`, which calls the function 65 times in a step
    direct                  the same with ``likelihood=0.1``, which was the default when the study began
    uniloss                 `UniLoss(function)`, which calls it 66 to 92 times: at 48 anchors, and to find out what it
                            compares
    likelihood              cross-entropy; squared error for Spearman; for PCKh that of the pixels near the keypoint
    gce                     generalised cross-entropy, q = 0.7 (Zhang and Sabuncu 2018), where the target holds classes

All train 300 steps of Adam in batches of 128 (8 for PCKh) on half of the rows. The learning rate, of three, with the
best validation metric in a search run is used for fresh seeds; every run takes the best of ten moments by the
validation metric. Wrong labels are in the training and in the validation rows; test labels are clean. Losses that do
not know the profit offer at the threshold that is best on the validation rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from statistics import mean, median
from typing import Any

import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.methods import cross_entropy, generalised_cross_entropy
from directloss_repro.records import Record
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import Schedule, train
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

import directloss as dl
from benchmarks import tables
from benchmarks.study import from_command_line, gap_cell, mean_cell, rates, table, values
from benchmarks.uniloss_study import digits_with_rare_classes

VERSION = "1"
STEPS, LOOKS, BATCH, IMAGES, HIDDEN = 300, 10, 128, 8, 64
RATES = (0.01, 0.03, 0.1)
NOISES = (0.0, 0.2)
CANVASES, CANVAS, PATCH, RADIUS = 1000, 24, 8, 1.0
Metric = Callable[[Tensor, Tensor], Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]

# ---------------------------------------------------------------------- the metrics


def profit(scores: Tensor, target: Tensor) -> Tensor:
    """An offer is made above a probability of 0.3; it costs 4 and gains 14. In units of the highest possible profit."""
    offered = torch.sigmoid(scores) > 0.3
    return (offered * (14 * target - 4)).sum() / (10 * target.sum()).clamp(min=1)


def macro_f1(scores: Tensor, target: Tensor) -> Tensor:
    """The mean over the classes of their F1."""
    classes = torch.arange(scores.shape[-1])[:, None]
    said, right = scores.argmax(-1) == classes, target == classes
    return (2 * (said & right).sum(1) / (said.sum(1) + right.sum(1)).clamp(min=1)).mean()


def spearman(scores: Tensor, target: Tensor) -> Tensor:
    """The rank correlation."""
    ranks = torch.stack([scores.argsort().argsort(), target.argsort().argsort()])
    return torch.corrcoef(ranks.double())[0, 1]


def recall_at_precision(scores: Tensor, target: Tensor) -> Tensor:
    """The highest recall with a precision of at least 0.8."""
    found = target[scores.argsort(descending=True)].cumsum(0)
    taken = torch.arange(1, len(found) + 1)
    return (found * (found >= 0.8 * taken)).max() / target.sum().clamp(min=1)


# ---------------------------------------------------------------------- the data


def diabetes() -> tables.Table:
    """442 patients and the standardised progression of their disease."""
    x, y = (torch.from_numpy(array).float() for array in load_diabetes(return_X_y=True))
    return x / x.std(0), (y - y.mean()) / y.std()


@lru_cache
def pasted_digits() -> tables.Table:
    """Noisy images with a digit and two patches of its pixels in random order; the pixels near its middle."""
    draw = generator("pasted digits")
    digits = tables.digits()[0][:CANVASES].reshape(-1, PATCH, PATCH)
    canvas, corner = torch.zeros(len(digits), CANVAS, CANVAS), torch.empty(len(digits), 2, dtype=torch.long)
    for image, digit, place in zip(canvas, digits, corner, strict=True):
        shuffled = [digit.flatten()[torch.randperm(PATCH**2, generator=draw)].view_as(digit) for _ in range(2)]
        for patch in (*shuffled, digit):  # the digit on top
            place.copy_(torch.randint(CANVAS - PATCH + 1, (2,), generator=draw))
            row, column = place.tolist()
            image[row : row + PATCH, column : column + PATCH] = patch
    middle = corner.flip(1)[:, None] + (PATCH - 1) / 2
    canvas = canvas + 0.3 * torch.randn(canvas.shape, generator=draw)
    return canvas[:, None], dl.metrics.within_radius(middle, RADIUS, (CANVAS, CANVAS))


def parts(problem: Problem, seed: int, noise: float) -> tuple[Part, Part, Part]:
    """Training, validation and test."""
    if not problem.images:
        return tables.split(problem.data(), seed, noise, name="functions")
    whole = Part(*problem.data())
    order = torch.randperm(len(whole), generator=generator("functions", seed))
    train, val, test = (whole.take(chosen) for chosen in order.tensor_split((len(whole) // 2, len(whole) * 3 // 4)))
    return train, val, test


# ---------------------------------------------------------------------- the problems


@dataclass(frozen=True)
class Problem:
    """Data, metric and network."""

    metric: str
    function: Metric
    data: Callable[[], tables.Table]
    hidden: int = HIDDEN
    """0 for a linear model."""
    classes: int = 1
    likelihood: Loss = lambda scores, target: cross_entropy(scores, target).mean()
    labelled: bool = True
    """Whether the target holds classes."""
    tuned: bool = False
    """Whether the metric has a threshold."""

    @property
    def images(self) -> bool:
        return self.metric == "pckh"

    def network(self, inputs: int) -> nn.Module:
        if self.images:
            same = partial(nn.Conv2d, kernel_size=3, padding="same")
            return nn.Sequential(
                *(same(1, 16), nn.ReLU(), same(16, 16, dilation=2), nn.ReLU(), same(16, 16, dilation=2), nn.ReLU()),
                same(16, 1),
            )
        if not self.hidden:
            layers: list[nn.Module] = [nn.Linear(inputs, self.classes)]
        else:
            layers = [nn.Linear(inputs, self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.classes)]
        return nn.Sequential(*layers, *([] if self.classes > 1 else [nn.Flatten(0)]))


def of_near_pixels(heatmaps: Tensor, near: Tensor) -> Tensor:
    """Minus the logarithm of the probability, by softmax, of the pixels near the keypoint."""
    logs = heatmaps.flatten(1).log_softmax(1)
    return -logs.masked_fill(near.flatten(1) == 0, -torch.inf).logsumexp(1).mean()


def squared_error(scores: Tensor, target: Tensor) -> Tensor:
    return (scores - target).square().mean()


_ranked = partial(Problem, "spearman", spearman, diabetes, likelihood=squared_error, labelled=False)
_macro = partial(Problem, "macro F1", macro_f1, digits_with_rare_classes, classes=10)
_recall = partial(Problem, "recall", recall_at_precision)
PROBLEMS: dict[str, Problem] = {
    "profit, yeast1, linear": Problem("profit", profit, partial(tables.keel, "yeast1"), 0, tuned=True),
    "profit, page-blocks0, network": Problem("profit", profit, partial(tables.keel, "page-blocks0"), tuned=True),
    "macro F1, digits with rare classes, linear": _macro(hidden=0),
    "macro F1, digits with rare classes, network": _macro(),
    "recall at precision 0.8, page-blocks0, linear": _recall(partial(tables.keel, "page-blocks0"), 0),
    "recall at precision 0.8, digit 8, network": _recall(partial(tables.digit, 8)),
    "Spearman correlation, diabetes, linear": _ranked(hidden=0),
    "Spearman correlation, diabetes, network": _ranked(),
    "PCKh, pasted digits, convolutions": Problem(
        "pckh", dl.metrics.pck_from_within, pasted_digits, likelihood=of_near_pixels, labelled=False
    ),
}
METRICS = tuple(dict.fromkeys(problem.metric for problem in PROBLEMS.values()))
OURS, MORE, RELAXED, BASE, ROBUST = "direct", "direct, likelihood 1", "uniloss", "likelihood", "gce"
METHODS = (OURS, MORE, RELAXED, BASE, ROBUST)
OF_LABELS = (MORE, ROBUST)
LEADS = ((OURS, RELAXED), (OURS, BASE), (MORE, RELAXED), (MORE, BASE), (RELAXED, BASE))

# ---------------------------------------------------------------------- a run


class Counted:
    """A metric that counts how often it is evaluated."""

    def __init__(self, function: Metric) -> None:
        self.function, self.evaluations, self.__name__ = function, 0, str(getattr(function, "__name__", "metric"))

    def __call__(self, scores: Tensor, target: Tensor) -> Tensor:
        value = self.function(scores, target)
        self.evaluations += value.numel()
        return value


class Timed:
    """A loss that notes the processor time of each call, forward and backward, in milliseconds."""

    def __init__(self, loss: Loss) -> None:
        self.loss, self.times = loss, [0.0]

    def __call__(self, scores: Tensor, target: Tensor) -> Tensor:
        began, leaf = time.process_time(), scores.detach().requires_grad_()
        value = self.loss(leaf, target)
        (slope,) = torch.autograd.grad(value, leaf)
        self.times.append(1000 * (time.process_time() - began))
        return (scores * slope).sum()  # its gradient is that of the loss


def loss_of(problem: Problem, method: str, function: Metric, draw: torch.Generator) -> Loss:
    if method in (OURS, MORE):
        return dl.DirectLoss(function, likelihood=0.1 if method == OURS else 1.0, generator=draw)
    if method == RELAXED:
        return dl.UniLoss(function, generator=draw)
    robust: Loss = lambda scores, target: generalised_cross_entropy(scores, target).mean()  # noqa: E731
    return problem.likelihood if method == BASE else robust


def measured(problem: Problem, tuned: bool, val: Part, test: Part, model: nn.Module) -> dict[str, float]:
    """Validation and test metric; if ``tuned``, with the scores shifted to the threshold that is best on the former."""
    known, new = model(val.x), model(test.x)
    if tuned:
        ends = torch.cat((known.sort().values, known.max()[None] + 1))
        cuts = (ends[1:] + ends[:-1]) / 2 - torch.logit(torch.tensor(0.3))
        cut = cuts[torch.stack([problem.function(known - cut, val.y) for cut in cuts]).argmax()]
        known, new = known - cut, new - cut
    return {"val": float(problem.function(known, val.y)), "test": float(problem.function(new, test.y))}


def train_cell(cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One training."""
    problem = PROBLEMS[str(cell.group)]
    part, val, test = parts(problem, seed, cell.noise)
    model = seeded(lambda: problem.network(part.x.shape[1]), "functions", seed)
    counted = Counted(problem.function)
    loss = Timed(loss_of(problem, cell.method, counted, generator("functions draws", seed)))
    size = IMAGES if problem.images else BATCH
    schedule = Schedule(STEPS, params["learning_rate"], evaluate_every=STEPS // LOOKS, batch_size=size, seed=seed)
    tuned = problem.tuned and cell.method in (BASE, ROBUST)
    trained = train(model, loss, part, schedule, partial(measured, problem, tuned, val, test))
    best, calls = trained.best("val"), max(1, len(loss.times) - 1)
    metrics = {"val": best["val"], "test": best["test"], "last": trained.last["test"]}
    cost = {"ms": round(median(loss.times[1:]), 2), "evaluations": round(counted.evaluations / calls, 1)}
    return Outcome(metrics, trained.diverged_at, shown=cost)


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(
        Cell(name, method, noise)
        for name, problem in PROBLEMS.items()
        if problem.metric in arguments.metrics
        for noise in (NOISES if problem.labelled else (0.0,))
        for method in METHODS
        if method in arguments.methods and (problem.labelled or method not in OF_LABELS)
    )
    return Campaign("functions", VERSION, cells, rates(*RATES), train_cell, lambda cell: "val", arguments.seeds)


# ---------------------------------------------------------------------- the tables


def show(records: list[Record]) -> str:
    """Test metric of each loss in points, and the leads of ours; then what a step costs."""
    places = list(dict.fromkeys((str(r.group), r.noise or 0.0) for r in records if r.stage == "final"))
    head = ["metric, data, model", *METHODS, *(f"{one} - {other}" for one, other in LEADS)]
    cost = table(["metric", *(f"{method}: ms, evaluations" for method in METHODS)], _costs(records))
    return "\n\n".join(
        [
            "**Test metric in points**",
            table(head, _rows(records, places)),
            "**Processor time of a step of the loss, and evaluations of the metric**",
            cost,
        ]
    )


def _rows(records: list[Record], places: list[tuple[str, float]]) -> Iterator[list[str]]:
    for name, noise in places:
        found = {method: values(records, Cell(name, method, noise), "test") for method in METHODS}
        best = max(mean(numbers) for numbers in found.values() if numbers)
        gaps = [gap_cell(found[one], found[other]) for one, other in LEADS]
        title = f"{name}, {noise:.0%} wrong" if noise else name
        yield [title, *(mean_cell(numbers, best) for numbers in found.values()), *gaps]


def _costs(records: list[Record]) -> Iterator[list[str]]:
    for metric in METRICS:
        cells = []
        for method in METHODS:
            found = [r.shown for r in records if r.method == method and PROBLEMS[str(r.group)].metric == metric]
            ms, evaluations = (median(one[name] for one in found) if found else None for name in ("ms", "evaluations"))
            cells.append("-" if ms is None else f"{ms:.1f}, {evaluations:.0f}")
        if set(cells) != {"-"}:
            yield [metric, *cells]


if __name__ == "__main__":
    offered = {"metrics": list(METRICS), "methods": list(METHODS)}
    from_command_line(__doc__, study, show, seeds=5, out="results/functions", parts=offered)
