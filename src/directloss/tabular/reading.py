"""CSV and Parquet files as batches of rows, a sample of them that fits into memory, and rows as CSV.

A file is never held in memory as a whole. In a batch, a CSV column is a dictionary of text, so each distinct value is
examined once, not once per row. pyarrow's streaming reader is used because `pyarrow.dataset`, which reads Parquet,
does not open `.xz` and ignores ``batch_readahead`` for CSV.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import dataset, parquet

from directloss._checks import fail, near
from directloss.tabular.columns import some

PACKINGS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
SUFFIXES = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet"}
COLUMNS = 10_000
"""The most columns of a table: each takes some milliseconds, in the checks as in the encoding."""
BATCH_BYTES = 2**22
"""Bytes of a CSV file per batch, and the most of its header line; pyarrow reads 32 times as many ahead."""
BATCH_ROWS = 2**16
"""Rows per batch of a Parquet file."""
CELLS = 20_000_000
"""The most cells, rows times columns, to learn from; larger tables are sampled by row."""
FORMULA = re.compile(r"[=@\t\r]|[+-](?!\d*\.?\d+([eE][+-]?\d+)?\Z)")
"""Spreadsheet programs take a cell that starts like this for a formula; signed numbers are none."""


@dataclass(frozen=True)
class Table:
    """A file of rows. ``format`` is csv or parquet."""

    path: Path
    format: str
    names: list[str]
    open: Callable[[], Iterator[pa.RecordBatch]]
    """Reads the file from the start."""
    decimal_comma: bool = False
    notes: tuple[str, ...] = ()
    """What was left out."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches; raises if there are none."""
        empty = True
        with _plain_errors(self.path, self.format):
            for batch in self.open():
                if batch.num_rows:
                    empty = False
                    yield batch
        if empty:
            fail("DATA", "must have rows", f"without any, {self.path}")


def open_table(path: Path) -> Table:
    """A file as a table; only the column names are read."""
    inner = path.with_suffix("") if path.suffix.lower() in PACKINGS else path
    format = SUFFIXES.get(inner.suffix.lower(), "")
    if not format or (inner is not path and format != "csv"):
        hint = "Save a table as .csv with a header line, or as .parquet."
        fail("DATA", "must be a file of a known kind: .csv or .tsv (also with .gz or .xz), .parquet", str(path), hint)
    if not path.is_file():
        fail("DATA", "must be a file that exists", str(path))
    if path.stat().st_size == 0:
        fail("DATA", "must have rows", f"an empty file, {path}")
    with _plain_errors(path, format):
        table = _open_csv(path) if format == "csv" else _open_parquet(path)
    if len(table.names) > COLUMNS:
        hint = "Keep the most useful columns, or train DirectLossClassifier on an array in Python."
        fail("DATA", f"must have at most {COLUMNS:,} columns", f"{path} with {len(table.names):,}", hint)
    if twice := [name for name, count in Counter(table.names).items() if count > 1 or not name]:
        found = f"{path} with {twice[0]!r} twice" if twice[0] else f"{path} with a column without a name"
        fail("DATA", "must have a unique name for each column", found, "A CSV file needs a header line.")
    return table


def check_columns(option: str, names: Sequence[str], table: Table) -> None:
    """Check that every name is a column."""
    for name in names:
        if name not in table.names:
            hint = near(name, table.names) or f"Columns: {some(table.names, 12)}."
            fail(option, f"must name columns of {table.path.name}", repr(name), hint)


@contextmanager
def _plain_errors(path: Path, format: str) -> Iterator[None]:
    """Turn the many errors of the readers into one sentence. Our own errors and disk errors pass through."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, lzma.LZMAError, UnicodeDecodeError, pa.ArrowException, csv.Error) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8 data" in reason:
            fail("DATA", "must be text in UTF-8", f"{path}, which is not", f"Save it as UTF-8. Reason: {reason:.200}")
        fail("DATA", f"must be a whole {format} file", f"{path}, which cannot be read", f"Reason: {reason:.200}")


def _open_csv(path: Path) -> Table:
    def unpacked() -> IO[bytes]:
        file: IO[bytes] = PACKINGS.get(path.suffix.lower(), open)(path, mode="rb")
        return file

    with unpacked() as file:
        start = file.read(BATCH_BYTES)
    text = (start[: start.rfind(b"\n") + 1] or start).decode("utf-8-sig")
    separator = max(",\t;", key=text.partition("\n")[0].count)  # the most frequent one in the header
    names = [name.strip() for name in next(csv.reader(io.StringIO(text, newline=""), delimiter=separator), [])]
    used = names[1:] if names[:1] == [""] else names
    note = f"The first column of {path.name} has no name; it is taken for row numbers and left out."
    types = dict.fromkeys(names, pa.dictionary(pa.int32(), pa.string()))

    def batches() -> Iterator[pa.RecordBatch]:
        with unpacked() as file:
            yield from arrow_csv.open_csv(
                file,
                arrow_csv.ReadOptions(column_names=names, skip_rows_after_names=1, block_size=BATCH_BYTES),
                arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
                arrow_csv.ConvertOptions(column_types=types, null_values=[], include_columns=used),
            )

    return Table(path, "csv", used, batches, separator != ",", () if used is names else (note,))


def _open_parquet(path: Path) -> Table:
    schema = parquet.read_schema(path)
    # Dictionary columns take a quarter of the time and less memory.
    words = [field.name for field in schema if field.type in (pa.string(), pa.large_string())]
    data = dataset.dataset(path, format=dataset.ParquetFileFormat(dictionary_columns=words))

    def batches() -> Iterator[pa.RecordBatch]:
        # Reading ahead would hold many batches at once.
        yield from data.to_batches(batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1)

    return Table(path, "parquet", [str(name) for name in schema.names], batches)


def read_sample(table: Table, most: int | None, seed: int) -> tuple[pa.Table, npt.NDArray[np.int64], int]:
    """Rows drawn at random, their indices in the file, and the number of all rows; in the order of the file.

    At most ``most`` rows, by default as many as `CELLS` allows. The file is read twice, first to count its rows.
    """
    total = sum(batch.num_rows for batch in table.batches())
    count = min(total, most or max(1, CELLS // len(table.names)))
    rows = np.sort(np.random.default_rng(seed).choice(total, count, replace=False))
    kept, start = list[pa.RecordBatch](), 0
    for batch in table.batches():
        first, last = np.searchsorted(rows, [start, start + batch.num_rows])
        kept.append(batch.take(pa.array(rows[first:last] - start)))
        start += batch.num_rows
    return pa.Table.from_batches(kept), rows, total


def csv_bytes(frame: pd.DataFrame, head: bool = True) -> bytes:
    """A CSV file, or more lines of one.

    Text that a spreadsheet program would run as a formula is prefixed with an apostrophe.

    Examples:
        >>> csv_bytes(pd.DataFrame({"score": ["-1.5"], "name": ["=1+1"]}))
        b"score,name\\n-1.5,'=1+1\\n"
    """
    kept = {_harmless(name): own if own.dtype.kind in "iuf" else own.map(_harmless) for name, own in frame.items()}
    return pd.DataFrame(kept).to_csv(index=False, header=head, lineterminator="\n").encode()


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value
