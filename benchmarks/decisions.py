"""Predict, then optimise: `DirectLoss` with its defaults, compared with the losses of PyEPO on PyEPO's own data.

    python -m benchmarks.decisions [--seeds 5] [--out results/decisions] [--workers 2]        (after pip install pyepo)
    python -m benchmarks.decisions --steps                                    # only the time of a step

A column is a problem of PyEPO's generators with 5 features (10 for tours): shortest paths on a 5 x 5 grid with costs of
degree 1, 2, 4 and 6 in the features, knapsacks of 32 items in 2 and 3 dimensions with capacity 20, and tours of 20
nodes, both of degree 4. "noise" is PyEPO's ``noise_width``. Training sets have 100 or 1,000 points; 200 more are for
validation, 1,000 for testing (tours: 50 and 100). Every method trains the same linear model with Adam, 600 steps on
batches of 32 (tours: 8), at three learning rates. The rate with the best validation regret in a search run is used for
fresh seeds, each with its own data. Every run tests the weights with the best validation regret of ten evaluations.

All methods call the same exact solvers, ours. The losses are PyEPO's own SPO+, PFYL (one sample, sigma 1, as in the
benchmark of its paper), DBB (lambda 10, its default) and PG (the central perturbation gradient), and the squared error
of the costs. PyEPO asks an ``optModel`` for one problem at a time, and this is how its steps are timed; in training,
where results are the same, its losses get a pool that solves a batch at once.

``--steps`` starts from the least-squares fit of the costs and alternates the methods on the same batches. A time is the
CPU time of forward and backward in one thread: the median over batches, the minimum of three rounds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.data import Part
from directloss_repro.executors import one_thread
from directloss_repro.records import Record
from directloss_repro.reports.stats import estimate
from directloss_repro.seeding import generator, seeded
from directloss_repro.training import Schedule, train
from torch import Tensor, nn

import directloss as dl
from benchmarks.study import from_command_line, table, values
from benchmarks.tours import tour_task

STEPS, LOOKS, TIMED, ROUNDS = 600, 10, 31, 3
RATES = {"path": (0.003, 0.01, 0.03), "knapsack": (0.01, 0.03, 0.1), "tour": (0.01, 0.03, 0.1)}
"""Learning rates; larger where costs are larger."""
SIZES = (100, 1000)
OURS = "direct"
METHODS = (OURS, "SPO+", "PFYL", "PG", "DBB", "squared error")
DEGREES = (1, 2, 4, 6)
Loss = Callable[[Tensor, Tensor], Tensor]
"""Takes the predicted costs (or values) of a batch, and its true costs, best decisions and their cost in one table."""


class Problem:
    """A decision problem: features, costs and solver, and the sizes of its three parts."""

    def __init__(self, x: Tensor, costs: Tensor, task: Any, cuts: tuple[int, int, int], batch: int = 32) -> None:
        self.task, self.batch, self.parts = task, batch, costs.shape[1]
        self.sign = 1 if task.maximize else -1
        best = task.truth(costs)
        y = torch.cat([costs, best, (costs * best).sum(-1, keepdim=True)], 1)
        self.train, self.val, self.test = (Part(a, b) for a, b in zip(x.split(cuts), y.split(cuts), strict=True))

    def regret(self, predicted: Tensor, y: Tensor) -> float:
        """Normalised."""
        costs, best, _ = y.split([self.parts, self.parts, 1], 1)
        return float(dl.metrics.normalised_regret(self.task.predict(self.sign * predicted), best, costs))


def drawn(name: str, noise: float, size: int, seed: int) -> Problem:
    """The data of a column. The seed of PyEPO's generator also draws the true model."""
    from pyepo import data
    from pyepo.model.utils import _get_grid_arcs

    kind, detail = name.split()
    batch, val, tests = (8, 50, 100) if kind == "tour" else (32, 200, 1000)
    count, number = size + val + tests, int(detail)
    task: Any
    if kind == "path":
        x, costs = data.shortestpath.genData(count, 5, (5, 5), number, noise, seed)
        task = dl.tasks.ShortestPath(_get_grid_arcs((5, 5)), 0, 24, loss="regret")
    elif kind == "knapsack":
        weights, x, costs = data.knapsack.genData(count, 5, 32, number, 4, noise, seed)
        task = dl.tasks.Knapsack(weights, [20.0] * number)
    else:
        x, costs = data.tsp.genData(count, 10, number, 4, noise, seed)
        task = tour_task(number)
    return Problem(torch.from_numpy(x).float(), torch.from_numpy(costs), task, (size, val, tests), batch)


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


class AtOnce:
    """Stands in for PyEPO's pool of processes, but solves the problems of a batch at once."""

    def __init__(self, task: Any) -> None:
        self.task = task

    def amap(self, solve: object, costs: Any) -> AtOnce:
        table = torch.as_tensor(costs)
        chosen = self.task.solve(table if self.task.maximize else -table)
        self.found = list(zip(chosen.numpy(), (chosen * table).sum(-1).tolist(), strict=True))
        return self

    def get(self) -> list[tuple[Any, float]]:
        return self.found


def loss_of(method: str, problem: Problem, seed: int, timed: bool = False) -> Loss:
    """The loss of a method; if ``timed``, with PyEPO's own calls of the solver."""
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
        module = func.SPOPlus(model)
        loss: Loss = lambda predicted, y: module(predicted, *costs(y))  # noqa: E731
    elif method == "PFYL":
        module = func.perturbedFenchelYoung(model, n_samples=1, sigma=1.0, seed=seed)
        loss = lambda predicted, y: module(predicted, costs(y)[1])  # noqa: E731
    elif method == "PG":
        module = func.perturbationGradient(model, sigma=0.1, two_sides=True)
        loss = lambda predicted, y: module(predicted, costs(y)[0])  # noqa: E731
    else:
        module = func.blackboxOpt(model, lambd=10)
        loss = lambda predicted, y: -sign * (module(predicted) * costs(y)[0]).sum(-1).mean()  # noqa: E731
    if not timed:
        module.processes, module.pool = 2, AtOnce(problem.task)
    return loss


def trained(cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One run."""
    name, size = str(cell.group).split(" / ")
    problem = drawn(name, cell.noise, int(size), seed)
    inputs = problem.train.x.shape[1]
    model = seeded(lambda: nn.Linear(inputs, problem.parts), "decisions", seed)
    return outcome(problem, model, cell.method, params["learning_rate"], seed)


def outcome(problem: Problem, model: nn.Module, method: str, rate: float, seed: int) -> Outcome:
    """Train and test; ``val`` and ``test`` are the negative normalised regret, so that higher is better."""
    schedule = Schedule(STEPS, rate, evaluate_every=STEPS // LOOKS, batch_size=problem.batch, seed=seed)

    def score(model: nn.Module, part: Part) -> float:
        return -problem.regret(model(part.x), part.y)

    loss = loss_of(method, problem, seed)
    done = train(model, loss, problem.train, schedule, lambda model: {"val": score(model, problem.val)}, keep_by="val")
    if done.kept is not None:
        model.load_state_dict(done.kept)
    with torch.no_grad():
        test = score(model, problem.test)
    return Outcome({"val": done.best("val")["val"], "test": test}, done.diverged_at)


def seconds_of_steps(name: str, noise: float) -> dict[str, float]:
    """The median step of each method."""
    problem = drawn(name, noise, SIZES[-1], seed=0)
    x, costs = problem.train.x, problem.train.y[:, : problem.parts].float()
    fit = torch.linalg.lstsq(torch.cat([x, torch.ones(len(x), 1)], 1), costs).solution
    state = {"weight": fit[:-1].T.contiguous(), "bias": fit[-1]}
    rate = RATES[name.split()[0]][1]
    models = {method: nn.Linear(x.shape[1], problem.parts) for method in METHODS}
    losses = {method: loss_of(method, problem, 0, timed=True) for method in METHODS}
    steppers = {method: torch.optim.Adam(model.parameters(), rate) for method, model in models.items()}
    seconds: dict[str, list[float]] = {method: [] for method in METHODS}
    for model in models.values():
        model.load_state_dict(state)
    batches = torch.randperm(len(x), generator=generator("batches", 0)).split(problem.batch)
    for batch in batches[:TIMED]:
        inputs, truth = x[batch], problem.train.y[batch]
        for method in METHODS:
            began = time.process_time()
            losses[method](models[method](inputs), truth).backward()
            seconds[method].append(time.process_time() - began)
            steppers[method].step()
            steppers[method].zero_grad()
    return {method: median(found[1:]) for method, found in seconds.items()}  # the first one compiles


COLUMNS = (
    *((f"path {degree}", noise) for degree in DEGREES for noise in (0.0, 0.5)),
    ("knapsack 2", 0.0), ("knapsack 2", 0.5), ("knapsack 3", 0.5), ("tour 20", 0.5),
)  # fmt: skip


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(
        Cell(f"{name} / {size}", method, noise) for name, noise in COLUMNS for size in SIZES for method in METHODS
    )
    return Campaign("decisions", "1", cells, _rates, trained, lambda cell: "val", arguments.seeds)


def _rates(cell: Cell) -> list[dict[str, Any]]:
    return [{"learning_rate": rate} for rate in RATES[str(cell.group).split()[0]]]


def show(records: list[Record]) -> str:
    """Normalised regret in per cent."""
    return "\n\n".join(
        f"**{size} training points: normalised regret in per cent**\n\n{_regrets(records, size)}" for size in SIZES
    )


def _regrets(records: list[Record], size: int) -> str:
    return regret_table(records, {(name, f"{noise:g}"): (f"{name} / {size}", noise) for name, noise in COLUMNS})


def regret_table(records: list[Record], rows: dict[tuple[str, ...], tuple[str, float]]) -> str:
    """Mean and half of the 95 % interval of each method; ``rows`` maps labels to the group and noise of a row."""
    found = {
        words: {m: [-100 * v for v in values(records, Cell(group, m, noise), "test")] for m in METHODS}
        for words, (group, noise) in rows.items()
    }
    whole = {words: by_method for words, by_method in found.items() if all(by_method.values())}
    seeds = {words: min(map(len, by_method.values())) for words, by_method in whole.items()}
    most = max(seeds.values(), default=0)
    whole = {
        (words[0] if seeds[words] == most else f"{words[0]} ({seeds[words]} seeds)", *words[1:]): by_method
        for words, by_method in whole.items()
    }
    return table([*["problem", "noise"][: len(next(iter(rows)))], *METHODS], _rows(whole))


def mean_ranks(found: Iterable[dict[str, list[float]]]) -> dict[str, float]:
    """The mean rank of each method; 1 if it is best in every row."""
    means = [{m: mean(numbers) for m, numbers in row.items()} for row in found]
    return {m: mean(1 + sum(row[o] < row[m] for o in row) for row in means) for m in METHODS}


def _rows(found: dict[tuple[str, ...], dict[str, list[float]]]) -> Iterator[list[str]]:
    for words, row in found.items():
        best = min(mean(numbers) for numbers in row.values())
        yield [*words, *(_cell(row[m], best) for m in METHODS)]
    if found:
        ranks = mean_ranks(found.values())
        yield ["mean rank", *[""] * (len(words) - 1), *(f"{ranks[m]:.1f}" for m in METHODS)]


def _cell(numbers: list[float], best: float) -> str:
    spread = estimate(numbers)
    text = f"{spread.mean:.2f} ± {spread.half:.2f}"
    return f"**{text}**" if spread.mean <= best + 1e-9 else text


def show_steps() -> str:
    """Milliseconds of a step."""
    one_thread()
    rows = []
    for name in dict.fromkeys(name for name, _ in COLUMNS):
        found = [seconds_of_steps(name, 0.5) for _ in range(ROUNDS)]
        rows.append([name, *(f"{1e3 * min(times[m] for times in found):.1f}" for m in METHODS)])
    return "**Milliseconds per step**\n\n" + table(["problem", *METHODS], rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["--steps"]:
        print(show_steps())
    else:
        from_command_line(__doc__, study, show, seeds=5, out="results/decisions")
