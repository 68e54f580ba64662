"""Small tables in every format, the same rows in each, and the command line that is tested with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from typer.testing import CliRunner, Result

from directloss.cli import app

FAST = ["--trials", 2, "--epochs", 8]


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
    """The rows in the format that the name asks for."""
    frame, path = rows() if frame is None else frame, folder / name
    if name.endswith(".parquet"):
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in name else ",")
    return path
