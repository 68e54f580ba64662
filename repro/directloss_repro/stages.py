"""What a waiting person sees before the first run: the stages of the preparation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

FEW = 10
SHOWN_AFTER = 1.0
"""Seconds: a stage that is quicker (everything was in the cache) is not worth a line."""


class Stages:
    """A bar for each stage in a terminal; elsewhere a line when a stage is done."""

    def __init__(self, console: Console) -> None:
        self.console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Progress(*columns, console=console) if console.is_terminal else None
        self._known: dict[str, tuple[TaskID | None, float]] = {}

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, stage: str, done: int, total: int) -> None:
        """``done`` of ``total`` steps of a stage are done."""
        if stage not in self._known:
            self._known[stage] = (None if self._bars is None else self._bars.add_task(stage), time.monotonic())
        bar, began = self._known[stage]
        if self._bars is not None and bar is not None:
            self._bars.update(bar, completed=done, total=total)
        elif done == total and time.monotonic() - began > SHOWN_AFTER:
            self.console.print(f"{stage}: {total} in {time.monotonic() - began:.0f} s", highlight=False, markup=False)


def first_few(reasons: Sequence[str], what: str) -> list[str]:
    """The first sentences of a list, and how many more there are.

    Example:
        >>> first_few(["a.jpg is broken."], "Left out")
        ['Left out: a.jpg is broken.']
    """
    more = len(reasons) - FEW
    shown = [f"{what}: {reason}" for reason in reasons[:FEW]]
    return shown + ([f"... and {more} more, listed in run.json."] if more > 0 else [])
