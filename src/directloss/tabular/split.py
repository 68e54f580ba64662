"""Training, validation and test rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from directloss._checks import fail

Rows = npt.NDArray[np.int64]
PARTS = ("training", "validation", "test")
OF_REST, ENOUGH = 0.25, 200_000
"""The validation share of the rows outside the test part, and the number of validation rows that is enough."""


def split_rows(y: npt.NDArray[np.int64], test_share: float, seed: int) -> dict[str, Rows]:
    """Row indices per part, stratified by label; rows without a label are in none."""
    found: dict[str, list[Rows]] = {part: [] for part in PARTS}
    share = _held_share(len(y), test_share)
    for label in range(y.max() + 1):
        rows = np.random.default_rng([seed, label]).permutation(np.flatnonzero(y == label))
        test = max(1, round(test_share * len(rows)))
        held = max(1, round(share * (len(rows) - test)))
        for part, own in zip(PARTS, (rows[test + held :], rows[test : test + held], rows[:test]), strict=True):
            found[part].append(own)
    return {part: np.sort(np.concatenate(own)) for part, own in found.items()}


def _held_share(rows: int, test_share: float) -> float:
    """The validation share of the rows outside the test part."""
    return min(OF_REST, ENOUGH / ((1 - test_share) * rows))


def split_groups(
    y: npt.NDArray[np.int64], groups: Sequence[str] | Rows, test_share: float, seed: int
) -> dict[str, Rows]:
    """Row indices per part; the rows of a group stay together.

    Groups are dealt in random order, each to the part that lacks the most of its share of rows and of each label.
    """
    known = np.flatnonzero(y >= 0)
    y = y[known]
    names, owner = np.unique(np.asarray(groups)[known], return_inverse=True)
    held = (1 - test_share) * _held_share(len(y), test_share)
    shares = dict(zip(PARTS, (1 - test_share - held, held, test_share), strict=True))
    labels = range(1, y.max() + 1)  # the first label follows from the others
    amounts = np.stack([np.bincount(owner), *(np.bincount(owner, weights=y == label) for label in labels)], 1)
    wanted = {part: share * amounts.sum(0) for part, share in shares.items()}
    part_of = np.zeros(len(names), dtype=np.int64)
    dealt = {part: np.zeros(amounts.shape[1]) for part in PARTS}
    # Large groups are the hardest to place and go first; ties are in random order.
    order = np.random.default_rng(seed).permutation(len(names))
    for group in order[np.argsort(-amounts[order, 0], kind="stable")]:
        part = max(PARTS, key=lambda part: float(np.mean((wanted[part] - dealt[part]) / wanted[part])))
        dealt[part] += amounts[group]
        part_of[group] = PARTS.index(part)
    found = {part: np.flatnonzero(part_of[owner] == place) for place, part in enumerate(PARTS)}
    for part, rows in found.items():
        if len(np.unique(y[rows])) <= y.max():
            rule = "must have enough groups to put rows of each label into each part"
            fail("--group", rule, f"a column with {len(names)}, which leaves the {part} rows without", "Leave it out.")
    return {part: known[rows] for part, rows in found.items()}
