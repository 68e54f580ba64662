"""``directloss list``: what there is."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from directloss import tasks
from directloss.cli.app import app
from directloss_repro.experiments import EXPERIMENTS
from directloss_repro.methods import SUMMARIES


@app.command("list")
def show_list() -> None:
    """List the experiments, the methods and the tasks, with one line each."""
    console = Console(highlight=False)
    experiments = _table("Experiments", "run one with: directloss reproduce NAME", "name", "what it shows", "paper")
    for experiment in EXPERIMENTS.values():
        experiments.add_row(experiment.name, experiment.summary, experiment.paper)
    methods = _table("Methods", "for --methods; TASK is 01 or a name below, as in pos-ap", "name", "what it is")
    for name, summary in SUMMARIES.items():
        methods.add_row(name, summary)
    names = _table("Tasks", "what a network can be trained on", "name", "what it is")
    for name, summary in tasks.summaries().items():
        names.add_row(name, summary)
    for table in (experiments, methods, names):
        console.print(table)
        console.print()


def _table(title: str, caption: str, *columns: str) -> Table:
    table = Table(title=f"{title} ({caption})", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, no_wrap=place == 0, style="cyan" if place == 0 else None)
    return table
