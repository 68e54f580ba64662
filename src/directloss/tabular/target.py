"""The column to predict: checked, turned into 0 and 1, and its rows split into three parts."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from directloss._checks import fail, near
from directloss.integrations._cut import positive_class
from directloss.tabular.columns import Codes, Values, numbers_of, some_names, tidy, word_of

TEST, VALIDATION, ENOUGH = 5, 4, 100_000
"""One row of five is for the test, and one of four of the others for validation, up to so many rows."""


@dataclass(frozen=True)
class Target:
    """The label of each row ``(n,)``: 1 positive, 0 negative, -1 where the file has none."""

    name: str
    labels: tuple[str, str]
    """The negative and the positive one, as written in the file."""
    y: Codes
    why: str
    """Why this label is the positive one."""


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
    if positive:
        place, why = words.index(positive), "as requested"
    else:
        place = positive_class(words, counts)
        rarer = counts[place] < counts[1 - place]
        why = f"{'the rarer one' if rarer else 'by convention'}; --positive changes it"
    negative = words[1 - place] if len(words) == 2 else f"not {positive}"
    target = Target(name, (negative, words[place]), np.where(codes < 0, -1, codes == place), why)
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
