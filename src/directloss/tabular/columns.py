"""What the columns hold, and what is wrong or suspicious about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from directloss._checks import fail, near

NUMBER, CATEGORY, DATE = "number", "category", "date"
MOSTLY = 0.9
"""A text column with at least this share of numbers among its values is taken for a spoilt column of numbers."""
SOME = 0.05
"""With this share of numbers, and fewer than that, it is a mixture that deserves a note."""
LARGEST = 1e30
"""Larger numbers are marks for something else, and too large for the networks, which count in float32."""
ID_ROWS, ID_SHARE = 20, 0.95
"""From so many rows on, a column with this share of different values looks like a name for each row."""
ISO_DATE = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?"
OTHER_DATE = r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}( .*)?"
PARTS = ("days", "month", "day", "weekday", "hour")
"""The numbers that a date becomes; days are counted from 1970."""


def choose(frame: pd.DataFrame, target: str, drop: Sequence[str], group: str | None) -> list[str]:
    """The columns to learn from, in the order of the file; those without any value are not among them."""
    check_known("--drop", drop, frame)
    check_known("--group", [group] if group is not None else [], frame)
    for option, names in (("--drop", drop), ("--group", [group])):
        if target in names:
            fail(option, "must not name the target", repr(target))
    others = [str(name) for name in frame.columns if name not in (target, group) and name not in drop]
    left = [name for name in others if frame[name].notna().any()]
    if not left:
        fail("--drop", "must leave a column with values to learn from", ", ".join(drop) or "a table without one")
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
    """``number``, ``category`` or ``date`` for each column."""
    check_known("--categorical", categorical, frame)
    return {name: CATEGORY if name in categorical else _kind(frame[name], name) for name in names}


def _kind(column: pd.Series[Any], name: str) -> str:
    kind = column.dtype
    if pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind):
        return NUMBER
    if pd.api.types.is_datetime64_any_dtype(kind):
        return DATE
    words = isinstance(kind, pd.CategoricalDtype) or pd.api.types.is_string_dtype(kind) or kind == np.dtype(object)
    if not words or any(isinstance(value, list | dict | np.ndarray | bytes) for value in column.head(100)):
        hint = f"Leave it out with --drop {name}, or turn it into numbers first."
        fail(f"column {name!r}", "must hold numbers, words or dates", f"of type {kind}", hint)
    return _kind_of_words(column, name)


def _kind_of_words(column: pd.Series[Any], name: str) -> str:
    """A column of numbers with a few words in it is a mistake in the file rather than categories."""
    share = share_of_numbers(column)
    if share == 1:  # such as whole numbers beyond 64 bits
        return NUMBER
    if share >= MOSTLY:
        present = column.dropna()
        odd = present[pd.to_numeric(present.astype(str), errors="coerce").isna()].astype(str)
        shown = ", ".join(repr(str(value)) for value in odd.unique()[:3])
        hint = f"Mend the values (an empty cell is a missing number), or add --categorical {name} or --drop {name}."
        rows = f"{len(odd)} of {len(present)} values are not: {shown}"
        fail(f"column {name!r}", "must hold numbers throughout", f"a column in which {rows}", hint)
    if _matches(column, ISO_DATE) and not dates_of(column)[column.notna().to_numpy()].isna().any():
        return DATE
    return CATEGORY


def share_of_numbers(column: pd.Series[Any]) -> float:
    """Which share of the values that are there can be read as numbers."""
    return float(pd.to_numeric(column.dropna().astype(str), errors="coerce").notna().mean())


def _matches(column: pd.Series[Any], pattern: str) -> bool:
    return bool(column.dropna().astype("string").str.strip().str.fullmatch(pattern).all())


def dates_of(column: pd.Series[Any]) -> pd.DatetimeIndex:
    """Dates and times without time zone; what is none becomes missing."""
    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        column = column.astype("string").str.strip()
    return pd.DatetimeIndex(pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")).tz_localize(None)


def numbers_of(column: pd.Series[Any], kind: str) -> npt.NDArray[np.float64]:
    """A column as numbers ``(n, k)``, with NaN for what is missing: k is 1, or one for each part of a date."""
    if kind == DATE:
        dates = dates_of(column)
        days = (dates - pd.Timestamp(0)) / pd.Timedelta(days=1)
        parts = (np.floor(days), dates.month, dates.day, dates.day_of_week, dates.hour + dates.minute / 60)
        return np.column_stack([np.asarray(part, dtype=np.float64) for part in parts])
    if not pd.api.types.is_numeric_dtype(column.dtype):
        column = pd.to_numeric(column.astype(object).where(column.notna(), None).map(_as_number))
    return column.to_numpy(dtype=np.float64, na_value=np.nan)[:, None]


def _as_number(value: Any) -> float:
    return np.nan if value is None else float(value)


def check_finite(frame: pd.DataFrame, kinds: Mapping[str, str]) -> None:
    """No infinite numbers, and none whose square would be."""
    numbers = [name for name, kind in kinds.items() if kind == NUMBER]
    values = {name: np.abs(numbers_of(frame[name], NUMBER)) for name in numbers}
    for rule, odd, limit in (
        ("finite numbers only", "infinite ones", np.inf),
        (f"numbers of at most {LARGEST:.0e}", "larger ones", LARGEST),
    ):
        found = {name: count for name in numbers if (count := int((values[name] >= limit).sum()))}
        if found:
            fail("DATA", f"must have {rule}", f"a table with {odd} in {listed(found)}", "Replace these values.")


def listed(counts: Mapping[str, int], most: int = 10) -> str:
    """``age (12 rows), height (1 row)``."""
    parts = [f"{name} ({count} {'row' if count == 1 else 'rows'})" for name, count in counts.items()]
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more columns" if len(parts) > most else "")


def suspicions(frame: pd.DataFrame, kinds: Mapping[str, str]) -> list[str]:
    """Sentences about columns that are of no use or too good to be true; nothing is changed."""
    names = list(kinds)
    found = [
        f"Column {name!r} mixes words with {share:.0%} numbers; it is read as categories."
        for name in names
        if kinds[name] == CATEGORY
        and not pd.api.types.is_numeric_dtype(frame[name].dtype)
        and SOME <= (share := share_of_numbers(frame[name])) < 1
    ]
    found += [
        f"Column {name!r} looks like dates, but is read as categories: write them as 2024-12-31."
        for name in names
        if kinds[name] == CATEGORY and _matches(frame[name], OTHER_DATE)
    ]
    found += [f"Column {name!r} has the same value in every row." for name in names if _constant(frame[name])]
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
