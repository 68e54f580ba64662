"""The lab under ``torchrun``: its processes train, each one run at a time, and the first of them keeps the books.

Why runs and not batches are divided: the networks are small, the runs are many and independent, so nothing is gained
by splitting one. Jobs and results go through the store that ``torchrun`` keeps for its processes. The first process
plans, prints and writes; it leaves training to a child process, so that it can serve the others at any time.

``torchrun --max-restarts`` starts all processes anew after one has died. The new first process finds the folder that it
wrote before and goes on there, as ``--resume`` would.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import pickle
import signal
import socket
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import torch.distributed as dist

from directloss._checks import DirectLossError
from directloss_repro.folder import Folder
from directloss_repro.pool import Job, Pool, Result, Worker, answer_of, opened
from directloss_repro.runner import set_up_process

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

POLL = 0.05
"""Seconds between two looks into the store; runs take much longer."""
LAUNCH = "launch"
"""The entry of ``run.json`` that tells which torchrun wrote it."""


@dataclass
class Crew:
    """The processes of one torchrun, as one of them sees it."""

    store: Store
    rank: int
    size: int
    helpers: list[_Helper] = field(init=False)

    def __post_init__(self) -> None:
        self.helpers = [_Helper(self.store, rank) for rank in range(1, self.size)]

    def serve(self) -> None:
        """The life of every process but the first: do jobs until there are no more, or nobody to give any."""
        set_up_process()
        with contextlib.suppress(dist.DistNetworkError):
            self._work()

    def _work(self) -> None:
        for number in itertools.count():
            job = self._receive(_job_key(self.rank, number))
            if job is None:
                return
            self.store.set(_result_key(self.rank, number), pickle.dumps(answer_of(job)))  # type: ignore[arg-type]

    def dismiss(self) -> None:
        """There are no more jobs."""
        for helper in self.helpers:
            helper.send(None)

    def _receive(self, key: str) -> Job | None:
        while not self.store.check([key]):
            time.sleep(POLL)
        job: Job | None = pickle.loads(self.store.get(key))
        self.store.delete_key(key)
        return job


@cache
def crew() -> Crew | None:
    """The processes that work together; None if this one was not started by torchrun."""
    if not dist.is_available() or not dist.is_torchelastic_launched():
        return None
    from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]

    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    store, rank, size = next(iter(rendezvous("env://")))
    if rank > 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the first process says what there is to say
    return Crew(PrefixStore(f"directloss/{restarts()}", store), rank, size)


def restarts() -> int:
    """How often torchrun has started all processes again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def launch() -> str | None:
    """A name of this torchrun, the same after its restarts; None without one."""
    if crew() is None:
        return None
    words = f"{os.environ.get('TORCHELASTIC_RUN_ID')} {socket.gethostname()} {os.getppid()}"
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def began_before(folder: Folder) -> bool:
    """Whether the run in a folder is the one that this torchrun began before it started its processes again.

    Any other run is not ours to go on with, unless the user says ``--resume``.
    """
    if restarts() == 0 or launch() is None:
        return False
    return (folder.stored() or {}).get(LAUNCH) == launch()


class CrewPool(Pool):
    """A pool of the processes of torchrun: the helpers, and a child of this one."""

    def __init__(self, crew: Crew) -> None:
        super().__init__(crew.size)
        self._idle += crew.helpers

    def _finished(self) -> list[Worker]:
        try:
            while not (done := [worker for worker in self._busy if worker.ready()]):
                time.sleep(POLL)
        except dist.DistError as error:
            raise DirectLossError(
                f"The store of torchrun is gone ({error}). Was torchrun killed? What is finished is stored; go on with "
                "--resume."
            ) from None
        return done


class _Helper:
    """Another process, from the first one's side. It is not ours to end: torchrun does that if we fail."""

    def __init__(self, store: Store, rank: int) -> None:
        self.store, self.rank = store, rank
        self.sent = 0
        self.job: Job | None = None

    def send(self, job: Job | None) -> None:
        self.store.set(_job_key(self.rank, self.sent), pickle.dumps(job))  # type: ignore[arg-type]
        self.sent += 1

    def start(self, job: Job) -> None:
        self.job = job
        self.send(job)

    @property
    def _key(self) -> str:
        return _result_key(self.rank, self.sent - 1)

    def ready(self) -> bool:
        return bool(self.store.check([self._key]))

    def result(self) -> Result:
        answer = pickle.loads(self.store.get(self._key))
        self.store.delete_key(self._key)
        return opened(self.job, answer)

    def end(self) -> None:
        pass


def _job_key(rank: int, number: int) -> str:
    return f"job/{rank}/{number}"


def _result_key(rank: int, number: int) -> str:
    return f"result/{rank}/{number}"


def _leave_with(agent: int) -> None:
    """A torchrun that was killed cannot end its processes: they notice, also in the middle of a training."""
    while os.getppid() == agent:
        time.sleep(1)
    os._exit(1)
