"""Worker processes: each has a pipe of its own, takes one job at a time, and ends with its parent.

Why not ProcessPoolExecutor: its workers outlive a parent that was killed, and it cannot stop a job that is under way.
Here workers leave with their parent, so that nothing is left behind, and `stop` ends all workers at once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from directloss._checks import DirectLossError
from directloss_repro.records import RunSpec
from directloss_repro.runner import set_up_process


class Job(Protocol):
    """Work that can be sent to another process."""

    @property
    def spec(self) -> RunSpec:
        """What is run."""

    @property
    def key(self) -> str:
        """The key that its record will have."""

    def run(self) -> Any:
        """Do it and return the record."""


Result = tuple[Job, Any]


class Worker(Protocol):
    """Someone who does one job at a time."""

    def start(self, job: Job) -> None:
        """Begin with a job."""

    def ready(self) -> bool:
        """Whether the result is there, or there will be none."""

    def result(self) -> Result:
        """The result; raises what went wrong."""

    def end(self) -> None:
        """Stop, whatever is under way."""


class Pool:
    """``workers`` processes that execute jobs; with one worker the jobs run in this process."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._idle: list[Worker] = []
        self._busy: list[Worker] = []
        self._here: list[Job] = []
        set_up_process()

    @property
    def free(self) -> int:
        """How many jobs it can take now."""
        return self.workers - len(self._busy) - len(self._here)

    def submit(self, job: Job) -> None:
        """Start a job; there must be a free worker."""
        if self.workers == 1:
            self._here.append(job)
            return
        worker: Worker = self._idle.pop() if self._idle else _Child()
        worker.start(job)
        self._busy.append(worker)

    def collect(self) -> list[Result]:
        """Wait until at least one job is done and return what is."""
        if self._here:
            job = self._here.pop()
            return [(job, job.run())]
        done = self._finished()
        results = [worker.result() for worker in done]
        self._busy = [worker for worker in self._busy if worker not in done]
        self._idle += done
        return results

    def _finished(self) -> list[Worker]:
        """Those that are done; at least one."""
        wait([worker.pipe for worker in self._busy if isinstance(worker, _Child)])
        return [worker for worker in self._busy if worker.ready()]

    def stop(self) -> None:
        """End all workers, whatever they are doing."""
        for worker in self._busy + self._idle:
            worker.end()
        self._busy, self._idle, self._here = [], [], []


class _Child:
    """A child process and this side of its pipe."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        self.job = job
        self.pipe.send(job)

    def ready(self) -> bool:
        return self.pipe.poll()

    def result(self) -> Result:
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            during = "" if self.job is None else f" during {self.job.spec.method}"
            raise DirectLossError(
                f"A worker process died (exit code {self.process.exitcode}){during}. "
                "Was the memory full? What is finished is stored; go on with --resume and fewer --workers."
            ) from None
        return opened(self.job, answer)

    def end(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def answer_of(job: Job) -> Any:
    """Do a job. What went wrong is an answer, too: one that can be sent to another process."""
    try:
        return job.run()
    except (DirectLossError, OSError) as error:
        return error
    except Exception:
        return traceback.format_exc()


def opened(job: Job | None, answer: Any) -> Result:
    """A job with its result, or the error that the answer stands for."""
    if job is None:
        raise RuntimeError("a worker answered without a job")
    if isinstance(answer, DirectLossError | OSError):
        raise answer
    if isinstance(answer, str):
        raise RuntimeError(f"A run failed: {job.spec}\n{answer}")
    return job, answer


def _leave_with_parent() -> None:
    """A parent that is gone has nobody to hand results to: stop at once, in the middle of hours of training, too."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(0)


def _work(pipe: Connection) -> None:
    """The life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what to do
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    set_up_process()
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        answer = answer_of(job)
        try:
            pipe.send(answer)
        except (BrokenPipeError, OSError):
            os._exit(0)
