"""``directloss fit``: from a table to a trained model and a report, without code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from directloss.cli.app import app, resumable, say

KINDS = "CSV (also .gz, .xz) or Parquet"
NO_HEADER = "The CSV file has no header line; its columns are called c1, c2, ..."
EXAMPLE = "Example: directloss fit patients.csv --target outcome --metric ap"


def complete_metric(incomplete: str) -> list[str]:
    """Metric names, for completion in the shell."""
    from directloss.tabular.measures import OFFERED

    return [name for name in OFFERED if name.startswith(incomplete)]


@app.command("fit", epilog=EXAMPLE)
def fit(
    data: Annotated[Path, typer.Argument(metavar="DATA", help=f"A table: {KINDS}.", show_default=False)],
    metric: Annotated[
        str,
        typer.Option(
            help="Metric to train on: ap, auc, ndcg@10, precision@10, recall@10, f1, fbeta@2, iou, mcc, accuracy ...",
            autocompletion=complete_metric,
            show_default=False,
        ),
    ],
    target: Annotated[str | None, typer.Option(help="Column to predict.", show_default=False)] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            help="Target value that counts as positive; all others are negative.",
            show_default="1 or true, otherwise the rarer value",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Column, such as a patient, whose rows must not be split across parts.", show_default=False),
    ] = None,
    flips: Annotated[
        str,
        typer.Option(
            help="Share of wrong labels, if known: 0.2, or 0.1,0.3 for negatives and positives; for f1, mcc ...",
            show_default=False,
        ),
    ] = "",
    drop: Annotated[str, typer.Option(help="Columns to leave out, comma-separated.", show_default=False)] = "",
    categorical: Annotated[
        str, typer.Option(help="Numeric columns to read as categories, such as postcodes.", show_default=False)
    ] = "",
    rows: Annotated[
        int | None,
        typer.Option(help="Rows to learn from, drawn at random.", show_default="all, up to 20 million cells"),
    ] = None,
    trials: Annotated[int, typer.Option(help="Settings to try per network.")] = 8,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs per training run.", show_default="200, fewer for large tables")
    ] = None,
    baselines: Annotated[
        str, typer.Option(help="Models to compare with: all, none, or a list of logistic,hist.")
    ] = "all",
    test_share: Annotated[float, typer.Option(help="Share of the rows for the final test.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Random seed of the split and of the initial weights.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results.", show_default="runs/fit-DATA, numbered if it exists")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the fit in the folder.")] = False,
    no_header: Annotated[bool, typer.Option("--no-header", help=NO_HEADER)] = False,
) -> None:
    """Train a network on your metric, and compare it with what you would use instead.

    Splits the rows, searches settings on the validation rows, compares with logistic regression, gradient boosting and
    cross-entropy on the test rows, and writes a model, a report, and the predictions for the test rows.
    """
    options = dict(locals())  # each is a field of the request
    # Imported here: these take seconds, and --help should not wait for them.
    from directloss.tabular.fitting import MODEL, FitRequest, alone, carry_out, introduce, make_plan

    request = FitRequest(**options | {"drop": words(drop), "categorical": words(categorical)})
    plan = make_plan(request, say)
    introduce(plan, say)
    # And here: bad options or data are reported without it.
    from directloss.tabular.report import short_results, verdict, write_report

    with alone(request.folder), resumable(request.command(resume=True)):
        outcome = carry_out(plan, say)
        page = write_report(outcome)
    for line in ("", *verdict(outcome), ""):
        say(line)
    head, results = short_results(outcome)
    shown = Table(*(Column(name, no_wrap=True) for name in head), box=None, pad_edge=False)
    for row in results:
        shown.add_row(*row)
    Console().print(shown, highlight=False)
    for line in ("", f"Report: {page}", f"Model: {request.folder / MODEL} ({outcome.saved})"):
        say(line)


def words(text: str) -> tuple[str, ...]:
    """``a, b`` as two words."""
    return tuple(word.strip() for word in text.split(",") if word.strip())
