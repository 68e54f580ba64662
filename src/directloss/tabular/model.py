"""A trained model and its file: JSON with a checksum, which cannot run code.

The file is one JSON object on one line, ``{"format": ..., "version": 2, "sha256": ..., "content": ...}``. The checksum
covers the bytes of the content, and everything around it is compared byte by byte, so a single flipped bit is an error.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import nn

from directloss._checks import DirectLossError, fail, near, warn_once
from directloss.integrations._calibration import Calibration
from directloss.integrations._cut import decided
from directloss.integrations._fitting import layers
from directloss.integrations._rows import blocks_of
from directloss.tabular.columns import LARGEST, Survey, check_finite, check_kind, some, some_names, without_gap_words
from directloss.tabular.encoding import Column, Encoder, NumberColumn
from directloss.tabular.files import write_file
from directloss.tabular.measures import Measure, get_measure

if TYPE_CHECKING:
    from directloss.integrations.sklearn import DirectLossClassifier

FORMAT, VERSION = "directloss model", 2
LAYOUT = re.compile(
    rb'\{"format": "directloss model", "version": 2, "sha256": "([0-9a-f]{64})", "content": (.*)\}\n', re.DOTALL
)
ANY_VERSION = re.compile(rb'\{"format": "directloss model", "version": ([^,]{1,20}),')
FINEST = 1e-30
"""The smallest scale of a column. With it, and numbers up to `LARGEST`, scores in float64 stay finite."""
ABOUT: dict[str, Any] = {"target": str, "metric": str, "method": str, "sparse": bool, "notes": dict}
"""Fields of a model that the file stores as they are."""
OLD = "It was written by directloss 0.x: train it again with directloss fit, or predict with that version."
SHOWN = 3
"""Number of unseen categories that a warning names, per column."""


@dataclass
class Novelty:
    """What rows have that the training rows did not, by column."""

    gaps: Counter[str] = field(default_factory=Counter)
    """Number of rows with a missing number, where training had none."""
    unseen: Counter[str] = field(default_factory=Counter)
    """Number of rows with a category that is new, or was rare in training."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """A few of these categories."""
    rare: bool = False
    """Whether some of them may only have been rare."""

    def add(self, column: Column, values: pd.Series[Any]) -> None:
        """Take in a column of new rows."""
        if isinstance(column, NumberColumn):
            gaps = 0 if column.marks else int(values.isna().sum())
            self.gaps += Counter({column.name: gaps})
        elif words := column.unseen(values):
            self.unseen[column.name] += words.total()
            known = self.examples.get(column.name, [])
            self.examples[column.name] = list(dict.fromkeys([*known, *words]))[:SHOWN]
            self.rare |= column.others

    @property
    def warning(self) -> str:
        """A sentence about unseen categories; empty if there are none."""
        rarely = ", or has too rarely to learn from" if self.rare else ""
        found = [
            f"{name!r} in {rows} {'row' if rows == 1 else 'rows'} ({some_names(self.examples[name])})"
            for name, rows in self.unseen.items()
        ]
        return f"Categories that the training table does not have{rarely}: {some(found)}." if found else ""


@dataclass(frozen=True, repr=False)
class Model:
    """A network and everything else it takes to turn a row of a table into a score and a decision."""

    encoder: Encoder
    mean: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]
    network: nn.Module
    """In float64, so that a score does not depend on which rows are scored together."""
    cut: float
    """Scores above it mean the second label."""
    calibration: Calibration | None
    """From scores to probabilities; None for files written before there was one."""
    labels: tuple[str, ...]
    """Negative and positive, or all classes."""
    metric: str
    method: str
    target: str
    sparse: bool = False
    """Whether columns that a file does not mention are zero (svmlight)."""
    notes: dict[str, Any] = field(default_factory=dict)
    """How the model was made, for people to read."""

    @classmethod
    def of(cls, estimator: DirectLossClassifier, encoder: Encoder, **about: Any) -> Model:
        """The model of a fitted estimator, trained on rows of this encoder."""
        return cls(
            encoder=encoder,
            mean=estimator.scaling_.mean,
            scale=estimator.scaling_.scale,
            network=deepcopy(estimator.network_).double().eval().requires_grad_(False),
            cut=float(estimator._cut[0]),
            calibration=estimator._calibrations[0],
            **about,
        )

    def __repr__(self) -> str:
        about = f"metric={self.metric!r}, method={self.method!r}, target={self.target!r}"
        return f"Model({about}, columns={len(self.encoder.names)}, labels=({some_names(self.labels)}))"

    @property
    def hidden(self) -> tuple[int, ...]:
        """The widths of the network's hidden layers."""
        return tuple(layer.out_features for layer in self.network.modules() if isinstance(layer, nn.Linear))[:-1]

    @property
    def measure(self) -> Measure:
        """The metric."""
        return replace(get_measure(self.metric), classes=len(self.labels))

    def decision_function(self, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
        """The score of the positive label per row, above 0 for yes; only the order has a meaning.

        With more than two classes, one score per class, ``(n, classes)``. Warns about categories not seen in training.
        """
        novelty = Novelty()
        rows = self.encoder.encode(self.check(frame, novelty))
        if novelty.warning:
            warn_once("unseen categories", novelty.warning)
        return self.scores(rows)

    def predict(self, frame: pd.DataFrame) -> npt.NDArray[Any]:
        """The label of each row, as written in the training table."""
        return self.decisions(self.decision_function(frame))

    def decisions(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """`predict` of scores."""
        chosen: npt.NDArray[Any] = np.array(self.labels)[decided(scores)]
        return chosen

    def predict_proba(self, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
        """The probability of each of ``labels``, ``(n, labels)``, calibrated on the validation rows."""
        return self.probabilities(self.decision_function(frame))

    def probabilities(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """`predict_proba` of scores."""
        if self.calibration is None:
            fail("model", "must have been written with its calibration", "one without", "Train it again.")
        return self.calibration(scores)

    @torch.no_grad()
    def scores(self, rows: Any) -> npt.NDArray[np.float64]:
        """`decision_function` of encoded rows, an array or `StoredRows`, in blocks."""
        scaled = (torch.from_numpy((block - self.mean) / self.scale) for block in blocks_of(rows))
        scores = [self.network(block).numpy() for block in scaled]
        return np.concatenate(scores).squeeze(1 if len(self.labels) == 2 else ()) - self.cut

    def check(self, frame: Any, novelty: Novelty, sparse: bool = False) -> pd.DataFrame:
        """The columns of training, checked; ``novelty`` collects what training did not have.

        With ``sparse``, columns that are not mentioned are zero.
        """
        if not isinstance(frame, pd.DataFrame):
            rule = "must be a pandas.DataFrame with the columns of training"
            fail("frame", rule, f"a {type(frame).__name__}", f"Columns: {some_names(self.encoder.names)}.")
        known = [str(name) for name in frame.columns]
        missing, extra = [name for name in self.encoder.names if name not in known], self.unused(known)
        if self.sparse and sparse:
            if extra:
                fail("DATA", "must have the columns of training only", f"a file that also has {some_names(extra)}")
            frame = frame.reindex(columns=list(self.encoder.names), fill_value=0.0)
        elif missing:
            hint = near(missing[0], extra)
            fail("DATA", "must have every column of training", f"without {some_names(missing)}", hint)
        found = without_gap_words(frame[list(self.encoder.names)])
        survey = Survey.of([found], self.encoder.names)
        kinds = {column.name: column.kind for column in self.encoder.columns}
        for name, kind in kinds.items():
            check_kind(survey.columns[name], kind)
        check_finite(survey, kinds)
        for column in self.encoder.columns:
            novelty.add(column, found[column.name])
        return found

    def unused(self, names: Sequence[str]) -> list[str]:
        """Columns that training did not have."""
        return [name for name in names if name not in self.encoder.names and name != self.target]

    def save(self, path: Path) -> None:
        """Write the model file."""
        slopes = self.calibration and {"slope": self.calibration.slope, "bias": self.calibration.bias.tolist()}
        content = {
            "labels": list(self.labels),
            **{name: getattr(self, name) for name in ABOUT},
            "cut": self.cut,
            "calibration": slopes,
            "columns": self.encoder.to_list(),
            "mean": self.mean.tolist(),
            # A constant column has an infinite scale, which JSON cannot represent.
            "scale": [float(value) if np.isfinite(value) else None for value in self.scale],
            "hidden": list(self.hidden),
            "weights": {name: _packed(weight.float().numpy()) for name, weight in self.network.state_dict().items()},
        }
        text = json.dumps(content, allow_nan=False).encode()
        head = f'{{"format": "{FORMAT}", "version": {VERSION}, "sha256": "{hashlib.sha256(text).hexdigest()}"'
        write_file(path, head.encode() + b', "content": ' + text + b"}\n")


def load_model(path: str | Path) -> Model:
    """Read and check a model file; raises `DirectLossError` if it is not one."""
    path = Path(path)
    if not path.is_file():
        fail("MODEL", "must be a model file, such as the model.json that fit writes", f"{path}, which is not a file")
    raw = path.read_bytes()
    found = LAYOUT.fullmatch(raw)
    if found is None:
        _refuse(path, raw)
    if hashlib.sha256(found[2]).hexdigest().encode() != found[1]:
        hint = "Copy it again from where it was written, or train it again."
        fail("MODEL", "must be unchanged since fit wrote it", f"{path}, whose checksum does not match", hint)
    try:
        return _build(json.loads(found[2]))
    except (DirectLossError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = f"Reason: {str(error).splitlines()[0]}" if str(error) else ""
        fail("MODEL", "must be a whole model file", f"{path}, in which something is missing or does not fit", reason)


def _refuse(path: Path, raw: bytes) -> NoReturn:
    """Raise, saying what the file is instead."""
    if raw[:2] == b"PK" and FORMAT.encode() in raw:
        fail("MODEL", f"must be of version {VERSION}", f"{path} of version 1", OLD)
    version = ANY_VERSION.match(raw)
    if version is not None and version[1] != str(VERSION).encode():
        hint = "A newer directloss may read it." if version[1].isdigit() and int(version[1]) > VERSION else ""
        fail("MODEL", f"must be of version {VERSION}", f"{path} of version {version[1].decode(errors='replace')}", hint)
    fail("MODEL", "must be a file that directloss fit wrote", f"{path}, which is another file or damaged")


def _build(content: Mapping[str, Any]) -> Model:
    encoder = Encoder.from_list(content["columns"])
    hidden = tuple(int(width) for width in content["hidden"])
    mean = np.array(content["mean"], dtype=np.float64)
    scale = np.array([np.inf if value is None else value for value in content["scale"]], dtype=np.float64)
    if mean.shape != (encoder.width,) or scale.shape != mean.shape:
        fail("scaling", f"must have {encoder.width} numbers", f"{mean.shape} and {scale.shape}")
    if not (np.abs(mean) <= LARGEST).all() or not (scale >= FINEST).all():
        fail("scaling", f"must have means up to {LARGEST:g} and scales from {FINEST:g}", "outside that range")
    weights = {str(name): _unpacked(packed) for name, packed in content["weights"].items()}
    labels = tuple(str(label) for label in content["labels"])
    if len(labels) < 2:
        fail("labels", "must be two or more", labels)
    if not abs(cut := float(content["cut"])) <= LARGEST:
        fail("cut", f"must be a finite number up to {LARGEST:g}", cut)
    return Model(
        encoder=encoder,
        mean=mean,
        scale=scale,
        network=_network([encoder.width, *hidden, 1 if len(labels) == 2 else len(labels)], weights),
        cut=cut,
        calibration=_calibration(content.get("calibration"), len(labels)),
        labels=labels,
        **{name: kind(content[name]) for name, kind in ABOUT.items()},
    )


def _calibration(raw: Mapping[str, Any] | None, labels: int) -> Calibration | None:
    if raw is None:
        return None
    slope, bias = float(raw["slope"]), np.array(raw["bias"], dtype=np.float64)
    if not 0 < slope <= LARGEST or bias.shape != (labels,) or not (np.abs(bias) <= LARGEST).all():
        fail("calibration", f"must have a slope above 0 and {labels} biases, up to {LARGEST:g}", str(dict(raw)))
    return Calibration(slope, bias)


def _network(widths: Sequence[int], weights: Mapping[str, torch.Tensor]) -> nn.Module:
    # On "meta" nothing is allocated, however large the widths claim to be; the stored weights replace it.
    with torch.device("meta"):
        network = layers(widths)
    network.load_state_dict(weights, assign=True)
    return network.eval().requires_grad_(False)


def _packed(array: npt.NDArray[Any]) -> dict[str, Any]:
    data = base64.b64encode(np.ascontiguousarray(array, dtype="<f4").tobytes()).decode()
    return {"shape": list(array.shape), "float32": data}


def _unpacked(packed: Mapping[str, Any]) -> torch.Tensor:
    array = np.frombuffer(base64.b64decode(packed["float32"], validate=True), dtype="<f4").reshape(packed["shape"])
    if not (np.abs(array) <= LARGEST).all():
        fail("weights", f"must be finite numbers up to {LARGEST:g}", "outside that range")
    return torch.from_numpy(array.astype(np.float64))
