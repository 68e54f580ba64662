"""Runs a user's solver on one problem at a time, in this process or in others, which can be killed if it hangs."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from multiprocessing import connection
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from directloss._checks import DirectLossError, fail

Solver = Callable[[Tensor], Any]


class Failure(NamedTuple):
    """An exception of a solver."""

    place: int
    """Index of the problem in the chunk."""
    words: str


def answers(solver: Solver, problems: Sequence[Tensor]) -> list[Any] | Failure:
    """The solver's answers, or its first failure."""
    outputs = []
    for place, problem in enumerate(problems):
        try:
            outputs.append(solver(problem))
        except DirectLossError:
            raise
        except Exception as error:  # of any kind: the user needs to know where
            return Failure(place, f"{type(error).__name__}: {error}")
    return outputs


class Workers:
    """Processes that solve problems; they start on first use and end with `close` or with this object."""

    def __init__(self, solver: Solver, processes: int, timeout: float | None) -> None:
        try:
            pickle.dumps(solver)
        except Exception as error:
            hint = "Define it with def in a module, or leave processes=1 and timeout=None."
            fail("solver", "must be importable by other processes", f"not: {error}", hint)
        self.solver, self.processes, self.timeout = solver, processes, timeout
        self._executor: ProcessPoolExecutor | None = None

    def solve(self, problems: Tensor) -> list[Any]:
        """The solver's answers to ``problems`` ``(b, ...)``."""
        # One at a time if timed, otherwise in chunks, as sending has a cost.
        size = 1 if self.timeout is not None else -(-len(problems) // (4 * self.processes))
        chunks = [problems[first : first + size] for first in range(0, len(problems), size)]
        executor = self._open()
        outputs: list[Any] = []
        try:
            waiting = [executor.submit(_solve_there, chunk.numpy()) for chunk in chunks]
            for chunk in waiting:
                outputs += self._result(chunk, len(outputs))
        except BaseException:  # also after an interrupt no process may go on working
            self.close()
            raise
        return outputs

    def _result(self, chunk: Future[Any], first: int) -> list[Any]:
        try:
            # All earlier chunks have answered, so this one is running and gets at least the full time.
            outputs = chunk.result(self.timeout)
        except TimeoutError:
            hint = "Raise timeout, or give the solver a time limit of its own."
            fail(
                "solver(scores)",
                f"must answer within timeout={self.timeout:g} seconds",
                f"late for problem {first}",
                hint,
            )
        except BrokenExecutor:
            fail("solver(scores)", "must answer", f"silent: its process died at problem {first} or after")
        if isinstance(outputs, Failure):
            raised(outputs.place + first, outputs.words)
        return list(outputs)

    def _open(self) -> ProcessPoolExecutor:
        if self._executor is None:
            # A fresh interpreter: forking one with threads, as torch has, can deadlock.
            spawn = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self.processes, spawn, _install, (self.solver,))
            self._end = weakref.finalize(self, end_workers, self._executor)
            self._executor.submit(int).result()  # the start takes seconds, which must not count as solver time
        return self._executor

    def close(self) -> None:
        """Kill the processes."""
        if self._executor is not None:
            self._end()
            self._executor = None

    def __getstate__(self) -> dict[str, Any]:
        return {**{name: value for name, value in self.__dict__.items() if name != "_end"}, "_executor": None}


def raised(place: int, words: str, hint: str = "") -> NoReturn:
    """Raise the error for a solver that raised an exception."""
    fail("solver(scores)", "must return the best output", f"none for problem {place}: it raised {words}", hint)


def end_workers(executor: ProcessPoolExecutor) -> None:
    """Kill the processes of a pool."""
    # Public as kill_workers() from Python 3.14 on.
    for process in list((executor._processes or {}).values()):
        process.kill()
    executor.shutdown(wait=True, cancel_futures=True)  # notices that they are gone and waits for no answer


_here: Solver | None = None


def _install(solver: Solver) -> None:
    global _here
    _here = solver
    torch.set_num_threads(1)
    end_with_parent()


def end_with_parent() -> None:
    """Make this worker exit with its parent, which cannot stop it when killed; it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _solve_there(chunk: Any) -> list[Any] | Failure:
    assert _here is not None
    outputs = answers(_here, list(torch.from_numpy(chunk)))
    return outputs if isinstance(outputs, Failure) else [y.numpy() if isinstance(y, Tensor) else y for y in outputs]
