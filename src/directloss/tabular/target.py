"""The column to predict: turned into 0 and 1, its rows split into three parts, and columns that give it away."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from directloss._checks import fail, near
from directloss.integrations._cut import positive_class
from directloss.tabular.columns import Codes, Frame, Values, numbers_of, some_names, tidy, word_of

TEST, VALIDATION, ENOUGH = 5, 4, 100_000
"""One row of five is for the test, and one of four of the others for validation, up to so many rows."""
ID_ROWS, ID_SHARE = 20, 0.95
"""From this many rows on, a column with this share of distinct values looks like an identifier."""
LEAK, LEAK_VALUES = "gives the target away", 30
"""A column with at most this many values, each with one label only, gives the target away."""


@dataclass(frozen=True)
class Target:
    """The label of each row ``(n,)``: 1 positive, 0 negative, -1 where the file has none."""

    name: str
    labels: tuple[str, str]
    """The negative and the positive one, as written in the file."""
    y: Codes


def read_target(values: Values, name: str, positive: str) -> Target:
    """The target as labels: of two values, or of one of them against all others."""
    values = tidy(values, name)
    if isinstance(values.dtype, pd.CategoricalDtype):
        numbers = numbers_of(values)
        values = numbers if (np.isfinite(numbers) | values.isna()).all() else values
    codes, distinct = pd.factorize(values.astype(object), sort=True)
    words, counts = [word_of(value) for value in distinct], np.bincount(codes[codes >= 0], minlength=len(distinct))
    if len(words) < 2:
        fail(
            f"target {name!r}",
            "must have two values",
            f"{words[0]!r} in every row" if words else "missing in every row",
        )
    if positive and positive not in words:
        fail("--positive", f"must be one of {some_names(words)}", repr(positive), near(positive, words))
    if not positive and len(words) > 2:
        found = f"a column with {len(words)}: {some_names(words[:4])}"
        hint = (
            "--positive VALUE tells one value from all others. Turn a quantity into yes or no first, with a threshold."
        )
        fail(f"target {name!r}", "must have two values", found, f"{hint} DirectLossClassifier takes several classes.")
    place = words.index(positive) if positive else positive_class(words, counts)
    negative = words[1 - place] if len(words) == 2 else f"not {positive}"
    target = Target(name, (negative, words[place]), np.where(codes < 0, -1, codes == place))
    known = np.bincount(target.y[target.y >= 0])
    if known.min() < TEST:
        found = f"{target.labels[known.argmin()]!r} in {known.min()} of {known.sum()} rows"
        fail(f"target {name!r}", f"must have at least {TEST} rows of each label", found)
    return target


def split(y: Codes, seed: int, groups: Codes | None = None) -> dict[str, Codes]:
    """Sorted row indices per part, stratified by label; rows of a group stay together."""

    def divide(rows: Codes, folds: int) -> tuple[Codes, Codes]:
        own = None if groups is None else groups[rows]
        if own is not None and len(np.unique(own)) < folds:
            rule = f"must have at least {folds} groups in the rows to be divided"
            fail("--group", rule, f"a column with {len(np.unique(own))}", "Leave it out.")
        splitter = StratifiedKFold if own is None else StratifiedGroupKFold
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a label with fewer rows than folds: checked below
            first, second = next(splitter(folds, shuffle=True, random_state=seed).split(rows, y[rows], own))
        return rows[first], rows[second]

    rest, test = divide(np.flatnonzero(y >= 0), TEST)
    train, held = divide(rest, max(VALIDATION, round(len(rest) / ENOUGH)))
    parts = {"training": train, "validation": held, "test": test}
    for part, rows in parts.items():
        if len(np.unique(y[rows])) < 2:
            option = "DATA" if groups is None else "--group"
            fail(option, "must allow rows of each label in each part", f"one that leaves the {part} rows without some")
    return parts


def suspicions(frame: Frame, y: Codes, labels: Sequence[str]) -> list[str]:
    """Sentences about columns that are too good to be true, or look like identifiers; nothing is changed."""
    told = []
    for name, values in frame.items():
        codes, distinct = pd.factorize(values)
        drop = f"leave it out with --drop {shlex.quote(name)}"
        if leak := _leak(values, codes, y, labels):
            told.append(f"Column {name!r} {LEAK}: {leak}. If it is not known in advance, {drop}.")
        if len(values) >= ID_ROWS and len(distinct) >= ID_SHARE * len(values) and _looks_like_id(name, values):
            told.append(f"Column {name!r} looks like an identifier of the rows; if so, {drop}.")
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
        return bool(values.dtype.kind != "M")
    named = name.lower().replace("_", " ").split()[-1:] in (["id"], ["index"], ["key"], ["nr"])
    return bool((values % 1 == 0).all()) and (named or bool((values.diff()[1:] > 0).all()))
