"""A trained model as a file. It holds tensors and JSON text, is read without pickle, and so cannot run code."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from directloss._checks import DirectLossError, fail
from directloss_repro.models.mlp import Scorer
from directloss_repro.tabular.encoding import Encoder

FORMAT, VERSION = "directloss model", 1
ROWS = 65_536
"""Rows that are scored at once."""


@dataclass(frozen=True)
class Model:
    """A scorer with everything that leads from a row of the file to its score and decision."""

    scorer: Scorer
    encoder: Encoder
    hidden: tuple[int, ...]
    metric: str
    method: str
    target: str
    labels: tuple[str, str]
    threshold: float | None
    """Scores above it are positive; None where only the order counts."""
    sparse: bool = False
    """Whether a column that a file does not mention is zero (svmlight)."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What it was made with, for people to read."""

    def to_bytes(self) -> bytes:
        """The content of the file."""
        about = {
            "hidden": list(self.hidden),
            "metric": self.metric,
            "method": self.method,
            "target": self.target,
            "labels": list(self.labels),
            "threshold": self.threshold,
            "sparse": self.sparse,
            "columns": self.encoder.to_list(),
            "notes": self.notes,
        }
        buffer = io.BytesIO()
        text = json.dumps(about, allow_nan=False)
        content = {"format": FORMAT, "version": VERSION, "about": text, "weights": dict(self.scorer.state_dict())}
        torch.save(content, buffer)
        return buffer.getvalue()

    def score(self, x: Tensor) -> Tensor:
        """Scores of encoded rows, in float64, so that they do not depend on how many rows are scored together."""
        return score(self.scorer, x)


@torch.no_grad()
def score(scorer: Scorer, x: Tensor) -> Tensor:
    """Scores ``(n,)`` in float64 of rows ``(n, d)``."""
    weights = {name: weight.double() for name, weight in scorer.state_dict().items()}
    blocks = [torch.func.functional_call(scorer, weights, (block.double(),)) for block in torch.split(x, ROWS)]
    return torch.cat(blocks)


def load_model(path: Path) -> Model:
    """Read and check a model file; what is not one is refused with a sentence."""
    if not path.is_file():
        fail("MODEL", "must be a model file, such as the model.pt that fit writes", f"{path}, which is no file")
    try:
        # weights_only: tensors and plain containers; anything else in the file is refused, not run.
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception:  # torch has a dozen of errors for files that are not its own
        fail("MODEL", "must be a file that directloss fit wrote", f"{path}, which is another file or damaged")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        fail("MODEL", "must be a file that directloss fit wrote", f"{path}, which is another file")
    version = content.get("version")
    if not isinstance(version, int) or version > VERSION:
        fail("MODEL", f"must be of version {VERSION} or older", f"{path} of version {version!r}", "Update directloss.")
    try:
        return _build(json.loads(content["about"]), content["weights"])
    except (DirectLossError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        said = f"It said: {str(error).splitlines()[0]}" if str(error) else ""
        fail("MODEL", "must be a whole model file", f"{path}, in which something is missing or does not fit", said)


def _build(about: dict[str, Any], weights: dict[str, Tensor]) -> Model:
    encoder = Encoder.from_list(about["columns"])
    hidden = tuple(int(width) for width in about["hidden"])
    # On "meta" nothing is allocated, however large the widths claim to be; the stored tensors take the places.
    with torch.device("meta"):
        scorer = Scorer(encoder.width, hidden)
    scorer.load_state_dict(weights, assign=True)
    for name, weight in weights.items():
        if weight.dtype != torch.float32 or not bool(torch.isfinite(weight).all()):
            fail(f"weight {name!r}", "must be finite float32 numbers", str(weight.dtype))
    negative, positive = (str(label) for label in about["labels"])
    threshold = about["threshold"]
    return Model(
        scorer=scorer.eval(),
        encoder=encoder,
        hidden=hidden,
        metric=str(about["metric"]),
        method=str(about["method"]),
        target=str(about["target"]),
        labels=(negative, positive),
        threshold=None if threshold is None else float(threshold),
        sparse=bool(about["sparse"]),
        notes=dict(about["notes"]),
    )
