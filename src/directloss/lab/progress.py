"""What a waiting person sees: one live display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from directloss.lab.records import Record


class Standing:
    """The best AP of each method in the search so far, and the mean test AP of its final runs."""

    def __init__(self, methods: tuple[str, ...], metric: str) -> None:
        self.methods = methods
        self.metric = metric
        self.best: dict[str, float] = {}
        self.final: dict[str, list[float]] = defaultdict(list)

    def add(self, record: Record) -> None:
        """Take one more record into account."""
        method, metrics = record["method"], record["metrics"]
        if record["stage"] == "search":
            self.best[method] = max(metrics[self.metric], self.best.get(method, 0.0))
        else:
            self.final[method].append(metrics["test_ap"])

    def words(self, method: str) -> tuple[str, str, str]:
        """Best AP in the search, mean AP on test data, number of final runs."""
        best, final = self.best.get(method), self.final.get(method, [])
        mean = f"{sum(final) / len(final):.3f}" if final else "-"
        return f"{best:.3f}" if best is not None else "-", mean, str(len(final))


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
            BarColumn(None),
            MofNCompleteColumn(),
            TextColumn("runs,"),
            TimeElapsedColumn(),
            TextColumn("so far,"),
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
        self.standing.add(record)
        self._bar.update(self._task, completed=self.done, left=self.time_left())
        if self._live is not None:
            self._live.update(self._picture())
        elif self.done % max(1, self.total // 50) == 0 or self.done == self.total:
            self.console.print(self._line(record), highlight=False, soft_wrap=True)

    def time_left(self) -> str:
        """A guess from the speed so far in this session."""
        new = self.done - self.found
        if new == 0:
            return ""
        seconds = (time.monotonic() - self.began) / new * (self.total - self.done)
        return f"about {span(seconds)} left"

    def _line(self, record: Record) -> str:
        words = f"{record['stage']} {record['method']}, noise {record['noise']:g}, seed {record['seed']}"
        if record["class"] is not None:
            words += f", class {record['class']}"
        begun = [method for method in self.standing.methods if method in self.standing.best]
        standing = ", ".join(f"{method} {self.standing.words(method)[0]}" for method in begun)
        return f"[{self.done}/{self.total}] {words}; {self.time_left()}; best {self.standing.metric}: {standing}"

    def _picture(self) -> Group:
        table = Table(box=None, pad_edge=False)
        table.add_column("method")
        part = self.standing.metric.split("_")[0]
        table.add_column(f"best {part} AP in search", justify="right")
        table.add_column("mean test AP", justify="right")
        table.add_column("final runs", justify="right")
        for method in self.standing.methods:
            table.add_row(method, *self.standing.words(method))
        return Group(self._bar, table)


def span(seconds: float) -> str:
    """A duration as people say it.

    Example:
        >>> span(75), span(4000)
        ('1 min 15 s', '1 h 07 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
