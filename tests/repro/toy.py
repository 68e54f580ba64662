"""A campaign without networks: numbers that depend on cell, setting and seed alone, and workers that die on demand."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from directloss_repro.campaign import Campaign, Cell, Outcome

METHODS = ("a", "b", "c")
SETTINGS = [{"rate": 0.1}, {"rate": 0.2}, {"rate": 0.3}]
TOTAL = len(METHODS) * (len(SETTINGS) * 2 + 2)


@dataclass(frozen=True)
class Toy:
    """``deadly`` is a method whose final runs kill their process; with ``marker`` only the first of them does."""

    deadly: str = ""
    marker: str = ""

    def __call__(self, cell: Cell, params: dict[str, Any], seed: int) -> Outcome:
        if cell.method == self.deadly and seed == 0 and not (self.marker and Path(self.marker).exists()):
            if self.marker:
                Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        best = SETTINGS[METHODS.index(cell.method)]["rate"]
        value = 1 - abs(params["rate"] - best) + seed % 10 / 1000
        return Outcome({"val_ap": value} if seed >= 1000 else {"val_ap": value, "test_ap": value})


def settings(cell: Cell) -> list[dict[str, Any]]:
    return SETTINGS


def judged_by(cell: Cell) -> str:
    return "val_ap"


def campaign(train: Any = Toy(), **changes: Any) -> Campaign:  # noqa: B008
    """Three methods, three settings, two search seeds, two final seeds."""
    cells = tuple(Cell("data", method) for method in METHODS)
    named = {"settings": settings, "judged_by": judged_by, "seeds": 2, "search_seeds": 2, **changes}
    return Campaign("toy", "1", cells, train=train, **named)
