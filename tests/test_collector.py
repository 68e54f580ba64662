"""While kernels compile, the garbage collector pauses, and goes on as it was."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from directloss.kernels import compiled
from directloss.kernels.compiled import uncollected


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_is_left_as_it_was(collects: bool) -> None:
    (gc.enable if collects else gc.disable)()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() is collects
        with pytest.raises(ZeroDivisionError), uncollected():
            _ = 1 / 0
        assert gc.isenabled() is collects
    finally:
        gc.enable()


def test_several_threads_leave_it_on() -> None:
    inside, go_on = threading.Barrier(2), threading.Event()

    def first() -> None:
        with uncollected():
            inside.wait()
            go_on.wait()

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait()
    with uncollected():
        go_on.set()
        thread.join()
    assert gc.isenabled()


def test_kernels_compile_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def add_one(values):  # type: ignore[no-untyped-def]
        for k in range(len(values)):
            values[k] += 1

    monkeypatch.setattr(gc, "disable", lambda real=gc.disable: (seen.append("off"), real()))
    kernel, numbers = compiled.kernel(add_one), np.zeros(3)
    assert seen == []
    kernel(numbers)
    kernel(numbers)
    assert numbers.tolist() == [2, 2, 2]
    assert seen == ["off"]  # the second call compiles nothing
    assert gc.isenabled()
