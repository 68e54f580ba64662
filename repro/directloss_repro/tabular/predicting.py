"""Scores of new rows by a stored model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from directloss._checks import fail, near
from directloss_repro.tabular.columns import check_finite, listed
from directloss_repro.tabular.encoding import NumberColumn
from directloss_repro.tabular.modelfile import Model
from directloss_repro.tabular.reading import Table, read_table
from directloss_repro.tabular.session import csv_bytes, decisions, score_texts


def predict(model: Model, path: Path) -> tuple[bytes, list[str], int]:
    """A CSV file with the score (and decision) of each row, what to tell the user, and the number of rows."""
    frame, notes = fitting_columns(model, read_table(path))
    scores = model.score(model.encoder.encode(frame))
    columns: dict[str, list[Any]] = {"row": list(range(1, len(frame) + 1)), "score": score_texts(scores)}
    if model.threshold is not None:
        columns["decision"] = decisions(model, scores)
    return csv_bytes(columns), notes, len(frame)


def fitting_columns(model: Model, table: Table) -> tuple[pd.DataFrame, list[str]]:
    """The columns that the model was trained on; missing ones are an error, extra ones are left out and named."""
    frame, needed = table.data, model.encoder.names
    missing = [name for name in needed if name not in frame.columns]
    extra = [str(name) for name in frame.columns if name not in needed and name != model.target]
    if model.sparse and table.sparse:
        if extra:
            fail("DATA", "must have the columns of training only", f"a file that also has {_names(extra)}")
        frame = frame.reindex(columns=list(needed), fill_value=0.0)
    elif missing:
        close = near(missing[0], extra)
        fail("DATA", "must have every column of training", f"without {_names(missing)}", close)
    notes = [f"Not used, because training did not have them: {_names(extra)}."] if extra else []
    _check_kinds(model, frame)
    return frame, notes


def _check_kinds(model: Model, frame: pd.DataFrame) -> None:
    """Numbers where training had numbers, and gaps only where training had gaps."""
    numbers = [column for column in model.encoder.columns if isinstance(column, NumberColumn)]
    for column in numbers:
        values = frame[column.name]
        if not pd.api.types.is_numeric_dtype(values.dtype) and not bool(values.isna().all()):
            odd = values[pd.to_numeric(values.astype(str), errors="coerce").isna() & values.notna()]
            shown = repr(str(odd.iloc[0])) if len(odd) else str(values.dtype)
            fail(f"column {column.name!r}", "must hold numbers, as in training", f"a column with {shown}")
    check_finite(frame, [column.name for column in numbers])
    gaps = {c.name: count for c in numbers if not c.marks and (count := int(frame[c.name].isna().sum()))}
    if gaps:
        hint = "The model knows missing numbers only in columns that had some in training with --impute."
        fail("DATA", "must have no missing numbers", f"a table with gaps in {listed(gaps)}", hint)


def _names(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
