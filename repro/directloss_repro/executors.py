"""Where runs execute: in this process, in local worker processes, or on a Dask cluster."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_all_start_methods, get_context, parent_process
from typing import Any

from directloss._checks import fail

START = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
TIMEOUT = 10.0
"""Seconds to wait for the scheduler of a cluster."""


@dataclass(frozen=True)
class Workers:
    """An executor, and how many runs it does in parallel."""

    executor: Executor
    slots: Callable[[], int] = lambda: 1


OpenWorkers = Callable[[], AbstractContextManager[Workers]]


def one_thread() -> None:
    """One thread per process: the networks are small, and results must not depend on how sums are split up."""
    import torch

    torch.set_num_threads(1)


@contextmanager
def local_workers(count: int) -> Iterator[Workers]:
    """``count`` local processes; if 1, runs execute in this process.

    Workers end with this process, however it ends. `ProcessPoolExecutor` alone would leave them behind, or wait for
    hours of training.
    """
    if count == 1:
        yield Workers(InProcess())
        return
    context: Any = get_context(START)
    if START == "forkserver":  # one process imports torch, and the workers are its copies
        context.set_forkserver_preload(["directloss_repro.runner"])
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin)
    try:
        yield Workers(pool, lambda: count)
        pool.shutdown()
    except BaseException:
        for process in list((pool._processes or {}).values()):  # public as kill_workers() from Python 3.14 on
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)  # notices that they are gone and waits for no answer
        raise


class InProcess(Executor):
    """Executes each call when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call ``fn`` and return a finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _begin() -> None:
    """Initialise a worker process, which exits with its parent: that cannot stop it when killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what to do
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def cluster_workers(address: str) -> Iterator[Workers]:
    """The workers of the Dask scheduler at ``address``; each process does one run at a time.

    Dask restarts a run whose worker has died; if several workers die of the same run, an error names it.
    """
    import distributed  # slow to import

    connect: Any = distributed.Client
    try:
        client = connect(address, timeout=TIMEOUT, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        rule = "must be the address of a Dask scheduler that answers, such as tcp://HOST:8786"
        fail("--cluster", rule, f"{address!r} ({error})", "Start one with: dask scheduler")
    with client, client.get_executor(pure=False) as executor:
        try:
            yield Workers(executor, lambda: len(client.nthreads()))
        except distributed.KilledWorker as error:
            hint = "Did they run out of memory? Finished runs are stored; continue with --resume."
            fail("a run", "must not kill its worker", f"one that killed several ({error.task})", hint)
