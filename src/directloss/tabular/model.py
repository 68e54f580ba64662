"""A trained model and its file, which cannot run code.

The file is in the safetensors format: the weights are arrays of numbers, everything else is JSON in its header, and a
SHA-256 checksum covers both. The layout is read by the safetensors library; what it holds is checked here.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from directloss.tabular.columns import LARGEST, NUMBER, Values, read_column, rows, some, some_names
from directloss.tabular.encoding import SHOWN, Encoder
from directloss.tabular.files import write_file
from directloss.tabular.measures import Measure, get_measure
from directloss.tabular.methods import Network, Scores, X

KEY, VERSION = "directloss", 5
ABOUT = ("target", "metric", "method", "trained", "data")
"""Fields of a model that the file stores as text."""
DEEPEST = 4
"""The most layers. With weights up to `LARGEST`, scores in float64 stay finite."""
OLD = "It was written by an earlier version: train it again with directloss fit, or predict with that version."


@dataclass
class Novelty:
    """What rows have that the training rows did not, by column."""

    gaps: Counter[str] = field(default_factory=Counter)
    """Number of rows with a missing number, where training had none."""
    unseen: Counter[str] = field(default_factory=Counter)
    """Number of rows with a category that is new, or was too rare in training."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """A few of these categories."""

    @property
    def warning(self) -> str:
        """A sentence about unseen categories; empty if there are none."""
        told = [
            f"{name!r} in {rows(count)} (such as {some_names(self.examples[name])})"
            for name, count in self.unseen.items()
        ]
        return f"Categories that the training rows do not have, or too rarely: {some(told)}." if told else ""


@dataclass(frozen=True, repr=False)
class Model:
    """A network and everything else it takes to turn a row of a table into a score and a decision."""

    encoder: Encoder
    network: Network
    cut: float
    """Scores of the network above it mean the second label."""
    calibration: Calibration
    labels: tuple[str, ...]
    """Negative and positive, or all classes."""
    target: str
    metric: str
    method: str
    trained: str
    """How the network was trained, for people to read."""
    data: str

    def __repr__(self) -> str:
        about = f"metric={self.metric!r}, method={self.method!r}, target={self.target!r}"
        return f"Model({about}, columns={len(self.encoder.columns)}, labels=({some_names(self.labels)}))"

    @property
    def measure(self) -> Measure:
        """The metric."""
        return replace(get_measure(self.metric), classes=len(self.labels))

    def decision_function(self, frame: Any) -> Scores:
        """The score of the positive label per row, above 0 for yes; only the order has a meaning.

        With more than two classes, one score per class, ``(n, classes)``. Warns about categories not seen in training.
        """
        if not isinstance(frame, pd.DataFrame):
            rule = "must be a pandas.DataFrame with the columns of training"
            known = some_names([column.name for column in self.encoder.columns])
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
        return self.decisions(self.decision_function(frame))

    def predict_proba(self, frame: pd.DataFrame) -> Scores:
        """The probability of each of ``labels``, ``(n, labels)``, calibrated on the validation rows."""
        return self.calibration(self.decision_function(frame))

    def decisions(self, scores: Scores) -> npt.NDArray[Any]:
        """`predict` of scores."""
        labels: npt.NDArray[Any] = np.array(self.labels)[decided(scores)]
        return labels

    def scores(self, x: X) -> Scores:
        """`decision_function` of encoded rows."""
        return self.network.decision_function(x) - self.cut

    def score_table(self, table: Mapping[str, Values], novelty: Novelty, decimal_comma: bool = False) -> Scores:
        """`decision_function` of columns; ``novelty`` collects what training did not have."""
        frame: dict[str, Values] = {}
        for encoding in self.encoder.encodings:
            name = encoding.column.name
            frame[name] = values = read_column(table[name], encoding.column, decimal_comma)
            if encoding.column.kind == NUMBER and not encoding.marked and (gaps := int(values.isna().sum())):
                novelty.gaps[name] += gaps
            if len(unseen := encoding.unseen(values)):
                novelty.unseen[name] += len(unseen)
                words = [*novelty.examples.get(name, []), *unseen.unique()]
                novelty.examples[name] = list(dict.fromkeys(words))[:SHOWN]
        return self.scores(self.encoder.encode(frame))

    def check_names(self, names: Sequence[str]) -> list[str]:
        """Check that every column of training is there; returns those that training did not have."""
        known = [column.name for column in self.encoder.columns]
        extra = [name for name in names if name not in known and name != self.target]
        if missing := [name for name in known if name not in names]:
            hint = near(missing[0], extra)
            fail("DATA", "must have every column of training", f"without {some_names(missing)}", hint)
        return extra

    def save(self, path: Path) -> None:
        """Write the model file."""
        content = json.dumps(
            {"version": VERSION, "labels": self.labels, "cut": self.cut, "slope": self.calibration.slope}
            | {"columns": self.encoder.to_list()}
            | {name: getattr(self, name) for name in ABOUT},
            allow_nan=False,
        )
        arrays: dict[str, npt.NDArray[Any]] = {
            "mean": self.encoder.mean,
            "factor": self.encoder.factor,
            "bias": self.calibration.bias,
        }
        for place, (weight, bias) in enumerate(self.network.layers):
            arrays |= {f"weight {place}": weight, f"bias {place}": bias}
        plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        # One entry, because their order in the file would be random.
        write_file(path, save_arrays(plain, {KEY: _digest(content, plain) + content}))


def _digest(content: str, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    digest = hashlib.sha256(content.encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode() + arrays[name].tobytes())
    return digest.hexdigest()


def load_model(path: str | Path) -> Model:
    """Read and check a model file; raises `DirectLossError` if it is not one."""
    path = Path(path)
    if not path.is_file():
        rule = "must be a model file, such as the model.safetensors that fit writes"
        fail("MODEL", rule, f"{path}, which is not a file")
    raw = path.read_bytes()
    if raw.startswith((b'{"format": "directloss model"', b"PK")):
        fail("MODEL", f"must be of version {VERSION}", f"{path}, which is older or another file", OLD)
    try:
        arrays = load_arrays(raw)
        about = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["__metadata__"][KEY]
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError):
        fail("MODEL", "must be a file that directloss fit wrote", f"{path}, which is another file or damaged")
    digest, text = about[:64], about[64:]
    if _digest(text, arrays) != digest:
        hint = "Copy it again from where it was written, or train it again."
        fail("MODEL", "must be unchanged since fit wrote it", f"{path}, whose checksum does not match", hint)
    try:
        return _build(json.loads(text), arrays)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"Reason: {str(error).splitlines()[0]:.200}" if str(error) else ""
        fail("MODEL", "must be a whole model file", f"{path}, in which something is missing or does not fit", reason)


def _build(content: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Model:
    """The model of a file, which must be able to score an encoded row."""
    if content["version"] != VERSION:
        fail("version", f"must be {VERSION}", repr(content["version"])[:20])
    for name, array in arrays.items():
        if array.dtype not in (np.float32, np.float64) or not (np.abs(array) <= LARGEST).all():
            fail(f"array {name!r}", f"must hold finite numbers up to {LARGEST:g}", "outside that range")
    labels, about = tuple(content["labels"]), {name: content[name] for name in ABOUT}
    if len(labels) < 2 or not all(isinstance(word, str) for word in (*labels, *about.values())):
        fail("labels", "must be two or more words, and the rest must be text", repr(labels)[:80])
    cut, slope, bias = float(content["cut"]), float(content["slope"]), arrays["bias"]
    if not (abs(cut) <= LARGEST and 0 < slope <= LARGEST) or bias.shape != (len(labels),):
        fail("cut and calibration", f"must be finite numbers for {len(labels)} labels", f"{cut}, {slope}, {bias.shape}")
    depth = sum(name.startswith("weight ") for name in arrays)
    if not 1 <= depth <= DEEPEST:
        fail("network", f"must have 1 to {DEEPEST} layers", f"one with {depth}")
    network = Network(tuple((arrays[f"weight {k}"], arrays[f"bias {k}"]) for k in range(depth)))
    encoder = Encoder.from_list(content["columns"], arrays["mean"], arrays["factor"])
    model = Model(encoder, network, cut, Calibration(slope, bias), labels, **about)
    get_measure(model.metric)
    scores = model.scores(np.zeros((1, len(encoder.mean)), np.float32))
    if scores.shape != ((1,) if len(labels) == 2 else (1, len(labels))) or not np.isfinite(scores).all():
        fail("network", f"must have finite scores for {len(labels)} labels", f"{scores}"[:80])
    return model
