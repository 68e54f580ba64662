"""What a waiting person sees: one live display in a terminal, plain lines elsewhere, at least one every half minute."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from directloss_repro.campaign import Campaign, Cell, in_words
from directloss_repro.records import Record, RunSpec

LINES = 50
"""About as many plain lines as the runs of a whole experiment may print."""
SILENCE = 30.0
"""Seconds without a line after which what is under way is named."""
FEW = 10
SHOWN_AFTER = 1.0
"""Seconds: a stage that is quicker (everything was in the cache) is not worth a line."""


class Heartbeat:
    """Calls ``beat`` whenever nothing was printed for ``every`` seconds."""

    def __init__(self, beat: Callable[[], None], every: float = SILENCE) -> None:
        self._beat, self._every = beat, every
        self._stop = threading.Event()
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._stop.set()
        self._thread.join()

    def printed(self) -> None:
        """Somebody else has just printed."""
        self._last = time.monotonic()

    def _live(self) -> None:
        while not self._stop.wait(max(0.0, self._last + self._every - time.monotonic())):
            if time.monotonic() - self._last >= self._every:
                self.printed()
                self._beat()


class Standing:
    """The best number of each method in the search so far, and the mean on test data of its final runs.

    Levels of noise are kept apart; over classes the mean is taken.
    """

    def __init__(self, campaign: Campaign) -> None:
        self.judged_by = campaign.judged_by
        self.methods = tuple(dict.fromkeys(cell.method for cell in campaign.cells))
        self.noise = tuple(dict.fromkeys(cell.noise for cell in campaign.cells))
        self._best: dict[tuple[str, float | None], dict[str | None, float]] = defaultdict(dict)
        self._final: dict[tuple[str, float | None], list[float]] = defaultdict(list)

    def number(self, record: Record) -> tuple[str, float | None]:
        """The number that a run stands for, and its name: what settings are chosen by, or the same on test data."""
        name = self.judged_by(Cell(record.group, record.method, record.noise or 0.0))
        name = name if record.stage == "search" else "test" + "".join(name.partition("_")[1:])
        return name, record.metrics.get(name)

    def add(self, record: Record) -> None:
        """Take one more record into account."""
        place, value = (record.method, record.noise), self.number(record)[1]
        if value is None:
            return
        if record.stage == "final":
            self._final[place].append(value)
        else:
            found = self._best[place]
            found[record.group] = max(value, found.get(record.group, -math.inf))

    def best(self, method: str, noise: float | None) -> str:
        """Best number in the search; a dash before the first run."""
        found = self._best[method, noise].values()
        return f"{sum(found) / len(found):.3f}" if found else "-"

    def test(self, method: str, noise: float | None) -> str:
        """Mean on test data, with the number of runs; nothing before the first one."""
        found = self._final[method, noise]
        return f"{sum(found) / len(found):.3f} ({len(found)})" if found else ""

    def table(self) -> Table:
        """Methods by noise levels."""
        title = "Best in search, mean on test data (runs)"
        table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
        table.add_column("method")
        for noise in self.noise:
            table.add_column(f"noise {noise:.0%}" if len(self.noise) > 1 else "", justify="left")
        for method in self.methods:
            table.add_row(method, *(f"{self.best(method, n)}  [bold]{self.test(method, n)}[/]" for n in self.noise))
        return table

    def news(self, record: Record) -> str:
        """In one line: what a final run gave on test data, or who leads the search at this noise level."""
        name, value = self.number(record)
        if record.stage == "final":
            return f"{name}: {math.nan if value is None else value:.3f}"
        begun = [method for method in self.methods if self.best(method, record.noise) != "-"]
        return f"best {name}: " + ", ".join(f"{method} {self.best(method, record.noise)}" for method in begun)


class Display:
    """Counts finished runs and shows them. ``found`` are records that were there before."""

    def __init__(self, console: Console, title: str, campaign: Campaign, found: Sequence[Record] = ()) -> None:
        self.console, self.title, self.total, self.standing = console, title, campaign.total, Standing(campaign)
        self.done = self.found = len(found)
        for record in found:
            self.standing.add(record)
        self.clock = time.monotonic()
        self._under_way: dict[tuple[object, ...], str] = {}
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs,"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._task = self._bar.add_task(title, total=self.total, completed=self.done, left="")
        self._live = Live(self._picture(), console=console, refresh_per_second=4) if console.is_terminal else None
        self._heartbeat = Heartbeat(self._beat)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        else:
            self.note(f"{self.title}: {self.total - self.done} of {self.total} runs to do")
        self._heartbeat.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self._heartbeat.__exit__()
        if self._live is not None:
            self._live.update(self._picture())
            self._live.stop()

    def note(self, line: str) -> None:
        """Something to know besides."""
        self._heartbeat.printed()
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def began(self, spec: RunSpec) -> None:
        """A run is under way."""
        self._under_way[_place(spec)] = in_words(spec)

    def finished(self, record: Record) -> None:
        """One more run is finished."""
        self._under_way.pop(_place(record), None)
        self.done += 1
        if self.done == self.found + 1:
            self.clock = time.monotonic()
        self.standing.add(record)
        self._bar.update(self._task, completed=self.done, left=self.time_left())
        if self._live is not None:
            self._live.update(self._picture())
        elif self.done % max(1, self.total // LINES) == 0 or self.done == self.total:
            words = (f"[{self.done}/{self.total}] {in_words(record)}", self.time_left(), self.standing.news(record))
            self.note("; ".join(part for part in words if part))

    def time_left(self) -> str:
        """A guess from the speed so far in this session.

        The clock starts with the first finished run: before it, processes start and data is read, once.
        """
        new = self.done - self.found - 1
        if new < 1 or self.done == self.total:
            return ""
        return f"about {span((time.monotonic() - self.clock) / new * (self.total - self.done))} left"

    def _beat(self) -> None:
        if self._live is None:
            runs = "; ".join(list(self._under_way.values())) or "nothing"
            self.note(f"[{self.done}/{self.total}] under way: {runs}")

    def _picture(self) -> Group:
        return Group(self._bar, self.standing.table())


def _place(run: RunSpec | Record) -> tuple[object, ...]:
    return run.stage, run.method, run.noise, run.group, run.seed, str(run.params)


class Stages:
    """The stages of the preparation: a bar for each in a terminal; elsewhere a line now and then, and at its end."""

    def __init__(self, console: Console) -> None:
        self.console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Progress(*columns, console=console, disable=not console.is_terminal)
        self._known: dict[str, tuple[TaskID, float]] = {}
        self._now = "preparing"
        self._heartbeat = Heartbeat(lambda: self._print(self._now))

    def __enter__(self) -> Self:
        self._bars.start()
        self._heartbeat.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self._heartbeat.__exit__()
        self._bars.stop()

    def say(self, stage: str, done: int, total: int) -> None:
        """``done`` of ``total`` steps of a stage are done."""
        if stage not in self._known:
            self._known[stage] = (self._bars.add_task(stage), time.monotonic())
        bar, began = self._known[stage]
        self._bars.update(bar, completed=done, total=total)
        self._now = f"{stage}: {done} of {total}"
        if done == total and time.monotonic() - began > SHOWN_AFTER:
            self._print(f"{stage}: {total} in {time.monotonic() - began:.0f} s")

    def _print(self, line: str) -> None:
        self._heartbeat.printed()
        if not self.console.is_terminal:
            self.console.print(line, highlight=False, markup=False)


def first_few(reasons: Sequence[str], what: str) -> list[str]:
    """The first sentences of a list, and how many more there are.

    Examples:
        >>> first_few(["a.jpg is broken."], "Left out")
        ['Left out: a.jpg is broken.']
    """
    more = len(reasons) - FEW
    shown = [f"{what}: {reason}" for reason in reasons[:FEW]]
    return shown + ([f"... and {more} more, listed in run.json."] if more > 0 else [])


def span(seconds: float) -> str:
    """A duration as people say it.

    Examples:
        >>> span(75), span(4000)
        ('1 min 15 s', '1 h 06 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
