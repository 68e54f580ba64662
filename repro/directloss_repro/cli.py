"""The papers' commands ``list``, ``reproduce`` and ``report``: importing this adds them to ``directloss``.

Slow imports happen inside the commands, so that ``--help`` is fast.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from directloss._errors import fail
from directloss.cli.app import app, resumable
from directloss_repro import PAPER_METHODS
from directloss_repro.experiments import FILES, PRESETS

METHODS = ("direct-ap", *PAPER_METHODS, "uniloss-ap", "uniloss-accuracy", "uniloss-pckh")
"""Shell completions of ``--methods``; many more names are valid."""


def completing(known: Iterable[str]) -> Callable[[str], list[str]]:
    """A shell completion for comma-separated lists of the known names."""

    def complete(incomplete: str) -> list[str]:
        *before, last = incomplete.split(",")
        return [",".join([*before, name]) for name in known if name.startswith(last) and name not in before]

    return complete


@app.command("list")
def show_list() -> None:
    """List the experiments, the methods and the tasks, one line each."""
    from rich.table import Table

    from directloss import tasks
    from directloss_repro.experiments import get_experiment
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
        "Experiments (run one with: directloss reproduce NAME; * needs --data-root)",
        ("name", "what it shows", "paper"),
        ((one.name + (" *" if one.check_data else ""), one.summary, one.paper) for one in map(get_experiment, FILES)),
    )
    show("Methods (for --methods; TASK is 01 or a name below, as in pos-ap)", ("name", "what it is"), SUMMARIES.items())
    show("Tasks (what a network can be trained on)", ("name", "what it is"), tasks.summaries().items())


@app.command("report")
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The output folder of a run.", show_default=False)],
) -> None:
    """Redraw tables, figures and report.html from the records in DIR."""
    show_report(folder, Console())


def show_report(folder: Path, console: Console) -> None:
    """Write the report; print its tables and its path."""
    from directloss_repro.experiments import describe
    from directloss_repro.records import load_run
    from directloss_repro.reports.report import build, for_terminal, write

    run = load_run(folder)
    made = build(run, describe(run.experiment))
    page = write(made)
    console.print()
    console.print(for_terminal(made))
    console.print(f"Report: {page}", highlight=False, soft_wrap=True)


PRESET = "from the preset"
OPTIONS: dict[str, tuple[str, str | bool]] = {
    "preset": (
        "**quick** takes minutes, **paper** is the complete experiment; some have **small** in between.",
        "quick",
    ),
    "methods": ("Comma-separated, such as pos-ap,hinge-ap,x-ent; **all** for the papers' nine.", PRESET),
    "seeds": ("Final runs per method and noise level.", PRESET),
    "noise": ("Shares of flipped labels, such as 0,0.2 or 0,20%.", PRESET),
    "select": ("Select hyper-parameters on **train** data or on held-out **val** data; never on test data.", PRESET),
    "out": ("Folder for records, figures and report.", "runs/NAME-PRESET"),
    "workers": ("Number of parallel training processes.", "all cores"),
    "resume": ("Continue the run in the folder.", False),
    "cluster": (
        "Train on the workers of this Dask scheduler, such as tcp://HOST:8786. They must see the same files.",
        "this machine",
    ),
    "compile": (
        "Compile networks (torch.compile): long runs of a ResNet take less time; results differ by rounding.",
        False,
    ),
    "data_root": ("Folder with the original files of the data set.", "generated or bundled data"),
    "dataset": ("Name of the data set there, such as fashion-mnist.", "detected from its files"),
    "weights": (
        "AlexNet's weights of torchvision; for voc-action also a folder with TensorFlow.js's ResNet-50.",
        "random",
    ),
    "cache": ("Folder for features and proposals; several runs can share it.", "OUT/cache"),
    "settings": ("Override any key of the config, such as iterations=100; can be repeated.", False),
}
"""The options of ``reproduce``: what they do, and what is used without them."""


def option(name: str, *flags: str, **more: Any) -> Any:
    """An option of ``reproduce``."""
    text, default = OPTIONS[name]
    return typer.Option(*flags, help=text, show_default=default, **more)


EXPERIMENT = typer.Argument(
    metavar="NAME", help=f"The experiment: {', '.join(FILES)}.", autocompletion=completing(FILES), show_default=False
)


@app.command("reproduce", epilog="Example: directloss reproduce robustness --methods pos-ap,x-ent --noise 0,0.2")
def reproduce(
    name: Annotated[str, EXPERIMENT],
    preset: Annotated[str | None, option("preset", autocompletion=completing(PRESETS))] = None,
    methods: Annotated[str | None, option("methods", autocompletion=completing(METHODS))] = None,
    seeds: Annotated[int | None, option("seeds")] = None,
    noise: Annotated[str | None, option("noise")] = None,
    select: Annotated[str | None, option("select")] = None,
    out: Annotated[Path | None, option("out")] = None,
    workers: Annotated[int | None, option("workers")] = None,
    resume: Annotated[bool, option("resume", "--resume")] = False,
    cluster: Annotated[str | None, option("cluster", metavar="ADDRESS")] = None,
    compile: Annotated[bool, option("compile", "--compile")] = False,
    data_root: Annotated[Path | None, option("data_root")] = None,
    dataset: Annotated[str | None, option("dataset")] = None,
    weights: Annotated[Path | None, option("weights")] = None,
    cache: Annotated[Path | None, option("cache")] = None,
    settings: Annotated[list[str] | None, option("settings", "--set", metavar="KEY=VALUE")] = None,
) -> None:
    """Run an experiment of the papers: search, train, evaluate, draw figures, write a report.

    Every finished run is stored immediately. After an interruption, continue with the same command and **--resume**.
    """
    options = dict(locals())  # each one is a field of the request
    from directloss_repro.methods import parse_methods
    from directloss_repro.reproduce import Request, carry_out, check_request

    options["methods"] = None if methods is None else parse_methods(methods)
    options["noise"] = None if noise is None else parse_shares(noise)
    request = Request(**options | {"settings": parse_settings(settings or [])})
    console = Console()
    session = check_request(request)
    with session.folder, resumable(session.resume_command):
        carry_out(session, console)
    show_report(session.folder.path, console)


def parse_shares(text: str) -> tuple[float, ...]:
    """``0,0.2`` or ``0%,20%`` as shares."""
    words = text.replace(",", " ").split()
    try:
        return tuple(float(word.removesuffix("%")) / (100 if word.endswith("%") else 1) for word in words)
    except ValueError:
        fail("--noise", "must be numbers such as 0,0.2 or 0,20%", repr(text))


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """``iterations=100`` or ``direct.epsilon=[1.0,"auto"]``: values are parsed as JSON, or else kept as strings."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            fail("--set", "must have the form KEY=VALUE", repr(pair), "For example: --set iterations=100.")
        try:
            settings[key.strip()] = json.loads(value)
        except ValueError:
            settings[key.strip()] = value
    return settings
