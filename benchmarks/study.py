"""What the studies share: their command, and the cells of their tables. Each study is a campaign.

A finished run is a line in ``records.jsonl``; an interrupted command continues where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from directloss_repro.campaign import Campaign, Cell, Listener
from directloss_repro.executors import cluster_workers, local_workers
from directloss_repro.folder import Folder
from directloss_repro.progress import Display
from directloss_repro.records import Params, Record, RecordFile
from directloss_repro.reports.stats import estimate
from rich.console import Console

Make = Callable[[argparse.Namespace], Campaign]
Show = Callable[[list[Record]], str]


def from_command_line(
    doc: str | None, make: Make, show: Show, *, seeds: int, out: str, data: bool = False,
    parts: Mapping[str, Sequence[Any]] | None = None,
) -> None:  # fmt: skip
    """The command of a study: fill the table, print it. ``parts``: what it can be restricted to, with all values."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Dask scheduler, whose workers do the runs")
    if data:
        parser.add_argument("--data-root", type=Path, help="folder with the data sets")
    parser.add_argument("--show", action="store_true", help="print the tables of the stored records, and train nothing")
    for name, known in (parts or {}).items():
        kind = type(known[0])
        parser.add_argument(f"--{name}", nargs="+", type=kind, choices=known, default=known, metavar=name.upper())
    arguments = parser.parse_args()
    if data and not (arguments.show or arguments.data_root):
        parser.error("--data-root is needed to train")
    campaign, place = make(arguments), arguments.cluster
    if arguments.show:
        print(show(campaign.found(RecordFile(arguments.out, read_only=True))))
        return
    workers = partial(local_workers, arguments.workers) if place is None else partial(cluster_workers, place)
    with Folder(arguments.out):
        records = RecordFile(arguments.out)
        with Display(Console(), campaign.name, campaign, campaign.found(records)) as display:
            campaign.run(workers, records, Listener(display.began, display.finished, display.note))
    print(show(campaign.found(records)))


def rates(*values: float) -> Callable[[Cell], list[Params]]:
    """The same learning rates for every cell."""
    return lambda cell: [{"learning_rate": value} for value in values]


def values(records: Iterable[Record], cell: Cell, name: str) -> list[float]:
    """A metric of the final runs, in the order of the seeds."""
    place = ("final", cell.group, cell.method, cell.noise)
    found = [r for r in records if (r.stage, r.group, r.method, r.noise) == place]
    return [r.metrics[name] for r in sorted(found, key=lambda r: r.seed)]


def mean_cell(numbers: list[float], best: float) -> str:
    """Mean and half of its 95 % interval in points; bold if it is the best."""
    if not numbers:
        return "-"
    spread = estimate(numbers)
    text = f"{100 * spread.mean:.1f} ± {100 * spread.half:.1f}"
    return f"**{text}**" if spread.mean >= best - 1e-9 else text


def gap_cell(numbers: list[float], others: list[float]) -> str:
    """Mean difference on the same seeds with its 95 % interval in points; bold if that does not contain zero."""
    if not numbers or len(numbers) != len(others):
        return "-"
    spread = estimate([mine - theirs for mine, theirs in zip(numbers, others, strict=True)])
    low, high = spread.low, spread.high
    text = f"{100 * spread.mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
    return f"**{text}**" if low > 0 or high < 0 else text


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
