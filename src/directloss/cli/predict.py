"""``directloss predict``: score new rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from directloss._errors import fail
from directloss.cli.app import app, say
from directloss.cli.fit import KINDS, NO_HEADER, words

if TYPE_CHECKING:
    import pyarrow as pa

    from directloss.tabular.model import Model, Novelty
    from directloss.tabular.reading import Table

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
    from directloss.tabular.columns import rows, some, some_names
    from directloss.tabular.files import write_file
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
    scoring = Scoring(loaded, table, kept, Novelty())
    write_file(path, scoring.lines())
    lines = [f"Note: {note}" for note in table.notes]
    if extra:
        lines.append(f"Note: Ignored columns that training did not have: {some_names(extra)}.")
    if gaps := scoring.novelty.gaps:
        told = some([f"{name} ({rows(count)})" for name, count in gaps.items()])
        lines.append(f"Note: Gaps filled with the median, in columns without gaps in training: {told}.")
    if warning := scoring.novelty.warning:
        lines.append(f"Warning: {warning}")
    for line in (*lines, meaning(loaded, scoring.rows), f"Predictions: {path}"):
        say(line)


@dataclass
class Scoring:
    """The rows of a table with their scores, in batches."""

    model: Model
    table: Table
    kept: Sequence[str]
    novelty: Novelty
    rows: int = 0

    def lines(self) -> Iterator[bytes]:
        """The CSV file, in pieces."""
        from directloss.tabular.files import csv_bytes

        for batch in self.table.batches():
            yield csv_bytes(self._columns(batch), head=not self.rows)
            self.rows += batch.num_rows

    def _columns(self, batch: pa.RecordBatch) -> dict[str, list[Any]]:
        from directloss.tabular.columns import CATEGORY, series_of

        known = self.model.encoder.columns
        frame = {own.name: series_of(batch[own.name], text=own.kind == CATEGORY) for own in known}
        scores = self.model.score_table(frame, self.novelty, self.table.decimal_comma)
        columns: dict[str, list[Any]] = {"row": list(range(self.rows + 1, self.rows + batch.num_rows + 1))}
        columns |= {name: ["" if own is None else own for own in batch[name].to_pylist()] for name in self.kept}
        if scores.ndim == 1:
            columns["score"] = [float(f"{value:.8g}") for value in scores]
        names = shares_of(self.model)
        for name, own in zip(names, self.model.calibration(scores).T[-len(names) :], strict=True):
            columns[name] = [float(f"{value:.6g}") for value in own]
        if self.model.measure.decides:
            columns["decision"] = self.model.decisions(scores).tolist()
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
