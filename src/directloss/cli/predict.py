"""``directloss predict``: score new rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from directloss._errors import fail
from directloss.cli.app import app
from directloss.cli.fit import KINDS, option

EXAMPLE = "Example: directloss predict runs/fit-patients/model.safetensors new.csv --keep id --out scores.csv"


@app.command("predict", epilog=EXAMPLE)
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model.safetensors written by fit.", show_default=False)
    ],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help=f"Rows with the columns of training: {KINDS}.", show_default=False)
    ],
    keep: Annotated[str, option("Columns of DATA to copy to the output, comma-separated, such as id.")] = "",
    out: Annotated[Path | None, option("CSV file to write.", "DATA-predictions.csv in the current folder")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Score new rows with a model written by **fit**; for metrics of decisions, also write the decisions."""
    import pandas as pd

    from directloss.tabular.columns import some_names, words
    from directloss.tabular.files import write_file
    from directloss.tabular.measures import get_measure
    from directloss.tabular.model import Novelty, load_model
    from directloss.tabular.reading import check_columns, csv_bytes, open_table

    path = out if out is not None else Path(f"{data.name.split('.')[0]}-predictions.csv")
    if path.resolve() in (data.resolve(), model.resolve()):
        fail("--out", "must differ from the data and the model", path)
    if path.exists() and not force:
        fail("--out", "must be a new file", f"{path}, which exists", "Add --force to overwrite it.")
    loaded, table, kept = load_model(model), open_table(data), words(keep)
    check_columns("--keep", kept, table)
    if clash := {"row", "score", "probability", "decision"} & set(kept):
        fail("--keep", "must name columns other than those that predict writes", repr(min(clash)))
    extra = [name for name in loaded.check_names(table.names) if name not in kept]
    metric, novelty, done = get_measure(loaded.metric), Novelty(), 0

    def lines() -> Iterator[bytes]:
        nonlocal done
        for batch in table.batches():
            columns: dict[str, Any] = {"row": range(done + 1, done + batch.num_rows + 1)}
            columns |= {name: pd.Series(batch[name].to_pylist(), dtype=object) for name in kept}
            values = {column.name: batch[column.name].to_pandas() for column in loaded.columns}
            scores = loaded.score_table(values, novelty, table.decimal_comma)
            columns["score"] = scores.astype("float32")
            columns["probability"] = loaded.calibration(scores)[:, 1].astype("float32")
            if metric.decides:
                columns["decision"] = [loaded.labels[int(score > 0)] for score in scores]
            yield csv_bytes(pd.DataFrame(columns), head=not done)
            done += batch.num_rows

    write_file(path, lines())
    told = [f"Note: {note}" for note in table.notes]
    if extra:
        told.append(f"Note: Ignored columns that training did not have: {some_names(extra)}.")
    if novelty.warning:
        told.append(f"Warning: {novelty.warning}")
    yes = repr(loaded.labels[1])
    scored = f"Scored {done:,} rows with the {loaded.trained}, which had the best validation {metric.title} in fit."
    cut = f"; the decision is {yes} above 0, the best threshold on the validation rows" if metric.decides else ""
    means = f"Higher scores favour {yes}{cut}. The probability of {yes} is calibrated on the validation rows."
    for line in (*told, f"{scored} {means}", f"Predictions: {path}"):
        typer.echo(line)
