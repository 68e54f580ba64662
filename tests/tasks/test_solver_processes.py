"""A user's solver in other processes: same answers, named failures, nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss.tasks import SolverTask
from directloss.tasks.decomposable import ENTRY
from tests.oracle.structured import kruskal

SCORES = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))


def slow_at_zero(scores: Tensor) -> Tensor:
    if float(scores[0]) == 0:
        threading.Event().wait()  # for ever
    return (scores > 0).float()


def dies_at_zero(scores: Tensor) -> Tensor:
    if float(scores[0]) == 0:
        os._exit(3)
    return (scores > 0).float()


def raises_at_zero(scores: Tensor) -> Tensor:
    if float(scores[0]) == 0:
        raise ValueError("no way out")
    return (scores > 0).float()


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    before = set(multiprocessing.active_children())
    yield
    assert set(multiprocessing.active_children()) <= before, "processes are left"


def test_processes_give_the_same_answers_and_end() -> None:
    alone = SolverTask(kruskal, batched=False, loss="missed")
    task = SolverTask(kruskal, batched=False, loss="missed", processes=2)
    assert torch.equal(task.predict(SCORES), alone.predict(SCORES))
    twin = pickle.loads(pickle.dumps(task))
    task.close()
    assert torch.equal(task.predict(SCORES[:2]), alone.predict(SCORES[:2])), "they start again"
    assert repr(twin) == repr(task)
    del task, twin


BAD = SCORES.clone()
BAD[4, 0] = 0


@pytest.mark.parametrize(
    ("solver", "options", "message"),
    [
        (slow_at_zero, {"timeout": 1.0}, "must answer within timeout=1 seconds, but it is late for problem 4"),
        (dies_at_zero, {"processes": 2}, "its process died at problem"),
        (raises_at_zero, {"processes": 2}, "none for problem 4: it raised ValueError: no way out"),
        (raises_at_zero, {}, "none for problem 4: it raised ValueError: no way out"),
    ],
)
def test_failures_name_the_problem(solver: object, options: dict[str, float], message: str) -> None:
    task = SolverTask(solver, batched=False, **options)  # type: ignore[arg-type]
    with pytest.raises(dl.DirectLossError) as caught:
        task.predict(BAD)
    assert message in str(caught.value)
    task.close()


WAITS = """
import sys, torch
from directloss.tasks import SolverTask
from tests.oracle.structured import kruskal

if __name__ == "__main__":
    task = SolverTask(kruskal, batched=False, loss="missed", processes=2)
    task.predict(torch.ones(4, 5))
    print(*task.workers._executor._processes, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
def test_processes_end_when_the_main_process_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    # The workers hold the other end of its output until they end.
    main = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert main.stdout is not None
    workers = [int(number) for number in main.stdout.readline().split()]
    main.kill()
    rest, _ = main.communicate(timeout=60)
    assert len(workers) == 2
    assert not rest


def test_what_cannot_be_sent_is_refused_when_built() -> None:
    with pytest.raises(dl.DirectLossError, match="solver must be importable by other processes"):
        SolverTask(lambda scores: scores, batched=False, processes=2)
    with pytest.raises(dl.DirectLossError, match="batched must be False with processes or timeout"):
        SolverTask(kruskal, processes=2)


# ---------------------------------------------------------------------------------------------- in this process


def test_a_batch_names_the_problem_too() -> None:
    def solver(scores: Tensor) -> Tensor:
        if bool((scores[:, 0] == 0).any()):
            raise ValueError("no way out")
        return (scores > 0).float()

    with pytest.raises(dl.DirectLossError, match=r"none for problem 4: it raised ValueError: no way out \(it got"):
        SolverTask(solver).predict(BAD)


def test_a_solver_that_mixes_problems_is_told_what_is_wrong() -> None:
    def one_of_all(scores: Tensor) -> Tensor:
        """For a single problem of any shape."""
        return (scores == scores.max()).float()

    with pytest.raises(dl.DirectLossError, match=r"event_dims=1 may be too small.*batched=False"):
        SolverTask(one_of_all).predict(SCORES)
    assert SolverTask(one_of_all, batched=False).predict(SCORES).sum() == 9
    assert SolverTask(one_of_all, batched=False, event_dims=2).predict(SCORES.expand(2, 9, 5)).sum() == 2
    with pytest.raises(dl.DirectLossError, match=r"Pass event_dims=2 if one problem has 2 dimensions"):
        SolverTask(lambda scores: torch.zeros(9, 5), batched=False).predict(SCORES)


def test_infeasible_outputs_are_refused() -> None:
    def chooses_all(scores: Tensor) -> Tensor:
        return torch.ones_like(scores)

    task = SolverTask(chooses_all, feasible=lambda y: y.sum() <= 3)
    with pytest.raises(dl.DirectLossError, match="must be feasible, but it is not, for problem 0"):
        task.predict(SCORES)


def test_regret_below_zero_is_suspicious() -> None:
    def minimises(scores: Tensor) -> Tensor:
        return torch.zeros_like(scores).scatter(-1, scores.argmin(-1, keepdim=True), 1.0)

    costs = torch.rand(9, 5)
    with pytest.warns(dl.DirectLossWarning, match="better than its own output for the true costs"):
        dl.direct_loss(SCORES, costs, SolverTask(minimises, loss="regret"))


def test_the_cache_saves_calls_and_stays_small() -> None:
    calls = []

    def solver(scores: Tensor) -> Tensor:
        calls.append(1)
        return (scores > 0).float()

    task = SolverTask(solver, batched=False, cache=6 * (ENTRY + 5) / 2**20)
    first = task.predict(SCORES)
    assert torch.equal(task.predict(SCORES[3:]), first[3:])
    assert len(calls) == 9
    task.predict(SCORES[:1])
    assert len(calls) == 10
    assert len(task._solved) == 6
