"""``directloss fit`` and ``directloss predict``: from a file to a trained model without code, and on to new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from directloss._checks import fail
from directloss.cli.app import app, resumable
from directloss_repro.cli import completing
from directloss_repro.cli.report import show_report

KINDS = "CSV (also .gz, .xz), Parquet, NPZ or svmlight"
EXAMPLE = "Example: directloss fit patients.csv --target outcome --metric ap --compare x-ent,hinge-ap"


@app.command("fit", epilog=EXAMPLE)
def fit(
    data: Annotated[Path, typer.Argument(metavar="DATA", help=f"A table: {KINDS}.", show_default=False)],
    target: Annotated[
        str | None,
        typer.Option(help="The column to predict; it must have two values.", show_default="y (NPZ), label (svmlight)"),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="What counts: ap, auc, ndcg@10, precision@10, recall@10, f1, fbeta@2, iou, mcc, kappa, "
            "balanced_accuracy, accuracy ...",
            autocompletion=completing.metrics,
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            help="Other losses, such as x-ent,hinge-ap,neg-ap.",
            autocompletion=completing.methods,
            show_default="x-ent",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="**mlp** or **linear**.", show_default="mlp")] = None,
    positive: Annotated[
        str | None,
        typer.Option(help="Which value of the target is the positive one.", show_default="1 or true, or the rarer one"),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Settings to try for each loss.", show_default="20")] = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            help="The most steps of a training; the best number is chosen.", show_default="500, more for large data"
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Chooses split and first weights.", show_default="0")] = None,
    test_share: Annotated[
        float | None, typer.Option(help="Share of the rows kept for the comparison.", show_default="0.2")
    ] = None,
    impute: Annotated[
        bool | None,
        typer.Option("--impute", help="Fill missing numbers with the median and mark them.", show_default="refuse"),
    ] = None,
    drop: Annotated[str | None, typer.Option(help="Columns to leave out.", show_default=False)] = None,
    categorical: Annotated[
        str | None, typer.Option(help="Columns of numbers that are names, such as postcodes.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.", show_default="runs/fit-DATA")] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write curves and results for TensorBoard to OUT/tensorboard.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    workers: Annotated[
        int | None, typer.Option(help="Processes that train at the same time.", show_default="all cores")
    ] = None,
) -> None:
    """Train on the metric that counts, and compare with cross-entropy on held-out rows.

    Splits the rows, encodes and scales the columns, tunes each loss with the same number of trials on validation rows,
    and writes the model, the predictions for the test rows, and a report.
    """
    # Here, because pandas and scikit-learn are slow to load and no other command needs them.
    from directloss_repro.tabular.session import MODEL, PREDICTIONS, Request, carry_out, introduce, make_plan

    request = Request(
        data=data,
        target=target,
        metric=metric,
        compare=compare,
        model=model,
        positive=positive,
        trials=trials,
        seed=seed,
        test_share=test_share,
        iterations=iterations,
        impute=impute,
        drop=drop,
        categorical=categorical,
        out=out,
        workers=workers,
        resume=resume,
        tensorboard=tensorboard,
    )
    console = Console()
    plan = make_plan(request)
    introduce(plan, console)
    with resumable(plan.resume_command):
        carry_out(plan, console)
    folder = plan.folder.path
    show_report(folder, console)
    chosen = (plan.folder.stored() or {}).get("model")
    for line in (
        f"Model: {folder / MODEL} ({chosen}, the best on validation rows; all are in {folder / 'models'})",
        f"Predictions for the test rows: {folder / PREDICTIONS}",
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


@app.command("predict", epilog="Example: directloss predict runs/fit-patients/model.pt new.csv --out scores.csv")
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model.pt that fit wrote.", show_default=False)],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help=f"Rows with the columns of training: {KINDS}.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option(help="The CSV file to write.", show_default="DATA-predictions.csv, here")
    ] = None,
) -> None:
    """Score new rows with a model that **fit** wrote; where the metric asks for decisions, decide as well."""
    from directloss_repro.files import write_all
    from directloss_repro.tabular.modelfile import load_model
    from directloss_repro.tabular.predicting import predict as score_rows

    path = out if out is not None else Path(f"{data.name.split('.')[0]}-predictions.csv")
    if path.resolve() in (data.resolve(), model.resolve()):
        fail("--out", "must be another file than the data and the model, which it would overwrite", path)
    loaded = load_model(model)
    content, notes, rows = score_rows(loaded, data)
    write_all({path: content})
    console = Console()
    told = [f"Note: {note}" for note in notes]
    told.append(
        f"{rows} rows scored by {loaded.method}, trained for {loaded.metric}; higher means {loaded.labels[1]!r}."
    )
    told.append(f"Predictions: {path}")
    for line in told:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
