"""What looks suspicious about columns: useless, or too good to be true."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pandas as pd

from directloss.tabular.columns import Codes, Frame, Values, some_names

ID_ROWS, ID_SHARE = 20, 0.95
"""From this many rows on, a column with this share of distinct values looks like an identifier."""
LEAK, LEAK_VALUES = "gives the target away", 30
"""A column with at most this many values, each with one label only, gives the target away."""


def suspicions(frame: Frame, y: Codes, labels: Sequence[str]) -> list[str]:
    """Sentences about columns; nothing is changed."""
    told, constant, same = [], [], dict[int, str]()
    for name, values in frame.items():
        codes, distinct = pd.factorize(values)
        drop = f"leave it out with --drop {shlex.quote(name)}"
        if len(distinct) + (codes < 0).any() == 1:
            constant.append(name)
            continue
        if leak := _leak(values, codes, y, labels):
            told.append(f"Column {name!r} {LEAK}: {leak}. If it is not known in advance, {drop}.")
        if len(values) >= ID_ROWS and len(distinct) >= ID_SHARE * len(values) and _looks_like_id(name, values):
            told.append(f"Column {name!r} looks like an identifier of the rows; if so, {drop}.")
        if (other := same.setdefault(hash((codes.tobytes(), *distinct[:50])), name)) != name:
            told.append(f"Column {name!r} is the same as {other!r}.")
    if constant:
        subject = "Column {} has" if len(constant) == 1 else "Columns {} have"
        told.append(f"{subject.format(some_names(constant))} the same value in every row.")
    return told


def _leak(values: Values, codes: Codes, y: Codes, labels: Sequence[str]) -> str:
    """How a column tells the label of every row; empty if it does not."""
    if codes.max() < min(LEAK_VALUES, len(y) / 5):  # of values that hardly repeat, most have one label by chance
        seen = pd.Series(y).groupby(codes).nunique()
        if (seen == 1).all():
            copy = len(seen) == len(labels)
            return "it is a copy of it, or a recoding" if copy else f"each of its {len(seen)} values has one label only"
    if values.dtype.kind == "f" and len(labels) == 2 and values.notna().all():
        no, yes = (values.to_numpy()[y == label] for label in (0, 1))
        if yes.min() > no.max() or yes.max() < no.min():
            return f"one threshold separates {labels[1]!r} from {labels[0]!r} without an error"
    return ""


def _looks_like_id(name: str, values: Values) -> bool:
    """Whether a column of values that hardly repeat holds words, or whole numbers that are named or count up."""
    if values.dtype.kind != "f":
        return values.dtype.kind != "M"
    named = name.lower().replace("_", " ").split()[-1:] in (["id"], ["index"], ["key"], ["nr"])
    return bool((values % 1 == 0).all()) and (named or bool((values.diff()[1:] > 0).all()))
