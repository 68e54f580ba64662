"""``directloss bench``: the speed table."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from directloss._checks import fail
from directloss.lab.cli.app import app


@app.command("bench")
def bench(
    sizes: Annotated[str, typer.Option(help="Numbers of items, comma-separated.")] = "1000,10000,100000",
    seconds: Annotated[float, typer.Option(help="How long to measure each cell.", min=0.01, max=60)] = 0.5,
    threads: Annotated[int, typer.Option(help="Threads that torch may use.", min=1)] = 1,
) -> None:
    """Measure the speed of the AP losses beside sorting and cross-entropy."""
    from directloss.lab.bench import ROWS, measure_all

    try:
        numbers = [int(word) for word in sizes.split(",") if word.strip()]
    except ValueError:
        fail("--sizes", "must be whole numbers such as 1000,10000", repr(sizes))
    if not numbers or min(numbers) < 10:
        fail("--sizes", "must be whole numbers of at least 10", repr(sizes))
    console = Console(highlight=False)
    table = Table(
        title="Milliseconds for forward and backward, median; a fifth of the items is positive",
        title_style="bold",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("")
    for number in numbers:
        table.add_column(f"n = {number:,}", justify="right")
    with console.status("measuring"):
        times = measure_all(numbers, seconds, threads)
    for row in ROWS:
        table.add_row(row, *(f"{1000 * times[row, number]:.3f}" for number in numbers))
    console.print(table)
