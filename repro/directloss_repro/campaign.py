"""A whole experiment: search each cell, run the final seeds with the best setting, record everything.

A cell is one method at one noise level on one class. Its search and its final runs are two queues; the final queue
opens as soon as the search of that cell is complete. Where there is one setting only, there is no search.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage

from directloss_repro.checkpoint import FOLDER, Checkpoint
from directloss_repro.config import SEARCH_SEED, Config
from directloss_repro.files import stable_hash
from directloss_repro.methods import parse_method
from directloss_repro.pool import Pool
from directloss_repro.records import Params, Record, RecordFile, RunSpec
from directloss_repro.runner import Job
from directloss_repro.search import GridQueue, Ticket, best_setting, plain_errors

Observer = Callable[[Record], None]


@dataclass
class Cell:
    """One method at one noise level on one class, and where it stands."""

    method: str
    noise: float
    label: str | None
    points: list[Params]
    search: GridQueue | None
    best: Params | None = None
    final: GridQueue | None = None


@dataclass
class Campaign:
    """All cells of an experiment, and the way from nothing to a complete set of records."""

    experiment: str
    config: Config
    storage: BaseStorage
    records: RecordFile
    data_root: str | None = None
    observe: Observer = lambda record: None
    metric: str = "ap"
    """What settings are chosen by."""
    weights: str | None = None
    cache: str | None = None
    """The folder of what all runs share."""
    board: str | None = None
    """The folder for TensorBoard."""
    _cells: list[Cell] = field(default_factory=list)
    _tickets: dict[str, tuple[GridQueue, Ticket]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many runs a complete set has."""
        cells = len(self.config.methods) * len(self.config.noise) * max(1, len(self.config.classes))
        settings = len(self.config.direct)
        return cells * ((settings * self.config.search_seeds if settings > 1 else 0) + self.config.seeds)

    def run(self, pool: Pool) -> None:
        """Do every run that is not recorded yet."""
        with plain_errors():
            self._run(pool)
        with contextlib.suppress(OSError):  # empty unless another process has a run under way
            self.checkpoints.rmdir()

    def _run(self, pool: Pool) -> None:
        self._cells = [self._open(*place) for place in self._places()]
        while True:
            while pool.free and (job := self._next()) is not None:
                pool.submit(job)
            if not self._tickets:
                break
            for done, record in pool.collect():
                self._done(done.key, record)
        for cell in self._cells:
            self._gather(cell)

    # ------------------------------------------------------------------ cells

    def _places(self) -> Iterator[tuple[float, str | None, str]]:
        """Noise levels outermost and methods innermost: what is compared is done at about the same time."""
        for noise in self.config.noise:
            for label in self.config.classes or (None,):
                for method in self.config.methods:
                    yield noise, label, method

    def _open(self, noise: float, label: str | None, method: str) -> Cell:
        grid = self.config.grid(parse_method(method))
        if len(grid) == 1:
            return Cell(method, noise, label, grid.points(), None)
        seeds = tuple(SEARCH_SEED + k for k in range(self.config.search_seeds))
        queue = self._queue("search", noise, label, method, {**grid.space(), "seed": seeds})
        return Cell(method, noise, label, grid.points(), queue)

    def _queue(self, stage: str, noise: float, label: str | None, method: str, space: dict[str, Any]) -> GridQueue:
        # The space is part of the name: a study with other values would be another study.
        mark = stable_hash([self.config.digest(), space])
        place = " ".join(str(part) for part in (self.experiment, stage, method, noise, label) if part is not None)
        return GridQueue(self.storage, f"{place} {mark}", space)

    def _advance(self, cell: Cell) -> None:
        """Open the final queue once the search is complete."""
        if cell.final is None and (cell.search is None or cell.search.complete):
            cell.best = cell.points[0] if cell.search is None else best_setting(cell.points, cell.search.finished())
            space = {name: (value,) for name, value in cell.best.items()}
            seeds = tuple(range(self.config.seeds))
            cell.final = self._queue("final", cell.noise, cell.label, cell.method, {**space, "seed": seeds})

    # ------------------------------------------------------------------ jobs

    def _next(self) -> Job | None:
        """A run to do; what is recorded already only has its result brought to its queue.

        Runs that another process was given and has not brought back come last: it may be at work on them, or dead.
        """
        for take_over in (False, True):
            for cell in self._cells:
                if (job := self._next_of(cell, take_over)) is not None:
                    return job
        return None

    def _next_of(self, cell: Cell, take_over: bool) -> Job | None:
        for stage in ("search", "final"):
            self._advance(cell)
            queue = cell.search if stage == "search" else cell.final
            while queue is not None and (ticket := queue.take(take_over)) is not None:
                job = self._job(cell, stage, ticket)
                self._tickets[job.key] = (queue, ticket)
                if job.key not in self.records:
                    return job
                self._done(job.key, self.records.by_key[job.key])
        return None

    def _job(self, cell: Cell, stage: str, ticket: Ticket) -> Job:
        params = {name: value for name, value in ticket.setting.items() if name != "seed"}
        seed = ticket.setting["seed"]
        spec = RunSpec(self.experiment, stage, cell.method, seed, cell.noise, cell.label, params)
        return Job(spec, self.config, self.data_root, str(self.checkpoints), self.weights, self.cache, self.board)

    @property
    def checkpoints(self) -> Path:
        """The folder of runs that are not finished."""
        return self.records.path.parent / FOLDER

    def _done(self, key: str, record: Record) -> None:
        """To disk first: if we die between the two, the record is found again and brought to its queue."""
        queue, ticket = self._tickets.pop(key)
        new = key not in self.records
        self.records.append(record)
        Checkpoint(self.checkpoints, key).remove()
        # The final queue only hands out seeds; nothing is chosen by its values.
        value = f"{self.config.select_on if record.stage == 'search' else 'test'}_{self.metric}"
        queue.bring(ticket, record.metrics[value], record.model_dump(mode="json"))
        if new:
            self.observe(record)

    def _gather(self, cell: Cell) -> None:
        """Records of runs that other machines did, or whose line was lost."""
        for queue in (cell.search, cell.final):
            for result in queue.finished() if queue is not None else ():
                if result.record is not None and result.record["key"] not in self.records:
                    self.records.append(Record(**result.record))
                    self.observe(Record(**result.record))
