"""The one search: optuna hands out settings, we run them, optuna keeps the results.

A `Queue` is one optuna study of one method on one problem. Its trials live in a storage (SQLite in the output folder,
or any storage that optuna knows), so that several machines can work through one queue together: each trial also carries
its record, and every machine ends up with all of them. Within a machine only one process talks to the storage.

Results do not depend on who ran what: a grid is always finished, and the best setting is the one with the highest mean
over the search seeds, the first in grid order among equals.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import optuna
from optuna.exceptions import StorageInternalError
from optuna.samplers import BaseSampler, GridSampler, TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from directloss._checks import fail
from directloss_repro.seeding import derive

Setting = dict[str, Any]

OPENINGS = 4
"""How often a database is tried before it counts as unusable."""


class Ticket(NamedTuple):
    """A trial that was handed out: its number in the study and the values to try."""

    number: int
    setting: Setting


class Finished(NamedTuple):
    """A trial that came back, from this machine or another."""

    setting: Setting
    value: float
    record: dict[str, Any] | None


def open_storage(url: str) -> BaseStorage:
    """``sqlite:///FILE``, ``mysql://...``, ``postgresql://...``, or ``journal:FILE`` for file systems without locks."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for attempt in range(OPENINGS):
        try:
            if url.startswith("journal:"):
                return JournalStorage(JournalFileBackend(url.removeprefix("journal:")))
            options = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
            return RDBStorage(url, engine_kwargs=options)
        except Exception as error:  # every database driver has errors of its own
            # Two processes that make the tables of a new database at the same moment get in each other's way.
            if isinstance(error, IntegrityError | OperationalError) and attempt < OPENINGS - 1:
                time.sleep(0.2 * 2**attempt)
                continue
            said = f"It said: {str(error).splitlines()[0]}"
            fail("--storage", "must be a storage that optuna can open", repr(url), said)
    raise AssertionError("unreachable")


def close_storage(storage: BaseStorage) -> None:
    """Let go of the file or the connection."""
    storage.remove_session()
    if isinstance(storage, RDBStorage):
        storage.engine.dispose()


@contextmanager
def plain_errors() -> Iterator[None]:
    """The errors of a storage as ours: a full disk as one of the system, the rest as a sentence."""
    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        said = str(error.__cause__ or error).splitlines()[0]
        if "disk is full" in said:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "The storage of the trials") from None
        fail("--storage", "must be there as long as the run", "not", f"It said: {said}")


class Queue(ABC):
    """Settings to try, one after the other or several at once."""

    def __init__(self, storage: BaseStorage, name: str, size: int, sampler: BaseSampler) -> None:
        self.size = size
        self.study = optuna.create_study(
            storage=storage, study_name=name, sampler=sampler, direction="maximize", load_if_exists=True
        )
        self._running: dict[int, tuple[optuna.Trial, Setting]] = {}  # handed out by this process and not yet back
        self._complete = False

    @abstractmethod
    def take(self, take_over: bool = False) -> Ticket | None:
        """The next setting, or None when there is nothing to do right now.

        ``take_over`` also hands out what another process, perhaps a dead one, was given and has not brought back.
        """

    @abstractmethod
    def finished(self) -> list[Finished]:
        """Everything that came back."""

    @abstractmethod
    def _suggest(self, trial: optuna.Trial) -> Setting:
        """The values of a new trial."""

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do, here or elsewhere."""
        # What is running here is missing for sure, so the storage need not be asked.
        if not self._complete and not self._running:
            self._complete = len(self.finished()) >= self.size
        return self._complete

    def bring(self, ticket: Ticket, value: float, record: Mapping[str, Any] | None = None) -> None:
        """Store the result of a setting that was taken."""
        trial, _ = self._running.pop(ticket.number)
        if record is not None:
            trial.set_user_attr("record", json.dumps(record))
        self.study.tell(trial, value)

    def _ask(self) -> Ticket:
        trial = self.study.ask()
        setting = self._suggest(trial)
        self._running[trial.number] = (trial, setting)
        return Ticket(trial.number, setting)

    def _results(self) -> list[Finished]:
        done = [trial for trial in self.study.get_trials(deepcopy=False) if trial.state == TrialState.COMPLETE]
        return [
            Finished(dict(trial.params), trial.value, json.loads(trial.user_attrs.get("record", "null")))
            for trial in done
            if trial.value is not None
        ]


class GridQueue(Queue):
    """Every combination of the values of ``space``, each once."""

    def __init__(self, storage: BaseStorage, name: str, space: Mapping[str, Sequence[Any]]) -> None:
        self.space = {key: tuple(values) for key, values in space.items()}
        size = math.prod(len(values) for values in self.space.values())
        super().__init__(storage, name, size, _AskGrid(self.space))
        self._handed_out = False

    def take(self, take_over: bool = False) -> Ticket | None:
        if self._complete:
            return None
        # The sampler gives trial k the k-th point of the grid, so no point is handed out twice, even between machines.
        if not self._handed_out and len(self.study.get_trials(deepcopy=False)) < self.size:
            return self._ask()
        self._handed_out = True
        if not take_over:
            return None
        known = {_name(result.setting) for result in self.finished()}
        known |= {_name(setting) for _, setting in self._running.values()}
        left = [point for point in self._points() if _name(point) not in known]
        if not left:
            return None
        self.study.enqueue_trial(left[0])
        return self._ask()

    def finished(self) -> list[Finished]:
        """Everything that came back, each setting once."""
        return list({_name(result.setting): result for result in reversed(self._results())}.values())

    def _suggest(self, trial: optuna.Trial) -> Setting:
        return {key: trial.suggest_categorical(key, values) for key, values in self.space.items()}

    def _points(self) -> list[Setting]:
        return [dict(zip(self.space, values, strict=True)) for values in itertools.product(*self.space.values())]


class _AskGrid(GridSampler):
    """GridSampler for ask-and-tell: the original stops an ``optimize`` loop when done, and here there is none."""

    def after_trial(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to stop."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, even on a logarithmic scale."""

    low: float
    high: float


class TpeQueue(Queue):
    """``trials`` settings, each chosen by the tree-structured Parzen estimator from the results before it.

    One at a time, with a seed of its own for each trial, so that results depend neither on the number of processes nor
    on an interruption. Run several queues side by side to use several processes.
    """

    def __init__(
        self, storage: BaseStorage, name: str, space: Mapping[str, Range | Sequence[Any]], trials: int, seed: int = 0
    ) -> None:
        self.space, self.seed, self.name = dict(space), seed, name
        super().__init__(storage, name, trials, TPESampler(seed=0))

    def take(self, take_over: bool = False) -> Ticket | None:
        if self._running or self.complete:
            return None
        self.study.sampler = TPESampler(seed=derive(self.name, self.seed, len(self.finished())) % 2**32)
        return self._ask()

    def finished(self) -> list[Finished]:
        """Everything that came back; the same setting may come twice."""
        return self._results()

    def _suggest(self, trial: optuna.Trial) -> Setting:
        setting: Setting = {}
        for key, values in self.space.items():
            if isinstance(values, Range):
                setting[key] = trial.suggest_float(key, values.low, values.high, log=True)
            else:
                setting[key] = trial.suggest_categorical(key, tuple(values))
        return setting


def best_setting(points: Sequence[Setting], results: Sequence[Finished]) -> Setting:
    """The point with the highest mean value over its seeds; the first in the order of ``points`` among equals."""
    values: dict[str, list[float]] = {}
    for result in results:
        values.setdefault(_name({k: v for k, v in result.setting.items() if k != "seed"}), []).append(result.value)
    # Sorted before summing, because the order of arrival must not decide the last digit.
    means = [sum(sorted(found)) / len(found) if (found := values.get(_name(p))) else float("-inf") for p in points]
    return points[means.index(max(means))]


def _name(setting: Mapping[str, Any]) -> str:
    return json.dumps(setting, sort_keys=True)
