"""A campaign fills a table: every cell tries the same number of settings, then trains the best one on fresh seeds.

A cell is one method at one noise level on one column of the table (a class, a data set). Its search trains every
setting on the search seeds; the setting with the best mean validation metric is trained on the final seeds. With a
single setting there is no search.

Only the records say what is done: a resumed campaign does the runs that have no record yet. Runs are independent, and
any `concurrent.futures.Executor` can do them. Each result depends only on the description of its run, so neither the
number of workers nor an interruption changes the table.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field
from typing import Any

from directloss._checks import DirectLossError, fail
from directloss_repro.executors import OpenWorkers, one_thread
from directloss_repro.records import Params, Record, RecordFile, RunSpec, make_record
from directloss_repro.seeding import SEARCH_SEED, stage_of

_alone = threading.Lock()


@dataclass(frozen=True)
class Cell:
    """A cell of the table."""

    group: str | None
    """The column: a class, or a data set with its metric; None if there is only one."""
    method: str
    noise: float = 0.0
    """The share of flipped labels."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    metrics: Mapping[str, float]
    diverged_at: int | None = None
    curve: Mapping[str, list[float]] = field(default_factory=dict)
    shown: Mapping[str, Any] = field(default_factory=dict)
    """Plain data for drawings."""
    seconds_before: float = 0.0
    """Time spent before an interruption."""


Train = Callable[[Cell, Params, int], Outcome]
"""Maps cell, settings and seed to a result; must be picklable."""


@dataclass(frozen=True)
class Listener:
    """Called as runs begin and finish."""

    began: Callable[[RunSpec], None] = lambda spec: None
    finished: Callable[[Record], None] = lambda record: None
    note: Callable[[str], None] = lambda sentence: None


SILENT = Listener()


class LostWorkerError(Exception):
    """The executor broke; the message names the runs that were running."""


@dataclass(frozen=True)
class Campaign:
    """What to train, and how to select settings.

    ``version`` is part of every key: it changes whenever the results of a run would change.
    ``judged_by`` names the validation metric that selects settings.
    """

    name: str
    version: str
    cells: tuple[Cell, ...]
    settings: Callable[[Cell], Sequence[Params]]
    train: Train
    judged_by: Callable[[Cell], str]
    seeds: int
    search_seeds: int = 1

    def __post_init__(self) -> None:
        budgets = Counter(len(self.settings(cell)) for cell in self.cells)
        if len(budgets) > 1:
            fail("settings", "must be equally many for every cell", dict(budgets))
        if not 1 <= self.seeds <= SEARCH_SEED:
            fail("seeds", f"must be from 1 to {SEARCH_SEED}, where the seeds of the search begin", self.seeds)

    @property
    def total(self) -> int:
        """The number of runs of a complete campaign."""
        return sum(len(self.searches(cell)) + self.seeds for cell in self.cells)

    def spec(self, cell: Cell, params: Params, seed: int) -> RunSpec:
        """The description of a run."""
        return RunSpec(self.name, stage_of(seed), cell.method, seed, cell.noise, cell.group, params)

    def searches(self, cell: Cell) -> list[RunSpec]:
        """The runs that select a setting."""
        settings = self.settings(cell)
        seeds = range(SEARCH_SEED, SEARCH_SEED + self.search_seeds) if len(settings) > 1 else ()
        return [self.spec(cell, params, seed) for params in settings for seed in seeds]

    def finals(self, cell: Cell, records: RecordFile) -> list[RunSpec]:
        """The runs with the selected setting; the search must be complete."""
        chosen = self.chosen(cell, records)
        return [self.spec(cell, chosen, seed) for seed in range(self.seeds)]

    def chosen(self, cell: Cell, records: RecordFile) -> Params:
        """The setting with the highest mean over the search seeds; the first among equals."""
        settings, searches = self.settings(cell), self.searches(cell)
        if not searches:
            return settings[0]
        name = self.judged_by(cell)

        def mean(place: int) -> float:
            runs = searches[place * self.search_seeds : (place + 1) * self.search_seeds]
            found = [records.by_key[spec.key(self.version)].metrics.get(name, float("-inf")) for spec in runs]
            return sum(sorted(found)) / len(found)

        return settings[max(range(len(settings)), key=mean)]

    def found(self, records: RecordFile) -> list[Record]:
        """The records of this campaign; a folder may hold others, such as those of dropped methods."""
        specs = []
        for cell in self.cells:
            searches = self.searches(cell)
            specs += searches if self._missing(searches, records) else [*searches, *self.finals(cell, records)]
        return [records.by_key[key] for spec in specs if (key := spec.key(self.version)) in records]

    # ------------------------------------------------------------------ the work

    def run(self, open_workers: OpenWorkers, records: RecordFile, listener: Listener = SILENT) -> None:
        """Do every run that has no record yet. Replace dead workers, unless there was no progress in between."""
        before = -1
        while True:
            try:
                with open_workers() as workers:
                    return self.run_on(workers.executor, records, workers.slots, listener)
            except LostWorkerError as lost:
                if len(records) == before:
                    raise DirectLossError(
                        f"A worker process died twice during {lost}. Did it run out of memory? "
                        "Finished runs are stored; continue with --resume and fewer --workers."
                    ) from None
                before = len(records)
                listener.note(f"A worker process died during {lost}; restarting these runs.")

    def run_on(
        self, executor: Executor, records: RecordFile, slots: Callable[[], int] = lambda: 1, listener: Listener = SILENT
    ) -> None:
        """Do every run that has no record yet, at most ``slots()`` at a time."""
        left = {cell: self._missing(self.searches(cell), records) for cell in self.cells}
        waiting = {cell: len(specs) for cell, specs in left.items()}
        queue = deque(
            spec for cell, specs in left.items() for spec in specs or self._missing(self.finals(cell, records), records)
        )
        under_way: dict[Future[Record], RunSpec] = {}
        try:
            while queue or under_way:
                while queue and len(under_way) < max(1, slots()):
                    spec = queue.popleft()
                    listener.began(spec)
                    under_way[executor.submit(execute, self.train, spec, self.version)] = spec
                for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                    record = _result(done, under_way[done])
                    spec = under_way.pop(done)
                    records.append(record)
                    listener.finished(record)
                    cell = Cell(spec.group, spec.method, spec.noise)
                    waiting[cell] -= spec.stage == "search"
                    if spec.stage == "search" and not waiting[cell]:
                        # At the front, so that cells finish one by one and an early report has something to show.
                        queue.extendleft(reversed(self._missing(self.finals(cell, records), records)))
        except (BrokenExecutor, CancelledError):
            raise LostWorkerError("; ".join(in_words(spec) for spec in under_way.values())) from None

    def _missing(self, specs: list[RunSpec], records: RecordFile) -> list[RunSpec]:
        return [spec for spec in specs if spec.key(self.version) not in records]


def execute(train: Train, spec: RunSpec, version: str) -> Record:
    """Do one run and return its record. This is what worker processes call."""
    with _alone:  # torch's generator and its number of threads belong to the process
        one_thread()
        began = time.perf_counter()
        found = train(Cell(spec.group, spec.method, spec.noise), dict(spec.params), spec.seed)
        return make_record(
            spec,
            version,
            # Float32 has seven digits; more would only make the files longer.
            metrics={name: round(value, 8) for name, value in found.metrics.items()},
            curve={name: [round(value, 6) for value in values] for name, values in found.curve.items()},
            seconds=time.perf_counter() - began + found.seconds_before,
            diverged_at=found.diverged_at,
            shown=found.shown,
        )


def in_words(run: RunSpec | Record) -> str:
    """A run in a few words.

    Examples:
        >>> in_words(RunSpec("digits", "final", "pos-ap", 3, 0.2, "7", {}))
        'final pos-ap, noise 0.2, seed 3, class 7'
    """
    words = f"{run.stage} {run.method}, noise {run.noise or 0:g}, seed {run.seed}"
    return words if run.group is None else f"{words}, class {run.group}"


def _result(done: Future[Record], spec: RunSpec) -> Record:
    try:
        return done.result()
    except Exception as error:
        if not isinstance(error, DirectLossError | OSError | BrokenExecutor):
            error.add_note(f"In the run: {spec}")
        raise
