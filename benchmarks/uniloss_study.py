"""Does UniLoss help the metric it is given? Real data, equal budgets, and a control that knows no metric.

    python -m benchmarks.uniloss_study [--seeds 10] [--out results/uniloss] [--workers 2]

Each column is a data set and a metric. Every method gets the same network, batches, epochs and four learning rates; the
learning rate with the highest validation metric (mean of three search seeds) is used for fresh seeds, and the test
metric of those is reported. Methods:

    x-ent     cross-entropy
    uniloss   UniLoss with the column's metric (by hand where it has a name, else found in the metric's code)
    control   the same, with constants in place of the metric's values at the anchors: good 1, nearby the present value,
              bad 0. Only what beats it shows that the metric's values matter.
    direct    direct loss minimisation, where there is exact inference for the metric

Metrics of decisions are measured at the threshold 0 and, in a column of their own, at the threshold that is best on
validation data. A finished run is a line in ``records.jsonl``; the command can be stopped and goes on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer, load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics.functional import classification, retrieval

import directloss as dl
from directloss.lab.data import Part
from directloss.lab.records import Record, RecordFile, RunSpec, commit, make_record, read_records
from directloss.lab.reports.stats import estimate
from directloss.lab.runner import set_up_process
from directloss.lab.seeding import generator, seeded
from directloss.lab.training import Schedule, train

Metric = Callable[[Tensor, Tensor], Tensor]
LEARNING_RATES = (0.001, 0.003, 0.01, 0.03)
SEARCH_SEEDS = (1000, 1001, 1002)
EPOCHS, BATCH, HIDDEN = 40, 128, 64
VERSION = "1"
"""Part of every key: change it when the study's numbers change."""


@dataclass(frozen=True)
class Column:
    """Data, metric, and how each method sees it."""

    data: Callable[[], tuple[Tensor, Tensor]]
    metric: Metric
    uniloss: str | Metric
    direct: Callable[[Tensor, Tensor], Tensor] | None = None
    classes: int = 1
    thresholded: bool = False


@lru_cache
def digits() -> tuple[Tensor, Tensor]:
    data = load_digits()
    return torch.from_numpy(data.data).float() / 16, torch.from_numpy(data.target).long()


def digits_with_rare_classes() -> tuple[Tensor, Tensor]:
    """Classes 5 to 9 keep one image in eight."""
    x, y = digits()
    kept = (y < 5) | (torch.rand(len(y), generator=generator("rare classes")) < 1 / 8)
    return x[kept], y[kept]


def one_digit(digit: int, share: float = 1.0) -> tuple[Tensor, Tensor]:
    """One digit against the rest, perhaps with only a share of its images."""
    x, y = digits()
    kept = (y != digit) | (torch.rand(len(y), generator=generator("rare digit")) < share)
    return x[kept], (y[kept] == digit).long()


def breast_cancer() -> tuple[Tensor, Tensor]:
    """Standardised features; malignant is positive."""
    data = load_breast_cancer()
    x = torch.from_numpy(data.data).float()
    return (x - x.mean(0)) / x.std(0), 1 - torch.from_numpy(data.target).long()


def _binary(metric: Callable[..., Tensor], **options: object) -> Metric:
    """A torchmetrics function of logits."""
    return partial(_called, metric, options)


def _called(metric: Callable[..., Tensor], options: dict[str, object], scores: Tensor, target: Tensor) -> Tensor:
    return metric(scores, target, **options)


MACRO_F1 = _binary(classification.multiclass_f1_score, num_classes=10, average="macro")
F1 = _binary(classification.binary_f1_score)
F4 = _binary(classification.binary_fbeta_score, beta=4.0)
NDCG = _binary(retrieval.retrieval_normalized_dcg, top_k=10)

COLUMNS: dict[str, Column] = {
    "accuracy, digits": Column(
        digits, dl.metrics.accuracy, "accuracy", lambda s, t: dl.direct_loss(s, t, "accuracy", sign=-1), classes=10
    ),
    "macro-F1, digits, 5-9 rare": Column(digits_with_rare_classes, MACRO_F1, MACRO_F1, classes=10),
    "AP, digit 0": Column(
        partial(one_digit, 0), dl.metrics.average_precision, "ap", lambda s, t: dl.direct_loss(s, t, "ap")
    ),
    "AP, digit 8, rare": Column(
        partial(one_digit, 8, 0.25), dl.metrics.average_precision, "ap", lambda s, t: dl.direct_loss(s, t, "ap")
    ),
    "NDCG@10, digit 8, rare": Column(
        partial(one_digit, 8, 0.25), NDCG, NDCG, lambda s, t: dl.direct_loss(s, t, "ndcg@10")
    ),
    "F1, breast cancer": Column(
        breast_cancer, F1, F1, lambda s, t: dl.direct_loss(s, t, "f1", sign=-1), thresholded=True
    ),
    "F4, digit 8, rare": Column(
        partial(one_digit, 8, 0.25),
        F4,
        F4,
        lambda s, t: dl.direct_loss(s, t, dl.tasks.FBeta(4.0), sign=-1),
        thresholded=True,
    ),
}
METHODS = ("x-ent", "uniloss", "control", "direct")
RIVALS = ("x-ent", "control")


def loss_of(column: Column, method: str, seed: int) -> Callable[[Tensor, Tensor], Tensor]:
    if method == "x-ent":
        if column.classes > 1:
            return F.cross_entropy
        return lambda scores, target: F.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))
    if method == "direct":
        assert column.direct is not None
        return column.direct
    anchors = dl.Anchoring(control=method == "control")
    return dl.UniLoss(column.uniloss, anchors=anchors, generator=generator("anchors", seed))


def split(column: Column, seed: int) -> tuple[Part, Part, Part]:
    """Half for training, a quarter each for validation and test; each class is divided alike."""
    x, y = column.data()
    order = torch.randperm(len(y), generator=generator("study", seed))
    order = order[torch.argsort(y[order], stable=True)]
    place = torch.arange(len(y)) % 4
    return tuple(Part(x[chosen], y[chosen]) for chosen in (order[place < 2], order[place == 2], order[place == 3]))


def measured(model: nn.Module, column: Column, val: Part, test: Part) -> dict[str, float]:
    """Validation and test metric; for metrics of decisions also at the best threshold of the validation data."""
    scores = {"val": model(val.x), "test": model(test.x)}
    numbers = {"val_metric": column.metric(scores["val"], val.y), "test_metric": column.metric(scores["test"], test.y)}
    if column.thresholded:
        cuts = scores["val"].unique()
        values = torch.stack([column.metric(scores["val"] - cut, val.y) for cut in cuts])
        best = cuts[values.argmax()]
        numbers |= {"val_tuned": values.max(), "test_tuned": column.metric(scores["test"] - best, test.y)}
    return {name: round(float(value), 6) for name, value in numbers.items()}


def execute(name: str, method: str, seed: int, rate: float, stage: str) -> Record:
    """One training."""
    began = time.perf_counter()
    column = COLUMNS[name]
    part, val, test = split(column, seed)
    outputs = column.classes

    def build() -> nn.Module:
        layers = [nn.Linear(part.x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs)]
        return nn.Sequential(*layers, *([] if outputs > 1 else [nn.Flatten(0)]))

    model = seeded(build, "study weights", seed)
    schedule = Schedule(EPOCHS * (len(part) // BATCH), rate, batch_size=BATCH, seed=seed)
    trained = train(
        model, loss_of(column, method, seed), part, schedule, lambda network: measured(network, column, val, test)
    )
    spec = RunSpec("uniloss-study", stage, method, seed, 0.0, name, {"learning_rate": rate})
    record = make_record(
        spec,
        VERSION,
        metrics=trained.last,
        curve={},
        seconds=time.perf_counter() - began,
        diverged_at=trained.diverged_at,
    )
    return {**record, "commit": commit()}


def key(name: str, method: str, seed: int, rate: float, stage: str) -> str:
    return RunSpec("uniloss-study", stage, method, seed, 0.0, name, {"learning_rate": rate}).key(VERSION)


def cells() -> Iterator[tuple[str, str]]:
    for name, column in COLUMNS.items():
        for method in METHODS:
            if method != "direct" or column.direct is not None:
                yield name, method


def chosen_rate(records: RecordFile, name: str, method: str) -> float:
    """The learning rate with the best mean validation metric (at the tuned threshold, where there is one)."""
    kind = "val_tuned" if COLUMNS[name].thresholded else "val_metric"

    def mean(rate: float) -> float:
        found = [records.by_key[key(name, method, seed, rate, "search")]["metrics"][kind] for seed in SEARCH_SEEDS]
        return sum(found) / len(found)

    return max(LEARNING_RATES, key=mean)


def run(seeds: int, out: Path, workers: int) -> None:
    """Search, then final runs; what is recorded is not run again."""
    out.mkdir(parents=True, exist_ok=True)
    records = RecordFile(out)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=set_up_process) as pool:
        searches = [(n, m, s, r, "search") for n, m in cells() for r in LEARNING_RATES for s in SEARCH_SEEDS]
        _carry_out(pool, records, searches)
        finals = [(n, m, s, chosen_rate(records, n, m), "final") for n, m in cells() for s in range(seeds)]
        _carry_out(pool, records, finals)


def _carry_out(pool: ProcessPoolExecutor, records: RecordFile, runs: list[tuple[str, str, int, float, str]]) -> None:
    todo = [run for run in runs if key(*run) not in records]
    for count, done in enumerate(as_completed([pool.submit(execute, *run) for run in todo]), 1):
        record = done.result()
        records.append(record)
        if count % 20 == 0 or count == len(todo):
            print(f"{count}/{len(todo)} {record['stage']} {record['class']} {record['method']}", flush=True)


def show(records: list[Record]) -> str:
    """The table in Markdown: test metric in points, mean and 95 % interval, the best of a row in bold; and differences
    on the same seeds, bold where their interval does not contain zero.
    """
    head = ["metric and data", *METHODS, *(f"uniloss minus {rival}" for rival in RIVALS)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, column in COLUMNS.items():
        kinds = {"test_metric": name} | (
            {"test_metric": f"{name}, threshold 0", "test_tuned": f"{name}, tuned threshold"}
            if column.thresholded
            else {}
        )
        for kind, title in kinds.items():
            found = {m: _values(records, name, m, kind) for m in METHODS}
            best = max(sum(v) / len(v) for v in found.values() if v)
            cells = [_cell(found[m], best) for m in METHODS] + [_gap(found["uniloss"], found[m]) for m in RIVALS]
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _values(records: list[Record], name: str, method: str, kind: str) -> list[float]:
    found = [r for r in records if (r["stage"], r["class"], r["method"]) == ("final", name, method)]
    return [r["metrics"][kind] for r in sorted(found, key=lambda r: r["seed"])]


def _cell(values: list[float], best: float) -> str:
    if not values:
        return "-"
    spread = estimate(values)
    text = f"{100 * spread.mean:.1f} ± {100 * (spread.half or 0):.1f}"
    return f"**{text}**" if spread.mean >= best else text


def _gap(values: list[float], others: list[float]) -> str:
    if not values or len(values) != len(others):
        return "-"
    spread = estimate([mine - theirs for mine, theirs in zip(values, others, strict=True)])
    low, high = spread.mean - (spread.half or 0), spread.mean + (spread.half or 0)
    text = f"{100 * spread.mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
    return f"**{text}**" if low > 0 or high < 0 else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/uniloss"))
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    run(arguments.seeds, arguments.out, arguments.workers)
    print(show(read_records(arguments.out)))


if __name__ == "__main__":
    main()
