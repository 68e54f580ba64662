"""``directloss predict``: scores of new rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from directloss._errors import fail
from directloss.cli.app import app, say
from directloss.cli.fit import KINDS, NO_HEADER, words

if TYPE_CHECKING:
    import pandas as pd

    from directloss.tabular.model import Model
    from directloss.tabular.reading import Table

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
    no_header: Annotated[bool, typer.Option("--no-header", help=NO_HEADER)] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
) -> None:
    """Score new rows with a model that **fit** wrote; where the metric asks for decisions, decide as well."""
    from directloss.tabular.columns import check_known, listed, some_names
    from directloss.tabular.files import write_file
    from directloss.tabular.model import load_model
    from directloss.tabular.reading import open_table

    path = out if out is not None else Path(f"{data.name.split('.')[0]}-predictions.csv")
    if path.resolve() in (data.resolve(), model.resolve()):
        fail("--out", "must be another file than the data and the model", path)
    if path.exists() and not force:
        fail("--out", "must be a new file", f"{path}, which is there already", "Add --force to overwrite it.")
    loaded, table, kept = load_model(model), open_table(data, not no_header), words(keep)
    check_known("--keep", kept, table.names)
    if clash := {"row", "score", "probability", "decision", *shares_of(loaded)} & set(kept):
        fail("--keep", "must name columns other than those that predict writes", repr(min(clash)))
    scoring = Scoring(loaded, table, kept)
    write_file(path, scoring.lines())
    notes = list(table.notes)
    if extra := loaded.unused([name for name in table.names if name not in kept]):
        notes.append(f"Not used, because training did not have them: {some_names(extra)}.")
    if scoring.gaps:
        notes.append(f"Filled with the median, though training had no gaps there: {listed(scoring.gaps)}.")
    for line in (*(f"Note: {note}" for note in notes), told(loaded, scoring.rows), f"Predictions: {path}"):
        say(line)


@dataclass
class Scoring:
    """The rows of a table with their scores, one batch at a time."""

    model: Model
    table: Table
    kept: Sequence[str]
    rows: int = 0
    gaps: Counter[str] = field(default_factory=Counter)
    """Rows without a number, in columns without gaps in training."""

    def lines(self) -> Iterator[bytes]:
        """The CSV file."""
        from directloss.tabular.files import csv_bytes

        for batch in self.table.batches():
            yield csv_bytes(self._columns(batch), head=not self.rows)
            self.rows += len(batch)

    def _columns(self, batch: pd.DataFrame) -> dict[str, list[Any]]:
        frame, gaps = self.model.check(batch, self.table.sparse)
        self.gaps.update(gaps)
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
    """Columns of probabilities: of the positive label, or of each class."""
    return ["probability"] if len(model.labels) == 2 else [f"probability {label}" for label in model.labels]


def told(model: Model, rows: int) -> str:
    """What the scores are, in plain words."""
    from directloss.tabular.measures import CROSS_ENTROPY

    metric = model.measure
    trained = "by cross-entropy" if model.method == CROSS_ENTROPY else f"on {metric.title} itself"
    chosen = f"it had the best validation {metric.title} of the networks that fit tried"
    scored = f"{rows} rows scored by a network trained {trained}; {chosen}."
    if len(model.labels) > 2:
        shares = "Probabilities are calibrated on the validation rows"
        return f"{scored} {shares}; the most probable class need not be the decision, which follows {metric.title}."
    cut = f", and a score above 0 decides for it: the threshold with the best validation {metric.title}"
    means = f"A higher score speaks for {model.labels[1]!r}{cut if metric.decides else ''}."
    share = f" The probability of {model.labels[1]!r} is calibrated on the validation rows."
    return f"{scored} {means}{share if model.calibration is not None else ''}"
