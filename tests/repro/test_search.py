"""The search: whole grids, the same result whoever ran what, and queues that outlive their processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from directloss_repro import search
from directloss_repro.search import (
    Finished,
    GridQueue,
    Queue,
    Range,
    TpeQueue,
    best_setting,
    close_storage,
    open_storage,
)
from optuna.storages import BaseStorage
from sqlalchemy.exc import IntegrityError

from directloss import DirectLossError

SPACE: dict[str, tuple[Any, ...]] = {"learning_rate": (0.1, 0.01), "epsilon": (1.0, "auto"), "seed": (1000, 1001)}


@pytest.fixture(params=["sqlite", "journal"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStorage]:
    opened = open_storage(
        {"sqlite": f"sqlite:///{tmp_path}/a.db", "journal": f"journal:{tmp_path}/a.log"}[request.param]
    )
    yield opened
    close_storage(opened)


@pytest.fixture
def file_storage(tmp_path: Path) -> Iterator[BaseStorage]:
    opened = open_storage(f"journal:{tmp_path}/a.log")
    yield opened
    close_storage(opened)


def value(setting: dict[str, Any]) -> float:
    return setting["learning_rate"] + (0.5 if setting["epsilon"] == "auto" else 0.0) + setting["seed"] % 10 * 1e-3


def drain(queue: Queue, take_over: bool = False) -> int:
    count = 0
    while (ticket := queue.take(take_over)) is not None:
        queue.bring(ticket, value(ticket.setting), {"key": str(ticket.setting)})
        count += 1
    return count


def test_a_grid_is_handed_out_once(storage: BaseStorage) -> None:
    queue = GridQueue(storage, "a", SPACE)
    assert not queue.complete
    assert drain(queue) == 8
    assert queue.complete
    assert queue.take(take_over=True) is None
    settings = [result.setting for result in queue.finished()]
    assert len({str(sorted(setting.items())) for setting in settings}) == 8
    assert all(result.record == {"key": str(result.setting)} for result in queue.finished())


def test_two_machines_share_a_grid(file_storage: BaseStorage) -> None:
    here, there = GridQueue(file_storage, "a", SPACE), GridQueue(file_storage, "a", SPACE)
    tickets = []
    for _ in range(4):
        for queue in (here, there):
            ticket = queue.take()
            assert ticket is not None
            tickets.append((queue, ticket))
    assert here.take() is None
    assert there.take() is None
    for queue, ticket in tickets:
        queue.bring(ticket, value(ticket.setting))
    assert here.complete
    assert there.complete
    assert len(here.finished()) == 8


def test_what_a_dead_process_took_is_taken_over(storage: BaseStorage) -> None:
    dead = GridQueue(storage, "a", SPACE)
    lost = [dead.take() for _ in range(3)]
    assert None not in lost
    alive = GridQueue(storage, "a", SPACE)
    assert drain(alive) == 5
    assert alive.take() is None
    assert not alive.complete
    assert drain(alive, take_over=True) == 3
    assert alive.complete
    assert len(alive.finished()) == 8


def test_what_is_running_here_is_not_taken_over(file_storage: BaseStorage) -> None:
    queue = GridQueue(file_storage, "a", SPACE)
    tickets = [queue.take() for _ in range(8)]
    assert queue.take(take_over=True) is None
    assert all(ticket is not None for ticket in tickets)


def test_a_finished_queue_is_finished_for_the_next_process(storage: BaseStorage) -> None:
    drain(GridQueue(storage, "a", SPACE))
    again = GridQueue(storage, "a", SPACE)
    assert again.complete
    assert again.take() is None
    assert not GridQueue(storage, "b", SPACE).complete


POINTS: list[dict[str, Any]] = [{"x": 1.0}, {"x": 2.0}, {"x": "auto"}]


def test_the_best_mean_over_seeds_wins() -> None:
    results = [
        Finished({"x": 1.0, "seed": 0}, 0.9, None),
        Finished({"x": 1.0, "seed": 1}, 0.1, None),
        Finished({"x": 2.0, "seed": 0}, 0.6, None),
        Finished({"x": 2.0, "seed": 1}, 0.6, None),
        Finished({"x": "auto", "seed": 0}, 0.7, None),
        Finished({"x": "auto", "seed": 1}, 0.4, None),
    ]
    assert best_setting(POINTS, results) == {"x": 2.0}
    assert best_setting(POINTS, results[::-1]) == {"x": 2.0}


def test_among_equals_the_first_point_wins() -> None:
    results = [Finished({"x": x, "seed": 0}, 0.5, None) for x in ("auto", 2.0, 1.0)]
    assert best_setting(POINTS, results) == {"x": 1.0}


def tpe(storage: BaseStorage, trials: int = 8) -> TpeQueue:
    return TpeQueue(storage, "fit", {"rate": Range(1e-4, 1.0), "depth": (1, 2, 3)}, trials, seed=5)


def climb(queue: TpeQueue, steps: int) -> None:
    for _ in range(steps):
        ticket = queue.take()
        assert ticket is not None
        assert queue.take() is None  # one at a time
        queue.bring(ticket, -abs(ticket.setting["rate"] - 0.01))


def test_tpe_does_not_depend_on_interruptions(tmp_path: Path) -> None:
    settings = []
    for name, parts in (("whole", [8]), ("parts", [3, 5])):
        storage = open_storage(f"journal:{tmp_path}/{name}.log")
        for steps in parts:
            climb(tpe(storage), steps)
        queue = tpe(storage)
        assert queue.complete
        assert queue.take() is None
        settings.append([result.setting for result in queue.finished()])
        close_storage(storage)
    assert settings[0] == settings[1]
    assert all(1e-4 <= setting["rate"] <= 1 and setting["depth"] in (1, 2, 3) for setting in settings[0])


@pytest.mark.parametrize("url", ["nonsense", "sqlite:////no/such/folder/a.db", "nosuchdb://host/name"])
def test_storages_that_cannot_be_opened(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search.time, "sleep", lambda seconds: None)
    with pytest.raises(DirectLossError, match="--storage must be a storage that optuna can open"):
        open_storage(url)


def test_two_processes_may_make_one_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two that make the tables at the same moment is refused by the database, and tries again."""
    opened: list[str] = []
    pauses: list[float] = []

    class Busy(search.RDBStorage):
        def __init__(self, url: str, **options: Any) -> None:
            opened.append(url)
            if len(opened) == 1:
                raise IntegrityError("insert", {}, Exception("UNIQUE constraint failed"))
            super().__init__(url, **options)

    monkeypatch.setattr(search, "RDBStorage", Busy)
    monkeypatch.setattr(search.time, "sleep", pauses.append)
    storage = open_storage(f"sqlite:///{tmp_path}/a.db")
    close_storage(storage)
    assert len(opened) == 2
    assert len(pauses) == 1
