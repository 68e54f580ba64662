"""Memory and time of `directloss fit` on a table that does not fit into memory.

    python -m benchmarks.big_table [--data-root DATA] [--format csv] [--rows 10000000] [--folder runs/big] [-- OPTIONS]

Makes a table of forty columns and a target from Census-Income (DATA/census-income), or from generated rows of the same
kind without --data-root: rows are drawn with replacement, numbers get 3 % noise, and one category in a hundred is
replaced by that of another row. Then runs `directloss fit` on it, with OPTIONS, in a separate process, and prints its
peak resident memory as the system counts it, including pages of mapped files.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, csv
from pyarrow import parquet as pq

TARGET, COLUMNS = "income", 40
WEIGHT = 24
"""The column of Census-Income's row weights, which describe the survey and not the person."""
CHUNK = 250_000
GENERATED = 300_000


def census(root: Path) -> pa.Table:
    """All rows of Census-Income: forty columns, c0 to c39, and the target, 0 or 1."""
    import lzma

    tables = []
    for part in ("train", "test"):
        with lzma.open(root / "census-income" / f"{part}.csv.xz") as file:
            tables.append(csv.read_csv(file, csv.ReadOptions(autogenerate_column_names=True)))
    table = pa.concat_tables(tables, promote_options="permissive")
    kept = [place for place in range(table.num_columns - 1) if place != WEIGHT]
    columns = {f"c{place}": _plain(table.column(own)) for place, own in enumerate(kept)}
    wealthy = compute.match_substring(table.column(table.num_columns - 1), "50000+")
    return pa.table({**columns, TARGET: wealthy.cast(pa.int8()).combine_chunks()})


def _plain(column: pa.ChunkedArray) -> pa.Array:
    column = compute.utf8_trim_whitespace(column) if pa.types.is_string(column.type) else column
    return column.combine_chunks()


def generated(rows: int = GENERATED, seed: int = 0) -> pa.Table:
    """Thirteen columns of numbers and twenty-seven of categories, a few of which matter; 6 % positive."""
    draw = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    signal = draw.normal(size=rows)
    for place in range(COLUMNS):
        if place % 3 == 0 and place < 39:
            values = np.maximum(1, np.round(np.exp(draw.normal(3, 1, rows)))).astype(np.int64)
            signal += 0.5 * np.log(values) * (place < 9)
            columns[f"c{place}"] = values
        else:
            codes = np.minimum(draw.geometric(0.2, rows), 2 + place)
            signal += 0.3 * (codes % 3 == 0) * (place < 12)
            columns[f"c{place}"] = pa.array([f"kind {code}" for code in range(50)]).take(pa.array(codes))
    return pa.table({**columns, TARGET: (signal > np.quantile(signal, 0.94)).astype(np.int8)})


def perturbed(base: pa.Table, rows: int, seed: int = 0) -> Iterator[pa.Table]:
    """``rows`` rows, drawn from ``base`` and slightly changed, one chunk at a time."""
    draw = np.random.default_rng(seed)
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        which = draw.integers(base.num_rows, size=count)
        columns = {}
        for name in base.column_names:
            column, own = base.column(name).combine_chunks(), which
            number = pa.types.is_integer(column.type)
            if not number:
                own = np.where(draw.random(count) < 0.01, draw.integers(base.num_rows, size=count), which)
            values = column.take(pa.array(own))
            if number and name != TARGET:
                values = pa.array(np.round(values.to_numpy() * draw.normal(1, 0.03, count)).astype(np.int64))
            columns[name] = values
        yield pa.table(columns)


def write(path: Path, base: pa.Table, rows: int) -> None:
    """Write the table as CSV or Parquet, by its file name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    schema = next(perturbed(base, 1)).schema
    maker = csv.CSVWriter if path.suffix == ".csv" else pq.ParquetWriter
    with maker(str(part), schema) as writer:
        for chunk in perturbed(base, rows):
            writer.write_table(chunk)
    part.rename(path)


def main() -> None:
    """Make the table, fit, and print memory and time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, help="folder with census-income/; generated rows without it")
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=Path("runs/big"), help="for the table and the results")
    parser.add_argument("options", nargs="*", help="of directloss fit, after --")
    asked = parser.parse_args()
    source = "generated" if asked.data_root is None else "census"
    path = asked.folder / f"{source}-{asked.rows}.{asked.format}"
    if not path.exists():
        print(f"Writing {path} ...", flush=True)
        write(path, generated() if asked.data_root is None else census(asked.data_root), asked.rows)
    print(f"{path}: {asked.rows:,} rows, {COLUMNS} columns, {path.stat().st_size / 2**20:,.0f} MB", flush=True)
    began, out = time.monotonic(), asked.folder / f"fit-{path.stem}-{asked.format}"
    words = ["fit", str(path), "--target", TARGET, "--metric", "ap", "--out", str(out), *asked.options]
    code = subprocess.run([sys.executable, "-m", "directloss", *words], check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"Peak of resident memory: {used.ru_maxrss / 2**10:,.0f} MB. {(time.monotonic() - began) / 60:.1f} minutes, "
        f"{(used.ru_utime + used.ru_stime) / 60:.1f} minutes of computing.",
        flush=True,
    )
    sys.exit(code)


if __name__ == "__main__":
    main()
