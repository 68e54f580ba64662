"""The runs of a fit: for each loss a search and one final run, all recorded as they end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import optuna
from optuna.storages import InMemoryStorage

from directloss_repro.config import SEARCH_SEED, Params
from directloss_repro.methods import parse_method
from directloss_repro.pool import Pool
from directloss_repro.records import Record, RecordFile, RunSpec, commit
from directloss_repro.search import Finished, Ticket, TpeQueue
from directloss_repro.tabular.config import EXPERIMENT, FitConfig, space
from directloss_repro.tabular.running import STEPS, FitJob, model_path


@dataclass
class Campaign:
    """All runs of one fit.

    The trials live in memory. Each setting follows from the seed and the results before it, so a run that goes on asks
    the same questions again and finds the answers among the records.
    """

    config: FitConfig
    data: str
    models: str
    records: RecordFile
    observe: Callable[[Record], None] = lambda record: None
    board: str | None = None
    """The folder for TensorBoard."""
    _queues: dict[str, TpeQueue] = field(default_factory=dict)
    _tickets: dict[str, tuple[TpeQueue | None, Ticket | None]] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)
    finals: dict[str, Record] = field(default_factory=dict)
    """The final record of each loss, once it is there."""

    @property
    def total(self) -> int:
        """How many runs a complete set has."""
        return len(self.config.methods) * (self.config.trials + 1)

    def run(self, pool: Pool) -> None:
        """Do every run that is not recorded yet."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = InMemoryStorage()
        for name in self.config.methods:
            where = space(parse_method(name))
            self._queues[name] = TpeQueue(storage, name, where, self.config.trials, self.config.seed)
        while True:
            while pool.free and (job := self._next()) is not None:
                pool.submit(job)
            if not self._tickets:
                break
            for done, record in pool.collect():
                self._done(done.key, {**record, "commit": commit()})

    def best(self, method: str) -> Finished:
        """The trial with the highest value on validation data, the first of equals."""
        return max(self._queues[method].finished(), key=lambda result: result.value)

    def _next(self) -> FitJob | None:
        # The loss that is furthest behind first: each search is done one trial after the other, so a loss that starts
        # late would keep one process busy while the others have nothing left to do.
        for method, queue in sorted(self._queues.items(), key=lambda pair: self._counts[pair[0]]):
            while (ticket := queue.take()) is not None:
                job = self._job(method, "search", ticket.setting)
                self._tickets[job.key] = (queue, ticket)
                if job.key not in self.records:
                    return job
                self._done(job.key, self.records.by_key[job.key])
            if queue.complete and method not in self.finals:
                job = self._job(method, "final", self._final_setting(method))
                if job.key in self._tickets:
                    continue
                self._tickets[job.key] = (None, None)
                # The record alone is not enough: the model is stored before it, but may have been removed since.
                if job.key not in self.records or not model_path(self.models, method).is_file():
                    return job
                self._done(job.key, self.records.by_key[job.key])
        return None

    def _final_setting(self, method: str) -> Params:
        best = self.best(method)
        steps = best.record["metrics"][STEPS] if best.record is not None else self.config.iterations
        return {**best.setting, STEPS: int(steps)}

    def _job(self, method: str, stage: str, params: Params) -> FitJob:
        seed = self.config.seed + (SEARCH_SEED if stage == "search" else 0)
        spec = RunSpec(EXPERIMENT, stage, method, seed, 0.0, None, dict(params))
        return FitJob(spec, self.config, self.data, self.models, self.board)

    def _done(self, key: str, record: Record) -> None:
        """To disk first: if we die between the two, the record is found again."""
        queue, ticket = self._tickets.pop(key)
        self._counts[record["method"]] += 1
        new = key not in self.records
        self.records.append(record)
        if queue is not None and ticket is not None:
            queue.bring(ticket, record["metrics"][f"val_{self.config.metric}"], record)
        else:
            self.finals[record["method"]] = record
        if new:
            self.observe(record)
