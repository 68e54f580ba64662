"""What a waiting person sees: one live display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from directloss_repro.records import Record

LINES = 50
"""About as many plain lines as a whole experiment may print."""


class Compared(Protocol):
    """What the display has to know of a config."""

    @property
    def methods(self) -> tuple[str, ...]:
        """What is compared."""

    @property
    def noise(self) -> tuple[float, ...]:
        """Shares of flipped labels."""

    @property
    def select_on(self) -> str:
        """Where settings are chosen."""


class Standing:
    """The best AP (or other metric) of each method in the search so far, and the mean on test data of its final runs.

    Levels of noise are kept apart; over classes the mean is taken.
    """

    def __init__(self, config: Compared, metric: str = "ap", shows_noise: bool = True) -> None:
        self.methods, self.noise = config.methods, config.noise
        self.shows_noise = shows_noise
        self.name, self.metric = metric, f"{config.select_on}_{metric}"
        self._best: dict[tuple[str, float | None], dict[str | None, float]] = defaultdict(dict)
        self._final: dict[tuple[str, float | None], list[float]] = defaultdict(list)

    def add(self, record: Record) -> None:
        """Take one more record into account."""
        place, metrics = (record.method, record.noise), record.metrics
        if record.stage == "final":
            self._final[place].append(metrics[f"test_{self.name}"])
        else:
            found = self._best[place]
            found[record.group] = max(metrics[self.metric], found.get(record.group, -math.inf))

    def best(self, method: str, noise: float | None) -> str:
        """Best AP in the search; a dash before the first run."""
        found = self._best[method, noise].values()
        return f"{sum(found) / len(found):.3f}" if found else "-"

    def test(self, method: str, noise: float | None) -> str:
        """Mean AP on test data, with the number of runs; nothing before the first one."""
        found = self._final[method, noise]
        return f"{sum(found) / len(found):.3f} ({len(found)})" if found else ""

    def table(self) -> Table:
        """Methods by noise levels."""
        part = self.metric.split("_")[0]
        name = self.name.upper() if self.name == "ap" else self.name
        title = f"Best {part} {name} in search, mean test {name} (runs)"
        table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
        table.add_column("method")
        for noise in self.noise:
            table.add_column(f"noise {noise:.0%}" if len(self.noise) > 1 else "", justify="left")
        for method in self.methods:
            table.add_row(method, *(f"{self.best(method, n)}  [bold]{self.test(method, n)}[/]" for n in self.noise))
        return table

    def news(self, record: Record) -> str:
        """In one line: what a final run gave on test data, or who leads the search at this noise level."""
        if record.stage == "final":
            return f"test_{self.name}: {record.metrics[f'test_{self.name}']:.3f}"
        noise = record.noise
        begun = [method for method in self.methods if self.best(method, noise) != "-"]
        return f"best {self.metric}: " + ", ".join(f"{method} {self.best(method, noise)}" for method in begun)


class Display:
    """Counts finished runs and shows them. ``found`` are records that were there before."""

    def __init__(self, console: Console, title: str, total: int, standing: Standing, found: list[Record]) -> None:
        self.console, self.title, self.total, self.standing = console, title, total, standing
        self.done = self.found = len(found)
        for record in found:
            standing.add(record)
        self.began = time.monotonic()
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs,"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._task = self._bar.add_task(title, total=total, completed=self.done, left="")
        self._live = Live(self._picture(), console=console, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        else:
            self.console.print(f"{self.title}: {self.total - self.done} of {self.total} runs to do", highlight=False)
        return self

    def __exit__(self, *problem: object) -> None:
        if self._live is not None:
            self._live.update(self._picture())
            self._live.stop()

    def add(self, record: Record) -> None:
        """One more run is finished."""
        self.done += 1
        if self.done == self.found + 1:
            self.began = time.monotonic()
        self.standing.add(record)
        self._bar.update(self._task, completed=self.done, left=self.time_left())
        if self._live is not None:
            self._live.update(self._picture())
        elif self.done % max(1, self.total // LINES) == 0 or self.done == self.total:
            self.console.print(self._line(record), highlight=False, markup=False, soft_wrap=True)

    def time_left(self) -> str:
        """A guess from the speed so far in this session.

        The clock starts with the first finished run: before it, processes start and data is read, once.
        """
        new = self.done - self.found - 1
        if new < 1 or self.done == self.total:
            return ""
        return f"about {span((time.monotonic() - self.began) / new * (self.total - self.done))} left"

    def _line(self, record: Record) -> str:
        words = f"{record.stage} {record.method}"
        if self.standing.shows_noise:
            words += f", noise {record.noise:g}, seed {record.seed}"
        if record.group is not None:
            words += f", class {record.group}"
        news = self.standing.news(record)
        return "; ".join(part for part in (f"[{self.done}/{self.total}] {words}", self.time_left(), news) if part)

    def _picture(self) -> Group:
        return Group(self._bar, self.standing.table())


def span(seconds: float) -> str:
    """A duration as people say it.

    Example:
        >>> span(75), span(4000)
        ('1 min 15 s', '1 h 06 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
