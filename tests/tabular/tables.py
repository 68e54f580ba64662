"""Small tables in every format, the same rows in each, and the command line that is tested with them."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typer.testing import CliRunner, Result

from directloss.cli import app
from directloss.tabular.columns import Survey
from directloss.tabular.encoding import Encoder
from directloss.tabular.store import Store

FAST = ["--trials", 2, "--epochs", 8, "--baselines", "logistic"]


def call(*words: object) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(word) for word in words])


def rows(count: int = 300, seed: int = 0) -> pd.DataFrame:
    """Two numbers and a category that matter, and a number that does not; about a third is positive."""
    draw = np.random.default_rng(seed)
    a, b, noise = draw.normal(size=(3, count))
    colour = draw.choice(["red", "green", "blue"], count, p=[0.5, 0.4, 0.1])
    signal = a + 0.5 * b + (colour == "red") + 0.5 * draw.normal(size=count)
    outcome = np.where(signal > np.quantile(signal, 0.67), "yes", "no")
    return pd.DataFrame(
        {"a": a.round(4), "b": (10 + 5 * b).round(3), "noise": noise.round(3), "colour": colour, "outcome": outcome}
    )


def write(folder: Path, name: str, frame: pd.DataFrame | None = None) -> Path:
    """The rows in the format that the name asks for; svmlight and NPZ without the category."""
    frame = rows() if frame is None else frame
    path = folder / name
    numbers = frame[["a", "b", "noise"]].to_numpy() if {"a", "b", "noise"} <= set(frame) else None
    y = (frame["outcome"] == "yes").astype(int).to_numpy() if "outcome" in frame else None
    if ".csv" in name:
        frame.to_csv(path, index=False)
    elif name.endswith(".tsv"):
        frame.to_csv(path, index=False, sep="\t")
    elif name.endswith(".parquet"):
        frame.to_parquet(path)
    elif name.endswith(".npz"):
        arrays: dict[str, Any] = {"X": numbers, "y": y}
        np.savez(path, **arrays)
    else:
        assert numbers is not None
        assert y is not None
        lines = [
            f"{2 * label - 1} " + " ".join(f"{k + 1}:{value}" for k, value in enumerate(row) if value) + "\n"
            for label, row in zip(y, numbers.tolist(), strict=True)
        ]
        text = "".join(lines).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def learn_encoder(frame: pd.DataFrame, kinds: dict[str, str], with_gaps: Sequence[str] = ()) -> Encoder:
    """The encoder of a whole table."""
    store = Store.of([frame], Survey.of([frame], list(kinds)), kinds, None)
    return store.learn(np.arange(len(frame)), with_gaps)
