"""Readers: CSV and Parquet files as batches of rows, and a sample of them that fits into memory.

A file is never held in memory as a whole. In a batch, a CSV column is a dictionary of text, so each distinct value is
examined once, not once per row. pyarrow's streaming reader is used because `pyarrow.dataset`, which reads Parquet,
does not open `.xz` and ignores ``batch_readahead`` for CSV.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import dataset, parquet

from directloss._checks import fail, near

PACKINGS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
SUFFIXES = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet"}
NO_HEADER = "If the first line is not a header, add --no-header: the columns are then called c1, c2, and so on."
INDEX = "(row)"
"""The name for a first column without one, which is how pandas writes row numbers."""
HEADER = 2**22
"""The most bytes of a header line."""
COLUMNS = 10_000
"""The most columns of a table: each takes some milliseconds, in the checks as in the encoding."""
BATCH_BYTES = 2**22
"""Bytes of a CSV file per batch; pyarrow reads 32 times as many ahead."""
BATCH_ROWS = 2**16
"""Rows per batch of a Parquet file."""
CELLS = 20_000_000
"""The most cells, rows times columns, to learn from; larger tables are sampled by row."""
WORDS = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Table:
    """A file of rows. ``format`` is csv or parquet."""

    path: Path
    format: str
    names: list[str]
    """Names of the usable columns."""
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
                    yield batch.select(self.names)
        if empty:
            fail("DATA", "must have rows", f"without any, {self.path}")


def open_table(path: Path, header: bool = True) -> Table:
    """A file as a table; only the column names are read.

    Without a header, the columns of a CSV file are called c1, c2, and so on.
    """
    inner = path.with_suffix("") if path.suffix.lower() in PACKINGS else path
    format = SUFFIXES.get(inner.suffix.lower(), "")
    if not format or (inner is not path and format != "csv"):
        hint = "Save a table as .csv with a header line, or as .parquet."
        fail("DATA", "must be a file of a known kind: .csv or .tsv (also with .gz or .xz), .parquet", str(path), hint)
    if not path.exists():
        fail("DATA", "must be a file that exists", str(path))
    if not path.is_file():
        fail("DATA", "must be a file", f"{path}, which is a folder or a device")
    if path.stat().st_size == 0:
        fail("DATA", "must have rows", f"an empty file, {path}")
    if not header and format != "csv":
        fail("--no-header", "must be left out unless DATA is a CSV file", f"given, with {path}")
    with _plain_errors(path, format):
        table = _open_csv(path, header) if format == "csv" else _open_parquet(path)
    _check_names(table.names, path)
    if table.names[0] == INDEX and len(table.names) > 1:
        note = f"The first column of {path.name} has no name; it is taken for row numbers and left out."
        return Table(path, format, table.names[1:], table.open, table.decimal_comma, (note,))
    return table


def _check_names(names: list[str], path: Path) -> None:
    if len(names) > COLUMNS:
        hint = "Keep the most useful columns, or train DirectLossClassifier on an array in Python."
        fail("DATA", f"must have at most {COLUMNS:,} columns", f"{path} with {len(names):,}", hint)
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        fail("DATA", "must have a unique name for each column", f"{path} with {twice[0]!r} twice", NO_HEADER)
    if "" in names:
        found = f"{path} without a name for column {names.index('') + 1}"
        fail("DATA", "must have a header line that names each column", found, NO_HEADER)


def check_columns(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Check that every name is a column."""
    for name in names:
        if name not in known:
            hint = near(name, known) or f"Columns: {', '.join(known[:20])}{' ...' if len(known) > 20 else ''}."
            fail(option, "must name columns of the data", repr(name), hint)


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


# ---------------------------------------------------------------------- formats


def _open_csv(path: Path, header: bool) -> Table:
    with open_packed(path) as file:
        start = file.read(HEADER)
    if len(start) == HEADER and b"\n" not in start:
        fail("DATA", f"must have a first line of at most {HEADER >> 20} MB", f"{path}, whose first line is longer")
    lines = start[: start.rfind(b"\n") + 1] or start
    text = lines.decode("utf-8-sig")
    separator = max(",\t;", key=text.partition("\n")[0].count)  # the most frequent one in the header
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    names = [name.strip() for name in next(reader, [])]
    skipped = reader.line_num
    if not header:
        names, skipped = [f"c{place}" for place in range(1, len(names) + 1)], 0
    if names[:1] == [""] and INDEX not in names:
        names[0] = INDEX

    def batches() -> Iterator[pa.RecordBatch]:
        with open_packed(path) as file:
            yield from arrow_csv.open_csv(
                file,
                arrow_csv.ReadOptions(column_names=names, skip_rows=skipped, block_size=BATCH_BYTES),
                arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, WORDS), null_values=[], strings_can_be_null=False
                ),
            )

    return Table(path, "csv", names, batches, decimal_comma=separator != ",")


def open_packed(path: Path) -> IO[bytes]:
    """A file of bytes, decompressed if necessary."""
    file: IO[bytes] = PACKINGS.get(path.suffix.lower(), open)(path, mode="rb")
    return file


def _open_parquet(path: Path) -> Table:
    schema = parquet.read_schema(path)
    # Dictionary columns take a quarter of the time and less memory.
    words = [field.name for field in schema if field.type in (pa.string(), pa.large_string())]
    data = dataset.dataset(path, format=dataset.ParquetFileFormat(dictionary_columns=words))

    def batches() -> Iterator[pa.RecordBatch]:
        # Reading ahead would hold many batches at once.
        yield from data.to_batches(batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1)

    return Table(path, "parquet", [str(name) for name in schema.names], batches)


# ---------------------------------------------------------------------- a sample


@dataclass(frozen=True)
class Sample:
    """Rows of a table, drawn at random, in the order of the file."""

    columns: pa.Table
    rows: npt.NDArray[np.int64]
    """The index of each in the file."""
    total: int
    """Number of rows in the file."""


def read_sample(table: Table, most: int | None, seed: int, tell: Callable[[int], None] = lambda rows: None) -> Sample:
    """At most ``most`` rows, by default as many as `CELLS` allows, each with the same probability; in one pass.

    Each row draws a number, and those with the lowest numbers are kept. ``tell`` gets the number of rows read.
    """
    most = most or max(1, CELLS // len(table.names))
    draw, highest, seen = np.random.default_rng(seed), 1.0, 0
    kept: list[pa.RecordBatch] = []
    drawn, rows = np.empty(0), np.empty(0, np.int64)
    for batch in table.batches():
        own = draw.random(batch.num_rows)
        places = np.flatnonzero(own <= highest)
        kept.append(batch if len(places) == len(own) else batch.take(pa.array(places)))
        drawn, rows = np.append(drawn, own[places]), np.append(rows, seen + places)
        seen += batch.num_rows
        tell(seen)
        if len(drawn) > 2 * most:
            highest = float(np.partition(drawn, most - 1)[most - 1])
            kept, drawn, rows = _lowest(kept, drawn, rows, highest)
    if len(drawn) > most:
        kept, drawn, rows = _lowest(kept, drawn, rows, float(np.partition(drawn, most - 1)[most - 1]))
    return Sample(pa.Table.from_batches(kept), rows, seen)


def _lowest(
    kept: list[pa.RecordBatch], drawn: npt.NDArray[np.float64], rows: npt.NDArray[np.int64], highest: float
) -> tuple[list[pa.RecordBatch], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    below = drawn <= highest
    ends = np.cumsum([batch.num_rows for batch in kept])[:-1]
    parts = (batch.filter(pa.array(own)) for batch, own in zip(kept, np.split(below, ends), strict=True))
    return [part for part in parts if part.num_rows], drawn[below], rows[below]
