"""Predict, then optimise on real data: a battery trades on a day-ahead market with predicted prices.

    python -m benchmarks.battery --data-root FOLDER [--seeds 5] [--out results/battery] [--workers 2]

FOLDER holds ``DE.csv``, ``NP.csv`` and ``PJM.csv``, six years of hourly prices of Germany, Scandinavia and the east of
the United States with forecasts of load and generation, as Lago et al. (Applied Energy 2021) publish them
(https://zenodo.org/records/4624805). A battery stores four hours of its power. In each hour of a day it charges,
discharges or waits; it begins and ends empty, and loses 5 % when charging and when discharging. A day's schedule is a
path through the levels of charge. Regret is the profit lost against the best schedule, as a share of its profit.

A linear model predicts the 24 prices of a day from the forecasts of that day, the prices of one, two and seven days
before, and the day of the week. A seed is a test period: five of 180 days at the end of the data, each after 90 days of
validation and 730 of training; the learning rate is chosen on the period before these. Steps, batches, evaluations,
losses and settings are those of ``benchmarks.decisions``. Prices are divided by their training standard deviation.
"""

from __future__ import annotations

import argparse
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.records import Record
from directloss_repro.seeding import SEARCH_SEED, seeded
from torch import Tensor, nn

import directloss as dl
from benchmarks.decisions import METHODS, Problem, outcome, regret_table
from benchmarks.study import from_command_line

MARKETS = ("DE", "NP", "PJM")
HOURS, LEVELS, KEPT = 24, 4, 0.95
TRAIN, VAL, TEST, PERIODS = 730, 90, 180, 5
RATES = (0.003, 0.01, 0.03)


@lru_cache
def days(root: Path, market: str) -> tuple[Tensor, Tensor]:
    """Features and prices of every day that follows a full week."""
    table = pd.read_csv(root / f"{market}.csv", index_col=0, parse_dates=True)
    by_day = torch.from_numpy(table.to_numpy()).float().reshape(-1, HOURS, table.shape[1])
    price, forecasts = by_day[..., 0], by_day[..., 1:].flatten(1)
    weekday = nn.functional.one_hot(torch.tensor(table.index[::HOURS].day_of_week.to_numpy()).long()).float()
    before = [price[7 - lag : len(price) - lag] for lag in (1, 2, 7)]
    return torch.cat([forecasts[7:], *before, weekday[7:]], 1), price[7:]


def schedules() -> tuple[dl.tasks.ShortestPath, Tensor]:
    """Schedules as paths through (hour, level), and the cost of each edge at prices of 1, shape ``(24, edges)``."""
    edges, hours, energy = [], [], []
    for hour in range(HOURS):
        for level in range(LEVELS + 1):
            for change, bought in ((0, 0.0), (1, 1 / KEPT), (-1, -KEPT)):
                if 0 <= level + change <= LEVELS:
                    edges.append((hour * (LEVELS + 1) + level, (hour + 1) * (LEVELS + 1) + level + change))
                    hours.append(hour)
                    energy.append(bought)
    task = dl.tasks.ShortestPath(edges, 0, HOURS * (LEVELS + 1), loss="regret")
    return task, torch.zeros(HOURS, len(edges)).index_put_(
        (torch.tensor(hours), torch.arange(len(edges))), torch.tensor(energy)
    )


class Prices(nn.Linear):
    """Predicts prices and returns the costs of the edges."""

    def __init__(self, inputs: int, trades: Tensor) -> None:
        super().__init__(inputs, HOURS)
        self.trades = trades

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) @ self.trades


def period(root: Path, market: str, seed: int) -> tuple[Problem, Tensor]:
    """The days of a seed, standardised by the training days."""
    x, price = days(root, market)
    place = -1 if seed >= SEARCH_SEED else seed
    first = len(x) - (PERIODS - place) * TEST - VAL - TRAIN
    x, price = (table[first : first + TRAIN + VAL + TEST] for table in (x, price))
    x = (x - x[:TRAIN].mean(0)) / x[:TRAIN].std(0).clamp(min=1e-6)
    task, trades = schedules()
    costs = (price / price[:TRAIN].std()) @ trades
    return Problem(x, costs, task, (TRAIN, VAL, TEST)), trades


def trained(root: Path, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
    """One run."""
    problem, trades = period(root, str(cell.group), seed)
    model = seeded(lambda: Prices(problem.train.x.shape[1], trades), "battery", seed)
    return outcome(problem, model, cell.method, params["learning_rate"], seed)


def study(arguments: argparse.Namespace) -> Campaign:
    cells = tuple(Cell(market, method) for market in MARKETS for method in METHODS)
    rates: list[dict[str, Any]] = [{"learning_rate": rate} for rate in RATES]
    run = partial(trained, arguments.data_root)
    return Campaign("battery", "1", cells, lambda cell: rates, run, lambda cell: "val", arguments.seeds)


def show(records: list[Record]) -> str:
    """Normalised regret in per cent."""
    return regret_table(records, {(market,): (market, 0.0) for market in MARKETS})


if __name__ == "__main__":
    from_command_line(__doc__, study, show, seeds=PERIODS, out="results/battery", data=True)
