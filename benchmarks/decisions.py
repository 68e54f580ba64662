"""Predict, then optimise: `DirectLoss` with nothing set, beside the losses of PyEPO on PyEPO's own data.

    python -m benchmarks.decisions [--seeds 5] [--out results/decisions] [--workers 2]        (after pip install pyepo)

A column is a problem of PyEPO's generators with 5 features (10 for tours): shortest paths on a 5 x 5 grid with costs of
degree 1, 2, 4 and 6 in the features, knapsacks of 32 items in 2 and 3 dimensions with capacity 20, and tours of 20
nodes, both of degree 4. "noise" is PyEPO's ``noise_width``. Training sets have 100 or 1,000 points; 200 more choose,
1,000 (tours: 300) test. Every method trains the same linear model with Adam on batches of 32, 600 steps (tours: 450),
at three learning rates. The rate with the best validation regret in a search run is used for fresh seeds, each with
data of its own; in every run the best of ten looks at the validation regret counts.

All methods call the same exact solvers, ours: PyEPO's losses through an ``optModel``, which PyEPO asks for one problem
at a time. The losses are PyEPO's own SPO+, PFYL (one sample, sigma 1, as in the benchmark of its paper), DBB (lambda
10, its default) and PG (the central perturbation gradient), and the squared error of the costs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from statistics import mean
from typing import Any

import numpy as np
import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.records import Record
from directloss_repro.reports.stats import estimate
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import Schedule, train
from torch import Tensor, nn

import directloss as dl
from benchmarks.study import from_command_line, table, values

BATCH, LOOKS, VAL = 32, 10, 200
RATES = {"path": (0.003, 0.01, 0.03), "knapsack": (0.01, 0.03, 0.1), "tour": (0.01, 0.03, 0.1)}
"""Larger where costs are larger."""
SIZES = (100, 1000)
OURS = "direct"
METHODS = (OURS, "SPO+", "PFYL", "PG", "DBB", "squared error")
DEGREES = (1, 2, 4, 6)
Loss = Callable[[Tensor, Tensor], Tensor]
"""Predicted costs (or values) of a batch, and true costs, best decisions and their cost in one table."""


class Problem:
    """What is decided, with data and solver."""

    def __init__(self, name: str, noise: float, size: int, seed: int) -> None:
        kind, detail = name.split()[:2]
        degree = int(detail) if kind == "path" else 4
        self.steps, tests = (450, 300) if kind == "tour" else (600, 1000)
        x, costs, self.task = _drawn(kind, detail, degree, noise, size + VAL + tests, seed)
        self.sign = 1 if self.task.maximize else -1
        x, costs = torch.from_numpy(x).float(), torch.from_numpy(costs)
        best = self.task.truth(costs)
        y = torch.cat([costs, best, (costs * best).sum(-1, keepdim=True)], 1)
        cuts = [size, VAL, tests]
        self.train, self.val, self.test = (Part(a, b) for a, b in zip(x.split(cuts), y.split(cuts), strict=True))
        self.parts = costs.shape[1]

    def regret(self, predicted: Tensor, y: Tensor) -> float:
        """Normalised."""
        costs, best, _ = y.split([self.parts, self.parts, 1], 1)
        return float(dl.metrics.normalised_regret(self.task.predict(self.sign * predicted), best, costs))


def _drawn(kind: str, detail: str, degree: int, noise: float, count: int, seed: int) -> tuple[Any, Any, Any]:
    """Features, costs and task. The seed of PyEPO's generator draws the true model, too."""
    from pyepo import data
    from pyepo.model.utils import _get_grid_arcs

    if kind == "path":
        x, costs = data.shortestpath.genData(count, 5, (5, 5), degree, noise, seed)
        return x, costs, dl.tasks.ShortestPath(_get_grid_arcs((5, 5)), 0, 24, loss="regret")
    if kind == "knapsack":
        weights, x, costs = data.knapsack.genData(count, 5, 32, int(detail), degree, noise, seed)
        return x, costs, dl.tasks.Knapsack(weights, [20.0] * int(detail))
    x, costs = data.tsp.genData(count, 10, int(detail), degree, noise, seed)
    return x, costs, dl.tasks.Tour(int(detail))


@lru_cache
def _model_class() -> type[Any]:
    from pyepo import EPO
    from pyepo.model.opt import optModel

    class OurSolver(optModel):  # type: ignore[misc]
        """Our solver as PyEPO sees solvers."""

        def __init__(self, task: Any, parts: int) -> None:
            self.task, self.parts = task, parts
            self.modelSense = EPO.MAXIMIZE if task.maximize else EPO.MINIMIZE
            super().__init__()

        def _getModel(self) -> tuple[Any, Any]:
            return None, list(range(self.parts))

        def setObj(self, c: Any) -> None:
            self.c = torch.as_tensor(np.asarray(c))

        def solve(self) -> tuple[Any, float]:
            y = self.task.solve(self.c if self.task.maximize else -self.c)
            return y.numpy(), float((y * self.c).sum())

    return OurSolver


def loss_of(method: str, problem: Problem, seed: int) -> Loss:
    parts, sign = problem.parts, problem.sign
    if method == OURS:
        loss_fn = dl.DirectLoss(problem.task, generator=generator("noise", seed))
        return lambda predicted, y: loss_fn(sign * predicted, y[:, :parts])
    if method == "squared error":
        return lambda predicted, y: nn.functional.mse_loss(predicted, y[:, :parts])
    from pyepo import func

    model = _model_class()(problem.task, parts)
    costs: Callable[[Tensor], list[Tensor]] = lambda y: list(y.split([parts, parts, 1], 1))  # noqa: E731
    if method == "SPO+":
        spo = func.SPOPlus(model)
        return lambda predicted, y: spo(predicted, *costs(y))
    if method == "PFYL":
        pfy = func.perturbedFenchelYoung(model, n_samples=1, sigma=1.0, seed=seed)
        return lambda predicted, y: pfy(predicted, costs(y)[1])
    if method == "PG":
        pg = func.perturbationGradient(model, sigma=0.1, two_sides=True)
        return lambda predicted, y: pg(predicted, costs(y)[0])
    dbb = func.blackboxOpt(model, lambd=10)
    return lambda predicted, y: -sign * (dbb(predicted) * costs(y)[0]).sum(-1).mean()


class Clock:
    """Measures a model, and the time that this takes."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.spent = problem, 0.0

    def __call__(self, model: nn.Module) -> dict[str, float]:
        began = time.perf_counter()
        parts = {"val": self.problem.val, "test": self.problem.test}
        found = {name: -self.problem.regret(model(part.x), part.y) for name, part in parts.items()}
        self.spent += time.perf_counter() - began
        return found


def trained(cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One run; ``val`` and ``test`` are minus the normalised regret, so that higher is better."""
    name, size = str(cell.group).split(" / ")
    problem = Problem(name, cell.noise, int(size), seed)
    loss, watch = loss_of(cell.method, problem, seed), Clock(problem)
    inputs = problem.train.x.shape[1]
    model = seeded(lambda: nn.Linear(inputs, problem.parts), "decisions", seed)
    steps = problem.steps
    schedule = Schedule(steps, params["learning_rate"], evaluate_every=steps // LOOKS, batch_size=BATCH, seed=seed)
    began = time.perf_counter()
    done = train(model, loss, problem.train, schedule, watch)
    step = (time.perf_counter() - began - watch.spent) / steps
    best = done.best("val")
    metrics = {"val": best["val"], "test": best["test"], "epoch": step * int(size) / BATCH}
    return Outcome(metrics, done.diverged_at)


COLUMNS = (
    *((f"path {degree}", noise) for degree in DEGREES for noise in (0.0, 0.5)),
    ("knapsack 2", 0.5), ("knapsack 3", 0.5), ("tour 20", 0.5),
)  # fmt: skip


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(
        Cell(f"{name} / {size}", method, noise) for name, noise in COLUMNS for size in SIZES for method in METHODS
    )
    return Campaign("decisions", "1", cells, _rates, trained, lambda cell: "val", arguments.seeds)


def _rates(cell: Cell) -> list[dict[str, Any]]:
    return [{"learning_rate": rate} for rate in RATES[str(cell.group).split()[0]]]


def show(records: list[Record]) -> str:
    """Normalised regret in per cent, and milliseconds per epoch."""
    parts = []
    for size in SIZES:
        parts.append(f"**{size} training points: normalised regret in per cent**\n\n{_regrets(records, size)}")
    parts.append(f"**Seconds per epoch of {SIZES[-1]} points**\n\n{_seconds(records)}")
    return "\n\n".join(parts)


def _regrets(records: list[Record], size: int) -> str:
    found = {
        (name, noise, method): [-100 * v for v in values(records, Cell(f"{name} / {size}", method, noise), "test")]
        for name, noise in COLUMNS
        for method in METHODS
    }
    whole = [column for column in COLUMNS if all(found[*column, method] for method in METHODS)]
    return table(["problem", "noise", *METHODS], _rows(whole, found))


def _rows(columns: list[tuple[str, float]], found: dict[Any, list[float]]) -> Iterator[list[str]]:
    means = {key: mean(numbers) for key, numbers in found.items() if numbers}
    for column in columns:
        best = min(means[*column, method] for method in METHODS)
        yield [column[0], f"{column[1]:g}", *(_cell(found[*column, method], best) for method in METHODS)]
    if columns:
        ranks = {m: mean(1 + sum(means[*c, o] < means[*c, m] for o in METHODS) for c in columns) for m in METHODS}
        yield ["mean rank", "", *(f"{ranks[m]:.1f}" for m in METHODS)]


def _cell(numbers: list[float], best: float) -> str:
    spread = estimate(numbers)
    text = f"{spread.mean:.2f} ± {spread.half:.2f}"
    return f"**{text}**" if spread.mean <= best + 1e-9 else text


def _seconds(records: list[Record]) -> str:
    rows = []
    for name, noise in COLUMNS:
        runs = {m: values(records, Cell(f"{name} / {SIZES[-1]}", m, noise), "epoch") for m in METHODS}
        if noise and all(runs.values()):
            rows.append([name, *(f"{min(runs[m]):.3f}" for m in METHODS)])
    return table(["problem", *METHODS], rows)


if __name__ == "__main__":
    from_command_line(__doc__, study, show, seeds=5, out="results/decisions")
