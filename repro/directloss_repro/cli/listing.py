"""``directloss list``: what there is."""

from __future__ import annotations

from collections.abc import Iterable

from directloss.cli.app import app


@app.command("list")
def show_list() -> None:
    """List the experiments, the methods and the tasks, with one line each."""
    from rich.console import Console
    from rich.table import Table

    from directloss import tasks
    from directloss_repro.experiments import EXPERIMENTS
    from directloss_repro.methods import SUMMARIES

    console = Console(highlight=False)

    def show(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for place, column in enumerate(columns):
            table.add_column(column, no_wrap=place == 0, style="cyan" if place == 0 else None)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        console.print()

    show(
        "Experiments (run one with: directloss reproduce NAME)",
        ("name", "what it shows", "paper"),
        ((one.name, one.summary, one.paper) for one in EXPERIMENTS.values()),
    )
    show("Methods (for --methods; TASK is 01 or a name below, as in pos-ap)", ("name", "what it is"), SUMMARIES.items())
    show("Tasks (what a network can be trained on)", ("name", "what it is"), tasks.summaries().items())
