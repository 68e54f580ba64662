"""Readers: files as batches of rows. A file that cannot be read raises one clear sentence.

CSV and Parquet files are read in batches and never held in memory as a whole. In a batch, a column of text is a
`pandas.Categorical`, so each distinct value is examined once, not once per row.

CSV files use pyarrow's streaming reader. `pyarrow.dataset`, which reads Parquet, does not open `.xz`, ignores
``batch_readahead`` for CSV, and given file objects, pyarrow 26 sometimes aborts the process at exit.
"""

from __future__ import annotations

import csv
import gzip
import lzma
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from directloss._checks import fail
from directloss.tabular.columns import without_gap_words

if TYPE_CHECKING:
    import pyarrow as pa

Opened = tuple[list[str], Callable[[], Iterator[pd.DataFrame]]]
"""Column names, and a function that reads the batches from the start."""
PACKINGS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
TEXT = {"mode": "rt", "encoding": "utf-8-sig", "newline": ""}
SUFFIXES = {
    "csv": (".csv", ".tsv"),
    "parquet": (".parquet", ".pq"),
    "npz": (".npz",),
    "svmlight": (".svm", ".libsvm", ".svmlight", ".txt"),
}
DENSE_LIMIT = 4 * 2**30
"""The most bytes a svmlight file may take as a table: the networks need every zero."""
NPZ = "Write it with numpy.savez(file, x=x, y=y): x of shape (rows, columns), y with one label per row."
NO_HEADER = "If the first line is not a header, add --no-header: the columns are then called c1, c2, and so on."
INDEX = "(row)"
"""The name for a first column without one, which is how pandas writes row numbers."""
BATCH_BYTES = 2**23
"""Bytes of a CSV file per batch; pyarrow reads 32 times as many ahead."""
BATCH_ROWS = 2**16
"""Rows per batch of any other file."""
DECIMAL_COMMA = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"
FIRST_TARGET = {"svmlight": "label", "npz": "y"}
"""The usual name of the target, for formats that have one."""


@dataclass(frozen=True)
class Table:
    """A file of rows. ``kind`` is csv, parquet, npz or svmlight."""

    names: list[str]
    """Names of the usable columns."""
    open: Callable[[], Iterator[pd.DataFrame]]
    """Reads the file from the start."""
    kind: str
    path: Path
    notes: tuple[str, ...] = ()
    """What was left out."""

    @property
    def sparse(self) -> bool:
        """Whether columns that are not mentioned are zero."""
        return self.kind == "svmlight"

    def batches(self) -> Iterator[pd.DataFrame]:
        """The rows in batches; raises if there are none."""
        with _plain_errors(self.path, self.kind):
            empty = True
            for batch in filter(len, self.open()):
                empty = False
                yield without_gap_words(batch[self.names])
        if empty:
            fail("DATA", "must have rows", f"without any, {self.path}")


def in_batches(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The rows of a frame in batches."""
    for start in range(0, len(frame), BATCH_ROWS):
        yield frame.iloc[start : start + BATCH_ROWS]


def kind_of(path: Path) -> str:
    """The format of a file by its name.

    Examples:
        >>> kind_of(Path("rows.csv.gz")), kind_of(Path("rows.parquet"))
        ('csv', 'parquet')
    """
    inner = path.with_suffix("") if path.suffix.lower() in PACKINGS else path
    kind = next((kind for kind, suffixes in SUFFIXES.items() if inner.suffix.lower() in suffixes), None)
    if kind is None or (inner is not path and kind not in ("csv", "svmlight")):
        known = ".csv, .tsv, .svm, .libsvm and .txt (these also with .gz or .xz), .parquet and .npz"
        hint = "Save a table as .csv with a header line, or as .parquet; .txt is read as svmlight."
        fail("DATA", f"must be a file of a known kind: {known}", str(path), hint)
    return kind


def open_table(path: Path, header: bool = True) -> Table:
    """A file as a table. For CSV and Parquet files, only the column names are read.

    Without a header, the columns of a CSV file are called c1, c2, and so on.
    """
    kind = kind_of(path)
    if not path.exists():
        fail("DATA", "must be a file that exists", str(path))
    if not path.is_file():
        fail("DATA", "must be a file", f"the folder {path}")
    if path.stat().st_size == 0:
        fail("DATA", "must have rows", f"an empty file, {path}")
    if not header and kind != "csv":
        fail("--no-header", "must be left out unless DATA is a CSV file", f"given, with {path}")
    with _plain_errors(path, kind):
        names, batches = OPENERS[kind](path) if header else _open_csv(path, header=False)
    if kind == "csv" and INDEX in names and len(names) > 1:
        note = f"The first column of {path.name} has no name; it is taken for row numbers and left out."
        return Table([name for name in names if name != INDEX], batches, kind, path, (note,))
    return Table(names, batches, kind, path)


@contextmanager
def _plain_errors(path: Path, kind: str) -> Iterator[None]:
    """Turn the many errors of the readers into one sentence. Our own errors and disk errors pass through."""
    import pyarrow as pa

    damage = (gzip.BadGzipFile, EOFError, lzma.LZMAError, zipfile.BadZipFile, pa.ArrowException, csv.Error)
    try:
        yield
    except (UnicodeDecodeError, *damage) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8 data" in reason:
            fail("DATA", "must be text in UTF-8", f"{path}, which is not", f"Save it as UTF-8. Reason: {reason}")
        hint = (_odd_line(path) if kind == "csv" else "") or f"Reason: {reason}"
        fail("DATA", f"must be a whole {kind} file", f"{path}, which cannot be read", hint)


def _odd_line(path: Path) -> str:
    """A sentence about the first line whose number of fields differs from the header's; empty if there is none."""
    try:
        with open_packed(path, **TEXT) as file:
            names, separator, _ = _header(file)
            file.seek(0)
            lines = csv.reader(file, delimiter=separator)
            for fields in lines:
                if fields and len(fields) != len(names):
                    return f"Line {lines.line_num} has {len(fields)} fields, the header has {len(names)}."
    except (OSError, EOFError, lzma.LZMAError, csv.Error, UnicodeDecodeError):
        pass
    return ""


# ---------------------------------------------------------------------- CSV and Parquet


def _open_csv(path: Path, header: bool = True) -> Opened:
    with open_packed(path, **TEXT) as file:
        names, separator, lines = _header(file)
    if not header:
        names, lines = [f"c{place}" for place in range(1, len(names) + 1)], 0
    if names[:1] == [""] and INDEX not in names:
        names[0] = INDEX
    _check_names(names, path)
    return names, lambda: _csv_batches(path, names, separator, lines)


def _header(file: IO[str]) -> tuple[list[str], str, int]:
    """Column names, the separator, and the number of lines they take."""
    separator = max(",\t;", key=file.readline().count)  # the most frequent one in the header
    file.seek(0)
    reader = csv.reader(file, delimiter=separator)
    return [name.strip() for name in next(reader, [])], separator, reader.line_num


def _csv_batches(path: Path, names: list[str], separator: str, lines: int) -> Iterator[pd.DataFrame]:
    import pyarrow as pa
    from pyarrow import csv as reader

    words = pa.dictionary(pa.int32(), pa.string())
    with open_packed(path, mode="rb") as file:
        batches = reader.open_csv(
            file,
            reader.ReadOptions(column_names=names, skip_rows=lines, block_size=BATCH_BYTES),
            reader.ParseOptions(delimiter=separator, newlines_in_values=True),
            reader.ConvertOptions(column_types=dict.fromkeys(names, words), null_values=[], strings_can_be_null=False),
        )
        for batch in batches:
            yield _frame(names, batch, decimal_commas=separator != ",")


def _frame(names: Sequence[str], batch: pa.RecordBatch, decimal_commas: bool = False) -> pd.DataFrame:
    columns = zip(names, batch.columns, strict=True)
    return pd.DataFrame({name: _values(column, decimal_commas) for name, column in columns}, copy=False)


def _values(column: pa.Array, decimal_commas: bool) -> Any:
    """Numbers, times, or categories; booleans with gaps become numbers with gaps."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _words(column if pa.types.is_dictionary(column.type) else column.dictionary_encode(), decimal_commas)
    if pa.types.is_boolean(kind) and column.null_count:
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return column.to_pandas()


def _words(column: pa.DictionaryArray, decimal_commas: bool) -> pd.Categorical:
    """Words without surrounding blanks; with ``decimal_commas``, ``1,5`` becomes ``1.5``."""
    from pyarrow import compute

    words = compute.utf8_trim_whitespace(column.dictionary)
    if decimal_commas:
        points = compute.replace_substring(words, ",", ".")
        words = compute.if_else(compute.match_substring_regex(words, DECIMAL_COMMA), points, words)
    words = words.dictionary_encode()
    codes = words.indices.take(column.indices).fill_null(-1).to_numpy()
    categories = pd.Index(words.dictionary.to_numpy(zero_copy_only=False), dtype=object)
    return pd.Categorical.from_codes(codes, categories, validate=False)


def open_packed(path: Path, **how: Any) -> IO[Any]:
    """A file, decompressed if necessary; ``how`` are arguments of `open`."""
    file: IO[Any] = PACKINGS.get(path.suffix.lower(), open)(path, **how)
    return file


def _check_names(names: list[str], path: Path) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        fail("DATA", "must have a unique name for each column", f"{path} with {twice[0]!r} twice", NO_HEADER)
    if "" in names:
        found = f"{path} without a name for column {names.index('') + 1}"
        fail("DATA", "must have a header line that names each column", found, NO_HEADER)


def _open_parquet(path: Path) -> Opened:
    import pyarrow as pa
    from pyarrow import dataset, parquet

    schema = parquet.read_schema(path)
    names = [str(name) for name in schema.names]
    _check_names(names, path)
    # Dictionary columns take a quarter of the time and less memory.
    words = [field.name for field in schema if field.type in (pa.string(), pa.large_string())]
    data = dataset.dataset(path, format=dataset.ParquetFileFormat(dictionary_columns=words))

    def batches() -> Iterator[pd.DataFrame]:
        # Reading ahead would hold many batches at once.
        for batch in data.to_batches(batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1):
            yield _frame(names, batch)

    return names, batches


# ---------------------------------------------------------------------- arrays


def _open_npz(path: Path) -> Opened:
    """The array x (or X) as columns x0, x1, ..., and each other array of the same length as one column."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except ValueError:
        # An array of Python objects needs pickle, which can run code.
        fail("DATA", "must hold arrays of numbers or text", f"{path} with Python objects in it")
    name = next((name for name in ("x", "X") if name in arrays), None)
    if name is None:
        fail("DATA", "must have an array x", f"{path} with {', '.join(arrays) or 'no arrays'}", NPZ)
    x = arrays.pop(name)
    if x.ndim != 2:
        fail(f"array {name!r}", "must have two dimensions, rows and columns", f"of shape {x.shape}", NPZ)
    if x.dtype.kind not in "fiub":
        fail(f"array {name!r}", "must hold numbers", f"of type {x.dtype}")
    columns: dict[str, Any] = {f"x{k}": x[:, k] for k in range(x.shape[1])}
    for other, values in arrays.items():
        if values.ndim != 1 or len(values) != len(x):
            rule = f"must have one value for each of the {len(x)} rows"
            fail(f"array {other!r}", rule, f"of shape {values.shape}", NPZ)
        if other in columns:
            fail(f"array {other!r}", "must have a name that no column of x has", f"named {other!r}")
        columns[other] = values
    return list(columns), lambda: in_batches(pd.DataFrame(columns))


def _open_svmlight(path: Path) -> Opened:
    """Columns label, f0, f1, ...; f0 only if it is used, because most files count from one."""
    from sklearn.datasets import load_svmlight_file

    try:
        with open_packed(path, mode="rb") as file:
            x, y = load_svmlight_file(file, zero_based=True)
    except (ValueError, OverflowError) as error:
        hint = f"Reason: {str(error).splitlines()[0]}. If it is a table with a header line, name it .csv."
        fail("DATA", "must have lines of the form LABEL INDEX:NUMBER ...", f"{path}, which has others", hint)
    if x.shape[0] * x.shape[1] * 8 > DENSE_LIMIT:
        fail("DATA", f"must fit into {DENSE_LIMIT >> 30} GB as a table", f"{x.shape[0]} rows of {x.shape[1]} columns")
    dense = x.toarray()
    names = [f"f{k}" for k in range(dense.shape[1])]
    if dense.shape[1] and not dense[:, 0].any():
        dense, names = dense[:, 1:], names[1:]
    frame = pd.DataFrame(dense, columns=pd.Index(names))
    frame.insert(0, "label", y)
    return list(frame.columns), lambda: in_batches(frame)


OPENERS: dict[str, Callable[[Path], Opened]] = {
    "csv": _open_csv,
    "parquet": _open_parquet,
    "npz": _open_npz,
    "svmlight": _open_svmlight,
}
