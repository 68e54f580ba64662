"""The models a practitioner would use instead, each with a few settings; the validation rows choose one of them."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import logit

from directloss._checks import check_choice, fail
from directloss.integrations._rows import blocks_of
from directloss.tabular.comparison import Method, described
from directloss.tabular.measures import Measure

Array = npt.NDArray[Any]
ROOM = 3 * 10**7
"""The most numbers (8 bytes each) a baseline is trained on; larger tables are sampled by row."""
Setting = Mapping[str, Any]


@dataclass(frozen=True)
class Baseline:
    """An estimator class and the settings to try, the library's defaults first."""

    title: str
    home: str
    settings: tuple[Setting, ...]
    always: Setting = field(default_factory=dict)
    scaled: bool = False

    @property
    def there(self) -> bool:
        """Whether its package is installed."""
        return importlib.util.find_spec(self.home.split(".")[0]) is not None

    def make(self, seed: int, setting: Setting) -> Any:
        """An untrained estimator."""
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        home, name = self.home.rsplit(".", 1)
        estimator = getattr(importlib.import_module(home), name)(random_state=seed, **self.always, **setting)
        return make_pipeline(StandardScaler(), estimator) if self.scaled else estimator


BASELINES = {
    "logistic": Baseline(
        "LogisticRegression",
        "sklearn.linear_model.LogisticRegression",
        ({"C": 1.0}, {"C": 0.1}, {"C": 0.01}, {"C": 10.0}),
        {"max_iter": 1000},
        scaled=True,
    ),
    "hist": Baseline(
        "HistGradientBoosting",
        "sklearn.ensemble.HistGradientBoostingClassifier",
        ({}, {"learning_rate": 0.05, "max_iter": 200}, {"max_leaf_nodes": 15, "l2_regularization": 1.0}),
    ),
    "xgboost": Baseline(
        "XGBoost", "xgboost.XGBClassifier", ({}, {"learning_rate": 0.1, "n_estimators": 200}, {"max_depth": 3})
    ),
    "lightgbm": Baseline(
        "LightGBM",
        "lightgbm.LGBMClassifier",
        ({}, {"learning_rate": 0.05, "n_estimators": 200}, {"num_leaves": 15}),
        # LightGBM defaults to all cores of the machine, whatever this process was given.
        {"verbosity": -1, "n_jobs": torch.get_num_threads()},
    ),
}


def parse_baselines(text: str) -> tuple[str, ...]:
    """``all``, ``none``, or names. ``all`` skips what is not installed; naming it raises an error."""
    if text == "none":
        return ()
    if text == "all":
        return tuple(name for name, baseline in BASELINES.items() if baseline.there)
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for name in names:
        check_choice("--baselines", name, (*BASELINES, "all", "none"))
        if name not in BASELINES:
            fail("--baselines", "must be given alone", repr(name))
        if not BASELINES[name].there:
            fail("--baselines", "must be installed", f"{name!r}, which is not", f"pip install {name}")
    return names


def fit_baseline(
    name: str, measure: Measure, train: tuple[Any, Array], held: tuple[Any, Array], test: Any, seed: int,
    tell: Callable[[str], None] = lambda line: None,
) -> Method:  # fmt: skip
    """Train with each setting and keep the one with the best validation metric, the first in a tie.

    Calls ``tell`` with the progress before each setting. Rows are arrays or `StoredRows`; at most `ROOM` numbers of the
    latter become an array.
    """
    baseline, target = BASELINES[name], torch.from_numpy(held[1])
    rows, y = train
    kept, sampled = sample(y, rows.shape, seed), None
    if len(kept) < len(y):
        rows, y, sampled = rows[kept], y[kept], len(kept)
    found, began = [], time.monotonic()
    for place, setting in enumerate(baseline.settings, 1):
        tell(f"setting {place} of {len(baseline.settings)}")
        estimator = baseline.make(seed, setting).fit(rows[:], y)
        scores = torch.from_numpy(_scores(estimator, held[0]))
        cut = measure.cut(scores, target)
        found.append((float(measure.value(scores - cut, target)), setting, estimator, cut))
    value, setting, estimator, cut = max(found, key=lambda one: one[0])
    seconds, judged = time.monotonic() - began, _scores(estimator, test) - cut
    return Method(name, baseline.title, described(setting), value, judged, seconds, sampled=sampled)


def sample(y: Array, shape: tuple[int, int], seed: int) -> npt.NDArray[np.int64]:
    """Indices of the rows to train a baseline on, a stratified sample."""
    share = min(1.0, ROOM / (shape[0] * max(1, shape[1])))
    if share == 1:
        return np.arange(len(y))
    draw = np.random.default_rng(seed)
    own = [draw.permutation(np.flatnonzero(y == label)) for label in np.unique(y)]
    return np.sort(np.concatenate([rows[: max(1, int(share * len(rows)))] for rows in own]))


def _scores(estimator: Any, rows: Any) -> npt.NDArray[np.float64]:
    """Scores of all rows, in blocks: one per row, or one per class as the networks have them."""
    return np.concatenate([_some_scores(estimator, block) for block in blocks_of(rows)])


def _some_scores(estimator: Any, rows: Array) -> npt.NDArray[np.float64]:
    """Log-odds, because probabilities near 1 are too close together to be ranked."""
    if hasattr(estimator, "decision_function"):
        return np.asarray(estimator.decision_function(rows), dtype=np.float64)
    shares = np.asarray(estimator.predict_proba(rows), dtype=np.float64)
    if shares.shape[1] > 2:
        return np.log(np.clip(shares, 1e-300, None))
    return np.asarray(logit(np.clip(shares[:, 1], 1e-300, 1 - 1e-16)))
