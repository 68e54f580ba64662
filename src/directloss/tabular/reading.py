"""Readers: a file to a table of columns. What a file cannot be read for is said in one sentence."""

from __future__ import annotations

import csv
import gzip
import lzma
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from directloss._checks import fail
from directloss.tabular.columns import MOSTLY

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
INDEX = "(row)"
"""A first column without a name, which is how pandas writes row numbers."""
LEFT = "it is taken for row numbers and left out."
FIRST_TARGET = {"svmlight": "label", "npz": "y"}
"""The target's name where a format has a usual one."""


@dataclass(frozen=True)
class Table:
    """The rows of a file. ``kind`` is csv, parquet, npz or svmlight."""

    data: pd.DataFrame
    kind: str
    path: Path
    notes: tuple[str, ...] = ()
    """What was left out on the way."""

    @property
    def sparse(self) -> bool:
        """Whether a column that is not mentioned is zero."""
        return self.kind == "svmlight"


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
        fail("DATA", f"must be a file of a known kind: {known}", str(path), "txt files are read as svmlight.")
    return kind


def read_table(path: Path) -> Table:
    """Every column of a file."""
    kind = kind_of(path)
    if not path.exists():
        fail("DATA", "must be a file that exists", str(path))
    if not path.is_file():
        fail("DATA", "must be a file", f"the folder {path}")
    if path.stat().st_size == 0:
        fail("DATA", "must have rows", f"an empty file, {path}")
    with _plain_errors(path, kind):
        data = READERS[kind](path)
    if len(data) == 0:
        fail("DATA", "must have rows", f"without any, {path}")
    if kind == "csv" and INDEX in data.columns and data.shape[1] > 1:
        return Table(data.drop(columns=INDEX), kind, path, (f"The first column of {path.name} has no name: {LEFT}",))
    return Table(data, kind, path)


@contextmanager
def _plain_errors(path: Path, kind: str) -> Iterator[None]:
    """The many errors of many readers as one sentence. Errors of ours and of the disk pass through."""
    import pyarrow as pa

    damage = (gzip.BadGzipFile, EOFError, lzma.LZMAError, zipfile.BadZipFile, pa.ArrowException)
    try:
        yield
    except UnicodeDecodeError as error:
        fail("DATA", "must be text in UTF-8", f"{path}, which is not (at byte {error.start})", "Save it as UTF-8.")
    except pd.errors.EmptyDataError:
        fail("DATA", "must have rows", f"an empty file, {path}")
    except (*damage, pd.errors.ParserError, pd.errors.ParserWarning) as error:
        said = str(error).strip().splitlines()
        hint = _longer_line(path) if kind == "csv" else ""
        hint = hint or f"It said: {said[0] if said else type(error).__name__}"
        fail("DATA", f"must be a whole {kind} file", f"{path}, which cannot be read", hint)


def _longer_line(path: Path) -> str:
    """Which line has more fields than the header; empty if none, or if the file cannot be read at all."""
    try:
        with open_text(path) as file:
            lines = csv.reader(file, delimiter=_separator(file.readline()))
            file.seek(0)
            wanted = len(next(lines))
            for fields in lines:
                if len(fields) > wanted:
                    return f"Line {lines.line_num} has {len(fields)} fields, the header has {wanted}."
    except (OSError, EOFError, lzma.LZMAError, csv.Error, UnicodeDecodeError, StopIteration):
        pass
    return ""


# ---------------------------------------------------------------------- CSV and Parquet


def _read_csv(path: Path) -> pd.DataFrame:
    with open_text(path) as file:
        first = file.readline().rstrip("\r\n")
    separator = _separator(first)
    names = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
    if names[:1] == [""] and INDEX not in names:
        names[0] = INDEX
    _check_names(names, path)
    with warnings.catch_warnings():
        # Lines that are longer than the header would lose their end with no more than a warning.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame = pd.read_csv(path, sep=separator, index_col=False, low_memory=False, skipinitialspace=True)
    frame.columns = pd.Index(names[: len(frame.columns)])
    return frame if separator == "," else frame.apply(_with_decimal_points)


def _with_decimal_points(column: pd.Series[Any]) -> pd.Series[Any]:
    """Numbers such as ``1,5`` as numbers, where the comma separates no columns and most of the column looks like them.

    What does not stays as it is, and a later check names it.
    """
    if pd.api.types.is_numeric_dtype(column.dtype) or not len(column):
        return column
    words = column.astype("string").str.strip()
    numbers = words.str.fullmatch(r"[+-]?(\d+|\d*,\d+)([eE][+-]?\d+)?").fillna(False).astype(bool)
    if not words[numbers].str.contains(",", regex=False).any() or numbers[words.notna()].mean() < MOSTLY:
        return column
    read = column.astype(object)
    read[numbers] = words[numbers].str.replace(",", ".", regex=False).astype(float)
    return pd.to_numeric(read) if bool(numbers[words.notna()].all()) else read


def open_text(path: Path) -> IO[str]:
    """A text file, packed or not."""
    opener = PACKINGS.get(path.suffix.lower(), open)
    file: IO[str] = opener(path, "rt", encoding="utf-8-sig", newline="")
    return file


def _separator(line: str) -> str:
    """Comma, tab or semicolon: whichever the header has most of."""
    found = {sign: line.count(sign) for sign in (",", "\t", ";")}
    return max(found, key=lambda sign: found[sign])


def _check_names(names: list[str], path: Path) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        hint = "If the file has no header line, add one."
        fail("DATA", "must have a name of its own for each column", f"{path} with {twice[0]!r} more than once", hint)
    if "" in names:
        place = names.index("") + 1
        fail("DATA", "must have a header line that names each column", f"{path} without a name for column {place}")


def _read_parquet(path: Path) -> pd.DataFrame:
    import pyarrow.parquet as pq

    frame: pd.DataFrame = pq.read_table(path).to_pandas(ignore_metadata=True)
    names = [str(name) for name in frame.columns]
    _check_names(names, path)
    frame.columns = pd.Index(names)
    return frame


# ---------------------------------------------------------------------- arrays


def _read_npz(path: Path) -> pd.DataFrame:
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
    return pd.DataFrame(columns)


def _read_svmlight(path: Path) -> pd.DataFrame:
    """Columns label, f0, f1, ...; f0 only if it is used, since most files count from one."""
    from sklearn.datasets import load_svmlight_file

    opener = PACKINGS.get(path.suffix.lower(), open)
    try:
        with opener(path, "rb") as file:
            x, y = load_svmlight_file(file, zero_based=True)
    except (ValueError, OverflowError) as error:
        hint = f"It said: {str(error).splitlines()[0]}"
        fail("DATA", "must have lines of the form LABEL INDEX:NUMBER ...", f"{path}, which has not", hint)
    if x.shape[0] * x.shape[1] * 8 > DENSE_LIMIT:
        fail("DATA", f"must fit into {DENSE_LIMIT >> 30} GB as a table", f"{x.shape[0]} rows of {x.shape[1]} columns")
    dense = x.toarray()
    names = [f"f{k}" for k in range(dense.shape[1])]
    if dense.shape[1] and not dense[:, 0].any():
        dense, names = dense[:, 1:], names[1:]
    frame = pd.DataFrame(dense, columns=pd.Index(names))
    frame.insert(0, "label", y)
    return frame


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "csv": _read_csv,
    "parquet": _read_parquet,
    "npz": _read_npz,
    "svmlight": _read_svmlight,
}
