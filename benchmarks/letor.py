"""Learning to rank on MQ2008 (LETOR 4.0), its five official folds: linear scorers, networks and boosted trees.

    python -m benchmarks.letor --data-root DATA [--seeds 2] [--out results/letor] [--workers 1]

Fold 1 trains on the parts S1 to S3, validates on S4 and tests on S5; the others rotate. With noise, 20 % of the
documents of the training and validation parts get the grade of a random document of their part, which may be the same;
test grades are right. Each fold is repeated with other seeds (noise, first weights, order of batches, random numbers of
the library) and counts once, as the mean of its repeats. Intervals are over the five folds, of differences on the same
fold.

Metrics are NDCG@10 with gains ``2^grade - 1`` and MAP of grades above 0. A query without relevant documents counts as 0
in both. Documents with equal scores share their ranks.

Linear scorers and networks with one hidden layer of 64: Adam, 400 steps on 32 queries, whose lists are padded. The
validation metric chooses one of four learning rates and one of ten looks, for each fold and metric. Losses:
`DirectLoss` of NDCG@10 and of AP with its defaults, ListNet (Cao et al. 2007), approximate NDCG (Qin et al. 2010) at
temperature 1, and cross-entropy of each document.

Trees: 120 rounds at a learning rate of 0.1, with 15 leaves (LightGBM) or depth 4 (XGBoost, CatBoost); the validation
metric chooses the number of rounds. ``then the metric`` boosts at most 60 rounds with the library's own objective and
at most 60 with the metric that is judged (`directloss.integrations.boosting`).

Files: DATA/mq2008/S1.txt to S5.txt, lines in the svmlight format with qid, or the same packed by xz.
CatBoost is left out if it is not installed (``pip install catboost==1.2.10``).
"""

from __future__ import annotations

import argparse
import importlib.util
import lzma
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import torch
import xgboost
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.records import Record
from directloss_repro.reports.stats import estimate
from directloss_repro.seeding import derive, generator
from sklearn.datasets import load_svmlight_file
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils.rnn import pad_sequence

import directloss as dl
from benchmarks.stacked import Networks
from benchmarks.study import from_command_line, table
from directloss._checks import fail
from directloss.integrations.boosting import train
from directloss.noise import DRAWN, DRAWN_IN_ALL

FOLDS, FEATURES = 5, 46
NOISES = (0.0, 0.2)
METRICS = {"ndcg": "NDCG@10", "map": "MAP"}
BATCH, STEPS, LOOKS, HIDDEN = 32, 400, 10, 64
RATES = (0.001, 0.003, 0.01, 0.03)
MODELS = {"linear": 0, "mlp": HIDDEN}
ROUNDS, FIRST, PATIENCE, TREE_RATE = 120, 60, 30, 0.1
NO_CATBOOST = "CatBoost is not installed: its rows are left out. To fill them: pip install catboost==1.2.10"

# ---------------------------------------------------------------------- the data


class Queries(NamedTuple):
    """All documents, query by query."""

    x: Tensor
    """``(documents, 46)``."""
    grades: Tensor
    """``(documents,)``."""
    starts: Tensor
    """First document of each query."""
    lengths: Tensor
    """Number of documents of each query."""
    part: Tensor
    """Which of the five parts a query is in."""

    def of(self, parts: list[int]) -> Tensor:
        """The queries of some parts."""
        return torch.isin(self.part, torch.tensor(parts)).nonzero().squeeze(1)

    def documents(self, parts: list[int]) -> Tensor:
        """The documents of some parts."""
        return torch.isin(self.part, torch.tensor(parts)).repeat_interleave(self.lengths).nonzero().squeeze(1)


@lru_cache
def queries(root: Path) -> Queries:
    """The five parts."""
    found = [_read(root / "mq2008", f"S{part + 1}.txt") for part in range(FOLDS)]
    lengths = [np.unique(query, return_counts=True)[1] for _, _, query in found]
    counts = torch.from_numpy(np.concatenate(lengths))
    return Queries(
        torch.from_numpy(np.concatenate([x for x, *_ in found])),
        torch.from_numpy(np.concatenate([y for _, y, _ in found])),
        counts.cumsum(0) - counts,
        counts,
        torch.arange(FOLDS).repeat_interleave(torch.tensor([len(part) for part in lengths])),
    )


def _read(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, grades and queries of a file, in the order of the queries."""
    path = next((path for path in (folder / name, folder / f"{name}.xz") if path.is_file()), None)
    if path is None:
        fail("data-root", f"must hold mq2008/{name} or mq2008/{name}.xz", "a folder without it")
    with (lzma.open if path.suffix == ".xz" else open)(path, "rb") as file:
        x, y, query = load_svmlight_file(file, n_features=FEATURES, query_id=True, zero_based=False)
    order = np.argsort(query, kind="stable")
    return x.toarray().astype(np.float32)[order], y.astype(np.int64)[order], query[order]


class Split(NamedTuple):
    """The numbers of the training, validation and test parts of a fold."""

    train: list[int]
    val: list[int]
    test: list[int]


def split(fold: int) -> Split:
    """Fold 0 is the one that LETOR calls Fold1.

    Examples:
        >>> split(0)
        Split(train=[0, 1, 2], val=[3], test=[4])
    """
    first, second, third, val, test = ((fold + place) % FOLDS for place in range(FOLDS))
    return Split([first, second, third], [val], [test])


def noisy_grades(data: Queries, fold: int, noise: float, repeat: int) -> Tensor:
    """Grades of all documents; in the training and validation parts, a share is that of a random document."""
    grades, parts = data.grades.clone(), split(fold)
    for name, some in (("train", parts.train), ("val", parts.val)):
        rows, draw = data.documents(some), generator("letor", name, fold, repeat)
        chosen = rows[torch.randperm(len(rows), generator=draw)[: round(noise * len(rows))]]
        grades[chosen] = data.grades[rows[torch.randint(len(rows), (len(chosen),), generator=draw)]]
    return grades


class Lists(NamedTuple):
    """The queries of s networks as lists, and the documents that they need."""

    rows: Tensor
    """Documents ``(s, m)``; where a network has fewer, the first document of all."""
    place: Tensor
    """Where in ``rows`` the items of the lists are: ``(s, b, n)``."""
    mask: Tensor
    """False for padding: ``(s, b, n)``."""

    def of_rows(self, values: Tensor) -> Tensor:
        """Values ``(s * r, m)`` as lists ``(s * r, b, n)``."""
        place = self.place.repeat_interleave(len(values) // len(self.place), 0)
        return values.gather(1, place.flatten(1)).view(place.shape)


def lists(data: Queries, chosen: Tensor) -> Lists:
    """The lists of queries ``(s, b)``; -1 is a query without documents."""
    lengths, starts = torch.where(chosen < 0, 0, data.lengths[chosen]), data.starts[chosen]
    item = torch.arange(int(lengths.max()))
    mask = item < lengths.unsqueeze(2)
    place = torch.where(mask, (lengths.cumsum(1) - lengths).unsqueeze(2) + item, 0)
    rows = torch.zeros(len(chosen), int(lengths.sum(1).max()), dtype=torch.long)
    network = torch.arange(len(chosen)).view(-1, 1, 1).expand_as(mask)
    rows[network[mask], place[mask]] = (starts.unsqueeze(2) + item)[mask]
    return Lists(rows, place, mask)


def measured(scores: Tensor, grades: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Both metrics of lists ``(..., q, n)``, averaged over the queries; 0 for a query without relevant documents."""
    grades, mask = (values.expand_as(scores) for values in (grades, mask))
    count = mask.any(-1).sum(-1)
    found = {
        "ndcg": dl.metrics.graded_ndcg(scores, grades, k=10, mask=mask),
        "map": dl.metrics.average_precision(scores, (grades > 0).long(), mask=mask),
    }
    return {name: values.double().nan_to_num(0.0).sum(-1) / count for name, values in found.items()}


# ---------------------------------------------------------------------- linear scorers and networks

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From scores, grades and mask of lists ``(m, b, n)`` of m networks to a number."""


def direct(metric: str, draw: torch.Generator) -> Loss:
    """Ours with the defaults; every network has as many draws as if it were alone."""

    def loss(scores: Tensor, grades: Tensor, mask: Tensor) -> Tensor:
        target = (grades > 0).long() if metric == "ap" else grades
        samples = max(1, min(DRAWN // scores.shape[2], DRAWN_IN_ALL // scores[0].numel()))
        return dl.direct_loss(
            scores.flatten(0, 1), target.flatten(0, 1), metric, mask=mask.flatten(0, 1), samples=samples,
            generator=draw, check_values=False,
        )  # fmt: skip

    return loss


def listnet(scores: Tensor, grades: Tensor, mask: Tensor) -> Tensor:
    """Cao et al. 2007: cross-entropy between the softmax of the grades and that of the scores."""
    wanted = grades.to(scores.dtype).masked_fill(~mask, -torch.inf).softmax(-1)
    log = scores.masked_fill(~mask, -torch.inf).log_softmax(-1).masked_fill(~mask, 0.0)
    return -(wanted * log).sum(-1).mean()


def approximate_ndcg(scores: Tensor, grades: Tensor, mask: Tensor, temperature: float = 1.0) -> Tensor:
    """Qin et al. 2010: NDCG of ranks that are sums of sigmoids."""
    scores, grades, mask = (values.flatten(0, 1) for values in (scores, grades, mask))
    lengths, total = mask.sum(-1), torch.zeros(())
    for least, most in ((0, 16), (16, 48), (48, mask.shape[1])):  # pairs of padding would take most of the time
        some = ((lengths > least) & (lengths <= most)).nonzero().squeeze(1)
        if len(some):
            total = total + _approximate_ndcg(*(values[some, :most] for values in (scores, grades, mask)), temperature)
    return 1 - total / len(lengths)


def _approximate_ndcg(scores: Tensor, grades: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """Sum over the lists ``(b, n)``. Only relevant documents need their ranks."""
    gains = (torch.exp2(grades.to(scores.dtype)) - 1).masked_fill(~mask, 0.0)
    most = max(1, int((gains > 0).sum(-1).max()))
    best, place = gains.topk(most, -1)
    difference = (scores.unsqueeze(-2) - scores.gather(-1, place).unsqueeze(-1)) / temperature
    ranks = 0.5 + (difference.sigmoid() * mask.unsqueeze(-2)).sum(-1)  # its own sigmoid is one half
    ideal = (best / torch.log2(torch.arange(2.0, most + 2))).sum(-1)
    return ((best / torch.log2(1 + ranks)).sum(-1) / ideal.clamp(min=1e-9)).sum()


def by_document(scores: Tensor, grades: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy of each document: is it relevant?"""
    each = binary_cross_entropy_with_logits(scores, (grades > 0).to(scores.dtype), reduction="none")
    return (each * mask).sum() / mask.sum()


LOSSES: dict[str, Callable[[torch.Generator], Loss]] = {
    "direct-ndcg@10": partial(direct, "graded_ndcg@10"),
    "direct-ap": partial(direct, "ap"),
    "ListNet": lambda draw: listnet,
    "approximate NDCG": lambda draw: approximate_ndcg,
    "x-ent": lambda draw: by_document,
}


def train_networks(data: Queries, cell: Cell, repeats: int) -> dict[str, Tensor]:
    """Test metrics ``(folds, repeats)``: all folds, repeats and rates at once."""
    places = [(fold, repeat) for fold in range(FOLDS) for repeat in range(repeats)]
    grades = torch.stack([noisy_grades(data, fold, cell.noise, repeat) for fold, repeat in places])
    known = [data.x[data.documents(split(fold).train)] for fold, _ in places]
    middle = torch.stack([x.mean(0) for x in known]).unsqueeze(1)
    spread = torch.stack([x.std(0) for x in known]).unsqueeze(1)
    spread = torch.where(spread > 0, spread, 1.0)
    networks = Networks(FEATURES, MODELS[str(cell.group)], 1, [derive("letor", *place) for place in places], RATES)
    loss = LOSSES[cell.method](generator("letor noise", cell.noise))
    draws = [generator("letor batches", *place) for place in places]
    fitting = [data.of(split(fold).train) for fold, _ in places]
    held, test = (
        lists(data, pad_sequence([data.of(getattr(split(fold), name)) for fold, _ in places], True, -1))
        for name in ("val", "test")
    )

    def scored(some: Lists) -> Tensor:
        scores = networks((data.x[some.rows] - middle) / spread)
        return some.of_rows(scores.nan_to_num(0.0, 0.0, 0.0))

    def labels(some: Lists) -> Tensor:
        return some.of_rows(grades.gather(1, some.rows)).repeat_interleave(len(RATES), 0)

    best = {name: torch.full((len(places) * len(RATES),), -torch.inf, dtype=torch.float64) for name in METRICS}
    found = {name: torch.zeros_like(values) for name, values in best.items()}
    orders: list[Tensor] = []
    for step in range(1, STEPS + 1):
        if not orders:
            epoch = [some[torch.randperm(len(some), generator=draw)] for some, draw in zip(fitting, draws, strict=True)]
            count = min(map(len, epoch)) // BATCH  # a rest that is smaller than a batch is dropped
            orders = list(torch.stack([order[: count * BATCH] for order in epoch]).split(BATCH, 1))
        batch = lists(data, orders.pop())
        networks.step(loss(scored(batch), labels(batch), batch.mask.repeat_interleave(len(RATES), 0)))
        if step * LOOKS % STEPS < LOOKS:
            with torch.no_grad():
                values, tests = (
                    measured(scored(some), labels(some), some.mask.repeat_interleave(len(RATES), 0))
                    for some in (held, test)
                )
            for name, value in values.items():
                better = value > best[name]
                best[name] = torch.where(better, value, best[name])
                found[name] = torch.where(better, tests[name], found[name])
    return {name: _of_best_rate(best[name], found[name]).view(FOLDS, repeats) for name in METRICS}


def _of_best_rate(val: Tensor, test: Tensor) -> Tensor:
    val, test = (values.view(-1, len(RATES)) for values in (val, test))
    return test.gather(1, val.argmax(1, keepdim=True)).squeeze(1)


# ---------------------------------------------------------------------- trees


class Rows(NamedTuple):
    """The documents of one part of a fold."""

    x: np.ndarray
    grades: np.ndarray
    sizes: np.ndarray
    """The number of documents of each query."""


class Fold(NamedTuple):
    """What trees train on and are judged by."""

    train: Rows
    val: Rows
    test: Rows


def fold_of(data: Queries, fold: int, noise: float, repeat: int) -> Fold:
    grades = noisy_grades(data, fold, noise, repeat)
    found = []
    for parts in split(fold):
        rows = data.documents(parts)
        found.append(Rows(data.x[rows].numpy(), grades[rows].numpy(), data.lengths[data.of(parts)].numpy()))
    return Fold(*found)


def judged_rows(scores: np.ndarray, rows: Rows) -> dict[str, Tensor]:
    """Both metrics of scores ``(..., documents)``."""
    sizes = torch.from_numpy(rows.sizes)
    item = torch.arange(int(sizes.max()))
    mask = item < sizes[:, None]
    place = torch.where(mask, (sizes.cumsum(0) - sizes)[:, None] + item, 0)
    grades = torch.from_numpy(rows.grades)[place]
    return measured(torch.from_numpy(np.ascontiguousarray(scores))[..., place], grades, mask)


Rounds = Callable[[np.ndarray], np.ndarray]
"""From documents to their scores after each round, ``(rounds, documents)``."""


def lightgbm_rounds(objective: str, fold: Fold, seed: int) -> Rounds:
    data = lightgbm.Dataset(fold.train.x, fold.train.grades, group=fold.train.sizes)
    booster = lightgbm.train({**TREES["lightgbm"], "objective": objective, "seed": seed}, data, ROUNDS)

    def scores(x: np.ndarray) -> np.ndarray:
        steps = range(booster.num_trees())
        each = [booster.predict(x, start_iteration=k, num_iteration=1, raw_score=True, num_threads=1) for k in steps]
        return np.cumsum(each, 0)

    return scores


def xgboost_rounds(objective: str, fold: Fold, seed: int) -> Rounds:
    grades = fold.train.grades > 0 if objective == "rank:map" else fold.train.grades  # it knows only yes and no
    data = xgboost.DMatrix(fold.train.x, grades, nthread=1)
    data.set_group(fold.train.sizes)
    booster = xgboost.train({**TREES["xgboost"], "objective": objective, "seed": seed}, data, ROUNDS)

    def scores(x: np.ndarray) -> np.ndarray:
        rows = xgboost.DMatrix(x, nthread=1)
        each = [booster.predict(rows, iteration_range=(k, k + 1), output_margin=True) for k in range(ROUNDS)]
        return np.cumsum(np.asarray(each, dtype=np.float64), 0)

    return scores


def catboost_rounds(objective: str, fold: Fold, seed: int) -> Rounds:
    import catboost  # optional

    query = np.repeat(np.arange(len(fold.train.sizes)), fold.train.sizes)
    model = catboost.CatBoost({**TREES["catboost"], "loss_function": objective, "random_seed": seed})
    model.fit(catboost.Pool(fold.train.x, fold.train.grades, group_id=query))
    return lambda x: np.stack(list(model.staged_predict(x, thread_count=1)))


TREES: dict[str, dict[str, Any]] = {
    "lightgbm": {
        "num_leaves": 15, "learning_rate": TREE_RATE, "num_threads": 1, "deterministic": True, "verbosity": -1,
    },
    "xgboost": {"max_depth": 4, "learning_rate": TREE_RATE, "nthread": 1},
    "catboost": {
        "depth": 4, "learning_rate": TREE_RATE, "iterations": ROUNDS, "thread_count": 1, "logging_level": "Silent",
        "allow_writing_files": False,
    },
}  # fmt: skip
THEN = {"LightGBM, then the metric": "lightgbm", "XGBoost, then the metric": "xgboost"}
"""Ours -> library."""
OBJECTIVES: dict[str, Callable[[Fold, int], Rounds]] = {
    "LightGBM lambdarank": partial(lightgbm_rounds, "lambdarank"),
    "LightGBM rank_xendcg": partial(lightgbm_rounds, "rank_xendcg"),
    "XGBoost rank:ndcg": partial(xgboost_rounds, "rank:ndcg"),
    "XGBoost rank:map": partial(xgboost_rounds, "rank:map"),
    "CatBoost YetiRank": partial(catboost_rounds, "YetiRank"),
    "CatBoost YetiRank, NDCG": partial(catboost_rounds, "YetiRank:mode=NDCG;top=10;type=Exp"),
    "CatBoost StochasticRank": partial(catboost_rounds, "StochasticRank:metric=NDCG;top=10;type=Exp"),
}
"""The libraries' own objectives."""


def boosted(objective: Callable[[Fold, int], Rounds], fold: Fold, seed: int) -> dict[str, float]:
    """Test metrics after the number of rounds that is best on the validation part, for each metric."""
    scores = objective(fold, seed)
    values = judged_rows(scores(fold.val.x), fold.val)
    tests = judged_rows(scores(fold.test.x), fold.test)
    return {name: float(tests[name][int(values[name].argmax())]) for name in METRICS}


def boosted_on_metric(library: str, fold: Fold, seed: int) -> dict[str, float]:
    """Test metrics of our rounds, trained once for each metric."""
    found = {}
    for name, metric in (("ndcg", "ndcg@10"), ("map", "ap")):
        data, other = _datasets(library, fold, binary=name == "map")
        done = train(
            {**TREES[library], "seed": seed}, data, metric, validation=other, first=FIRST, then=ROUNDS - FIRST,
            patience=PATIENCE, seed=seed,
        )  # fmt: skip
        if library == "lightgbm":
            scores = done.booster.predict(fold.test.x, raw_score=True, num_threads=1)
        else:
            scores = done.booster.predict(xgboost.DMatrix(fold.test.x, nthread=1), output_margin=True)
        found[name] = float(judged_rows(np.asarray(scores, dtype=np.float64), fold.test)[name])
    return found


def _datasets(library: str, fold: Fold, binary: bool) -> tuple[Any, Any]:
    labels = [(rows.grades > 0).astype(np.int64) if binary else rows.grades for rows in fold[:2]]
    if library == "lightgbm":
        data = lightgbm.Dataset(fold.train.x, labels[0], group=fold.train.sizes)
        return data, data.create_valid(fold.val.x, labels[1], group=fold.val.sizes)
    found = []
    for rows, its in zip(fold[:2], labels, strict=True):
        found.append(xgboost.DMatrix(rows.x, its, nthread=1))
        found[-1].set_group(rows.sizes)
    return found[0], found[1]


def train_trees(data: Queries, cell: Cell, repeats: int) -> dict[str, Tensor]:
    """Test metrics ``(folds, repeats)``."""
    found: dict[str, list[float]] = {name: [] for name in METRICS}
    for fold in range(FOLDS):
        for repeat in range(repeats):
            some = fold_of(data, fold, cell.noise, repeat)
            if cell.method in THEN:
                values = boosted_on_metric(THEN[cell.method], some, repeat)
            else:
                values = boosted(OBJECTIVES[cell.method], some, repeat)
            for name, value in values.items():
                found[name].append(value)
    return {name: torch.tensor(values, dtype=torch.float64).view(FOLDS, repeats) for name, values in found.items()}


# ---------------------------------------------------------------------- the study and its tables

TREE_GROUP = "trees"
METHODS = {**dict.fromkeys(MODELS, tuple(LOSSES)), TREE_GROUP: (*THEN, *OBJECTIVES)}
BASE = {**dict.fromkeys(MODELS, "ListNet"), TREE_GROUP: "LightGBM lambdarank"}
"""What the others of a group are compared with."""


def train_cell(root: Path, repeats: int, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """All folds of a cell."""
    found = (train_trees if cell.group == TREE_GROUP else train_networks)(queries(root), cell, repeats)
    numbers = {
        f"{name} {fold + 1}-{repeat}": float(values[fold, repeat])
        for name, values in found.items()
        for fold in range(FOLDS)
        for repeat in range(repeats)
    }
    return Outcome({**{name: float(values.mean()) for name, values in found.items()}, **numbers})


def study(arguments: argparse.Namespace) -> Campaign:
    """Trees with CatBoost only if it is there, or if nothing is trained."""
    without = importlib.util.find_spec("catboost") is None and not arguments.show
    if without:
        print(NO_CATBOOST, file=sys.stderr)
    cells = tuple(
        Cell(group, method, noise)
        for group in METHODS
        for noise in NOISES
        for method in METHODS[group]
        if not (without and method.startswith("CatBoost"))
    )
    trainer = partial(train_cell, arguments.data_root, arguments.seeds)
    version = f"1, {arguments.seeds} repeats"
    return Campaign("letor", version, cells, lambda cell: [{}], trainer, lambda cell: "ndcg", seeds=1)


def of_folds(records: list[Record], group: str, method: str, noise: float, metric: str) -> list[float]:
    """The metric of each fold, mean over its repeats; empty if it was not measured."""
    for record in records:
        if (record.group, record.method, record.noise) == (group, method, noise):
            return [
                mean(value for name, value in record.metrics.items() if name.startswith(f"{metric} {fold + 1}-"))
                for fold in range(FOLDS)
            ]
    return []


def show(records: list[Record]) -> str:
    """Test metrics in points, and in brackets the lead over the group's reference with half of its 95 % interval."""
    columns = [(metric, noise) for metric in METRICS for noise in NOISES]
    head = [f"{METRICS[metric]}, {f'{noise:.0%} redrawn' if noise else 'clean'}" for metric, noise in columns]
    pieces = []
    for group, methods in METHODS.items():
        rows = []
        for method in methods:
            rows.append([method])
            for metric, noise in columns:
                mine, base = (of_folds(records, group, name, noise, metric) for name in (method, BASE[group]))
                rows[-1].append(_cell(mine, base, method == BASE[group]))
        pieces.append(table([group, *head], rows))
    return "\n\n".join(pieces)


def _cell(mine: list[float], base: list[float], is_base: bool) -> str:
    if not mine:
        return "-"
    text = f"{100 * mean(mine):.1f}"
    if is_base or not base:
        return text
    lead = estimate([a - b for a, b in zip(mine, base, strict=True)])
    shown = f"({100 * lead.mean:+.1f} ± {100 * lead.half:.1f})"
    return f"{text} {shown}" if lead.has_zero else f"{text} **{shown}**"


if __name__ == "__main__":
    from_command_line(__doc__, study, show, seeds=2, out="results/letor", data=True)
