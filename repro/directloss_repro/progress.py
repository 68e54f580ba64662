"""Progress of an experiment: a bar and occasional lines in a terminal, only the lines in a file."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from directloss_repro.campaign import Campaign, Cell, in_words
from directloss_repro.records import Record, RunSpec
from directloss_repro.reports.formatting import duration

LINES = 20
"""About how many lines a whole experiment prints."""
SILENCE = 30.0
"""Seconds without output after which a line says what is running."""
SHOWN_AFTER = 1.0
"""Seconds: a stage that is faster (everything was cached) prints no line."""
FEW = 10


class _Bars:
    """Progress bars in a terminal; elsewhere a line after half a minute of silence."""

    def __init__(self, console: Console) -> None:
        self.console = console
        columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        left = TextColumn("{task.fields[left]}")
        self._bars = Progress(*columns, left, console=console, disable=not console.is_terminal)
        self._last, self._end = time.monotonic(), threading.Event()
        self._watch = threading.Thread(target=self._break_silences, daemon=True)

    def __enter__(self) -> Self:
        self._bars.start()
        self._watch.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._end.set()
        self._watch.join()
        self._bars.stop()

    def note(self, line: str) -> None:
        """Print a line, above the bars."""
        self._last = time.monotonic()
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def running(self) -> str:
        """What is running now."""
        raise NotImplementedError

    def _break_silences(self) -> None:
        while not self.console.is_terminal and not self._end.wait(max(0.0, self._last + SILENCE - time.monotonic())):
            if time.monotonic() - self._last >= SILENCE:
                self.note(self.running())


class Stages(_Bars):
    """The stages of a preparation."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._known: dict[str, tuple[TaskID, float]] = {}
        self._now = "preparing"

    def running(self) -> str:
        """The current stage and its progress."""
        return self._now

    def progress(self, stage: str, done: int, total: int) -> None:
        """``done`` of ``total`` steps of a stage are done."""
        if stage not in self._known:
            self._known[stage] = (self._bars.add_task(stage, left=""), time.monotonic())
        bar, began = self._known[stage]
        self._bars.update(bar, completed=done, total=total)
        self._now = f"{stage}: {done} of {total}"
        if done == total and time.monotonic() - began > SHOWN_AFTER:
            self.note(f"{stage}: {total} in {duration(time.monotonic() - began)}")


class Display(_Bars):
    """The runs of a campaign. ``found`` are the records that a resumed campaign starts with."""

    def __init__(self, console: Console, title: str, campaign: Campaign, found: Sequence[Record] = ()) -> None:
        super().__init__(console)
        self.title, self.total, self._judged_by = title, campaign.total, campaign.judged_by
        self.done = self.found = len(found)
        self.clock = time.monotonic()
        self._running: list[str] = []
        self._task = self._bars.add_task(title, total=self.total, completed=self.done, left="")

    def __enter__(self) -> Self:
        self.note(f"{self.title}: {self.total - self.done} of {self.total} runs to do")
        return super().__enter__()

    def running(self) -> str:
        """The runs that have begun and not finished."""
        return f"[{self.done}/{self.total}] running: {'; '.join(self._running) or 'nothing'}"

    def began(self, spec: RunSpec) -> None:
        """A run has begun."""
        self._running.append(in_words(spec))

    def finished(self, record: Record) -> None:
        """A run has finished."""
        self._running = [run for run in self._running if run != in_words(record)]
        self.done += 1
        if self.done == self.found + 1:
            self.clock = time.monotonic()
        self._bars.update(self._task, completed=self.done, left=self.time_left())
        if self.done % max(1, self.total // LINES) == 0 or self.done == self.total:
            words = (f"[{self.done}/{self.total}] {in_words(record)}", self.time_left(), self.news(record))
            self.note("; ".join(part for part in words if part))

    def time_left(self) -> str:
        """An estimate from the speed so far.

        The clock starts with the first finished run: before it, processes start and data is loaded once.
        """
        new = self.done - self.found - 1
        if new < 1 or self.done == self.total:
            return ""
        return f"about {duration((time.monotonic() - self.clock) / new * (self.total - self.done))} left"

    def news(self, record: Record) -> str:
        """What a run is judged by: on test data, or on what the search looks at."""
        name = self._judged_by(Cell(record.group, record.method, record.noise or 0.0))
        if record.stage == "final":
            name = f"test_{name.partition('_')[2]}" if "_" in name else "test"
        value = record.metrics.get(name)  # a cell that trains several seeds has a value for each
        return "" if value is None else f"{name}: {value:.3f}"


def first_few(reasons: Sequence[str], what: str) -> list[str]:
    """The first sentences of a list, and how many more there are.

    Examples:
        >>> first_few(["a.jpg is broken."], "Left out")
        ['Left out: a.jpg is broken.']
    """
    more = len(reasons) - FEW
    shown = [f"{what}: {reason}" for reason in reasons[:FEW]]
    return shown + ([f"... and {more} more, listed in run.json."] if more > 0 else [])
