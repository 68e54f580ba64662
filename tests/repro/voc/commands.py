"""The command on tiny devkits, with a network that is AlexNet in miniature."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from directloss_repro.cli import app
from typer.testing import CliRunner, Result

from tests.repro.voc.devkits import Item, Scene

ONE_SETTING: dict[str, Any] = {
    "direct": {"learning_rate": [0.01], "weight_decay": [0.0], "epsilon": ["auto"]},
    "hinge": {"learning_rate": [0.01], "weight_decay": [0.0], "epsilon": [1.0]},
    "plain": {"learning_rate": [0.01], "weight_decay": [0.0]},
}
TINY = {**ONE_SETTING, "hidden": [4], "iterations": 3, "evaluate_every": 1}
PERSONS = {**TINY, "size": 63, "context": 4, "width": 4, "pool": 0, "early": True}
BOXES = {
    **TINY, "size": 160, "pool": 2, "classes": ["dog", "cat"], "photographs": 0, "search_width": 0, "search_least": 10,
    "batch_size": 32,
}  # fmt: skip


def call(*words: object, **settings: Any) -> Result:
    """``directloss reproduce`` with changed settings."""
    options = [str(word) for word in words]
    for key, value in settings.items():
        options += ["--set", f"{key}={json.dumps(value)}"]
    return CliRunner(env={"COLUMNS": "300", "NO_COLOR": "1"}).invoke(app, ["reproduce", *options])


def finish(*words: object, settings: Mapping[str, Any]) -> Result:
    """The same, and it must go well."""
    result = call(*words, "--workers", 1, **settings)
    assert result.exit_code == 0, result.output
    return result


def refuse(message: str, name: str, devkit: Path, out: Path, settings: Mapping[str, Any]) -> None:
    """The command says what is wrong, before it records anything."""
    result = call(name, "--data-root", devkit, "--out", out, "--workers", 1, **settings)
    assert result.exit_code == 2
    assert message in result.output
    assert not (out / "records.jsonl").exists()


def person(number: int, **box: Any) -> Scene:
    """One person; red ones jump, blue ones walk."""
    jumps = number % 3 == 0
    item = Item("person", box.get("box", (6, 8, 36, 40)), actions=("jumping" if jumps else "walking",))
    colour = (230, 40, 40) if jumps else (40, 40, 230)
    return Scene(f"2011_{number:06d}", [item], width=48, height=48, colours={"person": colour})


def animals(count: int, offset: int = 0) -> list[Scene]:
    """A red dog on the left, a blue cat on the right."""
    colours = {"dog": (220, 40, 40), "cat": (40, 60, 220)}
    found = []
    for k in range(count):
        dog, cat = Item("dog", (4, 4 + k, 26, 30 + k)), Item("cat", (42, 6, 66, 34 + k))
        found.append(Scene(f"2009_{offset + k:06d}", [dog, cat], colours=colours))
    return found


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def info(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return found
