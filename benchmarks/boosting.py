"""Does boosting gain from rounds on the metric? LightGBM and XGBoost with and without them.

    python -m benchmarks.boosting --data-root DATA [--seeds 5] [--out results/boosting] [--workers 1]

``direct`` and ``direct, xgboost`` boost at most 100 rounds with cross-entropy (for grades with the library's NDCG) and
at most 100 with the metric; all others boost at most 200 rounds with their own objective. Validation data choose the
number of rounds, with a patience of 30. The learning rate is 0.1; trees have 15 leaves (LightGBM) or depth 4 (XGBoost).

Tables are samples: 10,000 rows of Census-Income and 6,000 images of Fashion-MNIST (shirts among clothes), half for
training, a quarter for validation and a quarter for testing; and the 86 queries of the MSLR sample. Ranking objectives
get a table as one list and use its first 500 positions, since their default of 30 is too few for lists of thousands.
MSLR has its queries, and the default.

With noise, 20 % of the labels are wrong in the training and validation parts; test labels are clean. For F1, all
methods use the threshold that is best on the validation part.

MSLR is read from DATA/mslr-sample/train.txt.gz and test.txt.gz, lines in the svmlight format with qid.
"""

from __future__ import annotations

import argparse
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import torch
import xgboost
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.records import Record
from directloss_repro.seeding import generator
from sklearn.datasets import load_svmlight_file

from benchmarks import tables
from benchmarks.study import from_command_line, gap_cell, mean_cell, table, values
from directloss.integrations.boosting import Evaluation, ScoredRows, train

RATE = 0.1
NOISES = (0.0, 0.2)
FIRST, THEN, PATIENCE = 100, 100, 30
TREES: dict[str, dict[str, Any]] = {
    "lightgbm": {"num_leaves": 15, "num_threads": 1, "deterministic": True},
    "xgboost": {"max_depth": 4, "nthread": 1},
}
OURS = ("direct", "direct, xgboost")
METHODS = {
    "direct": ("lightgbm", None),
    "binary": ("lightgbm", "binary"),
    "lambdarank": ("lightgbm", "lambdarank"),
    "rank_xendcg": ("lightgbm", "rank_xendcg"),
    "direct, xgboost": ("xgboost", None),
    "binary:logistic": ("xgboost", "binary:logistic"),
    "rank:map": ("xgboost", "rank:map"),
    "rank:ndcg": ("xgboost", "rank:ndcg"),
}
"""Library and objective."""
DEEP = {
    "lambdarank": {"lambdarank_truncation_level": 500},
    "rank:map": {"lambdarank_pair_method": "topk", "lambdarank_num_pair_per_sample": 500},
}
"""Options for lists of thousands."""
OF_YES_OR_NO = ("direct", "binary", "direct, xgboost", "binary:logistic")
COLUMNS = {
    "Fashion-MNIST, 6 / ap": (*OF_YES_OR_NO, "lambdarank", "rank_xendcg", "rank:map"),
    "census-income / ap": (*OF_YES_OR_NO, "lambdarank", "rank_xendcg", "rank:map"),
    "MSLR / ndcg@10": ("direct", "lambdarank", "direct, xgboost", "rank:ndcg", "rank_xendcg"),
    "Fashion-MNIST, 6 / f1": OF_YES_OR_NO,
    "census-income / f1": OF_YES_OR_NO,
}
STARTS = {
    "yes or no": {"direct": "binary", "direct, xgboost": "binary:logistic"},
    "MSLR": {"direct": "lambdarank", "direct, xgboost": "rank:ndcg"},
}
"""The objective that each starts with."""


class Rows(NamedTuple):
    """One part of a table."""

    x: np.ndarray
    y: np.ndarray
    sizes: np.ndarray


def parts(root: Path, name: str, seed: int, noise: float) -> list[Rows]:
    """Training, validation and test."""
    if name == "MSLR":
        return queries(root, seed, noise)
    found = tables.census_sample(root, 10_000) if name == "census-income" else halved(root)
    return [Rows(p.x.numpy(), p.y.numpy(), np.array([len(p.y)])) for p in tables.split(found, seed, noise)]


@lru_cache
def halved(root: Path) -> tables.Table:
    """Shirts among clothes, in images of half the width and height."""
    x, y = tables.image_class(root, "fashion-mnist", 6, 6_000)
    return torch.nn.functional.avg_pool2d(x.reshape(-1, 1, 28, 28), 2).flatten(1), y


@lru_cache
def mslr(root: Path, part: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y, query = load_svmlight_file(
        str(root / "mslr-sample" / f"{part}.txt.gz"), n_features=136, query_id=True, zero_based=False
    )
    return x.toarray().astype(np.float32), y.astype(np.int64), query


def queries(root: Path, seed: int, noise: float) -> list[Rows]:
    """Two thirds of the training file's queries to train on, one third to validate; the test file."""
    x, y, query = mslr(root, "train")
    names = np.unique(query)
    order = torch.randperm(len(names), generator=generator("mslr", seed)).numpy()
    cut = 2 * len(names) // 3
    wrong = tables.with_wrong(torch.from_numpy(y), noise, "mslr", seed).numpy()
    chosen = [np.isin(query, names[order[:cut]]), np.isin(query, names[order[cut:]])]
    test = mslr(root, "test")
    return [*(_rows(x[some], wrong[some], query[some]) for some in chosen), _rows(*test)]


def _rows(x: np.ndarray, y: np.ndarray, query: np.ndarray) -> Rows:
    order = np.argsort(query, kind="stable")
    return Rows(x[order], y[order], np.unique(query, return_counts=True)[1])


class Trainer:
    """One training run; knows where the files are, and can be sent to another process."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
        name, metric = str(cell.group).split(" / ")
        library, objective = METHODS[cell.method]
        fitting, held, test = parts(self.root, name, seed, cell.noise)
        grouped = name == "MSLR" or (objective or "").startswith(("rank", "lambda"))
        settings = {**TREES[library], **params, **({} if objective is None else {"objective": objective})}
        if name != "MSLR":
            settings |= DEEP.get(objective or "", {})
        first, then = (FIRST, THEN) if objective is None else (FIRST + THEN, 0)
        data, other = datasets(library, fitting, held, grouped)
        done = train(settings, data, metric, validation=other, first=first, then=then, patience=PATIENCE, seed=seed)
        sizes = test.sizes if name == "MSLR" else None
        scores = raw(library, done.booster, test.x) - done.threshold
        found = Evaluation(metric).value(ScoredRows(scores, test.y, None, sizes))
        return Outcome({"val": max(done.curve), "test": found, "first": done.first, "rounds": done.rounds})


def datasets(library: str, fitting: Rows, held: Rows, grouped: bool) -> tuple[Any, Any]:
    if library == "lightgbm":
        data = lightgbm.Dataset(fitting.x, fitting.y, group=fitting.sizes if grouped else None)
        return data, data.create_valid(held.x, held.y, group=held.sizes if grouped else None)
    found = []
    for part in (fitting, held):
        found.append(xgboost.DMatrix(part.x, part.y, nthread=1))
        if grouped:
            found[-1].set_group(part.sizes)
    return found[0], found[1]


def raw(library: str, booster: Any, x: np.ndarray) -> np.ndarray:
    if library == "lightgbm":
        return np.asarray(booster.predict(x, raw_score=True, num_threads=1))
    return np.asarray(booster.predict(xgboost.DMatrix(x, nthread=1), output_margin=True), dtype=np.float64)


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(Cell(c, m, noise) for c, methods in COLUMNS.items() for noise in NOISES for m in methods)
    return Campaign("boosting", "1", cells, _rate, Trainer(arguments.data_root), _by_validation, arguments.seeds)


def _rate(cell: Cell) -> list[dict[str, Any]]:
    return [{"learning_rate": RATE}]


def _by_validation(cell: Cell) -> str:
    return "val"


def show(records: list[Record]) -> str:
    """The test metric of every objective, and the lead of each of ours over its start on the same seeds."""
    places = [(column, noise) for column in COLUMNS for noise in NOISES]
    head = ["objective", *(f"{column}{f', {noise:.0%} wrong' if noise else ''}" for column, noise in places)]
    found = {(c, n, m): values(records, Cell(c, m, n), "test") for c, n in places for m in COLUMNS[c]}
    best = {
        (c, n): max((np.mean(found[c, n, m]) for m in COLUMNS[c] if found[c, n, m]), default=0.0) for c, n in places
    }
    rows = [[m, *(mean_cell(found.get((*p, m), []), best[p]) for p in places)] for m in METHODS]
    leads = [[m, *(gap_cell(found[*p, m], found[*p, start(p[0], m)]) for p in places)] for m in OURS]
    return f"{table(head, rows)}\n\n{table(['lead over its start', *head[1:]], leads)}"


def start(column: str, method: str) -> str:
    return STARTS["MSLR" if column.startswith("MSLR") else "yes or no"][method]


if __name__ == "__main__":
    from_command_line(__doc__, study, show, seeds=5, out="results/boosting", data=True)
