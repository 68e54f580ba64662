"""Readers: a file to batches of rows. What a file cannot be read for is said in one sentence.

CSV and Parquet files are read one batch at a time and never held as a whole. In a batch, a column of text is a
`pandas.Categorical`: whatever is to be found out about a value is found out once, not once for each row.

CSV has a reader of its own, pyarrow's streaming one: `pyarrow.dataset`, which reads Parquet here, does not open `.xz`,
reads just as far ahead in a CSV file whatever its ``batch_readahead`` says, and with file objects as its source
pyarrow 26 sometimes aborts the process at its end.
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

PACKINGS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
KINDS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".svm": "svmlight",
    ".libsvm": "svmlight",
    ".svmlight": "svmlight",
    ".txt": "svmlight",
}
DENSE_LIMIT = 4 * 2**30
"""Bytes that a svmlight file may take as a table; the networks here need every zero."""
NPZ = "Write it with numpy.savez(file, x=x, y=y): x of shape (rows, columns), y with one label for each row."
NO_HEADER = "If the first line is not a header, add --no-header: the columns are then called c1, c2, and so on."
INDEX = "(row)"
"""A first column without a name, which is how pandas writes row numbers."""
LEFT = "it is taken for row numbers and left out."
BATCH_BYTES = 2**23
"""Of a CSV file that are read at once; pyarrow reads 32 times as many ahead."""
BATCH_ROWS = 2**16
"""Of any other file."""
DECIMAL_COMMA = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"
FIRST_TARGET = {"svmlight": "label", "npz": "y"}
"""The target's name where a format has a usual one."""


@dataclass(frozen=True)
class Table:
    """A file of rows. ``kind`` is csv, parquet, npz or svmlight."""

    names: list[str]
    """Of the columns that can be used."""
    open: Callable[[], Iterator[pd.DataFrame]]
    """Reads the file from its beginning."""
    kind: str
    path: Path
    notes: tuple[str, ...] = ()
    """What was left out on the way."""

    @property
    def sparse(self) -> bool:
        """Whether a column that is not mentioned is zero."""
        return self.kind == "svmlight"

    def batches(self) -> Iterator[pd.DataFrame]:
        """The rows, some at a time; there is at least one."""
        with _plain_errors(self.path, self.kind):
            count = 0
            for batch in self.open():
                count += len(batch)
                if len(batch):
                    yield without_gap_words(batch[self.names])
        if not count:
            fail("DATA", "must have rows", f"without any, {self.path}")


def in_batches(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The rows of a frame, some at a time."""
    for start in range(0, len(frame), BATCH_ROWS):
        yield frame.iloc[start : start + BATCH_ROWS]


def kind_of(path: Path) -> str:
    """The format of a file by its name.

    Examples:
        >>> kind_of(Path("rows.csv.gz")), kind_of(Path("rows.parquet"))
        ('csv', 'parquet')
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = bool(suffixes) and suffixes[-1] in PACKINGS
    last = suffixes[-2] if packed and len(suffixes) > 1 else suffixes[-1] if suffixes else ""
    kind = KINDS.get(last)
    if kind is None or (packed and kind not in ("csv", "svmlight")):
        known = ".csv, .tsv, .svm, .libsvm and .txt (these also with .gz or .xz), .parquet and .npz"
        hint = "Save a table as .csv with a header line, or as .parquet; .txt is read as svmlight."
        fail("DATA", f"must be a file of a known kind: {known}", str(path), hint)
    return kind


def open_table(path: Path, header: bool = True) -> Table:
    """A file as a table; of CSV and Parquet files, the names of the columns are all that is read.

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
        fail("--no-header", "must be left out where DATA is no CSV file", f"given, with {path}")
    with _plain_errors(path, kind):
        names, batches = OPENERS[kind](path) if header else _open_csv(path, header=False)
    if kind == "csv" and INDEX in names and len(names) > 1:
        note = f"The first column of {path.name} has no name: {LEFT}"
        return Table([name for name in names if name != INDEX], batches, kind, path, (note,))
    return Table(names, batches, kind, path)


@contextmanager
def _plain_errors(path: Path, kind: str) -> Iterator[None]:
    """The many errors of many readers as one sentence. Errors of ours and of the disk pass through."""
    import pyarrow as pa

    damage = (gzip.BadGzipFile, EOFError, lzma.LZMAError, zipfile.BadZipFile, pa.ArrowException, csv.Error)
    try:
        yield
    except UnicodeDecodeError as error:
        fail("DATA", "must be text in UTF-8", f"{path}, which is not (at byte {error.start})", "Save it as UTF-8.")
    except damage as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if "invalid UTF8 data" in said:
            fail("DATA", "must be text in UTF-8", f"{path}, which is not", f"Save it as UTF-8. It said: {said}")
        hint = (_odd_line(path) if kind == "csv" else "") or f"It said: {said}"
        fail("DATA", f"must be a whole {kind} file", f"{path}, which cannot be read", hint)


def _odd_line(path: Path) -> str:
    """Which line has not as many fields as the header; empty if none, or if the file cannot be read at all."""
    try:
        with open_text(path) as file:
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


def _open_csv(path: Path, header: bool = True) -> tuple[list[str], Callable[[], Iterator[pd.DataFrame]]]:
    with open_text(path) as file:
        names, separator, lines = _header(file)
    if not header:
        names, lines = [f"c{place}" for place in range(1, len(names) + 1)], 0
    if names[:1] == [""] and INDEX not in names:
        names[0] = INDEX
    _check_names(names, path)
    return names, lambda: _csv_batches(path, names, separator, lines)


def _header(file: IO[str]) -> tuple[list[str], str, int]:
    """Names of the columns, what separates them, and how many lines they take."""
    separator = max(",\t;", key=file.readline().count)  # whichever the header has most of
    file.seek(0)
    reader = csv.reader(file, delimiter=separator)
    return [name.strip() for name in next(reader, [])], separator, reader.line_num


def _csv_batches(path: Path, names: list[str], separator: str, lines: int) -> Iterator[pd.DataFrame]:
    import pyarrow as pa
    from pyarrow import csv as reader

    words = pa.dictionary(pa.int32(), pa.string())
    with open_bytes(path) as file:
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
    """Numbers, times, or categories; yes and no with gaps are numbers with gaps."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _words(column if pa.types.is_dictionary(column.type) else column.dictionary_encode(), decimal_commas)
    if pa.types.is_boolean(kind) and column.null_count:
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return column.to_pandas()


def _words(column: pa.DictionaryArray, decimal_commas: bool) -> pd.Categorical:
    """Words without blanks around them; ``1,5`` as ``1.5`` where asked for."""
    from pyarrow import compute

    words = compute.utf8_trim_whitespace(column.dictionary)
    if decimal_commas:
        points = compute.replace_substring(words, ",", ".")
        words = compute.if_else(compute.match_substring_regex(words, DECIMAL_COMMA), points, words)
    words = words.dictionary_encode()
    codes = words.indices.take(column.indices).fill_null(-1).to_numpy()
    categories = pd.Index(words.dictionary.to_numpy(zero_copy_only=False), dtype=object)
    return pd.Categorical.from_codes(codes, categories, validate=False)


def open_text(path: Path) -> IO[str]:
    """A text file, packed or not."""
    opener = PACKINGS.get(path.suffix.lower(), open)
    file: IO[str] = opener(path, "rt", encoding="utf-8-sig", newline="")
    return file


def open_bytes(path: Path) -> IO[bytes]:
    """Its bytes, unpacked."""
    file: IO[bytes] = PACKINGS.get(path.suffix.lower(), open)(path, "rb")
    return file


def _check_names(names: list[str], path: Path) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        fail("DATA", "must have a name of its own for each column", f"{path} with {twice[0]!r} twice", NO_HEADER)
    if "" in names:
        found = f"{path} without a name for column {names.index('') + 1}"
        fail("DATA", "must have a header line that names each column", found, NO_HEADER)


def _open_parquet(path: Path) -> tuple[list[str], Callable[[], Iterator[pd.DataFrame]]]:
    import pyarrow as pa
    from pyarrow import dataset, parquet

    schema = parquet.read_schema(path)
    names = [str(name) for name in schema.names]
    _check_names(names, path)
    # A word is read once for many rows, as it is stored: a quarter of the time, and less memory.
    words = [field.name for field in schema if field.type in (pa.string(), pa.large_string())]
    data = dataset.dataset(path, format=dataset.ParquetFileFormat(dictionary_columns=words))

    def batches() -> Iterator[pd.DataFrame]:
        # Without reading ahead, which would hold many batches at once.
        for batch in data.to_batches(batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1):
            yield _frame(names, batch)

    return names, batches


# ---------------------------------------------------------------------- arrays


def _open_npz(path: Path) -> tuple[list[str], Callable[[], Iterator[pd.DataFrame]]]:
    """The array x (or X) as columns x0, x1, ..., and each array of the same length as a column of its own."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except ValueError:
        # An array of Python objects, which only pickle could read, and pickle can run code.
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
            fail(f"array {other!r}", "must have another name, which a column of x has already", f"named {other!r}")
        columns[other] = values
    return list(columns), lambda: in_batches(pd.DataFrame(columns))


def _open_svmlight(path: Path) -> tuple[list[str], Callable[[], Iterator[pd.DataFrame]]]:
    """Columns label, f0, f1, ...; f0 only if it is used, since most files count from one."""
    from sklearn.datasets import load_svmlight_file

    try:
        with open_bytes(path) as file:
            x, y = load_svmlight_file(file, zero_based=True)
    except (ValueError, OverflowError) as error:
        hint = f"It said: {str(error).splitlines()[0]}. If it is a table with a header line, name it .csv."
        fail("DATA", "must have lines of the form LABEL INDEX:NUMBER ...", f"{path}, which has not", hint)
    if x.shape[0] * x.shape[1] * 8 > DENSE_LIMIT:
        fail("DATA", f"must fit into {DENSE_LIMIT >> 30} GB as a table", f"{x.shape[0]} rows of {x.shape[1]} columns")
    dense = x.toarray()
    names = [f"f{k}" for k in range(dense.shape[1])]
    if dense.shape[1] and not dense[:, 0].any():
        dense, names = dense[:, 1:], names[1:]
    frame = pd.DataFrame(dense, columns=pd.Index(names))
    frame.insert(0, "label", y)
    return list(frame.columns), lambda: in_batches(frame)


OPENERS: dict[str, Callable[[Path], tuple[list[str], Callable[[], Iterator[pd.DataFrame]]]]] = {
    "csv": _open_csv,
    "parquet": _open_parquet,
    "npz": _open_npz,
    "svmlight": _open_svmlight,
}
