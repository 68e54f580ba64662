"""A trained model, and its file: JSON text with a checksum, which cannot run code.

The file is one JSON object on one line, ``{"format": ..., "version": 2, "sha256": ..., "content": ...}``. The checksum
is that of the bytes of the content, and everything around it is compared byte by byte, so that a file in which a single
bit has changed is refused.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
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

from directloss._checks import DirectLossError, fail, near
from directloss.integrations._calibration import Calibration
from directloss.integrations._cut import decided
from directloss.integrations._fitting import layers
from directloss.integrations._rows import blocks_of
from directloss.tabular.columns import (
    CATEGORY,
    DATE,
    LARGEST,
    NUMBER,
    Column,
    Survey,
    check_finite,
    some_names,
    without_gap_words,
)
from directloss.tabular.encoding import Encoder, NumberColumn
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
"""The smallest scale of a column: with it, and numbers up to `LARGEST`, scores in float64 stay finite."""
ABOUT: dict[str, Any] = {"target": str, "metric": str, "method": str, "sparse": bool, "notes": dict}
"""Fields of a model that the file has as they are."""
OLD = "It was written by directloss 0.x: train it again with directloss fit, or predict with that version."


@dataclass(frozen=True)
class Model:
    """A network with everything that leads from a row of a table to its score and decision."""

    encoder: Encoder
    mean: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]
    network: nn.Module
    """In float64, so that a score does not depend on the rows that are scored together."""
    cut: float
    """Scores above it mean the second label."""
    calibration: Calibration | None
    """From scores to probabilities; a file that was written before there were any has none."""
    labels: tuple[str, ...]
    """Negative and positive, or all classes."""
    metric: str
    method: str
    target: str
    sparse: bool = False
    """Whether a column that a file does not mention is zero (svmlight)."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What it was made with, for people to read."""

    @classmethod
    def of(cls, estimator: DirectLossClassifier, encoder: Encoder, **about: Any) -> Model:
        """The model of a fitted estimator that was trained on rows of this encoder."""
        return cls(
            encoder=encoder,
            mean=estimator.scaling_.mean,
            scale=estimator.scaling_.scale,
            network=deepcopy(estimator.network_).double().eval().requires_grad_(False),
            cut=float(estimator._cut[0]),
            calibration=estimator._calibrations[0],
            **about,
        )

    @property
    def hidden(self) -> tuple[int, ...]:
        """The widths of the network's hidden layers."""
        return tuple(layer.out_features for layer in self.network.modules() if isinstance(layer, nn.Linear))[:-1]

    @property
    def measure(self) -> Measure:
        """The metric."""
        return replace(get_measure(self.metric), classes=len(self.labels))

    def decision_function(self, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
        """How much speaks for the positive label, for each row; above 0 for yes. Only the order has a meaning.

        Of more than two classes, how much speaks for each: ``(n, classes)``.
        """
        return self.scores(self.encoder.encode(self.check(frame)[0]))

    def predict(self, frame: pd.DataFrame) -> npt.NDArray[Any]:
        """The label of each row, as the training table wrote it."""
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
        """`decision_function` of encoded rows, an array or `StoredRows`; some at a time."""
        scaled = (torch.from_numpy((block - self.mean) / self.scale) for block in blocks_of(rows))
        scores = [self.network(block).numpy() for block in scaled]
        return np.concatenate(scores).squeeze(1 if len(self.labels) == 2 else ()) - self.cut

    def check(self, frame: Any, sparse: bool = False) -> tuple[pd.DataFrame, dict[str, int]]:
        """The columns of training, and the rows with a gap in those without gaps in training.

        ``sparse`` says that columns which are not mentioned are zero.
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
            fail(
                "DATA", "must have every column of training", f"without {some_names(missing)}", near(missing[0], extra)
            )
        frame = without_gap_words(frame[list(self.encoder.names)])
        survey = Survey.of([frame], self.encoder.names)
        kinds = {column.name: column.kind for column in self.encoder.columns}
        for name, kind in kinds.items():
            _check_kind(survey.columns[name], kind)
        check_finite(survey, kinds)
        gaps = {
            column.name: count
            for column in self.encoder.columns
            if isinstance(column, NumberColumn) and not column.marks and (count := survey.columns[column.name].gaps)
        }
        return frame, gaps

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
            # A constant column has an infinite scale, which JSON cannot say.
            "scale": [float(value) if np.isfinite(value) else None for value in self.scale],
            "hidden": list(self.hidden),
            "weights": {name: _packed(weight.float().numpy()) for name, weight in self.network.state_dict().items()},
        }
        text = json.dumps(content, allow_nan=False).encode()
        head = f'{{"format": "{FORMAT}", "version": {VERSION}, "sha256": "{hashlib.sha256(text).hexdigest()}"'
        write_file(path, head.encode() + b', "content": ' + text + b"}\n")


def load_model(path: str | Path) -> Model:
    """Read and check a model file; what is not one is refused with a sentence."""
    path = Path(path)
    if not path.is_file():
        fail("MODEL", "must be a model file, such as the model.json that fit writes", f"{path}, which is no file")
    raw = path.read_bytes()
    found = LAYOUT.fullmatch(raw)
    if found is None:
        _refuse(path, raw)
    if hashlib.sha256(found[2]).hexdigest().encode() != found[1]:
        hint = "Copy it again from where it was written, or train it again."
        fail("MODEL", "must be as fit wrote it", f"{path}, whose content does not match its checksum", hint)
    try:
        return _build(json.loads(found[2], parse_constant=_no_constant))
    except (DirectLossError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        said = f"It said: {str(error).splitlines()[0]}" if str(error) else ""
        fail("MODEL", "must be a whole model file", f"{path}, in which something is missing or does not fit", said)


def _refuse(path: Path, raw: bytes) -> NoReturn:
    """Say what the file is instead."""
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
        fail("scaling", f"must have means up to {LARGEST:g} and scales from {FINEST:g} on", "beyond")
    weights = {str(name): _unpacked(packed) for name, packed in content["weights"].items()}
    labels = tuple(str(label) for label in content["labels"])
    if len(labels) < 2:
        fail("labels", "must be two or more", labels)
    if not abs(cut := float(content["cut"])) <= LARGEST:
        fail("cut", f"must be a number up to {LARGEST:g}", cut)
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
    # On "meta" nothing is allocated, however large the widths claim to be; the stored weights take the places.
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
        fail("weights", f"must be finite numbers up to {LARGEST:g}", "beyond")
    return torch.from_numpy(array.astype(np.float64))


def _no_constant(word: str) -> NoReturn:
    fail("numbers", "must be finite", word)


def _check_kind(column: Column, kind: str) -> None:
    """Numbers where training had numbers, and dates where it had dates."""
    dates = column.type == "dates" or (column.type == "words" and column.iso_dates)
    if column.present and not {NUMBER: column.numeric, DATE: dates, CATEGORY: True}[kind]:
        found = f"a column with {column.odd[0]!r}" if column.odd else "a column of other values"
        fail(f"column {column.name!r}", f"must hold {kind}s, as in training", found)
