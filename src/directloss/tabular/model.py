"""A trained model and its file, which cannot run code.

The file is in the safetensors format: the weights are arrays of numbers, everything else is JSON in its header, and a
SHA-256 checksum covers both. The layout is read by the safetensors library; what it holds is checked here.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from directloss._checks import fail, near, warn_once
from directloss.integrations._cut import Calibration, decided
from directloss.tabular.columns import HIGHEST, Column, Floats, Frame, encode, some, some_names
from directloss.tabular.files import write_file
from directloss.tabular.measures import get_measure
from directloss.tabular.methods import Network

KEY, VERSION = "directloss", 6
ABOUT = ("target", "metric", "trained")
"""Fields of a model that the file stores as text."""
SHOWN = 3
"""Number of unseen values that a warning names, per column."""


@dataclass(frozen=True)
class Novelty:
    """Values of rows that the training rows did not have, or too rarely, by column."""

    counts: Counter[str] = field(default_factory=Counter)
    """Number of rows."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """A few of the values."""

    @property
    def warning(self) -> str:
        """A sentence about them; empty if there are none."""
        told = [f"{own:,} in {name!r} (such as {', '.join(self.examples[name])})" for name, own in self.counts.items()]
        return f"Values that the training rows do not have, or too rarely: {some(told)}." if told else ""


@dataclass(frozen=True, repr=False)
class Model:
    """A network and everything else it takes to turn a row of a table into a score and a decision."""

    columns: list[Column]
    network: Network
    """Its scores are above 0 for the positive label."""
    calibration: Calibration
    labels: tuple[str, str]
    """The negative and the positive one."""
    target: str
    metric: str
    trained: str
    """How the network was trained, for people to read."""

    def __repr__(self) -> str:
        about = f"metric={self.metric!r}, trained={self.trained!r}, target={self.target!r}"
        return f"Model({about}, columns={len(self.columns)}, labels=({some_names(self.labels)}))"

    def decision_function(self, frame: Any) -> Floats:
        """The score of each row, above 0 for the positive label; warns about values not seen in training."""
        if not isinstance(frame, pd.DataFrame):
            rule = "must be a pandas.DataFrame with the columns of training"
            known = some_names([column.name for column in self.columns])
            fail("frame", rule, f"a {type(frame).__name__}", f"Columns: {known}.")
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
        self.check_names(list(frame.columns))
        novelty = Novelty()
        scores = self.score_table(frame, novelty)
        if novelty.warning:
            warn_once("unseen categories", novelty.warning)
        return scores

    def predict(self, frame: pd.DataFrame) -> npt.NDArray[Any]:
        """The label of each row, as written in the training table."""
        return np.array(self.labels).take(decided(self.decision_function(frame)))

    def predict_proba(self, frame: pd.DataFrame) -> Floats:
        """The probability of each of ``labels``, ``(n, 2)``, calibrated on the validation rows."""
        return self.calibration(self.decision_function(frame))

    def score_table(self, table: Frame, novelty: Novelty, decimal_comma: bool = False) -> Floats:
        """`decision_function` of columns; ``novelty`` collects what training did not have."""
        frame = {own.name: own.read(table[own.name], decimal_comma) for own in self.columns}
        for column in self.columns:
            if len(unseen := column.unseen(frame[column.name])):
                novelty.counts[column.name] += len(unseen)
                words = ["a missing value" if pd.isna(value) else repr(value) for value in unseen.unique()[:SHOWN]]
                known = novelty.examples.get(column.name, [])
                novelty.examples[column.name] = list(dict.fromkeys([*known, *words]))[:SHOWN]
        return self.network.decision_function(encode(self.columns, frame))

    def check_names(self, names: Sequence[str]) -> list[str]:
        """Check that every column of training is there; returns those that training did not have."""
        known = [column.name for column in self.columns]
        extra = [name for name in names if name not in known and name != self.target]
        if missing := [name for name in known if name not in names]:
            hint = near(missing[0], extra)
            fail("DATA", "must have every column of training", f"without {some_names(missing)}", hint)
        return extra

    def save(self, path: Path) -> None:
        """Write the model file."""
        content = {name: getattr(self, name) for name in ABOUT} | {"version": VERSION, "labels": self.labels}
        content |= {"slope": self.calibration.slope, "bias": self.calibration.bias.tolist()}
        content |= {"columns": [asdict(column) for column in self.columns]}
        text, arrays = json.dumps(content, allow_nan=False), dict[str, npt.NDArray[Any]]()
        for place, (weight, bias) in enumerate(self.network.layers):
            arrays |= {f"weight {place}": np.ascontiguousarray(weight), f"bias {place}": bias}
        # One entry, because the order of several in the file would be random.
        write_file(path, save_arrays(arrays, {KEY: _digest(text, arrays) + text}))


def _digest(text: str, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    return hashlib.sha256(text.encode() + save_arrays(dict(arrays))).hexdigest()


def load_model(path: str | Path) -> Model:
    """Read and check a model file; raises `DirectLossError` if it is not one."""
    path = Path(path)
    if not path.is_file():
        fail("MODEL", "must be a model file, such as model.safetensors of fit", f"{path}, which is not a file")
    raw = path.read_bytes()
    try:
        arrays = load_arrays(raw)
        about = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["__metadata__"][KEY]
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError):
        found = f"{path}, which is another file or damaged"
        fail(
            "MODEL", "must be a file that directloss fit wrote", found, "Train it again if an earlier version wrote it."
        )
    if _digest(about[64:], arrays) != about[:64]:
        hint = "Copy it again from where it was written, or train it again if an earlier version wrote it."
        fail("MODEL", "must be unchanged since fit wrote it", f"{path}, whose checksum does not match", hint)
    try:
        return _build(json.loads(about[64:]), arrays)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"Reason: {str(error).splitlines()[0]:.200}" if str(error) else ""
        fail("MODEL", "must be a whole model file", f"{path}, in which something is missing or does not fit", reason)


def _build(content: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Model:
    """The model of a file; whatever the row, its score is finite."""
    if content["version"] != VERSION:
        fail("version", f"must be {VERSION}", repr(content["version"])[:20])
    labels, about = tuple(content["labels"]), {name: content[name] for name in ABOUT}
    if len(labels) != 2 or not all(isinstance(word, str) for word in (*labels, *about.values())):
        fail("labels", "must be two words, and the rest must be text", repr(labels)[:80])
    get_measure(about["metric"])
    columns = [
        Column(**own | {key: tuple(own[key]) for key in ("words", "mean", "factor")}) for own in content["columns"]
    ]
    if len({column.name for column in columns}) < len(columns):
        fail("columns", "must have different names", "a list with one twice")
    if not all(len(column.mean) == len(column.factor) == column.width for column in columns):
        fail("columns", "must have one mean and one factor for each number", "others")
    slope, bias = float(content["slope"]), np.array(content["bias"], np.float64)
    if not 0 < slope < np.inf or bias.shape != (2,) or not np.isfinite(bias).all():
        fail("calibration", "must have a slope above 0 and a bias for each label", f"{slope}, {bias}"[:80])
    layers = [(arrays[f"weight {place}"], arrays[f"bias {place}"]) for place in range(len(arrays) // 2)]
    furthest = np.full((1, sum(column.width for column in columns)), HIGHEST, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        bound = Network([(np.abs(weight), np.abs(bias)) for weight, bias in layers]).decision_function(furthest)
    if bound.shape != (1,) or not np.isfinite(bound).all():
        fail("network", "must have one finite score for any row", f"up to {bound}"[:80])
    return Model(columns, Network(layers), Calibration(slope, bias), labels, **about)
