"""What the studies share: every method gets the same number of settings, chosen on validation data; then fresh seeds.

A finished run is a line in ``records.jsonl``; a command can be stopped and goes on where it stopped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from directloss_repro.records import Record, RecordFile, RunSpec, make_record
from directloss_repro.reports.stats import estimate
from directloss_repro.runner import set_up_process

SEARCH_SEED = 1000
"""Seeds of the search start here, those of the final runs at 0."""


@dataclass(frozen=True)
class Cell:
    """A place in the table: a column (data and metric), a share of flipped labels, a method."""

    column: str
    method: str
    noise: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What a training measured."""

    metrics: dict[str, float]
    diverged_at: int | None = None


Train = Callable[[Cell, dict[str, Any], int], Outcome]
"""Cell, settings and seed to numbers; a function of a module, so that it can be sent to another process."""


@dataclass(frozen=True)
class Study:
    """A table to fill."""

    name: str
    version: str
    """Part of every key: change it when the study's numbers change."""
    cells: tuple[Cell, ...]
    settings: Callable[[Cell], list[dict[str, Any]]]
    train: Train
    judged_by: Callable[[Cell], str]
    """The validation number that settings are chosen by."""
    search_seeds: int

    def spec(self, cell: Cell, params: dict[str, Any], seed: int, stage: str) -> RunSpec:
        return RunSpec(self.name, stage, cell.method, seed, cell.noise, cell.column, params)

    def searches(self) -> list[RunSpec]:
        seeds = range(SEARCH_SEED, SEARCH_SEED + self.search_seeds)
        return [self.spec(c, p, seed, "search") for c in self.cells for p in self.settings(c) for seed in seeds]

    def finals(self, records: RecordFile, seeds: int) -> list[RunSpec]:
        return [self.spec(c, self.chosen(records, c), seed, "final") for c in self.cells for seed in range(seeds)]

    def chosen(self, records: RecordFile, cell: Cell) -> dict[str, Any]:
        """The settings with the best mean of the validation number."""
        name = self.judged_by(cell)

        def mean(params: dict[str, Any]) -> float:
            seeds = range(SEARCH_SEED, SEARCH_SEED + self.search_seeds)
            keys = [self.spec(cell, params, seed, "search").key(self.version) for seed in seeds]
            return sum(records.by_key[key].metrics[name] for key in keys) / len(keys)

        return max(self.settings(cell), key=mean)

    def execute(self, spec: RunSpec) -> Record:
        began = time.perf_counter()
        cell = Cell(str(spec.group), spec.method, spec.noise)
        found = self.train(cell, dict(spec.params), spec.seed)
        seconds = time.perf_counter() - began
        rounded = {name: round(value, 6) for name, value in found.metrics.items()}
        return make_record(spec, self.version, metrics=rounded, seconds=seconds, diverged_at=found.diverged_at)

    def run(self, seeds: int, out: Path, workers: int) -> None:
        """Search, then final runs; what is recorded is not run again."""
        out.mkdir(parents=True, exist_ok=True)
        records = RecordFile(out)
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=set_up_process) as pool:
            self._carry_out(pool, records, self.searches())
            self._carry_out(pool, records, self.finals(records, seeds))

    def _carry_out(self, pool: ProcessPoolExecutor, records: RecordFile, runs: list[RunSpec]) -> None:
        todo = [spec for spec in runs if spec.key(self.version) not in records]
        began = time.monotonic()
        for count, done in enumerate(as_completed([pool.submit(self.execute, spec) for spec in todo]), 1):
            record = done.result()
            records.append(record)
            if count % 20 == 0 or count == len(todo):
                left = (time.monotonic() - began) / count * (len(todo) - count) / 60
                what = f"{record.stage} {record.group} {record.method}"
                print(f"{count}/{len(todo)} {what}; about {left:.0f} min left", flush=True)


def from_command_line(doc: str | None, make: Callable[[argparse.Namespace], Study], show: Callable[[list[Record]], str],
                      *, seeds: int, out: str, data: bool = False) -> None:  # fmt: skip
    """The command of a study: fill the table, print it."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument("--workers", type=int, default=2)
    if data:
        parser.add_argument("--data-root", type=Path, required=True, help="folder with the data sets")
    arguments = parser.parse_args()
    make(arguments).run(arguments.seeds, arguments.out, arguments.workers)
    print(show(list(RecordFile(arguments.out).by_key.values())))


def values(records: Iterable[Record], cell: Cell, name: str) -> list[float]:
    """A number of the final runs, in the order of the seeds."""
    place = ("final", cell.column, cell.method, cell.noise)
    found = [r for r in records if (r.stage, r.group, r.method, r.noise) == place]
    return [r.metrics[name] for r in sorted(found, key=lambda r: r.seed)]


def mean_cell(numbers: list[float], best: float) -> str:
    """Mean and half of its 95 % interval in points; the best in bold."""
    if not numbers:
        return "-"
    spread = estimate(numbers)
    text = f"{100 * spread.mean:.1f} ± {100 * (spread.half or 0):.1f}"
    return f"**{text}**" if spread.mean >= best - 1e-9 else text


def gap_cell(numbers: list[float], others: list[float]) -> str:
    """Mean difference on the same seeds with its 95 % interval in points; bold where that does not contain zero."""
    if not numbers or len(numbers) != len(others):
        return "-"
    spread = estimate([mine - theirs for mine, theirs in zip(numbers, others, strict=True)])
    low, high = spread.mean - (spread.half or 0), spread.mean + (spread.half or 0)
    text = f"{100 * spread.mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
    return f"**{text}**" if low > 0 or high < 0 else text


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
