"""``directloss predict``: score new rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from directloss._errors import fail
from directloss.cli.app import app, say
from directloss.cli.fit import KINDS, NO_HEADER, words

if TYPE_CHECKING:
    from directloss.tabular.model import Model

EXAMPLE = "Example: directloss predict runs/fit-patients/model.safetensors new.csv --keep id --out scores.csv"


@app.command("predict", epilog=EXAMPLE)
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model.safetensors written by fit.", show_default=False)
    ],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help=f"Rows with the columns of training: {KINDS}.", show_default=False)
    ],
    keep: Annotated[
        str,
        typer.Option(help="Columns of DATA to copy to the output, comma-separated, such as id.", show_default=False),
    ] = "",
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write.", show_default="DATA-predictions.csv in the current folder")
    ] = None,
    no_header: Annotated[bool, typer.Option("--no-header", help=NO_HEADER)] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Score new rows with a model written by **fit**; for metrics of decisions, also write the decisions."""
    from directloss.tabular.columns import CATEGORY, rows, series_of, some, some_names
    from directloss.tabular.files import csv_bytes, write_file
    from directloss.tabular.model import Novelty, load_model
    from directloss.tabular.reading import check_columns, open_table

    path = out if out is not None else Path(f"{data.name.split('.')[0]}-predictions.csv")
    if path.resolve() in (data.resolve(), model.resolve()):
        fail("--out", "must differ from the data and the model", path)
    if path.exists() and not path.is_file():
        fail("--out", "must be a regular file", f"{path}, which is a folder or a device")
    if path.exists() and not force:
        fail("--out", "must be a new file", f"{path}, which exists", "Add --force to overwrite it.")
    loaded, table, kept = load_model(model), open_table(data, not no_header), words(keep)
    check_columns("--keep", kept, table.names)
    if clash := {"row", "score", "probability", "decision", *shares_of(loaded)} & set(kept):
        fail("--keep", "must name columns other than those that predict writes", repr(min(clash)))
    extra = [name for name in loaded.check_names(table.names) if name not in kept]
    novelty, done = Novelty(), 0

    def lines() -> Iterator[bytes]:
        nonlocal done
        for batch in table.batches():
            columns: dict[str, list[Any]] = {"row": list(range(done + 1, done + batch.num_rows + 1))}
            columns |= {name: ["" if own is None else own for own in batch[name].to_pylist()] for name in kept}
            known = loaded.encoder.columns
            values = {own.name: series_of(batch[own.name], text=own.kind == CATEGORY) for own in known}
            columns |= predictions(loaded, loaded.score_table(values, novelty, table.decimal_comma))
            yield csv_bytes(columns, head=not done)
            done += batch.num_rows

    write_file(path, lines())
    told = [f"Note: {note}" for note in table.notes]
    if extra:
        told.append(f"Note: Ignored columns that training did not have: {some_names(extra)}.")
    if novelty.gaps:
        gaps = some([f"{name} ({rows(count)})" for name, count in novelty.gaps.items()])
        told.append(f"Note: Gaps filled with the median, in columns without gaps in training: {gaps}.")
    if novelty.warning:
        told.append(f"Warning: {novelty.warning}")
    for line in (*told, meaning(loaded, done), f"Predictions: {path}"):
        say(line)


def predictions(model: Model, scores: Any) -> dict[str, list[Any]]:
    """Columns of the output: scores, probabilities and decisions."""
    names, columns = shares_of(model), dict[str, list[Any]]()
    if scores.ndim == 1:
        columns["score"] = [float(f"{value:.8g}") for value in scores]
    for name, own in zip(names, model.calibration(scores).T[-len(names) :], strict=True):
        columns[name] = [float(f"{value:.6g}") for value in own]
    if model.measure.decides:
        columns["decision"] = model.decisions(scores).tolist()
    return columns


def shares_of(model: Model) -> list[str]:
    """Names of the probability columns: one for the positive label, or one per class."""
    return ["probability"] if len(model.labels) == 2 else [f"probability {label}" for label in model.labels]


def meaning(model: Model, rows: int) -> str:
    """What the scores mean, in plain words."""
    metric = model.measure
    scored = f"Scored {rows:,} rows with the {model.trained}, which had the best validation {metric.title} in fit."
    if len(model.labels) > 2:
        shares = "Probabilities are calibrated on the validation rows"
        return f"{scored} {shares}; decisions follow {metric.title} and need not be the most probable class."
    cut = f"; the decision is {model.labels[1]!r} above 0, the best threshold on the validation rows"
    means = f"Higher scores favour {model.labels[1]!r}{cut if metric.decides else ''}."
    return f"{scored} {means} The probability of {model.labels[1]!r} is calibrated on the validation rows."
