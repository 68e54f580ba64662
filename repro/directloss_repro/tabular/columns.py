"""What the columns hold, and what is wrong or suspicious about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from directloss._checks import fail, near

NUMBER, CATEGORY = "number", "category"
MOSTLY = 0.9
"""A text column with at least this share of numbers among its values is taken for a spoilt column of numbers."""
LARGEST = 1e30
"""Larger numbers are marks for something else, and too large for the networks, which count in float32."""
ID_ROWS, ID_SHARE = 20, 0.95
"""From so many rows on, a column with this share of different values looks like a name for each row."""


def choose(frame: pd.DataFrame, target: str, drop: Sequence[str]) -> list[str]:
    """The columns to learn from, in the order of the file."""
    check_known("--drop", drop, frame)
    if target in drop:
        fail("--drop", "must not name the target", repr(target))
    left = [str(name) for name in frame.columns if name != target and name not in drop]
    if not left:
        fail("--drop", "must leave a column to learn from", ", ".join(drop))
    return left


def check_known(option: str, names: Sequence[str], frame: pd.DataFrame) -> None:
    """Every name is a column."""
    known = [str(name) for name in frame.columns]
    for name in names:
        if name not in known:
            fail(
                option,
                "must name columns of the data",
                repr(name),
                near(name, known) or f"Columns: {', '.join(known)}.",
            )


def kinds_of(frame: pd.DataFrame, names: Sequence[str], categorical: Sequence[str]) -> dict[str, str]:
    """``number`` or ``category`` for each column."""
    check_known("--categorical", categorical, frame)
    return {name: CATEGORY if name in categorical else _kind(frame[name], name) for name in names}


def _kind(column: pd.Series[Any], name: str) -> str:
    kind = column.dtype
    if pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind):
        return NUMBER
    words = isinstance(kind, pd.CategoricalDtype) or pd.api.types.is_string_dtype(kind) or kind == np.dtype(object)
    if not words or any(isinstance(value, list | dict | np.ndarray | bytes) for value in column.head(100)):
        hint = f"Leave it out with --drop {name}, or turn it into numbers first."
        fail(f"column {name!r}", "must hold numbers or words", f"of type {kind}", hint)
    return _words_or_spoilt_numbers(column, name)


def _words_or_spoilt_numbers(column: pd.Series[Any], name: str) -> str:
    """A column of numbers with a few words in it is a mistake in the file rather than categories."""
    present = column.dropna()
    if present.empty:
        return NUMBER
    numbers = pd.to_numeric(present.astype(str), errors="coerce").notna()
    if numbers.mean() >= MOSTLY:
        odd = present[~numbers].astype(str).unique()
        shown = ", ".join(repr(str(value)) for value in odd[:3])
        hint = f"Mend the values (an empty cell is a missing number), or add --categorical {name} or --drop {name}."
        rows = f"{int((~numbers).sum())} of {len(present)} values are not: {shown}" if len(odd) else "text"
        fail(f"column {name!r}", "must hold numbers throughout", f"a column in which {rows}", hint)
    return CATEGORY


def check_finite(frame: pd.DataFrame, numbers: Sequence[str]) -> None:
    """No infinite numbers, and none whose square would be."""
    values = {name: np.abs(frame[name].to_numpy(dtype=float, na_value=np.nan)) for name in numbers}
    for rule, odd, limit in (
        ("finite numbers only", "infinite ones", np.inf),
        (f"numbers of at most {LARGEST:.0e}", "larger ones", LARGEST),
    ):
        found = {name: count for name in numbers if (count := int((values[name] >= limit).sum()))}
        if found:
            fail("DATA", f"must have {rule}", f"a table with {odd} in {listed(found)}", "Replace these values.")


def check_numbers(frame: pd.DataFrame, kinds: Mapping[str, str], impute: bool) -> list[str]:
    """Refuse infinite and, unless they are to be filled, missing numbers. Returns the columns with missing ones."""
    numbers = [name for name, kind in kinds.items() if kind == NUMBER]
    check_finite(frame, numbers)
    missing = {name: count for name in numbers if (count := int(frame[name].isna().sum()))}
    if missing and not impute:
        hint = "Add --impute to fill them with the median and to mark them in a column of its own, or use --drop."
        fail("DATA", "must have no missing numbers", f"a table with gaps in {listed(missing)}", hint)
    empty = [name for name in missing if missing[name] == len(frame)]
    if empty:
        fail(
            f"column {empty[0]!r}", "must have values", "missing in every row", f"Leave it out with --drop {empty[0]}."
        )
    return list(missing)


def listed(counts: Mapping[str, int], most: int = 10) -> str:
    """``age (12 rows), height (1 row)``."""
    parts = [f"{name} ({count} {'row' if count == 1 else 'rows'})" for name, count in counts.items()]
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more columns" if len(parts) > most else "")


def suspicions(frame: pd.DataFrame, kinds: Mapping[str, str]) -> list[str]:
    """Sentences about columns that are of no use or too good to be true; nothing is changed."""
    names = list(kinds)
    found = [f"Column {name!r} has the same value in every row." for name in names if _constant(frame[name])]
    found += [
        f"Column {name!r} looks like a name or number of each row; if it is one, leave it out with --drop {name}."
        for name in names
        if _looks_like_id(frame[name], name, kinds[name])
    ]
    return [*found, *_duplicates(frame, names)]


def _constant(column: pd.Series[Any]) -> bool:
    return int(column.nunique(dropna=False)) == 1


def _looks_like_id(column: pd.Series[Any], name: str, kind: str) -> bool:
    if len(column) < ID_ROWS or column.nunique() < ID_SHARE * len(column):
        return False
    if kind == CATEGORY:
        return True
    whole = pd.api.types.is_integer_dtype(column.dtype)
    steps = whole and bool((column.diff().dropna() == 1).all())
    return steps or (whole and name.lower().replace("_", " ").split()[-1:] in (["id"], ["index"], ["key"], ["nr"]))


def _duplicates(frame: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Columns with the same content as an earlier one."""
    first: dict[int, list[str]] = {}
    found = []
    for name in names:
        mark = hash(tuple(pd.util.hash_pandas_object(frame[name], index=False)))
        same = next((other for other in first.get(mark, []) if frame[other].equals(frame[name])), None)
        if same is not None and not _constant(frame[name]):
            found.append(f"Column {name!r} is the same as {same!r}.")
        first.setdefault(mark, []).append(name)
    return found
