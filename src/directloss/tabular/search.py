"""Hyperparameter search for the networks: optuna proposes settings, the validation rows judge them.

Each loss has its own study with the same budget. Trials that are worse than the median are stopped early. The studies
live in a storage that several processes or machines can share; a search continues from the trials it finds there.
Every trial carries a digest, so that a value changed by hand is detected.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.storages import BaseStorage, JournalStorage, get_storage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from directloss._checks import DirectLossError, fail
from directloss.integrations._rows import some_rows
from directloss.integrations.sklearn import DirectLossClassifier
from directloss.tabular.measures import CROSS_ENTROPY, Measure

HIDDEN: dict[str, tuple[int, ...]] = {"linear": (), "64": (64,), "64-64": (64, 64)}
SPACE: dict[str, BaseDistribution] = {
    "hidden": CategoricalDistribution(list(HIDDEN)),
    "learning_rate": FloatDistribution(3e-3, 0.1, log=True),
    "weight_decay": FloatDistribution(1e-4, 1.0, log=True),
}
FIRST = {"hidden": "64", "learning_rate": 0.01, "weight_decay": 0.01}
"""The first setting to try, before optuna knows anything."""
FREE = 3
"""Number of trials that run to the end before others are compared with them."""
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
OWNER, DIGEST = "fit", "digest"
"""User attributes of a trial: the fit it belongs to, and a digest of its result."""
STALE = 10
"""Seconds after which a journal's lock belongs to a dead process; it is held only while one line is written."""
EPOCHS, LARGE, BATCH, STEPS, FEWEST = 200, 20_000, 2_048, 1_000, 2
"""More than ``LARGE`` training rows are trained in batches of ``BATCH``, for the epochs of about ``STEPS`` steps."""
TRIED = BATCH * STEPS // 4
"""Training rows per trial. The chosen network is then trained on all rows."""

Rows = tuple[Any, npt.NDArray[np.int64]]
"""Rows, an array or `StoredRows`, and their labels."""
Setting = Mapping[str, Any]


@dataclass(frozen=True)
class Problem:
    """What a trial needs: encoded rows with labels, and the metric."""

    train: Rows
    held: Rows
    measure: Measure
    seed: int
    epochs: int | None = None

    @property
    def losses(self) -> tuple[str, str]:
        """Names of the losses to compare: the metric's own, and cross-entropy."""
        return f"direct-{self.measure.name}", CROSS_ENTROPY

    @cached_property
    def sample(self) -> Rows:
        """The training rows of a trial."""
        rows, y = self.train
        if len(y) <= TRIED:
            return self.train
        kept = np.sort(np.random.default_rng(self.seed).permutation(len(y))[:TRIED])
        return some_rows(rows, kept), y[kept]

    @property
    def tried(self) -> int | None:
        """Number of training rows of a trial, if it is a sample."""
        return len(self.sample[1]) if self.sample is not self.train else None

    def estimator(self, loss: str, setting: Setting, rows: int) -> DirectLossClassifier:
        """The estimator of a setting for this many rows; for cross-entropy, the warm-up is the whole training."""
        batches = rows // BATCH if rows > LARGE else 0
        epochs = self.epochs or (max(FEWEST, STEPS // batches) if batches else EPOCHS)
        return DirectLossClassifier(
            self.measure.task,
            model=HIDDEN[setting["hidden"]],
            learning_rate=setting["learning_rate"],
            weight_decay=setting["weight_decay"],
            warm_up=1.0 if loss == CROSS_ENTROPY else 0.5,
            epochs=epochs,
            batch_size=BATCH if batches else None,
            random_state=self.seed,
        )

    def train_with(
        self, loss: str, setting: Setting, report: Callable[[int, float], None] | None = None, trial: bool = False
    ) -> DirectLossClassifier:
        """Train with a setting, on the sample if it is a trial; the same setting always gives the same network."""
        train = self.sample if trial else self.train
        with one_thread():
            return self.estimator(loss, setting, len(train[1])).fit(*train, eval_set=self.held, report=report)


@contextmanager
def one_thread() -> Iterator[None]:
    """The networks are so small that a second thread costs more than it gains."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Here(Executor):
    """Runs the work at once, in this process."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """A finished future."""
        future: Future[Any] = Future()
        future.set_result(function(*args, **options))
        return future


@contextmanager
def plain_errors(address: str) -> Iterator[None]:
    """Turn errors of the storage into one sentence."""
    try:
        yield
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError) as error:
        hint = "Remove it, or choose another with --storage, to start a new search."
        fail("--storage", "must be a whole journal of optuna", f"{address}, which is damaged ({error!r:.60})", hint)
    except (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError) as error:
        hint = "Give the path of a file, or a URL such as sqlite:///trials.db."
        fail("--storage", "must be a place that optuna can write to", f"{address} ({str(error).splitlines()[0]})", hint)


def open_storage(address: str) -> BaseStorage:
    """The database of a URL, or a journal file."""
    if "://" in address:
        return get_storage(address)
    path = Path(address).resolve()  # the lock is a symlink, which breaks from another folder
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = JournalFileSymlinkLock(str(path), STALE)
    backend = JournalFileBackend(str(path), lock)
    lock.acquire()
    try:
        with path.open("rb+") as file:
            # Remove an unfinished last line, left by a kill or a full disk: the next one would be appended to it.
            file.truncate(file.read().rfind(b"\n") + 1)
    finally:
        lock.release()
    return JournalStorage(backend)


def _pruner() -> optuna.pruners.BasePruner:
    return optuna.pruners.MedianPruner(n_startup_trials=FREE, n_warmup_steps=5)


class Search:
    """The studies of one fit, one per loss.

    ``owner`` stays the same when a killed fit is resumed; every other fit that shares the storage has its own.
    """

    def __init__(self, problem: Problem, name: str, address: str, owner: str = "") -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.problem, self.address, self.owner = problem, address, owner
        with plain_errors(address):
            how: Any = {"storage": open_storage(address), "pruner": _pruner(), "load_if_exists": True}
            self.studies = {
                loss: optuna.create_study(study_name=f"{name} {loss}", direction="maximize", **how)
                for loss in problem.losses
            }
            for study in self.studies.values():
                check_digests(study, address)
                self._give_up_killed(study)

    def _give_up_killed(self, study: optuna.Study) -> None:
        """Give up the trials that were running when this fit was killed; they start again."""
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.user_attrs.get(OWNER) == self.owner:
                study.tell(trial.number, state=TrialState.FAIL)

    def finished(self, loss: str) -> list[FrozenTrial]:
        """The finished trials, including those stopped early."""
        return self.studies[loss].get_trials(deepcopy=False, states=FINISHED)

    def seconds(self, loss: str) -> float:
        """The time its trials took, in any process."""
        return sum(trial.duration.total_seconds() for trial in self.finished(loss) if trial.duration is not None)

    def best(self, loss: str) -> FrozenTrial:
        """The trial with the highest validation metric, the first in a tie."""
        complete = [trial for trial in self.finished(loss) if trial.state == TrialState.COMPLETE]
        if not complete:
            hint = "Look at the columns for extreme numbers, or try more --trials."
            fail("--trials", "must yield a usable network", f"{loss} without one", hint)
        return max(complete, key=lambda trial: trial.value or 0.0)

    def run(
        self, trials: int | None, minutes: float | None, workers: int, observe: Callable[[str, FrozenTrial], None]
    ) -> None:
        """Run this many trials per loss, or for this many minutes; the loss with fewer trials goes first."""
        deadline = None if minutes is None else time.monotonic() + 60 * minutes
        pool: Executor = Here()
        if workers > 1:
            pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin_worker, (self.problem, self.address))
        running: dict[Future[FrozenTrial], str] = {}
        with pool, plain_errors(self.address):
            while True:
                while len(running) < workers and (loss := self._next(trials, deadline, running)) is not None:
                    trial = self._ask(loss)
                    study = self.studies[loss]
                    here, there = partial(run_trial, self.problem, study), partial(_in_worker, study.study_name)
                    job = pool.submit(here if workers == 1 else there, loss, trial._trial_id, trial.params)
                    running[job] = loss
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    observe(running.pop(future), future.result())

    def _next(self, trials: int | None, deadline: float | None, running: Mapping[Any, str]) -> str | None:
        """The loss to try next; None if the budget is spent, or will be by the running trials."""
        counts = {loss: len(self.finished(loss)) + [*running.values()].count(loss) for loss in self.studies}
        loss = min(counts, key=lambda loss: counts[loss])
        late = deadline is not None and time.monotonic() >= deadline and counts[loss] > 0
        return None if late or (trials is not None and counts[loss] >= trials) else loss

    def _ask(self, loss: str) -> Trial:
        # Seeded by the number of trials, here or elsewhere: an interrupted search continues as it would have, and
        # fits that share a storage try different settings.
        study = self.studies[loss]
        begun = len(study.get_trials(deepcopy=False, states=(*FINISHED, TrialState.RUNNING)))
        study.sampler = optuna.samplers.TPESampler(seed=self.problem.seed * 10_007 + begun, n_startup_trials=FREE)
        # Through the queue, so that no trial is ever without its owner. One may be left from before a kill.
        waiting = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        if not any(trial.user_attrs.get(OWNER) == self.owner for trial in waiting):
            study.enqueue_trial({} if begun else FIRST, {OWNER: self.owner})
        trial = study.ask(SPACE)
        if trial.user_attrs.get(OWNER) != self.owner:  # another fit was faster, and will take ours
            trial.set_user_attr(OWNER, self.owner)
        return trial


def run_trial(problem: Problem, study: optuna.Study, loss: str, trial_id: int, setting: Setting) -> FrozenTrial:
    """Train with one setting until it is worse than the median, and store the result."""
    trial = Trial(study, trial_id)
    curve: dict[int, float] = {}
    value: float | None

    def report(epoch: int, value: float) -> None:
        curve[epoch] = value
        trial.report(value, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned

    try:
        problem.train_with(loss, setting, report, trial=True)
        value, pruned = max(curve.values()), False
    except (optuna.TrialPruned, DirectLossError):  # the latter if scores became infinite
        value, pruned = next(reversed(curve.values()), None), True
    trial.set_user_attr(DIGEST, digest(study.study_name, setting, curve, value))
    return study.tell(trial, state=TrialState.PRUNED) if pruned else study.tell(trial, value)


_worker: dict[str, Any] = {}
"""What this worker process was started with."""


def _begin_worker(problem: Problem, address: str) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    _worker.update(problem=problem, storage=open_storage(address))


def _in_worker(name: str, loss: str, trial_id: int, setting: Setting) -> FrozenTrial:
    study = optuna.load_study(study_name=name, storage=_worker["storage"], pruner=_pruner())
    return run_trial(_worker["problem"], study, loss, trial_id, setting)


def digest(study: str, setting: Setting, curve: Mapping[int, float], value: float | None) -> str:
    """A digest of everything a trial reports."""
    content = [study, sorted(setting.items()), sorted(curve.items()), value]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def check_digests(study: optuna.Study, address: str) -> None:
    """Raise if the values of a trial are not those that were stored."""
    for trial in study.get_trials(deepcopy=False, states=FINISHED):
        found = digest(study.study_name, trial.params, trial.intermediate_values, trial.value)
        if trial.user_attrs.get(DIGEST) != found:
            which = f"trial {trial.number} of {study.study_name!r}"
            hint = "Restore the file, or remove it to start a new search."
            fail(which, "must be unchanged since fit stored it", f"changed in {address}", hint)
