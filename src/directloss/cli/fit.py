"""``directloss fit``: from a table to a trained model and a report, without code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from directloss.cli.app import app, resumable

KINDS = "CSV (also .gz, .xz) or Parquet"
EXAMPLE = "Example: directloss fit patients.csv --target outcome --metric ap"


def option(text: str, default: str | bool = False, least: int | None = None) -> typer.models.OptionInfo:
    """An option with its help, what to show as its default, and the least number that it takes."""
    info: typer.models.OptionInfo = typer.Option(help=text, show_default=default, min=least)
    return info


@app.command("fit", epilog=EXAMPLE)
def fit(
    data: Annotated[Path, typer.Argument(metavar="DATA", help=f"A table: {KINDS}.", show_default=False)],
    metric: Annotated[
        str,
        option("Metric to train on: ap, auc, ndcg@10, precision@10, recall@10, f1, fbeta@2, iou, mcc, accuracy ..."),
    ],
    target: Annotated[str, option("Column to predict.")] = "",
    positive: Annotated[
        str, option("Target value that counts as positive; all others are negative.", "1 or true, or the rarer value")
    ] = "",
    group: Annotated[str, option("Column, such as a patient, whose rows must not be split across parts.")] = "",
    flips: Annotated[
        str, option("Share of wrong labels, if known: 0.2, or 0.1,0.3 for negatives and positives; for f1, mcc ...")
    ] = "",
    drop: Annotated[str, option("Columns to leave out, comma-separated.")] = "",
    categorical: Annotated[str, option("Numeric columns to read as categories, such as postcodes.")] = "",
    rows: Annotated[
        int | None, option("Rows to learn from, drawn at random.", "all, up to 20 million cells", 1)
    ] = None,
    trials: Annotated[int, option("Settings to try per network.", True, 1)] = 8,
    epochs: Annotated[int | None, option("Epochs per training run.", "200, fewer for large tables", 1)] = None,
    seed: Annotated[int, typer.Option(help="Seed of split and initial weights.", min=0, max=2**31 - 1)] = 0,
    out: Annotated[Path | None, option("Folder for the results.", "runs/fit-DATA, numbered if it exists")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the fit in the folder.")] = False,
) -> None:
    """Train a network on your metric, and compare it with what you would use instead.

    Splits the rows, searches settings on the validation rows, compares with logistic regression, gradient boosting and
    cross-entropy on the test rows, and writes a model, a report, and the predictions for the test rows.
    """
    options = dict(locals())  # each is a field of the request
    # Imported here: these take seconds, and --help should not wait for them.
    from directloss.tabular.fitting import MODEL, FitRequest, carry_out, make_plan

    request = FitRequest(**options)
    plan = make_plan(request, typer.echo)
    # And here: bad options or data are reported without it.
    from directloss.tabular.report import results_lines, verdict, write_report

    request.folder.mkdir(parents=True, exist_ok=True)
    with resumable(request.command("--resume")):
        outcome = carry_out(plan, typer.echo)
        page = write_report(outcome)
    places = f"Report: {page}", f"Model: {request.folder / MODEL} ({outcome.saved})"
    for line in ("", *verdict(outcome), "", *results_lines(outcome), "", *places):
        typer.echo(line)
