"""``directloss predict``: scores of new rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from directloss._errors import fail
from directloss.cli.app import app
from directloss.cli.fit import KINDS, words

if TYPE_CHECKING:
    from directloss.tabular.model import Model

EXAMPLE = "Example: directloss predict runs/fit-patients/model.json new.csv --keep id --out scores.csv"


@app.command("predict", epilog=EXAMPLE)
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model.json that fit wrote.", show_default=False)],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help=f"Rows with the columns of training: {KINDS}.", show_default=False)
    ],
    keep: Annotated[str, typer.Option(help="Columns of DATA to carry over, such as id.", show_default=False)] = "",
    out: Annotated[
        Path | None, typer.Option(help="The CSV file to write.", show_default="DATA-predictions.csv, here")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
) -> None:
    """Score new rows with a model that **fit** wrote; where the metric asks for decisions, decide as well."""
    from directloss.tabular.columns import check_known
    from directloss.tabular.files import csv_bytes, write_file
    from directloss.tabular.model import load_model
    from directloss.tabular.reading import read_table

    path = out if out is not None else Path(f"{data.name.split('.')[0]}-predictions.csv")
    if path.resolve() in (data.resolve(), model.resolve()):
        fail("--out", "must be another file than the data and the model", path)
    if path.exists() and not force:
        fail("--out", "must be a new file", f"{path}, which is there already", "Add --force to overwrite it.")
    loaded, table, kept = load_model(model), read_table(data), words(keep)
    check_known("--keep", kept, table.data)
    if clash := {"row", "score", "decision"} & set(kept):
        fail("--keep", "must name columns other than those that predict writes", repr(min(clash)))
    frame, notes = loaded.check(table.data, table.sparse)
    scores = loaded.scores(loaded.encoder.encode(frame))
    columns: dict[str, list[Any]] = {"row": list(range(1, len(frame) + 1))}
    columns |= {name: table.data[name].astype(object).where(table.data[name].notna(), "").tolist() for name in kept}
    columns["score"] = [float(f"{value:.8g}") for value in scores]
    if decides(loaded):
        columns["decision"] = [loaded.labels[int(value > 0)] for value in scores]
    write_file(path, csv_bytes(columns))
    console = Console()
    for line in (*(f"Note: {note}" for note in notes), told(loaded, len(frame)), f"Predictions: {path}"):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def decides(model: Model) -> bool:
    """Whether the metric judges decisions."""
    from directloss.tabular.measures import get_measure

    return get_measure(model.metric).decides


def told(model: Model, rows: int) -> str:
    """What the scores are, in plain words."""
    from directloss.tabular.measures import get_measure
    from directloss.tabular.search import CROSS_ENTROPY

    metric = get_measure(model.metric)
    trained = "by cross-entropy" if model.method == CROSS_ENTROPY else f"on {metric.title} itself"
    chosen = f"it had the best validation {metric.title} of the networks that fit tried"
    means = f"A higher score speaks for {model.labels[1]!r}"
    cut = f", and a score above 0 decides for it: the threshold with the best validation {metric.title}"
    return f"{rows} rows scored by a network trained {trained}; {chosen}. {means}{cut if metric.decides else ''}."
