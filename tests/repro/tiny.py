"""An experiment small enough for tests: 2 settings and 2 seeds for each of 4 methods, 16 runs in all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from directloss_repro.campaign import execute
from directloss_repro.config import Config
from directloss_repro.experiments.base import Files
from directloss_repro.methods import parse_method
from directloss_repro.records import Record, RunSpec
from directloss_repro.runner import Training
from directloss_repro.seeding import stage_of

RUNS = 16

SETTINGS: dict[str, Any] = {
    "iterations": 4,
    "evaluate_every": 2,
    "search_seeds": 1,
    "select_on": "train",
    "train_points": 120,
    "test_points": 120,
    "hidden": [4],
    "direct": {"learning_rate": [0.01], "weight_decay": [0.0], "epsilon": [1.0, "auto"]},
    "hinge": {"learning_rate": [0.01], "weight_decay": [0.0], "epsilon": [1.0, 10.0]},
    "plain": {"learning_rate": [0.01, 0.1], "weight_decay": [0.0]},
}

OPTIONS = ["reproduce", "robustness", "--noise", "0.2", "--seeds", "2"]
for _key, _value in SETTINGS.items():
    OPTIONS += ["--set", f"{_key}={json.dumps(_value)}"]


def stored(folder: Path) -> dict[str, dict[str, Any]]:
    """The records of a folder by key, without what differs between two runs of the same work."""
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    found = {line["key"]: {k: v for k, v in line.items() if k not in ("seconds", "commit", "digest")} for line in lines}
    assert len(found) == len(lines), "a run was recorded twice"
    return found


def run_once(name: str, config: Config, method: str, root: str | None = None, seed: int = 0) -> Record:
    """One run with the first setting, in this process; without what differs between two runs of the same work."""
    params = config.grid(parse_method(method)).points()[0]
    spec = RunSpec(name, stage_of(seed), method, seed, 0.0, None, params)
    return execute(Training(name, config, Files(root)), spec, config.digest()).model_copy(update={"seconds": 0.0})
