"""``directloss reproduce``: one of the papers' experiments, from data to report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from directloss.cli.app import app, resumable
from directloss_repro.cli import completing
from directloss_repro.cli.report import show_report

EXAMPLE = "Example: directloss reproduce robustness --methods pos-ap,x-ent --noise 0,0.2 --out runs/mine"


@app.command("reproduce", epilog=EXAMPLE)
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"Which experiment: {', '.join(completing.NAMES)}.",
            autocompletion=completing.names,
            show_default=False,
        ),
    ],
    preset: Annotated[
        str | None,
        typer.Option(
            help="**quick** takes minutes, **paper** is the complete experiment; some have **small** in between.",
            autocompletion=completing.presets,
            show_default="quick",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, such as pos-ap,hinge-ap,x-ent; **all** for the papers' nine.",
            autocompletion=completing.methods,
            show_default="those of the figure",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How many final runs for each setting.", show_default="from the preset")
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(help="Shares of flipped labels, such as 0,0.2 or 0,20%.", show_default="from the preset"),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            help="Choose hyper-parameters on **train** data or on held-out **val** data; never on test data.",
            show_default="from the preset",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for records, figures and report.", show_default="runs/NAME-PRESET")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that train at the same time.", show_default="all cores")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write curves and results for TensorBoard to OUT/tensorboard.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Train on the workers of this Dask scheduler, such as tcp://HOST:8786. They must see the same files.",
            show_default="this machine",
        ),
    ] = None,
    data_root: Annotated[
        Path | None,
        typer.Option(
            help="The folder with the original files of the data set, for experiments on images.",
            show_default="digits-noise: scikit-learn's digits",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Which data set lies there, such as fashion-mnist.",
            show_default="told by its files",
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="Weights that AlexNet starts from, a state dict of torchvision's.", show_default="none"),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder for features and proposals, which are computed once; runs can share it.",
            show_default="OUT/cache",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change any number of the config, such as iterations=100; may be repeated.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Reproduce an experiment: search, train, evaluate, draw figures, write a report.

    Every finished run is stored at once. After an interruption of any kind, the same command with **--resume** goes on.
    """
    from directloss_repro.methods import parse_methods
    from directloss_repro.session import Request, carry_out, check_request

    request = Request(
        name=name,
        preset=preset,
        methods=None if methods is None else parse_methods(methods),
        seeds=seeds,
        noise=None if noise is None else parse_shares(noise),
        select=select,
        out=out,
        dataset=dataset,
        data_root=data_root,
        weights=weights,
        cache=cache,
        settings=parse_settings(settings or []),
        tensorboard=tensorboard,
        workers=workers,
        cluster=cluster,
        resume=resume,
    )
    console = Console()
    session = check_request(request)
    with session.folder, resumable(session.resume_command):
        carry_out(session, console)
    show_report(session.folder.path, console)


def parse_shares(text: str) -> tuple[float, ...]:
    """``0,0.2`` or ``0%,20%`` as shares."""
    from directloss._checks import fail

    shares = []
    for word in text.replace(" ", ",").split(","):
        if not word:
            continue
        try:
            shares.append(float(word.removesuffix("%")) / (100 if word.endswith("%") else 1))
        except ValueError:
            fail("--noise", "must be numbers such as 0,0.2 or 0,20%", repr(text))
    return tuple(shares)


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """``iterations=100`` or ``direct.epsilon=[1.0,"auto"]``: the values are JSON, or else plain words."""
    from directloss._checks import fail

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
