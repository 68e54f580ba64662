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
    import pandas as pd

    from directloss.tabular.model import Model, Novelty
    from directloss.tabular.reading import Table

EXAMPLE = "Example: directloss predict runs/fit-patients/model.json new.csv --keep id --out scores.csv"


@app.command("predict", epilog=EXAMPLE)
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model.json written by fit.", show_default=False)],
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
    from directloss.tabular.columns import check_known, listed, some_names
    from directloss.tabular.files import write_file
    from directloss.tabular.model import Novelty, load_model
    from directloss.tabular.reading import open_table

    path = out if out is not None else Path(f"{data.name.split('.')[0]}-predictions.csv")
    if path.resolve() in (data.resolve(), model.resolve()):
        fail("--out", "must differ from the data and the model", path)
    if path.exists() and not force:
        fail("--out", "must be a new file", f"{path}, which exists", "Add --force to overwrite it.")
    loaded, table, kept = load_model(model), open_table(data, not no_header), words(keep)
    check_known("--keep", kept, table.names)
    if clash := {"row", "score", "probability", "decision", *shares_of(loaded)} & set(kept):
        fail("--keep", "must name columns other than those that predict writes", repr(min(clash)))
    scoring = Scoring(loaded, table, kept, Novelty())
    write_file(path, scoring.lines())
    lines = [f"Note: {note}" for note in table.notes]
    if extra := loaded.unused([name for name in table.names if name not in kept]):
        lines.append(f"Note: Ignored columns that training did not have: {some_names(extra)}.")
    if gaps := scoring.novelty.gaps:
        lines.append(f"Note: Gaps filled with the median, in columns without gaps in training: {listed(gaps)}.")
    if warning := scoring.novelty.warning:
        lines.append(f"Warning: {warning}")
    for line in (*lines, told(loaded, scoring.rows), f"Predictions: {path}"):
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
            self.rows += len(batch)

    def _columns(self, batch: pd.DataFrame) -> dict[str, list[Any]]:
        frame = self.model.check(batch, self.novelty, self.table.sparse)
        scores = self.model.scores(self.model.encoder.encode(frame))
        columns: dict[str, list[Any]] = {"row": list(range(self.rows + 1, self.rows + len(batch) + 1))}
        columns |= {name: batch[name].astype(object).where(batch[name].notna(), "").tolist() for name in self.kept}
        if scores.ndim == 1:
            columns["score"] = [float(f"{value:.8g}") for value in scores]
        if self.model.calibration is not None:
            names = shares_of(self.model)
            for name, own in zip(names, self.model.probabilities(scores).T[-len(names) :], strict=True):
                columns[name] = [float(f"{value:.6g}") for value in own]
        if self.model.measure.decides:
            columns["decision"] = self.model.decisions(scores).tolist()
        return columns


def shares_of(model: Model) -> list[str]:
    """Names of the probability columns: one for the positive label, or one per class."""
    return ["probability"] if len(model.labels) == 2 else [f"probability {label}" for label in model.labels]


def told(model: Model, rows: int) -> str:
    """What the scores mean, in plain words."""
    from directloss.tabular.measures import CROSS_ENTROPY

    metric = model.measure
    trained = "with cross-entropy" if model.method == CROSS_ENTROPY else f"on {metric.title} itself"
    chosen = f"the network with the best validation {metric.title} in fit"
    scored = f"Scored {rows:,} rows with {chosen}, trained {trained}."
    if len(model.labels) > 2:
        shares = "Probabilities are calibrated on the validation rows"
        return f"{scored} {shares}; decisions follow {metric.title} and need not be the most probable class."
    cut = f"; the decision is {model.labels[1]!r} above 0, the best threshold on the validation rows"
    means = f"Higher scores favour {model.labels[1]!r}{cut if metric.decides else ''}."
    share = f" The probability of {model.labels[1]!r} is calibrated on the validation rows."
    return f"{scored} {means}{share if model.calibration is not None else ''}"
